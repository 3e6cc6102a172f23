"""The conversion spec: what a dataset operation does with every record.

It is plain data that each worker receives once. Two runs with the same hash do the same work.
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
"""The version of the output. A new version makes every existing shard stale."""


@dataclass(frozen=True)
class ConversionSpec:
    """Source format, target format and options of a conversion."""

    source: str
    target: str
    features: dict[str, Any] | None = None
    """The schema as JSON, if the source or the target needs one; None for records that are copied
    without being decoded.
    """
    strict: bool = False
    """Whether a feature that the schema lacks is an error. Otherwise it is silently lost."""
    columns: list[str] | None = None
    """The columns to write; None for all that are read."""
    reads: list[str] | None = None
    """The columns to read if there is no schema; None for all."""
    compression: str | None = None
    level: int | None = None
    quantize: dict[str, str] = field(default_factory=dict)
    tensors: list[str] = field(default_factory=list)
    cast: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    on_corrupt: str = "raise"
    shuffle: int | None = None
    by: str | None = None
    """The feature that assigns rows to splits, or to the strata of a sample."""
    seed: int = 0
    total: int = 0
    """The number of records in all sources, if their order matters."""
    bounds: list[int] | None = None
    """For a shuffle: the number of the first record of each shard."""
    strata: dict[str, list[int]] | None = None
    """For a sample: by value (in hexadecimal), the number of records there are and the number to
    take.
    """
    bare: list[str] = field(default_factory=list)
    """Features that are copied as the bytes that they are in an Example."""
    blank: str | None = None
    """The columns of all files, if there is no schema and the files differ: a packed batch without
    rows, in base64.
    """
    memory: int = 2 << 30
    """The largest shard, in bytes, of a format that is held in memory."""

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists. Fields with their default value are left out."""
        defaults = asdict(type(self)(self.source, self.target))
        fields = {
            name: value
            for name, value in asdict(self).items()
            if name in ("source", "target") or value != defaults[name]
        }
        return {"version": VERSION, **fields}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the spec that `json` was called on."""
        return cls(**{name: value for name, value in fields.items() if name != "version"})

    @cached_property
    def hash(self) -> str:
        """The digest of all fields."""
        return digest(self.json())

    @cached_property
    def schema(self) -> Schema | None:
        return None if self.features is None else Schema.from_json(self.features)

    @property
    def names(self) -> list[str] | None:
        """The columns that are read; None for all."""
        return self.reads if self.schema is None else list(self.schema)

    @property
    def skips(self) -> bool:
        return self.on_corrupt == "skip"


def digest(value: object) -> str:
    """Returns a short hash of a JSON value that does not depend on the order of keys.

    >>> digest({"b": 1, "a": [2]}) == digest({"a": [2], "b": 1})
    True
    """
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()[:20]
