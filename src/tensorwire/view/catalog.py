"""The files and folders that were given, as a tree. Each thing that can be opened has an id, and
only ids come back from the page: there is no way to ask for a path, so none outside of what was
given can be asked for. Links that lead out of a folder are left out."""

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
"""Files that a tree shows."""
DEEP = 16
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_HUB = ".safetensors.index.json"
_UNSAID = ("raw", "example", "json")
"""Formats whose files say too little, or are too often something else, to be listed by their names.
"""
_SURE = ("safetensors", "npy", "npz", "arrow", "parquet", "protobuf")
"""Formats with a mark that no other file has."""


@dataclass
class CatalogNode:
    """One line of the tree: a folder, or something that can be opened."""

    id: str
    name: str
    kind: str
    """folder, tensors, records, checkpoint or model"""
    path: str
    size: int = 0
    root: str | None = None
    """The folder that was given; None if this was given itself."""
    children: list[CatalogNode] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        """What the page gets; paths stay here."""
        return {
            "id": self.id,
            "name": self.name,
            "kind": self.kind,
            "size": self.size,
            "children": [child.json() for child in self.children],
        }


class Catalog:
    """What was given. `tree()` looks anew; a path keeps its id."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]]) -> None:
        self._paths = [os.fspath(path) for path in paths]
        self._ids: dict[tuple[str, str], str] = {}
        self._nodes: dict[str, CatalogNode] = {}
        self._lock = threading.Lock()
        self.left_out = 0
        """Files that were one too many."""
        for path in self._paths:
            if not os.path.exists(path) and not os.path.exists(path + ".index"):
                raise FileNotFoundError(2, "no such file or folder", path)
        self.roots = self.tree()

    def tree(self) -> list[CatalogNode]:
        """The tree, as the folders are now."""
        with self._lock:
            self.left_out, self._room = 0, MOST
            self.roots = [self._given(path) for path in self._paths]
            return self.roots

    def __getitem__(self, id: str) -> CatalogNode:
        node = self._nodes.get(id)
        if node is None:
            raise SchemaError("no such file here; reload the page")
        if node.root is not None and not _inside(node.path, node.root):
            raise SchemaError(
                "this is now a link that leads out of the folder that was given", path=node.name
            )
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
        """A SavedModel: its signatures, and its variables below it."""
        if name.isdigit():  # a version, which says nothing alone
            name = f"{os.path.basename(os.path.dirname(os.path.abspath(path)))}/{name}"
        node = self._node("model", path, name, root)
        prefix = os.path.join(path, "variables", "variables")
        if os.path.isfile(prefix + ".index") and _inside(prefix + ".index", top):
            node.children.append(self._node("checkpoint", prefix, "variables", top, _sizes(prefix)))
        node.size = sum(child.size for child in node.children)
        return node


def _inside(path: str, top: str) -> bool:
    found = os.path.realpath(path)
    return found == top or found.startswith(top.rstrip("/") + "/")


def _entries(path: str, top: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder: files and folders that lie below the top, and nothing that cannot be
    looked at.
    """
    try:
        with os.scandir(path) as found:
            for entry in found:
                if entry.is_symlink():
                    above = os.path.realpath(path)
                    if not _inside(entry.path, top) or _inside(above, os.path.realpath(entry.path)):
                        continue  # out of here, or back up
                if entry.is_dir() or entry.is_file():  # no sockets, no pipes
                    yield entry
    except OSError:
        return


def _natural(name: str) -> list[Any]:
    """Names as people count them."""
    parts: list[Any] = [""]
    for sign in name.casefold():
        digit = sign.isascii() and sign.isdigit()
        if digit and isinstance(parts[-1], int):
            parts[-1] = parts[-1] * 10 + int(sign)
        elif digit:
            parts.append(int(sign))
        elif isinstance(parts[-1], int):
            parts.append(sign)
        else:
            parts[-1] += sign
    return parts


def _kind(path: str, siblings: set[str]) -> tuple[str | None, str]:
    """What a file in a folder is, and the path by which it is opened; None for what is not ours."""
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
    """Bytes of a checkpoint's files."""
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
