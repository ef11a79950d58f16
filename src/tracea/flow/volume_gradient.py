"""The gradient of a convolution of volumes for its filters: sums, for each of their planes, of gradients of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tracea.core.dtype import DType
from tracea.core.op import Epilogue
from tracea.core.ops.gemm import accumulator_of
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.plane_parts import (
    Triple,
    filters_of,
    in_turns,
    moved,
    planes_of,
    swapped,
    swapped_numbers,
    zeros_of,
)
from tracea.flow.planes import Batch, batches, forward_runs
from tracea.flow.sections import Section

__all__ = ["VolumeFilterGradient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFilterGradient:
    """The gradient for the filters of a convolution of volumes, of inputs 0, the volume, and 1, the result's gradient.

    Shapes: x (n, c, d, h, w); grad (n, k, e, p, q); y (k, c/groups, t, r, s). The numbers are the convolution's.
    """

    x: TensorType
    grad: TensorType
    y: TensorType
    stride: Triple
    padding: Triple
    dilation: Triple
    groups: int

    def by_fewest_sums(self) -> VolumeFilterGradient:
        """Return the same with planes and rows in each other's place, where that leaves less to do."""
        if self.y.static_shape[2] <= self.y.static_shape[3]:
            return self
        x, grad, y = (swapped(type_) for type_ in (self.x, self.grad, self.y))
        numbers = {name: swapped_numbers(getattr(self, name)) for name in ("stride", "padding", "dilation")}
        return replace(self, x=x, grad=grad, y=y, **numbers)

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The sums of one plane of the filters: none where one batch has all that is summed, else one or two."""
        sums = max((len(self._summands(tap)) for tap in range(self.y.static_shape[2])), default=1) - 1
        return (self._sum_type,) * min(2, max(0, sums))

    def sections(self) -> Iterator[Section]:
        """Yield the convolutions that compute it: a sum over images, or planes, for each plane of the filters."""
        if self.y.elements == 0:
            return
        for tap in range(self.y.static_shape[2]):
            y, offset = filters_of(self.y, tap)
            summands = self._summands(tap)
            if not summands:
                yield zeros_of(self.x, y, offset, Epilogue.identity(), ())
            for number, batch in enumerate(summands):
                is_last = number == len(summands) - 1
                ((_, source),) = batch.run.taps
                x, x_offset = planes_of(self.x, batch, source, batch.run.advance)
                grad, grad_offset = planes_of(self.grad, batch, batch.run.first, 1)
                part = FilterGradient(
                    x=x,
                    grad=grad,
                    y=y if is_last else self._sum_type,
                    total=self._sum_type if number else None,
                    stride=self.stride[1:],
                    padding=self.padding[1:],
                    dilation=self.dilation[1:],
                    groups=self.groups,
                )
                placed = moved(part.sections(), {0: x_offset, 1: grad_offset}, offset if is_last else 0)
                yield from in_turns(placed, number, is_last=is_last)

    def _summands(self, tap: int) -> tuple[Batch, ...]:
        """Return the batches of planes, of one image or of all, whose gradients one plane of the filters sums."""
        runs = forward_runs(
            depth=self.x.static_shape[2],
            taps=1,
            stride=self.stride[0],
            padding=self.padding[0] - tap * self.dilation[0],
            dilation=1,
            planes=self.grad.static_shape[2],
        )
        images = self.x.static_shape[0]
        return tuple(batch for run in runs if run.taps for batch in batches(run, images, max(run.count, images)))

    @property
    def _sum_type(self) -> TensorType:
        k, c, _, r, s = self.y.static_shape
        wide = accumulator_of(DType.F32, self.x.dtype, self.grad.dtype)
        if self.y.strides[1] < self.y.strides[4]:
            return TensorType((k, c, r, s), wide, StridedLayout((r * s * c, 1, s * c, c)))
        return TensorType((k, c, r, s), wide)
