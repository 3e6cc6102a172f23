"""The child process in which h5py parses an HDF5 file.

It imports h5py and NumPy, and nothing else of this package. The HDF5 library can crash or loop
forever on corrupted bytes, so it never runs in the caller's process. The parent (`hdf5.py`) starts
this process with pipes for stdin and stdout:

1. The parent sends the file size and a memory limit. The child imports h5py, limits its own
   memory, and answers `ready`.
2. The parent sends a request: `list`, or `read` with a dataset and rows. The child limits the CPU
   time of the request, and answers with JSON, with the bytes of an array, or with an error.
3. While it works, the child requests ranges of the file from the parent. It opens no file itself.

A message of the child is one letter, the length of its body as eight bytes, and the body. The
parent sends a length and a body. Bytes of the file have no length, because the child knows how many
it requested.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import struct
import sys
from collections import OrderedDict
from typing import Any, BinaryIO

FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
"""The filters that h5py has built in. For any other one HDF5 would load a plugin."""
FETCH, ANSWER, DATA, ERROR = b"F", b"A", b"D", b"E"
HEAD = struct.Struct("<cQ")
LENGTH = struct.Struct("<Q")
SPAN = struct.Struct("<QQ")
_BLOCK = 64 << 10
"""Bytes of the file in one cached block."""
_BLOCKS = 64
"""The number of cached blocks."""
_DEPTH = 64
_FAULTS = (
    OSError,
    KeyError,
    RuntimeError,
    ValueError,
    TypeError,
    NotImplementedError,
    OverflowError,
    AttributeError,
    MemoryError,
)
"""Exceptions that h5py raises for files that it cannot read."""


class Hdf5Refused(Exception):
    """An error for the parent: (message, name of the dataset, whether it is a limit)."""


class Pipe:
    """The pipes to the parent."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer

    def send(self, kind: bytes, body: Any) -> None:
        self._writer.write(HEAD.pack(kind, len(body)))
        self._writer.write(body)
        self._writer.flush()

    def receive(self) -> Any:
        """Returns the next request; None at the end of the pipe."""
        head = self._reader.read(LENGTH.size)
        return (
            json.loads(self._reader.read(*LENGTH.unpack(head)))
            if len(head) == LENGTH.size
            else None
        )

    def fetch(self, offset: int, count: int) -> bytes:
        """Requests a range of the file from the parent."""
        self.send(FETCH, SPAN.pack(offset, count))
        return self._reader.read(count)


class Hdf5File(io.RawIOBase):
    """A read-only file object over the pipe, with a cache of blocks for h5py's small reads."""

    def __init__(self, pipe: Pipe, size: int) -> None:
        super().__init__()
        self._pipe, self._size, self._at = pipe, size, 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = (0, self._at, self._size)[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._at))
        if count > _BLOCK:
            view[:count] = self._pipe.fetch(self._at, count)
        else:
            done = 0
            while done < count:
                number, start = divmod(self._at + done, _BLOCK)
                piece = self._block(number)[start : start + count - done]
                view[done : done + len(piece)] = piece
                done += len(piece)
        self._at += count
        return count

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            start = number * _BLOCK
            block = self._blocks[number] = self._pipe.fetch(start, min(_BLOCK, self._size - start))
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return block


