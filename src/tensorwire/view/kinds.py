"""Pages of string, ragged and sparse tensors: strings and a search, rows and their lengths,
sparsity patterns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._errors import LimitError, SchemaError
from ..api.lazy import LazyTensor
from ..core.tensors import Array, Ragged, Sparse, Strings
from ..explore import images
from ..explore.runs import InMemory
from ..explore.sampling import SampleSummary, summary
from ..explore.text import exact
from .opened import WHOLE, Library
from .viewport import Slice

PAGE = 200
"""The most items in one response."""
SHOWN = 400
"""The most characters of a string, and values of a row, in one response."""
PIECE = 8 << 20
"""The number of bytes per read."""
SECONDS = 1.5
"""The time limit of a search; then it returns what it has, and where to continue."""
BINS = 128
"""The most rows and columns of a sparsity pattern."""


_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg"}


def media_type(data: bytes) -> str | None:
    """Return the media type of a string that is a PNG or JPEG file, else None."""
    return _MEDIA_TYPES.get(images.type_of(data) or "")


def for_page(value: int | float | None) -> int | float | str | None:
    """Return a number that JSON and JavaScript represent exactly, or its text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, int) and abs(value) >= 1 << 53 else value


def statistics_page(result: SampleSummary) -> dict[str, Any]:
    """Return statistics under the names that the page uses."""
    stats, bars = result.statistics, result.histogram
    return {
        "size": result.size,
        "counted": stats.elements,
        "nan": stats.nans,
        "inf": stats.infinite,
        "zeros": stats.zeros,
        "negative": stats.negative,
        "min": for_page(stats.least),
        "max": for_page(stats.largest),
        "mean": for_page(stats.mean),
        "std": for_page(stats.deviation),
        "edges": [for_page(edge) for edge in bars.edges] if bars else [],
        "counts": bars.counts if bars else [],
        "exact": stats.elements == result.size,
    }


def _statistics_of(array: Array) -> dict[str, Any]:
    return statistics_page(summary(InMemory(array)))


def shown_string(item: str | bytes) -> dict[str, Any]:
    """Return a string for the page: its text, or its first bytes in hex, and its image type."""
    if isinstance(item, str):
        return {
            "text": item[:SHOWN],
            "size": len(item.encode()),
            "cut": len(item) > SHOWN,
            "binary": False,
            "image": None,
        }
    try:
        text = item[: SHOWN * 4].decode("utf-8", "strict" if len(item) <= SHOWN * 4 else "ignore")
        binary = any(ord(character) < 32 and character not in "\t\r\n" for character in text)
    except UnicodeDecodeError:
        binary, text = True, ""
    shown = item[:64].hex(" ") if binary else text[:SHOWN]
    cut = len(item) > 64 if binary else len(text) > SHOWN or len(item) > SHOWN * 4
    return {
        "text": shown,
        "size": len(item),
        "cut": cut,
        "binary": binary,
        "image": media_type(item),
    }


