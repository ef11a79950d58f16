"""Lowerings that give a tensor more elements, or fewer: padding, pixels repeated, pixels between pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.op import JoinOp, PointwiseOp, ViewKind
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import TensorType, static
from tracea.interface.torch.lower_images import as_image

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["pad", "upsample_linear", "upsample_nearest"]

_MOST_BETWEEN: Final = 8  # each of so many pixels between two is a kernel for rows and one for columns


def pad(low: Lowering, x: Node, amounts: Sequence[int], value: float | None = 0.0) -> Node:
    """Lower elements of one value before and behind those of x; less than none cut some of x off.

    ``amounts`` has two numbers for the last axis, then two for the one before it, and so on. What makes x writes it
    into the result, around which each side is a part of its own.
    """
    if not x.type.is_static:
        low.refuse("padding of symbolic extents", "make the axes static: dynamic=None")
    if low.makes_nothing_of(x):
        return low.nothing(x)
    is_image = low.images.pixels(x) is not None
    inner, shape = x, [static(dim) for dim in low.shape]
    before, behind = ([int(each) for each in amounts[side::2]][::-1] for side in (0, 1))
    before, behind = ([0] * (x.type.rank - len(each)) + each for each in (before, behind))
    if is_image and x.type.rank == 3:
        inner = low.images.image_of(x)
        for numbers, one in ((shape, 1), (before, 0), (behind, 0)):
            numbers.insert(2, one)
    for axis, (first, last) in enumerate(zip(before, behind, strict=True)):
        extent = static(inner.type.shape[axis])
        inner = low.slice(inner, axis, max(-first, 0), extent + min(first, 0) + min(last, 0))
    filling = 0.0 if value is None else value
    if inner.type.elements == 0:
        return low.copy(low.filled(filling, low.shape))
    starts = [max(first, 0) for first in before]
    sides = _sides(inner.type.static_shape, starts, shape)
    if not sides:
        return inner if inner.type.shape == low.shape else low.images.sequence(inner)
    parts = [inner, *(low.filled(filling, extents) for _, extents in sides)]
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


def upsample_nearest(low: Lowering, x: Node, *sizes_and_factors: Any) -> Node:
    """Lower an enlargement by whole factors: each pixel several times, in one copy.

    Sizes are whole numbers and factors are floats; torch takes the pixel at i over the factor that it was given.
    """
    if low.makes_nothing_of(x):
        return low.nothing(x)
    given = [number for each in sizes_and_factors for number in (each if isinstance(each, list | tuple) else (each,))]  # pyright: ignore[reportUnknownVariableType]
    image = as_image(low, x)
    shape = low.shape if x.type.rank == 4 else (*low.shape[:2], 1, low.shape[2])
    n, c, h, width = image.type.static_shape
    p, q = (static(dim) for dim in shape[2:])
    if 0 in image.type.static_shape or p % h or q % width:
        steps = f"::{h // max(1, p)}, ::{width // max(1, q)}"
        _refuse(low, (h, width), (p, q), f"take every so many pixels, x[:, :, {steps}]" if p and q else "")
    for factor in cast("list[Any]", given):
        if isinstance(factor, float) and not factor.is_integer():
            low.refuse(f"an enlargement by {factor}", "give size=, or recompute_scale_factor=True")
    down, right = p // h, q // width
    pixels = low.images.pixels(x) or low.permute(image, (0, 2, 3, 1))
    apart = low.reshape(pixels, (n, h, 1, width, 1, c))
    wide = low.graph.add_view(ViewKind.EXPAND, apart, shape=(n, h, down, width, right, c), name=low.label("repeated"))
    return low.images.of_pixels(low.reshape(low.copy(wide), (n, p, q, c)), low.shape)


def _refuse(low: Lowering, old: tuple[int, int], new: tuple[int, int], reduced: str, most: str = "") -> NoReturn:
    """Refuse other sizes than those of whole factors; ``reduced`` is what makes an image smaller by such."""
    sizes = " to ".join("×".join(map(str, size)) for size in (old, new))
    if all(after <= before for before, after in zip(old, new, strict=True)):
        whole = all(after and before % after == 0 for before, after in zip(old, new, strict=True))
        low.refuse(f"a reduction from {sizes}", reduced if whole and reduced else "resize before the model")
    low.refuse(f"an enlargement from {sizes}", f"use a whole factor{most}, or resize before the model")


def upsample_linear(
    low: Lowering, x: Node, size: Sequence[int] | None, align_corners: bool, factors: Sequence[float] | None
) -> Node:
    """Lower an enlargement by whole factors, whose new pixels lie between the old ones: first rows, then columns.

    Pixel i of an axis that grows by f lies at (i + 0.5) / f - 0.5 of the old one, which is the same distance from its
    neighbours for every f-th i; beyond the first and the last centre the value stays (torch, ``align_corners=False``).
    """
    del size  # the result's shape has it
    if low.makes_nothing_of(x):
        return low.nothing(x)
    if align_corners:
        low.refuse("an enlargement that aligns corners", "give align_corners=False, or enlarge before the model")
    image = as_image(low, x)
    shape = low.shape if x.type.rank == 4 else (*low.shape[:2], 1, low.shape[2])
    h, width = image.type.static_shape[2:]
    p, q = (static(dim) for dim in shape[2:])
    by_factor = any(not float(factor).is_integer() for factor in factors or ())
    if 0 in image.type.static_shape or p % h or q % width or by_factor or _most_between(h, p, width, q) > _MOST_BETWEEN:
        halves = (h, width) == (2 * p, 2 * q)
        _refuse(low, (h, width), (p, q), "avg_pool2d(x, 2) is the same" if halves else "", f", {_MOST_BETWEEN} at most")
    pixels = low.images.pixels(x) or low.permute(image, (0, 2, 3, 1))
    between = DType.F32 if low.dtype in (DType.F16, DType.BF16) else low.dtype
    rows = _between(low, pixels, 1, p // h, low.dtype if q == width else between)
    columns = _between(low, rows, 2, q // width, low.dtype)
    return low.images.of_pixels(columns if columns is not pixels else low.copy(pixels), low.shape)


def _most_between(h: int, p: int, width: int, q: int) -> int:
    """Return the larger of two factors; of one row or column there is nothing in between."""
    return max(1 if h == 1 else p // h, 1 if width == 1 else q // width)


def _between(low: Lowering, x: Node, axis: int, factor: int, dtype: DType) -> Node:
    """Return x with an axis ``factor`` times as long."""
    if factor == 1:
        return x
    extent = static(x.type.shape[axis])
    if extent == 1:
        spread = tuple(factor if each == axis else dim for each, dim in enumerate(x.type.shape))
        return _computed(low, Input(0), [low.expand(x, spread)], dtype)
    parts: list[tuple[Node, int, int]] = []  # with its first index and step
    for phase in range(factor):
        offset = (phase + 0.5) / factor - 0.5
        share = 1.0 + offset if offset < 0.0 else offset  # of the later pixel of the two
        first = phase + factor if offset < 0.0 else phase
        earlier, later = (low.slice(x, axis, start, extent - 1) for start in (0, 1))
        value = Input(0) * (1.0 - share) + Input(1) * share
        parts.append((_computed(low, value, [earlier, later], dtype), first, factor))
        edge = 0 if offset < 0.0 else extent - 1
        parts.append((_computed(low, Input(0), [low.slice(x, axis, edge, 1)], dtype), edge * factor + phase, 1))
    rank = x.type.rank
    shape = tuple(extent * factor if each == axis else static(dim) for each, dim in enumerate(x.type.shape))
    op = JoinOp(
        parts=tuple(part.type for part, _, _ in parts),
        starts=tuple(tuple(first if each == axis else 0 for each in range(rank)) for _, first, _ in parts),
        steps=tuple(tuple(step if each == axis else 1 for each in range(rank)) for _, _, step in parts),
        shape=shape,
    )
    return low.graph.add(op, [part for part, _, _ in parts], name=low.label("rows" if axis == 1 else "columns"))


def _computed(low: Lowering, value: Expr, operands: Sequence[Node], dtype: DType) -> Node:
    types: tuple[TensorType, ...] = tuple(operand.type for operand in operands)
    return low.add(PointwiseOp(expr=value, inputs=types, out_dtype=dtype), operands, part="between")
