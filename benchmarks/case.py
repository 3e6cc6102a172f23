"""What a case is, and how much of everything is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorwire.timing import Contender, Timing, race

KiB, MiB = 1 << 10, 1 << 20
DIRECTIONS = ("dumps", "loads")
NOISE = 0.95
"""Two equal things differ by so much from run to run; "never slower" is read with it."""
SHAPES = {
    32: (2, 4),
    KiB: (16, 16),
    64 * KiB: (128, 128),
    4 * MiB: (1024, 1024),
    32 * MiB: (2048, 4096),
    64 * MiB: (4096, 4096),
    256 * MiB: (4096, 16384),
}
"""The float32 content of a TensorProto lies at a multiple of 4 for about one shape in four, and is
read in place there. None of the large shapes here is that lucky: [8192, 8192] would be, and would
flatter us."""


@dataclass(frozen=True)
class Plan:
    """How much of it: sizes, counts, rounds."""

    sizes: tuple[int, ...] = (32, KiB, 4 * MiB, 256 * MiB)
    tensors: int = 100_000
    strings: int = 1_000_000
    nonzeros: int = 1_000_000
    state: int = 1_000_000_000
    """Bytes of a model's state in a file."""
    table: int = 100_000
    """Rows of a tensor that is read row by row."""
    examples: int = 1_000_000
    """Small Examples in a TFRecord file."""
    long_examples: int = 100_000
    """Of 1024 floats."""
    blobs: int = 20_000
    """Of 100 KB."""
    gzipped: int = 200_000
    """Small Examples, gzipped: packing a million takes TensorFlow's writer a quarter of a minute.
    """
    rounds: int = 15
    large_rounds: int = 9
    """For large tensors, strings and sparse tensors, where one measurement may be one call."""
    many_rounds: int = 3
    """For lists of small tensors, where one call takes seconds."""
    state_rounds: int = 5
    """For a gigabyte in a file."""
    file_rounds: int = 7
    """For TFRecord files."""
    import_rounds: int = 15
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
    state=64_000_000,
    examples=100_000,
    long_examples=10_000,
    blobs=2_000,
    gzipped=20_000,
    rounds=3,
    large_rounds=3,
    many_rounds=2,
    state_rounds=3,
    file_rounds=3,
    import_rounds=3,
    seconds=0.01,
)


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    build: Callable[[], list[Contender]]
    rounds: int
    seconds: float = 0
    """How long one measurement should take at least; 0 for one call."""
    size: int = 0
    """Bytes of the tensor, where that is what the case is about."""
    records: int = 0
    """Records that one call goes through, where that is what it is about."""
    race: Callable[[list[Contender], int, float], list[Timing]] = race

    def run(self) -> Result:
        return Result(
            self.name,
            self.about,
            self.size,
            self.records,
            self.race(self.build(), self.rounds, self.seconds),
        )


@dataclass(frozen=True)
class Result:
    name: str
    about: str
    size: int
    records: int
    timings: list[Timing]

    def timing(self, name: str) -> Timing:
        return next(timing for timing in self.timings if timing.name == name)

    def ours(self) -> list[Timing]:
        return [timing for timing in self.timings if timing.contender.role == "ours"]

    def self_describing_rivals(self) -> list[Timing]:
        return [
            timing
            for timing in self.timings
            if timing.contender.role == "rival" and timing.contender.self_describing
        ]


def size_name(size: int) -> str:
    """32 B, 1 KiB, 4 MiB."""
    unit, word = (MiB, "MiB") if size >= MiB else (KiB, "KiB") if size >= KiB else (1, "B")
    return f"{size // unit} {word}"
