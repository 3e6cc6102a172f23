"""Dicts whose keys are str or int: restored exactly, in every format that nests."""

import hashlib
import importlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from tensorwire.testing import strategies as tws

FORMATS = ["safetensors", "tensorproto", "npy", "npz", "arrow", "protobuf", "json"]
W = np.arange(6, dtype=np.float32).reshape(2, 3)
VALUE = {"state": {0: {"step": np.float32(1), "exp_avg": W}, 1: {"exp_avg": -W}}, 7: "x", "7": [W]}


def _same(found, value):
    """Equal, and the keys of every dict are of the same types in the same order."""
    assert tw.equal(found, value)
    if isinstance(value, dict):
        assert [(type(key), key) for key in found] == [(type(key), key) for key in value]
        for key in value:
            _same(found[key], value[key])
    elif isinstance(value, (list, tuple)):
        for left, right in zip(found, value, strict=True):
            _same(left, right)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "value",
    [
        VALUE,
        {0: W},
        {"0": W, 0: -W},
        {0: W, "0": -W},
        {2: 1, 1: 2, "a": None},
        {-(1 << 63): W, (1 << 63) - 1: W, 0: {}},
        {3: {}, "x": {4: (W, {5: b"b"})}},
        {0: tw.Strings.of(["a"]), 1: tw.Ragged.of([[1], [2, 3]]), 2: tw.Sparse([[1]], [2.5], [3])},
        [{1: W}, {1: W}],
    ],
)
def test_every_format_restores_keys(format, value, tmp_path):
    _same(tw.loads(tw.dumps(value, format), format), value)
    path = tmp_path / f"x.{format}"
    tw.save(path, value, format)
    _same(tw.load(path, format), value)
    with tw.open(path, format) as file:
        _same(file.load(), value)
        for name in file:
            file[name].read()
    tw.inspect(path, format=format)


def test_a_checkpoint_and_packed_files_restore_keys(tmp_path):
    tw.save(tmp_path / "c", VALUE, "checkpoint")
    _same(tw.load(tmp_path / "c"), VALUE)
    big = {0: np.zeros(5000), "1": {1: np.arange(9999)}}
    tw.save(tmp_path / "x.safetensors", big, compression="zlib", per_tensor=True, checksum=True)
    _same(tw.load(tmp_path / "x.safetensors"), big)
    _same(tw.loads(tw.dumps(big, compression="gzip")), big)
    quantized = tw.loads(tw.dumps({0: W, "n": {1: W}}, quantize="int8"))
    assert list(quantized) == [0, "n"] and list(quantized["n"]) == [1]
    named = tw.loads(tw.dumps({0: W, 1: W}, quantize={"1": "float16"}), dequantize=False)
    assert isinstance(named[0], np.ndarray) and named[1].scheme == "float16"


@given(st.sampled_from(FORMATS), tws.values())
def test_any_value(format, value):
    # A single tensor of text in a TensorProto comes back as bytes: TensorFlow's bytes do not say
    # more. Inside a dict every value comes back as it was.
    value = {0: value}
    _same(tw.loads(tw.dumps(value, format), format), value)


@pytest.mark.parametrize("columns", [{0: W, 1: W[:, 0]}, {"a": W, 3: W}])
@pytest.mark.arrow
def test_parquet_columns(columns):
    _same(tw.loads(tw.dumps(columns, "parquet"), "parquet"), columns)


GOLDEN = {
    "safetensors": "c8f82bdd19d39be9",
    "tensorproto": "73b2bc6b974e0f11",
    "npy": "9f6d1354db0fcd3a",
    "npz": "ccfa967bf9df6e8d",
    "arrow": "9dc67d71a339fe67",
    "protobuf": "6b8bcd3a4cd50b63",
    "json": "f308224099f5da6a",
}
"""The first half of the SHA-256 of `TEXT`, as it was written before keys could be int."""
TEXT = {
    "b/kernel": W,
    "a": {"1": [W, 7, None], "ü": {}},
    "words": tw.Strings.of(["x", ""]),
    "": (1, 2.5, b"b"),
}


def test_text_keys_keep_their_bytes():
    assert {
        format: hashlib.sha256(tw.dumps(TEXT, format)).hexdigest()[:16] for format in FORMATS
    } == GOLDEN


def test_the_spec_of_other_dicts():
    header = tw.dumps({"a": np.int8([1]), 0: {}})
    size = int.from_bytes(header[:8], "little")
    ours = json.loads(json.loads(header[8 : 8 + size])["__metadata__"]["tensorwire"])
    assert ours["spec"] == {"dict": [["a", {}], [0, {"dict": {}}]]}


class Sub(int):
    pass


@pytest.mark.parametrize(
    "key", [True, False, None, 1.0, b"a", (1, 2), np.int64(1), Sub(1), 1 << 63, -(1 << 63) - 1]
)
@pytest.mark.parametrize("format", FORMATS)
def test_other_keys_are_refused(key, format):
    for value in ({key: W}, {"a": W, key: 1}, {"a": {5: 1, key: 2}}):
        with pytest.raises(tw.EncodeError):
            tw.dumps(value, format)


