"""NaN and infinities in every result: over the turns of one verdict each result is NaN once and infinite once.

A few elements that are not finite show what a kernel does to them where they happen to fall. One that clears NaN at a
single place of its result, in the last column of a tile or in one row of eight, is right everywhere else. Here lines of
the results (rows of a product, slabs of a reduction) take each kind in turn, so that no place is left out.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tracea.core.expr import Input
from tracea.core.meaning import epilogue_of
from tracea.core.op import (
    AdaptivePool2dOp,
    AttentionOp,
    BlockSparseOp,
    Conv2dOp,
    CumulativeSumOp,
    GatherRowsOp,
    GemmOp,
    GroupedGemmOp,
    JoinOp,
    LargestOp,
    LowRankOp,
    MomentsOp,
    NormGradientOp,
    Op,
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
    ViewOp,
    WeightedRowsOp,
)
from tracea.gates.inputs_moments import of_gradient
from tracea.gates.inputs_slabs import change_slabs

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["everywhere", "turns_of"]

ProductOp: TypeAlias = "GemmOp | BlockSparseOp | GroupedGemmOp | LowRankOp"
PoolOp: TypeAlias = "Pool2dOp | AdaptivePool2dOp"
SlabOp: TypeAlias = (
    "RowOp | ReduceOp | StatisticsOp | CumulativeSumOp | SumRowsOp | WeightedRowsOp | LargestOp | PoolOp"
)
Floats: TypeAlias = "NDArray[np.float64]"


class Kind(Enum):
    """What a line of results becomes in one turn."""

    NAN = "nan"
    INFINITE = "infinite"
    BEYOND = "beyond"  # sums of numbers that are beyond the largest of a narrow result: infinite by its rounding
    EVEN, ODD = "even", "odd"  # -inf in every other element of a slab: what is left is finite, and claimed
    HIDDEN = "hidden"  # -inf throughout, of a minimum inf: a maximum that starts from the lowest number keeps it


_PRODUCTS: Final = (GemmOp, BlockSparseOp, GroupedGemmOp, LowRankOp)
_MOVES: Final = (PointwiseOp, PairsOp, ViewOp, JoinOp, GatherRowsOp)
_COMPARES: Final = (ReduceKind.MAX, ReduceKind.MIN, PoolKind.MAX)
_ADDS: Final = (ReduceKind.SUM,)
_SOFTMAX: Final = (RowKind.SOFTMAX, RowKind.LOG_SOFTMAX)
_SECOND: Final = (Kind.NAN, Kind.INFINITE)  # of a second factor: of sums beyond the largest the first one has them
_FAR_BEYOND: Final = 64.0  # of a term over the largest result, so that each sum is, whatever is added


def turns_of(op: Op) -> int:
    """Return how many cases the op has: one for each kind that a line becomes, and those of what else is to be reached.

    That is columns by a second factor alone, sums over the rows of a norm's gradients, values behind a window.

    0 where nothing is claimed of results that are not finite (gradients of attention) or no operand can be that.
    """
    sources = _sources(op)
    if not sources or not all(op.operands[index].dtype.is_float for index in sources[:1]):
        return 0
    if len(sources) > 1:
        return len(_kinds(op)) + len(_SECOND) * op.operands[sources[-1]].dtype.is_float
    if isinstance(op, MomentsOp):
        return len(_kinds(op)) * (1 if op.grad is None else 2)
    return len(_kinds(op)) + (isinstance(op, NormGradientOp) or (isinstance(op, AttentionOp) and _hides(op)))


def everywhere(op: Op, values: list[Floats], rng: np.random.Generator, turn: int) -> None:
    """Change what was drawn so that each line of results becomes what its turn says."""
    if turns_of(op) == 0 or any(not values[index].size for index in _sources(op)):
        return
    match op:
        case GemmOp() | BlockSparseOp() | GroupedGemmOp() | LowRankOp():
            _products(op, values, rng, turn)
        case Conv2dOp():
            _images(op, values, rng, turn)
        case AttentionOp():
            _attention(op, values, rng, turn)
        case NormGradientOp():
            _norm_gradient(values, rng, turn)
        case MomentsOp():
            _moments(op, values, rng, turn)
        case PointwiseOp() | PairsOp() | ViewOp() | JoinOp() | GatherRowsOp():
            _elements(op, values, rng, turn)
        case (
            RowOp()
            | ReduceOp()
            | StatisticsOp()
            | CumulativeSumOp()
            | SumRowsOp()
            | WeightedRowsOp()
            | LargestOp()
            | Pool2dOp()
            | AdaptivePool2dOp()
        ):
            _slabs(op, values, rng, turn)
        case _:
            return


def _sources(op: Op) -> tuple[int, ...]:
    """Return the operands that make results what they are not otherwise: the first, and a second factor."""
    match op:
        case GemmOp() | BlockSparseOp() | GroupedGemmOp() | Conv2dOp():
            return (0, 1)
        case LowRankOp():
            return (0, 2)
        case PointwiseOp() | PairsOp() | JoinOp():
            return tuple(index for index, kind in enumerate(op.operands) if kind.dtype.is_float)[:1]
        case (
            AttentionOp()
            | MomentsOp()
            | NormGradientOp()
            | ViewOp()
            | GatherRowsOp()
            | RowOp()
            | ReduceOp()
            | StatisticsOp()
            | CumulativeSumOp()
            | SumRowsOp()
            | WeightedRowsOp()
            | LargestOp()
            | Pool2dOp()
            | AdaptivePool2dOp()
        ):
            return (0,)
        case _:
            return ()


def _kinds(op: Op) -> tuple[Kind, ...]:
    """Return the kinds that the lines of an op take in turn."""
    kind, stored = getattr(op, "kind", None), op.infer().dtype
    if kind in _SOFTMAX:
        return (Kind.NAN, Kind.EVEN, Kind.ODD, Kind.HIDDEN)
    if kind in _COMPARES or isinstance(op, LargestOp):
        return (Kind.NAN, Kind.INFINITE, Kind.EVEN, Kind.HIDDEN)
    # Of f32 and bf16 no sum is beyond the largest and for certain a number of what it is computed in.
    narrow = stored.is_float and np.isinf(stored.round(stored.compute.largest)) and stored.largest < 2.0**16
    if narrow and (isinstance(op, (*_PRODUCTS, Conv2dOp)) or kind in _ADDS):
        return (Kind.NAN, Kind.INFINITE, Kind.BEYOND)
    return (Kind.NAN, Kind.INFINITE)


def _products(op: ProductOp, values: list[Floats], rng: np.random.Generator, turn: int) -> None:
    """Rows of the first factor, then columns of the last one; every column of that has one sign.

    Infinities meet no infinity of the other sign then. Blocks that are not listed leave a place in each block out.
    """
    last, kinds = _sources(op)[-1], _kinds(op)
    first = values[0]
    rows, columns = first.shape[-2], values[last].shape[-1]
    signs = np.ones(columns) if _bends(op) else rng.choice([-1.0, 1.0], columns)
    for index in range(1, last + 1):
        values[index] = rng.uniform(0.5, 1.0, values[index].shape)
    values[last] *= signs
    up = np.ones(rows) if _bends(op) else rng.choice([-1.0, 1.0], rows)
    if turn >= len(kinds):
        values[0] = rng.uniform(0.5, 1.0, first.shape) * up[:, None]
        turned = np.swapaxes(values[last], -1, -2)
        _put(turned, _line_values(_SECOND, turn, signs), _step(op), rng)
        return
    if Kind.BEYOND in kinds:
        beyond = _lines(rows, turn, len(kinds)) == kinds.index(Kind.BEYOND)
        size, more = _beyond(op, last)
        first[..., beyond, :] = rng.uniform(0.5, 1.0, first[..., beyond, :].shape) * size * up[beyond, None]
        values[last] *= more
    _put(first, _line_values(kinds, turn, up), _step(op), rng)


def _step(op: ProductOp) -> int:
    return op.block if isinstance(op, BlockSparseOp) else 0


def _lines(count: int, turn: int, kinds: int) -> NDArray[np.int64]:
    """Return which kind each line takes: one after the other, and every line another one in the next turn."""
    return np.asarray((np.arange(count) + turn) % kinds, dtype=np.int64)


def _line_values(kinds: tuple[Kind, ...], turn: int, signs: Floats) -> Floats:
    """Return what stands in each line once: NaN, an infinity, or 0 where the line's numbers are as they should be."""
    which = _lines(len(signs), turn, len(kinds))
    found = np.zeros(len(signs))
    found[which == kinds.index(Kind.NAN)] = np.nan
    infinite = which == kinds.index(Kind.INFINITE)
    found[infinite] = signs[infinite] * np.inf
    return found


