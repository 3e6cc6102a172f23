"""One way to serialize: how to write and how to read. A way is proved on the very value it is timed on before anyone times it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from .timing import Contender, Role


def _same(value: Any) -> Any:
    return value


class WrongResult(AssertionError):
    """A way that does not give back what went in is not a rival."""


@dataclass(frozen=True)
class Way:
    """`dumps` is an expression of `x`, `loads` one of `blob`; `names` is what both use besides."""

    name: str
    dumps: str
    loads: str
    names: dict[str, Any] = field(repr=False)
    prepare: Callable[[Any], Any] = _same
    """Our value as the thing that this library holds; done once, not timed."""
    restore: Callable[[Any], Any] = _same
    """What this library gives back as our value again, for the proof; not timed."""
    role: Role = "rival"
    self_describing: bool = True
    note: str = ""

    def contender(self, which: str, names: dict[str, Any]) -> Contender:
        statement = self.dumps if which == "dumps" else self.loads
        return Contender(self.name, statement, names, self.role, self.self_describing, self.note)


def contenders(ways: list[Way], which: str, value: Any, differences: Callable[[Any, Any], str]) -> list[Contender]:
    """Proves each way on `value` and makes it a contender. `differences` says what was lost; if it was the data, it raises."""
    found = []
    for way in ways:
        names = {**way.names, "x": way.prepare(value)}
        names["blob"] = eval(way.dumps, names)
        back = way.restore(eval(way.loads, names))
        seen = "a view" if which == "loads" and _is_view(back, names["blob"]) else ""
        notes = [way.note, differences(value, back), seen]
        del names["x" if which == "loads" else "blob"]
        found.append(replace(way, note=", ".join(filter(None, notes))).contender(which, names))
    return found


def _is_view(array: Any, blob: Any) -> bool:
    """Whether an array lies in the bytes that it was read from."""
    if not isinstance(array, np.ndarray) or isinstance(blob, list):
        return False
    try:
        return np.may_share_memory(array, np.frombuffer(blob, np.uint8))
    except (TypeError, AttributeError):  # an eager tensor of TensorFlow's shows nobody its bytes
        return False


def dense_differences(given: np.ndarray[Any, Any], back: Any) -> str:
    """What a dense tensor lost on the way, in words; empty if nothing."""
    if not isinstance(back, np.ndarray) or back.nbytes != given.nbytes:
        raise WrongResult(f"{type(back).__name__} of {getattr(back, 'nbytes', '?')} bytes for {given.nbytes}")
    if not np.array_equal(np.ascontiguousarray(back).reshape(-1).view(np.uint8), given.reshape(-1).view(np.uint8)):
        raise WrongResult("other bits came back")
    lost = [] if back.dtype == given.dtype else [f"{given.dtype} comes back as {back.dtype.str}"]
    lost += [] if back.shape == given.shape else ["loses the shape"]
    lost += [] if back.flags.aligned else ["the array is not aligned"]
    return ", ".join(lost)


def with_bfloat16(way: Way) -> Way:
    """The way, with a word on bfloat16 in its note if that does not survive. Those that must be told the dtype are not asked."""
    if not way.self_describing:
        return way
    given = np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(2, 3)
    try:
        (probe,) = contenders([replace(way, note="")], "dumps", given, dense_differences)
        lost = probe.note if "comes back as" in probe.note else ""
    except Exception as error:
        lost = f"refuses bfloat16 ({type(error).__name__})"
    return replace(way, note=", ".join(filter(None, [way.note, lost.replace(", the array is not aligned", "")])))
