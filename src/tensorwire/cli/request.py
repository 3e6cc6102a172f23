"""The command `tensorwire request`: requests to model servers, built, checked, printed or sent."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import DecodeError, EncodeError, SchemaError, UsageError, choices
from ..api import lazy
from ..api import values as api
from ..core.tensors import Bundle, Ragged, Strings, describe
from ..serving import rest
from ..serving.client.address import PROTOCOLS, VERBS, verb_of
from ..serving.client.protocols.rest import Rest
from ..serving.client.sync import Client
from ..serving.lower import FORMS
from ..serving.rest.faults import RestFault
from ..serving.signature import DEFAULT, Signature
from ..serving.transports import Call
from .arguments import add_json, read_from

LOCAL = "http://127.0.0.1:8501"
MOST_INLINE = 100_000
"""The most bytes of a body on the curl command line: Linux limits one argument to 128 KiB."""
EXAMPLES = """examples:
  tensorwire request http://127.0.0.1:8501/v1/models/ranker x='[[1, 2]]' country='["de"]'
  tensorwire request http://127.0.0.1:8501 --model ranker --inputs batch.safetensors --out scores.npz
  tensorwire request grpc://127.0.0.1:8500/ranker ids=@clicks.npz#ids --explain
  tensorwire request models/ranker x='[[1, 2]]' --curl
  tensorwire request models/ranker --body request.json --check
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "where",
        metavar="MODEL",
        help="the URL of a server or of a model, or the folder of a SavedModel",
    )
    parser.add_argument(
        "given",
        nargs="*",
        metavar="NAME=VALUE",
        help="an input: JSON, text, @FILE, or @FILE#TENSOR",
    )
    parser.add_argument(
        "--inputs", metavar="FILE", help="read all inputs from a tensor file or a JSON object"
    )
    parser.add_argument(
        "--body",
        metavar="FILE",
        help="send this JSON body without changes; - reads standard input",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--explain", action="store_true", help="explain how the inputs would be sent"
    )
    action.add_argument(
        "--print",
        action="store_true",
        help="print the body instead of sending it (the default for a SavedModel folder)",
    )
    action.add_argument(
        "--curl", action="store_true", help="print a curl command that sends the request"
    )
    action.add_argument(
        "--check",
        action="store_true",
        help="check whether TensorFlow Serving would accept the body",
    )
    parser.add_argument(
        "--save-body", metavar="FILE", help="with --print or --curl: write the body to a file"
    )
    parser.add_argument("--out", metavar="FILE", help="save the tensors of the response to a file")
    parser.add_argument(
        "--model", metavar="NAME", help="the name of the model, if the URL has none"
    )
    parser.add_argument(
        "--version",
        type=_version,
        dest="model_version",
        metavar="N",
        help="the version of the model",
    )
    parser.add_argument("--label", metavar="NAME", help="the label of a version")
    parser.add_argument(
        "--signature", metavar="NAME", default=DEFAULT, help=f"the signature (default: {DEFAULT})"
    )
    parser.add_argument(
        "--verb", choices=VERBS, help="the method (default: that of the URL, or predict)"
    )
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, help="the protocol of the server (default: tensorflow)"
    )
    parser.add_argument(
        "--url",
        default=LOCAL,
        help=f"for a SavedModel folder: the server in the curl command (default: {LOCAL})",
    )
    parser.add_argument(
        "--layout",
        choices=rest.LAYOUTS,
        default="auto",
        help="the layout of a REST body for TensorFlow Serving: rows or columns",
    )
    parser.add_argument(
        "--prefer", choices=FORMS, help="the form in which sparse and ragged inputs are sent"
    )
    parser.add_argument(
        "--cast", action="store_true", help="allow rounding floats to the dtype of the signature"
    )
    parser.add_argument("--compression", choices=("gzip",), help="compress the request")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="an additional HTTP header",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="the time limit (default: 60)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    verb = args.verb or verb_of(args.where) or "predict"
    wrong = _wrong(args)
    if wrong:
        print(f"tensorwire request: {wrong}", file=sys.stderr)
        return 2
    folder = "://" not in args.where
    signature = Signature.from_saved_model(args.where, args.signature) if folder else args.signature
    with _client(args, signature) as client:
        if args.body is not None:
            return _as_it_is(args, client, verb)
        inputs = _inputs(args)
        if verb == "predict" and args.explain:
            print(client.explain(inputs, prefer=args.prefer, layout=args.layout, cast=args.cast))
            return 0
        if folder or args.curl or args.print or args.check:
            call = client.build(
                inputs, verb=verb, prefer=args.prefer, layout=args.layout, cast=args.cast
            )
            return _shown(args, client, call, verb)
        if verb == "predict":
            outputs = client.predict(inputs, prefer=args.prefer, layout=args.layout, cast=args.cast)
        else:
            outputs = (client.classify if verb == "classify" else client.regress)(inputs)
    return _answered(args, outputs)


