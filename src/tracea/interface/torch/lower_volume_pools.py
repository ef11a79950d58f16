"""Lowerings of pooling of volumes: a window is one along some axes, then one along the others, each an image's.

The largest of largest ones is that of the whole window. A mean of means is the mean, for what it divides by is the
product of what it counts along each axis, padding and what ``ceil`` adds included.

Volumes whose planes are kept channels last are pooled by rows and columns, and by planes: over images whose rows are
the planes, and whose channels are all numbers of a row of pixels. Others, such as an input, are pooled by planes and
rows: over images whose channels are the columns; then by columns, whose places are views of every so many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tracea.core.dtype import DType
from tracea.core.op import AdaptivePool2dOp, JoinOp, PointwiseOp, Pool2dOp, PoolKind, ReduceKind, pool_to_grid
from tracea.core.ops.images import image_type
from tracea.core.passes.fuse_images import TO_IMAGE, TO_PIXELS
from tracea.core.tensor_type import TensorType, static
from tracea.flow.pool_sections import MOST_PLACES, MOST_SECTIONS, pooled_expr, window_runs
from tracea.flow.reduction import wide_type
from tracea.interface.torch.lower_images import mean_of_image, pair
from tracea.interface.torch.lower_pools import refuse_divisor, refuse_gaps
from tracea.interface.torch.lower_volumes import check_volume, triple

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["adaptive_pool3d", "avg_pool3d", "max_pool3d"]

_PLANES, _ROWS, _COLUMNS = range(3)
_SHORT: Final = 16  # columns, below which vectors of them are mostly partial


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of a volume: which axes they change, and the pooling of an image whose rows and columns are two.

    ``over`` takes the image's type and the axes that its rows and columns are; None of one that is not pooled.
    """

    kind: PoolKind
    changes: tuple[bool, bool, bool]
    over: Callable[[TensorType, tuple[int | None, int | None]], Pool2dOp | AdaptivePool2dOp]

    def change(self, *axes: int) -> bool:
        """Tell whether one of these axes is pooled."""
        return any(self.changes[axis] for axis in axes)


def max_pool3d(
    low: Lowering,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0, 0),
    dilation: Sequence[int] = (1, 1, 1),
    ceil_mode: bool = False,
) -> Node:
    """Lower the largest of each window of planes, rows and columns."""
    refuse_gaps(low, dilation)
    return _pool(low, x, PoolKind.MAX, kernel, stride, padding, ceil=ceil_mode)


