"""Quantization: floats stored in fewer bits, as casts to a shorter float or as affine integer codes.

A cast scheme (float16, bfloat16, float8) rounds to a shorter float. An affine scheme (int8, uint8,
int4) has a `scale` and an integer `zero_point` for the tensor, or for each index along one axis:

    code = clip(round_half_even(x / scale) + zero_point)        x' = (code - zero_point) * scale

Strategy:
1. The first pass finds the range of the finite values of each scale (`_range`), and handles NaN and
   infinity as `nonfinite=` says.
2. `_grid` chooses the smallest scale of 24 significant bits with which the codes cover that range,
   and a zero point. All values are whole multiples of the scale, so a zero is always restored as
   zero. The range is *not* widened to include zero: all codes are used for the values that occur,
   and [1000, 1001] is resolved as finely as [0, 1]. For that reason the zero point may lie outside
   the codes, and is int64.
3. The second pass encodes. Both passes work in blocks, so a large tensor needs memory for its
   result and a few MiB.
4. Dequantization computes in float64, rounds once to the original dtype, and clips numbers past the
   dtype's largest finite number.

Error bounds: with `ulp` the distance of neighbours in the original dtype at the larger of |x| and
|x'|,

    |x - x'| <= scale / 2 + ulp / 2        float16, bfloat16, float32
    |x - x'| <= scale / 2 + ulp * 3/2      float64

Half an ulp is the cost of rounding x' to its dtype. Below float64 the arithmetic adds nothing to
it: a quotient of two numbers of 24 bits is either a tie or at least 2**-25 away from one, which
float64 resolves up to 2**27, and products up to 2**29 scales are exact. Beyond that, a scale is less
than a quarter of an ulp, and x' is rounded to x. For float64 there is no wider type, so the quotient
costs up to one more ulp. If all values of a scale are equal, the scale is their absolute value and
they are restored exactly.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from ... import frameworks
from ..._errors import DecodeError, EncodeError, UsageError, choices
from ...core import dtypes
from ...core.memory import Array
from ...core.quantized import Quantized

Blame = type[EncodeError] | type[DecodeError]
Nonfinite = Literal["raise", "clip", "zero"]
Block = tuple[slice, slice, slice]

BLOCK = 1 << 17
"""Elements of a block: 1 MiB as float64, so that the passes over a block stay in the CPU cache."""
FLOATS = ("float16", "bfloat16", "float32", "float64")
"""The dtypes that can be quantized."""
NONFINITE = ("raise", "clip", "zero")
SCALE_BITS = 24
"""Significant bits of a scale: those of float32."""
EXACT = 1 << 53
"""Whole numbers up to this one are exact in float64."""


class Scheme(NamedTuple):
    """A quantization scheme: the dtype of the codes and their range."""

    name: str
    dtype: np.dtype[Any]
    lowest: float
    highest: float
    """The range of the codes: integers of an affine scheme, the finite numbers of a cast."""
    affine: bool
    infinite: bool = False
    """Whether the scheme can represent infinity."""


def _largest(dtype: np.dtype[Any]) -> float:
    # ml_dtypes.finfo has no type annotations.
    finfo: Any = ml_dtypes.finfo
    return float(finfo(dtype).max)


def _cast(name: str, infinite: bool = True) -> Scheme:
    dtype = dtypes.named(name).numpy
    largest = _largest(dtype)
    return Scheme(name, dtype, -largest, largest, False, infinite)


def _integer(name: str) -> Scheme:
    row = dtypes.named(name)
    return Scheme(name, row.numpy, *dtypes.bounds(row), True)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        *(
            _cast("float16"),
            _cast("bfloat16"),
            _cast("float8_e4m3fn", infinite=False),
            _cast("float8_e5m2"),
        ),
        *(_integer("int8"), _integer("uint8"), _integer("int4")),
    )
}


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """The error and the size of one tensor in one scheme.

    All errors are zero for a tensor without finite elements.
    """

    max_abs: float
    mean_abs: float
    rmse: float
    max_relative: float
    """The largest |x - x'| / |x| for x other than zero. A zero is always restored as zero."""
    ratio: float
    """The compression ratio: bytes of the original / bytes of codes, scales and zero points."""


