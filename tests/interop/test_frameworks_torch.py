"""PyTorch in and out: every kind and layout of tensor, whose memory it is, and what has no values
to give.
"""

import warnings

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from tensorwire import frameworks
from tensorwire.testing import check_framework
from tensorwire.testing.sampling import DTYPES, layouts, numbers

# torch warns once when a test makes a sparse tensor without saying whether to check it;
# `test_conforms` shows that we do not cause it.
UNCHECKED = "ignore:Sparse invariant checks are implicitly disabled:UserWarning"
pytestmark = pytest.mark.torch

LACKS = {
    "float8_e4m3b11fnuz",
    "float8_e4m3",
    "float8_e3m4",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "int4",
    "int2",
    "uint4",
    "uint2",
}
HAS = [row for row in DTYPES if row.name not in LACKS]
BETA = "ignore:Sparse (CSR|CSC|BSR|BSC) tensor support is in beta state:UserWarning"
PROTOTYPE = "ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


def pointer(array):
    return array.view(np.uint8).__array_interface__["data"][0]


def frozen(array):
    array.flags.writeable = False
    return array


def test_conforms():
    for (kind, dtype), found in check_framework("torch").items():
        held = kind in ("scalar", "dense", "sparse", "hybrid", "ragged") and dtype not in LACKS | {
            "bytes",
            "text",
        }
        assert found == ("exact" if held else "refused"), (kind, dtype)


class TestMemory:
    @pytest.mark.parametrize("row", HAS, ids=lambda row: row.name)
    def test_in_shares_the_tensors_memory(self, torch, row):
        tensor = torch.zeros(24, dtype=getattr(torch, row.name)).reshape(4, 6)
        array = tw.tensor(tensor)
        assert array.dtype == row.numpy and pointer(array) == tensor.data_ptr()
        assert pointer(tw.tensor(tensor[2:])) == tensor[2:].data_ptr()
        assert (
            pointer(tw.tensor(tensor.requires_grad_() if tensor.is_floating_point() else tensor))
            == tensor.data_ptr()
        )

    @pytest.mark.parametrize("row", HAS, ids=lambda row: row.name)
    def test_out_shares_writable_memory_only(self, torch, row):
        array = numbers(row, (4, 6))
        assert tw.to(array, "torch").data_ptr() == pointer(array)
        assert tw.to(frozen(array.copy()), "torch").data_ptr() != pointer(array)
        assert tw.to(array.T, "torch").data_ptr() != pointer(array)
        odd = next(layout for name, layout in layouts(array) if name == "unaligned")
        assert tw.to(odd, "torch").data_ptr() != pointer(odd) or array.itemsize == 1

    def test_nobody_writes_into_bytes(self, torch):
        blob = tw.dumps(
            {
                "x": np.arange(1000.0),
                "s": tw.Sparse([[1]], [2.0], (3,)),
                "r": tw.Ragged.of([[1, 2], [3]]),
            }
        )
        before = bytes(bytearray(blob))
        back = tw.loads(blob, to="torch")
        back["x"].zero_()
        back["s"]._values().zero_()
        back["s"]._indices().zero_()
        back["r"].values().zero_()
        back["r"].offsets().zero_()
        assert blob == before

    @pytest.mark.filterwarnings(UNCHECKED)
    def test_parts_are_shared_too(self, torch):
        sparse = torch.sparse_coo_tensor([[0, 2], [1, 1]], torch.tensor([1.0, 2.0]), (3, 4))
        ours = tw.tensor(sparse)
        assert (
            pointer(ours.values) == sparse._values().data_ptr()
            and pointer(ours.indices.T) == sparse._indices().data_ptr()
        )
        again = tw.to(ours, "torch")
        assert (
            again._indices().data_ptr() == sparse._indices().data_ptr()
            and again._values().data_ptr() == sparse._values().data_ptr()
        )
        nested = torch.nested.nested_tensor_from_jagged(torch.arange(6.0), torch.tensor([0, 2, 6]))
        ours = tw.tensor(nested)
        assert (
            pointer(ours.values) == nested.values().data_ptr()
            and pointer(ours.row_splits[0]) == nested.offsets().data_ptr()
        )
        assert tw.to(ours, "torch").values().data_ptr() == nested.values().data_ptr()


