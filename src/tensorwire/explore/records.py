"""Records of record files: their decoded features, or their bytes if they are not Examples.

1. A record is decoded without a schema: its own features and types decide. If a schema sidecar file
   exists, its encodings are applied.
2. A filter is first evaluated on whole blocks, with only the columns that it names (`sift`). Where
   that is not possible, every record is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._errors import DecodeError, SchemaError, TensorwireError, choices
from .._limits import DEFAULT, Limits
from ..api.values import loads
from ..codecs.identify import recognise
from ..core import formatting
from ..core.tensors import Strings
from ..records import columns as _columns
from ..records import sidecar
from ..records.blocks import Block
from ..records.filters import Where
from ..records.infer import schema_of
from ..records.record_reader import RecordReader
from ..records.schema import Feature, Schema
from ..wire import example, kernels
from .images import image
from .text import for_json, listed
from .values import string

_FEW = 1000
_WIDE = 72


class Record(NamedTuple):
    """One record of a file. `features` is None if the record is not an Example; `steps` are the
    feature lists of a SequenceExample.
    """

    path: str
    number: int
    data: bytes
    features: dict[str, Any] | None
    steps: dict[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        return {**(self.features or {}), **self.steps}

    def json(self, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Return plain data: images by type and size, long arrays by their first values."""
        data: dict[str, Any] = {"path": self.path, "record": self.number, "nbytes": len(self.data)}
        if self.features is None:
            return data | {"bytes": for_json(self.data[:_FEW])}
        return data | {
            "features": {
                name: _json(value) for name, value in _picked(self.values, columns).items()
            }
        }

    def lines(self, columns: Sequence[str] | None = None, most: int = 100) -> list[str]:
        """Return the record as text: a heading, then one line per feature."""
        head = f"{formatting.safe(self.path)} [{self.number:,}]  {formatting.size(len(self.data))}"
        if self.features is None:
            return [f"{head}  {_what(self.data)}", f"  {formatting.quoted(self.data, _WIDE)}"]
        shown = _picked(self.values, columns)
        width = min(max(map(len, shown), default=0), 32)
        rows = [
            (name, (f"{len(value):,} steps  " if name in self.steps else "") + _shown(value))
            for name, value in shown.items()
        ]
        return [
            head,
            *(
                formatting.short(f"  {formatting.safe(name):{width}}  {text}", max(most, 40))
                for name, text in rows
            ),
        ]


def _picked(values: dict[str, Any], columns: Sequence[str] | None) -> dict[str, Any]:
    return values if columns is None else {name: values[name] for name in columns if name in values}


def read(
    paths: Any,
    *,
    skip: int = 0,
    count: int | None = None,
    where: Where | None = None,
    columns: Sequence[str] = (),
    limits: Limits | None = None,
) -> Iterator[Record]:
    """Yield at most `count` records that match `where`, after skipping the first `skip` records.

    No index file is written. If all records were read and none has a feature named in `where` or
    `columns`, SchemaError is raised.
    """
    reader = RecordReader(paths, index=False, limits=limits)
    schema = _sidecar_schema(reader.paths)
    wanted = {*columns, *(where.names if where is not None else ())}
    seen: set[str] = set()
    to_skip, examined, matched = skip, 0, 0
    if count == 0:
        return
    for block in reader.blocks():
        size = len(block.starts)
        if to_skip >= size:
            to_skip -= size
            continue
        examined += size - to_skip
        sifted = None if where is None else sift(block, where, schema)
        if sifted is not None:
            seen.update(sifted.names)
        for index in (
            range(to_skip, size)
            if sifted is None
            else (index for index in sifted.matches if index >= to_skip)
        ):
            record = decoded(block, index, schema)
            seen.update(record.values)
            if where is None or sifted is not None or where(record.values):
                matched += 1
                yield record
                if matched == count:
                    return
        to_skip = 0
    missing = sorted(wanted - seen)
    if missing and examined:
        raise SchemaError(
            f"no feature {missing[0]!r} in {examined:,}"
            f" records{choices(missing[0], sorted(seen)) if seen else ''}",
            path=reader.paths[0],
        )


