"""tensorwire.io without TensorFlow, and beside it: the same results and the same refusals."""

import base64
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.testing import strategies as tws

SPARSE = tw.Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3))


def test_every_name_is_tf_ios(request):
    assert set(tw.io.__all__) == {
        "serialize_tensor", "parse_tensor", "serialize_sparse", "parse_sparse", "serialize_many_sparse", "deserialize_many_sparse",
        "decode_raw", "encode_base64", "decode_base64",
        "parse_example", "parse_single_example", "parse_sequence_example", "parse_single_sequence_example",
        "FixedLenFeature", "VarLenFeature", "SparseFeature", "RaggedFeature", "FixedLenSequenceFeature",
        "TFRecordWriter", "TFRecordOptions", "tf_record_iterator",
    }  # fmt: skip
    assert set(tw.io.__all__) == set(tw.io._WHERE) <= set(dir(tw.io)) and all(
        getattr(tw.io, name) for name in tw.io.__all__
    )
    with pytest.raises(AttributeError, match="nothing"):
        tw.io.nothing  # noqa: B018


class TestTensor:
    def test_python_numbers_as_tensorflow_takes_them(self):
        assert tw.io.parse_tensor(tw.io.serialize_tensor([1, 2]), "int32").dtype == np.int32
        assert tw.io.parse_tensor(tw.io.serialize_tensor(1.5), "float32") == 1.5
        assert tw.io.parse_tensor(tw.io.serialize_tensor([1 << 40]), "int64").tolist() == [1 << 40]
        assert (
            tw.io.parse_tensor(tw.io.serialize_tensor([np.float64(1)]), "float64").dtype
            == np.float64
        )

    def test_strings_come_as_objects(self):
        found = tw.io.parse_tensor(tw.io.serialize_tensor(["a", "é"]), "string")
        assert found.dtype == object and found.tolist() == [b"a", "é".encode()]
        assert tw.io.parse_tensor(tw.io.serialize_tensor("a"), bytes) == b"a"

    def test_a_wrong_dtype_is_an_error(self):
        blob = tw.io.serialize_tensor(np.float64([1]))
        for wrong in ("float32", np.int32, "string"):
            with pytest.raises(tw.SchemaError, match="float64"):
                tw.io.parse_tensor(blob, wrong)
        with pytest.raises(tw.SchemaError, match="string"):
            tw.io.parse_tensor(tw.io.serialize_tensor("a"), "int32")
        with pytest.raises(tw.SchemaError, match=r"tw\.loads"):
            tw.io.parse_tensor(tw.dumps([np.zeros(1)], "tensorproto"), "string")

    def test_other_kinds_are_refused(self):
        with pytest.raises(tw.EncodeError, match="serialize_sparse"):
            tw.io.serialize_tensor(SPARSE)
        with pytest.raises(tw.SchemaError, match="one string"):
            tw.io.parse_tensor([b"a", b"b"], "int32")


class TestSparse:
    @given(tws.sparse(hybrid=False))
    def test_round_trip(self, sparse):
        parts = tw.io.serialize_sparse(sparse)
        expected = (
            sparse
            if not isinstance(sparse.values, tw.Strings)
            else tw.Sparse(sparse.indices, sparse.values.astext(False), sparse.dense_shape)
        )
        assert parts.shape == (3,) and tw.equal(tw.io.parse_sparse(parts), expected)
        assert tw.equal(tw.io.parse_sparse(parts.tolist(), rank=sparse.indices.shape[1]), expected)

    def test_what_is_refused(self):
        parts = tw.io.serialize_sparse(SPARSE)
        for wrong, options in itertools.product(
            [parts], [{"dtype": "int32"}, {"dtype": "string"}, {"rank": 3}]
        ):
            with pytest.raises(tw.SchemaError):
                tw.io.parse_sparse(wrong, **options)
        for bad in (parts[:2], parts.reshape(1, 3)):
            with pytest.raises(tw.SchemaError):
                tw.io.parse_sparse(bad)
        for bad in (parts[[1, 0, 2]], parts[[0, 1, 1]], [b"", b"", b""]):
            with pytest.raises(tw.DecodeError) as caught:
                tw.io.parse_sparse(bad)
            assert caught.value.format == "tensorproto"
        lying = parts.copy()
        lying[2] = tw.io.serialize_tensor(np.array([1, 1]))
        with pytest.raises(tw.DecodeError, match="outside"):
            tw.io.parse_sparse(lying)
        with pytest.raises(tw.EncodeError, match="hybrid"):
            tw.io.serialize_sparse(tw.Sparse([[0]], np.zeros((1, 2)), (1, 2)))
        with pytest.raises(tw.UsageError, match="variants"):
            tw.io.serialize_sparse(SPARSE, out_type="variant")
        with pytest.raises(tw.EncodeError, match="sparse tensor"):
            tw.io.serialize_sparse(np.zeros(3))

    def test_many(self):
        rows = tw.io.serialize_many_sparse(SPARSE)
        assert tw.equal(tw.io.deserialize_many_sparse(rows, np.float32), SPARSE)
        with pytest.raises(tw.EncodeError, match="sorted and unique"):
            tw.io.serialize_many_sparse(tw.Sparse([[1, 0], [0, 0]], [1, 2], (2, 1)))
        with pytest.raises(tw.EncodeError, match="sorted and unique"):
            tw.io.serialize_many_sparse(tw.Sparse([[1, 0], [1, 0]], [1, 2], (2, 1)))
        with pytest.raises(tw.EncodeError, match="at least 2"):
            tw.io.serialize_many_sparse(tw.Sparse([[1]], [1], (2,)))
        with pytest.raises(tw.SchemaError):
            tw.io.deserialize_many_sparse(rows[:0], "float32")
        with pytest.raises(tw.SchemaError, match="rank"):
            tw.io.deserialize_many_sparse(rows, "float32", rank=1)
        broken = rows.copy()
        broken[1, 1] = b"\x08"
        with pytest.raises(tw.DecodeError) as caught:
            tw.io.deserialize_many_sparse(broken, "float32")
        assert caught.value.record == 1


