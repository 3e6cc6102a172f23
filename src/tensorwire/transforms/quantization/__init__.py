"""Fewer bits for a tensor of floats: casts to a shorter float, and affine codes of 8 or 4 bits. The
original dtype comes back.

An affine scheme has a `scale` and an integer `zero_point` for the tensor, or for each index along
one axis:

    code = clip(round_half_even(x / scale) + zero_point)        x' = (code - zero_point) * scale

- The grid is made of whole multiples of the scale, so a zero in the data always comes back as zero.
  The range is *not* widened to include zero: all codes serve the values that are there, and [1000,
  1001] is as fine as [0, 1]. The price is a zero point that may lie outside of the codes, hence
  int64.
- Everything is computed in float64, and a scale has 24 significant bits, rounded up. With `ulp` the
  distance of neighbours in the original dtype, at |x| or |x'|, whichever is larger:

      |x - x'| <= scale / 2 + ulp / 2        float16, bfloat16, float32
      |x - x'| <= scale / 2 + ulp * 3/2      float64

  Half an ulp is what rounding x' to its dtype costs, and nothing is added to it below float64. A
  quotient of two numbers of 24 bits is at least 2**-25 from a tie or on it, which float64 tells
  apart up to 2**27, and products up to 2**29 scales are exact. Beyond that a scale is less than a
  quarter of an ulp, and x' is rounded to x. With float64 no wider type is left: the quotient costs
  up to an ulp.
- A slice of one value has that value (without its sign) as its scale, and comes back exactly.

Work is done in blocks, so a large tensor needs its result and a few MiB.
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
from ..._errors import DecodeError, EncodeError, choices
from ...core import dtypes
from ...core.memory import Array
from ...core.quantized import Quantized

Blame = type[EncodeError] | type[DecodeError]
Nonfinite = Literal["raise", "clip", "zero"]
Block = tuple[slice, slice, slice]

BLOCK = 1 << 17
"""Elements: 1 MiB as float64, so that a block's few passes stay in the processor's cache."""
FLOATS = ("float16", "bfloat16", "float32", "float64")
"""What can be quantized."""
NONFINITE = ("raise", "clip", "zero")
SCALE_BITS = 24
EXACT = 1 << 53
"""Whole numbers up to here are exact in float64."""


class Scheme(NamedTuple):
    """One way to store floats in fewer bits."""

    name: str
    dtype: np.dtype[Any]
    lowest: float
    highest: float
    """The ends of the codes: integers of an affine scheme, the largest finite values of a cast."""
    affine: bool
    infinite: bool = False
    """Whether a code stands for infinity."""


def _largest(dtype: np.dtype[Any]) -> float:
    finfo: Any = ml_dtypes.finfo  # which has no types
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
    """What a scheme costs and saves on one tensor. All errors are zero for a tensor without finite
    elements.
    """

    max_abs: float
    mean_abs: float
    rmse: float
    max_relative: float
    """The largest |x - x'| / |x| where x is not zero; a zero always comes back as zero."""
    ratio: float
    """How many times smaller it got: bytes of the original over bytes of codes, scales and zero
    points.
    """


def quantize(
    x: Any, scheme: str, axis: int | None = None, nonfinite: Nonfinite = "raise"
) -> Quantized:
    """A dense tensor of float16, bfloat16, float32 or float64, of any framework, in fewer bits. The
    top of this module says how.

    `axis` gives every index along that axis its own scale and zero point. Casts have neither, and
    take no notice of it.

    `nonfinite` is about values that the scheme has no code for. NaN and the infinities have none in
    the integer schemes, infinity has none in float8_e4m3fn, and in a cast neither has a number that
    would round past the largest finite one.

    - "raise": EncodeError. What a cast can hold, NaN among it, is kept.
    - "clip": infinities and too large numbers become the end of the finite range: the largest
      number of the scheme for a cast, the largest finite element (with the same index along the
      axis) for integers. NaN is kept by casts and refused by integers.
    - "zero": as "clip", and NaN becomes 0.

    >>> quantize(np.array([-1.0, 0.0, 0.5, 1.0]), "int8").codes
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
    """`quantize` with a scale and zero point for every row `x[i]`, so that rows can be stored
    apart. Rows may be empty.

    >>> quantize_rows(np.array([[0.0, 255.0], [0.0, 510.0]], np.float32), "uint8").scale
    array([1., 2.], dtype=float32)
    """
    return quantize(x, scheme, 0, nonfinite)


def dequantize(quantized: Quantized, blame: Blame = EncodeError) -> Array:
    """The floats that the codes stand for, in the original dtype; a number past the dtype's largest
    finite one becomes that one.

    `blame` is the error for parts that do not fit together: DecodeError if they were read from
    bytes.

    >>> dequantize(quantize(np.array([0, 1, 255], np.float32), "uint8"))
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
    """Every invariant of a Quantized other than the codes themselves, since any code stands for
    some number.

    >>> check(Quantized(np.zeros(3, np.int8), "int8", None, np.array(0.0), np.array(0), "float32"))
    Traceback (most recent call last):
    tensorwire._errors.EncodeError: the scale of a tensor quantized as int8 must be finite and above
    0
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
            raise blame(f"{what} has no axis, scale or zero point")
        return
    if axis is not None and not 0 <= axis < codes.ndim:
        raise blame(f"axis {axis} is not in shape {codes.shape}")
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
        raise blame(f"the scale of {what} must be finite and above 0")
    if not ((zero >= -EXACT) & (zero <= EXACT)).all():
        raise blame(f"the zero point of {what} must lie within 2**53 of 0")


def quantization_error(
    x: Any, scheme: str, axis: int | None = None, nonfinite: Nonfinite = "raise"
) -> ErrorReport:
    """How far `dequantize(quantize(x, ...))` is from the finite elements of x, and what it saves,
    with neither of the two in memory.

    >>> report = quantization_error(np.array([0, 0.75, 255], np.float32), "uint8")
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
                error /= largest  # squares of numbers up to 1 neither overflow nor vanish
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


