"""Our bytes against TensorFlow's own: what we write it writes, and what it reads we read."""

import random

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from support.protos import tensor_proto
from support.tiers import TORTURE
from tensorwire.core import dtypes
from tensorwire.testing.sampling import DTYPES, layouts, numbers

pytestmark = pytest.mark.tensorflow

WRITTEN_BY_TF = [
    row for row in DTYPES if row.tf and row.bits >= 8 and not row.name.startswith("float8")
]
READ_BY_TF = [row for row in DTYPES if row.tf]
SHAPES = [
    (),
    (0,),
    (1,),
    (7,),
    (3, 0, 2),
    (2, 3),
    (2, 3, 4),
    (2, 1, 3, 2),
    (1, 2, 2, 1, 3),
    (2, 1, 2, 1, 2, 3),
    (300,),
    (128, 200),
]


@pytest.mark.parametrize("row", WRITTEN_BY_TF, ids=lambda row: row.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dense_bytes_are_tensorflows(tf, row, shape):
    array = numbers(row, shape)
    expected = tf.io.serialize_tensor(tf.constant(array)).numpy()
    for name, variant in layouts(array):
        assert tw.dumps(variant, "tensorproto") == expected, name
        assert b"".join(tw.buffers(variant, "tensorproto")) == expected, name
        assert tw.io.serialize_tensor(variant) == expected, name
    assert tw.dumps(tf.constant(array), "tensorproto") == expected
    assert tw.equal(tw.loads(expected), array)


@pytest.mark.parametrize("row", READ_BY_TF, ids=lambda row: row.name)
@pytest.mark.parametrize("shape", SHAPES[:8], ids=str)
def test_tensorflow_reads_what_we_write(tf, row, shape):
    array = numbers(row, shape)
    parsed = tf.io.parse_tensor(tw.dumps(array, "tensorproto"), tf.dtypes.as_dtype(row.tf))
    assert tw.equal(parsed, array)


@pytest.mark.parametrize(
    "strings",
    [
        b"one",
        [],
        ["a", "bb", ""],
        [[b"x" * 127, b"y" * 128], [b"z" * 20000, b"\0"]],
        np.zeros((2, 0), "S1"),
        np.array([["é", "日本"]]),
    ],
    ids=["scalar", "empty", "vector", "lengths", "no rows", "unicode"],
)
def test_string_bytes_are_tensorflows(tf, strings):
    tensor = tw.tensor(strings) if not isinstance(strings, list) or strings else tw.Strings.of([])
    expected = tf.io.serialize_tensor(tw.to(tensor, "tensorflow")).numpy()
    assert tw.dumps(tensor, "tensorproto") == expected
    assert tw.io.serialize_tensor(tensor) == expected
    assert tw.equal(tw.loads(expected, text=tensor.text, format="tensorproto"), tensor)
    assert tw.loads(expected).text is False


def sparse_samples(tf):
    for values in (
        [1.5, -2.0, 0.0],
        np.int64([1, 2, 3]),
        ["a", "", "c" * 200],
        np.array([1, 2, 3]).astype(ml_dtypes.bfloat16),
        [True, False, True],
    ):
        yield tf.SparseTensor([[0, 0], [0, 3], [2, 1]], values, [3, 4])
        yield tf.SparseTensor([[0, 0, 1], [0, 3, 0], [2, 1, 1]], values, [4, 4, 2])
    yield tf.SparseTensor(np.zeros((0, 2), np.int64), np.zeros(0, np.float32), [3, 4])
    yield tf.SparseTensor(np.zeros((0, 2), np.int64), tf.constant([], tf.string), [3, 4])


def test_sparse_bytes_are_tensorflows(tf):
    for sparse in sparse_samples(tf):
        ours = tw.tensor(sparse)
        expected = tf.io.serialize_sparse(sparse).numpy()
        assert (
            tw.io.serialize_sparse(sparse).tolist()
            == expected.tolist()
            == tw.io.serialize_sparse(ours).tolist()
        )
        assert tw.equal(tw.io.parse_sparse(expected, sparse.dtype), ours)
        many = tf.io.serialize_many_sparse(sparse)
        assert tw.io.serialize_many_sparse(ours).tolist() == many.numpy().tolist()
        for rank in (None, len(sparse.shape)):
            back = tf.io.deserialize_many_sparse(many, sparse.dtype, rank=rank)
            assert tw.equal(
                tw.io.deserialize_many_sparse(many.numpy(), sparse.dtype, rank=rank), back
            )
            assert tw.equal(tw.io.deserialize_many_sparse(many, sparse.dtype.name, rank=rank), back)


def test_many_sparse_of_different_shapes(tf):
    """The other dims are the largest of all."""
    rows = [
        tf.SparseTensor([[0, 1]], [1.0], [2, 9]),
        tf.SparseTensor([[4, 0], [4, 1]], [2.0, 3.0], [5, 3]),
    ]
    joined = tf.stack([tf.io.serialize_sparse(row) for row in rows])
    assert tw.equal(
        tw.io.deserialize_many_sparse(joined, tf.float32),
        tf.io.deserialize_many_sparse(joined, tf.float32),
    )


def test_ragged_variant(tf):
    for ragged in (
        tf.ragged.constant([[1, 2], [], [3]]),
        tf.ragged.constant([[[1.0], []], [[2.0, 3.0]]]),
        tf.ragged.constant([["a"], ["bb", "c"], []]),
        tf.ragged.constant([[1], [2, 3]], row_splits_dtype=tf.int32),
        tf.RaggedTensor.from_row_splits(np.arange(6.0).reshape(3, 2), [0, 2, 3]),
    ):
        for batched in (False, True):
            blob = tf.io.serialize_tensor(ragged._to_variant(batched_input=batched)).numpy()
            found = tw.loads(blob)
            assert found.tolist() == ragged.to_list()
            assert (
                found.values.dtype == ragged.flat_values.dtype
                if not isinstance(found.values, tw.Strings)
                else True
            )
            if not batched:
                assert tw.equal(found, ragged)


COUNT = 50_000 if TORTURE else 2_000


@pytest.mark.torture
def test_generated_protos(tf, record_property):
    """tf_compat gives TensorFlow's value or refuses where it refuses; strict gives the same value
    or refuses more.
    """
    rng = random.Random(2026)
    outcomes = {"both": 0, "neither": 0, "strict": 0}
    for _ in range(COUNT):
        enum, data = tensor_proto(rng)
        try:
            theirs = tf.io.parse_tensor(data, tf.dtypes.as_dtype(enum))
            theirs = _quantized(tf, theirs)
        except (tf.errors.InvalidArgumentError, tf.errors.InternalError):
            theirs = None
        ours = _load(data, tf_compat=True)
        assert (ours is None) == (theirs is None), data.hex()
        if theirs is not None:
            assert _same(ours, theirs), data.hex()
        strict = _load(data, tf_compat=False)
        if strict is not None:
            assert theirs is not None and tw.equal(strict, ours), data.hex()
        outcomes["both" if theirs is not None else "neither"] += 1
        outcomes["strict"] += strict is not None
    record_property("cases", COUNT)
    assert min(outcomes.values()) > COUNT // 20, outcomes  # the generator reaches every outcome


def _quantized(tf, tensor):
    row = dtypes.BY_TF.get(tensor.dtype.as_datatype_enum)
    return tf.bitcast(tensor, row.numpy) if row is not None and row.reading_only else tensor


def _load(data, tf_compat):
    try:
        return tw.loads(data, "tensorproto", tf_compat=tf_compat)
    except tw.DecodeError as error:
        assert error.format == "tensorproto" and error.offset is not None
        return None


def _same(ours, theirs):
    """Bits, except that TensorFlow hands out int4 and the like with upper bits that mean nothing."""
    theirs = tw.tensor(theirs)
    if isinstance(ours, np.ndarray) and dtypes.of(ours.dtype).bits < 8:
        return ours.dtype == theirs.dtype and np.array_equal(
            ours.astype(np.float32), theirs.astype(np.float32)
        )
    return tw.equal(ours, theirs)
