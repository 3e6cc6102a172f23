import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.testing import strategies as tws


@given(tws.arrays(), st.sampled_from(["little", "big", "native"]), st.booleans())
def test_round_trip(array, byteorder, transpose):
    array = array.T if transpose else array
    blob = tw.dumps(array, "raw", byteorder=byteorder)
    assert len(blob) == array.nbytes
    for copy in (None, True):
        found = tw.loads(
            blob, "raw", dtype=array.dtype, shape=array.shape, byteorder=byteorder, copy=copy
        )
        assert tw.equal(found, array) and (
            found.flags.writeable is (copy is True) or not found.size
        )


def test_the_bytes_are_those_of_struct():
    array = np.array([1.5, -2.0], np.float32)
    assert tw.dumps(array, "raw") == struct.pack("<2f", *array) and tw.dumps(
        array, "raw", byteorder="big"
    ) == struct.pack(">2f", *array)
    assert tw.dumps(np.array([1 + 2j], np.complex64), "raw", byteorder="big") == struct.pack(
        ">2f", 1, 2
    )


def test_shapes():
    blob = bytes(24)
    assert tw.loads(blob, "raw", dtype="int32").shape == (6,)
    assert tw.loads(blob, "raw", dtype="int32", shape=(2, -1)).shape == (2, 3)
    assert tw.loads(blob, "raw", dtype=np.int32, shape=6).shape == (6,)
    assert tw.loads(b"", "raw", dtype="int32", shape=(0, 3)).shape == (0, 3)
    assert tw.loads(b"", "raw", dtype="int32", shape=(0, -1)).shape == (0, 0)


@pytest.mark.parametrize(
    ("data", "options", "why"),
    [
        (bytes(4), {}, "do not contain their dtype"),
        (bytes(5), {"dtype": "int32"}, "not a multiple of 4"),
        (bytes(8), {"dtype": "int32", "shape": (3,)}, "expected 12 bytes .*, found 8"),
        (bytes(8), {"dtype": "int32", "shape": (1,)}, "expected 4 bytes .*, found 8"),
        (bytes(8), {"dtype": "int32", "shape": (-1, 3)}, "expected"),
        (bytes(8), {"dtype": "int32", "shape": (-2,)}, "negative"),
        (bytes(8), {"dtype": "int32", "shape": (1 << 40, 1 << 40)}, "is too large"),
        (b"\x02", {"dtype": "bool"}, "invalid byte in bool"),
        (b"\x10", {"dtype": "uint4"}, "invalid byte in uint4"),
        (bytes(8), {"dtype": "int32", "byteorder": "big", "copy": False}, "swapped"),
    ],
)
def test_what_is_refused(data, options, why):
    with pytest.raises(tw.DecodeError, match=why) as caught:
        tw.loads(data, "raw", **options)
    assert caught.value.format == "raw"


def test_what_cannot_be_written():
    for value in (
        tw.Strings.of(["a"]),
        [np.zeros(1)],
        {"a": np.zeros(1)},
        tw.Sparse([[0]], [1], [1]),
        3,
        None,
    ):
        with pytest.raises(tw.EncodeError, match="one dense tensor"):
            tw.dumps(value, "raw")
    with pytest.raises(tw.EncodeError, match="but the tensor is float64"):
        tw.dumps(np.zeros(1), "raw", dtype="float32")
    with pytest.raises(tw.EncodeError, match="shape"):
        tw.dumps(np.zeros(2), "raw", shape=(3,))
    with pytest.raises(tw.EncodeError, match="byteorder"):
        tw.dumps(np.zeros(2), "raw", byteorder="middle")
    with pytest.raises(tw.EncodeError, match="did you mean 'float32'"):
        tw.loads(bytes(4), "raw", dtype="flaot32")