class Hdf5Reader:
    """An open HDF5 file."""

    def __init__(self, h5py: Any, file: Hdf5File) -> None:
        self._h5py = h5py
        self._groups: set[Any] = set()
        try:
            self._root = h5py.File(file, "r", locking=False)
        except _FAULTS as error:
            raise Hdf5Refused(
                f"HDF5 cannot read the file ({_one_line(error)})", None, False
            ) from None

    def listing(self, names: int) -> dict[str, Any]:
        """Lists every dataset with what is needed to read it, and the texts for naming weights."""
        datasets: list[dict[str, Any]] = []
        self._walk(self._root, "", 0, datasets, names)
        texts = {
            key: self._text(self._root, key) for key in ("keras_version", "backend", "model_config")
        }
        return {"datasets": datasets, "texts": texts, "layers": self._layers(datasets)}

    def read(self, name: str, start: int, stop: int) -> Any:
        """Reads rows of a dataset, or a whole scalar, in native byte order."""
        import numpy as np

        try:
            dataset = self._root[name]
            shape = (stop - start, *dataset.shape[1:]) if dataset.shape else ()
            array = np.empty(shape, dataset.dtype.newbyteorder("="))
            if array.size:
                dataset.read_direct(
                    array, np.s_[start:stop] if shape else (), None if shape else ()
                )
        except _FAULTS as error:
            raise Hdf5Refused(
                f"HDF5 cannot read the dataset ({_one_line(error)})", name, False
            ) from None
        return array.reshape(-1).view(np.uint8).data

    def _walk(
        self, group: Any, path: str, depth: int, out: list[dict[str, Any]], names: int
    ) -> None:
        if depth > _DEPTH:
            raise Hdf5Refused(f"groups are nested more than {_DEPTH} levels deep", None, True)
        try:
            # Hard links can make a group its own descendant, so visited groups are remembered.
            place = self._h5py.h5o.get_info(group.id)
            if (place.fileno, place.addr) in self._groups:
                raise Hdf5Refused(
                    f"the group {path!r:.80} has two paths, or contains itself", None, False
                )
            self._groups.add((place.fileno, place.addr))
            children = sorted(group, key=natural)
        except _FAULTS as error:
            raise Hdf5Refused(
                f"HDF5 cannot read the group {path or '/'!r:.80} ({_one_line(error)})", None, False
            ) from None
        for name in children:
            full = f"{path}/{name}" if path else name
            item = self._item(group, name, full)
            if isinstance(item, self._h5py.Group):
                self._walk(item, full, depth + 1, out, names)
            elif len(out) >= names:
                raise Hdf5Refused(
                    f"more than {names} datasets; Limits(names=...) raises the limit", None, True
                )
            else:
                out.append(self._dataset(item, full))

    def _item(self, group: Any, name: str, full: str) -> Any:
        try:
            if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
                raise Hdf5Refused(
                    "the entry is a soft or external link, which is never followed", full, False
                )
            item = group[name]
        except _FAULTS as error:
            raise Hdf5Refused(
                f"HDF5 cannot open the entry ({_one_line(error)})", full, False
            ) from None
        if not isinstance(item, (self._h5py.Group, self._h5py.Dataset)):
            raise Hdf5Refused("the entry is neither a group nor a dataset", full, False)
        return item

    def _dataset(self, dataset: Any, name: str) -> dict[str, Any]:
        h5d = self._h5py.h5d
        try:
            plan = dataset.id.get_create_plist()
            if plan.get_external_count():
                raise Hdf5Refused(
                    "the data is stored in another file, which is never opened", name, False
                )
            if plan.get_layout() == h5d.VIRTUAL:
                raise Hdf5Refused(
                    "a virtual dataset, which refers to other datasets, is not supported",
                    name,
                    False,
                )
            filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
            if unknown := [number for number in filters if number not in FILTERS]:
                supported = ", ".join(FILTERS.values())
                why = (
                    f"unsupported HDF5 filter {unknown[0]} (supported: {supported}; plugins are"
                    " never loaded)"
                )
                raise Hdf5Refused(why, name, False)
            if dataset.shape is None:
                raise Hdf5Refused(
                    "the dataset has no elements and no shape (null dataspace)", name, False
                )
            plain = plan.get_layout() == h5d.CONTIGUOUS and not filters and self._is_plain(dataset)
            return {
                "name": name,
                "shape": list(dataset.shape),
                "dtype": dataset.dtype.str,
                "fields": dataset.dtype.fields is not None,
                "meant": self._text(dataset, "dtype"),
                "packed": bool(filters),
                "stored": dataset.id.get_storage_size(),
                "offset": dataset.id.get_offset() if plain else None,
            }
        except _FAULTS as error:
            raise Hdf5Refused(
                f"HDF5 cannot read the dataset ({_one_line(error)})", name, False
            ) from None

    def _is_plain(self, dataset: Any) -> bool:
        """Whether the stored bytes are those of a NumPy array. (HDF5 also has 12-bit integers.)"""
        dtype = dataset.dtype
        if dtype.kind == "V" and dtype.fields is None:
            return True
        same = dataset.id.get_type().equal(self._h5py.h5t.py_create(dtype))
        return dtype.kind in "iuf" and dtype.newbyteorder("<") == dtype and bool(same)

    def _layers(self, datasets: list[dict[str, Any]]) -> dict[str, str]:
        """Maps each group that is a layer to the layer's name, an attribute of its `vars` group.

        Layers without variables are included.
        """
        layers: dict[str, str] = {}
        for row in datasets:
            words = row["name"].split("/")
            for end in range(1, len(words)):
                group = "/".join(words[:end])
                if words[end - 1] != "vars" and group not in layers:
                    name = self._name_of(group)
                    if name:
                        layers[group] = name
        return layers

    def _name_of(self, group: str) -> str | None:
        try:
            inner = self._root[group]
            if not isinstance(inner.get("vars", getlink=True), self._h5py.HardLink):
                return None
            return self._text(inner["vars"], "name")
        except _FAULTS:
            return None

    def _text(self, group: Any, name: str) -> str | None:
        """Returns an attribute as text; None if it is missing or not text."""
        try:
            attribute = group.attrs.get(name)
        except _FAULTS as error:
            raise Hdf5Refused(
                f"HDF5 cannot read the attribute {name!r} ({_one_line(error)})", None, False
            ) from None
        if isinstance(attribute, bytes):
            return attribute.decode("utf-8", "replace")
        return attribute if isinstance(attribute, str) else None


