"""zstd and lz4: the real tools read what we write and the other way round, and damage, bombs and
strange frames are errors.
"""

import importlib.util
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.tiers import require
from tensorwire._limits import DEFAULT
from tensorwire.transforms import compression
from tensorwire.transforms.compression import frames, lz4, oneshot, packing, zstd
from tensorwire.wire import kernels

lz4_library = require("lz4.frame")

BOTH = ("zstd", "lz4")
LIBRARY = zstd.library()
PARAMETER = LIBRARY.CompressionParameter
needs = pytest.mark.skipif


def mixed(size, seed=0):
    """Data that compresses, but not to nothing."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(1, 12)) for _ in range(300)]
    return b"".join(rng.choices(words, k=size // 3 + 1))[:size]


def packed(name, *parts, **options):
    """Each part a frame of its own."""
    stream = compression.compressor(name, **options)
    out = [piece for part in parts for piece in stream.write(part) + stream.flush()]
    return b"".join(out + stream.finish())


def unpacked(name, data, step=0, limits=None):
    stream = compression.decompressor(name, limits or tw.Limits())
    step = step or len(data) or 1
    out = b"".join(
        piece for at in range(0, len(data), step) for piece in stream.feed(data[at : at + step])
    )
    stream.finish()
    return out


def everywhere(name, data, limits=None):
    """The data, read in every way that there is."""
    found = {unpacked(name, data, step, limits) for step in (0, 1 if len(data) < 10_000 else 1000)}
    found.add(oneshot.decompress(data, name, limits or tw.Limits()).tobytes())
    (one,) = found
    return one


def caught(name, data, kind=tw.DecodeError, words=None, limits=None):
    """The error, which all ways agree on."""
    ways = [
        lambda: unpacked(name, data, 0, limits),
        lambda: unpacked(name, data, 1 if len(data) < 10_000 else 1000, limits),
    ]
    for way in [*ways, lambda: oneshot.decompress(data, name, limits or tw.Limits())]:
        with pytest.raises(tw.DecodeError, match=words) as info:
            way()
        assert (
            type(info.value) is kind
            and info.value.format == name
            and 0 <= info.value.offset <= len(data)
        )
    return info.value


# The real tools


def tool(*command, data):
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


@needs(shutil.which("zstd") is None, reason="no zstd tool")
class TestZstdTool:
    @pytest.mark.parametrize("level", [None, -7, 1, 19])
    @pytest.mark.parametrize("size", [0, 1, 100_000, 9 << 20])
    def test_it_reads_ours(self, level, size):
        data = mixed(size if level != 19 else min(size, 500_000))
        assert tool("zstd", "-dc", data=packed("zstd", data, level=level)) == data
        assert tool("zstd", "-dc", data=b"".join(oneshot.compress([data], "zstd", level))) == data
        assert tool("zstd", "-t", data=packed("zstd", data, b"", data)) == b""

    @pytest.mark.parametrize(
        "options",
        [
            ("-1",),
            ("-19",),
            ("--no-check",),
            ("--long=27",),
            ("-T2", "-B1MiB"),
            ("--ultra", "-22"),
            ("--fast=5",),
        ],
    )
    def test_we_read_its(self, options):
        for size in (0, 1, 1_500_000):
            data = mixed(size)
            assert everywhere("zstd", tool("zstd", "-c", *options, data=data)) == data

    def test_a_file_with_its_size(self, tmp_path):
        data = mixed(3_000_000)
        (tmp_path / "a").write_bytes(data)
        subprocess.run(["zstd", "-q", str(tmp_path / "a")], check=True)
        theirs = (tmp_path / "a.zst").read_bytes()
        assert zstd.split(memoryview(theirs)) == [(0, len(theirs), len(data))]
        assert everywhere("zstd", theirs * 2) == data * 2

    def test_a_window_of_two_gigabytes(self):
        """A frame that asks for it is refused, and the error says how to allow it."""
        theirs = tool("zstd", "-c", "--long=31", data=b"a" * 100)
        error = caught("zstd", theirs, tw.LimitError, "Limits")
        assert "2,147,483,648" in str(error)
        assert unpacked("zstd", theirs, limits=tw.Limits(record=2 << 30)) == b"a" * 100


@needs(shutil.which("lz4") is None, reason="no lz4 tool")
class TestLz4Tool:
    @pytest.mark.parametrize("level", [None, 0, 3, 16])
    @pytest.mark.parametrize("size", [0, 1, 100_000, 9 << 20])
    def test_it_reads_ours(self, level, size):
        data = mixed(size if level != 16 else min(size, 500_000))
        assert tool("lz4", "-dc", data=packed("lz4", data, level=level)) == data
        assert tool("lz4", "-dc", data=b"".join(oneshot.compress([data], "lz4", level))) == data

    @pytest.mark.parametrize(
        "options",
        [
            ("-1",),
            ("-9",),
            ("-B4", "-BD"),
            ("-B7", "-BD"),
            ("-B5", "-BX"),
            ("--no-frame-crc",),
            ("-B4", "-BD", "-BX", "-12"),
        ],
    )
    def test_we_read_its(self, options, tmp_path):
        for size in (0, 1, 5_000_000 if "-12" not in options else 500_000):
            data = mixed(size)
            theirs = tool("lz4", "-c", *options, data=data)
            assert everywhere("lz4", theirs) == data
            (tmp_path / "a").write_bytes(data)
            subprocess.run(
                [
                    "lz4",
                    "-q",
                    "-f",
                    "--content-size",
                    *options,
                    str(tmp_path / "a"),
                    str(tmp_path / "a.lz4"),
                ],
                check=True,
            )
            theirs = (tmp_path / "a.lz4").read_bytes()
            assert everywhere("lz4", theirs + theirs) == data * 2
            assert (lz4.split(memoryview(theirs)) is not None) == (size > 0)

    def test_legacy(self):
        caught("lz4", tool("lz4", "-l", "-c", data=mixed(1000)), words="legacy")


def test_the_libraries_read_ours():
    data = mixed(9 << 20)
    assert LIBRARY.decompress(packed("zstd", data)) == data
    out, rest = b"", packed("lz4", data)
    while rest:
        piece, used = lz4_library.decompress(rest, return_bytes_read=True)
        out, rest = out + piece, rest[used:]
    assert out == data


@needs(importlib.util.find_spec("zstandard") is None, reason="no zstandard package")
def test_the_other_package():
    import zstandard

    data = mixed(9 << 20)
    reader = zstandard.ZstdDecompressor().stream_reader(
        packed("zstd", data), read_across_frames=True
    )
    assert reader.read() == data
    assert (
        everywhere("zstd", zstandard.ZstdCompressor(level=5, write_checksum=True).compress(data))
        == data
    )


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize("block", [4, 7])
def test_we_read_what_the_lz4_library_writes(linked, sums, block):
    data = mixed(5 << 20)
    for size in (True, False):
        theirs = lz4_library.compress(
            data,
            block_size=block,
            block_linked=linked,
            block_checksum=sums,
            content_checksum=sums,
            store_size=size,
        )
        assert everywhere("lz4", theirs) == data


# What we write


@pytest.mark.parametrize("name", BOTH)
def test_frames_say_their_size_and_have_a_checksum(name):
    module = {"zstd": zstd, "lz4": lz4}[name]
    data = mixed(9 << 20)
    ours = packed(name, data, threads=3)
    parts = module.split(memoryview(ours))
    assert [size for _, _, size in parts] == [4 << 20, 4 << 20, 1 << 20]
    for start, _, size in parts:
        head = module.read_header(ours[start : start + 19])
        assert head.content == size and head.checked and head.window <= 8 << 20
    assert packed(name, data, threads=1) == ours == packed(name, data)
    assert (
        b"".join(oneshot.compress([data], name, threads=3))
        == ours
        == b"".join(oneshot.compress([data[:100], data[100:]], name, threads=1))
    )


@pytest.mark.parametrize(
    ("name", "levels"), [("zstd", [-7, -1, 0, 1, 3, 9, 15]), ("lz4", [0, 2, 3, 9, 16])]
)
def test_levels(name, levels):
    data = mixed(300_000)
    sizes = [len(packed(name, data, level=level)) for level in levels]
    assert sizes[-1] < sizes[0]
    assert all(everywhere(name, packed(name, data, level=level)) == data for level in levels)


def test_missing_packages(monkeypatch):
    zstd.library.cache_clear()
    monkeypatch.setitem(
        sys.modules, "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", None
    )
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    for name, package in (("zstd", "zstd"), ("lz4", "lz4")):
        for call in (
            compression.compressor,
            compression.decompressor,
            lambda name: oneshot.decompress(b"\x28\xb5\x2f\xfd\0", name),
        ):
            with pytest.raises(
                tw.MissingDependencyError, match=rf"{package}.*pip install 'tensorwire\[compress\]'"
            ):
                call(name)
    assert compression.recognise(b"\x28\xb5\x2f\xfd") == "zstd"  # that needs nothing
    monkeypatch.undo()
    zstd.library.cache_clear()


# Frames to skip, and what must not be read


@pytest.mark.parametrize("name", BOTH)
def test_frames_to_skip(name):
    frame, skip = packed(name, b"hello"), b"\x5a\x2a\x4d\x18\x05\0\0\0abcde"
    none = b"\x50\x2a\x4d\x18\0\0\0\0"
    assert everywhere(name, skip + frame + none + skip + frame + skip) == b"hellohello"
    assert everywhere(name, skip) == everywhere(name, none) == b""
    for size in range(1, len(skip)):
        caught(name, frame + skip[:size], tw.TruncatedError)
        caught(name, skip[:size], tw.TruncatedError)
    caught(name, skip + b"x", words="after the last")
    assert (
        frames.skipped(0) == b"" and len(frames.skipped(3)) == 8 and len(frames.skipped(100)) == 100
    )
    assert compression.recognise(skip + none + frame) == name
    assert compression.recognise(skip[:4]) == compression.recognise(skip) == "zstd"


def test_recognise():
    for name in BOTH:
        frame = packed(name, b"a")
        assert compression.recognise(frame) == name
        assert compression.recognise(frame[:3]) is None
    assert set(compression.SUFFIXES.values()) == set(compression.NAMES)
    for suffix, name in (
        (".gz", "gzip"),
        (".zst", "zstd"),
        (".lz4", "lz4"),
        (".zz", "zlib"),
        (".zlib", "zlib"),
        (".snappy", "snappy"),
        (".sz", "snappy"),
    ):
        assert compression.SUFFIXES[suffix] == name


def test_dictionaries():
    samples = [mixed(2000, i) for i in range(50)]
    dictionary = LIBRARY.train_dict(samples, 4000)
    theirs = LIBRARY.compress(samples[0], zstd_dict=dictionary)
    caught("zstd", theirs, words=f"dictionary {dictionary.dict_id}")
    frame = bytearray(packed("lz4", b"hello"))
    frame[4] |= 1
    caught("lz4", bytes(frame), words="dictionary")
    silent = LIBRARY.compress(samples[0], zstd_dict=dictionary, options={PARAMETER.dict_id_flag: 0})
    caught("zstd", silent)  # nobody says that it needs one, and it makes no sense without


def test_flags_that_do_not_exist():
    frame = packed("zstd", b"hello")
    caught("zstd", frame[:4] + bytes([frame[4] | 8]) + frame[5:], words="invalid flags")
    frame = packed("lz4", b"hello")
    for at, byte in (
        (4, frame[4] ^ 0x40),
        (4, frame[4] | 2),
        (5, 0x80 | frame[5]),
        (5, 0x30),
        (5, frame[5] | 1),
    ):
        caught("lz4", frame[:at] + bytes([byte]) + frame[at + 1 :], words="invalid flags")
    caught("lz4", b"\x02\x21\x4c\x18" + bytes(20), words="legacy")
    for name in BOTH:
        caught(name, b"hello, this is something else", words=f"not an? {name} frame")
        caught(name, packed(name, b"a") + b"hello", words="unexpected bytes after the last")
        caught(name, packed(name, b"a") + b"\0", words="unexpected bytes after the last")
        caught(name, b"", tw.TruncatedError)
    caught("zstd", packed("lz4", b"a"))
    caught("lz4", packed("zstd", b"a"))


# Damage


@pytest.mark.parametrize("name", BOTH)
def test_every_cut(name):
    first, second = packed(name, mixed(300)), packed(name, mixed(500, 1))
    for size in range(len(first)):
        assert caught(name, first[:size], tw.TruncatedError).offset == size
    for size in range(len(first) + 1, len(first + second)):
        assert caught(name, (first + second)[:size], tw.TruncatedError).offset == size


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    "data",
    [mixed(150) + b"a" * 60, b"", b"x" * 500, random.Random(0).randbytes(100)],
    ids=["mixed", "nothing", "same", "noise"],
)
def test_every_bit_flip(name, data):
    """An error, or what the header says about windows and blocks, which changes no data."""
    good, harmless = packed(name, data, mixed(20)), 0
    data += mixed(20)
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        outcomes = set()
        for way in (
            lambda bad: unpacked(name, bad),
            lambda bad: unpacked(name, bad, 1),
            lambda bad: oneshot.decompress(bad, name).tobytes(),
        ):
            try:
                outcomes.add(way(bytes(bad)))
            except tw.DecodeError as error:
                assert error.format == name and 0 <= error.offset <= len(good)
        assert outcomes <= {data}, bit
        harmless += len(outcomes)
    assert harmless < (40 if name == "zstd" else 8)


@pytest.mark.parametrize("name", BOTH)
def test_checksums(name):
    good = packed(name, mixed(5000))
    for at in (1, 4):
        bad = bytearray(good)
        bad[-at] ^= 4
        caught(name, bytes(bad), tw.ChecksumError)
    stored = random.Random(1).randbytes(1000)
    bad = bytearray(packed(name, stored))
    bad[500] ^= 1
    caught(name, bytes(bad), tw.ChecksumError)
    if name == "lz4":
        bad = bytearray(good)
        bad[14] ^= 1  # of the header
        caught(name, bytes(bad), tw.ChecksumError)


@pytest.mark.parametrize("name", BOTH)
def test_a_size_that_is_not_true(name):
    data = mixed(1000)
    good = packed(name, data)
    at = {"zstd": 5, "lz4": 6}[name]
    for value in (0, 1, 999, 1001, 5000):
        size = (
            struct.pack("<H", value - 256)
            if name == "zstd" and value >= 256
            else struct.pack("<Q", value)
        )
        bad = good[:at] + size + good[at + len(size) :]
        if name == "zstd" and value < 256:
            continue
        with pytest.raises(tw.DecodeError):
            unpacked(name, bad)
        with pytest.raises(tw.DecodeError):
            oneshot.decompress(bad, name)


@given(st.data())
def test_garbage(data):
    name = data.draw(st.sampled_from(BOTH))
    blob = bytearray(
        packed(name, mixed(data.draw(st.integers(0, 300)))) + data.draw(st.binary(max_size=20))
    )
    for _ in range(data.draw(st.integers(0, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    outcomes = set()
    for way in (
        lambda: unpacked(name, bytes(blob)),
        lambda: unpacked(name, bytes(blob), 7),
        lambda: oneshot.decompress(blob, name).tobytes(),
    ):
        try:
            outcomes.add(way())
        except tw.DecodeError as error:
            assert error.format == name and 0 <= error.offset <= len(blob)
            outcomes.add(None)
    assert len(outcomes) == 1
    compression.recognise(blob)
    assert type(compression.peek(name, blob, 40)) is bytes


# The two ways to unpack one frame


@pytest.mark.skipif(
    zstd._direct() is None, reason="the extension under Python's zstd exports nothing"
)
@given(st.data())
def test_directly_and_by_the_module(data):
    """The same data, or an error of ours, on sound frames and on damaged ones."""
    size = data.draw(st.integers(1, 500))
    options = {
        PARAMETER.compression_level: data.draw(st.sampled_from([-1, 1, 3])),
        PARAMETER.checksum_flag: data.draw(st.integers(0, 1)),
    }
    blob = bytearray(LIBRARY.compress(mixed(size, size), options=options))
    for _ in range(data.draw(st.integers(0, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    blob = bytes(blob[: data.draw(st.integers(1, len(blob)))] if data.draw(st.booleans()) else blob)
    outcomes, room = [], size + data.draw(st.sampled_from([0, 0, 0, 1, -1]))
    for direct in (zstd._direct(), None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(zstd, "_direct", lambda direct=direct: direct)
            out = np.zeros(max(room, 1), np.uint8)
            try:
                zstd.unpack(blob, out)
                outcomes.append(out.tobytes())
            except tw.DecodeError as error:
                assert error.format == "zstd" and error.offset == 0
                outcomes.append(None)
    assert outcomes[0] == outcomes[1]


def test_by_the_module_alone(monkeypatch):
    monkeypatch.setattr(zstd, "_direct", lambda: None)
    data = np.cumsum(np.random.default_rng(0).integers(0, 9, 2_000_000)).astype(np.int32)
    found = packing.pack(data, 4, packing.Packing("zstd", shuffle=True))
    assert packing.how(found.info, data.nbytes, 4).unpack(found.data).tobytes() == data.tobytes()
    assert everywhere("zstd", packed("zstd", data.tobytes())) == data.tobytes()


def test_a_context_for_each_thread():
    direct = zstd._direct()
    if direct is None:
        return
    frame, outs = LIBRARY.compress(mixed(300_000)), [np.zeros(300_000, np.uint8) for _ in range(6)]
    threads = [threading.Thread(target=direct, args=(frame, out)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(out.tobytes() == mixed(300_000) for out in outs)


# Bombs


def zstd_bomb(blocks, window=17, size=None):
    """Frames of one repeated byte: 128 KiB in four bytes."""
    head = b"\x28\xb5\x2f\xfd" + (
        bytes([0xC0, (window - 10) << 3]) + struct.pack("<Q", size)
        if size is not None
        else bytes([0, (window - 10) << 3])
    )
    block = struct.pack("<I", 128 * 1024 << 3 | 1 << 1)[:3] + b"a"
    last = struct.pack("<I", 128 * 1024 << 3 | 1 << 1 | 1)[:3] + b"a"
    return head + block * (blocks - 1) + last


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_bomb_is_a_limit_error():
    bomb = zstd_bomb(100)
    assert everywhere("zstd", bomb) == b"a" * (100 << 17)  # 13 MB are not worth a word
    bomb = zstd_bomb(1200)
    caught("zstd", bomb, tw.LimitError, "expansion")
    assert unpacked("zstd", bomb, limits=tw.Limits(expansion_ratio=40_000)) == b"a" * (1200 << 17)
    assert unpacked("zstd", bomb, limits=tw.Limits(expansion=1 << 30)) == b"a" * (1200 << 17)
    assert len(oneshot.decompress(bomb, "zstd", tw.Limits(expansion_ratio=40_000))) == 1200 << 17
    # part of a file of a megabyte
    assert len(oneshot.decompress(bomb, "zstd", tw.Limits().call(1 << 20))) == 1200 << 17


def test_what_a_header_promises_is_checked_first():
    before, start = resident(), time.process_time()
    for size in (1 << 40, 1 << 62, (1 << 64) - 1):
        with pytest.raises(tw.LimitError, match="expansion"):
            oneshot.decompress(zstd_bomb(2, size=size), "zstd")
        head = b"\x04\x22\x4d\x18\x6c\x40" + struct.pack("<Q", size)
        with pytest.raises(tw.DecodeError):
            oneshot.decompress(head + bytes(10), "lz4")
    assert resident() - before < 16 << 20 and time.process_time() - start < 1


def test_a_large_window_takes_no_memory_before_there_is_data():
    before = resident()
    for window in (27, 30):
        assert unpacked("zstd", zstd_bomb(2, window)) == b"a" * (2 << 17)
        caught(
            "zstd", zstd_bomb(2, window), tw.LimitError, "window", limits=tw.Limits(record=1 << 26)
        )
    caught("zstd", zstd_bomb(2, 31), tw.LimitError, "window")
    caught("zstd", zstd_bomb(2, 41), tw.LimitError, "window")
    assert resident() - before < 48 << 20


@pytest.mark.large
def test_memory_while_a_bomb_grows():
    """No more than the limits allow, and not twice as much while it is put together: the size is
    not known before.
    """
    bomb = zstd_bomb(1600)  # 200 MiB
    limits = tw.Limits(expansion_ratio=40_000)
    peak = subprocess.run(
        [sys.executable, "-c", PEAK, "zstd", str(limits.expansion_ratio)],
        input=bomb,
        capture_output=True,
        check=True,
        text=False,
    ).stdout
    assert int(peak) < (64 << 20) + 1.1 * (200 << 20)


PEAK = """
import resource, sys
import tensorwire as tw
from tensorwire.transforms.compression import oneshot as whole
whole.decompress(b"".join(whole.compress([b"a"], sys.argv[1])), sys.argv[1])
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    found = whole.decompress(bomb, sys.argv[1], tw.Limits(expansion_ratio=int(sys.argv[2])))
except tw.LimitError:
    found = None
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.large
@pytest.mark.parametrize("name", compression.NAMES)
def test_what_we_write_can_be_read_with_the_default_limits(name, tmp_path):
    """Zeros would become a ten-thousandth: streams get as many bytes that mean nothing as the limit
    wants.
    """
    zeros = bytes(160 << 20)
    ours = b"".join(oneshot.compress([zeros], name))
    assert DEFAULT.allowed(len(ours)) >= len(zeros)
    assert oneshot.decompress(ours, name).tobytes() == zeros
    stream, out = compression.compressor(name), []
    for _ in range(160):
        out += stream.write(bytes(1 << 20))
    ours = b"".join(out + stream.finish())
    reader = compression.decompressor(name, total=len(ours))
    assert sum(len(piece) for piece in reader.feed(ours)) == 160 << 20
    reader.finish()
    with tw.RecordWriter(tmp_path / "a", compression=name, durable=False) as writer:
        for _ in range(160):
            writer.write(bytes(1 << 20))
    assert [len(record) for record in tw.RecordReader(tmp_path / "a")] == [1 << 20] * 160
    small = b"".join(oneshot.compress([bytes(1 << 20)], name))
    assert len(small) < 60_000 and oneshot.decompress(small, name).tobytes() == bytes(1 << 20)


