"""The process in which h5py parses an HDF5 file. It imports h5py and NumPy, and nothing of this
package.

The HDF5 library can crash or loop forever on bytes that were changed, so it never runs in the
process of the caller. The parent (`hdf5.py`) starts this one with pipes for stdin and stdout:

1. The parent sends its settings. The child imports h5py, limits its own memory, and answers
   `ready`.
2. The parent sends a request: `list`, or `read` with a dataset and rows. The child sets a limit on
   the CPU time of the request, and answers with JSON, with the bytes of an array, or with an error.
3. While it works, the child asks the parent for bytes of the file by their offset, and opens no
   file.

A message of the child is a letter, the length of its body as eight bytes, and the body. The parent
sends the length and the body; bytes of the file have no length, because the child knows how many it
asked for.
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
"""Those that h5py has in itself; for any other one HDF5 would look for a plugin."""
FETCH, ANSWER, DATA, ERROR = b"F", b"A", b"D", b"E"
HEAD = struct.Struct("<cQ")
LENGTH = struct.Struct("<Q")
SPAN = struct.Struct("<QQ")
_BLOCK = 64 << 10
"""Bytes of the file that are fetched at a time."""
_BLOCKS = 64
"""Blocks that are kept."""
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
"""What h5py raises for files that it cannot read."""


class Hdf5Refused(Exception):
    """(what is wrong, the name of the dataset, whether it is a limit)"""


class Pipe:
    """The parent."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer

    def send(self, kind: bytes, body: Any) -> None:
        self._writer.write(HEAD.pack(kind, len(body)))
        self._writer.write(body)
        self._writer.flush()

    def receive(self) -> Any:
        """The next request; None at the end."""
        head = self._reader.read(LENGTH.size)
        return (
            json.loads(self._reader.read(*LENGTH.unpack(head)))
            if len(head) == LENGTH.size
            else None
        )

    def fetch(self, offset: int, count: int) -> bytes:
        """Bytes of the file."""
        self.send(FETCH, SPAN.pack(offset, count))
        return self._reader.read(count)


