"""`tw.profile`: what every format, compression and quantization costs for *your* tensor, measured.

ways        format × compression × quantization, as arguments of `dumps` and `loads`
values      bytes, samples and distances of nested values
measuring   the rounds, the clock, the checks
choosing    which is best, and why, in words
result      Profile, Measurement, Choice
table plot  text and HTML; size against speed
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
"""Bytes beyond which a sample is measured: every way can have its turn within some seconds."""


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
    """Measures every format, compression and quantization on your tensor (or nested value), and
    says which is best for what.

    `formats`, `compressions` ("zstd", or with a level "zstd:19"; `()`: none) and `quantize`
    (schemes; False: none) choose what is tried; what is left out means all. All of it takes up to
    `seconds`, and no more than one call longer. Of a value of more than `sample` bytes evenly
    spread rows are measured (None: always all). `threads` is for compressions that can use them. A
    bar is shown if stderr is a terminal, or as `progress` says.

    Quantized ways are measured where there are floats, and marked; `best` takes them only with
    `lossy=True`.

    >>> import numpy as np
    >>> found = profile(np.zeros((64, 64), np.float32), formats="safetensors", compressions="zlib",
    ...     quantize=False)
    >>> found.best("size").options
    {'format': 'safetensors', 'compression': 'zlib'}
    >>> [one.way for one in found if one.view_seconds is not None]
    ['safetensors']
    """
    if not seconds >= 0:
        raise ValueError(f"seconds={seconds}: a time, not less than none")
    if (sample is not None and sample < 1) or (threads is not None and threads < 1):
        raise ValueError(f"sample={sample}, threads={threads}: one at least, or None")
    if isinstance(value, (str, os.PathLike)):
        raise UsageError("profile measures a value, not a path", hint="tw.profile(tw.load(path))")
    planned = candidates.plan(formats, compressions, quantize, values.has_floats(value))
    measured = value if sample is None else values.sample(value, sample)
    run = Measuring(measured, seconds, threads, ProfileProgress(progress))
    run.skipped.update(candidates.unfit(formats, compressions))
    found = run.run(planned)
    if not found and not run.wrong:
        raise EncodeError(
            "none of these formats takes the value:"
            f" {run.refused or '; '.join(run.skipped.values())}"
        )
    return Profile(
        values.in_words(value),
        run.nbytes,
        values.nbytes(value),
        tuple(found),
        run.skipped,
        run.wrong,
        run.took,
    )


__all__ = ["Choice", "Measurement", "Profile", "profile"]
