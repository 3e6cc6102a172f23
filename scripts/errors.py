"""docs/errors.md: every kind of error, and the likeliest mistakes with their messages.

    .venv/bin/python scripts/errors.py --write

Without --write the page goes to standard output. The messages are those that the code of
tests/support/mistakes.py raises.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "errors.md"
sys.path.insert(0, str(ROOT / "tests"))

import tensorwire as tw  # noqa: E402
from support.mistakes import MISTAKES, CommandError, Mistake, prepare, run  # noqa: E402

# What an error of each class means, and what to do about it in general.
KINDS: dict[type[Exception], str] = {
    tw.UsageError: "An argument is wrong: misspelt, of another type, swapped with another, or not"
    " allowed beside another. Also a call on something that is closed. Change the call.",
    tw.UnknownFormatError: "No format or compression has that name, or the bytes belong to no format"
    " that tensorwire recognises. Pass `format=` (`--format`), or look whether the file is what"
    " you think it is.",
    tw.EncodeError: "Your value cannot be written in that format or sent to that model. Change the"
    " value, or choose another format.",
    tw.DecodeError: "The bytes are not valid in their format. Either they are damaged, or they are"
    " in another format.",
    tw.TruncatedError: "The bytes end too early: an interrupted download or copy, a full disk, or a"
    " file that is still being written.",
    tw.ChecksumError: "The bytes differ from those that were written. Get the file again;"
    " `tw.repair` saves the good records of a record file.",
    tw.LimitError: "The bytes ask for more memory than `tw.Limits` allows. If you trust their"
    " source, raise the limit that the message names ([limits](safety.md)).",
    tw.SchemaError: "The bytes are valid, but they are not what you asked for: another dtype,"
    " another shape, a name that does not exist.",
    tw.MissingDependencyError: "An optional package is not installed. The message has the line for"
    " pip.",
    tw.TransportError: "The server could not be reached, or the connection broke. Requests that are"
    " safe to repeat have been repeated already.",
    tw.DeadlineError: "There was no answer within `deadline=`. Raise it, or send less at once.",
    tw.ModelError: "The server answered with an error: `status` is its HTTP status (of gRPC: the"
    " nearest one), the message is its own.",
    FileExistsError: "The target exists. Only `tw.save` and `tw.write_examples` replace files"
    " without being asked to.",
    FileNotFoundError: "The path or pattern matches nothing.",
    IndexError: "A row or record number is out of range.",
    KeyError: "A mapping has no tensor of that name.",
    CommandError: "The command prints the same messages on one line, with its own options in them."
    " It exits with 1 for bad data and with 2 for a wrong command line; `--debug` shows the"
    " traceback.",
}
_HEADINGS = {CommandError: "On the command line"}


def failure(mistake: Mistake) -> Exception:
    """The error that a mistake raises; its fix has run."""
    with tempfile.TemporaryDirectory() as folder:
        names = prepare(folder)
        try:
            run(mistake.code, names)
        except Exception as error:
            run(mistake.fix, names)
            return error
    raise AssertionError(f"{mistake.title}: no error")


def kind_of(error: Exception) -> type[Exception]:
    """The class of KINDS that an error is shown under: its own, or the nearest base."""
    return next(base for base in type(error).__mro__ if base in KINDS)


def page() -> str:
    """The text of docs/errors.md."""
    by_kind: defaultdict[type[Exception], list[tuple[Mistake, Exception]]] = defaultdict(list)
    for mistake in MISTAKES:
        error = failure(mistake)
        by_kind[kind_of(error)].append((mistake, error))
    lines = [
        "# Errors by message",
        "",
        "<!-- Made by scripts/errors.py. Do not edit. -->",
        "",
        "Every kind of error, with the messages of the likeliest mistakes and the code that works."
        " Search this page for a part of your message. [Errors and limits](safety.md) has the tree"
        " of classes and their attributes.",
    ]
    for kind, meaning in KINDS.items():
        lines += ["", f"## {_HEADINGS.get(kind, kind.__name__)}", "", meaning]
        for mistake, error in by_kind[kind]:
            lines += ["", f"### {mistake.title}", "", "```text"]
            lines += [
                *_wrapped(str(error.args[0] if isinstance(error, KeyError) else error)),
                "```",
            ]
            lines += ["", mistake.meaning, "", "```text"]
            lines += [f"{mistake.code}    # fails", f"{mistake.fix}    # works", "```"]
    return "\n".join(lines) + "\n"


def _wrapped(message: str) -> list[str]:
    """A message in lines, without the folder that it was made in."""
    text = re.sub(r"/tmp/\w+/", "", message).replace("__mistakes__.", "")
    return textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False)


def main() -> int:
    text = page()
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
