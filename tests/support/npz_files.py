"""Zip archives of npy members, made by hand."""

import io
import zlib

import numpy as np

from tensorwire.wire import zip as archive
from tensorwire.wire.zip import Member


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


A = npy(np.arange(3, dtype=np.int16))


def member(name, data=A, at=0, method=0, content=None, **other):
    """(the member, its bytes) of an archive made by hand; `other` are fields that lie."""
    stored = data if content is None else content
    return (
        Member(name.encode(), method, zlib.crc32(data), len(stored), len(data), at)._replace(
            **other
        ),
        stored,
    )


def build(*made, align=1):
    """An archive of members as their directory entries say; local headers say the same."""
    chunks, at, entries = [], 0, []
    for one, content in made:
        one = one._replace(at=at)
        chunks += [archive.local(one, align), content]
        at += len(chunks[-2]) + len(content)
        entries.append(one)
    return b"".join(chunks) + archive.end(entries, at)


def raw(data, level=9):
    made = zlib.compressobj(level, zlib.DEFLATED, -15)
    return made.compress(data) + made.flush()


def entries(*made):
    """Local headers and data of members where they are, and any directory over them."""
    body = b"".join(archive.local(one) + content for one, content in made)
    return lambda *listed: body + archive.end(listed, len(body))
