"""tensorwire schema"""

from __future__ import annotations

import argparse
import json

from ..records.infer import infer_schema
from .arguments import add_json, add_records


def options(parser: argparse.ArgumentParser) -> None:
    add_records(parser)
    parser.add_argument("--full", action="store_true", help="look at every record, not at a sample")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    found = infer_schema(args.files, full=args.full)
    print(json.dumps(found.json(), indent=2) if args.json else found)
    return 0
