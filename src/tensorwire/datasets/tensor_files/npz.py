"""npz, written one tensor after the other: each member's header is filled in once its checksum is
known.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ... import lowering
from ..._errors import EncodeError
from ...codecs.array_part import says_it_all
from ...codecs.npy_arrays import DESCRS
from ...codecs.npz import ALIGN, FORMAT, SPEC, VERSION, stem
from ...codecs.zip_member import pack
from ...core import dtypes, memory
from ...storage import files
from ...transforms.compression import deflate
from ...wire import json as jsontext
from ...wire import npy as wire
from ...wire import zip as archive
from ...wire.zip import DEFLATED, STORED, Member
from .parts import Out, Target
from .plan import Step, TensorPlan

TARGET = Target(lambda row: row.name in DESCRS, False)
_SUFFIX = ".npy"


def write(
    fd: int, plan: TensorPlan, step: Step, compression: str | None = None, level: int | None = None
) -> None:
    """The file, through a descriptor that can seek."""
    if compression not in (None, "zlib", "gzip"):
        raise EncodeError(
            f"npz has deflate, by the name of 'zlib' or 'gzip', and not {compression!r};"
            " safetensors takes any",
            format=FORMAT,
        )
    spec = plan.spec
    if isinstance(spec, dict) and "bundle" in spec:
        # they stand beside the spec
        spec = {key: item for key, item in spec.items() if key != "metadata"}
    names = [stem(name) for name in lowering.names(spec, len(plan.parts))]
    writer = _Writer(fd, compression is not None, level)
    for name, part in zip(names, plan.parts, strict=True):
        writer.add(name, part, step)
    if plan.metadata or not says_it_all(spec, names):
        ours = {"version": VERSION, "spec": spec} | (
            {"metadata": plan.metadata} if plan.metadata else {}
        )
        writer.add_text(SPEC, jsontext.write(ours))
    writer.finish()


class _Writer:
    def __init__(self, fd: int, compress: bool, level: int | None) -> None:
        self._fd, self._compress, self._level, self._at = fd, compress, level, 0
        self._members: list[Member] = []
        self._crc = deflate.backend().crc32

    def add(self, name: str, part: Out, step: Step) -> None:
        head = wire.write(DESCRS[dtypes.BY_NAME[part.dtype].name], part.shape)
        member = self._member(name + _SUFFIX, len(head) + part.nbytes)
        if self._compress:
            whole = memory.chunk(np.ascontiguousarray(part.read()))
            self._packed(member, [head, whole])
            step(part.nbytes, name)
            return
        start = self._at + len(archive.local(member, ALIGN))
        os.lseek(self._fd, start, os.SEEK_SET)
        crc, size = self._crc(head), len(head)
        files.write_vector(self._fd, [head])
        for piece in part.chunks():
            data = memory.chunk(np.ascontiguousarray(piece))
            crc, size = self._crc(data, crc), size + len(data)
            files.write_vector(self._fd, [data])
            step(len(data), name)
        self._end(member._replace(crc=crc), ALIGN, start + size)

    def add_text(self, name: str, text: bytes) -> None:
        member = self._member(name, len(text))
        if self._compress:
            self._packed(member, [text])
        else:
            self._stored(member, [text])

    def _member(self, name: str, size: int) -> Member:
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise EncodeError(
                f"a name of {len(encoded)} bytes; zip ends at 65535",
                format=FORMAT,
                tensor=name[:60],
            )
        return Member(
            encoded, STORED, 0, size, size, self._at, 0 if encoded.isascii() else archive.UTF8
        )

    def _packed(self, member: Member, data: list[Any]) -> None:
        """Deflated, unless that makes it smaller by less than 1/64."""
        smaller = pack(data, self._level)
        total = sum(map(len, smaller))
        if total >= member.size - member.size // 64:
            self._stored(member, data)
            return
        crc = 0
        for piece in data:
            crc = self._crc(piece, crc)
        member = member._replace(method=DEFLATED, packed=total, crc=crc)
        start = self._at + len(archive.local(member))
        os.lseek(self._fd, start, os.SEEK_SET)
        files.write_vector(self._fd, smaller)
        self._end(member, 1, start + total)

    def _stored(self, member: Member, data: list[Any]) -> None:
        crc = 0
        for piece in data:
            crc = self._crc(piece, crc)
        member = member._replace(crc=crc)
        start = self._at + len(archive.local(member, ALIGN))
        os.lseek(self._fd, start, os.SEEK_SET)
        files.write_vector(self._fd, [piece for piece in data if len(piece)])
        self._end(member, ALIGN, start + member.size)

    def _end(self, member: Member, align: int, stop: int) -> None:
        """The header of a member whose data are written."""
        os.lseek(self._fd, self._at, os.SEEK_SET)
        files.write_vector(self._fd, [archive.local(member, align)])
        self._members.append(member)
        self._at = stop

    def finish(self) -> None:
        os.lseek(self._fd, self._at, os.SEEK_SET)
        files.write_vector(self._fd, [archive.end(self._members, self._at)])
