"""The scatter plot of a profile: size against speed. It uses only the Figure of matplotlib, without
pyplot, so it opens no window and does not affect other plots.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._optional import require
from ...core import formatting
from .. import values

if TYPE_CHECKING:
    from .result import Measurement, Profile

SUFFIXES = (".svg", ".png", ".pdf")
_MARKERS = "osD^vPX*<>hpd8H"
_APART = (0.45, 0.04)
"""The least distance of labels, as shares of the width and height of a panel."""
_PANELS: tuple[tuple[str, Callable[[Measurement], float]], ...] = (
    ("encode", lambda entry: entry.encode_seconds),
    ("decode", lambda entry: entry.decode_seconds),
)


def check(path: str | os.PathLike[str] | None) -> None:
    """Raises if a plot cannot be drawn, so that a caller can find out before it measures."""
    require("matplotlib.figure", extra="plot")
    if path is not None and os.path.splitext(os.fspath(path))[1].lower() not in SUFFIXES:
        raise ValueError(
            f"{os.fspath(path)}: the extension of a plot must be one of {', '.join(SUFFIXES)}"
        )


def plot(profile: Profile, path: str | os.PathLike[str] | None) -> Any:
    """Writes the plot to a file; returns the Figure if there is no path."""
    check(path)
    figure = require("matplotlib.figure", extra="plot").Figure(
        figsize=(13, 6), layout="constrained"
    )
    used = {entry.format for entry in profile}
    packings = list(
        dict.fromkeys(
            ["plain", *sorted(map(_packing, profile), key=lambda name: (" + " in name, name))]
        )
    )
    # A format has the same colour in every plot.
    colours = {name: f"C{i}" for i, name in enumerate(values.formats()) if name in used}
    markers = {name: _MARKERS[i % len(_MARKERS)] for i, name in enumerate(packings)}
    panels = figure.subplots(1, len(_PANELS), sharex=True)
    for axes, (name, cost) in zip(panels, _PANELS, strict=True):
        points = [
            (float(max(entry.size, 1)), max(entry.nbytes, 1) / max(cost(entry), 1e-9), entry)
            for entry in profile
        ]
        _panel(axes, name, points, colours, markers)
    sample = (
        f", a sample of {formatting.size(profile.whole_nbytes, three_digits=True)}"
        if profile.sampled
        else ""
    )
    figure.suptitle(
        f"{profile.value}, {formatting.size(profile.nbytes, three_digits=True)}{sample}",
        parse_math=False,
    )
    _legend(figure, colours, markers, any(entry.lossy for entry in profile))
    if path is None:
        return figure
    figure.savefig(path, dpi=150)
    return None


def _packing(entry: Measurement) -> str:
    name = entry.compression if entry.level is None else f"{entry.compression}:{entry.level}"
    return "plain" if name is None else f"shuffle + {name}" if entry.shuffle else name


def _panel(
    axes: Any,
    name: str,
    points: list[tuple[float, float, Measurement]],
    colours: dict[str, str],
    markers: dict[str, str],
) -> None:
    for size, speed, entry in points:
        face = "none" if entry.lossy else colours[entry.format]
        axes.plot(
            size,
            speed,
            markers[_packing(entry)],
            color=colours[entry.format],
            markerfacecolor=face,
            markersize=7,
            alpha=0.8,
            linestyle="none",
        )
    best = front([point for point in points if not point[2].lossy])
    axes.plot(
        [size for size, _, _ in best],
        [speed for _, speed, _ in best],
        color="0.6",
        linewidth=1,
        zorder=0,
    )
    _scale(axes.set_xlim, axes.set_xscale, axes.xaxis, [size for size, _, _ in points], "B")
    _scale(axes.set_ylim, axes.set_yscale, axes.yaxis, [speed for _, speed, _ in points], "B/s")
    axes.set(title=name, xlabel="size", ylabel="speed")
    axes.grid(True, which="major", color="0.9")
    axes.set_axisbelow(True)
    _label(axes, best)


def _label(axes: Any, best: list[tuple[float, float, Measurement]]) -> None:
    """Labels the points of the front, first the quickest and the smallest. A label that would
    overlap another is left out.
    """
    placed: list[tuple[float, float]] = []
    for size, speed, entry in best[-1:] + best[:-1]:
        place = _part(size, axes.get_xlim()), _part(speed, axes.get_ylim())
        if any(abs(place[0] - x) < _APART[0] and abs(place[1] - y) < _APART[1] for x, y in placed):
            continue
        placed.append(place)
        right = place[0] > 0.5
        style = {
            "xytext": (-7 if right else 7, 5),
            "textcoords": "offset points",
            "ha": "right" if right else "left",
        }
        paper = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1}
        axes.annotate(entry.way, (size, speed), fontsize=8, parse_math=False, bbox=paper, **style)


def _part(number: float, limits: tuple[float, float]) -> float:
    """The position of a number between the ends of a logarithmic axis, from 0 to 1."""
    return math.log(number / limits[0]) / math.log(limits[1] / limits[0])


def front(points: list[tuple[float, float, Measurement]]) -> list[tuple[float, float, Measurement]]:
    """The Pareto front: the points that no other is both smaller and quicker than, sorted by size.

    >>> front([(10, 5.0, "a"), (20, 9.0, "b"), (15, 4.0, "c")])
    [(10, 5.0, 'a'), (20, 9.0, 'b')]
    """
    best: list[tuple[float, float, Measurement]] = []
    for point in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    return best


def _scale(limits: Any, scale: Any, axis: Any, numbers: list[float], unit: str) -> None:
    """Makes an axis logarithmic, with room at both ends, so that there is a tick even if all
    numbers are equal.
    """
    ticker = require("matplotlib.ticker", extra="plot")
    scale("log")
    limits(min(numbers, default=1.0) / 1.7, max(numbers, default=1.0) * 1.7)
    axis.set_major_locator(
        ticker.LogLocator(
            subs=(1, 2, 5) if max(numbers, default=1.0) < 200 * min(numbers, default=1.0) else (1,)
        )
    )
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.EngFormatter(unit))


def _legend(figure: Any, colours: dict[str, str], markers: dict[str, str], lossy: bool) -> None:
    line = require("matplotlib.lines", extra="plot").Line2D
    shown = [
        line([], [], color=colour, marker="s", linestyle="none", label=name)
        for name, colour in colours.items()
    ]
    shown += [
        line([], [], color="0.3", marker=marker, linestyle="none", label=name)
        for name, marker in markers.items()
    ]
    if lossy:
        shown.append(
            line(
                [],
                [],
                color="0.3",
                marker="o",
                markerfacecolor="none",
                linestyle="none",
                label="lossy (hollow)",
            )
        )
    shown.append(line([], [], color="0.6", label="nothing exact is both\nsmaller and quicker"))
    figure.legend(handles=shown, loc="outside right upper", fontsize=8)
