"""Makes docs/matrix.md out of the conformance checks: `python -m tensorwire.testing.matrix >
docs/matrix.md` (needs the frameworks).
"""

from __future__ import annotations

from ..api import values as api
from .conformance import Report, check_codec, check_framework
from .sampling import DTYPES

HEAD = """# What fits where

Made by the conformance checks (`python -m tensorwire.testing.matrix`), which write and read every cell; a test keeps this page true.
**exact**: comes back bit for bit, in every shape tried. **refused**: an `EncodeError` says so before anything is written. Nothing is ever
rounded, truncated or dropped in silence. All numbers: {numbers}.
"""
NOTES = """
- A lone string tensor in `tensorproto` is exactly TensorFlow's bytes, which cannot say whether it is text: it comes back as bytes unless
  `loads(..., text=True)`. Inside a dict, list or tuple text stays text.
- `raw` holds the numbers only; the reader passes `dtype` and `shape`.
- `parquet` holds columns: dicts and Bundles of tensors that share their first dimension.
- scalar: no dimensions. ragged: one ragged dimension, its row_splits int64 or int32. ragged deep: more of them, also of uniform length.
- TensorFlow has bytes only, so text goes in as UTF-8 and comes back as bytes.
- Object arrays of strings come back as text if their elements are str.
- JAX is shown as it starts. With x64, float64, int64, uint64 and complex128 are exact too (tested).
- `scipy`: dense tensors stay NumPy arrays.
- `tw.to(..., cast=True)` takes what is refused for its dtype where a wider dtype holds every value; see [frameworks.md](frameworks.md).
"""


def reports() -> tuple[dict[str, Report], dict[str, Report]]:
    """(formats, frameworks)"""
    codecs = {name: check_codec(name) for name in api.formats()}
    return codecs, {
        name: check_framework(name)
        for name in ("numpy", "object", "tensorflow", "torch", "jax", "scipy", "arrow")
    }


def table(found: dict[str, Report]) -> list[str]:
    """Markdown rows: one for each kind and set of dtypes that behave alike."""
    cells = dict.fromkeys(key for report in found.values() for key in report)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for kind, dtype in cells:
        # a missing cell is a KeyError: none may be empty
        outcome = tuple(report[kind, dtype] for report in found.values())
        alike.setdefault((kind, outcome), []).append(dtype)
    lines = [f"| kind | dtypes | {' | '.join(found)} |", "|---" * (len(found) + 2) + "|"]
    kinds = list(dict.fromkeys(kind for kind, _ in alike))
    rows = sorted(alike.items(), key=lambda row: kinds.index(row[0][0]))
    return lines + [
        f"| {kind} | {_names(dtypes)} | {' | '.join(outcome)} |" for (kind, outcome), dtypes in rows
    ]


def _names(dtypes: list[str]) -> str:
    numbers = [row.name for row in DTYPES]
    return ", ".join(
        ["all numbers", *dtypes[len(numbers) :]] if dtypes[: len(numbers)] == numbers else dtypes
    )


def page() -> str:
    formats, frameworks = reports()
    head = HEAD.format(numbers=", ".join(row.name for row in DTYPES))
    return "\n".join(
        [
            head,
            "## Formats",
            *table(formats),
            "",
            "## Frameworks, both ways",
            *table(frameworks),
            NOTES,
        ]
    )


if __name__ == "__main__":
    print(page(), end="")
