"""Character graphics for terminals: heat maps, histograms and sparsity patterns, plain or in 24-bit
colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.formatting import number
from ..core.tensors import Array
from .statistics import Histogram, plain

MOST = 1 << 20
"""The most elements that are used; of larger arrays an evenly spaced sample."""


class Paint(NamedTuple):
    """The capabilities of the terminal."""

    width: int = 80
    colour: bool = False
    """Whether it supports 24-bit colours."""
    unicode: bool = True


_SHADES = " ░▒▓█"
_ASCII = " .:-=+*#%@"
_BARS = " ▏▎▍▌▋▊▉█"
_RAMP = ((68, 1, 84), (62, 74, 137), (38, 130, 142), (53, 183, 121), (180, 222, 44), (253, 231, 37))
"""The colour map viridis: perceptually uniform, and still ordered in greyscale."""
_NOT_A_NUMBER = (190, 40, 60)


def reduced(grid: Array, rows: int, columns: int) -> Array:
    """Reduce a matrix to at most `rows` x `columns` cells, each the mean of its finite elements, or
    NaN if there are none.

    >>> reduced(np.arange(16.0).reshape(4, 4), 2, 2)
    array([[ 2.5,  4.5],
           [10.5, 12.5]])
    """
    values = plain(grid).astype(np.float64)
    finite = np.isfinite(values)
    # The elements are divided before they are added, so that no sum overflows.
    values = np.where(finite, values / max(values.size, 1), 0.0)
    sums, counts = values, finite.astype(np.float64)
    for axis, most in ((0, rows), (1, columns)):
        length = sums.shape[axis]
        if length > most:
            starts = np.arange(most) * length // most
            sums, counts = (
                np.add.reduceat(sums, starts, axis),
                np.add.reduceat(counts, starts, axis),
            )
    with np.errstate(invalid="ignore", divide="ignore"):
        out: Array = np.where(counts > 0, sums / counts * max(grid.size, 1), np.nan)
    return out


def heat(grid: Array, paint: Paint, rows: int = 16) -> list[str]:
    """Return a matrix as lines of a heat map, then a legend. With colours a line shows two rows of
    cells, in shades one.

    >>> heat(np.float32([[0, 1], [2, np.nan]]), Paint(colour=False))
    ['  ▒▒', '██??', 'from 0 (blank) to 2 (full), ? is NaN']
    """
    if not grid.size:
        return ["(empty)"]
    # A character is about twice as high as wide: half blocks in colour, two characters in shades.
    wide = 1 if paint.colour else 2
    lines = rows * 2 if paint.colour else rows
    cells = reduced(grid, lines, max(1, paint.width // wide))
    finite = cells[np.isfinite(cells)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    span = high / 2 - low / 2
    with np.errstate(invalid="ignore"):
        level = (
            (cells / 2 - low / 2) / span if span > 0 else np.where(np.isfinite(cells), 0.5, np.nan)
        )
    holes = bool(np.isnan(level).any())
    if paint.colour:
        picture = [
            _painted(level[i], level[i + 1] if i + 1 < len(level) else None)
            for i in range(0, len(level), 2)
        ]
        ends = f"from {number(low)} (violet) to {number(high)} (yellow)" + (
            ", red is NaN" if holes else ""
        )
    else:
        shades = _SHADES if paint.unicode else _ASCII
        steps = np.nan_to_num(level * len(shades), nan=0).astype(int).clip(0, len(shades) - 1)
        picture = [
            "".join(
                ("?" if math.isnan(value) else shades[step]) * wide
                for value, step in zip(row, row_steps, strict=True)
            ).rstrip()
            for row, row_steps in zip(level.tolist(), steps.tolist(), strict=True)
        ]
        ends = f"from {number(low)} (blank) to {number(high)} (full)" + (
            ", ? is NaN" if holes else ""
        )
    return [*picture, ends]


def colour(level: float) -> tuple[int, int, int]:
    """Return red, green and blue for a level from 0 to 1.

    >>> colour(0), colour(1)
    ((68, 1, 84), (253, 231, 37))
    """
    if math.isnan(level):
        return _NOT_A_NUMBER
    place = min(max(level, 0.0), 1.0) * (len(_RAMP) - 1)
    left = min(int(place), len(_RAMP) - 2)
    red, green, blue = (
        round(a + (b - a) * (place - left))
        for a, b in zip(_RAMP[left], _RAMP[left + 1], strict=True)
    )
    return red, green, blue


def _painted(upper: Array, lower: Array | None) -> str:
    """Return two rows of cells as one line of half blocks: the upper row is the foreground colour,
    the lower one the background.
    """
    out, last = [], ""
    for i, level in enumerate(upper.tolist()):
        code = "\x1b[38;2;{};{};{}".format(*colour(level))
        code += "m" if lower is None else ";48;2;{};{};{}m".format(*colour(float(lower[i])))
        out.append(("" if code == last else code) + "▀")
        last = code
    return "".join(out) + "\x1b[0m"


def bars(histogram: Histogram, paint: Paint, rows: int = 12) -> list[str]:
    """Return a histogram as lines, one per bin: its start, a bar, the count. Bins are merged until
    there are at most `rows`.

    >>> bars(Histogram([2, 0, 1], [0.5, 1.5, 2.5, 3.5]), Paint(40))
    ['0.5  ████████████████████████████  2', '1.5                                0', '2.5
           ██████████████                1']
    """
    step = -(-len(histogram.counts) // rows)
    counts = [sum(histogram.counts[i : i + step]) for i in range(0, len(histogram.counts), step)]
    starts = [number(edge) for edge in histogram.edges[:-1:step]]
    left, most = max(map(len, starts)), max(counts)
    digits = len(f"{most:,}")
    room = max(4, paint.width - left - digits - 8)
    lines = [
        f"{start:>{left}}  {_bar(count / most if most else 0, room, paint):{room}}"
        for start, count in zip(starts, counts, strict=True)
    ]
    return [f"{line}  {count:,}" for line, count in zip(lines, counts, strict=True)]


def _bar(part: float, room: int, paint: Paint) -> str:
    if not paint.unicode:
        return "#" * round(part * room)
    eighths = round(part * room * 8)
    # A bin that is not empty gets at least the thinnest bar.
    if part and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + (_BARS[eighths % 8] if eighths % 8 else "")


def pattern(places: Array, dims: tuple[int, int], paint: Paint, rows: int = 16) -> list[str]:
    """Return the sparsity pattern of a matrix as lines: a dot for each cell with a value, eight
    cells per braille character, or one cell per character without Unicode.

    >>> pattern(np.array([[0, 0], [1, 1], [2, 2], [3, 3]]), (4, 4), Paint())
    ['⠑⢄']
    """
    if not dims[0] or not dims[1]:
        return ["(empty)"]
    across, down = (2, 4) if paint.unicode else (1, 1)
    width, height = min(dims[1], paint.width * across), min(dims[0], rows * down)
    # Keep the aspect ratio of the matrix as far as it fits, but never shrink it to a line.
    if dims[1] > width or dims[0] > height:
        scale = max(dims[1] / (paint.width * across), dims[0] / (rows * down))
        width = max(min(width, 16 * across), min(width, round(dims[1] / scale)))
        height = max(min(height, 6 * down), min(height, round(dims[0] / scale)))
    dots: Array = np.zeros((-(-height // down) * down, -(-width // across) * across), np.bool_)
    if len(places):
        dots[places[:, 0] * height // dims[0], places[:, 1] * width // dims[1]] = True
    if not paint.unicode:
        return ["".join("#" if dot else "." for dot in row) for row in dots]
    # In a braille character each dot of the 4 x 2 block is one bit of the code point.
    weights = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
    blocks = dots.reshape(dots.shape[0] // 4, 4, dots.shape[1] // 2, 2)
    codes = (blocks * weights[None, :, None, :]).sum(axis=(1, 3))
    return ["".join(chr(0x2800 + int(code)) for code in row) for row in codes]


def dots(indices: Array, shape: Sequence[int], paint: Paint, rows: int = 16) -> list[str]:
    """Return the sparsity pattern of a tensor: a vector is one row, and more than two dimensions
    are projected onto the first two.
    """
    some = spread(indices)
    if indices.shape[1] == 1:
        return pattern(
            np.column_stack([np.zeros(len(some), np.int64), some[:, 0]]),
            (1, int(shape[0])),
            paint,
            rows,
        )
    return pattern(some[:, :2], (int(shape[0]), int(shape[1])), paint, rows)


def spread(array: Array, most: int = MOST) -> Array:
    """Return at most `most` evenly spaced rows.

    >>> spread(np.arange(10), 3)
    array([0, 4, 8])
    """
    return array if len(array) <= most else array[:: -(-len(array) // most)]
