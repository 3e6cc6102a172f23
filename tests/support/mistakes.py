"""The likeliest mistakes: code that fails, and the code that its error message asks for.

`tests/docs/test_mistakes.py` runs both, and `scripts/errors.py` makes docs/errors.md of them. A mistake
that begins with `$` is a command line.
"""

import contextlib
import io
import os
import shlex
import sys
import types
from dataclasses import dataclass

from tensorwire.cli import main

SETUP = """
import dataclasses, datetime, decimal, enum, io, pathlib, sys

import numpy as np
import tensorwire as tw

x = np.arange(6, dtype=np.float32)
tw.save("a.npz", {"x": x})
tw.save("a.safetensors", {"x": x, "y": x * 2})
tw.save("old.safetensors", {"x": x})
tw.write_examples("r.tfrecord", {"x": np.arange(3), "name": ["a", "b", "c"]})
tw.write_examples("s-00.tfrecord", {"x": np.arange(3)})
tw.write_examples("s-01.tfrecord", {"x": np.arange(3)})
pathlib.Path("empty.safetensors").touch()
whole = pathlib.Path("a.safetensors").read_bytes()
pathlib.Path("cut.safetensors").write_bytes(whole[:-5])
records = bytearray(pathlib.Path("r.tfrecord").read_bytes())
records[60] ^= 1
pathlib.Path("damaged.tfrecord").write_bytes(records)
pathlib.Path("cut.tfrecord").write_bytes(records[:20])
tw.save("sums.safetensors", {"x": x}, checksum=True)
changed = bytearray(pathlib.Path("sums.safetensors").read_bytes())
changed[-1] ^= 1
pathlib.Path("changed.safetensors").write_bytes(changed)
bomb = tw.dumps({"x": np.zeros(60_000_000, np.uint8)}, compression="zstd")

@dataclasses.dataclass
class Point:
    x: int = 1

class Color(enum.Enum):
    RED = 1

def client(respond, **options):
    from tensorwire.serving import Client, MockTransport, Signature

    signature = Signature.given({"x": ("float32", [None, 2])}, {"y": ("float32", [None])})
    options = {"model": "ranker", "signature": signature, **options}
    return Client("http://127.0.0.1:8501", transport=MockTransport.model(respond, signature), **options)

def ranker(x):
    return {"y": x.sum(axis=1)}
"""


@dataclass(frozen=True)
class Mistake:
    """Code that fails, what that means, and code that works."""

    title: str
    code: str
    meaning: str
    fix: str


