"""Some rows of a large tensor in a file: through one open handle, and opened anew for a single row.
The page cache is warm.
"""

from __future__ import annotations

import tempfile
from typing import Any

import h5py
import numpy as np
from safetensors import safe_open
from tensorwire.stores import LAZY, MAPPED, OURS, PREFIX
from tensorwire.timing import Contender
from tensorwire.ways import WrongResult

import tensorwire as tw

SAFE_OPEN = "safetensors safe_open"
READS = {
    "rows": "[x[i] for i in rows]",
    "slices": "[x[i : i + 64] for i in starts]",
}


def _ours(path: str, row: int) -> Any:
    with tw.open(path) as file:
        return file["x"][row]


def _ours_mapped(path: str, row: int) -> Any:
    with tw.open(path, mmap=True) as file:
        return file["x"][row]


def _safe_open(path: str, row: int) -> Any:
    with safe_open(path, "np") as file:
        return file.get_slice("x")[row]


def _safe_open_pread(path: str, row: int) -> Any:
    with safe_open(path, "np", backend="pread") as file:
        return file.get_slice("x")[row]


def _h5py(path: str, row: int) -> Any:
    with h5py.File(path, "r") as file:
        return file["x"][row]


def _npy(path: str, row: int) -> Any:
    return np.load(path, mmap_mode="r")[row]


def contenders(count: int) -> dict[str, list[Contender]]:
    """`rows`, `slices` and `open` of a float32 tensor [count, 256]."""
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    x = np.random.default_rng(8).random((count, 256), np.float32)
    paths = {suffix: f"{folder.name}/x.{suffix}" for suffix in ("safetensors", "h5", "npy")}
    tw.save(paths["safetensors"], {"x": x})
    np.save(paths["npy"], x)
    with h5py.File(paths["h5"], "w") as file:
        file.create_dataset("x", data=x)
    rng = np.random.default_rng(9)
    names = {
        "folder": folder,
        "rows": rng.integers(0, count, 1000).tolist(),
        "starts": rng.integers(0, count - 64, 100).tolist(),
        "row": count * 7 // 9,
    }
    same, view = "the same file as ours", f"views of {LAZY}"
    plain: tuple[Any, ...] = (
        (OURS, tw.open(paths["safetensors"])["x"], _ours, "safetensors", ""),
        (MAPPED, tw.open(paths["safetensors"], mmap=True)["x"], _ours_mapped, "safetensors", view),
        (
            SAFE_OPEN,
            safe_open(paths["safetensors"], "np").get_slice("x"),
            _safe_open,
            "safetensors",
            same,
        ),
        (
            f"{SAFE_OPEN}, pread",
            None,
            _safe_open_pread,
            "safetensors",
            "its slices read the whole tensor, so only here",
        ),
        ("h5py", h5py.File(paths["h5"], "r")["x"], _h5py, "h5", "contiguous"),
        ("np.load, mmap", np.load(paths["npy"], mmap_mode="r"), _npy, "npy", view),
    )
    found: dict[str, list[Contender]] = {"rows": [], "slices": [], "open": []}
    for name, handle, opened, suffix, note in plain:
        role: Any = "ours" if name.startswith(OURS) else "rival"
        mine = names | {"x": handle, "path": paths[suffix], "open_row": opened}
        statements = (READS if handle is not None else {}) | {"open": "open_row(path, row)"}
        for which, statement in statements.items():
            found[which].append(_proved(Contender(name, statement, mine, role, note=note), x))
        if view in note:  # those who give views, made to read as the others do
            for which, statement in READS.items():
                copied = statement.replace("] for", "].copy() for")
                found[which].append(_proved(Contender(f"{name}, copied", copied, mine, role), x))
    return found


def _proved(one: Contender, x: Any) -> Contender:
    wanted = eval(one.statement, one.names | {"x": x, "open_row": lambda path, row: x[row]})
    if not np.array_equal(wanted, eval(one.statement, one.names)):
        raise WrongResult(f"{one.name} reads other rows")
    return one
