"""Datasets in TFRecord files: records that are copied as they are, or Examples as columns.

1. Without a schema, records are copied from file to file and never decoded (`moved`).
2. With a schema, the Examples of a block are decoded straight into the columns of a batch. A batch
   may span blocks, and a block several batches.
3. An error in a batch is located by its row: `_Decoding` remembers the block and the first record
   of each run of rows.
4. With on_corrupt="skip", damaged records are left out and reported in `Reading.damage`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._errors import DecodeError, EncodeError, SchemaError, TensorwireError
from .._limits import DEFAULT
from ..core import memory
from ..core.memory import Buffer
from ..records import blocks as _blocks
from ..records import columns as _columns
from ..records import coverage, infer, pack, sidecar
from ..records import index as _index
from ..records import resync as _damage
from ..records.batch import Batch, gathered
from ..records.blocks import Block
from ..records.example_writer import ExampleSink
from ..records.schema import BYTES, FLOAT, INT64, Feature, Schema
from ..transforms import compression as compressions
from ..wire import example, kernels
from . import example_features
from .conversion_spec import ConversionSpec
from .rows import BYTES as MOST_BYTES
from .rows import ROWS, ByteOutput, Counted, Damage, Reading, RowFormat, SourcePart

RECORD = "\x00record"
"""The column of records that are copied without being decoded."""
_FLUSH_SIZE = 256 << 10
_MIN_SAMPLE, _SAMPLE_SHARE = 8 << 20, 64
"""The smallest size of a sample in bytes, and its share of all bytes (one part in 64)."""


def moved(spec: ConversionSpec) -> bool:
    """Whether records are copied without being decoded."""
    return spec.features is None


def blocks(
    part: SourcePart, spec: ConversionSpec, reading: Reading, check: bool
) -> Iterator[Block]:
    """Yields the records of a part in blocks. `check` verifies their checksums."""
    stop = part.stop if part.stop is not None else 1 << 62
    if spec.skips:
        source_blocks = _good(part.path, reading)
    else:
        first, offset = part.mark or (0, 0)
        source_blocks = _blocks.blocks(part.path, offset=offset, first=first, check=check)
    for block in source_blocks:
        if block.read:
            reading.reach(block.read / part.size)
        low, high = max(0, part.first - block.first), min(len(block.starts), stop - block.first)
        if low < high:
            whole = low == 0 and high == len(block.starts)
            yield (
                block
                if whole
                else block._replace(
                    starts=block.starts[low:high],
                    sizes=block.sizes[low:high],
                    first=block.first + low,
                )
            )
        if block.first + len(block.starts) >= stop and not spec.skips:
            return
        del block


def _good(path: str, reading: Reading) -> Iterator[Block]:
    """Yields the undamaged records of a file. Damage goes into `reading`."""
    with _damage.contents(path, None, DEFAULT) as (source, lost, _):
        for item in itertools.chain(lost, _damage.scan_source(source, DEFAULT, path)):
            if isinstance(item, Block):
                reading.reach((item.offset + len(item.data)) / source.size)
                yield item
            else:
                reading.damage.append(Damage(path, str(item), item.length))


def _as_kind(feature: Feature, kind: str, name: str) -> Feature:
    """Returns the feature with the kind of number that this file has, before a cast."""
    default = feature.default
    if default is not None and kind == INT64:
        whole = np.asarray(default)
        if not np.array_equal(whole, np.rint(whole)):
            raise SchemaError(
                f"the default {default!r:.60} is not an integer, but the feature is int64 in this"
                " file",
                tensor=name,
            )
        default = whole.astype(np.int64).tolist()
    return Feature(kind, feature.shape, required=feature.required, default=default)


class _Decoding:
    """Decodes the Examples of blocks into batches."""

    def __init__(self, spec: ConversionSpec, damage: list[Damage], kinds: dict[str, str]) -> None:
        self._features, self._skips, self._damage = (
            example_features.travelling(spec),
            spec.skips,
            damage,
        )
        for name, kind in kinds.items():
            self._features[name] = _as_kind(self._features[name], kind, name)
        self._decoder = example.Decoder(
            [feature.column(name) for name, feature in self._features.items()]
        )
        self._pool = memory.MemoryPool()
        self._columns = example.ColumnBuffers(self._decoder, ROWS, pool=self._pool)
        self._nbytes = 0
        self.strange = False
        """Whether the last block that was added has features that the schema lacks."""
        self._origins: list[tuple[int, Block, int]] = []
        """For each run of rows: its first row in the batch, its block (without data), and its first
        record in that block.
        """

    def add(self, block: Block) -> Iterator[Batch]:
        """Decodes a block, and yields each batch that is full."""
        start, total = 0, len(block.starts)
        ends = np.cumsum(block.sizes)
        bare = block.bare()
        self.strange = False
        while start < total:
            before = int(ends[start - 1]) if start else 0
            fits = int(np.searchsorted(ends, before + MOST_BYTES - self._nbytes)) + 1 - start
            stop = start + max(1, min(total - start, ROWS - self._columns.row, fits))
            self._origins.append((self._columns.row, bare, start))
            start = self._fill(block, start, stop)
            self._nbytes += int(ends[start - 1]) - before
            if self._columns.row == ROWS or self._nbytes >= MOST_BYTES:
                yield self.take()

    def _fill(self, block: Block, start: int, stop: int) -> int:
        """Decodes records of a block, and returns the next record to decode.

        That is `stop`, or the record after a damaged one that is skipped.
        """
        row = self._columns.row
        try:
            self._columns.fill(
                block.data, block.starts[:stop], block.sizes[:stop], start, self._skips
            )
            return stop
        except TensorwireError as error:
            bad = error.record if error.record is not None else start
            record, offset = block.where(bad)
            error.record = record
            error.add(path=block.path, offset=offset, base=offset)
            if not self._skips or not isinstance(error, DecodeError):
                raise
            self._damage.append(Damage(block.path, str(error), int(block.sizes[bad])))
            assert self._columns.row == row + bad - start
            return bad + 1
        finally:
            self.strange |= self._columns.strange
            self._columns.strange = False

    def take(self) -> Batch:
        """Returns the batch, and starts a new one."""
        columns, rows = self._columns, self._columns.row
        try:
            return _columns.batch(self._features, columns.take(), rows)
        except TensorwireError as error:
            raise self._located(error) from None
        finally:
            self._columns = example.ColumnBuffers(
                self._decoder, ROWS, pool=self._pool, like=columns
            )
            self._nbytes, self._origins = 0, []

    def _located(self, error: TensorwireError) -> TensorwireError:
        """Replaces the row of an error in the batch by the file, the record and its offset."""
        row = error.record or 0
        first_row, block, first_record = next(
            run for run in reversed(self._origins) if run[0] <= row
        )
        error.offset = None
        if error.record is not None:
            error.record, error.offset = block.where(first_record + row - first_row)
        return error.add(path=block.path)

    @property
    def rows(self) -> int:
        return self._columns.row


def _examples(part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
    decoding = None
    for block in blocks(part, spec, reading, False):
        if decoding is None:
            decoding = _Decoding(spec, reading.damage, _kinds(block, spec))
        yield from decoding.add(block)
        if decoding.strange and spec.strict:
            _check_names(block, spec)
        del block
    if decoding is not None and decoding.rows:
        yield decoding.take()


def _kinds(block: Block, spec: ConversionSpec) -> dict[str, str]:
    """Returns the features of cast= whose kind in this file differs from the common schema.

    Files may disagree whether a number is an int64 or a float, since the cast makes it one dtype.
    """
    numbers = {
        name: feature.kind
        for name, feature in example_features.travelling(spec).items()
        if name in spec.cast and not feature.encoding and feature.kind in (INT64, FLOAT)
    }
    if not numbers:
        return {}
    survey = kernels.ExampleSurvey(DEFAULT.names)
    survey.add(block.data, block.starts, block.sizes, True)
    changed = {}
    for name, is_list, _, (_, *counts), *_ in survey.result()[2]:
        shown = name.decode(errors="backslashreplace")
        seen = [kind for kind, count in zip((BYTES, FLOAT, INT64), counts, strict=True) if count]
        if (
            not is_list
            and shown in numbers
            and len(seen) == 1
            and seen[0] in (INT64, FLOAT)
            and seen[0] != numbers[shown]
        ):
            changed[shown] = seen[0]
    return changed


def _check_names(block: Block, spec: ConversionSpec) -> None:
    """Raises SchemaError if a block has features that the schema lacks and that would be lost.

    The schema may have been inferred from a sample without them.
    """
    assert spec.schema is not None
    try:
        coverage.check(spec.schema, block.data, block.starts, block.sizes)
    except SchemaError as error:
        error.hint = (
            "columns= selects the features to read,"
            " schema=tw.infer_schema(path, full=True) reads all records"
        )
        error.record, error.offset = block.where(error.record or 0)
        raise error.add(path=block.path) from None


class TfrecordWriter:
    """Writes batches of records or Examples to a file of records, which may be compressed."""

    def __init__(self, file: ByteOutput, spec: ConversionSpec) -> None:
        self._out = _Framed(file, spec)
        self._sink: ExampleSink | None = None
        if not moved(spec):
            kept = None if spec.schema is None else example_features.in_examples(spec)
            tensors = [
                name for name in spec.tensors if kept is None or kept[name].encoding == "tensor"
            ]
            options = pack.Options(tensors, (), spec.quantize or None, kept)
            self._sink = ExampleSink(self._out, options, None)  # type: ignore[arg-type]

    def add(self, batch: Batch) -> None:
        if self._sink is not None:
            self._sink.add(batch)
            return
        records: Any = batch[RECORD]
        self._out.put_framed(0, kernels.frames(records.data, records.offsets), records.size)

    def close(self) -> None:
        self._out.close()


class _Framed:
    """The output of an ExampleSink: one file, written through a compressor."""

    def __init__(self, file: ByteOutput, spec: ConversionSpec) -> None:
        self.paths, self.records = [""], 0
        name = _blocks.compression_named(spec.compression)
        self._compressor = (
            compressions.compressor(name, level=spec.level, threads=1) if name else None
        )
        self._file, self._pending, self._size = file, [], 0  # type: ByteOutput, list[Any], int

    def put_framed(self, shard: int, data: Buffer, count: int) -> None:
        self._pending.append(data)
        self._size += len(data)
        self.records += count
        if self._size >= _FLUSH_SIZE:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending, self._size = self._pending, [], 0
        if self._compressor is not None and pending:
            pending = self._compressor.write(kernels.join(pending))
        for chunk in pending:
            self._file.write(chunk)

    def close(self) -> None:
        self._flush()
        if self._compressor is not None:
            for chunk in self._compressor.finish():
                self._file.write(chunk)


class TfrecordRows(RowFormat):
    """The dataset format of TFRecord files."""

    def count(self, path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
        """Counts the records from their headers, or from the index file.

        With on_corrupt="skip", only the readable records count.
        """
        if spec.skips:
            return Counted(sum(len(block.starts) for block in _good(path, reading)), [])
        index = _index.load(path) or _index.build(path)
        records = len(index)
        if index.compression is not None or not records:
            return Counted(records, [])
        step = -(-records // max(1, marks))
        return Counted(records, index.offsets[:-1:step].tolist(), step)

    def schema(self, sources: Sequence[str], spec: ConversionSpec, nbytes: int) -> Schema | None:
        # The sample is a share of the data, so that inference never takes longer than the
        # conversion of a small dataset.
        sample = min(infer.SAMPLE, max(_MIN_SAMPLE, nbytes // _SAMPLE_SHARE))

        def sampled(without: list[str]) -> Schema:
            return infer.of_files(without, sample=sample, skip=spec.skips, cast=spec.cast)

        return sidecar.known(sources, sampled, spec.cast)

    def read(self, part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
        if not moved(spec):
            yield from _examples(part, spec, reading)
            return
        for block in blocks(part, spec, reading, True):
            records = gathered(block.data, block.starts, block.sizes)
            yield Batch({RECORD: records}, size=len(block.starts))

    def writer(self, file: ByteOutput, spec: ConversionSpec) -> TfrecordWriter:
        return TfrecordWriter(file, spec)

    def check_target(self, spec: ConversionSpec) -> None:
        """Raises EncodeError for an unknown compression, and for options that need a schema."""
        if spec.compression is not None:
            _blocks.compression_named(spec.compression)
        if moved(spec) and (spec.quantize or spec.tensors or spec.cast):
            raise EncodeError(
                "quantize=, tensors= and cast= need decoded Examples, but records are copied as"
                " they are",
                hint="pass schema= or columns= as well",
            )
