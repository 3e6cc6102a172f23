"""Paths of a dataset: glob patterns, shard names and the names of sidecar files."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .. import storage
from .._errors import EncodeError, UsageError
from ..transforms.compression import SUFFIXES
from ..wire.crc import crc32c
from .schema import FileMark

BOOKS = "_tensorwire"
"""The folder of a dataset's manifest, inside the dataset's folder."""
INDEX = ".idx"
SCHEMA = ".schema.json"
_FEW = 4
"""A folder with more files than this is listed once, instead of one stat per file."""
_SHARD = re.compile(r"-\d{5,}-of-\d{5,}(?=\.|$)")


def expand(where: Any) -> list[str]:
    """Return the files that a path, a glob pattern or a list of either names.

    The matches of a pattern are sorted by name; a list keeps its order.

    >>> expand("no such file")
    ['no such file']
    """
    if isinstance(where, (str, os.PathLike)):
        path = os.fspath(where)
        if not isinstance(path, str):
            raise UsageError(f"a path must be str, not bytes: {path!r}")
        if not storage.is_url(path) and os.path.isdir(path):
            raise IsADirectoryError(
                errno.EISDIR,
                "this is a folder; name its files with a pattern",
                os.path.join(path, "*.tfrecord"),
            )
        if not storage.is_pattern(path):
            return [path]
        names = [entry.path for entry in storage.find(path) if is_data(entry.path, path)]
        if not names:
            raise FileNotFoundError(f"no data file matches {storage.shown(path)!r}")
        _check_one_set(names)
        return names
    if isinstance(where, Iterable) and not isinstance(where, (bytes, bytearray)):
        paths = [path for item in where for path in expand(item)]
        if not paths:
            raise UsageError("the list of files is empty")
        return paths
    raise UsageError(f"expected a path, a pattern or a list of them, not {type(where).__name__}")


def is_data(path: str, *patterns: str) -> bool:
    """Return whether a file that a pattern or folder matches is data.

    Indexes, schemas, manifests and hidden files are not. A name that begins with "_" is data only
    if a pattern asks for such names.

    >>> [is_data(path) for path in ("a/b.tfrecord", "a/b.tfrecord.idx", "a/_SUCCESS",
    ...     "a/_tensorwire/shards.jsonl")]
    [True, False, False, False]
    """
    folder, _, name = path.rpartition("/")
    is_ours = name.endswith((INDEX, SCHEMA)) or BOOKS in folder.split("/")
    underscores = any(pattern.rpartition("/")[2][:1] in ("_", "[") for pattern in patterns)
    return (
        name[:1] != "."
        and (name[:1] != "_" or (underscores and name != "_SUCCESS"))
        and not is_ours
    )


def _check_one_set(names: list[str]) -> None:
    """Raise EncodeError if the files are shards of two different writes of one dataset.

    Its records would be read twice.
    """
    counts: dict[str, str] = {}
    for name in names:
        match = _SHARD.search(os.path.basename(name))
        count = match[0].rpartition("-")[2] if match is not None else ""
        if count and (other := counts.setdefault(dataset(name), count)) != count:
            raise EncodeError(
                f"the pattern matches shards of {other} and shards of {count} files",
                path=name,
                hint="remove the old ones, or use a pattern that matches one set",
            )


def shard(path: str, number: int, count: int) -> str:
    """Return the name of one of many files, with the number before the suffix.

    >>> shard("data/train.tfrecord.gz", 7, 16)
    'data/train-00007-of-00016.tfrecord.gz'
    """
    root, suffix = os.path.splitext(path)
    if suffix in SUFFIXES:
        root, inner = os.path.splitext(root)
        suffix = inner + suffix
    return f"{root}-{number:05d}-of-{count:05d}{suffix}"


def dataset(path: str) -> str:
    """Return the name that all shards share.

    >>> dataset("data/train-00007-of-00016.tfrecord.gz")
    'data/train.tfrecord.gz'
    """
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{_SHARD.sub('', name)}" if "-of-" in name else path


def schema_beside(path: str) -> str:
    """Return the path of a file's schema: its own sidecar file if it exists, else the dataset's.

    >>> schema_beside("train-00007-of-00016.tfrecord")
    'train.tfrecord.schema.json'
    """
    own = path + SCHEMA
    return own if storage.stat(own) is not None else dataset(path) + SCHEMA


def schemas_beside(names: Sequence[str]) -> list[str | None]:
    """Return the path of the schema of each file, None where there is none.

    A folder with many of the files is listed once.
    """
    counts = Counter(name.rpartition("/")[0] for name in names)
    listings = {
        folder: storage.names_within(folder, SCHEMA)
        for folder, count in counts.items()
        if count > _FEW and not _is_web(folder)
    }
    if len(listings) == len(counts) and not any(listings.values()):
        return [None] * len(names)

    options = [(name + SCHEMA, dataset(name) + SCHEMA) for name in names]
    unlisted = list(
        dict.fromkeys(
            place for pair in options for place in pair if place.rpartition("/")[0] not in listings
        )
    )
    existing = {
        place
        for place, stat in zip(unlisted, storage.side_by_side(storage.stat, unlisted), strict=True)
        if stat is not None
    }

    def exists(place: str) -> bool:
        folder, _, name = place.rpartition("/")
        return name in listings[folder] if folder in listings else place in existing

    return [next(filter(exists, pair), None) for pair in options]


def _is_web(url: str) -> bool:
    """Return whether a URL is that of a web server, which cannot list its files."""
    return url.startswith(("http:", "https:"))


def mark(path: str) -> FileMark:
    """Return the size of a file and a checksum of its first bytes.

    A file with a different mark was rewritten or damaged.
    """
    with storage.source(path) as file:
        return FileMark(file.size, crc32c(file.read_at(0, min(64, file.size))))


def index_beside(path: str) -> str:
    """Return the path of a file's index.

    >>> index_beside("train.tfrecord")
    'train.tfrecord.idx'
    """
    return path + INDEX
