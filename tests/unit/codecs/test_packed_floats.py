"""safetensors F4, F6_E2M3 and F6_E3M2, whose elements lie side by side, and torch's
float4_e2m1fn_x2.
"""

import importlib
import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.safetensors_files import file

DTYPES = {
    "F4": (4, ml_dtypes.float4_e2m1fn),
    "F6_E2M3": (6, ml_dtypes.float6_e2m3fn),
    "F6_E3M2": (6, ml_dtypes.float6_e3m2fn),
}


def pack(codes, bits):
    """The first element in the lowest bits, by arithmetic on one large integer."""
    number = sum(int(code) << (bits * i) for i, code in enumerate(codes))
    return number.to_bytes(len(codes) * bits // 8, "little")


@given(st.sampled_from(list(DTYPES)), st.data())
def test_any_codes(name, data):
    bits, dtype = DTYPES[name]
    shape = data.draw(
        st.sampled_from([(4,), (8,), (2, 2), (4, 3), (2, 3, 2), (0,), (0, 3), (3, 4), (12, 1)])
    )
    codes = np.array(
        data.draw(
            st.lists(
                st.integers(0, (1 << bits) - 1),
                min_size=int(np.prod(shape)),
                max_size=int(np.prod(shape)),
            )
        ),
        np.uint8,
    )
    plain = np.arange(3, dtype=np.float32)
    blob = file([("x", name, shape, pack(codes, bits)), ("y", "F32", (3,), plain.tobytes())])
    expected = {"x": codes.view(dtype).reshape(shape), "y": plain}
    for copy in (None, True):
        found = tw.loads(blob, copy=copy)
        assert tw.equal(found, expected) and found["x"].flags.writeable is (copy is True)
    with tw.open(blob) as opened:
        tensor = opened["x"]
        assert (
            tensor.dtype == dtype
            and tensor.shape == shape
            and tensor.nbytes == codes.size * bits // 8
        )
        for start in range(shape[0] + 1):
            for stop in range(start, shape[0] + 1):
                assert tw.equal(tensor[start:stop], expected["x"][start:stop])
        if shape[0]:
            assert tw.equal(np.asarray(tensor[-1]), np.asarray(expected["x"][-1]))


def test_files_on_a_disk(tmp_path):
    codes = np.arange(32, dtype=np.uint8) & 15
    path = tmp_path / "x.safetensors"
    path.write_bytes(file([("x", "F4", (4, 8), pack(codes, 4)), ("y", "U8", (2,), b"ab")]))
    expected = codes.view(ml_dtypes.float4_e2m1fn).reshape(4, 8)
    found = tw.load(path)
    assert tw.equal(found["x"], expected) and found["x"].flags.writeable
    for mmap in (False, True):
        with tw.open(path, mmap=mmap) as opened:
            assert tw.equal(opened["x"][1:3], expected[1:3])
    assert tw.inspect(path).tensors[0].dtype == "float4_e2m1fn"
    assert tw.verify(path) and tw.equal(tw.load(path, names=["x"]), {"x": expected})
    for suffix in ("safetensors", "npz", "json", "npy"):
        tw.convert(path, tmp_path / f"again.{suffix}")
        assert tw.equal(
            tw.load(tmp_path / f"again.{suffix}"),
            {"x": expected, "y": np.frombuffer(b"ab", np.uint8)},
        )
    assert tw.diff(path, tmp_path / "again.safetensors").equal
    assert tw.equal(tw.loads(path.read_bytes(), copy=True)["x"], expected)
    with pytest.raises(tw.DecodeError):
        tw.loads(path.read_bytes(), copy=False)


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        ("F4", (3,), 2), ("F4", (3,), 1), ("F4", (), 1), ("F4", (2,), 2), ("F6_E2M3", (2,), 2), ("F6_E3M2", (2, 3), 5),
        ("F4", (1 << 62, 4), 0), ("F4", (4,), 1), ("F6_E2M3", (4,), 4),
    ],
)  # fmt: skip
def test_sizes_that_do_not_match_are_refused(dtype, shape, size):
    """As the safetensors package refuses them: the elements fill their bytes."""
    blob = file([("x", dtype, shape, bytes(size))])
    for read in (tw.loads, tw.open, tw.inspect):
        with pytest.raises(tw.DecodeError):
            read(blob)
    safetensors = importlib.import_module("safetensors")
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(blob)


