"""Lazy reading of files: `tw.open` returns a mapping of tensors that are read on access, `tw.load`
reads the whole value.
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
    """A tensor in an open file, which is read on access: `tensor[rows]` reads some rows, `read()`
    and `np.asarray(tensor)` read all.

    `shape`, `dtype` and `kind` are known without reading. A slice of the first dimension reads only
    its own bytes, also in sparse, ragged and string tensors. Reading raises `DecodeError` for
    damaged data.

    >>> import numpy as np, tensorwire as tw
    >>> with tw.open(tw.dumps({"x": np.arange(20).reshape(10, 2)})) as file:
    ...     tensor = file["x"]
    ...     tensor.shape, tensor[3:5].tolist()
    ((10, 2), [[6, 7], [8, 9]])
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
        self._spec: TensorSpec = self._call(lambda: container.spec(name))
        self.part = container.plain_part(name)

    @property
    def kind(self) -> str:
        """ "dense", "strings", "sparse" or "ragged"; "unreadable" if the dtype is unknown."""
        return self._spec.kind

    @property
    def dtype(self) -> Any:
        """The NumPy dtype; "text" or "bytes" for strings; the name in the file if unreadable."""
        row = dtypes.BY_NAME.get(
            self._spec.dtype if self._dequantize else self.quantized or self._spec.dtype
        )
        return self._spec.dtype if row is None else row.numpy

    @property
    def shape(self) -> tuple[int | None, ...]:
        return self._spec.shape

    @property
    def nbytes(self) -> int:
        """The number of bytes in the file."""
        return self._spec.nbytes

    @property
    def quantized(self) -> str | None:
        """The quantization scheme, if the floats are quantized."""
        return self._spec.quantized

    @property
    def compression(self) -> str | None:
        """The compression, if the tensors are compressed one by one."""
        return self._spec.packed

    def read(self) -> Any:
        """Reads the whole tensor."""
        self.container.budget.start()
        return self.read_on()

    def read_on(self) -> Any:
        """Reads the whole tensor with the memory budget of a call that has already begun."""
        return self._with_facts(lambda: self._floats(self.container.read(self.name)))

    def _floats(self, tensor: Any) -> Any:
        return _dequantized(tensor, self.container) if self._dequantize else tensor

    def __getitem__(self, key: Any) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        count = self.shape[0] if self.shape else None
        if count is None or first is Ellipsis or (isinstance(key, tuple) and not key):
            tensor = self.read()
            return tensor if first is Ellipsis and not rest else tensor[key]
        if isinstance(first, (int, np.integer)):
            if not -count <= first < count:
                raise IndexError(
                    f"row {int(first)} is out of range: {self.name!r} has {count} rows"
                )
            index = int(first) % count
            row = (
                self._rows(index, index + 1)[0]
                if self.kind != "sparse"
                else _drop_row(self._rows(index, index + 1))
            )
            return row[rest] if rest else row
        if isinstance(first, slice):
            chosen = range(count)[first]
            low, high = (min(chosen), max(chosen) + 1) if len(chosen) else (0, 0)
            rows = self._rows(low, high)
            if chosen.step != 1:
                if self.kind in ("sparse", "ragged"):
                    raise IndexError(f"a {self.kind} tensor can only be sliced with a step of 1")
                rows = rows[:: chosen.step]
            return rows[(slice(None), *rest)] if rest else rows
        return self.read()[key]

    def _rows(self, start: int, stop: int) -> Any:
        # A plain part skips the container, whose only extra work would be to find that part.
        if self.part is not None:
            return self._call(partial(self.part.read, (start, stop)))
        return self._call(lambda: self._floats(self.container.read(self.name, (start, stop))))

    def _call(self, work: Any) -> Any:
        """Runs a read with a memory budget of its own."""
        self.container.budget.start()
        return self._with_facts(work)

    def _with_facts(self, work: Any) -> Any:
        """Runs a read, and adds path, tensor, format and offset to its errors."""
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
        tensor = self.read()
        if not isinstance(tensor, (np.ndarray, Strings)):
            raise TypeError(
                f"a {self.kind} tensor cannot be converted to an array; use .read() instead"
            )
        return np.asarray(tensor, dtype)

    def __repr__(self) -> str:
        return (
            f"<{self.name!r}: {self.kind} {self.dtype} {self.shape}, {self.nbytes} bytes, not read>"
        )


