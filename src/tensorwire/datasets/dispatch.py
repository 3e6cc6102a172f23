"""`tw.convert` and `tw.verify`: one name for a tensor file and for a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

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
"""What only datasets have."""


@spelled(signatures.convert)
def convert(src: Any, dst: str | os.PathLike[str], to: str | None = None, **options: Any) -> Any:
    """Writes a tensor file, or a dataset of many files, in another format.

    A dataset is what is read as records: TFRecord files and JSON lines, a folder, a pattern or a
    list of files, or anything with an option that only datasets have (shards, where, shuffle,
    columns, schema, engine ...). Its options, and what is promised, are those of
    `tensorwire.datasets.convert` (docs/datasets.md). Everything else is a file of tensors by name:
    `rename`, `dtype`, `include`, `exclude`, `shard_size`, `quantize` ... are those of
    `tensorwire.datasets.tensor_files.convert` (docs/conversion.md).

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> tw.save(f"{folder}/a.npz", {"model.w": np.zeros((2, 2), np.float32)})
    >>> [entry.name for entry in convert(f"{folder}/a.npz", f"{folder}/a.safetensors",
    ...     rename="s/^model\\\\.//").entries]
    ['w']
    >>> _ = tw.write_examples(f"{folder}/b.tfrecord", {"x": np.arange(10)}, shards=2)
    >>> convert(f"{folder}/b-*.tfrecord", f"{folder}/b", to="jsonl", where="x > 3",
    ...     workers=0).records
    6
    """
    if is_dataset(src, dst, to, options):
        return convert_dataset(src, dst, to, **options)
    return tensor_files.convert(src, dst, to, **options)


@spelled(signatures.verify)
def verify(
    where: Any,
    format: Allowed = None,
    *,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> summary.Verification | RecordVerification | DatasetVerification:
    """Reads everything in a file, or in the folder of a dataset, and says whether it is whole.

    A file is read one tensor, or block of records, at a time. The folder of a dataset that
    `tw.convert` wrote is compared with its manifest: every shard must be there with its size and
    checksum, and nothing else that would be read with them. `progress` is called with (bytes done,
    bytes in all).

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> tw.save(f"{folder}/a.npz", {"x": np.arange(3)})
    >>> bool(verify(f"{folder}/a.npz"))
    True
    >>> _ = tw.write_examples(f"{folder}/b.tfrecord", {"x": np.arange(10)})
    >>> _ = convert(f"{folder}/b.tfrecord", f"{folder}/b", to="jsonl", workers=0)
    >>> found = verify(f"{folder}/b")
    >>> found.ok, found.shards, found.records
    (True, 1, 10)
    """
    is_path = isinstance(where, (str, os.PathLike))
    if format is None and is_path and has_manifest(os.fspath(where)):
        return verify_dataset(where, progress)
    verify_file: Callable[..., summary.Verification | RecordVerification] = summary.verify
    return verify_file(where, format, limits=limits, progress=progress, **options)


def is_dataset(src: Any, dst: Any, to: str | None, options: Mapping[str, Any]) -> bool:
    """Whether records are meant, and not tensors by name.

    >>> is_dataset("a.safetensors", "b.npz", None, {}), is_dataset("a.parquet", "b.tfrecord", None,
    ...     {})
    (False, True)
    >>> is_dataset("a.npz", "b", None, {"shards": 2}), is_dataset("a.txt", "b.parquet", None,
    ...     {"format": "jsonl"})
    (True, True)
    """
    seeded = type(options.get("shuffle")) is int  # True is how bytes of tensors are arranged
    if (
        seeded
        or _OPTIONS & set(options)
        or {options.get("format"), to or _named(dst)} & set(_RECORDS)
    ):
        return True
    if isinstance(src, (list, tuple)):
        return True
    if not isinstance(src, (str, os.PathLike)):
        return False
    path = os.fspath(src)
    if _named(path) in _RECORDS:
        return True
    try:
        with identify(path, options.get("format")) as found:
            return found.kind == "rows"
    except FileNotFoundError:
        return False


def _named(path: Any) -> str | None:
    return by_name(path)[0] if isinstance(path, (str, os.PathLike)) else None
