"""What distributions mean for ops along axes, and for ops that move elements: a slab is what an op reduces or walks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tracea.core.expr import Expr, Unary, UnaryFunction
from tracea.core.op import (
    AdaptivePool2dOp,
    CumulativeSumOp,
    LargestOp,
    PairsOp,
    PointwiseOp,
    Pool2dOp,
    PoolKind,
    ReduceKind,
    ReduceOp,
    RowKind,
    RowOp,
    StatisticsOp,
    SumRowsOp,
    WeightedRowsOp,
)
from tracea.gates.inputs_peaks import lone_peaks, lone_truth, lone_truths, rise_of
from tracea.gates.inputs_products import into_small, nothing_added

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.dtype import DType
    from tracea.core.op import Op
    from tracea.core.tensor_type import TensorType

__all__ = ["change_slabs", "every_magnitude", "extreme", "far_from_zero", "special", "special_values"]

PoolOp: TypeAlias = "Pool2dOp | AdaptivePool2dOp"
SlabOp: TypeAlias = (
    "RowOp | ReduceOp | StatisticsOp | CumulativeSumOp | SumRowsOp | WeightedRowsOp | LargestOp | PoolOp"
)

_EXPONENTIALS: Final = (RowKind.SOFTMAX, RowKind.LOG_SOFTMAX)
_OF_EXP: Final = (UnaryFunction.EXP, UnaryFunction.SIGMOID, UnaryFunction.TANH)
_FAR: Final = 3000.0  # its square is beyond f16, and eight digits of it leave nothing of a variance of 1
_LEAST_EPS, _MOST_EPS = 1e-16, 1e-3  # next to which squares of subnormals are nothing, and that lifts them over normal
_FEW_SLABS: Final = 3  # of which every one is drawn by chance
_FAR_EXPONENT: Final = 300.0  # exp of it is no number of f32, and exp of less this is zero


def far_from_zero(op: SlabOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Slabs about means far from zero, every other one on the other side; a minimum's first one above it.

    Where a maximum is taken, one value of some of them is far above the others, on either side; where it is asked
    whether any or all of a slab is true, one element of most of them decides.
    """
    lone = lone_truth(op) if isinstance(op, ReduceOp) else None
    if lone is not None:
        change_slabs(op, values, lambda slabs: lone_truths(slabs, lone, rng))
        return
    kind = getattr(op, "kind", None)
    source, _ = _source(op)
    if kind is ReduceKind.PRODUCT or not source.dtype.is_float:
        return
    # Far, but with as many digits left as tell the elements of a slab apart.
    distance = _FAR_EXPONENT if kind in _EXPONENTIALS else min(_FAR, max(12.0, 0.1 / source.dtype.eps))
    first = 1.0 if kind is ReduceKind.MIN else -1.0

    def shift(slabs: NDArray[np.float64]) -> None:
        slabs += distance * np.resize([first, -first], (len(slabs), 1))
        lone_peaks(slabs, _peaked(len(slabs)), rise_of(op, source.dtype), rng, ends_first=True)

    change_slabs(op, values, shift)


