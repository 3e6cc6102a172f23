"""Writes the seed corpus: small TensorProtos of every kind by hand, sound and hostile, and inputs
for the targets that take their own form.

    python3 native/fuzz/make_corpus.py

The same bytes on every run. An input that once failed goes into REGRESSIONS as hex, with the reason
as its name.
"""

from __future__ import annotations

import struct
from pathlib import Path

HERE = Path(__file__).parent / "corpus"
VARINT, FIXED64, LEN, START, END, FIXED32 = range(6)

FLOAT, DOUBLE, STRING = 1, 2, 7
# TensorFlow's enum -> (name, typed field, bytes of one value in tensor_content)
DTYPES = {
    1: ("float32", 5, 4), 2: ("float64", 6, 8), 3: ("int32", 7, 4), 4: ("uint8", 7, 1), 5: ("int16", 7, 2), 6: ("int8", 7, 1),
    8: ("complex64", 9, 8), 9: ("int64", 10, 8), 10: ("bool", 11, 1), 11: ("qint8", 7, 1), 12: ("quint8", 7, 1), 13: ("qint32", 7, 4),
    14: ("bfloat16", 13, 2), 15: ("qint16", 7, 2), 16: ("quint16", 7, 2), 17: ("uint16", 7, 2), 18: ("complex128", 12, 16),
    19: ("float16", 13, 2), 22: ("uint32", 16, 4), 23: ("uint64", 17, 8), 24: ("float8_e5m2", 18, 1), 25: ("float8_e4m3fn", 18, 1),
    26: ("float8_e4m3fnuz", 18, 1), 27: ("float8_e4m3b11fnuz", 18, 1), 28: ("float8_e5m2fnuz", 18, 1), 29: ("int4", 7, 1),
    30: ("uint4", 7, 1), 31: ("int2", 7, 1), 32: ("uint2", 7, 1), 33: ("float4_e2m1fn", 18, 1),
}  # fmt: skip
FIXED = {5: "<f", 9: "<f", 6: "<d", 12: "<d"}
SIGNED = {3, 5, 6, 9, 11, 13, 15, 29, 31}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | VARINT) + varint(value)


def block(field: int, data: bytes) -> bytes:
    return varint(field << 3 | LEN) + varint(len(data)) + data


def dim(size: int, name: bytes = b"") -> bytes:
    return (number(1, size) if size else b"") + (block(2, name) if name else b"")


def shape(*dims: int) -> bytes:
    return block(2, b"".join(block(2, dim(size)) for size in dims))


def dense(dtype: int, dims: tuple[int, ...], content: bytes) -> bytes:
    return number(1, dtype) + shape(*dims) + (block(4, content) if content else b"")


def packed(field: int, values: list[float] | list[int]) -> bytes:
    if field in FIXED:
        return block(field, b"".join(struct.pack(FIXED[field], value) for value in values))
    return block(field, b"".join(varint(int(value)) for value in values))


def unpacked(field: int, values: list[float] | list[int]) -> bytes:
    if field in FIXED:
        wire = FIXED32 if FIXED[field] == "<f" else FIXED64
        return b"".join(
            varint(field << 3 | wire) + struct.pack(FIXED[field], value) for value in values
        )
    return b"".join(number(field, int(value)) for value in values)


def strings(*values: bytes) -> bytes:
    return b"".join(block(8, value) for value in values)


def group(field: int, inside: bytes) -> bytes:
    return varint(field << 3 | START) + inside + varint(field << 3 | END)


