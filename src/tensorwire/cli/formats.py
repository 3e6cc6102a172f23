"""tensorwire formats"""

from __future__ import annotations

import argparse
import json

from .. import api
from .arguments import add_json


def options(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    rows = api.formats().values()
    if args.json:
        print(json.dumps([{**row._asdict(), "suffixes": list(row.suffixes)} for row in rows], indent=2))
        return 0
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(f"{row.name:{width}}  {row.about}{'' if row.recognised else ' (never guessed: name it)'}")
    return 0
