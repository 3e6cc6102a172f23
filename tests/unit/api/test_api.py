"""The verbs: recognition, memory rules, streams, options."""

import io
import os
import pickle
import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings

import tensorwire as tw
from tensorwire.testing import strategies as tws
from tensorwire.wire import tfrecord


@given(tws.values())
def test_round_trip_of_anything(value):
    for format in ("safetensors", "tensorproto"):
        blob = tw.dumps(value, format)
        found = tw.loads(blob)
        text = isinstance(value, tw.Strings) and format == "tensorproto"
        assert tw.equal(found, value.astext(False) if text else value)
        assert b"".join(tw.buffers(value, format)) == blob


class TestRecognition:
    @pytest.mark.parametrize(
        "value", [np.zeros(3), np.zeros(0, np.int8), tw.Strings.of([b"a"]), ["x", 1], {}, None]
    )
    def test_what_we_write_is_recognised(self, value):
        for format in ("safetensors", "tensorproto"):
            assert tw.equal(tw.loads(tw.dumps(value, format)), value)
            assert tw.equal(tw.loads(tw.dumps(value, format), ("raw", format)), value)

    def test_only_the_formats_allowed(self):
        blob = tw.dumps(np.zeros(3, np.float32))
        with pytest.raises(tw.UnknownFormatError, match="only tensorproto"):
            tw.loads(blob, ("tensorproto",))
        with pytest.raises(tw.DecodeError):
            tw.loads(blob, "tensorproto")

    @pytest.mark.parametrize(
        "data",
        [b"\x89PNG\r\n\x1a\n", b"7", b'"{}"', b"\x08\x63\x00", b"\x00" * 40],
    )
    def test_what_is_not(self, data):
        with pytest.raises(tw.UnknownFormatError, match="pass format="):
            tw.loads(data)

    def test_pickles_are_named(self):
        for protocol in range(2, 6):
            with pytest.raises(tw.UnknownFormatError, match="Python pickle"):
                tw.loads(pickle.dumps({"a": 1}, protocol))

    @pytest.mark.parametrize("format", ["safetensors", "npy", "npz", "json", "protobuf"])
    def test_metadata_are_text(self, format):
        with pytest.raises(tw.EncodeError, match="metadata must map str to str"):
            tw.dumps(np.zeros(3), format, metadata={"a": 1})

    def test_cut_safetensors(self):
        with pytest.raises(tw.TruncatedError):
            tw.loads(tw.dumps({"a": np.zeros(100)})[:60])

    def test_unknown_names_and_options(self):
        with pytest.raises(tw.UnknownFormatError, match="did you mean 'tensorproto'"):
            tw.dumps(np.zeros(1), "tensorprot")
        with pytest.raises(TypeError, match="did you mean 'dtype'"):
            tw.dumps(np.zeros(1), "raw", dtyp="float32")
        with pytest.raises(TypeError):
            tw.loads("text")


class TestMemoryRules:
    @pytest.mark.parametrize("format", ["safetensors", "tensorproto"])
    @pytest.mark.parametrize(
        "container", [bytes, bytearray, memoryview, lambda blob: np.frombuffer(blob, np.uint8)]
    )
    def test_read_only_unless_a_copy_is_asked_for(self, format, container):
        data = container(tw.dumps(np.arange(1000.0), format))
        found = tw.loads(data)
        assert not found.flags.writeable and found.flags.aligned
        with pytest.raises(ValueError):
            found[0] = 1
        mine = tw.loads(data, copy=True)
        mine[0] = 7
        assert tw.loads(data)[0] == 0 and mine.flags.owndata

    def test_views_where_aligned(self):
        blob = tw.dumps(np.arange(1000.0))
        found = tw.loads(blob)
        assert np.shares_memory(found, np.frombuffer(blob, np.uint8))
        assert np.shares_memory(tw.loads(blob, copy=False), np.frombuffer(blob, np.uint8))
        shifted = memoryview(b"x" + blob)[1:]
        assert not np.shares_memory(
            tw.loads(shifted), np.frombuffer(shifted, np.uint8)
        ) and tw.equal(tw.loads(shifted), found)
        with pytest.raises(tw.DecodeError, match="not aligned"):
            tw.loads(shifted, copy=False)

    def test_tensorproto_of_bytes_is_a_view(self):
        """uint8 is aligned anywhere; float64 behind TensorFlow's header is not."""
        blob = tw.dumps(np.zeros(1000, np.uint8), "tensorproto")
        assert np.shares_memory(tw.loads(blob), np.frombuffer(blob, np.uint8)) and np.shares_memory(
            tw.loads(blob, copy=False), np.frombuffer(blob, np.uint8)
        )
        with pytest.raises(tw.DecodeError, match="copy=False"):
            tw.loads(tw.dumps(np.zeros(1000), "tensorproto"), copy=False)
        with pytest.raises(tw.DecodeError, match="copy=False"):
            tw.loads(tw.dumps(tw.Strings.of(["a"]), "tensorproto"), copy=False)

    def test_tiny_tensors_do_not_keep_the_input_alive(self):
        blob = tw.dumps({"small": np.zeros(4), "large": np.zeros(1000)})
        found = tw.loads(blob)
        assert found["small"].base is None and found["large"].base is not None

    def test_views_outlive_the_input(self):
        data = bytearray(tw.dumps(np.arange(5000.0)))
        found = tw.loads(data)
        with pytest.raises(BufferError):
            data.clear()  # Python itself guards what is looked at
        del data
        assert found.sum() == 5000 * 4999 / 2

    def test_buffers_alias_the_tensor(self):
        array = np.zeros(1 << 20)
        for format in ("safetensors", "tensorproto", "raw"):
            assert any(
                np.shares_memory(np.frombuffer(part, np.uint8), array)
                for part in tw.buffers(array, format)
                if len(part) > 8
            )

    def test_strings_are_read_only_too(self):
        for format in ("safetensors", "tensorproto"):
            found = tw.loads(tw.dumps(tw.Strings.of([b"abc"] * 200), format))
            assert not found.data.flags.writeable and not found.offsets.flags.writeable
            assert tw.loads(tw.dumps(found, format), copy=True).data.flags.writeable


