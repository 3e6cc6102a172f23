"""Records of record files, one by one: their features, whatever these are, or the bytes of what is
no Example.
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
    """One record of a file. `features` is None if it is no Example; `steps` are the feature lists
    of a SequenceExample.
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
        """Plain data; a picture is its type and size, and long lists say how long they are."""
        about: dict[str, Any] = {"path": self.path, "record": self.number, "nbytes": len(self.data)}
        if self.features is None:
            return about | {"bytes": for_json(self.data[:_FEW])}
        return about | {
            "features": {
                name: _json(value) for name, value in _picked(self.values, columns).items()
            }
        }

    def lines(self, columns: Sequence[str] | None = None, most: int = 100) -> list[str]:
        """For people: a line for the record, and one for each feature."""
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
    """Records from number `skip` on, those that `where` is true for, `count` of them at most.
    Nothing is written beside the files.

    A name in `where` or `columns` that no record has is an error, once all records have been looked
    at.
    """
    reader = RecordReader(paths, index=False, limits=limits)
    known = _known(reader.paths)
    wanted = {*columns, *(where.names if where is not None else ())}
    seen: set[str] = set()
    left, looked, found = skip, 0, 0
    if count == 0:
        return
    for block in reader.blocks():
        size = len(block.starts)
        if left >= size:
            left -= size
            continue
        looked += size - left
        sifted = None if where is None else sift(block, where, known)
        if sifted is not None:
            seen.update(sifted.names)
        for index in (
            range(left, size)
            if sifted is None
            else (index for index in sifted.matches if index >= left)
        ):
            record = decoded(block, index, known)
            seen.update(record.values)
            if where is None or sifted is not None or where(record.values):
                found += 1
                yield record
                if found == count:
                    return
        left = 0
    missing = sorted(wanted - seen)
    if missing and looked:
        raise SchemaError(
            f"no feature {missing[0]!r} in {looked:,}"
            f" records{choices(missing[0], sorted(seen)) if seen else ''}",
            path=reader.paths[0],
        )


def _known(paths: list[str]) -> Schema:
    """The schema beside the files says how bytes are encoded; without one they are bytes."""
    try:
        sidecars = sidecar.find(paths)
        return sidecars.united() if sidecars.schemas else Schema()
    except (TensorwireError, OSError):
        return Schema()


class Sifted(NamedTuple):
    """The records of a block that a condition is true for, and the names of all features that the
    block has.
    """

    matches: list[int]
    names: set[str]


def sift(block: Block, where: Where, known: Schema) -> Sifted | None:
    """The quick way to find records: only what the condition names is decoded, for the whole block
    at once. None if that cannot be done, because a feature is encoded, of several kinds, or of a
    SequenceExample; then each record is decoded and asked."""
    survey = kernels.ExampleSurvey(DEFAULT.names)
    code, _, _ = survey.add(block.data, block.starts, block.sizes, True)
    try:
        schema = schema_of(survey.result(), True) if not code else None
    except SchemaError:
        return None
    if (
        schema is None
        or schema.sequences
        or any(known[name].encoding for name in where.names if name in known)
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
    """The values of each record; None if it does not have the feature."""
    assert filled.splits is not None  # any number of values was asked for
    ends, there = filled.splits.tolist(), filled.present.tolist()
    if filled.offsets is None:
        items = filled.values.tolist()
    else:
        data, bounds = filled.values.tobytes(), filled.offsets.tolist()
        items = [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return [items[a:b] if has else None for a, b, has in zip(ends, ends[1:], there, strict=False)]


def decoded(block: Block, index: int, known: Schema) -> Record:
    """One record of a block, with all of its features."""
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
        data, schema, {name: known.get(name, feature) for name, feature in schema.items()}, {}
    )
    steps = _decode(
        data,
        schema,
        {},
        {name: known.sequences.get(name, feature) for name, feature in schema.sequences.items()},
    )
    return Record(block.path, number, data, features, steps)


def value_of(data: bytes, sequences: Schema | None = None) -> tuple[str, list[tuple[str, Any]]]:
    """(what a record is: SequenceExample, Example, value or bytes; its tensors and their names). Features
    are lists, as they are in the record. `sequences` is the schema of a file of SequenceExamples.
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
    """The tensors of a nested value by their paths."""
    if isinstance(value, (Mapping, list, tuple)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, item in items:
            yield from leaves(item, f"{path}/{name}" if path else str(name))
    else:
        yield path or "value", value


def _decode(
    data: bytes, schema: Schema, features: Mapping[str, Feature], lists: Mapping[str, Feature]
) -> dict[str, Any]:
    """The values of one record; as the known schema has it, or if that does not fit, as they are."""
    found = {}
    for is_list, chosen in ((False, features), (True, lists)):
        for name, feature in chosen.items():
            natural = (schema.sequences if is_list else schema)[name]
            try:
                found[name] = _value(data, name, feature, is_list, bool(schema.sequences))
            except (DecodeError, SchemaError):
                found[name] = _value(data, name, natural, is_list, bool(schema.sequences))
    return found


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
    """What a record is that is no Example."""
    picture = image(data)
    if picture is not None:
        return str(picture)
    try:
        return f"no Example; it looks like {recognise(data)}"
    except TensorwireError:
        return "no Example"


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
