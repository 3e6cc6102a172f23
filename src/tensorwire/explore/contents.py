"""The contents of a tensor file, as `tensorwire show` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._limits import Limits
from ..core import formatting
from . import selection, tree, values
from .sampling import SampledFile
from .text import for_json
from .values import PLAIN, Look, Shown

MOST = 8
"""The number of tensors that are shown if none is named."""


def contents(
    where: Any,
    names: Sequence[str] = (),
    *,
    format: str | None = None,
    most: int | None = MOST,
    look: Look = PLAIN,
    limits: Limits | None = None,
) -> Shown:
    """Return the named tensors of a file, or the first `most`, each with statistics and values.

    For a nested value the tree comes first.

    >>> import numpy as np
    >>> from tensorwire import dumps
    >>> print(*contents(dumps({"x": np.float32([[1, 2], [3, 4]]), "step": 7})).lines, sep="\\n")
    bytes: safetensors, 208 bytes, 1 tensor
    dict of 2
    ├─ x: float32 (2, 2)
    └─ step: 7
    <BLANKLINE>
    x  float32 (2, 2)  16 bytes
      min 1   max 4   mean 2.5   NaN 0   zeros 0 (0 %)
      [[1. 2.]
       [3. 4.]]
    """
    with SampledFile(where, format, limits) as opened:
        file = opened.file
        chosen = selection.chosen(file, names, file.path) if names else list(file)
        shown = chosen if names or most is None else chosen[:most]
        data: dict[str, Any] = {
            "path": file.path,
            "format": file.format,
            "size": file.size,
            "metadata": file.metadata,
        }
        lines: list[str] = []
        if not names:
            lines.append(_head(opened, len(chosen)))
            lines += [
                f"  {formatting.safe(key)}: {formatting.safe(formatting.short(text, 120))}"
                for key, text in file.metadata.items()
            ]
            data["values"] = for_json(tree.python_values(file))
            if tree.is_nested(file):
                lines += tree.lines(file)
        blocks = [values.tensor(opened, name, look) for name in shown]
        for block in blocks:
            lines += [*([""] if lines else []), *block.lines]
        if len(shown) < len(chosen):
            lines += [
                "",
                f"... {len(chosen) - len(shown):,} more; name tensors, or use -n 0 to show all",
            ]
        return Shown(
            lines,
            data | {"tensors": [block.json for block in blocks], "more": len(chosen) - len(shown)},
        )


def _head(opened: SampledFile, count: int) -> str:
    file = opened.file
    path = formatting.safe(file.path or "bytes")
    packed = f" in {file.compression}" if file.compression else ""
    return (
        f"{path}: {file.format}{packed}, {formatting.size(file.size)},"
        f" {count:,} tensor{'s' * (count != 1)}"
    )
