"""arrow against pyarrow itself: a table in memory to the bytes of an IPC file and back, and how
long it takes to open one for a row.

pyarrow starts from NumPy arrays, as we do (for strings and lists from its own arrays over the same
memory), writes into its own growing buffer, and ends with NumPy arrays (for strings with its own
array). It believes what it reads; "validated" asks it to look, as we do, because it crashes on
bytes that lie. Of a compressed file it inflates in threads, and so do we.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from tensorwire.stores import PREFIX
from tensorwire.timing import Contender
from tensorwire.ways import Way, WrongResult, prove

import tensorwire as tw

Contenders = dict[str, list[Contender]]
Table = dict[str, Any]

OURS, COPIED, BUFFERS = "tensorwire", "tensorwire, copied", "tensorwire, buffers"
PYARROW, VALIDATED = "pyarrow", "pyarrow, validated"
VERBS = {"bytes": ("dumps", "loads"), "opening": ("open",)}
SLOWER = 1.1
"""Never slower than pyarrow beyond this."""


def small() -> Table:
    return {"x": np.random.default_rng(20).random(8, np.float32)}


def features(rows: int) -> Table:
    """What a training set has: a vector, a label, a weight, and whether to use it."""
    rng = np.random.default_rng(21)
    labels = {
        "label": rng.integers(0, 1000, rows),
        "weight": rng.random(rows),
        "use": rng.random(rows) < 0.9,
    }
    return {"x": rng.random((rows, 64), np.float32)} | labels


def columns(rows: int, count: int = 10) -> Table:
    rng = np.random.default_rng(22)
    return {f"column {i}": rng.random(rows, np.float32) for i in range(count)}


def wide(count: int = 500) -> Table:
    rng = np.random.default_rng(23)
    return {f"column {i}": rng.random((100, 8), np.float32) for i in range(count)}


def words(rows: int) -> Table:
    rng = np.random.default_rng(24)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(rng.integers(5, 41, rows), out=offsets[1:])
    return {"word": tw.Strings(rng.integers(97, 123, offsets[-1], np.uint8), offsets, text=True)}


def tokens(rows: int) -> Table:
    rng = np.random.default_rng(25)
    splits = np.zeros(rows + 1, np.int64)
    np.cumsum(rng.integers(1, 20, rows), out=splits[1:])
    return {"token": tw.Ragged(rng.integers(0, 50_000, splits[-1], np.int32), splits)}


def rounded(rows: int) -> Table:
    """Numbers that can be compressed."""
    rng = np.random.default_rng(26)
    return {
        "x": np.round(rng.standard_normal((rows, 32)) * 100).astype(np.float32),
        "id": np.arange(rows),
    }


VALUES: dict[str, tuple[str, Callable[[int], Table], str | None]] = {
    "small": ("one column of 8 float32", lambda rows: small(), None),
    "columns": ("{rows:,} rows of 10 float32 columns", columns, None),
    "features": (
        "{rows:,} rows: a vector of 64 float32, a label, a weight, a bool",
        features,
        None,
    ),
    "wide": ("500 columns of 100 rows of 8 float32", lambda rows: wide(), None),
    "words": ("{rows:,} strings of 5 to 40 bytes", words, None),
    "tokens": ("{rows:,} lists of 1 to 19 int32", tokens, None),
    "zstd": ("{rows:,} rows of 32 float32 with few digits and a number, zstd", rounded, "zstd"),
    "lz4": ("{rows:,} rows of 32 float32 with few digits and a number, lz4", rounded, "lz4"),
}
"""Case -> what it is, how it is made of a number of rows, and the compression."""


def _prepared(x: Table) -> Table:
    """Strings and lists as pyarrow's own arrays, over the same memory; the rest stays NumPy's."""
    return {
        name: tw.to(column, "arrow") if isinstance(column, (tw.Strings, tw.Ragged)) else column
        for name, column in x.items()
    }


def _column(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    return pa.array(x) if x.ndim == 1 else pa.FixedShapeTensorArray.from_numpy_ndarray(x)


def _dumps(x: Table, compression: str | None) -> Any:
    table = pa.table({name: _column(column) for name, column in x.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _loads(blob: Any, validate: bool = False) -> Table:
    table = pa.ipc.open_file(blob).read_all()
    if validate:
        table.validate(full=True)
    return {
        name: _array(column.chunk(0))
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _array(column: Any) -> Any:
    if isinstance(column, pa.FixedShapeTensorArray):
        return column.to_numpy_ndarray()
    if pa.types.is_large_list(column.type):
        return column.values.to_numpy(), column.offsets.to_numpy()
    return (
        column
        if pa.types.is_large_string(column.type)
        else column.to_numpy(zero_copy_only=column.type != pa.bool_())
    )


def _restored(x: Table) -> Table:
    """What pyarrow gives, as our own."""
    made = {
        name: tw.Ragged(*column) if isinstance(column, tuple) else column
        for name, column in x.items()
    }
    return {
        name: tw.tensor(column) if isinstance(column, pa.Array) else column
        for name, column in made.items()
    }


def _differences(given: Table, back: Table) -> str:
    if not tw.equal(given, back):
        raise WrongResult("other tensors came back")
    return ""


def in_bytes(case: str, rows: int) -> Contenders:
    """`dumps` and `loads` of a case."""
    _, make, compression = VALUES[case]
    ours = {"tw_dumps": tw.dumps, "tw_loads": tw.loads, "compression": compression}
    theirs = {"pa_dumps": _dumps, "pa_loads": _loads, "compression": compression}
    write = (
        'tw_dumps(x, "arrow", compression=compression)' if compression else 'tw_dumps(x, "arrow")'
    )
    ways = [
        Way(OURS, write, 'tw_loads(blob, "arrow")', ours, role="ours"),
        Way(COPIED, write, 'tw_loads(blob, "arrow", copy=True)', ours, role="ours"),
        Way(PYARROW, "pa_dumps(x, compression)", "pa_loads(blob)", theirs, _prepared, _restored),
        Way(
            VALIDATED,
            "pa_dumps(x, compression)",
            "pa_loads(blob, True)",
            theirs,
            _prepared,
            _restored,
        ),
    ]
    found = prove(ways, make(rows), _differences)
    write = write.replace("tw_dumps", "tw_buffers")
    buffers = Contender(
        BUFFERS,
        write,
        found["dumps"][0].names | {"tw_buffers": tw.buffers},
        "ours",
        note="nothing is copied",
    )
    # the others differ in how they read
    found["dumps"] = [found["dumps"][0], buffers, found["dumps"][2]]
    return found


def _row(path: str) -> Any:
    with tw.open(path) as file:
        return file["x"][3]


def _mapped_row(path: str) -> Any:
    with pa.memory_map(path) as file:
        return (
            pa.ipc.open_file(file).get_batch(0).column("x").slice(3, 1).to_numpy_ndarray()[0].copy()
        )


def opening(small: int = 1 << 8, large: int = 1 << 16) -> Contenders:
    """`open`: a small file and a large one, each opened anew for one row of 1024 float32. Ours
    should not feel the difference.
    """
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    found = []
    for rows, word in ((small, "small"), (large, "large")):
        path = f"{folder.name}/{word}.arrow"
        tw.save(path, {"x": np.ones((rows, 1024), np.float32)}, durable=False)
        names = {"path": path, "folder": folder, "row": _row, "pa_row": _mapped_row}
        found.append(Contender(f"{OURS}, {word}", "row(path)", names, "ours"))
        found.append(Contender(f"{PYARROW}, {word}", "pa_row(path)", names, note="a mapping"))
    for one in found:
        if not np.array_equal(eval(one.statement, one.names), np.ones(1024, np.float32)):
            raise WrongResult(f"{one.name} reads another row")
    return {"open": found}


def targets(found: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """(what, measured, at most) of the cases that were run, by name: "dumps arrow small" and so on.

    Reading is held against pyarrow as it is, but where the look costs as much as the data is long:
    strings and lists.
    """
    for case in VALUES:
        for verb in VERBS["bytes"]:
            result = found.get(f"{verb} arrow {case}")
            if result is not None:
                rival = VALIDATED if verb == "loads" and case in ("words", "tokens") else PYARROW
                ratio = result.timing(OURS).median / result.timing(rival).median
                yield f"{result.name}: {OURS} over {rival}", ratio, SLOWER
    opened = found.get("open arrow")
    if opened is not None:
        ratio = opened.timing(f"{OURS}, large").median / opened.timing(f"{OURS}, small").median
        yield f"{opened.name}: {OURS}, large over small", ratio, 1.5
