"""Immutable values: classes whose fields are set once."""

from __future__ import annotations

from typing import Any, TypeVar

_T = TypeVar("_T", bound="Frozen")


def trusted(kind: type[_T], *fields: Any) -> _T:
    """Create a value without validation, because the caller has established its invariants."""
    value = object.__new__(kind)
    value._set(*fields)
    return value


class Frozen:
    """A value whose fields, named by `__slots__`, are set once.

    Four frozen dataclasses would take a tenth of the package's import time.
    """

    __slots__: tuple[str, ...] = ()

    def _set(self, *fields: Any) -> None:
        for name, field in zip(self.__slots__, fields, strict=True):
            object.__setattr__(self, name, field)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return trusted, (type(self), *(getattr(self, name) for name in self.__slots__))
