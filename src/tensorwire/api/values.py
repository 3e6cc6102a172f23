"""The verbs for bytes, `dumps loads buffers`, and for writing files, `save`. They choose the codec
and move the bytes.
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
"""One native step for plain arrays, by format; None for anything that is not plain, which then goes
through the codec.
"""


def formats() -> dict[str, Format]:
    """Every format there is, by name: what it is for, whether `loads` recognises it, its file
    suffixes.

    >>> list(formats())
    ['safetensors', 'tensorproto', 'npy', 'npz', 'arrow', 'parquet', 'protobuf', 'json',
    'checkpoint', 'keras', 'example', 'raw']
    """
    return dict(TENSOR_FORMATS)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What `dumps`, `buffers` and `save` may be asked for, whatever the format."""

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
    """The format's own options."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> WriteOptions:
        """From the keywords of a call."""
        shared = {name: option for name, option in options.items() if name in PACKING_OPTIONS}
        own = {name: option for name, option in options.items() if name not in shared}
        return cls(**shared, own=own)


@spelled(signatures.buffers)
def buffers(value: object, format: str = DEFAULT_FORMAT, **options: Any) -> list[Any]:
    """The bytes of `dumps` as a list of buffers, large data not copied: they are the tensor's own
    memory, so send them before changing it.

    >>> import numpy as np
    >>> [len(part) for part in buffers(np.zeros(1_000_000, np.float32), "tensorproto")]
    [15, 4000000]
    """
    return encode(value, format, options)


def encode(value: object, format: str, options: Mapping[str, Any]) -> list[Any]:
    """`buffers`, with the options as one mapping."""
    if not options:
        if format in _FAST and _is_small(value):
            whole = _FAST[format][0](value)
            if whole is not None:
                return [whole]
        return codec(format, {}).encode(value)
    asked = WriteOptions.of(options)
    own, stream = compressing(
        format, asked.compression, asked.level, asked.threads, asked.per_tensor, asked.shuffle
    )
    encoder, expanded = codec(format, {**asked.own, **own}), 0
    if asked.keep_device:
        value = frameworks.tensor(value, keep_device=True)
    if asked.quantize:
        from ..transforms.quantization import tree

        value = tree.quantized(value, asked.quantize, asked.axis, asked.nonfinite)
        expanded = tree.expanded(value)
        if "packing" in own:
            packing = replace(own["packing"], expanded=expanded)
            encoder = codec(format, {**asked.own, "packing": packing})
    elif asked.axis is not None or asked.nonfinite != "raise":
        raise TypeError("axis= and nonfinite= say how to quantize=, which is not there")
    chunks = _encode(encoder, value, asked.metadata, asked.drop_metadata)
    if stream is None:
        return chunks
    from ..transforms.compression.oneshot import compress

    return list(compress(chunks, stream, asked.level, asked.threads, expanded))


def compressing(
    format: str,
    compression: str | None,
    level: int | None,
    threads: int | None,
    per_tensor: bool,
    shuffle: bool,
) -> tuple[dict[str, Any], str | None]:
    """(options of a codec that compresses by itself, the whole or each tensor; the compression of
    the stream that it writes)
    """
    if compression is None and (per_tensor or level is not None or threads is not None):
        raise TypeError(
            "level=, threads= and per_tensor= say how to compress; name a compression= with them"
        )
    row = TENSOR_FORMATS.get(format)
    if row is not None and (per_tensor or shuffle) and not row.packs:
        able = ", ".join(row.name for row in TENSOR_FORMATS.values() if row.packs)
        raise EncodeError(
            f"{'per_tensor' if per_tensor else 'shuffle'}=True is for formats that can say so to a"
            f" reader: {able}",
            format=format,
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
    # Bundle checks that metadata are text.
    return codec.encode(value, Bundle({}, metadata).metadata if metadata else None)


def _is_small(value: Any) -> bool:
    """Whether all arrays would be copied next to their header anyway, so that one buffer is best."""
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
    """Any tensor, of any framework, or nested dicts, lists and tuples of them, as bytes.

    `compression` ("gzip", "zlib", "zstd", "lz4", "snappy", with a `level` and `threads`) is for the
    whole stream, or with `per_tensor=True` for each tensor alone, which stays lazy; `shuffle=True`
    sorts the bytes of numbers by their place first. `quantize` ("int8", "bfloat16" ..., or a scheme
    by name) stores floats in fewer bits, along an `axis` or not; see docs/quantization.md.

    `metadata={...}` adds text, where the format keeps it (or pass a Bundle); `drop_metadata=True`
    leaves all such text out. `keep_device=True` writes a Bundle that also says each tensor's device
    and name. Other options are the format's own (docs/formats.md).

    >>> import numpy as np
    >>> loads(dumps({"x": np.float32([1, 2]), "step": 7}))
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
    """The value that `dumps` wrote, or that TensorFlow, NumPy, PyArrow or safetensors did.

    Without `format` it is recognised from the bytes; for bytes from strangers name it (a tuple
    allows several). So is the compression (gzip, zstd, lz4), but never zlib and snappy. Arrays are
    read-only, views of `data` where it is aligned; `copy=True` gives writable ones, `copy=False`
    demands views. `to`, `device`, `cast` are those of `tw.to`. What was quantized comes back as
    floats; `dequantize=False` gives the codes (`tw.Quantized`).

    >>> import numpy as np
    >>> loads(dumps(np.int64([1, 2]), "tensorproto"))
    array([1, 2])
    """
    plain = limits is None and not options and device is None and compression is None and dequantize
    try:
        if plain and to == "numpy" and copy is not False and (format is None or format in _FAST):
            # TensorFlow's usual message begins with 08 dtype 12, which no other format that we
            # recognise does, so trying it first is safe.
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
    if copy is None and to in ("torch", "jax"):
        copy = True  # they take no read-only memory, and would copy it again
    budget = (limits or DEFAULT).call(len(view))
    packed = compression or compression_of(view, format)
    if packed is not None:
        if copy is False:
            raise DecodeError(
                f"copy=False, but the bytes are compressed ({packed}); leave copy out",
                format=packed,
                offset=0,
            )
        view = decompress(view, packed, budget)
    value = decode(view, format, copy, budget, options)
    if dequantize and has_codes(value):
        from ..transforms.quantization import tree

        value = tree.dequantized(value, copy is True, budget)
    return value if to == "numpy" and device is None else frameworks.each(value, to, device, cast)


