"""Tensors as Arrow columns: types, metadata and buffers, without pyarrow.

Used by `frameworks.arrow`, which creates pyarrow arrays, and by the codecs of Arrow and Parquet
files.

    tensor                                 Arrow column with one row per item
    numbers, bools of one dimension        the same type
    strings of one dimension               large_string for text, else large_binary
    numbers of more dimensions             fixed_shape_tensor; with `plain`, rows of one dimension
                                           as fixed_size_list
    strings of more dimensions             fixed_size_list for each further dimension
    Ragged                                 list (int32 splits) or large_list for each ragged
                                           dimension, around the type of its values
    a row without a value                  null, if the caller says which rows those are

If the type is not enough to restore a tensor, the field has metadata: JSON under the key
"tensorwire" (`FieldNotes`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._errors import DecodeError, EncodeError
from ..core import dtypes, memory
from ..core.memory import Buffer
from ..core.tensors import Array, Strings
from . import arrow_ipc as ipc
from . import json as jsontext

KEY = "tensorwire"
"""The key of tensorwire's metadata, in a schema and in a field."""
PRESENT = "/present"
"""The suffix of a column of bools that tell which rows of the column without it have a value."""
_TENSOR = "arrow.fixed_shape_tensor"
_EXTENSION, _PARAMETERS = "ARROW:extension:name", "ARROW:extension:metadata"
_INT32_MAX = (1 << 31) - 1
_SMALL, _LARGE = np.dtype("int32"), np.dtype("int64")
LISTS: dict[int, np.dtype[Any]] = {ipc.LIST: _SMALL, ipc.LARGE_LIST: _LARGE}
STRINGS: dict[int, np.dtype[Any]] = {
    ipc.BINARY: _SMALL,
    ipc.TEXT: _SMALL,
    ipc.LARGE_BINARY: _LARGE,
    ipc.LARGE_TEXT: _LARGE,
}
"""String types -> dtype of their offsets."""
TEXT = (ipc.TEXT, ipc.LARGE_TEXT, ipc.TEXT_VIEW)
Part = Array | Strings
Pairs = tuple[tuple[str, str], ...]
"""The metadata of a field."""


class NumberType(NamedTuple):
    """An Arrow type of numbers, as in a schema message."""

    kind: int
    width: int
    signed: int


_NUMBERS = {
    f"{sign}int{bits}": NumberType(ipc.INT, bits, int(not sign))
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
} | {
    "float16": NumberType(ipc.FLOAT, 0, 0),
    "float32": NumberType(ipc.FLOAT, 1, 0),
    "float64": NumberType(ipc.FLOAT, 2, 0),
    "bool": NumberType(ipc.BOOL, 0, 0),
}
_DTYPES = {kind: dtypes.named(name) for name, kind in _NUMBERS.items()}


def holds(dtype: dtypes.DType) -> bool:
    """Return whether Arrow has a type for these elements."""
    return dtype.arrow is not None


def dtype_of(kind: int, width: int, signed: int) -> dtypes.DType | None:
    """Return the dtype of an Arrow type of numbers; None for other types.

    >>> dtype_of(ipc.INT, 16, 0).name, dtype_of(ipc.FLOAT, 1, 0).name
    ('uint16', 'float32')
    """
    return _DTYPES.get(NumberType(kind, width, int(bool(signed)) if kind == ipc.INT else 0))


@dataclass(frozen=True, slots=True)
class FieldNotes:
    """The metadata of a field: what its type does not tell about the tensor."""

    dtype: str | None = None
    """The dtype of the numbers, if Arrow has no type for it."""
    shape: list[int] | None = None
    """The shape of a tensor whose elements are all in the single row of a list."""
    inner: list[int] | None = None
    """The dimensions of a row, if rows have no elements and are stored as empty lists."""
    uniform: list[int | None] | None = None
    """The uniform row lengths of a Ragged."""

    def pairs(self) -> Pairs:
        """Return the notes as metadata pairs, empty if there are none."""
        notes = {
            name: value
            for name in ("shape", "inner", "dtype", "uniform")
            if (value := getattr(self, name)) is not None
        }
        return ((KEY, jsontext.write(notes).decode()),) if notes else ()

    @classmethod
    def of(cls, field: ipc.IpcField) -> FieldNotes:
        """Return the notes in the metadata of a field. Raises DecodeError if they are not valid."""
        text = field.metadata.get(KEY)
        if text is None:
            return _NONE
        notes = jsontext.parse(text.encode(), ipc.FORMAT)
        if not isinstance(notes, dict) or not notes.keys() <= set(cls.__slots__):
            why = f"unsupported tensorwire metadata of a column: {text!r:.80}"
            raise DecodeError(why, tensor=field.name, offset=0)
        dtype, uniform = notes.get("dtype", "int8"), notes.get("uniform", [])
        if not (
            isinstance(dtype, str)
            and dtype in dtypes.BY_NAME
            and all(_are_naturals(notes.get(key, [])) for key in ("shape", "inner"))
            and isinstance(uniform, list)
            and all(length is None or type(length) is int for length in uniform)
        ):
            why = f"invalid tensorwire metadata of a column: {text!r:.80}"
            raise DecodeError(why, tensor=field.name, offset=0)
        return cls(**notes)