def _file(spec, names=("0",)):
    header = {
        name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
        for i, name in enumerate(names)
    }
    header["__metadata__"] = {"tensorwire": json.dumps({"version": 1, "spec": spec})}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(len(names))


HOSTILE = [
    [[0, {}], [0, 1]],
    [["0", {}], ["0", 1]],
    [[0, {}], [True, 1]],
    [[0, {}], [1.0, 1]],
    [[0, {}], [None, 1]],
    [[0, {}], [[0], 1]],
    [[0, {}], [1 << 63, 1]],
    [[0, {}], [-(1 << 63) - 1, 1]],
    [[0, {}], [1]],
    [[0, {}], [1, 2, 3]],
    [[0, {}], 1],
    [[0, {}], {"1": 2}],
]


@pytest.mark.parametrize("pairs", HOSTILE, ids=repr)
def test_hostile_specs(pairs):
    data = _file({"dict": pairs})
    for read in (
        tw.loads,
        lambda data: tw.open(data).load(),
        tw.inspect,
        lambda data: list(tw.open(data)),
    ):
        with pytest.raises(tw.DecodeError):
            read(data)
    with pytest.raises(tw.DecodeError):
        tw.loads(_file({"bundle": [[0, {}]]}))
    assert tw.loads(_file({"dict": [[0, {}]]})) == {0: np.uint8([0])}


@pytest.mark.parametrize(
    "text",
    [
        '{"$dict": [[0, 1], [0, 2]]}', '{"$dict": [[true, 1]]}', '{"$dict": [[1.0, 1]]}', '{"$dict": [[9223372036854775808, 1]]}',
        '{"$dict": [[0]]}', '{"$dict": [[0, 1, 2]]}', '{"$dict": [0]}', '{"$dict": {"0": 1}}', '{"$dict": []',
        '{"$dict": [[[0], 1]]}', '{"$dict": [], "a": 1}',
    ],
)  # fmt: skip
def test_hostile_json(text):
    with pytest.raises(tw.DecodeError) as failure:
        tw.loads(text.encode(), "json")
    assert failure.value.format == "json" and failure.value.offset is not None


def test_plain_json_has_text_keys():
    assert tw.dumps({0: 1, "a": W[0]}, "json", plain=True) == b'{"0":1,"a":[0.0,1.0,2.0]}'
    with pytest.raises(tw.EncodeError):
        tw.dumps({0: 1, "0": 2}, "json", plain=True)


def test_deep_values_are_read_back():
    value = W
    for depth in range(60):
        value = {depth: value}
    for format in FORMATS:
        _same(tw.loads(tw.dumps(value, format), format), value)


@pytest.mark.torch
def test_ties_under_int_keys():
    torch = importlib.import_module("torch")
    weight = torch.arange(6.0)
    value = {0: weight, "again": {1: weight}, 2: [weight]}
    for format in FORMATS:
        found = tw.loads(tw.dumps(value, format), format, to="torch")
        assert found[0] is found["again"][1] is found[2][0] and list(found) == [0, "again", 2]


@pytest.mark.torch
def test_the_state_of_a_torch_optimizer(tmp_path):
    torch = importlib.import_module("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    for format in FORMATS:
        _same(tw.loads(tw.dumps(state, format), format, to="torch"), state)
    path = tmp_path / "state.safetensors"
    tw.save(path, state)
    with tw.open(path) as file:
        assert "state/0/exp_avg" in list(file) and file["state/1/exp_avg"].shape == (2,)
        assert tw.equal(file["state/0/exp_avg"].read(), state["state"][0]["exp_avg"])
    assert set(tw.load(path, names=["state/0/exp_avg"])) == {"state/0/exp_avg"}
    again = torch.optim.Adam(model.parameters(), lr=0.5)
    again.load_state_dict(tw.load(path, to="torch"))
    assert tw.equal(again.state_dict(), state)
    assert tw.diff(path, path).equal


def test_everything_else_that_walks_a_value(tmp_path):
    path = tmp_path / "x.safetensors"
    tw.save(path, VALUE)
    assert (
        tw.equal(VALUE, tw.load(path))
        and not tw.equal({1: W}, {"1": W})
        and not tw.equal({1: 0}, {True: 0})
    )
    for suffix in ("npz", "arrow", "json", "safetensors"):
        tw.convert(path, tmp_path / f"y.{suffix}", overwrite=True)
        _same(tw.load(tmp_path / f"y.{suffix}"), VALUE)
    tw.convert(path, tmp_path / "flat.safetensors", include="state/*")
    assert list(tw.load(tmp_path / "flat.safetensors")) == [
        "state/0/step",
        "state/0/exp_avg",
        "state/1/exp_avg",
    ]
    tw.convert(path, tmp_path / "c", to="checkpoint")
    _same(tw.load(tmp_path / "c"), VALUE)
    assert "state/0/exp_avg" in str(tw.inspect(path))
    assert tw.verify(path)
    tw.profile(VALUE, formats=["safetensors"], seconds=0.01)
