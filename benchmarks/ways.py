"""One way to serialize: how to write and how to read. A way is proved on the very value it is timed
on before anyone times it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from tensorwire.timing import Contender, Role


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


def prove(
    ways: list[Way], value: Any, differences: Callable[[Any, Any], str]
) -> dict[str, list[Contender]]:
    """Proves each way on `value` and makes it a contender in both directions, "dumps" and "loads".

    `differences` says in words what was lost on the way; if it was the data, it raises.
    """
    found: dict[str, list[Contender]] = {"dumps": [], "loads": []}
    for way in ways:
        x = way.prepare(value)
        blob = eval(way.dumps, {**way.names, "x": x})
        back = way.restore(eval(way.loads, {**way.names, "blob": blob}))
        note = ", ".join(filter(None, [way.note, differences(value, back)]))
        seen = ", ".join(filter(None, [note, "a view" if _is_view(back, blob) else ""]))
        found["dumps"].append(
            Contender(
                way.name, way.dumps, {**way.names, "x": x}, way.role, way.self_describing, note
            )
        )
        found["loads"].append(
            Contender(
                way.name,
                way.loads,
                {**way.names, "blob": blob},
                way.role,
                way.self_describing,
                seen,
            )
        )
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
        raise WrongResult(
            f"{type(back).__name__} of {getattr(back, 'nbytes', '?')} bytes for {given.nbytes}"
        )
    if not np.array_equal(
        np.ascontiguousarray(back).reshape(-1).view(np.uint8), given.reshape(-1).view(np.uint8)
    ):
        raise WrongResult("other bits came back")
    lost = [] if back.dtype == given.dtype else [f"{given.dtype} comes back as {back.dtype.str}"]
    lost += [] if back.shape == given.shape else ["loses the shape"]
    lost += [] if back.flags.aligned else ["the array is not aligned"]
    return ", ".join(lost)


def with_bfloat16(way: Way) -> Way:
    """The way, with a word on bfloat16 in its note if that does not survive. Those that must be
    told the dtype are not asked.
    """
    if not way.self_describing:
        return way
    given = np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(2, 3)
    try:
        (probe,) = prove([replace(way, note="")], given, dense_differences)["dumps"]
        lost = probe.note if "comes back as" in probe.note else ""
    except Exception as error:
        lost = f"refuses bfloat16 ({type(error).__name__})"
    return replace(
        way,
        note=", ".join(filter(None, [way.note, lost.replace(", the array is not aligned", "")])),
    )