_NONE = FieldNotes()


def _are_naturals(numbers: object) -> bool:
    return isinstance(numbers, list) and all(type(item) is int and item >= 0 for item in numbers)


@functools.lru_cache(256)
def _tensor_pairs(inner: tuple[int, ...]) -> Pairs:
    """Return the metadata that make a fixed-size list a fixed_shape_tensor."""
    shape = jsontext.write({"shape": list(inner)}).decode()
    return (_EXTENSION, _TENSOR), (_PARAMETERS, shape)


def is_tensor(field: ipc.IpcField) -> bool:
    return field.metadata.get(_EXTENSION) == _TENSOR


def tensor_shape(field: ipc.IpcField) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the stored shape of a row of a fixed_shape_tensor, and its permutation.

    The permutation is () if the dimensions are in order. Raises ValueError if the metadata is not
    valid.
    """
    notes = jsontext.parse(field.metadata.get(_PARAMETERS, "").encode(), ipc.FORMAT)
    shape: Any = notes.get("shape") if isinstance(notes, dict) else None
    if not _are_naturals(shape) or math.prod(shape) != field.width:
        raise ValueError(
            f"a fixed_shape_tensor of shape {shape!r:.60} in lists of {field.width} elements"
        )
    order = notes.get("permutation")
    if order is None or order == list(range(len(shape))):
        return tuple(shape), ()
    if not _are_naturals(order) or sorted(order) != list(range(len(shape))):
        raise ValueError(
            f"a fixed_shape_tensor of {len(shape)} dimensions has the permutation {order!r:.60}"
        )
    return tuple(shape), tuple(order)


class ArrowColumns:
    """A builder of the fields of a schema, and of the arrays and buffers of one batch.

    `plain` writes rows of one dimension as fixed-size lists. `empty_lists` is for Parquet, which
    has no lists of the fixed size 0 (pyarrow crashes on one): rows without elements are written as
    empty lists, and the field's metadata has their dimensions.
    """

    def __init__(self, plain: bool = False, empty_lists: bool = False) -> None:
        self._plain, self._empty_lists = plain, empty_lists
        self.fields: list[tuple[object, ...]] = []
        """(name, kind, width, signed, number of children, None, metadata), as kernels take them."""
        self.nodes: list[tuple[int, int]] = []
        """(length, number of nulls) of each array."""
        self.arrays: list[Array] = []
        """The memory of each buffer."""

    @property
    def buffers(self) -> list[Buffer]:
        """The bytes of each buffer."""
        return [memory.chunk(array) for array in self.arrays]

    def add(
        self, name: str, parts: Sequence[Any], node: Mapping[str, Any], valid: Array | None = None
    ) -> None:
        """Add a column: a dense tensor or strings, or the values and the splits of a Ragged.

        `node` is the tensor's node in the lowered value. Rows that are not `valid` are null.
        """
        array, buffer = len(self.nodes), len(self.arrays)
        if len(parts) > 1:
            self.add_lists(name, parts[0], parts[1:], (), _notes(node, inner=self._inner(parts[0])))
        else:
            self.add_dense(name, parts[0], node)
        if valid is not None and not valid.all():
            self.nodes[array] = len(valid), int(len(valid) - valid.sum())
            self.arrays[buffer] = np.packbits(valid, bitorder="little")

    def add_cell(self, name: str, part: Part, node: Mapping[str, Any]) -> None:
        """Add a tensor whose elements are all in the single row of a list."""
        bounds = np.array([0, math.prod(part.shape)], np.int64)
        notes = _notes(node, shape=list(part.shape))
        self._array(name, ipc.LARGE_LIST, 1, [bounds], 1, pairs=notes)
        self._flat("item", part)

    def add_lists(
        self,
        name: str,
        values: Part,
        splits: Sequence[Array],
        uniform: Sequence[int | None] = (),
        pairs: Pairs = (),
    ) -> None:
        """Add lists around values.

        With `uniform`, lists have a fixed size. It is for arrays, which have no metadata for that.
        """
        for level, bounds in enumerate(splits):
            size = uniform[level] if uniform else None
            if size is not None:
                self._array(name, ipc.FIXED_LIST, len(bounds) - 1, [], 1, size, pairs)
            else:
                kind = ipc.LIST if bounds.dtype == np.int32 else ipc.LARGE_LIST
                self._array(name, kind, len(bounds) - 1, [bounds], 1, pairs=pairs)
            name, pairs = "item", ()
        self._fixed(name, values)

    def add_dense(self, name: str, part: Part, node: Mapping[str, Any]) -> None:
        """Add a dense tensor, or strings."""
        inner = self._inner(part)
        if isinstance(part, Strings) or inner:
            self._fixed(name, part, _notes(node, inner=inner))
        elif part.ndim == 1:
            self._flat(name, part, _notes(node))
        else:
            rows = part.shape[1:]
            pairs = () if self._plain and len(rows) == 1 else _tensor_pairs(rows)
            pairs += _notes(node)
            self._array(name, ipc.FIXED_LIST, len(part), [], 1, math.prod(rows), pairs)
            self._flat("item", part)

    def _inner(self, part: Part) -> list[int] | None:
        """Return the dimensions of rows without elements, if the metadata must have them."""
        return list(part.shape[1:]) if self._empty_lists and 0 in part.shape[1:] else None

    def _fixed(self, name: str, part: Part, pairs: Pairs = ()) -> None:
        """Add a fixed-size list for each dimension after the first."""
        count, inner = part.shape[0], part.shape[1:]
        if self._inner(part):
            self._array(name, ipc.LIST, count, [np.zeros(count + 1, np.int32)], 1, pairs=pairs)
            name, inner, pairs = "item", (), ()
        for size in inner:
            self._array(name, ipc.FIXED_LIST, count, [], 1, size, pairs)
            name, count, pairs = "item", count * size, ()
        self._flat(name, part, pairs)

    def _flat(self, name: str, part: Part, pairs: Pairs = ()) -> None:
        """Add the elements of a tensor."""
        if isinstance(part, Strings):
            kind = ipc.LARGE_TEXT if part.text else ipc.LARGE_BINARY
            self._array(name, kind, part.size, [part.offsets, part.data], pairs=pairs)
            return
        kind, width, signed = _NUMBERS[dtypes.of(part.dtype).name]
        data = np.packbits(part.reshape(-1), bitorder="little") if kind == ipc.BOOL else part
        self._array(name, kind, part.size, [data], 0, width, pairs, signed)

    def _array(
        self,
        name: str,
        kind: int,
        length: int,
        buffers: Sequence[Array],
        children: int = 0,
        width: int = 0,
        pairs: Pairs = (),
        signed: int = 0,
    ) -> None:
        if kind == ipc.FIXED_LIST and width > _INT32_MAX:
            raise EncodeError(
                f"rows of {width} elements do not fit Arrow's fixed-size lists (at most 2**31 - 1)"
            )
        self.fields.append((name, kind, width, signed, children, None, pairs))
        self.nodes.append((length, 0))
        self.arrays.append(_NO_NULLS)
        self.arrays += [np.ascontiguousarray(buffer) for buffer in buffers]


_NO_NULLS: Array = np.empty(0, np.uint8)
"""The validity bitmap of an array without nulls."""


def _notes(
    node: Mapping[str, Any], shape: list[int] | None = None, inner: list[int] | None = None
) -> Pairs:
    """Return the metadata of a column: only what its type does not tell."""
    if not node and shape is None and inner is None:
        return ()
    plain = node.get("ragged", node)
    dtype = plain["dtype"] if "dtype" in plain and "quantized" not in plain else None
    return FieldNotes(dtype, shape, inner, node.get("uniform")).pairs()
