"""A SavedModel as something to open: its variables, by the names of the object graph, with what it
says of itself as metadata.
"""

from __future__ import annotations

import os

from ..._errors import DecodeError
from ..._limits import DEFAULT, Limits
from ...storage import files
from ...storage.files import Source
from ..container import Container

# What reads a SavedModel is imported where it is used: everybody who opens a file comes by here.
FORMAT = "saved_model"
FILE = "saved_model.pb"


def folder_of(path: str | os.PathLike[str]) -> str:
    """The folder of a SavedModel; DecodeError for a form that is not read."""
    from .signatures import locate

    return os.path.dirname(locate(path)) or "."


def open_saved_model(
    path: str | os.PathLike[str], mmap: bool = False, limits: Limits | None = None
) -> tuple[Source, Container]:
    """Its variables, each read when it is asked for. A model without any is an empty container."""
    from ..checkpoint import bundle
    from ..checkpoint.data import index_path

    folder = folder_of(path)
    texts = metadata(folder, limits or DEFAULT)
    prefix = os.path.join(folder, "variables", "variables")
    if not os.path.exists(index_path(prefix)):
        return _Folder(folder), Container({"dict": {}}, [], texts, (limits or DEFAULT).call(0))
    source, container = bundle.open_prefix(prefix, mmap, True, limits)
    container.metadata = texts
    source.path = folder
    return source, container


def metadata(folder: str, limits: Limits) -> dict[str, str]:
    """Tags and version, from the first bytes of each MetaGraph."""
    from ...wire.protobuf import MessageReader

    source = files.source(os.path.join(folder, FILE))
    try:
        reader = MessageReader(source, FORMAT, limits)
        tags, versions = [], []
        for span in reader.take((0, reader.size), many=(2,))[2]:
            about = reader.take(span, once=(1,))[1]
            if about is not None:
                said = reader.take(about, once=(5,), many=(4,))
                tags.append(",".join(reader.text(tag) for tag in said[4]))
                versions.append(reader.text(said[5]))
        found = {"tags": "; ".join(tags), "tensorflow_version": next(filter(None, versions), "")}
        return {key: text for key, text in found.items() if text}
    except DecodeError as error:
        raise error.add(format=FORMAT, path=source.path, offset=0) from None
    finally:
        source.close()


class _Folder:
    """A SavedModel without variables: nothing to read."""

    def __init__(self, path: str) -> None:
        self.path: str | None = path
        self.size = os.path.getsize(os.path.join(path, FILE))

    def read_at(self, offset: int, count: int) -> memoryview:
        raise DecodeError(
            "a SavedModel is not one run of bytes", format=FORMAT, path=self.path, offset=offset
        )

    def close(self) -> None:
        """Nothing is open."""
