"""A dtype that is not known here refuses that tensor, not the file."""

import importlib
import json

import numpy as np
import pytest

import tensorwire as tw
from support.checkpoint_files import Made, entry
from support.cli import run
from support.safetensors_files import file
from tensorwire.core import dtypes

GOOD = np.arange(3, dtype=np.float32)


def unknown_safetensors(folder):
    path = folder / "x.safetensors"
    path.write_bytes(
        file([("good", "F32", (3,), GOOD.tobytes()), ("bad", "F3_E1M1", (2, 8), b"abcdef")])
    )
    return path, "F3_E1M1", (2, 8)


def unknown_npz(folder):
    path = folder / "x.npz"
    np.savez(path, good=GOOD, bad=np.array(["2020-01-01"], "M8[D]"))
    return path, "<M8[D]", (1,)


def structured_npz(folder):
    path = folder / "x.npz"
    np.savez(path, good=GOOD, bad=np.zeros((2, 3), [("a", "<i4"), ("b", "<f8", (2,))]))
    return path, "[('a', '<i4'), ('b', '<f8', (2,))]", (2, 3)


def pickled_npz(folder):
    path = folder / "x.npz"
    np.savez(path, good=GOOD, bad=np.array([{}, None], object))
    return path, "|O", (2,)


def unknown_spec(folder):
    """What a later tensorwire might write."""
    path = folder / "x.safetensors"
    tw.save(path, {"good": GOOD, "bad": np.zeros((2, 2), "uint8").view(dtypes.named("int4").numpy)})
    path.write_bytes(path.read_bytes().replace(b"int4", b"int5"))
    return path, "int5", (2, 2)


def unknown_protobuf(folder):
    path = folder / "x.pb"
    value = {"good": GOOD, "bad": np.zeros((2, 2), "uint16")}
    path.write_bytes(tw.dumps(value, "protobuf").replace(b"uint16", b"uint17"))
    return path, "uint17", (2, 2)


def unknown_json(folder):
    path = folder / "x.json"
    value = {"good": GOOD, "bad": np.zeros((2, 2), "uint16")}
    path.write_bytes(tw.dumps(value, "json").replace(b"uint16", b"uint17"))
    return path, "uint17", (2, 2)


def unknown_hdf5(folder):
    h5py = importlib.import_module("h5py")
    path = folder / "x.h5"
    with h5py.File(path, "w") as out:
        out["good"] = GOOD
        out["bad"] = ["a", "bc"]
    return path, "object", (2,)


def fixed_hdf5(folder):
    h5py = importlib.import_module("h5py")
    path = folder / "x.h5"
    with h5py.File(path, "w") as out:
        out["good"] = GOOD
        out["bad"] = np.array([b"a", b"bc"])
    return path, "|S2", (2,)


CASES = [
    unknown_safetensors,
    unknown_npz,
    structured_npz,
    pickled_npz,
    unknown_spec,
    unknown_protobuf,
    unknown_json,
    unknown_hdf5,
    fixed_hdf5,
]


@pytest.mark.parametrize("make", CASES)
def test_the_others_are_read(make, tmp_path):
    path, dtype, shape = make(tmp_path)
    format = {".pb": "protobuf", ".h5": "keras"}.get(path.suffix)
    with tw.open(path, format) as opened:
        assert sorted(opened) == ["bad", "good"]
        assert tw.equal(opened["good"].read(), GOOD) and tw.equal(opened["good"][1:], GOOD[1:])
        lost = opened["bad"]
        assert lost.kind == "unreadable" and lost.shape == shape and str(lost.dtype) == dtype
        for read in (lost.read, lambda: lost[:1], lambda: np.asarray(lost), opened.load):
            with pytest.raises(tw.DecodeError) as failure:
                read()
            assert failure.value.tensor == "bad"
    assert tw.equal(tw.load(path, format, names=["good"]), {"good": GOOD})
    rows = {row.name: row for row in tw.inspect(path, format).tensors}
    assert rows["good"].kind == "dense" and rows["bad"].kind == "unreadable"
    assert (
        rows["bad"].dtype == dtype
        and rows["bad"].shape == shape
        and dtype in str(tw.inspect(path, format))
    )
    for read in (
        lambda: tw.load(path, format),
        lambda: tw.loads(path.read_bytes(), format),
        lambda: tw.load(path, format, names=["bad"]),
    ):
        with pytest.raises(tw.DecodeError) as failure:
            read()
        assert failure.value.tensor == "bad"
    found = tw.verify(path, format)
    # not read, which is not broken
    assert found and not found.problems and len(found.unsupported) == 1
    target = tmp_path / "only.safetensors"
    tw.convert(path, target, format=format, exclude="bad")
    assert tw.equal(tw.load(target), {"good": GOOD})
    with pytest.raises(tw.DecodeError) as failure:
        tw.convert(path, tmp_path / "all.safetensors", format=format)
    assert failure.value.tensor == "bad" and not (tmp_path / "all.safetensors").exists()
    with pytest.raises(tw.DecodeError):
        tw.diff(path, path, format=format)


def unknown_checkpoint(folder):
    made = Made().add("good", GOOD)
    made.items[b"bad"] = entry(99, (2, 2), len(made.data[0]), 4)
    made.data[0] += b"abcd"
    made.write(folder / "c")
    return folder / "c", "DataType 99", (2, 2)


def test_a_checkpoint(tmp_path):
    path, dtype, shape = unknown_checkpoint(tmp_path)
    with tw.open(path) as opened:
        lost = opened["bad"]
        assert (lost.kind, str(lost.dtype), lost.shape) == ("unreadable", dtype, shape)
        assert tw.equal(opened["good"].read(), GOOD)
        with pytest.raises(tw.DecodeError) as failure:
            opened.load()
        assert failure.value.tensor == "bad"
    assert tw.equal(tw.load(path, names=["good"]), {"good": GOOD})
    assert [row.kind for row in tw.inspect(path).tensors] == ["unreadable", "dense"]
    with pytest.raises(tw.DecodeError) as failure:
        tw.load(path)
    assert failure.value.tensor == "bad"


def test_show_and_the_command(tmp_path):
    path, dtype, _ = unknown_safetensors(tmp_path)
    shown = run("inspect", path)
    assert shown.returncode == 0 and dtype in shown.stdout
    assert run("show", path, "good").returncode == 0
    assert run("show", path, "bad").returncode == 1


def test_a_dtype_that_is_not_text_refuses_the_file():
    for dtype in (3, None, "", ["F32"]):
        text = json.dumps({"x": {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]}}).encode()
        with pytest.raises(tw.DecodeError):
            tw.open(len(text).to_bytes(8, "little") + text + bytes(4))
