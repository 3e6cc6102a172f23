"""The recipes of the seed documents, one by one: what each wanted, and that it now holds, with and
without TensorFlow.
"""

import pickle
import struct

import numpy as np
import pytest

import tensorwire as tw


class TestDense:
    """000 ex. 1 and 001 ex. 1: a tensor to bytes and back, dtype and shape from the bytes."""

    @pytest.mark.parametrize(
        "array",
        [np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([[1, 2], [3, 4]], np.int32)],
    )
    def test_without_tensorflow(self, array):
        blob = tw.io.serialize_tensor(array)
        assert tw.equal(tw.loads(blob), array)
        assert tw.equal(tw.io.parse_tensor(blob, array.dtype), array)
        with pytest.raises(tw.SchemaError, match="expected a tensor of"):
            tw.io.parse_tensor(blob, np.float64)

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        for tensor in (
            tf.constant([[1.0, 2.0], [3.0, 4.0]]),
            tf.constant([[1, 2], [3, 4]], dtype=tf.int32),
        ):
            theirs = tf.io.serialize_tensor(tensor).numpy()
            assert tw.io.serialize_tensor(tensor) == tw.dumps(tensor, "tensorproto") == theirs
            assert tw.equal(
                tf.io.parse_tensor(tw.io.serialize_tensor(tensor), tensor.dtype),
                tw.io.parse_tensor(theirs, tensor.dtype),
            )
            assert tw.loads(theirs, to="tensorflow").dtype == tensor.dtype


class TestSparse:
    """000 ex. 2: a sparse tensor to bytes, with int32 indices, and an inverse that exists."""

    indices, values, shape = (
        np.array([[0, 0], [1, 2]], np.int32),
        np.array([1.0, 4.0], np.float32),
        np.array([2, 3], np.int32),
    )

    def test_without_tensorflow(self):
        sparse = tw.Sparse(self.indices, self.values, self.shape)
        assert tw.equal(tw.io.parse_sparse(tw.io.serialize_sparse(sparse), np.float32), sparse)
        for format in ("safetensors", "tensorproto"):
            assert tw.equal(tw.loads(tw.dumps(sparse, format)), sparse)

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        with pytest.raises(ValueError):
            # the seed's line, as it fails
            tf.SparseTensor(
                tf.constant(self.indices), tf.constant(self.values), tf.constant(self.shape)
            )
        assert not hasattr(tf.io, "parse_sparse")
        ours = tw.Sparse(self.indices, self.values, self.shape)
        theirs = tw.to(ours, "tensorflow")
        assert (
            tw.io.serialize_sparse(ours).tolist() == tf.io.serialize_sparse(theirs).numpy().tolist()
        )
        assert tw.equal(tw.io.parse_sparse(tf.io.serialize_sparse(theirs), tf.float32), ours)


class TestListOfTensors:
    """000 ex. 3: tensors of different shapes in one byte string."""

    def tensors(self):
        return [np.random.default_rng(i).random((i, 3)) for i in range(1, 5)]

    def test_without_tensorflow(self):
        tensors = [*self.tensors(), np.arange(3, dtype=np.int8), np.array(7)]
        for format in ("safetensors", "tensorproto"):
            blob = tw.dumps(tensors, format)
            found = tw.loads(blob)
            assert isinstance(found, list) and tw.equal(found, tensors)

    def test_joined_protos_are_refused(self):
        """Slicing a joined string by guessed sizes can parse into a wrong tensor without a word.
        Here it cannot.
        """
        parts = [tw.io.serialize_tensor(tensor) for tensor in self.tensors()]
        with pytest.raises(tw.DecodeError, match="concatenated"):
            tw.loads(b"".join(parts))
        with pytest.raises(tw.DecodeError, match="concatenated"):
            tw.io.parse_tensor(parts[0] + parts[0], "float64")

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        tensors = [tf.constant(tensor) for tensor in self.tensors()]
        found = tw.loads(tw.dumps(tensors), to="tensorflow")
        assert all(isinstance(tensor, tf.Tensor) for tensor in found) and tw.equal(found, tensors)
        joined = (
            tf.io.serialize_tensor(tensors[0]).numpy() + tf.io.serialize_tensor(tensors[1]).numpy()
        )
        with pytest.raises(tw.DecodeError):
            tw.loads(joined)
        # stock TensorFlow sees the parts
        strings = tf.io.parse_tensor(tw.dumps(tensors, "tensorproto"), tf.string)
        assert tw.equal(tf.io.parse_tensor(strings[1], tf.float64), tensors[0])