def quantize(
    x: Any, scheme: str, axis: int | None = None, nonfinite: Nonfinite = "raise"
) -> Quantized:
    """Quantize a dense tensor of float16, bfloat16, float32 or float64, of any framework.

    `scheme` is "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8" or "int4".
    `axis` gives each index along that axis its own scale and zero point. Casts to floats have
    neither and ignore it.

    `nonfinite` says what to do with values that the scheme cannot represent: NaN and infinity in
    integers, infinity in float8_e4m3fn, and numbers that would round past the largest finite number
    of a cast.

    - "raise": raise EncodeError. NaN and infinity are kept by casts that can represent them.
    - "clip": replace infinities and too large numbers by the end of the finite range. For a cast
      that is the largest number of the scheme, for integers the largest finite element (with the
      same index along the axis). NaN is kept by casts and raises for integers.
    - "zero": like "clip", and replace NaN by 0.

    Raises EncodeError for an unknown scheme, for other dtypes, and for tensors that are not dense.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> tw.quantize(np.array([-1.0, 0.0, 0.5, 1.0]), "int8").codes
    array([-127,    0,   64,  127], dtype=int8)
    """
    array, along, coder = _prepare(x, scheme, axis, nonfinite)
    view = _three_axes(array, along)
    codes: Array = np.empty(view.shape, coder.scheme.dtype)
    with np.errstate(all="ignore"):
        for block in _blocks(view.shape):
            codes[block] = coder.encode(view[block], block)
    codes, dtype = codes.reshape(array.shape), dtypes.of(array.dtype).name
    if isinstance(coder, _Cast):
        return Quantized(codes, scheme, None, None, None, dtype)
    shape = () if along is None else (view.shape[1],)
    scale = coder.scale.astype(np.float64 if dtype == "float64" else np.float32)
    return Quantized(
        codes,
        scheme,
        along,
        scale.reshape(shape),
        coder.zero.astype(np.int64).reshape(shape),
        dtype,
    )


def quantize_rows(x: Any, scheme: str, nonfinite: Nonfinite = "raise") -> Quantized:
    """Quantize with a scale and zero point for each row `x[i]`, so that rows can be stored apart.

    Rows may be empty.

    >>> quantize_rows(np.array([[0.0, 255.0], [0.0, 510.0]], np.float32), "uint8").scale
    array([1., 2.], dtype=float32)
    """
    return quantize(x, scheme, 0, nonfinite)


def dequantize(quantized: Quantized, blame: Blame = EncodeError) -> Array:
    """Restore the floats of a quantized tensor, in the original dtype.

    A number past the largest finite number of the dtype becomes that number. `blame` is the class
    of the error for codes, scale and zero point that do not match: EncodeError, or DecodeError if
    they were read from bytes.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> tw.dequantize(tw.quantize(np.array([0, 1, 255], np.float32), "uint8"))
    array([  0.,   1., 255.], dtype=float32)
    """
    check(quantized, blame)
    view = _three_axes(quantized.codes, quantized.axis)
    scheme, target = SCHEMES[quantized.scheme], dtypes.named(quantized.original).numpy
    coder: _Cast | _Affine = _Cast(scheme, target)
    if quantized.scale is not None and quantized.zero_point is not None:
        coder = _Affine(scheme, target, _column(quantized.scale), _column(quantized.zero_point))
    values: Array = np.empty(view.shape, target)
    with np.errstate(all="ignore"):
        for block in _blocks(view.shape):
            values[block] = coder.decode(view[block], block)
    return values.reshape(quantized.shape)


