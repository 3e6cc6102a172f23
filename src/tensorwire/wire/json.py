"""JSON text: strict parsing, and arrays of numbers that are read and written by kernels.

Duplicate keys, numbers past the range of a float, and constants that JSON lacks are errors. Numbers
of arrays go directly between text and memory. Everything around them is handled by Python's json.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._errors import DecodeError, LimitError
from ..core import dtypes
from ..core.memory import Array
from . import kernels
from .reference.json_numbers import FORMS, KINDS
from .status import problem

_CODES = {name: code for code, name in enumerate(KINDS)}
NANS = {name: form.nan for name, form in zip(KINDS, FORMS, strict=False)}
"""The bits of NaN, by dtype name; 0 for a type without NaN."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r:.60} appears twice")
    return result


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.40} is out of range for a float")
    return value


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_decode = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_float, parse_constant=_constant
).decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_row = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def parse(data: Any, format: str, base: int = 0) -> Any:
    """Parse UTF-8 JSON text. `base` is where the text begins in the whole input.

    >>> parse(b'{"a": [1, 2.5]}', "json")
    {'a': [1, 2.5]}
    """
    try:
        text = str(data, "utf-8")
        value = _decode(text)
        # Only an escape can introduce a lone surrogate, which encode() refuses.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"not UTF-8 ({error.reason})", format=format, offset=base + error.start
        ) from None
    except json.JSONDecodeError as error:
        raise DecodeError(
            f"not JSON: {error.msg}", format=format, offset=base + len(text[: error.pos].encode())
        ) from None
    except RecursionError:
        raise LimitError("the JSON is nested too deep", format=format, offset=base) from None
    except UnicodeEncodeError:
        offset = base + len(text[: _lone_surrogate(text)].encode())
        raise DecodeError("a string has a lone surrogate", format=format, offset=offset) from None
    except ValueError as error:
        offset = base + len(text[: _fault(text)].encode("utf-8", "surrogatepass"))
        raise DecodeError(f"invalid JSON: {error}", format=format, offset=offset) from None
    return value


_COLON = re.compile(r"[ \t\n\r]*:")
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|-?[0-9][-+.0-9eE]*|-?[A-Za-z]+|[\[\]{},:]')


def _fault(text: str) -> int:
    """Return the position of the first duplicate key, or of the first invalid number or constant.

    Errors that the hooks of Python's parser raise have no position, so the text is scanned again.
    """
    keys: list[set[str] | None] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("{", "["):
            keys.append(set() if token == "{" else None)
        elif token in ("}", "]"):
            keys.pop()
        elif token[0] == '"' and keys and keys[-1] is not None and _is_key(text, match.end()):
            key = json.loads(token)
            if key in keys[-1]:
                return match.start()
            keys[-1].add(key)
        elif token[0] in "-0123456789NI" and _is_past(token):
            return match.start()
    return 0


def _lone_surrogate(text: str) -> int:
    """Return the position of the first string with a lone surrogate."""
    for match in _TOKEN.finditer(text):
        if match[0][0] == '"' and "\\u" in match[0]:
            try:
                json.loads(match[0]).encode()
            except UnicodeEncodeError:
                return match.start()
    return 0


def _is_key(text: str, end: int) -> bool:
    return _COLON.match(text, end) is not None


def _is_past(token: str) -> bool:
    """Return whether a token is out of range, too long for an int, or not a JSON number."""
    try:
        _decode(token)
    except ValueError:
        return True
    return False


def write(value: Any) -> bytes:
    """Return a value as UTF-8 JSON without spaces.

    >>> write({"list": 3})
    b'{"list":3}'
    """
    return _encode(value).encode()


class Numbers(NamedTuple):
    """An array inside a document."""

    array: Array
    """A C-contiguous array in native byte order, not complex."""
    levels: tuple[int | Array, ...]
    """The nesting of its numbers, outer to inner: the length of all lists of a depth, or int64
    row_splits.
    """


class Text(str):
    """JSON text that is written unchanged."""


