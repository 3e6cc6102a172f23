"""LevelDB tables: what TensorFlow writes is read, what we write is TensorFlow's byte for byte, and
nothing hostile gets through.
"""

import importlib
import struct
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.tiers import PURE
from tensorwire.wire import kernels, leveldb, status
from tensorwire.wire.crc import crc32c, mask
from tensorwire.wire.protobuf import varint
from tensorwire.wire.reference import leveldb as pure

if not PURE:
    from tensorwire import _native as native

KEYS = st.lists(
    st.binary(max_size=12)
    | st.sampled_from([b"layer/a", b"layer/ab", b"layer/b", b"\xff", b"\xff\xff"]),
    max_size=60,
    unique=True,
)
ITEMSIZES = bytes([0, 4, 8] + [1] * 4 + [255] + [8] * 248)
SUFFIX = b"/.ATTRIBUTES/VARIABLE_VALUE"


def snappy(data):
    """A Snappy block of one literal, and of copies where the data repeats itself."""
    cramjam = importlib.import_module("cramjam")
    return bytes(cramjam.snappy.compress_raw(data))


def block(entries, restarts=(0,)):
    """A block from (shared, rest of the key, value)."""
    out = b"".join(
        varint(shared) + varint(len(key)) + varint(len(value)) + key + value
        for shared, key, value in entries
    )
    return out + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def sealed(data, kind=0):
    whole = data + bytes([kind])
    return whole + struct.pack("<I", mask(crc32c(whole)))


def joined(blocks, index=None, meta=None, kind=0):
    """A table of these blocks; `index` are (key, offset, size) instead of the true ones."""
    out, places = b"", []
    for one in blocks:
        places.append((len(out), len(one)))
        out += sealed(one, kind)
    at = len(out)
    out += sealed(block([]))
    rows = (
        [(bytes([i + 128]) * 9, *place) for i, place in enumerate(places)]
        if index is None
        else index
    )
    guide = block(
        [(0, key, varint(offset) + varint(size)) for key, offset, size in rows],
        [*_starts(rows)] or [0],
    )
    foot = varint(at if meta is None else meta) + varint(8) + varint(len(out)) + varint(len(guide))
    return out + sealed(guide) + foot + bytes(40 - len(foot)) + leveldb.MAGIC


def _starts(rows):
    at = 0
    for key, offset, size in rows:
        yield at
        value = len(varint(offset) + varint(size))
        at += 1 + len(varint(len(key))) + 1 + len(key) + value


def rows(keys):
    return [(key, key[::-1] * 2) for key in sorted(keys)]


class TestRoundTrips:
    @given(KEYS, st.sampled_from([30, 200, 1 << 18]))
    def test_any_keys(self, keys, size):
        written = leveldb.write(rows(keys), block_size=size)
        assert list(leveldb.items(written)) == rows(keys)
        assert leveldb.size_of(written[-leveldb.FOOTER :]) == len(written)

    @pytest.mark.compress
    @given(KEYS, st.sampled_from([30, 1 << 18]))
    def test_snappy(self, keys, size):
        written = leveldb.write(rows(keys), snappy, size)
        assert list(leveldb.items(written)) == rows(keys)

    def test_keys_must_ascend(self):
        with pytest.raises(tw.EncodeError, match="ascend"):
            leveldb.write([(b"b", b""), (b"a", b"")])

    @pytest.mark.tensorflow
    @pytest.mark.parametrize("count", [0, 1, 17, 400])
    def test_the_bytes_are_those_of_tensorflow(self, tf, tmp_path, count):
        names = [f"layer_{i}/{'deep/' * (i % 7)}kernel" for i in range(count)] + ["é"]
        tf.raw_ops.SaveV2(
            prefix=f"{tmp_path}/x",
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[np.zeros(3)] * len(names),
        )
        theirs = (tmp_path / "x.index").read_bytes()
        assert leveldb.write(leveldb.items(theirs)) == theirs

    @pytest.mark.tensorflow
    def test_several_blocks_are_those_of_tensorflow(self, tf, tmp_path):
        names = [f"{'a long way to the variable/' * 20}{i:05d}" for i in range(8000)]
        tensors = [np.int8(1)] * len(names)
        tf.raw_ops.SaveV2(
            prefix=f"{tmp_path}/x",
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=tensors,
        )
        theirs = (tmp_path / "x.index").read_bytes()
        assert len(list(leveldb.blocks(theirs))) > 1
        assert leveldb.write(leveldb.items(theirs)) == theirs


