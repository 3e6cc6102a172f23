"""PyArrow: arrays of numbers, strings and lists, fixed-shape tensors, Tensor and SparseCOOTensor.

An Arrow array has rows, so at least one dimension. Lists are ragged dimensions, fixed-size lists
dense ones. Arrow's memory is read-only.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import EncodeError
from .._optional import require
from ..core import memory
from ..core.tensors import Array, Ragged, Sparse, Strings, Tensor
from ..wire import arrow_ipc as ipc
from ..wire.arrow_columns import STRINGS, TEXT, ArrowColumns, dtype_of, holds
from .casting import fit
from .numpy import plain

if TYPE_CHECKING:
    import pyarrow as pa


def _pa() -> Any:
    return require("pyarrow", extra="arrow")


def to_tensor(obj: Any) -> Tensor:
    pa = _pa()
    if isinstance(obj, pa.Tensor):
        return plain(obj.to_numpy())
    if isinstance(obj, pa.SparseCOOTensor):
        values, indices = obj.to_numpy()
        return Sparse(indices, plain(values.reshape(-1)), obj.shape)
    if not isinstance(obj, (pa.Array, pa.ChunkedArray)):
        hints = {
            (pa.Table, pa.RecordBatch): "pass dict(zip(x.column_names, x.columns))",
            (pa.SparseCSRMatrix, pa.SparseCSCMatrix): "pass x.to_scipy()",
            (pa.SparseCSFTensor,): "pass x.to_tensor()",
            (pa.Scalar,): "pass x.as_py()",
        }
        raise EncodeError(
            f"Arrow's {type(obj).__name__} cannot be converted to a tensor",
            hint=next((hint for kinds, hint in hints.items() if isinstance(obj, kinds)), None),
        )
    splits: list[Array] = []
    uniform: list[int | None] = []
    rows = _whole(obj)
    while _is_ragged(rows.type):
        if pa.types.is_fixed_size_list(rows.type):
            splits.append(np.arange(len(rows) + 1) * rows.type.list_size)
            uniform.append(rows.type.list_size)
            rows = _whole(_cells(rows))
        else:
            bounds = _numbers(rows.offsets)
            splits.append(bounds - bounds[0] if bounds[0] else bounds)
            uniform.append(None)
            rows = _whole(rows.values.slice(bounds[0], bounds[-1] - bounds[0]))
    if not splits:
        return _items(rows)
    lists = {part.dtype for part, length in zip(splits, uniform, strict=True) if length is None}
    small = lists == {np.dtype(np.int32)} and all(
        part[-1] <= np.iinfo(np.int32).max for part in splits
    )
    return Ragged(
        _items(rows),
        [part.astype(np.int32 if small else np.int64, copy=False) for part in splits],
        uniform,
    )


def about(obj: object) -> dict[str, str]:
    return {"device": "cpu"}


def _is_ragged(kind: pa.DataType) -> bool:
    types = _pa().types
    return (
        types.is_list(kind)
        or types.is_large_list(kind)
        or (types.is_fixed_size_list(kind) and _is_ragged(kind.value_type))
    )


def _whole(rows: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array without a dictionary and without nulls."""
    pa = _pa()
    if isinstance(rows, pa.ChunkedArray):
        # Together, the chunks may need 64-bit offsets.
        if pa.types.is_string(rows.type) or pa.types.is_binary(rows.type):
            rows = rows.cast(
                pa.large_string() if pa.types.is_string(rows.type) else pa.large_binary()
            )
        # combine_chunks would copy a single chunk.
        rows = rows.chunk(0) if rows.num_chunks == 1 else rows.combine_chunks()
    if pa.types.is_dictionary(rows.type):
        rows = rows.dictionary_decode()
    if rows.null_count:
        raise EncodeError(
            f"the array has {rows.null_count} nulls, which a tensor cannot have",
            hint="use fill_null(...) or drop_null() first",
        )
    return rows


def _items(rows: pa.Array) -> Array | Strings:
    """Return one element, or one dense row, for each row."""
    pa, kind = _pa(), rows.type
    if isinstance(kind, pa.FixedShapeTensorType):
        cells = _items(_whole(rows.storage)).reshape(len(rows), *kind.shape)
        order = [0, *(axis + 1 for axis in kind.permutation or range(len(kind.shape)))]
        return plain(np.asarray(cells).transpose(order))
    if pa.types.is_fixed_size_list(kind):
        inner = _items(_whole(_cells(rows)))
        return inner.reshape(len(rows), kind.list_size, *inner.shape[1:])
    for text, names in (
        (True, ("string", "large_string", "string_view")),
        (False, ("binary", "large_binary", "binary_view")),
    ):
        if any(getattr(pa.types, f"is_{name}")(kind) for name in names):
            return _strings(rows, text)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(rows)
    hint = "pass each field" if pa.types.is_struct(kind) else None
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        hint = f"cast it to int{kind.bit_width} and keep the unit"
    if isinstance(kind, pa.BaseExtensionType):
        hint = "pass x.storage"
    raise EncodeError(f"there is no tensor type for Arrow's {kind}", hint=hint)


