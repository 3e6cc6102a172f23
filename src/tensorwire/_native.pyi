"""What each kernel promises. `wire/_pure/` has a readable twin of every one, with the same signature and the same results.

A kernel returns (status, offset, ...) and never raises for bad data; wire/protobuf.py turns a status into an error.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Scan = tuple[int, int, int, tuple[int, ...], bool, int, int, bool, int, int, tuple[int, ...]]

def register_dtype(dtype: np.dtype[Any], tf_enum: int, safetensors: str, writes: bool, checked: bool) -> None:
    """Adds a row of the dtype table (0 and "" for names that it lacks): `checked` types have bytes that are no value (bool, int4 ...)."""

def encode_dense(array: Any) -> bytes | None:
    """An ndarray as a TensorProto, exactly as TensorFlow writes it; None if it cannot be copied as it lies, or is past 2 GiB."""

def decode_dense(data: Any, copy: bool) -> Array | None:
    """The array of a TensorProto in TensorFlow's usual form, by the memory rules; None for any other form, valid or not."""

def encode_named(value: Any) -> bytes | None:
    """One array, or a dict of arrays, as a safetensors file; None if it needs more words than its names, or lies in another order."""

def decode_named(data: Any, copy: bool) -> Any:
    """The array, or dict of arrays, of a safetensors file with a plain header, by the memory rules; None for any other, valid or not."""

def named_header(names: list[str], arrays: list[Array], metadata: bytes) -> bytes | None:
    """The header of a safetensors file whose tensors are in the order of the file; None if a name or array is not plain."""

def read_named(data: Any, copy: bool) -> tuple[bytes, dict[str, Array]] | None:
    """(the JSON of the metadata or nothing, arrays by name) of a file with a plain header; None for any other, valid or not."""

def dense_header(dtype: int, shape: tuple[int, ...], content: int) -> bytes:
    """dtype, shape, and the content field's tag and length (none if `content` is negative)."""

def tensor_scan(data: Any, strict: bool, stop_at_strings: bool) -> Scan:
    """(status, offset, dtype, shape, unknown_rank, name offset, name size, has content, content offset, content size, values by field)."""

def typed_vals(data: Any, field: int, strict: bool, width: int, lowest: int, highest: int, room: int) -> tuple[int, int, int, Array]:
    """(status, offset, count, uint8 array of width * room): the values of one typed field, in the tensor's own width."""

def string_vals(prefix: Any, data: Any, offsets: Array) -> bytes:
    """`prefix`, then each string as a string_val field."""

def string_lengths(prefix: Any, data: Any, offsets: Array) -> bytes:
    """`prefix`, then the length of each string as a varint."""

def parse_string_vals(data: Any, start: int, only_strings: bool, n: int, room: int) -> tuple[int, int, int, int, Array, Array]:
    """(status, offset, count, used, data, offsets): up to n strings of at most `room` bytes in all, copied."""

def find_string_vals(data: Any, start: int, only_strings: bool, n: int) -> tuple[int, int, int, Array, Array]:
    """(status, offset, count, starts, sizes): where up to n strings lie."""

def parse_string_lengths(data: Any, n: int) -> tuple[int, int, Array]:
    """(status, offset, offsets): where the bytes of n strings begin in a tensor_content, and their offsets from there."""

def join(chunks: list[Any]) -> bytes:
    """All chunks in one bytes object."""

def crc32c(data: Any, value: int = 0) -> int:
    """CRC32C, continued from `value`."""

def crc32c_software(data: Any, value: int = 0) -> int:
    """The same without the CRC instructions, for the tests."""
