"""pandas: a Series becomes a tensor, a DataFrame a dict of its columns.

An index of labels is an error, because it would be lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import EncodeError
from ..core.tensors import Tensor
from . import numpy as _numpy


def to_tensor(obj: Any) -> Any:
    kind = type(obj).__name__
    if hasattr(obj, "columns"):
        _check_index(obj)
        names = list(obj.columns)
        if len(set(names)) != len(names):
            raise EncodeError(
                "the DataFrame has several columns of the same name",
                hint="rename them: x.columns = [...]",
            )
        return {name: _column(obj[name], str(name)) for name in names}
    if hasattr(obj, "to_numpy") and getattr(obj, "ndim", 0) == 1:
        if hasattr(obj, "index"):
            _check_index(obj)
        return _column(obj, None)
    raise EncodeError(
        f"pandas' {kind} is neither a DataFrame nor a Series", hint="pass x.to_numpy()"
    )


def about(obj: Any) -> dict[str, str]:
    return {"device": "cpu"}


def _check_index(obj: Any) -> None:
    """Raise EncodeError for an index with data; unnamed integers only number the rows."""
    if (
        obj.index.name is not None
        or getattr(obj.index, "nlevels", 1) > 1
        or getattr(obj.index.dtype, "kind", "O") not in "iu"
    ):
        hint = "x.reset_index() makes the index a column, x.reset_index(drop=True) drops it"
        raise EncodeError("the labels of the index would be lost", hint=hint)


def _column(series: Any, name: str | None) -> Tensor:
    # NaN in a column of floats is a value, not a missing one.
    floats = isinstance(series.dtype, np.dtype) and series.dtype.kind in "fc"
    if not floats and bool(series.isna().any()):
        hint = "fill them with x.fillna(...), or leave them out with x.dropna()"
        raise EncodeError(
            "missing values (NA, None, NaT) cannot be stored in a tensor", tensor=name, hint=hint
        )
    try:
        return _numpy.to_tensor(series.to_numpy())
    except EncodeError as error:
        raise error.add(tensor=name) from None
