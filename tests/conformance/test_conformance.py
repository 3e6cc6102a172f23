"""Every format and framework through the shipped checks, and the page that is made of them."""

from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from tensorwire.codecs.raw import Raw
from tensorwire.codecs.safetensors import Safetensors
from tensorwire.testing import check_codec
from tensorwire.testing.sampling import DTYPES

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"


def test_safetensors_holds_everything():
    assert set(check_codec("safetensors").values()) == {"exact"}


def test_tensorproto_holds_everything():
    assert set(check_codec("tensorproto").values()) == {"exact"}


@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_raw_holds_dense_tensors(byteorder):
    report = check_codec(
        Raw(byteorder=byteorder), lambda value: Raw(value.dtype, value.shape, byteorder)
    )
    exact = {cell for cell, found in report.items() if found == "exact"}
    assert exact == {(kind, row.name) for kind in ("scalar", "dense") for row in DTYPES}


@pytest.mark.tensorflow
@pytest.mark.torch
@pytest.mark.jax
@pytest.mark.scipy
@pytest.mark.arrow
def test_the_matrix_is_current(tf):
    from tensorwire.testing.matrix import page

    assert PAGE.read_text() == page(), "run: python -m tensorwire.testing.matrix > docs/matrix.md"


class TestTheCheckItself:
    """A check that cannot fail is none: codecs with one fault each must be caught."""

    class Lossy(Safetensors):
        __slots__ = ()

        def encode(self, value):
            return super().encode(
                value.astype(np.float32)
                if isinstance(value, np.ndarray) and value.dtype == np.float64
                else value
            )

    class Writable(Safetensors):
        __slots__ = ()

        def decode(self, data, copy=None):
            return super().decode(data, True)

    class Leaky(Safetensors):
        __slots__ = ()

        def decode(self, data, copy=None):
            if len(data) % 2:
                raise KeyError("not ours")
            return super().decode(data, copy)

    class Vague(Safetensors):
        __slots__ = ()

        def decode(self, data, copy=None):
            try:
                return super().decode(data, copy)
            except tw.DecodeError as error:
                raise tw.DecodeError(error.message) from None

    @pytest.mark.parametrize(
        ("codec", "error"),
        [
            (Lossy, AssertionError),
            (Writable, AssertionError),
            (Leaky, KeyError),
            (Vague, AssertionError),
        ],
    )
    def test_faults_are_caught(self, codec, error):
        with pytest.raises(error):
            check_codec(codec())
