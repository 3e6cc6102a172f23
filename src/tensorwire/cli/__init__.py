"""The command `tensorwire`: one module per command, each a thin call of the public API.

Exit status: 0 success, 1 bad data (or files that differ), 2 wrong usage, 130 after Ctrl-C, 141
after a broken pipe. An error is printed as one line; `--debug` shows the traceback.
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
    "inspect files": {
        "inspect": "list the tensors or features in a file: kind, dtype, shape, size, metadata",
        "show": "print values: statistics, slices, heat maps, histograms, rows, records",
        "schema": "show the features of record files: kind, shape, presence, range",
        "count": "count the records in record files",
        "view": "browse files on a local web page",
    },
    "check and convert": {
        "verify": "read a whole file or dataset and report damage",
        "repair": "copy the good records of a damaged record file to a new file",
        "convert": (
            "convert tensor files and datasets to another format; rename, cast, filter or shard"
            " them"
        ),
        "dataset": "compute statistics of a dataset, or split, sample, merge or shuffle it",
        "diff": "compare two tensor files of any format",
    },
    "choose a format": {
        "formats": "list the formats and what each is for",
        "profile": (
            "measure every format and compression on a file's tensors and recommend the best"
        ),
        "demo": "write a translation model's predictions in every format and read them back",
    },
    "model servers": {
        "request": "build, check, print or send a request to a model server",
        "serve": (
            "serve SavedModels with the protocols of TensorFlow Serving and KServe, for laptops"
            " and CI"
        ),
    },
    "shell": {
        "completion": "print a completion script for bash, zsh or fish",
    },
}
COMMANDS = {name: help for group in GROUPS.values() for name, help in group.items()}
ABOUT = "Move tensors between frameworks, files, records and model servers, without TensorFlow."
OPTIONS = {
    "--version": "show the version",
    "--debug": "show the traceback of an error",
    "-h, --help": "show this help; use tensorwire COMMAND --help for the options of a command",
}
INTERRUPTED, UNREAD = 130, 141
"""The exit statuses that shells use for programs ended by SIGINT and by SIGPIPE."""


def parser(command: str) -> Parser:
    """Return the parser of a command. Only its module is imported, so that `--help` is fast."""
    result = Parser(f"tensorwire {command}")
    result.description = COMMANDS[command][0].upper() + COMMANDS[command][1:] + "."
    importlib.import_module(f"{__name__}.{command}").options(result)
    arguments.add_always(result)
    return result


def top_help(width: int) -> str:
    """Return the help text of `tensorwire` itself: all commands, grouped by purpose."""
    import textwrap

    lines = ["usage: tensorwire COMMAND [options] ...", "", ABOUT]
    for heading, group in [*GROUPS.items(), ("options", OPTIONS)]:
        lines += ["", f"{heading}:"]
        for name, help in group.items():
            first, *rest = textwrap.wrap(help, max(width - 15, 24))
            lines += [f"  {name:11}  {first}", *(" " * 15 + line for line in rest)]
    return "\n".join([*lines, "", "Exit status: 0 success, 1 bad data, 2 wrong usage.", ""])


def main(words: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments_given = sys.argv[1:] if words is None else words
    if hasattr(sys.stdout, "reconfigure"):
        # A character that the terminal's encoding lacks is printed as an escape, not as an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    command, debug = "", "--debug" in arguments_given
    try:
        try:
            command, rest = _command(arguments_given)
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


def _command(words: list[str]) -> tuple[str, list[str]]:
    """Split the command line: (the command, or "" for `--help` and `--version`; the rest)."""
    for number, word in enumerate(words):
        if word in ("-h", "--help", "--version"):
            return "", [word]
        if word == "--debug":
            continue
        if word.startswith("-"):
            raise UsageError(
                f"unknown option {word}", hint="options of a command go after the command"
            )
        if word not in COMMANDS:
            raise UsageError(f"unknown command {word!r:.60}{choices(word, COMMANDS)}")
        return word, words[number + 1 :]
    raise UsageError("a command is required")


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
    except SystemExit as done:
        # argparse prints the help itself and then exits.
        return int(done.code or 0)
    status: int = importlib.import_module(f"{__name__}.{command}").run(args)
    return status


def _usage(command: str) -> str:
    more = (
        f"; tensorwire {command} --help lists the options"
        if command
        else "; tensorwire --help lists the commands"
    )
    return (
        parser(command).format_usage().strip()
        if command
        else "usage: tensorwire COMMAND [options] ..."
    ) + more


def _forget_stdout() -> None:
    """Redirect standard output to the null device after a broken pipe.

    Otherwise Python reports an error when it flushes standard output at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
