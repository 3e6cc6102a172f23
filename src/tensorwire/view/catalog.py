"""The catalog of files and folders on the command line, as a tree.

1. Everything that can be opened has an id, and the page sends only ids. A path cannot be requested,
   so nothing else on the machine can be read.
2. Symbolic links that lead out of a given folder are left out, both when the tree is built and when
   a node is opened.
3. Files are listed by their suffix, or by their first bytes where these are unambiguous.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .._errors import SchemaError, TensorwireError
from ..codecs import FORMATS
from ..codecs.identify import HEAD, by_name, holds_records, recognise

MOST = 5000
"""The most files in the tree."""
DEEP = 16
"""The most levels of folders."""
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_HUB = ".safetensors.index.json"
_UNSAID = ("raw", "example", "json")
"""Formats whose suffixes (.json, .bin ...) are too common to list such files."""
_SURE = ("safetensors", "npy", "npz", "arrow", "parquet", "protobuf")
"""Formats with unambiguous magic bytes."""


@dataclass
class CatalogNode:
    """One node of the tree: a folder, or a file that can be opened."""

    id: str
    name: str
    kind: str
    """folder, tensors, records, checkpoint or model"""
    path: str
    size: int = 0
    root: str | None = None
    """The folder on the command line that contains this node; None if it was given itself."""
    children: list[CatalogNode] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        """Return the data for the page, without the path."""
        return {
            "id": self.id,
            "name": self.name,
            "kind": self.kind,
            "size": self.size,
            "children": [child.json() for child in self.children],
        }


class Catalog:
    """The files and folders on the command line. `tree()` reads the folders again; ids are kept."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._paths = [os.fspath(path) for path in paths]
        self._ids: dict[tuple[str, str], str] = {}
        self._nodes: dict[str, CatalogNode] = {}
        self._lock = threading.Lock()
        self.left_out = 0
        """The number of files beyond MOST, which are not listed."""
        for path in self._paths:
            if not os.path.exists(path) and not os.path.exists(path + ".index"):
                raise FileNotFoundError(2, "no such file or folder", path)
        self.roots = self.tree()

    def tree(self) -> list[CatalogNode]:
        """Return the current tree."""
        with self._lock:
            self.left_out, self._room = 0, MOST
            self.roots = [self._given(path) for path in self._paths]
            return self.roots

    def __getitem__(self, id: str) -> CatalogNode:
        node = self._nodes.get(id)
        if node is None:
            raise SchemaError("no such file in the catalog", hint="reload the page")
        # The path was checked when the tree was built, but may be a link by now.
        if node.root is not None and not _inside(node.path, node.root):
            raise SchemaError("symbolic link leads out of the given folder", path=node.name)
        return node

    def _node(
        self, kind: str, path: str, name: str, root: str | None, size: int = 0
    ) -> CatalogNode:
        id = self._ids.setdefault((kind, path), f"n{len(self._ids)}")
        self._nodes[id] = CatalogNode(id, name, kind, path, size, root)
        return self._nodes[id]

    def _given(self, path: str) -> CatalogNode:
        name = os.path.basename(os.path.abspath(path)) or path
        if os.path.isdir(path):
            return self._folder(path, name, os.path.realpath(path), DEEP, None)
        if not os.path.exists(path) or path.endswith(".index"):
            prefix = path.removesuffix(".index")
            return self._node("checkpoint", prefix, os.path.basename(prefix), None, _sizes(prefix))
        kind = "records" if holds_records(path) else "tensors"
        return self._node(kind, path, name, None, os.path.getsize(path))

    def _folder(self, path: str, name: str, top: str, depth: int, root: str | None) -> CatalogNode:
        entries = sorted(_entries(path, top), key=lambda entry: _natural(entry.name))
        names = {entry.name for entry in entries}
        if not names.isdisjoint(_SAVED_MODEL):
            return self._model(path, name, top, root)
        node = self._node("folder", path, name, root)
        for entry in entries:
            if entry.is_dir():
                if depth and not entry.name.startswith("."):
                    child = self._folder(entry.path, entry.name, top, depth - 1, top)
                    if child.children or child.kind != "folder":
                        node.children.append(child)
                continue
            kind, whole = _kind(entry.path, names)
            if kind is None:
                continue
            if not self._room:
                self.left_out += 1
                continue
            self._room -= 1
            size = _sizes(whole) if kind == "checkpoint" else entry.stat().st_size
            node.children.append(self._node(kind, whole, os.path.basename(whole), top, size))
        node.size = sum(child.size for child in node.children)
        return node

    def _model(self, path: str, name: str, top: str, root: str | None) -> CatalogNode:
        """Return the node of a SavedModel, with its variables as a child."""
        # A numbered folder is a version; it is shown with the name of the model.
        if name.isdigit():
            name = f"{os.path.basename(os.path.dirname(os.path.abspath(path)))}/{name}"
        node = self._node("model", path, name, root)
        prefix = os.path.join(path, "variables", "variables")
        if os.path.isfile(prefix + ".index") and _inside(prefix + ".index", top):
            node.children.append(self._node("checkpoint", prefix, "variables", top, _sizes(prefix)))
        node.size = sum(child.size for child in node.children)
        return node