def extreme(op: SlabOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """What is compared is of every magnitude, what is summed or squared as large as its sum may be, or subnormal."""
    kind = getattr(op, "kind", None)
    source, _ = _source(op)
    if kind is ReduceKind.PRODUCT or not source.dtype.is_float:
        return
    if kind in _EXPONENTIALS:
        near = math.log(source.dtype.compute.largest)  # as far as exp has a number, there and back
        values[0] = rng.uniform(-1e4, 1e4, values[0].shape)

        def next_to_overflow(slabs: NDArray[np.float64]) -> None:
            slabs[1::2] = rng.uniform(-near, near, slabs[1::2].shape)
            # Twice as high: next to 1e4 bf16 has no other numbers for 50 or 60.
            lone_peaks(slabs, np.arange(0, len(slabs), 4), 2.0 * rise_of(op, source.dtype), rng, ends_first=False)

        change_slabs(op, values, next_to_overflow)
        return
    squares = (isinstance(op, StatisticsOp) and not _sums_alone(op)) or kind in (RowKind.LAYER_NORM, RowKind.RMS_NORM)
    squares = squares or bool(isinstance(op, ReduceOp) and op.prologue.arithmetic)
    subnormal = isinstance(op, RowOp) and _shows_subnormals(op)

    def stretch(slabs: NDArray[np.float64]) -> None:
        length = slabs.shape[1]
        most = source.dtype.compute.largest / (16.0 * length)
        if squares:
            size = min(math.sqrt(most), source.dtype.largest / 4.0)
            slabs[...] = rng.uniform(0.5, 1.0, slabs.shape) * rng.choice([-1.0, 1.0], slabs.shape) * size
            if subnormal:
                # Of all their digits, and their squares are nothing beside eps: the results are normal numbers.
                normal = source.dtype.smallest / source.dtype.eps
                slabs[1::2] *= rng.uniform(0.5, 0.999, slabs[1::2].shape) * normal / np.abs(slabs[1::2])
            return
        if _compares(op):
            slabs[...] = _magnitudes(slabs.shape, source.dtype, rng)
            slabs[1::2] = rng.integers(-64, 65, slabs[1::2].shape) * source.dtype.smallest
        else:
            size = min(most, source.dtype.largest / 4.0, op.infer().dtype.largest / (4.0 * length))
            slabs[...] = rng.uniform(0.5, 1.0, slabs.shape) * rng.choice([-1.0, 1.0], (len(slabs), 1))
            slabs[::2] *= size
            # Their sums are subnormal too, and of more digits than a mean of them may lose.
            slabs[1::2] *= max(source.dtype.smallest / source.dtype.eps / (2.0 * length), 16.0 * source.dtype.smallest)

    change_slabs(op, values, stretch)
    if subnormal and isinstance(op, RowOp):
        for index in range(1, len(op.x)):
            values[index] = np.zeros(values[index].shape)
        last = len(op.x)
        for index in range(last, len(values)):  # weights of no small size: a product with one may come first
            values[index] = rng.uniform(1.0, 2.0, values[index].shape) * rng.choice([-1.0, 1.0], values[index].shape)
        nothing_added(op, values)


def _sums_alone(op: StatisticsOp) -> bool:
    """Whether results are statistics of elements as they are, which no arithmetic may flush."""
    return not any(expr.arithmetic for expr in (op.expr, *(statistic.expr for statistic in op.statistics)))


def _shows_subnormals(op: RowOp) -> bool:
    """Whether rows of subnormals have normal results: a mean square whose eps lifts them, of one source as it is."""
    if op.kind not in (RowKind.RMS_NORM, RowKind.LAYER_NORM) or not _LEAST_EPS <= op.eps <= _MOST_EPS:
        return False
    others = [0.0] * (len(op.x) - 1)
    with np.errstate(all="ignore"):
        return all(float(op.prologue.evaluate([main, *others])) == main for main in (-2.0, 1.0, 2.0**-100))


def special(op: SlabOp, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Slabs of one infinity, of numbers and -inf, of equal infinities, of NaN, of one number; the rest as always."""
    source, _ = _source(op)
    into_small(values[1:], rng)
    if not source.dtype.is_float:
        return
    ties = [-np.inf, np.inf, 0.0, 1.0]
    if _compares(op):
        ties += [source.dtype.largest, source.dtype.lowest]
    hidden = np.inf if getattr(op, "kind", None) is ReduceKind.MIN else -np.inf

    def odd(slabs: NDArray[np.float64]) -> None:
        count, length = len(slabs), int(slabs.shape[1])
        kinds = [
            np.full(length, hidden),
            np.where(rng.random((length,)) < 0.5, hidden, slabs[0]),
            rng.choice(ties, length),
            np.full(length, -hidden),
            np.full(length, np.nan),
            _with_nan(slabs[0], rng.permutation(length)[: max(2, length // 8)]),
        ]
        # Without an eps a layer norm of it is the quotient of two zeros, or of what their rounding leaves.
        if getattr(op, "kind", None) is not RowKind.LAYER_NORM or getattr(op, "eps", 0.0) > 0.0:
            # Of four bits, so that its sums are exact: rounding errors of equal terms go one way, unlike the bound's.
            kinds.append(np.full(length, float(rng.integers(9, 16)) / 2.0 * rng.choice([-1.0, 1.0])))
        if _compares(op):
            # Each end of the type comes before the infinity that it is not.
            kinds.append(np.resize([source.dtype.lowest, -np.inf, source.dtype.largest, np.inf], length))
        if count > _FEW_SLABS:
            # Tails are other code: NaN in the last of the last slab, and in the first of the first.
            slabs[0, 0] = slabs[-1, -1] = np.nan
            rest = np.arange(1, count - 1)
        else:
            rest = np.arange(count)
            kinds += [_with_nan(slabs[0], [0]), _with_nan(slabs[0], [length - 1])]
        some = min(len(kinds), max(1, rest.size // 2))
        for place, kind in zip(rng.permutation(rest)[:some], rng.permutation(len(kinds)), strict=False):
            slabs[place] = kinds[kind]

    change_slabs(op, values, odd)


def _peaked(count: int) -> NDArray[np.int64]:
    """Return half of the slabs, in pairs; of few all."""
    every = np.arange(count)
    return every if count <= _FEW_SLABS else every[every % 4 < 2]


def _with_nan(slab: NDArray[np.float64], places: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
    changed = slab.copy()
    changed[places] = np.nan
    return changed


def every_magnitude(op: Op, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Numbers from the smallest subnormal to the largest, of either sign; a quarter next to where exp has none."""
    exponential = any(
        isinstance(node, Unary) and node.function in _OF_EXP for expr in _chains(op) for node in expr.walk()
    )
    for index, operand in enumerate(op.operands):
        if operand.dtype.is_float:
            shape, kind = values[index].shape, operand.dtype
            values[index] = _magnitudes(shape, kind, rng)
            if exponential:
                ends = [math.log(end) for each in (kind.compute, kind) for end in (each.largest, each.smallest)]
                beside = rng.choice([*ends, *(-end for end in ends)], shape) + rng.uniform(-1.0, 1.0, shape)
                values[index] = np.where(rng.random(shape) < 0.25, beside, values[index])


def special_values(op: Op, values: list[NDArray[np.float64]], rng: np.random.Generator) -> None:
    """Half of all elements are zeros of both signs, infinities, NaN; of what is only moved the ends of the type too.

    Arithmetic on the ends overflows in the type and not in the reference: less an infinity that is NaN and not one.
    """
    moved = not any(expr.arithmetic for expr in _chains(op))
    for index, operand in enumerate(op.operands):
        kind = operand.dtype
        if kind.is_float:
            ends = [0.0, 1.0, np.inf, *((kind.largest, kind.smallest / kind.eps, kind.smallest) if moved else ())]
            chosen = rng.choice([*ends, *(-end for end in ends), np.nan], values[index].shape)
            values[index] = np.where(rng.random(values[index].shape) < 0.5, chosen, values[index])


def _chains(op: Op) -> tuple[Expr, ...]:
    """Return the expressions of an elementwise op."""
    match op:
        case PointwiseOp():
            return (op.expr,)
        case PairsOp():
            return op.expressions
        case _:
            return ()


def _compares(op: SlabOp) -> bool:
    kind = getattr(op, "kind", None)
    return isinstance(op, LargestOp) or kind in (ReduceKind.MAX, ReduceKind.MIN, PoolKind.MAX)


def _magnitudes(shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> NDArray[np.float64]:
    exponent = rng.uniform(math.log2(dtype.smallest), math.log2(dtype.largest) - 0.01, shape)
    return np.exp2(exponent) * rng.choice([-1.0, 1.0], shape)


def _source(op: SlabOp) -> tuple[TensorType, tuple[int, ...]]:
    """Return the first source, and which of its axes make a slab."""
    match op:
        case RowOp():
            source, rank, axes = op.x[0], len(op.shape), (len(op.shape) - 1,)
        case ReduceOp() | StatisticsOp():
            source, rank, axes = op.x[0], len(op.source_shape), op.axes
        case CumulativeSumOp():
            source, rank, axes = op.x, op.x.rank, (op.axis,)
        case SumRowsOp():
            source, rank, axes = op.x, 2, (0,)
        case WeightedRowsOp():
            source, rank, axes = op.table, 3, (1,)
        case LargestOp():
            source, rank, axes = op.x, op.x.rank, (op.x.rank - 1,)
        case Pool2dOp() | AdaptivePool2dOp():
            source, rank, axes = op.x, 4, (2, 3)
    missing = rank - source.rank
    return source, tuple(axis - missing for axis in axes if axis >= missing)


def change_slabs(op: SlabOp, values: list[NDArray[np.float64]], change: Callable[[NDArray[np.float64]], None]) -> None:
    """Let ``change`` work on the first source as (slabs, elements of a slab)."""
    _, axes = _source(op)
    if not values[0].size:
        return
    moved = np.moveaxis(values[0], axes, tuple(range(-len(axes), 0)))
    length = math.prod(moved.shape[moved.ndim - len(axes) :])
    slabs = moved.reshape(-1, length).copy()
    change(slabs)
    moved[...] = slabs.reshape(moved.shape)
