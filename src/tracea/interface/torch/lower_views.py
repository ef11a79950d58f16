"""Lowerings of views: the same memory under other indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracea.core.tensor_type import static

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = [
    "chunk",
    "contiguous",
    "dropout",
    "expand",
    "identity",
    "movedim",
    "narrow",
    "permute",
    "repeat",
    "reshape",
    "reverse_axes",
    "select",
    "slice_",
    "split",
    "split_with_sizes",
    "swap_last_axes",
    "transpose",
    "unbind",
    "windows",
]


def identity(low: Lowering, x: Node, *_: Any) -> Node:
    """Lower what changes no value: values never change in a captured graph, so a copy is the value itself."""
    del low
    return x


def contiguous(low: Lowering, x: Node, *_: Any) -> Node:
    """Lower to x where it is row-major, else to a copy."""
    return x if x.type.is_contiguous else low.copy(x)


def dropout(low: Lowering, x: Node, probability: float, train: bool) -> Node:
    """Lower a dropout that is switched off.

    Raises:
        Refusal: it is on.
    """
    if train and probability > 0.0:
        low.refuse(
            f"a dropout of {probability} in training mode",
            "call module.eval() first: this is for inference; F.dropout needs training=self.training",
        )
    return x


def reshape(low: Lowering, x: Node, *_: Any) -> Node:
    """Lower whatever gives the same elements another shape: the shape is the result's."""
    return low.reshape(x, low.shape)


def permute(low: Lowering, x: Node, axes: Sequence[int]) -> Node:
    """Lower a transpose of all axes."""
    return low.permute(x, axes)


def transpose(low: Lowering, x: Node, first: int = 0, second: int = 1) -> Node:
    """Lower a swap of two axes; ``t`` names none and may be given a vector."""
    return x if x.type.rank < 2 else low.transpose(x, first, second)


def reverse_axes(low: Lowering, x: Node) -> Node:
    """Lower the transpose of all axes, last one first."""
    return low.permute(x, range(x.type.rank)[::-1])


def movedim(low: Lowering, x: Node, source: int | Sequence[int], destination: int | Sequence[int]) -> Node:
    """Lower a move of some axes to other places."""
    rank = max(x.type.rank, 1)  # a number has the axes 0 and -1
    before, after = ([each] if isinstance(each, int) else list(each) for each in (source, destination))
    target = {place % rank: axis % rank for axis, place in zip(before, after, strict=True)}
    rest = iter([axis for axis in range(rank) if axis not in target.values()])
    return low.permute(x, [target[place] if place in target else next(rest) for place in range(x.type.rank)])


def repeat(low: Lowering, x: Node, times: Sequence[int]) -> Node:
    """Lower copies side by side: an axis of strides 0 before each axis, both made one."""
    if not x.type.is_static:
        low.refuse("a repetition of symbolic extents", "make the axes static: dynamic=None")
    extents = (*(1,) * (len(times) - x.type.rank), *x.type.static_shape)
    apart = [each for extent in extents for each in (1, extent)]
    spread = [each for count, extent in zip(times, extents, strict=True) for each in (count, extent)]
    return low.reshape(low.expand(low.reshape(x, apart), spread), low.shape)


def swap_last_axes(low: Lowering, x: Node) -> Node:
    """Lower the transpose of each matrix."""
    return low.transpose(x)


def expand(low: Lowering, x: Node, *_: Any) -> Node:
    """Lower a broadcast to the result's shape."""
    return low.expand(x, low.shape)


def select(low: Lowering, x: Node, axis: int, index: int) -> Node:
    """Lower ``x[..., index, ...]``."""
    axis %= x.type.rank
    index = index if index >= 0 else index + static(x.type.shape[axis])
    return low.reshape(low.slice(x, axis, index, 1), low.shape)


def slice_(
    low: Lowering, x: Node, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Node:
    """Lower ``x[..., start:end:step, ...]``; the end is in the result's shape."""
    axis %= x.type.rank
    extent = x.type.shape[axis]
    if not isinstance(extent, int):
        if (start or 0) == 0 and step == 1 and low.shape[axis] == extent:
            return x
        low.refuse("a slice of a symbolic axis", "make that axis static")
    first, _, _ = slice(start, end, step).indices(extent)
    return low.slice(x, axis, first, low.shape[axis], step)


def narrow(low: Lowering, x: Node, axis: int, start: int, length: int) -> Node:
    """Lower ``length`` indices of an axis from ``start`` on."""
    axis %= x.type.rank
    start = start if start >= 0 else start + static(x.type.shape[axis])
    return low.slice(x, axis, start, length)


def chunk(low: Lowering, x: Node, chunks: int, axis: int = 0) -> list[Node]:
    """Lower to at most that many parts of equal size, the last one smaller."""
    extent = static(x.type.shape[axis])
    if extent == 0:  # so many of nothing
        return split_with_sizes(low, x, [0] * chunks, axis)
    return split(low, x, max(-(-extent // chunks), 1), axis)


def split(low: Lowering, x: Node, size: int, axis: int = 0) -> list[Node]:
    """Lower to parts of ``size``, the last one smaller."""
    extent = static(x.type.shape[axis])
    sizes = [min(size, extent - start) for start in range(0, extent, max(size, 1))] or [0]  # of nothing 0 is a size
    return split_with_sizes(low, x, sizes, axis)


def split_with_sizes(low: Lowering, x: Node, sizes: Sequence[int], axis: int = 0) -> list[Node]:
    """Lower to parts of the given sizes."""
    axis %= x.type.rank
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [low.slice(x, axis, start, size) for start, size in zip(starts, sizes, strict=True)]


def unbind(low: Lowering, x: Node, axis: int = 0) -> list[Node]:
    """Lower to the parts of extent 1, without that axis."""
    axis %= x.type.rank
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    return [low.reshape(low.slice(x, axis, index, 1), shape) for index in range(static(x.type.shape[axis]))]


def windows(low: Lowering, x: Node, axis: int, size: int, step: int) -> Node:
    """Lower the windows of an axis, ``x.unfold(axis, size, step)``: those that overlap are still no copy."""
    if not x.type.is_static:
        low.refuse("windows of symbolic extents", "make the axes static: dynamic=None")
    if x.type.rank == 0 or low.makes_nothing_of(x):
        low.refuse(f"windows of {x.type}", "leave out what has no elements")
    return low.windows(x, axis % x.type.rank, size, step)