ENTRY = bytes.fromhex("0801120412020803280c35d8ea82a2")  # float32 [3], 12 bytes


def varied(draw):
    """Blocks that are nearly right."""
    keys = sorted(draw(KEYS))
    values = [
        draw(
            st.sampled_from(
                [
                    b"",
                    ENTRY,
                    ENTRY + b"\x18\x01",
                    bytes.fromhex("0807120028051800"),
                    b"\x3a\x00",
                    ENTRY * 2,
                ]
            )
        )
        for _ in keys
    ]
    data = bytearray(leveldb.write(list(zip(keys, values, strict=True))))
    data = bytes(next(iter(leveldb.contents(data))).data) if keys else block([])
    data = bytearray(data)
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@pytest.mark.skipif(PURE, reason="there are no kernels to compare")
class TestTwins:
    @given(st.composite(varied)(), st.sampled_from([0, 20, 1 << 20]))
    def test_blocks(self, data, room):
        self.compare(native.table_block(data, room), pure.table_block(data, room))

    @given(
        st.composite(varied)(),
        st.sampled_from([20, 1 << 20]),
        st.sampled_from([b"", b"/a", b"a"]),
        st.integers(1, 2),
    )
    def test_entries(self, data, room, suffix, shards):
        found = [
            kernel.bundle_block(data, room, 0, suffix, ITEMSIZES, shards)
            for kernel in (native, pure)
        ]
        self.compare(*found)

    @given(st.binary(max_size=80), st.integers(0, 3))
    def test_any_entry(self, value, shards):
        data = block([(0, b"x" + SUFFIX, value)])
        self.compare(
            *(
                kernel.bundle_block(data, 100, 0, SUFFIX, ITEMSIZES, shards)
                for kernel in (native, pure)
            )
        )

    @given(
        st.lists(
            st.integers(0, 1 << 63) | st.sampled_from([0, 1, 3, 1 << 31, (1 << 64) - 1]), max_size=5
        ),
        st.integers(0, 100),
    )
    def test_any_shape(self, dims, size):
        shape = b"".join(
            b"\x12" + varint(len(one)) + one for one in (b"\x08" + varint(dim) for dim in dims)
        )
        data = block(
            [(0, b"x", b"\x08\x01\x12" + varint(len(shape)) + shape + b"\x28" + varint(size))]
        )
        self.compare(
            *(kernel.bundle_block(data, 100, 0, b"", ITEMSIZES, 1) for kernel in (native, pure))
        )

    def compare(self, ours, theirs):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            if isinstance(one, np.ndarray):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            else:
                assert one == other and type(one) is type(other)

    def test_more_than_254_dimensions(self):
        for count in (254, 255):
            shape = b"\x12\x02\x08\x01" * count
            data = block([(0, b"x", b"\x08\x01\x12" + varint(len(shape)) + shape + b"\x28\x04")])
            found = [
                kernel.bundle_block(data, 100, 0, b"", ITEMSIZES, 1) for kernel in (native, pure)
            ]
            self.compare(*found)
            assert (found[0][0] == status.TOO_MANY_DIMS) is (count == 255)


