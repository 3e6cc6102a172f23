"""The command `tensorwire demo`: a model's predictions in every format, each round trip checked
bit for bit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._errors import MissingDependencyError
from ..api import lazy, streams, summary, values
from ..api.equality import equal
from ..core.tensors import Ragged, Sparse, Strings, describe
from ..records.example_reader import read_examples
from ..records.example_writer import write_examples
from . import terminal
from .arguments import FILES, add_json, completed, examples

ROUNDS = 5
WORDS = (
    "das ist ein kleines Beispiel für die Übersetzung von Sätzen in eine andere Sprache .".split()
)


def options(parser: argparse.ArgumentParser) -> None:
    out = parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo"),
        metavar="DIR",
        help="the folder to write (default: demo)",
    )
    completed(out, FILES)
    add_json(parser)
    examples(parser, "demo", "demo --out elsewhere --json")


def predictions(sentences: int = 64, vocabulary: int = 2000) -> dict[str, Any]:
    """Return the same sample predictions every time: dense logits, ragged tokens and words, sparse
    features, and attention matrices of different shapes.
    """
    rng = np.random.default_rng(20)
    lengths = rng.integers(3, 15, sentences)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.integers(0, vocabulary, splits[-1]).astype(np.int32)
    features = np.sort(rng.choice(sentences * 10_000, 500, replace=False))
    return {
        "logits": rng.standard_normal((sentences, 15, vocabulary), np.float32),
        "tokens": Ragged(tokens, splits),
        "words": Ragged(Strings.of([WORDS[token % len(WORDS)] for token in tokens]), splits),
        "features": Sparse(
            np.column_stack(np.divmod(features, 10_000)),
            rng.standard_normal(500, np.float32),
            (sentences, 10_000),
        ),
        "attention": [rng.random((int(n), int(n) + 2), np.float32) for n in lengths],
        "beam": 4,
    }


class Trip(NamedTuple):
    format: str
    file: str
    what: str
    bytes: int
    encode_ms: float
    decode_ms: float
    exact: bool


def _best(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time of the fastest of a few runs, in milliseconds, and the result."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3, result


def trip(
    format: str,
    file: Path,
    what: str,
    value: Any,
    writing: dict[str, Any] | None = None,
    **reading: Any,
) -> Trip:
    """Write a value to a file in one format, read it back, and compare every bit."""
    encode, blob = _best(lambda: values.untyped_dumps(value, format, **writing or {}))
    file.write_bytes(blob)
    data = file.read_bytes()
    decode, back = _best(lambda: values.untyped_loads(data, format, **reading))
    return Trip(format, str(file), what, len(blob), encode, decode, equal(back, value))


def _saved(file: Path, value: dict[str, Any]) -> Trip:
    """Save a file with checksums, read it back, and read two slices lazily."""
    encode, _ = _best(lambda: values.save(file, value, checksum=True, metadata={"model": "demo"}))
    decode, back = _best(lambda: lazy.load(file))
    with lazy.open(file) as opened:
        exact = (
            equal(back, value)
            and equal(opened["logits"][3:5], value["logits"][3:5])
            and equal(opened["words"][7], value["words"][7])
        )
    return Trip(
        "safetensors",
        str(file),
        "everything, with checksums",
        file.stat().st_size,
        encode,
        decode,
        exact and bool(summary.verify(file)),
    )


def _stream(file: Path, value: dict[str, Any]) -> Trip:
    """Write the values to one stream, one after the other, as over a socket."""

    def write() -> None:
        with file.open("wb") as stream:
            for item in value.items():
                streams.write(stream, item)

    def read() -> dict[str, Any]:
        with file.open("rb") as stream:
            return dict(streams.read(stream) for _ in value)

    encode, _ = _best(write)
    decode, back = _best(read)
    return Trip(
        "stream",
        str(file),
        "one frame per value",
        file.stat().st_size,
        encode,
        decode,
        equal(back, value),
    )


def _examples(file: Path, value: dict[str, Any]) -> Trip:
    """Write one tf.train.Example per sentence, and read them back as columns."""
    columns = {name: value[name] for name in ("logits", "tokens", "words", "attention")}
    encode, count = _best(lambda: write_examples(file, columns))
    decode, batches = _best(lambda: list(read_examples(file, batch_size=count)))
    back = {
        name: list(batches[0][name]) if name == "attention" else batches[0][name]
        for name in columns
    }
    return Trip(
        "tfrecord",
        str(file),
        "one tf.train.Example per sentence",
        file.stat().st_size,
        encode,
        decode,
        equal(back, columns),
    )


def _parquet(out: Path, value: dict[str, Any]) -> list[Trip]:
    """Return the round trip through Parquet, or nothing if PyArrow is not installed."""
    columns = {name: value[name] for name in ("logits", "tokens", "words")}
    try:
        return [
            trip("parquet", out / "predictions.parquet", "columns: logits, tokens, words", columns)
        ]
    except MissingDependencyError:
        return []


def run(args: argparse.Namespace) -> int:
    value = predictions()
    args.out.mkdir(parents=True, exist_ok=True)
    logits, small = (
        value["logits"],
        {name: item for name, item in value.items() if name != "logits"},
    )
    trips = [
        trip("safetensors", args.out / "predictions.safetensors", "everything", value),
        trip(
            "safetensors",
            args.out / "predictions.safetensors.gz",
            "everything, compressed",
            value,
            {"compression": "gzip"},
        ),
        trip("tensorproto", args.out / "predictions.pb", "everything", value),
        trip("tensorproto", args.out / "logits.pb", "logits, the same bytes as TensorFlow", logits),
        trip("npy", args.out / "logits.npy", "logits, a NumPy file", logits),
        trip("npz", args.out / "predictions.npz", "everything", value),
        trip("arrow", args.out / "predictions.arrow", "everything", value),
        *_parquet(args.out, value),
        trip("protobuf", args.out / "predictions.tensor", "everything, for other languages", value),
        trip("json", args.out / "predictions.json", "everything but the logits", small),
        trip(
            "example",
            args.out / "predictions.example",
            "everything but the logits, one tf.train.Example",
            small,
        ),
        trip(
            "raw",
            args.out / "logits.raw",
            "logits, only the numbers",
            logits,
            dtype="float32",
            shape=logits.shape,
        ),
        _saved(args.out / "predictions.checked.safetensors", value),
        _stream(args.out / "predictions.stream", value),
        _examples(args.out / "predictions.tfrecord", value),
    ]
    if args.json:
        terminal.say_json([row._asdict() for row in trips])
    else:
        _print(value, trips)
    return 0 if all(row.exact for row in trips) else 1


def _print(value: dict[str, Any], trips: list[Trip]) -> None:
    terminal.say("A translation model's predictions:")
    for name, item in value.items():
        shown = (
            f"{len(item)} matrices, {min(part.shape for part in item)} to"
            f" {max(part.shape for part in item)}"
            if isinstance(item, list)
            else item
        )
        terminal.say(f"  {name:10} {describe(item) if hasattr(item, 'shape') else shown}")
    head = ("format", "content", "bytes", "encode", "decode", "round trip", "file")
    rows = [
        (
            t.format,
            t.what,
            f"{t.bytes:,}",
            f"{t.encode_ms:.2f} ms",
            f"{t.decode_ms:.2f} ms",
            "bit-exact" if t.exact else "DIFFERENT",
            t.file,
        )
        for t in trips
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    terminal.say("")
    for row in (head, tuple("-" * width for width in widths), *rows):
        terminal.say(
            "  ".join(
                cell.rjust(width) if 2 <= i <= 4 else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )
    if not any(row.format == "parquet" for row in trips):
        terminal.say("\nFor parquet, run: pip install 'tensorwire[arrow]'")
    terminal.say(
        f"\nIn Python:\n  import tensorwire as tw\n  with tw.open({trips[0].file!r}) as f:\n     "
        " print(f['logits'][0], f['words'][0])"
    )