def match_dense() -> dict[str, bytes]:
    widths = (1, 2, 4, 18, 19)  # one dtype of each width
    return {
        DTYPES[enum][0]: dense(enum, (2, 3), bytes(range(6 * DTYPES[enum][2]))) for enum in widths
    } | {
        "scalar": dense(FLOAT, (), b"\0\0\x80\x3f"),
        "no_content": dense(FLOAT, (0,), b""),
        "empty_content": dense(FLOAT, (0,), b"") + b"\x22\0",
        "zero_among_dims": dense(FLOAT, (3, 0, 1 << 40), b""),
        "long_content": dense(4, (300,), bytes(i & 255 for i in range(300))),
        "rank_40": dense(4, (1,) * 40, b"\7"),
        "rank_254": dense(4, (1,) * 254, b"\7"),
        "rank_255": dense(4, (1,) * 255, b"\7"),
        "product_2_63": dense(4, (1 << 31, 1 << 32), b""),
        "product_below_2_63": dense(4, (1 << 31, (1 << 32) - 1), b""),
        "dim_int64_max": dense(4, ((1 << 63) - 1,), b""),
        "dtype_127": dense(127, (1,), b"\0"),
        "dtype_128": dense(128, (1,), b"\0"),
        "padded_length": b"\x08\x01\x12\x80\0\x22\x04\0\0\0\0",
        "padded_dim": b"\x08\x04\x12\x05\x12\x03\x08\x81\0\x22\x01\0",
        "trailing_byte": dense(FLOAT, (), b"\0\0\x80\x3f") + b"\0",
    }


def scan_tensor() -> dict[str, bytes]:
    base = dense(FLOAT, (2,), bytes(8))
    each = b"".join(packed(field, [1, 0]) for field in (5, 6, 7, 9, 10, 11, 12, 13, 16, 17))
    named = block(2, block(2, dim(2, "höhe".encode())) + block(2, dim(3, b"width")))
    return {
        "named_dims": number(1, FLOAT) + named + block(4, bytes(24)),
        "name_not_utf8": number(1, FLOAT) + block(2, block(2, dim(2, b"\xed\xa0\x80"))),
        "name_cut_utf8": number(1, FLOAT) + block(2, block(2, dim(2, b"ab\xf0\x9f\x98"))),
        "name_four_bytes": (
            number(1, FLOAT) + block(2, block(2, dim(2, "\U0001f600\u20ac".encode())))
        ),
        "unknown_rank": number(1, FLOAT) + block(2, number(3, 1)),
        "unknown_rank_and_dims": number(1, FLOAT) + block(2, block(2, dim(2)) + number(3, 1)),
        "version": number(1, FLOAT) + number(3, 7) + shape(1) + block(4, bytes(4)),
        "order_reversed": block(4, bytes(8)) + shape(2) + number(1, FLOAT),
        "joined_twice": base + base,
        "negative_dim": number(1, FLOAT) + block(2, block(2, dim(-1))),
        "negative_dtype": number(1, -1) + shape(1),
        "dtype_past_32_bits": number(1, (1 << 32) + 1) + shape(1),
        "dim_twice": number(1, FLOAT) + block(2, block(2, number(1, 2) + number(1, 3))),
        "unknown_field": base + number(1000, 5) + block(77, b"abc"),
        "unknown_in_shape": (
            number(1, FLOAT) + block(2, block(2, dim(2) + number(9, 1)) + block(5, b"xy"))
        ),
        "field_max": base + number((1 << 29) - 1, 1),
        "wrong_wire_type": (
            varint(1 << 3 | FIXED32)
            + bytes(4)
            + varint(5 << 3 | VARINT)
            + b"\1"
            + varint(4 << 3 | FIXED64)
            + bytes(8)
        ),
        "group": base + group(20, number(1, 1) + block(2, b"ab") + group(3, b"")),
        "group_of_known_number": group(5, unpacked(5, [1.0])) + base,
        "group_depth_90": base + b"\xa3\1" * 90 + b"\xa4\1" * 90,
        "group_depth_200": base + b"\xa3\1" * 200 + b"\xa4\1" * 200,
        "group_open": base + b"\xa3\1" + number(1, 1),
        "group_other_end": base + b"\xa3\1\xac\1",
        "group_end_alone": base + b"\xa4\1",
        "tag_zero": base + b"\0",
        "tag_field_zero": base + b"\2\0",
        "tag_wire_7": base + b"\x0f",
        "tag_past_32_bits": base + b"\x88\x80\x80\x80\x10\1",
        "tag_padded": b"\x88\x80\0" + b"\1" + shape(1),
        "varint_of_11": number(1, FLOAT) + b"\x18" + b"\x80" * 10 + b"\1",
        "varint_past_64_bits": number(1, FLOAT) + b"\x18" + b"\xff" * 9 + b"\x7f",
        "length_past_end": number(1, FLOAT) + b"\x22\x64abc",
        "length_2_31": number(1, FLOAT) + b"\x22" + varint(1 << 31) + b"abc",
        "length_2_63": number(1, FLOAT) + b"\x12" + varint(1 << 63) + b"abc",
        "length_minus_one": number(1, FLOAT) + b"\x12" + varint(-1) + b"abc",
        "dim_past_shape": number(1, FLOAT) + b"\x12\3\x12\5\x08\1" + bytes(8),
        "name_past_dim": number(1, FLOAT) + b"\x12\5\x12\3\x12\x09a" + bytes(16),
        "resource_and_variant": number(1, 20) + block(14, b"\n\1x") + block(15, b"\n\1y"),
        "all_fields": base + each + strings(b"a") + block(18, b"\1\2"),
    }