def _version(text: str) -> int | str:
    """Parse a model version: a number for TensorFlow Serving, text for KServe."""
    return int(text) if text.isascii() and text.isdigit() and text == str(int(text)) else text


def _wrong(args: argparse.Namespace) -> str | None:
    """Return what is wrong with the combination of options, or None."""
    if sum((bool(args.given), args.inputs is not None, args.body is not None)) > 1:
        return "NAME=VALUE, --inputs and --body exclude each other; use one of them"
    if args.save_body is not None and not (args.curl or args.print):
        return "--save-body needs --print or --curl"
    if args.curl and (args.where.startswith("grpc") or args.url.startswith("grpc")):
        return "curl does not support gRPC; leave out --curl to send the request"
    if args.body is not None and (
        args.explain or args.where.startswith("grpc") or args.protocol == "kserve"
    ):
        return "--body is only for the REST API of TensorFlow Serving, without --explain"
    bad = next((text for text in args.header if ":" not in text), None)
    return None if bad is None else f"expected a header 'NAME: VALUE', found {bad!r}"


def _client(args: argparse.Namespace, signature: str | Signature) -> Client:
    headers = {
        name.strip(): value.strip()
        for name, _, value in (text.partition(":") for text in args.header)
    }
    url, model = (
        (args.where, args.model)
        if "://" in args.where
        else (args.url, args.model or _name(Path(args.where)))
    )
    return Client(
        url,
        model,
        args.model_version,
        args.label,
        signature,
        args.deadline,
        protocol=args.protocol,
        compression=args.compression,
        headers=headers,
    )


def _name(folder: Path) -> str:
    """Return the name of the model in a folder; a numbered folder is a version of its parent."""
    path = folder.resolve()
    return path.parent.name if path.name.isdigit() else path.name


# Inputs


def _inputs(args: argparse.Namespace) -> Any:
    if args.inputs is not None:
        return _file(args.inputs)
    inputs: dict[str, Any] = {}
    for text in args.given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"expected an input NAME=VALUE, found {text!r:.60}")
        if name in inputs:
            raise UsageError(f"duplicate input {name!r}")
        inputs[name] = _value(value)
    return inputs


def _value(text: str) -> Any:
    if text.startswith("@"):
        path, _, tensor = text[1:].partition("#")
        return _tensor(_file(path), tensor, path)
    try:
        return json.loads(text)
    except ValueError:
        if text[:1] in ("[", "{", '"'):
            raise EncodeError(f"invalid JSON: {text!r:.60}") from None
        return text


def _file(path: str) -> Any:
    """Return the value of a tensor file, or of a JSON file, whose dtypes the signature decides."""
    if path.endswith(".json"):
        try:
            return json.loads(Path(path).read_bytes())
        except ValueError as error:
            raise DecodeError(
                f"invalid JSON: {error}", path=path, format="json", offset=getattr(error, "pos", 0)
            ) from None
    value = lazy.load(read_from(path))
    return dict(value) if isinstance(value, Bundle) else value


