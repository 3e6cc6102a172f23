"""Checkpoint state: which checkpoint a path refers to, and the `checkpoint` file of a folder.

The `checkpoint` file names the latest checkpoint. It is a CheckpointState message in text format.
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
    """Returns the prefix of the latest checkpoint in a folder; None without a `checkpoint` file.

    The `checkpoint` file of a moved folder may still name the old location. Then the checkpoint of
    that name in the folder itself is returned. Raises DecodeError if the file is not valid.

    >>> import tensorwire as tw
    >>> from tensorwire import checkpoint
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> checkpoint.save_state(folder, f"{folder}/model.ckpt-20")
    >>> os.path.basename(checkpoint.latest(folder))
    'model.ckpt-20'
    """
    prefixes = all_checkpoints(folder)
    return prefixes[0] if prefixes else None


def all_checkpoints(folder: str | os.PathLike[str]) -> list[str]:
    """Returns the latest checkpoint of a folder, then all in its `checkpoint` file, oldest first.

    The list is empty if there is no such file. Raises DecodeError if the file is not valid.

    >>> import tensorwire as tw
    >>> from tensorwire import checkpoint
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> checkpoint.save_state(folder, f"{folder}/ckpt-2", [f"{folder}/ckpt-1"])
    >>> [os.path.basename(prefix) for prefix in checkpoint.all_checkpoints(folder)]
    ['ckpt-2', 'ckpt-1', 'ckpt-2']
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
            f"a checkpoint file must have one {_LATEST}, but this one has {len(newest)}",
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
    """Writes the `checkpoint` file of a folder, which names the latest checkpoint.

    `tf.train.latest_checkpoint` and `tw.open(folder)` then find the prefix `newest`. `others` are
    the older checkpoints that are kept, oldest first. Prefixes in the folder are stored relative to
    it, so that it can be moved. `durable` waits until the file is on disk.

    >>> import tensorwire as tw
    >>> from tensorwire import checkpoint
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> tw.save(f"{folder}/model.ckpt-1", {"step": tw.tensor(1)}, "checkpoint")
    >>> checkpoint.save_state(folder, f"{folder}/model.ckpt-1")
    >>> tw.load(folder)["step"].item()
    1
    """
    names = [
        os.path.basename(prefix) if _is_in(folder, prefix) else prefix
        for prefix in (*others, newest)
    ]
    lines = [
        f"{_LATEST}: {_quoted(names[-1])}\n",
        *(f"{_ALL}: {_quoted(name)}\n" for name in names),
    ]
    files.replace(os.path.join(os.fspath(folder), STATE), ["".join(lines).encode()], durable)


def find(path: str, named: bool = False) -> str | None:
    """Returns the prefix of the checkpoint that a path refers to; None if it does not.

    The path is a prefix, its index or a data file, a folder with a `checkpoint` file, or the folder
    of a SavedModel. `named` means that the caller named the format.

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
    prefix = latest(path)
    if prefix is not None:
        return prefix
    variables = os.path.join(path, "variables", "variables")
    if os.path.exists(index_path(variables)):
        return variables
    if named:
        why = f"the folder has neither a {STATE!r} file nor the variables of a SavedModel"
        raise DecodeError(
            why, format=FORMAT, path=path, offset=0, hint="pass the prefix of one checkpoint in it"
        )
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
    """Parses a message in text format whose fields are strings or numbers."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(
            "a checkpoint file must be UTF-8 text", format=FORMAT, path=path, offset=error.start
        ) from None
    fields, offset = [], 0
    text = text.rstrip()
    while offset < len(text) and len(content) <= _LARGEST:
        match = _LINE.match(text, offset)
        if match is None:
            break
        fields.append((match[1], _plain(match[2])))
        offset = match.end()
    if offset < len(text):
        raise DecodeError(
            'invalid line in a checkpoint file, expected model_checkpoint_path: "NAME"',
            format=FORMAT,
            path=path,
            offset=offset,
        )
    return fields


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