class TestDense:
    def test_parameters_are_detached(self, torch):
        layer = torch.nn.Linear(3, 2)
        assert isinstance(tw.tensor(layer.weight), np.ndarray) and tw.tensor(
            layer(torch.ones(1, 3))
        ).shape == (1, 2)
        back = tw.loads(tw.dumps(layer.state_dict()), to="torch")
        layer.load_state_dict(back)
        assert back["weight"].requires_grad is False and torch.equal(back["weight"], layer.weight)

    def test_views_are_resolved(self, torch):
        z = torch.tensor([1 + 2j, 3 - 4j])
        assert z.conj().is_conj() and tw.tensor(z.conj()).tolist() == [1 - 2j, 3 + 4j]
        assert z.conj().imag.is_neg() and tw.tensor(z.conj().imag).tolist() == [-2.0, 4.0]

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "bool", "complex64"])
    def test_layouts(self, torch, dtype):
        base = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))
        for view in (
            base.transpose(0, 2),
            base[:, ::2, 1:],
            base[1, 1, 1].expand(3, 2),
            base.flip(0),
            base[:0],
            base[0, 0, 0],
        ):
            found = tw.tensor(view)
            assert (
                found.shape == tuple(view.shape)
                and found.flags.c_contiguous
                and found.astype(complex).tolist() == view.tolist()
            )

    def test_bits_survive(self, torch):
        # NaNs with payloads, -0.0, a subnormal
        bits = np.array([0x7F81, 0xFFC1, 0x8000, 1], np.uint16).view(ml_dtypes.bfloat16)
        assert tw.equal(tw.tensor(tw.to(bits, "torch")), bits)
        assert tw.tensor(torch.tensor([1.5, -2.0], dtype=torch.float8_e5m2)).tolist() == [1.5, -2.0]

    def test_subclasses(self, torch):
        class Image(torch.Tensor):
            pass

        image = torch.arange(3.0).as_subclass(Image)
        assert (
            tw.equal(image, np.arange(3, dtype=np.float32))
            and pointer(tw.tensor(image)) == image.data_ptr()
        )
        assert tw.tensor(torch.nn.Buffer(torch.ones(2))).tolist() == [1, 1]


