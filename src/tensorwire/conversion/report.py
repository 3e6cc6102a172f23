"""What a conversion did, or would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .plan import Entry


@dataclass(frozen=True)
class Report:
    """What was converted. `json()` is for machines, `str()` for people."""

    source: str | None
    target: str
    format: str
    """Of the source."""
    to: str
    files: list[str]
    """Those that were written, or would be."""
    entries: list[Entry]
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
        found["entries"] = [{**entry._asdict(), "shape": list(entry.shape)} for entry in self.entries]
        return {**found, "tensors": self.tensors, "renamed": self.renamed, "cast": self.cast}

    def __str__(self) -> str:
        done = "would become" if self.dry_run else "became"
        lines = [f"{self.source or 'bytes'}: {self.format}, {self.bytes_in:,} bytes, {done}"]
        sizes = f"about {self.bytes_out:,}" if self.dry_run else f"{self.bytes_out:,}"
        lines.append(f"{self.target}: {self.to}, {sizes} bytes" + (f" in {len(self.files)} files" if len(self.files) > 1 else ""))
        said = [f"{self.tensors:,} tensors", f"{self.renamed:,} renamed", f"{self.cast:,} cast", f"{self.left_out:,} left out"]
        lines.append(f"  {', '.join(said)}" + ("" if self.dry_run else f", {self.seconds:.2f} s"))
        if self.dry_run:
            lines += [f"  {entry}" for entry in self.entries]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ..drawing import figures, markup

        facts = [("to", self.to), ("size", figures.size(self.bytes_out)), ("from", f"{self.format}, {figures.size(self.bytes_in)}")]
        facts += [("renamed", f"{self.renamed:,}"), ("cast", f"{self.cast:,}"), ("left out", f"{self.left_out:,}")]
        rows = [(one.name, one.kind, one.dtype, figures.shape(one.shape), figures.size(one.nbytes), _changes(one)) for one in self.entries]
        return markup.card(self.target, facts, head=("tensor", "kind", "dtype", "shape", "size", "was"), rows=rows)


def _changes(entry: Entry) -> str:
    name, dtype = entry.source if entry.source != entry.name else "", entry.was if entry.was != entry.dtype else ""
    return ", ".join(word for word in (name, dtype) if word)
