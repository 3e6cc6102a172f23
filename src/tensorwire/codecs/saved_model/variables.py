"""SavedModel as a container: variables by object graph path, tags and version as metadata."""

from __future__ import annotations

import os

from ..._errors import DecodeError
from ..._limits import DEFAULT, Limits
from ...storage import files
from ...storage.files import Source
from ..container import Container

# The SavedModel parsers are imported where they are used, because opening a file of any format
# imports this module.
FORMAT = "saved_model"
FILE = "saved_model.pb"


def folder_of(path: str | os.PathLike[str]) -> str:
    """Returns the folder of a SavedModel; raises DecodeError for an unsupported encoding."""
    from .signatures import locate

    return os.path.dirname(locate(path)) or "."


def open_saved_model(
    path: str | os.PathLike[str], mmap: bool = False, limits: Limits | None = None
) -> tuple[Source, Container]:
    """Opens the variables of a SavedModel, each read on access; the container may be empty."""
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
    """Returns tags and TensorFlow version, which are in the first bytes of each MetaGraph."""
    from ...wire.protobuf import MessageReader

    source = files.source(os.path.join(folder, FILE))
    try:
        reader = MessageReader(source, FORMAT, limits)
        tags, versions = [], []
        for span in reader.take((0, reader.size), many=(2,))[2]:
            meta_info = reader.take(span, once=(1,))[1]
            if meta_info is not None:
                fields = reader.take(meta_info, once=(5,), many=(4,))
                tags.append(",".join(reader.text(tag) for tag in fields[4]))
                versions.append(reader.text(fields[5]))
        texts = {"tags": "; ".join(tags), "tensorflow_version": next(filter(None, versions), "")}
        return {key: text for key, text in texts.items() if text}
    except DecodeError as error:
        raise error.add(format=FORMAT, path=source.path, offset=0) from None
    finally:
        source.close()


class _Folder:
    """The source of a SavedModel without variables, which has nothing to read."""

    def __init__(self, path: str) -> None:
        self.path: str | None = path
        self.size = os.path.getsize(os.path.join(path, FILE))

    def read_at(self, offset: int, count: int) -> memoryview:
        raise DecodeError(
            "a SavedModel is a folder and cannot be read as one file",
            format=FORMAT,
            path=self.path,
            offset=offset,
        )

    def close(self) -> None:
        """Nothing is open."""
