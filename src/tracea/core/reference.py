"""The float64 reference: what every op, and every graph of them, means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracea.core.accuracy import error_bound
from tracea.core.function import Array
from tracea.core.meaning import bind_op, epilogue_of, main_value, sources
from tracea.core.op import Op

__all__ = ["error_bound", "evaluate"]


def evaluate(op: Op, inputs: Sequence[Any], *, rounded: bool = False) -> Array:
    """Return an op's result in float64; ``rounded`` rounds it once to the result's storage type.

    Inputs are arrays of the operands' shapes, in any memory layout; symbolic extents are taken from them. Integers
    beyond 2^53 are not exact.

    Raises:
        InvalidShape: the inputs do not fit the operands.
    """
    op = bind_op(op, inputs)
    arrays = sources(op, inputs)
    epilogue = epilogue_of(op)
    value = main_value(op, arrays)
    if not epilogue.is_identity:
        extras = arrays[len(arrays) - len(epilogue.operands) :]
        value = np.broadcast_to(epilogue.expr.evaluate([value, *extras]), value.shape)
    return op.infer().dtype.round(value) if rounded else value
