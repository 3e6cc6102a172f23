"""What a conversion did, or would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...core import display, formatting
from .plan import ConvertedTensor


@dataclass(frozen=True)
class ConversionReport:
    """What was converted. `json()` is for machines, `str()` for people."""

    source: str | None
    target: str
    format: str
    """Of the source."""
    to: str
    files: list[str]
    """Those that were written, or would be."""
    entries: list[ConvertedTensor]
    """The tensors of the new file."""
    left_out: int
    """Tensors of the old one that are not in the new one."""
    bytes_in: int
    bytes_out: int
    """Of the new files; of a plan, what its tensors take before compression."""
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
        """Plain dicts and lists."""
        found = asdict(self)
        found["entries"] = [
            {**entry._asdict(), "shape": list(entry.shape)} for entry in self.entries
        ]
        return {**found, "tensors": self.tensors, "renamed": self.renamed, "cast": self.cast}

    def __str__(self) -> str:
        done = "would become" if self.dry_run else "became"
        lines = [
            f"{self.source or 'bytes'}: {self.format}, {formatting.size(self.bytes_in)}, {done}"
        ]
        size = ("about " if self.dry_run else "") + formatting.size(self.bytes_out)
        lines.append(
            f"{self.target}: {self.to}, {size}"
            + (f" in {len(self.files)} files" if len(self.files) > 1 else "")
        )
        said = [
            formatting.plural(self.tensors, "tensor"),
            f"{self.renamed:,} renamed",
            f"{self.cast:,} cast",
            f"{self.left_out:,} left out",
        ]
        lines.append(f"  {', '.join(said)}" + ("" if self.dry_run else f", {self.seconds:.2f} s"))
        if self.dry_run:
            lines += [f"  {entry}" for entry in self.entries]
        return "\n".join(lines)

    __repr__ = __str__
    _repr_html_ = display.html
