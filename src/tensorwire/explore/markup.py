"""Small pages for notebooks: a heading, facts, a table, some lines of text. All that comes from
data is escaped; nothing is fetched.

Colours are the notebook's own, and lines are grey with a share of transparency, so that it can be
read on light and on dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .printable import safe, short

ROWS = 30
"""Of a table, at most; a notebook is scrolled past, not through."""
CELL = 120
"""Characters of a cell, at most."""
_BOX = (
    "display:inline-block;max-width:100%;overflow:auto;border:1px solid"
    " rgba(128,128,128,.35);border-radius:6px;padding:.5em .8em"
)
_QUIET = "opacity:.7"
_LINE = "border-bottom:1px solid rgba(128,128,128,.25)"
_TEXT = "text-align:left;padding:.15em .8em .15em 0;vertical-align:top"
_PRE = (
    "margin:.4em 0"
    " 0;line-height:1.1;font-family:monospace;background:none;color:inherit;border:0;padding:0;overflow:auto"
)


def words(text: object, most: int = CELL) -> str:
    """Text from anywhere, fit to stand in a page.

    >>> words("<script>alert(1)</script>", 12)
    '&lt;script&gt;a...'
    """
    return escape(safe(short(str(text), most)))


def card(
    title: str,
    facts: Iterable[tuple[str, object]] = (),
    *,
    head: Sequence[str] = (),
    rows: Sequence[Sequence[object]] = (),
    total: int | None = None,
    lines: Sequence[str] = (),
    note: str = "",
) -> str:
    """All of it in one box. `total` is how many rows there are in truth.

    >>> card("<b>", [("n", 3)])[-61:]
    '&lt;b&gt;</b> <span style="opacity:.7">n</span> 3</div></div>'
    """
    told = "".join(
        f' <span style="{_QUIET}">{words(key)}</span> {words(fact)}' for key, fact in facts
    )
    out = [f"<div><b>{words(title)}</b>{told}</div>"]
    if rows:
        out.append(_table(head, rows[:ROWS]))
        left = (len(rows) if total is None else total) - min(len(rows), ROWS)
        out += [f'<div style="{_QUIET}">... {left:,} more</div>'] * (left > 0)
    if lines:
        out.append(f'<pre style="{_PRE}">{chr(10).join(words(line, 400) for line in lines)}</pre>')
    out += [f'<div style="{_QUIET}">{words(note, 400)}</div>'] * bool(note)
    return f'<div style="{_BOX}">{"".join(out)}</div>'


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f'<th style="{_TEXT};{_LINE}">{words(name)}</th>' for name in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_TEXT}">{words(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    start = f"<thead><tr>{top}</tr></thead>" if head else ""
    return (
        "<table"
        f' style="border-collapse:collapse;margin-top:.3em">{start}<tbody>{body}</tbody></table>'
    )