def _sidecar_schema(paths: list[str]) -> Schema:
    """Return the schema of the sidecar files, which has the encodings; empty if there are none."""
    try:
        sidecars = sidecar.find(paths)
        return sidecars.united() if sidecars.schemas else Schema()
    except (TensorwireError, OSError):
        return Schema()


class Sifted(NamedTuple):
    """The records of a block that match a filter, and the names of all features in the block."""

    matches: list[int]
    names: set[str]


def sift(block: Block, where: Where, sidecar_schema: Schema) -> Sifted | None:
    """Filter the records of a block by decoding only the columns that the filter names.

    Returns None if that is not possible: a feature is encoded, has several types, or the records
    are SequenceExamples. Then the caller decodes every record.
    """
    survey = kernels.ExampleSurvey(DEFAULT.names)
    code, _, _ = survey.add(block.data, block.starts, block.sizes, True)
    try:
        schema = schema_of(survey.result(), True) if not code else None
    except SchemaError:
        return None
    if (
        schema is None
        or schema.sequences
        or any(sidecar_schema[name].encoding for name in where.names if name in sidecar_schema)
    ):
        return None
    used = [name for name in sorted(where.names) if name in schema]
    filler = example.ColumnBuffers(
        [Feature(schema[name].kind, (None,)).column(name) for name in used], len(block.starts)
    )
    if used:
        filler.fill(block.data, block.starts, block.sizes)
    lists = [_lists(filled) for filled in filler.take()]
    rows = zip(*lists, strict=True) if used else iter([()] * len(block.starts))
    matches = [index for index, row in enumerate(rows) if where(dict(zip(used, row, strict=True)))]
    return Sifted(matches, set(schema))


