"""Record files as they are: writing, reading, modes, shards, compression, numbers, damage,
following.
"""

import gzip
import os
import random
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.core import memory
from tensorwire.records import blocks, index, paths
from tensorwire.wire import kernels, tfrecord

COMPRESSIONS = [None, "gzip", "zlib", "zstd", "lz4", "snappy"]
RECORDS = [b"", b"one", bytes(1000), os.urandom(70_000), b"x" * 600_000, b"end"]


def write(path, records=RECORDS, **options):
    with tw.RecordWriter(path, **options) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def many(count, seed=0):
    choose = random.Random(seed)
    return [choose.randbytes(choose.randrange(60)) for _ in range(count)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_round_trip(tmp_path, compression):
    path = write(tmp_path / "a.tfrecord", compression=compression)
    reader = tw.RecordReader(path)
    assert list(reader) == RECORDS and list(reader) == RECORDS  # as often as one likes
    assert len(reader) == len(RECORDS) and [reader[i] for i in range(-6, 6)] == RECORDS * 2
    assert reader[1:4] == RECORDS[1:4] and reader[::-2] == RECORDS[::-2] and reader[4:1] == []
    assert [record for batch in reader.batches(4) for record in batch] == RECORDS
    assert [len(batch) for batch in reader.batches(4)] == [4, 2]
    with pytest.raises(IndexError, match="record 6 is out of range for 6 records"):
        reader[6]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_an_empty_file_has_no_records(tmp_path, compression):
    path = write(tmp_path / "a.tfrecord", [], compression=compression)
    reader = tw.RecordReader(path)
    assert (
        list(reader) == []
        and len(reader) == 0
        and reader[:] == []
        and list(reader.shuffle(1)) == []
        and list(reader.batches(3)) == []
    )


@pytest.mark.tensorflow
# TensorFlow knows no others
@pytest.mark.parametrize("compression", [None, "gzip", "zlib", "snappy"])
def test_tensorflow_reads_what_we_write_and_the_other_way_round(tf, tmp_path, compression):
    kind = (compression or "").upper()
    ours = write(tmp_path / "ours", compression=compression)
    assert [record.numpy() for record in tf.data.TFRecordDataset(ours, kind)] == RECORDS
    # its writer class does not know Snappy, the operation below it does
    theirs = str(tmp_path / "theirs")
    dataset = tf.data.Dataset.from_tensor_slices(RECORDS)
    tf.raw_ops.DatasetToTFRecord(
        input_dataset=dataset._variant_tensor, filename=theirs, compression_type=kind
    )
    assert list(tw.RecordReader(theirs)) == RECORDS
    if compression is None:
        assert Path(ours).read_bytes() == Path(theirs).read_bytes()


def test_compression_is_told_from_the_bytes_not_the_name(tmp_path):
    for compression in COMPRESSIONS:
        path = write(tmp_path / "misleading.gz", [b"a", b"b"], compression=compression)
        assert list(tw.RecordReader(path)) == [b"a", b"b"]
    with pytest.raises(tw.EncodeError, match="did you mean 'gzip'"):
        tw.RecordReader(path, compression="gzipp")[0]


@given(
    st.lists(st.binary(max_size=200), max_size=30), st.sampled_from(COMPRESSIONS), st.integers(1, 5)
)
def test_any_records(tmp_path_factory, records, compression, size):
    path = write(
        tmp_path_factory.mktemp("any") / "a", records, compression=compression, durable=False
    )
    assert list(tw.RecordReader(path, index=False)) == records
    assert [record for batch in tw.RecordReader(path).batches(size) for record in batch] == records


def test_strings_are_written_in_one_step(tmp_path):
    records = many(1000)
    for shards in (None, 3):
        with tw.RecordWriter(tmp_path / "a", shards=shards) as writer:
            writer.write(b"first")
            writer.write_many(tw.Strings.of(records))
            writer.write_many(iter([b"last"]))
        assert writer.records == 1002
        found = [list(tw.RecordReader(path)) for path in writer.paths]
        every = [b"first", *records, b"last"]
        assert found == [every[i :: len(found)] for i in range(len(found))]


def test_shards_are_named_and_found(tmp_path):
    writer = tw.RecordWriter(tmp_path / "train.tfrecord.gz", shards=16, compression="gzip")
    with writer:
        for record in many(100):
            writer.write(record)
    assert os.path.basename(writer.paths[7]) == "train-00007-of-00016.tfrecord.gz"
    reader = tw.RecordReader(str(tmp_path / "train-*.tfrecord.gz"))
    assert (
        reader.paths == writer.paths and sorted(reader) == sorted(many(100)) and len(reader) == 100
    )
    reader[5]  # makes indexes, which the pattern must not take for records
    assert tw.RecordReader(str(tmp_path / "train-*")).paths == writer.paths
    with pytest.raises(FileNotFoundError, match="no file matches"):
        tw.RecordReader(str(tmp_path / "nothing-*"))
    with pytest.raises(FileNotFoundError):
        list(tw.RecordReader(tmp_path / "nothing"))
    with pytest.raises(IsADirectoryError):
        list(tw.RecordReader(tmp_path))
    with pytest.raises(tw.UsageError, match="list of files is empty"):
        tw.RecordReader([])
    with pytest.raises((tw.EncodeError, tw.UsageError), match="a path, a pattern or a list"):
        tw.RecordReader(b"bytes")


# ------------------------------------------------------------------------------------------------------------------
# modes


def test_mode_w_replaces_whole_or_not_at_all(tmp_path):
    path = write(tmp_path / "a", [b"old"])
    with pytest.raises(ZeroDivisionError), tw.RecordWriter(path) as writer:
        writer.write(b"new")
        writer.flush()
        assert list(tw.RecordReader(path)) == [b"old"]
        1 / 0  # noqa: B018
    assert list(tw.RecordReader(path)) == [b"old"] and os.listdir(tmp_path) == ["a"]
    writer = tw.RecordWriter(path)
    writer.write(b"new")
    writer.discard()
    assert list(tw.RecordReader(path)) == [b"old"] and os.listdir(tmp_path) == ["a"]
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"x")
    write(path, [b"new"])
    assert list(tw.RecordReader(path)) == [b"new"]


