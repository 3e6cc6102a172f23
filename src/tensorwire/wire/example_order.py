"""The order in which a deterministic protobuf writer puts the entries of a map."""

from __future__ import annotations

from collections.abc import Iterable


def key_order(names: Iterable[bytes]) -> list[bytes]:
    """Names as SerializeToString(deterministic=True) sorts them: by their bytes, but behind all
    that extend them.

    >>> key_order([b"image", b"a", b"image/height", b"aaa", b"aa", b""])
    [b'aaa', b'aa', b'a', b'image/height', b'image', b'']
    """
    # An end counts as more than any byte.
    return sorted(names, key=lambda name: [*name, 256])
