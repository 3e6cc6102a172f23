"""One tensor alone, shuffled and compressed: bit for bit there and back, in parts too, and any
damage or lie is an error.
"""

import json
import random
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.transforms import compression
from tensorwire.transforms.compression import packing, zstd
from tensorwire.transforms.compression.packing import Packing, how, pack
from tensorwire.wire.crc import crc32c

NAMES = (*compression.NAMES, None)
RNG = np.random.default_rng(0)


def samples():
    rng = np.random.default_rng(1)
    return {
        "float32": rng.standard_normal(700_000).astype(np.float32),
        "smooth": np.cumsum(rng.standard_normal(400_000)).astype(np.float32),
        "bfloat16": rng.standard_normal(900_000).astype(ml_dtypes.bfloat16),
        "int64": np.sort(rng.integers(0, 1 << 40, 600_000)),
        "uint8": rng.integers(0, 5, 2_500_000).astype(np.uint8),
        "complex128": np.repeat(rng.standard_normal(50_000), 3).astype(np.complex128),
        "zeros": np.zeros(3_000_000, np.float64),
        "one": np.array([3.5], np.float64),
        "few": np.arange(100, dtype=np.int32),
        "text": np.array(["abc", "abd"] * 60_000, "S12"),
    }


SAMPLES = samples()


def there_and_back(x, options, limits=None):
    view = x.reshape(-1).view(np.uint8)
    packed = pack(view, x.itemsize, options)
    if packed is None:
        return None
    info = json.loads(json.dumps(packed.info))
    found = how(info, x.nbytes, x.itemsize).unpack(packed.data, limits or tw.Limits())
    assert (
        found.dtype == np.uint8
        and found.ndim == 1
        and found.flags.writeable
        and found.ctypes.data % 64 == 0
    )
    assert found.tobytes() == x.tobytes()
    return packed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("sample", SAMPLES)
def test_there_and_back(name, shuffle, sample):
    x = SAMPLES[sample]
    packed = there_and_back(x, Packing(name, None, 2, shuffle))
    if packed is None:
        assert (
            sample in ("one", "few", "float32", "bfloat16", "smooth", "text", "int64")
            or name is None
        )
        return
    assert ("shuffle" in packed.info) == (shuffle and x.itemsize > 1)
    assert packed.info.get("compression") == name
    assert len(packed.data) < x.nbytes or name is None
    again = pack(x.reshape(-1).view(np.uint8), x.itemsize, Packing(name, None, 1, shuffle))
    assert bytes(again.data) == bytes(packed.data)  # whatever the threads