def _dequantized(value: Any, container: Container) -> Any:
    if not has_codes(value):
        return value
    from ..transforms.quantization import tree

    return tree.dequantized(value, True, container.budget)


def _drop_row(sparse: Any) -> Any:
    """A sparse tensor of one row without its first dimension."""
    return type(sparse)(sparse.indices[:, 1:], sparse.values, sparse.dense_shape[1:])


class File(Mapping[str, LazyTensor]):
    """An open file: a mapping of names to `LazyTensor`, returned by `tw.open`.

    Threads may read at the same time. A file that was opened by its path or from bytes can be
    pickled. `close` closes the file; arrays that were read stay valid, and a memory map lives as
    long as they do. An unknown name raises `KeyError` with the nearest names.

    >>> import numpy as np, tensorwire as tw
    >>> with tw.open(tw.dumps({"x": np.zeros((10, 2)), "n": 3})) as file:
    ...     list(file), file.format, file["x"].shape
    (['x'], 'safetensors', (10, 2))
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
        """The name of the format."""
        self.compression = opened.compression
        """The compression of the whole file."""
        self.checksums = opened.checksums
        """Whether reading a whole tensor detects any change of its data."""
        self.lazy = opened.lazy
        """Whether tensors are read on access; otherwise all were read when the file was opened."""

    @property
    def metadata(self) -> dict[str, str]:
        """The text metadata of the file, as a copy."""
        return dict(self.container.metadata)

    @property
    def tensor_metadata(self) -> dict[str, dict[str, str]]:
        """The text metadata of each tensor, as a copy."""
        return {name: dict(texts) for name, texts in self.container.tensor_metadata.items()}

    @property
    def path(self) -> str | None:
        return self.source.path

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.source.size

    def names(self, readable: bool = True) -> list[str]:
        """Returns the keys; with `readable=False` the raw keys of a checkpoint, which can be read,
        too.
        """
        return self.container.names(readable)

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Returns the shape of each tensor."""
        return self.container.shapes()

    @property
    def unlisted(self) -> list[str]:
        """Names that can be read but are not keys, such as the object graph of a checkpoint."""
        return self.container.unlisted

    def load(self) -> Any:
        """Reads the whole value. With `mmap=True`, and from bytes, arrays are views."""
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
        """Reads some tensors, with one memory budget for all of them."""
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
                "a file that was opened from a file object cannot be pickled; open it by its path"
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
    """Opens a file without reading its tensors, and returns a mapping of names to `LazyTensor`.

    `where` is a path or URL, bytes, a binary file object, the *.safetensors.index.json of a sharded
    model, or a TensorFlow checkpoint by its prefix or folder. `mmap=True` maps the file instead of
    reading it with pread; the file must not be truncated meanwhile. `dequantize=False` returns
    quantized tensors as `tw.Quantized`. Other options are those of the format.

    A file that is compressed as a whole is read at once, with a warning; `tw.save(...,
    per_tensor=True)` writes compressed files that can be read lazily.

    Raises `DecodeError` for damaged files, `UnknownFormatError` if the format is not recognized,
    and `FileNotFoundError`.

    >>> import numpy as np, tensorwire as tw
    >>> with tw.open(tw.dumps({"logits": np.arange(20).reshape(10, 2), "n": 3})) as file:
    ...     print(file["logits"].shape, file["logits"][3:5].tolist())
    (10, 2) [[6, 7], [8, 9]]
    """
    file = open_file(
        where, format, compression, mmap=mmap, dequantize=dequantize, limits=limits, **options
    )
    if file.compression is not None:
        warnings.warn(
            f"{file.path or 'this file'} is compressed as a whole ({file.compression}), so all of"
            " it was read; use tw.load, or write the file with tw.save(..., per_tensor=True)",
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
    """`open` without the warning about files that cannot be read lazily."""
    with contextlib.ExitStack() as stack:
        identified = stack.enter_context(identify(where, format, mmap=mmap))
        options |= {"compression": compression, "mmap": mmap, "dequantize": dequantize}
        file = open_identified(where, identified, format, limits, options)
        stack.pop_all()
        return file


def open_identified(
    where: Any,
    identified: Identified,
    format: Allowed,
    limits: Limits | None,
    options: dict[str, Any],
) -> File:
    """Opens a file that `identify` has opened already. The `File` closes the source; if this
    raises, the caller does.
    """
    path = os.fspath(where) if isinstance(where, (str, os.PathLike)) else None
    own = {key: option for key, option in options.items() if key not in _OPENING}
    compression, mmap = options.get("compression"), options.get("mmap", False)
    try:
        source, opened = sharded.open_tensors(
            where, identified, format, compression, mmap, limits, own
        )
    except TensorwireError as error:
        raise error.add(path=path) from None
    settings = {**options, "format": format, "limits": limits}
    return File(path if path is not None else where, settings, source, opened)


_OPENING = ("compression", "mmap", "dequantize")
"""The options of `open` that are not options of the format."""


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
    """Reads the whole value of a file, or some of its tensors, into new, aligned, writable memory.

    `where` is anything that `tw.open` takes. `names` reads only these tensors, and returns a dict.
    `to`, `device` and `cast` are those of `tw.to`. Other options are those of the format.

    Raises `DecodeError` for damaged files, `SchemaError` for unknown names, `UnknownFormatError` if
    the format is not recognized, and `FileNotFoundError`.

    >>> import io, numpy as np, tensorwire as tw
    >>> file = io.BytesIO()
    >>> tw.save(file, {"a": np.arange(3), "b": np.zeros(2)})
    >>> tw.load(file, names=["b"])
    {'b': array([0., 0.])}
    """
    path = os.fspath(where) if isinstance(where, (str, os.PathLike)) else None
    if path is None:
        where = _own(where)
    try:
        with identify(where, format) as identified:
            source = identified.source
            # A small file is read in one call, and plain tensors are decoded in one native step.
            whole = identified.whole()
            if whole is not None and names is None and limits is None and not options:
                value = api.decode_plain(whole, format, compression)
                if value is not None:
                    return _given(value, to, device, cast)
            named, packed = (None, None) if path is None else by_name(path)
            packed = compression or packed
            if names is not None or source is None:
                value = _load_parts(where, identified, format, compression, limits, options, names)
            elif path is not None and (format or named) == "npz" and packed is None:
                # The arrays of an npz file need not be aligned. Read one by one, they are.
                value = _load_parts(where, identified, format, compression, limits, options, None)
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
    identified: Identified,
    format: Allowed,
    compression: str | None,
    limits: Limits | None,
    options: dict[str, Any],
    names: Iterable[str] | None,
) -> Any:
    """The value of a file, or some of its tensors, read one by one."""
    options = options | {"compression": compression}
    with open_identified(where, identified, format, limits, options) as file:
        return file.load() if names is None else file.read_names(_checked(names, file))


def _own(where: Any) -> memoryview:
    """The bytes of a file object, or a copy of bytes, so that the arrays belong to the caller."""
    source = files.source(where)
    data = source.read_at(0, source.size)
    return memory.flat(bytearray(data)) if isinstance(source, files.BytesSource) else data


def _checked(names: Iterable[str], file: File) -> list[str]:
    """The names as a list; raises for a name that is not in the file."""
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in file:
            raise SchemaError(
                f"no tensor {name!r}{choices(name, list(file)[:1000])}", path=file.path
            )
    return wanted
