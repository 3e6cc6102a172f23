"""Batches of columns as Arrow's record batches and back: what Parquet and Arrow files have in
common.

What a column means is the codecs' answer (`codecs.arrow_schema`, `codecs.arrow_batches`), so a
dataset has the values that `tw.load` has. A feature that a record does not have is a null. What no
tensor holds (dates, structs, nulls inside of lists) is an error with its column.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from ... import frameworks
from ..._errors import DecodeError, EncodeError, SchemaError, TensorwireError, choices
from ..._limits import DEFAULT
from ..._optional import require
from ...core.tensors import Array, Ragged, Strings
from ...records import batches, gather, pack, sidecar
from ...records import columns as _columns
from ...records.batch import Batch
from ...records.schema import Feature, Schema
from ...wire import example
from ...wire import json as jsontext
from .. import example_features
from ..container import Container, UnsupportedTensor
from ..conversion_spec import ConversionSpec
from ..parquet import read_by_pyarrow
from ..rows import Damage, Reading, SourcePart
from . import batches as arrow_batches
from . import schema as arrow_schema
from .schema import PRESENT, Column

_T = TypeVar("_T")
_FILES = 16
"""Files that a plan looks into, for what their columns are."""
_WIDTHS = (("list", "large_list"), ("string", "large_string"), ("binary", "large_binary"))
_SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")
KEY = "tensorwire.schema"
"""The schema of Examples in a file's metadata, so that they come back as they were."""


def end(part: SourcePart) -> int:
    """The number behind the last row of a part."""
    return part.stop if part.stop is not None else 1 << 62


Piece = tuple[int, Callable[[int, int], Batch]]
"""The number of some rows that lie together, and what reads those from, to."""


def rows(
    found: Iterator[Piece],
    part: SourcePart,
    at: int,
    total: int,
    spec: ConversionSpec,
    reading: Reading,
    format: str,
    lost: str,
) -> Iterator[Batch]:
    """The rows of a part; `at` is the number of the first row of `found` among the file's `total`.

    `lost` begins what is said of damage.
    """
    stop = end(part)
    while at < stop:
        try:
            with guarded(part.path, format):
                piece = next(found, None)
                if piece is None:
                    return
                count, read = piece
                low, high = max(0, part.first - at), min(count, stop - at)
                at += count
                made = read(low, high) if low < high else None
        except DecodeError as error:
            if not spec.skips:
                raise error.add(record=at) from None
            reading.damage.append(Damage(part.path, f"{lost}from row {at} on: {error}"))
            return
        reading.reach(at / max(1, total))
        if made is not None:
            yield made


def validated(found: Iterable[Any], spec: ConversionSpec, format: str) -> Iterator[Piece]:
    """The rows of pyarrow's record batches."""
    for batch in found:
        batch.validate(full=True)
        yield batch.num_rows, functools.partial(_sliced, batch, spec, format)


def _sliced(batch: Any, spec: ConversionSpec, format: str, low: int, high: int) -> Batch:
    return batch_of(batch.slice(low, high - low), spec, format)


def batch_of(found: Any, spec: ConversionSpec | None = None, format: str = "arrow") -> Batch:
    """A record batch as columns, with what is missing, in the shapes of the schema. All of it, if
    no spec says what; else without columns that it does not have, and those of nothing but nulls,
    which have no type."""
    picked = found.select(readable(found.schema, spec))
    columns, _ = arrow_batches.columns(
        picked.schema, [picked], DEFAULT.call(picked.nbytes), None, format
    )
    return batch_from(columns, found.num_rows, spec)


def readable(arrow: Any, spec: ConversionSpec | None) -> list[str]:
    """The columns that are read of a table. Others may be in another file; see task._Complete."""
    _check_unique(arrow.names)
    if spec is None:
        return list(arrow.names)
    names = arrow.names if spec.names is None else spec.names
    there = [name for name in names if name in arrow.names]
    return [name for name in there if not _is_null(arrow.field(name).type)]


