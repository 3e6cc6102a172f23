"""Conformance checks that every codec and every framework module must pass."""

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


def _note(report: Report, sample: Sample, outcome: str) -> None:
    """Add an outcome to the report. All samples of a kind and dtype must have the same outcome."""
    key = (sample.kind, sample.dtype)
    if report.setdefault(key, outcome) != outcome:
        raise AssertionError(
            f"{key} is {report[key]} for one sample and {outcome} for {sample.value!r:.200}"
        )


def check_codec(
    writer: str | TensorFormat,
    reader: Callable[[Any], TensorFormat] | None = None,
    *,
    hostile: int = 40,
) -> Report:
    """Check that a codec is bit-exact for every kind and dtype, or raises EncodeError.

    Damaged encodings must decode to a value or raise DecodeError with `format` and `offset`.

    `writer` is the name of a format or a codec. `reader` returns the codec that reads a given
    value, for formats that do not store dtype and shape; the formats of tensorwire need none.
    `hostile` is the number of damaged copies per encoding.

    Returns "exact" or "refused" by (kind, dtype). Raises AssertionError if a check fails.

    >>> import tensorwire as tw
    >>> from tensorwire.testing import check_codec
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
        decoded = codec.decode(memory.flat(data), copy)
        assert equal(decoded, value), f"{value!r:.200} came back as {decoded!r:.200}"
        for array in _arrays(decoded):
            assert array.flags.writeable is (copy is True) or not array.size, (
                f"copy={copy} gave {array.flags.writeable=}"
            )
            assert array.flags.aligned and array.flags.c_contiguous
    # The same bytes at an odd address: codecs may not rely on alignment.
    shifted = memoryview(bytes(1) + data)[1:]
    assert equal(codec.decode(shifted, None), value)
    # With copy=False a codec may refuse values that it cannot decode without a copy.
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
        position = random_.randrange(len(data))
        for damaged in (
            data[:position],
            data[:position]
            + bytes([data[position] ^ 1 << random_.randrange(8)])
            + data[position + 1 :],
            data + data[: position + 1],
        ):
            try:
                codec.decode(memory.flat(damaged), None)
            except DecodeError as error:
                assert error.format is not None and error.offset is not None, (
                    f"{error!r} has no format or no offset"
                )


def check_framework(framework: str) -> Report:
    """Check that tensors survive the conversion to a framework and back bit-exactly.

    Kinds and dtypes that the framework does not have must raise EncodeError.

    Returns "exact" or "refused" by (kind, dtype). Raises AssertionError if a check fails.

    >>> import tensorwire as tw
    >>> from tensorwire.testing import check_framework
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
        # Only Python and Arrow distinguish text from bytes, and an empty object array has no
        # element that shows which one it is.
        if sample.dtype == "text" and framework not in ("numpy", "object", "arrow"):
            expected = expected.astext(False)
        if sample.dtype == "text" and framework == "object" and not expected.size:
            expected = expected.astext(False)
        assert equal(back, expected), (
            f"{framework}: {sample.value!r:.200} came back as {back!r:.200}"
        )
        _note(report, sample, "exact")
    return report