def decode_plain(data: bytes, format: Allowed, compression: str | None) -> Any:
    """The value of bytes that are plain tensors, in one native step and in memory of its own; None
    for anything else.
    """
    if compression is not None or not (format is None or format in _FAST):
        return None
    if format is None:
        value = kernels.decode_dense(data, True)
        return kernels.decode_named(data, True) if value is None else value
    return _FAST[format][1](data, True)


def _not_bytes(data: Any) -> UsageError:
    """The error for something else than bytes, with the call that takes it."""
    hint: str | None
    if isinstance(data, str) and data.lstrip()[:1] in ("{", "["):
        hint = "JSON text is read by tw.loads(text.encode())"
    elif isinstance(data, (str, os.PathLike)):
        hint = "a file is read by tw.load(path)"
    elif hasattr(data, "read"):
        hint = "a file object is read by tw.load(file), a stream of tw.write by tw.read(stream)"
    else:
        hint = "pass bytes(x)" if hasattr(data, "tobytes") else None
    return UsageError(
        f"loads takes bytes or another contiguous buffer, not {type(data).__name__}", hint=hint
    )


@spelled(signatures.save)
def save(
    where: Any, value: Any, format: str | None = None, *, durable: bool = True, **options: Any
) -> None:
    """Writes a value to a file, whole or not at all, or to a binary file object.

    The format is the one that the name asks for, unless given, and so is the compression
    (`x.safetensors.zst`). A file is replaced through a temporary sibling, fsync and rename: a
    reader sees the old or the new one, and so does whoever comes after a crash; `durable=False`
    skips the fsync. Options are those of `dumps`.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/x.safetensors", {"x": np.arange(3)}, metadata={"model": "nmt-v2"})
    ...     os.path.getsize(f"{folder}/x.safetensors")
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
            hint="the path comes first: tw.save(path, value)" if swapped else None,
        )
    try:
        name = format or format_of(where)
        chunks = encode(value, name, as_named(where, name, options))
        if name in TENSOR_FORMATS and TENSOR_FORMATS[name].files:
            from ..codecs.checkpoint.writer import write_files

            if options.get("compression"):
                raise EncodeError(
                    "TensorFlow reads no compressed checkpoints; tw.dumps compresses anything",
                    format=name,
                )
            if storage.is_url(where):
                raise EncodeError(
                    "a checkpoint is several files, which are written to a local folder",
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
    """The options with the compression that a file's name asks for."""
    _, named = by_name(path)
    if named is None:
        return options
    given = options.get("compression", named)
    if given != named or options.get("per_tensor"):
        raise EncodeError(
            f"the name asks for a stream of {named}, the options for something else; leave its last"
            " suffix out",
            format=format,
        )
    if format in TENSOR_FORMATS and TENSOR_FORMATS[format].compressions:
        raise EncodeError(
            f"{format} compresses by itself: leave the last suffix out, and pass compression=",
            format=format,
        )
    return {**options, "compression": named}


# For callers inside the package, which pass on any text as a format and any options.
untyped_dumps: Callable[..., bytes] = dumps
untyped_loads: Callable[..., Any] = loads
untyped_save: Callable[..., None] = save