def batch_from(
    found: Mapping[str, Column],
    count: int,
    spec: ConversionSpec | None = None,
    rows: tuple[int, int] | None = None,
) -> Batch:
    """Columns of a table of `count` rows, as the codecs have them, or some rows, as a batch."""
    schema = None if spec is None else spec.schema
    flags = arrow_schema.flags(dict(found))
    size = count if rows is None else rows[1] - rows[0]
    columns, present = {}, {}
    for name, (node, parts) in found.items():
        if name in flags:
            continue
        if "dict" in node:
            why = "a struct is not a column of a dataset; in pyarrow, table.flatten() first"
            raise SchemaError(why, tensor=name)
        try:
            budget = DEFAULT.call(sum(part.nbytes for part in parts))
            column = Container({"dict": {name: node}}, parts, {}, budget).read(name, rows)
            flag = flags.get(name + PRESENT)
            present[name] = np.ones(size, np.bool_) if flag is None else flag[1][0].read(rows)
        except UnsupportedTensor as error:
            why = error.message.partition("; names=")[0]
            raise SchemaError(f"{why}; columns= leaves it out", tensor=name) from None
        if not isinstance(column, (np.ndarray, Strings, Ragged)) or column.shape[:1] != (size,):
            raise SchemaError(
                f"a shape of {column.shape}, where the columns of a dataset have {size} rows",
                tensor=name,
            )
        columns[name] = _shaped(column, schema.get(name) if schema is not None else None)
    return Batch(columns, present, size)


def _is_null(kind: Any) -> bool:
    return bool(require("pyarrow", extra="arrow").types.is_null(kind))


def blank_of(arrow: Any, spec: ConversionSpec) -> Batch:
    """A table's columns, without rows. One of nothing but nulls, which has no type, is one of
    objects.
    """
    found = batch_of(empty_rows(arrow), spec)
    untyped = [
        name
        for name in arrow.names
        if (spec.names is None or name in spec.names) and _is_null(arrow.field(name).type)
    ]
    return Batch({**found, **{name: np.empty(0, object) for name in untyped}}, size=0)