# From here on every array has three axes: what lies before the axis of the scales, that axis, and
# what lies after it. A scale for the whole tensor is an axis of length 1 before everything. Scales
# and the like are columns [n, 1], which broadcast against that.


@dataclass(frozen=True, slots=True)
class _Affine:
    scheme: Scheme
    target: np.dtype[Any]
    scale: Array
    """float64 [n, 1], as is all below."""
    zero: Array
    ends: tuple[Array, Array] | None = None
    """The range of the finite values, where there are others."""

    def encode(self, values: Array, block: Block) -> Array:
        wide = values.astype(np.float64)
        if self.ends is not None:
            # only with nonfinite="zero" does one come this far
            np.copyto(wide, 0, where=np.isnan(wide))
            np.clip(wide, self.ends[0][block[1]], self.ends[1][block[1]], out=wide)
        wide /= self.scale[block[1]]
        np.rint(wide, out=wide)
        wide += self.zero[block[1]]
        np.clip(wide, self.scheme.lowest, self.scheme.highest, out=wide)
        # by way of int16, since ml_dtypes casts from float to int4 slowly
        return wide.astype(np.int16).astype(self.scheme.dtype)

    def decode(self, codes: Array, block: Block) -> Array:
        wide = codes.astype(np.float64)
        wide -= self.zero[block[1]]
        wide *= self.scale[block[1]]
        largest = _largest(self.target)
        # half a scale past the largest element may be past the dtype
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
        if wide.min() >= -largest and wide.max() <= largest:  # false if there is a NaN
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
            what = self.where.first(wide, lost, block)
            raise EncodeError(
                f"{what}, and the largest number in {self.scheme.name} is {largest:g}",
                hint="nonfinite='clip' would store that",
            )
        return codes

    def decode(self, codes: Array, block: Block) -> Array:
        wide = codes.astype(np.float32)
        largest = _largest(self.target)
        if self.scheme.highest > largest:  # bfloat16 of float16, where 65504 is rounded to 65536
            wide = np.where(np.isfinite(wide), np.clip(wide, -largest, largest), wide)
        return _rounded(wide, self.target)


class _Where(NamedTuple):
    """Names an element of a block in the words of the caller's shape."""

    view: tuple[int, ...]
    shape: tuple[int, ...]

    def first(self, values: Array, mask: Array, block: Block) -> str:
        at = np.unravel_index(int(mask.argmax()), mask.shape)
        inside = tuple(int(i) + (part.start or 0) for i, part in zip(at, block, strict=True))
        index = np.unravel_index(int(np.ravel_multi_index(inside, self.view)), self.shape)
        return f"x[{', '.join(map(str, index)) or '()'}] is {float(values[at]):g}"


def _prepare(
    x: Any, scheme: str, axis: int | None, nonfinite: Nonfinite
) -> tuple[Array, int | None, _Cast | _Affine]:
    """What `quantize` was asked, checked; and for an affine scheme the first pass over the data."""
    known = _scheme(scheme)
    if nonfinite not in NONFINITE:
        raise EncodeError(f"unknown nonfinite={nonfinite!r}{choices(nonfinite, NONFINITE)}")
    array = x if isinstance(x, np.ndarray) else frameworks.tensor(x)
    if not isinstance(array, np.ndarray):
        raise EncodeError(
            f"only dense tensors are quantized by themselves, not {type(x).__name__}; dumps(...,"
            " quantize=) takes any value"
        )
    name = dtypes.of(array.dtype).name
    if name not in FLOATS:
        raise EncodeError(
            f"only {', '.join(FLOATS)} are quantized, not {name}; use x.astype('float32'), or store"
            " it as it is"
        )
    target = dtypes.named(name).numpy
    if axis is not None:
        along = operator.index(axis)
        if not -array.ndim <= along < array.ndim:
            raise EncodeError(f"axis {axis} is not in shape {array.shape}")
        axis = along % array.ndim
    if not known.affine:
        view = _three_axes(array, None)
        return array, None, _Cast(known, target, nonfinite, _Where(view.shape, array.shape))
    with np.errstate(all="ignore"):
        view = _three_axes(array, axis)
        low, high, clean = _range(view, nonfinite, known, _Where(view.shape, array.shape))
        return (
            array,
            axis,
            _Affine(
                known, target, *_grid(low, high, known, target), None if clean else (low, high)
            ),
        )


