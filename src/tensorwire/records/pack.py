"""Columns packed for the encoder, with the feature that the schema must record for each.

An Example holds lists of int64, float32 and bytes. A column that fits one of these exactly is
written as such, and the schema records what it was (bool, int32, bfloat16, text, a shape). Any
other tensor becomes a TensorProto in a bytes list. A value that fits neither is an error and is
never rounded or wrapped. That includes uint64 above 2**63, and float64, because the precision that
was intended is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import frameworks
from .._errors import EncodeError, TensorwireError, UsageError, choices
from ..core import dtypes, validate
from ..core.tensors import Array, Ragged, Strings, Tensor
from ..wire import example
from . import encodings
from .schema import BYTES, FLOAT, INT64, Feature, Schema

EXACTLY = "tensors=[name] keeps it exactly"
"""The hint of most errors about values that do not fit a list."""


def drop_tensors_hint(error: TensorwireError) -> None:
    """Remove `EXACTLY` from the hint of an error, for calls that have no option `tensors=`."""
    error.hint = (error.hint or "").replace(EXACTLY, "").removesuffix("; ") or None


WIDEN = {"int64": np.int64, "float": np.float32}


@dataclass(frozen=True)
class Options:
    """The options for writing columns: those with a special encoding, and the caller's schema."""

    tensors: Sequence[str] | Set[str] = ()
    base64: Sequence[str] | Set[str] = ()
    quantize: Mapping[str, str] | None = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        for what in ("tensors", "base64"):
            names = getattr(self, what)
            if isinstance(names, (str, bytes)):
                raise UsageError(
                    f"{what} must be a list of columns, not {names!r}",
                    hint=f"pass {what}=[{names!r}]",
                )
            object.__setattr__(self, what, frozenset(names))
        if self.quantize is not None and not isinstance(self.quantize, Mapping):
            raise UsageError(
                f"quantize must be a dict of column: scheme, not {self.quantize!r}",
                hint="for example quantize={'x': 'int8'}",
            )
        named = [*self.tensors, *self.base64, *(self.quantize or {})]
        for name in named:
            if named.count(name) > 1:
                raise EncodeError(
                    "only one of tensors, base64 and quantize can apply to a column", tensor=name
                )

    def check(self, names: Set[str]) -> None:
        """Raise UsageError if an option names a column that does not exist."""
        for what, columns in (
            ("tensors", self.tensors),
            ("base64", self.base64),
            ("quantize", (self.quantize or {}).keys()),
        ):
            for name in sorted(set(columns) - names):
                raise UsageError(
                    f"no column {name!r}, named by {what}={choices(name, sorted(names))}"
                )

    def feature(self, name: str) -> Feature | None:
        """Return the feature that the schema declares for a column, or None."""
        return None if self.schema is None else self.schema.get(name)

    def encoding(self, name: str) -> str:
        """Return the encoding of a column in a bytes list, "" for none."""
        if name in self.tensors:
            return "tensor"
        if name in self.base64:
            return "base64"
        if name in (self.quantize or {}):
            return "quantized"
        declared = self.feature(name)
        if declared is not None and declared.encoding == "quantized":
            raise EncodeError(
                "the schema declares the column as quantized, without a scheme",
                hint=f"pass quantize={{{name!r}: 'int8'}}",
            )
        return "" if declared is None else declared.encoding


@dataclass(frozen=True)
class PackedColumn:
    """A column ready for the encoder."""

    feature: Feature
    values: Array
    offsets: Array | None
    splits: Array | None
    present: Array | None
    steps: Array | None = None

    def input(self, name: bytes) -> tuple[Any, ...]:
        """Return the tuple that the encoder kernel takes."""
        length = -1 if self.splits is not None else self.feature.length
        kind = (
            example.BYTES
            if self.feature.kind == BYTES
            else example.FLOAT
            if self.feature.kind == FLOAT
            else example.INT64
        )
        return (
            name,
            kind,
            self.steps is not None,
            length,
            self.values,
            self.offsets,
            self.splits,
            self.steps,
            self.present,
        )


