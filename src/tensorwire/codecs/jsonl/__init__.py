"""Datasets in JSON lines: one object per record, in files that may be compressed as a whole.

1. Numbers, text and lists are themselves. Bytes are {"b64": "..."}.
2. Floats that are not JSON numbers are "NaN", "Infinity", "-Infinity", and "NaN(ffc00000)" for a
   NaN with other bits than the default one.
3. A missing feature is left out. When reading, null means the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ... import storage
from ..._errors import DecodeError, EncodeError, LimitError, SchemaError, TensorwireError
from ..._limits import DEFAULT
from ...records import blocks as _blocks
from ...records import pack, sidecar
from ...records.batch import Batch
from ...records.schema import BYTES, FLOAT, INT64, Feature, Schema
from ...transforms import compression as compressions
from ...wire import json as jsontext
from .. import example_features
from ..column_rows import some
from ..conversion_spec import ConversionSpec
from ..rows import ROWS, ByteOutput, Counted, Damage, Reading, RowFormat, SourcePart
from . import values as jsonl_values
from .values import FORMAT

_MARK = b"\xef\xbb\xbf"
"""The byte order mark that some programs write before UTF-8."""
_PIECE = 1 << 20
_SAMPLE = 8 << 20
"""The number of bytes that schema inference reads of each sampled file."""
_COMPRESSIONS = ("gzip", "zstd", "lz4")
"""Compressions that can be recognised by the first bytes of a file."""


def _lines(
    path: str, offset: int = 0, reading: Reading | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the bytes of each line that is not blank.

    In a compressed file the offset is that in the decompressed content.
    """
    with storage.opened(path, ahead=True) as source:
        name = _compression(source)
        stream: Any = (
            _blocks.Compressed(source, name, 0, DEFAULT)
            if name
            else _blocks.PlainBlocks(source, offset)
        )
        buffer = np.empty(_PIECE, np.uint8)
        rest, start = b"", offset
        while got := stream.fill(buffer):
            if reading is not None:
                reading.reach(stream.at / source.size)
            piece = buffer[:got].tobytes()
            if not start and not rest and piece.startswith(_MARK):
                piece, start = piece.removeprefix(_MARK), len(_MARK)
            whole, newline, tail = (rest + piece).rpartition(b"\n")
            if not newline:
                rest = tail
                if len(rest) > DEFAULT.record:
                    raise LimitError(
                        f"a line has more than the {DEFAULT.record} bytes that Limits(record=...)"
                        " allows",
                        path=path,
                        offset=start,
                    )
                continue
            for line in whole.split(b"\n"):
                if line.strip():
                    yield start, line
                start += len(line) + 1
            rest = tail
        stream.finish()
        if rest.strip():
            yield start, rest


def _compression(source: storage.Readable) -> str | None:
    head = bytes(source.read_at(0, min(64, source.size)))
    return compressions.recognise(head) if head[:1] not in (b"{", b"\n", b" ") else None


def _parsed(
    line: bytes, path: str, record: int, offset: int, damage: list[Damage] | None
) -> dict[str, Any] | None:
    """Parses a line. If `damage` is given, an invalid line is added to it and gives None."""
    try:
        value = jsontext.parse(line, FORMAT, offset)
        if not isinstance(value, dict):
            raise DecodeError(
                f"expected an object per line, found {type(value).__name__}",
                format=FORMAT,
                offset=offset,
            )
        return value
    except DecodeError as error:
        error.add(path=path, record=record)
        if damage is None:
            raise
        damage.append(Damage(path, str(error), len(line)))
        return None


def _is_lists(value: object) -> bool:
    """Whether a value is a list, but not a list of bytes, as quantized tensors are."""
    return isinstance(value, list) and not (value and isinstance(value[0], dict))


