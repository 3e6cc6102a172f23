"""Folders of models: their names, their versions, and the versions to be served.

ranker/saved_model.pb                       a SavedModel: the model "ranker", version 1
ranker/1/saved_model.pb, ranker/2/...       a folder with a folder for each version: the model
                                            "ranker", versions 1 and 2
ranker/2                                    a single version: the model "ranker", version 2
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..._errors import SchemaError
from ...codecs.saved_model.signatures import FILE, is_complete

LATEST, ALL = "latest", "all"
_NUMBER = re.compile(r"\d{1,19}", re.A)
_FORBIDDEN = re.compile(r"[/:\x00-\x1f]")


Path = str | os.PathLike[str]
Folders = Mapping[str, Path] | Iterable[Path] | Path
"""Folders by the models' names, or one or more folders whose names are those of the models."""
Versions = str | int | Iterable[int]
"""LATEST, ALL, or the numbers of versions."""


def named(models: Folders) -> dict[str, str]:
    """Return folders by the models' names; paths without names are named after their folders.

    >>> named({"a": "models/ranker"}), named("models/ranker"), named(["models/ranker/3"])
    ({'a': 'models/ranker'}, {'ranker': 'models/ranker'}, {'ranker': 'models/ranker/3'})
    """
    if isinstance(models, (str, os.PathLike)):
        models = [models]
    pairs: Iterable[tuple[str, Any]]
    pairs = (
        models.items()
        if isinstance(models, Mapping)
        else ((_name(os.fspath(path)), path) for path in models)
    )
    folders: dict[str, str] = {}
    for name, path in pairs:
        if not isinstance(name, str) or not name or _FORBIDDEN.search(name):
            raise SchemaError(
                f"invalid model name {name!r}: '/', ':' and control characters are not allowed,"
                " because the name is part of URLs",
                path=str(path),
            )
        if name in folders:
            raise SchemaError(
                f"two models are called {name!r}",
                path=str(path),
                hint=f"give one another name, as in {name}_2={os.fspath(path)}",
            )
        folders[name] = os.fspath(path)
    if not folders:
        raise SchemaError("no models to serve: the list of models is empty")
    return folders


def _name(path: str) -> str:
    """Return the model's name for a folder; for a version's folder it is the parent's name."""
    parent, name = os.path.split(os.path.abspath(path))
    return (
        os.path.basename(parent) if _NUMBER.fullmatch(name) and os.path.basename(parent) else name
    )


def versions(path: str) -> dict[int, str]:
    """Return the SavedModels in a model's folder, by version; raise SchemaError if it has none."""
    if not os.path.isdir(path):
        raise SchemaError(
            (
                "the folder does not exist"
                if not os.path.exists(path)
                else "expected the folder of a SavedModel, found a file"
            ),
            path=path,
        )
    if is_complete(path):
        name = os.path.basename(os.path.abspath(path))
        return {int(name) if _is_version(name) else 1: path}
    versions: dict[int, str] = {}
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        if _is_version(name) and is_complete(inner):
            versions.setdefault(int(name), inner)
    if not versions:
        raise SchemaError(
            f"no SavedModel: expected {FILE}, or version folders such as 1/{FILE}", path=path
        )
    return dict(sorted(versions.items()))


def _is_version(name: str) -> bool:
    """Return whether a name is the number of a version."""
    return _NUMBER.fullmatch(name) is not None and int(name) < 1 << 63


def policy(versions: Versions) -> str | frozenset[int]:
    """Return the versions to serve in a normal form: LATEST, ALL, or a set of numbers.

    >>> policy("latest"), policy("1,3") == policy([1, 3]) == frozenset({1, 3})
    ('latest', True)
    """
    if versions in (LATEST, ALL):
        return str(versions)
    items = (
        versions.split(",")
        if isinstance(versions, str)
        else [versions]
        if isinstance(versions, int)
        else versions
    )
    try:
        numbers = frozenset(map(int, items))
    except (TypeError, ValueError):
        numbers = frozenset()
    if not numbers or min(numbers) < 0:
        raise SchemaError(
            f"versions: expected {LATEST!r}, {ALL!r}, or numbers such as 1,3, got {versions!r}"
        )
    return numbers


def wanted(
    versions: Collection[int], policy: str | frozenset[int], labelled: Collection[int] = ()
) -> set[int]:
    """Return the versions to load; a version with a label is always loaded.

    >>> wanted({1, 2, 3}, "latest", [1]), wanted({1, 2}, frozenset({2, 7}))
    ({1, 3}, {2})
    """
    chosen = (
        set(versions)
        if policy == ALL
        else {max(versions)}
        if policy == LATEST
        else set(versions) & set(policy)
    )
    return chosen | (set(versions) & set(labelled))