def typed() -> dict[str, bytes]:
    out = {}
    for enum, (name, field, _) in DTYPES.items():
        if field == 18:
            body = block(18, b"\1\0\1\1")
        else:
            body = packed(
                field,
                (
                    [1.5, -0.0, 3.0, float("inf")]
                    if field in FIXED
                    else [1, -1 if enum in SIGNED else 1, 0, 1]
                ),
            )
        out[name] = number(1, enum) + shape(2 if name.startswith("complex") else 4) + body
    for enum in (1, 2, 3, 8, 10, 19):
        out[f"{DTYPES[enum][0]}_unpacked"] = (
            number(1, enum) + shape(2) + unpacked(DTYPES[enum][1], [1, 0])
        )
    return out | {
        "splat": number(1, FLOAT) + shape(1 << 20) + packed(5, [1.0]),
        "two_runs": number(1, 3) + shape(4) + packed(7, [1, 2]) + unpacked(7, [3]) + packed(7, [4]),
        "empty_run": number(1, 3) + shape(0) + packed(7, []),
        "odd_complex": number(1, 8) + shape(2) + packed(9, [1.0, 2.0, 3.0]),
        "ragged_run": number(1, FLOAT) + shape(1) + block(5, bytes(6)),
        "run_cut_in_varint": number(1, 3) + shape(1) + block(7, b"\1\x80"),
        "run_varint_of_11": number(1, 3) + shape(1) + block(7, b"\x80" * 10 + b"\1"),
        "run_varint_past_64_bits": number(1, 23) + shape(1) + block(17, b"\xff" * 9 + b"\x7f"),
        "int_edges": number(1, 9) + shape(4) + packed(10, [1 << 63, (1 << 63) - 1, -1, 0]),
        "int8_300": number(1, 6) + shape(1) + packed(7, [300]),
        "int4_edges": number(1, 29) + shape(4) + packed(7, [-8, 7, 8, -9]),
        "half_70000": number(1, 19) + shape(1) + packed(13, [70000]),
        "bool_2": number(1, 10) + shape(1) + packed(11, [2]),
        "float8_twice": number(1, 24) + shape(2) + block(18, b"abcdefgh") + block(18, b"xy"),
        "wrong_field": number(1, FLOAT) + shape(1) + packed(7, [1]),
        "value_in_group": number(1, 3) + shape(1) + group(30, unpacked(7, [1])) + unpacked(7, [2]),
    }