def check(quantized: Quantized, blame: Blame = EncodeError) -> None:
    """Check all invariants of a Quantized. The codes may have any value.

    >>> check(Quantized(np.zeros(3, np.int8), "int8", None, np.array(0.0), np.array(0), "float32"))
    Traceback (most recent call last):
    tensorwire._errors.EncodeError: the scale of a tensor quantized as int8 must be finite and
    greater than 0
    """
    codes, axis, scale, zero = (
        quantized.codes,
        quantized.axis,
        quantized.scale,
        quantized.zero_point,
    )
    scheme = _scheme(quantized.scheme, blame)
    what = f"a tensor quantized as {scheme.name}"
    if quantized.original not in FLOATS:
        raise blame(
            f"the original of {what} must be one of {', '.join(FLOATS)}, not {quantized.original!r}"
        )
    if not isinstance(codes, np.ndarray) or codes.dtype.num != scheme.dtype.num:
        raise blame(f"the codes of {what} must be a {scheme.name} array, not {_kind(codes)}")
    if not scheme.affine:
        if axis is not None or scale is not None or zero is not None:
            raise blame(f"{what} must not have an axis, a scale or a zero point")
        return
    if axis is not None and not 0 <= axis < codes.ndim:
        raise blame(f"axis {axis} is out of range for shape {codes.shape}")
    shape = () if axis is None else (codes.shape[axis],)
    if (
        not isinstance(scale, np.ndarray)
        or scale.dtype not in (np.float32, np.float64)
        or scale.shape != shape
    ):
        raise blame(
            f"the scale of {what} must be float32 or float64 of shape {shape}, not {_kind(scale)}"
        )
    if not isinstance(zero, np.ndarray) or zero.dtype != np.int64 or zero.shape != shape:
        raise blame(f"the zero point of {what} must be int64 of shape {shape}, not {_kind(zero)}")
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise blame(f"the scale of {what} must be finite and greater than 0")
    if not ((zero >= -EXACT) & (zero <= EXACT)).all():
        raise blame(f"the zero point of {what} must be between -2**53 and 2**53")


def quantization_error(
    x: Any, scheme: str, axis: int | None = None, nonfinite: Nonfinite = "raise"
) -> ErrorReport:
    """Measure the error of `dequantize(quantize(x, ...))` on the finite elements of x, and its size.

    The arguments are those of `quantize`. The tensor is processed in blocks, so that neither the
    codes nor the restored floats are held in memory.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> report = tw.quantization_error(np.array([0, 0.75, 255], np.float32), "uint8")
    >>> report.max_abs, report.max_relative
    (0.25, 0.3333333333333333)
    """
    array, along, coder = _prepare(x, scheme, axis, nonfinite)
    view = _three_axes(array, along)
    count, relative = 0, 0.0
    sums: list[tuple[float, float, float]] = []
    with np.errstate(all="ignore"):
        for block in _blocks(view.shape):
            before = view[block].astype(np.float64)
            after = coder.decode(coder.encode(view[block], block), block)
            error = np.abs(before - after.astype(np.float64))
            finite = np.isfinite(before)
            if not finite.all():
                before, error = before[finite], error[finite]
            count += error.size
            largest = float(error.max(initial=0))
            if largest:
                relative = max(
                    relative, float((error / np.abs(before)).max(initial=0, where=before != 0))
                )
                # Squares of numbers up to 1 neither overflow nor underflow to zero as a whole.
                error /= largest
                sums.append((largest, float(error.sum()), float(np.square(error).sum())))
    worst = max((largest for largest, _, _ in sums), default=0.0)
    mean = worst * (
        math.fsum(first * (largest / worst) for largest, first, _ in sums) / max(count, 1)
    )
    rmse = worst * math.sqrt(
        math.fsum(second * (largest / worst) ** 2 for largest, _, second in sums) / max(count, 1)
    )
    stored = array.size * coder.scheme.dtype.itemsize
    if isinstance(coder, _Affine):
        stored += coder.scale.size * (16 if array.dtype.itemsize == 8 else 12)
    return ErrorReport(worst, mean, rmse, relative, array.nbytes / stored if stored else 1.0)


