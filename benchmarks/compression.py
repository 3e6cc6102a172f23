"""One tensor alone, shuffled and compressed with zstd, against blosc2, which does the same; whole
streams against the libraries' own functions for that; and the byte shuffle against a copy.

Everyone has as many threads as there are cores, starts from the bytes of an array in memory and
ends with new memory. blosc2's clevel 1 is zstd's level 1, and its default, clevel 5, is zstd's
level 9; ours are compared at the levels that make about as much of the data, 1 and 5. Ours has a
checksum, blosc2's has none.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from typing import Any

import backports.zstd
import blosc2
import cramjam
import lz4.frame
import ml_dtypes
import numpy as np
from isal import igzip
from tensorwire.timing import Contender, Role
from tensorwire.ways import WrongResult

from tensorwire import limits
from tensorwire.transforms.compression import oneshot, packing
from tensorwire.wire import kernels

Array = np.ndarray[Any, Any]
Contenders = dict[str, list[Contender]]

OURS, OURS_QUICK, OURS_SMALL = "tensorwire", "tensorwire, level 1", "tensorwire, level 5"
BLOSC, BLOSC_QUICK = "blosc2", "blosc2, clevel 1"
PAIRS = ((OURS_QUICK, BLOSC_QUICK), (OURS_SMALL, BLOSC))
"""Who is compared with whom, by size and by time."""
SIZE, SLOWER = 1.03, 1.2
"""How much larger and slower ours may be."""
_LEVELS = {OURS: None, OURS_QUICK: 1, OURS_SMALL: 5}
_CLEVELS = {BLOSC: 5, BLOSC_QUICK: 1}


def weights(size: int) -> Array:
    return (np.random.default_rng(11).standard_normal(size // 2, np.float32) * 0.02).astype(
        ml_dtypes.bfloat16
    )


def normal(size: int) -> Array:
    return np.random.default_rng(12).standard_normal(size // 4, np.float32)


def walk(size: int) -> Array:
    return np.cumsum(np.random.default_rng(13).standard_normal(size // 4) * 0.01).astype(np.float32)


def image(size: int) -> Array:
    y, x = np.mgrid[0:2048, 0 : size // 4 // 2048].astype(np.float32)
    return np.round((np.sin(x / 97) * np.cos(y / 131) * 100 + np.sin(x * y / 1e5) * 20) * 16) / 16


def ids(size: int) -> Array:
    return np.sort(np.random.default_rng(14).integers(0, 1 << 40, size // 8))


DATA: dict[str, tuple[Callable[[int], Array], str]] = {
    "weights": (weights, "bfloat16 weights, normally distributed"),
    "normal": (normal, "float32, normally distributed"),
    "walk": (walk, "float32, a random walk"),
    "image": (image, "float32, a smooth image in sixteenths"),
    "ids": (ids, "int64, sorted ids below 2^40"),
}


def packed(name: str, size: int) -> Contenders:
    """`pack` and `unpack` of so many bytes of one of the kinds of data; a contender's size is that
    of what it made.
    """
    x = DATA[name][0](size).reshape(-1)
    data, item, threads = x.view(np.uint8), x.itemsize, os.cpu_count() or 1
    found: Contenders = {"pack": [], "unpack": []}

    def add(
        who: str,
        role: Role,
        packs: str,
        unpacks: str,
        names: dict[str, Any],
        length: Callable[[Any], int],
    ) -> None:
        made = eval(packs, names)
        back = eval(unpacks, names | {"made": made})
        if bytes(back) != data.tobytes():
            raise WrongResult(f"{who}: other bytes came back")
        note = f"{len(data) / length(made):.3f} times smaller"
        found["pack"].append(Contender(who, packs, names, role, False, note, size=length(made)))
        found["unpack"].append(
            Contender(who, unpacks, names | {"made": made}, role, False, note, size=length(made))
        )

    ours = {
        "data": data,
        "item": item,
        "pack": packing.pack,
        "how": packing.how,
        "Packing": packing.Packing,
        "threads": threads,
    }
    for who, level in _LEVELS.items():
        packs = f'pack(data, item, Packing("zstd", {level}, threads, shuffle=True))'
        add(
            who,
            "ours",
            packs,
            "how(made.info, len(data), item).unpack(made.data)",
            ours,
            lambda made: len(made.data),
        )
    theirs = {
        "data": data,
        "compress": blosc2.compress2,
        "decompress": blosc2.decompress2,
        "threads": threads,
    }
    for who, clevel in _CLEVELS.items():
        how = {
            "codec": blosc2.Codec.ZSTD,
            "clevel": clevel,
            "typesize": item,
            "filters": [blosc2.Filter.SHUFFLE],
            "filters_meta": [0],
        }
        names = theirs | {"how": how}
        add(
            who,
            "rival",
            "compress(data, nthreads=threads, **how)",
            "decompress(made, nthreads=threads)",
            names,
            len,
        )
    return found


def streams(size: int) -> Contenders:
    """`compress` and `decompress` of the bytes of a random walk, by tensorwire and by each
    library's function for that.
    """
    data = walk(size).view(np.uint8).tobytes()
    found: Contenders = {"compress": [], "decompress": []}

    def add(who: str, role: Role, packs: str, unpacks: str, names: dict[str, Any]) -> None:
        names = names | {"data": data}
        made = eval(packs, names)
        if bytes(eval(unpacks, names | {"made": made})) != data:
            raise WrongResult(f"{who}: other bytes came back")
        note = f"{len(data) / len(made):.3f} times smaller"
        found["compress"].append(Contender(who, packs, names, role, False, note, size=len(made)))
        found["decompress"].append(
            Contender(who, unpacks, names | {"made": made}, role, False, note, size=len(made))
        )

    ours = {"compress": oneshot.compress, "decompress": oneshot.decompress}
    for name in ("zstd", "gzip", "lz4", "snappy"):
        add(
            f"tensorwire, {name}",
            "ours",
            f'b"".join(compress([data], "{name}"))',
            f'decompress(made, "{name}")',
            ours,
        )
    checked = {backports.zstd.CompressionParameter.checksum_flag: 1}
    zstd = {"zstd": backports.zstd, "checked": checked}
    add(
        "backports.zstd",
        "rival",
        "zstd.compress(data, options=checked)",
        "zstd.decompress(made)",
        zstd,
    )
    add("gzip, level 1", "rival", "gzip.compress(data, 1)", "gzip.decompress(made)", {"gzip": gzip})
    add("isal", "rival", "igzip.compress(data)", "igzip.decompress(made)", {"igzip": igzip})
    frame = "lz4.compress(data, content_checksum=True)"
    add("lz4.frame", "rival", frame, "lz4.decompress(made)", {"lz4": lz4.frame})
    add(
        "cramjam, snappy",
        "rival",
        "snappy.compress_raw(data)",
        "snappy.decompress_raw(made)",
        {"snappy": cramjam.snappy},
    )
    return found


def shuffling(size: int, item: int) -> list[Contender]:
    """The byte shuffle of items of so many bytes, there and back, against a copy of the same bytes."""
    data = np.random.default_rng(15).integers(0, 256, size, np.uint8)
    out, block = np.zeros_like(data), packing.PLANE * item
    names = {
        "data": data,
        "out": out,
        "item": item,
        "block": block,
        "shuffle": kernels.shuffle,
        "unshuffle": kernels.unshuffle,
    }
    kernels.shuffle(data, item, block, out)
    if not np.array_equal(out[:block].reshape(item, -1).T.reshape(-1), data[:block]):
        raise WrongResult("that is not the transpose")
    numpy = {
        "data": data[: len(data) // item * item],
        "item": item,
        "contiguous": np.ascontiguousarray,
    }
    return [
        Contender("tensorwire, shuffle", "shuffle(data, item, block, out)", names, "ours"),
        Contender("tensorwire, unshuffle", "unshuffle(data, item, block, out)", names, "ours"),
        Contender(
            "NumPy, transposed",
            "contiguous(data.reshape(-1, item).T)",
            numpy,
            note="of all at once",
        ),
        *limits.copies(data),
    ]
