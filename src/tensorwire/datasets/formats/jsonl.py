"""JSON lines: an object a record, plain or compressed as a whole.

Numbers are numbers ("NaN", "Infinity" and "-Infinity" where JSON has none), text is text, bytes are {"b64": "..."}, lists are lists, and a
feature that a record does not have is not there (null is read as that, too).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from ... import dtypes, storage
from ..._errors import DecodeError, EncodeError, LimitError, SchemaError, TensorwireError
from ..._limits import DEFAULT
from ...records import beside, pack
from ...records import blocks as _blocks
from ...records.batch import Batch
from ...records.schema import BYTES, FLOAT, INT64, Feature, Schema
from ...tensors import Ragged, Strings
from ...transforms import compression as compressions
from ...wire import jsontext
from .. import features
from ..spec import Spec
from . import ROWS, Counted, Damage, Part, Reading

FORMAT = "jsonl"
_MARK = b"\xef\xbb\xbf"
"""What some put in front of UTF-8."""
_PIECE = 1 << 20
_SAMPLE = 8 << 20
"""Bytes that a sample reads of each of a few files."""
_FILES = 16
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _lines(path: str, offset: int = 0, reading: Reading | None = None) -> Iterator[tuple[int, bytes]]:
    """Each line that has something in it, and where it begins (in the content, if that is compressed)."""
    with storage.opened(path, ahead=True) as source:
        name = _compression(source)
        stream: Any = _blocks.Compressed(source, name, 0, DEFAULT) if name else _blocks.Plain(source, offset)
        buffer = np.empty(_PIECE, np.uint8)
        rest, at = b"", offset
        while got := stream.fill(buffer):
            if reading is not None:
                reading.reach(stream.at / source.size)
            piece = buffer[:got].tobytes()
            if not at and not rest and piece.startswith(_MARK):
                piece, at = piece.removeprefix(_MARK), len(_MARK)
            whole, newline, tail = (rest + piece).rpartition(b"\n")
            if not newline:
                rest = tail
                if len(rest) > DEFAULT.record:
                    raise LimitError(f"a line of more than the {DEFAULT.record} bytes that Limits(record=...) allows", path=path, offset=at)
                continue
            for line in whole.split(b"\n"):
                if line.strip():
                    yield at, line
                at += len(line) + 1
            rest = tail
        stream.finish()
        if rest.strip():
            yield at, rest


def _compression(source: storage.Readable) -> str | None:
    head = bytes(source.read_at(0, min(64, source.size)))
    return compressions.recognise(head) if head[:1] not in (b"{", b"\n", b" ") else None


def count(path: str, marks: int, spec: Spec) -> Counted:
    """By reading all of it. Compressed files have no marks."""
    with storage.opened(path) as source:
        packed = _compression(source) is not None
    offsets, step, records = [], 1, 0
    for at, line in _lines(path):
        if spec.skips and _parsed(line, path, records, at, []) is None:
            continue
        if records % step == 0:
            offsets.append(at)
            if len(offsets) > 4 * max(1, marks):  # twice as far apart
                offsets, step = offsets[::2], 2 * step
        records += 1
    if packed or spec.skips or not records:
        return Counted(records, [])
    return Counted(records, offsets, step)


def _parsed(line: bytes, path: str, record: int, offset: int, damage: list[Damage] | None) -> dict[str, Any] | None:
    try:
        found = jsontext.parse(line, FORMAT, offset)
        if not isinstance(found, dict):
            raise DecodeError(f"a line is an object, not {type(found).__name__}", format=FORMAT, offset=offset)
        return found
    except DecodeError as error:
        error.add(path=path, record=record)
        if damage is None:
            raise
        damage.append(Damage(path, str(error), len(line)))
        return None


def bare(names: list[str], paths: Sequence[str], spec: Spec) -> list[str]:
    return names


def read(part: Part, spec: Spec, reading: Reading) -> Iterator[Batch]:
    number, offset = part.mark or (0, 0)
    held: list[dict[str, Any]] = []
    size, first = 0, number
    for at, line in _lines(part.path, offset, reading):
        if part.stop is not None and number >= part.stop:
            break
        wanted = number >= part.first
        row = _parsed(line, part.path, number, at, reading.damage if spec.skips else None) if wanted or spec.skips else None
        if row is None and spec.skips:
            continue
        if wanted and row is not None:
            if not held:
                first = number
            held.append(row)
            size += len(line)
        number += 1
        if len(held) == ROWS or size >= 4 * _PIECE:
            yield _batch(held, spec, part.path, first)
            held, size = [], 0
    if held:
        yield _batch(held, spec, part.path, first)


def _batch(rows: list[dict[str, Any]], spec: Spec, path: str, first: int) -> Batch:
    assert spec.schema is not None
    if spec.strict:
        for number, row in enumerate(rows):
            if strangers := {name for name, value in row.items() if value is not None} - set(spec.schema):
                why = "a feature that the schema does not have, and that would be lost; columns= says what to keep"
                raise SchemaError(why, tensor=min(strangers), path=path, record=first + number)
    columns, present = {}, {}
    for name, feature in features.travelling(spec).items():
        values = [row.get(name) for row in rows]
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        try:
            columns[name] = _column(values, _plain(feature))
        except TensorwireError as error:
            error.record = first + (error.record or 0)
            raise error.add(tensor=name, path=path) from None
        present[name] = there
    return Batch(columns, present, len(rows))


def _plain(feature: Feature) -> Feature:
    """The values of a feature that an Example holds as one tensor stand here as what they are."""
    if feature.encoding not in ("tensor", "raw") or not feature.fixed:
        return feature
    if feature.dtype == "string":
        return Feature(BYTES, feature.shape, text=feature.text)
    kind = INT64 if dtypes.named(feature.dtype).numpy.kind in "iub" else FLOAT
    return Feature(kind, feature.shape, feature.dtype)


def _column(values: list[Any], feature: Feature) -> Any:
    convert = _string if feature.kind == BYTES else _number(feature)
    if feature.shape == ():
        blank: Any = b"" if feature.kind == BYTES else 0
        return _flat([blank if value is None else _one(value, convert, row) for row, value in enumerate(values)], feature)
    length = feature.length
    lists: list[Any] = []
    sizes = np.zeros(len(values) + 1, np.int64)
    for row, value in enumerate(values):
        items = (
            list(_leaves(value, convert, row))
            if value is not None
            else ([] if length < 0 else [b"" if feature.kind == BYTES else 0] * length)
        )
        if 0 <= length != len(items):
            raise SchemaError(f"{len(items)} values, and the schema says {length}", record=row)
        lists += items
        sizes[row + 1] = len(items)
    found = _flat(lists, feature)
    if length < 0:
        return Ragged(found, np.cumsum(sizes))
    return found.reshape(len(values), *(dim or 0 for dim in feature.shape or ()))


def _leaves(value: Any, convert: Any, row: int) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item, convert, row)
    else:
        yield _one(value, convert, row)


def _one(value: Any, convert: Any, row: int) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{value!r:.60}: {error}", record=row) from None


def _string(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"no base64 ({error})") from None
    raise TypeError('not text, nor {"b64": ...}')


def _number(feature: Feature) -> Any:
    def integer(value: Any) -> int:
        if type(value) is bool and feature.dtype != "bool":
            raise TypeError(f"not {feature.dtype}")
        if not isinstance(value, int) or not -(2**63) <= value < 2**64:
            raise TypeError(f"not {feature.dtype}")
        return value

    def number(value: Any) -> float:
        if isinstance(value, str) and value in _WORDS:
            return _WORDS[value]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError("no number")
        return float(value)

    return integer if feature.kind == INT64 else number


def _flat(values: list[Any], feature: Feature) -> Any:
    if feature.kind == BYTES:
        strings = Strings.of(values, text=False)
        return strings.astext() if feature.text else strings
    dtype = dtypes.named(feature.dtype).numpy
    if feature.kind == FLOAT:
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(dtype)
    made = np.array(values, object)
    try:
        found = np.array(values, np.int64 if feature.dtype != "uint64" else np.uint64).astype(dtype)
    except OverflowError:
        raise SchemaError(f"a number that does not fit {feature.dtype}") from None
    if len(wrong := np.flatnonzero(found.astype(object) != made)):
        raise SchemaError(f"the value {made[wrong[0]]} does not fit {feature.dtype}")
    return found


def schema(sources: Sequence[str], spec: Spec, nbytes: int) -> Schema:
    return beside.known(sources, lambda without: _sampled(without, spec))


def _sampled(sources: Sequence[str], spec: Spec) -> Schema:
    """What the first lines of a few files are."""
    found: dict[str, Feature] = {}
    width = "float32" if spec.target == "tfrecord" else "float64"
    for path in [sources[i * len(sources) // min(len(sources), _FILES)] for i in range(min(len(sources), _FILES))]:
        for number, (at, line) in enumerate(_lines(path)):
            if at > _SAMPLE:
                break
            row = _parsed(line, path, number, at, [] if spec.skips else None)
            for name, value in (row or {}).items():
                if value is not None:
                    try:
                        _grow(found, name, _feature(value, width))
                    except TensorwireError as error:
                        raise error.add(path=path, record=number, tensor=name) from None
    return Schema(found)


def _grow(found: dict[str, Feature], name: str, feature: Feature | None) -> None:
    if feature is None:  # an empty list: of what, the next will say
        return
    known = found.get(name)
    if known is None or known == feature:
        found[name] = feature
        return
    if {known.kind, feature.kind} == {FLOAT, INT64} and "bool" not in (known.dtype, feature.dtype):
        width = known.dtype if known.kind == FLOAT else feature.dtype
        known, feature = Feature(FLOAT, known.shape, width), Feature(FLOAT, feature.shape, width)
    if known.kind == BYTES:
        text = known.text and feature.text
        known, feature = Feature(known.kind, known.shape, text=text), Feature(feature.kind, feature.shape, text=text)
    found[name] = pack.merge(known, feature)


def _feature(value: Any, width: str) -> Feature | None:
    if isinstance(value, list):
        inner = [found for item in value if (found := _feature(item, width)) is not None]
        if any(found.shape != () for found in inner) or None in value:
            raise SchemaError("lists of lists, or with null in them, are no feature; schema= says what they are, columns= leaves them out")
        merged: dict[str, Feature] = {}
        for found in inner:
            _grow(merged, "", found)
        return Feature(merged[""].kind, (None,), merged[""].dtype, text=merged[""].text) if merged else None
    if isinstance(value, bool):
        return Feature(INT64, (), "bool")
    if isinstance(value, int):
        return Feature(INT64, ())
    if isinstance(value, float):
        return Feature(FLOAT, (), width)
    if isinstance(value, str):
        return Feature(BYTES, (), text=True) if value not in _WORDS else Feature(FLOAT, (), width)
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return Feature(BYTES, ())
    raise SchemaError("an object is no feature; columns= leaves it out")


class Writer:
    def __init__(self, file: IO[bytes], spec: Spec) -> None:
        self._file = file
        name = _blocks.compression_named(spec.compression)
        self._compressor = compressions.compressor(name, level=spec.level, threads=1) if name else None

    def add(self, batch: Batch) -> None:
        columns = {name: _values(column) for name, column in batch.items()}
        present = {name: there.tolist() for name, there in batch.present.items()}
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
        lines = [
            encode({name: values[row] for name, values in columns.items() if present[name][row]}).encode() + b"\n"
            for row in range(batch.size)
        ]
        data = b"".join(lines)
        for chunk in self._compressor.write(data) if self._compressor is not None else [data]:
            self._file.write(chunk)

    def close(self) -> None:
        for chunk in self._compressor.finish() if self._compressor is not None else ():
            self._file.write(chunk)


def writer(file: IO[bytes], spec: Spec) -> Writer:
    return Writer(file, spec)


def _values(column: Any) -> list[Any]:
    """A column as what JSON has, one value a row."""
    if isinstance(column, Ragged):
        return _nested(column)
    if isinstance(column, Strings):
        flat = column.reshape(-1).tolist()
        items = flat if column.text else [{"b64": base64.b64encode(item).decode()} for item in flat]
        return _shaped(items, column.shape)
    if column.dtype.kind in "iub":
        return column.tolist()  # type: ignore[no-any-return]
    if column.dtype.kind == "c":
        raise EncodeError("JSON has no complex numbers", format=FORMAT)
    wide = column.astype(np.float64)
    if np.isfinite(wide).all():
        return wide.tolist()  # type: ignore[no-any-return]
    items = [
        value if math.isfinite(value) else "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        for value in wide.reshape(-1).tolist()
    ]
    return _shaped(items, column.shape)


def _shaped(items: list[Any], shape: tuple[int, ...]) -> list[Any]:
    for dim in reversed(shape[1:]):
        items = [items[at : at + dim] for at in range(0, len(items), dim)] if dim else [[] for _ in range(shape[0])]
    return items


def _nested(column: Ragged) -> list[Any]:
    rows = _values(column.values)
    for splits in reversed(column.row_splits):
        bounds = splits.tolist()
        rows = [rows[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return rows


def check_target(spec: Spec) -> None:
    _blocks.compression_named(spec.compression)
    if spec.quantize:
        raise EncodeError("JSON holds plain numbers; quantize= is for tfrecord, npz and safetensors", format=FORMAT)
