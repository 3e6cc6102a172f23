"""Tensors of each kind as lines of text and as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._errors import TensorwireError
from ..api import lazy
from ..core import formatting
from ..core.tensors import Array, Ragged, Sparse, Strings
from . import pictures, sampling, selection
from .images import image
from .statistics import Statistics, histogram, statistics
from .text import corner, for_json, line_of, listed

_FEW = 1000
"""Tensors of up to this many elements are complete in the JSON output."""


class Shown(NamedTuple):
    """Lines of text, and the same as plain data."""

    lines: list[str]
    json: dict[str, Any]


class Look(NamedTuple):
    """Options for showing tensors."""

    paint: pictures.Paint = pictures.Paint()
    heat: bool | None = None
    """Whether to draw a heat map; None if it suits the tensor."""
    histogram: bool | None = None
    """Whether to draw a histogram; None if it suits the tensor."""
    whole: bool = False
    """Whether statistics are computed from all of a large tensor."""
    rows: int = 8
    """The number of strings, ragged rows or sparse entries that are shown."""
    key: selection.Key | None = None
    """The slice that is shown, or None for the whole tensor."""


PLAIN = Look(heat=False, histogram=False)


def tensor(opened: sampling.SampledFile, name: str, look: Look = PLAIN) -> Shown:
    """Return one tensor of a file: a title, statistics, a corner of its values, and a picture."""
    lazy_tensor = opened.file[name]
    try:
        # Reading an unreadable tensor raises the error that says why.
        if lazy_tensor.kind == "unreadable":
            lazy_tensor.read()
        if look.key is not None:
            key = selection.fitted(look.key, lazy_tensor.kind, lazy_tensor.shape)
            shown = value(sampling.sliced(opened, name, key), look, sliced=True)
            return _titled(lazy_tensor, shown, key)
        return _titled(lazy_tensor, _KINDS[lazy_tensor.kind](opened, name, look))
    except TensorwireError as error:
        raise error.add(path=opened.file.path, tensor=name) from None


def title(tensor: lazy.LazyTensor) -> str:
    """Return the title line of a tensor.

    >>> from tensorwire import dumps
    >>> title(lazy.open(dumps({"x": np.zeros((2, 3), np.float32)}))["x"])
    'x  float32 (2, 3)  24 bytes'
    """
    kind = "" if tensor.kind == "dense" else f"{tensor.kind} "
    extra = "".join(f"  {how}" for how in (tensor.quantized, tensor.compression) if how)
    return (
        f"{formatting.safe(tensor.name)}  {kind}{tensor.dtype} {formatting.shape(tensor.shape)} "
        f" {formatting.size(tensor.nbytes)}{extra}"
    )


def _titled(tensor: lazy.LazyTensor, shown: Shown, key: selection.Key | None = None) -> Shown:
    data = {
        "name": tensor.name,
        "kind": tensor.kind,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "nbytes": tensor.nbytes,
    }
    part = "" if key is None else f"  [{', '.join(map(_written, key))}]"
    data |= {} if key is None else {"slice": [_written(index) for index in key]}
    return Shown(
        [title(tensor) + part, *(f"  {line}".rstrip() for line in shown.lines)], data | shown.json
    )


def _written(index: Any) -> str:
    if not isinstance(index, slice):
        return str(index)
    ends = [index.start, index.stop] + ([index.step] if index.step is not None else [])
    return ":".join("" if end is None else str(end) for end in ends)


def value(item: Any, look: Look, sliced: bool = False) -> Shown:
    """Return a value that is in memory as text and data."""
    if isinstance(item, Strings):
        return _strings(item, item.size, True, look)
    if isinstance(item, Sparse):
        return _sparse(item, True, look)
    if isinstance(item, Ragged):
        return _ragged(item, len(item), True, look)
    if isinstance(item, (str, bytes)):
        return Shown([string(item)], {"values": for_json(item)})
    array = np.asarray(item)
    if not array.shape:
        return Shown([_scalar(array)], {"values": for_json(array)})
    stats = statistics(array)
    return _numbers(array, stats, True, _corner(array, look, 6 if sliced else 3), look, array)


def _dense(opened: sampling.SampledFile, name: str, look: Look) -> Shown:
    sample, whole = sampling.dense(opened, name)
    if whole:
        return value(sample, look)
    stats = sampling.all_statistics(opened, name) if look.whole else statistics(sample)
    return _numbers(
        sample,
        stats,
        look.whole,
        _corner(sampling.corners(opened, name, 3), look, 3, summarise=True),
        look,
        None,
    )


def _corner(array: Array, look: Look, edge: int, summarise: bool = False) -> list[str]:
    """Return the corner of a vector or matrix; of more dimensions that of the first matrix."""
    if array.ndim <= 2 or not array.size:
        return corner(array, look.paint.width, edge, summarise)
    lines = corner(array[(0,) * (array.ndim - 2)], look.paint.width, edge, summarise)
    return [f"[{'0, ' * (array.ndim - 2)}:, :] =", *lines]


def _numbers(
    sample: Array,
    stats: Statistics,
    exact: bool,
    lines_of_corner: list[str],
    look: Look,
    whole: Array | None,
) -> Shown:
    lines = [line_of(stats, sampled=not exact)] if stats.elements else ["no values"]
    data: dict[str, Any] = {"statistics": for_json(stats.json()), "sampled": not exact}
    lines += lines_of_corner
    if whole is not None and whole.size <= _FEW:
        data["values"] = for_json(whole)
    flat = sample.ndim < 2 or min(sample.shape[-2:]) < 2
    if sample.size and (
        look.heat or (look.heat is None and look.histogram is not True and not flat)
    ):
        lines += ["", *_heat(sample, whole is None, look)]
    if sample.size and (
        look.histogram
        or (look.histogram is None and look.heat is not True and flat and sample.size > 16)
    ):
        counts = histogram(sample)
        if counts is not None:
            lines += [
                "",
                *pictures.bars(counts, look.paint._replace(width=min(look.paint.width - 2, 76))),
            ]
            data["histogram"] = for_json(counts._asdict())
    return Shown(lines, data)


def _heat(sample: Array, sampled: bool, look: Look) -> list[str]:
    """Return a heat map of the first matrix of an array, of the sampled rows, or of a vector."""
    grid = sample.reshape(1, -1) if sample.ndim < 2 else sample[(0,) * (sample.ndim - 2)]
    where = f" of [{'0, ' * (sample.ndim - 2)}:, :]" if sample.ndim > 2 else ""
    where = " of evenly spaced rows" if sampled and sample.ndim == 2 else where
    lines = pictures.heat(grid, look.paint._replace(width=min(look.paint.width - 2, 96)))
    return [*lines[:-1], f"heat map{where}: {lines[-1]}"]


def _scalar(array: Array) -> str:
    item = array.item() if array.dtype.kind in "biufc" else array[()]
    return repr(item) if isinstance(item, (int, float, complex, bool)) else str(item)


def string(item: str | bytes, most: int = 72, decode: bool = False) -> str:
    """Return a string in quotes, or the type of an image; `decode` shows UTF-8 bytes as text."""
    picture = image(item) if isinstance(item, bytes) else None
    if picture is not None:
        return f"{picture} ({formatting.size(len(item))})"
    if decode and isinstance(item, bytes) and len(item) <= 1 << 16:
        try:
            item = item.decode()
        except UnicodeDecodeError:
            pass
    return formatting.quoted(item, most)


def _strings_of(opened: sampling.SampledFile, name: str, look: Look) -> Shown:
    tensor = opened.file[name]
    some, whole = sampling.rows_of(tensor, look.rows, look.whole)
    return _strings(some, math.prod(dim or 0 for dim in tensor.shape), whole, look)


def _strings(some: Strings, total: int, whole: bool, look: Look) -> Shown:
    lengths = np.diff(some.offsets)
    if not some.shape:
        return Shown([string(some[()])], {"values": for_json(some[()])})
    stats = (
        {}
        if not len(lengths)
        else {
            "shortest": int(lengths.min()),
            "longest": int(lengths.max()),
            "mean": float(lengths.mean()),
        }
    )
    span = (
        f", {stats['shortest']:,} to {stats['longest']:,} bytes each, mean"
        f" {formatting.number(stats['mean'])}"
        if stats
        else ""
    )
    lines = [f"{total:,} strings{span}{'' if whole else f' (of the first {some.size:,})'}"]
    flat = some.reshape(-1)
    first = [flat[i] for i in range(min(look.rows, some.size))]
    places = [
        list(map(int, np.unravel_index(i, some.shape))) if some.size else []
        for i in range(len(first))
    ]
    width = max((len(str(place)) for place in places), default=0)
    lines += [
        f"{place!s:>{width}} {string(item)}" for place, item in zip(places, first, strict=True)
    ]
    lines += [f"... {total - len(first):,} more"] * (total > len(first))
    shown = flat.tolist() if whole and total <= _FEW else first
    return Shown(lines, {"lengths": stats, "sampled": not whole, "values": for_json(shown)})


def _ragged_of(opened: sampling.SampledFile, name: str, look: Look) -> Shown:
    tensor = opened.file[name]
    some, whole = sampling.rows_of(tensor, look.rows, look.whole)
    return _ragged(some, tensor.shape[0] or 0, whole, look)


def _ragged(some: Ragged, total: int, whole: bool, look: Look) -> Shown:
    lengths = np.diff(some.row_splits[0])
    data: dict[str, Any] = {"rows": total, "sampled": not whole}
    span = ""
    if len(lengths):
        data["lengths"] = {
            "shortest": int(lengths.min()),
            "longest": int(lengths.max()),
            "mean": float(lengths.mean()),
        }
        mean = formatting.number(float(lengths.mean()))
        span = (
            f", lengths {lengths.min():,} to {lengths.max():,}, mean {mean}, {len(some.values):,}"
            " values"
        )
    lines = [f"{total:,} rows{span}{'' if whole else f' (of the first {len(some):,} rows)'}"]
    if isinstance(some.values, np.ndarray) and len(some.values):
        stats = statistics(some.values)
        lines.append(line_of(stats))
        data["statistics"] = for_json(stats.json())
    count = min(look.rows, len(some))
    left, digits = (
        len(str(max(count - 1, 0))),
        len(f"{int(lengths[:count].max()):,}") if count else 1,
    )
    lines += [
        f"[{i:>{left}}] {int(lengths[i]):>{digits},}  {listed(some[i])}" for i in range(count)
    ]
    lines += [f"... {total - count:,} more rows"] * (total > count)
    if look.histogram and len(lengths) and (counts := histogram(lengths)) is not None:
        lines += [
            "",
            "row lengths:",
            *pictures.bars(counts, look.paint._replace(width=min(look.paint.width - 2, 76))),
        ]
    full = whole and len(some.values) <= _FEW and total <= _FEW
    data["values"] = for_json((some if full else some[:count]).tolist())
    return Shown(lines, data)


def _sparse_of(opened: sampling.SampledFile, name: str, look: Look) -> Shown:
    some, whole = sampling.sparse(opened.file[name], look.whole)
    return _sparse(some, whole, look)


def _sparse(some: Sparse, whole: bool, look: Look) -> Shown:
    rank = some.indices.shape[1]
    cells = math.prod(some.shape[:rank])
    density = f"{100 * some.nnz / cells if cells else 0:.3g} %"
    word = "" if whole else " in a sample of the rows"
    lines = [f"nnz {some.nnz:,}{word}" + (f" of {cells:,} ({density})" if whole else "")]
    data: dict[str, Any] = {"nnz": some.nnz, "sampled": not whole}
    if isinstance(some.values, np.ndarray) and some.nnz:
        stats = statistics(some.values)
        lines.append(line_of(stats))
        data["statistics"] = for_json(stats.json())
    count = min(look.rows, some.nnz)
    lines += [f"{some.indices[i].tolist()}: {_entry(some.values, i)}" for i in range(count)]
    lines += [f"... {some.nnz - count:,} more"] * (some.nnz > count)
    if rank and cells:
        seen = "" if rank <= 2 else " (projected onto the first two dimensions)"
        paint = look.paint._replace(width=min(look.paint.width - 2, 96))
        lines += [
            "",
            *pictures.dots(some.indices, some.shape, paint),
            f"sparsity pattern{seen}",
        ]
    most = some.nnz if whole and some.nnz <= _FEW else count
    data["indices"] = some.indices[:most].tolist()
    data["values"] = for_json(some.values[:most].tolist())
    return Shown(lines, data)


def _entry(values: Any, index: int) -> str:
    item = values[index]
    if isinstance(item, (str, bytes)):
        return formatting.quoted(item)
    array = np.asarray(item)
    return _scalar(array) if not array.shape else listed(array)


_KINDS: dict[str, Callable[[sampling.SampledFile, str, Look], Shown]] = {
    "dense": _dense,
    "strings": _strings_of,
    "ragged": _ragged_of,
    "sparse": _sparse_of,
}
