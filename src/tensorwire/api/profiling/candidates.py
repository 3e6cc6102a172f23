"""The ways to write a value: format × compression × quantization, as the arguments that ask for
each.
"""

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
"""The order in which compressions are tried: what most people want first, since time may run out.
Others come last.
"""
Names = Iterable[str] | str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to write a value.

    >>> way = Candidate("safetensors", "zstd", level=9, shuffle=True)
    >>> str(way), way.options()
    ('safetensors + shuffle + zstd:9', {'format': 'safetensors', 'compression': 'zstd', 'level': 9,
    'shuffle': True, 'per_tensor': True})
    """

    format: str
    compression: str | None = None
    level: int | None = None
    shuffle: bool = False
    """With every tensor compressed alone, which is what a shuffle needs: only a tensor knows the
    size of its elements.
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
        """What is done to the format's bytes, whatever the format."""
        return self.compression, self.level, self.shuffle

    def options(self, threads: int | None = None) -> dict[str, Any]:
        """The arguments of `tw.dumps` and `tw.save` that write this way."""
        named = {"compression": self.compression, "level": self.level, "quantize": self.quantize}
        out = {"format": self.format} | {
            name: option for name, option in named.items() if option is not None
        }
        if self.shuffle:
            out |= {"shuffle": True, "per_tensor": True}
        return out | ({"threads": threads} if threads is not None and self.compression else {})

    def reading(self, value: Any) -> dict[str, Any]:
        """The arguments of `tw.loads` that read it again."""
        whole = (
            self.compression is not None
            and not self.shuffle
            and not api.formats()[self.format].compressions
        )
        # the value itself is quantized, and is to come back so
        codes = {"dequantize": False} if has_codes(value) else {}
        return (
            {"format": self.format}
            | ({"compression": self.compression} if whole else {})
            | codes
            | reading(self.format, value)
        )


def reading(format: str, value: Any) -> dict[str, Any]:
    """What a format's bytes do not say, and `tw.loads` must be told.

    >>> reading("raw", np.zeros((2, 3), np.float32)), reading("safetensors", np.zeros(3))
    ({'dtype': 'float32', 'shape': (2, 3)}, {})
    """
    if format not in _TOLD or frameworks.is_python(value):
        return {}
    return _TOLD[format](frameworks.leaf(value))


def _told_raw(tensor: Any) -> dict[str, Any]:
    return (
        {"dtype": dtypes.of(tensor.dtype).name, "shape": tuple(tensor.shape)}
        if isinstance(tensor, np.ndarray)
        else {}
    )


def _told_tensorproto(tensor: Any) -> dict[str, Any]:
    return {"text": True} if isinstance(tensor, Strings) and tensor.text else {}


_TOLD = {"raw": _told_raw, "tensorproto": _told_tensorproto}


def plan(
    formats: Names, compressions: Names, quantize: Names | bool, floats: bool
) -> list[Candidate]:
    """Every way to try, the plainest and most wanted first, since time may run out.

    >>> [str(way) for way in plan("safetensors", ["gzip", "zlib"], "int8", floats=True)][:4]
    ['safetensors', 'safetensors + gzip', 'safetensors + shuffle + gzip', 'safetensors + int8']
    """
    rows = [_row(name) for name in _names(formats, api.formats())]
    pressed = [_pressed(name) for name in _names(compressions, _known())]
    lossy = _lossy(rows, pressed, quantize) if floats else []
    found = [Candidate(row.name) for row in rows]
    for i, (name, level) in enumerate(pressed):
        found += [Candidate(row.name, name, level) for row in rows if name in _offered(row)]
        found += [Candidate(row.name, name, level, shuffle=True) for row in rows if row.packs]
        if i == 0:
            found += lossy
    return found if pressed else found + lossy


def _lossy(
    rows: list[Format], pressed: list[tuple[str, int | None]], quantize: Names | bool
) -> list[Candidate]:
    """Every scheme, plain and with one compression, to show what is left to gain.

    What it saves and costs is the same in every format, so the one that holds everything speaks for
    all, if it is there.
    """
    if quantize is False:
        return []
    told = quantize is not None and quantize is not True
    schemes = _names(quantize if told else None, SCHEMES)  # type: ignore[arg-type]
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise UnknownFormatError(f"no quantization scheme {scheme!r}{choices(scheme, SCHEMES)}")
    found = []
    for row in [row for row in rows if row.packs] or (rows if told else []):
        found += [Candidate(row.name, quantize=scheme) for scheme in schemes]
        offered = [entry for entry in pressed if entry[0] in _offered(row)]
        found += [
            Candidate(row.name, name, level, quantize=scheme)
            for name, level in offered[:1]
            for scheme in schemes
        ]
    return found


def unfit(formats: Names, compressions: Names) -> Iterator[tuple[str, str]]:
    """What was asked for by name and does not go together: (way, why)."""
    for name, level in [_pressed(name) for name in _names(compressions or (), ())]:
        for row in [_row(name) for name in _names(formats, api.formats())]:
            if name not in _offered(row):
                yield (
                    str(Candidate(row.name, name, level)),
                    f"{row.name} compresses by itself, with {', '.join(row.compressions)}",
                )


def _offered(row: Format) -> tuple[str, ...]:
    return row.compressions or _compression.NAMES


def _known() -> list[str]:
    known = dict.fromkeys(
        (
            *_compression.NAMES,
            *(name for row in api.formats().values() for name in row.compressions),
        )
    )
    return sorted(
        known, key=lambda name: QUICKEST.index(name) if name in QUICKEST else len(QUICKEST)
    )


def _names(given: Names, known: Iterable[str]) -> list[str]:
    if given is None:
        return list(known)
    return [given] if isinstance(given, str) else list(dict.fromkeys(given))


def _row(name: str) -> Format:
    table = api.formats()
    if name not in table:
        raise UnknownFormatError(f"no format {name!r}{choices(name, table)}")
    return table[name]


def _pressed(text: str) -> tuple[str, int | None]:
    """A compression as the caller names it, "zstd" or with a level "zstd:19"."""
    name, colon, level = text.partition(":")
    known = _known()
    if name not in known:
        raise UnknownFormatError(f"no compression {name!r}{choices(name, known)}")
    if colon and not level.removeprefix("-").isdecimal():
        raise ValueError(f"compression {text!r}: a level is a number, as in {name}:9")
    return name, int(level) if colon else None
