"""Whether a schema covers all that records hold, so that nothing gets lost.

The decoder says of a lot of records whether they hold anything that no column takes. Only such
records are looked at once more, here.
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
    """Raises SchemaError if a record has values that the schema lacks, or is not an Example.

    Records are looked at from number `first` on. Those that cannot be parsed are passed over.
    """
    if _lost(schema, data, starts[first:], sizes[first:]) is None:
        return
    for number in range(first, len(starts)):
        error = _lost(schema, data, starts[number : number + 1], sizes[number : number + 1])
        if error is not None:
            raise error.add(record=number)


def _lost(schema: Schema, data: Buffer | Array, starts: Array, sizes: Array) -> SchemaError | None:
    """The error for what the schema does not cover."""
    survey, first = kernels.ExampleSurvey(DEFAULT.names), 0
    while first < len(starts):
        code, _, done = survey.add(data, starts[first:], sizes[first:], True)
        first += done + bool(code)
    if survey.others:
        return not_an_example(data, starts[0])
    for name, is_list, _, kinds, *_ in survey.result()[2]:
        shown = name.decode(errors="backslashreplace")
        if any(kinds[1:]) and shown not in (schema.sequences if is_list else schema):
            what, hint = "feature", "columns= says what to read"
            if is_list:
                what, hint = "feature list", "tw.read_sequence_examples reads feature lists"
            why = f"a {what} that the schema does not have, and that would be lost; {hint}"
            return SchemaError(why, tensor=shown)
    return None


def check_examples(survey: kernels.ExampleSurvey, before: int, block: Block) -> None:
    """Raises SchemaError if a block has messages of another type.

    The survey has just counted the block in; `before` is its `others` until then.
    """
    if survey.others == before:
        return
    for number in range(len(block.starts)):
        alone, place = kernels.ExampleSurvey(DEFAULT.names), slice(number, number + 1)
        alone.add(block.data, block.starts[place], block.sizes[place], True)
        if alone.others:
            record, offset = block.where(number)
            error = not_an_example(block.data, block.starts[number])
            raise error.add(path=block.path, record=record, offset=offset)


def not_an_example(data: Buffer | Array, start: int) -> SchemaError:
    """The error for a record that is a message of another type."""
    is_event = bytes(memory.flat(data)[start : start + 1]) == _EVENT
    what = "a TensorBoard event" if is_event else "a message of another type"
    why = f"the record is not a tf.train.Example but {what}; tw.RecordReader gives records as bytes"
    return SchemaError(why, format="example")
