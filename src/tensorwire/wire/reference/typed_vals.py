"""Values of a typed field of a TensorProto (float_val, int_val ...)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.memory import Array, flat
from .. import status
from .protobuf import FIXED32, FIXED64, LEN, VARINT, WireFault, fixed, length, skip, tag, varint

BOOL, FLOAT8 = 11, 18
FIXED = {5: (4, FIXED32), 9: (4, FIXED32), 6: (8, FIXED64), 12: (8, FIXED64)}


def typed_vals(
    data: Any, field: int, strict: bool, width: int, lowest: int, highest: int, room: int
) -> tuple[int, int, int, Array]:
    if (
        room > len(flat(data))
        or FIXED.get(field, (width,))[0] != width
        or (field == FLOAT8 and width != 1)
    ):
        raise ValueError("more values than bytes, or no such width in this field")
    # values: little-endian, `width` bytes each
    view, out, values = flat(data), np.empty(width * room, np.uint8), []
    size, wire_type = FIXED.get(field, (1, LEN if field == FLOAT8 else VARINT))
    end = len(view)

    def number(position: int, stop: int) -> int:
        value, after = varint(view, position, stop, strict)
        if field == BOOL and not strict:
            value = int(value != 0)
        if strict:
            plain = value - (1 << 64) if lowest < 0 and value >> 63 else value
            if not lowest <= plain <= highest:
                raise WireFault(status.BAD_BOOL if field == BOOL else status.OUT_OF_RANGE, position)
        values.append((value & (1 << 8 * width) - 1).to_bytes(width, "little"))
        return after

    code, offset, position = 0, 0, 0
    try:
        while position < end:
            seen, wire, position = tag(view, position, end)
            if seen != field or wire not in (LEN, wire_type):
                position = skip(view, position, end, seen, wire)
            elif wire == LEN:
                count, position = length(view, position, end)
                stop = position + count
                if wire_type == VARINT:
                    while position < stop:
                        position = number(position, stop)
                else:
                    if field == FLOAT8:
                        values.clear()
                    values.extend(
                        bytes(view[i : i + size]) for i in range(position, stop - size + 1, size)
                    )
                position = stop
            elif wire_type == VARINT:
                position = number(position, end)
            else:
                position = fixed(size, position, end)
                values.append(bytes(view[position - size : position]))
    except WireFault as fault:
        code, offset = fault.status, fault.offset
    kept = b"".join(values[:room])
    out[: len(kept)] = np.frombuffer(kept, np.uint8)
    return code, offset, min(len(values), room), out
