"""Named tensors in bytes and in files: one small tensor, the state of a model, very many tiny ones.

Everyone starts from its own tensors in memory (NumPy's or PyTorch's, over the same bytes) and reads
what its own `save` wrote, from a warm page cache. Who answers with a lazy mapping has read nothing
yet: its note says so, and "touch" reads a byte of every page besides.
"""

from __future__ import annotations

import ctypes
import io
import os
import pickle
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import ml_dtypes
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from safetensors import safe_open
from tensorwire.timing import Contender, Timing, race
from tensorwire.ways import Way, WrongResult, dense_differences, prove

import tensorwire as tw

Arrays = dict[str, Any]
Contenders = dict[str, list[Contender]]

OURS = "tensorwire"
NOT_DURABLE = "tensorwire, durable=False"
MAPPED = "tensorwire, mmap"
PLAIN, PLAIN_FSYNC, PLAIN_READ = "plain write", "plain write + fsync", "plain read into new memory"
SAFETENSORS = "safetensors.numpy"
LAZY = "a lazy mapping"
PREFIX = "tensorwire-bench-"
TENSORS = 500
_NOTHING = "None"
"""The `save` of who reads a file that someone else wrote."""


def small() -> Arrays:
    return {"x": np.random.default_rng(5).random(8, np.float32)}


