"""Compressed streams: whole or an error, in pieces of any size, in bounded memory, and TensorFlow
reads and writes the same.
"""

import gc
import gzip
import os
import pathlib
import random
import struct
import sys
import threading
import time
import weakref
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.tiers import require
from tensorwire.transforms import compression
from tensorwire.transforms.compression import deflate, frames, lz4, snappy, streams, zstd
from tensorwire.wire.kernels import crc32c

cramjam = require("cramjam")
isal_zlib = require("isal.isal_zlib")

NAMES = ("gzip", "zlib", "zstd", "lz4", "snappy")
UNITS = {"gzip": deflate.MEMBER, "zstd": zstd.FRAME, "lz4": lz4.FRAME, "snappy": snappy.BLOCK}
TENSORFLOWS = ("gzip", "zlib", "snappy")
ANY = tw.Limits(expansion_ratio=1 << 40)
ALL = 1 << 30
BACKENDS = {"isal": isal_zlib, "zlib": zlib}


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(deflate, "backend", lambda: BACKENDS[request.param])
    return BACKENDS[request.param]


def mixed(size, seed=0):
    """Data that compresses, but not to nothing."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(1, 12)) for _ in range(300)]
    return b"".join(rng.choices(words, k=size // 3 + 1))[:size]


def pack(name, *parts, **options):
    """Each part a unit of its own, where the compression has units."""
    stream = compression.compressor(name, **options)
    out = []
    for part in parts:
        out += stream.write(part)
        out += stream.flush()
    return b"".join(out + stream.finish())


def unpack(name, data, step=0, limits=ANY):
    stream = compression.decompressor(name, limits)
    out = b"".join(
        piece
        for at in range(0, len(data), step or ALL)
        for piece in stream.feed(data[at : at + (step or ALL)])
    )
    stream.finish()
    return out


def caught(name, data, step=0, limits=ANY):
    with pytest.raises(tw.DecodeError) as info:
        unpack(name, data, step, limits)
    assert info.value.format == name and 0 <= info.value.offset <= len(data)
    return info.value


# There and back


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "size", [0, 1, 1000, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 1 << 20, 3_300_000]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_round_trip(name, size, threads):
    data = mixed(size)
    stream = compression.compressor(name, threads=threads)
    out = [part for at in range(0, size, 70_001) for part in stream.write(data[at : at + 70_001])]
    packed = b"".join(out + stream.finish())
    assert unpack(name, packed) == data
    # the same bytes on every run
    assert pack(name, data, threads=threads) == pack(name, data, threads=1)


@pytest.mark.parametrize("name", ["gzip", "zlib"])
@pytest.mark.parametrize("level", [None, *range(10)])
def test_levels(name, level):
    data = mixed(200_000)
    packed = pack(name, data, level=level)
    assert unpack(name, packed) == data
    assert (len(packed) > len(data)) == (level == 0)
    assert (gzip if name == "gzip" else zlib).decompress(packed) == data


def test_levels_get_better():
    sizes = [len(pack("gzip", mixed(300_000), level=level)) for level in (1, 4, 9)]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("name", NAMES)
def test_empty(name):
    packed = pack(name)
    assert unpack(name, packed) == b""
    assert (packed == b"") == (name == "snappy")
    if name == "gzip":
        assert gzip.decompress(packed) == b""


def test_gzip_members():
    data = mixed(5 << 20)
    packed = pack("gzip", data, threads=4)
    assert gzip.decompress(packed) == data
    assert packed[4:8] == bytes(4)  # no time
    stream = compression.decompressor("gzip")
    assert all(len(piece) <= streams.PIECE for piece in stream.feed(packed))
    assert [at for _, at in stream.units] == [i << 20 for i in range(5)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), UNITS.items())
def test_a_write_is_divided_only_if_it_must_be(name, size):
    stream, out, written, count = (
        compression.compressor(name, threads=2),
        [],
        [],
        40 if size <= 1 << 20 else 12,
    )
    for i in range(count):
        data = mixed(size // 3 + 1000 * i, i)
        written.append(data)
        out += stream.write(data)
    packed = b"".join(out + stream.finish())
    bounds = {sum(map(len, written[:i])) for i in range(count + 1)}
    reader = compression.decompressor(name)
    assert b"".join(reader.feed(packed)) == b"".join(written)
    assert len(reader.units) > count // 4 and {at for _, at in reader.units} <= bounds


@pytest.mark.parametrize("name", NAMES)
def test_a_buffer_may_be_used_again_at_once(name):
    stream, buffer, out = compression.compressor(name, threads=4), bytearray(1 << 20), []
    for i in range(6):
        buffer[:] = bytes([i]) * (1 << 20)
        out += stream.write(buffer)
    assert unpack(name, b"".join(out + stream.finish())) == b"".join(
        bytes([i]) * (1 << 20) for i in range(6)
    )


# Pieces


@pytest.mark.parametrize("name", NAMES)
@given(
    parts=st.lists(st.integers(0, 400), max_size=5),
    seed=st.integers(0, 1 << 30),
    room=st.integers(1, 700),
    given_=st.integers(1, 300),
)
def test_pieces_of_any_size(name, parts, seed, room, given_):
    """However the input is cut and however little room there is, for either library."""
    rng, data = random.Random(seed), [mixed(size, seed) for size in parts]
    for chosen in BACKENDS.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deflate, "backend", lambda chosen=chosen: chosen)
            packed = pack(name, *data, level=None if name == "snappy" else rng.choice([None, 1, 6]))
            for module in (deflate, frames):
                patch.setattr(module, "PIECE", room)
                patch.setattr(module, "_INPUT", given_)
            stream, out, at = compression.decompressor(name), [], 0
            while at < len(packed):
                step = rng.choice([1, 2, 9, 100, 1000])
                for piece in stream.feed(packed[at : at + step]):
                    assert name == "snappy" or 0 < len(piece) <= room
                    out.append(bytes(piece))
                    if rng.random() < 0.1:
                        break  # what was not taken comes with the next
                at += step
            out += stream.feed(b"")
            stream.finish()
            whole = b"".join(data)
            assert b"".join(out) == whole
            if name == "zlib":
                assert stream.units == [(0, 0)]
            for start, offset in stream.units:
                again = compression.decompressor(name)
                assert b"".join(again.feed(packed[start:])) == whole[offset:]
                again.finish()


@pytest.mark.parametrize("name", NAMES)
def test_a_byte_at_a_time(name):
    parts = [mixed(700, i) for i in range(3)]
    packed = pack(name, *parts)
    assert unpack(name, packed, 1) == unpack(name, packed) == b"".join(parts)


def test_a_gzip_header_with_everything(backend):
    head = b"\x1f\x8b\x08\x1f\x01\x02\x03\x04\x02\x03" + b"\x03\0abc" + b"name\0" + b"comment\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    packed = head + pack("gzip", b"hello " * 50)[10:]
    for step in (0, 1, 3):
        assert unpack("gzip", packed * 2, step) == b"hello " * 100
    wrong = bytes([*packed[:20], packed[20] ^ 1, *packed[21:]])
    assert type(caught("gzip", packed + wrong)) is tw.ChecksumError
    assert (
        type(caught("gzip", b"\x1f\x8b\x08\x08" + bytes(6) + b"x" * 200_000, 1000)) is tw.LimitError
    )
    for size in range(len(head)):
        assert type(caught("gzip", packed[:size])) is tw.TruncatedError


def test_finish_wants_all_pieces_taken():
    stream = compression.decompressor("gzip")
    stream.feed(pack("gzip", b"abc"))
    with pytest.raises(ValueError, match="take all pieces"):
        stream.finish()


# Damage


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [0, 1])
def test_every_cut(name, step):
    packed = pack(name, mixed(500))
    for size in range(1 if name == "snappy" else 0, len(packed)):
        error = caught(name, packed[:size], step)
        assert type(error) is tw.TruncatedError
        assert error.offset == size
    first = pack(name, mixed(300))
    if name == "zlib":
        return
    for size in range(1, len(packed)):  # of the second unit
        assert type(caught(name, first + packed[:size])) is tw.TruncatedError


@pytest.mark.parametrize("name", ["gzip", "zlib"])
@pytest.mark.parametrize("level", [1, 6])
def test_every_bit_flip(name, level):
    data = mixed(120) + b"a" * 40
    packed = bytearray(pack(name, data, level=level))
    harmless = 0
    for at in range(len(packed)):
        for bit in range(8):
            packed[at] ^= 1 << bit
            try:
                assert unpack(name, bytes(packed)) == data
                harmless += 1
                assert at < 10 or bit  # a time, a note about the system
            except tw.DecodeError as error:
                assert error.format == name and 0 <= error.offset <= len(packed)
            packed[at] ^= 1 << bit
    assert harmless < 60


@pytest.mark.parametrize("name", ["gzip", "zlib"])
def test_checksums(name):
    packed = pack(name, mixed(500))
    for at in range(1, 9 if name == "gzip" else 5):
        wrong = bytearray(packed)
        wrong[-at] ^= 4
        error = caught(name, bytes(wrong))
        assert type(error) is tw.ChecksumError and error.offset == len(packed) - (
            8 if name == "gzip" else 4
        )


def test_snappy_damage_is_said_with_its_place_in_the_stream():
    first, second = pack("snappy", mixed(400)), pack("snappy", mixed(500))
    wrong = bytearray(first + second)
    wrong[len(first) + 4] ^= 1  # the length of the data
    assert len(first) < caught("snappy", bytes(wrong)).offset
    # a block of nothing at all
    assert type(caught("snappy", first + bytes(4) + second)) is tw.TruncatedError
    assert caught(
        "snappy", first + b"\xff\xff\xff\xff", limits=tw.Limits(record=1 << 20)
    ).offset == len(first)


@given(st.data())
def test_garbage(data):
    name = data.draw(st.sampled_from(NAMES))
    blob = bytearray(
        pack(name, mixed(data.draw(st.integers(0, 300)))) + data.draw(st.binary(max_size=20))
    )
    for _ in range(data.draw(st.integers(0, 3))):
        if blob:
            blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    for chosen in BACKENDS.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deflate, "backend", lambda chosen=chosen: chosen)
            outcomes = set()
            for step in (0, 1, 7):
                try:
                    outcomes.add(unpack(name, bytes(blob), step, tw.Limits(record=1 << 20)))
                except tw.DecodeError as error:
                    assert error.format == name and 0 <= error.offset <= len(blob)
                    outcomes.add(type(error))
            assert len(outcomes) == 1
            assert type(compression.peek(name, bytes(blob), 40)) is bytes
            compression.recognise(bytes(blob))


def test_behind_the_last_gzip_member():
    packed = pack("gzip", b"abc", b"def")
    for step in (0, 1):
        assert unpack("gzip", packed + bytes(1000), step) == b"abcdef"
        for tail in (b"x", b"\x1f\x8c", b"\0\0x", bytes(600_000) + packed):
            error = caught("gzip", packed + tail, step if len(tail) < 10 else 0)
            assert type(error) is tw.DecodeError and error.offset == len(packed) + len(tail) - len(
                tail.lstrip(b"\0")
            )
        assert type(caught("gzip", packed + b"\x1f\x8b", step)) is tw.TruncatedError


def test_joined_zlib_is_an_error():
    packed = pack("zlib", b"abc")
    for tail in (packed, b"\0", b"xyz"):
        for step in (0, 1):
            assert caught("zlib", packed + tail, step).offset == len(packed)


def test_an_error_stays():
    stream = compression.decompressor("gzip")
    with pytest.raises(tw.DecodeError) as first:
        list(stream.feed(b"hello"))
    for call in (lambda: stream.feed(pack("gzip", b"abc")), stream.finish):
        with pytest.raises(tw.DecodeError) as again:
            call()
        assert again.value is first.value


# Memory


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.large
@pytest.mark.parametrize("name", ["gzip", "zlib"])
@pytest.mark.parametrize("joined", [True, False])
def test_bombs(name, joined):
    """A GiB of zeros in a MiB: a piece at a time."""
    packer, size = zlib.compressobj(9, zlib.DEFLATED, -15), 1 << 30
    part = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    head = b"\x1f\x8b\x08" + bytes(7) if name == "gzip" else b"\x78\x9c"
    blob = head + part * 1024 + packer.flush() + bytes(8 if name == "gzip" else 4)
    before, most, total = resident(), 0, 0
    stream = compression.decompressor(name, ANY)
    with pytest.raises(tw.ChecksumError):  # zeros for a checksum, to show that the end is reached
        for at in range(0, len(blob), ALL if joined else 65_536):
            for piece in stream.feed(blob[at : at + (ALL if joined else 65_536)]):
                assert len(piece) <= streams.PIECE
                total += len(piece)
                most = max(most, resident() - before)
    assert total == size and len(blob) < 3 << 20 and most < 32 << 20


def test_a_snappy_block_past_the_limit():
    packed = pack("snappy", bytes(1 << 18))
    assert unpack("snappy", packed, limits=tw.Limits(record=1 << 18)) == bytes(1 << 18)
    assert type(caught("snappy", packed, limits=tw.Limits(record=(1 << 18) - 1))) is tw.LimitError
    assert (
        type(caught("snappy", b"\0\xff\xff\xff" + packed, limits=tw.Limits(record=1 << 18)))
        is tw.LimitError
    )


def test_few_members_are_in_memory_at_once(monkeypatch):
    """The threads are slow, and the writer waits for them."""
    alive, most, lock = 0, 0, threading.Lock()

    def pack_slowly(data):
        nonlocal alive
        time.sleep(0.002)
        with lock:
            alive -= 1
        return bytes(data[:1])

    stream, out = streams.UnitCompressor(pack_slowly, 10, 3, b""), []
    for i in range(100):
        with lock:
            alive += 1
            most = max(most, alive)
        out += stream.write(bytes([i]) * 10)
    assert b"".join(out + stream.finish()) == bytes(range(100))
    assert most <= 2 * 3 + 2


def test_units_are_packed_at_the_same_time():
    together = threading.Barrier(2, timeout=30)

    def pack_in_pairs(data):
        together.wait()
        return bytes(data)

    stream = streams.UnitCompressor(pack_in_pairs, 4, 2, b"")
    out = [part for i in range(6) for part in stream.write(bytes([i]) * 4)]
    assert b"".join(out + stream.finish()) == b"".join(bytes([i]) * 4 for i in range(6))


# Flush, finish, close


@pytest.mark.parametrize("name", NAMES)
def test_after_a_flush_all_can_be_read(name):
    stream, reader, written, read = (
        compression.compressor(name, threads=3),
        compression.decompressor(name),
        b"",
        b"",
    )
    for i in range(8):
        data = mixed(1 + 300_000 * (i % 3), i)
        written += data
        for part in stream.write(data) + stream.flush():
            read += b"".join(reader.feed(part))
        assert read == written
        assert stream.flush() == []
    for part in stream.finish():
        read += b"".join(reader.feed(part))
    reader.finish()
    assert read == written
    assert len(reader.units) >= (1 if name == "zlib" else 8)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", ["finish", "close"])
def test_nothing_after_the_end(name, end):
    stream = compression.compressor(name)
    getattr(stream, end)()
    for call in (lambda: stream.write(b"a"), stream.flush, stream.finish):
        with pytest.raises(ValueError, match="after finish"):
            call()
    stream.close()


def ours():
    return [
        thread for thread in threading.enumerate() if thread.name.startswith("tensorwire-compress")
    ]


@pytest.mark.parametrize("name", UNITS)
def test_no_thread_is_left(name):
    data = mixed(UNITS[name])
    stream = compression.compressor(name, threads=4)
    assert not ours()  # before there is work
    for _ in range(12):
        stream.write(data)
    assert ours()
    stream.finish()
    assert not ours()

    stream = compression.compressor(name, level=None if name == "snappy" else 9, threads=4)
    for _ in range(8):
        stream.write(data)
    start = time.monotonic()
    stream.close()
    assert time.monotonic() - start < 1
    while ours():
        assert time.monotonic() - start < 20
        time.sleep(0.01)


def test_an_error_in_a_thread_comes_to_the_caller():
    def fail(data):
        raise MemoryError("no room")

    stream = streams.UnitCompressor(fail, 4, 2, b"")
    with pytest.raises(MemoryError):
        for _ in range(10):
            stream.write(b"abcd")
    stream.close()


# Names, options, recognising


def test_names_and_options(monkeypatch):
    assert compression.NAMES == NAMES
    for name in ("GZIP", "gz", "x"):
        for call in (
            compression.compressor,
            compression.decompressor,
            lambda name: compression.peek(name, b"", 1),
        ):
            with pytest.raises(tw.UnknownFormatError, match="known: gzip, zlib, zstd, lz4, snappy"):
                call(name)
    wrong = [
        ("gzip", {"level": 10}),
        ("zlib", {"level": -1}),
        ("snappy", {"level": 1}),
        ("zstd", {"level": 23}),
        ("zstd", {"level": -8}),
        ("lz4", {"level": 17}),
        ("lz4", {"level": -1}),
        ("gzip", {"threads": 0}),
    ]
    for name, options in wrong:
        with pytest.raises(ValueError, match=r"level|threads"):
            compression.compressor(name, **options)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(tw.MissingDependencyError, match="compress"):
        compression.compressor("snappy")
    # reading needs nothing
    assert unpack("snappy", struct.pack(">I", 5) + b"\x03\x08abc") == b"abc"


def test_recognise():
    assert compression.recognise(pack("gzip", b"a")) == "gzip"
    for level in range(10):
        assert compression.recognise(pack("zlib", b"a", level=level)) == "zlib"
    for head in (
        b"",
        b"\x1f",
        b"\x1f\x8b",
        b"\x1f\x8b\x07",
        b"\x78",
        b"\x78\x9d",
        b"\x88\x1c",
        b"\x78\xbb",
        b"PK\3\4",
    ):
        assert compression.recognise(head) is None


@pytest.mark.parametrize("name", NAMES)
def test_peek(name):
    data = mixed(500_000)
    packed = pack(name, data)
    for count in (0, 1, 12, 5000):
        assert compression.peek(name, packed, count) == data[:count]
        for size in (0, 3, 5, 6, 60, 300, 5000):
            head = compression.peek(name, packed[:size], count)
            assert data[:count].startswith(head)
            assert len(head) == count or size < 6000
            # which need a whole block
            assert head or size < 300 or not count or name in ("zstd", "lz4")
    assert compression.peek(name, memoryview(packed), len(data)) == data
    for other in NAMES:
        if other != name:
            assert compression.peek(other, packed, 12) == b""
    assert compression.peek(name, b"hello, this is not compressed", 12) == b""


# TensorFlow


def frame(record):
    def masked(data):
        value = crc32c(data)
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


RECORDS = [mixed(size, size) for size in (0, 1, 1000, 100_000, 300_000, 2_500_000)]


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", TENSORFLOWS)
@pytest.mark.parametrize("level", [None, 1, 3, 6])
def test_tensorflow_reads_what_we_write(tf, name, level, tmp_path):
    if name == "snappy" and level is not None:
        return
    stream, out = compression.compressor(name, level, threads=2), []
    for record in RECORDS:
        out += stream.write(frame(record))
        out += stream.flush() if len(record) == 1000 else []
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(out + stream.finish()))
    dataset = tf.data.TFRecordDataset(str(path), compression_type=name.upper())
    assert [record.numpy() for record in dataset] == RECORDS


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", TENSORFLOWS)
def test_tensorflow_reads_our_empty_stream(tf, name, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(pack(name))
    assert list(tf.data.TFRecordDataset(str(path), compression_type=name.upper())) == []


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", TENSORFLOWS)
def test_we_read_what_tensorflow_writes(tf, name, tmp_path):
    path = str(tmp_path / "a.tfrecord")
    dataset = tf.data.Dataset.from_tensor_slices(RECORDS)
    tf.raw_ops.DatasetToTFRecord(  # TFRecordWriter knows no Snappy, the operation does
        input_dataset=dataset._variant_tensor, filename=path, compression_type=name.upper()
    )
    data = pathlib.Path(path).read_bytes()
    assert unpack(name, data) == unpack(name, data, 1000) == b"".join(map(frame, RECORDS))
    for size in (len(data) - 1, len(data) - 5):
        caught(name, data[:size])


@pytest.mark.tensorflow
def test_tensorflows_largest_snappy_block(tf, tmp_path):
    """Why a block of ours has 256 KiB at most: TensorFlow writes longer ones, and cannot read them."""
    path, stream = tmp_path / "a.tfrecord", frame(mixed(400_000))

    def read(block):
        parts = [
            bytes(cramjam.snappy.compress_raw(stream[at : at + block]))
            for at in range(0, len(stream), block)
        ]
        path.write_bytes(b"".join(struct.pack(">I", len(part)) + part for part in parts))
        return len(list(tf.data.TFRecordDataset(str(path), compression_type="SNAPPY")))

    assert read(snappy.BLOCK) == 1
    with pytest.raises(tf.errors.ResourceExhaustedError):
        read(snappy.BLOCK + 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_decompressor_is_gone_when_it_is_dropped(name):
    """And with it the bytes that it was given, before any garbage is collected."""
    stream = compression.compressor(name)
    data = b"".join(stream.write(b"x" * 1000) + stream.finish())
    gc.disable()
    try:
        found = compression.decompressor(name)
        assert b"".join(map(bytes, found.feed(data))) == b"x" * 1000
        found.finish()
        gone = weakref.ref(found)
        del found
        assert gone() is None
    finally:
        gc.enable()
