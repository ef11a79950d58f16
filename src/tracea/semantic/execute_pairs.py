"""What the node of two results a place does to memory, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tracea.semantic.execute import region
from tracea.semantic.machine import Executor
from tracea.semantic.nodes_pairs import PairsTile

__all__ = ["PAIRS"]


def _pairs(node: PairsTile, executor: Executor) -> None:
    """Execute the node.

    Raises:
        RunError: an access out of bounds.
    """
    target = region(node.target, executor, node)
    values = [region(operand, executor, node).astype(np.float64) for operand in node.inputs]
    with np.errstate(all="ignore"):
        for side, expr in enumerate((node.first, node.second)):
            target[..., side] = np.asarray(expr.evaluate(values)).astype(target.dtype)


PAIRS: Final[Mapping[type[Any], Callable[[Any, Executor], None]]] = {PairsTile: _pairs}
