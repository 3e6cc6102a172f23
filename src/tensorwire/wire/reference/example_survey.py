"""Survey of Examples: which features they have, and statistics of each.

All features of a message are collected before they are counted. If a name appears twice, only the
last feature counts.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any

from ...core.memory import Array, flat
from .. import status
from .example_protobuf import BYTES, FLOAT, INT64, LISTS, entries, fields, messages
from .protobuf import WireFault
from .tfrecord import FOOTER, holds

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass
class Instance:
    """A Feature: its kind (0: no list), its number of values, and their minimum and maximum."""

    kind: int = 0
    count: int = 0
    numbers: tuple[int, int] = (INT64_MAX, INT64_MIN)
    floats: tuple[float, float] = (math.inf, -math.inf)
    nans: int = 0
    sizes: tuple[float, int] = (math.inf, 0)


@dataclass
class SurveyStats:
    records: int = 0
    kinds: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    counts: tuple[float, int] = (math.inf, 0)
    values: int = 0
    numbers: tuple[int, int] = (INT64_MAX, INT64_MIN)
    floats: tuple[float, float] = (math.inf, -math.inf)
    nans: int = 0
    sizes: tuple[float, int] = (math.inf, 0)
    steps: tuple[float, int] = (math.inf, 0)


Key = tuple[bool, bytes]


class ExampleSurvey:
    def __init__(self, most_names: int) -> None:
        self.most_names = most_names
        self.records = 0
        self.with_lists = 0
        self.others = 0
        self.features: dict[Key, SurveyStats] = {}

    def add(self, data: Any, starts: Array, sizes: Array, checked: bool) -> tuple[int, int, int]:
        view = flat(data)
        for done, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            if start < 0 or size < 0 or start + size + (0 if checked else FOOTER) > len(view):
                return status.TRUNCATED, start, done
            if not checked and not holds(view, start, start + size):
                return status.BAD_DATA_CRC, start, done
            try:
                self._message(view, start, start + size)
            except WireFault as fault:
                return fault.status, fault.offset, done
        return 0, 0, len(starts)

    def _message(self, view: memoryview, offset: int, end: int) -> None:
        message: dict[Key, list[Instance]] = {}
        lists, undefined, names = False, False, len(self.features)
        for number, start, stop in fields(view, offset, end, every=True):
            if number not in (1, 2) or start < 0:
                undefined = True
                continue
            lists |= number == 2
            for entry, name, values in entries(view, start, stop):
                if name is None:
                    undefined = True
                    continue
                key = (number == 2, name)
                names += key not in self.features and key not in message
                if names > self.most_names:
                    raise WireFault(status.TOO_MANY, entry)
                if number == 2:
                    message[key] = [
                        instance(view, [step[1:]])
                        for value in values
                        for step in messages(view, *value, 1)
                    ]
                else:
                    message[key] = [instance(view, values)]
        for key, instances in message.items():
            count(self.features.setdefault(key, SurveyStats()), key[0], instances)
        self.records += 1
        self.with_lists += lists
        self.others += undefined and not message

    def result(self) -> tuple[int, int, list[Any]]:
        def bound(pair: tuple[float, int]) -> tuple[int, int]:
            return (0 if pair[0] == math.inf else int(pair[0])), pair[1]

        rows = []
        for (is_list, name), s in sorted(self.features.items()):
            counted = (
                s.records,
                tuple(s.kinds),
                *bound(s.counts),
                s.values,
                s.numbers,
                s.floats,
                s.nans,
                bound(s.sizes),
                bound(s.steps),
            )
            rows.append((name, is_list, *counted))
        return self.records, self.with_lists, rows


def instance(view: memoryview, spans: list[tuple[int, int]]) -> Instance:
    """Return the statistics of a Feature whose parts are merged, as protobuf does.

    Of the lists in the oneof only the last kind counts, and all lists of that kind since the last
    change of kind.
    """
    seen = Instance()
    for span in spans:
        for kind, offset, end in fields(view, *span):
            if kind not in (BYTES, FLOAT, INT64):
                continue
            if kind != seen.kind:
                seen = Instance(kind)
            for value in LISTS[kind](view, offset, end):
                seen.count += 1
                if kind == BYTES:
                    seen.sizes = wider(seen.sizes, len(value), len(value))
                elif kind == INT64:
                    seen.numbers = wider(seen.numbers, value, value)
                else:
                    number = struct.unpack("<f", value)[0]
                    seen.nans += math.isnan(number)
                    seen.floats = wider(seen.floats, number, number)
    return seen


def count(stats: SurveyStats, is_list: bool, instances: list[Instance]) -> None:
    if not is_list and not instances[0].kind:
        stats.kinds[0] += 1
        return
    stats.records += 1
    if is_list:
        stats.steps = wider(stats.steps, len(instances), len(instances))
    for seen in instances:
        stats.kinds[seen.kind] += 1
        stats.counts = wider(stats.counts, seen.count, seen.count)
        stats.values += seen.count
        stats.numbers = wider(stats.numbers, *seen.numbers)
        stats.floats = wider(stats.floats, *seen.floats)
        stats.nans += seen.nans
        stats.sizes = wider(stats.sizes, *seen.sizes)


def wider(pair: tuple[Any, Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Return a range extended by `low` and `high`. NaN does not extend a range."""
    return low if low < pair[0] else pair[0], high if high > pair[1] else pair[1]
