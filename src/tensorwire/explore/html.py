"""HTML for notebooks: tensors, schemas, summaries and reports.

1. Classes are looked up by name, so that showing one kind of value does not import the others. The
   classes set `_repr_html_ = display.html`, and the package registers `html` there.
2. Everything is a `card`: a heading, facts, a table, and lines of text. Text from the data is
   escaped, and nothing is loaded from the network.
3. Colours are inherited from the notebook, and lines are translucent grey, so that the card is
   readable on light and dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import formatting
from ..core.formatting import number, quoted, shape, size
from ..core.tensors import Array, Bundle, Ragged, Sparse, Strings, describe, nbytes_of
from .pictures import MOST, Paint, dots, spread
from .statistics import statistics
from .text import line_of, listed, values

if TYPE_CHECKING:
    from ..api.comparison.result import Differences
    from ..api.summary import Summary, TensorSummary
    from ..core.quantized import Quantized
    from ..datasets.tensor_files.plan import ConvertedTensor
    from ..datasets.tensor_files.report import ConversionReport
    from ..records.schema import Feature, Schema
    from ..records.summary import RecordSummary
    from ..serving.signature import Signature

ROWS = 30
"""The most rows of a table."""
CELL = 120
"""The most characters of a table cell."""
_BOX = (
    "display:inline-block;max-width:100%;overflow:auto;border:1px solid"
    " rgba(128,128,128,.35);border-radius:6px;padding:.5em .8em"
)
_QUIET = "opacity:.7"
_LINE = "border-bottom:1px solid rgba(128,128,128,.25)"
_TEXT = "text-align:left;padding:.15em .8em .15em 0;vertical-align:top"
_PRE = (
    "margin:.4em 0 0;line-height:1.1;font-family:monospace;background:none;color:inherit;"
    "border:0;padding:0;overflow:auto"
)


def words(text: object, most: int = CELL) -> str:
    """Return untrusted text shortened and escaped for HTML.

    >>> words("<script>alert(1)</script>", 12)
    '&lt;script&gt;a...'
    """
    return escape(formatting.safe(formatting.short(str(text), most)))


def card(
    title: str,
    facts: Iterable[tuple[str, object]] = (),
    *,
    head: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
    total: int | None = None,
    lines: Sequence[str] = (),
    note: str = "",
) -> str:
    """Return one box of HTML. `total` is the number of rows of the table before it was cut.

    >>> card("<b>", [("n", 3)])[-61:]
    '&lt;b&gt;</b> <span style="opacity:.7">n</span> 3</div></div>'
    """
    pairs = "".join(
        f' <span style="{_QUIET}">{words(key)}</span> {words(fact)}' for key, fact in facts
    )
    out = [f"<div><b>{words(title)}</b>{pairs}</div>"]
    if rows:
        out.append(_table(head, rows[:ROWS]))
        left = (len(rows) if total is None else total) - min(len(rows), ROWS)
        out += [f'<div style="{_QUIET}">... {left:,} more</div>'] * (left > 0)
    if lines:
        out.append(f'<pre style="{_PRE}">{chr(10).join(words(line, 400) for line in lines)}</pre>')
    out += [f'<div style="{_QUIET}">{words(note, 400)}</div>'] * bool(note)
    return f'<div style="{_BOX}">{"".join(out)}</div>'


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f'<th style="{_TEXT};{_LINE}">{words(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_TEXT}">{words(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    start = f"<thead><tr>{top}</tr></thead>" if head else ""
    return (
        "<table"
        f' style="border-collapse:collapse;margin-top:.3em">{start}<tbody>{body}</tbody></table>'
    )


def html(value: object) -> str:
    """Return a value as HTML, by its class or its nearest base class in `_FORMS`."""
    kind = next(base.__name__ for base in type(value).__mro__ if base.__name__ in _FORMS)
    return _FORMS[kind](value)


# Tensors

SHOWN = 8
"""The number of strings, rows or entries that are shown."""


def _summed_up(array: Array) -> str:
    """Return the statistics of an array in one line, from a sample if it is large."""
    flat = array.reshape(-1)
    some = spread(flat)
    return line_of(statistics(some), len(some) < len(flat)) if len(some) else "no values"


def _strings(value: Strings) -> str:
    offsets, flat = value.offsets, value.reshape(-1)
    lengths = np.diff(offsets[:MOST])
    span = f"{lengths.min():,} to {lengths.max():,} bytes" if len(lengths) else "none"
    facts = [
        ("shape", shape(value.shape)),
        ("dtype", "text" if value.text else "bytes"),
        ("lengths", span),
        ("size", size(int(offsets[-1]) if value.size else 0)),
    ]
    rows = [(_place(i, value.shape), quoted(flat[i])) for i in range(min(value.size, SHOWN))]
    return card("Strings", facts, rows=rows, total=value.size)


def _place(index: int, dims: Sequence[int]) -> str:
    return str([int(place) for place in np.unravel_index(index, tuple(dims))]) if dims else ""


def _sparse(value: Sparse) -> str:
    rank, items = value.indices.shape[1], value.values
    cells = float(np.prod([float(dim) for dim in value.shape[:rank]]))
    facts = [
        ("dtype", value.dtype),
        ("shape", shape(value.shape)),
        ("nnz", f"{value.nnz:,}"),
        ("density", f"{100 * value.nnz / cells if cells else 0:.3g} %"),
    ]
    rows = [(value.indices[i].tolist(), _item(items[i])) for i in range(min(value.nnz, SHOWN))]
    return card(
        "Sparse",
        facts,
        head=("index", "value"),
        rows=rows,
        total=value.nnz,
        lines=dots(value.indices, value.shape, Paint(48), 10) if rank else [],
        note=_summed_up(items) if isinstance(items, np.ndarray) and value.nnz else "",
    )


def _item(value: object) -> str:
    if isinstance(value, (str, bytes)):
        return quoted(value)
    array = np.asarray(value)
    return (
        number(array[()].item()) if not array.shape and array.dtype.kind in "biuf" else str(array)
    )


def _ragged(value: Ragged) -> str:
    flat, count, lengths = value.values, len(value), np.diff(value.row_splits[0][:MOST])
    facts: list[tuple[str, object]] = [
        ("dtype", value.dtype),
        ("shape", shape(value.shape)),
        ("rows", f"{count:,}"),
        ("values", f"{len(flat):,}"),
    ]
    if len(lengths):
        mean = number(float(lengths.mean()))
        facts.append(("lengths", f"{lengths.min():,} to {lengths.max():,}, mean {mean}"))
    rows = [(i, f"{int(lengths[i]):,}", listed(value[i])) for i in range(min(count, SHOWN))]
    note = _summed_up(flat) if isinstance(flat, np.ndarray) and len(flat) else ""
    return card(
        "Ragged", facts, head=("row", "length", "values"), rows=rows, total=count, note=note
    )


def _bundle(value: Bundle) -> str:
    cells = [(name, describe(tensor), size(nbytes_of(tensor))) for name, tensor in value.items()]
    total = sum(nbytes_of(tensor) for tensor in value.values())
    facts = [("tensors", f"{len(cells):,}"), ("size", size(total))]
    note = "  ".join(f"{key}: {text}" for key, text in list(value.metadata.items())[:8])
    return card("Bundle", facts, head=("tensor", "kind", "size"), rows=cells, note=note)


def _quantized(value: Quantized) -> str:
    codes, original = value.codes, value.original
    before = codes.size * (8 if "64" in original else 2 if "16" in original else 4)
    facts: list[tuple[str, object]] = [
        ("scheme", value.scheme),
        ("original dtype", original),
        ("shape", shape(codes.shape)),
    ]
    facts += [("axis", value.axis)] * (value.axis is not None)
    part = formatting.share(value.nbytes, before)
    facts += [("size", f"{size(value.nbytes)}, {part} of {size(before)}")]
    scale = value.scale
    note = "" if scale is None else f"scale: {values(np.asarray(scale).reshape(-1)[:6].tolist())}"
    return card("Quantized", facts, lines=[_summed_up(codes)] if codes.size else [], note=note)


# Files and reports


def _summary(value: Summary) -> str:
    packed = f" in {value.compression}" if value.compression else ""
    facts = [
        ("format", value.format + packed),
        ("size", size(value.size)),
        ("tensors", f"{len(value.tensors):,}"),
    ]
    facts += [("checksums", "yes")] if value.checksums else []
    rows = [
        (t.name, t.kind, t.dtype, shape(t.shape), size(t.nbytes), _texts(t)) for t in value.tensors
    ]
    note = "  ".join(f"{key}: {text}" for key, text in list(value.metadata.items())[:8])
    head = ("tensor", "kind", "dtype", "shape", "size", "metadata")
    return card(value.path or "bytes", facts, head=head, rows=rows, note=note)


def _texts(tensor: TensorSummary) -> str:
    how = [text for text in (tensor.quantized, tensor.compression) if text]
    return ", ".join([*how, *(f"{key}={text}" for key, text in tensor.metadata.items())])


def _record_summary(value: RecordSummary) -> str:
    packed = f" in {value.compression}" if value.compression else ""
    facts = [
        ("format", value.format + packed),
        ("size", size(value.size)),
        ("records", f"{value.records:,}"),
    ]
    facts += [("index", "yes")] if value.indexed else []
    facts += [("damage", problem) for problem in value.problems]
    return card(value.path, facts) + ("" if value.schema is None else html(value.schema))


def _schema(value: Schema) -> str:
    items = [
        *value.items(),
        *((f"{name} (list)", feature) for name, feature in value.sequences.items()),
    ]
    seen = f"{'all ' if value.complete else 'a sample of '}{value.records:,} records"
    rows = [(name, repr(feature)[8:-1], _counts(feature)) for name, feature in items]
    facts = [("from", seen)] if value.records else []
    title = f"Schema of {len(items):,} feature{'s' * (len(items) != 1)}"
    return card(title, facts, head=("feature", "kind", "statistics"), rows=rows)


def _counts(feature: Feature) -> str:
    return ", ".join(f"{key} {count}" for key, count in feature.seen.items())


def _differences(value: Differences) -> str:
    title = "equal" if value.equal else "different"
    return card(title, head=value.HEAD, rows=value.rows(), note=str(value).split("\n")[-1])


def _conversion(value: ConversionReport) -> str:
    facts = [
        ("to", value.to),
        ("size", size(value.bytes_out)),
        ("from", f"{value.format}, {size(value.bytes_in)}"),
    ]
    facts += [
        ("renamed", f"{value.renamed:,}"),
        ("cast", f"{value.cast:,}"),
        ("left out", f"{value.left_out:,}"),
    ]
    rows = [
        (e.name, e.kind, e.dtype, shape(e.shape), size(e.nbytes), _changes(e))
        for e in value.entries
    ]
    return card(
        value.target, facts, head=("tensor", "kind", "dtype", "shape", "size", "before"), rows=rows
    )


def _changes(entry: ConvertedTensor) -> str:
    name = entry.source if entry.source != entry.name else ""
    dtype = entry.was if entry.was != entry.dtype else ""
    return ", ".join(word for word in (name, dtype) if word)


def _signature(value: Signature) -> str:
    parts = [("input", part) for part in value.inputs.values()]
    parts += [("output", part) for part in value.outputs.values()]
    rows = [(role, part.name, str(part).removeprefix(f"{part.name}: ")) for role, part in parts]
    return card(
        value.name, [("method", value.method)], rows=rows, lines=list(map(str, value.groups()))
    )


_FORMS: dict[str, Callable[[Any], str]] = {
    "Strings": _strings,
    "Sparse": _sparse,
    "Ragged": _ragged,
    "Bundle": _bundle,
    "Quantized": _quantized,
    "Summary": _summary,
    "RecordSummary": _record_summary,
    "Schema": _schema,
    "Differences": _differences,
    "ConversionReport": _conversion,
    "Signature": _signature,
}
