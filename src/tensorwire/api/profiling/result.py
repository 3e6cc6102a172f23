"""The result of `tw.profile`: a sequence of measurements, with the best one for each purpose, a
table and a plot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from . import choosing, table

BANDWIDTH = 125e6
"""Bytes per second of a gigabit link, which is about that of a disk or one stream from a bucket."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The size and times of one candidate. Times are in seconds."""

    way: str
    """The name of the candidate: "safetensors + shuffle + zstd"."""
    format: str
    compression: str | None
    level: int | None
    shuffle: bool
    quantize: str | None
    size: int
    """The number of bytes of the encoded value."""
    nbytes: int
    """The number of bytes of the tensors in memory."""
    encode_seconds: float
    """The shortest time of `tw.dumps`. Disturbances only make a measurement longer."""
    decode_seconds: float
    """The shortest time of `tw.loads(copy=True)`, so that every candidate ends with arrays of the
    caller's own.
    """
    encode_median: float
    decode_median: float
    view_seconds: float | None
    """The shortest time of `tw.loads` if it returns views of the bytes; None if it does not."""
    repetitions: int
    exact: bool
    """Whether the decoded value is equal bit for bit. Without quantization it must be."""
    max_error: float
    mean_error: float
    """The mean distance of the finite floats from the original."""
    options: dict[str, Any]
    """The arguments of `tw.dumps` and `tw.save`."""
    reading: dict[str, Any]
    """The arguments of `tw.loads`."""

    @property
    def lossy(self) -> bool:
        """Whether it is quantized."""
        return self.quantize is not None

    @property
    def ratio(self) -> float:
        """The compression ratio: the size in memory divided by the encoded size."""
        return self.nbytes / self.size if self.size else 1.0

    def total(self, bandwidth: float = BANDWIDTH) -> float:
        """The seconds to encode, send and decode."""
        return self.encode_seconds + self.size / bandwidth + self.decode_seconds

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        return asdict(self) | {"ratio": self.ratio, "lossy": self.lossy}


@dataclass(frozen=True, slots=True)
class Choice:
    """The best candidate for a purpose, and the reason."""

    what: str
    why: str
    """The reason in words, with figures."""
    measurement: Measurement

    @property
    def way(self) -> str:
        """The name of the candidate."""
        return self.measurement.way

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `tw.dumps` and `tw.save`."""
        return dict(self.measurement.options)

    @property
    def reading(self) -> dict[str, Any]:
        """The arguments of `tw.loads`."""
        return dict(self.measurement.reading)

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        return {"what": self.what, "why": self.why, "measurement": self.measurement.json()}

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True, repr=False)
class Profile(Sequence[Measurement]):
    """The measurements of a value, returned by `tw.profile`. Exact candidates come before lossy
    ones, and then the quickest to encode, send and decode come first.
    """

    value: str
    """A description of the value."""
    nbytes: int
    """The number of bytes of the tensors that were measured, which may be a sample."""
    whole_nbytes: int
    """The number of bytes of the tensors of the whole value."""
    measurements: tuple[Measurement, ...]
    skipped: dict[str, str]
    """The reason for each candidate that was not measured: the format cannot hold the value, a
    package is missing, no time was left.
    """
    wrong: dict[str, str]
    """The error of each candidate that failed. Every entry is a bug in tensorwire: please report
    it.
    """
    seconds: float
    """The seconds that all measurements took."""

    @property
    def sampled(self) -> bool:
        """Whether only a sample of the value was measured."""
        return self.nbytes < self.whole_nbytes

    def best(
        self,
        what: str = "balanced",
        *,
        lossy: bool = False,
        max_error: float | None = None,
        bandwidth: float = BANDWIDTH,
    ) -> Choice:
        """Returns the best candidate for "size", "encode", "decode" or "balanced": the time to
        encode, send at `bandwidth` bytes per second, and decode.

        Quantized candidates are considered only with `lossy=True`, or with `max_error`, the largest
        error of an element. Times within a tenth of each other count as equal; then the smaller
        candidate wins, or the format that is first in `tw.formats()`. Raises LookupError if no
        candidate is left.
        """
        why, measurement = choosing.best(self.measurements, what, lossy, max_error, bandwidth)
        return Choice(what, f"{why} Measured on a sample." if self.sampled else why, measurement)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plots size against speed, for encoding and decoding, to an SVG, PNG or PDF file; without
        a path it returns the Figure of matplotlib.

        Each format has a colour and each compression a marker; quantized candidates are hollow. The
        line connects the exact candidates that no other one beats in both size and speed.
        """
        # Only plots need matplotlib.
        from . import plot

        return plot.plot(self, path)

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
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
            "measurements": [measurement.json() for measurement in self.measurements],
            "skipped": dict(self.skipped),
            "wrong": dict(self.wrong),
        }

    def _has_exact(self) -> bool:
        return any(not measurement.lossy for measurement in self.measurements)

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
