"""safetensors, written one tensor after the other: the header can be written first, since all sizes
are known.

What the header cannot know before (checksums, and the sizes of tensors that are compressed each
alone) needs the data first: they wait in a temporary file without a name, in the folder of the
target.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ... import lowering
from ..._errors import EncodeError
from ..._limits import DEFAULT
from ...codecs.array_part import says_it_all
from ...codecs.safetensors import header as headers
from ...codecs.safetensors.header import FORMAT, KEY, VERSION
from ...core import dtypes, memory
from ...lowering.packed import SMALL
from ...transforms.compression.packing import Packing
from ...transforms.compression.packing import pack as packed
from ...wire import kernels
from .parts import BLOCK, Out, Target
from .plan import Step, TensorPlan

TARGET = Target(lambda row: row.safetensors is not None, False)


def chunks(
    plan: TensorPlan,
    step: Step,
    folder: str,
    checksum: bool = False,
    packing: Packing | None = None,
) -> Iterator[Any]:
    """The bytes of the file. Whoever takes them writes each before the next is made."""
    spec, texts = plan.spec, dict(plan.metadata)
    if KEY in texts:
        raise EncodeError(f"the metadata key {KEY!r} is taken", format=FORMAT)
    if isinstance(spec, dict) and "bundle" in spec:
        # they stand in the format's own place
        spec = {key: item for key, item in spec.items() if key != "metadata"}
    names = lowering.names(spec, len(plan.parts))
    if not checksum and packing is None:
        yield from _straight(spec, names, plan.parts, texts, step)
        return
    with tempfile.TemporaryFile(dir=folder) as spool:
        waiting, entries = [], []
        for name, part in zip(names, plan.parts, strict=True):
            one, entry = _spooled(spool, name, part, packing, step)
            waiting.append(one)
            entries.append(entry)
        if any(entries):
            spec = {"packed": spec, "parts": entries}
        order = _order([one.like for one in waiting])
        sums = [waiting[i].crc for i in order] if checksum else None
        yield _header(
            spec, [names[i] for i in order], [waiting[i].like for i in order], texts, sums
        )
        for i in order:
            spool.seek(waiting[i].at)
            for start in range(0, waiting[i].like.nbytes, BLOCK):
                yield spool.read(min(BLOCK, waiting[i].like.nbytes - start))


def _straight(
    spec: Any, names: list[str], parts: list[Out], texts: dict[str, str], step: Step
) -> Iterator[Any]:
    empty = [part.empty() for part in parts]
    order = _order(empty)
    yield _header(spec, [names[i] for i in order], [empty[i] for i in order], texts, None)
    for i in order:
        for piece in parts[i].chunks():
            data = memory.chunk(np.ascontiguousarray(piece))
            size = len(data)
            yield data
            del piece, data  # or a tensor would stay until the next one is read
            step(size, names[i])


def _order(parts: list[Any]) -> list[int]:
    """By descending item size, so that each is aligned."""
    return sorted(range(len(parts)), key=lambda i: -parts[i].dtype.itemsize)


def _header(
    spec: Any, names: list[str], parts: list[Any], texts: dict[str, str], sums: list[int] | None
) -> bytes:
    ours = None if says_it_all(spec, names) else {"version": VERSION, "spec": spec}
    head = headers.write(names, parts, texts, ours, sums)
    if len(head) - 8 > DEFAULT.safetensors_header:
        raise EncodeError(
            f"a header of {len(head)} bytes; readers stop at {DEFAULT.safetensors_header}",
            format=FORMAT,
        )
    return head


class _Waiting(NamedTuple):
    like: Any
    """An array of its dtype, shape and size."""
    at: int
    crc: int


def _spooled(
    spool: Any, name: str, part: Out, packing: Packing | None, step: Step
) -> tuple[_Waiting, dict[str, Any] | None]:
    """Writes one part to where it waits; what the spec says of it, if it is packed."""
    at, crc = spool.tell(), 0
    if packing is not None and part.nbytes > SMALL:
        whole = part.read()
        found = packed(memory.chunk(np.ascontiguousarray(whole)), whole.dtype.itemsize, packing)
        pieces: Any = [whole] if found is None else [np.frombuffer(found.data, np.uint8)]
    else:
        found, pieces = None, part.chunks()
    size = 0
    for piece in pieces:
        data = memory.chunk(np.ascontiguousarray(piece))
        spool.write(data)
        crc, size = kernels.crc32c(data, crc), size + len(data)
    step(part.nbytes, name)
    if found is None:
        return _Waiting(part.empty(), at, crc), None
    entry = {"dtype": dtypes.BY_NAME[part.dtype].name, "shape": list(part.shape)} | found.info
    return _Waiting(np.broadcast_to(np.uint8(0), (size,)), at, crc), entry
