"""tensorwire formats"""

from __future__ import annotations

import argparse
import json

from .. import api


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    rows = api.formats()
    if args.json:
        print(json.dumps([{**row._asdict(), "suffixes": list(row.suffixes)} for row in rows], indent=2))
        return 0
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(f"{row.name:{width}}  {row.about}{'' if row.recognised else ' (never guessed: name it)'}")
    return 0
