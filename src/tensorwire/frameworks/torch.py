"""PyTorch: dense, sparse and nested tensors.

torch has no read-only memory, so `from_tensor` shares writable memory only and copies any other.
`to_tensor` shares the memory of the tensor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from .._errors import EncodeError
from .._optional import require
from ..core import dtypes
from ..core.tensors import Array, Ragged, Sparse, Tensor
from .casting import fit
from .numpy import plain

_PAIRS = "float4_e2m1fn_x2"
"""torch's dtype with two float4_e2m1fn per element, the first in the lower half."""
_BITS = {"bfloat16": "int16"} | dict.fromkeys(
    ("float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "uint8",
)
"""Dtypes that NumPy has from ml_dtypes are passed to torch as integers of the same width."""


@functools.cache
def _torch() -> Any:
    return require("torch")


def to_tensor(obj: Any) -> Tensor | list[Array]:
    """Return a torch tensor as our tensor.

    A nested tensor of the strided layout becomes a list of arrays, because its parts may differ in
    every dimension.
    """
    torch = _torch()
    if not isinstance(obj, torch.Tensor):
        hints = {"Module": "pass x.state_dict()", "Size": "pass tuple(x)"}
        raise EncodeError(
            f"torch's {type(obj).__name__} is not a tensor",
            hint=next(
                (hints[base.__name__] for base in type(obj).__mro__ if base.__name__ in hints), None
            ),
        )
    if torch.nn.parameter.is_lazy(obj):
        raise EncodeError(
            "an uninitialized parameter has no values", hint="run its lazy module once"
        )
    if obj.is_nested:
        return (
            _jagged(obj) if obj.layout is torch.jagged else [_dense(part) for part in obj.unbind()]
        )
    if obj.layout is torch.sparse_coo:
        # indices() would raise for an uncoalesced tensor.
        return Sparse(_dense(obj._indices()).T, _dense(obj._values()), obj.shape)
    if obj.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return _compressed(obj)
    return _dense(obj)


def about(obj: Any) -> dict[str, str]:
    return {"device": str(getattr(obj, "device", "cpu"))}


def identity(obj: Any) -> Hashable | None:
    """Return a key that is equal for tensors that are the same view of the same memory.

    Tied weights are such tensors. Returns None for tensors that cannot be compared.
    """
    torch = _torch()
    if (
        not isinstance(obj, torch.Tensor)
        or obj.layout is not torch.strided
        or _refusal(obj)
        or not obj.numel()
    ):
        return None
    return (
        obj.device,
        obj.data_ptr(),
        obj.dtype,
        tuple(obj.shape),
        obj.stride(),
        obj.is_conj(),
        obj.is_neg(),
    )


def _refusal(obj: Any) -> str | None:
    """Return why a tensor has no values of its own and what to do, or None if it has.

    Reading such a tensor may return garbage instead of raising an error.
    """
    torch = _torch()
    if torch.nn.parameter.is_lazy(obj) or obj.is_nested:
        return "it has no memory of its own"
    if obj.is_meta:
        return "a meta tensor has no values; load it, or materialize it on a device"
    if torch._C._functorch.is_functorch_wrapped_tensor(obj) or torch._is_functional_tensor(obj):
        return (
            "a tensor inside torch.func (vmap, grad, functionalize) has no values; call this outside"
            " of the function"
        )
    if type(obj).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return (
            f"a {type(obj).__name__} is not a plain tensor (but fake, distributed or masked); pass"
            " the tensor that it represents"
        )
    if obj.is_quantized:
        return (
            "a quantized tensor would lose its scale and zero point; pass x.dequantize(), or"
            " x.int_repr() and both of them"
        )
    if obj.layout is not torch.strided:
        return f"a tensor of layout {obj.layout} cannot be read; pass x.to_dense()"
    if obj.numel() and not obj.untyped_storage().nbytes():
        return (
            "the memory of this tensor was freed (as FSDP does with sharded tensors); gather it"
            " first"
        )
    return None


def _dense(obj: Any) -> Array:
    torch, why = _torch(), _refusal(obj)
    if why is not None:
        raise EncodeError(why)
    host = obj.detach().cpu().resolve_conj().resolve_neg()
    if str(host.dtype) == f"torch.{_PAIRS}":
        return _unpaired(host.contiguous().view(torch.uint8).numpy())
    row = _row(host.dtype)
    if row.name in _BITS:
        return plain(host.view(getattr(torch, _BITS[row.name])).numpy().view(row.numpy))
    return plain(host.numpy())


def _unpaired(codes: Array) -> Array:
    """Return both halves of each byte: the last dimension is twice as long."""
    shape = (*codes.shape[:-1], 2 * codes.shape[-1]) if codes.ndim else (2,)
    halves = dtypes.unpack(4, codes.reshape(-1))
    return halves.view(dtypes.BY_NAME["float4_e2m1fn"].numpy).reshape(shape)


@functools.cache
def _row(dtype: Any) -> dtypes.DType:
    name = str(dtype).removeprefix("torch.")
    row = dtypes.BY_NAME.get(name)
    if row is None or not _holds(row):
        raise EncodeError(
            f"torch's {name} is not supported",
            hint="convert it with x.to(...), or pass its bytes: x.view(torch.uint8)",
        )
    return row


def _holds(row: dtypes.DType) -> bool:
    """Return whether torch has tensors of a dtype.

    torch also names int4 and the like, but has no operations for them, not even reading.
    """
    return hasattr(_torch(), row.name) and (row.numpy.isbuiltin == 1 or row.name in _BITS)


def _jagged(obj: Any) -> Ragged:
    if obj._ragged_idx != 1:
        raise EncodeError(
            f"the ragged dimension of a nested tensor must be 1, not {obj._ragged_idx}",
            hint="transpose it",
        )
    # Rows may have gaps between them, as nested.narrow makes.
    if obj.lengths() is not None:
        obj = obj.contiguous()
    splits = _dense(obj.offsets()).astype(np.int64, copy=False)
    values = _dense(obj.values())[splits[0] : splits[-1]]
    return Ragged(values, splits - splits[0] if splits[0] else splits)


def _compressed(obj: Any) -> Sparse:
    """Return CSR, CSC, BSR and BSC tensors as COO, also batched and hybrid ones.

    The values stay in the order in which they are stored.
    """
    torch = _torch()
    by_row = obj.layout in (torch.sparse_csr, torch.sparse_bsr)
    starts = _dense(obj.crow_indices() if by_row else obj.ccol_indices())
    minor = _dense(obj.col_indices() if by_row else obj.row_indices())
    values, batch, count = _dense(obj.values()), starts.shape[:-1], minor.size
    major = np.repeat(
        np.tile(np.arange(starts.shape[-1] - 1), math.prod(batch)), np.diff(starts).reshape(-1)
    )
    values = values.reshape(count, *values.shape[minor.ndim :])
    # CSR and CSC are BSR and BSC with blocks of one value.
    if obj.layout in (torch.sparse_csr, torch.sparse_csc):
        values = values[:, None, None]
    _, high, wide, *inner = values.shape
    rows, columns = (major, minor.reshape(-1)) if by_row else (minor.reshape(-1), major)
    cells: list[Array] = (
        [np.repeat(np.arange(math.prod(batch)), minor.shape[-1])[:, None, None]] if batch else []
    )
    cells += [
        rows[:, None, None] * high + np.arange(high)[:, None],
        columns[:, None, None] * wide + np.arange(wide),
    ]
    flat = [np.broadcast_to(cell, (count, high, wide)).reshape(-1) for cell in cells]
    indices = np.stack([*np.unravel_index(flat[0], batch), *flat[1:]] if batch else flat, axis=1)
    return Sparse(indices, values.reshape(count * high * wide, *inner), obj.shape)


def from_tensor(tensor: Tensor, device: Any, cast: bool) -> Any:
    torch = _torch()
    if isinstance(tensor, Sparse):
        order = tensor.order
        values = _lend(tensor.values, device, cast)
        # Not every kernel of torch respects the strides, so the indices are made contiguous.
        indices = _lend(tensor.indices.T, device, cast)
        coalesced = order.sorted and not order.duplicates
        return torch.sparse_coo_tensor(
            indices, values, tensor.shape, check_invariants=False, is_coalesced=coalesced
        )
    if isinstance(tensor, Ragged):
        if tensor.ragged_rank > 1:
            raise EncodeError(
                f"torch's nested tensors have one ragged dimension, not {tensor.ragged_rank}",
                hint="convert the rows one by one",
            )
        if tensor.uniform[0] is not None:
            raise EncodeError(
                "torch has no ragged dimension of uniform length",
                hint="reshape x.values, which are dense",
            )
        if tensor.row_splits[0].dtype != np.int64:
            raise EncodeError(
                "torch's nested tensors need int64 offsets",
                hint="pass tw.Ragged(x.values, x.row_splits[0].astype('int64'))",
            )
        return torch.nested.nested_tensor_from_jagged(
            _lend(tensor.values, device, cast), _lend(tensor.row_splits[0], device, cast)
        )
    return _lend(tensor, device, cast)


def _lend(values: Any, device: Any, cast: bool) -> Any:
    torch = _torch()
    array = fit(values, _holds, "torch", cast)
    if not array.flags.writeable:
        array = array.copy()
    name = dtypes.of(array.dtype).name
    bits = _BITS.get(name)
    lent = torch.from_numpy(array if bits is None else array.view(bits))
    lent = lent if bits is None else lent.view(getattr(torch, name))
    return lent if device is None else lent.to(device)
