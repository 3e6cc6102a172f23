"""JAX: arrays and BCOO. Without x64 JAX makes 32-bit types of 64-bit ones in silence; here that is
an error, or what `cast=True` is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import EncodeError
from .._optional import require
from ..core import dtypes, memory
from ..core.tensors import Array, Ragged, Sparse, Tensor
from .casting import fit
from .numpy import plain

ALIGNMENT = 64
"""Bytes to which memory must be aligned for XLA to use it in place."""


def _jax() -> Any:
    return require("jax")


def to_tensor(obj: Any) -> Tensor:
    jax = _jax()
    if isinstance(obj, (jax.Array, jax.core.Tracer)):
        return _dense(obj)
    sparse = require("jax.experimental.sparse")
    if isinstance(obj, sparse.BCSR):
        obj = obj.to_bcoo()
    if isinstance(obj, sparse.BCOO):
        return _bcoo(obj)
    hint = "; x[...] reads it" if type(obj).__name__ == "Ref" else ""
    if isinstance(obj, sparse.JAXSparse):
        hint = "; pass a BCOO, which jax.experimental.sparse.BCOO.fromdense(x.todense()) makes"
    raise EncodeError(f"JAX's {type(obj).__name__} is no array with values{hint}")


def about(obj: Any) -> dict[str, str]:
    part = getattr(obj, "data", obj)  # a BCOO is where its data is
    devices = part.devices() if hasattr(part, "devices") else ()
    return {
        "device": (
            ",".join(sorted(f"{device.platform}:{device.id}" for device in devices)) or "cpu:0"
        )
    }


def _dense(obj: Any) -> Array:
    jax = _jax()
    if isinstance(obj, jax.core.Tracer):
        raise EncodeError(
            "an array that JAX is tracing (inside jit, grad, vmap ...) has no values; call this"
            " outside of it"
        )
    if jax.dtypes.issubdtype(obj.dtype, jax.dtypes.extended):
        raise EncodeError(
            f"an array of {obj.dtype} is no array of numbers; jax.random.key_data(x) makes one of"
            " PRNG keys"
        )
    if obj.is_deleted():
        raise EncodeError("this array was deleted or donated, so its values are gone")
    if not obj.is_fully_addressable:
        raise EncodeError(
            "parts of this array are in other processes;"
            " jax.experimental.multihost_utils.process_allgather(x, tiled=True) collects them"
        )
    return plain(np.asarray(obj))  # in host memory: the array's own, read-only


def _bcoo(obj: Any) -> Sparse:
    if obj.n_batch:
        raise EncodeError(
            "a BCOO with batch dimensions; x.update_layout(n_batch=0) makes one without"
        )
    indices, values = _dense(obj.indices), _dense(obj.data)
    # what lies outside is padding
    inside = (indices < np.array(obj.shape[: indices.shape[1]], np.int64)).all(axis=1)
    return (
        Sparse(indices, values, obj.shape)
        if inside.all()
        else Sparse(indices[inside], values[inside], obj.shape)
    )


def from_tensor(tensor: Tensor, device: Any, cast: bool) -> Any:
    if isinstance(tensor, Ragged):
        raise EncodeError("JAX has no ragged tensors; pass x.values and each of x.row_splits")
    if not isinstance(tensor, Sparse):
        return _lend(tensor, device, cast)
    values, order = _lend(tensor.values, device, cast), tensor.order
    indices = _lend(tensor.indices, device, cast=True)  # which fails for indices that do not fit
    sparse = require("jax.experimental.sparse")
    return sparse.BCOO(
        (values, indices),
        shape=tensor.shape,
        indices_sorted=order.sorted,
        unique_indices=not order.duplicates,
    )


def _lend(values: Any, device: Any, cast: bool) -> Any:
    """JAX uses aligned memory in place, read-only memory too, and copies the rest in the
    background; so we copy what it may not have.
    """
    jax = _jax()
    array = _narrow(fit(values, _holds, "JAX", cast), cast)
    if not array.flags.writeable or array.__array_interface__["data"][0] % ALIGNMENT:
        own = memory.fresh(array.nbytes).view(array.dtype).reshape(array.shape)
        own[...] = array
        array = own
    return jax.device_put(array, _device(device))


def _holds(row: dtypes.DType) -> bool:
    """JAX names the types of 6 bits too, but XLA has no arrays of them."""
    named = hasattr(_jax().numpy, row.name) and row.bits != 6
    return row.numpy.isbuiltin == 1 or named


def _narrow(array: Array, cast: bool) -> Array:
    """The array in the dtype that JAX would make of it; floats may be rounded, integers and
    infinities never made of others.
    """
    narrow = np.dtype(_jax().dtypes.canonicalize_dtype(array.dtype))
    if narrow == array.dtype:
        return array
    name = dtypes.of(array.dtype).name
    if not cast:
        raise EncodeError(
            f"JAX without x64 turns {name} into {narrow}; cast=True allows it,"
            " jax.config.update('jax_enable_x64', True) avoids it"
        )
    try:
        with np.errstate(over="raise", invalid="ignore"):
            found = array.astype(narrow)
    except FloatingPointError:
        found = None
    if found is None or (array.dtype.kind in "iu" and not np.array_equal(found, array)):
        raise EncodeError(
            f"a value past {narrow}, which is what JAX without x64 has for {name};"
            " jax.config.update('jax_enable_x64', True)"
        )
    return found


def _device(device: Any) -> Any:
    """A Device or Sharding as it is; "cpu", "gpu:1" by platform and position."""
    if not isinstance(device, str):
        return device
    platform, _, index = device.partition(":")
    try:
        return _jax().devices(platform)[int(index or 0)]
    except (RuntimeError, IndexError, ValueError) as error:
        raise EncodeError(f"JAX has no device {device!r}: {error}") from None
