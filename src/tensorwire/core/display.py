"""How values are shown in notebooks. `explore` draws them; the classes know only this hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_renderer: Callable[[Any], str] = repr


def register(renderer: Callable[[Any], str]) -> None:
    """Set the function that gives a value as HTML."""
    global _renderer
    _renderer = renderer


def html(value: Any) -> str:
    """A value as HTML. Classes have it as `_repr_html_`, the method that notebooks call."""
    return _renderer(value)
