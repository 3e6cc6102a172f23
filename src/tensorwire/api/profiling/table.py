"""A profile as a table: plain text, and HTML for notebooks, where nothing that came from the data
can become markup.
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
"""A bar ends at this many times the best, so that one slow way does not make dots of all the
others.
"""
_COLOURS = {"encode": "#4c78a8", "send": "#bab0ac", "decode": "#f58518"}


def text(profile: Profile) -> str:
    """For people at a terminal."""
    lines = [heading(profile)]
    lines += [f"WRONG: {way}: {what}" for way, what in profile.wrong.items()]
    rows = [_cells(one) for one in profile]
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
    """What was measured, and how.

    The total is that of "balanced": the time to encode, send at 125 MB/s, and decode.
    """
    sample = (
        f", a sample of {formatting.size(profile.whole_nbytes, three_digits=True)}"
        if profile.sampled
        else ""
    )
    least = min((one.repetitions for one in profile), default=0)
    most = max((one.repetitions for one in profile), default=0)
    runs = f"{least}" if least == most else f"{least} to {most}"
    best = (
        f"; times are the best of {runs}; total: encode, send at 125 MB/s, decode" if most else ""
    )
    return (
        f"{profile.value}, {formatting.size(profile.nbytes, three_digits=True)}{sample}: {len(profile)} ways in"
        f" {formatting.time(profile.seconds)}{best}"
    )


def _cells(one: Measurement) -> tuple[str, ...]:
    view = formatting.time(one.view_seconds) if one.view_seconds is not None else ""
    times = (
        formatting.time(one.encode_seconds),
        formatting.time(one.decode_seconds),
        view,
        formatting.time(one.total()),
    )
    return one.way, f"{one.size:,}", f"{one.ratio:.2f}x", *times, _note(one)


def _note(one: Measurement) -> str:
    return (
        f"lossy: error {one.max_error:.2g} at most, {one.mean_error:.2g} in the mean"
        if one.lossy
        else ""
    )


def _bests(profile: Profile) -> list[tuple[str, str]]:
    return (
        [(what, profile.best(what).why) for what in choosing.WHAT]
        if any(not one.lossy for one in profile)
        else []
    )


def _reasons(profile: Profile) -> dict[str, list[str]]:
    """Many ways are skipped for one reason."""
    reasons: dict[str, list[str]] = {}
    for way, why in profile.skipped.items():
        reasons.setdefault(why, []).append(way)
    return reasons


def html(profile: Profile) -> str:
    """For notebooks: the table with a bar for where the time goes, and the reasons below."""
    scale = min(
        max((one.total() for one in profile), default=0.0),
        _CAP * min((one.total() for one in profile), default=0.0),
    )
    head = "".join(f"<th>{escape(name)}</th>" for name in (*HEAD[:-1], "where the time goes", ""))
    body = "".join(_html_row(one, scale) for one in profile)
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
        "<div"
        f' style="max-height:28em;overflow:auto"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div><p>{key}</p>'
        + (
            f"<details><summary>{len(profile.skipped)} ways"
            f" skipped</summary><ul>{skipped}</ul></details>"
            if skipped
            else ""
        )
        + "</div>"
    )


def _html_row(one: Measurement, scale: float) -> str:
    cells = _cells(one)
    plain = "".join(
        f'<td style="text-align:{"left" if i == 0 else "right"}">{escape(cell)}</td>'
        for i, cell in enumerate(cells[:-1])
    )
    bar = f'<td style="min-width:12em">{_bar(one, scale)}</td>'
    pale = ' style="opacity:.7"' if one.lossy else ""
    return f'<tr{pale}>{plain}{bar}<td style="text-align:left">{escape(cells[-1])}</td></tr>'


def _bar(one: Measurement, scale: float) -> str:
    """Encode, send, decode, one after the other; cut off at the scale."""
    sending = one.total() - one.encode_seconds - one.decode_seconds
    parts = {"encode": one.encode_seconds, "send": sending, "decode": one.decode_seconds}
    out, left = [], 100.0
    for name, seconds in parts.items():
        width = min(left, 100 * seconds / scale if scale else 0.0)
        left -= width
        out.append(
            "<span"
            f' style="display:inline-block;height:.8em;width:{width:.1f}%;background:{_COLOURS[name]}"></span>'
        )
    return "".join(out)
