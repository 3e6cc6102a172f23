"""The command `tensorwire serve`: SavedModels behind REST and gRPC."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from .._errors import SchemaError
from .._optional import require
from ..serving.server import Bounds, Server
from ..serving.server.folders import named
from .arguments import add_json, examples

ABOUT = """\
Serve SavedModels with TensorFlow: the REST and gRPC protocols of TensorFlow Serving, and KServe v2
over REST. Meant for laptops and CI without containers.
In production use TensorFlow Serving itself."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.formatter_class = ABOUT, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "models",
        nargs="+",
        metavar="[NAME=]DIR",
        help="a SavedModel, or a folder with numbered versions of a model",
    )
    parser.add_argument(
        "--rest",
        type=_port,
        default=8501,
        metavar="PORT",
        help="the REST port (default: 8501); 0 for any free port, none for no REST",
    )
    parser.add_argument(
        "--grpc",
        type=_port,
        default=8500,
        metavar="PORT",
        help="the gRPC port (default: 8500); 0 for any free port, none for no gRPC",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen on (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept this name in the Host header, besides localhost",
    )
    parser.add_argument(
        "--versions",
        default="latest",
        metavar="latest|all|1,3",
        help="which versions to load (default: latest)",
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        type=_label,
        metavar="[NAME:]LABEL=VERSION",
        help="give a version a label",
    )
    parser.add_argument(
        "--poll",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="the interval between checks for new versions (default: 1; 0: never)",
    )
    parser.add_argument(
        "--max-body",
        type=int,
        default=256,
        metavar="MIB",
        help="the largest request body (default: 256 MiB)",
    )
    parser.add_argument(
        "--connections",
        type=int,
        default=128,
        metavar="N",
        help="the most concurrent requests; more are answered with 503 (default: 128)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="the time limit for a client to send its request (default: 60)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="the time limit for running requests at shutdown (default: 10)",
    )
    parser.add_argument(
        "--tensor-content",
        action="store_true",
        help="use tensor_content instead of typed fields in gRPC responses",
    )
    parser.add_argument(
        "--log", action="store_true", help="print a line for each request on standard error"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="like --log, with the log messages of TensorFlow"
    )
    add_json(parser)
    examples(
        parser,
        "serve models/ranker",
        "serve ranker=models/ranker/3 --rest 8501 --grpc none --log",
        "serve models/ranker --versions all --label stable=3 --json",
    )


def _port(text: str) -> int | None:
    if text == "none":
        return None
    port = int(text)
    if not 0 <= port < 1 << 16:
        raise ValueError
    return port


def _label(text: str) -> tuple[str | None, str, int]:
    where, _, number = text.rpartition("=")
    model, _, label = where.rpartition(":")
    if not label or not number.isascii() or not number.isdigit():
        raise argparse.ArgumentTypeError(
            f"expected a label such as stable=3 or ranker:stable=3, found {text!r}"
        )
    return model or None, label, int(number)


def run(args: argparse.Namespace) -> int:
    if args.rest is None and args.grpc is None:
        print(
            "tensorwire serve: --rest and --grpc cannot both be none",
            file=sys.stderr,
        )
        return 2
    models = named(_models(args.models))
    server = Server(
        models,
        args.rest,
        args.grpc,
        args.host,
        versions=args.versions,
        labels=_labels(args.label, list(models)),
        poll=args.poll,
        bounds=Bounds(body=args.max_body << 20, connections=args.connections, timeout=args.timeout),
        grace=args.grace,
        log=_log if args.log or args.verbose else None,
        tensor_content=args.tensor_content,
        hosts=args.allow_host,
    )
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _stop(stopped))
    try:
        with contextlib.nullcontext() if args.verbose else _quiet():
            require("tensorflow")
        server.start()
    except BaseException:
        server.stop(0)
        raise
    print(_shown(server, args), flush=True)
    stopped.wait()
    if not server.stop():
        print(
            f"tensorwire serve: aborted requests that were still running after {args.grace:g} s",
            file=sys.stderr,
        )
    sys.stdout.flush()
    sys.stderr.flush()
    # All responses are sent and all connections closed. A normal exit would wait seconds for
    # TensorFlow to unload, and for the thread of a request that is still running.
    os._exit(0)


def _stop(stopped: threading.Event) -> None:
    # A second signal ends the process at once, without waiting for running requests.
    if stopped.is_set():
        os._exit(1)
    stopped.set()


def _models(given: list[str]) -> Any:
    """Return the folders by model name. An existing path may contain "=" in its own name."""
    pairs: dict[str, str] = {}
    for text in given:
        name, sign, path = text.partition("=")
        models = {name: path} if sign and not os.path.exists(text) else named([text])
        for key, value in models.items():
            if key in pairs:
                raise SchemaError(
                    f"duplicate model name {key!r}",
                    path=value,
                    hint="give one of the models another name with NAME=DIR",
                )
            pairs[key] = value
    return pairs


def _labels(
    given: list[tuple[str | None, str, int]], models: list[str]
) -> dict[str, dict[str, int]]:
    labels: dict[str, dict[str, int]] = {}
    for model, label, version in given:
        for name in models if model is None else [model]:
            labels.setdefault(name, {})[label] = version
    return labels


def _shown(server: Server, args: argparse.Namespace) -> str:
    urls = {
        "rest": server.rest_url if args.rest is not None else None,
        "grpc": server.grpc_url if args.grpc is not None else None,
    }
    if args.json:
        models = {
            name: {
                str(number): {key: signature.json() for key, signature in signatures.items()}
                for number, signatures in versions.items()
            }
            for name, versions in server.signatures.items()
        }
        return json.dumps(urls | {"models": models})
    lines = [
        "  ".join(
            f"{what} {url}" for what, url in (("REST", urls["rest"]), ("gRPC", urls["grpc"])) if url
        )
    ]
    for name, versions in server.signatures.items():
        for number, signatures in versions.items():
            lines += ["", f"{name}, version {number}"]
            lines += [
                f"  {line}"
                for signature in signatures.values()
                for line in str(signature).splitlines()
            ]
    return "\n".join(lines)


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence standard error while TensorFlow is imported.

    Its C++ code writes to file descriptor 2 during the import, before Python can change its log
    level, so the descriptor itself is redirected.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
