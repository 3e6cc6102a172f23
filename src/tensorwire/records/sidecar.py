"""Sidecar files of record files: the schema `NAME.schema.json`.

A sidecar file lists the files that it was written for, each with its size and a checksum of its
first bytes. The sidecar file of a dataset of several shards, `NAME.schema.json` without their
numbers, has such a mark for each shard. If one of the files that are read has a different mark, the
whole sidecar file is ignored with a warning, and its files are read like files without one: a
schema that is true for only some shards would give wrong columns for others.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from .. import storage
from .._errors import EncodeError, SchemaError, TensorwireError
from . import pack, paths
from .record_reader import RecordReader
from .schema import FLOAT, INT64, Feature, FileMark, Schema

_OBJECTS = 8
"""The maximum number of objects that are compared with their marks: each takes a request."""
_FILES = 1024
"""The maximum number of local files that are compared with their marks."""


class Sidecars(NamedTuple):
    """The schemas of files by the path of the sidecar file, and the files without one."""

    schemas: dict[str, Schema]
    without: list[str]

    def united(self, cast: Container[str] = ()) -> Schema:
        """Return a schema that is true for the files of all sidecar files."""
        first, *others = self.schemas.values()
        return first if all(other == first for other in others) else union(self.schemas, cast)


def find(names: Sequence[str]) -> Sidecars:
    """Return the sidecar files of files.

    A sidecar file that does not match its files is ignored with a warning.
    """
    sidecar_paths = paths.schemas_beside(names)
    owners: dict[str, list[str]] = {}
    for name, sidecar_path in zip(names, sidecar_paths, strict=True):
        if sidecar_path is not None:
            owners.setdefault(sidecar_path, []).append(name)
    loaded = zip(owners, storage.side_by_side(Schema.load, list(owners)), strict=True)
    schemas = {
        sidecar_path: schema
        for sidecar_path, schema in loaded
        if _matches(sidecar_path, schema, owners[sidecar_path])
    }
    pairs = zip(names, sidecar_paths, strict=True)
    return Sidecars(schemas, [name for name, sidecar_path in pairs if sidecar_path not in schemas])


def _matches(sidecar_path: str, schema: Schema, names: list[str]) -> bool:
    """Return whether a schema was written with these files, as far as it records that."""
    if not schema.files:
        return True
    most = _OBJECTS if storage.is_url(sidecar_path) else _FILES
    for name in names[:: -(-len(names) // most)]:
        if not _is_marked(name, schema.files):
            warnings.warn(
                f"ignoring the schema file {storage.shown(sidecar_path)}: {storage.shown(name)} is"
                " not the file that it was written with. Remove the schema file, or pass schema=",
                stacklevel=2,
            )
            return False
    return True


def _is_marked(name: str, marks: dict[str, FileMark]) -> bool:
    """Return whether a schema was written with a file, perhaps under another name."""
    mark, recorded = paths.mark(name), marks.get(os.path.basename(name))
    for size, head in [recorded] if recorded is not None else set(marks.values()):
        if size in (None, mark.size) and head in (None, mark.head):
            return True
    cut = (
        recorded is not None
        and recorded.head == mark.head
        and (recorded.size or 0) > (mark.size or 0)
    )
    # A damaged file has another mark too. Its reader reports the damage, and the schema may still be
    # right.
    try:
        reader = iter(RecordReader([name]))
        deque(reader, maxlen=0) if cut else next(reader, None)
    except TensorwireError:
        return True
    return False


def known(
    names: Sequence[str],
    sample: Callable[[list[str]], Schema],
    cast: Container[str] = (),
) -> Schema:
    """Return the schema of all files, from their sidecar files and from a `sample` of the others.

    Features named by `cast` may be integers in some files and floats in others; they become floats.
    """
    sidecars = find(names)
    if not sidecars.schemas:
        return sample(sidecars.without)
    if not sidecars.without:
        return sidecars.united(cast)
    sampled = sample(sidecars.without)
    shown = {"a sample of the files": sampled} if sampled or sampled.sequences else {}
    return union(sidecars.schemas | shown, cast)


def described(names: Sequence[str], sampled: Schema) -> Schema:
    """Return the schema that readers of these files use, with the counts of a sample."""
    sidecars = find(names)
    if not sidecars.schemas:
        return sampled
    schema = (
        sidecars.united()
        if not sidecars.without
        else union({**sidecars.schemas, "a sample of the files": sampled})
    )

    def shown(features: Mapping[str, Feature], seen: Mapping[str, Feature]) -> dict[str, Feature]:
        return {
            name: replace(feature, seen=seen[name].seen if name in seen else {})
            for name, feature in features.items()
        }

    return Schema(
        shown(schema, sampled),
        shown(schema.sequences, sampled.sequences),
        records=sampled.records,
        complete=sampled.complete,
    )


def union(schemas: dict[str, Schema], cast: Container[str] = ()) -> Schema:
    """Return a schema that is true for the records of all schemas.

    A feature that some lack is not required, and lists of different lengths have any length.

    >>> a, b = Schema({"x": Feature("float", (4,), required=True)}), Schema({"x": Feature("float",
    ...     (3,)), "y": Feature("int64", ())})
    >>> dict(union({"a": a, "b": b}))
    {'x': Feature(float (None,)), 'y': Feature(int64 ())}
    """
    (first, schema), *others = schemas.items()
    features, sequences = dict(schema), dict(schema.sequences)
    for name, other in others:
        try:
            features = _both(features, dict(other), cast)
            sequences = _both(sequences, dict(other.sequences))
        except EncodeError as error:
            raise SchemaError(
                f"the schemas {first} and {name} contradict each other: {error.message}",
                tensor=error.tensor,
                hint="pass schema=",
            ) from None
    return Schema(features, sequences)


def _both(
    mine: dict[str, Feature],
    theirs: dict[str, Feature],
    cast: Container[str] = (),
) -> dict[str, Feature]:
    """Return the features of both sides, merged where both have one."""
    merged = {name: replace(feature, required=False) for name, feature in (mine | theirs).items()}
    for name in mine.keys() & theirs.keys():
        a, b = mine[name], theirs[name]
        if name in cast and {a.kind, b.kind} == {INT64, FLOAT}:
            a, b = (Feature(FLOAT, feature.shape) for feature in (a, b))
        try:
            merged[name] = (
                a
                if a == b
                else pack.merge(
                    replace(a, default=None, seen={}), replace(b, default=None, seen={})
                )
            )
        except EncodeError as error:
            raise error.add(tensor=name) from None
    return merged
