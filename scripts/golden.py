"""The golden files of tests/golden: small files of every format, from fixed values.

    .venv/bin/python scripts/golden.py           write the files that are missing
    .venv/bin/python scripts/golden.py --all     write every file again

A golden file is written once and then kept, so that later releases prove that they still read it,
and still write it byte for byte. tests/unit/codecs/test_golden.py does both, and takes values and cases from
this module. The manifest has the SHA-256 of each file, the version of tensorwire that made it, and
the values that a format refuses.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tensorwire as tw

FOLDER = Path(__file__).parent.parent / "tests" / "golden"
MANIFEST = "manifest.json"
_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"
    " complex128 bfloat16 float8_e4m3fn float8_e5m2 int4 uint4"
).split()


def _array(dtype: str, shape: tuple[int, ...], step: int = 7) -> Any:
    """Small numbers of a dtype, by a formula."""
    numbers = np.arange(math.prod(shape)) * step % 11 - (0 if dtype.startswith("u") else 3)
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    return numbers.astype(kind).reshape(shape)


def _sparse(values: Any) -> tw.Sparse:
    shape = [3, 4, *values.shape[1:]]
    return tw.Sparse(np.array([[0, 1], [1, 0], [2, 3]]), values, np.array(shape))


def values() -> dict[str, Any]:
    """The fixed values, by name. Never change one: add another."""
    floats = _array("float32", (3, 4)) / np.float32(3)
    nan = np.array([0x7FF8000000000001, 0xFFF0000000000000, 1 << 63], np.uint64).view(np.float64)
    words = tw.tensor(["", "a", "é中", "tensor"])
    raw = tw.tensor([b"", b"\xff\x00", b"xyz"])
    python = [True, 7, -(1 << 70), 0.1, math.inf, "text", b"\x00\xff", None]
    nested = {
        "layers": [{"kernel": floats, "bias": _array("float16", (4,))}, (floats[0], [], {}, ())],
        "python": python,
        "deep/key": {"a/b": _array("int8", (2,)), "~": words},
    }
    bundle = tw.Bundle(
        {"x": floats, "label": _array("int64", (3,))},
        {"model": "nmt-v2", "note": 'quotes " and é'},
        {"x": {"device": "gpu:0"}},
    )
    kinds = {
        "words": words,
        "raw": raw,
        "sparse": _sparse(_array("float32", (3,))),
        "hybrid": _sparse(_array("int16", (3, 2))),
        "sparse_text": _sparse(tw.tensor(["p", "q", "r"])),
        "ragged": tw.Ragged(_array("float32", (5, 2)), [np.array([0, 2, 2, 5])]),
        "ragged2": tw.Ragged(
            _array("int64", (4,)), [np.array([0, 1, 3], np.int32), np.array([0, 2, 2, 4], np.int32)]
        ),
        "ragged_text": tw.Ragged(tw.tensor([b"a", b"bc", b""]), [np.array([0, 1, 3])]),
    }
    return {
        "dense": floats,
        "bfloat16": _array("bfloat16", (2, 3)),
        "complex": _array("complex128", (2, 2)) * 1j,
        "scalar": np.array(-5, np.int16),
        "empty": np.zeros((0, 3), np.uint8),
        "nan": nan,
        "dtypes": {dtype: _array(dtype, (2, 3)) for dtype in _DTYPES},
        "plain": {"b": _array("int8", (3,)), "a": floats, "é \n": _array("float64", (1,))},
        "columns": {"x": floats, "label": _array("int64", (3,)), "id": tw.tensor(["p", "q", "r"])},
        **kinds,
        "kinds": kinds,
        "nested": nested,
        "python": python,
        "integer_keys": {1: floats, "1": _array("uint8", (2,)), -2: "x"},
        "tied": {"embedding": floats, "head": floats},
        "bundle": bundle,
        "named": tw.Bundle({"kernel": floats}, {"a": "b"}, {"kernel": {"device": "cpu"}}),
        "names": {"../x": floats[0], "100%": floats[1], "a/b": {"c": floats[2]}},
        "large": {"w": np.arange(1100, dtype=np.float32) % 17, "s": ["x"] * 3},
    }


class Case(NamedTuple):
    """One golden file, or the files of one value."""

    name: str
    value: str
    write: Callable[[Path, Any], Any]
    """Writes the value to a path."""
    read: Callable[[Path, Any], Any]
    """Reads it again. The value is for formats whose bytes do not say dtype and shape."""
    exact: bool = True
    """Whether the bytes depend on tensorwire alone, and not on the version of a library."""
    expected: Callable[[Any], Any] = lambda value: value
    converted: bool = False
    """Whether the file is that of another case, made in another way."""


def _load(path: Path, value: Any, format: str | None = None, **options: Any) -> Any:
    return tw.load(path, format, **options)


def _case(suffix: str, value: str, *, label: str = "", exact: bool = True, **options: Any) -> Case:
    format = options.pop("format", suffix)

    def write(path: Path, content: Any) -> None:
        tw.save(path, content, format, durable=False, **options)

    def read(path: Path, content: Any) -> Any:
        asked: dict[str, Any] = {}
        if format == "raw":
            asked = {"dtype": content.dtype.name, "shape": content.shape}
        if format == "tensorproto" and isinstance(content, tw.Strings) and content.text:
            asked = {"text": True}
        return tw.load(path, format, **asked)

    name = f"{value}{'-' + label if label else ''}.{suffix}"
    return Case(name, value, write, read, exact)


def _converted(suffix: str, value: str, same: bool = True, **options: Any) -> Case:
    """A file that `convert` writes tensor by tensor; the same one that `save` writes, or not."""
    label = "".join(f"-{option}" for option in options)

    def write(path: Path, content: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tw.save(f"{folder}/x.safetensors", content, durable=False)
            tw.convert(f"{folder}/x.safetensors", path, durable=False, **options)

    name = f"{value}{label if same else '-converted' + label}.{suffix}"

    def read(path: Path, content: Any) -> Any:
        found = tw.load(path)
        return found if same else {name: found[name] for name in content}

    return Case(name, value, write, read, converted=same)


def _quantized(scheme: str) -> Case:
    return Case(
        f"dense-{scheme}.safetensors",
        "dense",
        lambda path, content: tw.save(path, content, quantize=scheme, durable=False),
        _load,
        expected=lambda content: tw.dequantize(tw.quantize(content, scheme)),
    )


def _write_records(path: Path, content: Any) -> None:
    tw.write_examples(path, content, schema_file=False)


def _rows(path: Path, content: Any) -> Any:
    """The columns of a file of records, as dicts of what they were."""
    (batch,) = tw.read_examples(path, batch_size=100)
    found = {name: batch[name] for name in content}
    return found | {"id": tw.tensor([text.decode() for text in found["id"].tolist()])}


def _write_lines(path: Path, content: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _write_records(Path(folder) / "x.tfrecord", content)
        tw.convert(f"{folder}/x.tfrecord", f"{folder}/out", to="jsonl")
        (shard,) = Path(folder).glob("out/*-of-*.jsonl")
        path.write_bytes(shard.read_bytes())


def _read_lines(path: Path, content: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        tw.convert(path, f"{folder}/out", to="tfrecord")
        (shard,) = Path(folder).glob("out/*-of-*.tfrecord")
        found = _rows(shard, content)
        # Lines do not say that all rows have the same length.
        return found | {"x": found["x"].values.reshape(content["x"].shape)}


def _shards(value: str) -> Case:
    """A model in several files with an index."""

    def write(path: Path, content: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tw.save(f"{folder}/x.safetensors", content, durable=False)
            tw.convert(f"{folder}/x.safetensors", path, shard_size=60, durable=False)

    def read(path: Path, content: Any) -> Any:
        found = tw.load(path)
        return {name: found[name] for name in content}

    return Case(f"{value}-sharded.safetensors.index.json", value, write, read)


def cases() -> Iterator[Case]:
    """Every golden file."""
    # The bytes of these formats are ours alone: every value, or the error that refuses it.
    alone = list(values()["kinds"])
    names = [name for name in values() if name not in ("large", *alone)]
    for format in ("safetensors", "npz", "npy", "protobuf", "json", "tensorproto", "checkpoint"):
        suffix = {"tensorproto": "pb", "protobuf": "tensor", "checkpoint": "ckpt"}
        for value in names:
            yield _case(suffix.get(format, format), value, format=format)
    for value in alone:
        yield _case("pb", value, format="tensorproto")
    for value in names:
        yield _case("example", value)
        yield _case("raw", value)
    for value in ("dense", "columns", "kinds", "nested", "bundle"):
        # pyarrow writes these, and each of its versions as it likes.
        yield _case("arrow", value, exact=False)
        if value != "kinds":
            yield _case("arrow", value, label="stream", exact=False, stream=True)
        yield _case("parquet", value, exact=False)
    for value in ("dense", "dtypes", "nested", "bundle"):
        yield _case("safetensors", value, label="checksum", checksum=True)
        yield _case("npy", value, label="checksum", checksum=True)
        if value != "bundle":  # which has metadata of its own
            yield _case("safetensors", value, label="metadata", metadata={"model": "x"})
            yield _case("npz", value, label="metadata", metadata={"model": "x"})
    yield _case("safetensors", "large", label="shuffle", shuffle=True)
    yield _case("safetensors", "large", label="shuffle-checksum", shuffle=True, checksum=True)
    for packing in ("zstd", "gzip", "lz4"):
        options = {"compression": packing, "per_tensor": True}
        yield _case("safetensors", "large", label=f"packed-{packing}", exact=False, **options)
    yield _case("npz", "large", label="deflated", exact=False, compression="zlib")
    yield _case("npz", "plain", label="deflated", exact=False, compression="zlib")
    for scheme in ("int8", "uint8", "bfloat16"):
        yield _quantized(scheme)
    yield _case("json", "nested", label="indent", indent=2)
    yield _case("ckpt", "plain", label="graphless", format="checkpoint", graph=False)
    yield _case("ckpt", "plain", label="shards", format="checkpoint", shards=2)
    for value in ("plain", "dtypes", "kinds", "nested", "bundle", "tied", "names"):
        yield _converted("safetensors", value)
        yield _converted("npz", value)
        yield _converted("ckpt", value, same=value not in ("plain", "dtypes", "tied"))
    yield _converted("safetensors", "nested", checksum=True)
    yield _converted("safetensors", "large", shuffle=True)
    yield _shards("plain")
    yield Case("columns.tfrecord", "columns", _write_records, _rows)
    yield Case("columns.jsonl", "columns", _write_lines, _read_lines)


def write(case: Case, content: Any, folder: Path) -> dict[str, bytes]:
    """Writes a case into a folder of its own, and returns its files by name."""
    case.write(folder / case.name, content)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="write every file again")
    everything = parser.parse_args().all
    FOLDER.mkdir(exist_ok=True)
    manifest: dict[str, dict[str, Any]] = {"refused": {}, "files": {}}
    if (FOLDER / MANIFEST).exists() and not everything:
        manifest = json.loads((FOLDER / MANIFEST).read_text())
    contents = values()
    for case in cases():
        known = [*manifest["refused"], *(entry["case"] for entry in manifest["files"].values())]
        if case.converted or case.name in known:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                files = write(case, contents[case.value], Path(folder))
            except tw.EncodeError as error:
                manifest["refused"][case.name] = str(error)
                continue
        for name, data in files.items():
            (FOLDER / name).write_bytes(data)
            entry = {"case": case.name, "version": tw.__version__, "sha256": sha256(data)}
            manifest["files"][name] = entry
    parts = []
    for part, entries in manifest.items():
        lines = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items()]
        parts.append(f"{json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n}")
    (FOLDER / MANIFEST).write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