class TestBase64:
    @given(st.binary(max_size=50), st.booleans())
    def test_round_trip(self, data, pad):
        text = tw.io.encode_base64(data, pad=pad)
        assert (
            text.rstrip(b"=") == base64.urlsafe_b64encode(data).rstrip(b"=")
            and tw.io.decode_base64(text) == data
        )

    def test_tensors(self):
        found = tw.io.encode_base64(np.array([[b"a"], [b"bc"]], object))
        assert found.shape == (2, 1) and tw.io.decode_base64(found).tolist() == [[b"a"], [b"bc"]]

    @pytest.mark.parametrize(
        "bad", [b"a", b"+/8", b"YQ=", b"YQ===", b"Y=Q=", b"YW J", b"=", b"YQ==YQ=="]
    )
    def test_what_is_refused(self, bad):
        with pytest.raises(tw.DecodeError) as caught:
            tw.io.decode_base64(bad)
        assert caught.value.format == "base64"


class TestDecodeRaw:
    def test_padding_and_cutting(self):
        assert tw.io.decode_raw([b"\1\0\2\0", b"\3"], "int16", fixed_length=4).tolist() == [
            [1, 2],
            [3, 0],
        ]
        assert tw.io.decode_raw([b"\1\0\2\0"], "int16", fixed_length=2).tolist() == [[1]]
        assert tw.io.decode_raw(b"\0\1", "int16", little_endian=False).tolist() == [1]
        assert tw.io.decode_raw(np.zeros((0, 2), "S1"), "int16").shape == (0, 2, 0)

    @pytest.mark.parametrize(
        "options",
        [
            {"out_type": "int16"},
            {"out_type": "int16", "fixed_length": 3},
            {"out_type": "int16", "fixed_length": 0},
        ],
    )
    def test_what_is_refused(self, options):
        with pytest.raises((tw.DecodeError, tw.SchemaError)):
            tw.io.decode_raw([b"\1\0\2", b"\3\0\1"], **options)
        with pytest.raises(tw.DecodeError, match="string 1 has 1 bytes"):
            tw.io.decode_raw([b"ab", b"c"], "int8")