def _range(
    view: Array, nonfinite: Nonfinite, scheme: Scheme, where: _Where
) -> tuple[Array, Array, bool]:
    """Smallest and largest finite value for each scale, 0 where there are no values; and whether
    all values are finite.
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
                way = (
                    "nonfinite='zero' would store 0"
                    if nan.any()
                    else "nonfinite='clip' would store the nearest end of the others"
                )
                raise EncodeError(
                    f"{where.first(wide, refused, block)}, which {scheme.name} has no code for",
                    hint=way,
                )
            wide = np.where(nan, 0, wide)
            finite = np.isfinite(wide)
            least = wide.min(axis=(0, 2), where=finite, initial=np.inf)
            most = wide.max(axis=(0, 2), where=finite, initial=-np.inf)
        for ends, found, choose in ((low, least, np.minimum), (high, most, np.maximum)):
            part = ends[block[1], 0]
            choose(part, found, out=part)
    none = low > high
    if view.size and none.any():
        here = f"index {int(none.argmax())} of the axis" if len(none) > 1 else "the tensor"
        raise EncodeError(
            f"{here} has only infinities, and no finite value to clip them to; use x.clip(low,"
            " high) first"
        )
    return np.where(none, 0, low), np.where(none, 0, high), clean


def _grid(low: Array, high: Array, scheme: Scheme, target: np.dtype[Any]) -> tuple[Array, Array]:
    """The least scale of 24 significant bits with which the codes reach from low to high, and a
    zero point, both as float64.

    With scale * steps >= high - low in exact numbers, no value lies more than half a scale outside
    of the codes.
    """
    steps = scheme.highest - scheme.lowest
    largest = np.maximum(np.abs(low), np.abs(high))
    # so that the largest range does not overflow
    quarter = np.where(largest > 2.0**1000, 0.25, 1.0)
    a, b = high * quarter, -low * quarter
    width = a + b
    rest = (a - (width - (width - a))) + (b - (width - a))  # what the sum lost (Knuth's two-sum)
    _, exponent = np.frexp(width / steps)
    unit = np.ldexp(1.0, np.maximum(exponent - SCALE_BITS, -1074 if target.itemsize == 8 else -149))
    scale = np.maximum(np.ceil(width / steps / unit), 1) * unit
    short = (scale * steps < width) | ((scale * steps == width) & (rest > 0))
    scale = (scale + unit * short) / quarter
    if target.itemsize == 8:
        # Two ulps of the largest value: finer ones would need zero points that float64 does not
        # hold.
        scale = np.maximum(scale, np.ldexp(1.0, np.frexp(largest)[1] - 52))
    scale = np.where(low == high, np.where(largest > 0, largest, 1.0), scale)
    ends = scheme.lowest - np.rint(low / scale), scheme.highest - np.rint(high / scale)
    # of the zero points that fit, usually two, the plainest
    return scale, np.clip(0, np.minimum(*ends), np.maximum(*ends))


def _rounded(wide: Array, target: np.dtype[Any]) -> Array:
    """To nearest, ties to even. ml_dtypes goes from float64 by way of float32, and would round
    twice.

    >>> _rounded(np.array([1 + 2**-8 + 2**-40]), np.dtype(ml_dtypes.bfloat16)).astype(float) - 1
    array([0.0078125])
    """
    if wide.dtype == np.float64 and target.isbuiltin != 1:
        # Cut off, with the last bit set where anything was cut: the second rounding then sees on
        # which side of a tie it was.
        short = wide.astype(np.float32)
        cut = short.astype(np.float64)
        bits = short.view(np.uint32)
        bits -= np.abs(cut) > np.abs(wide)
        bits |= (cut != wide) & ~np.isnan(wide)
        wide = short
    return wide.astype(target)


def _wide(values: Array) -> Array:
    """The same numbers in a dtype that NumPy is quick in."""
    return values.astype(np.float64 if values.dtype.itemsize == 8 else np.float32, copy=False)


def _column(part: Array) -> Array:
    return part.astype(np.float64).reshape(-1, 1)


def _three_axes(array: Array, axis: int | None) -> Array:
    if axis is None:
        return array.reshape(1, 1, array.size)
    return array.reshape(
        math.prod(array.shape[:axis]), array.shape[axis], math.prod(array.shape[axis + 1 :])
    )


def _blocks(shape: tuple[int, ...]) -> Iterator[Block]:
    """Pieces of up to BLOCK elements that together are the whole, in memory order.

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
    known = SCHEMES.get(name) if isinstance(name, str) else None
    if known is None:
        raise blame(f"unknown quantization scheme {name!r}{choices(name, SCHEMES)}")
    return known


def _kind(part: object) -> str:
    return (
        f"{part.dtype} of shape {part.shape}"
        if isinstance(part, np.ndarray)
        else type(part).__name__
    )
