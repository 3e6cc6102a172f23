"""Encodings of tensors in bytes features: TensorProto, raw bytes, base64 and quantized numbers.

Each encoding has a fast path for rows that all have the same layout, as they do in practice: their
bytes form a rectangle, which is converted as one array.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._errors import DecodeError, SchemaError
from .._limits import DEFAULT, Limits
from ..codecs.tensorproto import TensorProto
from ..core import dtypes, memory
from ..core.quantized import Quantized
from ..core.tensors import Array, Ragged, Strings, Tensor, trusted
from ..transforms import quantization
from ..wire import kernels
from .batch import BatchColumn
from .schema import Feature


def pack_tensors(rows: Sequence[Tensor] | Array) -> Strings:
    """Serialize each row as the TensorProto that tf.io.parse_tensor reads."""
    if (
        isinstance(rows, np.ndarray)
        and rows.dtype.kind not in "OSUT"
        and dtypes.of(rows.dtype).tf
        and rows.ndim
        and rows.size
    ):
        row_bytes = rows[0].nbytes
        head = kernels.dense_header(dtypes.of(rows.dtype).tf or 0, rows.shape[1:], row_bytes)
        out: Array = np.empty((len(rows), len(head) + row_bytes), np.uint8)
        out[:, : len(head)] = np.frombuffer(head, np.uint8)
        out[:, len(head) :] = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
        offsets = np.arange(len(rows) + 1, dtype=np.int64) * out.shape[1]
        return trusted(Strings, out.reshape(-1), offsets, (len(rows),), False)
    codec = TensorProto()
    return Strings.of([kernels.join(codec.encode(row)) for row in rows], text=False)


def unpack_tensors(
    strings: Strings, present: Array, feature: Feature, limits: Limits | None = None
) -> BatchColumn:
    """Parse TensorProtos into one column, the inverse of `pack_tensors`.

    The column is dense if the shape is fixed, Ragged if dimensions vary, and an array of tensors if
    the feature has no shape.
    """
    return _column(_parsed(strings, present, limits or DEFAULT), present, feature)


def _parsed(strings: Strings, present: Array, limits: Limits) -> list[Any] | Array:
    """Return the tensor of each row, None where the feature is missing, or all rows as one array."""
    if len(present) and present.all():
        rectangle = _rectangle(strings)
        if rectangle is not None:
            # If all rows start with the bytes of the first row's header, they differ only in their
            # contents, which are then one array.
            first = kernels.decode_dense(rectangle[0].tobytes(), True)
            if (
                first is not None
                and first.nbytes
                and (rectangle[:, : -first.nbytes] == rectangle[0, : -first.nbytes]).all()
            ):
                content = np.ascontiguousarray(rectangle[:, -first.nbytes :])
                return content.reshape(-1).view(first.dtype).reshape(len(rectangle), *first.shape)
    codec = TensorProto(limits=limits).of_call(len(strings.data))
    data, bounds = memory.flat(strings.data), strings.offsets.tolist()
    tensors: list[Any] = []
    for row, there in enumerate(present.tolist()):
        try:
            tensors.append(
                codec.decode(data[bounds[row] : bounds[row + 1]], True) if there else None
            )
        except DecodeError as error:
            raise error.add(record=row) from None
    return tensors


def _rectangle(strings: Strings) -> Array | None:
    """Return the bytes of strings of one length as a matrix, a row each; None if lengths differ."""
    if not strings.size:
        return None
    length = int(strings.offsets[1] - strings.offsets[0])
    if not length or (np.diff(strings.offsets) != length).any():
        return None
    return strings.data[strings.offsets[0] : strings.offsets[-1]].reshape(-1, length)


def _dtype_name(tensor: Tensor) -> str:
    """Return the dtype of a decoded tensor (of a Ragged, of its values); "?" for other kinds."""
    values = tensor.values if isinstance(tensor, Ragged) else tensor
    if isinstance(values, Strings):
        return "string"
    return dtypes.of(values.dtype).name if isinstance(values, np.ndarray) else "?"


def _column(rows: list[Any] | Array, present: Array, feature: Feature) -> BatchColumn:
    shape, wanted = feature.shape, feature.dtype
    # All rows of an array have one dtype and shape, so the first row is checked for all.
    samples = [rows[0, ...]] if isinstance(rows, np.ndarray) and len(rows) else rows
    for row, tensor in enumerate(samples if shape is not None else ()):
        if tensor is None:
            continue
        dtype = _dtype_name(tensor)
        fits = len(tensor.shape) == len(shape or ()) and all(
            a in (None, b) for a, b in zip(shape or (), tensor.shape, strict=True)
        )
        if (wanted not in ("string", dtype)) or not fits:
            raise SchemaError(
                f"the schema declares {wanted} {shape}, but the tensor is {dtype} {tensor.shape}",
                record=row,
            )
    if shape is None:
        out: Array = np.empty(len(rows), object)
        for row, tensor in enumerate(rows):
            out[row] = tensor
        return out
    if isinstance(rows, np.ndarray) and feature.fixed:
        return rows
    # A feature declared as string allows tensors of any dtype, as long as all agree.
    if wanted == "string":
        names = {_dtype_name(tensor) for tensor in rows if tensor is not None}
        if len(names) > 1 or "?" in names:
            kinds = " and ".join(sorted(names)).replace("?", "another kind")
            raise SchemaError(
                f"the column mixes tensors of {kinds}",
                hint="declare shape=None to read an array of tensors",
            )
        if names:
            wanted = names.pop()
            feature = replace(feature, dtype=wanted)
    if None in shape[1:] or (wanted == "string" and len(shape) > 1 and not feature.fixed):
        return _lists(list(rows), feature)
    if wanted == "string":
        return _strings_column(list(rows), feature)
    empty = np.zeros(tuple(dim or 0 for dim in shape), dtypes.named(wanted).numpy)
    filled = [empty if tensor is None else tensor for tensor in rows]
    if feature.fixed:
        return np.stack(filled) if filled else np.zeros((0, *empty.shape), empty.dtype)
    splits = np.zeros(len(filled) + 1, np.int64)
    np.cumsum([len(tensor) for tensor in filled], out=splits[1:])
    return trusted(Ragged, np.concatenate([*filled, empty[:0]]), (splits,), (None,))


def _lists(rows: list[Any], feature: Feature) -> Ragged:
    """Return tensors with several varying dimensions as one Ragged, with a row for each tensor.

    A missing row is empty, or has blank items where the schema fixes their number.
    """
    shape = feature.shape or ()
    depth = max(axis for axis, dim in enumerate(shape) if dim is None)
    blank = np.zeros((0, *(dim or 0 for dim in shape[depth + 1 :])), _numpy(feature))
    levels: list[list[Array]] = [[] for _ in range(depth + 1)]
    values: list[Any] = []
    for tensor in rows:
        if tensor is None:
            levels[0].append(np.array([shape[0] or 0]))
            for axis in range(1, depth + 1):
                levels[axis].append(np.full(int(levels[axis - 1][-1].sum()), shape[axis] or 0))
            values.append(_blanks(int(levels[depth][-1].sum()), blank))
            continue
        flat, splits = tensor, list[Array]()
        if isinstance(tensor, Ragged):
            flat, splits = tensor.values, list(tensor.row_splits)
        # The schema fixes the inner dimensions, so their row splits become dense dimensions.
        while len(splits) > depth:
            splits.pop()
            flat = flat.reshape(-1, shape[len(splits) + 1] or 0, *flat.shape[1:])
        # A dense dimension above the last varying one becomes a level of row splits.
        while len(splits) < depth:
            size = flat.shape[1]
            splits.append(np.arange(len(flat) + 1) * size)
            flat = flat.reshape(len(flat) * size, *flat.shape[2:])
        levels[0].append(np.array([len(tensor)]))
        for axis, part in enumerate(splits, 1):
            levels[axis].append(np.diff(part))
        values.append(flat)
    lists = [tensor for tensor in rows if isinstance(tensor, Ragged)]
    kinds = {part.dtype for tensor in lists for part in tensor.row_splits}
    zero = np.zeros(1, np.int64)
    bounds = [np.concatenate([zero, *parts]).cumsum(dtype=np.int64) for parts in levels]
    # Row splits that were written as int32 are returned as int32.
    if kinds == {np.dtype(np.int32)} and bounds[-1][-1] <= np.iinfo(np.int32).max:
        bounds = [part.astype(np.int32) for part in bounds]
    joined: Any = np.concatenate([*values, blank]) if blank.dtype != object else None
    if joined is None:
        joined = _joined_strings(values, feature, blank.shape[1:])
    return Ragged(joined, bounds, shape[: depth + 1])


def _blanks(count: int, like: Array) -> Array | Strings:
    """Return `count` items of zeros, or of empty strings."""
    shape = (count, *like.shape[1:])
    if like.dtype != object:
        return np.zeros(shape, like.dtype)
    return Strings.of([b""] * math.prod(shape), shape, text=False)


def _numpy(feature: Feature) -> np.dtype[Any] | type[object]:
    return object if feature.dtype == "string" else dtypes.named(feature.dtype).numpy


def _joined_strings(parts: list[Any], feature: Feature, inner: tuple[int, ...]) -> Strings:
    flat = [item for part in parts for item in part.astext(feature.text).reshape(-1)]
    return Strings.of(flat, (sum(len(part) for part in parts), *inner), text=feature.text)


def _strings_column(rows: list[Any], feature: Feature) -> Strings | Ragged:
    flat = [
        item
        for tensor in rows
        if tensor is not None
        for item in tensor.astext(feature.text).reshape(-1)
    ]
    if feature.fixed:
        if any(tensor is None for tensor in rows):
            raise SchemaError(
                "a string tensor is missing", hint="declare shape=None to make it optional"
            )
        return Strings.of(
            flat, (len(rows), *(dim or 0 for dim in feature.shape or ())), text=feature.text
        )
    splits = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([0 if tensor is None else tensor.size for tensor in rows], out=splits[1:])
    return Ragged(Strings.of(flat, text=feature.text), splits)


def unpack_raw(strings: Strings, present: Array, feature: Feature) -> Array | Ragged:
    """Reinterpret the bytes of each row (`tobytes()`) in the dtype and shape of the schema.

    Vectors of any length become Ragged.
    """
    dtype = dtypes.named(feature.dtype).numpy
    if not feature.fixed:
        return _raw_vectors(strings, dtype)
    shape = tuple(dim or 0 for dim in feature.shape or ())
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    lengths = np.diff(strings.offsets)
    wrong = np.flatnonzero((lengths != size) & present)
    if len(wrong):
        length = int(lengths[wrong[0]])
        raise SchemaError(
            f"expected {size} bytes for {feature.dtype} of shape {shape}, got {length}",
            record=int(wrong[0]),
        )
    content = strings.data[int(strings.offsets[0]) : int(strings.offsets[-1])].reshape(-1)
    if present.all():
        array: Array = content.view(dtype).reshape(len(present), *shape)
        return array if array.flags.aligned else array.copy()
    out: Array = np.zeros((len(present), size), np.uint8)
    out[present] = content.reshape(-1, size) if size else 0
    return out.reshape(-1).view(dtype).reshape(len(present), *shape)


def _raw_vectors(strings: Strings, dtype: np.dtype[Any]) -> Ragged:
    wrong = np.flatnonzero(np.diff(strings.offsets) % dtype.itemsize)
    if len(wrong):
        row = int(wrong[0])
        raise SchemaError(
            f"{int(strings.offsets[row + 1] - strings.offsets[row])} bytes are not a multiple of the"
            f" size of {dtype}",
            record=row,
        )
    content = strings.data[int(strings.offsets[0]) : int(strings.offsets[-1])].reshape(-1)
    values = (
        content.view(dtype)
        if content.ctypes.data % dtype.alignment == 0
        else content.copy().view(dtype)
    )
    return trusted(
        Ragged, values, ((strings.offsets - strings.offsets[0]) // dtype.itemsize,), (None,)
    )


def pack_base64(strings: Strings) -> Strings:
    """Encode strings like tf.io.encode_base64: the URL-safe alphabet without padding."""
    flat = strings.astext(False).reshape(-1)
    return Strings.of(
        [base64.urlsafe_b64encode(item).rstrip(b"=") for item in flat], strings.shape, text=False
    )


def unpack_base64(strings: Strings) -> Strings:
    """Decode URL-safe base64. Padding is allowed, other characters are not."""
    flat = strings.reshape(-1)
    out = []
    for number, item in enumerate(flat):
        try:
            body = item.rstrip(b"=")
            out.append(
                binascii.a2b_base64(
                    body.translate(_URL_SAFE) + b"=" * (-len(body) % 4), strict_mode=True
                )
            )
        except (binascii.Error, ValueError) as error:
            raise DecodeError(f"invalid base64: {error}", format="base64", record=number) from None
    return Strings.of(out, strings.shape, text=False)


# The two characters that only the standard alphabet has map to NUL, which is an error.
_URL_SAFE = bytes.maketrans(b"-_+/", b"+/\x00\x00")


def pack_quantized(array: Array, scheme: str) -> tuple[Strings, Array]:
    """Quantize rows of floats and return (strings, splits).

    A row is one TensorProto of the codes for a cast, and three (codes, scale, zero point)
    otherwise.
    """
    quantized = quantization.quantize_rows(np.asarray(array), scheme)
    codes = pack_tensors(quantized.codes)
    count = len(array)
    if quantized.scale is None or quantized.zero_point is None:
        return codes, np.arange(count + 1, dtype=np.int64)
    parts = [codes, pack_tensors(quantized.scale), pack_tensors(quantized.zero_point)]
    items = [part.tolist() for part in parts]
    flat = [item for row in zip(*items, strict=True) for item in row]
    return Strings.of(flat, text=False), np.arange(count + 1, dtype=np.int64) * 3


def unpack_quantized(
    strings: Strings, splits: Array, present: Array, feature: Feature, limits: Limits | None = None
) -> BatchColumn:
    """Return the floats of each row in their original dtype."""
    limits = limits or DEFAULT
    lengths = np.diff(splits)
    if ((lengths != 1) & (lengths != 3) & present).any():
        row = int(np.flatnonzero((lengths != 1) & (lengths != 3) & present)[0])
        raise SchemaError(
            f"a quantized feature has one or three strings, not {int(lengths[row])}", record=row
        )
    affine = bool((lengths == 3).any())
    if affine and ((lengths == 1) & present).any():
        raise SchemaError(
            "some rows are quantized by a cast and some by a scale",
            record=int(np.flatnonzero((lengths == 1) & present)[0]),
        )
    step = 3 if affine else 1
    every = np.ones(int(present.sum()), np.bool_)
    codes = _parsed(strings[::step], every, limits)
    rows: list[Any] = []
    if isinstance(codes, np.ndarray):
        array = _dequantized(codes, strings, affine, every, feature, limits)
        if present.all():
            return _column(array, present, feature)
        rows = [array[row, ...] for row in range(len(array))]
    else:
        for number, row_codes in enumerate(codes):
            part = strings[number * step : (number + 1) * step]
            rows.append(
                _dequantized(
                    np.asarray(row_codes)[None], part, affine, np.ones(1, np.bool_), feature, limits
                )[0, ...]
            )
    placed: list[Any] = [None] * len(present)
    for row, value in zip(np.flatnonzero(present).tolist(), rows, strict=True):
        placed[row] = value
    return _column(placed, present, feature)


def _dequantized(
    codes: Array, strings: Strings, affine: bool, every: Array, feature: Feature, limits: Limits
) -> Array:
    scheme = dtypes.of(codes.dtype).name
    scale = zero = None
    if affine:
        scale = np.asarray(_parsed(strings[1::3], every, limits))
        zero = np.asarray(_parsed(strings[2::3], every, limits))
        if scale.shape != (len(codes),) or zero.shape != (len(codes),):
            raise DecodeError("a scale or zero point is not one number", format="example")
    limits.call(codes.nbytes).draw(
        codes.size * dtypes.named(feature.dtype).numpy.itemsize, "example"
    )
    quantized = Quantized(codes, scheme, 0 if affine else None, scale, zero, feature.dtype)
    quantization.check(quantized, DecodeError)
    return quantization.dequantize(quantized, DecodeError)