class TestPickle:
    """000 prose: pickle as the simple way. Our values pickle, buffers out of band; we never
    unpickle.
    """

    def test_protocol_5(self):
        value = {"a": tw.Strings.of(["x"] * 1000), "b": np.zeros(1000)}
        buffers = []
        data = pickle.dumps(value, 5, buffer_callback=buffers.append)
        assert len(data) < 1000 and tw.equal(pickle.loads(data, buffers=buffers), value)

    def test_a_pickle_is_no_format(self):
        with pytest.raises(tw.UnknownFormatError):
            tw.loads(pickle.dumps(np.zeros(3)))


class TestRawBytes:
    """001 ex. 2 and 3: plain bytes for systems that know nothing of tensors; dtype, shape and byte
    order explicit, and the same back.
    """

    @pytest.mark.parametrize(
        "array",
        [
            np.array([1.0, 2.5, 3.7], np.float32),
            np.array([1, 2, 3], np.int32),
            np.array([[100, 200], [300, 400]]),
        ],
    )
    def test_without_tensorflow(self, array):
        code = {"float32": "f", "int32": "i", "int64": "q"}[array.dtype.name]
        for byteorder, mark in (("little", "<"), ("big", ">")):
            blob = tw.dumps(array, "raw", byteorder=byteorder)
            # the seed's loop, in one call
            assert blob == b"".join(struct.pack(mark + code, x) for x in array.ravel())
            found = tw.loads(blob, "raw", dtype=array.dtype, shape=array.shape, byteorder=byteorder)
            assert tw.equal(found, array)

    def test_layouts(self):
        array = np.arange(12).reshape(3, 4)
        for variant in (np.asfortranarray(array), array[:, ::2], array.T, array.astype(">i8")):
            assert tw.equal(
                tw.loads(tw.dumps(variant, "raw"), "raw", dtype="int64", shape=variant.shape),
                variant,
            )

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        tensor = tf.constant([[100, 200], [300, 400]], dtype=tf.int64)
        blob = tw.dumps(tensor, "raw")
        assert blob == tensor.numpy().tobytes()
        assert tw.equal(
            tw.loads(blob, "raw", dtype=tf.int64, shape=(2, 2), to="tensorflow"), tensor
        )


class TestSockets:
    """001 prose: transfer between machines. Buffers go out without a copy; frames come in one by
    one.
    """

    def test_buffers(self):
        import socket
        import threading

        array = np.arange(1 << 18, dtype=np.float32)
        left, right = socket.socketpair()
        with left, right:
            parts = tw.buffers(array, "tensorproto")
            assert np.shares_memory(np.frombuffer(parts[1], np.uint8), array)
            sender = threading.Thread(target=lambda: [left.sendall(part) for part in parts])
            sender.start()
            data = b""
            while len(data) < sum(map(len, parts)):
                data += right.recv(1 << 20)
            sender.join()
            assert tw.equal(tw.loads(data), array)


class TestTensorInAnExample:
    """002 ex. 1: a float tensor inside a tf.train.Example. The seed stores `tobytes()`, so whoever
    reads must know dtype and shape.
    """

    tensor = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)

    def test_without_tensorflow(self, tmp_path):
        path = tmp_path / "output.tfrecords"
        for dtype in (np.float32, np.float64, np.int8):  # no astype needed: the dtype comes back
            array = self.tensor.astype(dtype)
            assert tw.write_examples(path, [{"tensor": array}]) == 1
            batch = next(iter(tw.read_examples(path)))
            assert tw.equal(batch["tensor"], array[None])
        stored = next(iter(tw.read_examples(path, {"tensor": tw.Feature("bytes")})))["tensor"][0]
        # what is in the record says it all
        assert tw.equal(tw.io.parse_tensor(stored, np.int8), array)

    def test_the_seed_s_own_form(self, tmp_path):
        """Files with `tobytes()` are read when a schema says what the bytes are, and written too."""
        raw = {"tensor": tw.Feature("bytes", (2, 2), "float32", encoding="raw")}
        path = tmp_path / "output.tfrecords"
        with tw.io.TFRecordWriter(path) as writer:
            writer.write(
                bytes.fromhex("0a200a1e0a0674656e736f7212140a120a10") + self.tensor.tobytes()
            )
        assert tw.equal(next(iter(tw.read_examples(path, raw)))["tensor"], self.tensor[None])
        with pytest.raises(
            tw.SchemaError, match=r"expected 32 bytes for float64 of shape .* got 16"
        ):
            list(
                tw.read_examples(
                    path, {"tensor": tw.Feature("bytes", (2, 2), "float64", encoding="raw")}
                )
            )
        again = tmp_path / "again.tfrecords"
        tw.write_examples(again, {"tensor": self.tensor[None]}, schema=raw)
        assert list(tw.RecordReader(again)) == list(tw.RecordReader(path))

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf, tmp_path):
        tensor = tf.constant([[1.0, 2.0], [3.0, 4.0]], dtype=tf.float32)
        ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
        tw.write_examples(ours, [{"tensor": tensor}])
        record = next(iter(tf.data.TFRecordDataset(ours)))
        parsed = tf.io.parse_single_example(
            record, {"tensor": tf.io.FixedLenFeature([], tf.string)}
        )
        assert tw.equal(tf.io.parse_tensor(parsed["tensor"], tf.float32), tensor)

        tensor_bytes = tensor.numpy().tobytes()  # the seed's lines from here
        example = tf.train.Example(
            features=tf.train.Features(
                feature={
                    "tensor": tf.train.Feature(bytes_list=tf.train.BytesList(value=[tensor_bytes]))
                }
            )
        )
        with tf.io.TFRecordWriter(theirs) as writer:
            writer.write(example.SerializeToString())
        with pytest.raises(tf.errors.InvalidArgumentError):  # nothing in the record says what it is
            tf.io.parse_tensor(tensor_bytes, tf.float32)
        raw = {"tensor": tw.Feature("bytes", (2, 2), "float32", encoding="raw")}
        assert tw.equal(
            next(iter(tw.read_examples(theirs, raw, to="tensorflow")))["tensor"][0], tensor
        )


