"""The report of a conversion of tensors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...core import display
from .plan import ConvertedTensor


@dataclass(frozen=True)
class ConversionReport:
    """The result of a conversion of tensors, or of its dry run. `json()` is for machines, `str()`
    for people.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> tw.save(f"{folder}/a.npz", {"w": np.zeros(3, np.float32), "step": np.int64(7)})
    >>> report = tw.convert(f"{folder}/a.npz", f"{folder}/a.safetensors", exclude="step")
    >>> report.tensors, report.left_out, report.to
    (1, 1, 'safetensors')
    """

    source: str | None
    target: str
    format: str
    """The format of the source."""
    to: str
    """The format of the new file."""
    files: list[str]
    """The files that were written, or would be."""
    entries: list[ConvertedTensor]
    """The tensors of the new file."""
    left_out: int
    """The number of tensors of the source that are not in the new file."""
    bytes_in: int
    bytes_out: int
    """The size of the new files; for a dry run, that of the tensors before compression."""
    seconds: float
    dry_run: bool = False

    @property
    def tensors(self) -> int:
        return len(self.entries)

    @property
    def renamed(self) -> int:
        return sum(entry.name != entry.source for entry in self.entries)

    @property
    def cast(self) -> int:
        return sum(entry.dtype != entry.was for entry in self.entries)

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        fields = asdict(self)
        fields["entries"] = [
            {**entry._asdict(), "shape": list(entry.shape)} for entry in self.entries
        ]
        return {**fields, "tensors": self.tensors, "renamed": self.renamed, "cast": self.cast}

    def __str__(self) -> str:
        done = "would become" if self.dry_run else "became"
        lines = [f"{self.source or 'bytes'}: {self.format}, {self.bytes_in:,} bytes, {done}"]
        sizes = f"about {self.bytes_out:,}" if self.dry_run else f"{self.bytes_out:,}"
        lines.append(
            f"{self.target}: {self.to}, {sizes} bytes"
            + (f" in {len(self.files)} files" if len(self.files) > 1 else "")
        )
        counts = [
            f"{self.tensors:,} tensors",
            f"{self.renamed:,} renamed",
            f"{self.cast:,} cast",
            f"{self.left_out:,} left out",
        ]
        lines.append(f"  {', '.join(counts)}" + ("" if self.dry_run else f", {self.seconds:.2f} s"))
        if self.dry_run:
            lines += [f"  {entry}" for entry in self.entries]
        return "\n".join(lines)

    _repr_html_ = display.html
