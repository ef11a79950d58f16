"""One value far above all others of its slab, where a loop over whole vectors hands over to its tail.

A maximum that leaves out the tail is near enough to the right one while all values are near each other: what is
subtracted from exponents need not be the maximum, only large enough that none overflows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.op import LargestOp, ReduceKind, ReduceOp, RowKind, RowOp, StatisticsOp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.expr import Expr
    from tracea.core.op import Op

__all__ = ["lone_keys", "lone_peaks", "lone_truth", "lone_truths", "rise_of"]

_LANES: Final = 16  # of f32 in the widest vector; narrower vectors and unrolled ones end among the same places
_BEYOND: Final = 12.0  # over the largest exponent


def rise_of(op: Op, source: DType) -> float:
    """Return what to add to a slab's end so that it alone counts; below zero of a minimum, 0 of what compares nothing.

    Of an exponential the exponent of the rise has no number, so a slab whose maximum was taken without it overflows.
    """
    others, expr, sign = 0, None, 1.0
    match op:
        case RowOp(kind=RowKind.SOFTMAX | RowKind.LOG_SOFTMAX):
            others, expr = len(op.x) - 1, op.prologue
        case ReduceOp(kind=ReduceKind.MAX | ReduceKind.MIN):
            others, expr, sign = len(op.x) - 1, op.prologue, 1.0 if op.kind is ReduceKind.MAX else -1.0
        case StatisticsOp() if op.statistics and op.statistics[0].kind in (ReduceKind.MAX, ReduceKind.MIN):
            first = op.statistics[0]
            others, expr, sign = len(op.x) - 1, first.expr, 1.0 if first.kind is ReduceKind.MAX else -1.0
        case LargestOp():
            pass
        case _:
            return 0.0
    slope = 1.0 if expr is None else _slope(expr, others)
    return sign * (math.log(source.compute.largest) + _BEYOND) / slope


def lone_peaks(
    slabs: NDArray[np.float64], chosen: NDArray[np.int64], rise: float, rng: np.random.Generator, *, ends_first: bool
) -> None:
    """Raise one element of each chosen slab above all others (below: ``rise`` < 0), each in another place by turns.

    The places are those of the tail and of the last whole vector, and the first. With ``ends_first`` the last one comes
    first, twice, then the first one and the tail's: few slabs have those for certain.
    """
    length = int(slabs.shape[1])
    if not length or not chosen.size or rise == 0.0:
        return
    places = np.resize(_places(length, rng, ends_first=ends_first), chosen.size)
    rest = slabs[chosen].max(axis=1) if rise > 0.0 else slabs[chosen].min(axis=1)
    slabs[chosen, places] = rest + rise


def lone_truth(op: ReduceOp) -> float | None:
    """Return what a slab has to have once to change whether any of it, or all of it, is true; None of other ops."""
    if op.kind not in (ReduceKind.MAX, ReduceKind.MIN) or len(op.x) != 1:
        return None
    tried = (0.0, 1.0) if op.x[0].dtype is DType.BOOL else (0.0, 1.0, 2.0, 3.0)
    with np.errstate(all="ignore"):
        told = [float(op.prologue.evaluate([np.float64(each)])) for each in tried]
    if told[0] == told[1] or not {*told} <= {0.0, 1.0}:
        return None
    return float(told.index(1.0 if op.kind is ReduceKind.MAX else 0.0))


def lone_truths(slabs: NDArray[np.float64], lone: float, rng: np.random.Generator) -> None:
    """Let three slabs of four have ``lone`` once, at an end or anywhere, and nothing else that counts."""
    count, length = slabs.shape
    slabs[...] = 1.0 - lone
    if not count or not length:
        return
    chosen = [slab for slab in range(int(count)) if slab % 4 < 3]
    ends = _places(length, rng, ends_first=True)[: 1 + len(chosen) // 2]
    slabs[chosen, np.concatenate([ends, rng.integers(0, length, len(chosen))])[: len(chosen)]] = lone


def lone_keys(q: NDArray[np.float64], k: NDArray[np.float64], rise: float, rng: np.random.Generator) -> None:
    """Let every other query see one key whose score is higher by ``rise`` than all others', each another key by turns.

    Shapes: q (batch, heads, queries, d), k (batch, heads of keys, keys, d); the scores so far rest on place 0 of d.
    """
    places = _places(k.shape[2], rng, ends_first=True)[1 : k.shape[3]] if k.shape[2] else np.zeros(0, np.int64)
    if not places.size:
        return
    own = np.arange(1, 1 + places.size)
    size = math.sqrt(abs(rise))
    k[..., own] = 0.0
    k[:, :, places, own] = math.copysign(size, rise)
    q[..., own] = 0.0
    # The last queries are those that see the last keys of a causal one.
    count = int(q.shape[2])
    queries = np.arange(count - 1, -1, -2)
    q[:, :, queries, np.resize(own, len(queries))] = size


def _places(length: int, rng: np.random.Generator, *, ends_first: bool) -> NDArray[np.int64]:
    """Return the places of the tail and of the last whole vector in any order, and the first place."""
    tail = length // _LANES * _LANES
    near = rng.permutation(np.arange(max(0, tail - _LANES), length))
    if not ends_first:
        return np.append(near, 0)
    ends = np.asarray([length - 1, length - 1, 0, *([tail] if tail < length else [])], np.int64)
    return np.concatenate([ends, near[~np.isin(near, ends)]])


def _slope(expr: Expr, others: int) -> float:
    """Return by how much a prologue grows with its first source from 0 to 1, where the others are 0; 1 if unknown."""
    zeros = [np.float64(0.0)] * others
    with np.errstate(all="ignore"):
        low, high = (float(expr.evaluate([np.float64(main), *zeros])) for main in (0.0, 1.0))
    slope = high - low
    return slope if math.isfinite(slope) and abs(slope) > 1e-3 else 1.0
