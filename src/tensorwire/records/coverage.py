"""Schema coverage: checks that no value of a record is lost because the schema lacks its feature.

The decoder reports whether a group of records holds a value that no column takes. Only such records
are examined again, here.
"""

from __future__ import annotations

from .._errors import SchemaError
from .._limits import DEFAULT
from ..core import memory
from ..core.memory import Array, Buffer
from ..wire import kernels
from .blocks import Block
from .schema import Schema

_EVENT = b"\x09"
"""The first byte of a TensorBoard event: its time, a double in field 1."""


def check(
    schema: Schema, data: Buffer | Array, starts: Array, sizes: Array, first: int = 0
) -> None:
    """Raise SchemaError if a record has values that the schema lacks, or is not an Example.

    Examines the records from number `first` on. Skips records that cannot be parsed.
    """
    if _lost(schema, data, starts[first:], sizes[first:]) is None:
        return
    for number in range(first, len(starts)):
        error = _lost(schema, data, starts[number : number + 1], sizes[number : number + 1])
        if error is not None:
            raise error.add(record=number)


def _lost(schema: Schema, data: Buffer | Array, starts: Array, sizes: Array) -> SchemaError | None:
    """Return the error for the first feature that the schema does not cover, or None."""
    survey, first = kernels.ExampleSurvey(DEFAULT.names), 0
    while first < len(starts):
        code, _, done = survey.add(data, starts[first:], sizes[first:], True)
        first += done + bool(code)
    if survey.others:
        return not_an_example(data, starts[0])
    for name, is_list, _, kinds, *_ in survey.result()[2]:
        shown = name.decode(errors="backslashreplace")
        if any(kinds[1:]) and shown not in (schema.sequences if is_list else schema):
            what, hint = "feature", "choose the features to read with columns="
            if is_list:
                what, hint = "feature list", "tw.read_sequence_examples reads feature lists"
            message = f"the record has a {what} that the schema lacks and that would be lost"
            return SchemaError(message, tensor=shown, hint=hint)
    return None


def check_examples(survey: kernels.ExampleSurvey, before: int, block: Block) -> None:
    """Raise SchemaError if a block contains messages of another type than Example.

    The block has just been added to the survey; `before` is the value of `survey.others` before
    that.
    """
    if survey.others == before:
        return
    for number in range(len(block.starts)):
        alone, part = kernels.ExampleSurvey(DEFAULT.names), slice(number, number + 1)
        alone.add(block.data, block.starts[part], block.sizes[part], True)
        if alone.others:
            record, offset = block.where(number)
            error = not_an_example(block.data, block.starts[number])
            raise error.add(path=block.path, record=record, offset=offset)


def not_an_example(data: Buffer | Array, start: int) -> SchemaError:
    """Return the error for a record that is a message of another type."""
    is_event = bytes(memory.flat(data)[start : start + 1]) == _EVENT
    what = "a TensorBoard event" if is_event else "a message of another type"
    return SchemaError(
        f"the record is not a tf.train.Example but {what}",
        format="example",
        hint="tw.RecordReader reads records as bytes",
    )
