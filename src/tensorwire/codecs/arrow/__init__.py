"""arrow: Arrow's IPC file (also called Feather) or stream, which pandas, Polars, DuckDB and Spark
read.

The bytes are written and read here, by our own hands: pyarrow crashes on bytes that it has not
validated, reads whole batches where rows are asked for, copies what it writes, and believes what a
compressed buffer says about its size. It is needed for compression, and for strings that others
wrote as views or through a dictionary.
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
"""Bytes a column up to which a copy is cheaper than one more buffer."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """Columns that share their first dimension, or any value in one row.

    >>> import numpy as np
    >>> codec = Arrow()
    >>> codec.decode(memoryview(b"".join(codec.encode({"id": np.int32([7, 8]), "x": np.float32([[1,
    ...     2], [3, 4]])}))))["x"]
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """

    stream: bool = False
    """Write the stream rather than the file: for pipes and sockets. Both are read, whatever this
    says.
    """
    compression: str | None = None
    """"zstd" or "lz4": each buffer alone, by Arrow itself."""
    level: int | None = None
    limits: Limits = DEFAULT

    def encode(self, value: object, metadata: dict[str, str] | None = None) -> list[Any]:
        codec = (
            None
            if self.compression is None
            else codec_of(self.compression, self.level, _CODECS, FORMAT)
        )
        if codec is None and not self.stream and not metadata:
            whole = kernels.encode_columns(value, _COPIED)
            if whole is not None:
                return [whole]
        try:
            return write.chunks(arrow_columns.columns(value, metadata, FORMAT), self.stream, codec)
        except UnicodeEncodeError:
            raise EncodeError(
                "metadata with a lone surrogate, so they are not text that UTF-8 can hold",
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
        """Reads the schema and where the batches are, and rows of columns when they are asked for."""
        budget = self.limits.call(source.size)
        try:
            return Container(*self._read(source, copy, budget), budget)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=0) from None

    def _read(
        self, source: Source, copy: bool | None, budget: Budget, whole: bool = False
    ) -> tuple[Any, list[Any], dict[str, str]]:
        """(spec, parts, metadata)"""
        file = IpcFile(source, budget)
        if whole:
            file.data.inflate_all(file.chunks)
        return value_of(columns(file, copy), dict(file.metadata))


def value_of(
    found: dict[str, SpecParts],
    metadata: dict[str, str],
) -> tuple[Any, list[Any], dict[str, str]]:
    """(spec, parts, metadata) of the value that columns and the schema's metadata make up."""
    ours = metadata.pop(KEY, None)
    if ours is None:
        spec = {"dict": {name: node for name, (node, _) in found.items()}}
        return spec, [part for _, parts in found.values() for part in parts], metadata
    spec, parts = _assign(ours, found)
    tree = lowering.inside(spec)
    if isinstance(tree, dict) and "bundle" in tree and metadata:
        spec = tree | {"metadata": metadata}
    return spec, parts, metadata


def _assign(text: str, found: dict[str, SpecParts]) -> tuple[Any, list[Any]]:
    """Our own spec, and its parts in order."""
    ours = jsontext.parse(text.encode(), FORMAT)
    if (
        not isinstance(ours, dict)
        or ours.keys() != {"version", "spec"}
        or ours["version"] != VERSION
    ):
        version = ours.get("version") if isinstance(ours, dict) else None
        raise DecodeError(
            f"a tensorwire spec of version {version!r:.20}, which this release does not read"
        )
    spec = ours["spec"]
    nulls = flags(found)
    found = {name: column for name, column in found.items() if name not in nulls}
    count = sum(len(parts) for _, parts in found.values())
    table = not any(isinstance(part, Cell) for _, parts in found.values() for part in parts)
    try:
        groups = arrow_columns.groups(lowering.inside(spec), count, table)
    except DecodeError:
        groups = []
    if {group.name for group in groups} != found.keys() or any(
        len(found[group.name][1]) != group.size for group in groups
    ):
        raise DecodeError(
            "the columns are not those of the tensorwire spec in the schema's metadata; without it"
            " they are read as they are: in pyarrow, table.replace_schema_metadata()"
        )
    parts = [part for group in groups for part in found[group.name][1]]
    return (spec, parts) if not nulls else _with_flags(spec, parts, nulls)


def _with_flags(spec: Any, parts: list[Any], nulls: dict[str, SpecParts]) -> tuple[Any, list[Any]]:
    """A dict or Bundle of columns, and which rows of some of them have a value."""
    kinds = [key for key in ("dict", "bundle") if isinstance(spec, dict) and key in spec]
    kind = kinds[0] if kinds else None
    names = {name.removesuffix(PRESENT) for name in nulls}
    if kind is None or not names <= spec[kind].keys() or nulls.keys() & spec[kind].keys():
        raise DecodeError(
            "the tensorwire spec in the schema's metadata has no place "
            f"for the nulls of {min(names)!r}; without it columns are read as they are: "
            "in pyarrow, table.replace_schema_metadata()"
        )
    flagged = {name: node for name, (node, _) in nulls.items()}
    more = [part for _, own in nulls.values() for part in own]
    return {**spec, kind: {**spec[kind], **flagged}}, [*parts, *more]


def codec_of(compression: str, level: int | None, known: tuple[str, ...], format: str) -> Any:
    """pyarrow's codec of a name and level."""
    pa = require("pyarrow", extra="arrow")
    if compression not in known:
        raise EncodeError(
            f"{format} compresses with {', '.join(known)}, not {compression!r:.40}", format=format
        )
    if level is not None:
        low, high = (
            getattr(pa.Codec, f"{which}_compression_level")(compression)
            for which in ("minimum", "maximum")
        )
        if not low <= level <= high:
            raise EncodeError(
                f"{compression} has levels from {low} to {high}, not {level}", format=format
            )
    return pa.Codec(compression, compression_level=level)