@given(st.data())
def test_any_bytes(data):
    name, shuffle = data.draw(st.sampled_from(NAMES)), data.draw(st.booleans())
    item = data.draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16]))
    rng = random.Random(data.draw(st.integers(0, 1 << 40)))
    planes = [
        rng.choice([bytes(1), rng.randbytes(1), b"ab", rng.randbytes(700)]) for _ in range(item)
    ]
    count = data.draw(st.integers(1, 700))
    x = bytes(planes[i % item][(i // item) % len(planes[i % item])] for i in range(item * count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PLANE", data.draw(st.integers(1, 300)))
        patch.setattr(packing, "BLOCK", data.draw(st.integers(1, 1500)))
        packed = pack(x, item, Packing(name, None, data.draw(st.sampled_from([1, 2])), shuffle))
    if packed is None:
        return
    way = how(packed.info, len(x), item)
    assert way.unpack(packed.data).tobytes() == x
    start = data.draw(st.integers(0, len(x)))
    stop = data.draw(st.integers(start, len(x)))
    view, reads = memoryview(packed.data), []

    def read(begin, end):
        assert 0 <= begin <= end <= len(view)
        reads.append(end - begin)
        return view[begin:end]

    assert way.part(read, len(view), start, stop).tobytes() == x[start:stop]
    assert sum(reads) <= len(view)


def test_a_part_reads_only_its_blocks():
    x = SAMPLES["smooth"]
    packed = pack(x, 4, Packing("zstd", shuffle=True))
    way, view, reads = how(packed.info, x.nbytes, 4), memoryview(packed.data), []

    def read(begin, end):
        reads.append((begin, end))
        return view[begin:end]

    found = way.part(read, len(view), 4000, 8000)
    assert found.view(np.float32).tobytes() == x[1000:2000].tobytes()
    assert sum(end - begin for begin, end in reads) < 0.7 * len(view)
    with pytest.raises(ValueError, match="bytes 5 to 4"):
        way.part(read, len(view), 5, 4)
    with pytest.raises(ValueError, match="out of range for 1600000"):
        way.part(read, len(view), 0, x.nbytes + 4)


def test_what_would_get_no_smaller_stays_as_it_is():
    noise = RNG.integers(0, 256, 1 << 20, np.uint8)
    for name in compression.NAMES:
        for shuffle in (True, False):
            assert pack(noise, 4, Packing(name, shuffle=shuffle)) is None
            assert pack(b"", 4, Packing(name, shuffle=shuffle)) is None
    assert pack(b"abcd", 4, Packing()) is None
    assert pack(b"abcd", 1, Packing(shuffle=True)) is None
    with pytest.raises(ValueError, match="whole number of items"):
        pack(b"abcde", 4, Packing("zlib"))


def test_options():
    x = SAMPLES["smooth"]
    for wrong in (
        Packing("zstd", 99),
        Packing("gzip", 10),
        Packing("lz4", -1),
        Packing("snappy", 1),
        Packing("zstd", threads=0),
    ):
        with pytest.raises(ValueError, match=r"level|threads"):
            pack(x, 4, wrong)
    with pytest.raises(tw.UnknownFormatError, match="known: gzip"):
        pack(x, 4, Packing("zap"))
    sizes = [len(pack(x, 4, Packing("zstd", level, shuffle=True)).data) for level in (1, 9)]
    assert sizes[1] < sizes[0]
    assert Packing("zstd", 3, 2, True) == Packing(
        compression="zstd", level=3, threads=2, shuffle=True
    )
    with pytest.raises(AttributeError):
        Packing().level = 3


def test_weights_are_smaller_without_matches():
    """Half of bfloat16 weights is noise, and the exponents take 2.6 bits: that is what is left of
    them.
    """
    x = SAMPLES["bfloat16"]
    exponents = np.ascontiguousarray(x.view(np.uint8)[1::2])
    counts = np.bincount(exponents, minlength=256) / len(exponents)
    bits = -(counts[counts > 0] * np.log2(counts[counts > 0])).sum()
    packed = pack(x.view(np.uint8), 2, Packing("zstd", shuffle=True))
    assert len(packed.data) < 1.02 * len(x) * (1 + bits / 8)
    plain = len(
        b"".join(
            zstd.packer(9)(exponents[at : at + (1 << 18)])
            for at in range(0, len(exponents), 1 << 18)
        )
    )
    assert len(packed.data) - len(x) < 0.9 * plain


@pytest.mark.large
def test_a_change_of_mind_after_some_blocks():
    """What was best for the first block of a group need not fit the others; it still comes back."""
    rng = np.random.default_rng(3)
    parts = [
        rng.integers(0, 256, 1 << 20, np.uint8),
        np.zeros(1 << 20, np.uint8),
        np.arange(1 << 20).astype(np.uint8),
    ] * 4
    x = np.concatenate([parts[i] for i in (0, 1, 2, 2, 0, 1, 1, 0, 2, 0, 1, 2)])
    for name in compression.NAMES:
        assert there_and_back(x, Packing(name, threads=2)) is not None


# What a file says


BAD = [
    None,
    [],
    "zstd",
    {},
    {"block": 1024},
    {"compression": "zstd"},
    {"compression": "zap", "block": 1024},
    {"compression": None, "block": 1024},
    {"compression": ["zstd"], "block": 1024},
    {"compression": "zstd", "block": 0},
    {"compression": "zstd", "block": -4},
    {"compression": "zstd", "block": 1 << 40},
    {"compression": "zstd", "block": 1024.0},
    {"compression": "zstd", "block": True},
    {"compression": "zstd", "block": "1024"},
    {"compression": "zstd", "block": 1024, "shuffle": 2},
    {"compression": "zstd", "block": 1024, "shuffle": 0},
    {"compression": "zstd", "block": 1024, "shuffle": 4.0},
    {"compression": "zstd", "block": 1024, "shuffle": None},
    {"compression": "zstd", "block": 1026, "shuffle": 4},
    {"compression": "zstd", "block": 1024, "more": 1},
    {"shuffle": 4},
]


@pytest.mark.parametrize("info", BAD, ids=str)
def test_words_that_make_no_sense(info):
    with pytest.raises(tw.DecodeError, match="invalid info of a packed tensor"):
        how(info, 4000, 4)


def test_sizes_that_do_not_fit():
    with pytest.raises(tw.DecodeError, match="whole number of items"):
        how({"compression": "zstd", "block": 1024}, 4001, 4)
    with pytest.raises(tw.DecodeError, match="items have 1 bytes"):
        how({"shuffle": 1, "block": 1024}, 4000, 1)
    way = how({"shuffle": 4, "block": 1024}, 4000, 4)
    for size in (0, 3999, 4001):
        with pytest.raises(tw.DecodeError, match="a shuffled tensor of 4000"):
            way.unpack(bytes(size))
    assert not way.checksum and str(way) == "shuffled"
    way = how({"compression": "lz4", "block": 1024}, 4000, 4)
    assert way.checksum and str(way) == "lz4"
    for size in (0, 10, 31):
        with pytest.raises(tw.TruncatedError, match="needs 32 bytes"):
            way.unpack(bytes(size))


def rewritten(data, blocks, planes, change):
    """The packed bytes with another table whose checksums hold."""
    table = np.frombuffer(data, "<u4", blocks * (planes + 1)).reshape(blocks, -1).copy()
    body = bytearray(data[table.nbytes :])
    change(table, body)
    at = 0
    for row in table:
        size = int(row[:-1].sum(dtype=np.int64))
        row[-1] = crc32c(bytes(body[at : at + size]), crc32c(row[:-1].tobytes()))
        at += size
    return table.tobytes() + bytes(body)


@pytest.mark.parametrize("name", compression.NAMES)
def test_tables_that_lie(name):
    x = np.cumsum(RNG.integers(0, 9, 3000)).astype(np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PLANE", 1000)
        packed = pack(x, 4, Packing(name, shuffle=True))
    way = how(packed.info, x.nbytes, 4)
    assert rewritten(packed.data, 3, 4, lambda table, body: None) == packed.data
    for row in range(3):
        for column in range(4):
            for value in (0, 2, 1001, 1 << 20, (1 << 32) - 1):
                with pytest.raises(tw.DecodeError) as caught:
                    way.unpack(
                        rewritten(
                            packed.data,
                            3,
                            4,
                            lambda table, body, at=(row, column), value=value: table.__setitem__(
                                at, value
                            ),
                        )
                    )
                assert caught.value.format == name and 0 <= caught.value.offset <= len(packed.data)


@pytest.mark.slow
@pytest.mark.parametrize("name", compression.NAMES)
def test_every_cut_and_flip(name):
    x = np.cumsum(RNG.integers(0, 4, 150)).astype(np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PLANE", 50)
        packed = pack(x, 4, Packing(name, shuffle=True))
    way, good = how(packed.info, x.nbytes, 4), bytes(packed.data)
    for size in range(len(good)):
        with pytest.raises(tw.TruncatedError) as caught:
            way.unpack(good[:size])
        assert caught.value.offset == size
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(tw.DecodeError) as caught:
            way.unpack(bad)
        assert caught.value.format == name and 0 <= caught.value.offset <= len(good)
    with pytest.raises(tw.ChecksumError, match="checksum"):
        way.unpack(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(tw.DecodeError, match="unexpected bytes after"):
        way.unpack(good + b"\0\1")
    assert way.unpack(good + bytes(100)).tobytes() == x.tobytes()  # zeros may stand there


@given(st.data())
def test_garbage_behind_checksums_that_hold(data):
    """Whoever lies on purpose makes true checksums."""
    name = data.draw(st.sampled_from(compression.NAMES))
    parts = [data.draw(st.binary(min_size=1, max_size=60)) for _ in range(4)]
    if data.draw(st.booleans()):
        sound = compression.TABLE[name].packer(None)(bytes(40))
        parts[0] = bytearray(sound)
        parts[0][data.draw(st.integers(0, len(sound) - 1))] ^= data.draw(st.integers(0, 255))
        parts[0] = bytes(parts[0])
    sizes = np.array([len(part) for part in parts], "<u4")
    body = b"".join(parts)
    blob = sizes.tobytes() + struct.pack("<I", crc32c(body, crc32c(sizes.tobytes()))) + body
    way = how({"compression": name, "shuffle": 4, "block": 160}, 160, 4)
    try:
        assert len(way.unpack(blob)) == 160
    except tw.DecodeError as error:
        assert error.format == name and 0 <= error.offset <= len(blob)


def test_limits():
    """Zeros are drawn on the budget of a call, which grows with its input; zeros behind the last
    block are skipped.
    """
    zeros = np.zeros(10_000_000, np.float32)
    packed = there_and_back(zeros, Packing("zstd", shuffle=True))
    way, data = how(packed.info, zeros.nbytes, 4), bytes(packed.data)
    low = tw.Limits(expansion=1 << 20)
    with pytest.raises(tw.LimitError, match="expansion"):
        way.unpack(data, low)
    assert way.unpack(data, tw.Limits(expansion=zeros.nbytes)).tobytes() == zeros.tobytes()
    assert way.unpack(data, low.call(1 << 20)).tobytes() == zeros.tobytes()
    assert way.unpack(data + bytes(zeros.nbytes // 200), low).tobytes() == zeros.tobytes()
    budget = tw.Limits(expansion=zeros.nbytes).call(0)
    way.unpack(data, budget)
    with pytest.raises(tw.LimitError, match="expansion"):
        way.unpack(data, budget)
    budget.start()
    way.unpack(data, budget)
    with pytest.raises(tw.LimitError):
        how({"compression": "zstd", "block": 1 << 20}, 1 << 60, 4).unpack(bytes(100))