def _batch(rows: list[dict[str, Any]], spec: ConversionSpec, path: str, first: int) -> Batch:
    """Returns the rows as a batch of the columns of the schema. `first` is the first record."""
    assert spec.schema is not None
    if spec.strict:
        for number, row in enumerate(rows):
            if unknown := {name for name, value in row.items() if value is not None} - set(
                spec.schema
            ):
                raise SchemaError(
                    "the schema does not have this feature, so it would be lost",
                    tensor=min(unknown),
                    path=path,
                    record=first + number,
                    hint="columns= selects the features to keep",
                )
    columns, present = {}, {}
    for name, feature in example_features.travelling(spec).items():
        values = [row.get(name) for row in rows]
        there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        try:
            columns[name] = jsonl_values.to_column(values, there, feature)
        except TensorwireError as error:
            error.record = first + (error.record or 0)
            raise error.add(tensor=name, path=path) from None
        present[name] = there
    return Batch(columns, present, len(rows))


def _sampled(sources: Sequence[str], spec: ConversionSpec) -> Schema:
    """Infers the schema from the first lines of a few files."""
    features: dict[str, Feature] = {}
    for path in some(sources):
        for number, (offset, line) in enumerate(_lines(path)):
            if offset > _SAMPLE:
                break
            row = _parsed(line, path, number, offset, [] if spec.skips else None)
            for name, value in (row or {}).items():
                if value is not None and (spec.reads is None or name in spec.reads):
                    try:
                        _grow(features, name, _feature(value, _width(name, spec)))
                    except TensorwireError as error:
                        raise error.add(path=path, record=number, tensor=name) from None
    return Schema(features)


def _width(name: str, spec: ConversionSpec) -> str:
    """Returns the dtype of a fraction: float32 if an Example stores it as a float list, else
    float64, which keeps the number exactly.
    """
    return (
        "float32"
        if spec.target == "tfrecord" and name not in spec.tensors and name not in spec.cast
        else "float64"
    )


def _grow(features: dict[str, Feature], name: str, feature: Feature | None) -> None:
    """Merges a feature into the features seen before.

    Integers and floats give floats; text and bytes give bytes.
    """
    # An empty list does not tell the type of its items. A later record may.
    if feature is None:
        return
    current = features.get(name)
    if current is None or current == feature:
        features[name] = feature
        return
    if {current.kind, feature.kind} == {FLOAT, INT64} and "bool" not in (
        current.dtype,
        feature.dtype,
    ):
        width = current.dtype if current.kind == FLOAT else feature.dtype
        current, feature = (
            Feature(FLOAT, current.shape, width),
            Feature(FLOAT, feature.shape, width),
        )
    if current.kind == BYTES:
        text = current.text and feature.text
        current, feature = (
            Feature(current.kind, current.shape, text=text),
            Feature(feature.kind, feature.shape, text=text),
        )
    features[name] = pack.merge(current, feature)


def _feature(value: object, width: str) -> Feature | None:
    """Returns the feature of a JSON value; None for an empty list. Raises SchemaError."""
    if isinstance(value, list):
        features = [feature for item in value if (feature := _feature(item, width)) is not None]
        if any(feature.shape != () for feature in features) or None in value:
            raise SchemaError(
                "the feature of nested lists, or of lists with null, cannot be inferred",
                hint="schema= declares it, columns= leaves it out",
            )
        merged: dict[str, Feature] = {}
        for feature in features:
            _grow(merged, "", feature)
        return (
            Feature(merged[""].kind, (None,), merged[""].dtype, text=merged[""].text)
            if merged
            else None
        )
    if isinstance(value, bool):
        return Feature(INT64, (), "bool")
    if isinstance(value, int):
        return Feature(INT64, ())
    if isinstance(value, float):
        return Feature(FLOAT, (), width)
    if isinstance(value, str):
        return (
            Feature(BYTES, (), text=True)
            if not jsonl_values.is_number(value)
            else Feature(FLOAT, (), width)
        )
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return Feature(BYTES, ())
    raise SchemaError("an object cannot be a feature", hint="columns= leaves it out")