def _put(lines: Floats, odd: Floats, step: int, rng: np.random.Generator) -> None:
    """Put a line's value in one place of it, or one of each ``step`` places: (..., lines, places), in place.

    The last line has it in the last place: tails of sums are other code than their middle.
    """
    depth = lines.shape[-1]
    for begin in range(0, depth, step or depth):
        end = min(depth, begin + (step or depth))
        places = rng.integers(begin, end, lines.shape[:-1])
        places[..., -1] = end - 1
        held = np.take_along_axis(lines, places[..., None], -1)
        chosen = np.broadcast_to(odd[:, None], held.shape)
        np.put_along_axis(lines, places[..., None], np.where(chosen == 0.0, held, chosen), -1)


def _beyond(op: Op, last: int) -> tuple[float, float]:
    """Return sizes of two factors each of whose products is beyond the largest result, with room for their sums."""
    first, second = (op.operands[index].dtype.largest / 2.0 for index in (0, last))
    wanted = 4.0 * _FAR_BEYOND * op.infer().dtype.largest
    size = min(first, wanted)
    return size, min(second, max(1.0, wanted / size))


def _images(op: Conv2dOp, values: list[Floats], rng: np.random.Generator, turn: int) -> None:
    """One channel of each group in whole images, then one tap of each filter, which lies inside of most images.

    Every filter has one sign, and no tap that meets padding is other than a number: of that nothing is claimed.
    """
    images, channels = (int(extent) for extent in values[0].shape[:2])
    kinds = _kinds(op)
    filters = len(values[1])
    signs = np.ones(filters) if _bends(op) else rng.choice([-1.0, 1.0], filters)
    values[0] = rng.uniform(0.5, 1.0, values[0].shape)
    values[1] = rng.uniform(0.5, 1.0, values[1].shape) * signs[:, None, None, None]
    each, (height, width) = channels // op.groups, values[1].shape[2:]
    if turn >= len(kinds):
        odd = _line_values(_SECOND, turn, signs)
        values[1][np.arange(filters), rng.integers(0, each, filters), height // 2, width // 2] = odd
        return
    if Kind.BEYOND in kinds:
        size, more = _beyond(op, 1)
        beyond = _lines(images, turn, len(kinds)) == kinds.index(Kind.BEYOND)
        values[0][beyond] *= size
        values[1] *= more
    odd = _line_values(kinds, turn, np.ones(images))
    chosen = np.arange(op.groups) * each + rng.integers(0, each, op.groups)
    for image in np.flatnonzero(odd != 0.0):
        values[0][image, chosen] = odd[image]


def _attention(op: AttentionOp, values: list[Floats], rng: np.random.Generator, turn: int) -> None:
    """Every other query is NaN; the others meet values of one key, infinite, of one sign a column.

    All queries see that key, the first one of a causal mask. Where a window or tables hide keys, each one is hidden
    from some: nothing is claimed there, so that the values have a turn of their own.
    """
    q, v, apart = values[0], values[2], _hides(op)
    if v.size and (turn == 2 or not apart):
        key = 0 if op.causal and not apart else int(rng.integers(op.v.static_shape[2]))
        v[:, :, key] = rng.choice([-np.inf, np.inf], v[:, :, key].shape)
    if turn < 2:
        _put(q, np.where(_lines(op.q.static_shape[2], turn, 2) == 0, np.nan, 0.0), 0, rng)


def _hides(op: AttentionOp) -> bool:
    return op.window is not None or op.spans is not None


def _norm_gradient(values: list[Floats], rng: np.random.Generator, turn: int) -> None:
    """Every other row of gradients has a NaN; then one row is infinite, and so are the sums over rows."""
    grad = values[0].reshape(-1, values[0].shape[-1])
    if turn == 2:
        grad[int(rng.integers(len(grad)))] = rng.choice([-np.inf, np.inf], grad.shape[1])
    else:
        _put(grad, np.where(_lines(len(grad), turn, 2) == 0, np.nan, 0.0), 0, rng)
    values[0] = grad.reshape(values[0].shape)


def _moments(op: MomentsOp, values: list[Floats], rng: np.random.Generator, turn: int) -> None:
    """Columns of x take each kind in turn, then those of the gradient."""
    further = turn - len(_kinds(op))
    if further < 0:
        _slabs(op.parts[0], values, rng, turn)
    else:
        of_gradient(partial(_slabs, turn=further), op, values, rng)


def _elements(op: Op, values: list[Floats], rng: np.random.Generator, turn: int) -> None:
    """Elements are NaN and infinite in turn: of all operands that are moved, of the first that each chain reads."""
    floats = [index for index, kind in enumerate(op.operands) if kind.dtype.is_float]
    if isinstance(op, PointwiseOp | PairsOp):
        chains = (op.expr,) if isinstance(op, PointwiseOp) else op.expressions
        count = op.infer().elements // len(chains)
        read = [[index for index in expr.inputs() if index in floats] for expr in chains]
        floats = [
            next((index for index in each if op.operands[index].elements == count), each[0]) for each in read if each
        ]
    for index in dict.fromkeys(floats):
        size = values[index].size
        odd = np.where(_lines(size, turn, 2) == 0, np.nan, rng.choice([-np.inf, np.inf], size))
        values[index] = odd.reshape(values[index].shape)


def _slabs(op: SlabOp, values: list[Floats], rng: np.random.Generator, turn: int) -> None:
    """Slabs take each kind in turn; of what has a result for every element, all of it is reached."""
    kinds, kind = _kinds(op), getattr(op, "kind", None)
    hidden = np.inf if kind is ReduceKind.MIN or getattr(op, "smallest", False) else -np.inf
    # Every window, running sum and column of sums of rows has one of its own.
    throughout = isinstance(op, Pool2dOp | AdaptivePool2dOp | SumRowsOp | WeightedRowsOp)
    size = op.operands[0].dtype.largest / 2.0
    # A norm of a row with an infinity is NaN: what its weight or bias makes of a row of numbers is infinite.
    by_weight = isinstance(op, RowOp) and kind not in _SOFTMAX and bool(op.epilogue.operands)

    def change(slabs: Floats) -> None:
        count, length = int(slabs.shape[0]), int(slabs.shape[1])
        which = _lines(count, turn, len(kinds))
        signs = np.ones(count) if _bends(op) else rng.choice([-1.0, 1.0], count)
        if kind in _COMPARES:
            signs[:] = -np.sign(hidden)
        places = rng.integers(0, length, count)
        places[-1] = length - 1  # tails are other code
        if isinstance(op, CumulativeSumOp):
            places[:] = length - 1 if op.backward else 0
        for number, chosen in enumerate(kinds):
            some = np.flatnonzero(which == number)
            if by_weight and chosen is Kind.INFINITE:
                continue
            if chosen is Kind.BEYOND:
                slabs[some] = rng.uniform(0.5, 1.0, (some.size, length)) * signs[some, None] * size
            elif chosen in (Kind.NAN, Kind.INFINITE):
                if chosen is Kind.INFINITE and kind in _COMPARES:
                    slabs[some] = np.where(rng.random((some.size, length)) < 0.5, hidden, slabs[some])
                odd = np.full(some.size, np.nan) if chosen is Kind.NAN else signs[some] * np.inf
                if throughout:
                    slabs[some] = odd[:, None]
                else:
                    slabs[some, places[some]] = odd
            elif chosen is Kind.HIDDEN:
                slabs[some] = hidden
            elif length > 1:
                slabs[some, int(chosen is Kind.ODD) :: 2] = hidden

    change_slabs(op, values, change)
    if by_weight:
        values[-1] = np.full(values[-1].shape, np.inf)


def _bends(op: Any) -> bool:
    """Whether more becomes of a sum than itself: of -inf an activation makes a number, of which nothing is claimed."""
    if isinstance(op, GroupedGemmOp):
        return not isinstance(op.expr, Input)
    return not epilogue_of(op).is_identity
