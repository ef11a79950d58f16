"""Lowerings of pooling and of what puts images together: windows, grids of windows, concatenation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracea.core.dtype import DType
from tracea.core.op import JoinOp, Pool2dOp, PoolKind
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
    "stack",
    "value_alone",
]

_FEW_WINDOWS: Final = 16  # runs of windows, each with a kernel; of more, rows and columns are pooled one by one


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
    _refuse_gaps(low, dilation)
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
    if divisor_override is not None:
        low.refuse("a divisor of its own", "multiply the mean instead")
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
    _refuse_gaps(low, dilation)
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


def _refuse_gaps(low: Lowering, dilation: Sequence[int]) -> None:
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
    *,
    part: str = "",
    dtype: DType | None = None,
    **more: Any,
) -> Node:
    out = image_type(shape, dtype or low.dtype, channels_last=True)
    op = Pool2dOp(kind=kind, x=x.type, kernel=kernel, stride=stride, out=out, **more)
    return low.graph.add(op, (x,), name=low.label(part))


def value_alone(lower: Callable[..., Node]) -> Callable[..., tuple[Node, None]]:
    """Return the lowering of an overload that also returns indices, which nothing may use."""

    def both(low: Lowering, *arguments: Any) -> tuple[Node, None]:
        return lower(low, *arguments), None

    return both


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring windows of one length, of results from ``first`` on: window i begins at ``start + i·step``."""

    first: int
    count: int
    start: int
    length: int
    step: int


def _runs(size: int, parts: int) -> tuple[_Run, ...]:
    """Return the windows of an adaptive pooling: window i is from ⌊i·size/parts⌋ to ⌈(i + 1)·size/parts⌉."""
    windows = [(i * size // parts, -(-(i + 1) * size // parts)) for i in range(parts)]
    runs: list[_Run] = []
    index = 0
    while index < parts:
        start, end = windows[index]
        count, step = 1, 0
        while index + count < parts:
            begin, until = windows[index + count]
            gap = begin - windows[index + count - 1][0]
            if until - begin != end - start or gap == 0 or (step and gap != step):
                break
            step = gap
            count += 1
        runs.append(_Run(index, count, start, end - start, max(step, 1)))
        index += count
    return tuple(runs)


def adaptive_pool(kind: PoolKind) -> Callable[..., Node]:
    """Return the lowering of a pooling to a grid: one for all windows of one size and distance, joined."""

    def lower(low: Lowering, x: Node, size: Sequence[int]) -> Node:
        del size  # the result's shape says it
        if low.makes_nothing_of(x):
            return low.nothing(x)
        image = as_image(low, x)
        shape = low.shape if x.type.rank == 4 else (*low.shape[:2], 1, low.shape[2])
        p, q = (static(dim) for dim in shape[2:])
        if 0 in (p, q) or 0 in image.type.static_shape:
            low.refuse(f"a grid of {p}×{q} windows of {image.type}", "pool at least one window of one pixel")
        rows, columns = _runs(_size(image, 2), p), _runs(_size(image, 3), q)
        if len(rows) * len(columns) <= _FEW_WINDOWS:
            made = _windows(low, image, kind, rows, columns, low.dtype)
        else:  # a mean of means of equal counts, a maximum of maxima: kernels for rows and columns, not for each pair
            between = DType.F32 if low.dtype in (DType.F16, DType.BF16) else low.dtype
            pixel = (_Run(0, _size(image, 3), 0, 1, 1),)
            tall = _windows(low, image, kind, rows, pixel, between)
            made = _windows(low, tall, kind, (_Run(0, p, 0, 1, 1),), columns, low.dtype)
        low.images.made(made)
        return made if x.type.rank == 4 else low.images.sequence(made)

    return lower


def _windows(
    low: Lowering, x: Node, kind: PoolKind, rows: Sequence[_Run], columns: Sequence[_Run], dtype: DType
) -> Node:
    """Return the grid of all windows of some rows and columns, each run of windows a part of it."""
    runs = [(row, column) for row in rows for column in columns]
    parts = [_grid(low, x, kind, row, column, dtype, alone=len(runs) == 1) for row, column in runs]
    if len(parts) == 1:
        return parts[0]
    shape = (*x.type.static_shape[:2], *(last.first + last.count for last in (rows[-1], columns[-1])))
    op = JoinOp(
        parts=tuple(part.type for part in parts),
        starts=tuple((0, 0, row.first, column.first) for row, column in runs),
        steps=((1, 1, 1, 1),) * len(parts),
        shape=shape,
        out=image_type(shape, dtype, channels_last=True),
    )
    return low.graph.add(op, parts, name=low.label())


def _size(x: Node, axis: int) -> int:
    return static(x.type.shape[axis])


def _grid(low: Lowering, x: Node, kind: PoolKind, row: _Run, column: _Run, dtype: DType, *, alone: bool) -> Node:
    part = low.slice(x, 2, row.start, (row.count - 1) * row.step + row.length)
    part = low.slice(part, 3, column.start, (column.count - 1) * column.step + column.length)
    name = "" if alone else f"windows{row.first}_{column.first}"
    shape = (*x.type.shape[:2], row.count, column.count)
    return _window(low, part, kind, shape, (row.length, column.length), (row.step, column.step), part=name, dtype=dtype)


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
    shape = (*low.shape[:axis], 1, *low.shape[axis + 1 :])
    return concatenate(low, [low.reshape(tensor, shape) for tensor in tensors], axis)
