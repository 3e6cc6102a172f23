"""Reading files: `tw.open` gives a mapping of tensors that know their shape and read only what is
asked for, `tw.load` reads it all.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import frameworks
from .._errors import DecodeError, SchemaError, TensorwireError, choices
from .._limits import Limits
from ..codecs import sharded
from ..codecs.container import Container, TensorSpec
from ..codecs.identify import Allowed, Identified, by_name, identify
from ..codecs.opening import Opened
from ..core import dtypes, memory
from ..core.quantized import has_codes
from ..core.tensors import Array, Strings
from ..storage import files
from . import signatures
from . import values as api
from .signatures import spelled


class LazyTensor:
    """A tensor in a file: `shape`, `dtype` and `kind` are known, `[...]` reads those rows, `read()`
    and `np.asarray` read all.

    A slice of the first dimension reads only its bytes, in sparse, ragged and string tensors too.
    """

    __slots__ = ("container", "_dequantize", "_format", "part", "_path", "_spec", "name")

    def __init__(
        self,
        container: Container,
        name: str,
        path: str | None,
        format: str,
        dequantize: bool = True,
    ) -> None:
        self.name, self.container, self._path, self._dequantize = name, container, path, dequantize
        self._format = format
        self._spec: TensorSpec = self._guard(lambda: container.spec(name))
        self.part = container.plain_part(name)

    @property
    def kind(self) -> str:
        """dense, strings, sparse or ragged; unreadable if its dtype is not known here."""
        return self._spec.kind

    @property
    def dtype(self) -> Any:
        """NumPy's dtype; "text" or "bytes" for strings; the file's own word if it is unreadable."""
        row = dtypes.BY_NAME.get(
            self._spec.dtype if self._dequantize else self.quantized or self._spec.dtype
        )
        return self._spec.dtype if row is None else row.numpy

    @property
    def shape(self) -> tuple[int | None, ...]:
        return self._spec.shape

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self._spec.nbytes

    @property
    def quantized(self) -> str | None:
        """The scheme by which its floats are stored in fewer bits."""
        return self._spec.quantized

    @property
    def compression(self) -> str | None:
        """How it is compressed, if each tensor is by itself."""
        return self._spec.packed

    def read(self) -> Any:
        """All of it."""
        self.container.budget.start()
        return self.read_on()

    def read_on(self) -> Any:
        """All of it, in a call that has begun: what it expands counts together with what was read
        before.
        """
        return self._guarded(lambda: self._floats(self.container.read(self.name)))

    def _floats(self, found: Any) -> Any:
        return _dequantized(found, self.container) if self._dequantize else found

    def __getitem__(self, key: Any) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        count = self.shape[0] if self.shape else None
        if count is None or first is Ellipsis or (isinstance(key, tuple) and not key):
            found = self.read()
            return found if first is Ellipsis and not rest else found[key]
        if isinstance(first, (int, np.integer)):
            if not -count <= first < count:
                raise IndexError(f"row {int(first)} of {self.name!r}, which has {count}")
            row = int(first) % count
            found = (
                self._rows(row, row + 1)[0]
                if self.kind != "sparse"
                else _drop_row(self._rows(row, row + 1))
            )
            return found[rest] if rest else found
        if isinstance(first, slice):
            chosen = range(count)[first]
            low, high = (min(chosen), max(chosen) + 1) if len(chosen) else (0, 0)
            found = self._rows(low, high)
            if chosen.step != 1:
                if self.kind in ("sparse", "ragged"):
                    raise IndexError(f"rows of a {self.kind} tensor are sliced in steps of 1")
                found = found[:: chosen.step]
            return found[(slice(None), *rest)] if rest else found
        return self.read()[key]

    def _rows(self, start: int, stop: int) -> Any:
        if self.part is not None:
            return self._guard(partial(self.part.read, (start, stop)))
        return self._guard(lambda: self._floats(self.container.read(self.name, (start, stop))))

    def _guard(self, work: Any) -> Any:
        """Runs a read, which is a call with a budget of its own, and adds what is known to its
        errors.
        """
        self.container.budget.start()
        return self._guarded(work)

    def _guarded(self, work: Any) -> Any:
        try:
            return work()
        except TensorwireError as error:
            if isinstance(error, DecodeError):
                error.add(format=self._format, offset=self.container.offset(self.name))
            raise error.add(path=self._path, tensor=self.name) from None

    def __len__(self) -> int:
        if not self.shape or self.shape[0] is None:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self.read()
        if not isinstance(found, (np.ndarray, Strings)):
            raise TypeError(f"a {self.kind} tensor is no array; .read() gives it as it is")
        return np.asarray(found, dtype)

    def __repr__(self) -> str:
        return (
            f"<{self.name!r}: {self.kind} {self.dtype} {self.shape}, {self.nbytes} bytes, not read>"
        )


def _dequantized(found: Any, container: Container) -> Any:
    if not has_codes(found):
        return found
    from ..transforms.quantization import tree

    return tree.dequantized(found, True, container.budget)


def _drop_row(sparse: Any) -> Any:
    """One row of a sparse tensor, without the dimension that it was a row of."""
    return type(sparse)(sparse.indices[:, 1:], sparse.values, sparse.dense_shape[1:])


class File(Mapping[str, LazyTensor]):
    """An open file: a mapping name -> LazyTensor. Any number of threads may read at once. Opened by
    a path or from bytes, it pickles.

    Closing drops our handle. Arrays that were read, and mappings that they look into, live as long
    as they are needed.
    """

    def __init__(
        self, where: Any, options: dict[str, Any], source: files.Source, opened: Opened
    ) -> None:
        self._where, self._options, self.source, self.container = (
            where,
            options,
            source,
            opened.container,
        )
        self._dequantize = options.get("dequantize", True)
        self.format = opened.format
        """The format's name."""
        self.compression = opened.compression
        """That of the whole stream, if it is compressed as a whole."""
        self.checksums = opened.checksums
        """Whether reading a tensor whole notices any change of its data."""
        self.lazy = opened.lazy
        """Whether tensors are read when they are asked for; else all was read when it was opened.
        """

    @property
    def metadata(self) -> dict[str, str]:
        """Text about the whole file (a copy)."""
        return dict(self.container.metadata)

    @property
    def tensor_metadata(self) -> dict[str, dict[str, str]]:
        """Text about each tensor (a copy)."""
        return {name: dict(texts) for name, texts in self.container.tensor_metadata.items()}

    @property
    def path(self) -> str | None:
        return self.source.path

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.source.size

    def names(self, readable: bool = True) -> list[str]:
        """The keys; `readable=False` gives what the file itself calls its tensors: a checkpoint's
        raw keys, which can be asked for too.
        """
        return self.container.names(readable)

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The shape of each tensor, all at once."""
        return self.container.shapes()

    @property
    def unlisted(self) -> list[str]:
        """Names that are no keys and can be read: what is no tensor of the value, as a checkpoint's
        object graph.
        """
        return self.container.unlisted

    def load(self) -> Any:
        """The whole value; by a mapping or from bytes, arrays are views."""
        if isinstance(self.source, files.BytesSource):
            options = {
                key: option
                for key, option in self._options.items()
                if key not in ("format", "mmap")
            }
            return api.untyped_loads(self.source.view, self.format, **options)
        self.container.budget.start()
        try:
            value = self.container.value()
            return _dequantized(value, self.container) if self._dequantize else value
        except DecodeError as error:
            raise error.add(path=self.path, format=self.format, offset=0) from None

    def read_names(self, names: Iterable[str]) -> dict[str, Any]:
        """Some tensors, in one call with one budget."""
        tensors = {name: self[name] for name in names}
        self.container.budget.start()
        return {name: tensor.read_on() for name, tensor in tensors.items()}

    def __getitem__(self, name: str) -> LazyTensor:
        if name not in self.container:
            raise KeyError(f"no tensor {name!r}{choices(name, self.container.keys()[:1000])}")
        return LazyTensor(self.container, name, self.source.path, self.format, self._dequantize)

    def __iter__(self) -> Iterator[str]:
        return iter(self.container.keys())

    def __len__(self) -> int:
        return len(self.container.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.container

    def close(self) -> None:
        self.container.close()
        self.source.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        if hasattr(self._where, "read"):
            raise TypeError(
                "a file opened from a file object cannot be pickled; open it by its path"
            )
        return _reopen, (
            self._where if isinstance(self._where, str) else bytes(self._where),
            self._options,
        )

    def __repr__(self) -> str:
        where = self.source.path or f"{self.size} bytes"
        packed = f" in {self.compression}" if self.compression else ""
        return (
            f"<{where}: {self.format}{packed}, {len(self)}"
            f" tensors{'' if self.lazy else ', read whole'}>"
        )


def _reopen(where: Any, options: dict[str, Any]) -> File:
    return open(where, **options)


@spelled(signatures.open)
def open(
    where: Any,
    format: str | tuple[str, ...] | None = None,
    compression: str | None = None,
    *,
    mmap: bool = False,
    dequantize: bool = True,
    limits: Limits | None = None,
    **options: Any,
) -> File:
    """Opens a file (a path, bytes, a binary file object, a hub's *.safetensors.index.json, or a
    TensorFlow checkpoint by its prefix or folder) without reading its tensors.

    `mmap=True` maps it privately instead of reading by pread: for files that nobody truncates
    meanwhile. A stream that is compressed as a whole cannot be lazy: it is read, and a warning says
    so (`per_tensor=True` in `save` makes files that are compressed and lazy).

    >>> import numpy as np
    >>> with open(api.dumps({"logits": np.arange(20).reshape(10, 2), "n": 3})) as f:
    ...     print(f.keys(), f["logits"].shape, f["logits"][3:5].tolist())
    KeysView(<352 bytes: safetensors, 1 tensors>) (10, 2) [[6, 7], [8, 9]]
    """
    file = open_file(
        where, format, compression, mmap=mmap, dequantize=dequantize, limits=limits, **options
    )
    if file.compression is not None:
        what = (
            f"{file.path or 'this'} is compressed as a whole ({file.compression}), so it cannot be"
            " lazy and was read whole"
        )
        warnings.warn(
            f"{what}; tw.load says what it does, and tw.save(..., per_tensor=True) keeps files"
            " lazy",
            stacklevel=2,
        )
    return file


def open_file(
    where: Any,
    format: str | tuple[str, ...] | None = None,
    compression: str | None = None,
    *,
    mmap: bool = False,
    dequantize: bool = True,
    limits: Limits | None = None,
    **options: Any,
) -> File:
    """`open` without the warning about streams that cannot be lazy."""
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(identify(where, format, mmap=mmap))
        options |= {"compression": compression, "mmap": mmap, "dequantize": dequantize}
        file = open_identified(where, found, format, limits, options)
        stack.pop_all()
        return file


def open_identified(
    where: Any, found: Identified, format: Allowed, limits: Limits | None, options: dict[str, Any]
) -> File:
    """The file that `identify` found. It closes the source, unless this fails."""
    path = os.fspath(where) if isinstance(where, (str, os.PathLike)) else None
    own = {key: option for key, option in options.items() if key not in _OPENING}
    compression, mmap = options.get("compression"), options.get("mmap", False)
    try:
        source, opened = sharded.open_tensors(
            where, found, format, compression, mmap, limits, own
        )
    except TensorwireError as error:
        raise error.add(path=path) from None
    settings = {**options, "format": format, "limits": limits}
    return File(path if path is not None else where, settings, source, opened)


_OPENING = ("compression", "mmap", "dequantize")
"""Options of `open` that are not the format's."""