class Hdf5File(io.RawIOBase):
    """The file as a file object, which is all that h5py wants."""

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
            raise Hdf5Refused(f"HDF5 cannot read it ({_words(error)})", None, False) from None

    def listing(self, names: int) -> dict[str, Any]:
        """Every dataset with what is needed to read it, and the texts that tell the names of
        weights.
        """
        datasets: list[dict[str, Any]] = []
        self._walk(self._root, "", 0, datasets, names)
        texts = {
            key: self._text(self._root, key) for key in ("keras_version", "backend", "model_config")
        }
        return {"datasets": datasets, "texts": texts, "layers": self._layers(datasets)}

    def read(self, name: str, start: int, stop: int) -> Any:
        """Rows of a dataset in the byte order of the machine; of a scalar all of it."""
        import numpy as np

        try:
            dataset = self._root[name]
            shape = (stop - start, *dataset.shape[1:]) if dataset.shape else ()
            found = np.empty(shape, dataset.dtype.newbyteorder("="))
            if found.size:
                dataset.read_direct(
                    found, np.s_[start:stop] if shape else (), None if shape else ()
                )
        except _FAULTS as error:
            raise Hdf5Refused(f"HDF5 cannot read its data ({_words(error)})", name, False) from None
        return found.reshape(-1).view(np.uint8).data

    def _walk(
        self, group: Any, path: str, depth: int, out: list[dict[str, Any]], names: int
    ) -> None:
        if depth > _DEPTH:
            raise Hdf5Refused(f"groups nested more than {_DEPTH} deep", None, True)
        try:
            place = self._h5py.h5o.get_info(group.id)
            if (place.fileno, place.addr) in self._groups:
                raise Hdf5Refused(
                    f"the group {path!r:.80} is inside itself, or has two names", None, False
                )
            self._groups.add((place.fileno, place.addr))
            children = sorted(group, key=natural)
        except _FAULTS as error:
            raise Hdf5Refused(
                f"the group {path or '/'!r:.80} cannot be read ({_words(error)})", None, False
            ) from None
        for name in children:
            full = f"{path}/{name}" if path else name
            item = self._item(group, name, full)
            if isinstance(item, self._h5py.Group):
                self._walk(item, full, depth + 1, out, names)
            elif len(out) >= names:
                raise Hdf5Refused(
                    f"more than {names} datasets; Limits(names=...) allows more", None, True
                )
            else:
                out.append(self._dataset(item, full))

    def _item(self, group: Any, name: str, full: str) -> Any:
        try:
            if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
                raise Hdf5Refused("a link to something else, which is never followed", full, False)
            item = group[name]
        except _FAULTS as error:
            raise Hdf5Refused(f"it cannot be opened ({_words(error)})", full, False) from None
        if not isinstance(item, (self._h5py.Group, self._h5py.Dataset)):
            raise Hdf5Refused("neither a group nor an array", full, False)
        return item

    def _dataset(self, dataset: Any, name: str) -> dict[str, Any]:
        h5d = self._h5py.h5d
        try:
            plan = dataset.id.get_create_plist()
            if plan.get_external_count():
                raise Hdf5Refused(
                    "its data are in another file, which is never opened", name, False
                )
            if plan.get_layout() == h5d.VIRTUAL:
                raise Hdf5Refused("a view of other datasets, which is never followed", name, False)
            filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
            if unknown := [number for number in filters if number not in FILTERS]:
                known = ", ".join(FILTERS.values())
                why = (
                    f"packed by the HDF5 filter {unknown[0]}; only {known} are read, and no plugin"
                    " is loaded"
                )
                raise Hdf5Refused(why, name, False)
            if dataset.shape is None:
                raise Hdf5Refused("an array of nothing (a null dataspace)", name, False)
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
            raise Hdf5Refused(f"it cannot be read ({_words(error)})", name, False) from None

    def _is_plain(self, dataset: Any) -> bool:
        """Whether the bytes in the file are those of a NumPy array: HDF5 has integers of 12 bits,
        too.
        """
        dtype = dataset.dtype
        if dtype.kind == "V" and dtype.fields is None:
            return True
        same = dataset.id.get_type().equal(self._h5py.h5t.py_create(dtype))
        return dtype.kind in "iuf" and dtype.newbyteorder("<") == dtype and bool(same)

    def _layers(self, datasets: list[dict[str, Any]]) -> dict[str, str]:
        """The groups that are layers, with the layer's name, which their `vars` have as an
        attribute. Layers without variables count.
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
        """An attribute that is text; None if there is none."""
        try:
            found = group.attrs.get(name)
        except _FAULTS as error:
            raise Hdf5Refused(
                f"its attribute {name!r} cannot be read ({_words(error)})", None, False
            ) from None
        if isinstance(found, bytes):
            return found.decode("utf-8", "replace")
        return found if isinstance(found, str) else None


def natural(name: str) -> tuple[Any, ...]:
    """Names as people count: 2 before 10.

    >>> sorted(["10", "2", "a", "dense_10", "dense_9"], key=natural)
    ['2', '10', 'a', 'dense_9', 'dense_10']
    """
    words = re.split(r"(\d{1,18})", name, flags=re.A)
    return tuple(
        (0, int(word), "") if number % 2 else (1, 0, word) for number, word in enumerate(words)
    )


def _words(error: BaseException) -> str:
    """What h5py says, in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _limit_memory(room: int) -> None:
    """So many bytes besides those that the process has already."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + room, size + room))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass  # Not Linux: the parent's limit on time remains.


def _limit_time(seconds: int) -> None:
    """CPU time until the process is killed, from now on."""
    try:
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = int(usage.ru_utime + usage.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (used + 1 + seconds, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        pass


def main() -> None:
    """Serves the parent until it closes the pipe."""
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