@pytest.mark.filterwarnings(UNCHECKED)
class TestSparse:
    def test_uncoalesced_stays_so(self, torch):
        sparse = torch.sparse_coo_tensor([[2, 0, 0], [3, 1, 1]], [1.0, 2.0, 0.0], (3, 4))
        ours = tw.tensor(sparse)
        assert (
            ours.indices.tolist() == [[2, 3], [0, 1], [0, 1]]
            and ours.values.tolist() == [1, 2, 0]
            and ours.shape == (3, 4)
        )
        back = tw.to(ours, "torch")
        assert not back.is_coalesced() and torch.equal(back.to_dense(), sparse.to_dense())
        assert tw.to(ours.sort(), "torch").is_coalesced() is False  # two are equal
        assert tw.to(tw.tensor(sparse.coalesce()), "torch").is_coalesced()

    def test_embedding_gradients(self, torch):
        table = torch.nn.Embedding(10, 3, sparse=True)
        table(torch.tensor([1, 4, 1])).sum().backward()
        ours = tw.tensor(table.weight.grad)
        assert ours.values.shape == (3, 3) and ours.shape == (10, 3) and ours.order.duplicates
        back = tw.loads(tw.dumps(table.weight.grad), to="torch")
        assert back.dense_dim() == 1 and torch.equal(back.to_dense(), table.weight.grad.to_dense())

    @pytest.mark.filterwarnings(BETA)
    @pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
    @pytest.mark.parametrize("shape", [(4, 6), (2, 4, 6), (2, 3, 4, 6), (0, 6)], ids=str)
    def test_compressed(self, torch, layout, shape):
        generator = torch.Generator().manual_seed(1)
        # every batch has as many values, as torch demands
        mask = torch.rand(shape[-2:], generator=generator) < 0.4
        dense = (torch.rand(shape, generator=generator) + 1) * mask
        block = [(2, 3)] if layout in ("bsr", "bsc") else []
        ours = tw.tensor(getattr(dense, f"to_sparse_{layout}")(*block))
        assert (
            isinstance(ours, tw.Sparse)
            and ours.shape == shape
            and np.array_equal(ours.to_dense(), dense.numpy())
        )

    @pytest.mark.filterwarnings(BETA)
    @pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
    def test_compressed_hybrid(self, torch, layout):
        dense = torch.arange(48.0).reshape(4, 6, 2) * (torch.arange(4)[:, None, None] != 2)
        block = [(2, 3)] if layout in ("bsr", "bsc") else []
        ours = tw.tensor(getattr(dense, f"to_sparse_{layout}")(*block, dense_dim=1))
        assert ours.values.ndim == 2 and np.array_equal(ours.to_dense(), dense.numpy())

    @pytest.mark.filterwarnings(BETA)
    def test_stored_zeros_and_other_dtypes(self, torch):
        values = torch.tensor([1.0, 0.0, -0.0], dtype=torch.bfloat16)
        csr = torch.sparse_csr_tensor(
            torch.tensor([0, 1, 3], dtype=torch.int32),
            torch.tensor([2, 0, 1], dtype=torch.int32),
            values,
            (2, 3),
        )
        assert tw.equal(
            tw.tensor(csr),
            tw.Sparse(
                [[0, 2], [1, 0], [1, 1]], np.array([1.0, 0.0, -0.0], ml_dtypes.bfloat16), (2, 3)
            ),
        )


