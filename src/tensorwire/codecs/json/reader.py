"""A JSON document to its value.

A list or object without any "$" in it is Python's own, so Python's parser does all of it at once.
Every other one is taken apart here. In an object that is a tensor, keys may stand in any order:
what cannot be understood yet is skipped, and read when all keys are known.
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
        """Dense tensors by where they stand."""
        self.lost: dict[int, tuple[Array, UnreadablePart]] | None = None
        """Tensors of unknown dtypes, by the id of the array that stands for each; None: an error.
        """

    def document(self) -> Any:
        value, end = self.value(self.space(0), 0, "")
        self.finish(end)
        return value

    def named(self, path: str) -> Any:
        """The dtype that the caller gave for what stands there by name."""
        return self.dtype.get(path[1:]) if isinstance(self.dtype, Mapping) else None

    def value(self, offset: int, depth: int, path: str) -> Read:
        char = self.data[offset]
        if char != ord("{") and self.named(path) is not None:
            return self.typed(offset, self.named(path), path)
        if char == ord('"'):
            return self.string(offset)
        if char not in b"[{":
            return self.python(offset)
        self.check_depth(depth, offset)  # a tensor may still stand where no list or dict may
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
            self.fail(f"a value nested more than {self.limits.json_depth} deep", offset, LimitError)

    def items(self, offset: int, depth: int, path: str) -> tuple[list[Any], int]:
        self.check_depth(depth + 1, offset)
        items: list[Any] = []

        def take(number: int, offset: int) -> int:
            item, end = self.value(offset, depth + 1, pointer(path, number))
            items.append(item)
            return end

        return items, self.each_item(offset, take)

    def object(self, offset: int, depth: int, path: str) -> Read:
        form: str | None = None
        fields: Fields = {}
        """What stands in an object of a form."""
        members: Fields = {}
        """What stands in any other, and None where it is to be read yet."""
        waiting: dict[str, int] = {}

        def take(key: str, offset: int) -> int:
            nonlocal form
            dollar = key[:1] == "$" and not self.plain
            if dollar and key[1:2] != "$":
                if form is not None or key not in _FORMS or members.keys() - waiting.keys():
                    self.fail(
                        f"{key!r:.40} is no form of ours, or not alone; plain=True reads any key,"
                        " and ours are written with $$",
                        offset,
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
                self.fail(f"{form} without {', '.join(sorted(missing))}", offset)
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
        """Whether a key may turn out to be a part of a tensor, by a key that comes after it."""
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
            self.fail(f"{key!r:.40} beside {form}", offset)
        return read(self, offset, depth, path, fields)

    def fields(
        self, readers: Mapping[str, Callable[[int], Read]], needed: set[str], offset: int
    ) -> tuple[Fields, int]:
        """An object that has these keys and no others."""
        fields: Fields = {}

        def take(key: str, offset: int) -> int:
            if key not in readers:
                self.fail(f"a key {key!r:.40} that does not belong here", offset)
            fields[key], end = readers[key](offset)
            return end

        end = self.each_key(offset, take)
        if needed - fields.keys():
            self.fail(f"without {', '.join(sorted(needed - fields.keys()))}", offset)
        return fields, end

    # What stands in a form: each takes (at, depth, way, what was read of it before)

    def word(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        return self.string(offset)

    def plainly(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        return self.python(offset)

    def shape(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        dims, end = self.python(offset)
        if type(dims) is not list or not all(type(dim) is int for dim in dims):
            self.fail("a shape is a list of integers", offset)
        return tuple(dims), end

    def data_of(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        name, shape = fields["$tensor"], fields["shape"]
        if name in ("text", "bytes"):
            return self.strings(offset, shape, name == "text")
        row = dtypes.BY_NAME.get(name)
        if row is None or row.reading_only:
            return self.unknown(offset, name, shape, path)
        array, end = self.dense(offset, row, shape)
        return array, end

    def unknown(self, offset: int, dtype: str, shape: tuple[int, ...], path: str) -> Read:
        """A tensor of a dtype that is not known: an error, or in a container an empty array that
        stands for it."""
        why, place = f"unknown dtype {dtype!r:.40}", path[1:].replace("~1", "/").replace("~0", "~")
        error = DecodeError(why, format=FORMAT, offset=offset, tensor=place or None)
        if self.lost is None:
            raise error
        validate.elements(shape, DecodeError)
        end, stand_in = self.end(offset), np.empty(0, np.uint8)
        part = UnreadablePart(dtype, shape, end - offset, error)
        self.lost[id(stand_in)] = stand_in, part
        return stand_in, end

    def nans(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        """Kept as the places of two lists, since their dtype may not be known yet."""
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
        """The keys and values of a dict with a key that is an int."""
        self.check_depth(depth + 1, offset)
        result: dict[Any, Any] = {}

        def take(number: int, offset: int) -> int:
            pair: list[Any] = []

            def take_half(half: int, offset: int) -> int:
                if half == 0:
                    item, end = self.python(offset)
                    if not is_key(item) or item in result:
                        self.fail("a key is a string or an integer of 64 bits, each once", offset)
                else:
                    item, end = self.value(offset, depth + 1, f"{path}/$dict/{number}/{half}")
                pair.append(item)
                return end

            end = self.each_item(offset, take_half)
            if len(pair) != 2:
                self.fail("an item of $dict is a key and a value", offset)
            result[pair[0]] = pair[1]
            return end

        end = self.each_item(offset, take)
        return result, end

    def members(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        members, end = self.object(offset, depth, f"{path}/$bundle")
        if not isinstance(members, dict):
            self.fail("a bundle is an object of tensors", offset)
        return members, end

    def whole(self, offset: int, depth: int, path: str, fields: Fields) -> Read:
        if path or depth:
            self.fail("$value stands around a whole document only", offset)
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

    # What a form is: each takes (what stands in it, where it begins, its way)

    def tensor(self, fields: Fields, offset: int, path: str) -> Any:
        array = fields["data"]
        if "nan" in fields:
            self.put_nans(array, fields["nan"], offset)
        if isinstance(array, np.ndarray):
            self.made[path] = array
        if len(self.made) > self.limits.names:
            self.fail(f"more than {self.limits.names} tensors", offset, LimitError)
        return array

    def put_nans(self, array: Any, places: Fields, offset: int) -> None:
        """NaNs whose bits are not the usual ones."""
        if not isinstance(array, np.ndarray):
            self.fail("nan beside strings", offset)
        part: Array = array.reshape(-1).view(
            np.dtype(f"f{array.itemsize // 2}") if array.dtype.kind == "c" else array.dtype
        )
        if not jsontext.NANS.get(dtypes.of(part.dtype).name):
            self.fail("nan beside a tensor that can have none", offset)
        where, _ = self.numbers(places["at"], INT64)
        bits, _ = self.numbers(places["bits"], dtypes.of(np.dtype(f"u{part.itemsize}")))
        ok = where.ndim == 1 and where.shape == bits.shape and bool((where[1:] > where[:-1]).all())
        ok = (
            ok
            and (not where.size or (where[0] >= 0 and where[-1] < part.size))
            and bool(np.isnan(part[where]).all())
        )
        if not ok or not np.isnan(bits.view(part.dtype)).all():
            self.fail("the places in nan are not those of NaNs, or its bits are none", offset)
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
                self.fail("row_splits past what int32 holds", offset)
            splits = narrow
        elif parts["splits_dtype"] != "int64":
            self.fail("row_splits are int32 or int64", offset)
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
                "the parts of a quantized tensor are dense: codes, or with an axis codes, scale and"
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
            self.fail("$float with a number that JSON has", offset)
        return value

    def same(self, fields: Fields, offset: int, path: str) -> Any:
        if fields["$same"] not in self.made:
            self.fail(
                f"$same points to {fields['$same']!r:.60}, where no dense tensor stands before it",
                offset,
            )
        return self.made[fields["$same"]]

    def valued(self, fields: Fields, offset: int, path: str) -> Any:
        texts = fields.get("metadata", {})
        if type(texts) is not dict or not all(type(text) is str for text in texts.values()):
            self.fail("metadata is an object of strings", offset)
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
"""By its first key: what may stand in it, and what it is then."""
_OPTIONAL = {"nan", "metadata", "tensor_metadata"}
_NEEDED = {form: fields.keys() - _OPTIONAL for form, (fields, _) in _FORMS.items()}
_BESIDE = {key for fields, _ in _FORMS.values() for key in fields if key[0] != "$"}
