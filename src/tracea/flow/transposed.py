"""Transposed convolutions as convolutions: no zeros between pixels, and filters that are turned where they are packed.

With stride s, the result's rows fall into s phases. A phase meets every s-th tap only, so it is a convolution of stride
1 of the image with those taps, written to every s-th row. Worked example, stride 2, taps (a, b, c), no padding: the
result of (x0, x1, x2) is ``a·x0, b·x0, c·x0 + a·x1, b·x1, c·x1 + a·x2, b·x2, c·x2``; its even rows are the image under
(c, a), its odd rows the image times b. This is also the gradient of a convolution with respect to its image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np

from tracea.core.expr import Input
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp
from tracea.flow.sections import Part, Section, Temporary, part_type

__all__ = ["Phase", "Transposed", "plane_steps"]

_MOST_PHASES: Final = 1024  # each is a kernel to compile, or a part to fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Every ``stride``-th row of a result, or column, from ``first`` on, as a convolution of stride 1.

    Of the filters it has ``taps``, ``tap_step`` apart from ``tap`` on, turned, ``dilation`` pixels from each other; its
    first window begins ``before`` rows above row ``start`` of the image. No ``taps``: nothing reaches these rows.
    """

    first: int
    count: int
    tap: int = 0
    tap_step: int = 1
    taps: int = 0
    dilation: int = 1
    start: int = 0
    before: int = 0

    @classmethod
    def all(cls, *, image: int, result: int, taps: int, stride: int, padding: int, dilation: int) -> Iterator[Phase]:
        """Yield the phases of one axis: together they hold each of ``result`` rows once."""
        common = gcd(stride, dilation)
        for first in range(min(stride, result)):
            count = -(-(result - first) // stride)
            shift = first + padding
            met = [tap for tap in range(taps) if (shift - tap * dilation) % stride == 0]
            gap = dilation // common
            # Row i of the phase meets image row i + latest with its first tap, gap rows less with each further one.
            latest = (shift - met[0] * dilation) // stride if met else 0
            begin = latest - (len(met) - 1) * gap
            if not met or begin >= image:
                yield cls(first=first, count=count)
                continue
            yield cls(
                first=first,
                count=count,
                tap=met[0],
                tap_step=stride // common,
                taps=len(met),
                dilation=gap,
                start=max(0, begin),
                before=max(0, -begin),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transposed:
    """A transposed convolution of inputs 0, the image, 1, the filters, and 2, a bias where it has one.

    ``total`` is the type of temporary 0, a sum of y's shape that is added before bias and activation.

    Shapes: x (n, c, h, w); w (c, k/groups, r, s); bias (k,); y (n, k, p, q), any p and q: what nothing reaches is the
    epilogue of zero.
    """

    x: TensorType
    w: TensorType
    y: TensorType
    bias: TensorType | None = None
    total: TensorType | None = None
    activation: str | None = None
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def __post_init__(self) -> None:
        # One pixel has no neighbour that a stride leads to, and so one phase.
        stride = tuple(1 if count == 1 else step for count, step in zip(self.x.shape[2:], self.stride, strict=True))
        object.__setattr__(self, "stride", stride)

    def sections(self) -> tuple[Section, ...]:
        """Return the convolutions that compute it, one for each phase of rows and of columns.

        Raises: InvalidOp: a stride has so many phases that their kernels would take minutes to compile.
        """
        if self.y.elements == 0:
            return ()
        if self.stride[0] * self.stride[1] > _MOST_PHASES:
            is_along = 1 in self.stride  # one axis alone has phases, as a signal's
            raise InvalidOp(
                field="stride",
                got=max(self.stride) if is_along else self.stride,
                expected=f"at most {_MOST_PHASES}: each phase is a kernel"
                if is_along
                else f"a product of at most {_MOST_PHASES}: each phase of rows and columns is a kernel",
                remedy="use smaller strides, or torch for this layer",
            )
        rows, columns = (
            tuple(
                Phase.all(
                    image=self.x.static_shape[2 + axis],
                    result=self.y.static_shape[2 + axis],
                    taps=self.w.static_shape[2 + axis],
                    stride=self.stride[axis],
                    padding=self.padding[axis],
                    dilation=self.dilation[axis],
                )
            )
            for axis in (0, 1)
        )
        return tuple(section for row in rows for column in columns for section in self._phase(row, column))

    def _phase(self, row: Phase, column: Phase) -> Iterator[Section]:
        if not row.taps or not column.taps:
            yield self._unreached(row, column)
            return
        channels, filters = self.x.static_shape[1] // self.groups, self.y.static_shape[1] // self.groups
        w_channel, w_filter = self.w.strides[:2]
        # A group's filters follow the next group's at one distance, or the groups are convolutions of their own.
        together = self.groups == 1 or filters == 1 or channels * w_channel == filters * w_filter
        if together:
            k_stride = channels * w_channel if filters == 1 and self.groups > 1 else w_filter
            yield self._section(row, column, group=0, groups=self.groups, k_stride=k_stride)
            return
        for group in range(self.groups):
            yield self._section(row, column, group=group, groups=1, k_stride=w_filter)

    def _section(self, row: Phase, column: Phase, *, group: int, groups: int, k_stride: int) -> Section:
        """Return the convolution of ``groups`` groups from ``group`` on."""
        n, _, h, width = self.x.static_shape
        channels = self.x.static_shape[1] // self.groups
        filters = self.y.static_shape[1] // self.groups * groups
        _, x_channel, x_row, x_column = self.x.strides
        w_channel, _, w_row, w_column = self.w.strides
        x = part_type(self.x, (n, channels * groups, h - row.start, width - column.start), self.x.strides)
        w = part_type(
            self.w,
            (filters, channels, row.taps, column.taps),
            (k_stride, w_channel, row.tap_step * w_row, column.tap_step * w_column),
        )
        y, y_offset, epilogue, bias = self._result(row, column, first=group * filters, filters=filters)
        op = Conv2dOp(
            x=x,
            w=w,
            padding=(row.before, column.before),
            dilation=(row.dilation, column.dilation),
            groups=groups,
            size=(row.count, column.count),
            turned=row.taps * column.taps > 1,
            epilogue=epilogue,
            out=y,
        )
        x_offset = group * channels * x_channel + row.start * x_row + column.start * x_column
        w_offset = group * channels * w_channel + row.tap * w_row + column.tap * w_column
        return Section(op=op, operands=(Part(0, x_offset), Part(1, w_offset), *bias), offset=y_offset)

    def _unreached(self, row: Phase, column: Phase) -> Section:
        """Return rows and columns that no tap reaches: a filter of zero over windows that lie above the image."""
        filters = self.y.static_shape[1]
        x = part_type(self.x, (self.x.static_shape[0], 1, 1, 1), self.x.strides)
        w = TensorType((filters, 1, 1, 1), self.w.dtype)
        y, y_offset, epilogue, bias = self._result(row, column, first=0, filters=filters)
        op = Conv2dOp(x=x, w=w, padding=(row.count, 0), size=(row.count, column.count), epilogue=epilogue, out=y)
        zeros = np.zeros(w.static_shape, w.dtype.numpy)
        return Section(op=op, operands=(Part(0), zeros, *bias), offset=y_offset)

    def _result(
        self, row: Phase, column: Phase, *, first: int, filters: int
    ) -> tuple[TensorType, int, Epilogue, tuple[Part | Temporary, ...]]:
        """Return the type of a phase of some filters, where it begins, its epilogue and that one's operands."""
        shape = (self.y.static_shape[0], filters, row.count, column.count)

        def phase_of(whole: TensorType) -> tuple[TensorType, int]:
            batch, channel, y_row, y_column = whole.strides
            strides = (batch, channel, self.stride[0] * y_row, self.stride[1] * y_column)
            return part_type(whole, shape, strides), first * channel + row.first * y_row + column.first * y_column

        y, offset = phase_of(self.y)
        operands: list[Part | Temporary] = []
        epilogue = Epilogue.identity()
        if self.total is not None:
            total, start = phase_of(self.total)
            epilogue = Epilogue(Input(0) + Input(1), (total,))
            operands.append(Temporary(0, start))
        bias = None
        if self.bias is not None:
            (step,) = self.bias.strides
            bias = part_type(self.bias, (filters, 1, 1), (step, 0, 0))
            operands.append(Part(2, first * step))
        rest = Epilogue.of(bias=bias, activation=self.activation)
        return y, offset, epilogue.then(rest.expr, rest.operands), tuple(operands)


def plane_steps(w: TensorType) -> tuple[int, int, int] | None:
    """Return where a filter's channels, rows and columns lie as one axis: its strides; None where they are none."""
    _, c, r, s = w.static_shape
    for steps in ((r * s, s, 1), (1, s * c, c)):
        given = zip((c, r, s), w.strides[1:], steps, strict=True)
        if all(extent == 1 or stride == step for extent, stride, step in given):
            return steps
    return None
