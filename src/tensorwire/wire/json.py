"""JSON as we accept it: no duplicate keys, no number that Python would change, no constants that
JSON does not have.

The numbers of an array go straight between text and memory, by kernels; only what is around them is
Python's.
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
"""The bits that "NaN" is read as, by dtype; 0 for a type without one."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r:.60} stands twice")
    return found


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.40} is past what a float holds")
    return value


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_decode = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_float, parse_constant=_constant
).decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_row = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def parse(data: Any, format: str, base: int = 0) -> Any:
    """The value of UTF-8 JSON text; `base` is where the text begins in the whole input.

    >>> parse(b'{"a": [1, 2.5]}', "json")
    {'a': [1, 2.5]}
    """
    try:
        text = str(data, "utf-8")
        value = _decode(text)
        if "\\u" in text:  # the only way in for a lone surrogate
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
        raise LimitError("JSON nested too deep", format=format, offset=base) from None
    except UnicodeEncodeError:
        offset = base + len(text[: _lone_surrogate(text)].encode())
        raise DecodeError("a string with a lone surrogate", format=format, offset=offset) from None
    except ValueError as error:
        offset = base + len(text[: _fault(text)].encode("utf-8", "surrogatepass"))
        raise DecodeError(f"not JSON that we read: {error}", format=format, offset=offset) from None
    return value


_COLON = re.compile(r"[ \t\n\r]*:")
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|-?[0-9][-+.0-9eE]*|-?[A-Za-z]+|[\[\]{},:]')


def _fault(text: str) -> int:
    """Where the first key stands that is there twice, or a number or word that JSON or Python does
    not have.

    Python's parser says no place for what its hooks refuse, so the text is looked through again.
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
    """Where the first string stands that is not text."""
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
    """Whether a number is past what a float holds, or too long, or none of JSON's."""
    try:
        _decode(token)
    except ValueError:
        return True
    return False


def write(value: Any) -> bytes:
    """The shortest UTF-8 text.

    >>> write({"list": 3})
    b'{"list":3}'
    """
    return _encode(value).encode()


class Numbers(NamedTuple):
    """An array inside of a document."""

    array: Array
    """C-contiguous, in the byte order of the machine; not complex."""
    levels: tuple[int | Array, ...]
    """How its numbers nest, outer to inner: the length of all lists of a depth, or int64
    row_splits.
    """


class Text(str):
    """JSON that is written as it is."""


def document(value: Any, indent: int | None = None, bare: bool = False) -> list[bytes]:
    """Nested dicts and lists of Python's values, `Numbers` and `Text` as UTF-8, in pieces.

    With `indent`, all but the innermost lists take a line an item; with `bare`, NaN and the
    infinities in Numbers are no strings.

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
"""Stands for an array; in JSON it stands nowhere."""


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
    """What `read_numbers` read."""

    array: Array
    """Flat if ragged."""
    end: int
    splits: list[Array]
    """Where the lists inside of the outermost begin, outer to inner, if ragged; the outermost one
    has `rows` of them.
    """
    rows: int | None


def read_numbers(
    data: Any,
    at: int,
    dtype: dtypes.DType,
    shape: Sequence[int] | None = None,
    *,
    ragged: bool = False,
    most: int,
    format: str = "json",
) -> JsonValue:
    """The numbers that begin at data[at], nested in lists of the given shape or of any, as an array
    of its own; at most `most` bytes.

    Both spellings of NaN and the infinities are read. Complex numbers are pairs.

    >>> read_numbers(b'{"x": [[1, NaN], [1e3, "-Infinity"]]}', 6, dtypes.named("float32"),
    ...     most=100)[:2]
    (array([[   1.,   nan],
           [1000.,  -inf]], dtype=float32), 36)
    """
    numpy = dtype.numpy
    part = np.dtype(f"f{numpy.itemsize // 2}") if numpy.kind == "c" else numpy
    wanted = None if shape is None else (*shape, 2) if numpy.kind == "c" else tuple(shape)
    code = _CODES[dtypes.of(part).name]
    status, offset, end, dims, values, splits = kernels.json_read_numbers(
        data, at, code, wanted, ragged, most // part.itemsize
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
                "complex numbers are pairs, [real, imaginary]", format=format, offset=at
            )
        array = array.view(numpy).reshape(dims[:-1])
    return JsonValue(array, end, [], None)


def skip(
    data: Any, at: int, depth: int, past_dollars: bool, format: str = "json"
) -> tuple[int, int, bool]:
    """(where the list or object at data[at] ends, how deep it nests, whether it has a string with
    "$" in front, and so was left there)

    >>> skip(b'[[1, "]"], {}] ...', 0, 9, False), skip(b'{"$x": 1}', 0, 9, False)
    ((14, 2, False), (1, 1, True))
    """
    status, end, deep, stopped = kernels.json_skip(data, at, depth, past_dollars)
    if status:
        raise problem(status, end, format)
    return end, deep, stopped
