"""JAX: arrays and BCOO.

Without x64, JAX silently converts 64-bit types to 32-bit ones. Here that is an error, unless
`cast=True` allows it.
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
"""The alignment in bytes that memory needs for XLA to use it in place."""


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
    hint = "read it with x[...]" if type(obj).__name__ == "Ref" else None
    if isinstance(obj, sparse.JAXSparse):
        hint = "pass a BCOO: jax.experimental.sparse.BCOO.fromdense(x.todense())"
    raise EncodeError(f"JAX's {type(obj).__name__} is not an array with values", hint=hint)


def about(obj: Any) -> dict[str, str]:
    # The device of a BCOO is that of its data.
    part = getattr(obj, "data", obj)
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
            "an array that JAX is tracing (inside jit, grad, vmap ...) has no values",
            hint="call this outside of the traced function",
        )
    if jax.dtypes.issubdtype(obj.dtype, jax.dtypes.extended):
        raise EncodeError(
            f"an array of {obj.dtype} is not an array of numbers",
            hint="convert PRNG keys with jax.random.key_data(x)",
        )
    if obj.is_deleted():
        raise EncodeError("the array was deleted or donated, so it has no values")
    if not obj.is_fully_addressable:
        raise EncodeError(
            "parts of the array are in other processes",
            hint="collect it: jax.experimental.multihost_utils.process_allgather(x, tiled=True)",
        )
    # An array in host memory shares its memory, read-only.
    return plain(np.asarray(obj))


def _bcoo(obj: Any) -> Sparse:
    if obj.n_batch:
        raise EncodeError(
            "a BCOO with batch dimensions cannot be converted",
            hint="remove them with x.update_layout(n_batch=0)",
        )
    indices, values = _dense(obj.indices), _dense(obj.data)
    # JAX pads a BCOO with indices outside of the shape.
    inside = (indices < np.array(obj.shape[: indices.shape[1]], np.int64)).all(axis=1)
    return (
        Sparse(indices, values, obj.shape)
        if inside.all()
        else Sparse(indices[inside], values[inside], obj.shape)
    )


def from_tensor(tensor: Tensor, device: Any, cast: bool) -> Any:
    if isinstance(tensor, Ragged):
        raise EncodeError(
            "JAX has no ragged tensors", hint="pass x.values and each of x.row_splits"
        )
    if not isinstance(tensor, Sparse):
        return _lend(tensor, device, cast)
    values, order = _lend(tensor.values, device, cast), tensor.order
    # Indices may always become int32: `_narrow` raises for indices that do not fit.
    indices = _lend(tensor.indices, device, cast=True)
    sparse = require("jax.experimental.sparse")
    return sparse.BCOO(
        (values, indices),
        shape=tensor.shape,
        indices_sorted=order.sorted,
        unique_indices=not order.duplicates,
    )


def _lend(values: Any, device: Any, cast: bool) -> Any:
    """Return the values as a JAX array, without a copy if JAX may keep the memory.

    JAX uses aligned memory in place, even read-only memory, and copies any other in the background.
    So memory that it must not keep is copied here.
    """
    jax = _jax()
    array = _narrow(fit(values, _holds, "JAX", cast), cast)
    if not array.flags.writeable or array.__array_interface__["data"][0] % ALIGNMENT:
        own = memory.fresh(array.nbytes).view(array.dtype).reshape(array.shape)
        own[...] = array
        array = own
    return jax.device_put(array, _device(device))


def _holds(row: dtypes.DType) -> bool:
    """Return whether JAX has a dtype. It names types of 6 bits, but XLA has no arrays of them."""
    named = hasattr(_jax().numpy, row.name) and row.bits != 6
    return row.numpy.isbuiltin == 1 or named


def _narrow(array: Array, cast: bool) -> Array:
    """Return the array in the dtype that JAX would convert it to.

    Floats may be rounded. An integer that does not fit, or a float that becomes infinite, is an
    error.
    """
    narrow = np.dtype(_jax().dtypes.canonicalize_dtype(array.dtype))
    if narrow == array.dtype:
        return array
    name = dtypes.of(array.dtype).name
    if not cast:
        raise EncodeError(
            f"JAX without x64 converts {name} to {narrow}",
            hint="cast=True allows it, jax.config.update('jax_enable_x64', True) avoids it",
        )
    try:
        with np.errstate(over="raise", invalid="ignore"):
            converted = array.astype(narrow)
    except FloatingPointError:
        converted = None
    if converted is None or (array.dtype.kind in "iu" and not np.array_equal(converted, array)):
        raise EncodeError(
            f"a value does not fit {narrow}, to which JAX without x64 converts {name}",
            hint="use jax.config.update('jax_enable_x64', True)",
        )
    return converted


def _device(device: Any) -> Any:
    """Return a Device or Sharding unchanged, and a name such as "gpu:1" as a Device."""
    if not isinstance(device, str):
        return device
    platform, _, index = device.partition(":")
    try:
        return _jax().devices(platform)[int(index or 0)]
    except (RuntimeError, IndexError, ValueError) as error:
        raise EncodeError(f"JAX has no device {device!r}: {error}") from None
