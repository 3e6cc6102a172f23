"""tensorwire repair"""

from __future__ import annotations

import argparse
import json

from ..records.repair import repair
from .arguments import add_json


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a damaged record file")
    parser.add_argument("target", nargs="?", help="the file for its good records; without one the damage is only reported")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    found = repair(args.file, args.target)
    print(json.dumps(found.json(), indent=2) if args.json else found)
    return 0 if found.ok else 1
