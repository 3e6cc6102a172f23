"""`convert`: any tensor file to any other, one tensor after the other, with names, dtypes and
choice as asked for.

    parts       what is written of one tensor, known before it is read
    plan        the options, the new spec and all its parts
    sharded     a model in several files with an index
    writing     a plan becomes files, by the writer of the format
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
from ...codecs.identify import identify
from . import plan as plans
from . import writing
from .plan import ConversionOptions
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
    ['w  dense  bfloat16 (was float32) [2, 2]  8 bytes  (was model.w)', 'step  dense  int64 []  8
         bytes  (was model.step)']
    """
    chosen = ConversionOptions(
        to=to,
        format=format,
        rename=rename,
        dtype=dtype,
        include=include,
        exclude=exclude,
        shard_size=shard_size,
        compression=compression,
        quantize=quantize,
        axis=axis,
        metadata=metadata,
        overwrite=overwrite,
        durable=durable,
        dry_run=dry_run,
        progress=progress,
        limits=limits,
        save=options,
    )
    target = os.fspath(dst)
    if not isinstance(target, str):
        raise TypeError("dst is a path: the new file appears whole or not at all")
    if storage.is_url(target):
        return _uploaded(src, target, replace(chosen, durable=False))
    return _convert(src, target, target, chosen)


def _open(src: Any, options: ConversionOptions) -> lazy.File:
    found = identify(src, options.format)
    try:
        if found.holds_records:
            raise SchemaError(
                "a file of records, and not of tensors by name; tw.read_examples reads it, and"
                " tw.save its columns",
                path=found.path,
            )
        settings = {"dequantize": False}
        return lazy.open_identified(src, found, options.format, options.limits, settings)
    except BaseException:
        found.close()
        raise


def _convert(src: Any, path: str, place: str, options: ConversionOptions) -> ConversionReport:
    """Writes `path`, which is `place`, or is uploaded to it."""
    start = time.perf_counter()
    output = writing.output_format(path, options)
    try:
        with _open(src, options) as file:
            texts = writing.carried(file) | (options.metadata or {})
            plan = plans.make(file.container, output.target, texts, options, output.ties)
            job = writing.WriteJob(output, plan, path, place, options)
            if path == place:
                _check_paths(file, job, options.overwrite)
            total = sum(entry.nbytes for entry in plan.entries)
            if not options.dry_run:
                job.write(_Progress(options.progress, total))
            return ConversionReport(
                source=file.path,
                target=path,
                format=file.format,
                to=output.format,
                files=job.paths,
                entries=plan.entries,
                left_out=len(file.container.keys()) - len(plan.entries),
                bytes_in=file.size,
                bytes_out=total if options.dry_run else sum(map(os.path.getsize, job.paths)),
                seconds=time.perf_counter() - start,
                dry_run=options.dry_run,
            )
    except EncodeError as error:
        raise error.add(path=place, format=output.format) from None
    except TensorwireError as error:
        raise error.add(
            path=os.fspath(src) if isinstance(src, (str, os.PathLike)) else None
        ) from None


def _uploaded(src: Any, url: str, options: ConversionOptions) -> ConversionReport:
    """Writes to a temporary folder, and uploads the files: first those that an index names, then
    the index, which replaces the old one.

    The first have names that no object has, so readers see the old model or the new one, also
    after a failure.
    """
    parent, _, name = url.rpartition("/")
    with tempfile.TemporaryDirectory(prefix="tensorwire-") as folder:
        report = _convert(src, os.path.join(folder, name), url, options)
        places = {path: storage.join(parent, os.path.basename(path)) for path in report.files}
        for place in places.values():
            storage.check_replaceable(place, options.overwrite)
        if not report.dry_run:
            *members, index = sorted(places, key=_is_index)
            _upload(members, index, places)
            for place in writing.stale(url, report.to, report.files) if options.overwrite else ():
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
    """Counts what is written, and tells the progress callback."""

    def __init__(self, tell: Callable[[float, str], None] | None, total: int) -> None:
        self._tell, self._total, self._done = tell, total, 0

    def __call__(self, count: int, name: str) -> None:
        self._done += count
        if self._tell is not None:
            self._tell(min(1.0, self._done / self._total) if self._total else 1.0, name)


def _check_paths(file: lazy.File, job: writing.WriteJob, overwrite: bool) -> None:
    """That nothing is written over what is read, or over what should stay."""
    read = writing.files_of(file)
    for path in [*job.paths, *job.stale()]:
        if any(os.path.exists(path) and os.path.samefile(path, source) for source in read):
            raise SchemaError(
                "a file cannot be converted to itself; write another one, and rename it", path=path
            )
    for path in job.paths:
        storage.check_replaceable(path, overwrite)
