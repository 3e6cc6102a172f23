"""The command `tensorwire`: one module a command, each a thin call of the public API.

Exit status: 0 all is well, 1 bad data, 2 wrong usage. Errors are one line; `--debug` shows the traceback.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from .. import __version__
from .._errors import TensorwireError

COMMANDS = {
    "count": "count the records of record files",
    "demo": "take a translation model's predictions through every format",
    "formats": "list the formats and what each is for",
    "inspect": "show what is in a file: names, kinds, dtypes, shapes, sizes, metadata",
    "profile": "measure every format and compression on a file's tensors, and say which is best",
    "repair": "write the good records of a damaged record file to a new one",
    "schema": "show the features of record files: kinds, shapes, presence, ranges",
    "verify": "read everything in a file and say whether it is whole",
}


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser; only the module of the command that is used gets loaded, so that `--help` is quick."""
    top = argparse.ArgumentParser(prog="tensorwire", description="Any tensor, any wire: bit-exact, fast, safe, and without TensorFlow.")
    top.add_argument("--version", action="version", version=f"tensorwire {__version__}")
    top.add_argument("--debug", action="store_true", help="show the traceback of an error")
    sub = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, about in COMMANDS.items():
        one = sub.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
        if name == command:
            importlib.import_module(f"{__name__}.{name}").options(one)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    command = next((word for word in given if not word.startswith("-")), None)
    args = parser(command).parse_args(given)
    try:
        status: int = importlib.import_module(f"{__name__}.{args.command}").run(args)
    except (TensorwireError, OSError) as error:
        if args.debug:
            raise
        print(f"tensorwire {args.command}: {error}", file=sys.stderr)
        return 1
    return status
