"""keras: the weights of `.keras` archives, of `.weights.h5`, and of the older `.h5` files, through h5py. They are only read.

A `.keras` file is a zip of metadata.json, config.json and model.weights.h5. The config is text to us, and becomes metadata: no layer, no
Lambda and no function in it is ever made, so there is nothing that could be executed. Weights are called as Keras calls them
(`hidden/kernel`) where the config tells, else by their place in the file (`layers/dense/vars/0`), which `tensor_metadata` has in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._errors import ChecksumError, DecodeError, EncodeError, LimitError
from .._limits import DEFAULT, Limits
from ..files import BytesSource, Source
from ..transforms import deflate
from ..wire import jsontext
from ..wire import zip as archive
from ..wire.zip import DEFLATED, STORED, Member
from . import keras_names
from .container import Container
from .hdf5 import MAGIC, Hdf5
from .inflated import InflatedSource
from .stored import little

FORMAT = "keras"
WEIGHTS = "model.weights.h5"
CONFIG = "config.json"
METADATA = "metadata.json"
_TEXT = 64 << 20
"""Bytes of the config."""
_LEGACY = "model_weights/"


@dataclass(frozen=True, slots=True)
class Keras:
    """The weights of a Keras model, by name."""

    limits: Limits = DEFAULT

    def encode(self, value: Any) -> list[Any]:
        raise EncodeError("files of Keras are only read; load the weights in Keras and save them there", format=FORMAT)

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        if copy is False:
            raise DecodeError("copy=False, but HDF5 copies what it reads; leave copy out", format=FORMAT, offset=0)
        return self.open(BytesSource(data)).value()

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Reads the names and shapes, and each array when it is asked for."""
        try:
            head = bytes(source.read_at(0, min(8, source.size)))
            if head == MAGIC:
                return self._weights(source, {}, None)
            texts, config, weights = self._archive(source)
            return self._weights(weights, texts, config)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=0) from None

    def _archive(self, source: Source) -> tuple[dict[str, str], Any, Source]:
        """(metadata, config, where the weights are) of a .keras file"""
        members = {member.name: member for member in archive.members(little(source), source.size, self.limits.names)}
        inflated = sum(member.size for member in members.values() if member.method == DEFLATED)
        if inflated > max(self.limits.ratio_from, self.limits.ratio * source.size):
            why = f"{source.size} bytes become {inflated}; Limits(ratio=..., ratio_from=...) allows {self.limits.ratio} times as much"
            raise LimitError(why, offset=source.size)
        if WEIGHTS.encode() not in members:
            raise DecodeError(f"a zip without {WEIGHTS}: no .keras file", offset=0)
        texts: dict[str, str] = {}
        about = _parsed(self._text(source, members.get(METADATA.encode()), METADATA))
        if isinstance(about, dict):
            texts |= {key: text for key, text in about.items() if isinstance(text, str)}
        config = self._text(source, members.get(CONFIG.encode()), CONFIG)
        if config is not None:
            texts["config"] = config
        return texts, _parsed(config), _inside(source, members[WEIGHTS.encode()])

    def _text(self, source: Source, member: Member | None, name: str) -> str | None:
        if member is None:
            return None
        if member.size > _TEXT:
            raise LimitError(f"{name} has {member.size} bytes, and {_TEXT} are allowed", offset=member.at)
        inside = _inside(source, member)
        text = bytes(inside.read_at(0, member.size))
        if member.method == STORED and deflate.backend().crc32(text) != member.crc:
            raise ChecksumError(f"{name} does not match its checksum", offset=member.at)
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise DecodeError(f"{name} is not UTF-8", offset=member.at) from None

    def _weights(self, source: Source, texts: dict[str, str], config: Any) -> Container:
        file = Hdf5(source, self.limits, FORMAT)
        found = dict(file.datasets())
        for name in ("keras_version", "backend"):
            texts |= {name: text} if (text := file.text(file.root, name)) is not None else {}
        legacy = file.text(file.root, "model_config")
        if legacy is not None:
            texts["config"] = legacy
            named = _legacy(list(found))
        else:
            named = keras_names.names(list(found), _groups(file, found), config)
        tree: Any = {"dict": {named.get(path, path): {} for path in found}}
        container = Container(tree, list(found.values()), texts, self.limits)
        container.tensor_metadata = {name: {"path": path} for path, name in named.items() if name != path}
        return container


def _parsed(text: str | None) -> Any:
    """What a text of JSON says. It only tells names, so one that cannot be read (Python writes NaN, which is no JSON) says nothing."""
    try:
        return None if text is None else jsontext.parse(text.encode(), FORMAT)
    except DecodeError:
        return None


def _inside(source: Source, member: Member) -> Source:
    """What a member holds, as a source."""
    at = archive.data_at(little(source), member)
    if member.method == STORED:
        return Stored(source, at, member.size)
    inflated = InflatedSource(source, at, member)
    return BytesSource(inflated.read_at(0, member.size))  # HDF5 goes here and there: all of it, once


class Stored:
    """A run of a source's bytes as a source."""

    def __init__(self, source: Source, at: int, size: int) -> None:
        self.size, self.path, self._source, self._at = size, source.path, source, at
        if hasattr(source, "read_into"):
            self.read_into = self._read_into

    def _read_into(self, offset: int, buffer: Any) -> None:
        self._source.read_into(self._at + offset, buffer)  # type: ignore[attr-defined]

    def read_at(self, offset: int, count: int) -> memoryview:
        return self._source.read_at(self._at + offset, count)

    def close(self) -> None:
        """The archive is open as long as its owner wants."""


def _groups(file: Hdf5, found: dict[str, Any]) -> dict[str, str]:
    """The groups that are layers, with the layer's name, which their `vars` have as an attribute. Layers without variables count too."""
    groups: dict[str, str] = {}
    for path in found:
        words = path.split("/")
        for end in range(1, len(words)):
            group = "/".join(words[:end])
            if words[end - 1] != "vars" and group not in groups:
                inner = file.child(group, "vars")
                name = file.text(inner, "name") if inner is not None else None
                if name:
                    groups[group] = name
    return groups


def _legacy(paths: list[str]) -> dict[str, str]:
    """`model_weights/dense/dense/kernel:0` of the older files is `dense/kernel`, if that is no other's name."""
    short = {path: path.removeprefix(_LEGACY).partition("/")[2].removesuffix(":0") for path in paths if path.startswith(_LEGACY)}
    others = {path for path in paths if path not in short}
    plain = all(short.values()) and len(set(short.values())) == len(short) and not others & set(short.values())
    return short if plain else {}
