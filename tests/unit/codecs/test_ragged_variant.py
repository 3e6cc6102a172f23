"""TensorFlow's ragged variant: the same bytes as TensorFlow's own, and what cannot be written so."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.core import dtypes
from tensorwire.testing import strategies as tws
from tensorwire.testing.sampling import numbers

SPLITS = {
    "one": [[0, 3, 3, 4]],
    "two": [[0, 2, 2, 3], [0, 1, 1, 4]],
    "three": [[0, 1, 3], [0, 2, 2, 3], [0, 0, 3, 4]],
    "no rows": [[0]],
    "empty rows": [[0, 0, 0]],
}
KERNELS = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
"""The types that TensorFlow itself makes variants of."""


def ragged(name, dtype="float32", splits=np.int64, inner=()):
    levels = [np.array(level, splits) for level in SPLITS[name]]
    count = int(levels[-1][-1])
    words = tw.Strings.of([b"", b"a", b"\xff", b"x" * 300][:count])
    return tw.Ragged(
        words if dtype == "string" else numbers(dtypes.named(dtype), (count, *inner), 3), levels
    )


def write(value):
    return tw.dumps(value, "tensorproto", variant=True)


def theirs(tf, value):
    foreign = tw.to(value, "tensorflow")
    return tf.io.serialize_tensor(foreign._to_variant()).numpy()


def plain(value):
    """What the variant can say: no uniform lengths, no text."""
    values = value.values.astext(False) if isinstance(value.values, tw.Strings) else value.values
    return tw.Ragged(values, value.row_splits)


@pytest.mark.tensorflow
class TestAgainstTensorFlow:
    def check(self, tf, value):
        blob = write(value)
        assert blob == theirs(tf, value)
        dtype = (
            tf.string if isinstance(value.values, tw.Strings) else tf.as_dtype(value.values.dtype)
        )
        back = tf.RaggedTensor._from_variant(
            tf.io.parse_tensor(blob, tf.variant),
            dtype,
            output_ragged_rank=value.ragged_rank,
            row_splits_dtype=value.row_splits[0].dtype,
        )
        assert tw.equal(back, plain(value))

    @pytest.mark.parametrize("splits", [np.int32, np.int64])
    @pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "string"])
    @pytest.mark.parametrize("name", SPLITS)
    def test_depths(self, tf, name, dtype, splits):
        self.check(tf, ragged(name, dtype, splits))

    @pytest.mark.parametrize("dtype", KERNELS)
    def test_dtypes(self, tf, dtype):
        self.check(tf, ragged("two", dtype))
        self.check(tf, ragged("one", dtype, inner=(2, 3)))
        self.check(tf, ragged("empty rows", dtype, inner=(2,)))

    def test_uniform_rows(self, tf):
        self.check(
            tf, tw.Ragged(np.arange(6), [np.array([0, 2, 4]), np.array([0, 3, 3, 4, 6])], [2, None])
        )
        self.check(tf, tw.Ragged(np.float32([1, 2, 3, 4]), [np.array([0, 2, 4])], [2]))

    def test_large(self, tf):
        rng = np.random.default_rng(0)
        lengths = rng.integers(0, 9, 20_000)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        for values in (
            rng.standard_normal((splits[-1], 2)),
            rng.integers(-(1 << 62), 1 << 62, splits[-1]),
        ):
            self.check(tf, tw.Ragged(values, splits))

    def test_their_own_object(self, tf):
        foreign = tf.ragged.constant([[["a"], []], [["b", "cc"]]])
        assert write(foreign) == tf.io.serialize_tensor(foreign._to_variant()).numpy()

    def test_a_batch_of_variants(self, tf):
        foreign = tf.ragged.constant([[[1, 2], []], [], [[3]]])
        blob = tf.io.serialize_tensor(foreign._to_variant(batched_input=True)).numpy()
        for copy in (None, True):
            found = tw.loads(blob, copy=copy)
            assert tw.equal(found, foreign) and found.values.flags.writeable is (copy is True)


@given(tws.ragged())
def test_round_trip(value):
    try:
        blob = write(value)
    except tw.EncodeError as error:
        assert dtypes.of(value.values.dtype).tf is None and "unsupported dtype" in error.message
        return
    for copy in (None, True):
        assert tw.equal(tw.loads(blob, copy=copy), plain(value))


@pytest.mark.parametrize(
    "row",
    [row for row in dtypes.TABLE if row.tf is not None and not row.reading_only],
    ids=lambda row: row.name,
)
def test_types_for_which_tensorflow_has_no_kernel_too(row):
    """As it would write them: the same rules, and we read them back."""
    value = ragged("two", row.name)
    assert tw.equal(tw.loads(write(value)), value)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.zeros(3), "float64"),
        (tw.Strings.of(["a"]), "Strings"),
        (tw.Sparse([[0]], [1.0], (2,)), "Sparse"),
        ([tw.Ragged.of([[1]])], "list"),
        ({"r": tw.Ragged.of([[1]])}, "dict"),
        (7, "int"),
        (
            tw.Ragged(np.ones(1, ml_dtypes.float8_e3m4), [0, 1]),
            "unsupported dtype in TensorFlow: float8_e3m4",
        ),
    ],
)
def test_nothing_but_a_ragged_tensor(value, what):
    with pytest.raises(tw.EncodeError, match=what) as caught:
        write(value)
    assert caught.value.format == "tensorproto"


def test_large_values_are_not_copied():
    values = np.zeros(1 << 16, np.float32)
    parts = tw.buffers(tw.Ragged(values, [0, len(values)]), "tensorproto", variant=True)
    assert np.shares_memory(np.frombuffer(parts[-1], np.uint8), values)
    with pytest.raises(tw.EncodeError, match="safetensors"):
        tw.buffers(
            tw.Ragged(np.zeros(1 << 31, np.bool_).view(ml_dtypes.float8_e5m2), [0, 1 << 31]),
            "tensorproto",
            variant=True,
        )


@given(tws.ragged(), st.data())
def test_damage(value, data):
    try:
        blob = write(value)
    except tw.EncodeError:
        return
    at = data.draw(st.integers(0, len(blob) - 1))
    flipped = bytearray(blob)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (blob[:at], bytes(flipped), blob + blob[:at]):
        try:
            tw.loads(damaged, "tensorproto")
        except tw.DecodeError as error:
            assert error.format == "tensorproto" and 0 <= error.offset <= len(damaged)
