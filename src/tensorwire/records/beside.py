"""The schemas that stand beside record files: which files have one, whether it is still theirs, and what holds for several.

Who reads files together wants one schema for all of them (`one`). Who puts datasets together takes what all of them allow (`known`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from .. import storage
from .._errors import EncodeError, SchemaError, TensorwireError
from . import pack, paths
from .reader import RecordReader
from .schema import Feature, Schema

_HEADS = 8
"""Objects whose beginnings are compared with what the schema beside them says."""
_FEW = 1024
"""Local files of which that is done for each."""


class Found(NamedTuple):
    """The schemas that are there, by their paths; whose they are; and the files that have none."""

    schemas: dict[str, Schema]
    owners: list[tuple[str, Schema]]
    without: list[str]

    def check(self) -> Self:
        """That they are still for these files."""
        most = _HEADS if self.owners and storage.is_url(self.owners[0][0]) else _FEW  # of an object it is a request
        for name, schema in self.owners[:: max(1, -(-len(self.owners) // most))]:
            _check_head(name, schema)
        return self


def find(names: Sequence[str]) -> Found:
    """Each schema is read once, however many files it is for."""
    beside = paths.schemas_beside(names)
    places = [place for place in dict.fromkeys(beside) if place is not None]
    schemas = dict(zip(places, storage.side_by_side(Schema.load, places), strict=True))
    pairs = list(zip(names, beside, strict=True))
    return Found(
        schemas,
        [(name, schemas[place]) for name, place in pairs if place is not None],
        [name for name, place in pairs if place is None],
    )


def _check_head(name: str, schema: Schema) -> None:
    """A schema is not for a file that somebody has written anew since. (One that is damaged there will be found out by reading it.)"""
    head = schema.heads.get(os.path.basename(name))
    if head is None or paths.head(name) == head:
        return
    try:
        next(iter(RecordReader([name])), None)
    except TensorwireError:
        return
    place = paths.schema_beside(name)
    raise SchemaError(f"{name} was written anew since its schema, {place}: remove that, or pass schema= (tw.infer_schema finds one)")


def one(names: Sequence[str]) -> tuple[Schema, str] | None:
    """The schema of all these files, and where it stands; None if there is none."""
    found = find(names)
    if not found.schemas:
        return None
    (first, schema), *others = found.schemas.items()
    if found.without:
        raise SchemaError(f"{first} is the schema of some of these files, and others have none; pass schema=")
    for place, other in others:
        if other != schema:
            raise SchemaError(f"{first} and {place} are different schemas; read these files apart, or pass schema=")
    found.check()
    return schema, first


def known(names: Sequence[str], sample: Callable[[list[str]], Schema]) -> Schema:
    """What the schemas beside the files say, and of files that have none what a `sample` of them shows."""
    found = find(names).check()
    sampled = sample(found.without) if found.without else Schema()
    if not found.schemas:
        return sampled
    return union(found.schemas | ({"what a sample shows": sampled} if sampled or sampled.sequences else {}))


def union(schemas: dict[str, Schema]) -> Schema:
    """What is true of the records of all: a feature that some do not have may be missing, lists of different lengths are of any length.

    >>> a, b = Schema({"x": Feature("float", (4,), required=True)}), Schema({"x": Feature("float", (3,)), "y": Feature("int64", ())})
    >>> dict(union({"a": a, "b": b}))
    {'x': Feature(float (None,)), 'y': Feature(int64 ())}
    """
    (first, found), *others = schemas.items()
    features, sequences = dict(found), dict(found.sequences)
    for place, other in others:
        try:
            features = _both(features, dict(other))
            sequences = _both(sequences, dict(other.sequences))
        except EncodeError as error:
            raise SchemaError(f"{first} and {place} contradict each other: {error.message}; pass schema=", tensor=error.tensor) from None
    return Schema(features, sequences)


def _both(mine: dict[str, Feature], theirs: dict[str, Feature]) -> dict[str, Feature]:
    found = {name: replace(feature, required=False) for name, feature in (mine | theirs).items()}
    for name in mine.keys() & theirs.keys():
        a, b = mine[name], theirs[name]
        try:
            found[name] = a if a == b else pack.merge(replace(a, default=None, seen={}), replace(b, default=None, seen={}))
        except EncodeError as error:
            raise error.add(tensor=name) from None
    return found
