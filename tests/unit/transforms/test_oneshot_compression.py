"""Whole buffers, compressed and back: in new aligned memory, in parallel or in order with the same
outcome, and never more than allowed.
"""

import gzip
import random
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.transforms import compression
from tensorwire.transforms.compression import deflate, oneshot
from tensorwire.wire import kernels

NAMES = compression.NAMES
DIVISIBLE = ("gzip", "zstd", "lz4", "snappy")


def mixed(size, seed=0):
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(1, 12)) for _ in range(300)]
    return b"".join(rng.choices(words, k=size // 3 + 1))[:size]


def pack(name, *chunks, **options):
    return b"".join(oneshot.compress(chunks, name, **options))


@pytest.fixture(params=["divided", "in order"])
def way(request, monkeypatch):
    """Both ways to read, for every test that asks."""
    if request.param == "in order":
        rows = {name: row._replace(split=None) for name, row in compression.TABLE.items()}
        monkeypatch.setattr(compression, "TABLE", rows)
    return request.param


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "size", [0, 1, 1000, 1 << 18, (1 << 20) + 1, 1 << 20 if kernels.PURE else 9 << 20]
)
def test_there_and_back(name, size, way):
    data = mixed(size)
    found = oneshot.decompress(pack(name, data), name)
    assert found.dtype == np.uint8 and found.shape == (size,) and found.flags.writeable
    assert found.ctypes.data % 64 == 0 or not size
    assert found.tobytes() == data


@pytest.mark.parametrize("name", NAMES)
@given(
    sizes=st.lists(st.integers(0, 300), max_size=8),
    unit=st.integers(1, 400),
    threads=st.sampled_from([1, 3]),
)
def test_how_the_data_is_cut_in_chunks_does_not_matter(name, sizes, unit, threads):
    data = mixed(sum(sizes))
    chunks = [data[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    with pytest.MonkeyPatch.context() as patch:
        row = compression.TABLE[name]
        patch.setitem(compression.TABLE, name, row._replace(unit=row.unit and unit))
        ours = pack(name, *chunks, threads=threads)
        assert ours == pack(name, data, threads=1) or name == "zlib"
        assert oneshot.decompress(ours, name).tobytes() == data
        stream = compression.decompressor(name)
        assert b"".join(stream.feed(ours)) == data
        stream.finish()


@pytest.mark.parametrize("name", NAMES)
def test_what_goes_in(name):
    """Any buffers, and nothing at all."""
    x = np.arange(1000, dtype=np.float32).reshape(10, 100)
    ours = pack(name, x, bytearray(b"abc"), memoryview(b"def"), b"")
    assert oneshot.decompress(memoryview(ours), name).tobytes() == x.tobytes() + b"abcdef"
    assert (
        oneshot.decompress(pack(name), name).tobytes()
        == oneshot.decompress(pack(name, b"", b""), name).tobytes()
        == b""
    )
    assert (
        oneshot.decompress(np.frombuffer(ours, np.uint8), name).tobytes() == x.tobytes() + b"abcdef"
    )


@pytest.mark.large
@pytest.mark.parametrize("name", DIVISIBLE)
def test_units_are_unpacked_in_threads(name, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    seen, lock, fill = set(), threading.Lock(), oneshot._fill

    def spy(*arguments):
        with lock:
            seen.add(threading.current_thread().name)
        fill(*arguments)

    monkeypatch.setattr(oneshot, "_fill", spy)
    data = mixed(1 << 20) * 24
    assert oneshot.decompress(pack(name, data), name).tobytes() == data
    assert 1 <= len(seen) <= 4 and all(one.startswith("tensorwire") for one in seen)
    assert not [one for one in threading.enumerate() if one.name.startswith("tensorwire")]


@pytest.mark.parametrize("name", NAMES)
def test_names_and_options(name):
    with pytest.raises(ValueError, match="threads"):
        oneshot.compress([b"a"], name, threads=0)
    with pytest.raises(ValueError, match="level"):
        oneshot.compress([b"a"], name, level=99)
    for call in (oneshot.compress, oneshot.decompress):
        with pytest.raises(tw.UnknownFormatError, match="known: gzip"):
            call(b"", "zip")


# Damage


@pytest.mark.parametrize("name", NAMES)
def test_every_cut(name, way):
    good = pack(name, mixed(400))
    for size in range(0 if name != "snappy" else 1, len(good)):
        with pytest.raises(tw.TruncatedError) as caught:
            oneshot.decompress(good[:size], name)
        assert caught.value.format == name and caught.value.offset == size


@pytest.mark.parametrize("name", ["gzip", "zstd", "lz4"])
def test_damage_in_a_later_unit_says_where(name, way, monkeypatch):
    monkeypatch.setitem(compression.TABLE, name, compression.TABLE[name]._replace(unit=300))
    good = bytearray(pack(name, mixed(3000)))
    at = 7 * len(good) // 8
    good[at - 20 : at + 20] = bytes(40)
    with pytest.raises(tw.DecodeError) as caught:
        oneshot.decompress(good, name)
    assert caught.value.format == name and len(good) // 2 < caught.value.offset <= len(good)


@pytest.mark.parametrize("name", NAMES)
def test_something_behind_the_end(name, way):
    for tail in (b"x", b"\x1f\x8b", bytes(3) + b"x"):
        with pytest.raises(tw.DecodeError) as caught:
            oneshot.decompress(pack(name, b"hello " * 50) + tail, name)
        assert caught.value.format == name


@given(st.data())
def test_both_ways_agree(data):
    """On sound streams, on damaged ones, on garbage."""
    name = data.draw(st.sampled_from(DIVISIBLE))
    unit = data.draw(st.integers(1, 200))
    with pytest.MonkeyPatch.context() as patch:
        row = compression.TABLE[name]
        patch.setitem(compression.TABLE, name, row._replace(unit=unit))
        blob = bytearray(
            pack(name, mixed(data.draw(st.integers(0, 600)))) + data.draw(st.binary(max_size=8))
        )
        for _ in range(data.draw(st.integers(0, 3))):
            if blob:
                blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
        outcomes = []
        for split in (row.split, None):
            patch.setitem(compression.TABLE, name, row._replace(split=split))
            try:
                outcomes.append(oneshot.decompress(blob, name, tw.Limits(record=1 << 20)).tobytes())
            except tw.DecodeError as error:
                assert error.format == name and 0 <= error.offset <= len(blob)
                outcomes.append(None)
        assert outcomes[0] == outcomes[1]


# gzip, whose members are guessed


def test_a_header_in_the_data(way):
    """What looks like the beginning of a member, and is data."""
    inner = pack("gzip", b"inner")
    for data in (
        inner,
        b"abc" + inner * 3 + b"def",
        inner[:10] * 50,
        mixed(1 << 20) + inner + mixed(1 << 20),
    ):
        stored = pack("gzip", data, level=0)
        assert stored.count(inner[:10]) > 1
        assert oneshot.decompress(stored, "gzip").tobytes() == data


def test_gzip_of_others(way):
    data = mixed(3_000_000)
    for theirs in (
        gzip.compress(data),
        gzip.compress(data[:1000]) + gzip.compress(data[1000:]),
        pack("gzip", data) + bytes(512),
    ):
        assert oneshot.decompress(theirs, "gzip").tobytes() == data
    assert oneshot.decompress(zlib.compress(data), "zlib").tobytes() == data


def test_sizes_that_lie_at_the_end_of_a_member():
    first, second = pack("gzip", mixed(1000)), pack("gzip", mixed(2000, 1))
    for size in (0, 999, 1001, 0xFFFFFFFF):
        bad = first[:-4] + size.to_bytes(4, "little") + second
        with pytest.raises(tw.ChecksumError) as caught:
            oneshot.decompress(bad, "gzip")
        assert caught.value.offset == len(first) - 8
    assert deflate.gzip_split(memoryview(first + second)) == [
        (0, len(first), 1000),
        (len(first), len(first + second), 2000),
    ]


# Limits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gzip", "zlib", "zstd"])
def test_ratio(name, way):
    """As other writers pack zeros."""
    data = bytes(200 << 20)
    theirs = {
        "gzip": gzip.compress,
        "zlib": zlib.compress,
        "zstd": compression.zstd.library().compress,
    }[name](data)
    with pytest.raises(tw.LimitError, match="expansion") as caught:
        oneshot.decompress(theirs, name)
    assert caught.value.format == name and caught.value.offset is not None
    assert len(oneshot.decompress(theirs, name, tw.Limits(expansion_ratio=100_000))) == len(data)
    assert len(oneshot.decompress(theirs, name, tw.Limits(expansion=200 << 20))) == len(data)
    assert len(oneshot.decompress(theirs, name, tw.Limits().call(1 << 20))) == len(data)
    with pytest.raises(tw.LimitError, match="expansion"):
        oneshot.decompress(theirs, name, tw.Limits(expansion_ratio=2, expansion=1000))


def test_ratio_of_lz4_and_snappy(way):
    for name in ("lz4", "snappy"):
        with pytest.raises(tw.LimitError, match="expansion"):
            oneshot.decompress(
                pack(name, bytes(1 << 20)), name, tw.Limits(expansion_ratio=5, expansion=1000)
            )


PEAK = """
import resource, sys
import tensorwire as tw
from tensorwire.transforms.compression import oneshot as whole
name = sys.argv[1]
whole.decompress(b"".join(whole.compress([bytes(9 << 20)], name)), name)
packed = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = whole.decompress(packed, name, tw.Limits(expansion_ratio=1 << 20))
print(len(found), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "theirs"), [*((name, False) for name in NAMES), ("gzip", True), ("zlib", True)]
)
def test_memory(name, theirs):
    """No more than 64 MB and 1.1 times the data, whether its size is known before or not."""
    data = bytes(150 << 20)
    packed = ({"gzip": gzip, "zlib": zlib}[name].compress(data, 1)) if theirs else pack(name, data)
    out = subprocess.run(
        [sys.executable, "-c", PEAK, name], input=packed, capture_output=True, check=True
    ).stdout.split()
    assert int(out[0]) == len(data) and int(out[1]) < (64 << 20) + 1.1 * len(data)
