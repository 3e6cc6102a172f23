"""Serialized Examples, made by hand."""

from support.protos import block, signed


def entry(name, *features):
    return block(1, block(1, name) + b"".join(block(2, feature) for feature in features))


def ints(*values):
    return block(3, block(1, b"".join(map(signed, values))))


def example(*entries):
    return block(1, b"".join(entries))
