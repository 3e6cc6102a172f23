"""A checkpoint as a container of tensors: opened by its index alone, each tensor read when it is
asked for.

Tensors are listed by their readable names, in the order of their keys; a key can always be asked
for too. What `tw.save` wrote comes back as it was, by the spec that it left under a key of its own;
any other checkpoint is a Bundle.
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
    """The tensors of any checkpoint. Nothing is made for a tensor before it is asked for."""

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
        return 0  # a place in one of several files

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return dict(zip(self._names, range(len(self.index)), strict=True))

    @cached_property
    def _by_key(self) -> dict[str, int]:
        return dict(zip(self.index.all_keys(), range(len(self.index)), strict=True))

    def _number(self, name: Any) -> int | None:
        found = self._by_name.get(name)
        return self._by_key.get(name) if found is None else found

    def _listed(self) -> list[tuple[int, str]]:
        return [(i, name) for i, name in enumerate(self._names) if i not in self._hidden]

    def keys(self) -> list[str]:
        return [name for _, name in self._listed()] if self._hidden else list(self._names)

    def names(self, readable: bool = True) -> list[str]:
        return self.keys() if readable else [self.index.key(i) for i, _ in self._listed()]

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        found: dict[str, tuple[int | None, ...]] = dict(
            zip(self._names, self.index.shapes, strict=True)
        )
        for i in self._hidden:
            del found[self._names[i]]
        return found

    def __contains__(self, name: object) -> bool:
        return self._number(name) is not None

    def part(self, name: str) -> AnyPart:
        number = self._number(name)
        if number is None:
            raise KeyError(name)
        if number not in self._parts:
            try:
                self._parts[number] = self._made(self.index.entry(number))
            except DecodeError as error:
                raise error.add(
                    format=FORMAT, tensor=name, path=self._data.index_path, offset=0
                ) from None
        return self._parts[number]

    plain_part = part

    def _made(self, entry: BundleEntry) -> AnyPart:
        if entry.row is None and entry.dtype not in (dtypes.STRING, dtypes.VARIANT):
            why = f"TensorFlow's dtype {entry.dtype} is not known here"
            error = DecodeError(why, format=FORMAT, tensor=str(entry.key), offset=entry.offset)
            error.add(path=self._data.index_path)
            return UnreadablePart(f"DataType {entry.dtype}", entry.shape, entry.size, error)
        if not entry.slices:
            return self._plain(entry)
        message, at = self.index.sliced[str(entry.key)]
        try:
            slices = read_extents(message, self.budget)
        except DecodeError as error:
            raise error.add(base=at) from None
        pieces = []
        for extents in slices:
            piece = self.index.pieces.get(slice_key(str(entry.key), extents))
            if piece is None:
                raise DecodeError(
                    f"the slice {extents} of a variable is nowhere in the index",
                    format=FORMAT,
                    offset=at,
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
        """What it would be if `tw.save` had written it."""
        return {
            "bundle": {name: {} for _, name in self._listed()},
            "tensor_metadata": self.tensor_metadata,
        }

    @property
    def checksums(self) -> bool:
        return True

    @property
    def tensor_metadata(self) -> dict[str, dict[str, str]]:  # type: ignore[override]
        """The key of each tensor whose name is another one."""
        keys = self.index.all_keys()
        return {name: {"key": keys[i]} for i, name in self._listed() if keys[i] != name}

    @property
    def unlisted(self) -> list[str]:
        """What is no tensor of the value, and must be whole all the same."""
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
    """A value that `tw.save` wrote."""

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
    """The checkpoint PREFIX.index with its data files: a source that closes them, and the
    container.
    """
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
    """All of it, once its end says that it is one."""
    source = FileSource(path)
    try:
        size = source.size
        if size < leveldb.FOOTER or not leveldb.is_table(
            source.read_bytes(size - leveldb.FOOTER, leveldb.FOOTER)
        ):
            raise DecodeError(
                "no checkpoint index: it does not end as one does",
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
    """A checkpoint in one run of bytes: its data files, then its index."""
    size, budget = source.size, limits.call(source.size)
    if size < leveldb.FOOTER:
        raise DecodeError(f"a checkpoint in {size} bytes", format=FORMAT, offset=size)
    length = leveldb.size_of(source.read_at(size - leveldb.FOOTER, leveldb.FOOTER))
    if length > size:
        raise DecodeError(
            f"an index of {length} bytes in {size}", format=FORMAT, offset=size - leveldb.FOOTER
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
        said = _said(variables.read(names.SPEC))
        stored = names.key_of if said.get("graph") else str
        spec, ordered = assign(said["spec"], said["metadata"], parts, stored)
        return Value(spec, ordered, said["metadata"], budget, variables)
    except DecodeError as error:
        raise error.add(format=FORMAT, tensor=names.SPEC, offset=0) from None


def _said(strings: Any) -> dict[str, Any]:
    if strings.shape != () or not hasattr(strings, "offsets"):
        raise DecodeError("the spec of a value is one string")
    said = jsontext.parse(strings.data.tobytes(), FORMAT)
    version = said.get("version") if isinstance(said, dict) else None
    if version != SPEC_VERSION or "spec" not in said:
        raise DecodeError(f"a value of version {version!r:.20}, written by a newer tensorwire?")
    metadata = said.setdefault("metadata", {})
    if not isinstance(metadata, dict) or not all(
        isinstance(text, str) for text in metadata.values()
    ):
        raise DecodeError("the metadata of a value are text")
    return dict(said)


def spec_of(lowered: Node, metadata: dict[str, str], graph: bool) -> bytes:
    """What `_said` reads."""
    said = (
        {"version": SPEC_VERSION, "spec": lowered}
        | ({"graph": True} if graph else {})
        | ({"metadata": metadata} if metadata else {})
    )
    return jsontext.write(said)


def says_it_all(spec: Node, keys: Sequence[str]) -> bool:
    """Whether a Bundle, as any checkpoint is one, says everything that the spec does; `keys` are
    those of its parts.
    """
    plain = (
        isinstance(spec, dict)
        and list(spec) == ["bundle"]
        and list(spec["bundle"]) == list(keys) == sorted(keys, key=str.encode)
    )
    return plain and all(node == {} for node in lowering.inside(spec)["bundle"].values())
