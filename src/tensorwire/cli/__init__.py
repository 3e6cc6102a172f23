"""The command `tensorwire`: one module a command, each a thin call of the public API.

Exit status: 0 all is well, 1 bad data, 2 wrong usage; 130 after Ctrl-C, 141 if nobody reads on.
Errors are one line; `--debug` shows the traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from .. import __version__
from .._errors import TensorwireError, UsageError, choices
from . import arguments, terminal
from .parsing import WIDEST, Parser, complaint

GROUPS = {
    "look": {
        "inspect": "show what is in a file: names, kinds, dtypes, shapes, sizes, metadata",
        "show": "print values: statistics, corners, heat maps, histograms, rows, records",
        "schema": "show the features of record files: kinds, shapes, presence, ranges",
        "count": "count the records of record files",
        "view": "look into files on a local web page",
    },
    "check and change": {
        "verify": "read everything in a file or dataset and say whether it is whole",
        "repair": "write the good records of a damaged record file to a new one",
        "convert": (
            "write tensors or records to another file or folder, in any format, renamed, cast,"
            " filtered or in shards"
        ),
        "dataset": "count, split, sample, merge or shuffle a dataset of many files",
        "diff": "say what is different between two tensor files of any format",
    },
    "choose a format": {
        "formats": "list the formats and what each is for",
        "profile": (
            "measure every format and compression on a file's tensors, and say which is best"
        ),
        "demo": "take a translation model's predictions through every format",
    },
    "talk to models": {
        "request": "build, check, print or send a request to a model",
        "serve": (
            "serve SavedModels by the protocols of TensorFlow Serving and KServe, for laptops"
            " and CI"
        ),
    },
    "set up": {
        "completion": (
            "print a script that completes commands, options and file names in your shell"
        ),
    },
}
COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}
ABOUT = "Any tensor, any wire: bit-exact, fast, safe, and without TensorFlow."
OPTIONS = {
    "--version": "show the version",
    "--debug": "show the traceback of an error",
    "-h, --help": "show this help; tensorwire COMMAND --help shows a command's own",
}
INTERRUPTED, UNREAD = 130, 141
"""What shells say of programs that ended by SIGINT and by SIGPIPE."""


def parser(command: str) -> Parser:
    """The parser of a command. Only its module gets loaded, so that `--help` is quick."""
    made = Parser(f"tensorwire {command}")
    made.description = COMMANDS[command][0].upper() + COMMANDS[command][1:] + "."
    importlib.import_module(f"{__name__}.{command}").options(made)
    arguments.add_always(made)
    return made


def top_help(width: int) -> str:
    """All commands, by what they are for."""
    import textwrap

    lines = ["usage: tensorwire COMMAND [options] ...", "", ABOUT]
    for heading, group in [*GROUPS.items(), ("options", OPTIONS)]:
        lines += ["", f"{heading}:"]
        for name, about in group.items():
            first, *rest = textwrap.wrap(about, max(width - 15, 24))
            lines += [f"  {name:11}  {first}", *(" " * 15 + line for line in rest)]
    return "\n".join([*lines, "", "Exit status: 0 all is well, 1 bad data, 2 wrong usage.", ""])


def main(words: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    given = sys.argv[1:] if words is None else words
    if hasattr(sys.stdout, "reconfigure"):
        # a terminal that lacks a character gets its number
        sys.stdout.reconfigure(errors="backslashreplace")
    command, debug = "", "--debug" in given
    try:
        try:
            command, rest = _command(given)
            status = _run(command, rest)
            sys.stdout.flush()
            return status
        except UsageError as error:
            if debug:
                raise
            terminal.complain(
                complaint(command, error, parser(command).option_strings if command else ())
            )
            terminal.complain(_usage(command))
            return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return UNREAD
    except (TensorwireError, OSError) as error:
        if debug:
            raise
        terminal.complain(
            complaint(command, error, parser(command).option_strings if command else ())
        )
        return 1


def _command(given: list[str]) -> tuple[str, list[str]]:
    """(the command, or nothing; what follows it)"""
    for number, word in enumerate(given):
        if word in ("-h", "--help", "--version"):
            return "", [word]
        if word == "--debug":
            continue
        if word.startswith("-"):
            raise UsageError(f"no option {word}; options of a command stand behind it")
        if word not in COMMANDS:
            raise UsageError(f"no command {word!r:.60}{choices(word, COMMANDS)}")
        return word, given[number + 1 :]
    raise UsageError("which command?")


def _run(command: str, rest: list[str]) -> int:
    if not command:
        print(
            f"tensorwire {__version__}"
            if rest == ["--version"]
            else top_help(min(terminal.width(), WIDEST)).rstrip()
        )
        return 0
    try:
        args: Any = parser(command).parsed(rest)
    except SystemExit as done:  # --help
        return int(done.code or 0)
    status: int = importlib.import_module(f"{__name__}.{command}").run(args)
    return status


def _usage(command: str) -> str:
    more = (
        f"; tensorwire {command} --help says more"
        if command
        else "; tensorwire --help lists the commands"
    )
    return (
        parser(command).format_usage().strip()
        if command
        else "usage: tensorwire COMMAND [options] ..."
    ) + more


def _forget_stdout() -> None:
    """Python would complain at its end that it cannot write what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