@pytest.mark.tensorflow
class TestBesideTensorFlow:
    def test_serialize_takes_the_same_python_values(self, tf):
        for value in (
            1,
            1.5,
            True,
            [1, 2],
            [[1.5], [2]],
            [True],
            "a",
            [b"a", b"b"],
            1 << 40,
            [],
            np.float64(2),
            [np.int64(3)],
            [np.uint8(3)],
            [np.float64(1), 2],
            [np.float16(1)],
            [np.array([3])],
            [np.int64(1 << 40)],
            -(1 << 31) - 1,
            [np.bool_(1)],
        ):
            assert (
                tw.io.serialize_tensor(value)
                == tf.io.serialize_tensor(tf.convert_to_tensor(value)).numpy()
            ), value

    def test_decode_raw(self, tf):
        data = [bytes(range(16)), bytes(range(16, 32))]
        names = [
            "float16",
            "float32",
            "float64",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "complex64",
            "complex128",
        ]
        for name, little in itertools.product(names, [True, False]):
            theirs = tf.io.decode_raw(data, name, little_endian=little)
            assert tw.equal(tw.io.decode_raw(data, name, little_endian=little), theirs), (
                name,
                little,
            )
        for length in (4, 8, 24):
            theirs = tf.io.decode_raw([b"abc", b"", b"0123456789"], tf.int32, fixed_length=length)
            assert tw.equal(
                tw.io.decode_raw([b"abc", b"", b"0123456789"], tf.int32, fixed_length=length),
                theirs,
            )
        assert tw.equal(tw.io.decode_raw(b"\1\0", tf.bool), tf.io.decode_raw(b"\1\0", tf.bool))

    def test_base64(self, tf):
        words = [b"", b"a", b"ab", b"abc", bytes(range(256))]
        for pad in (False, True):
            theirs = tf.io.encode_base64(words, pad=pad)
            assert tw.io.encode_base64(words, pad=pad).tolist() == theirs.numpy().tolist()
            assert tw.io.decode_base64(theirs).tolist() == words
        for text in (
            b"a",
            b"+/8",
            b"YQ=",
            b"YQ===",
            b"Y=Q=",
            b"YW J",
            b"=",
            b"YQ",
            b"YQ==",
            b"-_8",
            b"-_8=",
            b"",
            b"YR",
            b"YQ==YQ==",
        ):
            assert self.outcome(lambda text=text: tw.io.decode_base64(text)) == self.outcome(
                lambda text=text: tf.io.decode_base64(text).numpy()
            ), text

    @staticmethod
    def outcome(work):
        try:
            return work()
        except (tw.DecodeError, Exception) as error:
            assert isinstance(error, ValueError) or "InvalidArgument" in type(error).__name__, error
            return "refused"


@pytest.mark.tensorflow
class TestListsOfStringTensors:
    """Lists of string tensors, and lists without an element, against tf.io."""

    def same(self, name, *arguments):
        import tensorflow as tf

        kinds = [getattr(tf, item, item) if isinstance(item, str) else item for item in arguments]
        expected = getattr(tf.io, name)(*kinds).numpy()
        found = getattr(tw.io, name)(*arguments)
        assert type(found) is type(expected)
        if isinstance(expected, np.ndarray):
            assert found.dtype == expected.dtype and found.shape == expected.shape
            assert found.tolist() == expected.tolist()
        else:
            assert found == expected

    def test_scalars_in_lists(self, tf):
        pair = [tf.constant("ab"), tf.constant("cd")]
        self.same("decode_raw", pair, "uint8")
        self.same("encode_base64", pair)
        self.same("encode_base64", tuple(pair))
        self.same("decode_base64", [tf.constant("YWI"), tf.constant("Y2Q")])
        self.same("serialize_tensor", pair)
        self.same("encode_base64", [[tf.constant("a")], [b"x"]])
        self.same("encode_base64", [b"x", tf.constant("a")])
        self.same("encode_base64", [tf.constant(["a", "b"]), tf.constant(["c", "d"])])

    @pytest.mark.parametrize(
        "empty", [[], (), [[]], [[], []], np.zeros((0,)), np.zeros((2, 0), object)]
    )
    def test_nothing_in_lists(self, empty):
        self.same("encode_base64", empty)
        self.same("decode_base64", empty)
        for dtype in ("uint8", "float32"):
            self.same("decode_raw", empty, dtype)

    def test_messages_and_sparse_rows(self, tf):
        feature = tf.train.Feature(float_list=tf.train.FloatList(value=[1.5]))
        blob = tf.train.Example(
            features=tf.train.Features(feature={"x": feature})
        ).SerializeToString()
        found = tw.io.parse_example(
            [tf.constant(blob)], {"x": tw.io.FixedLenFeature([], "float32")}
        )
        assert found["x"].tolist() == [1.5]
        rows = tf.io.serialize_many_sparse(tf.sparse.from_dense([[1, 0], [0, 2]]))
        sparse = tw.io.deserialize_many_sparse([list(row) for row in rows], "int32")
        assert sparse.values.tolist() == [1, 2] and sparse.shape == (2, 2)

    def test_what_stays_refused(self, tf):
        for wrong in ([1], [1.5], tf.zeros(0), [tf.constant(1)]):
            with pytest.raises(tw.EncodeError):
                tw.io.encode_base64(wrong)


def test_an_iterator_that_has_ended_stays_ended(tmp_path):
    path = tmp_path / "x.tfrecord"
    with tw.io.TFRecordWriter(path) as writer:
        writer.write(b"one")
        writer.flush()
        records = tw.io.tf_record_iterator(path)
        assert list(records) == [b"one"]
        writer.write(b"two")
        writer.flush()
        assert next(records, None) is None
        assert list(tw.io.tf_record_iterator(path)) == [b"one", b"two"]
