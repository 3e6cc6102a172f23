"""Options and argument types that several commands share."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from .._limits import Limits

FILES = "files"
"""Marks an argument that shells complete with file names."""
_FILE_WORDS = {
    "FILE",
    "DIR",
    "SRC",
    "DST",
    "A",
    "B",
    "MODEL",
    "[NAME=]DIR",
    "PATH",
    "TARGET",
    "FOLDER",
}


def add_file(
    parser: argparse.ArgumentParser,
    help: str = "a tensor file, checkpoint or record file, or - for standard input",
) -> None:
    """Add the argument FILE and its `--format`."""
    parser.add_argument("file", metavar="FILE", help=help)
    add_format(parser)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add `--format` for the format of a tensor or record file."""
    _add_format(
        parser, "--format", "the format of the file (default: detected from its bytes)", "format"
    )


def add_formats(parser: argparse.ArgumentParser, group: str, to: str) -> None:
    """Add `--to` and `--format`; `group` is "dataset" for the formats of datasets, or "any"."""
    _add_format(parser, "--to", f"the format to write (default: {to})", group)
    _add_format(parser, "--format", "the format of the source (default: detected)", group)


def _add_format(parser: argparse.ArgumentParser, option: str, help: str, group: str) -> None:
    completed(
        parser.add_argument(
            option, type=functools.partial(format_name, group=group), metavar="FORMAT", help=help
        ),
        group,
    )


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add the argument FILE for one or more record files."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a record file, or a glob pattern ('train-*.tfrecord')",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_names(parser: argparse.ArgumentParser, help: str) -> None:
    """Add one list of tensors or features under both of its option names."""
    parser.add_argument("--names", "--columns", type=names, metavar="A,B", help=help)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add `--limit`, which raises a safety limit for a trusted file."""
    help = "raise a limit for a file that you trust: expansion=4GiB, names=2000000 (docs/safety.md)"
    parser.add_argument(
        "--limit", action="append", type=limit, default=[], metavar="NAME=N", help=help
    )


def limits_of(args: argparse.Namespace) -> Limits | None:
    """Return the limits given by `--limit`, or None if there are none."""
    return Limits(**dict(args.limit)) if args.limit else None


def add_always(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has, at the end of its help."""
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
    parser.add_argument("-h", "--help", action="help", help="show this help")


def examples(parser: argparse.ArgumentParser, *lines: str) -> None:
    """Set the example command lines at the end of the help. A test runs them."""
    parser.epilog = "examples:\n" + "\n".join(f"  tensorwire {line}" for line in lines)


def completed(action: argparse.Action, by: str | tuple[str, ...]) -> argparse.Action:
    """Set what shells complete an argument with: FILES, a group of formats, or fixed words."""
    action.completed = by  # type: ignore[attr-defined]
    return action


def offered(action: argparse.Action) -> str | tuple[str, ...] | None:
    """Return what shells complete an argument with: words, FILES, or None."""
    by = getattr(action, "completed", None)
    if by in _GROUPS:
        return tuple(_formats(by))
    if by is not None:
        return by  # type: ignore[no-any-return]
    if action.choices is not None:
        return tuple(map(str, action.choices))
    return (
        FILES
        if str(action.metavar) in _FILE_WORDS
        or (not action.option_strings and action.metavar is None)
        else None
    )


_GROUPS = ("format", "dataset", "any")


def _formats(group: str) -> list[str]:
    """Return the names of the formats of files ("format"), of datasets ("dataset"), or of both."""
    from ..codecs import TENSOR_FORMATS

    of_files = [*TENSOR_FORMATS, "saved_model", "tfrecord"]
    if group == "format":
        return of_files
    from ..codecs import ROW_FORMATS

    return (
        list(ROW_FORMATS) if group == "dataset" else list(dict.fromkeys([*of_files, *ROW_FORMATS]))
    )


def checked(parse: Callable[[str], Any], keep: bool = False) -> Callable[[str], Any]:
    """Return an argparse type that parses the text and reports a ValueError as wrong usage.

    With `keep` the text itself is the value: it is only checked here and parsed later.
    """

    def check(text: str) -> Any:
        try:
            value = parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text if keep else value

    return check


def format_name(text: str, group: str = "format") -> str:
    """Check the name of a format."""
    from .._errors import choices

    if text not in (available := _formats(group)):
        raise argparse.ArgumentTypeError(f"unknown format {text!r}{choices(text, available)}")
    return text


def names(text: str) -> list[str]:
    """Parse a comma-separated list of names.

    >>> names("a,b")
    ['a', 'b']
    """
    result = [word.strip() for word in text.split(",")]
    if not all(result):
        raise argparse.ArgumentTypeError(f"expected names separated by commas, found {text!r:.60}")
    return result


def limit(text: str) -> tuple[str, int]:
    """Parse the value of `--limit`.

    >>> limit("expansion=4GiB")
    ('expansion', 4294967296)
    """
    from .._errors import choices
    from ..api.rename_rules import size

    name, equals, number = text.partition("=")
    limit_names = [field.name for field in fields(Limits)]
    if not equals or name not in limit_names:
        raise argparse.ArgumentTypeError(
            f"expected NAME=N, for example expansion=4GiB, found {text!r:.60}"
            f"{choices(name, limit_names)}"
        )
    try:
        return name, size(number)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """Parse a non-negative integer."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a non-negative integer, found {text!r:.40}")
    return int(text)


def read_from(file: str) -> Any:
    """Return the path itself, or the bytes of standard input for `-`."""
    return sys.stdin.buffer.read() if file == "-" else file
