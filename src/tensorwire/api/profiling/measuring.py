"""Measurements of a profile.

1. Every candidate is measured once (three times if it is quick), the simplest first, and verified:
   the decoded value must be equal to the original.
2. Candidates that are likely to be slow wait until the quick ones were measured in two more rounds.
   Then they are measured, and then all again, until the time is up or there are enough rounds. A
   disturbance of some seconds so does not hit all measurements of one candidate.
3. A measurement repeats the call until SPAN has passed, because a clock cannot measure a call of a
   microsecond.
4. A call with a small array comes first, so that imports are not measured.
5. The garbage collector is off, and collects young objects after each measurement, so that no more
   than one encoding is in memory.
6. A candidate that would not end in time is not started. The estimate comes from others with the
   same compression or format.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from ..._errors import EncodeError, LimitError, MissingDependencyError, TensorwireError
from .. import values as api
from ..equality import equal
from . import values
from .candidates import Candidate
from .progress import ProfileProgress
from .result import Measurement

ROUNDS = 7
SPAN = 200e-6
"""The least seconds of a measurement."""
QUICK = 20e-3
"""A candidate that takes up to so many seconds is measured three times at once."""
SLOW, CHEAP = 0.05, 0.005
"""Shares of the whole time: a candidate that takes more than the first is slow, one that takes less
than the second is quick.
"""
FIRST, SECOND = 0.7, 0.85
"""Shares of the whole time for the first round of all candidates but the slow ones, and until the
end of the next rounds of the quick ones.
"""
_CALLS = 1000
_SMALL = np.arange(1024, dtype=np.float32)


@dataclass(slots=True)
class _Trial:
    """A candidate with its measurements so far."""

    candidate: Candidate
    options: dict[str, Any]
    reading: dict[str, Any]
    encode: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    view: list[float] = field(default_factory=list)
    size: int = 0
    views: bool = False
    exact: bool = True
    errors: tuple[float, float] = (0.0, 0.0)

    @property
    def cost(self) -> float:
        """The least seconds to measure it once more."""
        return max(min(self.encode), SPAN) + max(min(self.decode), SPAN)

    def result(self, nbytes: int) -> Measurement:
        candidate = self.candidate
        return Measurement(
            way=str(candidate),
            format=candidate.format,
            compression=candidate.compression,
            level=candidate.level,
            shuffle=candidate.shuffle,
            quantize=candidate.quantize,
            size=self.size,
            nbytes=nbytes,
            encode_seconds=min(self.encode),
            decode_seconds=min(self.decode),
            encode_median=median(self.encode),
            decode_median=median(self.decode),
            view_seconds=min(self.view) if self.view else None,
            repetitions=len(self.encode),
            exact=self.exact,
            max_error=self.errors[0],
            mean_error=self.errors[1],
            options=self.options,
            reading=self.reading,
        )


class _Skip(Exception):
    """A candidate whose measurement is given up."""


class Measuring:
    """Measures candidates. `skipped` and `wrong` have the reasons if there is no measurement."""

    def __init__(
        self, value: Any, seconds: float, threads: int | None, progress: ProfileProgress
    ) -> None:
        self.value, self.threads, self.progress = value, threads, progress
        self.nbytes = values.nbytes(value)
        self.skipped: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.refused: EncodeError | None = None
        """The first error of a format that cannot hold the value."""
        self._trials: list[_Trial] = []
        self._plain: dict[str, _Trial | None] = {}
        """For each format its trial without compression; None if it cannot hold the value."""
        self._rates: dict[Any, float] = {}
        """For each compression the seconds that it adds for each byte."""
        self._begun = time.perf_counter()
        self._seconds = seconds
        self._step, self._steps = 0, 1

    @property
    def took(self) -> float:
        return time.perf_counter() - self._begun

    @property
    def _left(self) -> float:
        return self._seconds - self.took

    def run(self, candidates: list[Candidate]) -> list[Measurement]:
        """Measures all candidates, as far as there is time, and returns the results in order."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._steps = ROUNDS * len(candidates)
            slow = [entry for entry in candidates if not self._first(entry, patient=False)]
            self._again(2, CHEAP * self._seconds, SECOND * self._seconds)
            for candidate in sorted(slow, key=lambda entry: self._expected(entry) or 0.0):
                self._first(candidate)
            self._again(ROUNDS - 3)
        finally:
            if collecting:
                gc.enable()
            self.progress.close()
        measurements = [trial.result(self.nbytes) for trial in self._trials]
        return sorted(measurements, key=lambda entry: (entry.lossy, entry.total()))

    def _show(self, candidate: Candidate) -> None:
        self._step += 1
        self.progress.show(
            max(self._step / self._steps, self.took / self._seconds if self._seconds > 0 else 1.0),
            str(candidate),
        )

    def _again(self, rounds: int, most: float = math.inf, end: float = math.inf) -> None:
        """Repeats the trials that cost up to `most` seconds, in several rounds. The cheapest come
        first: their times are the least certain.
        """
        for _ in range(rounds):
            for trial in sorted(self._trials, key=lambda trial: trial.cost):
                if trial.cost > min(self._left, most, end - self.took):
                    break
                self._show(trial.candidate)
                self._repeat(trial)

    def _first(self, candidate: Candidate, patient: bool = True) -> bool:
        """Measures a candidate for the first time, or records why not; False if it is put off."""
        name, expected = str(candidate), self._expected(candidate)
        if (
            candidate.format in self._plain
            and self._plain[candidate.format] is None
            and candidate.quantize is None
        ):
            self.skipped[name] = self.skipped.get(
                candidate.format, "the format failed without compression"
            )
            return True
        if (
            self._trials
            and not patient
            and (self.took > FIRST * self._seconds or (expected or 0.0) > SLOW * self._seconds)
        ):
            return False
        if self._trials and (self._left <= 0 or (expected or 0.0) > self._left):
            self.skipped[name] = (
                "out of time" if self._left <= 0 else "out of time: it would not end in time"
            )
            return True
        self._show(candidate)
        self._try(candidate, name)
        return True

    def _try(self, candidate: Candidate, name: str) -> None:
        """Measures a candidate. Its errors are recorded, so that one format cannot hide the
        others.
        """
        trial = None
        try:
            trial = self._measure(candidate)
        except (_Skip, MissingDependencyError) as error:
            self.skipped[name] = str(error)
        except values.DifferentError as error:
            self.wrong[name] = str(error)
        except EncodeError as error:
            self.refused = self.refused or error
            self.skipped[name] = str(error)
        except LimitError as error:
            self.skipped[name] = f"its bytes cannot be read with the default limits: {error}"
        except MemoryError:
            self.skipped[name] = "not enough memory"
        except Exception as error:
            # A compression raises ValueError for a level that it does not have. Anything else is a
            # bug of tensorwire.
            if type(error) is ValueError and candidate.level is not None:
                self.skipped[name] = str(error)
            else:
                self.wrong[name] = (
                    str(error)
                    if isinstance(error, TensorwireError)
                    else f"{type(error).__name__}: {error}"
                )
        if trial is not None:
            self._trials.append(trial)
            self._learn(candidate, trial)
        if candidate == Candidate(candidate.format):
            self._plain[candidate.format] = trial

    def _learn(self, candidate: Candidate, trial: _Trial) -> None:
        """Remembers the speed of a compression for `_expected`."""
        plain = self._plain.get(candidate.format)
        if plain is not None and candidate.quantize is None and candidate.compression is not None:
            rate = (trial.cost - plain.cost) / max(plain.size, 1)
            self._rates.setdefault(candidate.transform, max(rate, 0.0))

    def _expected(self, candidate: Candidate) -> float | None:
        """The least seconds that a candidate will take, estimated from the format without
        compression and the same compression of another format; None if unknown.
        """
        plain = self._plain.get(candidate.format)
        if plain is None or candidate.quantize is not None:
            return None
        return plain.cost + self._rates.get(candidate.transform, 0.0) * plain.size

    def _measure(self, candidate: Candidate) -> _Trial:
        """Measures a candidate, and verifies the value that it decodes."""
        options = candidate.options(self.threads)
        _warm(options, candidate)
        encode: list[float] = []
        blob = _timed(lambda: api.dumps(self.value, **options), encode)
        if self._trials and self._left <= 0:
            raise _Skip("out of time: no time was left to decode it")
        if candidate.shuffle and self._is_plain(candidate, blob):
            raise _Skip("it is the same as without: no tensor is large enough, or gets smaller")
        trial = _Trial(candidate, options, candidate.reading(self.value), encode, size=len(blob))
        self._check(trial, self._decode(trial, blob))
        if candidate.compression is None and candidate.quantize is None and self._left > 0:
            trial.views = _shares(api.loads(blob, **trial.reading), blob)
            self._view(trial, blob)
        del blob
        while trial.cost < self._left and self._wants_more(trial):
            self._repeat(trial)
        return trial

    def _wants_more(self, trial: _Trial) -> bool:
        """Whether a new trial is repeated at once: a quick one, and the very first one, which had
        to get its memory from the system.
        """
        quick = sum(trial.encode) + sum(trial.decode) + trial.cost < QUICK
        return len(trial.encode) < (
            3 if quick else 2 if not self._trials and trial.cost < self._left / 5 else 1
        )

    def _is_plain(self, candidate: Candidate, blob: bytes) -> bool:
        """Whether no tensor of a per-tensor compression was compressed."""
        plain = self._plain.get(candidate.format)
        return (
            plain is not None
            and plain.size == len(blob)
            and api.dumps(self.value, **plain.options) == blob
        )

    def _repeat(self, trial: _Trial) -> None:
        self._decode(trial, _timed(lambda: api.dumps(self.value, **trial.options), trial.encode))

    def _decode(self, trial: _Trial, blob: bytes) -> Any:
        back = _timed(lambda: api.loads(blob, copy=True, **trial.reading), trial.decode)
        self._view(trial, blob)
        gc.collect(0)
        return back

    def _view(self, trial: _Trial, blob: bytes) -> None:
        if trial.views:
            _timed(lambda: api.loads(blob, **trial.reading), trial.view)

    def _check(self, trial: _Trial, back: Any) -> None:
        trial.exact = equal(back, self.value)
        if trial.exact:
            return
        if trial.candidate.quantize is None:
            raise values.DifferentError("the decoded value is different")
        trial.errors = values.difference(self.value, back)


def _timed(work: Callable[[], Any], times: list[float]) -> Any:
    """Returns the result of a call, and appends the seconds that it takes to `times`."""
    calls = 1 if not times else min(_CALLS, math.ceil(SPAN / max(min(times), 1e-9)))
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            result = work()
        seconds = (time.perf_counter() - start) / calls
        if seconds * calls >= SPAN / 2 or calls == _CALLS:
            times.append(seconds)
            return result
        calls = min(_CALLS, math.ceil(SPAN / max(seconds, 1e-9)))


def _warm(options: dict[str, Any], candidate: Candidate) -> None:
    """Imports what a candidate needs. An error is ignored here: the measurement will raise it
    again.
    """
    try:
        api.loads(api.dumps(_SMALL, **options), copy=True, **candidate.reading(_SMALL))
    except Exception:
        pass


def _shares(value: Any, blob: bytes) -> bool:
    """Whether arrays are views of the bytes."""
    whole = np.frombuffer(blob, np.uint8)
    return any(np.may_share_memory(array, whole) for array in values.arrays(value))
