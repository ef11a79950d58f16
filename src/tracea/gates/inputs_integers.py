"""Integers from all of their type: the ends, what 8, 16 and 32 bits do not hold, small ones.

As large as leaves every sum, product and result a number of its type: beyond it the reference takes the nearest end, a
kernel may wrap, and nothing could be said.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Cast, Expr
from tracea.core.meaning import epilogue_of
from tracea.core.op import (
    AdaptivePool2dOp,
    CumulativeSumOp,
    GatherRowsOp,
    GemmOp,
    JoinOp,
    LargestOp,
    PairsOp,
    PointwiseOp,
    Pool2dOp,
    PoolKind,
    ReduceKind,
    ReduceOp,
    SumRowsOp,
    ViewOp,
    WeightedRowsOp,
)
from tracea.core.tensor_type import static

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracea.core.op import Op
    from tracea.core.tensor_type import TensorType

__all__ = ["full_range"]

_EXACT: Final = 2.0**53  # what the float64 reference tells apart
_BESIDE_FLOATS: Final = 2.0**24  # what f32 does
_FLOATS: Final = 4.0  # the size of the floats that are drawn beside integers
_MOST_OPERANDS: Final = 8  # of an expression whose corners are looked at
_MOST_BITS: Final = 63


def full_range(op: Op, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Draw integer operands anew, as large as the op's results leave room for; where no room is known, none."""
    # Row numbers are a table's.
    kinds = op.operands[:1] if isinstance(op, GatherRowsOp | SumRowsOp | WeightedRowsOp) else op.operands
    places = [index for index, kind in enumerate(kinds) if _is_integer(kind.dtype)]
    if not places:
        return
    size = next((2.0**bits for bits in range(_MOST_BITS, 1, -1) if _fits(op, 2.0**bits)), None)
    if size is None:
        return
    for index in places:
        low, high = _ends(kinds[index].dtype, size)
        values[index] = _integers(values[index].shape, low, high, rng)
        if isinstance(op, GemmOp) and index < 2:
            _lines_of_ends(values[index], -1 - index, low, high, rng)


def _integers(shape: tuple[int, ...], low: float, high: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return ends, numbers beside powers of two, any numbers and small ones, in equal parts."""
    bits = rng.integers(0, max(1, int(math.log2(high))) + 1, shape)
    beside = (np.exp2(bits) + rng.integers(-1, 2, shape)) * rng.choice([-1.0, 1.0], shape)
    kinds = (
        rng.choice([low, low + 1.0, high - 1.0, high], shape),
        beside,
        np.rint(rng.uniform(low, high, shape)),
        np.rint(np.exp2(rng.uniform(0.0, math.log2(high), shape)) * rng.choice([-1.0, 1.0], shape)),
    )
    return np.clip(np.choose(rng.integers(0, len(kinds), shape), kinds).astype(np.float64), low, high)


def _lines_of_ends(values: NDArray[np.float64], axis: int, low: float, high: float, rng: np.random.Generator) -> None:
    """Fill a quarter of a factor's rows, or columns, with each end: sums of neighbours pass what 16 bits hold."""
    along = np.moveaxis(values, -2 if axis == -1 else -1, 0)
    for line, kind in enumerate(rng.permutation(np.arange(len(along)) % 4)):
        if kind < 2:
            along[line] = (low, high)[kind]


def _fits(op: Op, size: float) -> bool:  # noqa: PLR0911 - one case an op
    """Whether all that is computed of integers up to a size is exact, in the reference and in a kernel."""
    extras = list(epilogue_of(op).operands)
    match op:
        case PointwiseOp():
            return _expression_fits(op, op.expr, [_corners(kind, size) for kind in op.inputs])
        case PairsOp():
            corners = [_corners(kind, size) for kind in op.inputs]
            return all(_expression_fits(op, each, corners) for each in op.expressions)
        case ViewOp() | JoinOp() | GatherRowsOp():
            return True
        case LargestOp():
            return size <= _EXACT
        case Pool2dOp() | AdaptivePool2dOp():
            return op.kind is PoolKind.MAX and _epilogue_fits(op, _largest(op.x, size), extras, size)
        case CumulativeSumOp():
            total = _largest(op.x, size) * max(1, op.x.static_shape[op.axis])
            return total <= _room(op) and _epilogue_fits(op, total, extras, size)
        case GemmOp():
            a, b = (_largest(kind, size) for kind in op.operands[:2])
            total = a * b * max(1, op.operands[0].static_shape[-1])
            return total <= min(op.accumulator.largest, _EXACT) and _epilogue_fits(op, total, extras, size)
        case ReduceOp(kind=ReduceKind.MAX | ReduceKind.MIN | ReduceKind.SUM):
            corners = [_corners(kind, size) for kind in op.x]
            if op.prologue.arithmetic and not _expression_fits(op, op.prologue, corners):
                return False
            grid = np.meshgrid(*corners) if len(corners) <= _MOST_OPERANDS else corners
            total = float(np.abs(op.prologue.evaluate(grid)).max())
            if op.kind is ReduceKind.SUM:
                total *= max(1, math.prod(static(op.source_shape[axis]) for axis in op.axes))
                if total > _room(op):
                    return False
            return _epilogue_fits(op, total, extras, size)
        case _:
            return False


def _epilogue_fits(op: Op, total: float, extras: list[TensorType], size: float) -> bool:
    corners = [np.asarray([-total, total]), *(_corners(kind, size) for kind in extras)]
    return _expression_fits(op, epilogue_of(op).expr, corners)


def _expression_fits(op: Op, expr: Expr, corners: Sequence[NDArray[np.float64]]) -> bool:
    """Whether an expression of the operands' ends is in range: in each of its steps, in each cast, in the result."""
    if len(corners) > _MOST_OPERANDS:
        return False
    grid: list[Any] = list(np.meshgrid(*corners)) if corners else []
    room = _room(op) if expr.arithmetic else math.inf
    with np.errstate(all="ignore"):
        for node in expr.walk():
            value = node.evaluate(grid)
            if node.arithmetic and (np.abs(value) > room).any():
                return False
            if isinstance(node, Cast) and not _holds(node.dtype, node.operand.evaluate(grid)):
                return False
        return _holds(op.infer().dtype, expr.evaluate(grid))


def _holds(dtype: DType, value: Any) -> bool:
    """Whether numbers are of an integer type's range; those beyond f32's digits beside floats are not looked at."""
    if dtype.is_float:
        return not (np.abs(value) > _BESIDE_FLOATS).any()
    return dtype is DType.BOOL or not ((value < dtype.lowest) | (value > dtype.largest)).any()


def _room(op: Op) -> float:
    """Return the size up to which integers of an op add exactly."""
    kinds = {kind.dtype for kind in (*op.operands, op.infer())}
    if any(kind.is_float for kind in kinds):
        return _BESIDE_FLOATS
    return _EXACT if DType.I64 in kinds else DType.I32.largest


def _corners(kind: TensorType, size: float) -> NDArray[np.float64]:
    if kind.dtype is DType.BOOL:
        return np.asarray([0.0, 1.0])
    return np.asarray(_ends(kind.dtype, _FLOATS if kind.dtype.is_float else size))


def _largest(kind: TensorType, size: float) -> float:
    return float(np.abs(_corners(kind, size)).max())


def _ends(dtype: DType, size: float) -> tuple[float, float]:
    """Return the ends of a type, or of a size where that is less."""
    return max(dtype.lowest, -size), min(dtype.largest, size)


def _is_integer(dtype: DType) -> bool:
    return not dtype.is_float and dtype is not DType.BOOL
