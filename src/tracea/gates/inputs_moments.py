"""What is drawn for moments of columns: columns of x as any slab's, or those of the gradient as any sum's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracea.core.op import MomentsOp, ReduceKind, ReduceOp
from tracea.gates import inputs_slabs as slabs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["columns_far_from_zero", "extreme_columns", "of_gradient", "special_columns"]


def columns_far_from_zero(op: MomentsOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Columns of x about means far from zero."""
    slabs.far_from_zero(op.parts[1], values, rng)


def extreme_columns(op: MomentsOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Columns of x as large as their squares may be, or gradients as large as their sums may be, or subnormal."""
    _either(slabs.extreme, op, values, rng)


def special_columns(op: MomentsOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Columns of x with infinities, or of gradients."""
    _either(slabs.special, op, values, rng)


def of_gradient(
    rule: Callable[[Any, list[NDArray[np.float64]], np.random.Generator], None],
    op: MomentsOp,
    values: list[NDArray[np.float64]],
    rng: np.random.Generator,
) -> None:
    """Change the gradient as a rule changes what is summed."""
    assert op.grad is not None
    alone = [values[2]]
    rule(ReduceOp(kind=ReduceKind.SUM, x=(op.grad,), axes=(1,)), alone, rng)
    values[2] = alone[0]


def _either(
    rule: Callable[[Any, list[NDArray[np.float64]], np.random.Generator], None],
    op: MomentsOp,
    values: list[NDArray[np.float64]],
    rng: np.random.Generator,
) -> None:
    if op.grad is None or rng.random() < 0.5:
        rule(op.parts[1], values, rng)
    else:
        of_gradient(rule, op, values, rng)
