"""The json format: lossless text for people and other languages.

Python's dicts, lists, strings, numbers, True, False and None are themselves. Every other value is
an object whose first key begins with "$". A key of the user that begins with "$" gets a second "$".

    {"$tensor": "float32", "shape": [2, 2], "data": [[1.0, 2.5], ["NaN", -0.0]]}
    {"$sparse": {"indices": [[0, 1]], "values": TENSOR, "dense_shape": [2, 2]}}
    {"$ragged": {"values": TENSOR, "splits_dtype": "int64", "row_splits": [[0, 2, 2]],
                 "uniform": [null]}}
    {"$quantized": {"scheme": "int8", "dtype": "float32", "axis": 0, "codes": TENSOR,
                    "scale": TENSOR, "zero_point": TENSOR}}
    {"$bundle": {"name": TENSOR}, "metadata": {...}, "tensor_metadata": {"name": {...}}}
    {"$dict": [[0, ANYTHING], ["lr", 0.1]]}    a dict with a key that is an int
    {"$tuple": [1, 2]}    {"$bytes": "AAE="}    {"$float": "nan"}    {"$same": "/layers/0/w"}
                          {"$value": ANYTHING, "metadata": {...}}

1. "$tensor" is the name of a dtype, or "text" or "bytes" (in base64) for strings.
2. Every number has the fewest digits that read back as the same number of its dtype.
3. "NaN" is the default NaN of the dtype. `"nan": {"at": [3], "bits": [2143289345]}` lists the NaNs
   with other bits, by their position among all numbers.
4. Complex numbers are pairs. A tensor without elements has the data [].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ... import lowering
from ..._errors import DecodeError, EncodeError, LimitError
from ..._limits import DEFAULT, Budget, Limits
from ...core import dtypes
from ...core.memory import Buffer
from ...core.tensors import Bundle
from ...storage.files import Source
from ...wire import json as jsontext
from ..container import Container
from ..protocol import Metadata
from .reader import JsonReader
from .tokens import FORMAT
from .writer import PlainForm, Wrapped


@dataclass(frozen=True, slots=True)
class Json:
    """The codec of JSON documents.

    >>> import numpy as np
    >>> print(b"".join(Json().encode({"x": np.float32([[0.1, np.inf]]), "step": 7})).decode())
    {"x":{"$tensor":"float32","shape":[1,2],"data":[[0.1,"Infinity"]]},"step":7}
    >>> print(b"".join(Json(plain=True).encode({"x": np.float32([[0.1, 2]])})).decode())
    {"x":[[0.1,2.0]]}
    >>> Json(dtype="float32").decode(memoryview(b'{"x": [[0.1, 2.0]], "step": 7}'))
    {'x': array([[0.1, 2. ]], dtype=float32), 'step': 7}
    """

    plain: bool = False
    """Write lists and numbers without kinds and dtypes: sparse tensors as {"indices", "values",
    "dense_shape"}, ragged tensors as nested lists, bytes as {"b64": ...}. When reading, keys that
    begin with "$" have no meaning."""
    indent: int | None = None
    """Write each member of a dict and each row of a tensor on a line of its own, indented by this
    number of spaces."""
    bare_nonfinite: bool = False
    """Write NaN, Infinity and -Infinity without quotes, as TensorFlow Serving does. This is not
    valid JSON. Both forms can always be read."""
    dtype: Any = None
    """Read plain lists of numbers as arrays of this dtype (or as strings), and plain sparse objects
    as sparse tensors. A dict such as {"x": "float32", "inputs/y": "int64"} selects them by name."""
    ragged: bool = False
    """Read lists of lists as ragged tensors, even if all rows have the same length."""
    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        if self.indent is not None and not 0 <= self.indent <= 64:
            raise EncodeError(f"indent must be between 0 and 64, not {self.indent}", format=FORMAT)
        spec, parts = lowering.lower(value, strings=True)
        if metadata and isinstance(value, Bundle):
            spec["metadata"] = value.metadata | metadata
        elif metadata and self.plain:
            raise EncodeError(
                "plain JSON cannot store metadata",
                format=FORMAT,
                hint="drop_metadata=True leaves them out",
            )
        if self.plain:
            document = PlainForm(parts, self.bare_nonfinite, self.limits.tensor).node(spec, "")
        elif metadata and not isinstance(value, Bundle):
            document = {"$value": Wrapped(parts).node(spec, "/$value"), "metadata": metadata}
        else:
            document = Wrapped(parts).node(spec, "")
        return [*jsontext.document(document, self.indent, self.bare_nonfinite)]

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        return self._read(self._reader(data, copy, self.limits.call(len(data))))

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Reads the whole document, since the offsets of tensors in text are not known."""
        budget = self.limits.call(source.size)
        reader = self._reader(source.read_at(0, source.size), copy, budget)
        reader.lost = {}
        value = self._read(reader)
        container = Container.of(value, budget)
        container.metadata = container.metadata or reader.metadata
        # The value has an empty placeholder for each tensor of an unknown dtype. Its part is
        # replaced by one that is listed and cannot be read.
        lost = {key: part for key, (_, part) in reader.lost.items()}
        container.parts = [lost.get(id(part.read()), part) for part in container.parts]
        return container

    def _reader(self, data: memoryview, copy: bool | None, budget: Budget) -> JsonReader:
        dtype = (
            {name: _row(kind) for name, kind in self.dtype.items()}
            if isinstance(self.dtype, Mapping)
            else _row(self.dtype)
        )
        return JsonReader(data, budget, copy, self.plain, dtype, self.ragged)

    def _read(self, reader: JsonReader) -> Any:
        try:
            return reader.document()
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=0) from None
        except RecursionError:
            raise LimitError("values are nested too deeply", format=FORMAT, offset=0) from None


def _row(dtype: Any) -> Any:
    """Returns a dtype as the reader expects it: a row of the table, "text", "bytes" or None."""
    if dtype is None:
        return None
    if dtype is str or getattr(dtype, "name", dtype) in ("text", "str"):
        return "text"
    return "bytes" if dtypes.is_string(dtype) else dtypes.named(dtype)
