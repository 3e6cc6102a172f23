"""Mutants of every format against every reader: no crash, no hang, no foreign error, no flood of
memory.

    .venv/bin/python scripts/attack.py [--mutants 100000] [--seed 1] [--only NAME ...] [--json FILE]

How it works:

1. A target is a name, some valid inputs (seeds), and the calls that read such an input.
2. A mutant is a seed with some changes: flipped bits, cuts, pieces taken out, doubled or spliced in
   from another seed, and numbers (binary, varint or decimal text) replaced by extreme ones. Where a
   format has a checksum that would stop every mutant at the door, it is made right again. The same
   seed number gives the same mutants.
3. Mutants are read in a child process, which says before each one which it is. What it may answer:
   a value, a TensorwireError, or for a file an OSError. Everything else is a finding: another
   exception, a signal, more CPU time than `SECONDS` for all calls together, no answer after ten
   times as long, or more memory than promise 13 of docs/safety.md allows.
4. A finding is kept as a file in build/attack, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import select
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tensorwire as tw
from tensorwire.wire import tfrecord

SECONDS = 2.0
MEMORY = 64 << 20
"""What a call may take beyond what its input and the limits allow."""
KEPT = Path(__file__).parent.parent / "build" / "attack"
_NUMBERS = [
    0,
    1,
    2,
    7,
    63,
    64,
    127,
    128,
    255,
    256,
    65535,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
]
_NUMBERS += [(1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 8, 100_000_000, 1 << 40]
_TEXTS = [
    b"-1",
    b"0",
    b"1e999",
    b"9223372036854775808",
    b"null",
    b"true",
    b'""',
    b"[]",
    b"{}",
    b"-0",
    b"1.5",
    b"[[[[[[[[",
    b"99999999999",
]


class Target(NamedTuple):
    """What is attacked: valid inputs, and what is done with a mutant of one, which is bytes."""

    seeds: list[bytes]
    read: Callable[[bytes, Path], None]
    mend: Callable[[bytes, random.Random], bytes] | None = None
    """Makes the checksums of a mutant right again, mostly."""
    share: float = 1.0
    """Of the mutants that a target gets: less where each one is slow."""


def values() -> list[Any]:
    rng = np.random.default_rng(7)
    strings = tw.Strings.of(["", "a", "text with ü", "x" * 70])
    ragged = tw.Ragged.of([[1, 2, 3], [], [4]])
    sparse = tw.Sparse(np.array([[0, 1], [2, 0]]), np.float32([1, 2]), (3, 4))
    nested = {
        "a": [np.arange(3), {"b": strings, "n": 7}],
        "t": (1.5, None, "text", b"bytes", True),
        "r": ragged,
        "s": sparse,
    }
    return [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        {
            "w": rng.random((4, 4)),
            "b": np.zeros(300, np.int8),
            "h": rng.random(8).astype(ml_dtypes.bfloat16),
            "e": np.zeros((0, 3)),
        },
        nested,
        {"z": np.zeros(5000), "s": strings},
        {
            "f8": rng.random(5).astype(ml_dtypes.float8_e4m3fn),
            "c": np.complex64([1j, 2]),
            "i4": np.array([1, -3], ml_dtypes.int4),
        },
        {0: np.arange(2), "state": {1: np.ones(3), "step": 4}},
        {
            "n": np.arange(50),
            "text": tw.Strings.of([f"row {i}" for i in range(50)]),
            "v": rng.random((50, 3), np.float32),
        },
    ]


def encoded(format: str, **options: Any) -> Iterator[bytes]:
    for value in values():
        with contextlib.suppress(tw.EncodeError):
            yield tw.dumps(value, format, **options)


def read_value(format: str | None) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        answers(lambda: tw.loads(data, format))
        answers(lambda: tw.loads(data, format, copy=True, dequantize=False))
        answers(lambda: str(tw.inspect(data, format)))
        answers(lambda: tw.verify(data, format))
        with (
            contextlib.suppress(tw.TensorwireError),
            warnings.catch_warnings(action="ignore"),
            tw.open(data, format) as file,
        ):
            for name in list(file)[:20]:
                answers(lambda name=name: file[name].read())
                answers(lambda name=name: file[name][:1] if file[name].shape else None)

    return read


def answers(call: Callable[[], Any]) -> None:
    """A value or one of our errors."""
    with contextlib.suppress(tw.TensorwireError):
        call()


def read_records(data: bytes, folder: Path) -> None:
    path = folder / "a.tfrecord"
    path.write_bytes(data)
    for mode in ("raise", "skip"):
        answers(lambda mode=mode: list(tw.RecordReader(path, on_corrupt=mode, index=False)))
        answers(
            lambda mode=mode: list(tw.read_examples(path, batch_size=7, on_corrupt=mode, workers=0))
        )
    answers(lambda: list(tw.read_examples(path, batch_size=64, reuse=True, workers=0)))
    answers(lambda: list(tw.read_sequence_examples(path, batch_size=7)))
    answers(lambda: str(tw.inspect(path)))
    answers(lambda: tw.verify(path))
    answers(lambda: tw.repair(path))


def read_sidecar(suffix: str, records: bytes) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        path = folder / "b.tfrecord"
        path.write_bytes(records)
        Path(f"{path}{suffix}").write_bytes(data)
        answers(lambda: list(tw.read_examples(path, batch_size=7, workers=0)))
        answers(lambda: list(tw.read_examples(path, batch_size=7, workers=0, reuse=True)))
        answers(lambda: str(tw.inspect(path)))
        answers(lambda: tw.verify(path))
        reader = tw.RecordReader(path)
        answers(lambda: (len(reader), reader[0], reader[-1]))
        answers(lambda: list(reader.shuffle(3)))

    return read


def read_examples(data: bytes, folder: Path) -> None:
    io = tw.io
    features = {
        "x": io.FixedLenFeature([], "int64", 0),
        "v": io.VarLenFeature("float32"),
        "s": io.RaggedFeature("string"),
    }
    lists = {"v": io.FixedLenSequenceFeature([], "float32")}
    for compat in (False, True):
        answers(lambda compat=compat: io.parse_example([data, data], features, tf_compat=compat))
        answers(lambda compat=compat: io.parse_single_example(data, features, tf_compat=compat))
        answers(
            lambda compat=compat: io.parse_single_sequence_example(
                data, {"x": features["x"]}, lists, tf_compat=compat
            )
        )


def read_tensor_proto(data: bytes, folder: Path) -> None:
    for compat in (False, True):
        for dtype in ("float32", "string", "int64"):
            answers(
                lambda dtype=dtype, compat=compat: tw.io.parse_tensor(data, dtype, tf_compat=compat)
            )


def read_file(
    name: str, others: dict[str, bytes] | None = None, opened: str | None = None
) -> Callable[[bytes, Path], None]:
    """A file of that name, beside others; `opened` is what is given to the library, if that is not
    the file.
    """

    def read(data: bytes, folder: Path) -> None:
        for other, content in (others or {}).items():
            (folder / other).parent.mkdir(parents=True, exist_ok=True)
            (folder / other).write_bytes(content)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        path = folder / (opened or name)
        for call in (tw.load, lambda path: str(tw.inspect(path)), tw.verify):
            with contextlib.suppress(OSError):
                answers(lambda call=call: call(path))

    return read


def read_answer(data: bytes, folder: Path) -> None:
    from tensorwire.serving import kserve, rest

    answers(lambda: kserve.parse_answer(data))
    answers(lambda: rest.parse_answer(data))


def mend_records(data: bytes, rng: random.Random) -> bytes:
    """Frames around the pieces that the mutant's own frames, or chance, cut it into."""
    records, place = [], 0
    while place < len(data) and len(records) < 50:
        size = int.from_bytes(data[place : place + 8], "little")
        size = size if size <= len(data) else rng.randrange(200)
        records.append(data[place + 12 : place + 12 + size])
        place += 16 + size
    return b"".join(
        tfrecord.header(len(record)) + record + tfrecord.footer([record]) for record in records
    )