def state(size: int) -> Arrays:
    """About `size` bytes in 500 tensors, float32 and bfloat16 by turns."""
    rng = np.random.default_rng(6)
    mean = max(2, size // (TENSORS * 3 * 512))
    found = {}
    for i, rows in enumerate(rng.integers(mean // 2, mean + mean // 2, TENSORS, endpoint=True)):
        values = rng.random((rows, 512), np.float32)
        found[f"model.layers.{i}.weight"] = values.astype(ml_dtypes.bfloat16) if i % 2 else values
    return found


def tiny(count: int) -> Arrays:
    values = np.random.default_rng(7).random((count, 4), np.float32)
    return {f"embedding.{i}": values[i].copy() for i in range(count)}


def _to_torch(arrays: Arrays) -> Arrays:
    """The same memory as PyTorch's tensors."""
    narrow = np.dtype(ml_dtypes.bfloat16)
    return {
        name: (
            torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
            if x.dtype == narrow
            else torch.from_numpy(x)
        )
        for name, x in arrays.items()
    }


def _array(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x
    return (
        x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        if x.dtype == torch.bfloat16
        else x.numpy()
    )


def _to_numpy(tensors: Arrays) -> Arrays:
    """The same memory as arrays."""
    return {name: _array(x) for name, x in tensors.items()}


def _mappings() -> list[tuple[int, int]]:
    """Where files of ours are mapped."""
    lines = (
        Path("/proc/self/maps").read_text().splitlines()
        if os.path.exists("/proc/self/maps")
        else []
    )
    spans = [line.split()[0].split("-") for line in lines if PREFIX in line]
    return [(int(start, 16), int(stop, 16)) for start, stop in spans]


def differences(given: Arrays, back: Arrays) -> str:
    """What was lost, and whether it was read at all, in words."""
    if back.keys() != given.keys():
        raise WrongResult(f"{len(back)} tensors, or others, for {len(given)}")
    spans = _mappings()
    lost = {dense_differences(x, back[name]) for name, x in given.items()} - {""}
    lazy = any(start <= x.ctypes.data < stop for x in back.values() for start, stop in spans)
    return ", ".join(
        [
            *sorted(lost),
            *(["another order"] if list(back) != list(given) else []),
            *([LAZY] if lazy else []),
        ]
    )


def _to_bytes(write: Callable[[Any, Any], Any]) -> Callable[[Any], bytes]:
    def dumps(x: Any) -> bytes:
        out = io.BytesIO()
        write(x, out)
        return out.getvalue()

    return dumps


def _of_bytes(read: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    return lambda blob: read(io.BytesIO(blob))


def _npz_write(x: Arrays, where: Any) -> None:
    np.savez(where, **x)


def _npz_read(where: Any) -> Arrays:
    with np.load(where) as found:
        return {name: found[name] for name in found.files}


def _pickle_write(x: Arrays, path: str) -> None:
    with open(path, "wb") as file:
        pickle.dump(x, file, 5)


def _pickle_read(path: str) -> Any:
    with open(path, "rb") as file:
        return pickle.load(file)


def in_bytes(value: Arrays, everyone: bool = True) -> Contenders:
    """`dumps` and `loads`."""
    ours = {"tw_dumps": tw.dumps, "tw_loads": tw.loads}
    st = {"save": safetensors.numpy.save, "load": safetensors.numpy.load}
    pickles = {"pickle_dumps": pickle.dumps, "pickle_loads": pickle.loads}
    torches = {"torch_dumps": _to_bytes(torch.save), "torch_loads": _of_bytes(torch.load)}
    npz = {"npz_dumps": _to_bytes(_npz_write), "npz_loads": _of_bytes(_npz_read)}
    jobs = {"joblib_dumps": _to_bytes(joblib.dump), "joblib_loads": _of_bytes(joblib.load)}
    ways = [
        Way(OURS, "tw_dumps(x)", "tw_loads(blob)", ours, role="ours"),
        Way(SAFETENSORS, "save(x)", "load(blob)", st),
        Way("pickle 5", "pickle_dumps(x, 5)", "pickle_loads(blob)", pickles),
        Way("torch.save", "torch_dumps(x)", "torch_loads(blob)", torches, _to_torch, _to_numpy),
        Way("np.savez", "npz_dumps(x)", "npz_loads(blob)", npz),
        Way("joblib", "joblib_dumps(x)", "joblib_loads(blob)", jobs),
    ]
    return prove(ways if everyone else ways[:3], value, differences)


def _safe_open_all(path: str) -> Arrays:
    with safe_open(path, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping


def _file_ways(folder: Any) -> list[Way]:
    """Each with a path of its own, or that of the one whose file it reads. Ours first, then
    safetensors and pickle, then the others.
    """

    def way(
        name: str,
        file: str,
        save: str,
        load: str,
        names: dict[str, Any],
        *torch_too: Any,
        role: Any = "rival",
        note: str = "",
    ) -> Way:
        # the folder lives as long as someone needs it
        place = {"folder": folder, "path": f"{folder.name}/{file}"}
        return Way(name, save, load, names | place, *torch_too, role=role, note=note)

    ours = {"tw_save": tw.save, "tw_load": tw.load, "tw_open": tw.open}
    st = {"save_file": safetensors.numpy.save_file, "load_file": safetensors.numpy.load_file}
    st_torch = {
        "torch_save_file": safetensors.torch.save_file,
        "torch_load_file": safetensors.torch.load_file,
    }
    npz = {"savez": np.savez, "npz_load": _npz_read}
    pickles = {"pickle_save": _pickle_write, "pickle_load": _pickle_read}
    both = (_to_torch, _to_numpy)
    return [
        way(OURS, "a.safetensors", "tw_save(path, x)", "tw_load(path)", ours, role="ours"),
        way(
            NOT_DURABLE,
            "b.safetensors",
            "tw_save(path, x, durable=False)",
            "tw_load(path)",
            ours,
            role="ours",
        ),
        way(
            MAPPED, "a.safetensors", _NOTHING, "tw_open(path, mmap=True).load()", ours, role="ours"
        ),
        way(SAFETENSORS, "c.safetensors", "save_file(x, path)", "load_file(path)", st),
        way(
            f"{SAFETENSORS}, pread",
            "c.safetensors",
            _NOTHING,
            'load_file(path, backend="pread")',
            st,
        ),
        way(
            "safetensors safe_open",
            "c.safetensors",
            _NOTHING,
            "safe_open_all(path)",
            {"safe_open_all": _safe_open_all},
        ),
        way("pickle 5", "d.pickle", "pickle_save(x, path)", "pickle_load(path)", pickles),
        way(
            "tensorwire, torch",
            "e.safetensors",
            "tw_save(path, x)",
            'tw_load(path, to="torch")',
            ours,
            *both,
            role="ours",
        ),
        way(
            "safetensors.torch",
            "f.safetensors",
            "torch_save_file(x, path)",
            "torch_load_file(path)",
            st_torch,
            *both,
        ),
        way(
            "safetensors.torch, pread",
            "f.safetensors",
            _NOTHING,
            'torch_load_file(path, backend="pread")',
            st_torch,
            *both,
        ),
        way(
            "torch.save", "g.pt", "torch.save(x, path)", "torch.load(path)", {"torch": torch}, *both
        ),
        way(
            "torch.load, mmap",
            "g.pt",
            _NOTHING,
            "torch.load(path, mmap=True)",
            {"torch": torch},
            *both,
        ),
        way("np.savez", "h.npz", "savez(path, **x)", "npz_load(path)", npz),
        way("joblib", "i.joblib", "joblib.dump(x, path)", "joblib.load(path)", {"joblib": joblib}),
    ]


def in_files(value: Arrays, everyone: bool = True) -> Contenders:
    """`save`, `load`, and `touch`: a load that also reads a byte of every page."""
    folder = tempfile.TemporaryDirectory(prefix=PREFIX)
    ways = _file_ways(folder)
    found = prove(ways if everyone else ways[:7], value, differences)
    save = [
        replace(one, note=one.note.removesuffix(LAZY).removesuffix(", "))
        for one in found["dumps"]
        if one.statement != _NOTHING
    ]
    seen: dict[str, Contender] = {}
    # two of ours differ in how they were written, not in how they are read
    for one in found["loads"]:
        seen.setdefault(one.statement, one)
    floors = _floors(tw.buffers(value), folder)
    load = [*seen.values(), floors.pop()]
    touch = [
        Contender(
            one.name,
            f"touch({one.statement})",
            one.names | {"touch": _touch},
            one.role,
            note=one.note,
        )
        for one in load
    ]
    return {"save": [*save, *floors], "load": load, "touch": touch}


def _touch(found: Any) -> int:
    arrays = [_array(x) for x in found.values()] if isinstance(found, dict) else [found]
    return sum(int(x.reshape(-1).view(np.uint8)[::4096].sum()) for x in arrays)


def _plain_write(path: str, chunks: list[Any], fsync: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for chunk in chunks:
        if os.write(fd, chunk) != len(chunk):
            raise OSError("a short write")
    if fsync:
        os.fsync(fd)
    os.close(fd)


def _plain_read(path: str) -> Any:
    found = np.empty(os.path.getsize(path), np.uint8)
    with open(path, "rb", buffering=0) as file:
        done = 0
        while done < len(found):
            done += file.readinto(found[done:])  # type: ignore[arg-type, operator]
    return found


def _floors(chunks: list[Any], folder: Any) -> list[Contender]:
    """The same bytes as ours, ready made, written and read by those who do nothing else."""
    names = {
        "folder": folder,
        "path": f"{folder.name}/plain",
        "chunks": chunks,
        "write": _plain_write,
        "read": _plain_read,
    }
    written = names | {"path": f"{folder.name}/a.safetensors"}
    _plain_write(f"{folder.name}/plain", chunks, False)
    if not np.array_equal(
        _plain_read(f"{folder.name}/plain"), _plain_read(f"{folder.name}/a.safetensors")
    ):
        raise WrongResult("the plain file is another one")
    return [
        Contender(PLAIN_FSYNC, "write(path, chunks, True)", names, "floor", self_describing=False),
        Contender(
            PLAIN,
            "write(path, chunks, False)",
            names | {"path": f"{folder.name}/plain2"},
            "floor",
            self_describing=False,
        ),
        Contender(PLAIN_READ, "read(path)", written, "floor", self_describing=False),
    ]


def write_race(contenders: list[Contender], rounds: int, seconds: float) -> list[Timing]:
    """A race of those who write: before each one its old file is removed, and what the others left
    unwritten is on the disk.
    """
    return _race(contenders, rounds, seconds, _settle)


def read_race(contenders: list[Contender], rounds: int, seconds: float) -> list[Timing]:
    """A race of those who read much: before each one, nobody's allocator keeps warm memory for it."""
    return _race(contenders, rounds, seconds, _new_memory)


def _race(
    contenders: list[Contender], rounds: int, seconds: float, before: Callable[[str], None]
) -> list[Timing]:
    """The usual race, with something to do before each call, which is not timed."""
    found: dict[str, Timing] = {}
    order, shuffle = list(contenders), random.Random(20).shuffle
    for _ in range(rounds):
        shuffle(order)
        for one in order:
            before(one.names["path"])
            (took,) = race([one], 1, seconds)
            timing = found.setdefault(one.name, took)
            if timing is not took:
                timing.wall += took.wall
                timing.cpu += took.cpu
    return [found[one.name] for one in contenders]


def _settle(path: str) -> None:
    size = os.path.getsize(path) if os.path.exists(path) else 0
    Path(path).unlink(missing_ok=True)
    folder = os.path.dirname(path)
    for place in [*(entry.path for entry in os.scandir(folder)), folder]:
        fd = os.open(place, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    _touch(np.ones(size, np.uint8))


def _new_memory(path: str) -> None:
    """Freed memory goes back to the kernel, as in a process that loads once. And the kernel has as
    much as will be needed: a virtual machine may have to ask its host for it, ten times slower, and
    that would hit whoever comes first after a pause."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    _touch(np.ones(os.path.getsize(path), np.uint8))
