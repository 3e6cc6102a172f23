"""The notebook hook: classes call `html`, and `explore` registers the function that renders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_renderer: Callable[[Any], str] = repr


def register(renderer: Callable[[Any], str]) -> None:
    """Set the function that renders a value as HTML."""
    global _renderer
    _renderer = renderer


def html(value: Any) -> str:
    """Render a value as HTML. Classes use it as `_repr_html_`, the method that notebooks call."""
    return _renderer(value)
