"""JSON as we accept it: no duplicate keys, no number that Python would change, no constants that JSON does not have."""

from __future__ import annotations

import json
import math
from typing import Any

from .._errors import DecodeError, LimitError


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


_decode = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_float, parse_constant=_constant).decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


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
        raise DecodeError(f"not UTF-8 ({error.reason})", format=format, offset=base + error.start) from None
    except json.JSONDecodeError as error:
        raise DecodeError(f"not JSON: {error.msg}", format=format, offset=base + len(text[: error.pos].encode())) from None
    except RecursionError:
        raise LimitError("JSON nested too deep", format=format, offset=base) from None
    except UnicodeEncodeError:
        raise DecodeError("a string with a lone surrogate", format=format, offset=base) from None
    except ValueError as error:
        raise DecodeError(f"not JSON that we read: {error}", format=format, offset=base) from None
    return value


def write(value: Any) -> bytes:
    """The shortest UTF-8 text.

    >>> write({"list": 3})
    b'{"list":3}'
    """
    return _encode(value).encode()