@pytest.mark.large
@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["gzip", "zlib"])
def test_tensorflow_reads_what_means_nothing(tf, name, tmp_path):
    with tw.RecordWriter(tmp_path / "a", compression=name, durable=False) as writer:
        for _ in range(20):
            writer.write(bytes(1 << 20))
    dataset = tf.data.TFRecordDataset(str(tmp_path / "a"), compression_type=name.upper())
    assert [len(record.numpy()) for record in dataset] == [1 << 20] * 20


# Record files


RECORDS = [
    mixed(size, size)
    for size in (0, 1, 1000, 100_000, 200_000, 300_000 if kernels.PURE else 5_500_000)
] + [mixed(2000, i) for i in range(100)]


@pytest.mark.parametrize("name", BOTH)
class TestRecords:
    def test_there_and_back(self, name, tmp_path):
        path = tmp_path / f"train.tfrecord.{'zst' if name == 'zstd' else 'lz4'}"
        with tw.RecordWriter(path, compression=name, threads=2) as writer:
            writer.write_many(RECORDS)
        reader = tw.RecordReader(path)  # recognised
        assert list(reader) == RECORDS and len(reader) == len(RECORDS)
        assert reader[5] == RECORDS[5] and reader[-1] == RECORDS[-1]
        assert list(tw.RecordReader(path, compression=name.upper())) == RECORDS
        assert tw.inspect(path).compression == name

    def test_shards(self, name, tmp_path):
        suffix = "zst" if name == "zstd" else "lz4"
        with tw.RecordWriter(
            tmp_path / f"t.tfrecord.{suffix}", compression=name, shards=3
        ) as writer:
            writer.write_many(RECORDS)
        assert writer.paths[1].endswith(f"t-00001-of-00003.tfrecord.{suffix}")
        assert list(tw.RecordReader(writer.paths[1])) == RECORDS[1::3]

    def test_append_after_a_torn_end(self, name, tmp_path):
        with tw.RecordWriter(tmp_path / "a", compression=name, mode="live") as writer:
            writer.write_many(RECORDS[:5])
            writer.flush()
            writer.write_many(RECORDS[5:20])
        data = (tmp_path / "a").read_bytes()
        (tmp_path / "a").write_bytes(data[:-3])
        with tw.RecordWriter(tmp_path / "a", mode="a") as writer:
            writer.write_many(RECORDS[20:30])
        found = list(tw.RecordReader(tmp_path / "a"))
        assert found[:5] == RECORDS[:5] and found[-10:] == RECORDS[20:30]
        (tmp_path / "a").write_bytes(data)
        with tw.RecordWriter(tmp_path / "a", mode="a", compression=name) as writer:
            writer.write_many(RECORDS[20:30])
        assert list(tw.RecordReader(tmp_path / "a")) == RECORDS[:30]

    def test_damage_in_one_frame_costs_one_frame(self, name, tmp_path):
        groups = [[mixed(400, 100 * i + j) for j in range(20)] for i in range(8)]
        with tw.RecordWriter(
            tmp_path / "a", compression=name, mode="live", durable=False
        ) as writer:
            for group in groups:
                writer.write_many(group)
                writer.flush()
        data = (tmp_path / "a").read_bytes()
        units = compression.decompressor(name)
        list(units.feed(data))
        places = [at for at, _ in units.units]
        for hit in (0, 3, 7):
            bad = bytearray(data)
            at = places[hit] + 1000
            bad[at : at + 20] = bytes(20)
            (tmp_path / "b").write_bytes(bad)
            with pytest.raises(tw.DecodeError):
                list(tw.RecordReader(tmp_path / "b"))
            found = list(tw.RecordReader(tmp_path / "b", on_corrupt="skip"))
            others = [record for i, group in enumerate(groups) if i != hit for record in group]
            assert [record for record in found if record in set(others)] == others
            assert set(found) <= {record for group in groups for record in group}
            report = tw.repair(tmp_path / "b", tmp_path / "c", overwrite=True)
            assert not report and report.records == len(found)
            assert compression.recognise((tmp_path / "c").read_bytes()) == name

    def test_examples(self, name, tmp_path):
        columns = {
            "x": np.arange(10_000, dtype=np.int64),
            "y": np.random.default_rng(0).random((10_000, 4), np.float32),
        }
        tw.write_examples(tmp_path / "a", columns, compression=name)
        (batch,) = tw.read_examples(tmp_path / "a", batch_size=10_000)
        assert (batch["x"] == columns["x"]).all() and (batch["y"] == columns["y"]).all()


@pytest.mark.large
def test_a_record_file_of_nothing_else_than_zeros_needs_a_larger_ratio(tmp_path):
    """As other writers make it."""
    data = kernels.frame(bytes(1 << 20)) * 160
    (tmp_path / "a").write_bytes(LIBRARY.compress(data))
    with pytest.raises(tw.LimitError, match="expansion") as info:
        list(tw.RecordReader(tmp_path / "a"))
    assert info.value.path == str(tmp_path / "a")
    with pytest.raises(tw.LimitError, match="expansion"):
        list(tw.RecordReader(tmp_path / "a", on_corrupt="skip"))  # it is no damage
    assert (
        len(list(tw.RecordReader(tmp_path / "a", limits=tw.Limits(expansion_ratio=1 << 20)))) == 160
    )


@pytest.mark.large
def test_a_quiet_beginning_is_no_bomb(tmp_path):
    """Much of nothing, then noise: where the size of the file is known, all of it counts."""
    records = [bytes(20 << 20), random.Random(0).randbytes(400_000)]
    with tw.RecordWriter(tmp_path / "a", compression="zstd", durable=False) as writer:
        writer.write_many(records)
    assert list(tw.RecordReader(tmp_path / "a")) == records
