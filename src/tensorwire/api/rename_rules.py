"""Rules for the names of tensors: rename rules like those of sed, patterns that select tensors, and
sizes with units.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

from .._errors import DecodeError, SchemaError, choices
from .._limits import DEFAULT
from ..wire import json as jsontext

Rename = str | Mapping[str, str] | Callable[[str], str] | Sequence[Any]
"""A rule like those of sed (`s/^model\\.//`), a dict of old and new names, a function, or a list of
these, which are applied in order.
"""
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.I | re.A)
_WILD = re.compile(r"[*?\[]")
T = TypeVar("T")


def rule(text: str) -> Callable[[str], str]:
    """Returns the function of a rule like those of sed: `s/pattern/replacement/flags`.

    The delimiter may be another character than `/`. Flag `g` replaces every match, `i` ignores
    case. Patterns are regular expressions of Python; in the replacement `\\1` is a group and `&` is
    the whole match. Raises ValueError for an invalid rule.

    >>> rule("s/^model\\\\.//")("model.encoder.w"), rule("s#/#.#g")("a/b/c")
    ('encoder.w', 'a.b.c')
    >>> rule("s/([0-9]+)/<\\\\1>/")("layer_12")
    'layer_<12>'
    """
    delimiter = text[1:2]
    if text[:1] != "s" or not delimiter or delimiter.isalnum() or delimiter in "\\ \n":
        raise ValueError(f"invalid rename rule {text!r}: expected s/pattern/replacement/flags")
    fields = _split(text[2:], delimiter)
    if len(fields) != 3 or not set(fields[2]) <= set("gi"):
        raise ValueError(
            f"invalid rename rule {text!r}: expected 3 times {delimiter!r} and the flags g and i,"
            f" found {len(fields)} times {delimiter!r} and the flags {fields[-1]!r}"
        )
    pattern, replacement, flags = fields
    try:
        compiled = re.compile(pattern, re.I if "i" in flags else 0)
        template = _replacement(replacement)
        # An invalid replacement raises now, and not for the first name that matches.
        compiled.sub(template, "")
    except (re.error, IndexError) as error:
        raise ValueError(f"invalid rename rule {text!r}: {error}") from None
    count = 0 if "g" in flags else 1
    return lambda name: compiled.sub(template, name, count=count)


def _split(text: str, delimiter: str) -> list[str]:
    """The fields of a rule, split at each delimiter without a backslash. A delimiter with a
    backslash is a literal character, in the pattern too.
    """
    fields, index = [""], 0
    while index < len(text):
        if text[index] == "\\" and index + 1 < len(text):
            plain = re.escape(delimiter) if len(fields) == 1 else delimiter
            fields[-1] += plain if text[index + 1] == delimiter else text[index : index + 2]
            index += 2
        elif text[index] == delimiter:
            fields.append("")
            index += 1
        else:
            fields[-1] += text[index]
            index += 1
    return fields


def _replacement(text: str) -> str:
    """A replacement of sed as one of Python: `&` is the match, `\\1` a group, and any other
    character after a backslash is literal.
    """

    def word(match: re.Match[str]) -> str:
        token = match[0]
        if token == "&":
            return r"\g<0>"
        if token[1:].isdigit():
            return rf"\g<{token[1:]}>"
        return token[1:].replace("\\", r"\\") or r"\\"

    return re.sub(r"&|\\(?:[0-9]|.|$)", word, text, flags=re.A | re.S)


def renaming(rules: Rename | None) -> list[Callable[[str], str]]:
    """The rules as functions of a name."""
    if rules is None:
        return []
    if isinstance(rules, str):
        return [rule(rules)]
    if isinstance(rules, Mapping):
        return [_Mapped(rules)]
    if callable(rules):
        return [rules]
    return [function for item in rules for function in renaming(item)]


def names_from(path: str) -> dict[str, str]:
    """Reads a JSON file with an object of old names and new names."""
    with open(path, "rb") as file:
        text = file.read(DEFAULT.safetensors_header)
    try:
        names = jsontext.parse(text, "json")
    except DecodeError as error:
        raise error.add(path=path) from None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise SchemaError("expected a JSON object of old names and new names", path=path)
    return names


class _Mapped:
    """The function of a dict of names. Names that are not in the dict stay."""

    def __init__(self, names: Mapping[str, str]) -> None:
        if not all(isinstance(name, str) for pair in names.items() for name in pair):
            raise ValueError("the keys and values of a dict of names must be strings")
        self.names = dict(names)

    def __call__(self, name: str) -> str:
        return self.names.get(name, name)


def renamed(names: Sequence[str], rules: Rename | None) -> dict[str, str]:
    """Applies rules, and returns {old name: new name} in order. Raises SchemaError if two names
    become equal, or one becomes empty.

    >>> renamed(["model.a", "b"], "s/^model\\\\.//")
    {'model.a': 'a', 'b': 'b'}
    """
    new_names = {name: name for name in names}
    for function in renaming(rules):
        if isinstance(function, _Mapped) and (
            missing := [name for name in function.names if name not in new_names.values()]
        ):
            raise SchemaError(
                f"rename= names an unknown tensor {missing[0]!r}{choices(missing[0], names[:1000])}"
            )
        new_names = {name: function(new) for name, new in new_names.items()}
    taken: dict[str, str] = {}
    for old, new in new_names.items():
        if not isinstance(new, str) or not new:
            raise SchemaError(f"rename= turns {old!r} into {new!r}, which is not a name")
        if new in taken:
            raise SchemaError(
                f"{taken[new]!r} and {old!r} would both be called {new!r}", tensor=old
            )
        taken[new] = old
    return new_names


def chosen(
    names: Sequence[str], include: str | Iterable[str] | None, exclude: str | Iterable[str] | None
) -> list[str]:
    """The names that match a pattern of `include` (all names if it is None) and none of `exclude`.
    `*` matches `/`, too.

    >>> chosen(["encoder/w", "encoder/b", "decoder/w"], "encoder/*", ["*/b"])
    ['encoder/w']
    """
    wanted, unwanted = _patterns(include), _patterns(exclude) or []
    for pattern in wanted or []:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise SchemaError(f"no tensor matches {pattern!r}{choices(pattern, names[:1000])}")
    kept = [
        name
        for name in names
        if wanted is None or any(fnmatchcase(name, pattern) for pattern in wanted)
    ]
    return [name for name in kept if not any(fnmatchcase(name, pattern) for pattern in unwanted)]


def _patterns(given: str | Iterable[str] | None) -> list[str] | None:
    return None if given is None else [given] if isinstance(given, str) else list(given)


class NameRules(Generic[T]):
    """A setting for all names, or settings by pattern, of which the first match counts."""

    def __init__(
        self, given: T | Mapping[str, T] | None, names: Sequence[str], option: str
    ) -> None:
        self._all: T | None = None if isinstance(given, Mapping) else given
        self._by: Mapping[str, T] = given if isinstance(given, Mapping) else {}
        for pattern in self._by:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise SchemaError(
                    f"{option}=: no tensor matches {pattern!r}{choices(pattern, names[:1000])}"
                )

    def of(self, name: str) -> tuple[T | None, bool]:
        """The setting of a name, and whether the name is given exactly and not by a pattern."""
        if name in self._by:
            return self._by[name], True
        for pattern, setting in self._by.items():
            if fnmatchcase(name, pattern):
                return setting, _WILD.search(pattern) is None
        return self._all, False


def size(text: str | int) -> int:
    """A number of bytes, from a number or a text with a unit: 5GB is 5,000,000,000, 5GiB is 5 *
    2**30.

    >>> size("5GB"), size("512 MiB"), size(1000)
    (5000000000, 536870912, 1000)
    """
    if isinstance(text, int):
        nbytes = text
    else:
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"invalid size {text!r}: expected a number of bytes, or for example 5GB or 500MB"
            )
        nbytes = int(float(match[1]) * (1024 if match[3] else 1000) ** _UNITS[match[2].lower()])
    if nbytes < 1:
        raise ValueError(f"invalid size {text!r}: expected at least 1 byte")
    return nbytes