def _lists(filled: example.Filled) -> list[list[Any] | None]:
    """Return the values of each record; None for a record without the feature."""
    # `sift` asks for features of any length, so there are always splits.
    assert filled.splits is not None
    ends, present = filled.splits.tolist(), filled.present.tolist()
    if filled.offsets is None:
        items = filled.values.tolist()
    else:
        data, bounds = filled.values.tobytes(), filled.offsets.tolist()
        items = [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return [items[a:b] if has else None for a, b, has in zip(ends, ends[1:], present, strict=False)]


def decoded(block: Block, index: int, sidecar_schema: Schema) -> Record:
    """Return one record of a block with all of its features."""
    start, size = int(block.starts[index]), int(block.sizes[index])
    data = block.data[start : start + size].tobytes()
    survey = kernels.ExampleSurvey(DEFAULT.names)
    code, _, _ = survey.add(data, np.zeros(1, np.int64), np.array([size], np.int64), True)
    number = block.where(index)[0]
    try:
        schema = schema_of(survey.result(), True) if not code else Schema()
    except SchemaError:
        schema = Schema()
    if not schema and not schema.sequences and size:
        return Record(block.path, number, data, None, {})
    features = _decode(
        data,
        schema,
        {name: sidecar_schema.get(name, feature) for name, feature in schema.items()},
        {},
    )
    steps = _decode(
        data,
        schema,
        {},
        {
            name: sidecar_schema.sequences.get(name, feature)
            for name, feature in schema.sequences.items()
        },
    )
    return Record(block.path, number, data, features, steps)


def value_of(data: bytes, sequences: Schema | None = None) -> tuple[str, list[tuple[str, Any]]]:
    """Return (SequenceExample, Example, value or bytes; the names and tensors of the record).

    Features are lists, as in the record. `sequences` is the schema of a file of SequenceExamples.
    """
    if sequences is not None:
        try:
            return "SequenceExample", [
                (name, _value(data, name, Feature(feature.kind, (None,)), is_list, True))
                for is_list, features in ((False, sequences), (True, sequences.sequences))
                for name, feature in features.items()
            ]
        except TensorwireError:
            pass
    try:
        value = loads(data, "example")
        if value or not data:
            return "Example", list(leaves(value))
    except TensorwireError:
        pass
    try:
        return "value", list(leaves(loads(data)))
    except TensorwireError:
        return "bytes", []


def leaves(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a nested value with their paths."""
    if isinstance(value, (Mapping, list, tuple)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, item in items:
            yield from leaves(item, f"{path}/{name}" if path else str(name))
    else:
        yield path or "value", value


def _decode(
    data: bytes, schema: Schema, features: Mapping[str, Feature], lists: Mapping[str, Feature]
) -> dict[str, Any]:
    """Return the values of one record, decoded by the sidecar schema or, if that does not fit, by
    the record's own types.
    """
    decoded_values = {}
    for is_list, chosen in ((False, features), (True, lists)):
        for name, feature in chosen.items():
            natural = (schema.sequences if is_list else schema)[name]
            try:
                decoded_values[name] = _value(data, name, feature, is_list, bool(schema.sequences))
            except (DecodeError, SchemaError):
                decoded_values[name] = _value(data, name, natural, is_list, bool(schema.sequences))
    return decoded_values


def _value(data: bytes, name: str, feature: Feature, is_list: bool, sequence: bool) -> Any:
    filler = example.ColumnBuffers([feature.column(name, is_list)], 1, sequence=sequence)
    filler.fill(data, [0], [len(data)])
    filled = filler.take()[0]
    column = _columns.sequence(feature, filled) if is_list else _columns.column(feature, filled, 1)
    return column[0]


def _shown(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return string(value, decode=True)
    if isinstance(value, Strings):
        if value.size == 1:
            return string(value.reshape(-1)[0], decode=True)
        first = [string(value.reshape(-1)[i], 20, decode=True) for i in range(min(value.size, 4))]
        return f"[{', '.join(first)}{f', ... {value.size:,} in all' if value.size > 4 else ''}]"
    if hasattr(value, "row_splits"):
        return listed(value)
    if hasattr(value, "dense_shape"):
        return repr(value)
    array = np.asarray(value)
    if array.size == 1 and array.ndim < 2:
        return formatting.number(
            array.reshape(-1)[0].item() if array.dtype.kind in "biuf" else array.reshape(-1)[0], 7
        )
    dtype = (
        f"{array.dtype} {formatting.shape(array.shape)}  "
        if array.ndim > 1 or array.size > 12
        else ""
    )
    return dtype + listed(array)


def _what(data: bytes) -> str:
    """Return a description of a record that is not an Example."""
    picture = image(data)
    if picture is not None:
        return str(picture)
    try:
        return f"not an Example; detected format {recognise(data)}"
    except TensorwireError:
        return "not an Example"


def _json(value: Any) -> Any:
    if isinstance(value, Strings):
        items = [_json(item) for item in value.reshape(-1)[:_FEW].tolist()]
        return items[0] if value.size == 1 else items
    if isinstance(value, bytes):
        picture = image(value)
        return (
            {
                "image": picture.type,
                "width": picture.width,
                "height": picture.height,
                "nbytes": len(value),
            }
            if picture
            else for_json(value)
        )
    if hasattr(value, "row_splits"):
        return _json_list(value.tolist())
    if hasattr(value, "dense_shape"):
        return {
            "indices": value.indices[:_FEW].tolist(),
            "values": for_json(value.values[:_FEW].tolist()),
            "shape": list(value.shape),
        }
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    if array.size <= _FEW:
        return for_json(array)
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "first": for_json(array.reshape(-1)[:_FEW]),
    }


def _json_list(items: list[Any]) -> Any:
    return [_json_list(item) if isinstance(item, list) else for_json(item) for item in items[:_FEW]]


__all__ = ["Record", "read"]