def string_vals() -> dict[str, bytes]:
    def tensor(*values: bytes) -> bytes:
        return number(1, STRING) + shape(len(values)) + strings(*values)

    many = [bytes(range(n)) for n in (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 200)]
    return {
        "scalar": number(1, STRING) + shape() + strings(b"hello"),
        "few": tensor(b"a", b"", b"ccc"),
        "sizes": tensor(*many),
        "sizes_back": tensor(*many[::-1]),
        "empties": tensor(*[b""] * 40),
        "splat": number(1, STRING) + shape(1000) + strings(b"x"),
        "container": (
            number(1, STRING)
            + block(2, block(2, dim(2, b"tensorwire/1")))
            + strings(b'{"t":0}', dense(FLOAT, (1,), bytes(4)))
        ),
        "shape_behind": number(1, STRING) + strings(b"a", b"b") + shape(2),
        "between": number(1, STRING) + shape(2) + strings(b"a") + number(3, 1) + strings(b"b"),
        "unknown_between": (
            number(1, STRING)
            + shape(2)
            + strings(b"a")
            + block(99, b"zz")
            + group(98, b"")
            + strings(b"b")
        ),
        "padded_tag": number(1, STRING) + shape(2) + b"\xc2\0\1a" + b"\x42\x81\0b",
        "wrong_wire_type": number(1, STRING) + shape(1) + b"\x40\5" + strings(b"a"),
        "cut": tensor(b"abc", b"defghi")[:-3],
        "length_past_end": tensor(b"abc") + b"\x42\x7f",
        "length_minus_one": tensor(b"abc") + b"\x42" + varint(-1),
        "content": number(1, STRING) + shape(3) + block(4, b"\1\0\2abb"),
        "only_strings": strings(b"a", b"bb"),
    }


def safetensors() -> dict[str, bytes]:
    def entry(name: str, dtype: str = "F32", shape: str = "[2,3]", offsets: str = "[0,24]") -> str:
        return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'

    lone = r'"__metadata__":{"tensorwire":"{\"version\":1,\"spec\":{}}"}'
    texts = {
        "one": "{" + entry("a") + "}",
        "two": "{" + entry("a") + "," + entry("ü b", "BOOL", "[]", "[24,25]") + "}   ",
        "none": "{}",
        "lone": "{" + lone + "," + entry("tensor") + "}",
        "lone_behind": "{" + entry("tensor") + "," + lone + "}",
        "lone_twice": "{" + lone + "," + lone + "}",
        "metadata": '{"__metadata__":{"format":"pt"},' + entry("a") + "}",
        "metadata_with_braces": r'{"__metadata__":{"a":"}\"{","b":"\\\\"},' + entry("a") + "}",
        "metadata_open": '{"__metadata__":{"a":"\\',
        "spaces": (
            '{ "a" : { "shape" : [ 1 , 0 ] , "data_offsets" : [ 0 , 0 ] , "dtype" : "U8" } } '
        ),
        "name_twice": "{" + entry("a") + "," + entry("a") + "}",
        "escape": "{" + entry(r"a\u0062") + "}",
        "key_twice": '{"a":{"dtype":"F32","dtype":"F32","shape":[]}}',
        "not_integers": "{" + entry("a", shape="[1.0,1e3,-1,01]") + "}",
        "comma_behind": "{" + entry("a", shape="[2,]") + ",}",
        "past_int64": (
            "{"
            + entry("a", shape="[9223372036854775808]", offsets="[0,99999999999999999999]")
            + "}"
        ),
        "offset_past_int64": "{" + entry("a", offsets="[0,9223372036854775808]") + "}",
        "product_past_int64": "{" + entry("a", shape="[4294967296,0,2147483648]") + "}",
        "rank_32": "{" + entry("a", shape=str([1] * 32)) + "}",
        "rank_33": "{" + entry("a", shape=str([1] * 33)) + "}",
        "cut": "{" + entry("a")[:-5],
    }
    return {name: text.encode() for name, text in texts.items()}


def string_lengths() -> dict[str, bytes]:
    return {
        "three": b"\3\1\0\2abb",
        "none": b"\0",
        "empties": b"\5" + bytes(5),
        "long": b"\2\xc8\1\0" + b"x" * 200,
        "padded": b"\1\x83\x80\0abc",
        "too_short": b"\2\5\1abc",
        "too_long": b"\1\1abc",
        "lengths_missing": b"\x09\0\0",
        "past_64_bits": b"\2" + varint(-1) + varint(2) + b"a",
        "varint_of_11": b"\1" + b"\x80" * 10 + b"\1",
        "sum_wraps": b"\2" + varint(1 << 63) + varint(1 << 63),
        "cut_in_varint": b"\2\1\x80",
    }