def mend_index(data: bytes, rng: random.Random) -> bytes:
    """The checksum of an index is its last four bytes."""
    from tensorwire.wire.crc import crc32c

    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


def targets() -> dict[str, Target]:
    found: dict[str, Target] = {}
    plain = [
        row.name
        for row in tw.formats().values()
        if row.writes and not row.files and row.name != "raw"
    ]
    for format in plain:
        found[format] = Target(list(encoded(format)), read_value(format))
    found["recognised"] = Target(
        [seed for format in plain for seed in found[format].seeds], read_value(None)
    )
    found["checksums"] = Target(
        [*encoded("safetensors", checksum=True), *encoded("npy", checksum=True)], read_value(None)
    )
    packings = [
        {"compression": name, "per_tensor": True, "shuffle": name == "zstd"}
        for name in ("zstd", "lz4", "zlib", "snappy")
    ]
    found["packed"] = Target(
        [seed for options in packings for seed in encoded("safetensors", **options)],
        read_value("safetensors"),
    )
    streams = ("gzip", "zstd", "lz4")
    found["streams"] = Target(
        [seed for name in streams for seed in encoded("npy", compression=name)], read_value(None)
    )
    found["compressed arrow"] = Target(
        list(encoded("arrow", compression="zstd")), read_value("arrow")
    )
    found["compressed npz"] = Target(list(encoded("npz", compression="zlib")), read_value("npz"))
    found["quantized"] = Target(
        [
            tw.dumps(values()[1], format, quantize="int8")
            for format in ("safetensors", "npz", "json")
        ],
        read_value(None),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found |= _files(folder)
    return found


def _files(folder: Path) -> dict[str, Target]:
    columns = {
        "x": np.arange(40),
        "v": np.linspace(0, 1, 120, dtype=np.float32).reshape(40, 3),
        "s": [f"row {i}" for i in range(40)],
    }
    ragged = [{"ids": list(range(i % 4)), "label": i} for i in range(30)]
    records: dict[str, list[bytes]] = {}
    for compression in (None, "gzip", "zstd"):
        tw.write_examples(folder / "a.tfrecord", columns, compression=compression)
        tw.write_examples(folder / "b.tfrecord", ragged, compression=compression, schema_file=False)
        records[compression or "plain"] = [
            (folder / name).read_bytes() for name in ("a.tfrecord", "b.tfrecord")
        ]
    tw.write_examples(folder / "a.tfrecord", columns)
    examples = list(tw.RecordReader(folder / "a.tfrecord"))
    len(tw.RecordReader(folder / "a.tfrecord"))
    tw.infer_schema(folder / "a.tfrecord", full=True)
    whole = (folder / "a.tfrecord").read_bytes()
    steps = [{"x": i, "v": [[float(j)] for j in range(i % 3)]} for i in range(9)]
    tw.write_sequence_examples(
        folder / "q.tfrecord", [({"x": row["x"]}, {"v": row["v"]}) for row in steps]
    )
    sequences = list(tw.RecordReader(folder / "q.tfrecord"))
    found = {
        "tfrecord": Target([*records["plain"], (folder / "q.tfrecord").read_bytes()], read_records),
        "tfrecord, right checksums": Target(records["plain"], read_records, mend_records),
        "compressed tfrecord": Target([*records["gzip"], *records["zstd"]], read_records),
        "schema beside a file": Target(
            [(folder / "a.tfrecord.schema.json").read_bytes()], read_sidecar(".schema.json", whole)
        ),
        "parse_example": Target([*examples[:5], *sequences[3:6]], read_examples),
        "parse_tensor": Target(list(encoded("tensorproto")), read_tensor_proto),
    }
    index = folder / "a.tfrecord.idx"
    if index.exists():
        found["index beside a file"] = Target([index.read_bytes()], read_sidecar(".idx", whole))
        found["index, right checksum"] = Target(
            [index.read_bytes()], read_sidecar(".idx", whole), mend_index
        )
    tw.save(
        folder / "model.ckpt",
        {
            "w": np.arange(6.0),
            "deep": {"b": np.zeros((2, 2), np.float32), "s": tw.Strings.of(["a", "b"])},
        },
    )
    parts = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name.startswith("model.ckpt")
    }
    listing = parts.pop("model.ckpt.index")
    found["checkpoint index"] = Target(
        [listing], read_file("model.ckpt.index", parts, "model.ckpt")
    )
    tw.save(folder / "flat.npz", {"w": np.arange(60.0), "b": np.zeros(9, np.float32)})
    tw.convert(folder / "flat.npz", folder / "hub.safetensors.index.json", shard_size=600)
    shards = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name.startswith("hub") and not path.name.endswith(".json")
    }
    hub = (folder / "hub.safetensors.index.json").read_bytes()
    found["index of shards"] = Target([hub], read_file("hub.safetensors.index.json", shards))
    with contextlib.suppress(ImportError):
        found["hdf5"] = Target(_hdf5(folder), read_file("model.weights.h5"), share=0.02)
    body = {
        "model_name": "m",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3.5, 4]}],
    }
    bodies = [body, {"predictions": [[1.0, 2.0], [3.0, 4.5]]}, {"outputs": {"a": [1], "b": ["x"]}}]
    found["server answers"] = Target([json.dumps(text).encode() for text in bodies], read_answer)
    return found


