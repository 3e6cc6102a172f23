"""The small language over the features of a record; it is that of datasets too, and lives with the records."""

from __future__ import annotations

from ..records.where import ALLOWED, MOST, Where, plain

__all__ = ["ALLOWED", "MOST", "Where", "plain"]
