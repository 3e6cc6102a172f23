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
    if args.json:
        print(json.dumps(found.json(), indent=2))
    else:
        how = "with checksums" if found.checksums else "the structure only: the file has no checksums"
        print(f"{args.file}: {'whole' if found.ok else 'NOT whole'}, {found.tensors} tensors, {found.nbytes:,} bytes read, {how}")
        for problem in found.problems:
            print(f"  {problem}")
    return 0 if found.ok else 1
