"""The arrow format: Arrow IPC files (Feather) and streams, for pandas, Polars, DuckDB and Spark.

Bytes are written and read here rather than by pyarrow. pyarrow crashes on bytes that it has not
validated, reads whole batches where some rows are needed, copies what it writes, and trusts the
size that a compressed buffer claims. It is only needed for compression, and for strings that are
stored as views or in a dictionary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import lowering
from ..._errors import DecodeError, EncodeError
from ..._limits import DEFAULT, Budget, Limits
from ..._optional import require
from ...storage.files import BytesSource, Source
from ...wire import json as jsontext
from ...wire import kernels
from ...wire.arrow_columns import KEY, PRESENT
from ...wire.arrow_ipc import FORMAT
from ..container import Container
from . import table as arrow_columns
from . import write
from .file import IpcFile
from .parts import Cell
from .schema import SpecParts, columns, flags
from .table import VERSION

_CODECS = ("zstd", "lz4")
_COPIED = 64 << 10
"""Columns up to this many bytes are copied, which is cheaper than one more buffer."""

_PLAIN_HINT = "drop the spec with table.replace_schema_metadata() in pyarrow to read plain columns"


@dataclass(frozen=True, slots=True)
class Arrow:
    """The Arrow codec: columns that share their first dimension, or any value in one row.

    >>> import numpy as np
    >>> codec = Arrow()
    >>> codec.decode(memoryview(b"".join(codec.encode({"id": np.int32([7, 8]), "x": np.float32([[1,
    ...     2], [3, 4]])}))))["x"]
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """

    stream: bool = False
    """Write the stream format, for pipes and sockets, instead of the file format. Reading accepts
    both.
    """
    compression: str | None = None
    """"zstd" or "lz4": Arrow's own compression of each buffer."""
    level: int | None = None
    limits: Limits = DEFAULT

    def encode(self, value: object, metadata: dict[str, str] | None = None) -> list[Any]:
        codec = (
            None
            if self.compression is None
            else codec_of(self.compression, self.level, _CODECS, FORMAT)
        )
        # The kernel writes a small plain table in one call. It returns None for anything else.
        if codec is None and not self.stream and not metadata:
            whole = kernels.encode_columns(value, _COPIED)
            if whole is not None:
                return [whole]
        try:
            return write.chunks(arrow_columns.columns(value, metadata, FORMAT), self.stream, codec)
        except UnicodeEncodeError:
            raise EncodeError(
                "metadata contains a lone surrogate, which cannot be encoded as UTF-8",
                format=FORMAT,
            ) from None

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        plain = (
            kernels.decode_columns(data, bool(copy))
            if copy is not False and self.limits.is_default
            else None
        )
        if plain is not None:
            return plain
        budget = self.limits.call(len(data))
        try:
            spec, parts, _ = self._read(BytesSource(data), copy, budget, True)
            return lowering.lift(spec, [part.read() for part in parts], budget)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=0) from None

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Reads the schema and the batch positions; columns and rows are read on access."""
        budget = self.limits.call(source.size)
        try:
            return Container(*self._read(source, copy, budget), budget)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=0) from None

    def _read(
        self, source: Source, copy: bool | None, budget: Budget, whole: bool = False
    ) -> tuple[Any, list[Any], dict[str, str]]:
        """Returns (spec, parts, metadata) of a file or stream."""
        file = IpcFile(source, budget)
        if whole:
            file.data.inflate_all(file.chunks)
        return value_of(columns(file, copy), dict(file.metadata))


def value_of(
    table_columns: dict[str, SpecParts],
    metadata: dict[str, str],
) -> tuple[Any, list[Any], dict[str, str]]:
    """Returns (spec, parts, metadata) of the value in columns and the schema metadata."""
    saved = metadata.pop(KEY, None)
    if saved is None:
        spec = {"dict": {name: node for name, (node, _) in table_columns.items()}}
        return spec, [part for _, parts in table_columns.values() for part in parts], metadata
    spec, parts = _assign(saved, table_columns)
    tree = lowering.inside(spec)
    if isinstance(tree, dict) and "bundle" in tree and metadata:
        spec = tree | {"metadata": metadata}
    return spec, parts, metadata


def _assign(text: str, table_columns: dict[str, SpecParts]) -> tuple[Any, list[Any]]:
    """Returns the spec that was saved in the metadata, and its parts in order."""
    saved = jsontext.parse(text.encode(), FORMAT)
    if (
        not isinstance(saved, dict)
        or saved.keys() != {"version", "spec"}
        or saved["version"] != VERSION
    ):
        version = saved.get("version") if isinstance(saved, dict) else None
        raise DecodeError(
            f"unsupported version {version!r:.20} of the tensorwire spec in the schema metadata"
        )
    spec = saved["spec"]
    nulls = flags(table_columns)
    table_columns = {name: column for name, column in table_columns.items() if name not in nulls}
    count = sum(len(parts) for _, parts in table_columns.values())
    table = not any(isinstance(part, Cell) for _, parts in table_columns.values() for part in parts)
    try:
        groups = arrow_columns.groups(lowering.inside(spec), count, table)
    except DecodeError:
        groups = []
    if {group.name for group in groups} != table_columns.keys() or any(
        len(table_columns[group.name][1]) != group.size for group in groups
    ):
        raise DecodeError(
            "the columns do not match the tensorwire spec in the schema metadata", hint=_PLAIN_HINT
        )
    parts = [part for group in groups for part in table_columns[group.name][1]]
    return (spec, parts) if not nulls else _with_flags(spec, parts, nulls)


def _with_flags(spec: Any, parts: list[Any], nulls: dict[str, SpecParts]) -> tuple[Any, list[Any]]:
    """Adds the NAME/present flags of columns with nulls to the spec of a dict or Bundle."""
    kinds = [key for key in ("dict", "bundle") if isinstance(spec, dict) and key in spec]
    kind = kinds[0] if kinds else None
    names = {name.removesuffix(PRESENT) for name in nulls}
    if kind is None or not names <= spec[kind].keys() or nulls.keys() & spec[kind].keys():
        raise DecodeError(
            f"the column {min(names)!r} has nulls, which the tensorwire spec in the schema metadata"
            " cannot express",
            hint=_PLAIN_HINT,
        )
    flagged = {name: node for name, (node, _) in nulls.items()}
    flag_parts = [part for _, own in nulls.values() for part in own]
    return {**spec, kind: {**spec[kind], **flagged}}, [*parts, *flag_parts]


def codec_of(compression: str, level: int | None, supported: tuple[str, ...], format: str) -> Any:
    """Returns pyarrow's codec for a name and level; raises EncodeError if either is not valid."""
    pa = require("pyarrow", extra="arrow")
    if compression not in supported:
        raise EncodeError(
            f"{format} supports compression {', '.join(supported)}, not {compression!r:.40}",
            format=format,
        )
    if level is not None:
        low, high = (
            getattr(pa.Codec, f"{which}_compression_level")(compression)
            for which in ("minimum", "maximum")
        )
        if not low <= level <= high:
            raise EncodeError(
                f"{compression} supports levels from {low} to {high}, not {level}", format=format
            )
    return pa.Codec(compression, compression_level=level)
