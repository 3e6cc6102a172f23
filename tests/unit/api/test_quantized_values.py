"""`quantize=` in dumps, loads and open: every kind, every container, rows, codes, and specs that
lie.
"""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire import lowering
from tensorwire.testing import strategies as tws
from tensorwire.transforms import quantization as qz

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((40, 8)).astype(np.float32)
WIDE = RANDOM.standard_normal((6, 2))
FORMATS = [
    name for name, row in tw.formats().items() if row.writes and name not in ("raw", "parquet")
]


def value():
    return {
        "x": X,
        "ids": np.arange(5),
        "words": tw.Strings.of(["a", "b"]),
        "sparse": tw.Sparse([[3, 1], [0, 2]], np.float32([1.5, -2]), (4, 4)),
        "ragged": tw.Ragged(WIDE, np.array([0, 2, 2, 6])),
        "deep": [X[0], (X[1], 7, "text", None)],
    }


def expected(item, scheme, axis=None):
    if isinstance(item, dict):
        return {key: expected(inner, scheme, axis) for key, inner in item.items()}
    if isinstance(item, (list, tuple)):
        return type(item)(expected(inner, scheme, axis) for inner in item)
    if isinstance(item, tw.Sparse):
        return tw.Sparse(item.indices, expected(item.values, scheme), item.dense_shape)
    if isinstance(item, tw.Ragged):
        return tw.Ragged(expected(item.values, scheme), item.row_splits)
    if isinstance(item, np.ndarray) and item.dtype.kind == "f":
        return qz.dequantize(qz.quantize(item, scheme, axis if item.ndim > 1 else None))
    return item


@pytest.mark.arrow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_every_format_gives_back_the_original_dtype(format, axis):
    for scheme in qz.SCHEMES:
        blob = tw.dumps(value(), format, quantize=scheme, axis=axis)
        assert tw.equal(tw.loads(blob, format), expected(value(), scheme, axis))


@pytest.mark.parametrize("scheme", qz.SCHEMES)
def test_the_codes_can_be_had(scheme):
    codes = tw.loads(tw.dumps(X, quantize=scheme, axis=0), dequantize=False)
    assert isinstance(codes, tw.Quantized) and tw.equal(codes, tw.quantize(X, scheme, axis=0))
    assert (
        codes.dtype == qz.SCHEMES[scheme].dtype
        and np.asarray(codes).shape == X.shape
        and codes.original == "float32"
    )
    assert tw.equal(tw.loads(tw.dumps(codes)), tw.dequantize(codes))
    bundle = tw.Bundle({"x": X}, {"model": "m"}, {"x": {"device": "cpu"}})
    assert tw.equal(
        tw.loads(tw.dumps(bundle, quantize=scheme), dequantize=False)["x"], tw.quantize(X, scheme)
    )
    back = tw.loads(tw.dumps(bundle, quantize=scheme))
    assert (
        back.metadata == {"model": "m"}
        and back.tensor_metadata == {"x": {"device": "cpu"}}
        and back["x"].dtype == np.float32
    )


def test_memory_rules():
    blob = tw.dumps({"x": X, "y": X[0]}, quantize="int8")
    for copy in (None, True):
        assert all(
            array.flags.writeable is (copy is True) for array in tw.loads(blob, copy=copy).values()
        )


def test_others_see_codes_and_their_parameters():
    from safetensors.numpy import load

    found = load(tw.dumps({"w": X}, quantize="int8", axis=1))
    assert {name: (str(part.dtype), part.shape) for name, part in found.items()} == {
        "w": ("int8", (40, 8)),
        "w/scale": ("float32", (8,)),
        "w/zero_point": ("int64", (8,)),
    }
    by_hand = ((found["w"].astype(np.float64) - found["w/zero_point"]) * found["w/scale"]).astype(
        np.float32
    )
    assert tw.equal(by_hand, tw.loads(tw.dumps({"w": X}, quantize="int8", axis=1))["w"])


def test_a_scheme_for_each_name():
    blob = tw.dumps({"a": X, "b": {"c": X}, "d": X}, quantize={"a": "int8", "b/c": "float16"})
    assert [tensor.quantized for tensor in tw.inspect(blob).tensors] == ["int8", "float16", None]
    assert tw.equal(tw.loads(blob)["d"], X)
    with pytest.raises(
        tw.UsageError, match=r"'e', but no tensor of floats has that path; known: a, d"
    ):
        tw.dumps({"a": X, "d": X}, quantize={"e": "int8"})


def test_what_it_is_already_is_left_alone():
    half = X.astype(np.float16)
    assert tw.equal(tw.loads(tw.dumps(half, quantize="float16")), half)
    assert tw.inspect(tw.dumps(half, quantize="float16")).tensors[0].quantized is None


class TestRefusals:
    @pytest.mark.parametrize(
        "nothing", [np.arange(3), ["text"], {}, np.zeros(3, complex), tw.Strings.of(["a"])]
    )
    def test_nothing_to_quantize(self, nothing):
        with pytest.raises(tw.EncodeError, match="nothing to quantize"):
            tw.dumps(nothing, quantize="int8")

    def test_nonfinite(self):
        x = {"deep": [np.float32([1, np.nan, np.inf])]}
        with pytest.raises(tw.EncodeError, match="nan") as error:
            tw.dumps(x, quantize="int8")
        assert error.value.tensor == "deep/0"
        assert tw.loads(tw.dumps(x, quantize="int8", nonfinite="zero"))["deep"][0].tolist() == [
            1,
            0,
            1,
        ]
        assert np.isnan(tw.loads(tw.dumps(x, quantize="float16"))["deep"][0][1])

    def test_how_without_what(self):
        for options in ({"axis": 0}, {"nonfinite": "clip"}):
            with pytest.raises(TypeError, match="quantize="):
                tw.dumps(X, **options)

    def test_axis_and_scheme(self):
        with pytest.raises(tw.EncodeError, match="axis 2"):
            tw.dumps({"x": X}, quantize="int8", axis=2)
        with pytest.raises(tw.EncodeError, match="did you mean 'int8'"):
            tw.dumps(X, quantize="int88")
        with pytest.raises(tw.EncodeError, match="not Quantized"):
            tw.dumps(X, "raw", quantize="int8")