@spelled(signatures.load)
def load(
    where: Any,
    format: str | tuple[str, ...] | None = None,
    to: str = "numpy",
    names: Iterable[str] | None = None,
    *,
    compression: str | None = None,
    device: Any = None,
    cast: bool = False,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """Reads the value of a file (whatever `tw.open` takes) into fresh, aligned, writable memory.

    `names` reads only those tensors, as a dict.

    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> api.save(file, {"a": np.arange(3), "b": np.zeros(2)})
    >>> load(file, names=["b"])
    {'b': array([0., 0.])}
    """
    path = os.fspath(where) if isinstance(where, (str, os.PathLike)) else None
    if path is None:
        where = _own(where)
    try:
        with identify(where, format) as found:
            source = found.source
            whole = found.whole()
            if whole is not None and names is None and limits is None and not options:
                value = api.decode_plain(whole, format, compression)
                if value is not None:
                    return _given(value, to, device, cast)
            named, packed = (None, None) if path is None else by_name(path)
            packed = compression or packed
            if names is not None or source is None:
                value = _load_parts(where, found, format, compression, limits, options, names)
            elif path is not None and (format or named) == "npz" and packed is None:
                # Its arrays need not be aligned in the file: read one by one, they are in memory.
                value = _load_parts(where, found, format, compression, limits, options, None)
            else:
                data = source.read_at(0, source.size) if whole is None else whole
                value = api.untyped_loads(
                    data,
                    format,
                    packed,
                    copy=True if type(data) is bytes else None,
                    limits=limits,
                    **options,
                )
    except TensorwireError as error:
        raise error.add(path=path) from None
    memory.make_writable(value)
    return _given(value, to, device, cast)


def _given(value: Any, to: str, device: Any, cast: bool) -> Any:
    return value if to == "numpy" and device is None else frameworks.each(value, to, device, cast)


def _load_parts(
    where: Any,
    found: Identified,
    format: Allowed,
    compression: str | None,
    limits: Limits | None,
    options: dict[str, Any],
    names: Iterable[str] | None,
) -> Any:
    """The value of a file, or some of its tensors, read one by one."""
    file = open_identified(where, found, format, limits, options | {"compression": compression})
    with file:
        return file.load() if names is None else file.read_names(_known(names, file))


def _own(where: Any) -> memoryview:
    """The bytes of a file object, or a copy of bytes: what is loaded is the caller's own."""
    source = files.source(where)
    data = source.read_at(0, source.size)
    return memory.flat(bytearray(data)) if isinstance(source, files.BytesSource) else data


def _known(names: Iterable[str], file: File) -> list[str]:
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in file:
            raise SchemaError(
                f"no tensor {name!r}{choices(name, list(file)[:1000])}", path=file.path
            )
    return wanted
