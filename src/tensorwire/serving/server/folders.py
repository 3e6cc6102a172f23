"""Which SavedModels are served: folders on disk, their names and versions, and which of the
versions are wanted.

ranker/saved_model.pb                       a SavedModel: the model "ranker", version 1
ranker/1/saved_model.pb, ranker/2/...       a model's folder, with a folder for each version:
                                            "ranker", versions 1 and 2
ranker/2                                    one of its versions: "ranker", version 2
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..._errors import SchemaError
from ...codecs.saved_model.signatures import FILE

LATEST, ALL = "latest", "all"
_NUMBER = re.compile(r"\d{1,19}", re.A)
_FORBIDDEN = re.compile(r"[/:\x00-\x1f]")


Path = str | os.PathLike[str]
Folders = Mapping[str, Path] | Iterable[Path] | Path
"""Folders of models by name, or one or more folders whose names are those of the models."""
Versions = str | int | Iterable[int]
"""LATEST, ALL, or the numbers of versions."""


def named(models: Folders) -> dict[str, str]:
    """Folders by the models' names. They are given as a mapping, or as one or several paths, of
    which each says its model's name.

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
    found: dict[str, str] = {}
    for name, path in pairs:
        if not isinstance(name, str) or not name or _FORBIDDEN.search(name):
            raise SchemaError(
                f"{name!r} is no name for a model: it stands in URLs, so it has neither / nor :",
                path=str(path),
            )
        if name in found:
            raise SchemaError(
                f"two models are called {name!r}; name them, as in {name}_2={os.fspath(path)}",
                path=str(path),
            )
        found[name] = os.fspath(path)
    if not found:
        raise SchemaError("there is no model to serve")
    return found


def _name(path: str) -> str:
    """A folder's own name; that of a version's folder is a number, so there it is the folder's
    above.
    """
    parent, name = os.path.split(os.path.abspath(path))
    return (
        os.path.basename(parent) if _NUMBER.fullmatch(name) and os.path.basename(parent) else name
    )


def versions(path: str) -> dict[int, str]:
    """The SavedModels in a model's folder, by version; SchemaError if there is none."""
    if not os.path.isdir(path):
        raise SchemaError(
            (
                "there is no such folder"
                if not os.path.exists(path)
                else "this is no folder, so it is no SavedModel"
            ),
            path=path,
        )
    if is_saved_model(path):
        name = os.path.basename(os.path.abspath(path))
        return {int(name) if _is_version(name) else 1: path}
    found: dict[int, str] = {}
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        if _is_version(name) and is_saved_model(inner):
            found.setdefault(int(name), inner)
    if not found:
        raise SchemaError(
            f"no SavedModel: neither {FILE} nor folders such as 1/ that have one", path=path
        )
    return dict(sorted(found.items()))


def _is_version(name: str) -> bool:
    return _NUMBER.fullmatch(name) is not None and int(name) < 1 << 63


def is_saved_model(path: str) -> bool:
    """TensorFlow writes this file last, so a folder that has it is whole."""
    return os.path.isfile(os.path.join(path, FILE))


def policy(versions: Versions) -> str | frozenset[int]:
    """What was said of the versions to serve, in one form.

    >>> policy("latest"), policy("1,3") == policy([1, 3]) == frozenset({1, 3})
    ('latest', True)
    """
    if versions in (LATEST, ALL):
        return str(versions)
    said = (
        versions.split(",")
        if isinstance(versions, str)
        else [versions]
        if isinstance(versions, int)
        else versions
    )
    try:
        found = frozenset(map(int, said))
    except (TypeError, ValueError):
        found = frozenset()
    if not found or min(found) < 0:
        raise SchemaError(
            f"versions are {LATEST!r}, {ALL!r}, or numbers such as 1,3, not {versions!r}"
        )
    return found


def wanted(
    there: Collection[int], policy: str | frozenset[int], labelled: Collection[int] = ()
) -> set[int]:
    """The versions that should be loaded; one that has a label always is.

    >>> wanted({1, 2, 3}, "latest", [1]), wanted({1, 2}, frozenset({2, 7}))
    ({1, 3}, {2})
    """
    chosen = (
        set(there)
        if policy == ALL
        else {max(there)}
        if policy == LATEST
        else set(there) & set(policy)
    )
    return chosen | (set(there) & set(labelled))
