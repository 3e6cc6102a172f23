"""Contenders race in rounds: in each round everyone runs once, in a new order, so that a noisy
minute hits all of them.

A contender is a statement, as a user would type it, and the names that it uses. `timeit` compiles
it into a loop: nothing of ours stands between the clock and the rival. The garbage collector is off
while the clock runs. The time includes freeing the result.
"""

from __future__ import annotations

import gc
import random
import resource
import statistics
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

Role = Literal["ours", "rival", "floor"]

PATIENCE = 3.0
"""Seconds of calls in one case after which a contender needs no further round, if it has had
`FEWEST` rounds.
"""
FEWEST = 3


class Instant(NamedTuple):
    """A moment on two clocks; the difference of two is how long something took."""

    wall: float
    cpu: float
    """Of all threads of this process, and of the processes that it has waited for."""

    def __sub__(self, earlier: Instant) -> Instant:
        return Instant(self.wall - earlier.wall, self.cpu - earlier.cpu)


def now() -> Instant:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Instant(time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime)


@dataclass(frozen=True)
class Contender:
    """Someone in a race."""

    name: str
    statement: str
    names: dict[str, Any] = field(repr=False)
    role: Role = "rival"
    self_describing: bool = True
    """Whether the bytes alone say dtype and shape."""
    note: str = ""
    scale: float = 1
    """For who is so slow that it was given a smaller job: how many of those make the whole one. Its
    times are multiplied by it.
    """
    size: int = 0
    """Bytes that it goes through, where they are what limits it."""


@dataclass
class Timing:
    """Seconds per execution of a contender's statement, one number a round."""

    contender: Contender
    loops: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def median(self) -> float:
        return statistics.median(self.wall)

    @property
    def best(self) -> float:
        return min(self.wall)

    @property
    def worst(self) -> float:
        return max(self.wall)

    @property
    def cpu_median(self) -> float:
        return statistics.median(self.cpu)

    @property
    def cpu_best(self) -> float:
        return min(self.cpu)


def race(
    contenders: Sequence[Contender],
    rounds: int,
    seconds: float,
    before: Callable[[], None] | None = None,
) -> list[Timing]:
    """Times every contender in every round; `seconds` is how long one measurement should take at
    least, 0 for one call.

    The slowest leave early, when they have used up our patience. What is returned no longer holds
    the tensors. `before` is called before each measurement, and is not timed.
    """
    runs = [
        (Timing(replace(contender, names={}), 1), _runner(contender)) for contender in contenders
    ]
    for timing, run in runs:
        timing.loops = _calibrate(run, seconds) if seconds else 1
    order = list(runs)
    shuffle = random.Random(20).shuffle
    gc.collect()
    for _ in range(rounds):
        shuffle(order)
        for timing, run in order:
            if (
                len(timing.wall) >= FEWEST
                and sum(timing.wall) * timing.loops > PATIENCE * timing.contender.scale
            ):
                continue
            if before:
                before()
            took = run(timing.loops)
            timing.wall.append(took.wall * timing.contender.scale / timing.loops)
            timing.cpu.append(took.cpu * timing.contender.scale / timing.loops)
    return [timing for timing, _ in runs]


def _runner(contender: Contender) -> Callable[[int], Instant]:
    # timeit subtracts two readings of the timer, and does not ask what they are; it also switches
    # the garbage collector off.
    run: Any = timeit.Timer(contender.statement, timer=now, globals=contender.names).timeit  # type: ignore[arg-type]
    return run  # type: ignore[no-any-return]


def _calibrate(run: Callable[[int], Instant], seconds: float) -> int:
    """How many loops take about `seconds`. It is the warm-up, too."""
    loops = 1
    while True:
        took = run(loops).wall
        if took >= seconds / 4:
            return max(1, round(loops * seconds / took))
        loops *= 4