def _hdf5(folder: Path) -> list[bytes]:
    import h5py

    for name, options in (
        ("plain", {}),
        ("chunked", {"chunks": True, "compression": "gzip", "shuffle": True, "fletcher32": True}),
    ):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            group = file.create_group("layers/dense/vars")
            group.create_dataset(
                "0", data=np.arange(600, dtype=np.float32).reshape(20, 30), **options
            )
            group.create_dataset("1", data=np.zeros(30, np.float32), **options)
    return [(folder / f"{name}.h5").read_bytes() for name in ("plain", "chunked")]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def mutant(seeds: list[bytes], rng: random.Random) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(data) + 1)
        length = min(rng.choice((1, 2, 4, 8, 16, 64, 500)), len(data) - place)
        kind = rng.randrange(9)
        if kind <= 1 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 2 and place < len(data):
            data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 3:
            size = rng.choice((1, 2, 4, 8))
            number = (rng.choice(_NUMBERS) + rng.choice((0, 0, 1, -1))) % (1 << 8 * size)
            data[place : place + size] = number.to_bytes(
                size, rng.choice(("little", "little", "big"))
            )
        elif kind == 4:
            data[place : place + rng.randrange(1, 3)] = varint(rng.choice(_NUMBERS))
        elif kind == 5:
            digits = list(re.finditer(rb"-?\d+", bytes(data[:20_000])))
            if digits:
                chosen = rng.choice(digits)
                data[chosen.start() : chosen.end()] = rng.choice(
                    [*_TEXTS, str(rng.choice(_NUMBERS)).encode()]
                )
        elif kind == 6:
            del data[place : place + length]
        elif kind == 7:
            data[place:place] = data[place : place + length] * rng.choice((1, 1, 2, 100))
        elif rng.random() < 0.5:
            del data[place:]
        else:
            other = rng.choice(seeds)
            start = rng.randrange(len(other) + 1)
            data[place : place + length] = other[start : start + length]
    return bytes(data)


