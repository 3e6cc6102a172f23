"""The signatures of `tw.convert` and `tw.verify`, with every option. See `api.signatures`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never

from .._limits import Limits
from ..api.rename_rules import Rename
from ..api.signatures import Bytes, FormatNames, Quantize, ReadableFile
from ..core.literals import (
    CompressionName,
    FileFormatName,
    FormatCompressionName,
    OnCorrupt,
    PathLike,
)

if TYPE_CHECKING:
    from ..api.summary import Verification
    from ..records.schema import Schema
    from ..records.summary import RecordVerification
    from .engines import Engine
    from .verification import DatasetVerification

Report = Any
"""A ConversionReport for a tensor file, a DatasetReport for a dataset, a Plan for a dry run of it.
"""


def convert(
    src: PathLike | Bytes | ReadableFile | Sequence[PathLike],
    dst: PathLike,
    to: FileFormatName | None = None,
    *,
    format: FormatNames = None,
    overwrite: bool = False,
    dry_run: bool = False,
    compression: FormatCompressionName | None = None,
    level: int | None = None,
    quantize: Quantize = None,
    progress: Callable[..., object] | None = None,
    limits: Limits | None = None,
    rename: Rename | None = None,
    dtype: str | Mapping[str, str] | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    shard_size: str | int | None = None,
    axis: int | None = None,
    metadata: Mapping[str, str] | None = None,
    durable: bool = True,
    checksum: bool = False,
    per_tensor: bool = False,
    threads: int | None = None,
    schema: Schema | Mapping[str, Any] | PathLike | None = None,
    columns: Sequence[str] | None = None,
    shards: int | None = None,
    name: str = "part",
    tensors: Sequence[str] = (),
    cast: Mapping[str, str] | None = None,
    where: str | None = None,
    shuffle: int | bool | None = None,
    on_corrupt: OnCorrupt = "raise",
    engine: Literal["local", "ray"] | Engine = "local",
    engine_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    resume: bool = True,
    verify: bool = False,
    memory: int = 2 << 30,
    **unknown: Never,
) -> Report:
    raise NotImplementedError


def verify(
    where: PathLike | Bytes | ReadableFile,
    format: FormatNames = None,
    *,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
    compression: CompressionName | None = None,
    **unknown: Never,
) -> Verification | RecordVerification | DatasetVerification:
    raise NotImplementedError