def write_strings() -> dict[str, bytes]:
    def raw(text: bytes, *offsets: int) -> bytes:
        return (
            bytes([1, len(offsets) - 1, 16])
            + b"".join(struct.pack("<q", offset) for offset in offsets)
            + text
        )

    return {
        "few": b"\0\3\0\1\0\3text",
        "sizes": b"\0\x0a\0" + bytes([0, 1, 16, 17, 32, 33, 64, 65, 100, 103]) + b"abcdefg",
        "long": b"\0\2\5\xff\x80z",
        "empties": b"\0\x28\0" + bytes(40),
        "none": b"\0\0\0",
        "raw_sound": raw(b"abcdef", 0, 2, 2, 6),
        "raw_past_end": raw(b"abc", 0, 2, 9),
        "raw_decreasing": raw(b"abcdef", 0, 5, 0),
        "raw_negative": raw(b"abc", -1, 2),
        "raw_wrapping": raw(b"abc", 0, -(1 << 63), 3),
        "raw_edges": raw(b"abc", -(1 << 63), (1 << 63) - 1, 0),
        "raw_sum_wraps": raw(b"abc", 0, 1 << 62, 0, 1 << 62, 0),
    }


def write_header() -> dict[str, bytes]:
    def header(dtype: int, content: int, *dims: int) -> bytes:
        sizes = (
            struct.pack("<b", size) if -128 < size < 128 else b"\x80" + struct.pack("<q", size)
            for size in dims
        )
        return struct.pack("<Bbh", len(dims), dtype, content * 64) + b"".join(sizes)

    return {
        "plain": header(1, 24, 2, 3),
        "scalar": header(2, 8),
        "zero": header(1, -1, 3, 0, 1 << 40),
        "empty_content": header(1, 0, 0),
        "long_content": header(4, 200, 200),
        "rank_254": header(4, 1, *[1] * 254),
        "shape_past_128_bytes": header(4, 1, *[1 << 62] + [1] * 30),
        "int64_max": header(4, 0, (1 << 63) - 1),
        "product_2_63": header(4, 0, 1 << 31, 1 << 32),
        "negative": header(4, 0, 2, -1),
        "negative_dtype": header(-1, 0, 2),
        "int64_min": header(4, 0, -(1 << 63)),
    }


def snappy() -> dict[str, bytes]:
    def literal(data: bytes, bytes_of_length: int = 0) -> bytes:
        size = len(data) - 1
        head = (
            bytes([(59 + bytes_of_length) << 2]) + size.to_bytes(bytes_of_length, "little")
            if bytes_of_length
            else bytes([size << 2])
        )
        return head + data

    def copy(offset: int, size: int, kind: int = 2) -> bytes:
        if kind == 1:
            return bytes([offset >> 8 << 5 | (size - 4) << 2 | 1, offset & 255])
        return bytes([(size - 1) << 2 | kind]) + offset.to_bytes(2 if kind == 2 else 4, "little")

    def sized(size: int, *elements: bytes) -> bytes:
        return varint(size) + b"".join(elements)

    text = bytes(range(60))
    patterns = b"".join(copy(offset, 64) for offset in range(1, 33))
    return {
        "empty": sized(0),
        "literal": sized(5, literal(b"hello")),
        "literals": sized(
            372,
            literal(text),
            literal(text, 1),
            literal(bytes(240), 2),
            literal(text[:7], 3),
            literal(text[:5], 4),
        ),
        "copies": sized(
            60 + 11 + 64 + 64 + 4,
            literal(text),
            copy(60, 11, 1),
            copy(20, 64),
            copy(130, 64, 3),
            copy(9, 4, 1),
        ),
        "patterns": sized(60 + 32 * 64, literal(text), patterns),
        "patterns_and_room": sized(60 + 32 * 64 + 240, literal(text), patterns, literal(text) * 4),
        "far_copy": sized(60 + 2048 + 11, literal(text), copy(1, 64) * 32, copy(2047, 11, 1)),
        "zeros": sized(1 + 64 * 20, literal(b"\0"), copy(1, 64) * 20),
        "short_copies": sized(60 + 100, literal(text), copy(59, 1) * 100),
        "copy_before_start": sized(160, literal(text), copy(61, 64), literal(text) * 2),
        "copy_first": sized(4, copy(1, 4)),
        "offset_zero": sized(160, literal(text), copy(0, 40), literal(text) * 2),
        "offset_max": sized(160, literal(text), copy((1 << 32) - 1, 40, 3), literal(text) * 2),
        "length_too_small": sized(59, literal(text), literal(b"a")),
        "length_too_large": sized(61, literal(text)),
        "length_not_to_be_had": sized(1 << 31, literal(text)),
        "length_past_32_bits": sized(1 << 32, literal(text)),
        "length_of_6": b"\xbc\x80\x80\x80\x80\0" + literal(text),
        "length_padded": b"\xbc\x80\0" + literal(text),
        "length_cut": b"\xbc\x80",
        "literal_max": sized(60, b"\xfc\xff\xff\xff\xff" + text),
        "literal_cut": sized(60, literal(text)[:-1]),
        "literal_length_cut": sized(300, literal(bytes(300), 2)[:2]),
        "copy_cut": sized(124, literal(text), copy(1, 64)[:2]),
    }


