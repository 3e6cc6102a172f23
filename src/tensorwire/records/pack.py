"""One column as the lists that an Example has, and what the schema must remember of it.

An Example holds lists of int64, float32 and bytes. What fits one of these exactly is written so,
and the schema remembers what it was (bool, int32, bfloat16, text, a shape). Every other tensor
becomes a TensorProto in a bytes list. What fits neither is refused, never rounded or wrapped:
uint64 past 2**63, and float64, of which nobody can know whether it was meant to be exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import frameworks
from .._errors import EncodeError, choices
from ..core import dtypes, validate
from ..core.tensors import Array, Ragged, Strings, Tensor
from ..wire import example
from . import encodings
from .schema import BYTES, FLOAT, INT64, Feature, Schema

EXACTLY = "; tensors=[name] keeps it exactly"
"""The way out of most refusals."""


WIDEN = {"int64": np.int64, "float": np.float32}


@dataclass(frozen=True)
class Options:
    """How columns are to be written: those of `tensors` as TensorProtos, and so on; the schema says
    it too.
    """

    tensors: Sequence[str] | Set[str] = ()
    base64: Sequence[str] | Set[str] = ()
    quantize: Mapping[str, str] | None = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        for what in ("tensors", "base64"):
            names = getattr(self, what)
            if isinstance(names, (str, bytes)):
                raise EncodeError(f"{what} is a list of columns: {what}=[{names!r}]")
            object.__setattr__(self, what, frozenset(names))
        if self.quantize is not None and not isinstance(self.quantize, Mapping):
            raise EncodeError(
                "quantize says the scheme of each column, as in quantize={'x': 'int8'}, not"
                f" {self.quantize!r}"
            )
        named = [*self.tensors, *self.base64, *(self.quantize or {})]
        for name in named:
            if named.count(name) > 1:
                raise EncodeError(
                    "only one of tensors, base64 and quantize can hold for a column", tensor=name
                )

    def check(self, names: Set[str]) -> None:
        """Options for columns that are not there are mistakes."""
        for what, asked in (
            ("tensors", self.tensors),
            ("base64", self.base64),
            ("quantize", (self.quantize or {}).keys()),
        ):
            for name in sorted(set(asked) - names):
                raise EncodeError(
                    f"{what} names {name!r}, and there is no such"
                    f" column{choices(name, sorted(names))}"
                )

    def feature(self, name: str) -> Feature | None:
        """What the schema says of a column."""
        return None if self.schema is None else self.schema.get(name)

    def encoding(self, name: str) -> str:
        """How a column is kept in a bytes list, if it must be."""
        if name in self.tensors:
            return "tensor"
        if name in self.base64:
            return "base64"
        if name in (self.quantize or {}):
            return "quantized"
        asked = self.feature(name)
        if asked is not None and asked.encoding == "quantized":
            raise EncodeError(
                "the schema says that it is quantized, and not by which scheme:"
                f" quantize={{{name!r}: 'int8'}}"
            )
        return "" if asked is None else asked.encoding


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
        """What the kernel takes."""
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
    """Any framework's tensor as ours, in the layout that all below rely on."""
    if isinstance(value, (Set, range, Iterator)):
        raise EncodeError(f"{type(value).__name__} is no tensor; pass list(x)")
    return frameworks.tensor(value)


def needs_tensor(tensor: Tensor) -> bool:
    """Whether a column does not fit lists, whatever its values."""
    if isinstance(tensor, Ragged):
        return tensor.ragged_rank > 1 or tensor.values.ndim > 1 or needs_tensor(tensor.values)
    return isinstance(tensor, np.ndarray) and tensor.dtype.kind == "c"


def as_lists(values: Array | Strings, encoding: str, splits: Array | int) -> PackedColumn:
    """A vector of numbers or strings as the values of a list. Errors name the row, by the splits or
    by the values that each row has.
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
        raise EncodeError(f"base64 is for strings, not {values.dtype}")
    try:
        kind, array = as_numbers(values)
    except EncodeError as error:
        if error.record is not None:
            at = error.record
            error.record = (
                at // splits
                if isinstance(splits, int)
                else int(np.searchsorted(splits, at, side="right")) - 1
            )
        raise
    return PackedColumn(Feature(kind, (), dtypes.of(values.dtype).name), array, None, None, None)


def as_numbers(values: Array) -> tuple[str, Array]:
    """Numbers as int64 or float32, exactly. An error's record is the place of the value."""
    row = dtypes.of(values.dtype)
    if row.name == "float64":
        raise EncodeError(
            "float64 does not fit a float list, which is float32; .astype(np.float32) rounds it"
            + EXACTLY
        )
    if row.name == "uint64" and values.size and values.max() > validate.INT64_MAX:
        at = int(np.argmax(values.reshape(-1) > validate.INT64_MAX))
        raise EncodeError(
            f"the value {values.reshape(-1)[at]} does not fit int64{EXACTLY}", record=at
        )
    if not row.name.startswith(("float", "bfloat")):
        return INT64, np.require(values, np.int64, ("C", "A"))
    # by its bits, which are the upper half of a float32: a cast would make all NaNs one
    if row.name == "bfloat16":
        return FLOAT, (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):
        wide = np.require(values, np.float32, ("C", "A"))
    if row.name.startswith("float8"):  # some have many NaNs
        with np.errstate(invalid="ignore"):
            lost = np.flatnonzero(wide.astype(values.dtype).view(np.uint8) != values.view(np.uint8))
        if len(lost):
            raise EncodeError(
                f"a NaN whose bits float32 does not keep{EXACTLY}", record=int(lost[0])
            )
    return FLOAT, wide


def as_raw(tensor: Tensor, present: Array | None) -> PackedColumn:
    """Rows as `tobytes()` gives them, because the schema says so."""
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
            "raw bytes are for dense tensors of one dtype, and of one shape or vectors"
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
    """The feature of lists kept as TensorProtos. The column, and not its rows, says what varies."""
    values, shape = column.values, column.shape[1:]
    if isinstance(values, Strings):
        return Feature(BYTES, shape, "string", encoding="tensor", text=values.text)
    return Feature(BYTES, shape, dtypes.of(values.dtype).name, encoding="tensor")


def as_quantized(tensor: Tensor, scheme: str, present: Array | None) -> PackedColumn:
    if not isinstance(tensor, np.ndarray) or dtypes.of(tensor.dtype).name not in (
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ):
        raise EncodeError("quantize is for dense columns of floats, or rows of them")
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
    """One feature for two lots of rows: what they agree on is kept, what differs is left open."""
    if a.kind != b.kind or a.encoding != b.encoding:
        raise EncodeError(f"{b!r} after {a!r}: a feature is of one kind in all records")
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
            # a column has one dimension that varies, or is an array of tensors
            shape = None if None in (shape or ())[1:] else shape
        elif max(len(a.shape or ()), len(b.shape or ())) > 1:
            raise EncodeError(
                f"rows of shape {b.shape} after {a.shape}: a list keeps one shape of several"
                f" dimensions{EXACTLY}"
            )
        else:
            shape = (None,)
    dtype = a.dtype if a.dtype == b.dtype else ""
    if a.encoding == "tensor" and a.dtype != b.dtype:
        shape = None
    return replace(
        a, shape=shape, dtype=dtype, required=a.required and b.required, text=a.text and b.text
    )
