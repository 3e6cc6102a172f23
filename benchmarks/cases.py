"""What is measured, case by case. A case is built only when it runs, so that one case's gigabytes are gone before the next."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

import tensorwire as tw
from tensorwire.wire.crc import crc32c

from . import kinds, limits, rivals
from .timing import Contender, Timing
from .ways import Way, contenders, dense_differences, with_bfloat16

KiB, MiB = 1 << 10, 1 << 20
DIRECTIONS = ("dumps", "loads")


@dataclass(frozen=True)
class Plan:
    """How much of it: sizes, counts, rounds."""

    sizes: tuple[int, ...] = (32, KiB, 4 * MiB, 256 * MiB)
    tensors: int = 100_000
    strings: int = 1_000_000
    nonzeros: int = 1_000_000
    rounds: int = 9
    large_rounds: int = 7
    """For strings and sparse tensors, where one measurement is one call."""
    many_rounds: int = 3
    """For lists of small tensors, where one call takes seconds."""
    import_rounds: int = 7
    seconds: float = 0.03
    """How long one measurement should take at least."""

    @property
    def large(self) -> int:
        return self.sizes[-1]


QUICK = Plan(
    sizes=(32, KiB, 4 * MiB, 32 * MiB),
    tensors=5_000,
    strings=100_000,
    nonzeros=100_000,
    rounds=3,
    large_rounds=3,
    many_rounds=2,
    import_rounds=2,
    seconds=0.01,
)


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    build: Callable[[], list[Contender]]
    rounds: int
    seconds: float = 0
    """How long one measurement should take at least; one call, if it takes longer."""
    size: int = 0
    """Bytes of the tensor, where that is what the case is about."""


@dataclass
class Result:
    case: Case
    timings: list[Timing]

    @property
    def name(self) -> str:
        return self.case.name

    def timing(self, name: str) -> Timing:
        return next(timing for timing in self.timings if timing.name == name)

    def ours(self) -> list[Timing]:
        return [timing for timing in self.timings if timing.contender.role == "ours"]

    def self_describing_rivals(self) -> list[Timing]:
        return [timing for timing in self.timings if timing.contender.role == "rival" and timing.contender.self_describing]


def size_name(size: int) -> str:
    """32 B, 1 KiB, 4 MiB."""
    unit, word = (MiB, "MiB") if size >= MiB else (KiB, "KiB") if size >= KiB else (1, "B")
    return f"{size // unit} {word}"


def dense_shape(size: int) -> tuple[int, int]:
    """float32, as square as it goes: 32 B is [2, 4], 256 MiB is [8192, 8192]."""
    rows = 1 << ((size // 4).bit_length() - 1) // 2
    return rows, size // 4 // rows


def dense_tensor(size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).random(dense_shape(size), np.float32)


@cache
def _dense_ways() -> list[Way]:
    """Asked once what happens to bfloat16, so that the notes can say it."""
    return [with_bfloat16(way) for way in [*rivals.ours(), *rivals.tensorflow(), *rivals.libraries(), *rivals.floor()]]


def cases(plan: Plan) -> Iterator[Case]:
    """All of them, in the order of the report."""
    for size in plan.sizes:
        for which in DIRECTIONS:
            yield _dense(plan, which, size)
    yield from _many(plan)
    yield from _strings(plan)
    yield from _sparse(plan)
    for size in (KiB, plan.large):
        yield _buffers(plan, size)
    for size in (64 * KiB, plan.large):
        yield _checksums(plan, size)
    yield _imports(plan)


def _dense(plan: Plan, which: str, size: int) -> Case:
    def build() -> list[Contender]:
        x = dense_tensor(size)
        return contenders(_dense_ways(), which, x, dense_differences) + (limits.copies(x) if size >= MiB else [])

    about = f"{which} of one float32 tensor {list(dense_shape(size))}, {size_name(size)}"
    return Case(f"{which} {size_name(size)}", about, build, plan.rounds, plan.seconds, size)


def _many(plan: Plan) -> Iterator[Case]:
    def tensors() -> list[Any]:
        random = np.random.default_rng(2)
        return [random.random(size, np.float32) for size in random.integers(4, 65, plan.tensors)]

    def one_by_one(which: str) -> list[Contender]:
        ways = [kinds.one_by_one(way) for way in _dense_ways() if way.name != "TensorFlow, NumPy and bytes"]
        return contenders(ways, which, tensors(), kinds.list_differences)

    def one_list(which: str) -> list[Contender]:
        return contenders(kinds.lists(), which, tensors(), kinds.list_differences)

    what = f"{plan.tensors:,} float32 tensors of 4 to 64 elements"
    for which in DIRECTIONS:
        about = f"{which} of {what}, one by one"
        yield Case(f"{which} many, one by one", about, partial(one_by_one, which), plan.many_rounds)
    for which in DIRECTIONS:
        about = f"{which} of {what}, one list as one value"
        yield Case(f"{which} many, one list", about, partial(one_list, which), plan.many_rounds)


def _strings(plan: Plan) -> Iterator[Case]:
    def strings() -> tw.Strings:
        random = np.random.default_rng(3)
        offsets = np.zeros(plan.strings + 1, np.int64)
        np.cumsum(random.integers(5, 41, plan.strings), out=offsets[1:])
        return tw.Strings(random.integers(97, 123, offsets[-1], np.uint8), offsets)

    def build(which: str) -> list[Contender]:
        return contenders(kinds.strings(), which, strings(), kinds.string_differences)

    for which in DIRECTIONS:
        about = f"{which} of {plan.strings:,} strings of 5 to 40 bytes; each library from and to its own object"
        yield Case(f"{which} strings", about, partial(build, which), plan.large_rounds)


def _sparse(plan: Plan) -> Iterator[Case]:
    def sparse() -> tw.Sparse:
        random = np.random.default_rng(4)
        columns = 10_000
        flat = np.sort(random.choice(plan.nonzeros * 10, plan.nonzeros, replace=False))
        indices = np.column_stack([flat // columns, flat % columns]).astype(np.int64)
        return tw.Sparse(indices, random.random(plan.nonzeros, np.float32), (plan.nonzeros * 10 // columns, columns))

    def build(which: str) -> list[Contender]:
        return contenders(kinds.sparse(), which, sparse(), kinds.sparse_differences)

    for which in DIRECTIONS:
        about = f"{which} of one sparse float32 matrix with {plan.nonzeros:,} nonzeros"
        yield Case(f"{which} sparse", about, partial(build, which), plan.large_rounds)


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
            Contender("pickle 5, out of band", "pickle_dumps(x, 5, buffer_callback=[].append)", names),
        ]

    about = f"buffers of one float32 tensor {list(dense_shape(size))}, {size_name(size)}: nothing of it is copied"
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


IMPORTS = {
    "numpy, ml_dtypes": "import numpy, ml_dtypes",
    "tensorwire": "import numpy, ml_dtypes, tensorwire",
    "tensorwire, first use": "import numpy, ml_dtypes, tensorwire; tensorwire.dumps, tensorwire.loads, tensorwire.io",
    "tensorflow": "import tensorflow",
}


def _imports(plan: Plan) -> Case:
    def run(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    def build() -> list[Contender]:
        found = [Contender(name, f"run({code!r})", {"run": run}) for name, code in IMPORTS.items()]
        return [replace(one, role="ours") if one.name.startswith("tensorwire") else one for one in found]

    return Case("import", "a new Python process that imports and ends", build, plan.import_rounds)
