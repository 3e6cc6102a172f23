"""Inputs for the targets that read and write JSON numbers."""

from __future__ import annotations

import struct

# The order of native/src/json_numbers.h.
KINDS = (8, 4, 2, 2, *(1,) * 9, 8, 4, 2, 1, 1, 1, 8, 4, 2, 1, 1, 1, 1)
FLOAT64, FLOAT32, FLOAT16, E8M0, INT64, UINT64, BOOL = 0, 1, 2, 9, 13, 19, 25

NUMBERS = (
    "0", "-0.0", "1", "-1.5", "0.1", "3.14159265358979312", "1e5", "1E-05", "1e+16", "5e-324", "2.4703282292062327e-324",
    "1.7976931348623157e308", "1.7976931348623159e308", "1e400", "1e-400", "1e99999999999999999999", "9007199254740993",
    "9007199254740993.0000000000000000000001", "3.4028235e38", "3.4028236e38", "1.17549435e-38", "7.006492321624085e-46",
    "1.00000005960464477539062500000000000000000000001", "65519", "65520", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "0." + "0" * 400 + "1",
    "1" + "0" * 400, "0." + "123456789" * 100, "2.2250738585072011e-308", "true", "false", "NaN", '"NaN"', "Infinity", '"-Infinity"',
)  # fmt: skip
WRONG = (
    "", "-", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "1.e5", "0x10", "1_000", "nan", "inf", "-NaN", '"nan"', '"NaN', "Infinit", "tru",
    "null", '"1"', "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "]", "[1}", "{}", '{"a": 1}', "[[1], 2]", "[1, [2]]", "[[1], [2, 3]]",
    "[[], [1]]", "[[1], []]", "[[[]], [1]]", "1 2", "[1] 2", "\x00", "[\x0b1]",
)  # fmt: skip
LISTS = (
    "[]", "[[]]", "[[], []]", "[1, 2.5, -3]",
    "[0.1234567,0.7654321,-0.11111111,1.5,2.25,-3.125,0.99999994,1.1754944,0.3,7.25,0.333333343]",
    "[0.12345678901234567,-0.98765432109876543,0.10000000000000001,1.2345678901234567,0.5,0.25,0.30000000000000004]",
    " [ [ 1 , 2 ] ,\n\t[ 3 , 4 ]\r] ", "[[[1],[2]],[[3],[4]]]", "[[1,2],[],[3]]", "[[[1],[]],[],[[2,3]]]", "[true,false]",
    "[NaN,Infinity,-Infinity]", '["NaN","Infinity","-Infinity",1.0]', "[" * 64 + "1" + "]" * 64, "[" * 65 + "1" + "]" * 65,
    "[" + "0.5," * 300 + "0.5]", '["$a", [1]]', '{"a": "]\\"", "b": [1]}',
)  # fmt: skip


def json_parse() -> dict[str, bytes]:
    found = {f"number_{i}": text for i, text in enumerate(NUMBERS)} | {
        f"wrong_{i}": text for i, text in enumerate(WRONG)
    }
    found |= {f"list_{i}": text for i, text in enumerate(LISTS)} | {
        "numbers": f"[{', '.join(NUMBERS[:10])}]"
    }
    return {
        f"{name}_as_{kind}": bytes([kind]) + text.encode()
        for name, text in found.items()
        for kind in (FLOAT64, FLOAT32)
    } | {
        f"{name}_as_{kind}": bytes([kind]) + text.encode()
        for kind in range(2, len(KINDS))
        for name, text in {
            "number": "1",
            "list": "[[1, 0], [1, 1]]",
            "bools": "[true, false]",
            "large": "18446744073709551616",
        }.items()
    }


def json_write() -> dict[str, bytes]:
    def values(kind: int, *levels: int, data: bytes, options: int = 0) -> bytes:
        return bytes([kind, options, len(levels), *levels]) + data

    doubles = [
        0.0,
        -0.0,
        1.0,
        0.1,
        1 / 3,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        1e16,
        1e-5,
        123456789012345.6,
        2.0**53,
    ]
    floats = [
        0.1,
        1 / 3,
        1e-45,
        1.17549435e-38,
        3.4028234e38,
        16777216.0,
        8388608.5,
        0.0001,
        1e10,
        -2.5,
    ]
    every = {
        f"bits_{kind}": values(kind, 8, data=bytes(range(256))[: 8 * width])
        for kind, width in enumerate(KINDS)
    }
    return every | {
        "doubles": values(FLOAT64, 12, data=struct.pack("<12d", *doubles)),
        "floats": values(FLOAT32, 10, data=struct.pack("<10f", *floats)),
        "nonfinite": values(
            FLOAT32, 4, data=struct.pack("<4f", float("nan"), float("inf"), -float("inf"), 1.0)
        ),
        "bare": values(
            FLOAT32,
            4,
            data=struct.pack("<4f", float("nan"), float("inf"), -float("inf"), 1.0),
            options=1,
        ),
        "nan_bits": values(FLOAT32, 2, data=bytes.fromhex("0100c07f0000c0ff")),
        "halves": values(FLOAT16, 100, data=bytes(range(200))),
        "powers": values(E8M0, 16, 16, data=bytes(range(256))),
        "matrix": values(FLOAT32, 2, 3, data=struct.pack("<6f", *range(6))),
        "indented": values(
            FLOAT32, 2, 3, data=struct.pack("<6f", *range(6)), options=2 | 2 << 2 | 4 << 4
        ),
        "indented_deep": values(
            INT64, 2, 1, 2, data=struct.pack("<4q", 1, -1, 1 << 62, -(1 << 63)), options=2 | 1 << 2
        ),
        "scalar": values(UINT64, data=b"\xff" * 8),
        "bools": values(BOOL, 5, data=b"\0\1\0\2\xff"),
        "empty": values(FLOAT32, 0, data=b""),
        "lists_of_nothing": values(FLOAT32, 100, 0, data=b""),
        "ragged": values(INT64, 3, 0x83, data=bytes([2, 0, 1]) + struct.pack("<3q", 1, 2, 3)),
        "ragged_deep": values(BOOL, 2, 0x82, 0x83, data=bytes([1, 2, 1, 0, 2]) + b"\1\0\1"),
        "splits_go_back": values(BOOL, 3, 0xC3, data=bytes([0, 3, 1, 2]) + b"\1\0"),
        "splits_of_no_lists": values(BOOL, 0, 0xC0, data=bytes([3]) + b"\1\0\1"),
        "splits_negative": values(BOOL, 1, 0xC1, data=bytes([0xFF, 2]) + b"\1\0"),
    }


TARGETS = (json_parse, json_write)
