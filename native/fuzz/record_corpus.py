"""The part of the seed corpus that is about records: frames, and Examples with what each target
takes before them.
"""

from __future__ import annotations

import struct

from make_corpus import END, START, block, group, number, unpacked, varint

BYTES, FLOAT, INT64 = 1, 2, 3
SEQUENCE, FOOTERS, BAD_FOOTER, HOSTILE = 1, 2, 4, 8
NAMES = [b"a", b"b", b"aa", b"ab", b"", b"c", b"x" * 130, b"longer/than/8"]
LENGTHS = [-1, 0, 1, 3]


def tfrecord() -> dict[str, bytes]:
    def setup(*parts: bytes, most: int = 0, start: int = 0, longest: int = 1 << 20) -> bytes:
        return struct.pack("<BHQ", most, start, longest) + b"".join(parts)

    def part(what: int, data: bytes) -> bytes:
        return bytes([what, len(data)]) + data

    def header(length: int, data: bytes = b"") -> bytes:
        return bytes([2, len(data)]) + struct.pack("<Q", length) + data

    def flipped(data: bytes, bit: int) -> bytes:
        return part(bit << 2 | 1, data)

    some = [part(0, b"hello"), part(0, b""), part(0, bytes(range(100))), part(0, b"x" * 9)]
    return {
        "frames": setup(*some),
        "two_of_four": setup(*some, most=2),
        "from_the_second": setup(*some, start=21),
        "from_inside": setup(*some, start=30),
        "too_long": setup(*some, longest=99),
        "empties": setup(*[part(0, b"")] * 20),
        "garbage_between": setup(some[0], part(3, b"garbage of some bytes"), *some[1:]),
        "garbage_behind": setup(*some, part(3, b"abc")),
        "garbage_alone": setup(part(3, bytes(range(60)))),
        "cut_in_header": setup(some[0], part(3, struct.pack("<Q", 5))),
        "data_missing": setup(some[0], header(5)),
        "footer_missing": setup(some[0], header(5), part(3, b"hello")),
        "footer_cut": setup(some[0], header(5), part(3, b"hello\0\0\0")),
        "length_max": setup(some[0], header((1 << 64) - 1), some[1]),
        "length_wraps": setup(header((1 << 64) - 16), some[1]),
        "length_2_63": setup(header(1 << 63), some[1]),
        "header_in_data": setup(part(0, bytes.fromhex("0300000000000000b099490e") + b"abc")),
    } | {
        f"flipped_{bit}": setup(*some[:3], flipped(b"these are bytes", bit), some[3])
        for bit in (0, 9, 20, 33, 40, 63)
    }


def feature(kind: int, inside: bytes) -> bytes:
    return block(kind, inside)


def entry(name: bytes, value: bytes) -> bytes:
    return block(1, block(1, name) + block(2, value))


def example(*entries: bytes) -> bytes:
    return block(1, b"".join(entries))


def sequence(context: bytes, *lists: bytes) -> bytes:
    return context + block(2, b"".join(lists))


def steps(*features: bytes) -> bytes:
    return b"".join(block(1, each) for each in features)


def ints(*values: int) -> bytes:
    return feature(INT64, block(1, b"".join(map(varint, values))))


def floats(*values: float) -> bytes:
    return feature(FLOAT, block(1, b"".join(struct.pack("<f", value) for value in values)))


def texts(*values: bytes) -> bytes:
    return feature(BYTES, b"".join(block(1, value) for value in values))


def column(name: bytes, kind: int, length: int = -1, is_list: bool = False) -> int:
    """Kind 4 are the places of strings, where the length is fixed."""
    return NAMES.index(name) << 5 | is_list << 4 | LENGTHS.index(length) << 2 | kind - 1


def batch(columns: list[int], *messages: bytes, flags: int = 0) -> bytes:
    sized = (
        bytes([len(each)]) if len(each) < 0xFF else b"\xff" + struct.pack("<H", len(each))
        for each in messages
    )
    return bytes([flags, len(columns), *columns]) + b"".join(
        size + each for size, each in zip(sized, messages, strict=True)
    )


