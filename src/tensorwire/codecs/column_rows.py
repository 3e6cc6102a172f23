"""Column formats for datasets: the code shared by formats whose files declare their columns.

Those are npz, safetensors, arrow and parquet. Examples and JSON lines need a schema instead.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import ml_dtypes
import numpy as np

from .. import frameworks
from .._errors import DecodeError, EncodeError, SchemaError, TensorwireError, choices
from ..core import dtypes
from ..core.memory import Buffer, flat
from ..core.tensors import Array, Ragged, Strings, Tensor
from ..records import columns as _columns
from ..records import gather, pack, sidecar
from ..records.batch import DIFFER, Batch, BatchColumn, column_kind, is_untyped
from ..records.schema import Schema
from ..wire import example, kernels
from . import example_features
from .conversion_spec import ConversionSpec
from .rows import Damage, Reading, RowFormat
from .safetensors import Safetensors

_T = TypeVar("_T")
FILES = 16
"""The number of files that a plan opens to learn their columns."""
_SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")


class ColumnRows(RowFormat):
    """Base class of formats whose files declare their columns."""

    declares_columns: ClassVar[bool] = True

    def schema(self, paths: Sequence[str], spec: ConversionSpec, nbytes: int) -> Schema:
        schemas = looked_into(some(paths), spec, lambda path: (path, self.schema_of(path, spec)))
        return sidecar.union(dict(schemas))

    def schema_of(self, path: str, spec: ConversionSpec) -> Schema:
        """Returns the schema that the columns of one file have as Examples."""
        raise NotImplementedError


def example_schema(blank: Batch, spec: ConversionSpec) -> Schema:
    """Returns the schema that columns, given as a batch without rows, have as Examples."""
    columns = cast(blank, spec)
    options = pack.Options([name for name in spec.tensors if name in columns])
    try:
        packed_columns, _ = gather.from_columns(columns, options, 0, {})
    except EncodeError as error:
        name = error.tensor
        if name is None or not _is_float64(columns[name]):
            raise
        raise EncodeError(
            "float64 does not fit a float list, which holds float32",
            tensor=name,
            hint=f"cast={{{name!r}: 'float32'}} rounds it, tensors=[{name!r}] keeps it exactly",
        ) from None
    return Schema({name: column.feature for name, column in packed_columns.items()})


def _is_float64(column: BatchColumn) -> bool:
    """Whether a column is dense float64, or lists of it."""
    if isinstance(column, Ragged) and len(column.row_splits) == 1:
        column = column.values
    return isinstance(column, np.ndarray) and column.dtype == np.float64


def some(paths: Sequence[str]) -> list[str]:
    """Returns a sample of at most `FILES` paths, spread evenly over all of them."""
    count = min(len(paths), FILES)
    return [paths[i * len(paths) // count] for i in range(count)]


def looked_into(
    paths: Sequence[str], spec: ConversionSpec, look: Callable[[str], _T]
) -> Iterator[_T]:
    """Yields the result of `look` for each file.

    With on_corrupt="skip", damaged files are left out: the damage is reported when they are read.
    If all files are damaged, the last error is raised.
    """
    readable, last = 0, None
    for path in paths:
        try:
            result = look(path)
        except TensorwireError as error:
            last = error.add(path=path)
            if not (spec.skips and isinstance(error, DecodeError)):
                raise last from error.__cause__
            continue
        readable += 1
        yield result
    if last is not None and not readable:
        raise last


def opened(path: str, spec: ConversionSpec, reading: Reading, open: Callable[[], _T]) -> _T | None:
    """Calls `open`. With on_corrupt="skip", a damaged file goes into `reading` and gives None."""
    try:
        return open()
    except DecodeError as error:
        if not spec.skips:
            raise
        reading.damage.append(Damage(path, f"whole file: {error.add(path=path)}"))
        return None


def check_columns(names: Iterable[str], spec: ConversionSpec, path: str) -> None:
    """Raises SchemaError if a file has columns that the schema lacks and that would be lost.

    The plan opens some files only, so the schema may not know the columns of all of them.
    """
    if spec.strict and spec.schema is not None and (unknown := set(names) - set(spec.schema)):
        raise SchemaError(
            "the schema does not have this column, so it would be lost",
            tensor=min(unknown),
            path=path,
            hint="columns= selects the columns to keep, schema= declares all columns",
        )


def absent(name: str, spec: ConversionSpec, names: Iterable[str]) -> Tensor:
    """Returns an empty column for an optional feature of the schema that no sampled file has.

    Raises SchemaError, which lists the `names` of the file's columns, for any other name.
    """
    feature = None if spec.schema is None else example_features.travelling(spec)[name]
    if feature is None or feature.required:
        raise SchemaError(f"no column {name!r}{choices(name, names)}", tensor=name)
    filled = example.ColumnBuffers([feature.column(name)], 0).take()
    return _columns.column(feature, filled[0], 0)


def empty(spec: ConversionSpec) -> Batch | None:
    """Returns a batch without rows whose columns are those of the schema; None without a schema."""
    if spec.schema is None:
        return None
    chosen = {
        name: feature
        for name, feature in example_features.travelling(spec).items()
        if spec.columns is None or name in spec.columns
    }
    columns = example.ColumnBuffers([feature.column(name) for name, feature in chosen.items()], 0)
    return _columns.batch(chosen, columns.take(), 0)


def cast(batch: Batch, spec: ConversionSpec) -> Batch:
    """Applies the option cast= to the columns of a batch."""
    if not spec.cast:
        return batch
    columns = {
        name: _cast(column, spec.cast[name], name) if name in spec.cast else column
        for name, column in batch.items()
    }
    return Batch(columns, batch.present, batch.size)


def _cast(column: Tensor, dtype: str, name: str) -> Tensor:
    values = column.values if isinstance(column, Ragged) else column
    if not isinstance(values, np.ndarray):
        raise EncodeError(f"strings cannot be cast to {dtype}", tensor=name)
    numbers = _cast_numbers(frameworks.tensor(values), dtypes.named(dtype).numpy, name)
    if isinstance(column, Ragged):
        return Ragged(numbers, column.row_splits, column.uniform)
    return numbers


def _cast_numbers(values: Array, dtype: np.dtype[np.generic], name: str) -> Array:
    """Casts numbers to another dtype. Fractions are rounded; a number out of range raises."""
    if "c" in (values.dtype.kind, dtype.kind):
        if dtype.kind != "c":
            raise EncodeError(f"complex numbers cannot be cast to {dtype.name}", tensor=name)
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
        # The largest int64 and uint64 are not floats, but the powers of two above them are.
        fits = (values >= low) & (
            values <= high if values.dtype.kind in "iub" else values < high + 1
        )
    if not fits.all():
        wrong = values.reshape(-1)[np.flatnonzero(~fits.reshape(-1))[0]]
        raise EncodeError(f"{wrong} is out of range for {dtype.name}", tensor=name)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _family(column: BatchColumn) -> str:
    """A word for the type of a column as JSON distinguishes types: integers, fractions, lists."""
    values = column.values if isinstance(column, Ragged) else column
    if isinstance(values, Strings):
        what = "text" if values.text else "bytes"
    else:
        what = (
            "integers"
            if values.dtype.kind in "iu"
            else "fractions"
            if "float" in values.dtype.name
            else values.dtype.name
        )
    return f"{'lists of ' * (len(column.shape) - 1)}{what}"


def comparison(target: str, joined: bool) -> Callable[[BatchColumn], str] | None:
    """Returns the function that two columns of one name must agree on to be written in `target`.

    None if nothing needs to be compared: for Examples the schema has already been checked.
    """
    if joined or target not in ("jsonl", "tfrecord"):
        return column_kind
    return _family if target == "jsonl" else None


def check_alike(
    batch: Batch, blank: Batch, how: Callable[[BatchColumn], str] | None, but: Container[str]
) -> None:
    """Raises SchemaError unless columns of the same name have the same type.

    `but` names columns that are converted to a common type later.
    """
    if how is None:
        return
    for name in batch:
        if (
            name in blank
            and name not in but
            and not is_untyped(batch[name])
            and how(batch[name]) != how(blank[name])
        ):
            raise SchemaError(
                DIFFER.format(f"{how(blank[name])} and {how(batch[name])}"), tensor=name
            )


def packed(batch: Batch, places: Array) -> bytes:
    """Encodes a batch, and a number for each row, as bytes. `unpacked` is the inverse."""
    # Columns are stored in a list, because a column name may be a name that safetensors reserves.
    names = list(batch)
    present = [None if batch.present[name].all() else batch.present[name] for name in names]
    value = {
        "names": names,
        "places": places,
        "columns": [batch[name] for name in names],
        "present": present,
    }
    return kernels.join(Safetensors().encode(value))


def unpacked(data: Buffer | Array) -> tuple[Batch, Array]:
    """Decodes the bytes of `packed`."""
    value: Any = Safetensors().decode(flat(data))
    names, places = value["names"], value["places"]
    rows = len(places)
    present = [np.ones(rows, np.bool_) if there is None else there for there in value["present"]]
    columns = dict(zip(names, value["columns"], strict=True))
    return Batch(columns, dict(zip(names, present, strict=True)), rows), places
