"""Lowerings of what writes a part of a tensor: a copy with a hole, and what is written in the hole.

A tensor written at indices that are known is a join, of which no kernel but that of the copies runs; at indices that
only a call knows, a choice by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Cast, Constant, Expr, Input, maximum, select
from tracea.core.graph import Node
from tracea.core.op import JoinOp, ReduceKind, ReduceOp
from tracea.core.tensor_type import Dim, static
from tracea.flow.places import EXACT_IN_F32
from tracea.interface.torch.lower_indexed import gathered, progression
from tracea.interface.torch.lower_places import by_order, order_of
from tracea.interface.torch.operand_types import rounded

if TYPE_CHECKING:
    from tracea.interface.torch.lowering import Lowering

__all__ = [
    "MOST_COMPARED",
    "MOST_SCATTERED",
    "Hole",
    "copy",
    "index_copy",
    "index_put",
    "one_hot",
    "scatter",
    "select_scatter",
    "slice_scatter",
]

MOST_SCATTERED: Final = 16  # places of a line: each element of it is compared with each
MOST_COMPARED: Final = 2048  # elements with places, beyond which torch's writes one by one are faster


@dataclass(frozen=True, slots=True)
class Hole:
    """Where a value differs from the one that it was written to: along one axis, at ``indices``."""

    of: Node
    axis: int
    indices: range | Node


def copy(low: Lowering, x: Node, source: Node, *_: object) -> Node:
    """Lower ``x.copy_(source)``: the source in x's shape and type."""
    del x
    return low.expand(low.cast(source, low.dtype), low.shape)


def slice_scatter(
    low: Lowering,
    x: Node,
    source: Node,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Node:
    """Lower x with ``x[..., start:end:step, ...] = source``."""
    axis %= x.type.rank
    extent = x.type.shape[axis]
    if not isinstance(extent, int):
        low.refuse("a write to a part of a symbolic axis", "make that axis static: dynamic=None")
    first, last, _ = slice(start, end, step).indices(extent)
    return _written(low, x, source, axis, range(first, max(first, last), step))


def select_scatter(low: Lowering, x: Node, source: Node, axis: int, index: int) -> Node:
    """Lower x with ``x[..., index, ...] = source``."""
    axis %= x.type.rank
    index = index if index >= 0 else index + static(x.type.shape[axis])
    rest = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    row = low.reshape(low.expand(source, rest), (*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :]))
    return _written(low, x, row, axis, range(index, index + 1))


def index_copy(low: Lowering, x: Node, axis: int, index: Node, source: Node) -> Node:
    """Lower x with ``x[..., index, ...] = source``; of places that are named twice, the last one counts."""
    if x.type.rank == 0:
        low.refuse("a write by index to one number", "give it an axis: x.reshape(1)")
    return _written_at(low, x, axis % x.type.rank, index, source)


