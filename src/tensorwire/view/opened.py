"""Files that are open, and tensors that were read: a few of each, opened anew when the file has
changed.

Nothing is closed while somebody reads from it: what is no longer kept closes itself when the last
reader lets go of it.
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
READ = 256 << 20
"""Bytes of tensors that are kept."""
WHOLE = 128 << 20
"""Bytes that a sparse, ragged or string tensor may have to be read whole."""
UNPACKED = 1 << 30
"""Bytes that a file may have which cannot be read piece by piece."""


@dataclass(frozen=True)
class OpenedFile:
    """A file and the names of its tensors, whose numbers the page asks by."""

    file: File
    names: tuple[str, ...]
    stamp: tuple[int, int]


class Library:
    """Open files and read tensors, by id and number. Any number of threads may ask at once."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._files: OrderedDict[str, OpenedFile] = OrderedDict()
        self._read: OrderedDict[tuple[str, int, tuple[int, int]], tuple[int, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def file(self, id: str) -> OpenedFile:
        """An open tensor file or checkpoint."""
        node = self.catalog[id]
        if node.kind not in ("tensors", "checkpoint"):
            raise SchemaError(f"{node.name} is no file of tensors")
        stamp = _stamp(node)
        with self._lock:
            known = self._files.get(id)
            if known is not None and known.stamp == stamp:
                self._files.move_to_end(id)
                return known
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
            raise SchemaError(f"tensor {number} of {len(opened.names)}")
        return opened.file[opened.names[number]]

    def values(self, id: str, number: int) -> DenseValues:
        """The numbers of a dense tensor."""
        tensor = self.tensor(id, number)
        if tensor.kind != "dense":
            raise SchemaError(f"a {tensor.kind} tensor is not shown so", tensor=tensor.name)
        found: DenseValues = self._kept(id, number, lambda: values_of(tensor))
        return found

    def whole(self, id: str, number: int) -> Any:
        """A tensor of any kind, read; LimitError if it is large."""
        tensor = self.tensor(id, number)
        if tensor.nbytes > WHOLE:
            raise LimitError(
                f"it has {tensor.nbytes:,} bytes; this view reads tensors of up to {WHOLE:,} bytes"
                " whole",
                tensor=tensor.name,
            )
        return self._kept(id, number, tensor.read)

    def _kept(self, id: str, number: int, make: Any) -> Any:
        key = (id, number, self.file(id).stamp)
        with self._lock:
            if key in self._read:
                self._read.move_to_end(key)
                return self._read[key][1]
        made = make()
        size = (
            made.flat.nbytes
            if isinstance(made, InMemory)
            else int(self.tensor(id, number).nbytes)
            if not hasattr(made, "run")
            else 0
        )
        with self._lock:
            self._read[key] = size, made
            while len(self._read) > 1 and (
                sum(held for held, _ in self._read.values()) > READ or len(self._read) > 256
            ):
                self._read.popitem(last=False)
        return made


def _stamp(node: CatalogNode) -> tuple[int, int]:
    found = os.stat(node.path + ".index" if node.kind == "checkpoint" else node.path)
    return found.st_mtime_ns, found.st_size


def _limits(node: CatalogNode) -> Limits | None:
    """Files that are read whole may be, and become, so large and no larger."""
    if not os.path.isfile(node.path):
        return None
    format, packed = by_name(node.path)
    size = os.path.getsize(node.path)
    with open(node.path, "rb") as file:
        packed = packed or compression_of(file.read(HEAD), format)
    lazy = packed is None and (format not in TENSOR_FORMATS or TENSOR_FORMATS[format].lazy)
    if not lazy and size > UNPACKED:
        raise LimitError(
            f"{size:,} bytes in a format that can only be read whole; tensorwire convert makes a"
            " .safetensors of it",
            path=node.name,
        )
    return (
        DEFAULT
        if packed is None
        else Limits(expansion=min(DEFAULT.allowed(size), UNPACKED), expansion_ratio=0)
    )