# From here on every array has three axes: the product of the dimensions before the axis of the
# scales, that axis, and the product of the dimensions after it. If the tensor has a single scale,
# the shape is [1, 1, size]. Scales and zero points are columns [n, 1], which broadcast against it.


@dataclass(frozen=True, slots=True)
class _Affine:
    scheme: Scheme
    target: np.dtype[Any]
    scale: Array
    """float64 [n, 1], like `zero` and `ends`."""
    zero: Array
    ends: tuple[Array, Array] | None = None
    """The range of the finite values, if there are others."""

    def encode(self, values: Array, block: Block) -> Array:
        wide = values.astype(np.float64)
        if self.ends is not None:
            # `_range` has raised for NaN unless nonfinite="zero".
            np.copyto(wide, 0, where=np.isnan(wide))
            np.clip(wide, self.ends[0][block[1]], self.ends[1][block[1]], out=wide)
        wide /= self.scale[block[1]]
        np.rint(wide, out=wide)
        wide += self.zero[block[1]]
        np.clip(wide, self.scheme.lowest, self.scheme.highest, out=wide)
        # The cast goes through int16, because ml_dtypes is slow from float to int4.
        return wide.astype(np.int16).astype(self.scheme.dtype)

    def decode(self, codes: Array, block: Block) -> Array:
        wide = codes.astype(np.float64)
        wide -= self.zero[block[1]]
        wide *= self.scale[block[1]]
        largest = _largest(self.target)
        # The largest code may stand for a number half a scale past the largest element, and so past
        # the range of the dtype.
        np.clip(wide, -largest, largest, out=wide)
        return _rounded(wide, self.target)


@dataclass(frozen=True, slots=True)
class _Cast:
    scheme: Scheme
    target: np.dtype[Any]
    nonfinite: Nonfinite = "raise"
    where: _Where | None = None

    def encode(self, values: Array, block: Block) -> Array:
        wide, largest = _wide(values), self.scheme.highest
        # Both comparisons are false if there is a NaN.
        if wide.min() >= -largest and wide.max() <= largest:
            return _rounded(wide, self.scheme.dtype)
        if self.nonfinite != "raise":
            wide = np.clip(wide, -largest, largest)
            if self.nonfinite == "zero":
                np.copyto(wide, 0, where=np.isnan(wide))
            return _rounded(wide, self.scheme.dtype)
        codes = _rounded(wide, self.scheme.dtype)
        lost = ~np.isfinite(codes.astype(np.float32)) & (
            np.isfinite(wide) if self.scheme.infinite else ~np.isnan(wide)
        )
        if self.where is not None and lost.any():
            element = self.where.first(wide, lost, block)
            raise EncodeError(
                f"{element}, but the largest finite number in {self.scheme.name} is {largest:g}",
                hint="pass nonfinite='clip' to store that",
            )
        return codes

    def decode(self, codes: Array, block: Block) -> Array:
        wide = codes.astype(np.float32)
        largest = _largest(self.target)
        # bfloat16 codes of a float16 original: 65504 was rounded to 65536, which float16 lacks.
        if self.scheme.highest > largest:
            wide = np.where(np.isfinite(wide), np.clip(wide, -largest, largest), wide)
        return _rounded(wide, self.target)


class _Where(NamedTuple):
    """The index of an element of a block in the caller's shape, for error messages."""

    view: tuple[int, ...]
    shape: tuple[int, ...]

    def first(self, values: Array, mask: Array, block: Block) -> str:
        local = np.unravel_index(int(mask.argmax()), mask.shape)
        position = tuple(int(i) + (part.start or 0) for i, part in zip(local, block, strict=True))
        index = np.unravel_index(int(np.ravel_multi_index(position, self.view)), self.shape)
        return f"x[{', '.join(map(str, index)) or '()'}] is {float(values[local]):g}"


