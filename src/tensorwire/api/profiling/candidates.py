"""Candidates of a profile: format × compression × quantization, with the arguments for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import frameworks
from ..._errors import UnknownFormatError, choices
from ...codecs import Format
from ...core import dtypes
from ...core.quantized import has_codes
from ...core.tensors import Strings
from ...transforms import compression as _compression
from ...transforms.quantization import SCHEMES
from .. import values as api

QUICKEST = ("zstd", "lz4", "snappy", "gzip", "zlib")
"""The order in which compressions are tried: the most common first, because time may run out.
Others come last.
"""
Names = Iterable[str] | str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One combination of format, compression and quantization.

    >>> candidate = Candidate("safetensors", "zstd", level=9, shuffle=True)
    >>> str(candidate), candidate.options()
    ('safetensors + shuffle + zstd:9', {'format': 'safetensors', 'compression': 'zstd', 'level': 9,
    'shuffle': True, 'per_tensor': True})
    """

    format: str
    compression: str | None = None
    level: int | None = None
    shuffle: bool = False
    """Then each tensor is compressed separately, because a shuffle has to know the size of its
    elements.
    """
    quantize: str | None = None

    def __str__(self) -> str:
        compression = (
            f"{self.compression}:{self.level}" if self.level is not None else self.compression
        )
        return " + ".join(
            word
            for word in (
                self.format,
                self.quantize,
                "shuffle" if self.shuffle else None,
                compression,
            )
            if word
        )

    @property
    def transform(self) -> tuple[str | None, int | None, bool]:
        """The compression, whatever the format."""
        return self.compression, self.level, self.shuffle

    def options(self, threads: int | None = None) -> dict[str, Any]:
        """The arguments of `tw.dumps` and `tw.save` for this candidate."""
        named = {"compression": self.compression, "level": self.level, "quantize": self.quantize}
        out = {"format": self.format} | {
            name: option for name, option in named.items() if option is not None
        }
        if self.shuffle:
            out |= {"shuffle": True, "per_tensor": True}
        return out | ({"threads": threads} if threads is not None and self.compression else {})

    def reading(self, value: Any) -> dict[str, Any]:
        """The arguments of `tw.loads` that read it back."""
        whole = (
            self.compression is not None
            and not self.shuffle
            and not api.formats()[self.format].compressions
        )
        # A value that is quantized already must come back as it is.
        codes = {"dequantize": False} if has_codes(value) else {}
        return (
            {"format": self.format}
            | ({"compression": self.compression} if whole else {})
            | codes
            | reading(self.format, value)
        )


def reading(format: str, value: Any) -> dict[str, Any]:
    """The arguments that `tw.loads` needs because the bytes do not contain them.

    >>> reading("raw", np.zeros((2, 3), np.float32)), reading("safetensors", np.zeros(3))
    ({'dtype': 'float32', 'shape': (2, 3)}, {})
    """
    if format not in _READING or frameworks.is_python(value):
        return {}
    return _READING[format](frameworks.leaf(value))


def _reading_raw(tensor: Any) -> dict[str, Any]:
    return (
        {"dtype": dtypes.of(tensor.dtype).name, "shape": tuple(tensor.shape)}
        if isinstance(tensor, np.ndarray)
        else {}
    )


def _reading_tensorproto(tensor: Any) -> dict[str, Any]:
    return {"text": True} if isinstance(tensor, Strings) and tensor.text else {}


_READING = {"raw": _reading_raw, "tensorproto": _reading_tensorproto}


def plan(
    formats: Names, compressions: Names, quantize: Names | bool, floats: bool
) -> list[Candidate]:
    """All candidates, the simplest and most common first, because time may run out.

    >>> candidates = plan("safetensors", ["gzip", "zlib"], "int8", floats=True)
    >>> [str(candidate) for candidate in candidates][:4]
    ['safetensors', 'safetensors + gzip', 'safetensors + shuffle + gzip', 'safetensors + int8']
    """
    rows = [_row(name) for name in _names(formats, api.formats())]
    levels = [_compression_level(name) for name in _names(compressions, _all_compressions())]
    lossy = _lossy(rows, levels, quantize) if floats else []
    candidates = [Candidate(row.name) for row in rows]
    for i, (name, level) in enumerate(levels):
        candidates += [Candidate(row.name, name, level) for row in rows if name in _offered(row)]
        candidates += [Candidate(row.name, name, level, shuffle=True) for row in rows if row.packs]
        if i == 0:
            candidates += lossy
    return candidates if levels else candidates + lossy


def _lossy(
    rows: list[Format], levels: list[tuple[str, int | None]], quantize: Names | bool
) -> list[Candidate]:
    """Candidates for every quantization scheme, without compression and with the first one.

    The costs and savings of a scheme are the same in every format, so only the format that holds
    any value is measured, if it is one of them.
    """
    if quantize is False:
        return []
    is_given = quantize is not None and quantize is not True
    schemes = _names(quantize if is_given else None, SCHEMES)  # type: ignore[arg-type]
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise UnknownFormatError(
                f"unknown quantization scheme {scheme!r}{choices(scheme, SCHEMES)}"
            )
    candidates = []
    for row in [row for row in rows if row.packs] or (rows if is_given else []):
        candidates += [Candidate(row.name, quantize=scheme) for scheme in schemes]
        offered = [entry for entry in levels if entry[0] in _offered(row)]
        candidates += [
            Candidate(row.name, name, level, quantize=scheme)
            for name, level in offered[:1]
            for scheme in schemes
        ]
    return candidates


def unfit(formats: Names, compressions: Names) -> Iterator[tuple[str, str]]:
    """The combinations that were named and do not fit each other: (candidate, reason)."""
    for name, level in [_compression_level(name) for name in _names(compressions or (), ())]:
        for row in [_row(name) for name in _names(formats, api.formats())]:
            if name not in _offered(row):
                yield (
                    str(Candidate(row.name, name, level)),
                    f"{row.name} compresses by itself, with {', '.join(row.compressions)}",
                )


def _offered(row: Format) -> tuple[str, ...]:
    """The compressions of a format: its own, or else those of any byte stream."""
    return row.compressions or _compression.NAMES


def _all_compressions() -> list[str]:
    names = dict.fromkeys(
        (
            *_compression.NAMES,
            *(name for row in api.formats().values() for name in row.compressions),
        )
    )
    return sorted(
        names, key=lambda name: QUICKEST.index(name) if name in QUICKEST else len(QUICKEST)
    )


def _names(given: Names, default: Iterable[str]) -> list[str]:
    if given is None:
        return list(default)
    return [given] if isinstance(given, str) else list(dict.fromkeys(given))


def _row(name: str) -> Format:
    table = api.formats()
    if name not in table:
        raise UnknownFormatError(f"unknown format {name!r}{choices(name, table)}")
    return table[name]


def _compression_level(text: str) -> tuple[str, int | None]:
    """The name and level of a compression, such as "zstd" or "zstd:19"."""
    name, colon, level = text.partition(":")
    names = _all_compressions()
    if name not in names:
        raise UnknownFormatError(f"unknown compression {name!r}{choices(name, names)}")
    if colon and not level.removeprefix("-").isdecimal():
        raise ValueError(
            f"invalid compression {text!r}: the level must be a number, as in {name}:9"
        )
    return name, int(level) if colon else None
