"""What we promised, checked on this run. Ratios are their median over ours, so that stalls count
for us as for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorwire.case import DIRECTIONS, NOISE, KiB, MiB, Result, size_name
from tensorwire.rivals import OURS, OURS_SAFETENSORS, TENSORFLOW, TOBYTES
from tensorwire.timing import Timing

from tensorwire import (
    checkpoints,
    format_cases,
    machine,
    records,
    serving_bodies,
    serving_calls,
    serving_rest,
    stores,
)

IMPORT_SECONDS = 0.040


@dataclass(frozen=True)
class Target:
    what: str
    measured: float
    needed: float
    at_most: bool = False
    """Whether `measured` is to stay under `needed` rather than above it."""
    unit: str = "x"

    @property
    def met(self) -> bool:
        return self.measured <= self.needed if self.at_most else self.measured >= self.needed

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        shown = f"{self.measured:.2f}{self.unit} ({sign} {self.needed:g}{self.unit})"
        return f"{'met   ' if self.met else 'MISSED'}  {shown:>26}  {self.what}"


def check(results: list[Result]) -> list[Target]:
    """Every target whose cases were run."""
    found = {result.name: result for result in results}
    usual = [
        *_small(found),
        *_strings(found),
        *_loads(found),
        *_large_dumps(found),
        *_buffers(found),
        *_imports(found),
    ]
    formats = [
        Target(what, measured, needed, at_most)
        for what, measured, needed, at_most in format_cases.targets(found)
    ]
    serving = [
        each
        for one in (serving_bodies, serving_calls, serving_rest)
        for each in one.targets(found, Target)
    ]
    restored = [
        Target(what, measured, needed) for what, measured, needed in checkpoints.targets(found)
    ]
    return [
        *usual,
        *_stores(found),
        *_state(found),
        *formats,
        *serving,
        *restored,
        *_records(found),
    ]


def _fastest(timings: list[Timing]) -> Timing:
    return min(timings, key=lambda timing: timing.median)


def _small(found: dict[str, Result]) -> Iterator[Target]:
    for name in [f"{which} {size_name(size)}" for size in (32, KiB) for which in DIRECTIONS]:
        if name in found:
            ours = found[name].timing(OURS).median
            yield Target(
                f"{name}: tensorproto over TensorFlow's bare op",
                found[name].timing(TENSORFLOW).median / ours,
                15,
            )
            best = _fastest(found[name].self_describing_rivals())
            yield Target(
                f"{name}: tensorproto over the best self-describing rival, {best.name}",
                best.median / ours,
                3,
            )


def _strings(found: dict[str, Result]) -> Iterator[Target]:
    for name in [f"{which} strings" for which in DIRECTIONS]:
        if name in found:
            ratio = found[name].timing(TENSORFLOW).median / found[name].timing(OURS).median
            yield Target(
                f"{name}: from and to Strings, tensorproto over TensorFlow's bare op", ratio, 15
            )


def _loads(found: dict[str, Result]) -> Iterator[Target]:
    """Our better format for that case against whoever is fastest."""
    for name, result in found.items():
        if name.startswith("loads") and not name.split()[1].startswith(format_cases.NAMES):
            ours, best = _fastest(result.ours()), _fastest(result.self_describing_rivals())
            yield Target(
                f"{name}: never slower; {ours.name} over {best.name}",
                best.median / ours.median,
                NOISE,
            )


def _large_dumps(found: dict[str, Result]) -> Iterator[Target]:
    result = found.get(f"dumps {size_name(256 * MiB)}")
    if result is None:
        return
    floor = result.timing(TOBYTES)
    for name in (OURS, OURS_SAFETENSORS):
        ours = result.timing(name)
        worst = f"worst rounds {floor.worst / ours.worst:.2f}x"
        if machine.huge_pages() == "madvise":
            yield Target(
                f"{result.name}: {name} over tobytes, huge pages by madvise; {worst}",
                floor.median / ours.median,
                1.5,
            )
        yield Target(
            f"{result.name}: {name} over tobytes, never under; {worst}",
            floor.median / ours.median,
            NOISE,
        )


def _buffers(found: dict[str, Result]) -> Iterator[Target]:
    """Up to 4 KiB the data is copied next to its header, so the way is another one there; hence two
    comparisons.
    """
    large = found.get(f"buffers {size_name(256 * MiB)}")
    for size in (KiB, 4 * MiB):
        small = found.get(f"buffers {size_name(size)}")
        if small and large:
            for name in (OURS, OURS_SAFETENSORS):
                ratio = large.timing(name).median / small.timing(name).median
                yield Target(
                    f"buffers: {name}, 256 MiB over {size_name(size)}", ratio, 2, at_most=True
                )


def _imports(found: dict[str, Result]) -> Iterator[Target]:
    result = found.get("import")
    if result:  # the difference of two processes: noise only ever adds, so the best of each
        base = result.timing("numpy, ml_dtypes").best
        for ours in result.ours():
            yield Target(
                f"import of {ours.name}, over numpy and ml_dtypes (best of each)",
                1000 * (ours.best - base),
                1000 * IMPORT_SECONDS,
                True,
                " ms",
            )


def _stores(found: dict[str, Result]) -> Iterator[Target]:
    """What safetensors writes is not durable, so files are compared with ours that are not, either."""
    for name in [
        f"{which} store {what}"
        for what in ("small", "many")
        for which in ("dumps", "loads", "save", "load")
    ]:
        if name in found:
            ours = stores.NOT_DURABLE if name.startswith("save") else stores.OURS
            ratio = found[name].timing(stores.SAFETENSORS).median / found[name].timing(ours).median
            yield Target(f"{name}: {ours} over {stores.SAFETENSORS}", ratio, 3)


def _state(found: dict[str, Result]) -> Iterator[Target]:
    save = found.get("save store state")
    if save:
        ratio = save.timing(stores.OURS).median / save.timing(stores.PLAIN_FSYNC).median
        yield Target(
            f"{save.name}: {stores.OURS}, durable, over a {stores.PLAIN_FSYNC} of the same bytes",
            ratio,
            1.1,
            at_most=True,
        )
    load, touch = found.get("load store state"), found.get("touch store state")
    if load:
        theirs = [
            one
            for one in load.timings
            if one.name.startswith("safetensors") and stores.LAZY not in one.contender.note
        ]
        best = _fastest(theirs)
        ratio = best.median / load.timing(stores.OURS).median
        yield Target(
            f"{load.name}: never slower into memory; {stores.OURS} over {best.name}", ratio, NOISE
        )
    if touch:
        best = _fastest([one for one in touch.timings if one.name.startswith("safetensors")])
        ratio = best.median / touch.timing(stores.MAPPED).median
        yield Target(
            f"{touch.name}: never slower, mapped and read; {stores.MAPPED} over {best.name}",
            ratio,
            NOISE,
        )


_RECORDS: tuple[tuple[str, tuple[str, ...], str, float], ...] = (
    ("columns, 1 thread", (records.OURS, records.REUSED), records.TENSORFLOW, 10),
    ("columns, 2 threads", (records.OURS, records.REUSED), records.TENSORFLOW, 10),
    ("columns, long", (records.OURS, records.REUSED), records.TENSORFLOW, 4),
    ("columns, blobs", (records.OURS, records.REUSED), records.TENSORFLOW, 3),
    ("columns, blobs", (records.VIEWS, records.MAPPED_VIEWS), records.TENSORFLOW, 6),
    ("columns, gzip", (records.OURS, records.REUSED), records.TENSORFLOW, 4),
    ("one by one", (records.OURS,), records.V1, 4),
    ("write", (records.OURS,), records.TENSORFLOW_WRITE, 25),
    ("write", (records.OURS,), records.TFX_WRITE, 4),
)
"""Case, who of ours, over whom (the best whose name begins so), how many times."""


def _records(found: dict[str, Result]) -> Iterator[Target]:
    """By CPU time, that of all threads: what is left for the training beside it."""
    for case, ways, rival, needed in _RECORDS:
        result = found.get(f"records {case}")
        named = [one for one in result.timings if one.name.startswith(rival)] if result else []
        if result and named:
            theirs = min(named, key=lambda one: one.cpu_median)
            for ours in [one for one in result.ours() if one.name in ways]:
                yield Target(
                    f"{result.name}: CPU, {ours.name} over {theirs.name}",
                    theirs.cpu_median / ours.cpu_median,
                    needed,
                )
