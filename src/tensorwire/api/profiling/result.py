"""What `tw.profile` gives back: a sequence of measurements that can say which is best, and show
itself as a table and as a plot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from . import choosing, table

BANDWIDTH = 125e6
"""Bytes a second of a gigabit link, and about what a disk or one stream from a bucket gives."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One way to write the value, and what it costs. Times are seconds."""

    way: str
    """In words: "safetensors + shuffle + zstd"."""
    format: str
    compression: str | None
    level: int | None
    shuffle: bool
    quantize: str | None
    size: int
    """Bytes."""
    nbytes: int
    """Of the tensors in memory."""
    encode_seconds: float
    """The quickest `tw.dumps` of the repetitions: what disturbs a measurement only ever makes it
    longer.
    """
    decode_seconds: float
    """The quickest `tw.loads(copy=True)`, so that every way ends with arrays that are the caller's
    own.
    """
    encode_median: float
    decode_median: float
    view_seconds: float | None
    """The quickest `tw.loads` where that gives views of the bytes, which costs next to nothing;
    None where it does not.
    """
    repetitions: int
    exact: bool
    """Whether this value came back to the bit. Every way that quantizes nothing has to; others may,
    by luck.
    """
    max_error: float
    mean_error: float
    """How far the finite floats are from what they were."""
    options: dict[str, Any]
    """Arguments of `tw.dumps` and `tw.save` that write this way."""
    reading: dict[str, Any]
    """Arguments of `tw.loads` that read it."""

    @property
    def lossy(self) -> bool:
        """Whether it quantizes."""
        return self.quantize is not None

    @property
    def ratio(self) -> float:
        """How many times smaller than in memory."""
        return self.nbytes / self.size if self.size else 1.0

    def total(self, bandwidth: float = BANDWIDTH) -> float:
        """Seconds to encode, send and decode."""
        return self.encode_seconds + self.size / bandwidth + self.decode_seconds

    def json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"ratio": self.ratio, "lossy": self.lossy}


@dataclass(frozen=True, slots=True)
class Choice:
    """The best way for something, and `why`."""

    what: str
    why: str
    """The reason in words, with figures."""
    measurement: Measurement

    @property
    def way(self) -> str:
        return self.measurement.way

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `tw.dumps` and `tw.save` that write this way."""
        return dict(self.measurement.options)

    @property
    def reading(self) -> dict[str, Any]:
        """Arguments of `tw.loads` that read it."""
        return dict(self.measurement.reading)

    def json(self) -> dict[str, Any]:
        """Plain data."""
        return {"what": self.what, "why": self.why, "measurement": self.measurement.json()}

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True, repr=False)
class Profile(Sequence[Measurement]):
    """Measurements, exact ways before lossy ones, and among each those first that encode, send and
    decode quickest.
    """

    value: str
    """What was measured, in words."""
    nbytes: int
    """Bytes of the tensors that were measured: of the sample, if there is one."""
    whole_nbytes: int
    """Bytes of the tensors that were given."""
    measurements: tuple[Measurement, ...]
    skipped: dict[str, str]
    """Way -> why it was not measured: the format refused the value, a package is missing, there was
    no time left.
    """
    wrong: dict[str, str]
    """Way -> what went wrong. It is empty, or there is a defect in tensorwire: please report it."""
    seconds: float
    """That all of it took."""

    @property
    def sampled(self) -> bool:
        """Whether the value was so large that a sample of it was measured."""
        return self.nbytes < self.whole_nbytes

    def best(
        self,
        what: str = "balanced",
        *,
        lossy: bool = False,
        max_error: float | None = None,
        bandwidth: float = BANDWIDTH,
    ) -> Choice:
        """The best way for "size", "encode", "decode" or "balanced" (to encode, send at `bandwidth`
        bytes a second, and decode).

        Quantized ways take part only with `lossy=True`, or with `max_error`, the largest error that
        any element may have. Times that are within a tenth of each other count as equal; then the
        smaller way is taken, or the format that comes first in `tw.formats()`.
        """
        why, found = choosing.best(self.measurements, what, lossy, max_error, bandwidth)
        return Choice(what, f"{why} All this of a sample." if self.sampled else why, found)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Size against speed, for encoding and for decoding. The file is SVG, PNG or PDF by its
        suffix; without one it is the Figure.

        Each format has a colour and each compression a marker; quantized ways are hollow. The line
        joins the exact ways that no other exact way is both smaller and quicker than.
        """
        from . import plot  # needs matplotlib

        return plot.plot(self, path)

    def json(self) -> dict[str, Any]:
        """Plain dicts and lists."""
        return {
            **{
                name: getattr(self, name)
                for name in ("value", "nbytes", "whole_nbytes", "sampled", "seconds")
            },
            "best": (
                {what: self.best(what).json() for what in choosing.WHAT}
                if self._has_exact()
                else {}
            ),
            "measurements": [one.json() for one in self.measurements],
            "skipped": dict(self.skipped),
            "wrong": dict(self.wrong),
        }

    def _has_exact(self) -> bool:
        return any(not one.lossy for one in self.measurements)

    def __len__(self) -> int:
        return len(self.measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    @overload
    def __getitem__(self, index: int) -> Measurement: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Measurement, ...]: ...
    def __getitem__(self, index: int | slice) -> Measurement | tuple[Measurement, ...]:
        return self.measurements[index]

    def __str__(self) -> str:
        return table.text(self)

    def __repr__(self) -> str:
        wrong = f", {len(self.wrong)} WRONG" if self.wrong else ""
        return f"<Profile of {self.value}: {len(self)} ways, {len(self.skipped)} skipped{wrong}>"

    def _repr_html_(self) -> str:
        return table.html(self)
