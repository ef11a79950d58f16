"""What cumulative sums, rows of a table, sums of rows by index and the places of the largest mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.core.function import Array
from tracea.core.interval import Enclosure, around
from tracea.core.ops.indexed import CumulativeSumOp, GatherRowsOp, LargestOp, SumRowsOp
from tracea.core.ops.weighted_rows import WeightedRowsOp
from tracea.core.tensor_type import TensorType

__all__ = [
    "IndexedOp",
    "first_places",
    "gathered_rows",
    "indexed_enclosure",
    "indexed_value",
    "running_sums",
    "summed_rows",
    "weighted_sums",
]

IndexedOp = CumulativeSumOp | GatherRowsOp | SumRowsOp | WeightedRowsOp | LargestOp


def indexed_value(op: IndexedOp, arrays: Sequence[Array]) -> Array:
    """Return the op's result in float64."""
    match op:
        case CumulativeSumOp():
            return running_sums(arrays[0], op.axis, backward=op.backward)
        case GatherRowsOp():
            return _of_table(op.table, *arrays)
        case SumRowsOp():
            return summed_rows(arrays[0], arrays[1], op.rows, op.skipped)
        case WeightedRowsOp():
            return weighted_sums(*arrays)
        case LargestOp():
            return first_places(arrays[0], op.k, smallest=op.smallest).astype(np.float64)


def indexed_enclosure(
    op: IndexedOp, arrays: Sequence[Array], value: Array, compute: DType, constant: Callable[[int], float]
) -> Enclosure:
    """Return the enclosure of the result; ``constant`` gives the error of a sum of so many terms, in eps."""
    if isinstance(op, SumRowsOp):
        counts = summed_rows(np.ones((arrays[1].size, 1)), arrays[1], op.rows, op.skipped).astype(np.int64)
        each = np.asarray([constant(count) for count in range(int(counts.max(initial=0)) + 1)])
        size = summed_rows(np.abs(arrays[0]), arrays[1], op.rows, op.skipped)
        return around(value, each[counts] * compute.eps * size)
    if isinstance(op, WeightedRowsOp):
        size = weighted_sums(np.abs(arrays[0]), arrays[1], np.abs(arrays[2]))
        lost = np.where(size > 0.0, op.count * compute.smallest, 0.0)
        return around(value, constant(op.count) * compute.eps * size + lost)
    if not isinstance(op, CumulativeSumOp):
        return value, value
    count = max(1, arrays[0].shape[op.axis])
    size = running_sums(np.abs(arrays[0]), op.axis, backward=op.backward)
    return around(value, constant(count) * compute.eps * size)


def running_sums(x: Array, axis: int, *, backward: bool) -> Array:
    """Return the sums up to each element along an axis, or from each one on."""
    if not backward:
        return np.cumsum(x, axis=axis, dtype=np.float64)
    return np.flip(np.cumsum(np.flip(x, axis), axis=axis, dtype=np.float64), axis)


def first_places(x: np.ndarray[Any, Any], k: int, *, smallest: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the places of the k largest or smallest of each row, of equals the first; NaN is the largest.

    Integers are compared as they are.
    """
    missing = np.isnan(x)
    value: np.ndarray[Any, Any]
    if np.issubdtype(x.dtype, np.integer):
        value = x if smallest else ~x
    else:
        value = np.where(missing, 0.0, x if smallest else -x)
    rank = missing if smallest else ~missing
    place: Array = np.broadcast_to(np.arange(x.shape[-1], dtype=np.float64), x.shape)
    return np.lexsort((place, value, rank))[..., :k]


def gathered_rows(table: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the rows of a table, bits of ones for one that there is not."""
    places = indices.astype(np.int64)
    known = (places >= 0) & (places < table.shape[0])
    found = np.full((places.size, table.shape[1] * table.itemsize), 0xFF, np.uint8).view(table.dtype)
    found = found.reshape(places.size, table.shape[1])
    found[known] = table[places[known]]
    return found


def summed_rows(x: Array, indices: np.ndarray[Any, Any], rows: int, skipped: int | None) -> Array:
    """Return for each of so many rows the sum of the rows of x whose index it is, zero for the one that is skipped."""
    places = indices.astype(np.int64)
    known = (places >= 0) & (places < rows) & (places != (-1 if skipped is None else skipped))
    sums = np.zeros((rows, x.shape[1]))
    np.add.at(sums, places[known], x[known])
    return sums


def weighted_sums(table: Array, indices: np.ndarray[Any, Any], weights: Array) -> Array:
    """Return the sums of rows of each table, weighted; NaN with a row that there is not."""
    rows, places = table.shape[1], indices.astype(np.int64)
    known = (places >= 0) & (places < rows)
    sums = np.zeros((table.shape[0], places.shape[0], table.shape[2]))
    for taken, is_known, factors in zip(places.T, known.T, weights.T, strict=True):
        found = np.full(sums.shape, np.nan)
        found[:, is_known] = table[:, taken[is_known]]
        sums += factors.astype(np.float64)[:, None] * found
    return sums


def _of_table(type_: TensorType, table: Array, indices: Array) -> Array:
    return gathered_rows(table.astype(type_.dtype.numpy), indices).astype(np.float64)
