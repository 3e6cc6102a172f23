"""Why TensorFlow Serving refuses a body, and the body as Python's values, for whoever has to find
that out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..._errors import ModelError

INVALID, NOT_FOUND, UNIMPLEMENTED = 400, 404, 501
_SHOWN = 1000
"""Characters of a value in a message; Serving itself writes all of it."""
_SYNTAX = {
    "Expecting value": "Invalid value.",
    "Illegal trailing comma before end of array": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Illegal trailing comma before end of object": "Missing a name for object member.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Extra data": "The document root must not be followed by other values.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
}
"""Python's words for what is not JSON, and those of Serving's parser."""
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]|(u[dD][89a-fA-F])|.)", re.DOTALL)
"""A pair of surrogates, one that is alone, or any other escape."""


class RestFault(NamedTuple):
    """Why TensorFlow Serving refuses a body.

    >>> print(RestFault(400, "Missing named input: y in 'inputs' object.", "$.inputs", "the signature has x and y"))
    400 at $.inputs: Missing named input: y in 'inputs' object.
    the signature has x and y
    """

    status: int
    message: str
    """In Serving's words."""
    path: str
    """Where it stands: `$.instances[3].x`"""
    hint: str = ""
    """What to do about it, in ours."""

    def error(self) -> ModelError:
        return ModelError(self.status, self.message).add(path=self.path)

    def __str__(self) -> str:
        return f"{self.status} at {self.path}: {self.message}" + (
            f"\n{self.hint}" if self.hint else ""
        )


class RequestRefused(Exception):
    """A fault on its way out."""

    def __init__(self, fault: RestFault) -> None:
        super().__init__(fault)
        self.fault = fault


def refuse(message: str, path: str, status: int = INVALID, hint: str = "") -> NoReturn:
    raise RequestRefused(RestFault(status, message, path, hint))


def step(path: str, key: str | int) -> str:
    """One step further into a document.

    >>> step(step(step("$", "inputs"), "x/indices"), 3)
    '$.inputs["x/indices"][3]'
    """
    if isinstance(key, int):
        return f"{path}[{key}]"
    return (
        f"{path}.{key}"
        if re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII)
        else f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    )


def document(body: bytes | memoryview) -> dict[str, Any]:
    """A body as Python's values: integers past 64 bits are floats, as they are to Serving, and its
    NaN is a number.
    """
    if not len(body):
        refuse("JSON Parse error: The document is empty", "$")
    text = str(body, "utf-8", "surrogateescape")
    try:
        found = _parse(text)
        if _SURROGATE.search(text):
            _check_surrogates(text)
    except json.JSONDecodeError as error:
        words = _SYNTAX.get(error.msg, "")
        if not text.strip(" \t\n\r"):
            words = "The document is empty."
        elif error.msg == "Expecting ',' delimiter":
            inside = _inside(text, error.pos)
            words = (
                "Missing a comma or } after an object member."
                if inside == "{"
                else "Missing a comma or ] after an array element."
            )
        refuse(f"JSON Parse error: {words or error.msg} at offset: {_offset(text, error.pos)}", "$")
    except _Syntax as error:
        refuse(f"JSON Parse error: {error}", "$")
    except (RecursionError, ValueError) as error:
        refuse(
            "JSON Parse error:"
            f" {'nested too deep' if isinstance(error, RecursionError) else error}",
            "$",
        )
    if not isinstance(found, dict):
        refuse(f"JSON Value: {show(found)} Is not object", "$")
    return found


def plain(body: bytes | memoryview) -> Any:
    """The value of a short text, if it is plain JSON: UTF-8 without escapes of characters. None if
    it is not.
    """
    try:
        text = str(body, "utf-8")
        return None if "\\u" in text else _parse(text)
    except ValueError:
        return None


class _Syntax(ValueError):
    """Not JSON, and Python's parser does not mind."""


def _integer(text: str) -> int | float:
    value = int(text) if len(text) <= 20 else 1 << 64
    return value if -(1 << 63) <= value < 1 << 64 else _float(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Syntax("Number too big to be stored in double.")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Syntax("a key stands twice in one object, of which Serving would take the first")
    return found


_parse = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float).decode


def _check_surrogates(text: str) -> None:
    for found in _ESCAPES.finditer(text):
        if found[1]:
            raise _Syntax(
                "The surrogate pair in string is invalid. at offset:"
                f" {_offset(text, found.start())}"
            )


def _offset(text: str, at: int) -> int:
    return len(text[:at].encode("utf-8", "surrogateescape"))


def _inside(text: str, at: int) -> str:
    """The bracket that is open at a place."""
    opened = []
    for found in _STRUCTURE.finditer(text, 0, at):
        if found[0] in ("[", "{"):
            opened.append(found[0])
        elif found[0] in ("]", "}") and opened:
            opened.pop()
    return opened[-1] if opened else ""


def show(value: object) -> str:
    """A value as Serving writes it into its messages, cut where it is long.

    >>> show("a"), show(0.1), show(2.0), show([True])
    ('"a"', '0.1', '2.0', '[\\n    true\\n]')
    """
    text = ""
    for piece in _pretty(value, "\n"):
        text += piece
        if len(text) > _SHOWN:
            text = f"{text[:_SHOWN]}..."
            break
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _pretty(value: object, line: str) -> Iterator[str]:
    if not isinstance(value, (dict, list)) or not value:
        yield _decimal(value) if type(value) is float else json.dumps(value, ensure_ascii=False)
        return
    deeper = f"{line}    "
    for i, item in enumerate(value):
        yield ("," if i else "{" if isinstance(value, dict) else "[") + deeper
        if isinstance(value, dict):
            yield f"{json.dumps(item, ensure_ascii=False)}: "
        yield from _pretty(value[item] if isinstance(value, dict) else item, deeper)
    yield line + ("}" if isinstance(value, dict) else "]")


def _decimal(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    with np.errstate(over="ignore"):
        text, single = f"{value:.6g}", abs(value) <= float(np.finfo(np.float32).max)
        if (np.float32(text) != np.float32(value)) if single else float(text) != value:
            text = f"{np.float32(value):.9g}" if single else f"{value:.17g}"
    return text if "." in text or "e" in text else f"{text}.0"


def type_of(value: object) -> str:
    """What JSON calls it."""
    if isinstance(value, bool):
        return "True" if value else "False"
    return {dict: "Object", list: "Array", str: "String", type(None): "Null"}.get(
        type(value), "Number"
    )


def dims_text(shape: tuple[int, ...]) -> str:
    """A shape as TensorFlow writes it."""
    return f"[{','.join(map(str, shape))}]"


def is_base64(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)
