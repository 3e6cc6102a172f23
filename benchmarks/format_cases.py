"""The cases of npy and npz, Arrow, JSON and compression, and what was promised of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from tensorwire.case import NOISE, Case, KiB, MiB, Plan, Result, size_name
from tensorwire.timing import Contender, race

from tensorwire import arrow_files, compression, json_text, numpy_files, stores

Target = tuple[str, float, float, bool]
"""What, measured, needed, and whether that is the most rather than the least."""
OPENED = 1.5
"""A row of a large file over one of a small file: both read a few pages, and noise is most of it.
"""


def cases(plan: Plan) -> Iterator[Case]:
    """All of them, in the order of the report."""
    yield from _numpy(plan)
    yield from _arrow(plan)
    yield from json_text.cases(Case, plan.large_rounds, plan.seconds)
    yield from _compression(plan)


def _numpy(plan: Plan) -> Iterator[Case]:
    for kind in numpy_files.KINDS:
        arrays = "one float32 array" if kind == "npy" else "two float32 arrays"
        for size in (KiB, MiB, plan.large):
            seconds = plan.seconds if size <= MiB else 0
            rounds = plan.rounds if seconds else plan.large_rounds
            for build, verbs in (
                (numpy_files.in_bytes, ("dumps", "loads")),
                (numpy_files.in_files, ("save", "load")),
            ):
                proved = cache(partial(build, kind, size))
                for which in verbs:
                    run = (
                        race
                        if seconds
                        else {"save": stores.write_race, "load": stores.read_race}.get(which, race)
                    )
                    about = f"{which}: {arrays} as {kind}, {size_name(size)}"
                    yield Case(
                        f"{which} {kind} {size_name(size)}",
                        about,
                        _one(proved, which),
                        rounds,
                        seconds,
                        size,
                        race=run,
                    )
        about = f"one row of an {kind} file of 1 MiB and of {size_name(plan.large)}, opened anew"
        yield Case(
            f"open {kind}",
            about,
            _one(partial(numpy_files.opening, kind, (MiB, plan.large)), "open"),
            plan.rounds,
            plan.seconds,
        )


def _arrow(plan: Plan) -> Iterator[Case]:
    for name, (what, _, _) in arrow_files.VALUES.items():
        proved = cache(partial(arrow_files.in_bytes, name, plan.table))
        seconds = plan.seconds if name in ("small", "wide") else 0
        for which in ("dumps", "loads"):
            about = f"{which}: {what.format(rows=plan.table)}, as Arrow"
            yield Case(
                f"{which} arrow {name}",
                about,
                _one(proved, which),
                plan.rounds if seconds else plan.large_rounds,
                seconds,
            )
    about = "one row of an Arrow file of 1 MiB and of 256 MiB, opened anew"
    yield Case("open arrow", about, _one(arrow_files.opening, "open"), plan.rounds, plan.seconds)


def _compression(plan: Plan) -> Iterator[Case]:
    size = min(64 * MiB, plan.large)
    for name, (_, what) in compression.DATA.items():
        proved = cache(partial(compression.packed, name, size))
        for which in ("pack", "unpack"):
            yield Case(
                f"{which} {name}",
                f"{which}: {what}, {size_name(size)}, shuffled and in zstd",
                _one(proved, which),
                plan.large_rounds,
            )
    proved = cache(partial(compression.streams, size))
    for which in ("compress", "decompress"):
        yield Case(
            f"{which} stream",
            f"{which}: a stream of {size_name(size)}, by the libraries' own functions too",
            _one(proved, which),
            3,
        )
    for item in (2, 4, 8):
        about = f"the byte shuffle of items of {item} bytes, {size_name(size)}"
        yield Case(
            f"shuffle {item}", about, partial(compression.shuffling, size, item), plan.large_rounds
        )


def _one(
    build: Callable[[], dict[str, list[Contender]]], which: str
) -> Callable[[], list[Contender]]:
    return lambda: build()[which]


def targets(found: Mapping[str, Result]) -> Iterator[Target]:
    """Every target whose cases were run."""
    for name, result in found.items():
        verb, _, rest = name.partition(" ")
        if rest.startswith(numpy_files.KINDS) and verb in ("dumps", "loads", "save", "load"):
            theirs = result.timing(numpy_files.NUMPY).median
            for ours in result.ours():
                yield (
                    f"{name}: {ours.name}, time over NumPy's",
                    ours.median / theirs,
                    numpy_files.SLOWER,
                    True,
                )
        elif verb == "open" and rest in numpy_files.KINDS:
            small, large = (
                result.timing(f"{numpy_files.OURS}, {size}").median for size in ("small", "large")
            )
            yield (
                f"{name}: a row of the large file over one of the small",
                large / small,
                OPENED,
                True,
            )
        elif verb in ("pack", "unpack"):
            yield from _blosc(verb, result)
    for what, measured, most in arrow_files.targets(found):
        yield what, measured, most, True
    yield from json_text.targets(
        found, lambda what, measured, needed: (what, measured, needed, False), NOISE
    )


def _blosc(verb: str, result: Result) -> Iterator[Target]:
    for ours, theirs in compression.PAIRS:
        mine, other = result.timing(ours), result.timing(theirs)
        if verb == "pack":
            ratio = mine.contender.size / other.contender.size
            yield f"{result.name}: bytes, {ours} over {theirs}", ratio, compression.SIZE, True
        yield (
            f"{result.name}: time, {ours} over {theirs}",
            mine.median / other.median,
            compression.SLOWER,
            True,
        )


NAMES = (*numpy_files.KINDS, "arrow", "json")
"""Cases that have targets of their own, so that those for all formats leave them alone."""