def _prepare(
    x: Any, scheme: str, axis: int | None, nonfinite: Nonfinite
) -> tuple[Array, int | None, _Cast | _Affine]:
    """Check the arguments of `quantize` and return (array, axis, coder).

    For an affine scheme this is the first pass over the data.
    """
    row = _scheme(scheme)
    if nonfinite not in NONFINITE:
        raise UsageError(f"unknown nonfinite={nonfinite!r}{choices(nonfinite, NONFINITE)}")
    array = x if isinstance(x, np.ndarray) else frameworks.tensor(x)
    if not isinstance(array, np.ndarray):
        raise EncodeError(
            f"quantize takes a dense tensor, not {type(x).__name__}",
            hint="tw.dumps(..., quantize=) takes any value",
        )
    name = dtypes.of(array.dtype).name
    if name not in FLOATS:
        raise EncodeError(
            f"only {', '.join(FLOATS)} can be quantized, not {name}",
            hint="use x.astype('float32')",
        )
    target = dtypes.named(name).numpy
    if axis is not None:
        along = operator.index(axis)
        if not -array.ndim <= along < array.ndim:
            raise EncodeError(f"axis {axis} is out of range for shape {array.shape}")
        axis = along % array.ndim
    if not row.affine:
        view = _three_axes(array, None)
        return array, None, _Cast(row, target, nonfinite, _Where(view.shape, array.shape))
    with np.errstate(all="ignore"):
        view = _three_axes(array, axis)
        low, high, clean = _range(view, nonfinite, row, _Where(view.shape, array.shape))
        return (
            array,
            axis,
            _Affine(row, target, *_grid(low, high, row, target), None if clean else (low, high)),
        )


def _range(
    view: Array, nonfinite: Nonfinite, scheme: Scheme, where: _Where
) -> tuple[Array, Array, bool]:
    """Return the smallest and largest finite value of each scale, and whether all are finite.

    A scale without values has the range 0 to 0.
    """
    low: Array = np.full((view.shape[1], 1), np.inf)
    high: Array = np.full((view.shape[1], 1), -np.inf)
    clean = True
    for block in _blocks(view.shape):
        wide = _wide(view[block])
        least, most = wide.min(axis=(0, 2)), wide.max(axis=(0, 2))
        if not (np.isfinite(least).all() and np.isfinite(most).all()):
            clean, nan = False, np.isnan(wide)
            refused = ~np.isfinite(wide) if nonfinite == "raise" else nan
            if nonfinite != "zero" and refused.any():
                hint = (
                    "pass nonfinite='zero' to store 0"
                    if nan.any()
                    else "pass nonfinite='clip' to store the nearest finite value"
                )
                raise EncodeError(
                    f"{where.first(wide, refused, block)}, which {scheme.name} cannot represent",
                    hint=hint,
                )
            wide = np.where(nan, 0, wide)
            finite = np.isfinite(wide)
            least = wide.min(axis=(0, 2), where=finite, initial=np.inf)
            most = wide.max(axis=(0, 2), where=finite, initial=-np.inf)
        for ends, extreme, choose in ((low, least, np.minimum), (high, most, np.maximum)):
            part = ends[block[1], 0]
            choose(part, extreme, out=part)
    empty = low > high
    if view.size and empty.any():
        owner = f"index {int(empty.argmax())} of the axis" if len(empty) > 1 else "the tensor"
        raise EncodeError(
            f"{owner} has no finite value to clip infinities to",
            hint="use x.clip(low, high) first",
        )
    return np.where(empty, 0, low), np.where(empty, 0, high), clean


