"""Tensors in JSON text: their numbers are read straight into arrays."""

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
"""The first item of nested lists: none or a number, a bool, a string."""
INT64 = dtypes.BY_NAME["int64"]


class Tensors(Tokens):
    """Reads dense, string, sparse and ragged tensors from text."""

    def __init__(self, data: memoryview, limits: Budget, copy: bool | None, ragged: bool) -> None:
        super().__init__(data, limits)
        self.copy, self.ragged = copy, ragged

    def keep(self, array: Array, offset: int) -> Array:
        """Applies the memory rules of `tw.loads` to a new array."""
        if self.copy is False and array.size:
            self.fail(
                "copy=False, but numbers in text must be converted", offset, hint="leave copy= out"
            )
        return array if self.copy else memory.read_only(array)

    def lift(self, node: Node, parts: list[Any], offset: int) -> Any:
        try:
            return lowering.lift(node, parts, self.limits)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=offset) from None

    def elements(self, shape: tuple[int, ...], offset: int, itemsize: int = 1) -> int:
        try:
            return validate.elements(shape, DecodeError, itemsize)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=offset) from None

    def numbers(
        self, offset: int, row: dtypes.DType, shape: tuple[int, ...] | None = None
    ) -> tuple[Array, int]:
        result = self.read_numbers(offset, row, shape)
        return self.keep(result.array, offset), result.end

    def read_numbers(
        self,
        offset: int,
        row: dtypes.DType,
        shape: tuple[int, ...] | None = None,
        ragged: bool = False,
    ) -> jsontext.JsonValue:
        """Reads nested lists of numbers, which are drawn on the budget."""
        most = min(self.limits.tensor, max(0, self.limits.left))
        result = jsontext.read_numbers(
            self.data, offset, row, shape, ragged=ragged, most=most, format=FORMAT
        )
        self.limits.draw(
            result.array.nbytes + sum(split.nbytes for split in result.splits), FORMAT, offset
        )
        return result

    def dense(self, offset: int, row: dtypes.DType, shape: tuple[int, ...]) -> tuple[Array, int]:
        """Reads numbers of a known shape. A shape without elements may be written as `[]`."""
        if self.elements(shape, offset, row.numpy.itemsize):
            return self.numbers(offset, row, shape)
        end = self.nothing(offset, shape)
        return self.keep(np.empty(shape, row.numpy), offset), end

    def nothing(self, offset: int, shape: tuple[int, ...]) -> int:
        """Returns the end of nested lists without elements.

        They are `[]`, or the lists of the dimensions before the first zero of the shape.
        """
        try:
            result = jsontext.read_numbers(self.data, offset, INT64, most=0, format=FORMAT)
        except LimitError as error:
            self.fail(
                f"unexpected number: the shape {list(shape)} has no elements",
                error.offset or offset,
            )
        if result.array.shape not in ((0,), shape[: shape.index(0) + 1]):
            self.fail(f"the lists do not match the shape {list(shape)}", offset)
        return result.end

    def strings(self, offset: int, shape: tuple[int, ...], text: bool) -> tuple[Strings, int]:
        if not self.elements(shape, offset):
            return self.of_words([], shape, text, offset), self.nothing(offset, shape)
        items, end = self.python(offset)
        level = [items]
        for dim in shape:
            if any(type(item) is not list or len(item) != dim for item in level):
                self.fail(f"the lists do not match the shape {list(shape)}", offset)
            level = [word for item in level for word in item]
        if not all(type(word) is str for word in level):
            self.fail("expected only strings", offset)
        return (
            self.of_words(
                level if text else [self.base64(word, offset) for word in level],
                shape,
                text,
                offset,
            ),
            end,
        )

    def of_words(self, words: Any, shape: tuple[int, ...], text: bool, offset: int) -> Strings:
        try:
            strings = Strings.of(words, shape, text)
        except EncodeError as error:
            self.fail(error.message, offset)
        data = strings.data.copy() if self.copy else strings.data
        return trusted(
            Strings,
            self.keep(data, offset),
            self.keep(strings.offsets, offset),
            strings.shape,
            strings.text,
        )

    def sparse(self, indices: Array, values: Any, dense_shape: Array, offset: int) -> Any:
        self.check_values(values, offset)
        expected = values.shape[0], dense_shape.size - len(values.shape) + 1
        if (
            expected[1] >= 0
            and not indices.size
            and expected[0] * expected[1] == 0
            and indices.shape in ((0,), expected)
        ):
            # The indices [] of a tensor without elements do not tell its rank.
            indices = self.keep(np.empty(expected, np.int64), offset)
        return self.lift({"sparse": {}}, [indices, values, dense_shape], offset)

    def check_values(self, values: Any, offset: int) -> None:
        if not isinstance(values, (np.ndarray, Strings, Quantized)) or not values.shape:
            self.fail(
                "the values of a sparse or ragged tensor must be dense or strings, not a scalar",
                offset,
            )

    def splits(self, offset: int) -> tuple[list[Array], int]:
        """Reads a list of row_splits, which may have different lengths."""
        result = self.read_numbers(offset, INT64, ragged=True)
        if len(result.splits) != 1:
            self.fail("row_splits must be a list of lists of integers", offset)
        flat, bounds = self.keep(result.array, offset), result.splits[0].tolist()
        return [flat[a:b] for a, b in zip(bounds, bounds[1:], strict=False)], result.end

    # Plain lists, whose dtype the option dtype= gives: a row of the dtype table, "text" or "bytes".

    def is_of(self, offset: int, dtype: Any) -> bool:
        """Whether the first item of nested lists fits this dtype, or the lists are empty."""
        match = _FIRST.match(self.data, offset)
        if match is None:
            return False
        number, flag, word = match.groups()
        if number == b"]":
            return True
        if isinstance(dtype, str):
            return word is not None or (number or b"")[:1] == b'"'
        return (flag if dtype.name == "bool" else number) is not None

    def typed(self, offset: int, dtype: Any, path: str) -> Read:
        """Reads nested lists as a tensor of this dtype."""
        try:
            if isinstance(dtype, str):
                return self.plain_strings(offset, dtype == "text")
            if not self.ragged or self.data[offset] != ord("["):
                return self.numbers(offset, dtype)
            result = self.read_numbers(offset, dtype, ragged=True)
            parts = [self.keep(part, offset) for part in (result.array, *result.splits)]
            return (
                self.lift({"ragged": {}, "splits": len(result.splits)}, parts, offset)
                if result.splits
                else parts[0]
            ), result.end
        except DecodeError as error:
            raise error.add(tensor=path[1:] or None) from None

    def plain_strings(self, offset: int, text: bool) -> Read:
        items, end = self.python(offset)
        shape: list[int] = []
        level = [items]
        while level and all(type(item) is list for item in level):
            shape.append(len(level[0]))
            if any(len(item) != shape[-1] for item in level):
                self.fail(
                    "ragged lists of strings cannot be read as a tensor",
                    offset,
                    hint="without dtype= they are read as lists",
                )
            level = [word for item in level for word in item]
        if not all(
            type(word) is str or (type(word) is dict and word.keys() == {"b64"} and not text)
            for word in level
        ):
            self.fail("expected only strings", offset)
        words = (
            level
            if text
            else [
                word.encode() if type(word) is str else self.base64(word["b64"], offset)
                for word in level
            ]
        )
        return self.of_words(words, tuple(shape), text, offset), end

    def plain_sparse(self, places: Mapping[str, int], dtype: Any, offset: int, path: str) -> Any:
        """Reads the plain object {"indices": ..., "values": ..., "dense_shape": ...}."""
        try:
            indices, dense_shape = (
                self.numbers(places[key], INT64)[0] for key in ("indices", "dense_shape")
            )
            return self.sparse(
                indices, self.typed(places["values"], dtype, path)[0], dense_shape, offset
            )
        except DecodeError as error:
            raise error.add(tensor=path[1:] or None) from None
