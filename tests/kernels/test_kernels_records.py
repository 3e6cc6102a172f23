"""The kernels of record files and their readable twins give the same result, and protobuf agrees
with both.
"""

import random
import struct
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import example_specs
from support.example_protos import BYTES, FLOAT, INT64, NAMES, Messages
from tensorwire import _native as native
from tensorwire.wire import status, tfrecord
from tensorwire.wire.example import key_order
from tensorwire.wire.reference import example as pure_example
from tensorwire.wire.reference import example_encode as pure_encode
from tensorwire.wire.reference import example_survey as pure_survey
from tensorwire.wire.reference import tfrecord as pure_tfrecord
from tensorwire.wire.reference.protobuf import to_varint

PLACES = 4
DTYPES = {BYTES: np.uint8, FLOAT: np.float32, INT64: np.int64, PLACES: np.int64}
WIDTHS = {BYTES: 1, FLOAT: 1, INT64: 1, PLACES: 2}
SEEDS = st.integers(0, 1 << 40)


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    else:
        assert a == b


def damaged(rng, data):
    """Flips, a cut, or neither."""
    data = bytearray(data)
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.1 else data)


# Frames


@st.composite
def streams(draw):
    """Frames, some of them damaged, or with garbage before, between and behind."""
    rng = random.Random(draw(SEEDS))
    parts = []
    for _ in range(rng.randrange(6)):
        parts.append(
            damaged(rng, native.frame(rng.randbytes(rng.choice([0, 1, 7, 8, 40, 300]))))
            if rng.random() < 0.95
            else rng.randbytes(9)
        )
    return b"".join(parts)


@given(
    streams(),
    st.data(),
    st.booleans(),
    st.sampled_from([0, 7, 8, 1 << 30, (1 << 64) - 1]),
    st.sampled_from([0, 1, 2, 1 << 40]),
)
def test_frame_scan(data, draw, check, longest, most):
    start = draw.draw(st.one_of(st.just(0), st.integers(0, len(data))))
    found = native.frame_scan(data, start, check, longest, most)
    same(found, pure_tfrecord.frame_scan(data, start, check, longest, most))
    same(native.frame_list(data, *found[2:]), pure_tfrecord.frame_list(data, *found[2:]))
    assert (found[0] == 0) <= (found[1] == len(data) or len(found[2]) == most)
    if found[0] == 0 and check:
        assert (
            b"".join(map(native.frame, native.frame_list(data, *found[2:])))
            == data[start : found[1]]
        )


@given(streams(), st.data(), st.sampled_from([0, 8, 1 << 30, (1 << 64) - 1]))
def test_frame_find(data, draw, longest):
    start = draw.draw(st.integers(0, len(data) + 20))
    found = native.frame_find(data, start, longest)
    assert found == pure_tfrecord.frame_find(data, start, longest)
    if found < len(data):
        assert native.frame_scan(data, found, False, longest, 1)[0] in (0, status.TRUNCATED)


NUMBERS = st.one_of(st.integers(0, 400), st.just((1 << 64) - 1))


@given(
    streams(),
    st.data(),
    st.sampled_from([8, 1 << 30, (1 << 64) - 1]),
    NUMBERS,
    NUMBERS,
    st.sampled_from([1, 30]),
)
def test_frame_chain(data, draw, longest, near, checks, guess):
    start, stop = (
        draw.draw(st.integers(0, len(data) + 20)),
        draw.draw(st.one_of(st.integers(0, len(data) + 20), st.just((1 << 64) - 1))),
    )
    total = len(data) + draw.draw(st.sampled_from([0, 0, 1, 12, 400, 1 << 40]))
    found, left = native.frame_chain(data, start, stop, longest, total, near, checks, guess)
    assert (found, left) == pure_tfrecord.frame_chain(
        data, start, stop, longest, total, near, checks, guess
    )
    assert found == len(data) or (
        start <= found < stop and found == native.frame_find(data, found, longest)
    )
    assert left <= checks and (checks - left == 0 or checks - left >= guess)


def test_what_begins_a_chain():
    """The rules one by one: headers that lie are passed over, and what it costs to see that."""

    def chain(data, *, total=None, near=0, checks=1000, stop=1 << 40):
        found = {
            k.frame_chain(data, 0, stop, 1 << 30, total or len(data), near, checks, 100)
            for k in (native, pure_tfrecord)
        }
        assert len(found) == 1
        return found.pop()

    lie, frame = tfrecord.header(7), native.frame(b"a record")
    assert chain(b"??" + frame + frame) == (2, 1000)
    assert chain(b"??" + frame) == (2, 1000)  # the file ends with it
    assert chain(b"??" + lie + b"?" * 11) == (2, 1000)  # whatever its data is
    assert chain(b"??" + frame + b"?" * 20) == (2, 1000)  # its data tells
    # which nothing is left for
    assert chain(b"??" + frame + b"?" * 20, checks=99) == (len(frame) + 22, 99)
    assert chain(lie + b"?" * 40) == (52, 900)
    assert chain(lie * 9 + frame) == (9 * 12, 1000 - 9 * 100)
    # more than these bytes is needed to judge it
    assert chain(lie + b"?" * 10, total=99) == (0, 1000)
    assert chain(lie + b"?" * 10, total=99, near=1) == (22, 1000)
    assert chain(lie + b"?" * 10, total=22) == (22, 1000)
    assert chain(b"??" + frame, stop=2) == (len(frame) + 2, 1000)
    assert chain(b"??" + frame, stop=3) == (2, 1000)
    for kernels in (native, pure_tfrecord):
        with pytest.raises(ValueError, match="not smaller"):
            kernels.frame_chain(b"abc", 0, 9, 9, 2, 0, 0, 1)


