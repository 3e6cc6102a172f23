"""What is to be done with every record: plain data that a worker gets once, and whose hash says
whether two runs mean the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

from ..records.schema import Schema

VERSION = 2
"""Of what is written: another one makes every shard stale."""


@dataclass(frozen=True)
class ConversionSpec:
    """From a format, to a format, and how."""

    source: str
    target: str
    features: dict[str, Any] | None = None
    """The schema as JSON, where the source or the target needs one; None for records that are only
    moved.
    """
    strict: bool = False
    """Whether a feature that the schema does not have is an error: it would be lost without a word.
    """
    columns: list[str] | None = None
    """What is written, if that is not all that is read."""
    reads: list[str] | None = None
    """What is read, where no schema says it; None for all."""
    compression: str | None = None
    level: int | None = None
    quantize: dict[str, str] = field(default_factory=dict)
    tensors: list[str] = field(default_factory=list)
    cast: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    on_corrupt: str = "raise"
    shuffle: int | None = None
    by: str | None = None
    """The feature by which rows are told apart for a split or a sample."""
    seed: int = 0
    total: int = 0
    """Records of all sources, where their order matters."""
    bounds: list[int] | None = None
    """For a shuffle: how many records the shards have, as the number of the first of each."""
    strata: dict[str, list[int]] | None = None
    """For a sample: by value (in hexadecimal), how many records there are and how many are wanted.
    """
    bare: list[str] = field(default_factory=list)
    """Features that go as the bytes that they are in an Example."""
    blank: str | None = None
    """The columns of all files, where no schema says it and some have more than others: a batch
    without rows, packed, in base64.
    """
    memory: int = 2 << 30
    """Bytes that a shard may take which must be held whole."""

    def json(self) -> dict[str, Any]:
        """Plain dicts and lists; what has its default is left out."""
        defaults = asdict(type(self)(self.source, self.target))
        fields = {
            name: value
            for name, value in asdict(self).items()
            if name in ("source", "target") or value != defaults[name]
        }
        return {"version": VERSION, **fields}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The inverse of `json`."""
        return cls(**{name: value for name, value in fields.items() if name != "version"})

    @cached_property
    def hash(self) -> str:
        """Of all of it."""
        return digest(self.json())

    @cached_property
    def schema(self) -> Schema | None:
        return None if self.features is None else Schema.from_json(self.features)

    @property
    def names(self) -> list[str] | None:
        """Columns that are read; None for all that there are."""
        return self.reads if self.schema is None else list(self.schema)

    @property
    def skips(self) -> bool:
        return self.on_corrupt == "skip"


def digest(value: object) -> str:
    """A short name for JSON that is never another's.

    >>> digest({"b": 1, "a": [2]}) == digest({"a": [2], "b": 1})
    True
    """
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()[:20]