class Trickle(io.RawIOBase):
    """A pipe that takes and gives little at a time."""

    def __init__(self, data=b""):
        self.inner = io.BytesIO(data)

    def writable(self):
        return True

    def readable(self):
        return True

    def write(self, data):
        return self.inner.write(bytes(data[:1000]))

    def readinto(self, buffer):
        return self.inner.readinto(memoryview(buffer)[:777])


class TestStreams:
    values = (
        np.arange(100_000.0),
        "text",
        {"a": tw.Ragged.of([[1], []]), "b": [1, 2.5]},
        np.zeros(0),
        tw.Strings.of(["é"]),
    )

    @pytest.mark.parametrize("format", ["safetensors", "tensorproto"])
    def test_file_objects(self, format, tmp_path):
        with open(tmp_path / "values", "wb") as stream:
            sizes = [tw.write(stream, value, format) for value in self.values]
        assert sum(sizes) == os.path.getsize(tmp_path / "values")
        with open(tmp_path / "values", "rb") as stream:
            for value in self.values:
                found = tw.read(stream)
                assert tw.equal(
                    found,
                    (
                        value.astext(False)
                        if isinstance(value, tw.Strings) and format == "tensorproto"
                        else value
                    ),
                )
            with pytest.raises(EOFError):
                tw.read(stream)

    def test_sockets(self):
        left, right = socket.socketpair()
        with left, right:
            sender = threading.Thread(
                target=lambda: [tw.write(left, value) for value in self.values]
            )
            sender.start()
            assert all(tw.equal(tw.read(right), value) for value in self.values)
            sender.join()
            left.close()
            with pytest.raises(EOFError):
                tw.read(right)

    def test_short_reads_and_writes(self):
        out = Trickle()
        tw.write(out, self.values[0])
        assert tw.equal(tw.read(Trickle(out.inner.getvalue())), self.values[0])

    def test_streams_that_only_read(self):
        class Only:
            def __init__(self, data):
                self.read = io.BytesIO(data).read

        out = io.BytesIO()
        tw.write(out, [1, np.zeros(3)])
        assert tw.equal(tw.read(Only(out.getvalue())), [1, np.zeros(3)])

    def test_large_arrays_are_aligned(self):
        out = io.BytesIO()
        tw.write(out, np.zeros(1000))
        out.seek(0)
        assert tw.read(out).__array_interface__["data"][0] % 64 == 0

    def test_every_cut_is_noticed(self):
        out = io.BytesIO()
        tw.write(out, np.arange(5))
        blob = out.getvalue()
        for cut in range(1, len(blob)):
            with pytest.raises(tw.TruncatedError):
                tw.read(io.BytesIO(blob[:cut]))

    def test_every_flip_is_noticed(self):
        out = io.BytesIO()
        tw.write(out, np.arange(5))
        for at in range(len(out.getvalue())):
            for bit in range(8):
                bad = bytearray(out.getvalue())
                bad[at] ^= 1 << bit
                with pytest.raises(tw.ChecksumError):
                    tw.read(io.BytesIO(bad))

    def test_a_length_that_lies(self):
        with pytest.raises(tw.LimitError, match="record"):
            tw.read(io.BytesIO(tfrecord.header(1 << 50)))
        out = io.BytesIO()
        tw.write(out, np.zeros(100))
        with pytest.raises(tw.LimitError):
            tw.read(io.BytesIO(out.getvalue()), limits=tw.Limits(record=100))


@pytest.mark.tensorflow
def test_a_stream_is_a_tfrecord_file(tf, tmp_path):
    with open(tmp_path / "x.tfrecord", "wb") as stream:
        for i in range(3):
            tw.write(stream, np.full(2, i), "tensorproto")
    records = tf.data.TFRecordDataset(str(tmp_path / "x.tfrecord")).map(
        lambda record: tf.io.parse_tensor(record, tf.int64)
    )
    assert [record.numpy().tolist() for record in records] == [[0, 0], [1, 1], [2, 2]]


@settings(max_examples=20)
@given(tws.values())
def test_threads_share_everything(value):
    """No codec keeps state: many threads, one value, one result."""
    blob = tw.dumps(value)
    found = [None] * 4

    def work(i):
        found[i] = tw.dumps(tw.loads(blob))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [blob] * 4
