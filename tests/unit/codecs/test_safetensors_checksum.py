"""safetensors with checksum=True: no flipped bit ever yields another value or name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.tiers import require
from tensorwire.testing import strategies as tws

safetensors = require("safetensors")
require("safetensors.numpy")

SEALED = {
    "plain": {"a": np.arange(3), "b": np.zeros(2, np.float16)},
    "lone": np.arange(4.0),
    "nested": {
        "w": tw.Strings.of(["é", "x"]),
        "l": [np.zeros(1), 3, {"k": (True, None)}],
        "s": tw.Sparse([[1]], [2.5], (3,)),
    },
    "bundle": tw.Bundle({"x": np.ones(2, np.uint8)}, {"model": "nmt"}, {"x": {"device": "cpu"}}),
    "escaped": {'quo"te\n': np.zeros(1)},
}


@pytest.mark.large
@pytest.mark.parametrize("name", SEALED)
def test_every_flip(name):
    value = SEALED[name]
    blob = tw.dumps(value, checksum=True)
    assert tw.equal(tw.loads(blob), value) and len(blob) < 2000
    for at in range(len(blob)):
        for bit in range(8):
            damaged = blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
            try:
                found = tw.loads(damaged, "safetensors")
            except tw.DecodeError:
                continue
            assert tw.equal(found, value), (at, bit, damaged)


@pytest.mark.parametrize("name", SEALED)
def test_every_cut(name):
    blob = tw.dumps(SEALED[name], checksum=True)
    for at in range(len(blob)):
        with pytest.raises((tw.DecodeError, tw.UnknownFormatError)):
            tw.loads(blob[:at])


@given(tws.values(), st.data())
def test_any_flip_of_any_value(value, data):
    blob = bytearray(tw.dumps(value, checksum=True))
    assert tw.equal(tw.loads(bytes(blob)), value)
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = tw.loads(bytes(blob), "safetensors")
    except tw.DecodeError:
        return
    assert tw.equal(found, value)


def test_the_package_still_reads_it():
    found = safetensors.numpy.load(tw.dumps(SEALED["plain"], checksum=True))
    assert tw.equal(dict(sorted(found.items())), SEALED["plain"])


def test_the_error_says_which_tensor():
    blob = bytearray(tw.dumps({"a": np.zeros(10), "b": np.ones(10)}, checksum=True))
    blob[-1] ^= 1
    with pytest.raises(tw.ChecksumError) as caught:
        tw.loads(blob)
    assert caught.value.tensor == "b" and caught.value.offset == len(blob) - 80
    with tw.open(blob) as f:
        assert tw.equal(f["a"].read(), np.zeros(10))
        with pytest.raises(tw.ChecksumError):
            f["b"].read()


def test_headers_of_others_may_end_as_they_like():
    blob = tw.dumps({"a": np.arange(3)})
    for end in (b"\n", b"\t\n", b"  \r\n"):
        size = int.from_bytes(blob[:8], "little")
        text = blob[8 : 8 + size].rstrip() + end
        assert tw.equal(
            tw.loads(len(text).to_bytes(8, "little") + text + blob[8 + size :]), {"a": np.arange(3)}
        )