def made(target: Target, seed: str) -> bytes:
    rng = random.Random(seed)
    data = mutant(target.seeds, rng)
    return target.mend(data, rng) if target.mend is not None and rng.random() < 0.9 else data


def child() -> None:
    """Reads lines of (target, seed of a mutant), and answers each with a line of JSON."""
    warnings.simplefilter("ignore")
    known = targets()
    with tempfile.TemporaryDirectory(prefix="tensorwire-attack-") as name:
        for target in known.values():  # what is imported and allocated once is no mutant's fault
            target.read(target.seeds[0], Path(name))
        print(
            json.dumps({name: [len(target.seeds), target.share] for name, target in known.items()}),
            flush=True,
        )
        for line in sys.stdin:
            which, seed = json.loads(line)
            data = made(known[which], seed)
            folder = Path(tempfile.mkdtemp(dir=name))
            before, started = _peak(), time.process_time()
            fault = None
            try:
                known[which].read(data, folder)
            except Exception as error:
                fault = f"{type(error).__module__}.{type(error).__name__}: {error}"[:500]
            allowed = MEMORY + 1.1 * ((128 << 20) + 200 * len(data))
            if fault is None and _peak() - before > allowed:
                fault = f"{(_peak() - before) >> 20} MiB for {len(data)} bytes"
            print(json.dumps([fault, time.process_time() - started, _peak()]), flush=True)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Child:
    """The process that reads mutants; another one after a death, a hang or a flood."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.targets: dict[str, Any] = json.loads(self._line(120) or "{}")
        if not self.targets:
            raise SystemExit(
                "attack: the valid inputs cannot be read; run it with --child to see why"
            )

    def read(self, which: str, seed: str) -> tuple[str | None, bool]:
        """(what is wrong, whether the child can go on)"""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([which, seed]).encode() + b"\n")
        self._process.stdin.flush()
        line = self._line(10 * SECONDS)
        if line is None:
            self.end()
            status = self._process.returncode
            return (
                f"killed by signal {-status}"
                if status not in (-9, None)
                else f"no answer after {10 * SECONDS:.0f} s"
            ), False
        fault, seconds, _ = json.loads(line)
        if fault is None and seconds > SECONDS:
            fault = f"{seconds:.1f} s"
        return fault, not (fault or "").endswith("bytes")

    def _line(self, seconds: float) -> bytes | None:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return None
        return self._process.stdout.readline() or None

    def end(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)
        self._process.kill()
        self._process.wait()


def attack(mutants: int, seed: int, only: list[str], tell: Callable[[str], None]) -> dict[str, Any]:
    """Runs it; what was read, and every finding."""
    current = Child()
    chosen = {
        name: share for name, (_, share) in current.targets.items() if not only or name in only
    }
    each = mutants / sum(chosen.values())
    report: dict[str, Any] = {"seed": seed, "targets": {}, "findings": []}
    started = time.monotonic()
    for name, share in chosen.items():
        count, begun = max(1, round(each * share)), time.monotonic()
        for number in range(count):
            which = f"{seed} {name} {number}"
            fault, alive = current.read(name, which)
            if fault is not None:
                report["findings"].append({"target": name, "mutant": which, "fault": fault})
                tell(f"{name}: {fault} ({which})")
            if not alive:
                current.end()
                current = Child()
        report["targets"][name] = count
        tell(f"{name}: {count:,} mutants in {time.monotonic() - begun:.0f} s")
    current.end()
    report["seconds"] = time.monotonic() - started
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=100_000, help="how many in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="only these targets")
    parser.add_argument("--json", metavar="FILE", help="write the report there")
    parser.add_argument(
        "--show",
        nargs=2,
        metavar=("NAME", "MUTANT"),
        help="write the bytes of one mutant to standard output",
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child()
        return 0
    if args.show:
        sys.stdout.buffer.write(made(targets()[args.show[0]], args.show[1]))
        return 0
    report = attack(args.mutants, args.seed, args.only, lambda line: print(line, flush=True))
    if report["findings"]:
        known = targets()
        KEPT.mkdir(parents=True, exist_ok=True)
        for number, finding in enumerate(report["findings"]):
            (KEPT / f"{number:03d}").write_bytes(made(known[finding["target"]], finding["mutant"]))
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n")
    total = sum(report["targets"].values())
    print(
        f"{total:,} mutants of {len(report['targets'])} kinds in {report['seconds']:.0f} s:"
        f" {len(report['findings'])} findings"
    )
    return 1 if report["findings"] else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    raise SystemExit(main())