def example_decode() -> dict[str, bytes]:
    every = [column(b"a", INT64), column(b"b", FLOAT), column(b"aa", BYTES)]
    fixed = [column(b"a", INT64, 3), column(b"b", FLOAT, 3), column(b"aa", BYTES, 3)]
    lists = [
        column(b"a", INT64, -1, True),
        column(b"b", FLOAT, -1, True),
        column(b"aa", BYTES, -1, True),
        column(b"a", INT64),
    ]
    fixed_lists = [
        column(b"a", INT64, 1, True),
        column(b"b", FLOAT, 3, True),
        column(b"aa", BYTES, 1, True),
        column(b"ab", INT64, 0, True),
    ]
    plain = example(
        entry(b"a", ints(1, 300, -1)),
        entry(b"b", floats(1.5, -0.0, 3.0)),
        entry(b"aa", texts(b"", b"hello", b"x" * 20)),
    )
    other = example(
        entry(b"aa", texts(b"q" * 16)),
        entry(b"c", ints(5)),
        entry(b"a", ints(7)),
        entry(b"b", floats(2.0)),
    )
    long = example(
        entry(b"a", ints(*range(-5, 120), *range(1 << 62, (1 << 62) + 9))),
        entry(b"b", floats(*range(60))),
    )
    many = example(entry(b"aa", texts(*[b"s" * n for n in (0, 1, 15, 16, 17, 100, 0, 130, 16, 3)])))
    series = sequence(
        example(entry(b"a", ints(9))),
        entry(b"a", steps(ints(1), ints(), ints(2, 3))),
        entry(b"b", steps(floats(1.0, 2.0, 3.0), floats())),
        entry(b"aa", steps(texts(b"x", b"yy"), b"", texts())),
    )
    even = sequence(
        b"",
        entry(b"a", steps(ints(1), ints(2))),
        entry(b"b", steps(floats(1, 2, 3))),
        entry(b"aa", steps(texts(b"x"))),
    )
    tens = b"".join(varint(value) for value in (-1, -(1 << 63), (1 << 63) - 1))

    def odd(value: bytes) -> bytes:
        return batch(every, plain, example(entry(b"a", value)), plain)

    return {
        "plain": batch(every, plain, plain, plain),
        "in_another_order": batch(every, plain, other, plain, other),
        "fixed": batch(fixed, plain, plain),
        "fixed_missing": batch(fixed, plain, b"", example(), plain),
        "places": batch([column(b"aa", 4, 3), column(b"c", 4, 1), column(b"b", 4, 0)], plain, b"", plain, other),
        "places_in_hostile_outputs": batch([column(b"aa", 4, 3), column(b"c", 4, 1)], plain, b"", plain, flags=HOSTILE),
        "wrong_length": batch(fixed, plain, other),
        "wrong_kind": batch([column(b"a", BYTES), *every[1:]], plain),
        "no_columns": batch([], plain, other),
        "no_messages": batch(every),
        "empty_messages": batch(every, b"", b"", plain, b""),
        "long_runs": batch(every, long, plain, long),
        "strings_of_all_sizes": batch(every, many, plain, many),
        "many_records": batch(every, *[plain, other] * 12),
        "footers": batch(every, *[plain, other] * 4, flags=FOOTERS),
        "bad_footer": batch(every, *[plain, other] * 4, flags=FOOTERS | BAD_FOOTER),
        "hostile_outputs": batch(every, *[plain, other] * 4, flags=HOSTILE),
        "hostile_outputs_of_lists": batch([*lists, *fixed_lists[3:]], *[series, even] * 3, flags=HOSTILE | SEQUENCE),
        "hostile_outputs_of_fixed_lists": batch(fixed_lists, *[series, even] * 3, flags=HOSTILE | SEQUENCE),
        "series": batch(lists, series, even, series, flags=SEQUENCE),
        "series_fixed": batch(fixed_lists, even, b"", even, flags=SEQUENCE),
        "series_wrong_length": batch(fixed_lists, even, series, flags=SEQUENCE),
        "series_footers": batch(lists, series, even, series, flags=SEQUENCE | FOOTERS),
        "series_read_as_examples": batch(every, series, even),
        "many_steps": batch(lists, sequence(b"", entry(b"a", steps(*map(ints, range(50)))), entry(b"b", b"\n\0" * 80)), flags=SEQUENCE),
        "list_twice": batch(lists, sequence(b"", entry(b"a", steps(ints(1))), entry(b"a", steps(ints(2), ints(3)))), flags=SEQUENCE),
        "list_value_twice": batch(lists, block(2, block(1, block(1, b"a") + block(2, block(1, ints(1))) * 2)), flags=SEQUENCE),
        "list_of_mixed_kinds": batch(lists, sequence(b"", entry(b"a", steps(ints(1), floats(1.0), ints(2)))), flags=SEQUENCE),
        "unset": odd(b""),
        "empty_list": odd(ints()),
        "unpacked": odd(feature(INT64, unpacked(1, [1, 300, -1]))),
        "unpacked_floats": batch(every, example(entry(b"b", feature(FLOAT, b"\x0d\0\0\x80\x3f" * 3)))),
        "runs_of_both_forms": odd(feature(INT64, block(1, b"\1\2") + unpacked(1, [3]) + block(1, b"") + block(1, b"\4"))),
        "two_lists": odd(ints(1, 2) + ints(3)),
        "another_list_last": odd(ints(1, 2) + floats(1.0)),
        "another_list_between": odd(ints(1, 2) + texts(b"abc") + ints(4)),
        "strings_then_others_then_strings": batch(every, example(entry(b"aa", texts(b"abc", b"d") + ints(1) + texts(b"ef")))),
        "unknown_in_feature": odd(number(9, 1) + ints(1) + group(4, number(1, 1) + block(2, b"ab"))),
        "unknown_in_list": odd(feature(INT64, number(7, 5) + block(1, b"\1") + group(1, b"") + varint(1 << 3 | 5) + bytes(4))),
        "ten_bytes": odd(feature(INT64, block(1, tens))),
        "padded_numbers": odd(feature(INT64, block(1, b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\0" * 4 + b"\x81\0" * 40))),
        "past_64_bits": odd(feature(INT64, block(1, b"\xff" * 9 + b"\x7f"))),
        "eleven_bytes": odd(feature(INT64, block(1, b"\x80" * 10 + b"\1" + bytes(80)))),
        "run_cut_in_varint": odd(feature(INT64, block(1, b"\1\2\x80"))),
        "long_run_cut_in_varint": odd(feature(INT64, block(1, b"\1" * 70 + b"\x80" * 3))),
        "ragged_floats": batch(every, example(entry(b"b", feature(FLOAT, block(1, bytes(7)))))),
        "too_many_floats": batch(fixed, example(entry(b"b", floats(1, 2) + floats(3, 4)))),
        "too_many_ints": batch(fixed, example(entry(b"a", ints(*range(40))))),
        "too_many_strings": batch(fixed, example(entry(b"aa", texts(*[b"zz"] * 9)))),
        "name_twice": batch(every, example(entry(b"a", ints(1, 2)), entry(b"a", ints(3)), entry(b"aa", texts(b"abc")), entry(b"aa", b""))),
        "wrong_then_right": batch(fixed, example(entry(b"a", texts(b"x")), entry(b"a", ints(1, 2, 3)))),
        "no_key": batch([column(b"", INT64)], example(block(1, block(2, ints(1, 2))))),
        "no_value": batch(every, example(block(1, block(1, b"a")))),
        "value_first": batch(every, example(block(1, block(2, ints(1)) + block(1, b"a")))),
        "value_twice": batch(every, example(block(1, block(1, b"a") + block(2, ints(1)) + block(2, ints(2))))),
        "key_twice": batch(every, example(block(1, block(1, b"b") + block(1, b"a") + block(2, ints(1))))),
        "unknown_in_entry": batch(every, example(block(1, block(1, b"a") + number(5, 1) + block(2, ints(1))))),
        "long_name": batch([column(b"x" * 130, INT64)], *[example(entry(b"x" * 130, ints(1)))] * 2),
        "nearly_the_same_names": batch(
            [column(b"longer/than/8", INT64), *every[2:]],
            *[example(entry(name, ints(1))) for name in (b"longer/than/8", b"longer/than/9", b"Longer/than/8", b"longer/than")],
        ),
        "two_features": batch(every, plain + other),
        "unknown_around": batch(every, number(5, 1) + plain + group(9, block(1, b"x")) + block(3, b"abc")),
        "wrong_wire_types": batch(every, number(1, 5) + plain + varint(1 << 3 | 1) + bytes(8)),
        "padded_tags": batch(every, b"\x8a\0\x88\0" + b"\x8a\x80\0\x85\0" + b"\x0a\1a\x12\0"),
        "tag_zero": batch(every, plain + b"\0"),
        "group_open": batch(every, plain + varint(9 << 3 | START)),
        "group_end_alone": batch(every, plain + varint(9 << 3 | END)),
        "cut_in_key": batch(every, plain, plain[:5]),
        "cut_in_floats": batch(every, plain, plain[:40]),
        "cut_at_end": batch(every, plain, plain[:-1]),
        "entry_past_end": batch(every, block(1, b"\x0a\x7f\x0a\1a")),
        "length_minus_one": batch(every, b"\x0a" + varint(-1)),
    } | {  # 64 numbers are looked at together, with as much behind them
        f"{66 + n}_bytes_to_the_end": batch(every, example(entry(b"a", ints(*[1] * 64))) + block(9, bytes(n))) for n in range(2, 7)
    }  # fmt: skip


def example_compat() -> dict[str, bytes]:
    """Messages that TensorFlow's parser reads in its own way; see wire/reference/example_compat.py."""
    every = [column(b"a", INT64), column(b"b", FLOAT), column(b"aa", BYTES)]
    kinds = {b"a": INT64, b"b": FLOAT, b"aa": BYTES}
    lists = [column(name, kind, -1, True) for name, kind in kinds.items()]
    plain = example(entry(b"a", ints(1, 300)), entry(b"b", floats(1.5)), entry(b"aa", texts(b"x")))

    def features(*values: bytes, name: bytes = b"a") -> bytes:
        return batch(every, plain, example(*(entry(name, value) for value in values)), plain)

    def pair(*fields: bytes) -> bytes:
        return batch([*every, column(b"", INT64)], example(block(1, b"".join(fields))))

    def series(name: bytes, *values: bytes, flags: int = SEQUENCE) -> bytes:
        entries = [entry(name, value) for value in values]
        return batch(lists, sequence(b"", *entries), flags=flags)

    def context(value: bytes) -> bytes:
        return batch([column(b"a", INT64, 1)], example(entry(b"a", value)), flags=SEQUENCE)

    long = varint((1 << 32) + 3)
    fixed = [varint(9 << 3 | 1) + bytes(8), b"\x1d" + bytes(4)]
    return {
        "unset_behind": features(ints(1), b""),
        "unset_between": features(ints(1), b"", ints(2)),
        "neither_unset_nor_a_list": features(ints(1), b"\x22\0", ints(2)),
        "second_list_unseen": features(ints(1) + b"garbage"),
        "second_run_unseen": features(feature(INT64, block(1, b"\1\2") + b"garbage")),
        "packed_behind_unpacked": features(feature(INT64, unpacked(1, [1, 2]) + block(1, b"\3"))),
        "list_cut_to_the_end": features(b"\x1a\x7f" + block(1, b"\1\2")),
        "run_cut_to_the_end": features(b"\x1a\4\x0a\x7f\1\2"),
        "length_past_32_bits": features(b"\x1a" + long + b"\x0a\1\5"),
        "length_of_10": features(b"\x1a" + b"\x83" + b"\x80" * 8 + b"\0" + b"\x0a\1\5"),
        "tag_padded": features(b"\x9a\0\3\x0a\1\5"),
        "floats_with_a_rest": features(feature(FLOAT, block(1, bytes(7))), name=b"b"),
        "floats_cut": features(b"\x12\6\x0a\x08" + bytes(4), name=b"b"),
        "strings_past_end": features(feature(BYTES, b"\x0a\1x\x0a\5y"), name=b"aa"),
        "key_twice": pair(block(1, b"b"), block(1, b"a")),
        "value_twice": pair(block(2, ints(1)), block(2, ints(2))),
        "value_first": pair(block(2, ints(1)), block(1, b"a")),
        "entry_tags_padded": pair(b"\x8a\0\1a", b"\x92\x80\0\5", ints(7)),
        "entry_of_three": pair(block(1, b"a"), block(2, b""), block(2, ints(1))),
        "fields_between": batch(every, number(5, 1) + plain + fixed[0] + plain + fixed[1]),
        "field_past_end": batch(every, plain + b"\x1a\x7f123"),
        "field_of_2_31": batch(every, plain + b"\x1a" + varint(1 << 31) + plain),
        "field_zero": batch(every, b"\0\5" + plain),
        "group_between": batch(every, plain + group(9, b"") + plain),
        "features_cut": batch(every, b"\x0a\x7f" + plain[2:]),
        "context_unset": context(b""),
        "context_cut_to_nothing": context(b"\x1a\5"),
        "steps": series(b"a", steps(ints(1), b"", ints(), ints(2, 3))),
        "step_of_1": series(b"a", steps(ints(1)) + b"\x0a\1\x1a"),
        "step_of_2_padded": series(b"a", b"\x0a\2\x1a\x80\0" + steps(ints(1))),
        "step_of_2_not_empty": series(b"a", b"\x0a\2\x1a\1" + steps(ints(1))),
        "step_of_two_lists": series(b"a", steps(ints(1) + b"\x0a\5" + ints(2))),
        "step_of_two_runs": series(b"a", steps(feature(INT64, b"\x0a\1\1\x0a\0\x0a\0"))),
        "step_past_end": series(b"a", b"\x0a\x7f" + ints(1, 2)),
        "step_of_another_kind": series(b"a", steps(ints(1), floats(1.0), ints(2))),
        "step_of_ragged_floats": series(b"b", steps(feature(FLOAT, block(1, bytes(7))))),
        "steps_of_strings": series(b"aa", steps(texts(b"x", b"yy"), b"", texts())),
        "steps_twice": series(b"a", steps(ints(1)), b""),
        "value_before_key": batch(lists, block(2, block(1, b"\x12\0\x0a\1a")), flags=SEQUENCE),
        "hostile_outputs": series(b"a", steps(ints(1), ints(2)), flags=SEQUENCE | HOSTILE),
    }


def example_encode() -> dict[str, bytes]:
    def setup(
        *columns: bytes,
        flags: int = 0,
        rows: int = 3,
        room: int = 100,
        first: int = 0,
        step: int = 1,
    ) -> bytes:
        at = [
            bytes([index]) if index < 8 else b"\xff" + struct.pack("<Q", index)
            for index in (first, step)
        ]
        return (
            bytes([flags, len(columns), rows])
            + struct.pack("<H", room)
            + b"".join(at)
            + b"".join(columns)
        )

    def bounds(values: tuple[int, ...], least: int) -> bytes:
        small = (
            bytes([value]) if 0 <= value < 0xFF else b"\xff" + struct.pack("<q", value)
            for value in values
        )
        return bytes([len(values) - least]) + b"".join(small)

    def given(
        kind: int,
        values: bytes,
        *,
        offsets: tuple[int, ...] = (0,),
        splits: tuple[int, ...] = (),
        steps: tuple[int, ...] | None = None,
        length: int = -1,
        present: bytes = b"",
        name: int = 128,
    ) -> bytes:
        what = (
            kind - 1
            | (steps is not None) << 2
            | (8 if length < 0 else length << 4 if length < 4 else 24)
            | name
        )
        body = struct.pack("<q", length) if length >= 4 else b""
        body += (
            bytes([len(values) // {BYTES: 1, FLOAT: 4, INT64: 8}[kind], len(present)])
            + values
            + present
        )
        body += bounds(offsets, 1) if kind == BYTES else b""
        body += bounds(splits, 0) if length < 0 else b""
        return bytes([what]) + body + (bounds(steps, 0) if steps is not None else b"")

    edges = struct.pack("<6q", 0, 127, 128, -1, 1 << 62, -(1 << 63))
    numbers, reals = (
        given(INT64, edges, splits=(0, 1, 1, 6)),
        given(FLOAT, bytes(range(24)), splits=(0, 3, 5, 6), name=64),
    )
    text = given(BYTES, b"hello world", offsets=(0, 5, 5, 6, 11), splits=(0, 2, 3, 4), name=0)
    lists = [
        given(INT64, edges, splits=(0, 1, 1, 6), steps=(0, 1, 1, 3)),
        given(FLOAT, bytes(24), length=3, steps=(0, 1, 2, 2), name=64),
        given(BYTES, b"hello", offsets=(0, 2, 5), length=1, steps=(0, 0, 1, 2), name=0),
    ]
    far, least = (1 << 63) - 1, -(1 << 63)
    return {
        "examples": setup(numbers, reals, text, room=2000),
        "framed": setup(numbers, reals, text, flags=2, room=300),
        "no_ends": setup(numbers, flags=4, room=60),
        "tight": setup(numbers, reals, text, room=40),
        "fixed": setup(given(INT64, edges, length=2), given(FLOAT, bytes(12), length=1, name=64)),
        "fixed_of_none": setup(given(INT64, b"", length=0)),
        "missing": setup(
            given(INT64, edges, length=2, present=b"\1\0\1"),
            given(FLOAT, b"", length=3, present=b"\0\0\0", name=0),
        ),
        "missing_too_short": setup(given(INT64, edges, length=2, present=b"\1")),
        "sequence": setup(numbers, *lists, flags=1, room=2000),
        "sequence_framed": setup(numbers, *lists, flags=3),
        "sequence_of_nothing": setup(flags=1),
        "nothing": setup(),
        "every_second": setup(numbers, reals, text, rows=2, step=2),
        "the_same_again": setup(numbers, rows=7, step=0),
        "rows_past_end": setup(numbers, first=2),
        "row_max": setup(numbers, reals, *lists, flags=1, first=(1 << 64) - 1),
        "row_wraps": setup(given(INT64, b"", length=0), numbers, step=(1 << 64) - 1),
        "splits_decrease": setup(given(INT64, edges, splits=(3, 1, 5, 6))),
        "splits_negative": setup(given(INT64, edges, splits=(-1, 1, 5, 6))),
        "splits_past_end": setup(given(FLOAT, bytes(8), splits=(0, 1, 2, 3))),
        "splits_far": setup(given(FLOAT, bytes(8), splits=(0, far, far, far))),
        "splits_least": setup(given(INT64, edges, splits=(least, 1, far, 2))),
        "splits_none": setup(given(INT64, edges)),
        "offsets_decrease": setup(given(BYTES, b"hello", offsets=(0, 5, 2, 5), length=1)),
        "offsets_past_end": setup(given(BYTES, b"hello", offsets=(0, 5, 6), length=1)),
        "offsets_negative": setup(given(BYTES, b"hello", offsets=(-2, 5, least), length=1)),
        "strings_of_2_gib": setup(given(BYTES, b"hello", offsets=(0, 1 << 31, 1 << 32), length=1)),
        "length_far": setup(given(INT64, edges, length=far), first=2),
        "length_wraps": setup(given(INT64, edges, length=1 << 62), first=4),
        "steps_decrease": setup(given(INT64, edges, length=1, steps=(0, 3, 1, 2)), flags=1),
        "steps_negative": setup(given(INT64, b"", length=0, steps=(-5, -3, 0, 1)), flags=1),
        "steps_far": setup(given(INT64, b"", length=0, steps=(0, far, far, far)), flags=1),
        "steps_past_splits": setup(given(INT64, edges, splits=(0, 1), steps=(0, 1, 2, 9)), flags=1),
    }


TARGETS = (example_compat, example_decode, example_encode, tfrecord)
