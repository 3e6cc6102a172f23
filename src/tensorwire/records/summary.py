"""Summaries of record files for `tw.inspect`, and their verification for `tw.verify`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .._errors import DecodeError, LimitError, TensorwireError, TransportError
from .._limits import DEFAULT, Limits
from ..core import display
from . import blocks as _blocks

if TYPE_CHECKING:
    from .resync import Gap
    from .schema import Schema

# Modules that read records are imported in the functions that use them, because `tw.inspect` of any
# file imports this module.

FORMAT = "tfrecord"
_SHOWN = 20
"""The maximum number of problems that `str()` lists."""
_PEEK = 5 << 20
"""Compressed bytes that are read to find the header of the first record.

A block of lz4 may have 4 MiB.
"""


@dataclass(frozen=True)
class RecordSummary:
    """The summary of a record file, as returned by `tw.inspect`.

    `json()` returns it as plain dicts, `str()` describes it in words.
    """

    path: str
    format: str
    size: int
    compression: str | None
    records: int
    indexed: bool
    """Whether there is a fresh index."""
    schema: Schema | None
    """The schema of Examples, from the sidecar file if there is one.

    It is None if the records are not Examples.
    """
    problems: list[str] = field(default_factory=list)
    """Damage that was found while inferring the schema; `tw.verify` checks the whole file."""

    def json(self) -> dict[str, Any]:
        """Return the summary as plain dicts and lists."""
        out = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**out, "schema": self.schema.json() if self.schema is not None else None}

    def __str__(self) -> str:
        words = [
            self.format,
            *([self.compression] if self.compression else []),
            f"{self.size:,} bytes",
            f"{self.records:,} records",
        ]
        lines = [f"{self.path}: {', '.join(words)}{', indexed' if self.indexed else ''}"]
        if self.schema is not None:
            lines += [f"  {line.strip()}" for line in repr(self.schema).splitlines()[1:]]
        lines += [f"  DAMAGED: {problem}" for problem in self.problems]
        return "\n".join(lines)

    _repr_html_ = display.html


def inspect_records(where: Any, limits: Limits | None = None) -> RecordSummary:
    """Return a summary: the number of records, the schema, and damage in a sample.

    The schema is that of the sidecar file, or is inferred from the sample.
    """
    path = os.fspath(where)
    from . import index as _index

    stored = _index.load(path)
    index = stored if stored is not None else _index.build(path, limits=limits)
    schema, problems = _sampled(path, limits)
    if schema is not None:
        from . import sidecar

        try:
            schema = sidecar.described([path], schema)
        except TensorwireError as error:
            # The schema file is damaged.
            problems.append(str(error))
    if schema is not None and not schema and not schema.sequences:
        schema = None
    return RecordSummary(
        path,
        FORMAT,
        index.size,
        index.compression,
        len(index),
        stored is not None,
        schema,
        problems,
    )


def _sampled(path: str, limits: Limits | None) -> tuple[Schema | None, list[str]]:
    """Return the schema of a sample, and the damage in it.

    The schema is None if the records are not Examples.
    """
    from .infer import of_files

    problems: list[str] = []
    for skip in (False, True):
        try:
            return of_files([path], limits=limits, skip=skip), problems
        except TensorwireError as error:
            if isinstance(error, DecodeError) and error.format != "example":
                problems.append(str(error))
            else:
                break
    return None, problems


@dataclass(frozen=True)
class RecordVerification:
    """The result of `tw.verify` for a record file: whether it is complete, and if not, every gap.

    It is true if the file is complete.
    """

    ok: bool
    path: str
    format: str
    records: int
    """The number of complete records."""
    nbytes: int
    checksums: bool
    gaps: list[Gap]
    problems: list[str]

    beyond_limits: bool = False
    """Whether reading stopped at the limits and nothing else is wrong; larger limits show more."""

    def __bool__(self) -> bool:
        return self.ok

    def json(self) -> dict[str, Any]:
        """Return the result as plain dicts and lists."""
        return asdict(self)

    def __str__(self) -> str:
        state = "whole" if self.ok else "beyond the limits" if self.beyond_limits else "NOT whole"
        lines = [
            (
                f"{self.path}: {state}, {self.records:,} records, {self.nbytes:,} bytes read, with"
                " checksums"
            ),
            *self.problems[:_SHOWN],
        ]
        if len(self.problems) > _SHOWN:
            lines.append(f"... and {len(self.problems) - _SHOWN:,} more")
        return "\n  ".join(lines)


def verify_records(
    where: Any, limits: Limits | None = None, progress: Callable[[int, int], None] | None = None
) -> RecordVerification:
    """Read every record and verify both of its checksums.

    A file that is shorter than its index says was truncated, even between two records.
    """
    path = os.fspath(where)
    records = nbytes = 0
    beyond = False
    from . import resync

    gaps: list[Gap] = []
    problems: list[str] = []
    try:
        with resync.contents(path, None, limits or DEFAULT) as (source, lost, _):
            for item in itertools.chain(
                lost, resync.scan_source(source, limits or DEFAULT, path, hold=False)
            ):
                if isinstance(item, resync.Gap):
                    gaps.append(item)
                    continue
                records, nbytes = records + len(item.starts), nbytes + int(item.sizes.sum())
                if progress is not None:
                    progress(item.end, source.size)
            if progress is not None:
                progress(source.size, source.size)
    # A failed request says nothing about the file.
    except TransportError:
        raise
    except TensorwireError as error:
        problems.append(str(error))
        beyond = isinstance(error, LimitError)
    problems += [str(gap) for gap in gaps]
    from . import index as _index

    before = _index.size_when_indexed(path)
    size = _blocks.stat_of(path)[0]
    if before is not None and before > size:
        problems.append(
            f"{path} has {size:,} bytes, but had {before:,} when its index was built: it was"
            " truncated"
        )
    only_limits = beyond and len(problems) == 1
    return RecordVerification(
        not problems, path, FORMAT, records, nbytes, True, gaps, problems, only_limits
    )
