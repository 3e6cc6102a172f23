"""Patterns in buckets, folder by folder, so that only those that can match are listed."""

from __future__ import annotations

import fnmatch
import glob
import re

from .urls import FileEntry, Store

_HIDDEN = (".", "_")


def matches(store: Store, pattern: str) -> list[FileEntry]:
    """What a URL with `*`, `?`, `[...]` or `**` in its path names; a folder's files, if it ends
    with a slash; else that one object.
    """
    scheme, _, rest = pattern.partition("://")
    host, _, path = rest.partition("/")
    root = f"{scheme}://{host}"
    if pattern.endswith("/") or not path:
        return [
            entry for entry in store.level(pattern)[1] if not _name(entry.path).startswith(_HIDDEN)
        ]
    if scheme.lower() in ("http", "https") or not glob.has_magic(path):
        found = store.stat(pattern)
        if found is not None:
            return [found]
        return [] if scheme.lower() in ("http", "https") else matches(store, pattern + "/")
    steps = path.split("/")
    first = next(i for i, step in enumerate(steps) if glob.has_magic(step))
    return _below(store, "/".join([root, *steps[:first]]), steps[first:])


def _below(store: Store, folder: str, steps: list[str]) -> list[FileEntry]:
    """What matches the rest of a pattern in a folder."""
    if "**" in steps:
        whole = re.compile(re.escape(folder + "/") + _regex(steps))
        return [entry for entry in store.walk(folder) if whole.fullmatch(entry.path)]
    if len(steps) > 1 and not glob.has_magic(steps[0]):
        return _below(store, f"{folder}/{steps[0]}", steps[1:])
    folders, entries = store.level(folder)
    step = re.compile(fnmatch.translate(steps[0]))
    if len(steps) == 1:
        return [entry for entry in entries if step.match(_name(entry.path))]
    return [
        entry
        for below in folders
        if step.match(_name(below))
        for entry in _below(store, below.rstrip("/"), steps[1:])
    ]


def _regex(steps: list[str]) -> str:
    """`**` stands for any number of folders, none too; `*` stays in one."""
    parts = []
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        if step == "**":
            parts.append(".*" if last else "(?:[^/]+/)*")
        else:
            inner = fnmatch.translate(step).removeprefix("(?s:").removesuffix(r")\Z")
            parts.append(inner.replace(".*", "[^/]*") + ("" if last else "/"))
    return "".join(parts)


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