def index_put(
    low: Lowering, x: Node, indices: Sequence[Node | None], values: Node, accumulate: bool = False, *_: object
) -> Node:
    """Lower x with ``x[indices] = values``: places along one axis, or one value where a mask is set."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if accumulate:
        low.refuse("sums at places that indices name", "add rows of one axis, x.index_add(axis, places, rows)")
    if len(given) != 1:
        low.refuse(
            "a write at places along several axes",
            "write along one axis, x.index_copy_(axis, places, values), or by where",
        )
    axis, index = given[0]
    if index.type.dtype is DType.BOOL:
        return _by_mask(low, x, axis, index, values)
    if index.type.dtype is DType.U8:
        low.refuse("a write by uint8, which torch takes for a mask", "say what it is: mask.bool(), or places.long()")
    if not index.type.is_static:
        low.refuse(f"a write at places {index.type}", "make their axes static: dynamic=None")
    before, after = x.type.shape[:axis], x.type.shape[axis + 1 :]
    count = index.type.elements
    spread = low.expand(low.cast(values, x.type.dtype), (*before, *index.type.shape, *after))
    return _written_at(low, x, axis, low.reshape(index, (count,)), low.reshape(spread, (*before, count, *after)))


def scatter(low: Lowering, x: Node, axis: int, index: Node, source: Node | float) -> Node:
    """Lower x with ``x[i, index[i, j]] = source[i, j]``, along any axis; of equal places the last one counts.

    Each element of the axis is compared with each place of its line: for few places, as of the experts of a token.
    """
    if x.type.rank == 0 or index.type.rank == 0:
        low.refuse("a write by index to one number", "give it an axis: x.reshape(1)")
    axis %= x.type.rank
    extent, count = x.type.shape[axis], index.type.shape[axis]
    if not (isinstance(extent, int) and isinstance(count, int)):
        low.refuse("a write at places of a symbolic axis", "make that axis static: dynamic=None")
    if 0 in (*x.type.shape, *index.type.shape):
        return x
    if _without(index.type.shape, axis) != _without(x.type.shape, axis):
        low.refuse(
            f"a write at places {index.type} in a part of {x.type}",
            "give a line of places for each line of the tensor: index.expand, or slice the tensor first",
        )
    if isinstance(source, Node) and source.type.shape == x.type.shape and low.orders.get(index.id) == axis:
        return by_order(low, source, axis, index)
    if count > MOST_SCATTERED or (count > 1 and count * extent > MOST_COMPARED):
        low.refuse(
            f"a write at {count} places of each line of {extent} elements",
            f"write at one place, or at up to {MOST_SCATTERED} of so few elements that their product is at most "
            f"{MOST_COMPARED}; where all lines have the same places, x.index_copy(axis, places, values)",
        )
    low.check_indices(index, extent)
    numbers = _numbers(low, extent)
    places = low.cast(index, numbers.type.dtype)
    operands: list[Node | float] = [x, _upright(low, numbers, x, axis)]
    value: Expr = Input(0)
    for at in range(count):
        is_there = Binary(BinaryFunction.EQ, Input(1), Input(len(operands)))
        operands.append(low.slice(places, axis, at, 1))
        value = select(is_there, Input(len(operands)), value)
        operands.append(_one_of(low, source, index, axis, at))
    return low.pointwise(value, *operands, exact=True)


def _one_of(low: Lowering, source: Node | float, index: Node, axis: int, at: int) -> Node | float:
    """Return what is written at the places of one number along the axis; a source may reach beyond the index."""
    if not isinstance(source, Node):
        return rounded(source, low.dtype)
    part = source
    for each, extent in enumerate(index.type.shape):
        part = low.slice(part, each, at if each == axis else 0, 1 if each == axis else extent)
    return part


def _without(shape: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def one_hot(low: Lowering, places: Node, classes: int) -> Node:
    """Lower a row for each place that is 1 there, and 0 elsewhere."""
    low.check_indices(places, classes)
    numbers = _numbers(low, classes)
    column = low.reshape(low.cast(places, numbers.type.dtype), (*places.type.shape, 1))
    return low.pointwise(Binary(BinaryFunction.EQ, Input(0), Input(1)), column, numbers, exact=True)


def _numbers(low: Lowering, count: int) -> Node:
    """Return 0, 1, ... in the type of fewest bytes that tells them apart: places are compared in it."""
    return low.counted(count, torch.float32 if count <= EXACT_IN_F32 else torch.float64)


def _by_mask(low: Lowering, x: Node, axis: int, mask: Node, values: Node) -> Node:
    if not values.type.is_static or values.type.elements != 1:
        low.refuse("a write of several values by a mask", "write torch.where(mask, values, x), in x's shape")
    after = x.type.rank - axis - mask.type.rank
    place = low.reshape(mask, (*(1,) * axis, *mask.type.shape, *(1,) * after))
    return low.pointwise(select(Input(0), Input(1), Input(2)), place, low.reshape(values, ()), x, exact=True)


def _written(low: Lowering, x: Node, source: Node, axis: int, places: range) -> Node:
    """Return x with the source at these places of an axis, as a join of the source and what is kept."""
    if not x.type.is_static:
        low.refuse(f"a write to a part of {x.type}", "make its axes static: dynamic=None")
    shape = x.type.static_shape
    part = low.expand(low.cast(source, x.type.dtype), (*shape[:axis], len(places), *shape[axis + 1 :]))
    if not places or 0 in shape:
        return x
    kept = [range(places[0]), *(range(places[0] + phase, places[-1], places.step) for phase in range(1, places.step))]
    kept = [each for each in (*kept, range(places[-1] + 1, shape[axis])) if each]
    if not kept:
        return part
    parts = [part, *(low.slice(x, axis, each[0], len(each), each.step) for each in kept)]
    op = JoinOp(
        parts=tuple(node.type for node in parts),
        starts=tuple(_along(axis, each[0], len(shape), 0) for each in (places, *kept)),
        steps=tuple(_along(axis, each.step, len(shape), 1) for each in (places, *kept)),
        shape=shape,
    )
    result = low.graph.add(op, parts, name=low.label())
    low.holes[result.id] = Hole(x, axis, places)
    return result


def _along(axis: int, number: int, rank: int, elsewhere: int) -> tuple[int, ...]:
    return tuple(number if each == axis else elsewhere for each in range(rank))


def _written_at(low: Lowering, x: Node, axis: int, index: Node, source: Node) -> Node:
    """Return x with the source at the places of an axis that an index tensor of one axis, or of none, names."""
    if not (x.type.is_static and index.type.is_static and source.type.is_static):
        low.refuse(f"a write to places of {x.type}", "make the axes of all its tensors static: dynamic=None")
    shape, count = x.type.static_shape, index.type.elements
    rows = low.cast(source, x.type.dtype)
    rows = low.reshape(rows, (*shape[:axis], count, *shape[axis + 1 :]))
    if count == 0 or x.type.elements == 0:
        return x
    low.check_indices(index, shape[axis])
    fixed = progression(low.constant_of(index), shape[axis])
    if fixed is not None:
        return _written(low, x, rows, axis, fixed)
    line = low.reshape(index, (count,))
    if index.type.rank == 1 and count == shape[axis] and low.orders.get(index.id) == 0:
        return _permuted(low, rows, axis, line)
    is_hit, value = _one(low, x, axis, line, rows) if count == 1 else _last(low, x, axis, line, rows)
    result = low.pointwise(select(Input(0), Input(1), Input(2)), is_hit, value, x, dtype=x.type.dtype, exact=True)
    low.holes[result.id] = Hole(x, axis, index)
    return result


def _permuted(low: Lowering, rows: Node, axis: int, places: Node) -> Node:
    """Return rows of an axis at the places that a permutation names: those that its inverse names, in order."""
    inverse = order_of(low, places)
    numbers = low.constant_of(rows)
    if numbers is None or numbers.dtype is not torch.int64:
        return gathered(low, rows, axis, inverse)
    if numbers.equal(torch.arange(len(numbers), device="cpu")):
        return inverse
    return gathered(low, rows, axis, inverse)


def _one(low: Lowering, x: Node, axis: int, line: Node, row: Node) -> tuple[Node, Node]:
    """Return which index of the axis the one place is, and what is written there."""
    places = low.counted(x.type.static_shape[axis], torch.int64)
    is_hit = low.pointwise(Binary(BinaryFunction.EQ, Input(0), Input(1)), places, line, dtype=DType.BOOL, exact=True)
    return _upright(low, is_hit, x, axis), row


def _last(low: Lowering, x: Node, axis: int, line: Node, rows: Node) -> tuple[Node, Node]:
    """Return which indices of the axis are places, and for each of them the row of the last place that names it."""
    extent, count = x.type.static_shape[axis], line.type.elements
    if count >= 2**24:
        low.refuse(f"a write to {count} places", "write a slice")
    places = low.reshape(low.counted(extent, torch.int64), (extent, 1))
    numbers = low.counted(count, torch.float32)
    is_same = Binary(BinaryFunction.EQ, Input(0), Input(1))
    named = low.pointwise(select(is_same, Input(2), Constant(-1.0)), places, line, numbers, dtype=DType.F32)
    op = ReduceOp(kind=ReduceKind.MAX, x=(named.type,), axes=(1,))
    last = low.graph.add(op, [named], name=low.label("last"))
    number = low.pointwise(Cast(maximum(Input(0), Constant(0.0)), DType.I64), last, dtype=DType.I64, exact=True)
    value = gathered(low, rows, axis, number)
    is_hit = low.pointwise(Binary(BinaryFunction.GE, Input(0), Constant(0.0)), last, dtype=DType.BOOL, exact=True)
    return _upright(low, is_hit, x, axis), value


def _upright(low: Lowering, line: Node, x: Node, axis: int) -> Node:
    """Return numbers of one axis's indices in as many axes as broadcast to x."""
    return low.reshape(line, (line.type.elements, *(1,) * (x.type.rank - axis - 1)))
