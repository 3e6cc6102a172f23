"""tensorwire count"""

from __future__ import annotations

import argparse
import json

from ..records.reader import RecordReader
from .arguments import add_json, add_records


def options(parser: argparse.ArgumentParser) -> None:
    add_records(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    counts = {path: len(RecordReader([path])) for path in RecordReader(args.files).paths}
    if args.json:
        print(json.dumps({"files": counts, "records": sum(counts.values())}, indent=2))
    else:
        for path, count in counts.items() if len(counts) > 1 else ():
            print(f"{count:>15,}  {path}")
        print(f"{sum(counts.values()):>15,}  records")
    return 0
