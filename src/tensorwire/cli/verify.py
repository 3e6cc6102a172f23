"""tensorwire verify"""

from __future__ import annotations

import argparse
import json

from .. import summary
from .arguments import add_file, add_json, read_from


def options(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    found = summary.verify(read_from(args.file), args.format)
    print(json.dumps(found.json(), indent=2) if args.json else found)
    return 0 if found.ok else 1