class TestStringsInAnExample:
    """002 ex. 2: a string tensor in an Example; str and bytes, base64 on request."""

    def test_without_tensorflow(self, tmp_path):
        path = tmp_path / "output.tfrecords"
        for words in (["hello", "wörld"], [b"hello", b"\xff"]):
            for form in (words, np.array(words, object), tw.Strings.of(words)):
                tw.write_examples(path, [{"tensor": form}])
                # text as text, bytes as bytes
                assert next(iter(tw.read_examples(path)))["tensor"].tolist() == [words]

    def test_base64(self, tmp_path):
        path = tmp_path / "output.tfrecords"
        tw.write_examples(path, [{"tensor": ["hello", "wörld"]}], base64=["tensor"])
        assert next(iter(tw.read_examples(path)))["tensor"].tolist() == [["hello", "wörld"]]
        stored = next(iter(tw.read_examples(path, {"tensor": tw.Feature("bytes", (2,))})))["tensor"]
        assert stored.tolist() == [
            [tw.io.encode_base64(b"hello"), tw.io.encode_base64("wörld".encode())]
        ]

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf, tmp_path):
        tensor = tf.constant(["hello", "world"])
        with pytest.raises(AttributeError):
            [s.encode("utf-8") for s in tensor.numpy()]  # the seed's line, as it fails
        path = str(tmp_path / "output.tfrecords")
        spec = {"tensor": tf.io.FixedLenFeature([2], tf.string)}
        tw.write_examples(path, [{"tensor": tensor}])
        assert tw.equal(
            tf.io.parse_single_example(next(iter(tf.data.TFRecordDataset(path))), spec)["tensor"],
            tensor,
        )
        tw.write_examples(path, [{"tensor": tensor}], base64=["tensor"])
        stored = tf.io.parse_single_example(next(iter(tf.data.TFRecordDataset(path))), spec)[
            "tensor"
        ]
        assert tw.equal(tf.io.decode_base64(stored), tensor) and tw.equal(
            stored, tf.io.encode_base64(tensor)
        )

        # the seed, mended
        feature = {
            "tensor": tf.train.Feature(bytes_list=tf.train.BytesList(value=list(tensor.numpy())))
        }
        with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
            writer.write(
                tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
            )
        assert next(iter(tw.read_examples(tmp_path / "theirs")))["tensor"].tolist() == [
            [b"hello", b"world"]
        ]


