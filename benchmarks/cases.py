"""What is measured, case by case. A case is built only when it runs, so that one case's gigabytes
are gone before the next.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from tensorwire.case import DIRECTIONS, SHAPES, Case, KiB, MiB, Plan, size_name
from tensorwire.timing import Contender, race
from tensorwire.ways import Way, dense_differences, prove, with_bfloat16

import tensorwire as tw
from tensorwire import (
    checkpoints,
    format_cases,
    kinds,
    limits,
    record_rivals,
    records,
    rivals,
    rows,
    serving_bodies,
    serving_calls,
    serving_rest,
    stores,
)
from tensorwire.wire.crc import crc32c


def dense_tensor(size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).random(SHAPES[size], np.float32)


def cases(plan: Plan) -> Iterator[Case]:
    """All of them, in the order of the report."""
    for size in plan.sizes:
        yield from _dense(plan, size)
    yield from _many(plan)
    yield from _strings(plan)
    yield from _sparse(plan)
    for size in (KiB, 4 * MiB, plan.large):
        yield _buffers(plan, size)
    for size in (64 * KiB, plan.large):
        yield _checksums(plan, size)
    yield from _stores(plan)
    yield from format_cases.cases(plan)
    for serving in (serving_bodies, serving_calls, serving_rest):
        yield from serving.cases(Case, plan.large_rounds)
    yield from checkpoints.cases(plan)
    yield from _records(plan)
    yield _imports(plan)


def _both(
    name: str,
    what: str,
    build: Callable[[], dict[str, list[Contender]]],
    rounds: int,
    seconds: float = 0,
    size: int = 0,
) -> Iterator[Case]:
    """A case for each direction; they share one proof, which is forgotten with the second."""
    proved = cache(build)
    for which in DIRECTIONS:
        yield Case(
            f"{which} {name}",
            f"{which} of {what}",
            lambda which=which: proved()[which],
            rounds,
            seconds,
            size,
        )  # type: ignore[misc]


@cache
def _dense_ways() -> list[Way]:
    """Asked once what happens to bfloat16, so that the notes can say it."""
    return [
        with_bfloat16(way)
        for way in [*rivals.ours(), *rivals.tensorflow(), *rivals.libraries(), *rivals.floor()]
    ]


def _dense(plan: Plan, size: int) -> Iterator[Case]:
    def build() -> dict[str, list[Contender]]:
        x = dense_tensor(size)
        copies = limits.copies(x) if size >= MiB else []
        return {
            which: found + copies
            for which, found in prove(_dense_ways(), x, dense_differences).items()
        }

    what = f"one float32 tensor {list(SHAPES[size])}, {size_name(size)}"
    return _both(
        size_name(size),
        what,
        build,
        plan.large_rounds if size >= MiB else plan.rounds,
        plan.seconds,
        size,
    )


def _many(plan: Plan) -> Iterator[Case]:
    def tensors() -> list[Any]:
        random = np.random.default_rng(2)
        return [random.random(size, np.float32) for size in random.integers(4, 65, plan.tensors)]

    def one_by_one() -> dict[str, list[Contender]]:
        ways = [
            kinds.one_by_one(way)
            for way in _dense_ways()
            if way.name != "TensorFlow, NumPy and bytes"
        ]
        return prove(ways, tensors(), kinds.list_differences)

    def one_list() -> dict[str, list[Contender]]:
        return prove(kinds.lists(), tensors(), kinds.list_differences)

    what = f"{plan.tensors:,} float32 tensors of 4 to 64 elements"
    yield from _both("many, one by one", f"{what}, one by one", one_by_one, plan.many_rounds)
    yield from _both("many, one list", f"{what}, one list as one value", one_list, plan.many_rounds)


def _strings(plan: Plan) -> Iterator[Case]:
    def build() -> dict[str, list[Contender]]:
        random = np.random.default_rng(3)
        offsets = np.zeros(plan.strings + 1, np.int64)
        np.cumsum(random.integers(5, 41, plan.strings), out=offsets[1:])
        strings = tw.Strings(random.integers(97, 123, offsets[-1], np.uint8), offsets)
        return prove(kinds.strings(), strings, kinds.string_differences)

    what = f"{plan.strings:,} strings of 5 to 40 bytes, each library from and to its own object"
    return _both("strings", what, build, plan.large_rounds)


def _sparse(plan: Plan) -> Iterator[Case]:
    def build() -> dict[str, list[Contender]]:
        random = np.random.default_rng(4)
        columns = 10_000
        flat = np.sort(random.choice(plan.nonzeros * 10, plan.nonzeros, replace=False))
        indices = np.column_stack([flat // columns, flat % columns]).astype(np.int64)
        sparse = tw.Sparse(
            indices,
            random.random(plan.nonzeros, np.float32),
            (plan.nonzeros * 10 // columns, columns),
        )
        return prove(kinds.sparse(), sparse, kinds.sparse_differences)

    return _both(
        "sparse",
        f"one sparse float32 matrix with {plan.nonzeros:,} nonzeros",
        build,
        plan.large_rounds,
    )


def _buffers(plan: Plan, size: int) -> Case:
    def build() -> list[Contender]:
        x = dense_tensor(size)
        names = {"x": x, "tw_buffers": tw.buffers, "pickle_dumps": pickle.dumps}
        for form in ("tensorproto", "safetensors"):
            if b"".join(tw.buffers(x, form)) != tw.dumps(x, form):
                raise AssertionError(f"the buffers of {form} are not its bytes")
        return [
            Contender(rivals.OURS, 'tw_buffers(x, "tensorproto")', names, "ours"),
            Contender(rivals.OURS_SAFETENSORS, "tw_buffers(x)", names, "ours"),
            Contender(
                "pickle 5, out of band", "pickle_dumps(x, 5, buffer_callback=[].append)", names
            ),
        ]

    about = (
        f"buffers of one float32 tensor {list(SHAPES[size])}, {size_name(size)}; large data is not"
        " copied"
    )
    return Case(f"buffers {size_name(size)}", about, build, plan.rounds, plan.seconds, size)


def _checksums(plan: Plan, size: int) -> Case:
    def build() -> list[Contender]:
        if crc32c(b"123456789") != 0xE3069283:
            raise AssertionError("that is not CRC32C")
        data = dense_tensor(size).tobytes()
        names = {"data": data, "crc32c": crc32c, "crc32": zlib.crc32}
        ours = Contender("tensorwire crc32c", "crc32c(data)", names, "ours")
        other = Contender("zlib crc32", "crc32(data)", names, note="another polynomial")
        return [ours, other, *limits.copies(np.frombuffer(data, np.uint8))]

    about = f"checksum of {size_name(size)}, against copying as much"
    return Case(f"crc32c {size_name(size)}", about, build, plan.rounds, plan.seconds, size)


def _stores(plan: Plan) -> Iterator[Case]:
    def several(
        name: str,
        what: str,
        build: Callable[[], dict[str, list[Contender]]],
        verbs: str,
        rounds: int,
        seconds: float = 0,
    ) -> Any:
        proved = cache(build)
        for which in verbs.split():
            run = (
                race
                if seconds
                else {
                    "save": stores.write_race,
                    "load": stores.read_race,
                    "touch": stores.read_race,
                }.get(which, race)
            )
            yield Case(
                f"{which} {name}",
                f"{which}: {what}",
                lambda which=which: proved()[which],
                rounds,
                seconds,
                race=run,
            )  # type: ignore[misc]

    one, tiny = "float32[8] as {'x': x}", f"a dict of {plan.tensors:,} float32[4]"
    state = f"{stores.TENSORS} tensors, float32 and bfloat16, {plan.state / 1e6:,.0f} MB"
    slow = plan.large_rounds
    yield from several(
        "store small",
        one,
        lambda: stores.in_bytes(stores.small()),
        "dumps loads",
        plan.rounds,
        plan.seconds,
    )
    yield from several(
        "store small",
        f"{one}, a file",
        lambda: stores.in_files(stores.small()),
        "save load",
        plan.rounds,
        plan.seconds,
    )
    yield from several(
        "store many",
        tiny,
        lambda: stores.in_bytes(stores.tiny(plan.tensors), False),
        "dumps loads",
        slow,
    )
    yield from several(
        "store many",
        f"{tiny}, a file",
        lambda: stores.in_files(stores.tiny(plan.tensors), False),
        "save load",
        slow,
    )
    yield from several(
        "store state",
        state,
        lambda: stores.in_files(stores.state(plan.state)),
        "save load touch",
        plan.state_rounds,
    )
    table = (
        f"float32 [{plan.table:,}, 256] in a file; 1,000 rows, 100 slices of 64 rows, or opened"
        " anew for one row"
    )
    yield from several(
        "store table",
        table,
        lambda: rows.contenders(plan.table),
        "rows slices open",
        plan.rounds,
        plan.seconds,
    )


def _records(plan: Plan) -> Iterator[Case]:
    def case(
        name: str, what: str, count: int, build: Callable[[], list[Contender]], **more: Any
    ) -> Case:
        return Case(
            f"records {name}",
            what,
            build,
            plan.file_rounds,
            records=count,
            **({"race": records.quiet_race} | more),
        )

    many, blobs, gzipped = plan.examples, records.room_for(plan.blobs), plan.gzipped
    small = f"{many:,} small Examples"
    absent = record_rivals.missing()
    yield case(
        "columns, 1 thread",
        f"{small} to columns, 1 thread{absent}",
        many,
        lambda: records.columns(many, 1),
    )
    yield case(
        "columns, 2 threads",
        f"{small} to columns, 2 threads against 2",
        many,
        lambda: records.columns(many, 2),
    )
    long = f"{plan.long_examples:,} Examples of float[1024] to columns"
    yield case(
        "columns, long", long, plan.long_examples, lambda: records.long_columns(plan.long_examples)
    )
    yield case(
        "columns, blobs",
        f"{blobs:,} Examples of 100 KB bytes to columns",
        blobs,
        lambda: records.blob_columns(blobs),
    )
    yield case(
        "columns, gzip",
        f"{gzipped:,} small Examples, gzipped, to columns",
        gzipped,
        lambda: records.gzip_columns(gzipped),
    )
    yield case(
        "one by one",
        f"{small} as Python bytes, one by one{absent}",
        many,
        lambda: records.one_by_one(many),
    )
    yield case(
        "write",
        f"{small} from columns{absent}",
        many,
        lambda: records.writing(many),
        race=stores.write_race,
    )
    yield case(
        "by number",
        f"{records.NUMBERS:,} of {small} by number",
        records.NUMBERS,
        lambda: records.by_number(many),
    )
    yield case(
        "shuffled", f"{small}, all of them in a random order", many, lambda: records.shuffled(many)
    )
    yield case(
        "about",
        f"{small}: what is found out about the file",
        many,
        lambda: records.about_files(many),
    )


IMPORTS = {
    "numpy, ml_dtypes": "import numpy, ml_dtypes",
    "tensorwire": "import numpy, ml_dtypes, tensorwire",
    "tensorwire, first use": (
        "import numpy, ml_dtypes, tensorwire; tensorwire.dumps, tensorwire.loads, tensorwire.io"
    ),
    "tensorflow": "import tensorflow",
}


def _imports(plan: Plan) -> Case:
    # everyone's modules compiled, whatever this environment says about writing bytecode
    compiled = tempfile.TemporaryDirectory()
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": compiled.name,
    }

    def run(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)

    def build() -> list[Contender]:
        found = [
            Contender(name, f"run({code!r})", {"run": run, "kept": compiled})
            for name, code in IMPORTS.items()
        ]
        return [
            replace(one, role="ours") if one.name.startswith("tensorwire") else one for one in found
        ]

    return Case("import", "a new Python process that imports and ends", build, plan.import_rounds)
