"""TFRecord files: Examples to columns and back, records one by one, by number, and what is found
out about a file without decoding it.

A contender goes through a whole file; what it reads is dropped as soon as it has the next. Who is
too slow for that is given the first rows alone, and its times are scaled (its name says to how many
records). CPU is that of all threads of the process.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tensorwire.record_files import BLOB, Sample, blobs, check, gzipped, long, same_records, small
from tensorwire.timing import Contender, Role, Timing, race
from tensorwire.ways import WrongResult

import tensorwire as tw
from tensorwire import limits
from tensorwire import record_rivals as rivals

OURS, REUSED, VIEWS = "tensorwire", "tensorwire, reuse=True", "tensorwire, views"
MAPPED, MAPPED_VIEWS = "tensorwire, reuse=True, mmap=True", "tensorwire, views, mmap=True"
TENSORFLOW = "TensorFlow"
V1 = "TensorFlow, v1 iterator"
TENSORFLOW_WRITE, TFX_WRITE = "TensorFlow, tf.train.Example", "tfx-bsl and TensorFlow's writer"
FEW = 50
"""The slow ones get one row in so many."""
NUMBERS = 10_000
_DAMAGE = 100
_REST = 0.02


def quiet_race(contenders: Sequence[Contender], rounds: int, seconds: float) -> list[Timing]:
    """A race with a pause before each measurement: threads of the last contender's may still be
    ending, and their CPU would count.
    """
    return race(contenders, rounds, seconds, before=lambda: time.sleep(_REST))


def room_for(rows: int) -> int:
    """How many blobs the disk has room for; a third of it at most."""
    return min(rows, shutil.disk_usage(tempfile.gettempdir()).free // 3 // BLOB)


def _reading(
    name: str,
    batches: str,
    names: dict[str, Any],
    sample: Sample,
    normal: Callable[[Any], Any] = dict,
    role: Role = "rival",
    **more: Any,
) -> Contender:
    """A contender that goes through batches, proved. `normal` makes a dict of columns of a batch."""
    rows = more.pop("rows", sample.batch)
    names = {"path": sample.path, "spec": sample.spec, "sample": sample} | names
    check(name, sample, map(normal, eval(batches, names)), rows)
    return Contender(name, f"for batch in {batches}: pass", names, role, **more)


def _ours(sample: Sample, workers: int, **more: Any) -> list[Contender]:
    names = {"read_examples": tw.read_examples}
    call = f"read_examples(path, spec, batch_size={sample.batch}, workers={workers}"
    found = [(OURS, ")"), (REUSED, ", reuse=True)")]
    if sample.columns["x"].dtype == np.uint8:
        found += [(VIEWS, ', views=["x"])'), (MAPPED_VIEWS, ', views=["x"], mmap=True)')]
    elif not sample.path.endswith(".gz"):
        found.append((MAPPED, ", reuse=True, mmap=True)"))
    return [
        _reading(name, call + end, names, sample, role="ours", size=sample.size, **more)
        for name, end in found
    ]


def _tensorflow(
    sample: Sample, threads: int, compression: str = "", parallel: bool = False
) -> Contender:
    names = {
        "dataset": rivals.dataset(
            sample.path, sample.spec, sample.batch, threads, compression, parallel
        )
    }
    name = f"{TENSORFLOW}, parallel map" if parallel else TENSORFLOW
    return _reading(name, "dataset", names, sample, rivals.tensors_as_arrays, note="eager tensors")


def _few(rows: int) -> Sample:
    return small(max(1, rows // FEW))


def _scaled(name: str, few: Sample) -> str:
    return f"{name}, scaled from {few.rows:,}"


def columns(rows: int, threads: int) -> list[Contender]:
    """Small Examples to columns."""
    sample, few = small(rows), _few(rows)
    found = [*_ours(sample, 0 if threads == 1 else threads), _tensorflow(sample, threads)]
    if threads > 1:
        return [*found, _tensorflow(sample, threads, parallel=True)]
    if rivals.tfx_bsl:
        names = {
            "batches": rivals.tfx_batches,
            "decoder": rivals.tfx_decoder(sample),
            "tf_record_iterator": rivals.v1_iterator,
        }
        call = f"batches(decoder, tf_record_iterator(path), {sample.batch})"
        found.append(
            _reading(
                "tfx-bsl, v1 iterator",
                call,
                names,
                sample,
                rivals.arrow_as_arrays,
                note="RecordBatches",
            )
        )
    if rivals.tfrecord:
        names = {
            "tfrecord_loader": rivals.tfrecord.tfrecord_loader,
            "description": rivals.tfrecord_description(sample),
        }
        call = "tfrecord_loader(path, None, description)"
        note = "rows, no checksums; tfrecords reads no Examples"
        found.append(
            _reading(
                _scaled("tfrecord", few), call, names, few, rows=1, note=note, scale=rows / few.rows
            )
        )
    return [*found, *limits.readings(sample)]


def long_columns(rows: int) -> list[Contender]:
    """float[1024] to columns."""
    sample = long(rows)
    return [*_ours(sample, 0), _tensorflow(sample, 1), *limits.readings(sample)]


def blob_columns(rows: int) -> list[Contender]:
    """100 KB of bytes each: copied into a column, or left where they are."""
    sample = blobs(rows)
    return [*_ours(sample, 0), _tensorflow(sample, 1), *limits.readings(sample)]


def gzip_columns(rows: int) -> list[Contender]:
    """Small Examples to columns, gzipped."""
    sample = gzipped(rows)
    return [*_ours(sample, 0), _tensorflow(sample, 1, "GZIP")]


def one_by_one(rows: int) -> list[Contender]:
    """Records as Python bytes."""
    sample, few = small(rows), _few(rows)

    def records(
        name: str,
        call: str,
        names: dict[str, Any],
        among: Sample = sample,
        role: Role = "rival",
        note: str = "",
    ) -> Contender:
        names = {"path": among.path, "sample": among} | names
        same_records(name, among, iter(eval(call, names)))
        return Contender(
            name, f"for record in {call}: pass", names, role, note=note, scale=rows / among.rows
        )

    found = [
        records(OURS, "RecordReader(path)", {"RecordReader": tw.RecordReader}, role="ours"),
        records(V1, "tf_record_iterator(path)", {"tf_record_iterator": rivals.v1_iterator}),
    ]
    if rivals.tfrecords:
        names = {"tf_record_iterator": rivals.tfrecords.tf_record_iterator}
        found.append(
            records("tfrecords", "tf_record_iterator(path, with_share_memory=True)", names)
        )
    if rivals.tfrecord:
        names = {"tfrecord_iterator": rivals.tfrecord.reader.tfrecord_iterator}
        found.append(
            records("tfrecord", "map(bytes, tfrecord_iterator(path))", names, note="no checksums")
        )
    names = {"dataset": rivals.record_dataset(few.path)}
    return [
        *found,
        records(_scaled("TensorFlow, tf.data", few), "dataset.as_numpy_iterator()", names, few),
    ]


def writing(rows: int) -> list[Contender]:
    """Columns to Examples. Each writes a file of its own, which is read back for the proof."""
    sample, few = small(rows), _few(rows)

    def written(
        name: str,
        call: str,
        names: dict[str, Any],
        among: Sample = sample,
        role: Role = "rival",
        note: str = "",
    ) -> Contender:
        names = {"path": among.beside(f"{len(found)}.written"), "sample": among} | names
        eval(call, names)
        check(
            name,
            among,
            tw.read_examples(names["path"], among.spec, batch_size=among.batch),
            among.batch,
        )
        return Contender(name, call, names, role, note=note, scale=rows / among.rows)

    found: list[Contender] = []
    names: dict[str, Any] = {"write_examples": tw.write_examples, "columns": sample.to_write()}
    found.append(
        written(
            OURS,
            "write_examples(path, columns, durable=False, schema_file=False)",
            names,
            role="ours",
        )
    )
    if rivals.tfx_bsl:
        names = {
            "encoder": rivals.tfx_bsl.RecordBatchToExamplesEncoder(),
            "batches": rivals.record_batches(sample.columns),
        }
        found.append(
            written(
                TFX_WRITE,
                "write(path, encoder, batches)",
                names | {"write": rivals.tfx_write},
                note="from RecordBatches",
            )
        )
    names = {"write": rivals.tensorflow_write, "columns": few.columns}
    found.append(written(_scaled(TENSORFLOW_WRITE, few), "write(path, columns)", names, few))
    if rivals.tfrecord:
        names = {
            "write": rivals.tfrecord_write,
            "columns": few.columns,
            "description": rivals.tfrecord_description(few),
        }
        found.append(
            written(_scaled("tfrecord", few), "write(path, columns, description)", names, few)
        )
    return found


def by_number(rows: int) -> list[Contender]:
    """Records at random, one at a time."""
    sample = small(rows)
    numbers = np.random.default_rng(14).integers(0, rows, NUMBERS).tolist()
    reader = tw.RecordReader(sample.again("numbered.tfrecord"))
    names = {"reader": reader, "numbers": numbers, "sample": sample}
    found = [Contender(OURS, "[reader[i] for i in numbers]", names, "ours")]
    if rivals.tfrecords:
        random = rivals.tfrecords.tf_record_random_reader(sample.path, with_share_memory=True)
        offsets, few = random.read_offsets(0), numbers[: NUMBERS // FEW]
        theirs = {"reader": random, "offsets": [offsets[i][0] for i in few], "sample": sample}
        call, note = "[reader.read(at)[0] for at in offsets]", "is told the offsets"
        found.append(
            Contender(f"tfrecords, scaled from {len(few):,}", call, theirs, note=note, scale=FEW)
        )
        if [reader[i] for i in few] != eval(call, theirs):
            raise WrongResult("tfrecords reads other records by number")
    return found


def shuffled(rows: int) -> list[Contender]:
    """All records in a random order: any order, not that of a buffer of some thousands."""
    sample = small(rows)
    path = sample.again("numbered.tfrecord")
    names = {
        "reader": tw.RecordReader(path),
        "read_examples": tw.read_examples,
        "path": path,
        "spec": sample.spec,
        "sample": sample,
    }
    if sorted(names["reader"].shuffle(1)) != sorted(tw.RecordReader(path)):
        raise WrongResult("shuffled records are not those of the file")
    call = f"read_examples(path, spec, batch_size={sample.batch}, workers=0, reuse=True, shuffle=1)"
    return [
        Contender(f"{OURS}, bytes", "for record in reader.shuffle(1): pass", names, "ours"),
        Contender(f"{OURS}, columns", f"for batch in {call}: pass", names, "ours"),
    ]


def about_files(rows: int) -> list[Contender]:
    """How many records, where they are, what they have, and which of them are whole."""
    sample, few = small(rows), _few(rows)
    scanned, broken = sample.again("scanned.tfrecord"), sample.beside("broken.tfrecord")
    shutil.copyfile(sample.path, broken)
    with open(broken, "r+b") as file:
        for at in range(sample.size // _DAMAGE // 2, sample.size, sample.size // _DAMAGE):
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
    names: dict[str, Any] = {
        "tw": tw,
        "path": sample.path,
        "broken": broken,
        "scanned": scanned,
        "target": sample.beside("repaired.tfrecord"),
    }
    names |= {"sample": sample, "few": few.path, "few_idx": few.beside("few.idx")}
    ours = {
        f"{OURS}, len": "len(tw.RecordReader(path, index=False))",
        f"{OURS}, index": "tw.RecordReader(path, index=False)[-1]",
        f"{OURS}, infer_schema": "tw.infer_schema(path)",
        f"{OURS}, infer_schema, full": "tw.infer_schema(scanned, full=True)",
        f"{OURS}, repair, report only": "tw.repair(broken)",
        f"{OURS}, repair": "tw.repair(broken, target)",
    }
    found = [Contender(name, call, names, "ours", size=sample.size) for name, call in ours.items()]
    counted, reported = len(tw.RecordReader(sample.path, index=False)), tw.repair(broken)
    if counted != rows or not rows - 2 * _DAMAGE <= reported.records < rows:
        raise WrongResult(f"{counted} records counted and {reported.records} left of {rows}")
    if rivals.tfrecords:
        theirs = names | {"tfrecords": rivals.tfrecords}
        found.append(
            Contender(
                "tfrecords, count", "tfrecords.tf_record_iterator(path).read_count(0)", theirs
            )
        )
        found.append(
            Contender(
                "tfrecords, offsets",
                "tfrecords.tf_record_random_reader(path).read_offsets(0)",
                theirs,
            )
        )
        if eval(found[-2].statement, theirs) != rows:
            raise WrongResult("tfrecords counts other records")
    if rivals.tfrecord:
        theirs = names | {"create_index": rivals.tfrecord.tools.tfrecord2idx.create_index}
        found.append(
            Contender(
                _scaled("tfrecord, index", few),
                "create_index(few, few_idx)",
                theirs,
                scale=rows / few.rows,
            )
        )
    return [*found, *limits.readings(sample)]