class TestLazy:
    @pytest.mark.parametrize("axis", [None, 0, 1])
    def test_rows(self, axis, tmp_path):
        tw.save(tmp_path / "x.safetensors", value(), quantize="int8", axis=axis)
        whole = tw.load(tmp_path / "x.safetensors")
        with tw.open(tmp_path / "x.safetensors") as file:
            assert file["x"].dtype == np.float32 and file["x"].quantized == "int8"
            for name, rows in (
                ("x", slice(3, 9)),
                ("x", slice(0, 0)),
                ("ragged", slice(1, 3)),
                ("deep/0", slice(2, 5)),
            ):
                full = whole["deep"][0] if name == "deep/0" else whole[name]
                assert tw.equal(file[name][rows], full[rows])
            assert tw.equal(file["x"][7], whole["x"][7])
            found = file["sparse"][0:2]
            assert found.indices.tolist() == [[0, 2]] and found.values.tolist() == [
                whole["sparse"].values[1]
            ]
        with tw.open(tmp_path / "x.safetensors", dequantize=False) as file:
            assert file["x"].dtype == np.int8 and file["x"][3:9].dtype == np.int8
            assert tw.equal(file["x"].read(), tw.quantize(X, "int8", axis))
            assert isinstance(file.load()["x"], tw.Quantized)

    def test_inspect_says_it(self):
        summary = tw.inspect(tw.dumps({"x": X}, quantize="int4"))
        assert (
            summary.tensors[0].quantized == "int4"
            and summary.tensors[0].dtype == "float32"
            and "int4" in str(summary)
        )
        json.dumps(summary.json())
        assert tw.verify(tw.dumps({"x": X}, quantize="int4"))


@pytest.mark.torch
def test_tied_weights_stay_tied():
    import torch

    weight = torch.nn.Parameter(torch.randn(30, 4))
    blob = tw.dumps({"a": weight, "b": weight, "c": weight.detach().clone()}, quantize="int8")
    back = tw.loads(blob)
    assert back["a"] is back["b"] and back["a"] is not back["c"]
    assert len(blob) < len(
        tw.dumps(
            {"a": weight, "b": weight.detach().clone(), "c": weight.detach().clone()},
            quantize="int8",
        )
    )


@settings(max_examples=200, deadline=None)
@given(tws.values(), st.sampled_from(list(qz.SCHEMES)))
def test_any_value(found, scheme):
    """It is refused with an EncodeError, or comes back with every shape and dtype, and all that is
    not floats bit for bit.
    """
    try:
        blob = tw.dumps(found, quantize=scheme, nonfinite="zero")
    except tw.EncodeError:
        return
    back = tw.loads(blob)
    left, right = lowering.lower(found), lowering.lower(back)
    assert left.spec == right.spec
    for before, after in zip(left.parts, right.parts, strict=True):
        assert before.dtype == after.dtype and before.shape == after.shape
        if before.dtype.name not in qz.FLOATS:
            assert tw.equal(before, after)


class TestLies:
    """Specs that no writer of ours makes."""

    def lie(self, **changes):
        spec, parts = lowering.lower(tw.quantize(X, "int8", axis=0))
        return spec | changes, list(parts)

    @pytest.mark.parametrize(
        "changes",
        [
            {"scheme": "int4"},
            {"scheme": "int9"},
            {"scheme": None},
            {"scheme": ["int8"]},
            {"dtype": "int32"},
            {"dtype": None},
            {"dtype": {}},
            {"axis": 1},
            {"axis": -1},
            {"axis": 2},
            {"axis": "0"},
            {"axis": True},
            {"axis": 0.0},
            {"axis": None},
            {"quantized": {"sparse": {}}},
            {"quantized": []},
            {"quantized": {"text": True}},
            {"more": 1},
        ],
    )
    def test_nodes(self, changes):
        spec, parts = self.lie(**changes)
        with pytest.raises(tw.DecodeError):
            lowering.lift(spec, parts)

    @pytest.mark.parametrize("part", [0, 1, 2])
    @pytest.mark.parametrize(
        "other",
        [
            np.zeros(3),
            np.zeros((), np.int64),
            np.full(40, np.nan, np.float32),
            np.full(40, -1.0, np.float32),
        ],
    )
    def test_parts(self, part, other):
        spec, parts = self.lie()
        parts[part] = other
        with pytest.raises(tw.DecodeError):
            lowering.lift(spec, parts)

    def test_files(self):
        """Whatever a bit flip makes of the spec: a value, or an error of ours, also when rows are
        read.
        """
        blob = tw.dumps({"x": X[:3]}, quantize="int4", axis=1)
        size = 8 + int.from_bytes(blob[:8], "little")
        for at in range(8, size):
            for bit in (1, 4, 16):
                damaged = blob[:at] + bytes([blob[at] ^ bit]) + blob[at + 1 :]
                try:
                    tw.loads(damaged, "safetensors")
                    with tw.open(damaged, "safetensors") as file:
                        for tensor in file.values():
                            if tensor.kind == "dense" and len(tensor.shape):
                                tensor[:1]
                except tw.DecodeError:
                    pass