def document(value: Any, indent: int | None = None, bare: bool = False) -> list[bytes]:
    """Return nested dicts and lists of Python values, `Numbers` and `Text` as pieces of UTF-8 JSON.

    With `indent`, all lists but the innermost have one item per line. With `bare`, NaN and infinity
    in Numbers are written without quotes.

    >>> document({"x": Numbers(np.float32([[1, 0.1]]), (1, 2)), "y": [True, None]})
    [b'{"x":[[1.0,0.1]],"y":[true,null]}']
    """
    arrays: list[tuple[Numbers, int]] = []
    pieces: list[str] = []
    _lay_out(value, indent, 0, pieces, arrays)
    before = [text.encode() for text in "".join(pieces).split(_MARK)]
    if not arrays:
        return before
    after = [*(b"",) * (len(arrays) - 1), before.pop()]
    out = []
    for (numbers, margin), first, last in zip(arrays, before, after, strict=True):
        code = _CODES[dtypes.of(numbers.array.dtype).name]
        flat = numbers.array.reshape(-1).view(np.uint8)
        step = -1 if indent is None else indent
        out.append(
            kernels.json_write_numbers(first, flat, code, numbers.levels, bare, step, margin, last)
        )
    return out


_MARK = "\0"
"""The placeholder of an array. JSON text cannot contain it."""


def _lay_out(
    value: Any,
    indent: int | None,
    margin: int,
    pieces: list[str],
    arrays: list[tuple[Numbers, int]],
) -> None:
    if isinstance(value, Numbers):
        pieces.append(_MARK)
        arrays.append((value, margin))
    elif isinstance(value, Text):
        pieces.append(str(value))
    elif not value or not isinstance(value, (dict, list)):
        pieces.append(_encode(value))
    elif isinstance(value, list) and not any(
        isinstance(item, (dict, list, tuple, Text)) for item in value
    ):
        pieces.append(_encode(value) if indent is None else _encode_row(value))
    else:
        deeper = margin + (indent or 0)
        line, last = ("", "") if indent is None else ("\n" + " " * deeper, "\n" + " " * margin)
        sign = ("[", "]") if isinstance(value, list) else ("{", "}")
        for i, item in enumerate(value):
            pieces.append(f"{',' if i else sign[0]}{line}")
            if isinstance(value, dict):
                pieces.append(f"{_encode(item)}:{' ' if line else ''}")
                item = value[item]
            _lay_out(item, indent, deeper, pieces, arrays)
        pieces.append(f"{last}{sign[1]}")


class JsonValue(NamedTuple):
    """The result of `read_numbers`."""

    array: Array
    """The numbers; flat if ragged."""
    end: int
    """Where the text of the numbers ends."""
    splits: list[Array]
    """The row splits of the lists inside the outermost one, outer to inner, if ragged."""
    rows: int | None
    """The length of the outermost list, if ragged."""


def read_numbers(
    data: Any,
    start: int,
    dtype: dtypes.DType,
    shape: Sequence[int] | None = None,
    *,
    ragged: bool = False,
    most: int,
    format: str = "json",
) -> JsonValue:
    """Read nested lists of numbers at data[start] into a new array of at most `most` bytes.

    `shape` is the expected shape, None for any. NaN and infinity may be quoted or bare. Complex
    numbers are pairs. Raises DecodeError if the text does not match.

    >>> read_numbers(b'{"x": [[1, NaN], [1e3, "-Infinity"]]}', 6, dtypes.named("float32"),
    ...     most=100)[:2]
    (array([[   1.,   nan],
           [1000.,  -inf]], dtype=float32), 36)
    """
    numpy = dtype.numpy
    part = np.dtype(f"f{numpy.itemsize // 2}") if numpy.kind == "c" else numpy
    dims_expected = None if shape is None else (*shape, 2) if numpy.kind == "c" else tuple(shape)
    code = _CODES[dtypes.of(part).name]
    status, offset, end, dims, values, splits = kernels.json_read_numbers(
        data, start, code, dims_expected, ragged, most // part.itemsize
    )
    if values is None:
        raise problem(status, offset, format)
    array = values.view(part)
    if ragged:
        return JsonValue(array, end, splits, dims[0] if dims else None)
    array = array.reshape(dims)
    if numpy.kind == "c":
        if dims[-1:] != (2,) and array.size:
            raise DecodeError(
                "complex numbers must be pairs [real, imaginary]", format=format, offset=start
            )
        array = array.view(numpy).reshape(dims[:-1])
    return JsonValue(array, end, [], None)


def skip(
    data: Any, start: int, depth: int, past_dollars: bool, format: str = "json"
) -> tuple[int, int, bool]:
    """Skip the list or object at data[start], and return (end, depth, stopped).

    Unless `past_dollars`, it stops at the first string that starts with "$". `depth` limits how
    deep lists and objects may nest.

    >>> skip(b'[[1, "]"], {}] ...', 0, 9, False), skip(b'{"$x": 1}', 0, 9, False)
    ((14, 2, False), (1, 1, True))
    """
    status, end, deep, stopped = kernels.json_skip(data, start, depth, past_dollars)
    if status:
        raise problem(status, end, format)
    return end, deep, stopped
