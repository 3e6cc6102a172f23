"""The table of a profile: plain text, and HTML for notebooks. All text is escaped, because names
come from the data.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ...core import formatting
from . import choosing

if TYPE_CHECKING:
    from .result import Measurement, Profile

HEAD = ("way", "bytes", "smaller", "encode", "decode", "view", "total", "")
_CAP = 4
"""Bars are cut at so many times the best, so that a slow candidate does not dwarf the others."""
_COLOURS = {"encode": "#4c78a8", "send": "#bab0ac", "decode": "#f58518"}


def text(profile: Profile) -> str:
    """The table as plain text."""
    lines = [heading(profile)]
    lines += [f"WRONG: {way}: {what}" for way, what in profile.wrong.items()]
    rows = [_cells(entry) for entry in profile]
    if rows:
        widths = [max(len(row[i]) for row in (HEAD, *rows)) for i in range(len(HEAD))]
        for row in (HEAD, tuple("-" * width for width in widths), *rows):
            cells = [
                cell.rjust(width) if 0 < i < 7 else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
    lines += [f"best for {what}: {why}" for what, why in _bests(profile)]
    lines += [f"skipped: {', '.join(ways)}: {why}" for why, ways in _reasons(profile).items()]
    return "\n".join(lines)


def heading(profile: Profile) -> str:
    """The line above the table. The total is that of "balanced": the time to encode, send at 125
    MB/s, and decode.
    """
    sample = (
        f", a sample of {formatting.size(profile.whole_nbytes, three_digits=True)}"
        if profile.sampled
        else ""
    )
    least = min((entry.repetitions for entry in profile), default=0)
    most = max((entry.repetitions for entry in profile), default=0)
    runs = f"{least}" if least == most else f"{least} to {most}"
    best = (
        f"; times are the best of {runs}; total: encode, send at 125 MB/s, decode" if most else ""
    )
    return (
        f"{profile.value}, {formatting.size(profile.nbytes, three_digits=True)}{sample}:"
        f" {len(profile)} ways in {formatting.time(profile.seconds)}{best}"
    )


def _cells(entry: Measurement) -> tuple[str, ...]:
    view = formatting.time(entry.view_seconds) if entry.view_seconds is not None else ""
    times = (
        formatting.time(entry.encode_seconds),
        formatting.time(entry.decode_seconds),
        view,
        formatting.time(entry.total()),
    )
    return entry.way, f"{entry.size:,}", f"{entry.ratio:.2f}x", *times, _note(entry)


def _note(entry: Measurement) -> str:
    return (
        f"lossy: error {entry.max_error:.2g} at most, {entry.mean_error:.2g} in the mean"
        if entry.lossy
        else ""
    )


def _bests(profile: Profile) -> list[tuple[str, str]]:
    return (
        [(what, profile.best(what).why) for what in choosing.WHAT]
        if any(not entry.lossy for entry in profile)
        else []
    )


def _reasons(profile: Profile) -> dict[str, list[str]]:
    """The skipped candidates by reason."""
    reasons: dict[str, list[str]] = {}
    for way, why in profile.skipped.items():
        reasons.setdefault(why, []).append(way)
    return reasons


def html(profile: Profile) -> str:
    """The table as HTML, with a bar for the times, and the reasons below."""
    scale = min(
        max((entry.total() for entry in profile), default=0.0),
        _CAP * min((entry.total() for entry in profile), default=0.0),
    )
    head = "".join(f"<th>{escape(name)}</th>" for name in (*HEAD[:-1], "where the time goes", ""))
    body = "".join(_html_row(entry, scale) for entry in profile)
    key = " ".join(
        f'<span style="color:{colour}">&#9632;</span> {name}' for name, colour in _COLOURS.items()
    )
    wrong = "".join(
        f'<p style="color:#c00"><b>WRONG</b> {escape(way)}: {escape(what)}</p>'
        for way, what in profile.wrong.items()
    )
    bests = "".join(
        f"<li><b>{escape(what)}</b> {escape(why)}</li>" for what, why in _bests(profile)
    )
    skipped = "".join(
        f"<li>{escape(', '.join(ways))}: {escape(why)}</li>"
        for why, ways in _reasons(profile).items()
    )
    return (
        f"<div><p>{escape(heading(profile))}</p>{wrong}<ul>{bests}</ul>"
        '<div style="max-height:28em;overflow:auto"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div><p>{key}</p>"
        + (
            f"<details><summary>{len(profile.skipped)} ways"
            f" skipped</summary><ul>{skipped}</ul></details>"
            if skipped
            else ""
        )
        + "</div>"
    )


def _html_row(entry: Measurement, scale: float) -> str:
    cells = _cells(entry)
    plain = "".join(
        f'<td style="text-align:{"left" if i == 0 else "right"}">{escape(cell)}</td>'
        for i, cell in enumerate(cells[:-1])
    )
    bar = f'<td style="min-width:12em">{_bar(entry, scale)}</td>'
    pale = ' style="opacity:.7"' if entry.lossy else ""
    return f'<tr{pale}>{plain}{bar}<td style="text-align:left">{escape(cells[-1])}</td></tr>'


def _bar(entry: Measurement, scale: float) -> str:
    """A bar of the times to encode, send and decode, cut at the scale."""
    sending = entry.total() - entry.encode_seconds - entry.decode_seconds
    parts = {"encode": entry.encode_seconds, "send": sending, "decode": entry.decode_seconds}
    out, left = [], 100.0
    for name, seconds in parts.items():
        width = min(left, 100 * seconds / scale if scale else 0.0)
        left -= width
        out.append(
            f'<span style="display:inline-block;height:.8em;width:{width:.1f}%;'
            f'background:{_COLOURS[name]}"></span>'
        )
    return "".join(out)
