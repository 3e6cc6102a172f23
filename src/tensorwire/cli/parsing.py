"""An argparse parser whose help is the same in every Python version and whose errors are one line.

1. `Parser.error` raises UsageError, so that the command decides what is printed and `main` returns
   the exit status.
2. `help_text` replaces argparse's formatter, whose layout differs between Python versions. The
   generated docs/cli.md depends on it.
3. `complaint` formats an error of the library. Its keyword arguments become the options of the
   command (`shards=` becomes `--shards`), because those are the words that the user typed.
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
"""The widest line of help, in characters."""
_COLUMN = 26
"""The column where the descriptions of options begin."""


class Parser(argparse.ArgumentParser):
    """The parser of one command."""

    _words: list[str] | None = None
    """The positional arguments in the usage line. `parse_known_intermixed_args` changes the nargs
    of the actions while it runs, so they are remembered before."""

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
                action,
                f"invalid choice {value!r:.60}{_errors.choices(value, map(str, action.choices))}",
            )

    def parsed(self, words: list[str]) -> argparse.Namespace:
        """Parse the command line; UsageError suggests the nearest name for an unknown option."""
        self._words = [_positional(action) for action in self._actions if not action.option_strings]
        # Only the intermixed parser allows options between the positional arguments.
        args, unknown = self.parse_known_intermixed_args(self._joined(words))
        for word in unknown:
            if word.startswith("-") and word != "-":
                name = word.partition("=")[0]
                raise UsageError(f"unknown option {name}{_nearest(name, self.option_strings)}")
        if unknown:
            raise UsageError(f"unexpected argument {unknown[0]!r:.60}")
        return args

    def _joined(self, words: list[str]) -> list[str]:
        """Join an option and a value that begins with a minus sign: `--slice -1,0` becomes
        `--slice=-1,0`, since argparse takes the value for another option otherwise.
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


def _nearest(name: str, names: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f"; did you mean {near[0]}?" if near else ""


def help_text(parser: argparse.ArgumentParser, width: int) -> str:
    """Return the text that `--help` prints."""
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
    import textwrap

    # A description of several lines has its own line breaks, which are kept.
    if "\n" in text:
        width = WIDEST
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
    """Return the one-line message for an error, with the library's arguments written as options."""
    message = (
        f"{error.strerror}: {error.filename}"
        if isinstance(error, OSError) and error.strerror and error.filename
        else str(error)
    )
    message = _in_options(message, frozenset(options))
    return safe(f"tensorwire {command}: {message}" if command else f"tensorwire: {message}")


def _in_options(text: str, options: frozenset[str]) -> str:
    """Write keyword arguments as options, if the command has them. File names are not changed.

    >>> _in_options("shards= for a folder; overwrite=True, mmap=True, tensors=[name]",
    ...     frozenset(["--shards", "--overwrite", "--tensors"]))
    '--shards for a folder; --overwrite, mmap=True, --tensors name'
    >>> _in_options("cast={'x': 'int8'} rounds it", frozenset(["--cast"]))
    '--cast x=int8 rounds it'
    >>> _in_options("a larger Limits(expansion=...) allows more", frozenset(["--limit"]))
    'a larger --limit expansion=... allows more'
    >>> _in_options("tw.repair keeps the good records", frozenset())
    'tensorwire repair keeps the good records'
    >>> _in_options("no such file (path to=3/format=b/to=4)", frozenset(["--to", "--format"]))
    'no such file (path to=3/format=b/to=4)'
    """

    def option(match: re.Match[str]) -> str:
        name, value = (
            "--" + match[1].replace("_", "-"),
            re.sub(r"[\[\]{} ']", "", match[2] or "").replace(":", "="),
        )
        return (
            match[0]
            if name not in options
            else name
            if value in ("", "True")
            else f"{name} {value}"
        )

    text = re.sub(r"(?<!\S)tw\.(repair|convert|verify|inspect|diff)\b", r"tensorwire \1", text)
    if "--limit" in options:
        text = re.sub(r"(?:tw\.)?Limits\((\w+)=[^()]*\)", r"--limit \1=...", text)
    # A keyword argument begins after white space. Its value is a word, a list of one name, a dict
    # of one item, or missing. A word that goes on with "/", "." or "=" is part of a file name.
    return re.sub(
        r"(?<!\S)([a-z_]+)=(\w+\b(?![/.=])|\[\w+\]|\{'[^']*': '[^']*'\}|(?=[\s,;:)]|$))",
        option,
        text,
    )
