"""Lowerings of pooling and of what puts images together: windows, grids of windows, concatenation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracea.core.op import JoinOp, Pool2dOp, PoolKind, pool_to_grid
from tracea.core.ops.images import image_type
from tracea.core.tensor_type import static
from tracea.interface.torch.lower_images import as_image, check_image, pair

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = [
    "adaptive_pool",
    "avg_pool1d",
    "avg_pool2d",
    "concatenate",
    "max_pool1d",
    "max_pool2d",
    "refuse_divisor",
    "refuse_gaps",
    "stack",
    "value_alone",
]


def max_pool2d(
    low: Lowering,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> Node:
    """Lower the largest of each window."""
    refuse_gaps(low, dilation)
    return _pool(low, x, PoolKind.MAX, kernel, stride, padding, ceil=ceil_mode)


def avg_pool2d(
    low: Lowering,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Node:
    """Lower the mean of each window."""
    refuse_divisor(low, divisor_override)
    return _pool(low, x, PoolKind.AVERAGE, kernel, stride, padding, ceil=ceil_mode, count_padding=count_include_pad)


def max_pool1d(
    low: Lowering,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Node:
    """Lower the largest of each window of a sequence."""
    refuse_gaps(low, dilation)
    return _pool_sequence(low, x, PoolKind.MAX, kernel, stride, padding, ceil=ceil_mode)


def avg_pool1d(
    low: Lowering,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Node:
    """Lower the mean of each window of a sequence."""
    more = {"ceil": ceil_mode, "count_padding": count_include_pad}
    return _pool_sequence(low, x, PoolKind.AVERAGE, kernel, stride, padding, **more)


def refuse_divisor(low: Lowering, divisor: int | None) -> None:
    """Refuse a mean that is a quotient by something else than the elements of a window."""
    if divisor is not None:
        low.refuse("a divisor of its own", "multiply the mean instead")


def refuse_gaps(low: Lowering, dilation: Sequence[int]) -> None:
    """Refuse windows of elements that are no neighbours."""
    if set(dilation) - {1}:
        low.refuse(f"a window with gaps, dilation {list(dilation)}", "pool neighbours only")


def _pool_sequence(
    low: Lowering,
    x: Node,
    kind: PoolKind,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    **more: Any,
) -> Node:
    steps = (1, int((stride or kernel)[0]))
    image, (n, c, length) = as_image(low, x), low.shape
    made = _window(
        low, image, kind, (n, c, 1, length), (1, int(kernel[0])), steps, padding=(0, int(padding[0])), **more
    )
    return low.images.sequence(low.images.made(made))


def _pool(
    low: Lowering,
    x: Node,
    kind: PoolKind,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    **more: Any,
) -> Node:
    check_image(low, x)
    steps = pair(stride or kernel)
    return low.images.made(_window(low, x, kind, low.shape, pair(kernel), steps, padding=pair(padding), **more))


def _window(
    low: Lowering,
    x: Node,
    kind: PoolKind,
    shape: Sequence[Any],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    **more: Any,
) -> Node:
    out = image_type(shape, low.dtype, channels_last=True)
    op = Pool2dOp(kind=kind, x=x.type, kernel=kernel, stride=stride, out=out, **more)
    return low.graph.add(op, (x,), name=low.label())


def value_alone(lower: Callable[..., Node]) -> Callable[..., tuple[Node, None]]:
    """Return the lowering of an overload that also returns indices, which nothing may use."""

    def both(low: Lowering, *arguments: Any) -> tuple[Node, None]:
        return lower(low, *arguments), None

    return both


def adaptive_pool(kind: PoolKind) -> Callable[..., Node]:
    """Return the lowering of a pooling to a grid."""

    def lower(low: Lowering, x: Node, size: Sequence[int]) -> Node:
        del size  # the result's shape says it
        if low.makes_nothing_of(x):
            return low.nothing(x)
        image = as_image(low, x)
        shape = low.shape if x.type.rank == 4 else (*low.shape[:2], 1, low.shape[2])
        p, q = (static(dim) for dim in shape[2:])
        if 0 in (p, q) or 0 in image.type.static_shape:
            low.refuse(f"a grid of {p}×{q} windows of {image.type}", "pool at least one window of one pixel")
        op = pool_to_grid(kind, image.type, (p, q), image_type(shape, low.dtype, channels_last=True))
        made = low.images.made(low.graph.add(op, (image,), name=low.label()))
        return made if x.type.rank == 4 else low.images.sequence(made)

    return lower


def concatenate(low: Lowering, tensors: Sequence[Node], axis: int = 0) -> Node:
    """Lower a concatenation: what makes a part writes it where it belongs."""
    if not all(tensor.type.is_static for tensor in tensors):
        low.refuse("a concatenation of symbolic extents", "make the axes of its tensors static: dynamic=None")
    # torch leaves out vectors of nothing, whatever the other tensors' rank is.
    kept = [low.cast(tensor, low.dtype) for tensor in tensors if tensor.type.elements]
    if not kept:
        return low.nothing(tensors[0])
    if len(kept) == 1:
        return kept[0]
    if any(low.images.pixels(tensor) is not None for tensor in kept):
        axis = axis % len(low.shape)
        if len(low.shape) == 3:
            images = [low.images.image_of(tensor) for tensor in kept]
            n, c, length = low.shape
            return low.images.sequence(_joined(low, images, axis + (axis == 2), (n, c, 1, length)))
        return _joined(low, kept, axis, low.shape)
    op = JoinOp.along([tensor.type for tensor in kept], axis % len(low.shape))
    return low.graph.add(op, kept, name=low.label())


def _joined(low: Lowering, images: Sequence[Node], axis: int, shape: Sequence[Any]) -> Node:
    op = JoinOp.along([image.type for image in images], axis, out=image_type(shape, low.dtype, channels_last=True))
    return low.images.made(low.graph.add(op, images, name=low.label()))


def stack(low: Lowering, tensors: Sequence[Node], axis: int = 0) -> Node:
    """Lower a concatenation along a new axis."""
    axis %= len(low.shape)
    if not low.shape or not all(tensor.type.is_static for tensor in tensors):
        low.refuse("a stack of symbolic extents", "make the axes of its tensors static: dynamic=None")
    if axis == len(low.shape) - 1 > 0 and len(tensors) > 1 and all(tensor.type.elements for tensor in tensors):
        return _in_turns(low, [low.cast(tensor, low.dtype) for tensor in tensors])
    shape = (*low.shape[:axis], 1, *low.shape[axis + 1 :])
    return concatenate(low, [low.reshape(tensor, shape) for tensor in tensors], axis)


def _in_turns(low: Lowering, tensors: Sequence[Node]) -> Node:
    """Lower a stack along a new last axis: the elements of the tensors take turns along what was the last one."""
    count, shape = len(tensors), tuple(map(static, low.shape[:-1]))
    before = (0,) * (len(shape) - 1)
    op = JoinOp(
        parts=tuple(tensor.type for tensor in tensors),
        starts=tuple((*before, first) for first in range(count)),
        steps=((*(1 for _ in before), count),) * count,
        shape=(*shape[:-1], count * shape[-1]),
    )
    return low.reshape(low.graph.add(op, tensors, name=low.label("turns")), low.shape)
