"""Lowerings of an image as its windows, and of an image as the sum of windows: ``F.unfold`` and ``F.fold``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from tracea.core.expr import Expr, Input
from tracea.core.op import JoinOp
from tracea.core.tensor_type import static
from tracea.interface.torch.lower_resizing import padded

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["image_of_windows", "windows_of_image"]


def windows_of_image(
    low: Lowering,
    x: Node,
    size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Node:
    """Lower the windows of an image (n, c, h, w), one in each column of (n, c · rows · columns, windows)."""
    if not x.type.is_static:
        low.refuse("windows of symbolic extents", "make the axes static: dynamic=None")
    n, c, *extents = x.type.static_shape
    rows, columns = ((each, each) for each in padding)
    whole = (n, c, *(extent + 2 * each for extent, each in zip(extents, padding, strict=True)))
    if low.makes_nothing_of(x):
        return low.nothing(x)
    found = padded(low, x, (*columns, *rows), whole) if any(padding) else x
    for axis in (0, 1):
        reach = (size[axis] - 1) * dilation[axis] + 1
        found = low.windows(found, 2 + axis, reach, stride[axis])
        found = low.slice(found, found.type.rank - 1, 0, size[axis], dilation[axis])
    return low.reshape(low.permute(found, (0, 1, 4, 5, 2, 3)), low.shape)


def image_of_windows(
    low: Lowering,
    x: Node,
    whole: Sequence[int],
    size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Node:
    """Lower an image (n, c, h, w) each element of which is the sum of those of the windows that cover it."""
    if not x.type.is_static:
        low.refuse("windows of symbolic extents", "make the axes static: dynamic=None")
    if low.makes_nothing_of(x):
        return low.nothing(x)
    if any(each != 1 for each in dilation):
        low.refuse("the sum of windows with gaps", "write it as nn.ConvTranspose2d, or leave the line out")
    n, c = x.type.static_shape[0], static(low.shape[-3])
    places = [(whole[axis] + 2 * padding[axis] - size[axis]) // stride[axis] + 1 for axis in (0, 1)]
    found = low.reshape(x, (n, c, *size, *places))
    if not any(padding) and all(
        stride[axis] == size[axis] and whole[axis] == size[axis] * places[axis] for axis in (0, 1)
    ):
        return low.reshape(low.permute(found, (0, 1, 4, 2, 5, 3)), low.shape)
    for axis in (0, 1):  # (n, c, rows, columns, h, w) to (n, c, columns, H, w), and to (n, c, H, W)
        found = _summed(low, found, axis - 2, whole[axis], padding[axis], stride[axis])
    return found


def _summed(low: Lowering, x: Node, along: int, whole: int, padding: int, stride: int) -> Node:
    """Return x (n, c, taps, ...) with ``whole`` elements along an axis of places, and without that of the taps.

    Element ``stride * q + r - padding`` is the sum over j of tap ``r + stride * j`` of place ``q - j``: elements of one
    r are a sum of slices, and all r are one tensor.
    """
    shape = list(x.type.static_shape)
    taps, places, along = shape[2], shape[along], along % len(shape)
    count = math.ceil((whole + padding) / stride)  # of elements of one r
    before = (taps - 1) // stride
    shape[along] = before + max(places, count)
    sides = [(0, 0)] * (len(shape) - 1 - along) + [(before, max(0, count - places))]
    around = padded(low, x, [each for side in sides for each in side], shape)
    shape[along] = count
    del shape[2]
    along -= 1

    def of_tap(tap: int, later: int) -> Node:
        return low.reshape(low.slice(low.slice(around, 2, tap, 1), along + 1, before - later, count), shape)

    parts: list[Node] = []
    for first in range(stride):
        terms = [of_tap(tap, j) for j, tap in enumerate(range(first, taps, stride))]
        parts.append(_sum(low, terms) if terms else low.filled(0.0, shape))
    if stride > 1:
        shape[along] = count * stride
        axes = range(len(shape))
        op = JoinOp(
            parts=tuple(part.type for part in parts),
            starts=tuple(tuple(first if axis == along else 0 for axis in axes) for first in range(stride)),
            steps=(tuple(stride if axis == along else 1 for axis in axes),) * stride,
            shape=tuple(shape),
        )
        parts = [low.graph.add(op, parts, name=low.label("phases"))]
    return low.slice(parts[0], along, padding, whole)


def _sum(low: Lowering, terms: Sequence[Node]) -> Node:
    first: Expr = Input(0)
    return low.pointwise(reduce(lambda total, at: total + Input(at), range(1, len(terms)), first), *terms)
