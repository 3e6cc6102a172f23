"""Tensors out of JSON text: their numbers go straight into arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import lowering
from ..._errors import DecodeError, EncodeError, LimitError
from ..._limits import Budget
from ...core import dtypes, memory, validate
from ...core.frozen import trusted
from ...core.quantized import Quantized
from ...core.tensors import Array, Strings
from ...lowering import Node
from ...wire import json as jsontext
from .tokens import FORMAT, Read, Tokens

_FIRST = re.compile(
    rb'[\[ \t\n\r]*(?:(\]|[-0-9NI]|"(?:NaN|-?Infinity)")|([tf])|("|\{[ \t\n\r]*"b64"))'
)
"""The first thing in nested lists: nothing or a number, a bool, a string."""
INT64 = dtypes.BY_NAME["int64"]


class Tensors(Tokens):
    def __init__(self, data: memoryview, limits: Budget, copy: bool | None, ragged: bool) -> None:
        super().__init__(data, limits)
        self.copy, self.ragged = copy, ragged

    def keep(self, array: Array, at: int) -> Array:
        """An array of ours, by the memory rules."""
        if self.copy is False and array.size:
            self.fail("copy=False, but numbers in text have to be read; leave copy out", at)
        return array if self.copy else memory.read_only(array)

    def lift(self, node: Node, parts: list[Any], at: int) -> Any:
        try:
            return lowering.lift(node, parts, self.limits)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=at) from None

    def elements(self, shape: tuple[int, ...], at: int, itemsize: int = 1) -> int:
        try:
            return validate.elements(shape, DecodeError, itemsize)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=at) from None

    def numbers(
        self, at: int, row: dtypes.DType, shape: tuple[int, ...] | None = None
    ) -> tuple[Array, int]:
        found = self.read_numbers(at, row, shape)
        return self.keep(found.array, at), found.end

    def read_numbers(
        self, at: int, row: dtypes.DType, shape: tuple[int, ...] | None = None, ragged: bool = False
    ) -> jsontext.JsonValue:
        """Numbers in lists, drawn on the budget."""
        most = min(self.limits.tensor, max(0, self.limits.left))
        found = jsontext.read_numbers(
            self.data, at, row, shape, ragged=ragged, most=most, format=FORMAT
        )
        self.limits.draw(
            found.array.nbytes + sum(split.nbytes for split in found.splits), FORMAT, at
        )
        return found

    def dense(self, at: int, row: dtypes.DType, shape: tuple[int, ...]) -> tuple[Array, int]:
        """Numbers of a known shape. Where that holds nothing, `[]` is enough."""
        if self.elements(shape, at, row.numpy.itemsize):
            return self.numbers(at, row, shape)
        end = self.nothing(at, shape)
        return self.keep(np.empty(shape, row.numpy), at), end

    def nothing(self, at: int, shape: tuple[int, ...]) -> int:
        """Behind lists of lists that hold nothing: `[]`, or those that the shape has before its
        first zero.
        """
        try:
            found = jsontext.read_numbers(self.data, at, INT64, most=0, format=FORMAT)
        except LimitError as error:
            self.fail(f"a number where the shape {list(shape)} has none", error.offset or at)
        if found.array.shape not in ((0,), shape[: shape.index(0) + 1]):
            self.fail(f"the lists are not those of the shape {list(shape)}", at)
        return found.end

    def strings(self, at: int, shape: tuple[int, ...], text: bool) -> tuple[Strings, int]:
        if not self.elements(shape, at):
            return self.of_words([], shape, text, at), self.nothing(at, shape)
        items, end = self.python(at)
        level = [items]
        for dim in shape:
            if any(type(item) is not list or len(item) != dim for item in level):
                self.fail(f"the lists are not those of the shape {list(shape)}", at)
            level = [word for item in level for word in item]
        if not all(type(word) is str for word in level):
            self.fail("something else among the strings", at)
        return (
            self.of_words(
                level if text else [self.base64(word, at) for word in level], shape, text, at
            ),
            end,
        )

    def of_words(self, words: Any, shape: tuple[int, ...], text: bool, at: int) -> Strings:
        try:
            found = Strings.of(words, shape, text)
        except EncodeError as error:
            self.fail(error.message, at)
        data = found.data.copy() if self.copy else found.data
        return trusted(
            Strings, self.keep(data, at), self.keep(found.offsets, at), found.shape, found.text
        )

    def sparse(self, indices: Array, values: Any, dense_shape: Array, at: int) -> Any:
        self.check_values(values, at)
        wanted = values.shape[0], dense_shape.size - len(values.shape) + 1
        if (
            wanted[1] >= 0
            and not indices.size
            and wanted[0] * wanted[1] == 0
            and indices.shape in ((0,), wanted)
        ):
            indices = self.keep(np.empty(wanted, np.int64), at)  # [] says nothing of the rank
        return self.lift({"sparse": {}}, [indices, values, dense_shape], at)

    def check_values(self, values: Any, at: int) -> None:
        if not isinstance(values, (np.ndarray, Strings, Quantized)) or not values.shape:
            self.fail(
                "the values of a sparse or ragged tensor are a dense or string tensor with rows", at
            )

    def splits(self, at: int) -> tuple[list[Array], int]:
        """Lists of integers, of any lengths."""
        found = self.read_numbers(at, INT64, ragged=True)
        if len(found.splits) != 1:
            self.fail("row_splits are lists of integers in a list", at)
        flat, bounds = self.keep(found.array, at), found.splits[0].tolist()
        return [flat[a:b] for a, b in zip(bounds, bounds[1:], strict=False)], found.end

    # Plain lists, whose dtype the caller knows: a row of the table, or "text" or "bytes"

    def is_of(self, at: int, dtype: Any) -> bool:
        """Whether the first thing in nested lists is one of this dtype, or they are empty."""
        found = _FIRST.match(self.data, at)
        if found is None:
            return False
        number, flag, word = found.groups()
        if number == b"]":
            return True
        if isinstance(dtype, str):
            return word is not None or (number or b"")[:1] == b'"'
        return (flag if dtype.name == "bool" else number) is not None

    def typed(self, at: int, dtype: Any, way: str) -> Read:
        """Lists of lists as a tensor of this dtype."""
        try:
            if isinstance(dtype, str):
                return self.plain_strings(at, dtype == "text")
            if not self.ragged or self.data[at] != ord("["):
                return self.numbers(at, dtype)
            found = self.read_numbers(at, dtype, ragged=True)
            parts = [self.keep(part, at) for part in (found.array, *found.splits)]
            return (
                self.lift({"ragged": {}, "splits": len(found.splits)}, parts, at)
                if found.splits
                else parts[0]
            ), found.end
        except DecodeError as error:
            raise error.add(tensor=way[1:] or None) from None

    def plain_strings(self, at: int, text: bool) -> Read:
        items, end = self.python(at)
        shape: list[int] = []
        level = [items]
        while level and all(type(item) is list for item in level):
            shape.append(len(level[0]))
            if any(len(item) != shape[-1] for item in level):
                self.fail(
                    "ragged lists of strings, which are read as they are only without dtype=", at
                )
            level = [word for item in level for word in item]
        if not all(
            type(word) is str or (type(word) is dict and word.keys() == {"b64"} and not text)
            for word in level
        ):
            self.fail("something else among the strings", at)
        words = (
            level
            if text
            else [
                word.encode() if type(word) is str else self.base64(word["b64"], at)
                for word in level
            ]
        )
        return self.of_words(words, tuple(shape), text, at), end

    def plain_sparse(self, places: Mapping[str, int], dtype: Any, at: int, way: str) -> Any:
        """{"indices": ..., "values": ..., "dense_shape": ...}"""
        try:
            indices, dense_shape = (
                self.numbers(places[key], INT64)[0] for key in ("indices", "dense_shape")
            )
            return self.sparse(
                indices, self.typed(places["values"], dtype, way)[0], dense_shape, at
            )
        except DecodeError as error:
            raise error.add(tensor=way[1:] or None) from None
