"""The checks that every codec and every framework module must pass, and whose report the
documentation shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import frameworks
from .._errors import DecodeError, EncodeError
from ..api.equality import equal
from ..api.profiling.candidates import reading
from ..codecs.opening import codec as codec_named
from ..codecs.protocol import TensorFormat
from ..core import memory
from ..core.tensors import KINDS
from .sampling import Sample, samples

Report = dict[tuple[str, str], str]
"""(kind, dtype) -> "exact" or "refused"."""


def _note(report: Report, sample: Sample, found: str) -> None:
    """All samples of a cell must agree: a dtype that works in one shape works in all."""
    key = (sample.kind, sample.dtype)
    if report.setdefault(key, found) != found:
        raise AssertionError(
            f"{key} is {report[key]} for one sample and {found} for {sample.value!r:.200}"
        )


def check_codec(
    writer: str | TensorFormat,
    reader: Callable[[Any], TensorFormat] | None = None,
    *,
    hostile: int = 40,
) -> Report:
    """Every kind and dtype goes through, bit for bit, or is refused with EncodeError; cuts and
    flips give a value or DecodeError.

    `writer` is a format's name or a codec. `reader` makes the codec that reads a given value, for
    codecs whose bytes do not say it all (for our own formats it is known). `hostile` is how many
    damaged copies of each encoding are tried.

    >>> check_codec("safetensors", hostile=0)["sparse", "bfloat16"]
    'exact'
    """
    codec = codec_named(writer, {}) if isinstance(writer, str) else writer
    if reader is None and isinstance(writer, str):
        reader = partial(_reader, writer)
    report: Report = {}
    for sample in samples():
        try:
            data = b"".join(codec.encode(sample.value))
        except EncodeError:
            _note(report, sample, "refused")
            continue
        back = reader(sample.value) if reader else codec
        _check_read(back, data, sample.value)
        _check_damage(back, data, hostile)
        _note(report, sample, "exact")
    return report


def _reader(name: str, value: Any) -> TensorFormat:
    return codec_named(name, reading(name, value))


def _check_read(codec: TensorFormat, data: bytes, value: Any) -> None:
    for copy in (None, True):
        found = codec.decode(memory.flat(data), copy)
        assert equal(found, value), f"{value!r:.200} came back as {found!r:.200}"
        for array in _arrays(found):
            assert array.flags.writeable is (copy is True) or not array.size, (
                f"copy={copy} gave {array.flags.writeable=}"
            )
            assert array.flags.aligned and array.flags.c_contiguous
    shifted = memoryview(bytes(1) + data)[1:]  # the same bytes at an odd address
    assert equal(codec.decode(shifted, None), value)
    try:
        view = codec.decode(memory.flat(data), False)
    except DecodeError:
        pass
    else:
        assert equal(view, value)


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays(item)]
    if isinstance(value, dict) or hasattr(value, "keys"):
        return [array for item in value.values() for array in _arrays(item)]
    if not isinstance(value, KINDS):
        return []
    if hasattr(value, "flags"):
        return [value]
    fields = [getattr(value, name) for name in value.__slots__]
    return [
        array for field in fields if not isinstance(field, (bool, str)) for array in _arrays(field)
    ]


def _check_damage(codec: TensorFormat, data: bytes, times: int) -> None:
    random_ = random.Random(len(data))
    for _ in range(times if data else 0):
        at = random_.randrange(len(data))
        for damaged in (
            data[:at],
            data[:at] + bytes([data[at] ^ 1 << random_.randrange(8)]) + data[at + 1 :],
            data + data[: at + 1],
        ):
            try:
                codec.decode(memory.flat(damaged), None)
            except DecodeError as error:
                assert error.format is not None and error.offset is not None, (
                    f"{error!r} does not say where"
                )


def check_framework(framework: str) -> Report:
    """Every kind and dtype that the framework has comes back from it bit for bit; the others are
    refused with EncodeError.

    >>> check_framework("numpy")["dense", "int4"]
    'exact'
    """
    report: Report = {}
    for sample in samples():
        if not isinstance(sample.value, KINDS):
            continue
        try:
            foreign = frameworks.to(sample.value, framework)
        except EncodeError:
            _note(report, sample, "refused")
            continue
        back = frameworks.tensor(foreign)
        expected: Any = sample.value
        if sample.dtype == "text" and framework not in ("numpy", "object", "arrow"):
            expected = expected.astext(False)  # only Python and Arrow have text
        if sample.dtype == "text" and framework == "object" and not expected.size:
            expected = expected.astext(False)  # no element is left to say so
        assert equal(back, expected), (
            f"{framework}: {sample.value!r:.200} came back as {back!r:.200}"
        )
        _note(report, sample, "exact")
    return report