def _check_unique(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        name = next(name for number, name in enumerate(names) if name in names[:number])
        raise SchemaError(
            f"two columns of the name {name!r}, of which only one could be kept; rename one",
            tensor=name,
        )


def absent(name: str, spec: ConversionSpec, known: Iterable[str]) -> Any:
    """A column without rows that a file does not have, nor any other that was looked into, but the
    schema.
    """
    feature = None if spec.schema is None else example_features.travelling(spec)[name]
    if feature is None or feature.required:
        raise SchemaError(f"no column {name!r}{choices(name, known)}", tensor=name)
    return _columns.batch(
        {name: feature}, example.ColumnBuffers([feature.column(name)], 0).take(), 0
    )[name]


def check_columns(names: Iterable[str], spec: ConversionSpec, path: str) -> None:
    """That no column is lost because the files that the plan looked into did not have it."""
    if spec.strict and spec.schema is not None and (strangers := set(names) - set(spec.schema)):
        why = (
            "a column that the schema does not have, and that would be lost; columns= says what to"
            " keep, schema= what there is"
        )
        raise SchemaError(why, tensor=min(strangers), path=path)


def opened(path: str, spec: ConversionSpec, reading: Reading, open: Callable[[], _T]) -> _T | None:
    """A file; None of one that cannot be opened and is passed over, which is noted."""
    try:
        return open()
    except DecodeError as error:
        if not spec.skips:
            raise
        reading.damage.append(Damage(path, f"all of it: {error.add(path=path)}"))
        return None


def opened_table(
    path: str,
    place: str,
    spec: ConversionSpec,
    reading: Reading,
    format: str,
    open: Callable[[str], _T],
) -> _T | None:
    """The same of what pyarrow opens; `place` is where the file is on this machine."""

    def guarded_open() -> _T:
        with guarded(path, format):
            return open(place)

    return opened(path, spec, reading, guarded_open)


def looked_into(
    paths: Sequence[str], spec: ConversionSpec, look: Callable[[str], _T]
) -> Iterator[_T]:
    """What a look into each of some files shows; of a damaged one that is passed over, nothing:
    reading it says what is damaged. If that is all of them, it is an error."""
    found, last = 0, None
    for path in paths:
        try:
            one = look(path)
        except TensorwireError as error:
            last = error.add(path=path)
            if not (spec.skips and isinstance(error, DecodeError)):
                raise last from error.__cause__
            continue
        found += 1
        yield one
    if last is not None and not found:
        raise last


def schema_of_files(
    paths: Sequence[str], spec: ConversionSpec, look: Callable[[str], Schema]
) -> Schema:
    """What a look into some of the files shows."""
    return sidecar.union(dict(looked_into(some(paths), spec, lambda path: (path, look(path)))))


def some(paths: Sequence[str]) -> list[str]:
    """A few files, spread over all of them."""
    count = min(len(paths), _FILES)
    return [paths[i * len(paths) // count] for i in range(count)]


def _shaped(column: Any, feature: Feature | None) -> Any:
    """Strings of a fixed shape, which are lists in Arrow."""
    if (
        feature is None
        or not feature.fixed
        or not isinstance(column, Ragged)
        or not isinstance(column.values, Strings)
    ):
        return column
    width = math.prod(dim or 0 for dim in feature.shape or ())
    if not width or len(column.row_splits) > 1 or (np.diff(column.row_splits[0]) != width).any():
        return column
    return column.values.reshape(-1, *(dim or 0 for dim in feature.shape or ()))


def table_schema(pa: Any, spec: ConversionSpec, batch: Batch) -> Any:
    """Arrow's schema of what is written: by the columns of a batch, and with our own schema of
    Examples in its metadata.
    """
    found = arrow_batches.record_batch(batches.cut(batch, 0, 0), {}).schema
    if spec.schema is None:
        return found
    return found.with_metadata(
        {KEY: jsontext.write(example_features.remembered(spec).json()).decode()}
    )


def empty(spec: ConversionSpec) -> Batch | None:
    """A batch without rows, where the schema says what its columns are."""
    if spec.schema is None:
        return None
    chosen = {
        name: feature
        for name, feature in example_features.travelling(spec).items()
        if spec.columns is None or name in spec.columns
    }
    columns = example.ColumnBuffers([feature.column(name) for name, feature in chosen.items()], 0)
    return _columns.batch(chosen, columns.take(), 0)


def arrow_batch(pa: Any, batch: Batch, schema: Any) -> Any:
    """A record batch of that schema."""
    found = arrow_batches.record_batch(batch, batch.present)
    for name in dict.fromkeys([*schema.names, *found.schema.names]):
        kinds = [
            one.field(name).type if name in one.names else None for one in (schema, found.schema)
        ]
        if None in kinds:
            raise EncodeError(batches.SOME, tensor=name)
        if not _are_alike(pa, *kinds):
            raise EncodeError(batches.DIFFER.format(" and ".join(map(str, kinds))), tensor=name)
    return pa.RecordBatch.from_arrays(
        [_as_kind(pa, found.column(field.name), field.type) for field in schema], schema=schema
    )


def _are_alike(pa: Any, a: Any, b: Any) -> bool:
    """Whether two types differ in nothing but the width of their offsets."""
    for kinds in _WIDTHS:
        if {
            kind for kind in (a, b) if any(getattr(pa.types, f"is_{name}")(kind) for name in kinds)
        } == {a, b}:
            return "list" not in kinds or _are_alike(pa, a.value_type, b.value_type)
    return bool(a == b)


def _as_kind(pa: Any, column: Any, kind: Any) -> Any:
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowInvalid as error:
        raise EncodeError(f"more in one batch than {kind} holds: {error!s:.100}") from None


def empty_rows(arrow: Any) -> Any:
    """A record batch without rows."""
    pa = require("pyarrow", extra="arrow")
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in arrow], schema=arrow)


def remembered(arrow: Any) -> Schema | None:
    """The schema of Examples in a table's metadata, if it is still that of the table."""
    known = (arrow.metadata or {}).get(KEY.encode())
    found = Schema.from_json(known) if known is not None else None
    return found if found is not None and set(found) == set(arrow.names) else None


def schema_of(arrow: Any, spec: ConversionSpec) -> Schema:
    """The schema of Examples for a table: the one in its metadata, or what its types become."""
    pa = require("pyarrow", extra="arrow")
    _check_unique(arrow.names)
    if (kept := remembered(arrow)) is not None:
        return kept
    fields = [
        field
        for field in arrow
        if (spec.reads is None or field.name in spec.reads) and not _is_null(field.type)
    ]
    blank = batch_of(empty_rows(pa.schema(fields, arrow.metadata)))
    asked = cast(blank, spec)
    try:
        columns, _ = gather.from_columns(
            asked, pack.Options([name for name in spec.tensors if name in asked]), 0, {}
        )
    except EncodeError as error:
        if "float64" in error.message:
            error.args = (
                (
                    f"float64 does not fit a float list, which is float32; cast={{{error.tensor!r}:"
                    f" 'float32'}} rounds it{pack.EXACTLY}"
                ),
            )
        raise
    return Schema({name: column.feature for name, column in columns.items()})


def bare(names: list[str], schemas: Iterable[Any], spec: ConversionSpec) -> list[str]:
    """Columns of bytes, or of lists of them, unless this run makes tensors of them. What a file
    does not have, another has.
    """
    types = require("pyarrow", extra="arrow").types

    def holds(kind: Any) -> bool:
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            kind = kind.value_type  # of what is quantized
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    wanted = {name for name in names if name not in spec.tensors}
    kinds: dict[str, Any] = {}
    for schema in schemas if wanted else ():
        kinds |= {
            name: schema.field(name).type for name in wanted - kinds.keys() if name in schema.names
        }
        if wanted == kinds.keys():
            break
    return [name for name in names if name in kinds and holds(kinds[name])]


def cast(batch: Batch, spec: ConversionSpec) -> Batch:
    """The columns that are wanted in another dtype, in it."""
    if not spec.cast:
        return batch
    columns = {
        name: _cast(column, spec.cast[name], name) if name in spec.cast else column
        for name, column in batch.items()
    }
    return Batch(columns, batch.present, batch.size)


def _cast(column: Any, dtype: str, name: str) -> Any:
    values = getattr(column, "values", column)
    if not isinstance(values, np.ndarray):
        raise EncodeError(f"strings are not cast to {dtype}", tensor=name)
    made = _cast_numbers(frameworks.tensor(values), _dtype(dtype), name)
    return made if values is column else type(column)(made, column.row_splits, column.uniform)


def _cast_numbers(values: Array, dtype: np.dtype[Any], name: str) -> Array:
    """In another dtype: fractions are rounded, but a number that does not fit is an error."""
    if "c" in (values.dtype.kind, dtype.kind):
        if dtype.kind != "c":
            raise EncodeError(f"complex numbers are not cast to {dtype.name}", tensor=name)
        return values.astype(dtype)
    whole = dtype.kind in "iu" or dtype.name in _SMALL_INTEGERS
    if dtype.kind == "b":
        fits = (values == 0) | (values == 1)
    elif not whole:
        with np.errstate(over="ignore"):
            fits = np.isfinite(values.astype(dtype).astype(np.float64)) | ~np.isfinite(
                values.astype(np.float64)
            )
    else:
        values = values if values.dtype.kind in "iub" else np.rint(values.astype(np.float64))
        bounds = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        low, high = int(bounds.min), int(bounds.max)
        # 2**63 and 2**64 are floats, and the largest integers below them are not.
        fits = (values >= low) & (
            values <= high if values.dtype.kind in "iub" else values < high + 1
        )
    if not fits.all():
        wrong = values.reshape(-1)[np.flatnonzero(~fits.reshape(-1))[0]]
        raise EncodeError(f"cast to {dtype.name}, and {wrong} does not fit", tensor=name)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _dtype(name: str) -> Any:
    from ...core import dtypes

    return dtypes.named(name).numpy


@contextlib.contextmanager
def guarded(path: str, format: str) -> Iterator[None]:
    """What pyarrow says of bytes that it cannot read, as our error with the path."""
    try:
        with read_by_pyarrow(format):
            yield
    except TensorwireError as error:
        raise error.add(path=path) from None


def check_level(codec: str, level: int | None, format: str) -> None:
    """That pyarrow has this level of compression."""
    pa = require("pyarrow", extra="arrow")
    if level is None or codec == "none":
        return
    try:
        pa.Codec(
            "lz4_raw" if (codec, format) == ("lz4", "parquet") else codec, compression_level=level
        )
    except (pa.ArrowException, ValueError, OSError, TypeError) as error:
        raise EncodeError(f"no level {level} of {codec}: {error!s:.100}", format=format) from None