GOOD = block([(0, b"", b"x"), (0, b"abc", b"1"), (2, b"d", b"2")])
HOSTILE = {
    "huge handle": (joined([GOOD], [(b"z", 0, 1 << 62)]), "block of"),
    "handle at itself": (
        joined([GOOD, GOOD], [(b"b", 0, len(GOOD)), (b"z", 0, len(GOOD))]),
        "must begin at",
    ),
    "handle into the middle": (joined([GOOD], [(b"z", 1, len(GOOD) - 1)]), "must begin at"),
    "index at the metaindex": (
        leveldb.write([])[:26] + b"\x00\x08\x00\x08" + bytes(36) + leveldb.MAGIC,
        "does not end where",
    ),
    "shared more than there is": (
        joined([block([(0, b"ab", b""), (3, b"c", b"")])]),
        "shares a longer prefix",
    ),
    "shared at the start": (joined([block([(1, b"ab", b"")])]), "shares a longer prefix"),
    "keys out of order": (joined([block([(0, b"b", b""), (0, b"a", b"")])]), "ascend"),
    "the same key twice": (joined([block([(0, b"b", b""), (1, b"", b"")])]), "ascend"),
    "blocks out of order": (
        joined([block([(0, b"\x05", b"")]), block([(0, b"\x01", b"")])]),
        "outside the range in the index",
    ),
    "block above its key": (
        joined([block([(0, b"\x09", b"")])], [(b"\x01", 0, 12)]),
        "outside the range in the index",
    ),
    "no restarts": (joined([b"\x00\x00\x00" + struct.pack("<I", 0)]), "restart offsets"),
    "too many restarts": (joined([GOOD[:-4] + struct.pack("<I", 1 << 30)]), "restart offsets"),
    "restart between entries": (joined([block([(0, b"a", b"1")], [0, 2])]), "restart offsets"),
    "restart at a shared key": (
        joined([block([(0, b"aa", b"1"), (1, b"b", b"")], [0, 6])]),
        "restart offsets",
    ),
    "a long value": (
        joined([varint(0) + varint(1) + varint(1 << 40) + b"a" + struct.pack("<2I", 0, 1)]),
        "past the end",
    ),
    "a long key": (
        joined([varint(0) + varint((1 << 64) - 1) + varint(2) + b"a" + struct.pack("<2I", 0, 1)]),
        "past the end",
    ),
    "unknown type": (joined([GOOD], kind=9), "unknown block type"),
    "broken snappy": (joined([GOOD], kind=1), "length"),
    "empty": (b"", "footer"),
    "no magic": (leveldb.write([])[:-1] + b"x", "magic"),
    "an empty block": (joined([block([])]), "empty block"),
}


class TestHostile:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_it_is_an_error(self, name):
        data, words = HOSTILE[name]
        with pytest.raises(tw.DecodeError, match=words) as caught:
            list(leveldb.items(data, "checkpoint"))
        assert caught.value.format == "checkpoint" and caught.value.offset is not None

    def test_the_helper_makes_sound_tables(self):
        assert list(leveldb.items(joined([GOOD]))) == [(b"", b"x"), (b"abc", b"1"), (b"abd", b"2")]

    def test_every_flip_is_seen(self):
        data = leveldb.write(rows([b"a", b"abc", b"abd", b"b" * 40]), block_size=40)
        for at in range(len(data)):
            for bit in range(8):
                bad = bytearray(data)
                bad[at] ^= 1 << bit
                with pytest.raises(tw.DecodeError):
                    list(leveldb.items(bytes(bad)))

    def test_every_cut_is_seen(self):
        data = leveldb.write(rows([b"a", b"abc", b"abd", b"b" * 40]), block_size=40)
        for at in range(len(data)):
            with pytest.raises(tw.DecodeError):
                list(leveldb.items(data[:at]))

    @given(st.binary(max_size=200))
    def test_garbage(self, data):
        for made in (data, joined([data]), data + leveldb.MAGIC):
            try:
                list(leveldb.items(made))
            except tw.DecodeError as error:
                assert error.format and error.offset is not None

    def test_few_bytes_that_stand_for_many(self):
        """Keys that share a long prefix with the one before: a megabyte would become a terabyte."""
        long = b"k" * 60_000
        count = 3_000 if PURE else 100_000
        data = [(0, long, b"")] + [(len(long) + i, b"k", b"") for i in range(count)]
        start = time.perf_counter()
        with pytest.raises(tw.LimitError):
            list(leveldb.items(joined([block(data)], [(b"z", 0, len(block(data)))])))
        assert time.perf_counter() - start < 5

    def test_room_for_keys(self):
        assert kernels.table_block(block([(0, b"abc", b"")]), 3)[0] == 0
        assert kernels.table_block(block([(0, b"abc", b"")]), 2)[0] == status.OVER_LIMIT
