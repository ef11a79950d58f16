"""Masks of blocks as callers give them: an array of booleans, read in place and without a call of torch's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracea.errors import InvalidDType, TraceaError
from tracea.runtime.buffers import view

__all__ = ["read_block_mask"]


def read_block_mask(given: Any) -> np.ndarray[Any, Any]:
    """Return a mask of blocks as a row-major array of booleans.

    Raises: InvalidDType: it is of other elements, or NumPy cannot read it, as where it has no memory.
    """
    dtype = str(getattr(given, "dtype", ""))
    found = None
    try:
        if dtype == "torch.bool":
            found = view(given).numpy()
        elif not dtype.startswith("torch."):
            found = np.asarray(given)
    except (TypeError, ValueError, RuntimeError, TraceaError):
        pass
    if found is None or found.dtype != np.bool_:
        raise InvalidDType(
            field="block_mask",
            got=dtype or type(given).__name__,
            expected="an array of booleans in this machine's memory",
            remedy="give mask.bool(), detached, on the CPU",
        )
    return np.ascontiguousarray(found)
