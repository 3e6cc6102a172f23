"""The safetensors format against the safetensors package, both ways, and hostile headers."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.tiers import require
from tensorwire.testing import strategies as tws

safetensors = require("safetensors")
require("safetensors.numpy")


def header(blob):
    size = int.from_bytes(blob[:8], "little")
    return json.loads(blob[8 : 8 + size])


def file(head, data=b"", pad=True):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="U8", shape=(2,), offsets=(0, 2)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


PLAIN = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array([1, 2], np.int64),
    "flag": np.array(True),
    "e": np.zeros((0, 4), np.uint8),
}


def test_the_package_reads_what_we_write():
    found = safetensors.numpy.load(tw.dumps(PLAIN))
    assert found.keys() == PLAIN.keys() and all(
        tw.equal(found[name], PLAIN[name]) for name in PLAIN
    )


def test_we_read_what_the_package_writes():
    assert tw.equal(
        dict(sorted(tw.loads(safetensors.numpy.save(PLAIN)).items())), dict(sorted(PLAIN.items()))
    )


def test_the_package_sees_the_parts_of_other_kinds():
    value = {
        "t": tw.Ragged.of([[1.5], []]),
        "s": tw.Sparse([[0, 1]], tw.Strings.of(["x"]), (2, 2)),
        "z": np.array([1 + 2j]),
        "k": [np.zeros(2)],
    }
    found = safetensors.numpy.load(tw.dumps(value))
    assert sorted(found) == [
        "k/0",
        "s/dense_shape",
        "s/indices",
        "s/values/data",
        "s/values/offsets",
        "t/row_splits/0",
        "t/values",
        "z",
    ]
    assert found["z"].shape == (1, 2)
    package = safetensors.deserialize(
        tw.dumps({"w": np.ones(3, ml_dtypes.bfloat16), "q": np.ones(2, ml_dtypes.int4)})
    )
    assert {name: info["dtype"] for name, info in package} == {"w": "BF16", "q": "U8"}


def test_layout():
    blob = tw.dumps(
        {"bytes": np.zeros(3, np.uint8), "doubles": np.zeros(2), "half": np.zeros(3, np.float16)}
    )
    size = int.from_bytes(blob[:8], "little")
    assert (8 + size) % 64 == 0
    assert {name: value["data_offsets"] for name, value in header(blob).items() if name != "__metadata__"} == {
        "doubles": [0, 16], "half": [16, 22], "bytes": [22, 25],
    }  # fmt: skip
    assert list(tw.loads(blob)) == ["bytes", "doubles", "half"]


def test_nothing_is_added_where_nothing_is_to_say():
    assert "__metadata__" not in header(tw.dumps({"a": np.zeros(2), "b": np.zeros(3)}))
    assert json.loads(header(tw.dumps(np.zeros(2)))["__metadata__"]["tensorwire"]) == {
        "version": 1,
        "spec": {},
    }


def test_bundle_metadata_is_where_everyone_looks():
    bundle = tw.Bundle(
        {"a": np.zeros(2)}, {"format": "pt", "é": "日本"}, {"a": {"device": "cuda:0"}}
    )
    blob = tw.dumps(bundle)
    assert header(blob)["__metadata__"]["format"] == "pt" and tw.equal(tw.loads(blob), bundle)
    with pytest.raises(tw.EncodeError, match="reserved"):
        tw.dumps(tw.Bundle({}, {"tensorwire": "x"}))
    with pytest.raises(tw.EncodeError, match="__metadata__"):
        tw.dumps({"__metadata__": np.zeros(1)})


HOSTILE = {
    "empty": b"",
    "short": b"\x01\x02",
    "header past the end": (50).to_bytes(8, "little") + b"{}",
    "header past the limit": (200_000_000).to_bytes(8, "little") + b"{}",
    "header of 2**64": b"\xff" * 8 + b"{}",
    "no header": bytes(8),
    "leading space": file(b" {}"),
    "not json": file(b"{nope}"),
    "array": file(b"[]"),
    "name twice": file(
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b"x",
    ),
    "hole": file({"a": entry(offsets=(0, 2)), "b": entry(offsets=(3, 5))}, bytes(5)),
    "overlap": file({"a": entry(offsets=(0, 2)), "b": entry(offsets=(1, 3))}, bytes(3)),
    "late start": file({"a": entry(offsets=(1, 3))}, bytes(3)),
    "trailing bytes": file({"a": entry()}, bytes(3)),
    "missing bytes": file({"a": entry()}, bytes(1)),
    "wrong size": file({"a": entry(shape=(3,))}, bytes(2)),
    "negative dim": file({"a": entry(shape=(-2,))}, bytes(2)),
    "huge dims": file({"a": entry(shape=(1 << 40, 1 << 40), offsets=(0, 0))}),
    "huge dims with zero": file({"a": entry(shape=(1 << 40, 1 << 40, 0), offsets=(0, 0))}),
    "float dim": file({"a": entry(shape=(2.0,))}, bytes(2)),
    "bool dim": file(b'{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', b"x"),
    "backward offsets": file({"a": entry(offsets=(2, 0))}, bytes(2)),
    "unknown dtype": file({"a": entry("F33")}, bytes(2)),
    "dtype not a string": file({"a": entry(7)}, bytes(2)),
    "extra key": file({"a": entry() | {"x": 1}}, bytes(2)),
    "missing key": file({"a": {"dtype": "U8"}}, bytes(2)),
    "entry not an object": file({"a": 3}),
    "metadata not strings": file({"__metadata__": {"a": 1}}),
    "metadata not an object": file({"__metadata__": []}),
    "bool of 2": file({"a": entry("BOOL")}, b"\x00\x02"),
    "deep": file(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "not utf-8": file(b'{"\xff":1}'),
    "surrogate": file(b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "number past a float": file(b'{"a":{"dtype":"U8","shape":[1e400],"data_offsets":[0,1]}}', b"x"),
    "constant": file(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"x"),
    "long number": file(
        b'{"a":{"dtype":"U8","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,1]}}', b"x"
    ),
    "spec of another version": file({"__metadata__": {"tensorwire": '{"version":2,"spec":{}}'}}),
    "spec not json": file({"__metadata__": {"tensorwire": "nope"}}),
    "spec for other names": file(
        {"__metadata__": {"tensorwire": '{"version":1,"spec":{"dict":{"b":{}}}}'}, "a": entry()},
        bytes(2),
    ),
    "spec for more": file(
        {"__metadata__": {"tensorwire": '{"version":1,"spec":{"list":9}}'}, "0": entry()}, bytes(2)
    ),
    "spec for less": file(
        {"__metadata__": {"tensorwire": '{"version":1,"spec":3}'}, "0": entry()}, bytes(2)
    ),
    "rank 100": file({"a": entry(shape=(1,) * 100, offsets=(0, 1))}, b"x"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers(name):
    with pytest.raises(tw.DecodeError) as caught:
        tw.loads(HOSTILE[name], "safetensors")
    assert caught.value.format == "safetensors" and 0 <= caught.value.offset <= len(HOSTILE[name])


def test_the_good_twin_of_the_hostile_ones():
    assert tw.equal(
        tw.loads(file({"a": entry(), "b": entry(offsets=(2, 4))}, b"abcd"))["b"],
        np.frombuffer(b"cd", np.uint8),
    )


def test_too_many_names():
    with pytest.raises(tw.LimitError, match="names"):
        tw.loads(tw.dumps({str(i): np.zeros(0) for i in range(20)}), limits=tw.Limits(names=10))
    with pytest.raises(tw.LimitError, match="safetensors_header"):
        tw.loads(tw.dumps({"a" * 200: np.zeros(0)}), limits=tw.Limits(safetensors_header=100))


@given(tws.values(), st.data())
def test_damage_gives_a_value_or_our_error(value, data):
    blob = tw.dumps(value)
    at = data.draw(st.integers(0, len(blob) - 1))
    flipped = bytearray(blob)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (blob[:at], bytes(flipped), blob + blob[:at]):
        try:
            tw.loads(damaged, "safetensors")
        except tw.DecodeError as error:
            assert error.format == "safetensors" and 0 <= error.offset <= len(damaged)
