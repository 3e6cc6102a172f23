"""A tensor as lines for people and as data for programs, by its kind."""

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
"""Elements that are written out in full for programs."""


class Shown(NamedTuple):
    """The lines for people, and the same as plain data."""

    lines: list[str]
    json: dict[str, Any]


class Look(NamedTuple):
    """How to look at tensors."""

    paint: pictures.Paint = pictures.Paint()
    heat: bool | None = None
    """A heat map; None for where it fits."""
    histogram: bool | None = None
    whole: bool = False
    """Read all of a large tensor for its statistics."""
    rows: int = 8
    """Strings, rows of a ragged tensor or entries of a sparse one that are shown."""
    key: selection.Key | None = None
    """Only this slice."""


PLAIN = Look(heat=False, histogram=False)


def tensor(opened: sampling.SampledFile, name: str, look: Look = PLAIN) -> Shown:
    """One tensor of a file: what it is, what its numbers are like, a corner of them, and a picture
    if there is to be one.
    """
    found = opened.file[name]
    try:
        if found.kind == "unreadable":
            found.read()
        if look.key is not None:
            key = selection.fitted(look.key, found.kind, found.shape)
            return _titled(found, value(sampling.sliced(opened, name, key), look, sliced=True), key)
        return _titled(found, _KINDS[found.kind](opened, name, look))
    except TensorwireError as error:
        raise error.add(path=opened.file.path, tensor=name) from None


def title(found: lazy.LazyTensor) -> str:
    """
    >>> from tensorwire import dumps
    >>> title(lazy.open(dumps({"x": np.zeros((2, 3), np.float32)}))["x"])
    'x  float32 (2, 3)  24 bytes'
    """
    kind = "" if found.kind == "dense" else f"{found.kind} "
    extra = "".join(f"  {how}" for how in (found.quantized, found.compression) if how)
    return (
        f"{formatting.safe(found.name)}  {kind}{found.dtype} {formatting.shape(found.shape)} "
        f" {formatting.size(found.nbytes)}{extra}"
    )


def _titled(found: lazy.LazyTensor, shown: Shown, key: selection.Key | None = None) -> Shown:
    about = {
        "name": found.name,
        "kind": found.kind,
        "dtype": str(found.dtype),
        "shape": list(found.shape),
        "nbytes": found.nbytes,
    }
    part = "" if key is None else f"  [{', '.join(map(_written, key))}]"
    about |= {} if key is None else {"slice": [_written(one) for one in key]}
    return Shown(
        [title(found) + part, *(f"  {line}".rstrip() for line in shown.lines)], about | shown.json
    )


def _written(one: Any) -> str:
    if not isinstance(one, slice):
        return str(one)
    ends = [one.start, one.stop] + ([one.step] if one.step is not None else [])
    return ":".join("" if end is None else str(end) for end in ends)


def value(found: Any, look: Look, sliced: bool = False) -> Shown:
    """Any value that is in memory."""
    if isinstance(found, Strings):
        return _strings(found, found.size, True, look)
    if isinstance(found, Sparse):
        return _sparse(found, True, look)
    if isinstance(found, Ragged):
        return _ragged(found, len(found), True, look)
    if isinstance(found, (str, bytes)):
        return Shown([string(found)], {"values": for_json(found)})
    array = np.asarray(found)
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
    """Of a vector or matrix; of more dimensions the first matrix."""
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
    about: dict[str, Any] = {"statistics": for_json(stats.json()), "sampled": not exact}
    lines += lines_of_corner
    if whole is not None and whole.size <= _FEW:
        about["values"] = for_json(whole)
    flat = sample.ndim < 2 or min(sample.shape[-2:]) < 2
    if sample.size and (
        look.heat or (look.heat is None and look.histogram is not True and not flat)
    ):
        lines += ["", *_heat(sample, whole is None, look)]
    if sample.size and (
        look.histogram
        or (look.histogram is None and look.heat is not True and flat and sample.size > 16)
    ):
        found = histogram(sample)
        if found is not None:
            lines += [
                "",
                *pictures.bars(found, look.paint._replace(width=min(look.paint.width - 2, 76))),
            ]
            about["histogram"] = for_json(found._asdict())
    return Shown(lines, about)


def _heat(sample: Array, sampled: bool, look: Look) -> list[str]:
    """The first matrix of an array; of a sample of rows those rows; of a vector one strip."""
    grid = sample.reshape(1, -1) if sample.ndim < 2 else sample[(0,) * (sample.ndim - 2)]
    where = f" of [{'0, ' * (sample.ndim - 2)}:, :]" if sample.ndim > 2 else ""
    where = " of rows that are spread evenly" if sampled and sample.ndim == 2 else where
    lines = pictures.heat(grid, look.paint._replace(width=min(look.paint.width - 2, 96)))
    return [*lines[:-1], f"heat{where}: {lines[-1]}"]


