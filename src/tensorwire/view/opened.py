"""Caches of open files and of tensors, by id; a file that has changed is opened again.

1. Both caches are bounded and drop their least recently used entries.
2. A dropped file is not closed explicitly, since another thread may be reading from it. It closes
   when its last reference goes away.
3. Modification time and size of a file are part of the key, so a changed file is never mixed with
   old tensors.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from .._errors import LimitError, SchemaError
from .._limits import DEFAULT, Limits
from ..api.lazy import File, LazyTensor, open_file
from ..codecs import TENSOR_FORMATS
from ..codecs.identify import HEAD, by_name, compression_of
from ..explore.runs import DenseValues, InMemory, values_of
from .catalog import Catalog, CatalogNode

FILES = 16
"""The most open files."""
READ = 256 << 20
"""The most bytes of tensors in the cache."""
WHOLE = 128 << 20
"""The largest sparse, ragged or string tensor that is read whole, in bytes."""
UNPACKED = 1 << 30
"""The largest file that is read if its format cannot be read in parts, in bytes."""


@dataclass(frozen=True)
class OpenedFile:
    """An open file and the names of its tensors; the page refers to tensors by number."""

    file: File
    names: tuple[str, ...]
    stamp: tuple[int, int]


class Library:
    """Open files by id, and tensors by number. It is thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._files: OrderedDict[str, OpenedFile] = OrderedDict()
        self._read: OrderedDict[tuple[str, int, tuple[int, int]], tuple[int, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def file(self, id: str) -> OpenedFile:
        """Return an open tensor file or checkpoint."""
        node = self.catalog[id]
        if node.kind not in ("tensors", "checkpoint"):
            raise SchemaError(f"{node.name} is not a tensor file")
        stamp = _stamp(node)
        with self._lock:
            cached = self._files.get(id)
            if cached is not None and cached.stamp == stamp:
                self._files.move_to_end(id)
                return cached
        # The lock is not held while a file is opened, so two threads may open the same file. The
        # later one replaces the earlier one, and both are valid.
        file = (
            open_file(node.path, "checkpoint")
            if node.kind == "checkpoint"
            else open_file(node.path, limits=_limits(node))
        )
        opened = OpenedFile(file, tuple(file), stamp)
        with self._lock:
            self._files[id] = opened
            while len(self._files) > FILES:
                self._files.popitem(last=False)
        return opened

    def tensor(self, id: str, number: int) -> LazyTensor:
        opened = self.file(id)
        if not 0 <= number < len(opened.names):
            raise SchemaError(f"tensor {number} is out of range: the file has {len(opened.names)}")
        return opened.file[opened.names[number]]

    def values(self, id: str, number: int) -> DenseValues:
        """Return the elements of a dense tensor."""
        tensor = self.tensor(id, number)
        if tensor.kind != "dense":
            raise SchemaError(
                f"expected a dense tensor, found a {tensor.kind} one", tensor=tensor.name
            )
        values: DenseValues = self._kept(id, number, lambda: values_of(tensor))
        return values

    def whole(self, id: str, number: int) -> Any:
        """Return a tensor of any kind; LimitError if it is too large to be read whole."""
        tensor = self.tensor(id, number)
        if tensor.nbytes > WHOLE:
            raise LimitError(
                f"the tensor has {tensor.nbytes:,} bytes; this page reads at most {WHOLE:,} bytes"
                " of a sparse, ragged or string tensor",
                tensor=tensor.name,
            )
        return self._kept(id, number, tensor.read)

    def _kept(self, id: str, number: int, make: Any) -> Any:
        """Return a cached tensor, or make it and put it into the cache."""
        key = (id, number, self.file(id).stamp)
        with self._lock:
            if key in self._read:
                self._read.move_to_end(key)
                return self._read[key][1]
        tensor = make()
        # Tensors that are read on demand (StoredNumbers, ByRows) take next to no memory.
        size = (
            tensor.flat.nbytes
            if isinstance(tensor, InMemory)
            else int(self.tensor(id, number).nbytes)
            if not hasattr(tensor, "run")
            else 0
        )
        with self._lock:
            self._read[key] = size, tensor
            while len(self._read) > 1 and (
                sum(nbytes for nbytes, _ in self._read.values()) > READ or len(self._read) > 256
            ):
                self._read.popitem(last=False)
        return tensor


def _stamp(node: CatalogNode) -> tuple[int, int]:
    status = os.stat(node.path + ".index" if node.kind == "checkpoint" else node.path)
    return status.st_mtime_ns, status.st_size


def _limits(node: CatalogNode) -> Limits | None:
    """Return the limits for a file; LimitError if it is large and must be read whole."""
    if not os.path.isfile(node.path):
        return None
    format, packed = by_name(node.path)
    size = os.path.getsize(node.path)
    with open(node.path, "rb") as file:
        packed = packed or compression_of(file.read(HEAD), format)
    lazy = packed is None and (format not in TENSOR_FORMATS or TENSOR_FORMATS[format].lazy)
    if not lazy and size > UNPACKED:
        raise LimitError(
            f"the file has {size:,} bytes, and its format can only be read whole (at most"
            f" {UNPACKED:,} bytes)",
            path=node.name,
            hint="convert it first: tensorwire convert FILE other.safetensors",
        )
    return (
        DEFAULT
        if packed is None
        else Limits(expansion=min(DEFAULT.allowed(size), UNPACKED), expansion_ratio=0)
    )
