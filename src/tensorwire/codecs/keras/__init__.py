"""The keras format: weights of `.keras` archives, `.weights.h5` and legacy `.h5` files, read-only.

A `.keras` file is a zip archive of metadata.json, config.json and model.weights.h5. The config is
returned as metadata text. No layer, Lambda or function in it is ever created, so nothing can be
executed. Weights have the names that Keras gives them (`hidden/kernel`) where they follow from the
config, else their path in the file (`layers/dense/vars/0`), which is always in `tensor_metadata`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..._errors import ChecksumError, DecodeError, EncodeError, LimitError
from ..._limits import DEFAULT, Budget, Limits
from ...core.memory import Buffer
from ...storage.files import BytesSource, Source
from ...transforms.compression import deflate
from ...wire import json as jsontext
from ...wire import zip as archive
from ...wire.zip import STORED, Member
from ..array_part import SourceSlice, little
from ..container import Container
from ..protocol import Metadata
from ..zip_member import InflatedSource
from . import names as keras_names
from .hdf5 import MAGIC, Hdf5

FORMAT = "keras"
WEIGHTS = "model.weights.h5"
CONFIG = "config.json"
METADATA = "metadata.json"
_TEXT = 64 << 20
"""The largest JSON member in bytes."""
_LEGACY = "model_weights/"


@dataclass(frozen=True, slots=True)
class Keras:
    """The Keras codec: the weights of a model by name."""

    limits: Limits = DEFAULT

    def encode(self, value: object, metadata: Metadata | None = None) -> list[Buffer]:
        raise EncodeError(
            "the keras format is only read, not written",
            format=FORMAT,
            hint="load the weights in Keras and save them there",
        )

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        if copy is False:
            raise DecodeError(
                "copy=False is not possible: HDF5 data is copied when it is read",
                format=FORMAT,
                offset=0,
                hint="omit copy=False",
            )
        return self.open(BytesSource(data), copy).value()

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Reads names and shapes, and each array on access."""
        budget = self.limits.call(source.size)
        try:
            head = bytes(source.read_at(0, min(8, source.size)))
            if head == MAGIC:
                return _weights(source, {}, None, copy, budget)
            texts, config, weights = _archive(source, budget)
            return _weights(weights, texts, config, copy, budget)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=0) from None


def _archive(source: Source, budget: Budget) -> tuple[dict[str, str], Any, Source]:
    """Returns (metadata, config, source of the weights) of a .keras file."""
    members = {
        member.name: member for member in archive.members(little(source), source.size, budget.names)
    }
    if WEIGHTS.encode() not in members:
        raise DecodeError(f"not a .keras file: the zip archive has no {WEIGHTS}", offset=0)
    texts: dict[str, str] = {}
    saved_metadata = _parsed(_text(source, members.get(METADATA.encode()), METADATA, budget))
    if isinstance(saved_metadata, dict):
        texts |= {key: text for key, text in saved_metadata.items() if isinstance(text, str)}
    config = _text(source, members.get(CONFIG.encode()), CONFIG, budget)
    if config is not None:
        texts["config"] = config
    return texts, _parsed(config), _inside(source, members[WEIGHTS.encode()], budget)


def _text(source: Source, member: Member | None, name: str, budget: Budget) -> str | None:
    if member is None:
        return None
    if member.size > _TEXT:
        raise LimitError(
            f"{name} has {member.size} bytes, but at most {_TEXT} are allowed", offset=member.at
        )
    inside = _inside(source, member, budget)
    text = bytes(inside.read_at(0, member.size))
    if member.method == STORED and deflate.backend().crc32(text) != member.crc:
        raise ChecksumError(f"the checksum of {name} does not match", offset=member.at)
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise DecodeError(f"{name} is not valid UTF-8", offset=member.at) from None


class _Weights(Container):
    """A container of weights that also ends the HDF5 process when it is closed."""

    file: Hdf5

    def close(self) -> None:
        self.file.close()


def _weights(
    source: Source, texts: dict[str, str], config: Any, copy: bool | None, budget: Budget
) -> Container:
    file = Hdf5(source, budget, FORMAT, copy)
    listing = file.list()
    legacy = listing.texts.pop("model_config", None)
    texts |= listing.texts
    if legacy is not None:
        texts["config"] = legacy
        named = _legacy(list(listing.datasets))
    else:
        named = keras_names.names(list(listing.datasets), listing.layers, config)
    tree: Any = {"dict": {named.get(path, path): {} for path in listing.datasets}}
    paths = {name: {"path": path} for path, name in named.items() if name != path}
    container = _Weights(tree, list(listing.datasets.values()), texts, budget, paths)
    container.file = file
    return container


def _parsed(text: str | None) -> Any:
    """Parses JSON; None if it is absent or invalid.

    The config is used for names only, so invalid JSON is not an error (Python writes NaN, which is
    not JSON).
    """
    try:
        return None if text is None else jsontext.parse(text.encode(), FORMAT)
    except DecodeError:
        return None


def _inside(source: Source, member: Member, budget: Budget) -> Source:
    """Returns the content of a zip member as a source."""
    start = archive.data_at(little(source), member)
    if member.method == STORED:
        return SourceSlice(source, start, member.size)
    inflated = InflatedSource(source, start, member, budget)
    # HDF5 reads in random order, so a compressed member is inflated once, as a whole.
    return BytesSource(inflated.read_at(0, member.size))


def _legacy(paths: list[str]) -> dict[str, str]:
    """Returns short names for legacy files: `model_weights/dense/dense/kernel:0` -> `dense/kernel`.

    The mapping is empty if two short names would clash.
    """
    short = {
        path: path.removeprefix(_LEGACY).partition("/")[2].removesuffix(":0")
        for path in paths
        if path.startswith(_LEGACY)
    }
    others = {path for path in paths if path not in short}
    plain = (
        all(short.values())
        and len(set(short.values())) == len(short)
        and not others & set(short.values())
    )
    return short if plain else {}
