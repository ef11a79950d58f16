"""Lowerings of volumes: a convolution is sums of convolutions of images, one for each plane of the filters.

A volume (n, c, d, h, w) is kept as the images of its planes, (n·d, c, h, w) channels last. Each convolution but the
first adds what came before in its epilogue; what follows element by element goes into the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.op import Conv2dOp, Epilogue, JoinOp
from tracea.core.ops.gemm import accumulator_of
from tracea.core.ops.images import image_type
from tracea.flow.planes import Run, forward_runs
from tracea.interface.torch.lower_images import padding_of, unreached

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering

__all__ = ["check_volume", "conv3d", "conv3d_padded", "triple"]


def conv3d(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    dilation: Sequence[int] = (1, 1, 1),
    groups: int = 1,
) -> Node:
    """Lower a convolution of volumes; torch gives one number or three for planes, rows and columns."""
    check_volume(low, x)
    stride, padding, dilation = map(triple, (stride, padding, dilation))
    if 0 in x.type.static_shape or 0 in weight.type.static_shape:
        low.refuse(f"a convolution of nothing, {x.type} by {weight.type}", "leave it out")
    volumes, depth, taps = x.type.static_shape[0], x.type.static_shape[2], weight.type.static_shape[2]
    extras = () if bias is None else (low.reshape(bias, (*bias.type.shape, 1, 1)),)
    n, k, planes, p, q = (int(dim) for dim in low.shape)  # pyright: ignore[reportArgumentType] - static, as x is
    runs = forward_runs(
        depth=depth, taps=taps, stride=stride[0], padding=padding[0], dilation=dilation[0], planes=planes
    )
    numbers = (stride[1:], padding[1:], dilation[1:], groups)
    images = low.images.planes_of(x)
    if taps == 1 and planes == depth and stride[0] == 1 and padding[0] == 0:
        # All planes of all volumes are one batch.
        runs, volumes = (Run(first=0, count=n * planes, taps=((0, 0),)),), 1
    places = [(volume, run) for volume in range(volumes) for run in runs]
    parts: list[Node] = []
    for volume, run in places:
        sums = _Sums(low, weight, extras, numbers, (run.count, k, p, q))
        parts.append(sums.over(images, run, volume * depth, f"planes{volume}_{run.first}"))
    made = parts[0]
    if len(parts) > 1:
        shape = (n * planes, k, p, q)
        op = JoinOp(
            parts=tuple(part.type for part in parts),
            starts=tuple((volume * planes + run.first, 0, 0, 0) for volume, run in places),
            steps=((1, 1, 1, 1),) * len(parts),
            shape=shape,
            out=image_type(shape, low.dtype, channels_last=True),
        )
        made = low.graph.add(op, parts, name=low.label("planes"))
    return low.images.volume(low.images.made(made), n)


def conv3d_padded(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: str = "valid",
    dilation: Sequence[int] = (1, 1, 1),
    groups: int = 1,
) -> Node:
    """Lower a convolution of volumes whose padding is a word."""
    return conv3d(low, x, weight, bias, stride, padding_of(low, weight, padding, triple(dilation)), dilation, groups)


def check_volume(low: Lowering, x: Node) -> None:
    """Refuse what is no batch of volumes of floats of known extents."""
    if x.type.rank != 5 or not x.type.is_static or not x.type.dtype.is_float:
        low.refuse(f"a volume of {x.type}", "give floats (n, c, d, h, w), all extents known: dynamic=None")


def triple(values: Sequence[int]) -> tuple[int, int, int]:
    """Return one number, or three, as (planes, rows, columns)."""
    planes, rows, columns = (int(each) for each in (tuple(values) * 3)[:3])
    return planes, rows, columns


class _Sums:
    """The sums over planes of filters for one run of planes: each is a convolution of images of ``shape``."""

    def __init__(
        self,
        low: Lowering,
        weight: Node,
        extras: tuple[Node, ...],
        numbers: tuple[Sequence[int], Sequence[int], Sequence[int], int],
        shape: tuple[int, int, int, int],
    ) -> None:
        self.low, self.weight, self.extras, self.numbers, self.shape = low, weight, extras, numbers, shape

    def over(self, images: Node, run: Run, start: int, label: str) -> Node:
        """Return a run's planes of the volume whose planes begin at ``start`` of ``images``."""
        if not run.taps:
            return unreached(self.low, self.low.slice(images, 0, 0, 1), self.extras, self.shape)
        total: Node | None = None
        for tap, source in run.taps:
            planes = self.low.slice(images, 0, start + source, run.count, run.advance)
            is_last = tap == run.taps[-1][0]
            total = self._convolution(planes, tap, total, f"{label}_{tap}", is_last=is_last)
        assert total is not None  # there is a tap
        return total

    def _convolution(self, planes: Node, tap: int, total: Node | None, label: str, *, is_last: bool) -> Node:
        low = self.low
        filters, channels, _, r, s = self.weight.type.static_shape
        taps = low.reshape(low.slice(self.weight, 2, tap, 1), (filters, channels, r, s))
        more = [node for node in (total, *(self.extras if is_last else ())) if node is not None]
        expr: Expr = Input(0)
        for index in range(1, len(more) + 1):
            expr = expr + Input(index)
        wide = accumulator_of(DType.F32, planes.type.dtype, taps.type.dtype)
        (down, right), (above, left), (gap_r, gap_s), groups = self.numbers
        op = Conv2dOp(
            x=planes.type,
            w=taps.type,
            stride=(down, right),
            padding=(above, left),
            dilation=(gap_r, gap_s),
            groups=groups,
            epilogue=Epilogue(expr, tuple(node.type for node in more)),
            out=image_type(self.shape, low.dtype if is_last else wide, channels_last=True),
        )
        return low.graph.add(op, (planes, taps, *more), name=low.label(label))
