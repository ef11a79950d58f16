"""Tables among the operands of an op, drawn as the op defines them: row numbers, listed blocks, spans of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.ops.attention import SPAN_FIELDS
from tracea.gates.distribution import Distribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.core.dtype import DType
    from tracea.core.op import AttentionOp, BlockSparseOp, GatherRowsOp, GroupedGemmOp, SumRowsOp, WeightedRowsOp

__all__ = ["listed_blocks", "routed_rows", "row_numbers", "rows_of_sums", "spans_of_pairs", "weighted_rows"]

# The share of blocks that are listed, and the rows that one part leaves to others: room for the usual share ends.
_LISTED: Final = {
    Distribution.INTEGER: 1.0,
    Distribution.EVERYWHERE: 1.0,
    Distribution.LARGE: 0.9,
    Distribution.ZERO: 0.0,
}
_ALL_ROUTED: Final = (Distribution.DENORMAL, Distribution.EVERYWHERE)
_ORDERS: Final = (Distribution.INTEGER, Distribution.LARGE, Distribution.WIDE, Distribution.EDGES)  # of rows summed
# Terms of both signs may pass what the compute type holds on the way to a sum that does not.
_AS_LARGE: Final = (Distribution.LARGE, Distribution.EXTREME, Distribution.EVERYWHERE)
_LEFT: Final = {Distribution.INTEGER: 2, Distribution.LARGE: 0}


def row_numbers(
    op: GatherRowsOp, stored: list[NDArray[Any]], rng: np.random.Generator, distribution: Distribution
) -> None:
    """Rows of all the table, the first and the last, and numbers that no row has, of all sizes that the type holds.

    Where every result is to be reached, rows that exist alone, the same ones in each turn: what becomes NaN and then
    infinite is an element of the table, and of a missing row each result is NaN.
    """
    rows, count, dtype = op.table.static_shape[0], op.indices.elements, op.indices.dtype
    if distribution is Distribution.EVERYWHERE and rows:
        stored[1] = (np.arange(count)[::-1] % rows).astype(dtype.numpy)
        return
    stored[1] = _numbers(rows, count, dtype, (), rng)


def rows_of_sums(
    op: SumRowsOp, stored: list[NDArray[Any]], rng: np.random.Generator, distribution: Distribution
) -> None:
    """As row numbers, the last of them a row's own; or one row, a few, or rows in order, forward and backward.

    Where every result is to be reached, all rows in turn.
    """
    count, dtype = op.indices.elements, op.indices.dtype
    summed = np.setdiff1d(np.arange(op.rows), [] if op.skipped is None else [op.skipped])
    if distribution is Distribution.EVERYWHERE and summed.size:
        stored[1] = np.resize(rng.permutation(summed), count).astype(dtype.numpy)
        return
    if op.rows == 0 or distribution not in _ORDERS:
        own = rng.permutation(summed)[: min(1, count)]
        skipped = () if op.skipped is None else (op.skipped,)
        stored[1] = np.concatenate([_numbers(op.rows, count - own.size, dtype, skipped, rng), own.astype(dtype.numpy)])
        return
    most = {Distribution.LARGE: 1, Distribution.INTEGER: max(1, op.rows // 8)}.get(distribution, op.rows)
    numbers = rng.permutation(op.rows)[:most][rng.integers(0, most, count)]
    if most == op.rows:
        numbers = np.sort(numbers)[:: 1 if distribution is Distribution.WIDE else -1]
    stored[1] = numbers.astype(dtype.numpy)


def weighted_rows(
    op: WeightedRowsOp, stored: list[NDArray[Any]], rng: np.random.Generator, distribution: Distribution
) -> None:
    """As row numbers; where sums are to be as large as their rows, these are rows, and the weights of one sign."""
    rows, (sums, count), dtype = op.table.static_shape[1], op.indices.static_shape, op.indices.dtype
    if distribution in _AS_LARGE and rows:
        stored[1] = rng.integers(0, rows, (sums, count)).astype(dtype.numpy)
        stored[2] = (rng.uniform(0.5, 1.0, (sums, count)) / count).astype(op.weights.dtype.numpy)
        return
    stored[1] = _numbers(rows, sums * count, dtype, (), rng).reshape(sums, count)


def _numbers(rows: int, count: int, dtype: DType, further: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    """Return numbers of rows, among them the ends and further ones, and numbers that no row has."""
    numbers = rng.integers(0, max(rows, 1), count)
    beyond = [rows, -1, rows + 256, 2**32 + rows // 2, int(dtype.lowest), int(dtype.largest)]
    odd = [number for number in (0, rows - 1, *further, *beyond) if dtype.lowest <= number <= dtype.largest]
    places = rng.permutation(numbers.size)[: max(1, min(len(odd), numbers.size // 2))]
    numbers[places] = rng.permutation(np.asarray(odd, np.int64))[: places.size]
    return np.clip(numbers, int(dtype.lowest), int(dtype.largest)).astype(dtype.numpy)


def listed_blocks(
    op: BlockSparseOp, stored: list[NDArray[Any]], rng: np.random.Generator, distribution: Distribution
) -> None:
    """Half of the blocks and none of one line; all, most or none; NaN where it has none, which nothing may read."""
    listed = rng.random((op.steps, op.lines)) < _LISTED.get(distribution, 0.5)
    if op.lines > 1 and distribution not in _LISTED:
        listed[:, rng.integers(op.lines)] = False
    stored[1][~np.kron(listed, np.ones((op.block, op.block), np.bool_))[: op.k, : op.n]] = np.nan
    step, line = np.nonzero(listed)
    run = step // op.chunk * op.lines + line
    order = np.lexsort((step, run))
    counts = np.bincount(run, minlength=op.lines * -(-op.steps // op.chunk))
    first, lines, steps = (np.zeros_like(table) for table in stored[2:])
    first[1:] = np.cumsum(counts)
    lines[: order.size], steps[: order.size] = line[order], step[order]
    stored[2:] = [first, lines, steps]


def routed_rows(
    op: GroupedGemmOp, stored: list[NDArray[Any]], rng: np.random.Generator, distribution: Distribution
) -> None:
    """Parts of all rows in turn: of groups in any order, of none, and without rows; what no part reads is NaN.

    Of integers one part has all rows but two, of large numbers all. Few rows are subnormal: all are of groups
    there, and where every row is to be reached.
    """
    number, counts = np.zeros(op.parts, np.int64), np.zeros(op.parts, np.int64)
    lost = distribution not in _ALL_ROUTED or not op.groups
    number[:] = rng.integers(0, op.groups + lost, op.parts)
    if op.parts:
        counts[:] = rng.multinomial(op.m, rng.dirichlet(np.ones(op.parts)))
    if distribution in _LEFT and op.parts and op.groups:
        most, *others = (int(part) for part in rng.permutation(op.parts))
        counts[:] = 0
        counts[others[: _LEFT[distribution]]] = 1 if op.m > _LEFT[distribution] else 0
        counts[most] = op.m - counts.sum()
        number[most] = rng.integers(op.groups)
    elif op.parts > 2 and op.groups:  # one of each kind
        some, none, empty = (int(part) for part in rng.permutation(op.parts)[:3])
        number[[some, none, empty]] = rng.integers(0, op.groups, 3)
        number[none] = op.groups if lost else number[none]
        counts[some] += counts[empty]
        counts[empty] = 0
        for part in (some, none):
            taken = int(counts[part] == 0 and counts.max() > 1)
            counts[int(np.argmax(counts))] -= taken
            counts[part] += taken
    stored[0][np.repeat(number, counts) == op.groups] = np.nan
    unused = np.setdiff1d(np.arange(op.groups), number[counts > 0])
    for values in stored[1:-2]:
        values[unused] = np.nan
    ends = np.concatenate([[0], np.cumsum(counts)])
    stored[-2:] = [ends.astype(stored[-2].dtype), number.astype(stored[-1].dtype)]


def spans_of_pairs(
    op: AttentionOp, stored: list[NDArray[Any]], rng: np.random.Generator, distribution: Distribution
) -> None:
    """Lists of no span, of one over some keys, or of one before the diagonal and one behind, in reach of it."""
    del distribution
    if op.spans is None:
        return
    first, fields = np.zeros_like(stored[-2]), np.zeros_like(stored[-1]).reshape(-1, SPAN_FIELDS)
    queries, keys, count = op.q.static_shape[2], op.k.static_shape[2], 0
    blocks = -(-queries // op.spans.rows)
    for number in range(first.size - 1):
        begin = number % blocks * op.spans.rows
        end = min(begin + op.spans.rows, queries)
        cut = int(rng.integers(0, keys + 1))
        kinds: tuple[list[tuple[int, ...]], ...] = (
            [],
            [(begin, end, cut // 2, cut, queries + keys, queries + keys)],
            [(begin, end, 0, cut, int(rng.integers(1, 9)), 0), (begin, end, cut, keys, 0, queries + keys)],
        )
        for span in kinds[int(rng.integers(3))]:
            if count < op.spans.room:
                fields[count] = span
                count += 1
        first[number + 1] = count
    stored[-2:] = [first, fields.reshape(-1)]
