"""Identification: the format, compression and kind of a path, URL, folder, pattern, list or bytes.

This is the only module that interprets file names and first bytes. Every public call asks
`identify` once. The kind of an input is "tensors", "rows" or "model". The rules, in order:

1. A format that the caller names is taken as given. A tuple of formats restricts the results of the
   other rules.
2. A list of paths, a pattern, and a folder of shards hold rows.
3. A folder with a SavedModel is a model. One with a `checkpoint` file, or with the variables of a
   SavedModel, is a checkpoint. One with a tensorwire manifest, or with files of rows, is a dataset.
4. A path without a file is a checkpoint if `PATH.index` exists.
5. A name that ends in `.safetensors.index.json` is a model in several files. `PREFIX.index` and
   `PREFIX.data-00000-of-00001` are a checkpoint.
6. A file with the suffix of a record file holds rows. So does a file that starts with the header of
   a record, compressed or not.
7. Any other file has the format of its first bytes, or that of its suffix if the bytes are not
   recognised (docs/formats.md lists the order of the checks).

The strategy for bytes (`recognise`), which never reads past the first 64:

1. Magic numbers come first, since no other format can begin with them.
2. safetensors has no magic number: the header size must be plausible and "{" must follow.
3. A TensorProto begins with its dtype field, and the dtype must exist. JSON begins with "{" or "[".
4. A record header comes last: its masked CRC32C makes an accidental match unlikely.

The first bytes are read, and interpreted, when a property of the result is first used: `load` of a
plain file with a known format needs neither.
"""

from __future__ import annotations

import glob
import os
import re
from typing import Literal, NamedTuple

from .. import storage
from .._errors import DecodeError, TensorwireError, TruncatedError, UnknownFormatError
from .._limits import DEFAULT
from ..core import dtypes, memory
from ..records.paths import BOOKS
from ..storage import files
from ..wire import tfrecord
from . import FORMATS

Kind = Literal["tensors", "rows", "model"]
Layout = Literal["bytes", "file", "files", "folder", "pattern", "list"]
Allowed = str | tuple[str, ...] | None
"""One format, a tuple of allowed formats, or None for any format."""

