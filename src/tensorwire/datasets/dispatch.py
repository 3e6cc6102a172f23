"""Dispatch of `tw.convert` and `tw.verify` to a tensor file or a dataset."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from .._errors import UsageError, choices
from .._limits import Limits
from ..api import summary
from ..api.signatures import spelled
from ..codecs.identify import Allowed, by_name, has_manifest, identify
from ..records.summary import RecordVerification
from . import signatures, tensor_files
from .converting import convert as convert_dataset
from .verification import DatasetVerification, verify_dataset

_RECORDS = ("tfrecord", "jsonl")
_OPTIONS = set(
    "cast columns engine engine_options memory on_corrupt resume schema shards tensors verify where"
    " workers".split()
)
"""The options that only the conversion of a dataset has."""


@spelled(signatures.convert)
def convert(src: Any, dst: str | os.PathLike[str], to: str | None = None, **options: Any) -> Any:
    """Converts a tensor file, or a dataset of many files, to another format.

    A dataset is anything that is read as records: TFRecord files and JSON lines, a folder, a glob
    pattern or a list of files, or any source if an option is given that only datasets have (shards,
    where, shuffle, columns, schema, engine ...). The options are those of
    `tensorwire.datasets.convert` (docs/datasets.md), and the result is a `DatasetReport`, or a
    `Plan` with `dry_run=True`.

    Every other source is a file of tensors by name. The options `rename`, `dtype`, `include`,
    `exclude`, `shard_size`, `quantize` ... are those of
    `tensorwire.datasets.tensor_files.convert` (docs/conversion.md), and the result is a
    `ConversionReport`.

    Raises `UsageError` for options that do not fit each other or the target format,
    `UnknownFormatError` if neither `to` nor the name of `dst` is a known format, and
    `FileExistsError` if `dst` exists and `overwrite` is not set.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> tw.save(f"{folder}/a.npz", {"model.w": np.zeros((2, 2), np.float32)})
    >>> report = tw.convert(f"{folder}/a.npz", f"{folder}/a.safetensors", rename="s/^model.//")
    >>> [entry.name for entry in report.entries]
    ['w']
    >>> _ = tw.write_examples(f"{folder}/b.tfrecord", {"x": np.arange(10)}, shards=2)
    >>> tw.convert(f"{folder}/b-*.tfrecord", f"{folder}/b", to="jsonl", where="x > 3",
    ...     workers=0).records
    6
    """
    if not _asks_for_rows(src, dst, to, options):
        with identify(src, options.get("format")) as source:
            if source.kind != "rows" or source.layout == "bytes":
                return tensor_files.convert(src, dst, to, source=source, **options)
    _check_row_options(options)
    return convert_dataset(src, dst, to, **options)


def _check_row_options(options: Mapping[str, Any]) -> None:
    """Raises UsageError for an option that the conversion of a dataset does not have."""
    known = inspect.signature(convert_dataset).parameters
    for name in options:
        if name in known:
            continue
        if name not in inspect.signature(convert).parameters:
            raise UsageError(f"unknown option {name!r}{choices(name, known)}")
        raise UsageError(
            f"{name}= is an option for tensors by name, but this call converts rows",
            hint="tensorwire.datasets.convert has the options for rows, and"
            " tensorwire.datasets.tensor_files.convert those for the tensors of one file",
        )


@spelled(signatures.verify)
def verify(
    where: Any,
    format: Allowed = None,
    *,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> summary.Verification | RecordVerification | DatasetVerification:
    """Reads all of a file, or all shards of a dataset, and returns whether they are intact.

    The result is true if they are, and lists the problems if they are not. A file is read one
    tensor, or block of records, at a time. The folder of a dataset that `tw.convert` wrote is
    compared with its manifest: every shard must exist with its size and checksum, and no other
    file may be present that readers of the folder would read. `progress` is called with (bytes
    done, bytes in total).

    Raises `UnknownFormatError` if the format is not recognized and `FileNotFoundError` if there is
    no such file. Damaged data does not raise.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> tw.save(f"{folder}/a.npz", {"x": np.arange(3)})
    >>> bool(tw.verify(f"{folder}/a.npz"))
    True
    >>> _ = tw.write_examples(f"{folder}/b.tfrecord", {"x": np.arange(10)})
    >>> _ = tw.convert(f"{folder}/b.tfrecord", f"{folder}/b", to="jsonl", workers=0)
    >>> result = tw.verify(f"{folder}/b")
    >>> result.ok, result.shards, result.records
    (True, 1, 10)
    """
    is_path = isinstance(where, (str, os.PathLike))
    if format is None and is_path and has_manifest(os.fspath(where)):
        return verify_dataset(where, progress)
    verify_file: Callable[..., summary.Verification | RecordVerification] = summary.verify
    return verify_file(where, format, limits=limits, progress=progress, **options)


def is_dataset(src: Any, dst: Any, to: str | None, options: Mapping[str, Any]) -> bool:
    """Whether a conversion is one of records, and not of tensors by name.

    >>> is_dataset("a.safetensors", "b.npz", None, {}), is_dataset("a.parquet", "b.tfrecord", None,
    ...     {})
    (False, True)
    >>> is_dataset("a.npz", "b", None, {"shards": 2}), is_dataset("a.txt", "b.parquet", None,
    ...     {"format": "jsonl"})
    (True, True)
    """
    if _asks_for_rows(src, dst, to, options):
        return True
    if not isinstance(src, (str, os.PathLike)):
        return False
    try:
        with identify(src, options.get("format")) as source:
            return source.kind == "rows"
    except FileNotFoundError:
        return False


def _asks_for_rows(src: Any, dst: Any, to: str | None, options: Mapping[str, Any]) -> bool:
    """Whether names and options alone show that a conversion is one of records."""
    # An integer is the seed of a dataset's shuffle. True is the byte shuffle filter of tensors.
    return (
        type(options.get("shuffle")) is int
        or bool(_OPTIONS & set(options))
        or not {options.get("format"), to or _named(dst), _named(src)}.isdisjoint(_RECORDS)
        or isinstance(src, (list, tuple))
    )


def _named(path: Any) -> str | None:
    return by_name(path)[0] if isinstance(path, (str, os.PathLike)) else None
