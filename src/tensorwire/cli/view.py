"""The command `tensorwire view`: files on a local web page."""

from __future__ import annotations

import argparse
import sys

from ..view.running import View

EXAMPLES = """examples:
  tensorwire view model.safetensors
  tensorwire view checkpoints/ data/train-00000.tfrecord models/ranker
  tensorwire view . --no-browser --port 8080
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a tensor file, record file or SavedModel, a checkpoint prefix, or a folder of them",
    )
    parser.add_argument(
        "--port", type=_port, default=0, help="the port on 127.0.0.1 (default: any free port)"
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the URL without opening a browser"
    )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port < 1 << 16:
        raise ValueError
    return port


def run(args: argparse.Namespace) -> int:
    with View(args.paths, args.port) as view:
        print(view.url, flush=True)
        if not args.no_browser:
            import webbrowser

            webbrowser.open(view.url)
        if sys.stderr.isatty():
            print("Press Ctrl-C to stop.", file=sys.stderr)
        # uvicorn closes all connections on Ctrl-C and then raises KeyboardInterrupt.
        try:
            view.run()
        except KeyboardInterrupt:
            pass
    return 0
