"""argparse, with help that looks the same in every version of Python, and errors of a line that say
what was meant.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from .. import _errors
from .._errors import UsageError
from ..core.formatting import safe
from . import terminal

WIDEST = 100
_COLUMN = 26
"""Where the words of help begin."""


class Parser(argparse.ArgumentParser):
    """Of one command."""

    _words: list[str] | None = None
    """Its arguments for the line of usage. argparse changes them while it parses."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, allow_abbrev=False, add_help=False, **options)

    @property
    def option_strings(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise SystemExit(status)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"no {value!r:.60}{_errors.choices(value, map(str, action.choices))}"
            )

    def parsed(self, words: list[str]) -> argparse.Namespace:
        """What the words say; UsageError with the nearest option for one that there is not."""
        self._words = [_positional(action) for action in self._actions if not action.option_strings]
        # options may stand between arguments
        found, strangers = self.parse_known_intermixed_args(self._joined(words))
        for word in strangers:
            if word.startswith("-") and word != "-":
                name = word.partition("=")[0]
                raise UsageError(f"no option {name}{_nearest(name, self.option_strings)}")
        if strangers:
            raise UsageError(f"{strangers[0]!r:.60} is one argument too many")
        return found

    def _joined(self, words: list[str]) -> list[str]:
        """`--slice -1,0` is a value and no option, which argparse does not see unless a = stands
        between them.
        """
        options = {name: action for action in self._actions for name in action.option_strings}
        out: list[str] = []
        for word in words:
            last = options.get(out[-1]) if out else None
            value = word.startswith("-") and word != "-" and word.partition("=")[0] not in options
            if value and last is not None and last.nargs is None and out[-1].startswith("--"):
                out[-1] += f"={word}"
            else:
                out.append(word)
        return out

    def format_usage(self) -> str:
        words = self._words
        if words is None:
            words = [_positional(action) for action in self._actions if not action.option_strings]
        return " ".join(["usage:", self.prog, "[options]", *words]) + "\n"

    def format_help(self) -> str:
        return help_text(self, min(terminal.width(), WIDEST))


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"; did you mean {near[0]}?" if near else ""


def help_text(parser: argparse.ArgumentParser, width: int) -> str:
    """All that `--help` says."""
    parts = [parser.format_usage().rstrip(), _wrapped(parser.description or "", width)]
    plain = [action for action in parser._actions if not action.option_strings]
    options = [action for action in parser._actions if action.option_strings]
    if plain:
        parts.append(
            "arguments:\n"
            + "\n".join(_row(_metavar(action), action.help or "", width) for action in plain)
        )
    if options:
        parts.append(
            "options:\n"
            + "\n".join(_row(_invocation(action), _help(action), width) for action in options)
        )
    parts.append((parser.epilog or "").rstrip())
    return "\n\n".join(part for part in parts if part) + "\n"


def _wrapped(text: str, width: int) -> str:
    import textwrap  # only help needs it

    if "\n" in text:
        width = WIDEST  # its lines were broken by whoever wrote it

    return "\n".join(
        line if len(line) <= width else textwrap.fill(line, width, break_long_words=False)
        for line in text.split("\n")
    )


def _row(name: str, text: str, width: int) -> str:
    import textwrap

    lines = textwrap.wrap(
        text, max(width - _COLUMN, 24), break_long_words=False, break_on_hyphens=False
    ) or [""]
    head = f"  {name}"
    if len(head) > _COLUMN - 2:
        return "\n".join([head, *(" " * _COLUMN + line for line in lines)])
    return "\n".join(
        [f"{head:{_COLUMN}}{lines[0]}".rstrip(), *(" " * _COLUMN + line for line in lines[1:])]
    )


def _metavar(action: argparse.Action) -> str:
    return str(action.metavar if action.metavar is not None else action.dest.upper())


def _positional(action: argparse.Action) -> str:
    name = _metavar(action)
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}.get(
        str(action.nargs), name
    )


def _invocation(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    value = (
        action.metavar
        if action.metavar is not None
        else "|".join(map(str, action.choices))
        if action.choices
        else action.dest.upper()
    )
    if action.nargs == "?":
        return f"{names} [{value}]"
    return f"{names} {value}"


def _help(action: argparse.Action) -> str:
    text = action.help or ""
    if action.choices and action.metavar is not None:
        text += f" ({', '.join(map(str, action.choices))})"
    return text


def complaint(command: str, error: BaseException, options: Iterable[str] = ()) -> str:
    """One line, whatever the error has in it. What the library calls shards= is called --shards
    here.
    """
    said = (
        f"{error.strerror}: {error.filename}"
        if isinstance(error, OSError) and error.strerror and error.filename
        else str(error)
    )
    said = _in_options(said, frozenset(options))
    return safe(f"tensorwire {command}: {said}" if command else f"tensorwire: {said}")


def _in_options(text: str, options: frozenset[str]) -> str:
    """Arguments of functions as the options that they are here, where they are; names of files stay
    what they are.

    >>> _in_options("shards= for a folder; overwrite=True, mmap=True, tensors=[name]",
    ...     frozenset(["--shards", "--overwrite", "--tensors"]))
    '--shards for a folder; --overwrite, mmap=True, --tensors name'
    >>> _in_options("cast={'x': 'int8'} rounds it", frozenset(["--cast"]))
    '--cast x=int8 rounds it'
    >>> _in_options("a larger Limits(expansion=...) allows more", frozenset(["--limit"]))
    'a larger --limit expansion=... allows more'
    >>> _in_options("no such file (path to=3/format=b/to=4)", frozenset(["--to", "--format"]))
    'no such file (path to=3/format=b/to=4)'
    """

    def option(found: re.Match[str]) -> str:
        name, value = (
            "--" + found[1].replace("_", "-"),
            re.sub(r"[\[\]{} ']", "", found[2] or "").replace(":", "="),
        )
        return (
            found[0]
            if name not in options
            else name
            if value in ("", "True")
            else f"{name} {value}"
        )

    if "--limit" in options:
        text = re.sub(r"(?:tw\.)?Limits\((\w+)=[^()]*\)", r"--limit \1=...", text)
    return re.sub(
        r"(?<!\S)([a-z_]+)=(\w+\b(?![/.=])|\[\w+\]|\{'[^']*': '[^']*'\}|(?=[\s,;:)]|$))",
        option,
        text,
    )
