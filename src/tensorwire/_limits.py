"""Every ceiling on what untrusted bytes may make us allocate, named, with its default."""

from __future__ import annotations

from dataclasses import dataclass

MiB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What bytes from a stranger may ask for. Pass `limits=` to any reading function.

    >>> Limits(record=4 << 30).record
    4294967296
    """

    tensor: int = 2048 * MiB
    """Bytes of one tensor that the input does not itself carry (varints that widen, offsets of strings)."""
    splat: int = 64 * MiB
    """Bytes that one repeated value may become ..."""
    splat_ratio: int = 1024
    """... or this many times the input, if that is more."""
    record: int = 1024 * MiB
    """Bytes of one record, or of one value on a stream."""
    ratio: int = 200
    """How many times its own size compressed data may become ..."""
    ratio_from: int = 16 * MiB
    """... once it is more than this many bytes."""
    safetensors_header: int = 100_000_000
    npy_header: int = 64 << 10
    json_depth: int = 64
    """How deep lists and dicts may nest."""
    names: int = 1_000_000
    """Tensors in one container."""
    answer: int = 256 * MiB
    """Bytes of a server's answer, as they come and unpacked."""


DEFAULT = Limits()
