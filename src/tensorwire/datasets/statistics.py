"""Statistics of a dataset: for each feature the number of records that have it, the number of
values, and their range. Partial results can be added in any order.
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
    """The statistics of one source: {"records": n, "features": {name: {...}}}."""
    if spec.source == "tfrecord":
        return _of_examples(part, spec, reading)
    total: dict[str, Any] = {"records": 0, "features": {}}
    for batch in formats.named(spec.source).read(part, spec, reading):
        features = {name: _of_column(batch, name) for name in batch if batch.present[name].any()}
        total = added(total, {"records": batch.size, "features": features})
    return total


def _of_examples(part: SourcePart, spec: ConversionSpec, reading: Reading) -> dict[str, Any]:
    """The statistics of Examples, counted by a kernel without decoding the records."""
    survey = kernels.ExampleSurvey(DEFAULT.names)
    for block in tfrecord.blocks(part, spec, reading, True):
        index = 0
        while index < len(block.starts):
            code, offset, done = survey.add(
                block.data, block.starts[index:], block.sizes[index:], True
            )
            index += done
            # The kernel stops at a damaged record. It is skipped, or raised with its place in the
            # file in place of the offset inside the record.
            if code:
                record, start = block.where(index)
                error = status.problem(code, offset, "example").add(path=block.path, record=record)
                error.offset = start
                if not spec.skips or code == status.TOO_MANY:
                    raise error
                reading.damage.append(Damage(block.path, str(error), int(block.sizes[index])))
                index += 1
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
        seen = [_KINDS[number] for number in (1, 2, 3) if kinds[number]]
        feature: dict[str, Any] = {
            "kind": "/".join(seen) or "none",
            "present": present,
            "lengths": [shortest, longest],
            "values": values,
        }
        if kinds[3] and ints[0] <= ints[1]:
            feature["range"] = list(ints)
        elif kinds[2] and floats[0] <= floats[1]:
            feature["range"] = list(floats)
        if nans:
            feature["nan"] = nans
        if kinds[1] and longest:
            feature["sizes"] = list(sizes)
        features[name.decode(errors="backslashreplace") + (" (list)" if is_list else "")] = feature
    return {"records": records, "features": features}


def _of_column(batch: Batch, name: str) -> dict[str, Any]:
    """The statistics of one column, of the rows that have it."""
    column: Any = batch[name]
    present = batch.present[name]
    if isinstance(column, Ragged):
        lengths = np.diff(column.row_splits[0])[present]
        values: Any = column.values
        kept = (
            np.repeat(present, np.diff(column.row_splits[0]))
            if column.ragged_rank == 1
            else np.ones(len(values), np.bool_)
        )
    else:
        width = int(np.prod(column.shape[1:], dtype=np.int64))
        lengths = np.full(int(present.sum()), width)
        values, kept = column.reshape(-1), np.repeat(present, width)
    feature: dict[str, Any] = {
        "present": int(present.sum()),
        "lengths": [int(lengths.min()), int(lengths.max())],
        "values": int(lengths.sum()),
    }
    if isinstance(values, Strings):
        sizes = np.diff(values.offsets).reshape(values.shape)[kept]
        return {
            "kind": "text" if values.text else "bytes",
            **feature,
            **({"sizes": [int(sizes.min()), int(sizes.max())]} if sizes.size else {}),
        }
    flat = values[kept].reshape(-1)
    if flat.dtype.kind not in "iub":
        flat = flat.astype(np.float64)
        if nans := int(np.isnan(flat).sum()):
            feature["nan"] = nans
        flat = flat[~np.isnan(flat)]
    return {
        "kind": str(column.dtype),
        **feature,
        **({"range": [flat.min().item(), flat.max().item()]} if flat.size else {}),
    }


def added(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """The sum of the statistics of two parts.

    >>> part = {"records": 2, "features": {"x": {"kind": "int64", "present": 1, "lengths": [1, 1],
    ...     "values": 1, "range": [5, 5]}}}
    >>> added(part, part)["features"]["x"]
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
        values = [part[name] for part in (a, b) if name in part]
        if values:
            out[name] = (
                [min(low for low, _ in values), max(high for _, high in values)]
                if isinstance(values[0], list)
                else sum(values)
            )
    return out
