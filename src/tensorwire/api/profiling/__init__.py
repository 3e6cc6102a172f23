"""Profiling: measures what every format, compression and quantization costs for a given value.

candidates  format × compression × quantization, as arguments of `dumps` and `loads`
values      sizes, samples and distances of nested values
measuring   the measurements and their verification
choosing    the best candidate, and the reasons in words
result      Profile, Measurement, Choice
table plot  text and HTML; size against speed
progress    the progress bar
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..._errors import EncodeError, UsageError
from . import candidates, values
from .measuring import Measuring
from .progress import ProfileProgress
from .result import Choice, Measurement, Profile

SAMPLE = 16 << 20
"""Values with more bytes are sampled, so that all candidates can be measured in some seconds."""


def profile(
    value: Any,
    *,
    formats: Iterable[str] | str | None = None,
    compressions: Iterable[str] | str | None = None,
    quantize: Iterable[str] | str | bool | None = None,
    seconds: float = 10.0,
    sample: int | None = SAMPLE,
    threads: int | None = None,
    progress: bool | None = None,
) -> Profile:
    """Measures every format, compression and quantization for a tensor or nested value, and returns
    a `Profile` that knows the best one for each purpose.

    formats       the formats to try; all by default
    compressions  the compressions to try: "zstd", or with a level "zstd:19"; () for none, all by
                  default
    quantize      the quantization schemes to try; False for none, all by default. They are only
                  tried on floats, and `best` chooses them only with `lossy=True`
    seconds       the time for all measurements; it is exceeded by one call at most
    sample        of larger values, so many bytes of evenly spread rows are measured; None for all
    threads       the number of threads for compressions that can use them
    progress      whether a progress bar is shown; by default if stderr is a terminal

    Raises `EncodeError` if no format can hold the value, `UnknownFormatError` for unknown names,
    and `UsageError` for a path instead of a value.

    >>> import numpy as np, tensorwire as tw
    >>> profile = tw.profile(np.zeros((64, 64), np.float32), formats="safetensors",
    ...     compressions="zlib", quantize=False)
    >>> profile.best("size").options
    {'format': 'safetensors', 'compression': 'zlib'}
    >>> [measurement.way for measurement in profile if measurement.view_seconds is not None]
    ['safetensors']
    """
    if not seconds >= 0:
        raise ValueError(f"seconds={seconds}: expected 0 or more")
    if (sample is not None and sample < 1) or (threads is not None and threads < 1):
        raise ValueError(f"sample={sample}, threads={threads}: expected at least 1, or None")
    if isinstance(value, (str, os.PathLike)):
        raise UsageError("profile measures a value, not a path", hint="tw.profile(tw.load(path))")
    planned = candidates.plan(formats, compressions, quantize, values.has_floats(value))
    measured = value if sample is None else values.sample(value, sample)
    run = Measuring(measured, seconds, threads, ProfileProgress(progress))
    run.skipped.update(candidates.unfit(formats, compressions))
    measurements = run.run(planned)
    if not measurements and not run.wrong:
        raise EncodeError(
            "none of these formats can hold the value:"
            f" {run.refused or '; '.join(run.skipped.values())}"
        )
    return Profile(
        values.in_words(value),
        run.nbytes,
        values.nbytes(value),
        tuple(measurements),
        run.skipped,
        run.wrong,
        run.took,
    )


__all__ = ["Choice", "Measurement", "Profile", "profile"]
