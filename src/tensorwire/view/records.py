"""Record files: pages of decoded records by number, the features that they have, and whether the
file is whole.

Nothing is written beside the file. A large file without an index is read from its beginning at
once, and counted meanwhile; records in the middle can be asked for when that is done. In a damaged
file the good records are numbered as they come.
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
AT_ONCE = 64 << 20
"""Bytes of a file up to which its records are counted before anything is answered."""
EARLY = 10_000
"""Records that can be asked for before the file is counted."""
FILES = 8


class RecordFile:
    """One record file, as it was when it was opened."""

    def __init__(self, path: str, stamp: tuple[int, int]) -> None:
        self.path, self.stamp = path, stamp
        self.damage: str | None = None
        """What kept its records from being counted."""
        self._reader = RecordReader([path], index=False)
        self._schema: Schema | str | None = None
        self._counting = threading.Thread(target=self._count, daemon=True)
        self._counting.start()
        if stamp[1] <= AT_ONCE:
            self._counting.join()

    def _count(self) -> None:
        try:
            _ = self._reader[0:0]  # which makes the index
        except (TensorwireError, OSError) as error:
            self.damage = str(error)

    @property
    def total(self) -> int | None:
        """How many records there are; None while they are counted, and in damaged files."""
        return None if self._counting.is_alive() or self.damage else len(self._reader)

    def raw(self, start: int, count: int) -> list[bytes]:
        """Some records."""
        if self.total is not None:
            return self._reader[start : start + count]
        if self.damage is not None:
            reader = RecordReader([self.path], on_corrupt="skip", index=False)
            return list(_skipped(reader, start, count))
        if start + count > EARLY:
            raise SchemaError(
                f"the records are still being counted; until then only the first {EARLY:,} are"
                " shown",
                path=self.path,
            )
        return list(itertools.islice(RecordReader([self.path], index=False), start, start + count))

    def schema(self) -> Schema:
        """The features, by a sample; SchemaError if the records are no Examples."""
        if self._schema is None:
            try:
                self._schema = infer_schema([self.path])
            except TensorwireError as error:
                self._schema = str(error)
        if isinstance(self._schema, str):
            raise SchemaError(self._schema)
        return self._schema

    def sequences(self) -> Schema | None:
        """The schema, if the records are SequenceExamples."""
        try:
            schema = self.schema()
        except TensorwireError:
            return None
        return schema if schema.sequences else None


def _skipped(reader: RecordReader, start: int, count: int) -> Iterator[bytes]:
    """Records behind the first `start` ones, whole blocks of which are passed over."""
    at = 0
    for block in reader.blocks():
        size = len(block.starts)
        if at + size > start:
            found = block.strings()
            yield from found[max(0, start - at) : start + count - at]
        at += size
        if at >= start + count:
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
            raise SchemaError(f"{node.name} is no record file")
        about = os.stat(node.path)
        stamp = about.st_mtime_ns, about.st_size
        with self._lock:
            known = self._files.get(id)
            if known is None or known.stamp != stamp:
                known = self._files[id] = RecordFile(node.path, stamp)
            self._files.move_to_end(id)
            while len(self._files) > FILES:
                self._files.popitem(last=False)
            return known

    def page(self, id: str, start: int, count: int) -> dict[str, Any]:
        """Decoded records from a number on."""
        file = self.file(id)
        total = file.total
        start = max(0, start if total is None else min(start, max(0, total - 1)))
        count = max(1, min(PAGE, count))
        found = file.raw(start, count)
        if file.damage is not None and len(found) < count and (found or not start):
            total = start + len(found)  # the end, which nobody knew before
        rows = [
            {"at": start + i, "size": len(record), **decoded(record, file)}
            for i, record in enumerate(found)
        ]
        return {
            "total": total,
            "counting": total is None and file.damage is None,
            "damage": file.damage,
            "start": start,
            "records": rows,
        }

    def picture(self, id: str, record: int, feature: int, at: int) -> bytes:
        """One string of one feature of a record; what it is a picture as is for others to say."""
        found = self.file(id).raw(record, 1)
        if not found:
            raise SchemaError(f"no record {record}")
        features = value_of(found[0], self.file(id).sequences())[1]
        if not 0 <= feature < len(features):
            raise SchemaError(f"record {record} has no feature {feature}")
        value = features[feature][1]
        if not isinstance(value, Strings) or not 0 <= at < value.size:
            raise SchemaError(f"the feature {features[feature][0]!r:.60} has no string {at}")
        item = value.reshape(-1)[at]
        return item.encode() if isinstance(item, str) else item

    def schema(self, id: str) -> dict[str, Any]:
        """The features: kinds, shapes, in how many records, and from what to what."""
        found = self.file(id).schema()
        rows = [(name, feature, False) for name, feature in found.items()]
        rows += [(name, feature, True) for name, feature in found.sequences.items()]
        return {
            "records": found.records,
            "complete": found.complete,
            "features": [
                {"name": name, "list": is_list, **feature.json(), "seen": dict(feature.seen)}
                for name, feature, is_list in rows
            ],
        }

    def verify(self, id: str) -> dict[str, Any]:
        """Every record read, both checksums of each checked."""
        file = self.file(id)
        found: RecordVerification = verify_records(file.path)
        gaps = [
            {"offset": gap.offset, "length": gap.length, "why": gap.why, "packed": gap.packed}
            for gap in found.gaps[:1000]
        ]
        about = {name: getattr(found, name) for name in ("ok", "records", "nbytes", "checksums")}
        return about | {
            "size": file.stamp[1],
            "gaps": gaps,
            "gap_count": len(found.gaps),
            "problems": found.problems[:100],
        }


def decoded(record: bytes, file: RecordFile) -> dict[str, Any]:
    """A record as the page shows it: the features of an Example, a value of another format, or
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
