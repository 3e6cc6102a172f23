"""HDF5 files of arrays, parsed by h5py in a child process (`hdf5_child`).

The HDF5 library can crash or loop forever on corrupted bytes, so it never runs in the caller's
process:

1. The child lists the datasets once: name, shape, dtype, and the file offset of each contiguous
   one.
2. Contiguous, unfiltered datasets (Keras writes no others) are read from the file here, without the
   child. Only chunked, compressed or converted datasets are requested from it.
3. Answers of the child are untrusted input: sizes, offsets and types are checked here.
4. The child opens no file. It asks for ranges of bytes, which are served while its answer is
   awaited.
5. A child that dies, exceeds its CPU time or is silent for too long is a DecodeError. It is killed,
   and the next request starts a new one.
6. After an interrupted request the pipe can hold half an answer. Then the child is killed too
   (`is_settled`).
7. HDF5 features that weights do not need are refused: links, external data, virtual datasets, and
   filters that would be loaded as plugins.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import threading
import weakref
from importlib.util import find_spec
from typing import Any, NamedTuple, NoReturn

import ml_dtypes
import numpy as np

from ..._errors import DecodeError, LimitError, TensorwireError
from ..._limits import Budget
from ..._optional import require
from ...core import dtypes, memory, validate
from ...core.tensors import Array
from ...storage.files import Source
from ...wire import json as jsontext
from ..array_part import StoredPart
from ..container import BasePart, Part, Rows, UnreadablePart
from .hdf5_child import ANSWER, DATA, ERROR, FETCH, HEAD, LENGTH, SPAN

MAGIC = b"\x89HDF\r\n\x1a\n"
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from"
    " tensorwire.codecs.keras.hdf5_child import main; main()"
)
_SECONDS = 1
"""Base CPU seconds of a request; each `_EACH` bytes of the file or of the array add one."""
_EACH = 2 << 20
_LISTED = 512 << 10
"""The same for a listing, whose time depends on the number of datasets: bytes of the file per
second.
"""
_LONGEST = 600
_SILENCE = 60
"""Wall-clock seconds without output until the child is considered to hang."""
_ROOM = 64 << 20
"""Bytes of memory that HDF5 needs in addition to the data."""
_MESSAGE = 256 << 20
"""The largest JSON answer in bytes."""


class Listing(NamedTuple):
    """The contents of a file."""

    datasets: dict[str, Part]
    texts: dict[str, str]
    """The text attributes of the root that exist: keras_version, backend, model_config."""
    layers: dict[str, str]
    """Group -> the name of its layer."""


class Hdf5:
    """An HDF5 file. It is thread-safe; the child serves one request at a time."""

    def __init__(
        self, source: Source, budget: Budget, format: str, copy: bool | None = None
    ) -> None:
        self._source, self._budget, self._format, self._copy = source, budget, format, copy
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def list(self) -> Listing:
        """Lists every dataset in natural order, vars/2 before vars/10."""
        answer = self._ask({"do": "list", "names": self._budget.names}, self._source.size, None)
        try:
            listing = jsontext.parse(answer, self._format)
            rows, texts, layers = listing["datasets"], listing["texts"], listing["layers"]
            parts = {str(row["name"]): self._part(row) for row in rows}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DecodeError) and error.tensor is not None:
                raise
            raise self._bad(f"invalid dataset listing from HDF5 ({error!s:.80})") from None
        # Without datasets that only the child can read, it is not needed any more.
        if not any(isinstance(part, DatasetPart) for part in parts.values()):
            self.close()
        root_texts = {name: text for name, text in texts.items() if isinstance(text, str)}
        return Listing(parts, root_texts, {str(group): str(name) for group, name in layers.items()})

    def read(self, name: str, start: int, stop: int, out: Array) -> None:
        """Reads rows of a dataset into an array of exactly their size."""
        self._ask({"do": "read", "name": name, "start": start, "stop": stop}, out.nbytes, out)

    def close(self) -> None:
        """Ends the child process, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _part(self, row: dict[str, Any]) -> Part:
        name, shape = str(row["name"]), tuple(map(int, row["shape"]))
        if len(shape) > validate.NUMPY_RANK or min(shape, default=0) < 0:
            raise self._bad(f"invalid dataset shape with {len(shape)} dimensions", name)
        dtype = np.dtype(row["dtype"])
        kind = self._row(dtype, row["meant"], bool(row["fields"]))
        if kind is None:
            refusal = self._bad(f"unsupported dtype {dtype}: only numbers are read", name)
            return UnreadablePart(str(dtype), shape, int(row["stored"]), refusal)
        try:
            nbytes = (
                validate.elements(shape, DecodeError, kind.numpy.itemsize) * kind.numpy.itemsize
            )
        except DecodeError as error:
            raise error.add(format=self._format, tensor=name, offset=0) from None
        offset = row["offset"]
        if offset is None:
            return DatasetPart(self, name, kind, shape, nbytes, bool(row["packed"]))
        if not 0 <= int(offset) <= self._source.size - nbytes:
            raise self._bad(f"the dataset's {nbytes} bytes lie outside the file", name)
        return StoredPart(
            self._source, int(offset), kind, shape, self._copy, format=self._format, name=name
        )

    def _row(self, dtype: np.dtype[Any], stored_name: Any, fields: bool) -> dtypes.DType | None:
        """Returns the dtype of a dataset; None if it is unsupported.

        Keras stores dtypes that NumPy lacks as opaque bytes, and their name as an attribute.
        """
        if (
            dtype.kind == "V"
            and not fields
            and isinstance(stored_name, str)
            and stored_name in dtypes.BY_NAME
        ):
            row = dtypes.BY_NAME[stored_name]
            if (
                row.numpy.itemsize == dtype.itemsize
                and hasattr(ml_dtypes, stored_name)
                and not row.reading_only
            ):
                return row
        if dtype.kind not in "biufc" or fields:
            return None
        try:
            return dtypes.of(dtype)
        except TensorwireError:
            return None

    def _ask(self, request: dict[str, Any], size: int, out: Array | None) -> memoryview:
        """Returns the child's answer to a request. Array data is written to `out`."""
        with self._lock:
            # A forked process inherits the pipes of its parent's child, and must not use them.
            if self._child is None or self._child.owner != os.getpid():
                self._child = _Child(self._source, self._budget, self._format)
            try:
                each = _EACH if out is not None else _LISTED
                seconds = _SECONDS + min(size // each, _LONGEST)
                return self._child.ask(request | {"seconds": seconds}, out)
            except _Gone as gone:
                self.close()
                name = request.get("name")
                raise DecodeError(str(gone), format=self._format, tensor=name, offset=0) from None
            except BaseException:
                # The child may be in the middle of an answer, or wait for bytes of the file. The
                # next request could not be told from that.
                if not self._child.is_settled:
                    self.close()
                raise

    def _bad(self, why: str, name: str | None = None) -> DecodeError:
        return DecodeError(why, format=self._format, tensor=name, offset=0)


class _Gone(Exception):
    """The child crashed, was killed, or violated the protocol."""


class _Child:
    """The child process and the protocol with it."""

    def __init__(self, source: Source, budget: Budget, format: str) -> None:
        self._source, self._format, self.owner = source, format, os.getpid()
        self.is_settled = False
        """Whether the last request was answered completely, so that the next one may be sent."""
        # Without h5py, `require` raises before a process is started.
        if find_spec("h5py") is None:
            require("h5py", extra="keras")
        # sys.path may contain other objects than text, which cannot be passed on.
        path = json.dumps([entry for entry in sys.path if isinstance(entry, str)])
        quiet = os.environ | {
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "HDF5_PLUGIN_PATH": os.devnull,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=quiet,
            bufsize=0,
        )
        self.end = weakref.finalize(self, _end, self._process, self.owner)
        room = _ROOM + 2 * max(budget.allowed(budget.input), source.size)
        try:
            self._send({"size": source.size, "memory": room})
            self._answer(None)
        except BaseException:
            self.end()
            raise

    def ask(self, request: dict[str, Any], out: Array | None) -> memoryview:
        self.is_settled = False
        self._send(request)
        return self._answer(out)

    def _answer(self, out: Array | None) -> memoryview:
        """Serves ranges of the file to the child until its answer arrives."""
        while True:
            kind, size = HEAD.unpack(self._receive(memoryview(bytearray(HEAD.size))))
            if kind == FETCH and size == SPAN.size:
                offset, count = SPAN.unpack(self._receive(memoryview(bytearray(size))))
                if offset + count > self._source.size:
                    raise _Gone("HDF5 requested bytes past the end of the file")
                self._write(self._source.read_at(offset, count))
            elif kind == DATA and out is not None and size == out.nbytes:
                data = self._receive(memory.flat(out.reshape(-1).view(np.uint8)))
                self.is_settled = True
                return data
            elif kind in (ANSWER, ERROR) and size <= _MESSAGE:
                body = self._receive(memoryview(bytearray(size)))
                self.is_settled = True
                if kind == ANSWER:
                    return body
                self._fail(body)
            else:
                raise _Gone("unexpected message from the HDF5 process")

    def _fail(self, body: memoryview) -> NoReturn:
        try:
            what, why, name = jsontext.parse(body, self._format)
        except (DecodeError, TypeError, ValueError):
            raise _Gone("invalid error message from the HDF5 process") from None
        if what == "missing":
            require("h5py", extra="keras")
        error = LimitError if what == "limit" else DecodeError
        raise error(f"{why!s:.500}", format=self._format, tensor=name, offset=0)

    def _send(self, request: dict[str, Any]) -> None:
        body = json.dumps(request).encode()
        self._write(LENGTH.pack(len(body)) + body)

    def _write(self, data: Any) -> None:
        assert self._process.stdin is not None
        view, written = memoryview(data).cast("B"), 0
        try:
            while written < len(view):
                written += self._process.stdin.write(view[written:]) or 0
        except (BrokenPipeError, ConnectionResetError):
            raise self._gone() from None

    def _receive(self, view: memoryview) -> memoryview:
        assert self._process.stdout is not None
        stream, have = self._process.stdout, 0
        # poll() rather than select(), which fails for descriptors above 1023.
        ready = select.poll()
        ready.register(stream, select.POLLIN)
        while have < len(view):
            if not ready.poll(_SILENCE * 1000):
                raise _Gone(f"HDF5 did not answer for {_SILENCE} seconds")
            count = stream.readinto(view[have:])  # type: ignore[attr-defined]
            if not count:
                raise self._gone()
            have += count
        return view

    def _gone(self) -> _Gone:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return _Gone("HDF5 cannot read the file (its process closed the pipe)")
        how = f"signal {-code}" if code < 0 else f"status {code}"
        return _Gone(f"HDF5 cannot read the file (its process ended with {how})")


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    # The finalizer also exists in forked processes, which must not kill their parent's child.
    if os.getpid() == owner:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


class DatasetPart(BasePart):
    """A dataset that the child has to decode, on access. Its rows are drawn on the budget."""

    def __init__(
        self,
        file: Hdf5,
        name: str,
        row: dtypes.DType,
        shape: tuple[int, ...],
        nbytes: int,
        packed: bool,
    ) -> None:
        self.name, self.dtype, self.shape, self.nbytes = name, row.name, shape, nbytes
        self.packed = "HDF5" if packed else None
        self._file, self._row = file, row

    def read(self, rows: Rows = None) -> Array:
        file = self._file
        start, stop = (0, self.shape[0] if self.shape else 0) if rows is None else rows
        if rows is not None and (not self.shape or not 0 <= start <= stop <= self.shape[0]):
            why = f"rows {start} to {stop} are out of range for shape {list(self.shape)}"
            raise DecodeError(why, format=file._format, tensor=self.name, offset=0)
        shape = (stop - start, *self.shape[1:]) if self.shape else ()
        size = math.prod(shape) * self._row.numpy.itemsize
        try:
            file._budget.draw(size, file._format, 0)
        except LimitError as error:
            raise error.add(tensor=self.name) from None
        array: Array = np.empty(shape, self._row.numpy)
        if array.size:
            file.read(self.name, start, stop, array)
        return array
