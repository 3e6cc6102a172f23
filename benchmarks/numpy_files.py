"""npy and npz against NumPy itself: `np.save`, `np.load`, `np.savez`, in memory and in files, and
how long it takes to open one.

Everyone starts from arrays in memory and ends with arrays in memory; where ours are views of the
bytes that were given, the note says so, and "copied" makes them the caller's own, as NumPy's are.
`np.load` of an npz file is lazy, so its arrays are asked for. Large files are written anew (what
was there is removed first, which is not timed), and all are read from a warm page cache. Ours are
not synced to the disk, as NumPy's are not.
"""

from __future__ import annotations

import io
import tempfile
from typing import Any

import numpy as np
from tensorwire.stores import PREFIX, differences
from tensorwire.timing import Contender
from tensorwire.ways import Way, dense_differences, prove

import tensorwire as tw

Array = np.ndarray[Any, Any]
Contenders = dict[str, list[Contender]]

OURS, COPIED, NUMPY = "tensorwire", "tensorwire, copied", "NumPy"
THEIRS = "tensorwire, NumPy's file"
KINDS = ("npy", "npz")
VERBS = {"bytes": ("dumps", "loads"), "files": ("save", "load"), "opening": ("open",)}
SLOWER = 1.1
"""Never slower than NumPy beyond this."""


def value(kind: str, size: int) -> Any:
    """One float32 array, or two by name, of `size` bytes in all."""
    x = np.random.default_rng(10).random((16, size // 64), np.float32)
    return x if kind == "npy" else {"weights": x[:8].copy(), "gradients": x[8:].copy()}


def _differences(given: Any, back: Any) -> str:
    return differences(given, back) if isinstance(given, dict) else dense_differences(given, back)


def _saved(x: Any) -> bytes:
    out = io.BytesIO()
    if isinstance(x, dict):
        np.savez(out, **x)
    else:
        np.save(out, x)
    return out.getvalue()


def _arrays(where: Any) -> dict[str, Array]:
    with np.load(where) as found:
        return {name: found[name] for name in found.files}


def _loaded(blob: bytes, kind: str) -> Any:
    return np.load(io.BytesIO(blob)) if kind == "npy" else _arrays(io.BytesIO(blob))


def in_bytes(kind: str, size: int) -> Contenders:
    """`dumps` and `loads`."""
    ours = {"tw_dumps": tw.dumps, "tw_loads": tw.loads, "kind": kind}
    numpy = {"np_dumps": _saved, "np_loads": _loaded, "kind": kind}
    ways = [
        Way(OURS, "tw_dumps(x, kind)", "tw_loads(blob, kind)", ours, role="ours"),
        Way(COPIED, "tw_dumps(x, kind)", "tw_loads(blob, kind, copy=True)", ours, role="ours"),
        Way(
            THEIRS,
            "np_dumps(x)",
            "tw_loads(blob, kind)",
            ours | numpy,
            role="ours",
            note="what NumPy wrote",
        ),
        Way(NUMPY, "np_dumps(x)", "np_loads(blob, kind)", numpy),
    ]
    found = prove(ways, value(kind, size), _differences)
    # the others differ in how they read
    found["dumps"] = [one for one in found["dumps"] if one.name in (OURS, NUMPY)]
    return found


def in_files(kind: str, size: int) -> Contenders:
    """`save` and `load`."""
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    theirs = {
        "np_save": np.save if kind == "npy" else _savez,
        "np_load": np.load if kind == "npy" else _arrays,
    }
    # which lives as long as someone needs it
    ours = {"tw_save": tw.save, "tw_load": tw.load, "folder": folder}
    mine, other = (
        {"path": f"{folder.name}/ours.{kind}"},
        {"path": f"{folder.name}/theirs.{kind}", "folder": folder},
    )
    ways = [
        Way(OURS, "tw_save(path, x, durable=False)", "tw_load(path)", ours | mine, role="ours"),
        Way(NUMPY, "np_save(path, x)", "np_load(path)", theirs | other),
        Way(
            THEIRS,
            "np_save(path, x)",
            "tw_load(path)",
            ours | theirs | other,
            role="ours",
            note="what NumPy wrote",
        ),
    ]
    found = prove(ways, value(kind, size), _differences)
    return {"save": found["dumps"][:2], "load": found["loads"]}


def _savez(path: str, x: dict[str, Array]) -> None:
    np.savez(path, **x)  # type: ignore[arg-type]


def _row(path: str, name: str) -> Any:
    with tw.open(path) as file:
        return file[name][3]


def _mapped_row(path: str, name: str) -> Any:
    return np.array(np.load(path, mmap_mode="r")[3])


def _whole_row(path: str, name: str) -> Any:
    with np.load(path) as file:
        return file[name][3]


def opening(kind: str, sizes: tuple[int, int] = (1 << 20, 256 << 20)) -> Contenders:
    """`open`: a small file and a large one, each opened anew for one row of the same length. Ours
    should not feel the difference.
    """
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    name = "tensor" if kind == "npy" else "x"
    found = []
    for size, word in zip(sizes, ("small", "large"), strict=True):
        x = np.zeros((size // 4096, 1024), np.float32)
        path = f"{folder.name}/{word}.{kind}"
        tw.save(path, x if kind == "npy" else {"x": x}, durable=False)
        names = {
            "path": path,
            "name": name,
            "folder": folder,
            "row": _row,
            "np_row": _mapped_row if kind == "npy" else _whole_row,
        }
        found.append(Contender(f"{OURS}, {word}", "row(path, name)", names, "ours"))
        if kind == "npy" or word == "small":  # np.load reads a member whole, however large
            note = "a mapping" if kind == "npy" else "reads all of the array"
            found.append(Contender(f"{NUMPY}, {word}", "np_row(path, name)", names, note=note))
    return {"open": found}