def _inside(path: str, top: str) -> bool:
    resolved = os.path.realpath(path)
    return resolved == top or resolved.startswith(top.rstrip("/") + "/")


def _entries(path: str, top: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files and folders in a folder, without links that lead out of the top folder."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                # A link to a parent folder is left out too, since it would recurse.
                if entry.is_symlink():
                    above = os.path.realpath(path)
                    if not _inside(entry.path, top) or _inside(above, os.path.realpath(entry.path)):
                        continue
                # Sockets and pipes are left out: opening them may block.
                if entry.is_dir() or entry.is_file():
                    yield entry
    except OSError:
        return


def _natural(name: str) -> list[Any]:
    """Return a key that sorts numbers in names by value: layer2 before layer10."""
    parts: list[Any] = [""]
    for character in name.casefold():
        digit = character.isascii() and character.isdigit()
        if digit and isinstance(parts[-1], int):
            parts[-1] = parts[-1] * 10 + int(character)
        elif digit:
            parts.append(int(character))
        elif isinstance(parts[-1], int):
            parts.append(character)
        else:
            parts[-1] += character
    return parts


def _kind(path: str, siblings: set[str]) -> tuple[str | None, str]:
    """Return (tensors, records, checkpoint or None; the path to open) for a file in a folder."""
    name = os.path.basename(path)
    stem = name.removesuffix(".index")
    if stem != name and any(other.startswith(stem + ".data-") for other in siblings):
        return "checkpoint", path.removesuffix(".index")
    if ".data-" in name and name.rpartition(".data-")[0] + ".index" in siblings:
        return None, path
    if name.endswith(_HUB):
        return "tensors", path
    format, _ = by_name(path)
    if format is not None:
        row = FORMATS[format]
        kind = "records" if format == "tfrecord" else "tensors" if row.tensors else None
        return (None if format in _UNSAID else kind), path
    try:
        if holds_records(path):
            return "records", path
        with open(path, "rb") as file:
            head = file.read(HEAD)
        return ("tensors" if recognise(head, os.path.getsize(path)) in _SURE else None), path
    except (OSError, TensorwireError):
        return None, path


def _sizes(prefix: str) -> int:
    """Return the size of all files of a checkpoint, in bytes."""
    folder, stem = os.path.split(prefix)
    try:
        names = [
            name
            for name in os.listdir(folder or ".")
            if name == stem + ".index" or name.startswith(stem + ".data-")
        ]
        return sum(os.path.getsize(os.path.join(folder, name)) for name in names)
    except OSError:
        return 0