def preview(value: Any, most: int = SHOWN) -> dict[str, Any]:
    """Return the first values of any tensor, as text."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        value = Strings.of(value.reshape(-1).tolist(), value.shape)
    if isinstance(value, np.ndarray):
        flat = value.reshape(-1)
        return {
            "kind": "dense",
            "dtype": value.dtype.name,
            "shape": list(value.shape),
            "values": [exact(item) for item in flat[:most]],
        }
    if isinstance(value, Strings):
        flat_ = value.reshape(-1)
        items = [shown_string(flat_[i]) for i in range(min(value.size, 64))]
        return {
            "kind": "strings",
            "dtype": "text" if value.text else "bytes",
            "shape": list(value.shape),
            "strings": items,
        }
    if isinstance(value, Ragged):
        rows = [preview(value[i], 32) for i in range(min(len(value), 32))]
        return {
            "kind": "ragged",
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "rows": rows,
        }
    if isinstance(value, Sparse):
        return {
            "kind": "sparse",
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "entries": entries(value, 0, 32),
        }
    return {
        "kind": "value",
        "dtype": type(value).__name__,
        "shape": [],
        "values": [repr(value)[:SHOWN]],
    }


# Strings


def strings(library: Library, id: str, number: int, start: int, count: int) -> dict[str, Any]:
    """Return a page of strings, by their position in C order."""
    tensor = _of_kind(library, id, number, "strings")
    total = math.prod(dim or 0 for dim in tensor.shape)
    start = min(max(0, start), total)
    stop = min(total, start + max(1, min(PAGE, count)))
    items = _run(library, id, number, start, stop) if stop > start else []
    return {
        "total": total,
        "start": start,
        "items": [{"at": start + i, **shown_string(item)} for i, item in enumerate(items)],
    }


def string(library: Library, id: str, number: int, index: int) -> bytes:
    """Return the bytes of one string."""
    tensor = _of_kind(library, id, number, "strings")
    if not 0 <= index < math.prod(dim or 0 for dim in tensor.shape):
        raise SchemaError(f"no string {index}")
    item = _run(library, id, number, index, index + 1)[0]
    return item.encode() if isinstance(item, str) else item


def search(
    library: Library, id: str, number: int, text: str, start: int, most: int = 100
) -> dict[str, Any]:
    """Return strings from `start` on that contain the text, ignoring case. `next` is where to
    continue, or None at the end.
    """
    tensor = _of_kind(library, id, number, "strings")
    total = math.prod(dim or 0 for dim in tensor.shape)
    wanted, matches = text.lower(), []
    pattern = wanted.encode()
    step = max(1, min(1 << 16, PIECE // max(1, tensor.nbytes // max(1, total))))
    end = time.monotonic() + SECONDS
    position = min(max(0, start), total)
    while position < total and time.monotonic() < end:
        for i, item in enumerate(_run(library, id, number, position, min(total, position + step))):
            if wanted in item.lower() if isinstance(item, str) else pattern in item.lower():
                matches.append({"at": position + i, **shown_string(item)})
                if len(matches) == most:
                    return {
                        "total": total,
                        "items": matches,
                        "next": position + i + 1 if position + i + 1 < total else None,
                    }
        position += step
    return {"total": total, "items": matches, "next": position if position < total else None}


def _run(library: Library, id: str, number: int, start: int, stop: int) -> list[Any]:
    """Return the strings start to stop: from the cached tensor, or of a large one from its rows."""
    tensor = library.tensor(id, number)
    if tensor.nbytes <= WHOLE or not tensor.shape:
        flat = library.whole(id, number).reshape(-1)
        return list(flat[start:stop])
    inner = math.prod(dim or 0 for dim in tensor.shape[1:])
    first, last = start // inner, -(-stop // inner)
    rows = tensor[first:last].reshape(-1)
    return list(rows[start - first * inner : stop - first * inner])


# Ragged


def ragged(library: Library, id: str, number: int, start: int, count: int) -> dict[str, Any]:
    """Return a page of rows."""
    tensor = _of_kind(library, id, number, "ragged")
    total = len(tensor)
    start = min(max(0, start), total)
    row_bytes = tensor.nbytes // max(1, total)
    if row_bytes > WHOLE:
        raise LimitError(
            f"a row has {row_bytes:,} bytes on average, more than {WHOLE:,}", tensor=tensor.name
        )
    stop = min(total, start + max(1, min(PAGE, count, PIECE // max(1, row_bytes) or 1)))
    rows = tensor[start:stop] if tensor.nbytes > WHOLE else library.whole(id, number)[start:stop]
    return {
        "total": total,
        "start": start,
        "rows": [preview(rows[i], 64) | {"at": start + i} for i in range(len(rows))],
    }


def lengths(library: Library, id: str, number: int) -> dict[str, Any]:
    """Return statistics of the row lengths and of the values."""
    tensor = _of_kind(library, id, number, "ragged")
    sizes: list[Array] = []
    values: list[Array] = []
    for rows in _samples(library, id, number, tensor):
        sizes.append(np.diff(rows.row_splits[0]).astype(np.int64))
        if isinstance(rows.values, np.ndarray):
            values.append(rows.values.reshape(-1))
    stats = _statistics_of(np.concatenate(sizes) if sizes else np.zeros(0, np.int64))
    data = {
        "rows": len(tensor),
        "lengths": stats | {"exact": stats["counted"] == len(tensor), "size": len(tensor)},
        "values": None,
    }
    if values:
        whole = stats["counted"] == len(tensor)
        data["values"] = _statistics_of(np.concatenate(values)) | {"exact": whole}
    return data


def _samples(library: Library, id: str, number: int, tensor: LazyTensor) -> Iterator[Ragged]:
    """Yield all of a small ragged tensor, or rows from sixteen places of a large one."""
    if tensor.nbytes <= WHOLE:
        yield library.whole(id, number)
        return
    total, row_bytes = len(tensor), max(1, tensor.nbytes // max(1, len(tensor)))
    if row_bytes > WHOLE:
        raise LimitError(
            f"a row has {row_bytes:,} bytes on average, more than {WHOLE:,}", tensor=tensor.name
        )
    count = max(1, min(total, (PIECE // 4) // row_bytes))
    places = sorted({(total - count) * i // 15 for i in range(16)})
    for before, start in zip([-count, *places], places, strict=False):
        if start >= before + count:
            yield tensor[start : start + count]


# Sparse


def entries(sparse: Sparse, start: int, count: int) -> list[dict[str, Any]]:
    """Return some elements of a sparse tensor: index and value."""
    items = []
    for i in range(start, min(sparse.nnz, start + count)):
        item = sparse.values[i]
        text = shown_string(item)["text"] if isinstance(item, (str, bytes)) else exact(item)
        items.append({"at": sparse.indices[i].tolist(), "value": text[:SHOWN]})
    return items


def pattern(
    library: Library,
    id: str,
    number: int,
    rows: int | None,
    columns: int | None,
    start: int,
    count: int,
) -> dict[str, Any]:
    """Return the number of elements in each block along two dimensions, and a page of elements."""
    _of_kind(library, id, number, "sparse")
    sparse: Sparse = library.whole(id, number)
    rank = sparse.indices.shape[1]
    shape = sparse.shape[:rank]
    cut = Slice.of(shape, rows, columns, None)
    dims = [shape[axis] if axis >= 0 else 1 for axis in (cut.rows, cut.columns)]
    steps = [max(1, -(-dim // BINS)) for dim in dims]
    heights = [-(-dim // step) for dim, step in zip(dims, steps, strict=True)]
    places = [
        (sparse.indices[:, axis] // step if axis >= 0 else np.zeros(sparse.nnz, np.int64))
        for axis, step in zip((cut.rows, cut.columns), steps, strict=True)
    ]
    counts = (
        np.bincount(places[0] * heights[1] + places[1], minlength=heights[0] * heights[1])
        if sparse.nnz
        else np.zeros(0, np.int64)
    )
    order = sparse.order
    elements = math.prod(shape)
    return {
        "shape": list(sparse.shape),
        "rank": rank,
        "nnz": sparse.nnz,
        "density": sparse.nnz / elements if elements else 0.0,
        "sorted": bool(order.sorted),
        "duplicates": bool(order.duplicates),
        "rows": cut.rows,
        "columns": cut.columns,
        "extent": dims,
        "steps": steps,
        "counts": {"shape": heights, "values": counts.tolist()},
        "values": (
            _statistics_of(sparse.values) if isinstance(sparse.values, np.ndarray) else None
        ),
        "start": start,
        "entries": entries(sparse, max(0, start), max(1, min(PAGE, count))),
    }


def _of_kind(library: Library, id: str, number: int, kind: str) -> LazyTensor:
    tensor = library.tensor(id, number)
    if tensor.kind != kind:
        raise SchemaError(
            f"expected a {kind} tensor, found a {tensor.kind} one", tensor=tensor.name
        )
    return tensor
