"""Columns of a batch: the decoder's output as the tensors that the schema describes.

How records become columns, and which work is skipped:

1. The kernel (`wire.example.ColumnBuffers.fill`) writes the values of a whole batch into flat
   buffers, one set for each column. It copies bytes and checks lengths, and knows nothing of
   dtypes other than int64, float32 and bytes.
2. Most columns are finished by `reshape` alone, without a copy: a fixed shape, or row splits that
   make the values Ragged.
3. Only a column that declares a narrower dtype is cast, and then each value must survive the cast.
4. Only a column with an encoding (TensorProto, raw, base64, quantized) is decoded a second time.
   Rows whose bytes have the same layout are decoded as one rectangle, see `encodings`.
5. Errors carry the row in this batch as `record`. The reader translates it into the record of the
   file.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._errors import DecodeError, LimitError, SchemaError, TensorwireError
from .._limits import DEFAULT, Limits
from ..core import dtypes, validate
from ..core.tensors import Array, Ragged, Strings, trusted
from ..wire.example import Filled
from . import encodings
from .batch import Batch, BatchColumn
from .schema import BYTES, FLOAT, Feature


def batch(
    features: dict[str, Feature], filled: list[Filled], rows: int, limits: Limits | None = None
) -> Batch:
    """Return a Batch. Errors name the feature, and as `record` the row in this batch."""
    columns, present = {}, {}
    budget = (limits or DEFAULT).call(sum(part.values.nbytes for part in filled))
    for (name, feature), part in zip(features.items(), filled, strict=True):
        try:
            columns[name] = column(feature, part, rows, budget)
            present[name] = part.present
        except TensorwireError as error:
            raise error.add(tensor=name) from None
    return Batch(columns, present, rows)


def column(
    feature: Feature, filled: Filled, rows: int, limits: Limits | None = None
) -> BatchColumn:
    """Return one column as an array, Strings or Ragged."""
    there = filled.present
    if not there.all():
        if feature.required:
            row = int(np.flatnonzero(~there)[0])
            raise SchemaError(
                "the record lacks this feature, which the schema requires", record=row
            )
        if feature.default is not None:
            filled = _with_default(feature, filled, rows)
        if feature.encoding:
            _check_room(feature, filled, rows, limits or DEFAULT)
    try:
        return _column(feature, filled, rows, limits)
    except TensorwireError as error:
        # Errors about single values number the value, not the row.
        if error.record is not None and feature.encoding in ("", "base64"):
            error.record = row_of(error.record, filled.splits, feature.length)
        raise


def _check_room(feature: Feature, filled: Filled, rows: int, limits: Limits) -> None:
    """Raise LimitError if the zeros for missing rows take more memory than the limits allow."""
    shape = feature.shape or ()
    itemsize = 8 if feature.dtype == "string" else dtypes.named(feature.dtype).numpy.itemsize
    # Every list up to the last varying dimension also takes an entry in the row splits.
    lists = max((axis for axis, dim in enumerate(shape) if dim is None), default=0)
    splits = rows * math.prod(dim or 0 for dim in shape[:lists]) if lists else 0
    wanted = rows * math.prod(dim or 0 for dim in shape) * itemsize + 8 * splits
    if wanted > limits.tensor and wanted > 16 * filled.values.nbytes:
        message = f"a column of {wanted:,} bytes, mostly of missing values, exceeds the limit"
        raise LimitError(f"{message} of {limits.tensor:,}", hint="raise it with Limits(tensor=...)")


def row_of(value: int | None, splits: Array | None, length: int) -> int:
    """Return the row that a value belongs to.

    The rows are given by `splits`, or all have `length` values.
    """
    if splits is not None:
        return int(np.searchsorted(splits, value or 0, side="right")) - 1
    return (value or 0) // max(length, 1)


def _column(feature: Feature, filled: Filled, rows: int, limits: Limits | None) -> BatchColumn:
    there = filled.present
    if feature.kind == BYTES:
        # The decoder always fills in offsets for bytes.
        assert filled.offsets is not None
        strings = trusted(Strings, filled.values, filled.offsets, (len(filled.offsets) - 1,), False)
        if feature.encoding == "tensor":
            return encodings.unpack_tensors(strings, there, feature, limits)
        if feature.encoding == "raw":
            return encodings.unpack_raw(strings, there, feature)
        if feature.encoding == "quantized":
            assert filled.splits is not None
            return encodings.unpack_quantized(strings, filled.splits, there, feature, limits)
        if feature.encoding == "base64":
            strings = encodings.unpack_base64(strings)
        values: Array | Strings = text(strings) if feature.text else strings
    else:
        values = numbers(filled.values, feature)
    if filled.splits is not None:
        return trusted(Ragged, values, (filled.splits,), (None,))
    shape = (rows, *(dim or 0 for dim in feature.shape or ()))
    return values.reshape(shape)


def sequence(feature: Feature, filled: Filled, limits: Limits | None = None) -> Ragged:
    """Return one column of a feature list: Ragged, with one row per record and one item per step."""
    assert filled.steps is not None
    steps = int(filled.steps[-1])
    inner = column(
        Feature(
            feature.kind, feature.shape, feature.dtype, False, None, feature.encoding, feature.text
        ),
        filled._replace(present=np.ones(steps, np.bool_)),
        steps,
        limits,
    )
    if isinstance(inner, Ragged):
        return trusted(
            Ragged, inner.values, (filled.steps, *inner.row_splits), (None, *inner.uniform)
        )
    if isinstance(inner, Strings) and inner.ndim > 1:
        width = inner.shape[1]
        splits = np.arange(steps + 1, dtype=np.int64) * width
        return trusted(Ragged, inner.reshape(-1), (filled.steps, splits), (None, width))
    return trusted(Ragged, inner, (filled.steps,), (None,))


def text(strings: Strings) -> Strings:
    """Return the strings as text. Raises DecodeError if they are not UTF-8."""
    try:
        validate.utf8(strings.data, strings.offsets, blame=DecodeError)
    except DecodeError as error:
        raise error.add(record=_first_bytes(strings)) from None
    return trusted(Strings, strings.data, strings.offsets, strings.shape, True)


def _first_bytes(strings: Strings) -> int | None:
    """Return the number of the first string that is not UTF-8."""
    for number, item in enumerate(strings):
        try:
            item.decode()
        except UnicodeDecodeError:
            return number
    return None


def numbers(values: Array, feature: Feature) -> Array:
    """Return the values in the dtype of the column.

    Raises SchemaError if a value does not fit the dtype exactly.
    """
    if feature.dtype in ("int64", "float32"):
        return values
    row = dtypes.named(feature.dtype)
    if feature.kind == FLOAT:
        if row.numpy.kind in "iub" or row.name in ("complex64", "complex128"):
            raise SchemaError(f"a float list cannot become {row.name}")
        # NumPy warns about NaNs and overflows. The comparison below finds the values that changed.
        with np.errstate(invalid="ignore", over="ignore"):
            out: Array = values.astype(row.numpy)
            wrong = np.flatnonzero((out.astype(np.float32) != values) & (values == values))
        if (
            row.name == "bfloat16"
            and (kept := (values != values) & (values.view(np.uint32) & 0xFFFF == 0)).any()
        ):
            # The cast replaces every NaN by the canonical one. NaNs that bfloat16 can represent
            # keep their bits.
            out.view(np.uint16)[kept] = values.view(np.uint32)[kept] >> 16
    else:
        if row.name == "bool":
            low, high = 0, 1
        elif row.name in (
            "float32",
            "float64",
            "float16",
            "bfloat16",
            "complex64",
            "complex128",
        ) or row.name.startswith("float"):
            raise SchemaError(f"an int64 list cannot become {row.name}")
        else:
            low, high = (int(bound) for bound in dtypes.bounds(row))
        wrong = np.flatnonzero((values < low) | (values > min(high, validate.INT64_MAX)))
        out = values.astype(row.numpy)
    if len(wrong):
        raise SchemaError(
            f"the value {values[wrong[0]]} does not fit {row.name}", record=int(wrong[0])
        )
    return out


def _with_default(feature: Feature, filled: Filled, rows: int) -> Filled:
    """Put the default into the missing rows. The feature has a fixed shape."""
    if feature.kind == BYTES:
        strings: Any = trusted(
            Strings, filled.values, filled.offsets, (rows, feature.length), False
        ).__array__()
        default = np.asarray(feature.default, object).reshape(-1)
        strings[~filled.present] = [
            item.encode() if isinstance(item, str) else item
            for item in np.broadcast_to(default, feature.length)
        ]
        joined = Strings.of(strings.reshape(-1).tolist(), text=False)
        return filled._replace(values=joined.data, offsets=joined.offsets)
    values = filled.values.reshape(rows, feature.length)
    values[~filled.present] = np.broadcast_to(
        np.asarray(feature.default, values.dtype).reshape(-1), feature.length
    )
    return filled
