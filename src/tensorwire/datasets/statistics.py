"""What a dataset has: for each feature how many records have it, how many values, and their range.
Parts are added up in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._limits import DEFAULT
from ..codecs import rows as formats
from ..codecs import tfrecord
from ..codecs.conversion_spec import ConversionSpec
from ..codecs.rows import Damage, Reading, SourcePart
from ..core.tensors import Ragged, Strings
from ..records.batch import Batch
from ..wire import kernels, status

_KINDS = {1: "bytes", 2: "float", 3: "int64"}


def of_source(part: SourcePart, spec: ConversionSpec, reading: Reading) -> dict[str, Any]:
    """The records of one source: {"records": n, "features": {name: {...}}}"""
    if spec.source == "tfrecord":
        return _of_examples(part, spec, reading)
    total: dict[str, Any] = {"records": 0, "features": {}}
    for batch in formats.named(spec.source).read(part, spec, reading):
        features = {name: _of_column(batch, name) for name in batch if batch.present[name].any()}
        total = added(total, {"records": batch.size, "features": features})
    return total


def _of_examples(part: SourcePart, spec: ConversionSpec, reading: Reading) -> dict[str, Any]:
    survey = kernels.ExampleSurvey(DEFAULT.names)
    for block in tfrecord.blocks(part, spec, reading, True):
        at = 0
        while at < len(block.starts):
            code, offset, done = survey.add(block.data, block.starts[at:], block.sizes[at:], True)
            at += done
            if code:
                record, start = block.where(at)
                error = status.problem(code, offset, "example").add(path=block.path, record=record)
                error.offset = start
                if not spec.skips or code == status.TOO_MANY:
                    raise error
                reading.damage.append(Damage(block.path, str(error), int(block.sizes[at])))
                at += 1
    records, _, rows = survey.result()
    features = {}
    for (
        name,
        is_list,
        present,
        kinds,
        shortest,
        longest,
        values,
        ints,
        floats,
        nans,
        sizes,
        _,
    ) in rows:
        there = [_KINDS[number] for number in (1, 2, 3) if kinds[number]]
        about: dict[str, Any] = {
            "kind": "/".join(there) or "none",
            "present": present,
            "lengths": [shortest, longest],
            "values": values,
        }
        if kinds[3] and ints[0] <= ints[1]:
            about["range"] = list(ints)
        elif kinds[2] and floats[0] <= floats[1]:
            about["range"] = list(floats)
        if nans:
            about["nan"] = nans
        if kinds[1] and longest:
            about["sizes"] = list(sizes)
        features[name.decode(errors="backslashreplace") + (" (list)" if is_list else "")] = about
    return {"records": records, "features": features}


def _of_column(batch: Batch, name: str) -> dict[str, Any]:
    column: Any = batch[name]
    there = batch.present[name]
    if isinstance(column, Ragged):
        lengths = np.diff(column.row_splits[0])[there]
        values: Any = column.values
        known = (
            np.repeat(there, np.diff(column.row_splits[0]))
            if column.ragged_rank == 1
            else np.ones(len(values), np.bool_)
        )
    else:
        width = int(np.prod(column.shape[1:], dtype=np.int64))
        lengths = np.full(int(there.sum()), width)
        values, known = column.reshape(-1), np.repeat(there, width)
    about: dict[str, Any] = {
        "present": int(there.sum()),
        "lengths": [int(lengths.min()), int(lengths.max())],
        "values": int(lengths.sum()),
    }
    if isinstance(values, Strings):
        sizes = np.diff(values.offsets).reshape(values.shape)[known]
        return {
            "kind": "text" if values.text else "bytes",
            **about,
            **({"sizes": [int(sizes.min()), int(sizes.max())]} if sizes.size else {}),
        }
    flat = values[known].reshape(-1)
    if flat.dtype.kind not in "iub":
        flat = flat.astype(np.float64)
        if nans := int(np.isnan(flat).sum()):
            about["nan"] = nans
        flat = flat[~np.isnan(flat)]
    return {
        "kind": str(column.dtype),
        **about,
        **({"range": [flat.min().item(), flat.max().item()]} if flat.size else {}),
    }


def added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Two parts together.

    >>> one = {"records": 2, "features": {"x": {"kind": "int64", "present": 1, "lengths": [1, 1],
    ...     "values": 1, "range": [5, 5]}}}
    >>> added(one, one)["features"]["x"]
    {'kind': 'int64', 'present': 2, 'lengths': [1, 1], 'values': 2, 'range': [5, 5]}
    """
    features = dict(a["features"])
    for name, other in b["features"].items():
        mine = features.get(name)
        features[name] = other if mine is None else _merged(mine, other)
    return {"records": a["records"] + b["records"], "features": features}


def _merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    kinds = dict.fromkeys([*a["kind"].split("/"), *b["kind"].split("/")])
    out: dict[str, Any] = {"kind": "/".join(kind for kind in kinds if kind != "none") or "none"}
    for name in ("present", "lengths", "values", "range", "nan", "sizes"):
        here = [one[name] for one in (a, b) if name in one]
        if here:
            out[name] = (
                [min(one[0] for one in here), max(one[1] for one in here)]
                if isinstance(here[0], list)
                else sum(here)
            )
    return out
