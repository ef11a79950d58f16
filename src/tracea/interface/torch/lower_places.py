"""Lowerings of places: of extremes, of the largest, of an axis in order, and elements that an index tensor names.

Of equal elements the first is taken; a NaN is larger than all others, and for the least of an axis smaller than all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tracea.core.dtype import DType
from tracea.core.op import LargestOp, ReduceKind
from tracea.core.tensor_type import TensorType, broadcast_shapes
from tracea.flow.places import add_elements, add_place_of_extreme, line_begins, order_in_memory, type_of_places
from tracea.interface.torch.lower_rows import reduction
from tracea.interface.torch.types import torch_dtype_of

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = [
    "argsort",
    "argsort_stably",
    "by_order",
    "extreme_with_place",
    "gather",
    "order_of",
    "place_of_extreme",
    "sort",
    "sort_stably",
    "sorted_along_the_first",
    "take_along",
    "topk",
]

_VALUES, _PLACES = 0, 1  # of the two results
_FEW, _SHORT = 64, 256  # of an axis, and its extent: up to here integers are compared as floats


def place_of_extreme(*, largest: bool) -> Callable[..., Node]:
    """Return the lowering of the place of the largest or the smallest element, of an axis or of all in their order."""

    def lower(low: Lowering, x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
        if low.makes_nothing_of(x):
            return low.nothing(x)
        _check_elements(low, x)
        if axis is None or x.type.rank == 0:
            place = _place(low, low.reshape(x, (x.type.elements,)), 0, "flat", largest=largest, keepdims=False)
            return low.reshape(place, low.shape)
        return _place(low, x, axis % x.type.rank, "", largest=largest, keepdims=keepdims)

    return lower


def _place(low: Lowering, x: Node, axis: int, part: str, *, largest: bool, keepdims: bool) -> Node:
    count = x.type.static_shape[axis]
    numbers = low.counted(count, torch_dtype_of(type_of_places(x.type, axis)))
    upright = low.reshape(numbers, (count, *(1,) * (x.type.rank - 1 - axis)))
    found = add_place_of_extreme(
        low.graph, x, upright, axis, largest=largest, keepdims=keepdims, names=_names(low, part)
    )
    return low.integers.state(found, 0, count - 1)


def extreme_with_place(kind: ReduceKind) -> Callable[..., tuple[Node | None, Node | None]]:
    """Return the lowering of the largest or the smallest element of an axis, and of its place, where they are read."""
    value = reduction(kind)

    def lower(low: Lowering, x: Node, axis: int, keepdims: bool = False) -> tuple[Node | None, Node | None]:
        is_by_place = not x.type.dtype.is_float
        if low.asked <= {_VALUES} and not is_by_place:
            return value(low, x, axis, keepdims), None
        if low.makes_nothing_of(x):
            return low.nothing(x), low.reshape(low.cast(x, DType.I64), low.shape)
        _check_elements(low, x)
        vector = low.reshape(x, (1,)) if x.type.rank == 0 else x
        axis %= vector.type.rank
        place = _place(low, vector, axis, "place", largest=kind is ReduceKind.MAX, keepdims=True)
        result = low.reshape(place, low.shape)
        if is_by_place:
            return low.reshape(_elements(low, vector, axis, place), low.shape), result
        return (value(low, x, axis, keepdims) if _VALUES in low.asked else None), result

    return lower


def topk(
    low: Lowering, x: Node, k: int, axis: int = -1, largest: bool = True, *_: bool
) -> tuple[Node | None, Node | None]:
    """Lower the k largest elements of an axis or the smallest, in order, and their places."""
    if k == 0 and not low.makes_nothing_of(x):
        low.refuse("the 0 largest of an axis", "leave the line out")
    return _first(low, x, int(k), axis, largest=largest)


def sort(low: Lowering, x: Node, axis: int = -1, descending: bool = False) -> tuple[Node | None, Node | None]:
    """Lower the elements of an axis in order, and their places; equal elements keep their order."""
    return _first(low, x, None, axis, largest=descending)


def sort_stably(
    low: Lowering, x: Node, stable: bool | None = None, axis: int = -1, descending: bool = False
) -> tuple[Node | None, Node | None]:
    """Lower the elements of an axis in order, as :func:`sort` does in any case."""
    del stable
    return sort(low, x, axis, descending)


def argsort(low: Lowering, x: Node, axis: int = -1, descending: bool = False) -> Node:
    """Lower the places of an axis' elements in order."""
    if low.makes_nothing_of(x):
        return low.reshape(low.cast(x, DType.I64), low.shape)
    return low.reshape(_places(low, x, None, axis, largest=descending)[2], low.shape)


def order_of(low: Lowering, line: Node) -> Node:
    """Append the places of a vector's elements in ascending order."""
    return _places(low, line, None, 0, largest=False)[2]


def by_order(low: Lowering, x: Node, axis: int, places: Node) -> Node:
    """Append x as it is written at places that are an order: read at the places of the order's own order."""
    inverse = _places(low, places, None, axis, largest=False)[2]
    return low.reshape(_elements(low, low.cast(x, low.dtype), axis, inverse), low.shape)


