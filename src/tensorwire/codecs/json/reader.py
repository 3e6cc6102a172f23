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

    def named(self, way: str) -> Any:
        """The dtype that the caller gave for what stands there by name."""
        return self.dtype.get(way[1:]) if isinstance(self.dtype, Mapping) else None

    def value(self, at: int, depth: int, way: str) -> Read:
        char = self.data[at]
        if char != ord("{") and self.named(way) is not None:
            return self.typed(at, self.named(way), way)
        if char == ord('"'):
            return self.string(at)
        if char not in b"[{":
            return self.python(at)
        self.check_depth(depth, at)  # a tensor may still stand where no list or dict may
        if self.dtype is None:
            end, deep, stopped = jsontext.skip(self.data, at, self.text_depth, self.plain, FORMAT)
            if not stopped:
                self.check_depth(depth + deep, at)
                return self.parse(at, end), end
        if char == ord("{"):
            return self.object(at, depth, way)
        if (
            self.dtype is not None
            and not isinstance(self.dtype, Mapping)
            and self.is_of(at, self.dtype)
        ):
            return self.typed(at, self.dtype, way)
        return self.items(at, depth, way)

    def check_depth(self, depth: int, at: int) -> None:
        if depth > self.limits.json_depth:
            self.fail(f"a value nested more than {self.limits.json_depth} deep", at, LimitError)

    def items(self, at: int, depth: int, way: str) -> tuple[list[Any], int]:
        self.check_depth(depth + 1, at)
        found: list[Any] = []

        def take(number: int, at: int) -> int:
            item, end = self.value(at, depth + 1, pointer(way, number))
            found.append(item)
            return end

        return found, self.each_item(at, take)

    def object(self, at: int, depth: int, way: str) -> Read:
        form: str | None = None
        own: Fields = {}
        """What stands in an object of a form."""
        found: Fields = {}
        """What stands in any other, and None where it is to be read yet."""
        waiting: dict[str, int] = {}

        def take(key: str, at: int) -> int:
            nonlocal form
            dollar = key[:1] == "$" and not self.plain
            if dollar and key[1:2] != "$":
                if form is not None or key not in _FORMS or found.keys() - waiting.keys():
                    self.fail(
                        f"{key!r:.40} is no form of ours, or not alone; plain=True reads any key,"
                        " and ours are written with $$",
                        at,
                    )
                form = key
            if form is not None and (key != "data" or {"$tensor", "shape"} <= own.keys()):
                own[key], end = self.field(form, key, at, depth, way, own)
                return end
            self.check_depth(depth + (form is None), at)
            if form is not None or self.may_belong(key, at):
                found[key], waiting[key] = None, at
                return self.end(at)
            found[key[1:] if dollar else key], end = self.value(at, depth + 1, pointer(way, key))
            return end

        end = self.each_key(at, take)
        if form is not None:
            missing = _NEEDED[form] - own.keys() - waiting.keys()
            if missing:
                self.fail(f"{form} without {', '.join(sorted(missing))}", at)
            for key, start in sorted(waiting.items(), key=lambda item: item[0] == "data"):
                own[key], _ = self.field(form, key, start, depth, way, own)
            return _FORMS[form][1](self, own, at, way), end
        dtype = self.named(way) if isinstance(self.dtype, Mapping) else self.dtype
        if dtype is not None and found.keys() == waiting.keys() == SPARSE:
            return self.plain_sparse(waiting, dtype, at, way), end
        for key, start in waiting.items():
            found[key], _ = self.value(start, depth + 1, pointer(way, key))
        return found, end

    def may_belong(self, key: str, at: int) -> bool:
        """Whether a key may turn out to be a part of a tensor, by a key that comes after it."""
        if key in SPARSE and self.dtype is not None:
            return True
        return (
            key in _BESIDE and not self.plain and not (key == "data" and self.data[at] == ord("{"))
        )

    def field(self, form: str, key: str, at: int, depth: int, way: str, own: Fields) -> Read:
        read = _FORMS[form][0].get(key)
        if read is None:
            self.fail(f"{key!r:.40} beside {form}", at)
        return read(self, at, depth, way, own)

    def fields(
        self, readers: Mapping[str, Callable[[int], Read]], needed: set[str], at: int
    ) -> tuple[Fields, int]:
        """An object that has these keys and no others."""
        found: Fields = {}

        def take(key: str, at: int) -> int:
            if key not in readers:
                self.fail(f"a key {key!r:.40} that does not belong here", at)
            found[key], end = readers[key](at)
            return end

        end = self.each_key(at, take)
        if needed - found.keys():
            self.fail(f"without {', '.join(sorted(needed - found.keys()))}", at)
        return found, end

    # What stands in a form: each takes (at, depth, way, what was read of it before)

    def word(self, at: int, depth: int, way: str, own: Fields) -> Read:
        return self.string(at)

    def plainly(self, at: int, depth: int, way: str, own: Fields) -> Read:
        return self.python(at)

    def shape(self, at: int, depth: int, way: str, own: Fields) -> Read:
        dims, end = self.python(at)
        if type(dims) is not list or not all(type(dim) is int for dim in dims):
            self.fail("a shape is a list of integers", at)
        return tuple(dims), end

    def data_of(self, at: int, depth: int, way: str, own: Fields) -> Read:
        name, shape = own["$tensor"], own["shape"]
        if name in ("text", "bytes"):
            return self.strings(at, shape, name == "text")
        row = dtypes.BY_NAME.get(name)
        if row is None or row.reading_only:
            return self.unknown(at, name, shape, way)
        found, end = self.dense(at, row, shape)
        return found, end

    def unknown(self, at: int, dtype: str, shape: tuple[int, ...], way: str) -> Read:
        """A tensor of a dtype that is not known: an error, or in a container an empty array that
        stands for it."""
        why, place = f"unknown dtype {dtype!r:.40}", way[1:].replace("~1", "/").replace("~0", "~")
        error = DecodeError(why, format=FORMAT, offset=at, tensor=place or None)
        if self.lost is None:
            raise error
        validate.elements(shape, DecodeError)
        end, stand_in = self.end(at), np.empty(0, np.uint8)
        part = UnreadablePart(dtype, shape, end - at, error)
        self.lost[id(stand_in)] = stand_in, part
        return stand_in, end

    def nans(self, at: int, depth: int, way: str, own: Fields) -> Read:
        """Kept as the places of two lists, since their dtype may not be known yet."""
        return self.fields(
            {"at": lambda at: (at, self.end(at)), "bits": lambda at: (at, self.end(at))},
            {"at", "bits"},
            at,
        )

    def tuple_items(self, at: int, depth: int, way: str, own: Fields) -> Read:
        return self.items(at, depth, f"{way}/$tuple")

    def pairs(self, at: int, depth: int, way: str, own: Fields) -> Read:
        """The keys and values of a dict with a key that is an int."""
        self.check_depth(depth + 1, at)
        found: dict[Any, Any] = {}

        def take(number: int, at: int) -> int:
            pair: list[Any] = []

            def take_half(half: int, at: int) -> int:
                if half == 0:
                    item, end = self.python(at)
                    if not is_key(item) or item in found:
                        self.fail("a key is a string or an integer of 64 bits, each once", at)
                else:
                    item, end = self.value(at, depth + 1, f"{way}/$dict/{number}/{half}")
                pair.append(item)
                return end

            end = self.each_item(at, take_half)
            if len(pair) != 2:
                self.fail("an item of $dict is a key and a value", at)
            found[pair[0]] = pair[1]
            return end

        end = self.each_item(at, take)
        return found, end

    def members(self, at: int, depth: int, way: str, own: Fields) -> Read:
        found, end = self.object(at, depth, f"{way}/$bundle")
        if not isinstance(found, dict):
            self.fail("a bundle is an object of tensors", at)
        return found, end

    def whole(self, at: int, depth: int, way: str, own: Fields) -> Read:
        if way or depth:
            self.fail("$value stands around a whole document only", at)
        return self.value(at, depth, "/$value")

    def sparse_parts(self, at: int, depth: int, way: str, own: Fields) -> Read:
        integers = lambda at: self.numbers(at, INT64)  # noqa: E731
        values = lambda at: self.value(at, depth, f"{way}/$sparse/values")  # noqa: E731
        return self.fields(
            {"indices": integers, "values": values, "dense_shape": integers}, SPARSE, at
        )

    def ragged_parts(self, at: int, depth: int, way: str, own: Fields) -> Read:
        values = lambda at: self.value(at, depth, f"{way}/$ragged/values")  # noqa: E731
        readers = {
            "values": values,
            "row_splits": self.splits,
            "splits_dtype": self.string,
            "uniform": self.python,
        }
        return self.fields(readers, {"values", "row_splits", "splits_dtype"}, at)

    def quantized_parts(self, at: int, depth: int, way: str, own: Fields) -> Read:
        part = lambda at: self.value(at, depth, f"{way}/$quantized")  # noqa: E731
        said = dict.fromkeys(("scheme", "dtype"), self.string) | {"axis": self.python}
        return self.fields(
            {**said, "codes": part, "scale": part, "zero_point": part},
            {"scheme", "dtype", "codes"},
            at,
        )

    # What a form is: each takes (what stands in it, where it begins, its way)

    def tensor(self, own: Fields, at: int, way: str) -> Any:
        found = own["data"]
        if "nan" in own:
            self.put_nans(found, own["nan"], at)
        if isinstance(found, np.ndarray):
            self.made[way] = found
        if len(self.made) > self.limits.names:
            self.fail(f"more than {self.limits.names} tensors", at, LimitError)
        return found

    def put_nans(self, array: Any, places: Fields, at: int) -> None:
        """NaNs whose bits are not the usual ones."""
        if not isinstance(array, np.ndarray):
            self.fail("nan beside strings", at)
        part: Array = array.reshape(-1).view(
            np.dtype(f"f{array.itemsize // 2}") if array.dtype.kind == "c" else array.dtype
        )
        if not jsontext.NANS.get(dtypes.of(part.dtype).name):
            self.fail("nan beside a tensor that can have none", at)
        where, _ = self.numbers(places["at"], INT64)
        bits, _ = self.numbers(places["bits"], dtypes.of(np.dtype(f"u{part.itemsize}")))
        ok = where.ndim == 1 and where.shape == bits.shape and bool((where[1:] > where[:-1]).all())
        ok = (
            ok
            and (not where.size or (where[0] >= 0 and where[-1] < part.size))
            and bool(np.isnan(part[where]).all())
        )
        if not ok or not np.isnan(bits.view(part.dtype)).all():
            self.fail("the places in nan are not those of NaNs, or its bits are none", at)
        part.flags.writeable = array.flags.writeable = True
        part.view(bits.dtype)[where] = bits
        self.keep(array, at)

    def sparse_tensor(self, own: Fields, at: int, way: str) -> Any:
        found = own["$sparse"]
        return self.sparse(found["indices"], found["values"], found["dense_shape"], at)

    def ragged_tensor(self, own: Fields, at: int, way: str) -> Any:
        found = own["$ragged"]
        self.check_values(found["values"], at)
        splits = found["row_splits"]
        if found["splits_dtype"] == "int32":
            narrow = [self.keep(part.astype(np.int32), at) for part in splits]
            if not all(map(np.array_equal, narrow, splits)):
                self.fail("row_splits past what int32 holds", at)
            splits = narrow
        elif found["splits_dtype"] != "int64":
            self.fail("row_splits are int32 or int64", at)
        node = {"ragged": {}, "splits": len(splits)} | (
            {"uniform": found["uniform"]} if "uniform" in found else {}
        )
        return self.lift(node, [found["values"], *splits], at)

    def quantized_tensor(self, own: Fields, at: int, way: str) -> Any:
        found = own["$quantized"]
        parts = [found.pop(key) for key in ("codes", "scale", "zero_point") if key in found]
        if not all(isinstance(part, np.ndarray) for part in parts) or len(parts) != (
            3 if "axis" in found else 1
        ):
            self.fail(
                "the parts of a quantized tensor are dense: codes, or with an axis codes, scale and"
                " zero_point",
                at,
            )
        self.made[way] = made = self.lift({"quantized": {}, **found}, parts, at)
        return made

    def bundle(self, own: Fields, at: int, way: str) -> Any:
        texts: Fields = {key: own[key] for key in ("metadata", "tensor_metadata") if key in own}
        node: Fields = {"bundle": {name: {} for name in own["$bundle"]}, **texts}
        return self.lift(node, list(own["$bundle"].values()), at)

    def float(self, own: Fields, at: int, way: str) -> float:
        bits = {name: bits for bits, name in FLOATS.items()}.get(own["$float"], own["$float"])
        value: float = self.lift({"float": bits}, [], at)
        if np.isfinite(value):
            self.fail("$float with a number that JSON has", at)
        return value

    def same(self, own: Fields, at: int, way: str) -> Any:
        if own["$same"] not in self.made:
            self.fail(
                f"$same points to {own['$same']!r:.60}, where no dense tensor stands before it", at
            )
        return self.made[own["$same"]]

    def valued(self, own: Fields, at: int, way: str) -> Any:
        texts = own.get("metadata", {})
        if type(texts) is not dict or not all(type(text) is str for text in texts.values()):
            self.fail("metadata is an object of strings", at)
        self.metadata = texts
        return own["$value"]


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
    "$tuple": ({"$tuple": JsonReader.tuple_items}, lambda self, own, at, way: tuple(own["$tuple"])),
    "$dict": ({"$dict": JsonReader.pairs}, lambda self, own, at, way: own["$dict"]),
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
        lambda self, own, at, way: self.base64(own["$bytes"], at),
    ),
    "$float": ({"$float": JsonReader.word}, JsonReader.float),
    "$same": ({"$same": JsonReader.word}, JsonReader.same),
    "$value": ({"$value": JsonReader.whole, "metadata": JsonReader.plainly}, JsonReader.valued),
}
"""By its first key: what may stand in it, and what it is then."""
_OPTIONAL = {"nan", "metadata", "tensor_metadata"}
_NEEDED = {form: fields.keys() - _OPTIONAL for form, (fields, _) in _FORMS.items()}
_BESIDE = {key for fields, _ in _FORMS.values() for key in fields if key[0] != "$"}