def _cells(rows: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the items of fixed-size lists, concatenated."""
    size = rows.type.list_size
    return rows.values.slice(rows.offset * size, len(rows) * size)


def _numbers(rows: pa.Array) -> Array:
    """Return the memory of an array; bits become bytes.

    Arrow's to_numpy would import pandas if it is installed, which takes a third of a second.
    """
    dtype = np.dtype(rows.type.to_pandas_dtype())
    _, data = rows.buffers()
    # An empty array need not have any memory.
    if not len(rows):
        return memory.read_only(np.empty(0, dtype))
    if dtype != np.bool_:
        return memory.read_only(np.frombuffer(data, dtype, len(rows), rows.offset * dtype.itemsize))
    first, skipped = divmod(rows.offset, 8)
    bits = np.unpackbits(
        np.frombuffer(data, np.uint8, offset=first), count=skipped + len(rows), bitorder="little"
    )
    return memory.read_only(bits[skipped:].view(np.bool_))


def _strings(rows: pa.Array, text: bool) -> Strings:
    pa = _pa()
    kind = rows.type
    if not (pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)):
        # The cast copies the offsets, and for views the data too.
        rows = rows.cast(pa.large_string() if text else pa.large_binary())
    _, bounds, data = rows.buffers()
    # An empty array need not have any offsets.
    if not len(rows):
        return Strings(b"", [0], text=text)
    offsets = memory.read_only(np.frombuffer(bounds, np.int64, len(rows) + 1, rows.offset * 8))
    data = memory.read_only(np.frombuffer(data, np.uint8))
    return Strings(
        data[offsets[0] : offsets[-1]], offsets - offsets[0] if offsets[0] else offsets, text=text
    )


def from_tensor(tensor: Tensor, device: object, cast: bool) -> pa.Array | pa.SparseCOOTensor:
    if isinstance(tensor, Sparse):
        return _sparse(tensor, cast)
    if not tensor.shape:
        raise EncodeError("Arrow has no arrays without dimensions", hint="pass x.reshape(1)")
    columns = ArrowColumns()
    if not isinstance(tensor, Ragged):
        columns.add_dense("", _fitted(tensor, cast), {})
    elif tensor.uniform[-1] is None:
        splits = [plain(part) for part in tensor.row_splits]
        columns.add_lists("", _fitted(tensor.values, cast), splits, tensor.uniform)
    else:
        raise EncodeError(
            "Arrow cannot distinguish a last ragged dimension of uniform length from a dense one",
            hint="reshape x.values",
        )
    return pyarrow_arrays(columns, [_type(tuple(columns.fields))])[0]


def _fitted(values: Array | Strings, cast: bool) -> Array | Strings:
    return values if isinstance(values, Strings) else fit(values, holds, "Arrow", cast)


@functools.lru_cache(256)
def _type(fields: tuple[tuple[object, ...], ...]) -> pa.DataType:
    """Return pyarrow's type of a column."""
    return _next_type(iter(fields))


def _next_type(fields: Iterator[tuple[Any, ...]]) -> pa.DataType:
    pa = _pa()
    _, kind, width, signed, children, _, pairs = next(fields)
    if children:
        inner = _next_type(fields)
        shape = dict(pairs).get("ARROW:extension:metadata")
        if shape is not None:
            return pa.fixed_shape_tensor(inner, json.loads(shape)["shape"])
        if kind == ipc.FIXED_LIST:
            return pa.list_(inner, width)
        return pa.list_(inner) if kind == ipc.LIST else pa.large_list(inner)
    if kind in STRINGS:
        return pa.large_string() if kind in TEXT else pa.large_binary()
    dtype = dtype_of(kind, width, signed)
    assert dtype is not None
    return pa.from_numpy_dtype(dtype.numpy)


def pyarrow_arrays(columns: ArrowColumns, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return columns as pyarrow arrays of these types, which share the memory."""
    pa = _pa()
    nodes, memories = iter(columns.nodes), iter(columns.arrays)
    return [_array(pa, kind, nodes, memories) for kind in types]


def _array(
    pa: ModuleType,
    kind: pa.DataType,
    nodes: Iterator[tuple[int, int]],
    memories: Iterator[Array],
) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        storage = _array(pa, kind.storage_type, nodes, memories)
        return pa.ExtensionArray.from_storage(kind, storage)
    length, nulls = next(nodes)
    validity = next(memories)
    buffers = [pa.py_buffer(validity) if len(validity) else None]
    for _ in range(kind.num_buffers - 1):
        buffers.append(pa.py_buffer(next(memories)))
    if not kind.num_fields:
        return pa.Array.from_buffers(kind, length, buffers, nulls)
    children = [_array(pa, kind.field(i).type, nodes, memories) for i in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, length, buffers, nulls, children=children)


def _sparse(tensor: Sparse, cast: bool) -> pa.SparseCOOTensor:
    if len(tensor.values.shape) != 1:
        raise EncodeError("Arrow has no hybrid sparse tensors", hint="pass x.to_dense()")
    values = fit(
        tensor.values,
        lambda row: holds(row) and row.name != "bool",
        "Arrow's SparseCOOTensor",
        cast,
    )
    indices = plain(tensor.indices)
    # Arrow rejects the strides that NumPy gives to empty arrays.
    if not indices.size:
        indices = np.lib.stride_tricks.as_strided(indices, strides=(8, 8))
    return _pa().SparseCOOTensor.from_numpy(values, indices, tensor.shape)
