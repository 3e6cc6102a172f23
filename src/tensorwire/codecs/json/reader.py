"""The JSON reader: turns a document into its value.

1. A list or object without a key that begins with "$" is plain JSON. A native scan finds its end
   and whether it has such keys; Python's parser then reads all of it at once. This is the fast path
   for most documents.
2. Any other list or object is read member by member. The numbers of a tensor go straight into an
   array, without Python objects in between.
3. An object with a "$" key is a form (`_FORMS`): it has a fixed set of fields, a function that
   reads each field, and a function that makes the value of all fields.
4. Keys may appear in any order. A field that cannot be read yet (the "data" of a tensor before its
   "shape", or "metadata" before "$bundle") is skipped, its offset is kept, and it is read when all
   keys of the object are known.
5. Every read function takes the offset of a value and returns the value and the offset of its end.
   `path` is the JSON Pointer of the value, for tied tensors ("$same") and for errors.
6. The text is untrusted. Depth, the number of tensors and the memory they take are limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..._errors import DecodeError, LimitError
from ..._limits import Budget
from ...core import dtypes, validate
from ...core.tensors import Array
from ...lowering.names import is_key
from ...wire import json as jsontext
from ..container import UnreadablePart
from .tensors import INT64, Tensors
from .tokens import FORMAT, Read
from .writer import FLOATS, pointer

SPARSE = {"indices", "values", "dense_shape"}
Fields = dict[str, Any]


class JsonReader(Tensors):
    """Reads one document. The module docstring has the strategy."""

    def __init__(
        self,
        data: memoryview,
        limits: Budget,
        copy: bool | None,
        plain: bool = False,
        dtype: Any = None,
        ragged: bool = False,
    ) -> None:
        super().__init__(data, limits, copy, ragged)
        self.plain, self.dtype = plain, dtype
        self.metadata: dict[str, str] = {}
        self.made: dict[str, Any] = {}
        """Dense and quantized tensors by their JSON Pointer, for "$same"."""
        self.lost: dict[int, tuple[Array, UnreadablePart]] | None = None
        """Tensors of unknown dtypes, by the id of the placeholder array of each. None to raise an
        error instead.
        """

    def document(self) -> Any:
        """Returns the value of the document."""
        value, end = self.value(self.space(0), 0, "")
        self.finish(end)
        return value

    def named(self, path: str) -> Any:
        """The dtype that the option dtype= gives to the value at this path, or None."""
        return self.dtype.get(path[1:]) if isinstance(self.dtype, Mapping) else None

    def value(self, offset: int, depth: int, path: str) -> Read:
        """Reads any value."""
        char = self.data[offset]
        if char != ord("{") and self.named(path) is not None:
            return self.typed(offset, self.named(path), path)
        if char == ord('"'):
            return self.string(offset)
        if char not in b"[{":
            return self.python(offset)
        # A tensor is allowed one level deeper than a list or dict, which `items` and `object` check
        # for themselves.
        self.check_depth(depth, offset)
        # The fast path: `stopped` is true if the scan met a key that begins with "$".
        if self.dtype is None:
            end, deep, stopped = jsontext.skip(
                self.data, offset, self.text_depth, self.plain, FORMAT
            )
            if not stopped:
                self.check_depth(depth + deep, offset)
                return self.parse(offset, end), end
        if char == ord("{"):
            return self.object(offset, depth, path)
        if (
            self.dtype is not None
            and not isinstance(self.dtype, Mapping)
            and self.is_of(offset, self.dtype)
        ):
            return self.typed(offset, self.dtype, path)
        return self.items(offset, depth, path)

    def check_depth(self, depth: int, offset: int) -> None:
        if depth > self.limits.json_depth:
            self.fail(
                f"the value is nested more than {self.limits.json_depth} levels deep",
                offset,
                LimitError,
            )

    def items(self, offset: int, depth: int, path: str) -> tuple[list[Any], int]:
        self.check_depth(depth + 1, offset)
        items: list[Any] = []

        def take(number: int, offset: int) -> int:
            item, end = self.value(offset, depth + 1, pointer(path, number))
            items.append(item)
            return end

        return items, self.each_item(offset, take)

    def object(self, offset: int, depth: int, path: str) -> Read:
        """Reads an object: a form if it has a "$" key, else a dict or a plain sparse tensor."""
        form: str | None = None
        # The fields of a form, and the members of any other object. A member in `waiting` may be
        # the field of a form whose "$" key comes later: it is None until it is read.
        fields: Fields = {}
        members: Fields = {}
        waiting: dict[str, int] = {}

        def take(key: str, offset: int) -> int:
            nonlocal form
            dollar = key[:1] == "$" and not self.plain
            if dollar and key[1:2] != "$":
                if form is not None or key not in _FORMS or members.keys() - waiting.keys():
                    self.fail(
                        f"unexpected key {key!r:.40}: keys that begin with '$' are reserved",
                        offset,
                        hint="plain=True reads any key; json writes '$' in a key as '$$'",
                    )
                form = key
            if form is not None and (key != "data" or {"$tensor", "shape"} <= fields.keys()):
                fields[key], end = self.field(form, key, offset, depth, path, fields)
                return end
            self.check_depth(depth + (form is None), offset)
            if form is not None or self.may_belong(key, offset):
                members[key], waiting[key] = None, offset
                return self.end(offset)
            members[key[1:] if dollar else key], end = self.value(
                offset, depth + 1, pointer(path, key)
            )
            return end

        end = self.each_key(offset, take)
        if form is not None:
            missing = _NEEDED[form] - fields.keys() - waiting.keys()
            if missing:
                self.fail(f"{form} is missing {', '.join(sorted(missing))}", offset)
            # The data of a tensor come last, since they need its dtype and shape.
            for key, start in sorted(waiting.items(), key=lambda item: item[0] == "data"):
                fields[key], _ = self.field(form, key, start, depth, path, fields)
            return _FORMS[form][1](self, fields, offset, path), end
        dtype = self.named(path) if isinstance(self.dtype, Mapping) else self.dtype
        if dtype is not None and members.keys() == waiting.keys() == SPARSE:
            return self.plain_sparse(waiting, dtype, offset, path), end
        for key, start in waiting.items():
            members[key], _ = self.value(start, depth + 1, pointer(path, key))
        return members, end

    def may_belong(self, key: str, offset: int) -> bool:
        """Whether a key may be the field of a form, or a part of a plain sparse tensor, which a
        later key decides.
        """
        if key in SPARSE and self.dtype is not None:
            return True
        return (
            key in _BESIDE
            and not self.plain
            and not (key == "data" and self.data[offset] == ord("{"))
        )

    def field(
        self, form: str, key: str, offset: int, depth: int, path: str, fields: Fields
    ) -> Read:
        read = _FORMS[form][0].get(key)
        if read is None:
            self.fail(f"unexpected key {key!r:.40} in {form}", offset)
        return read(self, offset, depth, path, fields)

    def fields(
        self, readers: Mapping[str, Callable[[int], Read]], needed: set[str], offset: int
    ) -> tuple[Fields, int]:
        """Reads an object that has these keys and no others."""
        fields: Fields = {}

        def take(key: str, offset: int) -> int:
            if key not in readers:
                self.fail(f"unexpected key {key!r:.40}", offset)
            fields[key], end = readers[key](offset)
            return end

        end = self.each_key(offset, take)
        if needed - fields.keys():
            self.fail(f"missing {', '.join(sorted(needed - fields.keys()))}", offset)
        return fields, end

    # Functions that read one field of a form. Each takes its offset, depth and path, and the fields
    # of the form that have been read before it.

    def word(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        return self.string(offset)

    def plainly(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        return self.python(offset)

    def shape(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        dims, end = self.python(offset)
        if type(dims) is not list or not all(type(dim) is int for dim in dims):
            self.fail("a shape must be a list of integers", offset)
        return tuple(dims), end

    def data_of(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        name, shape = fields["$tensor"], fields["shape"]
        if name in ("text", "bytes"):
            return self.strings(offset, shape, name == "text")
        row = dtypes.BY_NAME.get(name)
        if row is None or row.reading_only:
            return self.unknown(offset, name, shape, path)
        return self.dense(offset, row, shape)

    def unknown(self, offset: int, dtype: str, shape: tuple[int, ...], path: str) -> Read:
        """Raises for a tensor of an unknown dtype. In a container it gives an empty placeholder."""
        why, place = f"unknown dtype {dtype!r:.40}", path[1:].replace("~1", "/").replace("~0", "~")
        error = DecodeError(why, format=FORMAT, offset=offset, tensor=place or None)
        if self.lost is None:
            raise error
        validate.elements(shape, DecodeError)
        end, placeholder = self.end(offset), np.empty(0, np.uint8)
        part = UnreadablePart(dtype, shape, end - offset, error)
        self.lost[id(placeholder)] = placeholder, part
        return placeholder, end

    def nans(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        """Keeps the offsets of the two lists, since the dtype of the tensor may not be known."""
        return self.fields(
            {
                "at": lambda offset: (offset, self.end(offset)),
                "bits": lambda offset: (offset, self.end(offset)),
            },
            {"at", "bits"},
            offset,
        )

    def tuple_items(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        return self.items(offset, depth, f"{path}/$tuple")

    def pairs(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        """Reads the keys and values of a dict that has integers as keys."""
        self.check_depth(depth + 1, offset)
        result: dict[Any, Any] = {}

        def take(number: int, offset: int) -> int:
            pair: list[Any] = []

            def take_half(half: int, offset: int) -> int:
                if half == 0:
                    item, end = self.python(offset)
                    if not is_key(item) or item in result:
                        self.fail("a key must be a unique string or 64-bit integer", offset)
                else:
                    item, end = self.value(offset, depth + 1, f"{path}/$dict/{number}/{half}")
                pair.append(item)
                return end

            end = self.each_item(offset, take_half)
            if len(pair) != 2:
                self.fail("an item of $dict must be a pair of key and value", offset)
            result[pair[0]] = pair[1]
            return end

        return result, self.each_item(offset, take)

    def members(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        members, end = self.object(offset, depth, f"{path}/$bundle")
        if not isinstance(members, dict):
            self.fail("a bundle must be an object of tensors", offset)
        return members, end

    def whole(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        if path or depth:
            self.fail("$value is only allowed around the whole document", offset)
        return self.value(offset, depth, "/$value")

    def sparse_parts(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        integers = lambda offset: self.numbers(offset, INT64)  # noqa: E731
        values = lambda offset: self.value(offset, depth, f"{path}/$sparse/values")  # noqa: E731
        return self.fields(
            {"indices": integers, "values": values, "dense_shape": integers}, SPARSE, offset
        )

    def ragged_parts(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        values = lambda offset: self.value(offset, depth, f"{path}/$ragged/values")  # noqa: E731
        readers = {
            "values": values,
            "row_splits": self.splits,
            "splits_dtype": self.string,
            "uniform": self.python,
        }
        return self.fields(readers, {"values", "row_splits", "splits_dtype"}, offset)

    def quantized_parts(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        part = lambda offset: self.value(offset, depth, f"{path}/$quantized")  # noqa: E731
        readers = dict.fromkeys(("scheme", "dtype"), self.string) | {"axis": self.python}
        return self.fields(
            {**readers, "codes": part, "scale": part, "zero_point": part},
            {"scheme", "dtype", "codes"},
            offset,
        )

    # Functions that make the value of a form. Each takes its fields, offset and path.

    def tensor(self, fields: Fields, offset: int, path: str) -> Any:
        array = fields["data"]
        if "nan" in fields:
            self.put_nans(array, fields["nan"], offset)
        if isinstance(array, np.ndarray):
            self.made[path] = array
        if len(self.made) > self.limits.names:
            self.fail(
                f"too many tensors; Limits(names=...) allows {self.limits.names}",
                offset,
                LimitError,
            )
        return array

    def put_nans(self, array: Any, places: Fields, offset: int) -> None:
        """Writes the NaNs with other bits than the default into an array."""
        if not isinstance(array, np.ndarray):
            self.fail("'nan' is not allowed for strings", offset)
        part: Array = array.reshape(-1).view(
            np.dtype(f"f{array.itemsize // 2}") if array.dtype.kind == "c" else array.dtype
        )
        if not jsontext.NANS.get(dtypes.of(part.dtype).name):
            self.fail("'nan' is not allowed for a dtype without NaN", offset)
        where, _ = self.numbers(places["at"], INT64)
        bits, _ = self.numbers(places["bits"], dtypes.of(np.dtype(f"u{part.itemsize}")))
        ok = where.ndim == 1 and where.shape == bits.shape and bool((where[1:] > where[:-1]).all())
        ok = (
            ok
            and (not where.size or (where[0] >= 0 and where[-1] < part.size))
            and bool(np.isnan(part[where]).all())
        )
        if not ok or not np.isnan(bits.view(part.dtype)).all():
            self.fail("'nan' must list the positions of NaNs and the bits of NaNs", offset)
        part.flags.writeable = array.flags.writeable = True
        part.view(bits.dtype)[where] = bits
        self.keep(array, offset)

    def sparse_tensor(self, fields: Fields, offset: int, path: str) -> Any:
        parts = fields["$sparse"]
        return self.sparse(parts["indices"], parts["values"], parts["dense_shape"], offset)

    def ragged_tensor(self, fields: Fields, offset: int, path: str) -> Any:
        parts = fields["$ragged"]
        self.check_values(parts["values"], offset)
        splits = parts["row_splits"]
        if parts["splits_dtype"] == "int32":
            narrow = [self.keep(part.astype(np.int32), offset) for part in splits]
            if not all(map(np.array_equal, narrow, splits)):
                self.fail("row_splits are out of range for int32", offset)
            splits = narrow
        elif parts["splits_dtype"] != "int64":
            self.fail("splits_dtype must be int32 or int64", offset)
        node = {"ragged": {}, "splits": len(splits)} | (
            {"uniform": parts["uniform"]} if "uniform" in parts else {}
        )
        return self.lift(node, [parts["values"], *splits], offset)

    def quantized_tensor(self, fields: Fields, offset: int, path: str) -> Any:
        parts = fields["$quantized"]
        arrays = [parts.pop(key) for key in ("codes", "scale", "zero_point") if key in parts]
        if not all(isinstance(part, np.ndarray) for part in arrays) or len(arrays) != (
            3 if "axis" in parts else 1
        ):
            self.fail(
                "a quantized tensor must have dense codes, and with an axis a dense scale and"
                " zero_point",
                offset,
            )
        self.made[path] = made = self.lift({"quantized": {}, **parts}, arrays, offset)
        return made

    def bundle(self, fields: Fields, offset: int, path: str) -> Any:
        texts: Fields = {
            key: fields[key] for key in ("metadata", "tensor_metadata") if key in fields
        }
        node: Fields = {"bundle": {name: {} for name in fields["$bundle"]}, **texts}
        return self.lift(node, list(fields["$bundle"].values()), offset)

    def float(self, fields: Fields, offset: int, path: str) -> float:
        bits = {name: bits for bits, name in FLOATS.items()}.get(fields["$float"], fields["$float"])
        value: float = self.lift({"float": bits}, [], offset)
        if np.isfinite(value):
            self.fail("$float must not be finite", offset)
        return value

    def same(self, fields: Fields, offset: int, path: str) -> Any:
        if fields["$same"] not in self.made:
            self.fail(
                f"$same refers to {fields['$same']!r:.60}, which is not an earlier dense tensor",
                offset,
            )
        return self.made[fields["$same"]]

    def valued(self, fields: Fields, offset: int, path: str) -> Any:
        texts = fields.get("metadata", {})
        if type(texts) is not dict or not all(type(text) is str for text in texts.values()):
            self.fail("metadata must be an object of strings", offset)
        self.metadata = texts
        return fields["$value"]


_Field = Callable[[JsonReader, int, int, str, Fields], Read]
_FORMS: dict[str, tuple[dict[str, _Field], Callable[[JsonReader, Fields, int, str], Any]]] = {
    "$tensor": (
        {
            "$tensor": JsonReader.word,
            "shape": JsonReader.shape,
            "data": JsonReader.data_of,
            "nan": JsonReader.nans,
        },
        JsonReader.tensor,
    ),
    "$sparse": ({"$sparse": JsonReader.sparse_parts}, JsonReader.sparse_tensor),
    "$ragged": ({"$ragged": JsonReader.ragged_parts}, JsonReader.ragged_tensor),
    "$quantized": ({"$quantized": JsonReader.quantized_parts}, JsonReader.quantized_tensor),
    "$tuple": (
        {"$tuple": JsonReader.tuple_items},
        lambda self, fields, offset, path: tuple(fields["$tuple"]),
    ),
    "$dict": ({"$dict": JsonReader.pairs}, lambda self, fields, offset, path: fields["$dict"]),
    "$bundle": (
        {
            "$bundle": JsonReader.members,
            "metadata": JsonReader.plainly,
            "tensor_metadata": JsonReader.plainly,
        },
        JsonReader.bundle,
    ),
    "$bytes": (
        {"$bytes": JsonReader.word},
        lambda self, fields, offset, path: self.base64(fields["$bytes"], offset),
    ),
    "$float": ({"$float": JsonReader.word}, JsonReader.float),
    "$same": ({"$same": JsonReader.word}, JsonReader.same),
    "$value": ({"$value": JsonReader.whole, "metadata": JsonReader.plainly}, JsonReader.valued),
}
"""The forms by their first key: the functions that read their fields, and that make their value."""
_OPTIONAL = {"nan", "metadata", "tensor_metadata"}
_NEEDED = {form: fields.keys() - _OPTIONAL for form, (fields, _) in _FORMS.items()}
_BESIDE = {key for fields, _ in _FORMS.values() for key in fields if key[0] != "$"}
