"""The recipes of the seed documents, one by one: what each wanted, and that it now holds, with and without TensorFlow."""

import pickle
import struct

import numpy as np
import pytest

import tensorwire as tw


class TestDense:
    """000 ex. 1 and 001 ex. 1: a tensor to bytes and back, dtype and shape from the bytes."""

    @pytest.mark.parametrize("array", [np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([[1, 2], [3, 4]], np.int32)])
    def test_without_tensorflow(self, array):
        blob = tw.io.serialize_tensor(array)
        assert tw.equal(tw.loads(blob), array)
        assert tw.equal(tw.io.parse_tensor(blob, array.dtype), array)
        with pytest.raises(tw.SchemaError, match="asked for"):
            tw.io.parse_tensor(blob, np.float64)

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        for tensor in (tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([[1, 2], [3, 4]], dtype=tf.int32)):
            theirs = tf.io.serialize_tensor(tensor).numpy()
            assert tw.io.serialize_tensor(tensor) == tw.dumps(tensor, "tensorproto") == theirs
            assert tw.equal(tf.io.parse_tensor(tw.io.serialize_tensor(tensor), tensor.dtype), tw.io.parse_tensor(theirs, tensor.dtype))
            assert tw.loads(theirs, to="tensorflow").dtype == tensor.dtype


class TestSparse:
    """000 ex. 2: a sparse tensor to bytes, with int32 indices, and an inverse that exists."""

    indices, values, shape = np.array([[0, 0], [1, 2]], np.int32), np.array([1.0, 4.0], np.float32), np.array([2, 3], np.int32)

    def test_without_tensorflow(self):
        sparse = tw.Sparse(self.indices, self.values, self.shape)
        assert tw.equal(tw.io.parse_sparse(tw.io.serialize_sparse(sparse), np.float32), sparse)
        for format in ("safetensors", "tensorproto"):
            assert tw.equal(tw.loads(tw.dumps(sparse, format)), sparse)

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        with pytest.raises(ValueError):
            tf.SparseTensor(tf.constant(self.indices), tf.constant(self.values), tf.constant(self.shape))  # the seed's line, as it fails
        assert not hasattr(tf.io, "parse_sparse")
        ours = tw.Sparse(self.indices, self.values, self.shape)
        theirs = tw.to(ours, "tensorflow")
        assert tw.io.serialize_sparse(ours).tolist() == tf.io.serialize_sparse(theirs).numpy().tolist()
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
        """Slicing a joined string by guessed sizes can parse into a wrong tensor without a word. Here it cannot."""
        parts = [tw.io.serialize_tensor(tensor) for tensor in self.tensors()]
        with pytest.raises(tw.DecodeError, match="joined"):
            tw.loads(b"".join(parts))
        with pytest.raises(tw.DecodeError, match="joined"):
            tw.io.parse_tensor(parts[0] + parts[0], "float64")

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        tensors = [tf.constant(tensor) for tensor in self.tensors()]
        found = tw.loads(tw.dumps(tensors), to="tensorflow")
        assert all(isinstance(tensor, tf.Tensor) for tensor in found) and tw.equal(found, tensors)
        joined = tf.io.serialize_tensor(tensors[0]).numpy() + tf.io.serialize_tensor(tensors[1]).numpy()
        with pytest.raises(tw.DecodeError):
            tw.loads(joined)
        strings = tf.io.parse_tensor(tw.dumps(tensors, "tensorproto"), tf.string)  # stock TensorFlow sees the parts
        assert tw.equal(tf.io.parse_tensor(strings[1], tf.float64), tensors[0])


class TestPickle:
    """000 prose: pickle as the simple way. Our values pickle, buffers out of band; we never unpickle."""

    def test_protocol_5(self):
        value = {"a": tw.Strings.of(["x"] * 1000), "b": np.zeros(1000)}
        buffers = []
        data = pickle.dumps(value, 5, buffer_callback=buffers.append)
        assert len(data) < 1000 and tw.equal(pickle.loads(data, buffers=buffers), value)

    def test_a_pickle_is_no_format(self):
        with pytest.raises(tw.UnknownFormatError):
            tw.loads(pickle.dumps(np.zeros(3)))


class TestRawBytes:
    """001 ex. 2 and 3: plain bytes for systems that know nothing of tensors; dtype, shape and byte order explicit, and the same back."""

    @pytest.mark.parametrize(
        "array", [np.array([1.0, 2.5, 3.7], np.float32), np.array([1, 2, 3], np.int32), np.array([[100, 200], [300, 400]])]
    )
    def test_without_tensorflow(self, array):
        code = {"float32": "f", "int32": "i", "int64": "q"}[array.dtype.name]
        for byteorder, mark in (("little", "<"), ("big", ">")):
            blob = tw.dumps(array, "raw", byteorder=byteorder)
            assert blob == b"".join(struct.pack(mark + code, x) for x in array.ravel())  # the seed's loop, in one call
            found = tw.loads(blob, "raw", dtype=array.dtype, shape=array.shape, byteorder=byteorder)
            assert tw.equal(found, array)

    def test_layouts(self):
        array = np.arange(12).reshape(3, 4)
        for variant in (np.asfortranarray(array), array[:, ::2], array.T, array.astype(">i8")):
            assert tw.equal(tw.loads(tw.dumps(variant, "raw"), "raw", dtype="int64", shape=variant.shape), variant)

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        tensor = tf.constant([[100, 200], [300, 400]], dtype=tf.int64)
        blob = tw.dumps(tensor, "raw")
        assert blob == tensor.numpy().tobytes()
        assert tw.equal(tw.loads(blob, "raw", dtype=tf.int64, shape=(2, 2), to="tensorflow"), tensor)


class TestSockets:
    """001 prose: transfer between machines. Buffers go out without a copy; frames come in one by one."""

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