MISTAKES = [
    # Arguments
    Mistake(
        "Path and value swapped in save",
        'tw.save({"x": x}, "b.safetensors")',
        "`save` takes the path first, as `np.save` does.",
        'tw.save("b.safetensors", {"x": x})',
    ),
    Mistake(
        "A path given to loads",
        'tw.loads("a.npz")',
        "`loads` takes the bytes themselves, like `json.loads`.",
        'tw.load("a.npz")',
    ),
    Mistake(
        "A text given to loads",
        "tw.loads('{\"a\": 1}')",
        "`loads` takes bytes; encode the text first.",
        "tw.loads('{\"a\": 1}'.encode())",
    ),
    Mistake(
        "An open file given to loads",
        'with open("a.npz", "rb") as file: tw.loads(file)',
        "`loads` takes bytes, `load` takes a path or a file.",
        'with open("a.npz", "rb") as file: tw.load(file)',
    ),
    Mistake(
        "A file opened as text",
        'with open("a.npz") as file: tw.load(file)',
        "Tensors are binary data.",
        'with open("a.npz", "rb") as file: tw.load(file)',
    ),
    Mistake(
        "A file opened as text, to write",
        'with open("b.npy", "w") as file: tw.save(file, x, "npy")',
        "Tensors are binary data.",
        'with open("b.npy", "wb") as file: tw.save(file, x, "npy")',
    ),
    Mistake(
        "A path given to write",
        'tw.write("b.bin", x)',
        "`write` and `read` are for streams: sockets, pipes, open files.",
        'tw.save("b.npy", x)',
    ),
    Mistake(
        "A path given to read",
        'tw.read(pathlib.Path("a.npz"))',
        "`write` and `read` are for streams: sockets, pipes, open files.",
        'tw.load(pathlib.Path("a.npz"))',
    ),
    Mistake(
        "A misspelt option",
        'tw.dumps(x, compresion="gzip")',
        "No option of that name exists.",
        'tw.dumps(x, compression="gzip")',
    ),
    Mistake(
        "A framework that tensorwire calls by another name",
        'tw.loads(tw.dumps(x), to="np")',
        "`to=` takes the framework's full name.",
        'tw.loads(tw.dumps(x), to="numpy")',
    ),
    Mistake(
        "An unknown compression",
        'tw.dumps(x, compression="gz")',
        "Compressions have the names of their formats, not of their suffixes.",
        'tw.dumps(x, compression="gzip")',
    ),
    Mistake(
        "An unknown quantization",
        'tw.dumps(x, quantize="int7")',
        "The schemes are listed in the message and in docs/quantization.md.",
        'tw.dumps(x, quantize="int8")',
    ),
    Mistake(
        "A path given to profile",
        'tw.profile("a.npz")',
        "`profile` measures a value.",
        'tw.profile(tw.load("a.npz"), formats="npz", compressions=(), seconds=0.1)',
    ),
    Mistake(
        "An option of another format",
        'tw.dumps(x, "json", checksum=True)',
        "JSON has no place for checksums.",
        'tw.dumps(x, "safetensors", checksum=True)',
    ),
    # Formats
    Mistake(
        "A misspelt format",
        'tw.dumps(x, "safetensor")',
        "No format of that name exists; the message lists all.",
        'tw.dumps(x, "safetensors")',
    ),
    Mistake(
        "A file name without a known suffix",
        'tw.save("weights.dat", x)',
        "The format of a file comes from its suffix, or from `format=`.",
        'tw.save("weights.dat", x, format="safetensors")',
    ),
    Mistake(
        "A conversion to an unknown suffix",
        'tw.convert("a.npz", "x.onnx")',
        "The target's format comes from its suffix, or from `to=`.",
        'tw.convert("a.npz", "x.onnx", to="safetensors")',
    ),
    Mistake(
        "Tensors read from a record file",
        'tw.load("r.tfrecord")',
        "A TFRecord file holds records, not named tensors.",
        'list(tw.read_examples("r.tfrecord"))',
    ),
    Mistake(
        "Tensors saved as a record file",
        'tw.save("b.tfrecord", {"x": x})',
        "A TFRecord file holds records, not named tensors.",
        'tw.write_examples("b.tfrecord", {"x": x})',
    ),
    Mistake(
        "Records read from a tensor file",
        'list(tw.read_examples("a.safetensors"))',
        "The file is not a TFRecord file.",
        'tw.load("a.safetensors")',
    ),
    Mistake(
        "An empty file",
        'tw.load("empty.safetensors")',
        "The file has 0 bytes: it was created and never written, or its disk was full.",
        'tw.save("empty.safetensors", {"x": x})',
    ),
    Mistake(
        "Bytes of no known format",
        'tw.loads(b"hello, world")',
        "No format recognises the bytes. Raw bytes and Examples are never guessed.",
        'tw.loads(b"hello, wrld!", "raw", dtype="uint8")',
    ),
    Mistake(
        "A pickle or a PyTorch checkpoint",
        'tw.loads(b"\\x80\\x02}q\\x00.")',
        "Pickles run code when they are read, so tensorwire never reads them.",
        'tw.save("weights.safetensors", {"w": x})',
    ),
    # Values
    Mistake(
        "A dataclass",
        'tw.dumps({"p": Point()})',
        "Leaves are tensors and Python's bool, int, float, str, bytes and None.",
        'tw.dumps({"p": dataclasses.asdict(Point())})',
    ),
    Mistake("A set", "tw.dumps({1, 2})", "A set has no order.", "tw.dumps(sorted({1, 2}))"),
    Mistake(
        "A range or a generator",
        "tw.dumps(range(3))",
        "Only list, tuple and dict nest.",
        "tw.dumps(list(range(3)))",
    ),
    Mistake(
        "A date",
        "tw.dumps(datetime.datetime(2020, 1, 1))",
        "No tensor format has dates of Python.",
        "tw.dumps(datetime.datetime(2020, 1, 1).isoformat())",
    ),
    Mistake(
        "A timedelta",
        "tw.dumps(datetime.timedelta(1))",
        "No tensor format has durations of Python.",
        "tw.dumps(datetime.timedelta(1).total_seconds())",
    ),
    Mistake(
        "A Decimal",
        'tw.dumps(decimal.Decimal("1.5"))',
        "No tensor format has decimal numbers.",
        'tw.dumps(str(decimal.Decimal("1.5")))',
    ),
    Mistake(
        "An enum",
        "tw.dumps(Color.RED)",
        "An enum's member is not a value of its own.",
        "tw.dumps(Color.RED.value)",
    ),
    Mistake(
        "An object array",
        "tw.dumps(np.array([1, None], dtype=object))",
        "Object arrays hold strings only.",
        "tw.dumps([1, None])",
    ),
    Mistake(
        "datetime64",
        'tw.dumps(np.array(["2020-01-01"], "datetime64[D]"))',
        "The formats have no dates: store the integers and the unit.",
        'tw.dumps(np.array(["2020-01-01"], "datetime64[D]").view("int64"))',
    ),
    Mistake(
        "A nested value in a format of one tensor",
        'tw.dumps({"x": x}, "raw")',
        "`raw` holds the bytes of one tensor.",
        'tw.dumps(x, "raw")',
    ),
    Mistake(
        "Row out of range",
        'tw.open("a.npz")["x"][6]',
        "As for a NumPy array.",
        'tw.open("a.npz")["x"][5]',
    ),
    Mistake(
        "A name that the file does not have",
        'tw.open("a.safetensors")["z"]',
        "`keys()` lists the names.",
        'tw.open("a.safetensors").keys()',
    ),
    Mistake(
        "Names that the file does not have, in load",
        'tw.load("a.safetensors", names=["z"])',
        "`tw.inspect` lists the names.",
        'tw.load("a.safetensors", names=["x"])',
    ),
    Mistake(
        "Bytes that are not whole elements",
        'tw.loads(b"12345", "raw", dtype="float32")',
        "The number of bytes is not a multiple of the element's size.",
        'tw.loads(b"12345678", "raw", dtype="float32")',
    ),
    Mistake(
        "Raw bytes without a dtype",
        'tw.loads(b"12345678", "raw")',
        "Raw bytes say neither dtype nor shape.",
        'tw.loads(b"12345678", "raw", dtype="float32")',
    ),
    Mistake(
        "A view that cannot be had",
        'tw.loads(tw.dumps(np.arange(5.0), "json"), copy=False)',
        "`copy=False` asks for a view of the bytes; text has to be parsed.",
        'tw.loads(tw.dumps(np.arange(5.0), "json"))',
    ),
    # Damaged and hostile bytes
    Mistake(
        "A file that was cut off",
        'tw.load("cut.safetensors")',
        "The file ends too early: an interrupted download or copy. Get it again.",
        'tw.load("a.safetensors")',
    ),
    Mistake(
        "A file that was changed",
        'tw.load("changed.safetensors")',
        "A checksum differs: the disk, the network or a program changed the bytes. Get it again.",
        'tw.load("sums.safetensors")',
    ),
    Mistake(
        "A damaged record",
        'list(tw.read_examples("damaged.tfrecord"))',
        "A checksum of a record differs. Skip such records, or save the good ones into a new file.",
        'tw.repair("damaged.tfrecord", "good.tfrecord")',
    ),
    Mistake(
        "A damaged record, skipped",
        'list(tw.RecordReader("damaged.tfrecord"))',
        "A checksum of a record differs. `on_corrupt=` is for such files.",
        'list(tw.RecordReader("damaged.tfrecord", on_corrupt="skip"))',
    ),
    Mistake(
        "A record file without a single good record",
        'tw.repair("cut.tfrecord", "good.tfrecord")',
        "There is nothing to save; the file may not be a TFRecord file, or be compressed.",
        'tw.repair("damaged.tfrecord", "good.tfrecord")',
    ),
    Mistake(
        "Data that expands to more than the limit",
        "tw.loads(bomb, limits=tw.Limits(expansion=1 << 20, expansion_ratio=10))",
        "A small input that becomes large may be an attack. If you trust it, raise the limit.",
        "tw.loads(bomb, limits=tw.Limits(expansion=100_000_000))",
    ),
    Mistake(
        "A compressed file opened as a tensor format",
        'tw.loads(tw.dumps(x, compression="gzip"), "safetensors", compression="zstd")',
        "The bytes have another compression; it is recognised when `compression=` is left out.",
        'tw.loads(tw.dumps(x, compression="gzip"), "safetensors")',
    ),
    # Records
    Mistake(
        "A dict given to RecordWriter",
        'tw.RecordWriter("w.tfrecord").write({"x": 1})',
        "`RecordWriter` writes bytes; `write_examples` encodes columns and rows.",
        'tw.write_examples("w.tfrecord", [{"x": 1}])',
    ),
    Mistake(
        "A text given to RecordWriter",
        'tw.RecordWriter("w.tfrecord").write("text")',
        "Records are bytes.",
        'tw.RecordWriter("w.tfrecord").write("text".encode())',
    ),
    Mistake(
        "A column that the files do not have",
        'list(tw.read_examples("r.tfrecord", columns=["y"]))',
        "`tw.infer_schema` and `tensorwire schema` list the features.",
        'list(tw.read_examples("r.tfrecord", columns=["x"]))',
    ),
    Mistake(
        "Columns of different lengths",
        'tw.write_examples("w.tfrecord", {"a": np.arange(3), "b": np.arange(4)})',
        "Every column has one value a record.",
        'tw.write_examples("w.tfrecord", {"a": np.arange(3), "b": np.arange(3)})',
    ),
    Mistake(
        "A pattern that matches no file",
        'list(tw.read_examples("train-*.tfrecord"))',
        "No file has such a name; a relative pattern starts at the current folder.",
        'list(tw.read_examples("s-*.tfrecord"))',
    ),
    Mistake(
        "A feature of another type than the schema says",
        'list(tw.read_examples("r.tfrecord", schema={"x": tw.Feature("float", ())}))',
        "An Example's feature is int64, float32 or bytes, and the schema has to agree.",
        'list(tw.read_examples("r.tfrecord", schema={"x": tw.Feature("int64", ())}))',
    ),
    Mistake(
        "A shard that does not exist",
        'list(tw.read_examples("r.tfrecord", shard=(2, 2)))',
        "Shards count from 0: (0, 2) and (1, 2) are the two halves.",
        'list(tw.read_examples("r.tfrecord", shard=(1, 2)))',
    ),
    Mistake(
        "A record number out of range",
        'tw.RecordReader("r.tfrecord")[3]',
        "Records count from 0.",
        'tw.RecordReader("r.tfrecord")[2]',
    ),
    # Conversion and datasets
    Mistake(
        "A target that exists",
        'tw.convert("a.npz", "old.safetensors")',
        "`convert`, `repair` and datasets replace nothing unless they are told to.",
        'tw.convert("a.npz", "old.safetensors", overwrite=True)',
    ),
    Mistake(
        "A dataset converted into a file's name",
        'tw.convert("s-*.tfrecord", "out")',
        "The format of a dataset's shards comes from `to=`.",
        'tw.convert("s-*.tfrecord", "out", to="parquet")',
    ),
    Mistake(
        "An option of rows for a file of tensors",
        'tw.convert("a.npz", "b.safetensors", where="x > 1", rename={"x": "y"})',
        "`where=` chooses rows, `rename=` renames tensors: a call does one or the other.",
        'tw.convert("a.npz", "b.safetensors", rename={"x": "y"})',
    ),
    Mistake(
        "A filter that cannot be read",
        'tw.convert("r.tfrecord", "out", to="parquet", where="x >")',
        "docs/datasets.md has the grammar of filters.",
        'tw.convert("r.tfrecord", "out", to="parquet", where="x > 1")',
    ),
    Mistake(
        "Shares below 1 in a split",
        'tw.datasets.split("r.tfrecord", "out", {"train": 0.5, "test": 0.3}, to="jsonl", seed=1)',
        "The remaining rows would be lost silently.",
        'tw.datasets.split("r.tfrecord", "out", {"train": 0.5, "test": 0.5}, to="jsonl", seed=1)',
    ),
    Mistake(
        "An unsupported URL",
        'tw.load("gopher://host/a.npz")',
        "URLs are read through obstore and fsspec.",
        'tw.load("a.npz")',
    ),
    # Serving
    Mistake(
        "Inputs that the model does not have",
        'client(ranker).predict({"y": [[1, 2]]})',
        "The signature names the inputs; `client.metadata()` shows it.",
        'client(ranker).predict({"x": [[1, 2]]})',
    ),
    Mistake(
        "Inputs of another shape",
        'client(ranker).predict({"x": [[1, 2, 3]]})',
        "The signature says which dimensions are fixed.",
        'client(ranker).predict({"x": [[1, 2]]})',
    ),
    Mistake(
        "Inputs of another dtype",
        'client(ranker).predict({"x": [["a", "b"]]})',
        "The signature says the dtype; numbers are converted where nothing is lost.",
        'client(ranker).predict({"x": [[1, 2]]})',
    ),
    Mistake(
        "A server that does not answer",
        'tw.serving.Client("http://127.0.0.1:9", model="ranker", attempts=1).predict([[1, 2]])',
        "Nothing listens at that address: the server is not running, or has another port.",
        'client(ranker).predict({"x": [[1, 2]]})',
    ),
    Mistake(
        "An address without a scheme",
        'tw.serving.Client("127.0.0.1:8501", model="ranker")',
        "The scheme chooses the protocol: http://, https://, grpc:// or grpcs://.",
        'tw.serving.Client("http://127.0.0.1:8501", model="ranker")',
    ),
    Mistake(
        "A client without a model",
        'tw.serving.Client("http://127.0.0.1:8501").predict([[1, 2]])',
        "A server may have many models.",
        'tw.serving.Client("http://127.0.0.1:8501", model="ranker")',
    ),
    # The command
    Mistake(
        "A conversion to an unknown suffix, by the command",
        "$ tensorwire convert a.npz x.onnx",
        "The target's format comes from its suffix, or from `--to`.",
        "$ tensorwire convert a.npz x.onnx --to safetensors",
    ),
    Mistake(
        "A target that exists, by the command",
        "$ tensorwire convert a.npz old.safetensors",
        "Nothing is replaced unless `--overwrite` is given.",
        "$ tensorwire convert a.npz old.safetensors --overwrite",
    ),
    Mistake(
        "A misspelt command",
        "$ tensorwire inspct a.npz",
        "The message names the nearest command.",
        "$ tensorwire inspect a.npz",
    ),
    Mistake(
        "A file that does not exist",
        "$ tensorwire inspect b.npz",
        "The path is wrong, or relative to another folder.",
        "$ tensorwire inspect a.npz",
    ),
    Mistake(
        "A damaged record file, by the command",
        "$ tensorwire show damaged.tfrecord",
        "A checksum of a record differs. `repair` exits with 1 because it found damage.",
        "$ tensorwire repair damaged.tfrecord good.tfrecord",
    ),
]


class CommandError(Exception):
    """A command line exited with an error; the message is what it printed to standard error."""


def run(code: str, names: dict) -> None:
    """Run Python code, or a command line."""
    if not code.startswith("$ tensorwire "):
        exec(code, names)
        return

    shown = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(shown):
        try:
            status = main(shlex.split(code.removeprefix("$ tensorwire ")))
        except SystemExit as end:
            status = end.code
    found_damage = status == 1 and code.startswith("$ tensorwire repair ")
    if status and not found_damage:
        raise CommandError(shown.getvalue().strip())


def prepare(folder: os.PathLike) -> dict:
    """Make the files that the mistakes are about in the current folder; return the names."""
    module = sys.modules["__mistakes__"] = types.ModuleType("__mistakes__")
    os.chdir(folder)
    exec(SETUP, module.__dict__)
    return module.__dict__