def foreign(value: object) -> Any:
    """Return a tensor of any framework as one of ours, in the layout that the encoder needs."""
    if isinstance(value, (Set, range, Iterator)):
        raise EncodeError(f"a {type(value).__name__} is not a tensor", hint="pass list(x)")
    return frameworks.tensor(value)


def needs_tensor(tensor: Tensor) -> bool:
    """Return whether a column cannot be a list of numbers or strings, whatever its values."""
    if isinstance(tensor, Ragged):
        return tensor.ragged_rank > 1 or tensor.values.ndim > 1 or needs_tensor(tensor.values)
    return isinstance(tensor, np.ndarray) and tensor.dtype.kind == "c"


def as_lists(values: Array | Strings, encoding: str, splits: Array | int) -> PackedColumn:
    """Pack a vector of numbers or strings as the values of a list.

    Errors name the row, which is given by `splits` or by the number of values per row.
    """
    if isinstance(values, Strings):
        feature = Feature(BYTES, (), text=values.text)
        if encoding == "base64":
            values, feature = encodings.pack_base64(values), replace(feature, encoding="base64")
        return PackedColumn(
            feature,
            np.ascontiguousarray(values.data),
            np.ascontiguousarray(values.offsets),
            None,
            None,
        )
    if encoding == "base64":
        raise EncodeError(f"base64 needs a column of strings, not {values.dtype}")
    try:
        kind, array = as_numbers(values)
    except EncodeError as error:
        if error.record is not None:
            value = error.record
            error.record = (
                value // splits
                if isinstance(splits, int)
                else int(np.searchsorted(splits, value, side="right")) - 1
            )
        raise
    return PackedColumn(Feature(kind, (), dtypes.of(values.dtype).name), array, None, None, None)


def as_numbers(values: Array) -> tuple[str, Array]:
    """Return the kind of list, and the numbers as int64 or float32 without a loss.

    The `record` of an error is the position of the value.
    """
    row = dtypes.of(values.dtype)
    if row.name == "float64":
        raise EncodeError(
            "float64 does not fit a float list, which is float32",
            hint=f".astype(np.float32) rounds it; {EXACTLY}",
        )
    if row.name == "uint64" and values.size and values.max() > validate.INT64_MAX:
        position = int(np.argmax(values.reshape(-1) > validate.INT64_MAX))
        raise EncodeError(
            f"the value {values.reshape(-1)[position]} does not fit int64",
            record=position,
            hint=EXACTLY,
        )
    if not row.name.startswith(("float", "bfloat")):
        return INT64, np.require(values, np.int64, ("C", "A"))
    # The bits of a bfloat16 are the upper half of a float32. A cast would replace every NaN by the
    # canonical one.
    if row.name == "bfloat16":
        return FLOAT, (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):
        wide = np.require(values, np.float32, ("C", "A"))
    # Some float8 types have many NaNs, and float32 does not keep all of them apart.
    if row.name.startswith("float8"):
        with np.errstate(invalid="ignore"):
            lost = np.flatnonzero(wide.astype(values.dtype).view(np.uint8) != values.view(np.uint8))
        if len(lost):
            raise EncodeError(
                "a NaN with a payload that float32 does not keep", record=int(lost[0]), hint=EXACTLY
            )
    return FLOAT, wide


def as_raw(tensor: Tensor, present: Array | None) -> PackedColumn:
    """Pack rows as the bytes that `tobytes()` returns, for a feature with the encoding "raw"."""
    if (
        isinstance(tensor, Ragged)
        and isinstance(tensor.values, np.ndarray)
        and tensor.values.ndim == 1
    ):
        flat = np.ascontiguousarray(tensor.values)
        feature = Feature(BYTES, (None,), dtypes.of(flat.dtype).name, encoding="raw")
        return PackedColumn(
            feature,
            flat.view(np.uint8),
            np.ascontiguousarray(tensor.row_splits[0], np.int64) * flat.itemsize,
            None,
            present,
        )
    if not isinstance(tensor, np.ndarray):
        raise EncodeError(
            "the encoding 'raw' needs dense tensors of one dtype, of one shape or vectors"
        )
    offsets = np.arange(len(tensor) + 1, dtype=np.int64) * (
        tensor.itemsize * math.prod(tensor.shape[1:])
    )
    values = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    return PackedColumn(
        Feature(BYTES, tensor.shape[1:], dtypes.of(tensor.dtype).name, encoding="raw"),
        values,
        offsets,
        None,
        present,
    )


