"""The same options for the same things, in every command."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a tensor file, or - for standard input")
    parser.add_argument("--format", help="the format, if it should not be recognised from the bytes")


def add_records(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="file", help="a record file, or a pattern of many ('train-*.tfrecord')")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def read_from(file: str) -> Any:
    """What the library takes for this argument."""
    return sys.stdin.buffer.read() if file == "-" else file
