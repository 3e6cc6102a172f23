"""Schemas of Examples: the kind, shape, dtype and presence of each feature.

A file of Examples knows only lists of int64, float and bytes of any length. All other properties of
a column (a fixed shape, bool, text, a tensor stored as bytes, base64, quantized numbers) are part
of the schema, which is a JSON sidecar file or is passed by the reader.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from .. import storage
from .._errors import (
    ChecksumError,
    DecodeError,
    EncodeError,
    LimitError,
    SchemaError,
    UsageError,
    choices,
)
from ..core import display, dtypes
from ..wire import example
from ..wire import json as jsontext
from ..wire.crc import crc32c

BYTES, FLOAT, INT64 = "bytes", "float", "int64"
KINDS = {BYTES: example.BYTES, FLOAT: example.FLOAT, INT64: example.INT64}
NATURAL = {BYTES: "string", FLOAT: "float32", INT64: "int64"}
"""The dtype of each kind of list if no other is declared."""
ENCODINGS = ("tensor", "raw", "base64", "quantized")
VERSION = 1
_MOST = 1 << 30
"""The maximum size of a schema file in bytes."""


_TYPES = {"dtype": str, "encoding": str, "required": bool, "text": bool, "seen": dict}
"""The types of the entries of a feature in JSON."""
_MOST_VALUES = (1 << 31) - 1
"""The maximum number of values of a feature: a message is smaller than 2 GiB."""
_MOST_DIMS = 31 if np.__version__.startswith("1.") else 63
"""The maximum number of dimensions of a row: one less than NumPy's, because a column has one more.
"""


def _check_shape(shape: tuple[int | None, ...]) -> None:
    if any(dim is not None and dim < 0 for dim in shape):
        raise SchemaError(f"a dimension cannot be negative: {shape}")
    if len(shape) > _MOST_DIMS:
        raise SchemaError(f"a row can have at most {_MOST_DIMS} dimensions, not {len(shape)}")
    if math.prod(dim or 1 for dim in shape) >= 1 << 63:
        raise SchemaError(f"the shape {'x'.join(map(str, shape)):.80} has too many values")


@dataclass(frozen=True)
class Feature:
    """The description of one column in a Schema. Raises SchemaError if the properties contradict.

    >>> import tensorwire as tw
    >>> tw.Feature("int64", (), "bool"), tw.Feature("float", (None,))
    (Feature(int64 () as bool), Feature(float (None,)))
    """

    kind: str
    """The kind of list in the Example: "bytes", "float" or "int64"."""
    shape: tuple[int | None, ...] | None = ()
    """The shape of one row.

    () for one value, (n,) or (a, b) for a fixed number of values, and (None,) for a varying number.
    Encoded tensors may also have (None, n), and None where even the rank varies.
    """
    dtype: str = ""
    """The dtype of the column; that of the kind if empty."""
    required: bool = False
    """Whether a record without the feature is an error.

    Otherwise the row has `default`, zero or nothing, and `batch.present` is False there.
    """
    default: Any = None
    """The value of rows without the feature, for features of a fixed shape."""
    encoding: str = ""
    """How a bytes list holds something else than strings.

    "tensor" is a TensorProto, "raw" the bytes of `tobytes()` (dtype and shape from the schema),
    "base64" is URL-safe as in tf.io.encode_base64, and "quantized" is the codes and, for integer
    schemes, scale and zero point as TensorProtos.
    """
    text: bool = False
    """Whether strings are text (UTF-8) rather than bytes."""
    seen: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The counts of a scan: "present", "lengths", "range", "sizes", "steps"."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SchemaError(f"unknown kind {self.kind!r}{choices(self.kind, KINDS)}")
        if self.encoding and self.encoding not in ENCODINGS:
            raise SchemaError(
                f"unknown encoding {self.encoding!r}{choices(self.encoding, ENCODINGS)}"
            )
        if self.encoding and self.kind != BYTES:
            raise SchemaError(f"encoding={self.encoding!r} needs kind 'bytes', not {self.kind!r}")
        if isinstance(self.shape, (int, str)):
            raise SchemaError(f"shape must be a tuple such as ({self.shape},), not {self.shape!r}")
        shape = (
            None
            if self.shape is None
            else tuple(None if dim is None else int(dim) for dim in self.shape)
        )
        if shape is not None:
            _check_shape(shape)
        holds_tensors = self.encoding in ("tensor", "quantized")
        if not holds_tensors and shape != (None,) and (shape is None or None in shape):
            raise SchemaError(
                f"the shape of a feature without an encoding must be fixed or (None,), not {shape}"
            )
        object.__setattr__(self, "shape", shape)
        if self.length > _MOST_VALUES:
            raise SchemaError(
                f"a feature of shape {shape} has more values than an Example can hold"
            )
        dtype = self.dtype or NATURAL[self.kind]
        if dtype != "string":
            dtype = (
                dtypes.named(dtype).name
                if isinstance(dtype, str)
                else dtypes.of(np.dtype(dtype)).name
            )
        if self.kind == BYTES and self.encoding in ("", "base64") and dtype != "string":
            raise SchemaError(
                f"a bytes list holds strings, not {dtype}",
                hint="to read tensors from it pass encoding='raw' or encoding='tensor'",
            )
        if (self.kind != BYTES or self.encoding in ("raw", "quantized")) and dtype == "string":
            raise SchemaError(
                f"a {self.encoding or self.kind} feature holds numbers, not strings",
                hint="pass their dtype=",
            )
        object.__setattr__(self, "dtype", dtype)
        if self.default is not None:
            self._check_default()

    def _check_default(self) -> None:
        if self.encoding or not self.fixed:
            raise SchemaError("default needs a fixed shape and no encoding")
        try:
            values = np.asarray(self.default, object if self.kind == BYTES else None)
            if self.kind == BYTES:
                good = all(isinstance(value, (str, bytes)) for value in values.reshape(-1))
            else:
                good = values.dtype.kind in ("iub" if self.kind == INT64 else "iubf")
                if good and self.kind == INT64 and values.size:
                    good = int(values.max()) < 1 << 63
        except ValueError:
            # NumPy rejects lists of different lengths.
            good = False
        if not good or values.size not in (1, self.length):
            raise SchemaError(
                f"the default {self.default!r:.60} does not fit {self.kind} values of shape"
                f" {self.shape}"
            )

    @property
    def fixed(self) -> bool:
        """Whether every row has the same shape."""
        return self.shape is not None and None not in self.shape

    @property
    def length(self) -> int:
        """The number of values of the list in an Example; -1 for any number."""
        if self.encoding in ("tensor", "raw"):
            return 1
        # One string for casts, three with scale and zero point.
        if self.encoding == "quantized":
            return -1
        return math.prod(dim or 0 for dim in self.shape or ()) if self.fixed else -1

    def column(self, name: str, is_list: bool = False) -> example.Column:
        """Return the column that the decoder is asked for."""
        return example.Column(name.encode(), KINDS[self.kind], self.length, is_list)

    def json(self) -> dict[str, Any]:
        """Return the feature as plain dicts and lists, without the properties at their defaults."""
        out: dict[str, Any] = {
            "kind": self.kind,
            "shape": None if self.shape is None else list(self.shape),
        }
        if self.dtype != NATURAL[self.kind]:
            out["dtype"] = self.dtype
        if self.default is not None:
            out["default"] = _plain(self.default)
        return out | {
            name: _plain(value)
            for name in ("required", "encoding", "text", "seen")
            if (value := getattr(self, name))
        }

    @classmethod
    def from_json(cls, about: object) -> Self:
        """Return a feature from the result of `json`. Raises DecodeError if it is invalid."""
        if not isinstance(about, dict) or not isinstance(about.get("kind"), str):
            raise DecodeError(
                "a feature in a schema must be an object with a kind", format="schema"
            )
        names = {"kind", "shape", "dtype", "required", "default", "encoding", "text", "seen"}
        if unknown := about.keys() - names:
            raise DecodeError(
                f"unknown entries {sorted(unknown)} in a schema: it may be of a newer version",
                format="schema",
            )
        shape = about.get("shape")
        if shape is not None and not (
            isinstance(shape, list) and all(dim is None or type(dim) is int for dim in shape)
        ):
            message = f"a shape must be a list of numbers or null, not {shape!r:.60}"
            raise DecodeError(message, format="schema")
        for name, kind in _TYPES.items():
            if not isinstance(about.get(name, kind()), kind):
                message = (
                    f"the {name} of a feature must be a {kind.__name__}, not {about[name]!r:.60}"
                )
                raise DecodeError(message, format="schema")
        # NumPy also parses descriptions of structured dtypes, which are not allowed here.
        if not re.fullmatch(r"\w{0,32}", about.get("dtype", "")):
            raise DecodeError(f"unknown dtype {about['dtype']!r:.60} in a schema", format="schema")
        try:
            return cls(
                about["kind"],
                None if shape is None else tuple(shape),
                about.get("dtype", ""),
                about.get("required", False),
                _unplain(about.get("default")),
                about.get("encoding", ""),
                about.get("text", False),
                about.get("seen", {}),
            )
        except DecodeError:
            raise
        except (EncodeError, SchemaError) as error:
            raise DecodeError(f"invalid feature: {error.message}", format="schema") from error
        except RecursionError:
            raise LimitError("a default is nested too deeply", format="schema") from None

    def __repr__(self) -> str:
        words = [self.kind, str(self.shape)]
        if self.dtype != NATURAL[self.kind]:
            words.append(f"as {self.dtype}")
        words += [
            word
            for word in (
                self.encoding,
                "text" if self.text else "",
                "required" if self.required else "",
            )
            if word
        ]
        return f"Feature({' '.join(words)})"


def _plain(value: object) -> Any:
    """Return a value as JSON types. Bytes and non-finite floats become objects."""
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    # JSON has no infinities and NaNs.
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _unplain(value: object) -> Any:
    """Return a default as it was before `_plain`."""
    if isinstance(value, list):
        return [_unplain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("float") in ("nan", "inf", "-inf"):
        return float(value["float"])
    try:
        return value["bytes"].encode("latin-1")
    except (KeyError, AttributeError, UnicodeEncodeError):
        raise DecodeError(
            f"a bytes default must be {{'bytes': 'in Latin-1'}}, not {value!r:.60}", format="schema"
        ) from None


class FileMark(NamedTuple):
    """How a schema identifies a file that it was written with."""

    size: int | None
    """The size of the file in bytes; None in schemas from before sizes were stored."""
    head: int | None
    """The CRC32C of its first bytes, see `paths.mark`; None if only the size is known."""


class Schema(Mapping[str, Feature]):
    """A mapping from names to features; `sequences` has those of a SequenceExample's feature lists.

    >>> import tensorwire as tw
    >>> schema = tw.Schema({"label": tw.Feature("int64", ()), "x": tw.Feature("float", (4,))})
    >>> tw.Schema.from_json(schema.json()) == schema
    True
    """

    def __init__(
        self,
        features: Mapping[str, Any] | None = None,
        sequences: Mapping[str, Any] | None = None,
        *,
        records: int = 0,
        complete: bool = False,
        files: Mapping[str, FileMark] | None = None,
    ) -> None:
        self._features = {
            _name(name): _feature(name, feature) for name, feature in (features or {}).items()
        }
        self.sequences = {
            _name(name): _feature(name, feature) for name, feature in (sequences or {}).items()
        }
        self.records = records
        """The number of records that the schema was inferred from."""
        self.files = dict(files or {})
        """The marks of the files that it was written with, by name without the folder."""
        self.complete = complete
        """Whether it was inferred from all records."""

    def __getitem__(self, name: str) -> Feature:
        return self._features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Schema):
            return NotImplemented
        return self._features == other._features and self.sequences == other.sequences

    __hash__ = None  # type: ignore[assignment]

    def select(self, columns: Iterable[str]) -> Schema:
        """Return a schema with only some of the features, in the given order.

        >>> import tensorwire as tw
        >>> list(tw.Schema({"a": tw.Feature("int64"), "b": tw.Feature("int64")}).select(["b"]))
        ['b']
        """
        if isinstance(columns, (str, bytes)):
            raise UsageError(f"columns must be a list of names, not {columns!r}")
        chosen = list(columns)
        for name in chosen:
            if name not in self._features and name not in self.sequences:
                names = [*self._features, *self.sequences]
                raise SchemaError(
                    "no feature"
                    f" {name!r}{choices(name, names) if names else ': the records have none'}"
                )
        return Schema(
            {name: self._features[name] for name in chosen if name in self._features},
            {name: self.sequences[name] for name in chosen if name in self.sequences},
            records=self.records,
            complete=self.complete,
        )

    def json(self) -> dict[str, Any]:
        """Return the schema as plain dicts and lists."""
        out: dict[str, Any] = {
            "tensorwire_schema": VERSION,
            "features": {name: feature.json() for name, feature in self.items()},
        }
        if self.sequences:
            out["sequences"] = {name: feature.json() for name, feature in self.sequences.items()}
        if self.records:
            out["records"], out["complete"] = self.records, self.complete
        if self.files:
            out["files"] = {name: list(mark) for name, mark in self.files.items()}
        return out

    @classmethod
    def from_json(cls, about: object) -> Self:
        """Return a schema from the result of `json`, or from JSON text.

        A checksum is verified if there is one. Raises DecodeError if the schema is invalid.
        """
        if isinstance(about, (str, bytes)):
            about = jsontext.parse(about.encode() if isinstance(about, str) else about, "schema")
        if (
            not isinstance(about, dict)
            or about.get("tensorwire_schema") != VERSION
            or not isinstance(about.get("features"), dict)
        ):
            raise DecodeError(f"not a tensorwire schema of version {VERSION}", format="schema")
        if "crc32c" in about and about["crc32c"] != _checksum(about):
            raise ChecksumError(
                "the schema does not match its checksum",
                format="schema",
                hint='if it was edited by hand, remove the line "crc32c"',
            )
        records, complete = about.get("records", 0), about.get("complete", False)
        if type(records) is not int or not 0 <= records < 1 << 63 or not isinstance(complete, bool):
            message = f"invalid number of records in a schema: {records!r:.60}"
            raise DecodeError(message, format="schema")
        sequences = about.get("sequences", {})
        if not isinstance(sequences, dict):
            raise DecodeError(
                "the sequences of a schema must be an object of features", format="schema"
            )
        return cls(
            {name: Feature.from_json(feature) for name, feature in about["features"].items()},
            {name: Feature.from_json(feature) for name, feature in sequences.items()},
            records=records,
            complete=complete,
            files=_marks(about),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema as readable JSON with a checksum.

        To edit the file by hand, remove the line "crc32c" too.
        """
        content = self.json()
        content["crc32c"] = _checksum(content)
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        storage.write_bytes(os.fspath(path), text.encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a schema that `save` has written."""
        try:
            return cls.from_json(storage.read_bytes(os.fspath(path), _MOST))
        except DecodeError as error:
            raise error.add(path=os.fspath(path)) from None

    @classmethod
    def from_feature_spec(
        cls, spec: Mapping[str, Any], sequences: Mapping[str, Any] | None = None
    ) -> Self:
        """Return a schema from feature specs such as `tf.io.FixedLenFeature`, or `tw.io`'s.

        >>> import tensorwire as tw
        >>> tw.Schema.from_feature_spec({"x": tw.io.FixedLenFeature([4], "float32"), "ids":
        ...     tw.io.VarLenFeature("int64")})
        Schema of 2 features
          x: Feature(float (4,) required)
          ids: Feature(int64 (None,))
        """
        return cls(
            {name: _from_spec(name, item) for name, item in spec.items()},
            {name: _from_spec(name, item) for name, item in (sequences or {}).items()},
        )

    def to_feature_spec(self, io: Any) -> dict[str, Any]:
        """Return the schema as feature classes of a module, `tf.io` or `tensorwire.io`.

        With these, parse_example reads the same columns. Encoded features are strings there, for
        parse_tensor or decode_raw.

        >>> import tensorwire as tw
        >>> tw.Schema({"x": tw.Feature("float", (4,), required=True)}).to_feature_spec(tw.io)
        {'x': FixedLenFeature(shape=[4], dtype='float32', default_value=None)}
        """
        return {name: _to_spec(feature, io) for name, feature in self.items()}

    def __repr__(self) -> str:
        of = (
            f" from {'all ' if self.complete else 'a sample of '}{self.records} records"
            if self.records
            else ""
        )
        rows = [f"\n  {name}: {feature!r}{_counted(feature)}" for name, feature in self.items()]
        rows += [
            f"\n  {name} (list): {feature!r}{_counted(feature)}"
            for name, feature in self.sequences.items()
        ]
        return f"Schema of {len(rows)} features{of}{''.join(rows)}"

    _repr_html_ = display.html


def _checksum(content: dict[str, Any]) -> int:
    """Return the checksum of the values, independent of the layout of the text."""
    plain = {name: value for name, value in content.items() if name != "crc32c"}
    try:
        text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise LimitError("JSON is nested too deeply", format="schema") from None
    return crc32c(text.encode())


def _marks(content: dict[str, Any]) -> dict[str, FileMark]:
    """Return the marks of a schema's files. Old schemas have only checksums, as "heads"."""
    files, heads = content.get("files", {}), content.get("heads", {})
    if not isinstance(files, dict) or not isinstance(heads, dict):
        raise DecodeError("the files of a schema must be an object of marks", format="schema")
    marks = {name: [None, head] for name, head in heads.items()} | files
    for name, mark in marks.items():
        good = isinstance(mark, list) and len(mark) == 2
        if not good or not all(part is None or type(part) is int for part in mark):
            message = f"the mark of a file must be [size, checksum], not {mark!r:.60}"
            raise DecodeError(message, tensor=name, format="schema")
    return {name: FileMark(*mark) for name, mark in marks.items()}


def _counted(feature: Feature) -> str:
    words = [f"{key} {value}" for key, value in feature.seen.items()]
    return f"  {', '.join(words)}" if words else ""


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise SchemaError(f"a feature name must be str, not {type(name).__name__}")
    return name


def _feature(name: str, feature: object) -> Feature:
    if isinstance(feature, Feature):
        return feature
    if isinstance(feature, dict):
        return Feature.from_json(feature)
    return _from_spec(name, feature)


SchemaLike = Schema | Mapping[str, object] | str | os.PathLike[str]
"""The types that `as_schema` accepts."""


def as_schema(value: object) -> Schema:
    """Return a Schema from a schema, a dict of features or feature specs, or a path."""
    if isinstance(value, Schema):
        return value
    if isinstance(value, (str, os.PathLike)):
        return Schema.load(value)
    if isinstance(value, Mapping):
        return Schema.from_json(dict(value)) if "tensorwire_schema" in value else Schema(value)
    raise SchemaError(
        f"schema must be a tw.Schema, a dict of features or a path, not {type(value).__name__}"
    )


_BY_DTYPE = {"string": BYTES, "float32": FLOAT, "int64": INT64}


def _from_spec(name: str, spec: Any) -> Feature:
    """Return the feature for one of TensorFlow's feature classes, or of ours.

    The classes are recognised by name, so TensorFlow is not imported.
    """
    names = ("FixedLenFeature", "VarLenFeature", "RaggedFeature", "FixedLenSequenceFeature")
    kind = type(spec).__name__
    if kind not in names:
        raise SchemaError(
            f"expected a Feature or one of {', '.join(names)}, not {kind}", tensor=name
        )
    dtype = spec.dtype
    dtype = (
        dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or np.dtype(dtype).name
    )
    if dtype not in _BY_DTYPE:
        raise SchemaError(f"an Example holds float32, int64 and string, not {dtype}", tensor=name)
    if kind == "FixedLenFeature":
        shape = getattr(spec.shape, "as_list", lambda: spec.shape)()
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return Feature(
            _BY_DTYPE[dtype],
            shape,
            required=spec.default_value is None,
            default=_default(spec.default_value),
        )
    if kind == "RaggedFeature" and (spec.partitions or (spec.value_key or name) != name):
        raise SchemaError(
            "a schema cannot hold a RaggedFeature with partitions or another key",
            tensor=name,
            hint="use tw.io.parse_example",
        )
    return Feature(_BY_DTYPE[dtype], (None,))


def _default(value: object) -> Any:
    return None if value is None else np.asarray(value).tolist()


def _to_spec(feature: Feature, io: Any) -> Any:
    dtype: Any = NATURAL[feature.kind]
    if io.__name__.startswith("tensorflow"):
        dtype = sys.modules["tensorflow"].as_dtype(dtype)
    if feature.length < 0:
        return io.VarLenFeature(dtype)
    shape = (
        [] if feature.encoding in ("tensor", "raw") else [dim or 0 for dim in feature.shape or ()]
    )
    default = feature.default
    if default is None and not feature.required:
        empty: Any = b"" if feature.kind == BYTES else 0
        default = np.full(shape, empty, np.dtype(object)).tolist() if shape else empty
    return io.FixedLenFeature(shape, dtype, default)