HEAD = 64
"""The number of first bytes that is enough to recognise a format, if the total size is known."""
HUB_INDEX = ".safetensors.index.json"
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb")
_SMALL = 8 << 10
"""Files up to this size are read whole when their first bytes are needed."""
_PEEK = 1 << 16
"""The number of compressed bytes that is enough to decompress the first `HEAD` bytes."""
_MAGICS = {
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    # An empty zip has only the end of its central directory.
    b"PK\x05\x06": "npz",
    b"ARROW1\0\0": "arrow",
    # An Arrow stream begins with the continuation marker of its first message.
    b"\xff\xff\xff\xff": "arrow",
    b"PAR1": "parquet",
    b"\x0a\x0ctensorwire/1": "protobuf",
    b"\x89HDF\r\n\x1a\n": "keras",
}
_COMPRESSED = {bytes([byte]) for byte in (0x1F, 0x28, 0x04, *range(0x50, 0x60))}
"""First bytes of gzip, zstd, lz4 and of the skippable frames of zstd and lz4. With any other first
byte the compression modules need not be imported.
"""
_JSON = b"{["
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""JSON objects and lists. Any few bytes may look like a number, so a bare number needs format=."""
_BY_SUFFIX = {suffix: row.name for row in FORMATS.values() for suffix in row.suffixes}
_STEP = re.compile(r"(\.ckpt)-\d+\Z", re.A)
"""The step number of a checkpoint: model.ckpt-1000."""
_SHARD = re.compile(r"[-_.]\d+(-of-\d+)?\Z", re.A)
"""The number of a shard after the suffix, as TFDS writes it: x.tfrecord-00000-of-00005."""
_OF_SEVERAL = (".index", "saved_model.pb")
"""Suffixes of files that are opened together with other files."""
_DATA_FILE = re.compile(r"\.data-\d{5}-of-\d{5}\Z", re.A)


class FormatAnswer(NamedTuple):
    """The result of the rules: kind, format and compression, or why the format is unknown."""

    kind: Kind
    format: str | None
    compression: str | None = None
    error: TensorwireError | None = None


class Identified:
    """The result of `identify`. It owns the open source of bytes or of one file, and closes it.

    >>> with identify(b"\\x93NUMPY ...") as identified:
    ...     identified.kind, identified.format, identified.layout
    ('tensors', 'npy', 'bytes')
    """

    __slots__ = ("_allowed", "_answer", "_head", "layout", "path", "source")

    def __init__(
        self,
        layout: Layout,
        path: str | None = None,
        answer: FormatAnswer | None = None,
        source: files.Source | None = None,
        allowed: Allowed = None,
    ) -> None:
        self.layout = layout
        self.path = path
        """The path as given; for a checkpoint, its prefix."""
        self.source = source
        """The bytes, for the layouts "bytes" and "file"."""
        # The rules for names and bytes run when `answer` is first used: `load` of a plain file
        # never needs them.
        self._answer, self._allowed = answer, allowed
        self._head: bytes | None = None

    @property
    def head(self) -> bytes:
        """The first bytes, or all bytes of a small file."""
        if self._head is None:
            self._head = b"" if self.source is None else _head_of(self.source)
        return self._head

    def whole(self) -> bytes | None:
        """All bytes of a small local file; None for any other source."""
        source = self.source
        small = isinstance(source, files.FileSource) and source.size <= _SMALL
        return self.head if small else None

    @property
    def answer(self) -> FormatAnswer:
        if self._answer is None:
            assert self.source is not None
            self._answer = _of_bytes(self.source, self.path, self.head, self._allowed)
        return self._answer

    @property
    def kind(self) -> Kind:
        return self.answer.kind

    @property
    def format(self) -> str | None:
        """The format. None if neither the bytes nor the name tell; `error` then says why."""
        return self.answer.format

    @property
    def compression(self) -> str | None:
        """The compression of the whole stream, if it has one."""
        return self.answer.compression

    @property
    def error(self) -> TensorwireError | None:
        return self.answer.error

    @property
    def holds_records(self) -> bool:
        """Whether the source is one file of records."""
        return self.format == "tfrecord" and self.layout == "file"

    def close(self) -> None:
        if self.source is not None:
            self.source.close()

    def __enter__(self) -> Identified:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        packed = f" in {self.compression}" if self.compression else ""
        return f"<{self.path or 'bytes'}: {self.kind}, {self.format}{packed}, {self.layout}>"


def identify(where: object, format: Allowed = None, *, mmap: bool = False) -> Identified:
    """Identifies a path, URL, list of paths or bytes. The caller closes the result.

    Raises FileNotFoundError if a path does not exist. Unrecognised bytes do not raise: the result
    then has the format None, and its `error` says why.

    >>> with identify(["a.parquet", "b.parquet"]) as identified:
    ...     identified
    <bytes: rows, parquet, list>
    """
    if isinstance(where, (list, tuple)):
        return Identified("list", None, FormatAnswer("rows", _format_of_all(where)))
    if not isinstance(where, (str, os.PathLike)):
        return Identified("bytes", None, None, storage.source_of(where, mmap), format)
    path = os.fspath(where)
    if is_hub_index(path):
        return Identified("files", path, FormatAnswer("tensors", "safetensors"))
    if storage.is_url(path):
        return _of_url(path, format, mmap)
    try:
        source = files.source(path, mmap)
    except IsADirectoryError:
        return _of_folder(path, format)
    except FileNotFoundError:
        identified = _without_file(path, format)
        if identified is None:
            raise
        return identified
    try:
        if path.endswith(_OF_SEVERAL) or ".data-" in path or format == "checkpoint":
            identified = _of_checkpoint_file(path, format)
            if identified is not None:
                source.close()
                return identified
        return Identified("file", path, None, source, format)
    except BaseException:
        source.close()
        raise


def _of_url(path: str, format: Allowed, mmap: bool) -> Identified:
    web = path.startswith(("http:", "https:"))
    if path.endswith("/"):
        return Identified("folder", path, FormatAnswer("rows", _named(format)))
    if glob.has_magic(path) and not web:
        return _of_pattern(path, format)
    if by_name(path)[0] is None and not web and has_manifest(path):
        return Identified("folder", path, FormatAnswer("rows", _named(format)))
    return Identified("file", path, None, storage.source_of(path, mmap), format)


def _of_pattern(path: str, format: Allowed) -> Identified:
    return Identified("pattern", path, FormatAnswer("rows", _named(format) or by_name(path)[0]))


def _of_checkpoint(path: str, format: Allowed) -> Identified | None:
    """Identifies a folder, prefix or file as a checkpoint, or gives None."""
    if not _allows(format, "checkpoint"):
        return None
    from .checkpoint import state

    prefix = state.find(path, format == "checkpoint")
    if prefix is None:
        return None
    return Identified("files", prefix, FormatAnswer("tensors", "checkpoint"))


def _of_folder(path: str, format: Allowed) -> Identified:
    if _allows(format, "saved_model") and is_saved_model(path):
        return Identified("folder", path, FormatAnswer("model", "saved_model"))
    if format is None and has_manifest(path):
        return Identified("folder", path, FormatAnswer("rows", None))
    if (checkpoint := _of_checkpoint(path, format)) is not None:
        return checkpoint
    shards = {by_name(name)[0] for name in os.listdir(path) if name[:1] not in "._"}
    rows = sorted(name for name in shards if name is not None and FORMATS[name].rows)
    # A folder of safetensors files may be a model, so only a manifest makes it a dataset.
    if any(name != "safetensors" for name in rows):
        return Identified("folder", path, FormatAnswer("rows", _named(format) or rows[0]))
    error = DecodeError("the folder holds no known tensors, rows or model", path=path)
    return Identified("folder", path, FormatAnswer("tensors", None, None, error))


def _without_file(path: str, format: Allowed) -> Identified | None:
    """Identifies a path that does not exist as a checkpoint prefix or a pattern, or gives None."""
    checkpoint = _of_checkpoint(path, format)
    if checkpoint is None and glob.has_magic(path):
        return _of_pattern(path, format)
    return checkpoint


def _of_checkpoint_file(path: str, format: Allowed) -> Identified | None:
    """Identifies a file of a checkpoint or SavedModel, which is opened together with others."""
    name = os.path.basename(path)
    if name == SAVED_MODEL[0] and _allows(format, "saved_model"):
        return Identified("file", path, FormatAnswer("model", "saved_model"))
    if format == "checkpoint" or name.endswith(".index") or _DATA_FILE.search(name):
        return _of_checkpoint(path, format)
    return None


def _head_of(source: files.Source) -> bytes:
    size = source.size
    count = size if size <= _SMALL else HEAD
    if isinstance(source, files.FileSource):
        return source.read_bytes(0, count)
    return bytes(source.read_at(0, count))


def _of_bytes(source: files.Source, path: str | None, head: bytes, format: Allowed) -> FormatAnswer:
    """Applies the rules for one file: its name first, then its first bytes."""
    named, packed = (None, None) if path is None else by_name(path)
    if isinstance(format, str):
        return FormatAnswer(_kind_of(format), format, packed or compression_of(head, format))
    if named == "tfrecord" and _allows(format, "tfrecord"):
        return FormatAnswer("rows", "tfrecord", packed)
    packed = packed or compression_of(head)
    start, total = head, source.size
    if packed is not None:
        from ..transforms import compression

        # The size of the decompressed bytes is unknown, so no check may rely on it.
        more = head if total <= _SMALL else source.read_at(0, min(total, _PEEK))
        start, total = compression.peek(packed, more, HEAD), 1 << 62
    try:
        recognised = recognise(start, total)
    except TensorwireError as error:
        # Unrecognised bytes may still be records in a compression without a magic number, a format
        # that only its suffix tells, or records if the caller allows them.
        if packed is None and (inside := _packed_records(head)) is not None:
            return FormatAnswer("rows", "tfrecord", inside)
        if packed is not None and named is not None:
            return FormatAnswer(_kind_of(named), named, packed)
        if isinstance(format, tuple) and "tfrecord" in format:
            return FormatAnswer("rows", "tfrecord", packed)
        return FormatAnswer("tensors", None, packed, error)
    if named == "jsonl" and recognised == "json":
        recognised = "jsonl"
    return FormatAnswer(_kind_of(recognised), recognised, packed)


def _packed_records(head: bytes) -> str | None:
    """Returns "zlib" or "snappy" if the bytes decompress to the header of a record, else None.

    Neither compression has a magic number, so only its content can tell.
    """
    from ..transforms import compression

    names = ("zlib", "snappy")
    return next((n for n in names if tfrecord.is_header(compression.peek(n, head, HEAD))), None)


def _kind_of(format: str) -> Kind:
    row = FORMATS.get(format)
    if row is None or row.tensors:
        return "tensors"
    return "rows" if row.rows else "model"


def _allows(format: Allowed, name: str) -> bool:
    return format is None or format == name or (isinstance(format, tuple) and name in format)


def _named(format: Allowed) -> str | None:
    return format if isinstance(format, str) else None


def _format_of_all(paths: list[object] | tuple[object, ...]) -> str | None:
    names = {by_name(path)[0] for path in paths if isinstance(path, (str, os.PathLike))}
    return names.pop() if len(names) == 1 else None


def is_hub_index(path: str) -> bool:
    """Whether a path is the index of a model in several safetensors files."""
    return path.endswith(HUB_INDEX)


def has_manifest(path: str) -> bool:
    """Whether a path or URL is the folder of a dataset with a tensorwire manifest."""
    if storage.is_url(path) and by_name(path)[0] is not None:
        return False
    try:
        return storage.stat(storage.join(path, f"{BOOKS}/manifest.json")) is not None
    except PermissionError:
        # The credentials of a URL may allow a single object only, which is not a dataset.
        if not storage.is_url(path):
            raise
        return False


def holds_records(where: object, format: Allowed = None) -> bool:
    """Whether a path is a file of records. False if there is no file."""
    if not isinstance(where, (str, os.PathLike)):
        return False
    try:
        with identify(where, format) as identified:
            return identified.holds_records
    except (FileNotFoundError, TensorwireError):
        return False


def is_saved_model(path: str) -> bool:
    """Whether a folder is a SavedModel, or holds numbered versions of one."""
    from .saved_model.signatures import locate

    if any(os.path.exists(os.path.join(path, name)) for name in SAVED_MODEL):
        return True
    try:
        return os.path.exists(locate(path))
    except DecodeError as error:
        # The folder may hold a SavedModel in a form that tensorwire does not read.
        return any(os.path.exists(os.path.join(error.path or path, name)) for name in SAVED_MODEL)


def by_name(path: str | os.PathLike[str]) -> tuple[str | None, str | None]:
    """Returns the format and the compression of a file name, None for what the name does not tell.

    >>> by_name("model.safetensors.zst"), by_name("a/x.npy"), by_name("README")
    (('safetensors', 'zstd'), ('npy', None), (None, None))
    >>> by_name("mnist-train.tfrecord-00000-of-00001"), by_name("model.ckpt-1000")
    (('tfrecord', None), ('checkpoint', None))
    """
    name = os.fspath(path)
    name = name[name.rfind("/") + 1 :]
    ending = name[name.rfind(".") :]
    if ending in _BY_SUFFIX:
        return _BY_SUFFIX[ending], None
    if (format := _by_ending(name)) is not None:
        return format, None
    from ..transforms import compression

    packed = compression.named_by(name)
    return (None, None) if packed is None else (_by_ending(name[: name.rfind(".")]), packed)


def _by_ending(name: str) -> str | None:
    for ending in (name, _STEP.sub(r"\1", name), _SHARD.sub("", name)):
        format = _BY_SUFFIX.get(ending[ending.rfind(".") :]) if "." in ending else None
        if format is not None:
            return format
    return None


def format_of(path: str | os.PathLike[str]) -> str:
    """Returns the format for writing a file of this name. Raises UnknownFormatError.

    >>> format_of("model.safetensors")
    'safetensors'
    """
    format, _ = by_name(path)
    if format is not None and FORMATS[format].tensors:
        return format
    suffixes = ", ".join(
        suffix for row in FORMATS.values() if row.tensors for suffix in row.suffixes
    )
    hint = "pass format="
    if format == "tfrecord":
        hint = "tw.write_examples(path, columns) writes record files"
    raise UnknownFormatError(
        f"no format for this file name (known suffixes: {suffixes})",
        path=os.fspath(path),
        hint=hint,
    )


def recognise(data: memory.Buffer, size: int | None = None) -> str:
    """Returns the format of bytes. Raises UnknownFormatError if no format is recognised.

    The first `HEAD` bytes are enough if `size` is the number of all bytes.

    >>> recognise(b"\\x08\\x01\\x12\\x00\\x22\\x04\\x00\\x00\\x80?")
    'tensorproto'
    """
    view = memory.flat(data)
    total = len(view) if size is None else size
    start = bytes(view[:HEAD])
    for magic, name in _MAGICS.items():
        if start.startswith(magic):
            return "keras" if name == "npz" and _is_keras(start) else name
    if _is_safetensors(start):
        header = int.from_bytes(start[:8], "little")
        if header > total - 8:
            raise TruncatedError(
                f"the safetensors header has {header} bytes, but the file has {total}",
                format="safetensors",
                offset=total,
            )
        return "safetensors"
    # A TensorProto begins with the field `dtype`: tag 0x08, and a number that is in use. A wrong
    # guess does no harm, since its parser is strict and its error says where it stopped.
    if (
        len(start) > 1
        and start[0] == 0x08
        and (start[1] in dtypes.BY_TF or start[1] in (dtypes.STRING, dtypes.VARIANT))
    ):
        return "tensorproto"
    text = start.lstrip(b" \t\r\n")
    if text and text[0] in _JSON:
        return "json"
    if tfrecord.is_header(start):
        return "tfrecord"
    if not start:
        raise UnknownFormatError("the input is empty (0 bytes)", offset=0)
    if start[:2] in _PICKLES:
        raise UnknownFormatError(
            "this is a Python pickle (as torch.save writes it), which can run code when it is read",
            hint="load it where it was written, and save the tensors with tw.save",
        )
    names = ", ".join(row.name for row in FORMATS.values() if row.recognised)
    raise UnknownFormatError(
        f"unrecognised format: the bytes begin with {start[:8].hex(' ')} (recognised: {names})",
        hint="pass format=",
    )


def _is_safetensors(start: bytes) -> bool:
    return (
        len(start) > 8
        and start[8] == ord("{")
        and int.from_bytes(start[:8], "little") <= DEFAULT.safetensors_header
    )


def _is_keras(start: bytes) -> bool:
    """Whether a zip was written by Keras, by the name of its first member."""
    size = int.from_bytes(start[26:28], "little")
    return start[30 : 30 + size] in (b"metadata.json", b"config.json", b"model.weights.h5")


def compression_of(data: memory.Buffer, format: Allowed = None) -> str | None:
    """Returns the compression whose magic number the bytes begin with, or None.

    A format that is not recognised by its bytes, such as raw, may begin with any bytes: None.

    >>> compression_of(b"\\x1f\\x8b\\x08\\x00"), compression_of(b"\\x1f\\x8b\\x08\\x00", "raw")
    ('gzip', None)
    """
    if isinstance(format, str) and format in FORMATS and not FORMATS[format].recognised:
        return None
    # The size of a safetensors header of 559,903 bytes looks like the magic number of gzip, and
    # zlib's two bytes occur too often by chance to be trusted.
    start = bytes(memory.flat(data)[:HEAD])
    if start[:1] not in _COMPRESSED or _is_safetensors(start):
        return None
    from ..transforms import compression

    packed = compression.recognise(start)
    return None if packed == "zlib" else packed


def has_checksum(compression: str | None, data: memory.Buffer) -> bool:
    """Whether a compressed stream has a checksum, which zstd and lz4 flag in their first frame."""
    start = bytes(memory.flat(data)[:5])
    magics = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
    flagged = len(start) == 5 and start[:4] in magics and bool(start[4] & 4)
    return compression in ("gzip", "zlib") or (compression in ("zstd", "lz4") and flagged)