class TestSeveralFeatures:
    """002 ex. 3: several features in one Example, from a plain dict; what a list cannot hold is
    refused, never wrapped.
    """

    row = {
        "float_tensor": np.float32([1.1, 2.2, 3.3]),
        "int_tensor": np.array([1, 2, 3]),
        "label": 0,
    }

    def check(self, batch):
        assert tw.equal(batch["float_tensor"], self.row["float_tensor"][None])
        assert batch["int_tensor"].tolist() == [[1, 2, 3]] and batch["label"].tolist() == [0]

    def test_without_tensorflow(self, tmp_path):
        path = tmp_path / "output.tfrecords"
        tw.write_examples(path, [self.row])
        self.check(next(iter(tw.read_examples(path))))
        # the same as columns
        tw.write_examples(path, {name: [value] for name, value in self.row.items()})
        self.check(next(iter(tw.read_examples(path))))

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf, tmp_path):
        float_list = tf.train.FloatList(value=self.row["float_tensor"])
        int_list = tf.train.Int64List(value=self.row["int_tensor"])
        label_list = tf.train.Int64List(value=[0])
        example = tf.train.Example(
            features=tf.train.Features(
                feature={
                    "float_tensor": tf.train.Feature(float_list=float_list),
                    "int_tensor": tf.train.Feature(int64_list=int_list),
                    "label": tf.train.Feature(int64_list=label_list),
                }
            )
        )
        ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
        with tf.io.TFRecordWriter(theirs) as writer:
            writer.write(example.SerializeToString())
        self.check(next(iter(tw.read_examples(theirs))))
        tw.write_examples(
            ours,
            [
                {name: tf.constant(value) for name, value in self.row.items()}
                | {"label": tf.constant(0, tf.int64)}
            ],
        )
        # byte for byte
        assert tw.RecordReader(ours)[0] == example.SerializeToString(deterministic=True)

    @pytest.mark.parametrize(
        "dtype",
        ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64", "float16"],
    )
    def test_dtypes_that_fit(self, tmp_path, dtype):
        array = np.array([[1, 0, 1], [0, 1, 1]], dtype)
        tw.write_examples(tmp_path / "a", {"x": array})
        assert tw.equal(next(iter(tw.read_examples(tmp_path / "a")))["x"], array)

    @pytest.mark.parametrize(
        "array", [np.array([1 << 63], np.uint64), np.array([0.1]), np.array([2.0**200])]
    )
    def test_dtypes_that_do_not(self, tmp_path, array):
        for data in ({"x": array}, [{"x": array}]):
            with pytest.raises(
                tw.EncodeError, match=r"does not fit.*tensors=\[name\] keeps it exactly"
            ) as caught:
                tw.write_examples(tmp_path / "a", data)
            assert caught.value.tensor == "x"
        tw.write_examples(tmp_path / "a", {"x": array}, tensors=["x"])
        assert tw.equal(next(iter(tw.read_examples(tmp_path / "a")))["x"], array)


class TestRecordFiles:
    """002 prose, and 001's on TFRecord in tf.data: quantization, compression, sequential reading at
    scale.
    """

    def test_quantize(self, tmp_path):
        x = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32)
        sizes = {}
        for scheme in (None, "int8", "float16"):
            tw.write_examples(tmp_path / "a", {"x": x}, quantize={"x": scheme} if scheme else None)
            sizes[scheme] = (tmp_path / "a").stat().st_size
            found = next(iter(tw.read_examples(tmp_path / "a")))["x"]
            assert (
                found.dtype == np.float32
                and np.abs(found - x).max() <= {None: 0, "int8": 0.02, "float16": 0.002}[scheme]
            )
        assert sizes["int8"] < sizes["float16"] < sizes[None]

    @pytest.mark.parametrize("compression", ["gzip", "zlib", "snappy"])
    def test_compression(self, tmp_path, compression):
        tw.write_examples(
            tmp_path / "a", {"x": np.zeros((1000, 100), np.float32)}, compression=compression
        )
        assert (tmp_path / "a").stat().st_size < 40_000
        # recognised, not asked for
        assert next(iter(tw.read_examples(tmp_path / "a")))["x"].shape == (1000, 100)

    def test_tf_record_iterator(self, tmp_path):
        path = tmp_path / "a"
        with tw.io.TFRecordWriter(path, tw.io.TFRecordOptions(compression_type="GZIP")) as writer:
            for word in (b"one", b"two"):
                writer.write(word)
        assert list(tw.io.tf_record_iterator(path)) == [b"one", b"two"]
        assert list(tw.io.tf_record_iterator(path, "GZIP")) == [b"one", b"two"]

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf, tmp_path):
        assert not hasattr(tf.io, "tf_record_iterator")  # the seed's function, gone
        path = str(tmp_path / "a")
        tw.write_examples(path, {"x": np.arange(10), "s": list("abcdefghij")}, compression="gzip")
        dataset = tf.data.TFRecordDataset(path, "GZIP")
        assert [record.numpy() for record in dataset] == list(tw.io.tf_record_iterator(path))
        batches = list(tw.read_examples(path, batch_size=4).tf_dataset())
        assert [batch["x"].shape[0] for batch in batches] == [4, 4, 2] and batches[0][
            "s"
        ].numpy().tolist() == [b"a", b"b", b"c", b"d"]

    @pytest.mark.torch
    def test_with_torch(self, tmp_path):
        from torch.utils.data import DataLoader

        from tensorwire.torch import ExampleDataset

        tw.write_examples(tmp_path / "a", {"x": np.arange(10)})
        loader = DataLoader(ExampleDataset(tmp_path / "a", batch_size=4), batch_size=None)
        assert [batch["x"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
