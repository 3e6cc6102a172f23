"""Record files: pages of decoded records, the schema, and integrity.

1. No index file is written.
2. The records of a file are counted on a thread. While a large file is being counted, only its
   first records can be read, from the beginning; then any record can.
3. In a damaged file the good records are numbered in order.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from .._errors import SchemaError, TensorwireError
from ..core.tensors import Strings
from ..explore.records import value_of
from ..records.infer import infer_schema
from ..records.record_reader import RecordReader
from ..records.schema import Schema
from ..records.summary import RecordVerification, verify_records
from .catalog import Catalog
from .kinds import preview, shown_string

PAGE = 50
"""The most records in one response."""
AT_ONCE = 64 << 20
"""Files of up to this many bytes are counted before the first response."""
EARLY = 10_000
"""The number of records that can be read before the file is counted."""
FILES = 8
"""The most open files."""


class RecordFile:
    """One version of a record file."""

    def __init__(self, path: str, stamp: tuple[int, int]) -> None:
        self.path, self.stamp = path, stamp
        self.damage: str | None = None
        """The error that stopped the counting of the records."""
        self._reader = RecordReader([path], index=False)
        self._schema: Schema | str | None = None
        self._counting = threading.Thread(target=self._count, daemon=True)
        self._counting.start()
        if stamp[1] <= AT_ONCE:
            self._counting.join()

    def _count(self) -> None:
        try:
            # Any access by index makes the reader build its index in memory.
            _ = self._reader[0:0]
        except (TensorwireError, OSError) as error:
            self.damage = str(error)

    @property
    def total(self) -> int | None:
        """The number of records; None while they are being counted, and for a damaged file."""
        return None if self._counting.is_alive() or self.damage else len(self._reader)

    def raw(self, start: int, count: int) -> list[bytes]:
        """Return the bytes of some records."""
        if self.total is not None:
            return self._reader[start : start + count]
        if self.damage is not None:
            reader = RecordReader([self.path], on_corrupt="skip", index=False)
            return list(_skipped(reader, start, count))
        if start + count > EARLY:
            raise SchemaError(
                f"only the first {EARLY:,} records are available until all are counted",
                path=self.path,
            )
        return list(itertools.islice(RecordReader([self.path], index=False), start, start + count))

    def schema(self) -> Schema:
        """Return the schema of a sample; SchemaError if the records are not Examples."""
        if self._schema is None:
            try:
                self._schema = infer_schema([self.path])
            except TensorwireError as error:
                self._schema = str(error)
        if isinstance(self._schema, str):
            raise SchemaError(self._schema)
        return self._schema

    def sequences(self) -> Schema | None:
        """Return the schema if the records are SequenceExamples, else None."""
        try:
            schema = self.schema()
        except TensorwireError:
            return None
        return schema if schema.sequences else None


def _skipped(reader: RecordReader, start: int, count: int) -> Iterator[bytes]:
    """Yield `count` records after the first `start`, without decoding the blocks before them."""
    position = 0
    for block in reader.blocks():
        size = len(block.starts)
        if position + size > start:
            records = block.strings()
            yield from records[max(0, start - position) : start + count - position]
        position += size
        if position >= start + count:
            return


class Records:
    """Record files by id; a few are kept open."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._files: OrderedDict[str, RecordFile] = OrderedDict()
        self._lock = threading.Lock()

    def file(self, id: str) -> RecordFile:
        node = self._catalog[id]
        if node.kind != "records":
            raise SchemaError(f"{node.name} is not a record file")
        status = os.stat(node.path)
        stamp = status.st_mtime_ns, status.st_size
        with self._lock:
            cached = self._files.get(id)
            if cached is None or cached.stamp != stamp:
                cached = self._files[id] = RecordFile(node.path, stamp)
            self._files.move_to_end(id)
            while len(self._files) > FILES:
                self._files.popitem(last=False)
            return cached

    def page(self, id: str, start: int, count: int) -> dict[str, Any]:
        """Return a page of decoded records."""
        file = self.file(id)
        total = file.total
        start = max(0, start if total is None else min(start, max(0, total - 1)))
        count = max(1, min(PAGE, count))
        records = file.raw(start, count)
        # The end of a damaged file is known only when a page is shorter than requested.
        if file.damage is not None and len(records) < count and (records or not start):
            total = start + len(records)
        rows = [
            {"at": start + i, "size": len(record), **decoded(record, file)}
            for i, record in enumerate(records)
        ]
        return {
            "total": total,
            "counting": total is None and file.damage is None,
            "damage": file.damage,
            "start": start,
            "records": rows,
        }

    def picture(self, id: str, record: int, feature: int, index: int) -> bytes:
        """Return one string of one feature of a record. The caller checks that it is an image."""
        records = self.file(id).raw(record, 1)
        if not records:
            raise SchemaError(f"no record {record}")
        features = value_of(records[0], self.file(id).sequences())[1]
        if not 0 <= feature < len(features):
            raise SchemaError(f"record {record} has no feature {feature}")
        value = features[feature][1]
        if not isinstance(value, Strings) or not 0 <= index < value.size:
            raise SchemaError(f"the feature {features[feature][0]!r:.60} has no string {index}")
        item = value.reshape(-1)[index]
        return item.encode() if isinstance(item, str) else item

    def schema(self, id: str) -> dict[str, Any]:
        """Return the features: kind, shape, presence and range."""
        schema = self.file(id).schema()
        rows = [(name, feature, False) for name, feature in schema.items()]
        rows += [(name, feature, True) for name, feature in schema.sequences.items()]
        return {
            "records": schema.records,
            "complete": schema.complete,
            "features": [
                {"name": name, "list": is_list, **feature.json(), "seen": dict(feature.seen)}
                for name, feature, is_list in rows
            ],
        }

    def verify(self, id: str) -> dict[str, Any]:
        """Read every record, check both of its checksums, and return the damage."""
        file = self.file(id)
        report: RecordVerification = verify_records(file.path)
        gaps = [
            {"offset": gap.offset, "length": gap.length, "why": gap.why, "packed": gap.packed}
            for gap in report.gaps[:1000]
        ]
        data = {name: getattr(report, name) for name in ("ok", "records", "nbytes", "checksums")}
        return data | {
            "size": file.stamp[1],
            "gaps": gaps,
            "gap_count": len(report.gaps),
            "problems": report.problems[:100],
        }


def decoded(record: bytes, file: RecordFile) -> dict[str, Any]:
    """Return a record for the page: the features of an Example, a value of another format, or
    bytes.
    """
    kind, features = value_of(record, file.sequences())
    if kind == "bytes":
        return {"kind": "bytes", "features": [], "raw": shown_string(record)}
    parts = itertools.islice(features, 500)
    return {
        "kind": kind,
        "features": [{"name": name, **preview(part, 64)} for name, part in parts],
        "raw": None,
    }
