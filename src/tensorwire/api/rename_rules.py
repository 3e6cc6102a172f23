"""What a conversion is asked to do with names: rules that rename, patterns that choose, and sizes
as people write them.
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
"""A rule like sed's (`s/^model\\.//`), names by name, a function, or several of them, one after the
other.
"""
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.I | re.A)
_WILD = re.compile(r"[*?\[]")
T = TypeVar("T")


def rule(text: str) -> Callable[[str], str]:
    """A rule like sed's: `s/pattern/replacement/flags`, with any delimiter. `g` replaces every
    match, `i` takes no notice of case.

    Patterns are Python's; in the replacement `\\1` is a group and `&` the whole match.

    >>> rule("s/^model\\\\.//")("model.encoder.w"), rule("s#/#.#g")("a/b/c"), rule("s/([0-9]+)/<\\\\1>/")("layer_12")
    ('encoder.w', 'a.b.c', 'layer_<12>')
    """
    delimiter = text[1:2]
    if text[:1] != "s" or not delimiter or delimiter.isalnum() or delimiter in "\\ \n":
        raise ValueError(
            f"{text!r} is no rule; a rule is s/pattern/replacement/ with flags g and i behind it"
        )
    fields = _split(text[2:], delimiter)
    if len(fields) != 3 or not set(fields[2]) <= set("gi"):
        raise ValueError(
            f"{text!r} is no rule: it has {len(fields) - 1} more {delimiter!r} and not 2, or other"
            " flags than g and i"
        )
    pattern, replacement, flags = fields
    try:
        found = re.compile(pattern, re.I if "i" in flags else 0)
        written = _replacement(replacement)
        found.sub(written, "")  # which says now what is wrong with it
    except (re.error, IndexError) as error:
        raise ValueError(f"{text!r} is no rule: {error}") from None
    count = 0 if "g" in flags else 1
    return lambda name: found.sub(written, name, count=count)


def _split(text: str, delimiter: str) -> list[str]:
    """At each delimiter that has no backslash. One that has is itself and no more, in the pattern
    too.
    """
    fields, at = [""], 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            plain = re.escape(delimiter) if len(fields) == 1 else delimiter
            fields[-1] += plain if text[at + 1] == delimiter else text[at : at + 2]
            at += 2
        elif text[at] == delimiter:
            fields.append("")
            at += 1
        else:
            fields[-1] += text[at]
            at += 1
    return fields


def _replacement(text: str) -> str:
    """sed's words in Python's: `&` is the match, `\\1` a group, and any other character behind a
    backslash is itself.
    """

    def word(match: re.Match[str]) -> str:
        found = match[0]
        if found == "&":
            return r"\g<0>"
        if found[1:].isdigit():
            return rf"\g<{found[1:]}>"
        return found[1:].replace("\\", r"\\") or r"\\"

    return re.sub(r"&|\\(?:[0-9]|.|$)", word, text, flags=re.A | re.S)


def renaming(rules: Rename | None) -> list[Callable[[str], str]]:
    """The rules as functions, each with what it says of names that it does not know."""
    if rules is None:
        return []
    if isinstance(rules, str):
        return [rule(rules)]
    if isinstance(rules, Mapping):
        return [_Mapped(rules)]
    if callable(rules):
        return [rules]
    return [one for item in rules for one in renaming(item)]


def names_from(path: str) -> dict[str, str]:
    """New names by old name, from a file with a JSON object of them."""
    with open(path, "rb") as file:
        text = file.read(DEFAULT.safetensors_header)
    try:
        found = jsontext.parse(text, "json")
    except DecodeError as error:
        raise error.add(path=path) from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise SchemaError("a file of names is a JSON object, old name to new name", path=path)
    return found


class _Mapped:
    """Names by name; others stay."""

    def __init__(self, names: Mapping[str, str]) -> None:
        if not all(isinstance(name, str) for pair in names.items() for name in pair):
            raise ValueError("a mapping of names has text on both sides")
        self.names = dict(names)

    def __call__(self, name: str) -> str:
        return self.names.get(name, name)


def renamed(names: Sequence[str], rules: Rename | None) -> dict[str, str]:
    """Old name -> new name, in order; two that become one are an error that names both.

    >>> renamed(["model.a", "b"], "s/^model\\\\.//")
    {'model.a': 'a', 'b': 'b'}
    """
    found = {name: name for name in names}
    for work in renaming(rules):
        if isinstance(work, _Mapped) and (
            missing := [name for name in work.names if name not in found.values()]
        ):
            raise SchemaError(
                f"the names to change have {missing[0]!r}, and no tensor is called"
                f" so{choices(missing[0], names[:1000])}"
            )
        found = {name: work(now) for name, now in found.items()}
    taken: dict[str, str] = {}
    for old, new in found.items():
        if not isinstance(new, str) or not new:
            raise SchemaError(f"{old!r} would have no name: the rules leave {new!r}")
        if new in taken:
            raise SchemaError(
                f"{taken[new]!r} and {old!r} would both be called {new!r}", tensor=old
            )
        taken[new] = old
    return found


def chosen(
    names: Sequence[str], include: str | Iterable[str] | None, exclude: str | Iterable[str] | None
) -> list[str]:
    """The names that a pattern of `include` fits (all, if there is none) and none of `exclude`. `*`
    goes over `/` too.

    >>> chosen(["encoder/w", "encoder/b", "decoder/w"], "encoder/*", ["*/b"])
    ['encoder/w']
    """
    wanted, unwanted = _patterns(include), _patterns(exclude) or []
    for pattern in wanted or []:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise SchemaError(
                f"no tensor is called like {pattern!r}{choices(pattern, names[:1000])}"
            )
    kept = [
        name
        for name in names
        if wanted is None or any(fnmatchcase(name, pattern) for pattern in wanted)
    ]
    return [name for name in kept if not any(fnmatchcase(name, pattern) for pattern in unwanted)]


def _patterns(given: str | Iterable[str] | None) -> list[str] | None:
    return None if given is None else [given] if isinstance(given, str) else list(given)


class NameRules(Generic[T]):
    """One answer for all names, or one by pattern, of which the first that fits counts."""

    def __init__(self, given: T | Mapping[str, T] | None, names: Sequence[str], what: str) -> None:
        self._all: T | None = None if isinstance(given, Mapping) else given
        self._by: Mapping[str, T] = given if isinstance(given, Mapping) else {}
        for pattern in self._by:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise SchemaError(
                    f"{what}= has {pattern!r}, and no tensor is called"
                    f" so{choices(pattern, names[:1000])}"
                )

    def of(self, name: str) -> tuple[T | None, bool]:
        """The answer, and whether the tensor was named and not only met by a pattern."""
        if name in self._by:
            return self._by[name], True
        for pattern, answer in self._by.items():
            if fnmatchcase(name, pattern):
                return answer, _WILD.search(pattern) is None
        return self._all, False


def size(text: str | int) -> int:
    """Bytes: a number, or with a unit as the hubs write it (5GB is 5,000,000,000, 5GiB is 5 *
    2**30).

    >>> size("5GB"), size("512 MiB"), size(1000)
    (5000000000, 536870912, 1000)
    """
    if isinstance(text, int):
        found = text
    else:
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no size; write 5GB, 500MB or a number of bytes")
        found = int(float(match[1]) * (1024 if match[3] else 1000) ** _UNITS[match[2].lower()])
    if found < 1:
        raise ValueError(f"a size of {found} bytes; at least one is needed")
    return found
