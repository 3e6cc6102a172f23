"""Who runs the tasks: processes on this machine, or a Ray cluster.

    engine.run(spec, tasks)   outcomes, in any order, as they come; tasks are asked for as there is
                              room for them
    engine.close()
    engine.prepare(tasks, formats)   if it has this, it is told early how many tasks there will be,
                                     and of what
    engine.watch              if it has this, it calls it now and then with a task and how far that
                              is: share, records, bytes

An engine calls `answer(task, spec)` somewhere, makes an `outcome` of what comes back, tries again
if a worker dies or the way to a store breaks, and never looks at the data.
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
    """What came of a task: a report, or the error that ended it."""

    task: dict[str, Any]
    report: dict[str, Any] | None
    error: BaseException | None = None
    attempts: int = 1


def outcome(task: dict[str, Any], answered: dict[str, Any], attempts: int = 1) -> Outcome:
    """What an answer says.

    >>> outcome({"do": "write"}, {"error": {"kind": "DecodeError", "message": "bad", "record":
    ...     7}}).error.record
    7
    """
    return Outcome(
        task,
        answered.get("report"),
        errors_as_json.unpacked(answered["error"]) if "error" in answered else None,
        attempts,
    )


Watch = Callable[[dict[str, Any], float, int, int], None]


class Engine(Protocol):
    def run(self, spec: ConversionSpec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def watched(engine: Engine, watch: Watch) -> Iterator[None]:
    """Meanwhile, `watch` is told how far the tasks are, if the engine knows."""
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
    """An engine by its name, which is closed afterwards; or the one that was given, which is not."""
    if not isinstance(engine, str):
        yield engine
        return
    with contextlib.closing(_named(engine, workers, **(options or {}))) as made:
        yield made


def _named(engine: str, workers: int | None, **options: Any) -> Engine:
    if engine == "local":
        from .local import LocalEngine

        return LocalEngine(workers, **options)
    if engine == "ray":
        from .ray import RayEngine

        return RayEngine(workers=workers, **options)
    raise UnknownFormatError(f"no engine {engine!r}{choices(engine, ('local', 'ray'))}")