def natural(name: str) -> tuple[Any, ...]:
    """Returns a sort key in natural order, 2 before 10.

    >>> sorted(["10", "2", "a", "dense_10", "dense_9"], key=natural)
    ['2', '10', 'a', 'dense_9', 'dense_10']
    """
    words = re.split(r"(\d{1,18})", name, flags=re.A)
    return tuple(
        (0, int(word), "") if number % 2 else (1, 0, word) for number, word in enumerate(words)
    )


def _one_line(error: BaseException) -> str:
    """Returns the message of an h5py error in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _limit_memory(room: int) -> None:
    """Limits the memory of this process to `room` bytes more than it has now."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + room, size + room))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        # Other systems than Linux have no such limit. The parent's time limit remains.
        pass


def _limit_time(seconds: int) -> None:
    """Limits the CPU time from now on; the system kills the process that exceeds it."""
    try:
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = int(usage.ru_utime + usage.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (used + 1 + seconds, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        pass


def main() -> None:
    """Answers the parent's requests until it closes the pipe."""
    pipe = Pipe(sys.stdin.buffer, sys.stdout.buffer)
    settings = pipe.receive()
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        pipe.send(ERROR, json.dumps(["missing", str(error), None]).encode())
        return
    _limit_memory(settings["memory"])
    pipe.send(ANSWER, b'"ready"')
    reader: Hdf5Reader | None = None
    while (request := pipe.receive()) is not None:
        _limit_time(request["seconds"])
        try:
            reader = reader or Hdf5Reader(h5py, Hdf5File(pipe, settings["size"]))
            if request["do"] == "list":
                pipe.send(ANSWER, json.dumps(reader.listing(request["names"])).encode())
            else:
                pipe.send(DATA, reader.read(request["name"], request["start"], request["stop"]))
        except Hdf5Refused as error:
            why, name, limit = error.args
            pipe.send(ERROR, json.dumps(["limit" if limit else "data", why, name]).encode())
        except MemoryError:
            pipe.send(
                ERROR,
                json.dumps(
                    ["limit", "HDF5 needs more memory than the limits allow", None]
                ).encode(),
            )
