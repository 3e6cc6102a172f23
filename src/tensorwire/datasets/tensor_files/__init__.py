"""Conversion of tensor files to another format, one tensor at a time, with renaming, casts and
selection of tensors.

    parts       the parts that are written for one tensor, known before it is read
    plan        the options, the new spec and all its parts
    sharded     a model in several files with an index
    writing     writes the files of a plan, with the writer of the format
    report      the result

safetensors, npz and checkpoints are written while the source is read, so that only the largest
tensor is in memory. The other formats need the whole value first.
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
    """Converts a file of tensors by name to another format, and returns a `ConversionReport`.

    `src` is anything that `tw.open` reads. The target format is `to`, or the one that the name of
    `dst` says. Tensors are converted one at a time, so the largest must fit into memory, but not
    the model (docs/conversion.md lists the exceptions). The new files become visible after all
    data is written.

    rename     rules like those of sed (`"s/^model\\\\.//"`, several in a list), or a dict of names
    dtype      casts floats (`"bfloat16"`), or tensors by pattern (`{"*.weight": "float16"}`);
               integers are cast only where a tensor is named
    include    only tensors whose names match these patterns
    exclude    all but the tensors whose names match these patterns
    shard_size writes safetensors in several files with an index, as on the Hugging Face hub: "5GB"
    metadata   text metadata to add to that of the source
    overwrite  allows replacing an existing file
    dry_run    returns the report without writing
    progress   called with the share that is done (0 to 1) and the name of a tensor

    `quantize`, `compression` and the other options of `tw.save` for the format are passed on.
    Raises `SchemaError` for a source of records or a selection without tensors, `EncodeError` for
    values or options that do not fit the target format, and `FileExistsError` if `dst` exists and
    `overwrite` is not set.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> tw.save(f"{folder}/a.npz", {"model.w": np.zeros((2, 2), np.float32)})
    >>> report = tw.convert(
    ...     f"{folder}/a.npz", f"{folder}/b.safetensors", rename="s/^model.//", dtype="bfloat16"
    ... )
    >>> [str(entry) for entry in report.entries]
    ['w  dense  bfloat16 (was float32) (2, 2)  8 bytes  (was model.w)']
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
        raise TypeError(f"dst must be a path, not {type(target).__name__}")
    if storage.is_url(target):
        return _uploaded(src, target, replace(chosen, durable=False))
    return _convert(src, target, target, chosen)


def _open(src: Any, options: ConversionOptions) -> lazy.File:
    source = identify(src, options.format)
    try:
        if source.holds_records:
            raise SchemaError(
                "the source is a file of records, not of tensors by name",
                path=source.path,
                hint="read it with tw.read_examples, and write its columns with tw.save",
            )
        settings = {"dequantize": False}
        return lazy.open_identified(src, source, options.format, options.limits, settings)
    except BaseException:
        source.close()
        raise


def _convert(src: Any, path: str, place: str, options: ConversionOptions) -> ConversionReport:
    """Writes the file `path`, which is uploaded to `place` if that is a URL."""
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

    The members have new names, so readers see the old model or the new one, also after a failure.
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

    After an error the members are removed, unless the index that names them is there already.
    """
    sent: list[str] = []
    try:
        for path in members:
            sent.append(places[path])
            _copy(path, places[path])
        lost = set(sent) - storage.stats(sent).keys()
        if lost:
            raise EncodeError(
                "another writer has removed a file of this model",
                path=storage.shown(min(lost)),
                hint="convert it again",
            )
        _copy(index, places[index])
    except BaseException:
        if sent and not _is_copy(index, places[index]):
            for place in sent:
                # The first error is the one to report.
                with contextlib.suppress(OSError, TensorwireError):
                    storage.delete(place)
        raise


def _copy(path: str, place: str) -> None:
    with open(path, "rb") as file, storage.writer(place) as out:
        shutil.copyfileobj(file, out, 1 << 20)


def _is_copy(path: str, place: str) -> bool:
    """Whether an upload that raised has succeeded after all. True if that cannot be found out: then
    the members must stay.
    """
    try:
        with open(path, "rb") as file:
            return (
                storage.stat(place) is not None and bytes(storage.read_whole(place)) == file.read()
            )
    except (OSError, TensorwireError):
        return True


class _Progress:
    """Counts the bytes that are written, and calls the progress callback."""

    def __init__(self, tell: Callable[[float, str], None] | None, total: int) -> None:
        self._tell, self._total, self._done = tell, total, 0

    def __call__(self, count: int, name: str) -> None:
        self._done += count
        if self._tell is not None:
            self._tell(min(1.0, self._done / self._total) if self._total else 1.0, name)


def _check_paths(file: lazy.File, job: writing.WriteJob, overwrite: bool) -> None:
    """Raises if a file of the source would be replaced, or any other without `overwrite`."""
    read = writing.files_of(file)
    for path in [*job.paths, *job.stale()]:
        if any(os.path.exists(path) and os.path.samefile(path, source) for source in read):
            raise SchemaError(
                "a file cannot be converted to itself",
                path=path,
                hint="write to another path, and rename the file afterwards",
            )
    for path in job.paths:
        storage.check_replaceable(path, overwrite)