def crc32c() -> dict[str, bytes]:
    def split(size: int, at: int, start: int = 0, alignment: int = 0) -> bytes:
        return struct.pack("<HHIBQ", size, at, start, alignment, 0x123456789ABCDEF)

    return {
        "empty": split(0, 0),
        "nine": split(9, 4),
        "eight": split(8, 1, alignment=3),
        "below_blocks": split(767, 255, alignment=1),
        "small_blocks": split(768, 256),
        "two_small": split(1536 + 5, 700, start=0xFFFFFFFF),
        "large_blocks": split(12288, 4096),
        "large_and_small": split(12288 + 768 + 7, 12288, alignment=7),
        "two_large": split(24576 + 1, 1, start=0x12345678),
        "longest": split(25999, 16384, alignment=15),
    }


def shuffle() -> dict[str, bytes]:
    def case(size: int, item: int, block: int, alignment: int = 0, singles: int = 0) -> bytes:
        return struct.pack(
            "<HBHBQQ", size, item - 1, block - 1, alignment, singles, 0x123456789ABCDEF
        )

    items = {
        f"items_of_{item}": case(1000 * min(item, 5) + 3, item, 300, item % 7)
        for item in (1, 2, 3, 4, 8, 12, 16, 24, 40)
    }
    return items | {
        "empty": case(0, 4, 1),
        "no_item": case(3, 4, 1),
        "one_lane": case(64, 4, 16),
        "one_line": case(512, 8, 64, 5),
        "blocks_of_one": case(200, 2, 1),
        "all_the_same": case(4096, 8, 512, 1, (1 << 64) - 1),
        "some_the_same": case(4096 + 5, 16, 100, 3, 0xAAAA),
    }


REGRESSIONS: dict[str, dict[str, str]] = {}
"""Target -> what it was -> the input as hex."""

TARGETS = (
    crc32c,
    match_dense,
    safetensors,
    scan_tensor,
    shuffle,
    snappy,
    string_lengths,
    string_vals,
    typed,
    write_header,
    write_strings,
)


def main() -> None:
    import arrow_corpus  # here, as the next ones, of which one imports this file
    import json_corpus
    import record_corpus
    import table_corpus

    for target in (
        *TARGETS,
        *arrow_corpus.TARGETS,
        *json_corpus.TARGETS,
        *record_corpus.TARGETS,
        *table_corpus.TARGETS,
    ):
        folder = HERE / target.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        found = {
            name: bytes.fromhex(text) for name, text in REGRESSIONS.get(target.__name__, {}).items()
        }
        for name, data in (target() | found).items():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