@given(st.lists(st.binary(max_size=40), max_size=8), st.binary(max_size=3))
def test_frames(records, before):
    data = before + b"".join(records)
    offsets = np.cumsum([len(before), *map(len, records)], dtype=np.int64)
    blob = native.frames(data, offsets)
    assert (
        blob
        == pure_tfrecord.frames(data, offsets)
        == b"".join(map(native.frame, records))
        == b"".join(map(pure_tfrecord.frame, records))
    )
    code, offset, starts, sizes = native.frame_scan(blob, 0, True, 1 << 30, 1 << 30)
    assert (code, offset) == (0, len(blob)) and native.frame_list(blob, starts, sizes) == records


@pytest.mark.parametrize("size", [0, 1, 767, 768, 13000, 100_003])
def test_long_frames(size):
    """Three checksums are computed at once; here they are of different lengths."""
    data = np.random.default_rng(size).bytes(size)
    blob = bytearray(
        native.frame(data)
        + native.frame(data[: size // 2])
        + native.frame(data[1:])
        + native.frame(b"x")
    )
    same(
        native.frame_scan(blob, 0, True, 1 << 30, 9),
        pure_tfrecord.frame_scan(blob, 0, True, 1 << 30, 9),
    )
    for at in (12 + size // 2, 16 + size + 12, len(blob) - 1):
        if size:
            blob[at] ^= 4
            found = native.frame_scan(blob, 0, True, 1 << 30, 9)
            same(found, pure_tfrecord.frame_scan(blob, 0, True, 1 << 30, 9))
            assert found[0]
            blob[at] ^= 4


def int64s(*values):
    return np.array(values, np.int64)


def test_frames_refuse_what_they_cannot_hold():
    for kernels in (native, pure_tfrecord):
        for call in (
            lambda k: k.frame_scan(b"abc", 4, True, 9, 9),
            lambda k: k.frame_list(b"abc", int64s(0, 1), int64s(1)),
            lambda k: k.frame_list(b"abc", int64s(0), int64s(4)),
            lambda k: k.frame_list(b"abc", int64s(-1), int64s(2)),
            lambda k: k.frame_list(b"abc", int64s(2), int64s(-1)),
            lambda k: k.frame_list(b"abc", int64s(1 << 62), int64s(1 << 62)),
            lambda k: k.frames(b"abc", int64s()),
            lambda k: k.frames(b"abc", int64s(0, 4)),
            lambda k: k.frames(b"abc", int64s(0, 2, 1)),
            lambda k: k.frames(b"abc", int64s(-2, 1)),
            lambda k: k.frames(b"abc", int64s(0, 3, 0, 3, 0)),
            lambda k: k.frames(b"abc", int64s(-(1 << 63), (1 << 63) - 1, 0)),
        ):
            with pytest.raises(ValueError):
                call(kernels)
        assert (
            kernels.frame_find(b"abc" * 9, (1 << 64) - 1, 9)
            == kernels.frame_find(b"abc" * 9, (1 << 63) + 5, 9)
            == 27
        )
    for wrong in (
        None,
        int64s(1).astype(np.int32),
        [1],
        int64s(1, 2, 3)[::2],
        int64s(1).reshape(1, 1),
    ):
        with pytest.raises((TypeError, ValueError)):
            native.frame_list(b"abc", wrong, int64s(1))
        with pytest.raises((TypeError, ValueError)):
            native.frames(b"abc", wrong)
    with pytest.raises(TypeError):
        native.frame_scan(b"abc", -1, True, 9, 9)


# Messages into columns


def batch(rng, sequence):
    """(messages, kinds of the features, of the feature lists, buffer, starts, sizes, whether
    checksums are there)
    """
    messages = Messages(
        rng,
        rng.choice([0, 0.05, 0.2]),
        {kind: rng.choice([0, 1, 2, 30]) for kind in (1, 2, 3) if rng.random() < 0.3},
    )
    kinds = {name: rng.randint(1, 3) for name in rng.sample(NAMES, rng.randint(0, 4))}
    lists = (
        {name: rng.randint(1, 3) for name in rng.sample(NAMES, rng.randint(0, 3))}
        if sequence
        else None
    )
    framed, data, starts, sizes = (
        rng.random() < 0.3,
        bytearray(rng.randbytes(rng.randrange(9))),
        [],
        [],
    )
    broken = rng.random() < 0.3
    for _ in range(rng.choice([0, 1, 2, 3, 8])):
        message = messages.message(kinds, lists)
        message = damaged(rng, message) if broken else message
        starts.append(len(data))
        sizes.append(len(message))
        data += message
        if framed:
            data += (
                damaged(rng, native.frame(message)[-4:])
                if rng.random() < 0.1
                else native.frame(message)[-4:]
            )
    data += rng.randbytes(rng.choice([0, 3, 100]))
    if starts and rng.random() < 0.03:
        sizes[-1] += rng.choice([-1, 1, 200, 1 << 62])
    return messages, kinds, lists, bytes(data), int64s(*starts), int64s(*sizes), not framed


def columns_for(rng, messages, kinds, lists):
    """Columns (name, kind, length, list) that fit mostly."""
    columns = []
    for source, is_list in ((kinds, False), (lists or {}, True)):
        for name, kind in source.items():
            if rng.random() < 0.8:
                kind = kind if rng.random() < 0.98 else rng.randint(1, 3)
                length = messages.counts.get(kind, -1)
                length = length if rng.random() < 0.8 else -1 if rng.random() < 0.8 else 2
                kind = (
                    PLACES
                    if kind == BYTES and length >= 0 and not is_list and rng.random() < 0.3
                    else kind
                )
                columns.append((name, kind, length, is_list))
        if rng.random() < 0.3 and (lists is not None or not is_list):
            columns.append((b"missing", rng.randint(1, 3), rng.choice([-1, 0, 3]), is_list))
    rng.shuffle(columns)
    return columns


class Outputs:
    """Buffers as ExampleDecoder wants them, with room for `spare` values, bytes and steps more than
    are surely needed.
    """

    def __init__(self, columns, rows, spare):
        self.columns, self.rows = columns, rows
        self.parts = []
        for _, kind, length, is_list in columns:
            values = spare + (0 if is_list or length < 0 else rows * length)
            offsets = np.zeros(values + 1, np.int64) if kind == BYTES else None
            splits = np.zeros((spare if is_list else rows) + 1, np.int64) if length < 0 else None
            steps = np.zeros(rows + 1, np.int64) if is_list else None
            self.parts.append(
                (
                    np.full(values * WIDTHS[kind], 77, DTYPES[kind]),
                    offsets,
                    splits,
                    steps,
                    np.zeros(rows, np.bool_),
                )
            )

    def used(self, number, row):
        """(instances, values, bytes)"""
        _, _, length, is_list = self.columns[number]
        _, offsets, splits, steps, _ = self.parts[number]
        instances = int(steps[row]) if is_list else row
        values = int(splits[instances]) if length < 0 else instances * length
        return instances, values, 0 if offsets is None else int(offsets[values])

    def grow(self, number, row, size):
        instances, values, data = self.used(number, row)
        old, kind = self.parts[number], self.columns[number][1]
        needs = (
            (data if kind == BYTES else values) * WIDTHS[kind] + size,
            values + 1 + size,
            instances + 1 + size,
        )
        longer = [
            array if array is None or len(array) >= n else np.resize(array, n)
            for array, n in zip(old[:3], needs, strict=True)
        ]
        assert any(a is not b for a, b in zip(longer, old[:3], strict=True)), (
            "NO_SPACE, and there was enough"
        )
        self.parts[number] = (*longer, *old[3:])

    def filled(self, row):
        out = []
        for number, (_, kind, _, _) in enumerate(self.columns):
            instances, values, data = self.used(number, row)
            ends = (
                (data if kind == BYTES else values) * WIDTHS[kind],
                values + 1,
                instances + 1,
                row + 1,
                row,
            )
            out.append(
                tuple(
                    part if part is None else part[:end].copy()
                    for part, end in zip(self.parts[number], ends, strict=True)
                )
            )
        return out


def decode(module, columns, sequence, data, starts, sizes, checked, spare, rows, first, compat=0):
    """(what `decode` returned at last, what was filled), growing as often as it asks for it."""
    parts = map(list, zip(*columns, strict=True)) if columns else ([], [], [], [])
    decoder = module.ExampleDecoder(*parts, sequence, compat)
    outputs, done, row, strange = Outputs(columns, rows, spare), 0, 0, False
    while True:
        code, offset, done, column, found, more = decoder.decode(
            data, starts, sizes, first + row, row, outputs.parts, checked
        )
        row, strange = row + done, strange or more
        if code != status.NO_SPACE:
            return (code, offset, row, column, found, strange), outputs.filled(
                row if columns else 0
            )
        outputs.grow(column, row, int(sizes[first + row]))


@given(SEEDS, st.booleans())
def test_example_decoder(seed, sequence):
    rng = random.Random(seed)
    messages, kinds, lists, data, starts, sizes, checked = batch(rng, sequence)
    columns = columns_for(rng, messages, kinds, lists)
    first = rng.choice([0, 0, 0, rng.randint(0, len(starts))])
    rows = rng.choice([len(starts) - first, len(starts) - first, rng.randrange(9)])
    args = (columns, sequence, data, starts, sizes, checked)
    twin = decode(pure_example, *args, len(data), rows, first)
    same(decode(native, *args, len(data), rows, first), twin)
    for spare in (0, 1, rng.randrange(40)):
        same(decode(native, *args, spare, rows, first), twin)
    same(decode(pure_example, *args, 0, rows, first), twin)


def without_places(columns):
    return [(name, BYTES if kind == PLACES else kind, *rest) for name, kind, *rest in columns]


def lenient_message(rng, kinds, lists):
    """A message in forms that TensorFlow reads in its own way: fields in other places, lists and
    names given twice, lengths that lie."""
    wild = rng.choice([0, 0.1, 0.4])

    def feature(kind):
        if rng.random() < wild / 4:
            return rng.choice([b"", field(kind, 2, field(1, 2, rng.randbytes(rng.randrange(9))))])
        items = example_specs.values(rng, kind, rng.choice([0, 1, 2, 2, 5]))
        return example_specs.feature(rng, kind, items, rng.random() < wild)

    def feature_list(kind):
        return b"".join(field(1, 2, feature(kind)) for _ in range(rng.randrange(4)))

    def entries(kinds, make):
        names = rng.sample(sorted(kinds), len(kinds))
        names += rng.choices(sorted(kinds) or [b""], k=rng.randrange(3))
        made = [(name, make(kinds.get(name, INT64))) for name in names]
        return [example_specs.entry(rng, *pair, rng.random() < wild) for pair in made]

    parts = [entries(kinds, feature)] + ([] if lists is None else [entries(lists, feature_list)])
    return example_specs.message(rng, parts, rng.random() < wild)


def edited(rng, data):
    """A few bytes replaced by what may be a tag or a length, put in, or taken out."""
    data = bytearray(data)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        position = rng.randrange(len(data) + 1)
        short = bytes([rng.choice(b"\0\1\2\3\4\x08\x0a\x0d\x12\x1a\x7f\x8a")])
        padded = short + b"\x80" * rng.randrange(12) + b"\0"
        new = rng.choice([short, short, short, padded, to_varint(rng.getrandbits(40)), b""])
        data[position : position + rng.choice([0, 1, 1, 1, 2])] = new
    return bytes(data)


@given(SEEDS, st.booleans(), st.sampled_from([1, 2]))
def test_example_decoder_as_tensorflow_reads(seed, sequence, compat):
    """Statuses and offsets too. tests/unit/io/test_parse_example.py compares with TensorFlow itself."""
    rng = random.Random(seed)
    messages, kinds, lists, data, starts, sizes, checked = batch(rng, sequence)
    if rng.random() < 0.8:
        made = [lenient_message(rng, kinds, lists) for _ in range(rng.choice([1, 2, 3, 8]))]
        if rng.random() < 0.7:
            made[-1] = edited(rng, made[-1])
        ends = np.cumsum([0, *map(len, made)])
        data = b"".join(made) + rng.randbytes(rng.choice([0, 3, 100]))
        starts, sizes, checked = ends[:-1], np.diff(ends), True
    columns = without_places(columns_for(rng, messages, kinds, lists))
    rows = rng.choice([len(starts), len(starts), rng.randrange(9)])
    args = (columns, sequence, data, starts, sizes, checked)
    twin = decode(pure_example, *args, len(data), rows, 0, compat)
    for spare in (len(data), 0, 1, rng.randrange(40)):
        same(decode(native, *args, spare, rows, 0, compat), twin)


@given(SEEDS, st.booleans())
def test_example_survey(seed, sequence):
    rng = random.Random(seed)
    most = rng.choice([1, 3, 100, 100])
    a, b = native.ExampleSurvey(most), pure_survey.ExampleSurvey(most)
    for _ in range(rng.randrange(3)):
        _, _, _, data, starts, sizes, checked = batch(rng, sequence)
        same(a.add(data, starts, sizes, checked), b.add(data, starts, sizes, checked))
        same(a.result(), b.result())
        assert a.others == b.others


def test_a_survey_counts():
    survey = native.ExampleSurvey(9)
    feature = bytes.fromhex("0a0d 0a0b 0a0161 1206 1a04 0a02 0503")
    twice, unset = (
        feature + bytes.fromhex("0a0b 0a09 0a0161 1204 1a02 0807"),
        bytes.fromhex("0a05 0a03 0a0161"),
    )
    steps = bytes.fromhex("120e 0a0c 0a0162 1207 0a05 1203 0a0101")
    data = feature + twice + unset
    at = np.cumsum([0, len(feature), len(twice), len(unset)])
    assert survey.add(data, at[:-1], np.diff(at), True) == (0, 0, 3)
    code, offset, done = survey.add(steps, int64s(0), int64s(len(steps)), True)
    # and the name of the message at fault does not count
    assert (code, offset, done) == (status.BAD_PACKED, 13, 0)
    nothing = (float("inf"), float("-inf"))
    assert survey.result() == (
        3,
        0,
        [(b"a", False, 2, (1, 0, 0, 2), 1, 2, 3, (3, 7), nothing, 0, (0, 0), (0, 0))],
    )


@pytest.mark.parametrize("module", [native, pure_survey])
def test_a_survey_counts_messages_of_other_types(module):
    feature = bytes.fromhex("0a0d 0a0b 0a0161 1206 1a04 0a02 0503")
    messages = {
        b"": 0,
        bytes.fromhex("0a00"): 0,
        feature: 0,
        feature + bytes.fromhex("4a00"): 0,  # a field that an Example may have one day
        bytes.fromhex("4a00"): 1,
        bytes.fromhex("1005"): 1,  # feature_lists as a number
        bytes.fromhex("09 0000000000000000 1a01 61"): 1,
        bytes.fromhex("0a02 1005"): 1,
        bytes.fromhex("1203 1a01 61"): 1,
    }
    for message, others in messages.items():
        survey = module.ExampleSurvey(9)
        assert survey.add(message, int64s(0), int64s(len(message)), True) == (0, 0, 1)
        assert survey.others == others, message.hex()


def test_threads_may_share_a_survey():
    """Each message is 24 KiB, so the lock of the interpreter is given up."""
    rng = random.Random(5)
    records = [
        Messages(rng, 0.1).message({b"%d" % rng.randrange(50): INT64 for _ in range(20)}, None)
        for _ in range(300)
    ]
    data = b"".join(records)
    assert len(data) > 32 << 10
    at = np.cumsum([0, *map(len, records)])
    survey, alone = native.ExampleSurvey(1000), native.ExampleSurvey(1000)
    workers = [
        threading.Thread(target=survey.add, args=(data, at[:-1], np.diff(at), True))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        survey.result()
    for _ in workers:
        alone.add(data, at[:-1], np.diff(at), True)
    assert survey.result() == alone.result()


# Columns into messages


def inputs_for(rng, rows, sequence, consistent):
    """Columns as example_encode takes them, sorted as protobuf sorts them; unless `consistent`,
    sometimes one that contradicts itself.
    """
    columns = []
    for is_list in (False, True) if sequence else (False,):
        for name in key_order(rng.sample(NAMES, rng.randint(0, 4))):
            kind, length = rng.randint(1, 3), rng.choice([-1, -1, 0, 1, 3])
            counts = [rng.choice([0, 1, 3]) for _ in range(rows)]
            steps = np.cumsum([0, *counts], dtype=np.int64) if is_list else None
            instances = sum(counts) if is_list else rows
            sizes = [
                rng.choice([0, 1, 2, rng.randrange(60)]) if length < 0 else length
                for _ in range(instances)
            ]
            splits = np.cumsum([0, *sizes], dtype=np.int64) if length < 0 else None
            count, offsets = sum(sizes), None
            if kind == BYTES:
                strings = [rng.choice([0, 1, 15, 16, rng.randrange(200)]) for _ in range(count)]
                offsets = np.cumsum([0, *strings], dtype=np.int64)
                values = np.frombuffer(rng.randbytes(sum(strings)), np.uint8).copy()
            elif kind == FLOAT:
                values = np.frombuffer(rng.randbytes(4 * count), np.float32).copy()
            else:
                values = np.array(
                    [rng.getrandbits(rng.randrange(1, 65)) & (1 << 64) - 1 for _ in range(count)],
                    np.uint64,
                ).astype(np.int64)
            present = (
                None
                if rng.random() < 0.5
                else np.array([rng.random() < 0.7 for _ in range(rows)], np.bool_)
            )
            if not consistent and rng.random() < 0.2:
                broken = rng.choice(
                    [array for array in (offsets, splits, steps) if array is not None]
                    or [int64s(0)]
                )
                broken[rng.randrange(len(broken))] = rng.choice(
                    [-1, 1 << 62, (1 << 63) - 1, -(1 << 63), rng.randrange(9)]
                )
            if not consistent and rng.random() < 0.1:
                values, present = values[:-1], None if present is None else present[:-1]
            columns.append((name, kind, is_list, length, values, offsets, splits, steps, present))
    return columns


@given(SEEDS, st.booleans(), st.booleans(), st.booleans())
def test_example_encode(seed, sequence, framed, consistent):
    rng = random.Random(seed)
    rows = rng.randrange(5)
    columns = inputs_for(rng, rows, sequence, consistent)
    room, wants_ends = rng.choice([0, rng.randrange(300), 100_000]), rng.random() < 0.8
    first, step, count = rng.choice(
        [
            (0, 1, rows),
            (0, 1, rows),
            (1, 2, rows // 2),
            (0, 0, 3),
            (rows, 1, 2),
            ((1 << 64) - 1, 1 << 63, 3),
        ]
    )
    results = []
    for kernel in (native.example_encode, pure_encode.example_encode):
        out, ends = np.full(room, 77, np.uint8), np.zeros(count, np.int64) if wants_ends else None
        outcome = kernel(columns, sequence, first, step, count, framed, out, ends)
        results.append((outcome, out[: outcome[2]], None if ends is None else ends[: outcome[1]]))
        assert (out[outcome[2] + outcome[3] :] == 77).all()
    same(*results)


@given(SEEDS, st.booleans())
def test_what_is_encoded_is_decoded(seed, sequence):
    rng = random.Random(seed)
    rows = rng.randrange(6)
    inputs = inputs_for(rng, rows, sequence, True)
    out, ends = np.empty(1 << 20, np.uint8), np.empty(rows, np.int64)
    code, done, used, _ = native.example_encode(inputs, sequence, 0, 1, rows, True, out, ends)
    assert (code, done) == (0, rows)
    code, _, starts, sizes = native.frame_scan(out[:used], 0, False, 1 << 30, 1 << 30)
    assert code == 0 and (starts + sizes + 4).tolist() == ends.tolist()
    columns = [(name, kind, length, is_list) for name, kind, is_list, length, *_ in inputs]
    result, filled = decode(native, columns, sequence, out[:used], starts, sizes, False, 4, rows, 0)
    assert result[:3] == (0, 0, rows)
    again = np.empty(used, np.uint8)
    columns = [
        (name, kind, is_list, length, *parts)
        for (name, kind, length, is_list), parts in zip(columns, filled, strict=True)
    ]
    assert native.example_encode(columns, sequence, 0, 1, rows, True, again, None) == (
        0,
        rows,
        used,
        0,
    )
    assert again.tobytes() == out[:used].tobytes()


def test_records_refuse_what_they_cannot_hold():
    """A caller's mistake is an exception, and no crash."""
    out, big = np.empty(99, np.uint8), (1 << 63) - 1
    ints, floats = np.zeros(3, np.int64), np.zeros(3, np.float32)
    column = (b"a", INT64, False, 1, ints, None, None, None, None)
    for k in (native.example_encode, pure_encode.example_encode):
        for wrong in (
            (b"a", 9, *column[2:]),
            (b"a", INT64, False, -2, *column[4:]),
            (b"a", INT64, True, 1, ints, None, None, ints, None),  # a list, and no SequenceExample
            (b"a", INT64, False, 1, floats, *column[5:]),
            (b"a", INT64, False, -1, *column[4:]),
            (b"a", INT64, False, 1, ints, ints, None, None, None),
            (b"a", BYTES, False, 1, out, None, None, None, None),
            (b"a", BYTES, False, 1, out, int64s(), None, None, None),
        ):
            with pytest.raises((TypeError, ValueError)):
                k([wrong], False, 0, 1, 1, False, out, None)
        with pytest.raises(ValueError):
            k([column], False, 0, 1, 3, False, out, int64s(0, 0))
        assert k([column], False, 3, 1, 1, False, out, None)[:2] == (status.OUT_OF_RANGE, 0)
        assert (
            k(
                [(b"a", INT64, False, big, ints, None, None, None, None)],
                False,
                3,
                1,
                1,
                False,
                out,
                None,
            )[0]
            == status.OUT_OF_RANGE
        )
        for steps in (
            int64s(0, big),
            int64s(-5, -3),
            int64s(-1, 0),
            int64s(2, 1),
            int64s(0),
            int64s(),
        ):
            empty_steps = (b"a", INT64, True, 0, ints, None, None, steps, None)
            assert k([empty_steps], True, 0, 1, 1, False, out, None)[0] == status.OUT_OF_RANGE
    for wrong in ((*column[:4], None, *column[5:]), column[:-1], list(column)):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            native.example_encode([wrong], False, 0, 1, 1, False, out, None)
    frozen = np.empty(9, np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(ValueError):
        native.example_encode([column], False, 0, 1, 1, False, frozen, None)


def test_the_decoder_refuses_what_it_cannot_hold():
    for module in (native, pure_example):
        for wrong in (
            ([b"a"], [5], [1], [False]),
            ([b"a"], [PLACES], [-1], [False]),
            ([b"a"], [PLACES], [1], [True]),
            ([b"a"], [1], [-2], [False]),
            ([b"a"], [1], [1], [True]),
            ([b"a", b"a"], [1, 2], [1, 1], [False, False]),
            ([b"a"], [1, 1], [1], [False]),
        ):
            with pytest.raises(ValueError):
                module.ExampleDecoder(*wrong, False)
        with pytest.raises(ValueError):
            module.ExampleDecoder([b"a"], [PLACES], [1], [False], False, 1)
    with pytest.raises(ValueError):
        native.ExampleDecoder([b"a"], [INT64], [1], [False], False, 3)
    data, one, zero = bytes(9), int64s(0), int64s(0)
    present, ints = np.zeros(1, np.bool_), np.zeros(4, np.int64)
    decoder = native.ExampleDecoder([b"a"], [INT64], [1], [False], False)
    good = (ints, None, None, None, present)
    for row, outputs in (
        (0, []),
        (2, [good]),
        (0, [good[:4]]),
        (0, [(None, *good[1:])]),
        (0, [(np.zeros(4, np.float32), *good[1:])]),
        (0, [(ints, ints, *good[2:])]),
        (0, [(ints, None, ints, *good[3:])]),
        (0, [(ints, None, None, ints, present)]),
        (0, [(*good[:4], None)]),
        (0, [(*good[:4], ints)]),
        (0, [(ints[::2], *good[1:])]),
    ):
        with pytest.raises((TypeError, ValueError)):
            decoder.decode(data, one, zero, 0, row, outputs, True)
    for first, starts, sizes in (
        (2, one, zero),
        (0, one, int64s()),
        (0, None, None),
        (0, one.astype(np.int32), zero),
    ):
        with pytest.raises((TypeError, ValueError)):
            decoder.decode(data, starts, sizes, first, 0, [good], True)
    for start, size in (
        (-1, 1),
        (0, -1),
        (10, 0),
        (0, 10),
        (1 << 62, 1 << 62),
        (-(1 << 63), (1 << 63) - 1),
    ):
        assert decoder.decode(data, int64s(start), int64s(size), 0, 0, [good], True)[:3] == (
            status.TRUNCATED,
            start,
            0,
        )
        assert native.ExampleSurvey(9).add(data, int64s(start), int64s(size), True) == (
            status.TRUNCATED,
            start,
            0,
        )


def test_the_decoder_trusts_no_output():
    """Numbers that point anywhere, and one array in two places: an exception or NO_SPACE, and no
    crash.
    """
    rng = random.Random(7)
    hostile = [-1, -2, -(1 << 63), (1 << 63) - 1, 1 << 61, (1 << 60) - 1, 5, 0]
    for _ in range(3000):
        kind, length, is_list = (
            rng.randint(1, 3),
            rng.choice([-1, 1, 3, (1 << 31) - 1]),
            rng.random() < 0.5,
        )
        rows = rng.randint(1, 3)
        message = Messages(rng, 0.1).message(
            {} if is_list else {b"a": kind}, {b"a": kind} if is_list else {}
        )
        shared = np.array([rng.choice(hostile) for _ in range(8)], np.int64)

        def numbers(n, needed, shared=shared):
            if not needed:
                return None
            return (
                shared[:n]
                if rng.random() < 0.5
                else np.array([rng.choice(hostile) for _ in range(n)], np.int64)
            )

        values = (
            shared.view(DTYPES[kind])
            if rng.random() < 0.5
            else np.zeros(rng.randrange(64), DTYPES[kind])
        )
        parts = (
            numbers(rng.randint(1, 8), kind == BYTES),
            numbers(rng.randint(rows + 1, 8), length < 0),
            numbers(rows + 1, is_list),
        )
        decoder = native.ExampleDecoder([b"a"], [kind], [length], [is_list], True, rng.randrange(3))
        places = int64s(*[0] * 4), int64s(*[len(message)] * 4)
        try:
            decoder.decode(
                message,
                *places,
                0,
                rng.randrange(rows),
                [(values, *parts, np.zeros(rows, np.bool_))],
                True,
            )
        except ValueError:
            pass


# Against protobuf itself


def unpacked(kind, feature):
    if kind == BYTES:
        return list(feature.bytes_list.value)
    return (
        [struct.pack("<f", value) for value in feature.float_list.value]
        if kind == FLOAT
        else list(feature.int64_list.value)
    )


KINDS = {None: 0, "bytes_list": BYTES, "float_list": FLOAT, "int64_list": INT64}


def items(kind, filled, instance, length):
    """The values of an instance as Python objects."""
    values, offsets, splits, _, _ = filled
    start, stop = (
        (instance * length, (instance + 1) * length)
        if splits is None
        else splits[instance : instance + 2].tolist()
    )
    if kind == BYTES:
        return [values[offsets[i] : offsets[i + 1]].tobytes() for i in range(start, stop)]
    return (
        [value.tobytes() for value in values[start:stop]]
        if kind == FLOAT
        else values[start:stop].tolist()
    )


def quiet(value):
    """Floats go through Python's, which may set the bit of a signalling NaN."""
    return (
        struct.pack("<f", struct.unpack("<f", value)[0])
        if type(value) is bytes and len(value) == 4
        else value
    )


def set_aside(maps):
    """Whether protobuf's Python runtime kept an entry out of its map because a field inside it is
    unknown. The C++ runtime, which is TensorFlow's own, steps over such a field, and so do we."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    return any(part.field_number == 1 and part.wire_type == 2 for part in UnknownFieldSet(maps))


@pytest.mark.tensorflow
@given(seed=SEEDS, sequence=st.booleans())
def test_messages_mean_what_protobuf_says(tf, seed, sequence):
    from google.protobuf.message import DecodeError

    rng = random.Random(seed)
    messages = Messages(rng, rng.choice([0.05, 0.2]))
    kinds = {name: rng.randint(1, 3) for name in rng.sample(NAMES, 3)}
    lists = {name: rng.randint(1, 3) for name in rng.sample(NAMES, 2)} if sequence else None
    data = messages.message(kinds, lists)
    if rng.random() < 0.5:
        data = damaged(rng, data)
    try:
        proto = (tf.train.SequenceExample if sequence else tf.train.Example).FromString(data)
    except DecodeError:
        proto = None
    place = int64s(0), int64s(len(data))
    columns = [(name, kind, -1, False) for name, kind in kinds.items()] + [
        (name, kind, -1, True) for name, kind in (lists or {}).items()
    ]
    for module, survey in ((native, native), (pure_example, pure_survey)):
        surveyed = survey.ExampleSurvey(99).add(data, *place, True)
        if sequence:  # an Example has no field 2, which a survey looks into
            assert (surveyed[0] in (0, status.BAD_TAG)) >= (proto is not None)
        result, filled = decode(module, columns, sequence, data, *place, True, len(data), 1, 0)
        maps = (
            []
            if proto is None
            else [proto.context, proto.feature_lists]
            if sequence
            else [proto.features]
        )
        # the latter as below
        if proto is None or any(map(set_aside, maps)) or result[0] == status.BAD_TAG:
            continue
        expected = {
            (False, name): [feature]
            for name, feature in maps[0].feature.items()
            if feature.WhichOneof("kind")
        }
        if sequence:
            expected |= {
                (True, name): list(steps.feature)
                for name, steps in proto.feature_lists.feature_list.items()
            }
        for number, (name, kind, _, is_list) in enumerate(columns):
            steps = expected.get((is_list, name.decode()))
            found = [KINDS[feature.WhichOneof("kind")] for feature in steps or ()]
            if any(other not in (0, kind) for other in found):
                assert result[0] == status.WRONG_KIND and result[3] <= number
                break
            if result[0] == 0:
                assert filled[number][4][0] == (steps is not None)
                got = [items(kind, filled[number], i, -1) for i in range(len(steps or ()))]
                assert [list(map(quiet, row)) for row in got] == [
                    list(map(quiet, unpacked(kind, feature))) for feature in steps or ()
                ]
        else:
            assert result[:3] == (0, 0, 1)


@pytest.mark.tensorflow
@given(seed=SEEDS)
def test_what_protobuf_refuses_the_survey_refuses(tf, seed):
    """But for two things. That names are UTF-8 is left to the kernels' callers. And inside a group
    the Python runtime lets a field number 0 pass; the C++ runtime does not, nor do we."""
    from google.protobuf.message import DecodeError

    rng = random.Random(seed)
    kinds = {name: rng.randint(1, 3) for name in rng.sample(NAMES, 3)}
    data = damaged(rng, Messages(rng, rng.choice([0.05, 0.2])).message(kinds, kinds))
    code = native.ExampleSurvey(99).add(data, int64s(0), int64s(len(data)), True)[0]
    try:
        tf.train.SequenceExample.FromString(data)
    except DecodeError as error:
        assert code or "UTF-8" in str(error)
    else:
        assert code in (0, status.BAD_TAG)


@pytest.mark.tensorflow
@given(seed=SEEDS)
def test_key_order(tf, seed):
    rng = random.Random(seed)
    for _ in range(30):
        alphabet = rng.choice(["ab", "a/é", "\x00a\x7f\x80ÿ", "aé\uffff\U0001f600"])
        names = {
            "".join(rng.choices(alphabet, k=rng.randrange(5))) for _ in range(rng.randrange(12))
        }
        proto = tf.train.Example()
        proto.features.SetInParent()
        for name in rng.sample(sorted(names), len(names)):
            proto.features.feature[name].int64_list.value.append(1)
        encoded = [name.encode() for name in names]
        columns = [
            (name, INT64, False, 1, int64s(1), None, None, None, None)
            for name in key_order(encoded)
        ]
        out = np.empty(1000, np.uint8)
        code, _, used, _ = native.example_encode(columns, False, 0, 1, 1, False, out, None)
        assert code == 0 and out[:used].tobytes() == proto.SerializeToString(deterministic=True), (
            sorted(names)
        )


@pytest.mark.tensorflow
@given(seed=SEEDS, sequence=st.booleans())
def test_encoded_as_protobuf_does(tf, seed, sequence):
    rng = random.Random(seed)
    rows = rng.randint(1, 4)
    columns = inputs_for(rng, rows, sequence, True)
    out, ends = np.empty(1 << 20, np.uint8), np.empty(rows, np.int64)
    assert native.example_encode(columns, sequence, 0, 1, rows, False, out, ends)[:2] == (0, rows)
    for row, (start, stop) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
        proto = tf.train.SequenceExample() if sequence else tf.train.Example()
        features = proto.context if sequence else proto.features
        features.SetInParent()
        if sequence:
            proto.feature_lists.SetInParent()
        for name, kind, is_list, length, *parts in columns:
            if parts[-1] is not None and not parts[-1][row]:
                continue
            where = proto.feature_lists.feature_list[name.decode()] if is_list else None
            for instance in range(*parts[3][row : row + 2].tolist()) if is_list else (row,):
                feature = where.feature.add() if is_list else features.feature[name.decode()]
                values = items(kind, parts, instance, length)
                target = {
                    BYTES: feature.bytes_list,
                    FLOAT: feature.float_list,
                    INT64: feature.int64_list,
                }[kind]
                target.SetInParent()
                (
                    target.value.extend(np.frombuffer(value, np.float32)[0] for value in values)
                    if kind == FLOAT
                    else target.value.extend(values)
                )
        written = out[start:stop].tobytes()
        # NaN is not equal to itself
        assert type(proto).FromString(written) == proto or any(
            column[1] == FLOAT for column in columns
        )
        # and its bits do not survive Python's floats
        if not any(np.isnan(column[4]).any() for column in columns if column[1] == FLOAT):
            assert written == proto.SerializeToString(deterministic=True)


def field(number, wire, body):
    return to_varint(number << 3 | wire) + (to_varint(len(body)) if wire == 2 else b"") + body


def regular(rng, count):
    """(columns, messages) that look alike, as those of a real file do; now and then one does not."""
    features = []
    for number in range(rng.randint(1, 5)):
        kind = rng.randint(1, 3)
        name = bytes([97 + number]) * rng.choice([1, 3, 8, 13, 14, 15, 40, 130])
        features.append(
            (name, kind, rng.choice([1, 1, 2, 8, 20, 33]), rng.choice([1, 10, 40, 62, 64]))
        )
    fixed = [rng.random() < 0.7 for _ in features]

    def value(kind, bits):
        if kind == BYTES:
            return field(1, 2, rng.randbytes(rng.choice([0, 3, 16, 17, 60, 150])))
        return rng.randbytes(4) if kind == FLOAT else to_varint(rng.getrandbits(bits))

    messages = []
    for _ in range(count):
        entries = []
        for (name, kind, length, bits), same_length in zip(features, fixed, strict=True):
            if rng.random() < 0.02:
                continue
            values = b"".join(
                value(kind, bits)
                for _ in range(length if same_length else rng.choice([0, 1, length]))
            )
            inner = values if kind == BYTES else field(1, 2, values) if rng.random() < 0.99 else b""
            entries.append(field(1, 2, field(1, 2, name) + field(2, 2, field(kind, 2, inner))))
        if rng.random() < 0.05:
            rng.shuffle(entries)
        if rng.random() < 0.05 and entries:
            entries.append(entries[0])
        message = bytearray(field(1, 2, b"".join(entries)))
        if rng.random() < 0.03 and message:
            message[rng.randrange(len(message))] ^= 1 << rng.randrange(8)
        messages.append(bytes(message))
    columns = []
    for (name, kind, length, _), same_length in zip(features, fixed, strict=True):
        if rng.random() < 0.8:
            wanted = length if same_length and rng.random() < 0.8 else -1
            columns.append(
                (
                    name,
                    PLACES if kind == BYTES and wanted >= 0 and rng.random() < 0.3 else kind,
                    wanted,
                    False,
                )
            )
    if rng.random() < 0.3:
        columns.append((b"missing", rng.randint(1, 3), rng.choice([-1, 2]), False))
    rng.shuffle(columns)
    return columns, messages


@given(SEEDS)
def test_example_decoder_on_records_that_look_alike(seed):
    """The short way through a record needs a record before it that looked the same, and memory to
    read behind it.
    """
    rng = random.Random(seed)
    columns, messages = regular(rng, rng.randint(2, 25))
    framed = rng.random() < 0.5
    data, starts = bytearray(), []
    for message in messages:
        data += native.frame(message) if framed else message
        starts.append(len(data) - len(message) - (4 if framed else 0))
    data += rng.randbytes(rng.choice([0, 10, 100]))
    sizes = [len(message) for message in messages]
    compat = rng.choice([0, 0, 1, 2])
    if compat:
        columns = without_places(columns)
    args = (columns, False, bytes(data), int64s(*starts), int64s(*sizes), not framed)
    twin = decode(pure_example, *args, len(data), len(messages), 0, compat)
    for spare in (len(data), 0, rng.randrange(40)):
        same(decode(native, *args, spare, len(messages), 0, compat), twin)
