"""What row formats share whose files themselves say what columns they have."""

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
"""Files that a plan looks into, for what their columns are."""
_SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")


class ColumnRows(RowFormat):
    """A format whose files declare their columns."""

    declares_columns: ClassVar[bool] = True

    def schema(self, paths: Sequence[str], spec: ConversionSpec, nbytes: int) -> Schema:
        schemas = looked_into(some(paths), spec, lambda path: (path, self.schema_of(path, spec)))
        return sidecar.union(dict(schemas))

    def schema_of(self, path: str, spec: ConversionSpec) -> Schema:
        """The schema of Examples for one file."""
        raise NotImplementedError


def example_schema(blank: Batch, spec: ConversionSpec) -> Schema:
    """What columns, given as a batch without rows, become in Examples."""
    columns = cast(blank, spec)
    options = pack.Options([name for name in spec.tensors if name in columns])
    try:
        packed_columns, _ = gather.from_columns(columns, options, 0, {})
    except EncodeError as error:
        if "float64" in error.message:
            why = "float64 does not fit a float list, which is float32"
            how = f"cast={{{error.tensor!r}: 'float32'}} rounds it{pack.EXACTLY}"
            error.args = (f"{why}; {how}",)
        raise
    return Schema({name: column.feature for name, column in packed_columns.items()})


def some(paths: Sequence[str]) -> list[str]:
    """A few files, spread over all of them."""
    count = min(len(paths), FILES)
    return [paths[i * len(paths) // count] for i in range(count)]


def looked_into(
    paths: Sequence[str], spec: ConversionSpec, look: Callable[[str], _T]
) -> Iterator[_T]:
    """What a look into each of some files shows; of a damaged one that is passed over, nothing:
    reading it says what is damaged. If that is all of them, it is an error."""
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
    """A file; None of one that cannot be opened and is passed over, which is noted."""
    try:
        return open()
    except DecodeError as error:
        if not spec.skips:
            raise
        reading.damage.append(Damage(path, f"all of it: {error.add(path=path)}"))
        return None


def check_columns(names: Iterable[str], spec: ConversionSpec, path: str) -> None:
    """That no column is lost because the files that the plan looked into did not have it."""
    if spec.strict and spec.schema is not None and (unknown := set(names) - set(spec.schema)):
        why = (
            "a column that the schema does not have, and that would be lost; columns= says what to"
            " keep, schema= what there is"
        )
        raise SchemaError(why, tensor=min(unknown), path=path)


def absent(name: str, spec: ConversionSpec, names: Iterable[str]) -> Tensor:
    """A column without rows that a file does not have, nor any other that was looked into, but the
    schema.
    """
    feature = None if spec.schema is None else example_features.travelling(spec)[name]
    if feature is None or feature.required:
        raise SchemaError(f"no column {name!r}{choices(name, names)}", tensor=name)
    filled = example.ColumnBuffers([feature.column(name)], 0).take()
    return _columns.column(feature, filled[0], 0)


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


def cast(batch: Batch, spec: ConversionSpec) -> Batch:
    """The columns that are wanted in another dtype, in it."""
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
        raise EncodeError(f"strings are not cast to {dtype}", tensor=name)
    numbers = _cast_numbers(frameworks.tensor(values), dtypes.named(dtype).numpy, name)
    if isinstance(column, Ragged):
        return Ragged(numbers, column.row_splits, column.uniform)
    return numbers


def _cast_numbers(values: Array, dtype: np.dtype[np.generic], name: str) -> Array:
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


def _family(column: BatchColumn) -> str:
    """The same for formats that know integers, fractions and lists, and no more of them."""
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
    """How alike columns of the same name must be, to be written in a format. A schema has seen to
    it for Examples.
    """
    if joined or target not in ("jsonl", "tfrecord"):
        return column_kind
    return _family if target == "jsonl" else None


def check_alike(
    batch: Batch, blank: Batch, how: Callable[[BatchColumn], str] | None, but: Container[str]
) -> None:
    """That columns of the same name are of the same kind, `but` some that are made so."""
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
    """As bytes, with a number for each row. Columns go by number, since a name may be anything,
    what the format has for itself too.
    """
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
    """The inverse of `packed`."""
    value: Any = Safetensors().decode(flat(data))
    names, places = value["names"], value["places"]
    rows = len(places)
    present = [np.ones(rows, np.bool_) if there is None else there for there in value["present"]]
    columns = dict(zip(names, value["columns"], strict=True))
    return Batch(columns, dict(zip(names, present, strict=True)), rows), places