def argsort_stably(low: Lowering, x: Node, stable: bool, axis: int = -1, descending: bool = False) -> Node:
    """Lower the places of an axis' elements in order, as :func:`argsort` does in any case."""
    del stable
    return argsort(low, x, axis, descending)


def sorted_along_the_first(low: Lowering, x: Node) -> Node:
    """Lower the elements of the first axis in order."""
    if low.makes_nothing_of(x):
        return low.nothing(x)
    vector, axis, places = _places(low, x, None, 0, largest=False)
    return low.reshape(_elements(low, vector, axis, places), low.shape)


def _first(low: Lowering, x: Node, k: int | None, axis: int, *, largest: bool) -> tuple[Node | None, Node | None]:
    """Return the k first elements of an axis in order, where they are read, and their places."""
    if low.makes_nothing_of(x):
        return low.nothing(x), low.reshape(low.cast(x, DType.I64), low.shape)
    vector, axis, places = _places(low, x, k, axis, largest=largest)
    values = low.reshape(_elements(low, vector, axis, places), low.shape) if _VALUES in low.asked else None
    return values, low.reshape(places, low.shape)


def _places(low: Lowering, x: Node, k: int | None, axis: int, *, largest: bool) -> tuple[Node, int, Node]:
    """Append the places of the k first of an axis, or of all; return x with an axis at least, the axis, the places."""
    vector = low.reshape(x, (1,)) if x.type.rank == 0 else x
    axis %= vector.type.rank
    _check_elements(low, vector)
    count = vector.type.static_shape[axis] if k is None else k
    order = (*(at for at in range(vector.type.rank) if at != axis), axis)
    rows = low.permute(_compared(low, vector, count, vector.type.static_shape[axis]), order)
    op = LargestOp(x=rows.type, k=count, smallest=not largest)
    back = sorted(range(len(order)), key=order.__getitem__)
    # Places lie as the result does that a caller sees.
    op = replace(op, out=TensorType(tuple(op.shape[at] for at in back), DType.I64).permuted(order))
    places = low.permute(low.graph.add(op, [rows], name=low.label("places")), back)
    if count == vector.type.shape[axis]:
        low.orders[places.id] = axis
    return vector, axis, places


def _compared(low: Lowering, x: Node, count: int, columns: int) -> Node:
    """Return what tells the order of elements: integers as they are, or as f64, which holds all that a call may have.

    The few first floats of a short row are kept in order as they come, while integers are sorted by their digits.
    """
    is_short = count <= _FEW and columns <= _SHORT
    return low.cast(x, DType.F64) if is_short and not x.type.dtype.is_float else x


def gather(low: Lowering, x: Node, axis: int, index: Node, sparse_grad: bool = False) -> Node:
    """Lower ``result[i, j] = x[i, index[i, j]]`` along any axis."""
    del sparse_grad
    if not (x.type.is_static and index.type.is_static):
        low.refuse(f"elements of {x.type} named by {index.type}", "make the axes of both static: dynamic=None")
    if 0 in index.type.static_shape:
        return low.nothing(x)
    if x.type.rank == 0 or index.type.rank == 0:
        x, index = (low.reshape(node, (1,)) if node.type.rank == 0 else node for node in (x, index))
    axis %= x.type.rank
    low.check_indices(index, x.type.static_shape[axis])
    return low.reshape(_elements(low, x, axis, index), low.shape)


def take_along(low: Lowering, x: Node, index: Node, axis: int | None = None) -> Node:
    """Lower elements along an axis, or of all in their order, of x and an index tensor that broadcast elsewhere."""
    if not (x.type.is_static and index.type.is_static):
        low.refuse(f"elements of {x.type} named by {index.type}", "make the axes of both static: dynamic=None")
    if axis is None:
        return gather(low, low.reshape(x, (x.type.elements,)), 0, low.reshape(index, (index.type.elements,)))
    axis %= x.type.rank
    whole = broadcast_shapes([(*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x.type, index.type)])
    x, index = (low.expand(node, (*whole[:axis], node.type.shape[axis], *whole[axis + 1 :])) for node in (x, index))
    return gather(low, x, axis, index)


def _elements(low: Lowering, x: Node, axis: int, places: Node) -> Node:
    """Append the elements of x at places along an axis, in the places' shape."""
    if order_in_memory(x.type) is None:  # gaps are copied away
        x = low.copy(x)
    begins = torch.as_tensor(line_begins(x.type, axis, places.type.static_shape), device="cpu")
    first = low.constant(begins, "begins")
    return add_elements(low.graph, x, places, first, axis, names=_names(low, ""))


def _check_elements(low: Lowering, x: Node) -> None:
    if x.type.dtype is DType.BOOL:
        low.refuse("the extreme of a mask", "convert it: mask.int()")
    if not x.type.is_static:
        low.refuse(f"places in {x.type}", "make its axes static: dynamic=None")
    if x.type.elements == 0:
        low.refuse(f"places in {x.type}, which has no elements", "leave out what has no elements")


def _names(low: Lowering, whole: str) -> Callable[[str], str]:
    return lambda part: low.label(part or whole)