def as_tensors(rows: Array | Sequence[Tensor], present: Array | None) -> PackedColumn:
    """Pack each row as a TensorProto."""
    packed = encodings.pack_tensors(rows)
    return PackedColumn(
        _tensor_feature(rows), np.ascontiguousarray(packed.data), packed.offsets, None, present
    )


def _tensor_feature(rows: Array | Sequence[Tensor]) -> Feature:
    if isinstance(rows, np.ndarray):
        return Feature(BYTES, rows.shape[1:], dtypes.of(rows.dtype).name, encoding="tensor")
    features = [_one_tensor(row) for row in rows]
    merged = features[0] if features else Feature(BYTES, None, encoding="tensor")
    for feature in features[1:]:
        merged = merge(merged, feature)
    return merged


def _one_tensor(row: Tensor) -> Feature:
    if isinstance(row, Strings):
        return Feature(BYTES, row.shape, "string", encoding="tensor", text=row.text)
    if isinstance(row, np.ndarray):
        return Feature(BYTES, row.shape, dtypes.of(row.dtype).name, encoding="tensor")
    return Feature(BYTES, None, encoding="tensor")


def list_feature(column: Ragged) -> Feature:
    """Return the feature of lists that are kept as TensorProtos.

    The varying dimensions are those of the whole column, not of its rows.
    """
    values, shape = column.values, column.shape[1:]
    if isinstance(values, Strings):
        return Feature(BYTES, shape, "string", encoding="tensor", text=values.text)
    return Feature(BYTES, shape, dtypes.of(values.dtype).name, encoding="tensor")


def as_quantized(tensor: Tensor, scheme: str, present: Array | None) -> PackedColumn:
    """Pack each row of floats as quantized codes, with scale and zero point if there are any."""
    if not isinstance(tensor, np.ndarray) or dtypes.of(tensor.dtype).name not in (
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ):
        raise EncodeError("quantize needs a dense column of floats")
    try:
        strings, splits = encodings.pack_quantized(tensor, scheme)
    except EncodeError as error:
        # The hint names nonfinite=, an argument of tw.quantize that this caller does not have.
        error.hint = None
        raise
    feature = Feature(BYTES, tensor.shape[1:], dtypes.of(tensor.dtype).name, encoding="quantized")
    return PackedColumn(
        feature, np.ascontiguousarray(strings.data), strings.offsets, splits, present
    )


def merge(a: Feature, b: Feature) -> Feature:
    """Return one feature for two groups of rows. Properties that differ become unspecified."""
    if a.kind != b.kind or a.encoding != b.encoding:
        raise EncodeError(f"{b!r} after {a!r}: a feature must have the same kind in all records")
    shape = a.shape
    if a.shape != b.shape:
        if a.encoding in ("tensor", "quantized"):
            same_rank = a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape)
            shape = (
                tuple(
                    x if x == y else None for x, y in zip(a.shape or (), b.shape or (), strict=True)
                )
                if same_rank
                else None
            )
            # Only the first dimension of a column may vary. Otherwise it is an array of tensors.
            shape = None if None in (shape or ())[1:] else shape
        elif max(len(a.shape or ()), len(b.shape or ())) > 1:
            raise EncodeError(
                f"rows of shape {b.shape} after {a.shape}: a list with several dimensions must have"
                " the same shape in all records",
                hint=EXACTLY,
            )
        else:
            shape = (None,)
    dtype = a.dtype if a.dtype == b.dtype else ""
    if a.encoding == "tensor" and a.dtype != b.dtype:
        shape = None
    return replace(
        a, shape=shape, dtype=dtype, required=a.required and b.required, text=a.text and b.text
    )
