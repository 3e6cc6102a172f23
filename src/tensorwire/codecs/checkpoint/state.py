"""Which checkpoint a path means, and the file `checkpoint` in a folder that names the latest one (a
CheckpointState in text form).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ..._errors import DecodeError
from ...storage import files
from ...wire import leveldb
from .data import index_path
from .entries import FORMAT

STATE = "checkpoint"
_LATEST, _ALL = "model_checkpoint_path", "all_model_checkpoint_paths"
_LARGEST = 16 << 20
_LINE = re.compile(
    r"""\s*(\w+)\s*:\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[-+\w.]+)[ \t;,]*(?:#[^\n]*)?"""
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.S)
_LETTERS = {
    b"n": b"\n",
    b"t": b"\t",
    b"r": b"\r",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}
_INDEX, _DATA = ".index", re.compile(r"\.data-\d{5}-of-\d{5}\Z", re.A)


def latest(folder: str | os.PathLike[str]) -> str | None:
    """The prefix of the latest checkpoint in a folder, as its `checkpoint` file says; None if there
    is no such file.

    A folder that has been moved may still name its old place; then the checkpoint of that name in
    the folder itself is meant.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_state(folder, f"{folder}/model.ckpt-20")
    ...     latest(folder) == os.path.join(folder, "model.ckpt-20")
    True
    """
    found = all_checkpoints(folder)
    return found[0] if found else None


def all_checkpoints(folder: str | os.PathLike[str]) -> list[str]:
    """The latest checkpoint, and then all that the `checkpoint` file of a folder names, oldest
    first.
    """
    path = os.path.join(os.fspath(folder), STATE)
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return []
    fields = _parse(content, path)
    newest = [text for name, text in fields if name == _LATEST]
    if len(newest) != 1 or not newest[0]:
        raise DecodeError(
            f"a checkpoint file names one {_LATEST}, not {len(newest)}",
            format=FORMAT,
            path=path,
            offset=0,
        )
    return [
        _there(folder, text) for text in newest + [text for name, text in fields if name == _ALL]
    ]


def save_state(
    folder: str | os.PathLike[str], newest: str, others: Sequence[str] = (), durable: bool = True
) -> None:
    """Writes the `checkpoint` file of a folder, so that `tf.train.latest_checkpoint` and
    `tw.open(folder)` find `newest`.

    `others` are the ones that are kept besides, oldest first. Prefixes in the folder are stored by
    their names, so that it can be moved.
    """
    names = [os.path.basename(one) if _is_in(folder, one) else one for one in (*others, newest)]
    lines = [
        f"{_LATEST}: {_quoted(names[-1])}\n",
        *(f"{_ALL}: {_quoted(name)}\n" for name in names),
    ]
    files.replace(os.path.join(os.fspath(folder), STATE), ["".join(lines).encode()], durable)


def find(path: str, named: bool = False) -> str | None:
    """The prefix of the checkpoint that a path means, or None if it means none: a prefix, its index
    or a data file, a folder with a `checkpoint` file, or a SavedModel's folder. `named`: somebody
    said that it is a checkpoint.

    >>> find("model.ckpt-10.data-00000-of-00001", named=True)
    'model.ckpt-10'
    """
    if os.path.isdir(path):
        return _in_folder(path, named)
    data = _DATA.search(path)
    if named:
        return (
            path[: data.start()]
            if data
            else path.removesuffix(_INDEX)
            if not os.path.exists(index_path(path))
            else path
        )
    if not os.path.exists(path):
        return path if os.path.exists(index_path(path)) else None
    if path.endswith(_INDEX):
        return path.removesuffix(_INDEX) if _is_index(path) else None
    return (
        path[: data.start()] if data and os.path.exists(index_path(path[: data.start()])) else None
    )


def _in_folder(path: str, named: bool) -> str | None:
    found = latest(path)
    if found is not None:
        return found
    variables = os.path.join(path, "variables", "variables")
    if os.path.exists(index_path(variables)):
        return variables
    if named:
        why = (
            f"a folder without a file named {STATE!r} and without the variables of a SavedModel;"
            " name one checkpoint in it"
        )
        raise DecodeError(why, format=FORMAT, path=path, offset=0)
    return None


def _is_index(path: str) -> bool:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - leveldb.FOOTER, 0))
        return leveldb.is_table(file.read())


def _is_in(folder: str | os.PathLike[str], prefix: str) -> bool:
    return os.path.dirname(os.path.abspath(prefix)) == os.path.abspath(folder)


def _there(folder: str | os.PathLike[str], text: str) -> str:
    here = os.path.join(os.fspath(folder), os.path.basename(text))
    if not os.path.isabs(text):
        return os.path.join(os.fspath(folder), text)
    return (
        text if os.path.exists(index_path(text)) or not os.path.exists(index_path(here)) else here
    )


def _parse(content: bytes, path: str) -> list[tuple[str, str]]:
    """The fields of a message in text form, which has only strings and numbers."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(
            "a checkpoint file is text", format=FORMAT, path=path, offset=error.start
        ) from None
    found, at = [], 0
    text = text.rstrip()
    while at < len(text) and len(content) <= _LARGEST:
        match = _LINE.match(text, at)
        if match is None:
            break
        found.append((match[1], _plain(match[2])))
        at = match.end()
    if at < len(text):
        raise DecodeError(
            'a checkpoint file has lines like model_checkpoint_path: "model-10"',
            format=FORMAT,
            path=path,
            offset=at,
        )
    return found


def _plain(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return _ESCAPE.sub(_escaped, value[1:-1].encode()).decode(errors="surrogateescape")


def _escaped(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes([int(match[1], 8) & 0xFF])
    return bytes([int(match[2], 16)]) if match[2] else _LETTERS.get(match[3], match[3])


def _quoted(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
    return f'"{escaped}"'
