"""Tensor classes that NumPy lacks (`Strings`, `Sparse`, `Ragged`), and `Bundle`, tensors by name.

Each class is immutable, holds plain NumPy arrays, and is validated once when it is created. All of
them can be pickled, with protocol 5 out of band. Dense tensors are plain `numpy.ndarray`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from .._errors import EncodeError
from .._optional import FRAMEWORKS, roots
from . import display, validate
from .frozen import Frozen
from .frozen import trusted as trusted
from .quantized import Quantized

Array = np.ndarray[Any, Any]


def _int64(values: Any, name: str) -> Array:
    """Convert integers of any width to int64. Raises for floats, bools and numbers past 2**63."""
    array = np.asarray(values)
    if array.dtype == np.int64:
        return array
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu" or (
        array.dtype == np.uint64 and array.max() > validate.INT64_MAX
    ):
        raise EncodeError(f"{name} must be integers that fit in int64, not {array.dtype}")
    return array.astype(np.int64)


class Strings(Frozen):
    """A tensor of byte strings or of text: one buffer with all bytes, and the offsets of the strings.

    String i is `data[offsets[i]:offsets[i + 1]]`. `shape` defaults to one dimension. With `text`,
    the strings are str and their bytes must be UTF-8. Raises EncodeError for invalid arguments.

    >>> import tensorwire as tw
    >>> words = tw.Strings.of(["wire", "tensor", "é"])
    >>> words[1], words[::2].tolist(), words == "wire"
    ('tensor', ['wire', 'é'], array([ True, False, False]))
    """

    __slots__ = ("data", "offsets", "shape", "text")

    data: Array
    """uint8: the strings' bytes, one after the other."""
    offsets: Array
    """int64 [n + 1]: string i is data[offsets[i]:offsets[i + 1]]."""
    shape: tuple[int, ...]
    text: bool
    """Whether the strings are str (UTF-8) rather than bytes."""

    def __init__(
        self, data: Any, offsets: Any, shape: Sequence[int] | None = None, text: bool = False
    ) -> None:
        if isinstance(data, (bytes, bytearray, memoryview)):
            data = np.frombuffer(data, np.uint8)
        offsets = np.ascontiguousarray(_int64(offsets, "offsets"))
        dims = tuple(int(dim) for dim in shape) if shape is not None else (len(offsets) - 1,)
        data = np.ascontiguousarray(data)
        validate.strings(data, offsets, dims, text)
        self._set(data, offsets, dims, bool(text))

    @classmethod
    def of(
        cls,
        strings: Iterable[str] | Iterable[bytes],
        shape: Sequence[int] | None = None,
        text: bool | None = None,
    ) -> Strings:
        """Create a tensor from str or bytes objects, which must not be mixed.

        `text` says whether an empty list is text. Raises EncodeError if the objects are not all str
        or all bytes, or do not fill `shape`.

        >>> import tensorwire as tw
        >>> tw.Strings.of([b"a", b"b\\x00"], shape=(2, 1)).tolist()
        [[b'a'], [b'b\\x00']]
        """
        items: list[Any] = list(strings)
        kinds = {
            str if isinstance(item, str) else bytes if isinstance(item, bytes) else type(item)
            for item in items
        }
        if not kinds <= {str} and not kinds <= {bytes}:
            raise EncodeError(
                "strings must be all str or all bytes, not"
                f" {' and '.join(sorted(kind.__name__ for kind in kinds))}"
            )
        is_text = str in kinds or (not kinds and bool(text))
        if is_text:
            try:
                items = [item.encode() for item in items]
            except UnicodeEncodeError as error:
                raise EncodeError(
                    f"{error.object!r:.60} has a lone surrogate, which UTF-8 cannot encode"
                ) from None
        offsets = np.zeros(len(items) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, items), np.int64, len(items)), out=offsets[1:])
        dims = tuple(shape) if shape is not None else (len(items),)
        if validate.elements(dims) != len(items):
            raise EncodeError(f"{len(items)} strings do not fill the shape {dims}")
        # A bytearray, unlike bytes, can be made writable later (`copy=True` of the readers).
        data = np.frombuffer(bytearray().join(items), np.uint8)
        data.flags.writeable = False
        return trusted(cls, data, offsets, dims, is_text)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the data and the offsets together."""
        return self.data.nbytes + self.offsets.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d Strings")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int and len(self.shape) == 1:
            if not -self.size <= key < self.size:
                raise IndexError(f"string {key} of {self.size}")
            return self._item(key % self.size)
        if isinstance(key, slice) and len(self.shape) == 1 and key.step in (None, 1):
            start, stop, _ = key.indices(self.size)
            offsets = self.offsets[start : max(start, stop) + 1]
            return trusted(
                Strings,
                self.data[offsets[0] : offsets[-1]],
                offsets - offsets[0],
                (len(offsets) - 1,),
                self.text,
            )
        chosen = np.arange(self.size).reshape(self.shape)[key]
        return self._take(chosen) if isinstance(chosen, np.ndarray) else self._item(int(chosen))

    def _item(self, index: int) -> str | bytes:
        item = self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()
        return item.decode() if self.text else item

    def _take(self, chosen: Array) -> Strings:
        """Return the strings at the given flat indices, gathered without a loop over strings."""
        flat = chosen.reshape(-1)
        starts, lengths = self.offsets[flat], np.diff(self.offsets)[flat]
        offsets = np.zeros(len(flat) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        source = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return trusted(Strings, self.data[source], offsets, chosen.shape, self.text)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: Any) -> Strings:
        """Return the same strings in another shape. One dimension may be -1."""
        dims = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return trusted(
            Strings,
            self.data,
            self.offsets,
            np.empty(self.size, np.bool_).reshape(self.shape).reshape(dims).shape,
            self.text,
        )

    def astext(self, text: bool = True) -> Strings:
        """Return the same strings as text or as bytes. Raises EncodeError if they are not UTF-8."""
        if text and not self.text:
            validate.utf8(self.data, self.offsets)
        return trusted(Strings, self.data, self.offsets, self.shape, text)

    def _objects(self) -> list[Any]:
        data, bounds = self.data.tobytes(), self.offsets.tolist()
        items: list[Any] = [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
        return [item.decode() for item in items] if self.text else items

    def tolist(self) -> Any:
        """Return nested lists of str or bytes; for a 0-d tensor, a single str or bytes."""
        return self.__array__().tolist() if len(self.shape) != 1 else self._objects()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an object array of strings is always a copy")
        array: Array = np.empty(self.size, object)
        array[:] = self._objects()
        array = array.reshape(self.shape)
        return array if dtype is None or dtype is object else array.astype(dtype)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, (Strings, str, bytes, list, np.ndarray)):
            return np.asarray(self) == (
                np.asarray(other, object) if isinstance(other, (Strings, list)) else other
            )
        return NotImplemented

    def __ne__(self, other: object) -> Any:
        same = self.__eq__(other)
        return NotImplemented if same is NotImplemented else ~same

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [repr(self.reshape(-1)[i]) for i in range(min(self.size, 6))]
        shown = [item if len(item) <= 32 else item[:29] + "..." for item in shown]
        return (
            f"Strings({', '.join(shown)}{', ...' if self.size > 6 else ''}; shape={self.shape},"
            f" {'text' if self.text else 'bytes'})"
        )

    _repr_html_ = display.html


class Sparse(Frozen):
    """A sparse tensor in coordinate format (COO): indices, values and the dense shape.

    `values` has one row for each index. If the rows are arrays, the tensor is hybrid, like torch's
    sparse embedding gradients, and `dense_shape` ends with the shape of a row. Raises EncodeError
    if the arguments do not match.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> tw.Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3)).to_dense()
    array([[1., 0., 0.],
           [0., 0., 4.]], dtype=float32)
    """

    __slots__ = ("indices", "values", "dense_shape")

    indices: Array
    """int64 [nnz, rank]"""
    values: Array | Strings
    """[nnz, *dense_dims]"""
    dense_shape: Array
    """int64 [rank + len(dense_dims)]"""

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        dims = _int64(dense_shape, "dense_shape")
        positions = _int64(indices, "indices")
        # An empty list has no second dimension, so the rank comes from dense_shape.
        if positions.size == 0 and positions.ndim == 1:
            positions = positions.reshape(0, len(dims))
        items = values if isinstance(values, Strings) else np.asarray(values)
        if isinstance(items, np.ndarray) and items.dtype.kind in "OSUT":
            raise EncodeError(
                f"the values of a Sparse must be numbers or Strings, not {items.dtype}",
                hint="pass tw.tensor(values)",
            )
        validate.sparse(positions, items.shape, dims)
        self._set(positions, items, dims)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dense_shape.tolist())

    @property
    def dtype(self) -> Any:
        return "string" if isinstance(self.values, Strings) else self.values.dtype

    @property
    def nnz(self) -> int:
        return len(self.indices)

    @property
    def order(self) -> validate.Order:
        """Whether the indices are sorted, and whether there are duplicates."""
        return validate.order(self.indices)

    def sort(self) -> Sparse:
        """Return the same tensor with its indices in row-major order. The sort is stable."""
        if self.order.sorted:
            return self
        by = np.lexsort(self.indices.T[::-1])
        return trusted(Sparse, self.indices[by], self.values[by], self.dense_shape)

    def to_dense(self) -> Array:
        """Return the dense array. Values at duplicate indices are added; of strings the last wins.

        Raises EncodeError if the dense array does not fit into memory.
        """
        rank = self.indices.shape[1]
        positions = tuple(self.indices.T) if rank else ()
        try:
            return self._to_dense(rank, positions)
        except (MemoryError, ValueError) as error:
            why = f"a dense tensor of shape {list(self.shape)} does not fit into memory"
            raise EncodeError(why) from error

    def _to_dense(self, rank: int, positions: tuple[Array, ...]) -> Array:
        if isinstance(self.values, Strings):
            strings: Array = np.full(self.shape, "" if self.values.text else b"", object)
            strings[positions] = np.asarray(self.values)
            return strings
        out: Array = np.zeros(self.shape, self.values.dtype)
        if not self.order.duplicates:
            out[positions if rank else ...] = (
                self.values if rank else (self.values[0] if self.nnz else 0)
            )
        elif self.values.dtype == np.bool_:
            np.logical_or.at(out, positions, self.values)
        else:
            np.add.at(out, positions, self.values)
        return out

    def __repr__(self) -> str:
        dtype = self.dtype
        rows = [
            f"{self.indices[i].tolist()}: {self.values[i]!r:.24}" for i in range(min(self.nnz, 4))
        ]
        return (
            f"Sparse({', '.join(rows)}{', ...' if self.nnz > 4 else ''}; shape={self.shape},"
            f" nnz={self.nnz}, {dtype})"
        )

    _repr_html_ = display.html


class Ragged(Frozen):
    """A ragged tensor: flat values, and the row splits of each ragged dimension, outer to inner.

    Row i of the innermost dimension is `values[row_splits[i]:row_splits[i + 1]]`. `row_splits` is
    one vector or a list of them, `uniform` the fixed row length of each (None: rows may differ).
    Raises EncodeError if the arguments do not match.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> tokens = tw.Ragged(np.int32([4, 8, 15, 16]), [0, 3, 3, 4])
    >>> tokens.tolist(), tokens.shape, tokens[0]
    ([[4, 8, 15], [], [16]], (3, None), array([ 4,  8, 15], dtype=int32))
    """

    __slots__ = ("values", "row_splits", "uniform")

    values: Array | Strings
    """The flat values. Dimensions after the first are dense."""
    row_splits: tuple[Array, ...]
    """int32 or int64 vectors, outer to inner, each from 0 to the number of rows that it splits."""
    uniform: tuple[int | None, ...]
    """For each of row_splits the length of all its rows, if the type fixes it, else None."""

    def __init__(
        self, values: Any, row_splits: Any, uniform: Sequence[int | None] | int | None = None
    ) -> None:
        nested = (
            isinstance(row_splits, (list, tuple))
            and len(row_splits) > 0
            and not isinstance(row_splits[0], (int, np.integer))
        )
        splits = tuple(np.asarray(part) for part in (row_splits if nested else (row_splits,)))
        splits = tuple(
            part if part.dtype == np.int32 else _int64(part, "row_splits") for part in splits
        )
        items = values if isinstance(values, Strings) else np.asarray(values)
        if isinstance(items, np.ndarray) and items.dtype.kind in "OSUT":
            raise EncodeError(
                f"the values of a Ragged must be numbers or Strings, not {items.dtype}",
                hint="pass tw.tensor(values)",
            )
        if not items.shape:
            raise EncodeError("the values of a Ragged must have at least one dimension")
        lengths = (
            (None,) * len(splits)
            if uniform is None
            else (uniform,)
            if isinstance(uniform, int)
            else tuple(uniform)
        )
        validate.ragged(len(items), splits, lengths)
        self._set(items, splits, lengths)

    @classmethod
    def of(cls, rows: Sequence[Any], dtype: Any = None, splits: Any = np.int64) -> Ragged:
        """Create a tensor from nested lists. Each level of lists below the first is ragged.

        `dtype` is that of the values, `splits` that of the row splits. Raises EncodeError if the
        lists differ in depth or hold different types.

        >>> import tensorwire as tw
        >>> tw.Ragged.of([[["a"], []], [["b", "c"]]]).shape
        (2, None, None)
        """
        levels: list[Any] = []
        flat: list[Any] = list(rows)
        while flat and all(isinstance(row, (list, tuple)) for row in flat):
            lengths = np.fromiter(map(len, flat), np.int64, len(flat))
            levels.append(np.concatenate([[0], np.cumsum(lengths)]).astype(splits))
            flat = [item for row in flat for item in row]
        if not levels:
            raise EncodeError("Ragged.of takes a list of lists")
        if flat and isinstance(flat[0], (str, bytes)):
            return cls(Strings.of(flat), levels)
        if any(isinstance(item, (list, tuple)) for item in flat):
            raise EncodeError("the lists have different depths")
        values: Array = np.array(flat, np.float64 if dtype is None and not flat else dtype)
        if values.ndim != 1 or values.dtype.kind in "OSU":
            raise EncodeError("the lists mix types, or hold integers of more than 64 bits")
        return cls(values, levels)

    @property
    def ragged_rank(self) -> int:
        return len(self.row_splits)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape, with None for dimensions in which rows differ, as in TensorFlow."""
        return (len(self), *self.uniform, *self.values.shape[1:])

    @property
    def dtype(self) -> Any:
        return "string" if isinstance(self.values, Strings) else self.values.dtype

    def __len__(self) -> int:
        return len(self.row_splits[0]) - 1

    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise IndexError(f"a Ragged can only be sliced in steps of 1, not {step}")
            splits, low = [], start
            high = max(start, stop)
            for part in self.row_splits:
                cut = part[low : high + 1]
                low, high = int(cut[0]), int(cut[-1])
                splits.append(cut - cut[0])
            return trusted(Ragged, self.values[low:high], tuple(splits), self.uniform)
        index = range(len(self))[key]
        low, high = int(self.row_splits[0][index]), int(self.row_splits[0][index + 1])
        if self.ragged_rank == 1:
            return self.values[low:high]
        return trusted(Ragged, self.values, self.row_splits[1:], self.uniform[1:])[low:high]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def tolist(self) -> list[Any]:
        """Return nested lists of Python values."""
        rows: list[Any] = self.values.tolist()
        for splits in reversed(self.row_splits):
            bounds = splits.tolist()
            rows = [rows[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
        return rows

    def __repr__(self) -> str:
        rows = [f"{self[i].tolist()!r:.40}" for i in range(min(len(self), 4))]
        shape = ", ".join(map(str, self.shape))
        return (
            f"Ragged({', '.join(rows)}{', ...' if len(self) > 4 else ''}; shape=({shape}),"
            f" {self.dtype})"
        )

    _repr_html_ = display.html


Tensor = Array | Strings | Sparse | Ragged
TensorLike = object
"""An argument of `frameworks.tensor`: a tensor of any framework or of tensorwire, or nested lists.
The frameworks' classes have no common base class, so this is an alias of object.
"""
KINDS = (np.ndarray, Strings, Sparse, Ragged)


class Bundle(Mapping[str, Any]):
    """A mapping of names to tensors, with metadata for the whole and for each tensor.

    The values are arrays, `Strings`, `Sparse` and `Ragged`, or a framework's tensors if `to=` was
    passed to the reader. Names and metadata are str. Raises EncodeError for anything else.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> bundle = tw.Bundle({"logits": np.zeros((2, 3))}, metadata={"model": "nmt-v2"})
    >>> bundle["logits"].shape, bundle.metadata["model"]
    ((2, 3), 'nmt-v2')
    """

    __slots__ = ("_metadata", "_tensor_metadata", "_tensors")

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        metadata: Mapping[str, str] | None = None,
        tensor_metadata: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._tensors = dict(tensors)
        for name, tensor in self._tensors.items():
            if not isinstance(name, str):
                raise EncodeError(f"names in a Bundle must be str, not {type(name).__name__}")
            if not isinstance(tensor, (*KINDS, Quantized)) and not _is_foreign(tensor):
                raise EncodeError(
                    f"values in a Bundle must be tensors, not {type(tensor).__name__}",
                    tensor=name,
                    hint="convert the value with tw.tensor(x)",
                )
        self._metadata = _texts(metadata or {}, "metadata")
        self._tensor_metadata = {
            name: _texts(texts, f"metadata of {name}")
            for name, texts in (tensor_metadata or {}).items()
        }
        unknown = self._tensor_metadata.keys() - self._tensors.keys()
        if unknown:
            raise EncodeError(
                f"tensor_metadata names tensors that are not in the Bundle: {sorted(unknown)}"
            )

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the whole bundle (a copy)."""
        return dict(self._metadata)

    @property
    def tensor_metadata(self) -> dict[str, dict[str, str]]:
        """Metadata of each tensor (a copy)."""
        return {name: dict(texts) for name, texts in self._tensor_metadata.items()}

    def replaced(self, tensors: Mapping[str, Any]) -> Self:
        """Return a copy, metadata included, with other tensors of the same names."""
        bundle = copy.copy(self)
        bundle._tensors = dict(tensors)
        return bundle

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __eq__(self, other: object) -> Any:
        # Arrays compare elementwise, so == cannot compare bundles. tw.equal does.
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = [f"\n  {name}: {describe(tensor)}" for name, tensor in self._tensors.items()]
        texts = f", metadata={self._metadata}" if self._metadata else ""
        rest = f"\n  ... {len(rows) - 20} more" if len(rows) > 20 else ""
        return f"Bundle of {len(self)}{texts}{''.join(rows[:20])}{rest}"

    _repr_html_ = display.html


def _is_foreign(value: Any) -> bool:
    """Return whether a value is a framework's object. NumPy's scalars do not count as arrays."""
    foreign = any(package in FRAMEWORKS for package in roots(type(value)))
    return foreign and not isinstance(value, np.generic)


def nbytes_of(tensor: Any) -> int:
    """Return the bytes of all arrays of a tensor; 0 if its framework does not tell."""
    if isinstance(tensor, Sparse):
        return tensor.indices.nbytes + tensor.values.nbytes + tensor.dense_shape.nbytes
    if isinstance(tensor, Ragged):
        return tensor.values.nbytes + sum(part.nbytes for part in tensor.row_splits)
    return int(getattr(tensor, "nbytes", 0))


def _texts(texts: Mapping[str, str], owner: str) -> dict[str, str]:
    for key, text in texts.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise EncodeError(
                f"{owner} must map str to str, but {key!r} is {type(text).__name__}",
                hint="convert the value with json.dumps(...)",
            )
        try:
            (key + text).encode()
        except UnicodeEncodeError:
            raise EncodeError(
                f"{owner}: {key!r:.60} has a lone surrogate, which UTF-8 cannot encode"
            ) from None
    return dict(texts)


def describe(tensor: Any) -> str:
    """Return a short description of a tensor: its kind, dtype and shape.

    >>> describe(np.zeros((2, 3), np.float32))
    'float32 (2, 3)'
    """
    if isinstance(tensor, np.ndarray):
        return f"{tensor.dtype} {tensor.shape}"
    if isinstance(tensor, Strings):
        return f"Strings {'text' if tensor.text else 'bytes'} {tensor.shape}"
    if isinstance(tensor, (Sparse, Ragged, Quantized)):
        return f"{type(tensor).__name__} {tensor.dtype} {tensor.shape}"
    kind = f"{type(tensor).__module__.partition('.')[0]}.{type(tensor).__name__}"
    dtype = getattr(tensor, "dtype", getattr(tensor, "type", ""))
    shape = tuple(tensor.shape) if hasattr(tensor, "shape") else (len(tensor),)
    return f"{kind} {dtype} {shape}"