class TestNested:
    def test_jagged(self, torch):
        nested = torch.nested.nested_tensor(
            [torch.ones(2, 3), torch.zeros(0, 3), torch.ones(1, 3)],
            layout=torch.jagged,
            requires_grad=True,
        )
        ours = tw.tensor(nested)
        assert ours.shape == (3, None, 3) and ours.row_splits[0].tolist() == [0, 2, 2, 3]
        back = tw.loads(tw.dumps(nested), to="torch")
        assert back.layout is torch.jagged and [part.shape for part in back.unbind()] == [
            part.shape for part in nested.unbind()
        ]

    def test_offsets_of_int32_and_gaps(self, torch):
        narrow = torch.nested.nested_tensor_from_jagged(
            torch.arange(4), torch.tensor([0, 1, 4], dtype=torch.int32)
        )
        assert tw.equal(tw.tensor(narrow), tw.Ragged(np.arange(4), np.array([0, 1, 4])))
        gaps = torch.nested.narrow(
            torch.arange(12.0).reshape(3, 4),
            1,
            torch.tensor([0, 1, 2]),
            torch.tensor([3, 2, 1]),
            layout=torch.jagged,
        )
        assert gaps.lengths() is not None and tw.tensor(gaps).tolist() == [[0, 1, 2], [5, 6], [10]]
        # values that no row has
        part = torch.nested.nested_tensor_from_jagged(torch.arange(9), torch.tensor([0, 2, 5]))
        assert tw.tensor(part).tolist() == [[0, 1], [2, 3, 4]]
        with pytest.raises(tw.EncodeError, match="transpose it"):
            tw.tensor(
                torch.nested.nested_tensor_from_jagged(
                    torch.ones(4, 3), torch.tensor([0, 1, 4])
                ).transpose(1, 2)
            )

    @pytest.mark.filterwarnings(PROTOTYPE)
    def test_strided_is_a_list(self, torch):
        parts = [torch.arange(6.0).reshape(2, 3), torch.ones(1, 5)]
        nested = torch.nested.nested_tensor(parts)
        ours = tw.tensor(nested)
        assert isinstance(ours, list) and tw.equal(ours, [part.numpy() for part in parts])
        assert [torch.equal(a, b) for a, b in zip(tw.to(nested, "torch"), parts, strict=True)] == [
            True,
            True,
        ]

    @pytest.mark.parametrize(
        ("ragged", "message"),
        [
            (tw.Ragged.of([[[1], []], [[2]]]), "one ragged dimension, not 2"),
            (tw.Ragged.of([[1], [2]], splits=np.int32), r"astype\('int64'\)"),
            (tw.Ragged([1, 2], [0, 1, 2], 1), "reshape x.values"),
            (tw.Ragged.of([["a"], []]), "no string tensors"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_refused(self, ragged, message):
        with pytest.raises(tw.EncodeError, match=message):
            tw.to(ragged, "torch")


@pytest.mark.filterwarnings(UNCHECKED)
class TestNoValues:
    def refused(self, obj, message):
        with pytest.raises(tw.EncodeError, match=message):
            tw.tensor(obj)
        assert frameworks.identity(obj) is None

    def test_meta_and_fake(self, torch):
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.refused(torch.empty(3, device="meta"), "meta tensor has no values")
        self.refused(
            torch.sparse_coo_tensor(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(2), (3,)).to(
                "meta"
            ),
            "meta",
        )
        with FakeTensorMode():
            fake = torch.empty(3)
        self.refused(fake, "FakeTensor is not a plain tensor")
        self.refused(torch.nn.parameter.UninitializedParameter(), "run its lazy module once")
        self.refused(torch.nn.LazyLinear(3).weight, "run its lazy module once")

    def test_freed_memory(self, torch):
        """NumPy would read garbage from it."""
        tensor = torch.ones(10)
        tensor.untyped_storage().resize_(0)
        self.refused(tensor, "was freed")
        self.refused(tensor.view(2, 5), "was freed")

    def test_inside_transforms(self, torch):
        seen = []

        def work(x):
            self.refused(x, r"inside torch\.func")
            seen.append(x)
            return (x * 2).sum()

        torch.func.vmap(work)(torch.ones(3, 2))
        torch.func.grad(work)(torch.ones(3))
        torch.func.functionalize(work)(torch.ones(3))  # NumPy would read garbage from this one
        assert len(seen) == 3

    def test_quantized(self, torch):
        with warnings.catch_warnings(action="ignore"):
            quantized = torch.quantize_per_tensor(torch.arange(3.0), 0.1, 0, torch.qint8)
        self.refused(quantized, r"x\.dequantize\(\), or x\.int_repr\(\)")

    def test_other_kinds(self, torch):
        from torch.masked import MaskedTensor

        with warnings.catch_warnings(action="ignore"):
            self.refused(
                MaskedTensor(torch.ones(2), torch.tensor([True, False])),
                "MaskedTensor is not a plain tensor",
            )
            half = torch.zeros(2, dtype=torch.complex32)
        self.refused(torch.zeros(2).to_mkldnn(), r"x\.to_dense\(\)")
        for obj, name in ((half, "complex32"), (torch.empty(2, dtype=torch.uint4), "uint4")):
            with pytest.raises(
                tw.EncodeError,
                match=rf"{name} is not supported; convert it with x\.to.*view\(torch\.uint8\)",
            ):
                tw.tensor(obj)

    def test_no_tensors(self, torch):
        with pytest.raises(tw.EncodeError, match=r"Linear is not a tensor; pass x\.state_dict\(\)"):
            tw.dumps(torch.nn.Linear(1, 1))
        with pytest.raises(tw.EncodeError, match=r"Size is not a tensor .*; pass tuple\(x\)"):
            tw.dumps({"shape": torch.Size([1, 2])})
        with pytest.raises(tw.EncodeError, match="dtype is not a tensor"):
            tw.dumps({"dtype": torch.float32})


class TestOut:
    @pytest.mark.parametrize(
        "row", [row for row in DTYPES if row.name in LACKS], ids=lambda row: row.name
    )
    def test_cast(self, torch, row):
        values = np.arange(1 << row.bits, dtype=np.uint8).view(row.numpy)
        with pytest.raises(tw.EncodeError, match=f"torch has no {row.name}; cast=True converts it"):
            tw.to(values, "torch")
        cast = tw.to(values, "torch", cast=True)
        assert cast.dtype == (
            torch.int8
            if row.name.startswith("int")
            else torch.uint8
            if row.name.startswith("u")
            else torch.float32
        )
        assert np.array_equal(
            cast.numpy().astype(np.float64), values.astype(np.float64), equal_nan=True
        )
        assert (
            tw.to(tw.Sparse([[0]], values[:1], (2,)), "torch", cast=True)._values().dtype
            == cast.dtype
        )

    def test_devices(self, torch):
        assert tw.to(np.zeros(2), "torch", device="cpu").device.type == "cpu"
        assert tw.to(np.zeros(2), "torch", device=torch.device("meta")).is_meta
        assert tw.loads(tw.dumps([np.zeros(2)]), to="torch", device="meta")[0].is_meta
        assert tw.to(tw.Sparse([[0]], [1.0], (2,)), "torch", device="meta").is_meta
        assert tw.tensor(torch.zeros(2), keep_device=True).tensor_metadata == {
            "tensor": {"device": "cpu"}
        }
        assert frameworks.about(torch.empty(0, device="meta")) == {"device": "meta"}

    def test_loads(self, torch):
        value = {
            "x": np.float32([1]),
            "l": [tw.Ragged.of([[1], [2, 3]]), 3, None],
            "t": (tw.Sparse([[0]], [1], [1]),),
        }
        back = tw.loads(tw.dumps(value), to="torch")
        assert (
            isinstance(back["x"], torch.Tensor)
            and back["l"][0].is_nested
            and back["l"][1:] == [3, None]
            and back["t"][0].is_sparse
        )
        with pytest.raises(tw.EncodeError, match="no string tensors"):
            tw.loads(tw.dumps([tw.Strings.of(["a"])]), to="torch")


class TestTied:
    def test_identity(self, torch):
        weight = torch.nn.Parameter(torch.ones(3, 3))
        same = frameworks.identity(weight)
        assert same is not None and {same: 1}[frameworks.identity(weight.detach())] == 1
        assert (
            frameworks.identity(weight.data.view(3, 3)) == same
            and frameworks.identity(weight.T.T) == same
        )
        others = (
            weight.T,
            weight[1:],
            weight.view(9),
            weight.data.view(torch.int32),
            torch.ones(3, 3),
            weight.detach().clone(),
        )
        assert all(frameworks.identity(other) not in (None, same) for other in others)
        z = torch.ones(2, dtype=torch.complex64)
        assert frameworks.identity(z) != frameworks.identity(z.conj())

    @pytest.mark.filterwarnings(UNCHECKED)
    def test_what_has_none(self, torch):
        coo = torch.sparse_coo_tensor([[0]], [1.0], (2,))
        jagged = torch.nested.nested_tensor_from_jagged(torch.ones(2), torch.tensor([0, 2]))
        for other in (
            torch.ones(0),
            coo,
            jagged,
            np.ones(2),
            3,
            torch.Size([1]),
            torch.nn.Linear(1, 1),
        ):
            assert frameworks.identity(other) is None

    def test_one_array_in_two_places_is_one_tensor(self, torch):
        array = frozen(np.ones(3))
        back = frameworks.each({"a": array, "b": [array, (array.copy(),)]}, "torch")
        assert back["a"] is back["b"][0] and back["a"].data_ptr() != back["b"][1][0].data_ptr()