def avg_pool3d(
    low: Lowering,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Node:
    """Lower the mean of each window of planes, rows and columns."""
    refuse_divisor(low, divisor_override)
    return _pool(low, x, PoolKind.AVERAGE, kernel, stride, padding, ceil=ceil_mode, count_padding=count_include_pad)


def _pool(
    low: Lowering,
    x: Node,
    kind: PoolKind,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    **more: Any,
) -> Node:
    if low.makes_nothing_of(x):
        return low.nothing(x)
    check_volume(low, x)
    size, steps, around = (triple(numbers) for numbers in (kernel, stride or kernel, padding))

    def over(image: TensorType, axes: tuple[int | None, int | None]) -> Pool2dOp:
        window, step, pad = (
            tuple(least if axis is None else numbers[axis] for axis in axes)
            for numbers, least in ((size, 1), (steps, 1), (around, 0))
        )
        return Pool2dOp(kind=kind, x=image, kernel=pair(window), stride=pair(step), padding=pair(pad), **more)

    planes, rows, columns = ((window, step) != (1, 1) for window, step in zip(size, steps, strict=True))
    return _pooled(low, x, _Windows(kind, (planes, rows, columns), over))


def adaptive_pool3d(kind: PoolKind) -> Callable[..., Node]:
    """Return the lowering of a pooling to a grid of planes, rows and columns."""

    def lower(low: Lowering, x: Node, size: Sequence[int]) -> Node:
        del size  # the result's shape says it
        if low.makes_nothing_of(x):
            return low.nothing(x)
        check_volume(low, x)
        grid = tuple(static(dim) for dim in low.shape[2:])
        if 0 in grid or 0 in x.type.static_shape:
            what = f"a grid of {'×'.join(map(str, grid))} windows of {x.type}"
            low.refuse(what, "pool at least one window of one voxel")
        if set(grid) == {1}:
            reduced = ReduceKind.MEAN if kind is PoolKind.AVERAGE else ReduceKind.MAX
            axes = (2, 3, 4)
            return mean_of_image(low, reduced, x, axes, keepdims=True) or low.reduce(reduced, x, axes, keepdims=True)

        def over(image: TensorType, axes: tuple[int | None, int | None]) -> Pool2dOp | AdaptivePool2dOp:
            extents = zip(axes, image.static_shape[2:], strict=True)
            return pool_to_grid(kind, image, pair([dim if axis is None else grid[axis] for axis, dim in extents]))

        planes, rows, columns = (dim != parts for dim, parts in zip(x.type.static_shape[2:], grid, strict=True))
        return _pooled(low, x, _Windows(kind, (planes, rows, columns), over))

    return lower


def _pooled(low: Lowering, x: Node, windows: _Windows) -> Node:
    if not any(windows.changes):
        return x
    is_last = low.images.pixels(x, of_planes=True) is not None or x.type.strides[1] == 1
    return (_by_pixels if is_last or x.type.static_shape[4] < _SHORT else _by_axes)(low, x, windows)


def _between(low: Lowering, windows: _Windows, *, is_last: bool) -> DType:
    """Return the element type of what one of two poolings makes."""
    return low.dtype if is_last or windows.kind is PoolKind.MAX else wide_type(low.dtype)


def _by_pixels(low: Lowering, x: Node, windows: _Windows) -> Node:
    """Return the pooling of a volume whose planes are channels last, and remember it as one."""
    n, _, d, h, width = x.type.static_shape
    deep, p, q = (static(dim) for dim in low.shape[2:])
    steps = [step for step, axes in ((_rows, (_ROWS, _COLUMNS)), (_planes, (_PLANES,))) if windows.change(*axes)]
    if deep * h * width < d * p * q:  # what comes second reads fewer numbers
        steps.reverse()
    images = low.images.planes_of(x)
    for step in steps:
        images = step(low, images, windows, n, _between(low, windows, is_last=step is steps[-1]))
    return low.images.volume(low.images.made(images), n)


def _rows(low: Lowering, images: Node, windows: _Windows, n: int, dtype: DType) -> Node:
    """Return images of planes, each pooled by itself."""
    del n
    op = windows.over(images.type, (_ROWS, _COLUMNS))
    return _added(low, images, op, image_type(op.shape, dtype, channels_last=True), "rows")


def _planes(low: Lowering, images: Node, windows: _Windows, n: int, dtype: DType) -> Node:
    """Return images of planes, each made of planes of one volume: over images whose rows are the planes."""
    count, c, h, width = images.type.static_shape
    deep = static(low.shape[2])
    lines = low.permute(low.reshape(low.permute(images, TO_PIXELS), (n, count // n, h, width * c)), TO_IMAGE)
    op = windows.over(lines.type, (_PLANES, None))
    made = _added(low, lines, op, image_type(op.shape, dtype, channels_last=True), "planes")
    return low.permute(low.reshape(low.permute(made, TO_PIXELS), (n * deep, h, width, c)), TO_IMAGE)


def _by_axes(low: Lowering, x: Node, windows: _Windows) -> Node:
    """Return the pooling of a volume, row-major: by planes and rows, of which a vector is of columns; by columns."""
    n, c, d, h, width = x.type.static_shape
    deep, p = (static(dim) for dim in low.shape[2:4])
    if windows.change(_PLANES, _ROWS):
        lines = low.permute(low.reshape(x, (n * c, d, h, width)), TO_IMAGE)
        op = windows.over(lines.type, (_PLANES, _ROWS))
        dtype = _between(low, windows, is_last=not windows.change(_COLUMNS))
        made = _added(low, lines, op, image_type(op.shape, dtype, channels_last=True), "planes")
        x = low.permute(made, TO_PIXELS)
    if windows.change(_COLUMNS):
        image = low.reshape(x, (n, c * deep, p, width))
        op = windows.over(image.type, (None, _COLUMNS))
        x = _columns(low, image, op) or _added(low, image, op, TensorType(op.shape, low.dtype), "columns")
    return low.reshape(x, low.shape)


def _columns(low: Lowering, image: Node, op: Pool2dOp | AdaptivePool2dOp) -> Node | None:
    """Return what windows of columns make, of views of the image; None where they are many, or are cut in many ways."""
    runs = window_runs(op, 1) if isinstance(op, Pool2dOp) else []
    if not isinstance(op, Pool2dOp) or op.kernel[1] > MOST_PLACES or len(runs) > MOST_SECTIONS:
        return None
    parts: list[Node] = []
    for run in runs:
        views = [low.slice(image, 3, run.first + tap, run.count, op.stride[1]) for tap in range(run.taps)]
        types = tuple(view.type for view in views)
        pooled = PointwiseOp(expr=pooled_expr(op.kind, 1, run.taps, run.counted), inputs=types, out_dtype=low.dtype)
        parts.append(low.add(pooled, views, part="columns"))
    if len(parts) == 1:
        return parts[0]
    join = JoinOp.along([part.type for part in parts], 3)
    return low.graph.add(join, parts, name=low.label("columns"))


def _added(low: Lowering, image: Node, op: Pool2dOp | AdaptivePool2dOp, out: TensorType, part: str) -> Node:
    return low.graph.add(replace(op, out=out), (image,), name=low.label(part))