def test_large_tensors_are_converted_by_rows(tmp_path):
    codes = np.random.default_rng(0).integers(0, 256, 9 << 20, np.uint8)
    blob = file([("x", "F4", (9 << 20, 2), codes.tobytes())])
    tw.convert(blob, tmp_path / "x.safetensors")
    found = tw.load(tmp_path / "x.safetensors")["x"].view(np.uint8)
    assert np.array_equal(found[:, 0], codes & 15) and np.array_equal(found[:, 1], codes >> 4)
    assert tw.diff(blob, tmp_path / "x.safetensors").equal


def test_the_quick_readers_leave_them_to_the_careful_one():
    from tensorwire import _native
    from tensorwire.wire.reference import named

    for dtype, size in (("F4", 2), ("F6_E2M3", 3), ("F6_E3M2", 3), ("F3", 3)):
        blob = file([("x", dtype, (4,), bytes(size)), ("y", "U8", (1,), b"a")])
        for kernel in (_native, named):
            assert (
                kernel.read_named(blob, False) is None and kernel.decode_named(blob, False) is None
            )


def test_what_we_write_stays_as_it_is():
    """One byte an element, as U8: any reader of safetensors opens it."""
    for _, dtype in DTYPES.values():
        x = np.arange(8, dtype=np.uint8).view(dtype)
        blob = tw.dumps({"x": x})
        size = int.from_bytes(blob[:8], "little")
        entry = json.loads(blob[8 : 8 + size])["x"]
        assert (entry["dtype"], entry["shape"]) == ("U8", [8]) and tw.equal(
            tw.loads(blob), {"x": x}
        )


@pytest.mark.torch
class TestTorch:
    def test_a_file_of_the_safetensors_package(self):
        torch = importlib.import_module("torch")
        library = importlib.import_module("safetensors.torch")
        codes = torch.arange(12, dtype=torch.uint8).reshape(2, 6) * 17
        pairs = codes.view(torch.float4_e2m1fn_x2)
        found = tw.loads(library.save({"x": pairs, "y": torch.ones(2)}))
        assert found["x"].shape == (2, 12) and found["x"].dtype == ml_dtypes.float4_e2m1fn
        low, high = codes.numpy() & 15, codes.numpy() >> 4
        assert np.array_equal(found["x"].view(np.uint8), np.stack([low, high], -1).reshape(2, 12))
        assert tw.equal(tw.tensor(pairs), found["x"])

    def test_pairs_go_in(self):
        torch = importlib.import_module("torch")
        codes = torch.arange(6, dtype=torch.uint8).reshape(2, 3) * 31
        pairs = codes.view(torch.float4_e2m1fn_x2)
        expected = tw.tensor(pairs)
        assert expected.shape == (2, 6)
        for format in ("safetensors", "npy", "protobuf", "tensorproto"):
            assert tw.equal(tw.loads(tw.dumps({"x": pairs}, format), format), {"x": expected})
        turned = codes.T.view(torch.float4_e2m1fn_x2)
        assert np.array_equal(tw.tensor(turned).view(np.uint8)[:, ::2], codes.numpy().T & 15)
        assert tw.tensor(pairs[0, 0]).shape == (2,)

    def test_out_only_by_a_cast(self):
        torch = importlib.import_module("torch")
        x = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)
        with pytest.raises(tw.EncodeError):
            tw.to(x, "torch")
        assert torch.equal(tw.to(x, "torch", cast=True), torch.from_numpy(x.astype(np.float32)))
