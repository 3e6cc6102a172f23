"""TensorBundle reader: a checkpoint as a container that reads each tensor on access.

1. Opening reads the index only (`entries.read_index`). Its last 48 bytes are checked first, so that
   a large file of another format is not read.
2. Tensors are listed by readable name in the order of their keys. A stored key is accepted wherever
   a name is.
3. The part of a tensor is created on first access. So a checkpoint of many thousand variables opens
   in the time that parsing the index takes.
4. The entry of a partitioned variable has no bytes. Its part is assembled from the slices' entries,
   once they are known to cover the variable exactly (`slices.sliced_part`).
5. The object graph and the spec of `tw.save` are strings under reserved keys. They are hidden from
   the listing, but can be read by key, and `tw.verify` checks them.
6. With a spec the checkpoint is the value that `tw.save` was given (`Value`). Any other checkpoint
   is a Bundle (`Variables`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ... import lowering
from ..._errors import DecodeError
from ..._limits import DEFAULT, Budget, Limits
from ...core import dtypes
from ...core.tensors import Bundle
from ...lowering import Node
from ...storage.files import FileSource, Source
from ...wire import json as jsontext
from ...wire import leveldb
from ..array_part import assign
from ..container import Container, Rows, TensorSpec, UnreadablePart
from ..container import Part as AnyPart
from . import names
from .data import Data, DataFiles, JoinedData, index_path
from .entries import FORMAT, BundleEntry, CheckpointIndex, read_index
from .parts import CheckpointPart, NumberPart, StringPart, VariantPart
from .slices import read_extents, slice_key, sliced_part

SPEC_VERSION = 1


class Variables(Container):
    """The tensors of any checkpoint. The part of a tensor is created on first access."""

    def __init__(
        self, index: CheckpointIndex, data: Data, readable: bool, copy: bool | None, budget: Budget
    ) -> None:
        self.index, self.metadata = index, {}
        self._data, self._copy, self.budget = data, copy, budget
        self._parts: dict[int, AnyPart] = {}
        self._names = (
            names.all_readable(index.stems, index.had_suffix, bool(index.kinds[3].any()))
            if readable
            else index.all_keys()
        )
        hidden = names.HIDDEN if readable else ()
        self._hidden = {i for i in (index.find(key) for key in hidden) if i is not None}

    def offset(self, name: str) -> int:
        # Data offsets belong to one of several files, so there is no offset in the checkpoint.
        return 0

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return dict(zip(self._names, range(len(self.index)), strict=True))

    @cached_property
    def _by_key(self) -> dict[str, int]:
        return dict(zip(self.index.all_keys(), range(len(self.index)), strict=True))

    def _number(self, name: Any) -> int | None:
        number = self._by_name.get(name)
        return self._by_key.get(name) if number is None else number

    def _listed(self) -> list[tuple[int, str]]:
        return [(i, name) for i, name in enumerate(self._names) if i not in self._hidden]

    def keys(self) -> list[str]:
        return [name for _, name in self._listed()] if self._hidden else list(self._names)

    def names(self, readable: bool = True) -> list[str]:
        return self.keys() if readable else [self.index.key(i) for i, _ in self._listed()]

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        shapes: dict[str, tuple[int | None, ...]] = dict(
            zip(self._names, self.index.shapes, strict=True)
        )
        for i in self._hidden:
            del shapes[self._names[i]]
        return shapes

    def __contains__(self, name: object) -> bool:
        return self._number(name) is not None

    def part(self, name: str) -> AnyPart:
        number = self._number(name)
        if number is None:
            raise KeyError(name)
        if number not in self._parts:
            try:
                self._parts[number] = self._create_part(self.index.entry(number))
            except DecodeError as error:
                raise error.add(
                    format=FORMAT, tensor=name, path=self._data.index_path, offset=0
                ) from None
        return self._parts[number]

    plain_part = part

    def _create_part(self, entry: BundleEntry) -> AnyPart:
        if entry.row is None and entry.dtype not in (dtypes.STRING, dtypes.VARIANT):
            why = f"unsupported TensorFlow dtype number {entry.dtype}"
            error = DecodeError(why, format=FORMAT, tensor=str(entry.key), offset=entry.offset)
            error.add(path=self._data.index_path)
            return UnreadablePart(f"DataType {entry.dtype}", entry.shape, entry.size, error)
        if not entry.slices:
            return self._plain(entry)
        message, offset = self.index.sliced[str(entry.key)]
        try:
            slices = read_extents(message, self.budget)
        except DecodeError as error:
            raise error.add(base=offset) from None
        pieces = []
        for extents in slices:
            piece = self.index.pieces.get(slice_key(str(entry.key), extents))
            if piece is None:
                raise DecodeError(
                    f"the index has no entry for the slice {extents} of this variable",
                    format=FORMAT,
                    offset=offset,
                )
            pieces.append((piece, self._plain(piece)))
        return sliced_part(entry, slices, pieces)

    def _plain(self, entry: BundleEntry) -> CheckpointPart:
        rest = entry, self._data, self.index.big_endian, self._copy, self.budget
        if entry.dtype == dtypes.STRING:
            return StringPart(*rest)
        row = entry.row
        return VariantPart(*rest) if row is None else NumberPart(entry, row, *rest[1:])

    @cached_property
    def parts(self) -> Sequence[AnyPart]:  # type: ignore[override]
        return [self.part(name) for _, name in self._listed()]

    @property
    def tree(self) -> Any:
        """The spec that `tw.save` would have written."""
        return {
            "bundle": {name: {} for _, name in self._listed()},
            "tensor_metadata": self.tensor_metadata,
        }

    @property
    def checksums(self) -> bool:
        return True

    @property
    def tensor_metadata(self) -> dict[str, dict[str, str]]:  # type: ignore[override]
        """The stored key of each tensor whose readable name differs from it."""
        keys = self.index.all_keys()
        return {name: {"key": keys[i]} for i, name in self._listed() if keys[i] != name}

    @property
    def unlisted(self) -> list[str]:
        """Names of the hidden entries, which are not tensors but are verified too."""
        return [self._names[i] for i in sorted(self._hidden)]

    def spec(self, name: str) -> TensorSpec:
        part = self.part(name)
        kind = "strings" if part.dtype == "bytes" else "dense"
        kind = "unreadable" if isinstance(part, UnreadablePart) else kind
        return TensorSpec(kind, part.dtype, part.shape, part.nbytes)

    def read(self, name: str, rows: Rows = None) -> Any:
        return self.part(name).read(rows)

    def value(self) -> Any:
        return Bundle(
            {name: self.part(name).read() for _, name in self._listed()}, {}, self.tensor_metadata
        )


class Value(Container):
    """A checkpoint that `tw.save` wrote, read as the saved value. Stored keys are accepted too."""

    def __init__(
        self,
        spec: Node,
        parts: Sequence[AnyPart],
        metadata: dict[str, str],
        budget: Budget,
        variables: Variables,
    ) -> None:
        super().__init__(spec, parts, metadata, budget)
        self.index, self._variables = variables.index, variables
        self._own = list(self._leaves)

    def keys(self) -> list[str]:
        return list(self._own)

    def names(self, readable: bool = True) -> list[str]:
        return (
            self.keys()
            if readable
            else [key for key in self.index.all_keys() if key not in names.HIDDEN]
        )

    @property
    def unlisted(self) -> list[str]:
        return [key for key in names.HIDDEN if key in self._variables]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._variables

    def part(self, name: str) -> AnyPart:
        return super().part(name) if name in self._leaves else self._variables.part(name)

    def plain_part(self, name: str) -> AnyPart | None:
        return super().plain_part(name) if name in self._leaves else self._variables.part(name)

    def spec(self, name: str) -> TensorSpec:
        return super().spec(name) if name in self._leaves else self._variables.spec(name)

    def read(self, name: str, rows: Rows = None) -> Any:
        return (
            super().read(name, rows) if name in self._leaves else self._variables.read(name, rows)
        )


def open_prefix(
    prefix: str, mmap: bool = False, readable: bool = True, limits: Limits | None = None
) -> tuple[Source, Container]:
    """Opens the checkpoint PREFIX.index; returns (source that closes its files, container)."""
    limits = limits or DEFAULT
    path = index_path(prefix)
    try:
        data = _read_index_file(path)
        index = read_index(data, limits)
    except DecodeError as error:
        raise error.add(path=path, format=FORMAT, offset=0) from None
    source = DataFiles(prefix, index, index.shards_in_use(), len(data), mmap)
    try:
        return source, _container(index, source, readable, None, limits.call(source.size))
    except BaseException:
        source.close()
        raise


def _read_index_file(path: str) -> Any:
    """Reads an index file after checking that its footer is that of a table."""
    source = FileSource(path)
    try:
        size = source.size
        if size < leveldb.FOOTER or not leveldb.is_table(
            source.read_bytes(size - leveldb.FOOTER, leveldb.FOOTER)
        ):
            raise DecodeError(
                "not a checkpoint index: the footer lacks the table magic",
                format=FORMAT,
                path=path,
                offset=size,
            )
        return source.read_at(0, size)
    finally:
        source.close()


def open_joined(
    source: Source, readable: bool = True, copy: bool | None = None, limits: Limits = DEFAULT
) -> Container:
    """Opens a checkpoint in one run of bytes: its data files, then its index."""
    size, budget = source.size, limits.call(source.size)
    if size < leveldb.FOOTER:
        raise DecodeError(f"{size} bytes are too few for a checkpoint", format=FORMAT, offset=size)
    length = leveldb.size_of(source.read_at(size - leveldb.FOOTER, leveldb.FOOTER))
    if length > size:
        raise DecodeError(
            f"the footer claims an index of {length} bytes, but the input has {size}",
            format=FORMAT,
            offset=size - leveldb.FOOTER,
        )
    try:
        index = read_index(source.read_at(size - length, length), budget)
    except DecodeError as error:
        raise error.add(base=size - length) from None
    return _container(index, JoinedData(source, index, size - length), readable, copy, budget)


def _container(
    index: CheckpointIndex, data: Data, readable: bool, copy: bool | None, budget: Budget
) -> Container:
    variables = Variables(index, data, readable, copy, budget)
    if not readable or index.find(names.SPEC) is None:
        return variables
    parts = {key: variables.part(key) for key in index.all_keys() if key not in names.HIDDEN}
    try:
        saved = _parse_spec(variables.read(names.SPEC))
        stored = names.key_of if saved.get("graph") else str
        spec, ordered = assign(saved["spec"], saved["metadata"], parts, stored)
        return Value(spec, ordered, saved["metadata"], budget, variables)
    except DecodeError as error:
        raise error.add(format=FORMAT, tensor=names.SPEC, offset=0) from None


def _parse_spec(strings: Any) -> dict[str, Any]:
    if strings.shape != () or not hasattr(strings, "offsets"):
        raise DecodeError("the spec of a saved value must be a scalar string")
    saved = jsontext.parse(strings.data.tobytes(), FORMAT)
    version = saved.get("version") if isinstance(saved, dict) else None
    if version != SPEC_VERSION or "spec" not in saved:
        raise DecodeError(
            f"unsupported version {version!r:.20} of the saved spec",
            hint="it may have been written by a newer release of tensorwire",
        )
    metadata = saved.setdefault("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(text, str) for text in metadata.values()
    ):
        raise DecodeError("the metadata of a saved value must be a dict of strings")
    return dict(saved)


def spec_of(lowered: Node, metadata: dict[str, str], graph: bool) -> bytes:
    """Encodes the spec of a value as the JSON that `_parse_spec` reads."""
    saved = (
        {"version": SPEC_VERSION, "spec": lowered}
        | ({"graph": True} if graph else {})
        | ({"metadata": metadata} if metadata else {})
    )
    return jsontext.write(saved)


def says_it_all(spec: Node, keys: Sequence[str]) -> bool:
    """Whether a checkpoint without a spec is read back as the same value.

    That holds for a Bundle of plain tensors whose names equal their sorted `keys`.
    """
    plain = (
        isinstance(spec, dict)
        and list(spec) == ["bundle"]
        and list(spec["bundle"]) == list(keys) == sorted(keys, key=str.encode)
    )
    return plain and all(node == {} for node in lowering.inside(spec)["bundle"].values())
