"""Encoding of values to bytes and files: `dumps`, `loads`, `buffers` and `save`. They choose the
codec, and apply compression and quantization.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import frameworks, storage
from .._errors import DecodeError, EncodeError, TensorwireError, UsageError
from .._limits import DEFAULT, Limits
from ..codecs import TENSOR_FORMATS, Format
from ..codecs.identify import Allowed, by_name, compression_of, format_of
from ..codecs.opening import PACKING_OPTIONS, codec, decode, decompress
from ..codecs.protocol import TensorFormat
from ..core import memory
from ..core.literals import Nonfinite
from ..core.memory import Buffer
from ..core.quantized import has_codes
from ..core.tensors import Bundle
from ..storage import files
from ..wire import kernels
from . import signatures
from .signatures import spelled

DEFAULT_FORMAT = "safetensors"
_FAST = {
    "safetensors": (kernels.encode_named, kernels.decode_named),
    "tensorproto": (kernels.encode_dense, kernels.decode_dense),
}
"""Native functions that encode and decode plain arrays in one step, by format. They return None for
any other value, which then goes through the codec.
"""


def formats() -> dict[str, Format]:
    """Returns all tensor formats by name, with their purpose and file extensions.

    >>> import tensorwire as tw
    >>> list(tw.formats())
    ['safetensors', 'tensorproto', 'npy', 'npz', 'arrow', 'parquet', 'protobuf', 'json',
    'checkpoint', 'keras', 'example', 'raw']
    """
    return dict(TENSOR_FORMATS)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of `dumps`, `buffers` and `save` that all formats share."""

    compression: str | None = None
    level: int | None = None
    threads: int | None = None
    per_tensor: bool = False
    shuffle: bool = False
    quantize: Any = None
    axis: int | None = None
    nonfinite: Nonfinite = "raise"
    metadata: Mapping[str, str] | None = None
    drop_metadata: bool = False
    keep_device: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)
    """The options of the format."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> WriteOptions:
        """The options from the keywords of a call."""
        shared = {name: option for name, option in options.items() if name in PACKING_OPTIONS}
        own = {name: option for name, option in options.items() if name not in shared}
        return cls(**shared, own=own)


@spelled(signatures.buffers)
def buffers(value: object, format: str = DEFAULT_FORMAT, **options: Any) -> list[Any]:
    """Encodes a value like `dumps`, and returns a list of buffers without copying large tensors.

    Large buffers are the memory of the tensors, so send or write them before you change a tensor.
    Options and errors are those of `dumps`.

    >>> import numpy as np, tensorwire as tw
    >>> [len(part) for part in tw.buffers(np.zeros(1_000_000, np.float32), "tensorproto")]
    [15, 4000000]
    """
    return encode(value, format, options)


def encode(value: object, format: str, options: Mapping[str, Any]) -> list[Any]:
    """`buffers` with the options as one mapping."""
    if not options:
        if format in _FAST and _is_small(value):
            whole = _FAST[format][0](value)
            if whole is not None:
                return [whole]
        return codec(format, {}).encode(value)
    chosen = WriteOptions.of(options)
    own, stream = compressing(
        format, chosen.compression, chosen.level, chosen.threads, chosen.per_tensor, chosen.shuffle
    )
    encoder, expanded = codec(format, {**chosen.own, **own}), 0
    if chosen.keep_device:
        value = frameworks.tensor(value, keep_device=True)
    if chosen.quantize:
        from ..transforms.quantization import tree

        value = tree.quantized(value, chosen.quantize, chosen.axis, chosen.nonfinite)
        # A reader's limits hold for the dequantized size, which the compressor has to know.
        expanded = tree.expanded(value)
        if "packing" in own:
            packing = replace(own["packing"], expanded=expanded)
            encoder = codec(format, {**chosen.own, "packing": packing})
    elif chosen.axis is not None or chosen.nonfinite != "raise":
        raise TypeError("axis= and nonfinite= need quantize=")
    chunks = _encode(encoder, value, chosen.metadata, chosen.drop_metadata)
    if stream is None:
        return chunks
    from ..transforms.compression.oneshot import compress

    return list(compress(chunks, stream, chosen.level, chosen.threads, expanded))


def compressing(
    format: str,
    compression: str | None,
    level: int | None,
    threads: int | None,
    per_tensor: bool,
    shuffle: bool,
) -> tuple[dict[str, Any], str | None]:
    """(the compression options of the codec, the compression of the whole stream that it writes)

    Some formats compress by themselves, and some compress each tensor; all others are compressed as
    a whole.
    """
    if compression is None and (per_tensor or level is not None or threads is not None):
        raise TypeError("level=, threads= and per_tensor= need compression=")
    row = TENSOR_FORMATS.get(format)
    if row is not None and (per_tensor or shuffle) and not row.packs:
        able = ", ".join(row.name for row in TENSOR_FORMATS.values() if row.packs)
        option = "per_tensor" if per_tensor else "shuffle"
        raise EncodeError(
            f"{format} does not support {option}=True",
            format=format,
            hint=f"formats that support it: {able}",
        )
    if per_tensor or shuffle:
        from ..transforms.compression.packing import Packing

        if per_tensor:
            return {"packing": Packing(compression, level, threads, shuffle)}, None
        return {"packing": Packing(None, None, threads, shuffle)}, compression
    if compression is not None and row is not None and row.compressions:
        return {"compression": compression} | ({} if level is None else {"level": level}), None
    return {}, compression


def _encode(
    codec: TensorFormat, value: Any, metadata: Mapping[str, str] | None, drop_metadata: bool
) -> list[Buffer]:
    if drop_metadata:
        return codec.encode(Bundle(value) if isinstance(value, Bundle) else value)
    if metadata and isinstance(value, Bundle):
        texts = {**value.metadata, **metadata}
        return codec.encode(Bundle(value, texts, value.tensor_metadata))
    # Bundle checks that the metadata is text.
    return codec.encode(value, Bundle({}, metadata).metadata if metadata else None)


def _is_small(value: Any) -> bool:
    """Whether all arrays are so small that they are copied next to their header anyway. Then one
    buffer is best.
    """
    if type(value) is not dict:
        return type(value) is np.ndarray and value.nbytes <= memory.INLINE
    total = 0
    for item in value.values():
        if type(item) is not np.ndarray:
            return False
        total += item.nbytes
    return total <= memory.INLINE * len(value)


@spelled(signatures.dumps)
def dumps(value: Any, format: str = DEFAULT_FORMAT, **options: Any) -> bytes:
    """Encodes a tensor of any framework, or nested dicts, lists and tuples of them, as bytes.

    compression   "gzip", "zlib", "zstd", "lz4" or "snappy" for all bytes, with a `level` and
                  `threads`
    per_tensor    compresses each tensor separately, so that files can be read lazily
    shuffle       groups the bytes of numbers by significance, so that they compress better
    quantize      stores floats in fewer bits: "int8", "bfloat16" ..., or a dict of schemes by
                  name, along `axis`; see docs/quantization.md
    metadata      text metadata, for formats that have it (or pass a `tw.Bundle`)
    drop_metadata leaves all text metadata out
    keep_device   adds the device and name of each tensor to the metadata

    Other options are those of the format (docs/formats.md). Raises `EncodeError` if the format
    cannot hold the value, and `UnknownFormatError`.

    >>> import numpy as np, tensorwire as tw
    >>> tw.loads(tw.dumps({"x": np.float32([1, 2]), "step": 7}))
    {'x': array([1., 2.], dtype=float32), 'step': 7}
    """
    if not options and format in _FAST:
        whole = _FAST[format][0](value)
        if whole is not None:
            return whole
    chunks = encode(value, format, options)
    return chunks[0] if len(chunks) == 1 and type(chunks[0]) is bytes else kernels.join(chunks)


@spelled(signatures.loads)
def loads(
    data: Any,
    format: str | tuple[str, ...] | None = None,
    compression: str | None = None,
    *,
    to: str = "numpy",
    device: Any = None,
    cast: bool = False,
    copy: bool | None = None,
    dequantize: bool = True,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """Decodes bytes of `dumps`, or of TensorFlow, NumPy, PyArrow or safetensors.

    format      recognized from the bytes by default; name it for untrusted bytes (a tuple allows
                several formats)
    compression gzip, zstd and lz4 are recognized; zlib and snappy must be named
    copy        by default arrays are read-only views of `data` where it is aligned; True returns
                writable copies, False raises if a copy would be needed
    to, device, cast  those of `tw.to`
    dequantize  False returns quantized tensors as `tw.Quantized` instead of floats

    Other options are those of the format. Raises `DecodeError` for invalid bytes (`TruncatedError`,
    `ChecksumError` or `LimitError` where that is known), `UnknownFormatError` if the format is not
    recognized, and `UsageError` for an argument that is not bytes.

    >>> import numpy as np, tensorwire as tw
    >>> tw.loads(tw.dumps(np.int64([1, 2]), "tensorproto"))
    array([1, 2])
    """
    plain = limits is None and not options and device is None and compression is None and dequantize
    try:
        if plain and to == "numpy" and copy is not False and (format is None or format in _FAST):
            # A usual TensorProto begins with 08 dtype 12, and no other format that we recognize
            # does, so it is safe to try it first.
            value = (
                kernels.decode_dense(data, copy is True)
                if format is None
                else _FAST[format][1](data, copy is True)
            )
            if value is None and format is None:
                value = kernels.decode_named(data, copy is True)
            if value is not None:
                return value
        view = memory.flat(data)
    except (TypeError, ValueError, BufferError) as error:
        if isinstance(error, TensorwireError):
            raise
        raise _not_bytes(data) from None
    # torch and JAX do not take read-only memory, and would copy it again.
    if copy is None and to in ("torch", "jax"):
        copy = True
    budget = (limits or DEFAULT).call(len(view))
    packed = compression or compression_of(view, format)
    if packed is not None:
        if copy is False:
            raise DecodeError(
                f"copy=False, but the bytes are compressed ({packed})",
                format=packed,
                offset=0,
                hint="leave copy= out",
            )
        view = decompress(view, packed, budget)
    value = decode(view, format, copy, budget, options)
    if dequantize and has_codes(value):
        from ..transforms.quantization import tree

        value = tree.dequantized(value, copy is True, budget)
    return value if to == "numpy" and device is None else frameworks.each(value, to, device, cast)


def decode_plain(data: bytes, format: Allowed, compression: str | None) -> Any:
    """Decodes plain tensors in one native step, into new memory; None for any other bytes."""
    if compression is not None or not (format is None or format in _FAST):
        return None
    if format is None:
        value = kernels.decode_dense(data, True)
        return kernels.decode_named(data, True) if value is None else value
    return _FAST[format][1](data, True)


def _not_bytes(data: Any) -> UsageError:
    """The error for an argument that is not bytes, with a hint for the call that takes it."""
    hint: str | None
    if isinstance(data, str) and data.lstrip()[:1] in ("{", "["):
        hint = "for JSON text use tw.loads(text.encode())"
    elif isinstance(data, (str, os.PathLike)):
        hint = "for a file use tw.load(path)"
    elif hasattr(data, "read"):
        hint = "for a file object use tw.load(file), for a stream of tw.write use tw.read(stream)"
    else:
        hint = "pass bytes(x)" if hasattr(data, "tobytes") else None
    return UsageError(
        f"loads takes bytes or another contiguous buffer, not {type(data).__name__}", hint=hint
    )


@spelled(signatures.save)
def save(
    where: Any, value: Any, format: str | None = None, *, durable: bool = True, **options: Any
) -> None:
    """Writes a value to a file, complete or not at all, or to a binary file object.

    By default the name of the file says the format and the compression (`x.safetensors.zst`). A
    file is replaced with a temporary file, fsync and rename: readers see the old file or the new
    one, also after a crash. `durable=False` skips the fsync. Other options are those of `dumps`.

    Raises `EncodeError` if the format cannot hold the value, `UnknownFormatError` if the format is
    unknown, and `UsageError` if `where` is not a path or a file object.

    >>> import os, tempfile, numpy as np, tensorwire as tw
    >>> path = f"{tempfile.mkdtemp()}/x.safetensors"
    >>> tw.save(path, {"x": np.arange(3)}, metadata={"model": "nmt-v2"})
    >>> os.path.getsize(path)
    152
    """
    if hasattr(where, "write"):
        files.check_binary(where, "wb")
        for part in encode(value, format or DEFAULT_FORMAT, options):
            files.write_all(where, part)
        return
    if not isinstance(where, (str, os.PathLike)):
        swapped = isinstance(value, (str, os.PathLike)) or hasattr(value, "write")
        raise UsageError(
            f"save writes to a path or a binary file object, not to {type(where).__name__}",
            hint="pass the path first: tw.save(path, value)" if swapped else None,
        )
    try:
        name = format or format_of(where)
        chunks = encode(value, name, as_named(where, name, options))
        if name in TENSOR_FORMATS and TENSOR_FORMATS[name].files:
            from ..codecs.checkpoint.writer import write_files

            if options.get("compression"):
                raise EncodeError(
                    "checkpoints cannot be compressed: TensorFlow does not read them",
                    format=name,
                    hint="leave compression= out",
                )
            if storage.is_url(where):
                raise EncodeError(
                    "a checkpoint is several files, and can only be written to a local folder",
                    format=name,
                )
            write_files(os.fspath(where), chunks, durable)
        elif storage.is_url(where):
            with storage.writer(os.fspath(where)) as file:
                for chunk in chunks:
                    file.write(chunk)
        else:
            files.replace(where, chunks, durable)
    except TensorwireError as error:
        raise error.add(path=os.fspath(where)) from None


def as_named(path: str | os.PathLike[str], format: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options with the compression that the name of a file says."""
    _, named = by_name(path)
    if named is None:
        return options
    given = options.get("compression", named)
    if given != named or options.get("per_tensor"):
        option = "per_tensor=True" if given == named else f"compression={given!r}"
        raise EncodeError(
            f"the name of the file says {named}, which contradicts {option}",
            format=format,
            hint="leave out the last extension",
        )
    if format in TENSOR_FORMATS and TENSOR_FORMATS[format].compressions:
        raise EncodeError(
            f"{format} compresses by itself, and cannot be compressed with {named} as a whole",
            format=format,
            hint="leave out the last extension, and pass compression=",
        )
    return {**options, "compression": named}


# The same functions for callers in the package, which pass any text as a format and any options.
untyped_dumps: Callable[..., bytes] = dumps
untyped_loads: Callable[..., Any] = loads
untyped_save: Callable[..., None] = save