def _tensor(value: Any, name: str, path: str) -> Any:
    """Return the tensor that @FILE#TENSOR names; without a name the file must have only one."""
    if not isinstance(value, Mapping):
        return value
    if not name and len(value) == 1:
        return next(iter(value.values()))
    if name not in value:
        message = f"no tensor {name!r}" if name else "several tensors in @FILE; use @FILE#TENSOR"
        raise SchemaError(f"{message}{choices(name, value)}", path=path)
    return value[name]


# Output


def _as_it_is(args: argparse.Namespace, client: Client, verb: str) -> int:
    """Check the body of `--body` against the signature, then print or send it unchanged."""
    body = read_from(args.body)
    text = Path(body).read_bytes() if isinstance(body, str) else body
    fault = _fault(client, text, verb)
    if fault is not None:
        return _refused(args, fault)
    if args.check:
        return _accepted(args)
    if args.curl or args.print or "://" not in args.where:
        return _shown(args, client, Rest(client.address, args.compression).raw(verb, [text]), verb)
    return _answered(args, client.send(text, verb=verb))


def _fault(client: Client, body: bytes, verb: str) -> RestFault | None:
    if client.address.by_rpc or client.address.protocol != "tensorflow":
        return None
    return rest.check(body, client.signature(), verb=verb)


def _shown(args: argparse.Namespace, client: Client, call: Call, verb: str) -> int:
    body = b"".join(call.body)
    if args.check or (args.compression is None and not args.curl):
        fault = _fault(client, body, verb) if args.compression is None else None
        if fault is not None:
            return _refused(args, fault)
    if args.check:
        return _accepted(args)
    if args.save_body is not None:
        Path(args.save_body).write_bytes(body)
    if args.curl:
        return _curl(args, client, call, body)
    if args.save_body is None:
        sys.stdout.buffer.write(body + (b"\n" if sys.stdout.isatty() else b""))
        sys.stdout.flush()
    return 0


def _curl(args: argparse.Namespace, client: Client, call: Call, body: bytes) -> int:
    inline = len(body) <= MOST_INLINE and b"\0" not in body and _is_text(body)
    if not inline and args.save_body is None:
        print(
            "tensorwire request: the body is too large or not text, so it does not fit on a"
            " command line; use --save-body FILE",
            file=sys.stderr,
        )
        return 2
    headers = list(args.header) + [f"{name}: {value}" for name, value in call.headers.items()]
    data = body.decode() if args.save_body is None else f"@{args.save_body}"
    words = ["curl", "-sS", "-X", call.method, client.address.url.rstrip("/") + call.target]
    for header in headers:
        words += ["-H", header]
    print(" ".join(map(shlex.quote, [*words, "--data-binary", data])))
    return 0


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _refused(args: argparse.Namespace, fault: RestFault) -> int:
    print(json.dumps(fault._asdict()) if args.json else f"TensorFlow Serving would answer {fault}")
    return 1


def _accepted(args: argparse.Namespace) -> int:
    print("null" if args.json else "TensorFlow Serving would accept this body")
    return 0


def _answered(args: argparse.Namespace, outputs: Mapping[str, Any]) -> int:
    """Print the outputs of the model, or save them with `--out`."""
    if args.out is not None:
        api.save(args.out, dict(outputs))
    if args.json:
        sys.stdout.buffer.write(api.dumps(dict(outputs), "json") + b"\n")
        return 0
    for name, tensor in outputs.items():
        print(f"{name}: {describe(tensor)}")
        if args.out is None:
            shown = (
                tensor
                if isinstance(tensor, np.ndarray)
                else tensor.tolist()
                if isinstance(tensor, (Strings, Ragged))
                else repr(tensor)
            )
            print("  " + str(shown).replace("\n", "\n  "))
    return 0