class JsonLinesWriter:
    """Writes batches as lines, which may be compressed."""

    def __init__(self, file: ByteOutput, spec: ConversionSpec) -> None:
        self._file = file
        name = _blocks.compression_named(spec.compression)
        self._compressor = (
            compressions.compressor(name, level=spec.level, threads=1) if name else None
        )

    def add(self, batch: Batch) -> None:
        columns = {}
        for name, column in batch.items():
            try:
                columns[name] = jsonl_values.from_column(column)
            except EncodeError as error:
                raise error.add(tensor=name) from None
        present = {name: there.tolist() for name, there in batch.present.items()}
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
        lines = [
            encode(
                {name: values[row] for name, values in columns.items() if present[name][row]}
            ).encode()
            + b"\n"
            for row in range(batch.size)
        ]
        data = b"".join(lines)
        for chunk in self._compressor.write(data) if self._compressor is not None else [data]:
            self._file.write(chunk)

    def close(self) -> None:
        for chunk in self._compressor.finish() if self._compressor is not None else ():
            self._file.write(chunk)


class JsonLinesRows(RowFormat):
    """The dataset format of JSON lines."""

    def count(self, path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
        """Counts the lines of the whole file. Compressed files have no marks.

        With on_corrupt="skip", every line is parsed, and all damage is reported here.
        """
        with storage.opened(path) as source:
            packed = _compression(source) is not None
        offsets, step, records = [], 1, 0
        for offset, line in _lines(path):
            if spec.skips and _parsed(line, path, records, offset, reading.damage) is None:
                continue
            if records % step == 0:
                offsets.append(offset)
                # The number of records is not known beforehand. Whenever there are too many
                # offsets, every other one is dropped.
                if len(offsets) > 4 * max(1, marks):
                    offsets, step = offsets[::2], 2 * step
            records += 1
        if packed or spec.skips or not records:
            return Counted(records, [])
        return Counted(records, offsets, step)

    def schema(self, sources: Sequence[str], spec: ConversionSpec, nbytes: int) -> Schema:
        return sidecar.known(sources, lambda without: _sampled(without, spec))

    def read(self, part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
        number, offset = part.mark or (0, 0)
        rows: list[dict[str, Any]] = []
        size, first = 0, number
        for start, line in _lines(part.path, offset, reading):
            behind = part.stop is not None and number >= part.stop
            if behind and not spec.skips:
                break
            wanted = number >= part.first
            row = (
                _parsed(line, part.path, number, start, reading.damage if spec.skips else None)
                if wanted or spec.skips
                else None
            )
            # A damaged line has no record number, so it belongs to the part before it. That part
            # reads on after its last record until the next valid line, and reports the damage.
            if row is None and spec.skips:
                continue
            if behind:
                break
            if wanted and row is not None:
                if not rows:
                    first = number
                rows.append(row)
                size += len(line)
            number += 1
            if len(rows) == ROWS or size >= 4 * _PIECE:
                yield _batch(rows, spec, part.path, first)
                rows, size = [], 0
        if rows:
            yield _batch(rows, spec, part.path, first)

    def bare(self, names: list[str], paths: Sequence[str], spec: ConversionSpec) -> list[str]:
        """Returns the features whose first value is bytes, or that have no value in the sample.

        Lists are the elements of tensors.
        """
        unknown, lists = set(names), set[str]()
        for path in some(paths) if names else ():
            for number, (offset, line) in enumerate(_lines(path)):
                if offset > _SAMPLE or not unknown:
                    break
                row = _parsed(line, path, number, offset, [] if spec.skips else None) or {}
                seen = {name for name in unknown if row.get(name) is not None}
                lists |= {name for name in seen if _is_lists(row[name])}
                unknown -= seen
        return [name for name in names if name not in lists]

    def writer(self, file: ByteOutput, spec: ConversionSpec) -> JsonLinesWriter:
        return JsonLinesWriter(file, spec)

    def check_target(self, spec: ConversionSpec) -> None:
        name = _blocks.compression_named(spec.compression)
        if name is not None and name not in _COMPRESSIONS:
            raise EncodeError(
                f"unsupported compression {name!r} for JSON lines (supported:"
                f" {', '.join(_COMPRESSIONS)})",
                format=FORMAT,
            )
        if spec.quantize:
            raise EncodeError(
                "JSON lines cannot store quantized tensors",
                format=FORMAT,
                hint="quantize= is supported by tfrecord, npz and safetensors",
            )
