"""Lowerings of padding: elements around those of a tensor, of one value or of its own, or some of it cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tracea.core.op import JoinOp
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import static
from tracea.interface.torch.lower_indexed import gathered

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.core.tensor_type import Dim
    from tracea.interface.torch.lowering import Lowering

__all__ = ["pad", "pad_as", "padded"]


def pad_as(low: Lowering, x: Node, amounts: Sequence[int], mode: str = "constant", value: float | None = None) -> Node:
    """Lower ``F.pad``: by a value, or by rows of x that stand in for those beyond its ends.

    Those are mirrored at the first and the last element (``reflect``), these themselves (``replicate``), or the ones
    of the other end (``circular``).
    """
    if mode == "constant":
        return pad(low, x, amounts, value)
    if not x.type.is_static:
        low.refuse("padding of symbolic extents", "make the axes static: dynamic=None")
    if low.makes_nothing_of(x):
        return low.nothing(x)
    for place in range(len(amounts) // 2):
        before, behind = amounts[2 * place : 2 * place + 2]
        axis = x.type.rank - 1 - place
        if mode == "circular" and min(before, behind) < 0:  # what is cut off is not what comes round
            kept = static(x.type.shape[axis]) + min(before, 0) + min(behind, 0)
            x = low.slice(x, axis, max(-before, 0), kept)
            before, behind = max(before, 0), max(behind, 0)
            if max(before, behind) > kept:
                low.refuse(f"{max(before, behind)} elements round from {kept}", "pad by what is left at most")
        extent = static(x.type.shape[axis])
        rows = torch.arange(-before, extent + behind, device="cpu")
        if mode == "reflect":
            rows = (extent - 1) - ((extent - 1) - rows.abs()).abs()
        rows = rows % extent if mode == "circular" else rows.clamp(0, extent - 1)
        x = gathered(low, x, axis, low.constant(rows, "rows")) if before or behind else x
    return x


def pad(low: Lowering, x: Node, amounts: Sequence[int], value: float | None = 0.0) -> Node:
    """Lower elements of one value before and behind those of x; less than none cut some of x off.

    ``amounts`` has two numbers for the last axis, then two for the one before it, and so on.
    """
    return padded(low, x, amounts, low.shape, 0.0 if value is None else value)


def padded(low: Lowering, x: Node, amounts: Sequence[int], whole: Sequence[Dim], value: float = 0.0) -> Node:
    """Append elements around those of x, or what is left of it, of the shape ``whole``.

    What makes x writes it into the result, around which each side is a part of its own.
    """
    if not x.type.is_static:
        low.refuse("padding of symbolic extents", "make the axes static: dynamic=None")
    if 0 in x.type.shape and 0 in whole:
        return low.reshape(low.cast(x, low.dtype), whole)
    is_image = low.images.pixels(x) is not None
    inner, shape = x, [static(dim) for dim in whole]
    before, behind = ([int(each) for each in amounts[side::2]][::-1] for side in (0, 1))
    before, behind = ([0] * (x.type.rank - len(each)) + each for each in (before, behind))
    if is_image and x.type.rank == 3:
        inner = low.images.image_of(x)
        for numbers, one in ((shape, 1), (before, 0), (behind, 0)):
            numbers.insert(2, one)
    for axis, (first, last) in enumerate(zip(before, behind, strict=True)):
        extent = static(inner.type.shape[axis])
        inner = low.slice(inner, axis, max(-first, 0), extent + min(first, 0) + min(last, 0))
    if inner.type.elements == 0:
        return low.copy(low.filled(value, whole))
    starts = [max(first, 0) for first in before]
    sides = _sides(inner.type.static_shape, starts, shape)
    if not sides:
        return inner if inner.type.shape == tuple(whole) else low.images.sequence(inner)
    parts = [inner, *(low.filled(value, extents) for _, extents in sides)]
    op = JoinOp(
        parts=tuple(part.type for part in parts),
        starts=(tuple(starts), *(tuple(start) for start, _ in sides)),
        steps=((1,) * len(shape),) * len(parts),
        shape=tuple(shape),
        out=image_type(shape, low.dtype, channels_last=True) if is_image else None,
    )
    made = low.graph.add(op, parts, name=low.label())
    if not is_image:
        return made
    low.images.made(made)
    return made if x.type.rank == 4 else low.images.sequence(made)


def _sides(inner: Sequence[int], starts: Sequence[int], shape: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return what surrounds a box within a shape, as boxes: where each begins, and its extents.

    Those of an axis are as long as the box along the axes before it, and as the whole along those behind it.
    """
    found: list[tuple[list[int], list[int]]] = []
    for axis, (first, size, whole) in enumerate(zip(starts, inner, shape, strict=True)):
        for begin, count in ((0, first), (first + size, whole - first - size)):
            if count:
                start = [*starts[:axis], begin, *[0] * (len(shape) - axis - 1)]
                found.append((start, [*inner[:axis], count, *shape[axis + 1 :]]))
    return found