@pytest.mark.parametrize("compression", [None, "gzip", "zstd", "lz4", "snappy"])
def test_live_files_show_what_was_flushed(tmp_path, compression):
    path = tmp_path / "a"
    with tw.RecordWriter(path, mode="live", compression=compression) as writer:
        for number in range(5):
            writer.write(b"%d" % number)
            writer.flush()
            assert list(tw.RecordReader(path)) == [b"%d" % i for i in range(number + 1)]


@pytest.mark.parametrize("compression", [None, "gzip", "zstd", "lz4", "snappy"])
def test_append_goes_on_behind_the_last_whole_record(tmp_path, compression):
    records = many(300)
    path = str(tmp_path / "a")
    with tw.RecordWriter(path, mode="live", compression=compression) as writer:
        for start in range(0, 300, 50):
            writer.write_many(records[start : start + 50])
            writer.flush()
    whole = Path(path).read_bytes()
    # Snappy has no mark: it takes the first record's header to know it
    start = 60 if compression == "snappy" else 13
    for cut in [*range(len(whole) - 40, len(whole)), len(whole) // 2, start, len(whole)]:
        with open(path, "wb") as file:
            file.write(whole[:cut])
        before = []
        try:
            before.extend(tw.RecordReader(path))
        except tw.TruncatedError as error:
            before = records[: error.record] if compression is None else None
        with tw.RecordWriter(path, mode="a") as writer:
            writer.write(b"more")
        after = list(tw.RecordReader(path))
        assert after[-1] == b"more" and after[:-1] == records[: len(after) - 1]
        if before is not None:
            assert after[:-1] == before


def test_append_refuses_what_it_would_spoil(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"hello")
    with pytest.raises(tw.EncodeError, match="not a TFRecord file"):
        tw.RecordWriter(path, mode="a")
    path.write_bytes(b"hello, this is text and no record")
    with pytest.raises(tw.EncodeError, match="damaged"):
        tw.RecordWriter(path, mode="a")
    assert path.read_bytes() == b"hello, this is text and no record"
    write(path, compression="zlib")
    with pytest.raises(tw.EncodeError, match="cannot be appended to"):
        tw.RecordWriter(path, mode="a")
    write(path)
    with pytest.raises(tw.UsageError, match="not compressed"):
        tw.RecordWriter(path, mode="a", compression="gzip")
    with tw.RecordWriter(tmp_path / "new", mode="a", compression="gzip") as writer:
        writer.write(b"1")
    assert gzip.decompress((tmp_path / "new").read_bytes()) == kernels.frame(b"1")
    for wrong in ({"mode": "x"}, {"shards": 0}):
        with pytest.raises((tw.EncodeError, tw.UsageError)):
            tw.RecordWriter(path, **wrong)
    with pytest.raises(TypeError):
        tw.RecordWriter(path).write("text")


def test_a_writer_that_cannot_start_changes_nothing(tmp_path):
    for compression, mode in ((None, "live"), ("gzip", "live"), ("gzip", "a"), ("gzip", "w")):
        path = write(tmp_path / "a", many(100), compression=compression)
        torn = Path(path).read_bytes()[:-5]
        Path(path).write_bytes(torn)
        with pytest.raises(ValueError, match="level"):
            tw.RecordWriter(path, mode=mode, compression="gzip", level=99)
        assert Path(path).read_bytes() == torn and os.listdir(tmp_path) == ["a"]


def test_killed_writers_lose_only_what_was_not_flushed(tmp_path):
    script = (
        "import sys, os, tensorwire as tw\n"
        "writer = tw.RecordWriter(sys.argv[1], mode=sys.argv[2])\n"
        "for i in range(10**9):\n"
        "    writer.write(b'%06d' % i * 50)\n"
        "    if i % 100 == 99:\n"
        "        writer.flush(); print(i + 1, flush=True)\n"
    )
    for mode in ("live", "a", "w"):
        path = str(tmp_path / mode)
        if mode == "w":
            write(path, [b"old"])
        process = subprocess.Popen(
            [sys.executable, "-c", script, path, mode], stdout=subprocess.PIPE, text=True
        )
        flushed = [int(process.stdout.readline()) for _ in range(20)][-1]
        process.kill()
        process.wait()
        process.stdout.close()
        if mode == "w":
            assert list(tw.RecordReader(path)) == [b"old"]
            write(path, [b"new"])  # and sweeps away what the killed one left
            assert sorted(os.listdir(tmp_path)) == ["a", "live", "w"]
            continue
        with tw.RecordWriter(path, mode="a") as writer:
            writer.write(b"after")
        found = list(tw.RecordReader(path))
        assert (
            found[-1] == b"after"
            and len(found) > flushed
            and found[:-1] == [b"%06d" % i * 50 for i in range(len(found) - 1)]
        )


# -----------------------------------------------------------------------------------------------------------------
# faults


def test_a_torn_tail_names_the_number_of_whole_records(tmp_path):
    path = write(tmp_path / "a", [b"one", b"two", b"three"])
    whole = Path(path).read_bytes()
    ends = [0, 19, 38, 59]
    for cut in range(len(whole)):
        Path(path).write_bytes(whole[:cut])
        count = sum(end <= cut for end in ends[1:])
        if cut in ends:
            assert len(list(tw.RecordReader(path))) == count
            continue
        with pytest.raises(tw.TruncatedError, match=f"after {count} complete records") as caught:
            list(tw.RecordReader(path))
        assert (caught.value.record, caught.value.offset, caught.value.path) == (
            count,
            ends[count],
            path,
        )
        with pytest.raises(tw.TruncatedError):
            len(tw.RecordReader(path))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_no_flipped_bit_gives_another_record(tmp_path, compression):
    records = [b"one", b"", bytes(40), b"last"]
    path = write(tmp_path / "a", records, compression=compression)
    whole = Path(path).read_bytes()
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        Path(path).write_bytes(data)
        try:
            # a gzip timestamp, for instance
            assert list(tw.RecordReader(path)) == records and compression is not None
        except tw.DecodeError as error:
            assert error.path == path
        found = list(tw.RecordReader(path, on_corrupt="skip"))
        assert all(record in records for record in found)
        if compression is None:
            assert len(found) >= len(records) - 1


def test_skip_says_what_was_lost(tmp_path):
    path = write(tmp_path / "a", [b"one", b"two", b"three"])
    data = bytearray(Path(path).read_bytes())
    data[19 + 13] ^= 4
    Path(path).write_bytes(data)
    reader = tw.RecordReader(path, on_corrupt="skip")
    assert list(reader) == [b"one", b"three"] and [
        (gap.offset, gap.length, gap.path) for gap in reader.skipped
    ] == [(19, 19, path)]
    with pytest.raises(tw.ChecksumError) as caught:
        list(tw.RecordReader(path))
    assert (caught.value.record, caught.value.offset, caught.value.path) == (1, 19, path)
    with pytest.raises(tw.ChecksumError) as caught:
        tw.RecordReader(path)[1]  # the header holds, so it has a number
    assert (caught.value.record, caught.value.offset) == (1, 19)
    with pytest.raises(TypeError, match="has no length"):
        reader.shuffle(1)
    with pytest.raises(tw.UsageError, match="on_corrupt"):
        tw.RecordReader(path, on_corrupt="ignore")
    assert not tw.verify(path) and tw.verify(path).records == 2 and len(tw.verify(path).gaps) == 1


def test_limits_hold_before_anything_is_allocated(tmp_path):
    path = write(tmp_path / "a", [bytes(1000)])
    with pytest.raises(tw.LimitError, match="Limits"):
        list(tw.RecordReader(path, limits=tw.Limits(record=999)))
    size = (1 << 29).to_bytes(8, "little")
    head = size + tfrecord.mask(tfrecord.crc32c(size)).to_bytes(4, "little")
    # a record of 512 MB is announced
    for data in (head, zlib.compress(head), gzip.compress(head + bytes(100))):
        (tmp_path / "b").write_bytes(data)
        with pytest.raises(tw.TruncatedError):
            list(tw.RecordReader(tmp_path / "b"))


# ------------------------------------------------------------------------------------------------------------
# random access


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_shuffle_and_shard(tmp_path, compression):
    records = many(1000)
    files = [
        write(tmp_path / f"{i}.tfrecord", records[i::3], compression=compression) for i in range(3)
    ]
    reader = tw.RecordReader(files)
    ordered = [record for i in range(3) for record in records[i::3]]
    first, again, other = list(reader.shuffle(7)), list(reader.shuffle(7)), list(reader.shuffle(8))
    assert (
        first == again != other
        and sorted(first) == sorted(other) == sorted(records)
        and first != ordered
    )
    assert [reader.shuffle(7)[i] for i in range(20)] == first[:20]
    for count in (1, 2, 3, 7):  # whole files while there are enough of them
        shares = [list(reader.shard(i, count)) for i in range(count)]
        assert sorted(record for share in shares for record in share) == sorted(records)
        assert sum(len(reader.shard(i, count)) for i in range(count)) == 1000
        shuffled = [list(reader.shuffle(3).shard(i, count)) for i in range(count)]
        assert sorted(record for share in shuffled for record in share) == sorted(records)
    assert reader.shard(1, 3).paths == files[1:2]
    with pytest.raises(tw.UsageError, match="invalid shard 3 of 3"):
        reader.shard(3, 3)
    reader.close()


def test_the_index_is_used_while_it_is_true(tmp_path):
    path = write(tmp_path / "a", many(100))
    reader = tw.RecordReader(path)
    assert index.load(path) is None and reader[50] == many(100)[50]
    kept = index.load(path)
    assert (
        kept is not None
        and len(kept) == 100
        and kept.offsets.tolist() == index.build(path).offsets.tolist()
    )
    write(path, many(99, seed=1))
    assert (
        index.load(path) is None
        and tw.RecordReader(path)[98] == many(99, seed=1)[98]
        and len(tw.RecordReader(path)) == 99
    )
    beside = paths.index_beside(path)
    good = Path(beside).read_bytes()
    for bit in range(0, 8 * len(good), 5):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        Path(beside).write_bytes(bad)
        found = index.load(path)
        # the padding means nothing
        assert found is None or found.offsets.tolist() == index.build(path).offsets.tolist()
    for cut in range(0, len(good), 7):
        Path(beside).write_bytes(good[:cut])
        assert index.load(path) is None
    os.remove(beside)
    tw.RecordReader(path, index=False)[3]
    assert not os.path.exists(beside)


def test_a_cut_between_two_records_is_seen_by_the_index(tmp_path):
    path = write(tmp_path / "a", many(100))
    assert tw.verify(path)
    ends = index.open_index(path).offsets
    os.truncate(path, int(ends[50]))
    found = tw.verify(path)
    assert not found and "it was truncated" in str(found) and found.records == 50
    assert tw.inspect(path).records == 50


@pytest.mark.timing
def test_counting_a_plain_file_reads_headers_only(tmp_path):
    path = str(tmp_path / "a")
    with open(path, "wb") as file:  # 100 GB, of which only the headers exist
        size = (1 << 28).to_bytes(8, "little")
        head = size + tfrecord.mask(tfrecord.crc32c(size)).to_bytes(4, "little")
        for number in range(400):
            file.seek(number * ((1 << 28) + 16))
            file.write(head)
        file.truncate(400 * ((1 << 28) + 16))
    start = time.perf_counter()
    assert len(tw.RecordReader(path)) == 400
    assert time.perf_counter() - start < 1


def test_index_offsets_whatever_the_sizes(tmp_path):
    choose = random.Random(5)
    records = [
        bytes(choose.choice([0, 1, 5, 4096, 262_140, 300_000, 3_000_000])) for _ in range(40)
    ]
    path = write(tmp_path / "a", records)
    found = index.build(path)
    assert np.diff(found.offsets).tolist() == [
        len(record) + 16 for record in records
    ] and found.offsets[-1] == os.path.getsize(path)
    assert sum(len(block.starts) for block in blocks.blocks(path)) == 40


def test_random_access_into_gzip_starts_at_a_member(tmp_path):
    records = [random.Random(i).randbytes(3000) for i in range(3000)]
    path = write(tmp_path / "a", records, compression="gzip")
    kept = index.open_index(path)
    assert len(kept.units) > 5
    reader = tw.RecordReader(path)
    for number in (0, 1, 1500, 2999, 1499, 348, 349, 350):
        assert reader[number] == records[number]


def test_mapped_files(tmp_path):
    path = write(tmp_path / "a", [*RECORDS, *many(5000), bytes(2_000_000), b"last"])
    assert list(tw.RecordReader(path, mmap=True)) == list(tw.RecordReader(path))
    whole = Path(path).read_bytes()
    for cut in (5, 100, len(whole) - 1):
        Path(path).write_bytes(whole[:cut])
        errors = []
        for mmap in (False, True):
            with pytest.raises(tw.TruncatedError) as caught:
                for _ in tw.RecordReader(path, mmap=mmap).blocks():
                    pass
            errors.append((str(caught.value), caught.value.record, caught.value.offset))
        assert errors[0] == errors[1]
    Path(path).write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    with pytest.raises(tw.ChecksumError) as caught:
        list(tw.RecordReader(path, mmap=True).blocks())
    assert caught.value.path == path and caught.value.record == 2
    assert list(tw.RecordReader(write(path, []), mmap=True)) == []
    with pytest.raises(tw.UsageError, match="needs an uncompressed file"):
        list(tw.RecordReader(write(path, compression="gzip"), mmap=True).blocks())
    with pytest.raises((tw.EncodeError, tw.UsageError), match="cannot be combined"):
        tw.RecordReader(path, mmap=True, follow=True)


# -----------------------------------------------------------------------------------------------------------------
# follow


def test_follow_waits_for_more(tmp_path):
    path = str(tmp_path / "a")
    writer = tw.RecordWriter(path, mode="live")
    writer.write(b"0")
    writer.flush()
    seen = []

    def read():
        seen.extend(tw.RecordReader(path, follow=True, timeout=1.0))

    thread = threading.Thread(target=read)
    thread.start()
    with open(path, "ab") as file:
        for number in range(1, 6):  # in halves: what is not whole yet is waited for
            data = kernels.frame(b"%d" % number)
            file.write(data[:9])
            file.flush()
            time.sleep(0.06)
            file.write(data[9:])
            file.flush()
    thread.join(10)
    writer.discard()
    assert seen == [b"%d" % i for i in range(6)]
    with pytest.raises(tw.UsageError, match="a single file"):
        tw.RecordReader([path, path], follow=True)


class TestTheNameSaysTheCompression:
    @pytest.mark.parametrize(
        ("name", "mark"),
        [
            ("a.tfrecord.gz", b"\x1f\x8b"),
            ("a.zst", b"\x28\xb5\x2f\xfd"),
            ("a.tfrecord", b"\x03\x00"),
        ],
    )
    def test_of_a_new_file(self, tmp_path, name, mark):
        for mode in ("w", "live", "a"):
            (tmp_path / name).unlink(missing_ok=True)
            with tw.RecordWriter(tmp_path / name, mode=mode) as writer:
                writer.write(b"one")
            assert (tmp_path / name).read_bytes().startswith(mark) and list(
                tw.RecordReader(tmp_path / name)
            ) == [b"one"]

    def test_unless_somebody_says_otherwise(self, tmp_path):
        path = tmp_path / "a.tfrecord.gz"
        for compression, mark in (("", b"\x03\x00"), ("zlib", b"\x78")):
            with tw.RecordWriter(path, compression=compression) as writer:
                writer.write(b"one")
            assert path.read_bytes().startswith(mark)

    def test_a_file_stays_what_it_is(self, tmp_path):
        """One that TensorFlow has written, for which a name says nothing."""
        path = tmp_path / "a.tfrecord.gz"
        with tw.io.TFRecordWriter(path) as writer:
            writer.write(b"one")
        with tw.RecordWriter(path, mode="a") as writer:
            writer.write(b"two")
        assert path.read_bytes().startswith(b"\x03\x00") and list(tw.RecordReader(path)) == [
            b"one",
            b"two",
        ]
        with pytest.raises(tw.UsageError, match="compression='gzip' does not match the file"):
            tw.RecordWriter(path, mode="a", compression="gzip")
        path.write_bytes(b"")
        with tw.RecordWriter(path, mode="a") as writer:
            writer.write(b"three")
        with pytest.raises(
            (tw.EncodeError, tw.UsageError),
            match="compression='' does not match the file, which is gzip",
        ):
            tw.RecordWriter(path, mode="a", compression="")

    def test_of_examples_in_shards(self, tmp_path):
        tw.write_examples(tmp_path / "a.tfrecord.gz", {"x": np.arange(4)}, shards=2)
        assert all(path.read_bytes().startswith(b"\x1f\x8b") for path in tmp_path.glob("a-*.gz"))
        assert sorted(
            np.concatenate([batch["x"] for batch in tw.read_examples(tmp_path / "a-*.gz")])
        ) == [0, 1, 2, 3]


def test_a_record_suffix_counts_at_the_end_of_a_name_only(tmp_path):
    """`x.tfr2.safetensors` was taken for records, and a whole file called broken."""
    for name in ("x.tfr2.safetensors", "x.tfrecord.safetensors", "a.tfr.b.npz"):
        tw.save(tmp_path / name, {"x": np.arange(3)})
        assert tw.verify(tmp_path / name) and tw.inspect(tmp_path / name).tensors[0].name == "x"
        assert tw.equal(tw.load(tmp_path / name), {"x": np.arange(3)})
    names = (
        "a.tfrecord",
        "b.tfrecord-00000-of-00001",
        "c-00000-of-00001.tfrecord",
        "d.tfrecords",
        "e.tfrec",
        "f.tfr",
        "g",
    )
    for name in names:
        tw.write_examples(tmp_path / name, {"x": np.arange(3)}, schema_file=False)
        assert tw.verify(tmp_path / name).records == 3 and tw.inspect(tmp_path / name).records == 3
        data = bytearray((tmp_path / name).read_bytes())
        data[0] ^= 1
        (tmp_path / name).write_bytes(data)  # no longer to be recognised by its first bytes
        assert tw.verify(tmp_path / name).format == ("tfrecord" if name != "g" else None)


def test_without_the_gil_no_buffer_is_used_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    pool = memory.MemoryPool()
    first = pool.take(1000)
    place = first.ctypes.data
    assert not memory.is_mine(first)
    view, first = first[:8], None
    view[:] = 7
    assert pool.take(1000).ctypes.data != place and view.tolist() == [7] * 8
    with tw.RecordWriter(tmp_path / "x.tfrecord") as writer:
        for number in range(2000):
            writer.write(b"%d" % number * 100)
    records = list(tw.RecordReader(tmp_path / "x.tfrecord"))
    assert records == [b"%d" % number * 100 for number in range(2000)]
