"""`convert`: any tensor file to any other, one tensor after the other, with names, dtypes and
choice as asked for.

    rules       names: sed's rules, patterns, sizes
    parts       what is written of one tensor, known before it is read
    plan        the new spec and all its parts
    safetensors npz sharded writing   the formats that are written as the tensors come, and the
                                      others
    report      what was done

safetensors, npz and checkpoints are written as they are read, so the largest tensor is what is in
memory. The other formats need the whole value first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ... import storage
from ..._errors import EncodeError, SchemaError, TensorwireError
from ..._limits import Limits
from ...api import lazy, rename_rules
from ...codecs.identify import holds_records
from . import plan as plans
from . import writing
from .report import ConversionReport

__all__ = ["ConversionReport", "convert"]


def convert(
    src: Any,
    dst: str | os.PathLike[str],
    to: str | None = None,
    *,
    format: str | tuple[str, ...] | None = None,
    rename: rename_rules.Rename | None = None,
    dtype: str | Mapping[str, str] | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    shard_size: str | int | None = None,
    compression: str | None = None,
    quantize: str | Mapping[str, str] | None = None,
    axis: int | None = None,
    metadata: dict[str, str] | None = None,
    overwrite: bool = False,
    durable: bool = True,
    dry_run: bool = False,
    progress: Callable[[float, str], None] | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> ConversionReport:
    """Writes the tensors of one file to another, of any format: what `tw.open` reads to what `to`,
    or the name of `dst`, asks for.

    Tensors are taken one after the other, so the largest must fit into memory, and not the model
    (docs/conversion.md says where not). `rename` has rules like sed's (`"s/^model\\\\.//"`, several
    in a list) or a dict of names. `dtype` casts floats (`"bfloat16"`), or by pattern (`{"*.weight":
    "float16"}`); integers only where a tensor is named. `include` and `exclude` are patterns of
    names. `shard_size="5GB"` writes safetensors in several files with an index, as the hubs have
    them. `quantize`, `compression` and what else `tw.save` takes for the format are passed on.
    Nothing is visible before all is written; `overwrite` allows to replace what is there.

    >>> import tempfile, numpy as np
    >>> import tensorwire as tw
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tw.save(f"{folder}/a.npz", {"model.w": np.zeros((2, 2), np.float32), "model.step": np.int64(3)})
    ...     report = convert(f"{folder}/a.npz", f"{folder}/b.safetensors", rename="s/^model\\\\.//", dtype="bfloat16")
    ...     [str(entry) for entry in report.entries]
    ['w  dense  bfloat16 (was float32) (2, 2)  8 bytes  (was model.w)', 'step  dense  int64 ()  8
         bytes  (was model.step)']
    """
    start, target = time.perf_counter(), os.fspath(dst)
    if not isinstance(target, str):
        raise TypeError("dst is a path: the new file appears whole or not at all")
    if isinstance(src, (str, os.PathLike)) and holds_records(src, format):
        raise SchemaError(
            "a file of records, and not of tensors by name; tw.read_examples reads it, and tw.save"
            " its columns",
            path=os.fspath(src),
        )

    def write(path: str, durable: bool) -> ConversionReport:
        """Writes `path`, the target itself or what is uploaded to it."""
        way = writing.way(path, to, compression, shard_size, options)
        try:
            with lazy.open_file(src, format, dequantize=False, limits=limits) as file:
                container = file.container
                texts = writing.carried(file) | (metadata or {})
                plan = plans.make(
                    container, way.target, texts,
                    rename=rename, dtype=dtype, quantize=quantize, axis=axis, include=include, exclude=exclude, ties=way.ties,
                )  # fmt: skip
                work = writing.WriteJob(way, plan, path, target, bool(metadata), durable, overwrite)
                if path == target:
                    _check_paths(file, work, overwrite)
                total = sum(entry.nbytes for entry in plan.entries)
                if not dry_run:
                    work.write(_Progress(progress, total))
                return ConversionReport(
                    file.path, path, file.format, way.format, work.paths, plan.entries, len(container.keys()) - len(plan.entries),
                    file.size, total if dry_run else sum(map(os.path.getsize, work.paths)), time.perf_counter() - start, dry_run,
                )  # fmt: skip
        except EncodeError as error:
            raise error.add(path=target, format=way.format) from None
        except TensorwireError as error:
            raise error.add(
                path=os.fspath(src) if isinstance(src, (str, os.PathLike)) else None
            ) from None

    return _uploaded(target, write, overwrite) if storage.is_url(target) else write(target, durable)


def _uploaded(
    url: str, write: Callable[[str, bool], ConversionReport], overwrite: bool
) -> ConversionReport:
    """Writes to a temporary folder, and uploads the files: first those that an index names, then
    the index, which replaces the old one.

    The first have names that no object has, so whoever reads meanwhile, or after a failure, reads
    the old model or the new one.
    """
    parent, _, name = url.rpartition("/")
    with tempfile.TemporaryDirectory(prefix="tensorwire-") as folder:
        report = write(os.path.join(folder, name), False)
        places = {path: storage.join(parent, os.path.basename(path)) for path in report.files}
        for place in places.values():
            storage.check_replaceable(place, overwrite)
        if not report.dry_run:
            *members, index = sorted(places, key=_is_index)
            _upload(members, index, places)
            for place in writing.stale(url, report.to, report.files) if overwrite else ():
                storage.delete(place)
        return replace(report, target=url, files=list(places.values()))


def _is_index(path: str) -> bool:
    return path.endswith((".json", ".index"))


def _upload(members: list[str], index: str, places: dict[str, str]) -> None:
    """Uploads the members and then the index.

    After an error no member is left, unless the index names them already.
    """
    sent: list[str] = []
    try:
        for path in members:
            sent.append(places[path])
            _copy(path, places[path])
        lost = set(sent) - storage.stats(sent).keys()
        if lost:
            raise EncodeError(
                "another writer has removed a file of this model; convert it again",
                path=storage.shown(min(lost)),
            )
        _copy(index, places[index])
    except BaseException:
        if sent and not _is_copy(index, places[index]):
            for place in sent:
                # the first error is the one to report
                with contextlib.suppress(OSError, TensorwireError):
                    storage.delete(place)
        raise


def _copy(path: str, place: str) -> None:
    with open(path, "rb") as file, storage.writer(place) as out:
        shutil.copyfileobj(file, out, 1 << 20)


def _is_copy(path: str, place: str) -> bool:
    """Whether an upload that failed has succeeded after all; if nobody can say, it may have."""
    try:
        with open(path, "rb") as file:
            return (
                storage.stat(place) is not None and bytes(storage.read_whole(place)) == file.read()
            )
    except (OSError, TensorwireError):
        return True


class _Progress:
    """Counts what is written, and tells whoever wants to know."""

    def __init__(self, tell: Callable[[float, str], None] | None, total: int) -> None:
        self._tell, self._total, self._done = tell, total, 0

    def __call__(self, count: int, name: str) -> None:
        self._done += count
        if self._tell is not None:
            self._tell(min(1.0, self._done / self._total) if self._total else 1.0, name)


def _check_paths(file: lazy.File, work: writing.WriteJob, overwrite: bool) -> None:
    """That nothing is written over what is read, or over what should stay."""
    read = writing.files_of(file)
    for path in [*work.paths, *work.stale()]:
        if any(os.path.exists(path) and os.path.samefile(path, source) for source in read):
            raise SchemaError(
                "a file cannot be converted to itself; write another one, and rename it", path=path
            )
    for path in work.paths:
        storage.check_replaceable(path, overwrite)