def _scalar(array: Array) -> str:
    item = array.item() if array.dtype.kind in "biufc" else array[()]
    return repr(item) if isinstance(item, (int, float, complex, bool)) else str(item)


def string(item: str | bytes, most: int = 72, decode: bool = False) -> str:
    """A string quoted, or what picture it is; `decode` shows bytes that are UTF-8 as text."""
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
    found = opened.file[name]
    some, whole = sampling.rows_of(found, look.rows, look.whole)
    return _strings(some, math.prod(dim or 0 for dim in found.shape), whole, look)


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
    said = (
        f", {stats['shortest']:,} to {stats['longest']:,} bytes each, mean"
        f" {formatting.number(stats['mean'])}"
        if stats
        else ""
    )
    lines = [f"{total:,} strings{said}{'' if whole else f' (of the first {some.size:,})'}"]
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
    found = opened.file[name]
    some, whole = sampling.rows_of(found, look.rows, look.whole)
    return _ragged(some, found.shape[0] or 0, whole, look)


def _ragged(some: Ragged, total: int, whole: bool, look: Look) -> Shown:
    lengths = np.diff(some.row_splits[0])
    about: dict[str, Any] = {"rows": total, "sampled": not whole}
    said = ""
    if len(lengths):
        about["lengths"] = {
            "shortest": int(lengths.min()),
            "longest": int(lengths.max()),
            "mean": float(lengths.mean()),
        }
        mean = formatting.number(float(lengths.mean()))
        said = (
            f", lengths {lengths.min():,} to {lengths.max():,}, mean {mean}, {len(some.values):,}"
            " values"
        )
    lines = [f"{total:,} rows{said}{'' if whole else f' (of the first {len(some):,} rows)'}"]
    if isinstance(some.values, np.ndarray) and len(some.values):
        stats = statistics(some.values)
        lines.append(line_of(stats))
        about["statistics"] = for_json(stats.json())
    count = min(look.rows, len(some))
    left, digits = (
        len(str(max(count - 1, 0))),
        len(f"{int(lengths[:count].max()):,}") if count else 1,
    )
    lines += [
        f"[{i:>{left}}] {int(lengths[i]):>{digits},}  {listed(some[i])}" for i in range(count)
    ]
    lines += [f"... {total - count:,} more rows"] * (total > count)
    if look.histogram and len(lengths) and (found := histogram(lengths)) is not None:
        lines += [
            "",
            "lengths of rows:",
            *pictures.bars(found, look.paint._replace(width=min(look.paint.width - 2, 76))),
        ]
    full = whole and len(some.values) <= _FEW and total <= _FEW
    about["values"] = for_json((some if full else some[:count]).tolist())
    return Shown(lines, about)


def _sparse_of(opened: sampling.SampledFile, name: str, look: Look) -> Shown:
    some, whole = sampling.sparse(opened.file[name], look.whole)
    return _sparse(some, whole, look)


def _sparse(some: Sparse, whole: bool, look: Look) -> Shown:
    rank = some.indices.shape[1]
    cells = math.prod(some.shape[:rank])
    density = f"{100 * some.nnz / cells if cells else 0:.3g} %"
    word = "" if whole else " in a sample of the rows"
    lines = [f"nnz {some.nnz:,}{word}" + (f" of {cells:,} ({density})" if whole else "")]
    about: dict[str, Any] = {"nnz": some.nnz, "sampled": not whole}
    if isinstance(some.values, np.ndarray) and some.nnz:
        stats = statistics(some.values)
        lines.append(line_of(stats))
        about["statistics"] = for_json(stats.json())
    count = min(look.rows, some.nnz)
    lines += [f"{some.indices[i].tolist()}: {_entry(some.values, i)}" for i in range(count)]
    lines += [f"... {some.nnz - count:,} more"] * (some.nnz > count)
    if rank and cells:
        seen = "" if rank <= 2 else " (seen along all but the first two dimensions)"
        paint = look.paint._replace(width=min(look.paint.width - 2, 96))
        lines += [
            "",
            *pictures.dots(some.indices, some.shape, paint),
            f"where there are values{seen}",
        ]
    most = some.nnz if whole and some.nnz <= _FEW else count
    about["indices"] = some.indices[:most].tolist()
    about["values"] = for_json(some.values[:most].tolist())
    return Shown(lines, about)


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
