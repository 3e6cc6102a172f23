"""docs/cli.md, made from what `--help` says.   python -m tensorwire.cli.docs > docs/cli.md"""

from __future__ import annotations

from . import GROUPS, parser, top_help
from .parsing import WIDEST, help_text

INTRODUCTION = """\
# The command line

<!-- made by `python -m tensorwire.cli.docs`; do not edit -->

The same things are called the same in every command:

| | |
|---|---|
| `--json` | a result for programs, on standard output; always valid JSON, without colours |
| `-` | standard input in place of a file |
| `--format` | the format, where it should not be recognised |
| `--names a,b`, `--columns a,b` | only these tensors or features; it is one option with two names |
| `--debug` | the traceback of an error, before or behind the command |
| exit status | 0 all is well, 1 bad data (or two files that differ), 2 wrong usage, 130 after Ctrl-C, 141 if nobody reads on |
| errors | one line on standard error, with the path; what was misspelt gets the nearest name |
| colours and bars | only on a terminal, with `pip install 'tensorwire[cli]'` nicer ones; no colours if `NO_COLOR` is set |

`tensorwire show --where` understands a small language over the features of a record; nothing is ever executed:

| | |
|---|---|
| `label == 3`, `0 < score <= 0.5`, `lang != 'de'` | comparisons; what does not compare is not less and not more |
| `7 in ids`, `'cat' in title`, `label in [1, 2]` | one of several values, a piece of a string |
| `len(ids) > 2` | how many values; of a string its length |
| `has(split)` | records that have the feature |
| `col('image/encoded')` | a name that is more than letters |
| `and`, `or`, `not`, brackets | |
"""


def page() -> str:
    """The whole page, at a width that does not depend on anybody's terminal."""
    parts = [INTRODUCTION, f"## tensorwire\n\n```text\n{top_help(WIDEST).rstrip()}\n```\n"]
    for name in (name for group in GROUPS.values() for name in group):
        parts.append(
            f"## tensorwire {name}\n\n```text\n{help_text(parser(name), WIDEST).rstrip()}\n```\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
