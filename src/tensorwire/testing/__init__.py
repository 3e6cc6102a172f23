"""Conformance checks for codecs, frameworks and dataset engines, sample values, and Hypothesis
strategies.

    from tensorwire.testing import check_codec, check_engine, check_framework, strategies

`check_codec` and `check_framework` return a report with one entry per kind and dtype, from which
docs/matrix.md is generated. `check_engine` checks an engine that runs the tasks of datasets.
`strategies` needs Hypothesis.
"""

from __future__ import annotations

import importlib
from typing import Any

from .conformance import Report, check_codec, check_framework
from .engines import check_engine
from .sampling import samples

__all__ = ["Report", "check_codec", "check_engine", "check_framework", "samples", "strategies"]


def __getattr__(name: str) -> Any:
    if name == "strategies":
        return importlib.import_module(f"{__name__}.strategies")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