def _grid(low: Array, high: Array, scheme: Scheme, target: np.dtype[Any]) -> tuple[Array, Array]:
    """Return the smallest scale with which the codes cover low to high, and a zero point.

    Both are float64, and the scale has 24 significant bits. Invariant: scale * steps >= high - low
    in exact arithmetic, so that no value lies more than half a scale outside the codes.
    """
    steps = scheme.highest - scheme.lowest
    largest = np.maximum(np.abs(low), np.abs(high))
    # Computing with a quarter of the values keeps the largest range from overflowing.
    quarter = np.where(largest > 2.0**1000, 0.25, 1.0)
    a, b = high * quarter, -low * quarter
    width = a + b
    # The rounding error of the sum (Knuth's two-sum): positive if the exact range is wider.
    rest = (a - (width - (width - a))) + (b - (width - a))
    _, exponent = np.frexp(width / steps)
    unit = np.ldexp(1.0, np.maximum(exponent - SCALE_BITS, -1074 if target.itemsize == 8 else -149))
    scale = np.maximum(np.ceil(width / steps / unit), 1) * unit
    short = (scale * steps < width) | ((scale * steps == width) & (rest > 0))
    scale = (scale + unit * short) / quarter
    if target.itemsize == 8:
        # At least two ulps of the largest value. A finer scale would need zero points that are not
        # exact in float64.
        scale = np.maximum(scale, np.ldexp(1.0, np.frexp(largest)[1] - 52))
    scale = np.where(low == high, np.where(largest > 0, largest, 1.0), scale)
    ends = scheme.lowest - np.rint(low / scale), scheme.highest - np.rint(high / scale)
    # Usually two zero points are possible. Take the one nearest to 0.
    return scale, np.clip(0, np.minimum(*ends), np.maximum(*ends))


def _rounded(wide: Array, target: np.dtype[Any]) -> Array:
    """Round to the nearest number of a dtype, ties to even, in one step.

    ml_dtypes converts float64 through float32 and would round twice.

    >>> _rounded(np.array([1 + 2**-8 + 2**-40]), np.dtype(ml_dtypes.bfloat16)).astype(float) - 1
    array([0.0078125])
    """
    if wide.dtype == np.float64 and target.isbuiltin != 1:
        # Round to odd: truncate to float32, and set the last bit if anything was cut off. The
        # second rounding then sees on which side of a tie the number was.
        short = wide.astype(np.float32)
        cut = short.astype(np.float64)
        bits = short.view(np.uint32)
        bits -= np.abs(cut) > np.abs(wide)
        bits |= (cut != wide) & ~np.isnan(wide)
        wide = short
    return wide.astype(target)


def _wide(values: Array) -> Array:
    """Return the same numbers as float32 or float64, in which NumPy is fast."""
    return values.astype(np.float64 if values.dtype.itemsize == 8 else np.float32, copy=False)


def _column(part: Array) -> Array:
    """Return scales or zero points as a float64 column [n, 1]."""
    return part.astype(np.float64).reshape(-1, 1)


def _three_axes(array: Array, axis: int | None) -> Array:
    """Return a view of shape [before, along the axis, after]."""
    if axis is None:
        return array.reshape(1, 1, array.size)
    return array.reshape(
        math.prod(array.shape[:axis]), array.shape[axis], math.prod(array.shape[axis + 1 :])
    )


def _blocks(shape: tuple[int, ...]) -> Iterator[Block]:
    """Yield the slices of blocks of up to BLOCK elements that cover the shape, in memory order.

    >>> [tuple((part.start, part.stop) for part in block) for block in _blocks((1, 3, BLOCK // 2))]
    [((0, 1), (0, 2), (0, 65536)), ((0, 1), (2, 3), (0, 65536))]
    """
    if 0 in shape:
        return
    before, along, after = shape
    tall = max(1, BLOCK // (along * after))
    wide = max(1, BLOCK // after)
    for i in range(0, before, tall):
        for j in range(0, along, wide):
            for k in range(0, after, BLOCK):
                yield (
                    slice(i, min(i + tall, before)),
                    slice(j, min(j + wide, along)),
                    slice(k, min(k + BLOCK, after)),
                )


def _scheme(name: str, blame: Blame = EncodeError) -> Scheme:
    scheme = SCHEMES.get(name) if isinstance(name, str) else None
    if scheme is None:
        raise blame(f"unknown quantization scheme {name!r}{choices(name, SCHEMES)}")
    return scheme


def _kind(part: object) -> str:
    return (
        f"{part.dtype} of shape {part.shape}"
        if isinstance(part, np.ndarray)
        else type(part).__name__
    )
