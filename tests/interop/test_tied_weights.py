"""Weights that torch ties are stored once and come back tied."""

import numpy as np
import pytest

import tensorwire as tw
from tensorwire import lowering

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


def test_state_dict(torch, tmp_path):
    model = torch.nn.ModuleDict(
        {"embed": torch.nn.Embedding(50, 8), "head": torch.nn.Linear(8, 50, bias=False)}
    )
    model["head"].weight = model["embed"].weight
    state = model.state_dict()
    blob = tw.dumps(state)
    assert len(blob) < 50 * 8 * 4 + 600  # once
    back = tw.loads(blob, to="torch")
    assert list(back) == list(state) and back["head.weight"] is back["embed.weight"]
    assert all(torch.equal(back[name], state[name]) for name in state)
    found = tw.loads(blob)
    assert found["head.weight"] is found["embed.weight"]
    tw.save(tmp_path / "m.safetensors", state, checksum=True)
    with tw.open(tmp_path / "m.safetensors") as f:
        assert list(f) == ["embed.weight", "head.weight"] and tw.equal(
            f["head.weight"][3:5], state["embed.weight"][3:5]
        )
    assert tw.load(tmp_path / "m.safetensors", names=["head.weight"])["head.weight"].shape == (
        50,
        8,
    )


def test_views_are_not_tied(torch):
    x = torch.arange(12.0)
    value = {"a": x, "b": x[:6], "c": x.reshape(3, 4), "d": x}
    assert lowering.lower(value).spec == {"dict": {"a": {}, "b": {}, "c": {}, "d": {"same": 0}}}
    assert tw.equal(
        tw.loads(tw.dumps(value, "tensorproto")),
        {name: tensor.numpy() for name, tensor in value.items()},
    )


def test_bfloat16_and_tensorproto(torch):
    x = torch.ones(3, dtype=torch.bfloat16)
    for format in ("safetensors", "tensorproto"):
        back = tw.loads(tw.dumps([x, {"again": x}], format), to="torch")
        assert back[0] is back[1]["again"] and back[0].dtype == torch.bfloat16


def test_numpy_arrays_are_never_tied():
    x = np.zeros(3)
    assert lowering.lower([x, x]).spec == {"list": 2}


@pytest.mark.parametrize(
    "spec",
    [
        {"same": 0},
        {"list": [{"same": 1}, {}]},
        {"list": [{}, {"same": "0"}]},
        {"list": [{}, {"same": -1}]},
        {"same": 0, "x": 1},
    ],
)
def test_lies(spec):
    with pytest.raises(tw.DecodeError):
        lowering.lift(spec, [np.zeros(1)])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_of_the_strided_layout_are_lists(torch):
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.ones(1, 3)])
    assert tw.equal(
        tw.loads(tw.dumps({"n": nested})),
        {"n": [np.zeros((2, 3), np.float32), np.ones((1, 3), np.float32)]},
    )
