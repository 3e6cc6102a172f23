"""Sidecar files of record files: the schema `NAME.schema.json`.

A sidecar says for which files it was written, by their sizes and a checksum of the first bytes of
each. The sidecar of a dataset of several shards, `NAME.schema.json` without their numbers, has a
mark for each shard. If one of the files that are read has another mark, the whole sidecar is
ignored with a warning, and its files are read like files without a sidecar: a schema that is true
of some shards only would give wrong columns for others.
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
"""Objects of a sidecar that are compared with its marks: each is a request."""
_FILES = 1024
"""Local files of a sidecar that are compared with its marks."""


class Sidecars(NamedTuple):
    """The schemas of files, by the path of the sidecar; and the files that have none."""

    schemas: dict[str, Schema]
    without: list[str]

    def united(self, cast: Container[str] = ()) -> Schema:
        """What is true of the files of all sidecars."""
        first, *others = self.schemas.values()
        return first if all(other == first for other in others) else union(self.schemas, cast)


def find(names: Sequence[str]) -> Sidecars:
    """The sidecars of files. One that does not match its files is ignored with a warning."""
    places = paths.schemas_beside(names)
    owners: dict[str, list[str]] = {}
    for name, place in zip(names, places, strict=True):
        if place is not None:
            owners.setdefault(place, []).append(name)
    loaded = zip(owners, storage.side_by_side(Schema.load, list(owners)), strict=True)
    schemas = {place: schema for place, schema in loaded if _matches(place, schema, owners[place])}
    pairs = zip(names, places, strict=True)
    return Sidecars(schemas, [name for name, place in pairs if place not in schemas])


def _matches(place: str, schema: Schema, names: list[str]) -> bool:
    """Whether a schema was written with these files, as far as it says."""
    if not schema.files:
        return True
    most = _OBJECTS if storage.is_url(place) else _FILES
    for name in names[:: -(-len(names) // most)]:
        if not _is_marked(name, schema.files):
            warnings.warn(
                f"{storage.shown(place)} is ignored: {storage.shown(name)} is not the file that "
                "it was written with. Remove the schema file, or pass schema=",
                stacklevel=2,
            )
            return False
    return True


def _is_marked(name: str, marks: dict[str, FileMark]) -> bool:
    """Whether a file is one of those that a schema was written with, perhaps under another name."""
    mark, known = paths.mark(name), marks.get(os.path.basename(name))
    for size, head in [known] if known is not None else set(marks.values()):
        if size in (None, mark.size) and head in (None, mark.head):
            return True
    cut = known is not None and known.head == mark.head and (known.size or 0) > (mark.size or 0)
    try:  # If the file is damaged, its reader says so; the schema may still be right.
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
    """The schema of all files, from their sidecars and from a `sample` of those without one.

    Features named by `cast` may be integers in some files and floats in others: they are floats
    then.
    """
    sidecars = find(names)
    if not sidecars.schemas:
        return sample(sidecars.without)
    if not sidecars.without:
        return sidecars.united(cast)
    sampled = sample(sidecars.without)
    shown = {"what a sample shows": sampled} if sampled or sampled.sequences else {}
    return union(sidecars.schemas | shown, cast)


def described(names: Sequence[str], sampled: Schema) -> Schema:
    """The schema that readers of these files use, with what a sample shows of each feature."""
    sidecars = find(names)
    if not sidecars.schemas:
        return sampled
    schema = (
        sidecars.united()
        if not sidecars.without
        else union({**sidecars.schemas, "what a sample shows": sampled})
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
    """What is true of the records of all: a feature that some do not have may be missing, lists of
    different lengths are of any length.

    >>> a, b = Schema({"x": Feature("float", (4,), required=True)}), Schema({"x": Feature("float",
    ...     (3,)), "y": Feature("int64", ())})
    >>> dict(union({"a": a, "b": b}))
    {'x': Feature(float (None,)), 'y': Feature(int64 ())}
    """
    (first, schema), *others = schemas.items()
    features, sequences = dict(schema), dict(schema.sequences)
    for place, other in others:
        try:
            features = _both(features, dict(other), cast)
            sequences = _both(sequences, dict(other.sequences))
        except EncodeError as error:
            raise SchemaError(
                f"{first} and {place} contradict each other: {error.message}; pass schema=",
                tensor=error.tensor,
            ) from None
    return Schema(features, sequences)


def _both(
    mine: dict[str, Feature],
    theirs: dict[str, Feature],
    cast: Container[str] = (),
) -> dict[str, Feature]:
    found = {name: replace(feature, required=False) for name, feature in (mine | theirs).items()}
    for name in mine.keys() & theirs.keys():
        a, b = mine[name], theirs[name]
        if name in cast and {a.kind, b.kind} == {INT64, FLOAT}:
            a, b = (Feature(FLOAT, feature.shape) for feature in (a, b))
        try:
            found[name] = (
                a
                if a == b
                else pack.merge(
                    replace(a, default=None, seen={}), replace(b, default=None, seen={})
                )
            )
        except EncodeError as error:
            raise error.add(tensor=name) from None
    return found
