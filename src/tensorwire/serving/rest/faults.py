"""Faults: why TensorFlow Serving refuses a body, and the JSON parser that finds the reason."""

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
"""The number of characters of a value in a message; Serving itself writes all of it."""
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
"""Messages of Python's JSON parser, and those of Serving's parser for the same error."""
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]|(u[dD][89a-fA-F])|.)", re.DOTALL)
"""A pair of surrogates, a lone surrogate (group 1), or any other escape."""


class RestFault(NamedTuple):
    """Why TensorFlow Serving refuses a body.

    >>> message = "Missing named input: y in 'inputs' object."
    >>> print(RestFault(400, message, "$.inputs", "the signature has x and y"))
    400 at $.inputs: Missing named input: y in 'inputs' object.
    the signature has x and y
    """

    status: int
    message: str
    """Serving's own message."""
    path: str
    """The path of the faulty value, such as `$.instances[3].x`."""
    hint: str = ""
    """What to do; Serving has no such text."""

    def error(self) -> ModelError:
        """Return the fault as the error that a client gets."""
        return ModelError(self.status, self.message).add(path=self.path)

    def __str__(self) -> str:
        return f"{self.status} at {self.path}: {self.message}" + (
            f"\n{self.hint}" if self.hint else ""
        )


class RequestRefused(Exception):
    """Raised inside `rest` with the fault of a body."""

    def __init__(self, fault: RestFault) -> None:
        super().__init__(fault)
        self.fault = fault


def refuse(message: str, path: str, status: int = INVALID, hint: str = "") -> NoReturn:
    """Raise RequestRefused with a fault."""
    raise RequestRefused(RestFault(status, message, path, hint))


def step(path: str, key: str | int) -> str:
    """Return the path of a member or an item.

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
    """Return a body as Python values; raise RequestRefused with Serving's message if it is not a
    JSON object. Integers above 64 bits are floats, and NaN is a number, as in Serving.
    """
    if not len(body):
        refuse("JSON Parse error: The document is empty", "$")
    text = str(body, "utf-8", "surrogateescape")
    try:
        value = _parse(text)
        if _SURROGATE.search(text):
            _check_surrogates(text)
    except json.JSONDecodeError as error:
        reason = _SYNTAX.get(error.msg, "")
        if not text.strip(" \t\n\r"):
            reason = "The document is empty."
        elif error.msg == "Expecting ',' delimiter":
            inside = _inside(text, error.pos)
            reason = (
                "Missing a comma or } after an object member."
                if inside == "{"
                else "Missing a comma or ] after an array element."
            )
        refuse(
            f"JSON Parse error: {reason or error.msg} at offset: {_offset(text, error.pos)}", "$"
        )
    except _Syntax as error:
        refuse(f"JSON Parse error: {error}", "$")
    except (RecursionError, ValueError) as error:
        refuse(
            "JSON Parse error:"
            f" {'nested too deep' if isinstance(error, RecursionError) else error}",
            "$",
        )
    if not isinstance(value, dict):
        refuse(f"JSON Value: {show(value)} Is not object", "$")
    return value


def plain(body: bytes | memoryview) -> Any:
    """Return the value of a short JSON text; None if invalid, not UTF-8, or with \\u escapes."""
    try:
        text = str(body, "utf-8")
        return None if "\\u" in text else _parse(text)
    except ValueError:
        return None


class _Syntax(ValueError):
    """A syntax error that Python's parser accepts."""


def _integer(text: str) -> int | float:
    value = int(text) if len(text) <= 20 else 1 << 64
    return value if -(1 << 63) <= value < 1 << 64 else _float(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Syntax("Number too big to be stored in double.")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Syntax("duplicate key in an object, of which Serving would use the first")
    return members


_parse = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float).decode


def _check_surrogates(text: str) -> None:
    for escape in _ESCAPES.finditer(text):
        if escape[1]:
            raise _Syntax(
                "The surrogate pair in string is invalid. at offset:"
                f" {_offset(text, escape.start())}"
            )


def _offset(text: str, position: int) -> int:
    return len(text[:position].encode("utf-8", "surrogateescape"))


def _inside(text: str, position: int) -> str:
    """Return the innermost bracket that is open at a position."""
    opened = []
    for token in _STRUCTURE.finditer(text, 0, position):
        if token[0] in ("[", "{"):
            opened.append(token[0])
        elif token[0] in ("]", "}") and opened:
            opened.pop()
    return opened[-1] if opened else ""


def show(value: object) -> str:
    """Return a value as Serving writes it into its messages, cut after 1000 characters.

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
    """Return a float as Serving writes it: the shortest of 6 or 9 digits for a float32, and of 6 or
    17 for larger numbers.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    with np.errstate(over="ignore"):
        text, single = f"{value:.6g}", abs(value) <= float(np.finfo(np.float32).max)
        if (np.float32(text) != np.float32(value)) if single else float(text) != value:
            text = f"{np.float32(value):.9g}" if single else f"{value:.17g}"
    return text if "." in text or "e" in text else f"{text}.0"


def type_of(value: object) -> str:
    """Return the name of a value's JSON type, as Serving writes it."""
    if isinstance(value, bool):
        return "True" if value else "False"
    return {dict: "Object", list: "Array", str: "String", type(None): "Null"}.get(
        type(value), "Number"
    )


def dims_text(shape: tuple[int, ...]) -> str:
    """Return a shape as TensorFlow writes it."""
    return f"[{','.join(map(str, shape))}]"


def is_base64(value: object) -> bool:
    """Return whether a value is a string in base64: {"b64": TEXT}."""
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)
