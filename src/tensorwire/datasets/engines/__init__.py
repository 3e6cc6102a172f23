"""Engines, which run the tasks of a plan: processes on this machine, or a Ray cluster.

    engine.run(spec, tasks)          yields outcomes in any order, as they come; pulls tasks as it
                                     has room for them
    engine.close()
    engine.prepare(tasks, formats)   optional: called early with the number of tasks to come and
                                     their formats
    engine.watch                     optional: a callback that the engine calls now and then with a
                                     task and its progress: share, records, bytes

An engine calls `answer(task, spec)` in a worker, makes an `outcome` of the result, retries if a
worker dies or a store cannot be reached, and never sees the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from ..._errors import UnknownFormatError, choices
from ...codecs.conversion_spec import ConversionSpec
from . import errors_as_json
from .worker import answer

__all__ = ["RETRIES", "Engine", "Outcome", "Watch", "answer", "outcome", "using", "watched"]
RETRIES = 3


class Outcome(NamedTuple):
    """The outcome of a task: its report, or the error that ended it."""

    task: dict[str, Any]
    report: dict[str, Any] | None
    error: BaseException | None = None
    attempts: int = 1


def outcome(task: dict[str, Any], answer: dict[str, Any], attempts: int = 1) -> Outcome:
    """The outcome that an answer of a worker describes.

    >>> outcome({"do": "write"}, {"error": {"kind": "DecodeError", "message": "bad", "record":
    ...     7}}).error.record
    7
    """
    return Outcome(
        task,
        answer.get("report"),
        errors_as_json.unpacked(answer["error"]) if "error" in answer else None,
        attempts,
    )


Watch = Callable[[dict[str, Any], float, int, int], None]


class Engine(Protocol):
    """The methods that every engine has; see the module for the optional ones."""

    def run(self, spec: ConversionSpec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def watched(engine: Engine, watch: Watch) -> Iterator[None]:
    """Sets the progress callback of an engine that has one, for the time of the block."""
    if not hasattr(engine, "watch"):
        yield
        return
    engine.watch = watch
    try:
        yield
    finally:
        engine.watch = None


@contextlib.contextmanager
def using(
    engine: Any, workers: int | None = None, options: Mapping[str, Any] | None = None
) -> Iterator[Engine]:
    """Opens an engine by its name and closes it afterwards; an engine object stays open."""
    if not isinstance(engine, str):
        yield engine
        return
    with contextlib.closing(_named(engine, workers, **(options or {}))) as opened:
        yield opened


def _named(engine: str, workers: int | None, **options: Any) -> Engine:
    if engine == "local":
        from .local import LocalEngine

        return LocalEngine(workers, **options)
    if engine == "ray":
        from .ray import RayEngine

        return RayEngine(workers=workers, **options)
    raise UnknownFormatError(f"unknown engine {engine!r}{choices(engine, ('local', 'ray'))}")
