"""The same options for the same things, in every command."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from .._limits import Limits

FILES = "files"
"""What an argument is completed with: the names of files."""
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
    what: str = "a tensor file, checkpoint or record file, or - for standard input",
) -> None:
    parser.add_argument("file", metavar="FILE", help=what)
    add_format(parser)


def add_format(parser: argparse.ArgumentParser) -> None:
    _add_format(
        parser, "--format", "the format, if it should not be recognised from the bytes", "format"
    )


def add_formats(parser: argparse.ArgumentParser, known: str, to: str) -> None:
    """Of what is read and what is written; `known` is "dataset" for those of datasets, or "any"."""
    _add_format(parser, "--to", f"the format to write, {to}", known)
    _add_format(
        parser, "--format", "the format of the source, if it should not be recognised", known
    )


def _add_format(parser: argparse.ArgumentParser, option: str, help: str, known: str) -> None:
    completed(
        parser.add_argument(
            option, type=functools.partial(format_name, known=known), metavar="FORMAT", help=help
        ),
        known,
    )


def add_records(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a record file, or a pattern of many ('train-*.tfrecord')",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_names(parser: argparse.ArgumentParser, help: str) -> None:
    """One list of tensors or features, under both of its names."""
    parser.add_argument("--names", "--columns", type=names, metavar="A,B", help=help)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """The ceilings on what a file may ask for, raised by whoever trusts it."""
    about = (
        "raise a limit for a file that you trust: expansion=4GiB, names=2000000 (docs/safety.md)"
    )
    parser.add_argument(
        "--limit", action="append", type=limit, default=[], metavar="NAME=N", help=about
    )


def limits_of(args: argparse.Namespace) -> Limits | None:
    """What --limit says; None if it says nothing."""
    return Limits(**dict(args.limit)) if args.limit else None


def add_always(parser: argparse.ArgumentParser) -> None:
    """What every command has, at the end of its help."""
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )
    parser.add_argument("-h", "--help", action="help", help="show this help")


def examples(parser: argparse.ArgumentParser, *lines: str) -> None:
    """Command lines for the end of the help; they are run by a test."""
    parser.epilog = "examples:\n" + "\n".join(f"  tensorwire {line}" for line in lines)


def completed(action: argparse.Action, by: str | tuple[str, ...]) -> argparse.Action:
    """Says what a shell offers for an argument: FILES, "format" or another word for which of them,
    or words.
    """
    action.completed = by  # type: ignore[attr-defined]
    return action


def offered(action: argparse.Action) -> str | tuple[str, ...] | None:
    """What a shell offers: words, FILES, or nothing."""
    by = getattr(action, "completed", None)
    if by in _KNOWN:
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


_KNOWN = ("format", "dataset", "any")


def _formats(known: str) -> list[str]:
    """Those of tensors, of datasets, or all."""
    from ..codecs import TENSOR_FORMATS

    of_files = [*TENSOR_FORMATS, "saved_model", "tfrecord"]
    if known == "format":
        return of_files
    from ..codecs import ROW_FORMATS

    return (
        list(ROW_FORMATS) if known == "dataset" else list(dict.fromkeys([*of_files, *ROW_FORMATS]))
    )


def checked(work: Callable[[str], Any], keep: bool = False) -> Callable[[str], Any]:
    """For argparse: what `work` makes of the text (or the text itself, once it is known that it can
    be read).
    """

    def check(text: str) -> Any:
        try:
            found = work(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text if keep else found

    return check


def format_name(text: str, known: str = "format") -> str:
    """The name of a format that there is."""
    from .._errors import choices

    if text not in (there := _formats(known)):
        raise argparse.ArgumentTypeError(f"no format {text!r}{choices(text, there)}")
    return text


def names(text: str) -> list[str]:
    """
    >>> names("a,b")
    ['a', 'b']
    """
    found = [word.strip() for word in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"names with commas between them, not {text!r:.60}")
    return found


def limit(text: str) -> tuple[str, int]:
    """
    >>> limit("expansion=4GiB")
    ('expansion', 4294967296)
    """
    from .._errors import choices
    from ..api.rename_rules import size

    name, equals, number = text.partition("=")
    known = [field.name for field in fields(Limits)]
    if not equals or name not in known:
        raise argparse.ArgumentTypeError(
            f"NAME=N, such as expansion=4GiB, not {text!r:.60}{choices(name, known)}"
        )
    try:
        return name, size(number)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """A number of things, 0 for none or all."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no number of things: 0, 1, 2 ...")
    return int(text)


def read_from(file: str) -> Any:
    """What the library takes for this argument."""
    return sys.stdin.buffer.read() if file == "-" else file
