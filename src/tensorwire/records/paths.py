"""Which files a dataset has, and what the files beside them are called."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .. import storage
from .._errors import EncodeError
from ..transforms.compression import SUFFIXES
from ..wire.crc import crc32c
from .schema import FileMark

BOOKS = "_tensorwire"
"""The folder of a dataset's manifest, inside the dataset's."""
INDEX = ".idx"
SCHEMA = ".schema.json"
_FEW = 4
"""Files of one folder from which on it is listed."""
_SHARD = re.compile(r"-\d{5,}-of-\d{5,}(?=\.|$)")


def expand(where: Any) -> list[str]:
    """The files that a path, a pattern, or a list of either names: patterns in the order of names,
    lists in their own.

    >>> expand("no such file")
    ['no such file']
    """
    if isinstance(where, (str, os.PathLike)):
        path = os.fspath(where)
        if not isinstance(path, str):
            raise EncodeError(f"paths are str, not bytes: {path!r}")
        if not storage.is_url(path) and os.path.isdir(path):
            raise IsADirectoryError(
                errno.EISDIR,
                "a folder; name its files with a pattern",
                os.path.join(path, "*.tfrecord"),
            )
        if not storage.is_pattern(path):
            return [path]
        names = [entry.path for entry in storage.find(path) if is_data(entry.path, path)]
        if not names:
            raise FileNotFoundError(f"no file of data matches {storage.shown(path)!r}")
        _check_one_set(names)
        return names
    if isinstance(where, Iterable) and not isinstance(where, (bytes, bytearray)):
        paths = [path for part in where for path in expand(part)]
        if not paths:
            raise EncodeError("an empty list of files")
        return paths
    raise EncodeError(f"a path, a pattern or a list of them, not {type(where).__name__}")


def is_data(path: str, *patterns: str) -> bool:
    """Whether a file that a pattern or folder matches is data: indexes, schemas, manifests and
    hidden files are not. A name that begins with "_" is, if a pattern asks for such names.

    >>> [is_data(path) for path in ("a/b.tfrecord", "a/b.tfrecord.idx", "a/_SUCCESS",
    ...     "a/_tensorwire/shards.jsonl")]
    [True, False, False, False]
    """
    folder, _, name = path.rpartition("/")
    is_ours = name.endswith((INDEX, SCHEMA)) or BOOKS in folder.split("/")
    asked = any(pattern.rpartition("/")[2][:1] in ("_", "[") for pattern in patterns)
    return name[:1] != "." and (name[:1] != "_" or (asked and name != "_SUCCESS")) and not is_ours


def _check_one_set(names: list[str]) -> None:
    """A pattern that matches the shards of two writings of one dataset would read its records
    twice.
    """
    counts: dict[str, str] = {}
    for name in names:
        match = _SHARD.search(os.path.basename(name))
        count = match[0].rpartition("-")[2] if match is not None else ""
        if count and (other := counts.setdefault(dataset(name), count)) != count:
            raise EncodeError(
                f"the pattern matches shards of {other} and of {count}; remove the old ones, or say"
                " which",
                path=name,
            )


def shard(path: str, number: int, count: int) -> str:
    """The name of one of many files, with the number before the suffix.

    >>> shard("data/train.tfrecord.gz", 7, 16)
    'data/train-00007-of-00016.tfrecord.gz'
    """
    root, suffix = os.path.splitext(path)
    if suffix in SUFFIXES:
        root, inner = os.path.splitext(root)
        suffix = inner + suffix
    return f"{root}-{number:05d}-of-{count:05d}{suffix}"


def dataset(path: str) -> str:
    """The name that all shards share.

    >>> dataset("data/train-00007-of-00016.tfrecord.gz")
    'data/train.tfrecord.gz'
    """
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{_SHARD.sub('', name)}" if "-of-" in name else path


def schema_beside(path: str) -> str:
    """Where the schema of a file is kept: its own, if it has one, else that of the dataset whose
    shard it is.

    >>> schema_beside("train-00007-of-00016.tfrecord")
    'train.tfrecord.schema.json'
    """
    own = path + SCHEMA
    return own if storage.stat(own) is not None else dataset(path) + SCHEMA


def schemas_beside(names: Sequence[str]) -> list[str | None]:
    """The schema of each of many files, None where there is none. A folder of many is read once."""
    counts = Counter(name.rpartition("/")[0] for name in names)
    known = {
        folder: storage.names_within(folder, SCHEMA)
        for folder, count in counts.items()
        if count > _FEW and not _is_web(folder)
    }
    if len(known) == len(counts) and not any(known.values()):
        return [None] * len(names)

    options = [(name + SCHEMA, dataset(name) + SCHEMA) for name in names]
    asked = list(
        dict.fromkeys(
            place for pair in options for place in pair if place.rpartition("/")[0] not in known
        )
    )
    there = {
        place
        for place, found in zip(asked, storage.side_by_side(storage.stat, asked), strict=True)
        if found is not None
    }

    def is_there(place: str) -> bool:
        folder, _, name = place.rpartition("/")
        return name in known[folder] if folder in known else place in there

    return [next(filter(is_there, pair), None) for pair in options]


def _is_web(url: str) -> bool:
    """A web server does not say what it has."""
    return url.startswith(("http:", "https:"))


def mark(path: str) -> FileMark:
    """The size of a file and a checksum of its first bytes.

    A file with another mark was written anew, or is damaged.
    """
    with storage.source(path) as file:
        return FileMark(file.size, crc32c(file.read_at(0, min(64, file.size))))


def index_beside(path: str) -> str:
    """Where the index of a file is kept.

    >>> index_beside("train.tfrecord")
    'train.tfrecord.idx'
    """
    return path + INDEX
