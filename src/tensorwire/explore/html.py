"""Values, schemas, summaries and reports as HTML for notebooks.

A class is looked up by its name, so that showing one kind of value imports no other. The classes
have `_repr_html_ = display.html`, and the package registers `html` for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.tensors import describe, nbytes_of
from . import notebook
from .figures import shape, size
from .markup import card


def html(value: Any) -> str:
    """A value as HTML, by its class or the nearest base that has a form here."""
    kind = next(base.__name__ for base in type(value).__mro__ if base.__name__ in _FORMS)
    return _FORMS[kind](value)


def _strings(value: Any) -> str:
    flat = value.reshape(-1)
    first = [flat[i] for i in range(min(value.size, notebook.SHOWN))]
    return notebook.strings(first, value.offsets, value.shape, value.text)


def _bundle(value: Any) -> str:
    rows = [(name, describe(tensor), nbytes_of(tensor)) for name, tensor in value.items()]
    return notebook.bundle(rows, value.metadata)


def _summary(value: Any) -> str:
    packed = f" in {value.compression}" if value.compression else ""
    facts = [
        ("format", value.format + packed),
        ("size", size(value.size)),
        ("tensors", f"{len(value.tensors):,}"),
    ]
    facts += [("with", "checksums")] if value.checksums else []
    rows = [
        (t.name, t.kind, t.dtype, shape(t.shape), size(t.nbytes), _texts(t)) for t in value.tensors
    ]
    note = "  ".join(f"{key}: {text}" for key, text in list(value.metadata.items())[:8])
    head = ("tensor", "kind", "dtype", "shape", "size", "")
    return card(value.path or "bytes", facts, head=head, rows=rows, note=note)


def _texts(tensor: Any) -> str:
    how = [text for text in (tensor.quantized, tensor.compression) if text]
    return ", ".join([*how, *(f"{key}={text}" for key, text in tensor.metadata.items())])


def _record_summary(value: Any) -> str:
    packed = f" in {value.compression}" if value.compression else ""
    facts = [
        ("format", value.format + packed),
        ("size", size(value.size)),
        ("records", f"{value.records:,}"),
    ]
    facts += [("and", "an index")] if value.indexed else []
    facts += [("damaged", problem) for problem in value.problems]
    return card(value.path, facts) + ("" if value.schema is None else html(value.schema))


def _schema(value: Any) -> str:
    items = [
        *value.items(),
        *((f"{name} (list)", feature) for name, feature in value.sequences.items()),
    ]
    seen = f"{'all ' if value.complete else 'a sample of '}{value.records:,} records"
    rows = [(name, repr(feature)[8:-1], _counts(feature)) for name, feature in items]
    facts = [("from", seen)] if value.records else []
    return card(
        f"Schema of {len(items)} features", facts, head=("feature", "kind", "seen"), rows=rows
    )


def _counts(feature: Any) -> str:
    return ", ".join(f"{key} {count}" for key, count in feature.seen.items())


def _differences(value: Any) -> str:
    title = "equal" if value.equal else "different"
    return card(title, head=value.HEAD, rows=value.rows(), note=str(value).split("\n")[-1])


def _conversion(value: Any) -> str:
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
        value.target, facts, head=("tensor", "kind", "dtype", "shape", "size", "was"), rows=rows
    )


def _changes(entry: Any) -> str:
    name = entry.source if entry.source != entry.name else ""
    dtype = entry.was if entry.was != entry.dtype else ""
    return ", ".join(word for word in (name, dtype) if word)


def _signature(value: Any) -> str:
    parts = [("input", part) for part in value.inputs.values()]
    parts += [("output", part) for part in value.outputs.values()]
    rows = [(role, part.name, str(part).removeprefix(f"{part.name}: ")) for role, part in parts]
    return card(
        value.name, [("method", value.method)], rows=rows, lines=list(map(str, value.groups()))
    )


_FORMS: dict[str, Callable[[Any], str]] = {
    "Strings": _strings,
    "Sparse": lambda x: notebook.sparse(x.indices, x.values, x.shape, x.dtype),
    "Ragged": lambda x: notebook.ragged(x.__getitem__, x.row_splits, x.values, x.shape, x.dtype),
    "Bundle": _bundle,
    "Quantized": lambda x: notebook.quantized(
        x.codes, x.scheme, x.original, x.axis, x.scale, x.nbytes
    ),
    "Summary": _summary,
    "RecordSummary": _record_summary,
    "Schema": _schema,
    "Differences": _differences,
    "ConversionReport": _conversion,
    "Signature": _signature,
}
