"""The gradient of a convolution with respect to its filters, as a convolution that sums over images and pixels.

``gradient[k, c, r, s] = sum over n, p, q of grad[n, k, p, q] · x[n, c, p·stride + r·dilation - padding, …]``: channels
of x are the images, images its channels, the results' gradients the filters; stride and dilation change places. All are
views. Where the channels of x lie next to each other, columns and channels are one axis, so that a row of the result is
s·c pixels long instead of s: long enough for the widest tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tracea.core.expr import Input
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.tensor_type import TensorType
from tracea.flow.sections import Part, Section, Temporary, part_type

__all__ = ["FilterGradient"]

_MOST_TAPS: Final = 256
_FEWEST_PIXELS: Final = 8  # of a row of results: a tile's
_SHORTEST_SUM: Final = 8  # columns of pixels that are channels: a tile's loop


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterGradient:
    """The gradient for the filters of a convolution, of inputs 0, its image, and 1, the gradient of its result.

    ``total`` is the type of temporary 0, a sum that the gradient is added to.

    Shapes: x (n, c, h, w); grad (n, k, p, q); y and total (k, c/groups, r, s). ``stride``, ``padding``, ``dilation``
    and ``groups`` are those of the convolution.
    """

    x: TensorType
    grad: TensorType
    y: TensorType
    total: TensorType | None = None
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def sections(self) -> tuple[Section, ...]:
        """Return the convolutions that compute it: one, or one for each group where images would mix with groups."""
        if self.y.elements == 0:
            return ()
        columns = self._by_columns()
        if columns:
            return columns
        merged = self._merged() if self.groups == 1 else None
        if merged is not None:
            return (merged,)
        if self.groups == 1 or self.x.static_shape[0] == 1:
            return (self._section(0, self.groups),)
        return tuple(self._section(group, 1) for group in range(self.groups))

    def _by_columns(self) -> tuple[Section, ...]:
        """Return a convolution for each group and column of the filters, over the pixels' columns as channels.

        Its result is r rows of c pixels, its taps are p rows and the images; none where that is not a view, or sums are
        short.
        """
        n, _, h, width = self.x.static_shape
        filters, channels, r, s = self.y.static_shape
        _, _, p, q = self.grad.static_shape
        x_image, x_channel, x_row, x_column = self.x.strides
        g_image, g_filter, g_row, g_column = self.grad.strides
        filters //= self.groups
        # All images' channels are one axis of pixels; with groups, other groups' channels would lie in between.
        is_view = n == 1 or (self.groups == 1 and x_image == channels * x_channel)
        # Measured: strided columns are slow to copy from row-major images; channels last with stride 1 merge better.
        is_faster = (x_channel == 1) == (self.stride[1] > 1)
        if not is_view or not is_faster or n > _MOST_TAPS or channels < _FEWEST_PIXELS:
            return ()
        made: list[Section] = []
        for column in range(s):
            shift = column * self.dilation[1] - self.padding[1]
            first = max(0, -(shift // self.stride[1]))
            last = min(q - 1, (width - 1 - shift) // self.stride[1])
            if last - first + 1 < _SHORTEST_SUM:
                return ()
            depth = last - first + 1
            op = Conv2dOp(
                x=part_type(self.x, (1, depth, h, n * channels), (0, self.stride[1] * x_column, x_row, x_channel)),
                w=part_type(self.grad, (filters, depth, p, n), (g_filter, g_column, g_row, g_image)),
                stride=(self.dilation[0], 1),
                padding=(self.padding[0], 0),
                dilation=(self.stride[0], channels),
                size=(r, channels),
            )
            start = (first * self.stride[1] + shift) * x_column
            for group in range(self.groups):
                parts = (
                    Part(0, start + group * channels * x_channel),
                    Part(1, first * g_column + group * filters * g_filter),
                )
                place = _Place((1, filters, r, channels), (None, 0, 2, 1), (group * filters, 0, 0, column))
                made.append(self._placed(op, parts, place))
        return tuple(made)

    def _section(self, group: int, groups: int) -> Section:
        """Return the convolution of ``groups`` groups from ``group`` on: each image of it is a channel of a group."""
        n, _, h, width = self.x.static_shape
        filters, channels, r, s = self.y.static_shape
        _, _, p, q = self.grad.static_shape
        filters = filters // self.groups * groups
        x_image, x_channel, x_row, x_column = self.x.strides
        g_image, g_filter, g_row, g_column = self.grad.strides
        between = x_image if groups == 1 else channels * x_channel
        op = Conv2dOp(
            x=part_type(self.x, (channels, n * groups, h, width), (x_channel, between, x_row, x_column)),
            w=part_type(self.grad, (filters, n, p, q), (g_filter, g_image, g_row, g_column)),
            stride=self.dilation,
            padding=self.padding,
            dilation=self.stride,
            groups=groups,
            size=(r, s),
        )
        parts = (Part(0, group * channels * x_channel), Part(1, group * filters * g_filter))
        return self._placed(op, parts, _Place((channels, filters, r, s), (1, 0, 2, 3), (group * filters, 0, 0, 0)))

    def _merged(self) -> Section | None:
        """Return the convolution over columns and channels as one axis; None where they are none."""
        n, channels, h, width = self.x.static_shape
        filters, _, r, s = self.y.static_shape
        _, _, p, q = self.grad.static_shape
        x_step = _one_axis((width, self.x.strides[3]), (channels, self.x.strides[1]))
        results = [self.y] if self.total is None else [self.y, self.total]
        steps = [_one_axis((s, whole.strides[3]), (channels, whole.strides[1])) for whole in results]
        if channels == 1 or x_step is None or None in steps or (self.dilation[1] != 1 and s != 1):
            return None
        g_image, g_filter, g_row, g_column = self.grad.strides
        op = Conv2dOp(
            x=part_type(self.x, (1, n, h, width * channels), (0, self.x.strides[0], self.x.strides[2], x_step)),
            w=part_type(self.grad, (filters, n, p, q), (g_filter, g_image, g_row, g_column)),
            stride=(self.dilation[0], 1),
            padding=(self.padding[0], self.padding[1] * channels),
            dilation=(self.stride[0], self.stride[1] * channels),
            size=(r, s * channels),
        )
        return self._placed(op, (Part(0), Part(1)), _Place((1, filters, r, s * channels), (None, 0, 2, 1)))

    def _placed(self, op: Conv2dOp, operands: tuple[Part, ...], place: _Place) -> Section:
        """Return the section of a convolution that is written to a place of the gradient, and added to the total's."""
        out, offset = place.of(self.y)
        if self.total is None:
            return Section(op=replace(op, out=out), operands=operands, offset=offset)
        total, start = place.of(self.total)
        summed = replace(op, out=out, epilogue=Epilogue(Input(0) + Input(1), (total,)))
        return Section(op=summed, operands=(*operands, Temporary(0, start)), offset=offset)


@dataclass(frozen=True, slots=True)
class _Place:
    """A part of the gradient: its shape, the gradient's axis that each of its axes follows, and where it begins."""

    shape: tuple[int, int, int, int]
    axes: tuple[int | None, int | None, int | None, int | None]
    start: tuple[int, int, int, int] = (0, 0, 0, 0)

    def of(self, whole: TensorType) -> tuple[TensorType, int]:
        """Return the part's type within a tensor of the gradient's axes, and the element that it begins with."""
        strides = tuple(0 if axis is None else whole.strides[axis] for axis in self.axes)
        first = sum(start * stride for start, stride in zip(self.start, whole.strides, strict=True))
        return part_type(whole, self.shape, strides), first


def _one_axis(outer: tuple[int, int], inner: tuple[int, int]) -> int | None:
    """Return the stride of two axes, (extent, stride) each, as one; None where they are not one."""
    if inner[0] == 1 or outer[0] == 1:
        return outer[1] if inner[0] == 1 else inner[1]
    return inner[1] if outer[1] == inner[0] * inner[1] else None
