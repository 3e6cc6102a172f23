"""The measuring itself.

Every way is measured once (three times if that is quick), the plainest first, and checked: what
comes back must equal what went in. What is likely to be slow waits until the quick ones were
measured in two more rounds; then it has its turn, and then all are measured again until the time is
up or it is enough. Rounds, so that a disturbance of some seconds hits none of them alone.

- A measurement is as many calls as fill SPAN, since a clock cannot see one call of a microsecond.
- A call with a small array comes before it, so that nobody pays for imports.
- The collector of garbage is off meanwhile and runs after each, over what is young, so that no more
  than one encoding is in memory.
- A way that would not end in time, as far as others with the same compression or format tell, is
  not begun.
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
"""Seconds that a measurement lasts at least."""
QUICK = 20e-3
"""Seconds up to which a way is measured three times at once."""
SLOW, CHEAP = 0.05, 0.005
"""Parts of the whole time: a way that takes more is slow, one that takes less is quick."""
FIRST, SECOND = 0.7, 0.85
"""Parts of the whole time that may have gone by when all but the slow ways were tried, and when the
quick ones were measured again.
"""
_CALLS = 1000
_SMALL = np.arange(1024, dtype=np.float32)


@dataclass(slots=True)
class _Trial:
    """A way that is being measured."""

    way: Candidate
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
        """Seconds to measure it once more, at least."""
        return max(min(self.encode), SPAN) + max(min(self.decode), SPAN)

    def result(self, nbytes: int) -> Measurement:
        way = self.way
        return Measurement(
            way=str(way),
            format=way.format,
            compression=way.compression,
            level=way.level,
            shuffle=way.shuffle,
            quantize=way.quantize,
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
    """A way that there is no point in measuring to the end."""


class Measuring:
    """One run over many ways: `measurements`, and in `skipped` and `wrong` why there is none of a
    way.
    """

    def __init__(
        self, value: Any, seconds: float, threads: int | None, progress: ProfileProgress
    ) -> None:
        self.value, self.threads, self.progress = value, threads, progress
        self.nbytes = values.nbytes(value)
        self.skipped: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.refused: EncodeError | None = None
        """The first refusal, for a value that no format takes."""
        self._trials: list[_Trial] = []
        self._plain: dict[str, _Trial | None] = {}
        """By format, its plain way; None if the format refuses the value."""
        self._rates: dict[Any, float] = {}
        """By compression, the seconds that it adds for each byte."""
        self._begun = time.perf_counter()
        self._seconds = seconds
        self._step, self._steps = 0, 1

    @property
    def took(self) -> float:
        return time.perf_counter() - self._begun

    @property
    def _left(self) -> float:
        return self._seconds - self.took

    def run(self, ways: list[Candidate]) -> list[Measurement]:
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._steps = ROUNDS * len(ways)
            late = [way for way in ways if not self._first(way, patient=False)]
            self._again(2, CHEAP * self._seconds, SECOND * self._seconds)
            for way in sorted(late, key=lambda way: self._expected(way) or 0.0):
                self._first(way)
            self._again(ROUNDS - 3)
        finally:
            if collecting:
                gc.enable()
            self.progress.close()
        found = [trial.result(self.nbytes) for trial in self._trials]
        return sorted(found, key=lambda one: (one.lossy, one.total()))

    def _show(self, way: Candidate) -> None:
        self._step += 1
        self.progress.show(
            max(self._step / self._steps, self.took / self._seconds if self._seconds > 0 else 1.0),
            str(way),
        )

    def _again(self, rounds: int, most: float = math.inf, end: float = math.inf) -> None:
        """Measures whatever costs up to `most` seconds once more, so many times; the cheapest
        first, which need it most.
        """
        for _ in range(rounds):
            for trial in sorted(self._trials, key=lambda trial: trial.cost):
                if trial.cost > min(self._left, most, end - self.took):
                    break
                self._show(trial.way)
                self._repeat(trial)

    def _first(self, way: Candidate, patient: bool = True) -> bool:
        """Measures a way for the first time, or says why not; False if it is put off."""
        name, expected = str(way), self._expected(way)
        if way.format in self._plain and self._plain[way.format] is None and way.quantize is None:
            self.skipped[name] = self.skipped.get(way.format, "the format went wrong without it")
            return True
        if (
            self._trials
            and not patient
            and (self.took > FIRST * self._seconds or (expected or 0.0) > SLOW * self._seconds)
        ):
            return False
        if self._trials and (self._left <= 0 or (expected or 0.0) > self._left):
            self.skipped[name] = (
                "out of time"
                if self._left <= 0
                else "out of time: it would not end within the bound"
            )
            return True
        self._show(way)
        self._try(way, name)
        return True

    def _try(self, way: Candidate, name: str) -> None:
        trial = None
        try:
            trial = self._measure(way)
        except (_Skip, MissingDependencyError) as error:
            self.skipped[name] = str(error)
        except values.DifferentError as error:
            self.wrong[name] = str(error)
        except EncodeError as error:
            self.refused = self.refused or error
            self.skipped[name] = str(error)
        except LimitError as error:
            self.skipped[name] = f"what it writes is not read with the default limits: {error}"
        except MemoryError:
            self.skipped[name] = "there is not enough memory"
        except (
            Exception
        ) as error:  # a defect of ours, and one format's defect must not hide what the others do
            if type(error) is ValueError and way.level is not None:
                self.skipped[name] = str(error)  # a level that there is not
            else:
                self.wrong[name] = (
                    str(error)
                    if isinstance(error, TensorwireError)
                    else f"{type(error).__name__}: {error}"
                )
        if trial is not None:
            self._trials.append(trial)
            self._learn(way, trial)
        if way == Candidate(way.format):
            self._plain[way.format] = trial

    def _learn(self, way: Candidate, trial: _Trial) -> None:
        plain = self._plain.get(way.format)
        if plain is not None and way.quantize is None and way.compression is not None:
            rate = (trial.cost - plain.cost) / max(plain.size, 1)
            self._rates.setdefault(way.transform, max(rate, 0.0))

    def _expected(self, way: Candidate) -> float | None:
        """Seconds that it will take at least, as far as the plain format and the same compression
        of another format tell.
        """
        plain = self._plain.get(way.format)
        if plain is None or way.quantize is not None:
            return None
        return plain.cost + self._rates.get(way.transform, 0.0) * plain.size

    def _measure(self, way: Candidate) -> _Trial:
        options = way.options(self.threads)
        _warm(options, way)
        encode: list[float] = []
        blob = _timed(lambda: api.dumps(self.value, **options), encode)
        if self._trials and self._left <= 0:
            raise _Skip("out of time: there was none left to decode it")
        if way.shuffle and self._is_plain(way, blob):
            raise _Skip("it is the same as without: no tensor is large enough, or gets smaller")
        trial = _Trial(way, options, way.reading(self.value), encode, size=len(blob))
        self._check(trial, self._decode(trial, blob))
        if way.compression is None and way.quantize is None and self._left > 0:
            trial.views = _shares(api.loads(blob, **trial.reading), blob)
            self._view(trial, blob)
        del blob
        while trial.cost < self._left and self._wants_more(trial):
            self._repeat(trial)
        return trial

    def _wants_more(self, trial: _Trial) -> bool:
        """Whether a new trial should be repeated at once: the quick ones, and the first of all,
        which finds memory that nobody used yet.
        """
        quick = sum(trial.encode) + sum(trial.decode) + trial.cost < QUICK
        return len(trial.encode) < (
            3 if quick else 2 if not self._trials and trial.cost < self._left / 5 else 1
        )

    def _is_plain(self, way: Candidate, blob: bytes) -> bool:
        """Whether tensors that are compressed one by one were all left as they are."""
        plain = self._plain.get(way.format)
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
        if trial.way.quantize is None:
            raise values.DifferentError("the value came back different")
        trial.errors = values.difference(self.value, back)


def _timed(work: Callable[[], Any], times: list[float]) -> Any:
    """The result; the seconds that a call takes are added to `times`."""
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


def _warm(options: dict[str, Any], way: Candidate) -> None:
    """Loads whatever this way needs. If anything goes wrong it will go wrong again where it counts."""
    try:
        api.loads(api.dumps(_SMALL, **options), copy=True, **way.reading(_SMALL))
    except Exception:
        pass


def _shares(value: Any, blob: bytes) -> bool:
    """Whether arrays are views of the bytes."""
    whole = np.frombuffer(blob, np.uint8)
    return any(np.may_share_memory(array, whole) for array in values.arrays(value))
