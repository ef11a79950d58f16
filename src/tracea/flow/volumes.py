"""Convolutions of volumes as sums of convolutions of images, on views: planes of the volume are the images.

A plane of the result is the sum, over the planes of the filters, of convolutions of one plane of the volume each. Every
convolution but the first adds what came before, as the epilogue of its kernel, in the accumulator's type; the last one
has bias, activation and residual as well, and writes the result. A batch of planes goes through all of its sums before
the next one begins, so that what lies beside the result is two sums of one batch.

Planes and rows may change places: the axis along which the filters are shorter is the one that is summed over, so that
filters of (3, 1, 1) or (1, 3, 3) need no sums at all. Where filters have one tap along both, a volume whose planes
follow each other is one image of all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.ops.gemm import accumulator_of
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.plane_parts import (
    Triple,
    filters_of,
    in_one_plane,
    in_turns,
    moved,
    planes_of,
    swapped,
    swapped_numbers,
    zeros_of,
)
from tracea.flow.planes import Batch, Run, batches, forward_runs, transposed_runs
from tracea.flow.sections import Part, Section, Temporary, part_type
from tracea.flow.transposed import Transposed
from tracea.kernels.conv.operands import H

__all__ = ["VolumeConvolution", "VolumeTransposed"]

# Sums of one batch of planes, unless one plane has more: a few times a second-level cache.
_SUM_BYTES: Final = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Volumes(ABC):
    """What a convolution of volumes and its transpose share: inputs 0, the volume, 1, the filters, 2, a bias."""

    x: TensorType
    w: TensorType
    y: TensorType
    bias: TensorType | None = None
    activation: str | None = None
    stride: Triple
    padding: Triple
    dilation: Triple
    groups: int

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The sums of the largest batch: none, one or two."""
        summed = [batch for batch in self._batches() if len(batch.run.taps) > 1]
        if not summed:
            return ()
        sums = min(2, max(len(batch.run.taps) for batch in summed) - 1)
        return (self._sum_type(max(batch.count for batch in summed)),) * sums

    def sections(self) -> Iterator[Section]:
        """Yield the convolutions that compute it, in their order."""
        for batch in self._batches():
            taps = batch.run.taps
            if not taps:
                yield self._unreached(batch)
            for number, (tap, source) in enumerate(taps):
                is_last = number == len(taps) - 1
                total = self._sum_type(batch.count) if number else None
                made = self._finished(batch, tap, source, total) if is_last else self._summed(batch, tap, source, total)
                yield from in_turns(made, number, is_last=is_last)

    @property
    @abstractmethod
    def _runs(self) -> tuple[Run, ...]:
        """Which planes of the filters and of the volume make which planes of the result."""

    @abstractmethod
    def _summed(self, batch: Batch, tap: int, source: int, total: TensorType | None) -> Iterable[Section]:
        """Return the convolution of a batch by one plane of the filters, plus the sum so far, as the next sum."""

    @abstractmethod
    def _finished(self, batch: Batch, tap: int, source: int, total: TensorType | None) -> Iterable[Section]:
        """Return the same as a part of the result."""

    @abstractmethod
    def _epilogue(self, batch: Batch) -> tuple[Epilogue, tuple[Part, ...]]:
        """Return what follows a batch's sums, and the parts that it takes."""

    def _batches(self) -> Iterator[Batch]:
        if self.y.elements == 0:
            return
        images = self.y.static_shape[0]
        most = max(1, _SUM_BYTES // self._sum_type(1).nbytes)
        for run in self._runs:
            yield from batches(run, images, most if len(run.taps) > 1 else max(run.count, images))

    def _sum_type(self, count: int) -> TensorType:
        """Return the type of the sums of ``count`` planes, in the order of the result's axes."""
        _, k, _, p, q = self.y.static_shape
        wide = accumulator_of(DType.F32, self.x.dtype, self.w.dtype)
        if self.y.strides[1] < self.y.strides[4]:
            return TensorType((count, k, p, q), wide, StridedLayout((p * q * k, 1, q * k, k)))
        return TensorType((count, k, p, q), wide)

    def _result(self, batch: Batch) -> tuple[TensorType, int]:
        return planes_of(self.y, batch, batch.run.first, batch.run.step)

    def _bias(self) -> TensorType | None:
        if self.bias is None:
            return None
        return part_type(self.bias, (*self.bias.static_shape, 1, 1), (*self.bias.strides, 0, 0))

    def _unreached(self, batch: Batch) -> Section:
        """Return planes that no filter reaches: a filter of zero over windows that lie above the image."""
        y, offset = self._result(batch)
        return zeros_of(self.x, y, offset, *self._epilogue(batch))

    def _turned(self) -> Self:
        """Return the same with planes and rows in each other's place, where that leaves less to sum over."""
        if self.w.static_shape[2] <= self.w.static_shape[3]:
            return self
        x, w, y = (swapped(type_) for type_ in (self.x, self.w, self.y))
        numbers = {name: swapped_numbers(getattr(self, name)) for name in ("stride", "padding", "dilation")}
        return replace(self, x=x, w=w, y=y, **numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeConvolution(_Volumes):
    """``y = activation(x * w + bias) + residual``; the residual is the input after x, w and the bias, if there is one.

    Shapes: x (n, c, d, h, w); w (k, c/groups, t, r, s); bias (k,); y and residual (n, k, e, p, q).
    """

    residual: TensorType | None = None
    accuracy: Accuracy = Accuracy.ELEMENTWISE

    def by_fewest_sums(self) -> VolumeConvolution:
        """Return the same with planes and rows in each other's place, or as one axis, where that leaves less to do."""
        flat = self._flat()
        if flat is not None:
            return flat
        turned = self._turned()
        if turned is self or self.residual is None:
            return turned
        return replace(turned, residual=swapped(self.residual))

    def _flat(self) -> VolumeConvolution | None:
        """Return the same with the rows of all planes as those of one; None where windows or strides tell planes."""
        is_pointwise = self.w.static_shape[2:4] == self.stride[:2] == (1, 1) and self.padding[:2] == (0, 0)
        if not is_pointwise or self.y.static_shape[2] == 1:
            return None
        x, y = in_one_plane(self.x), in_one_plane(self.y)
        residual = None if self.residual is None else in_one_plane(self.residual)
        if x is None or y is None or (residual is None) is not (self.residual is None):
            return None
        if max(x.static_shape[3], y.static_shape[3]) > H.maximum:
            return None
        return replace(self, x=x, y=y, residual=residual)

    @property
    def _runs(self) -> tuple[Run, ...]:
        return forward_runs(
            depth=self.x.static_shape[2],
            taps=self.w.static_shape[2],
            stride=self.stride[0],
            padding=self.padding[0],
            dilation=self.dilation[0],
            planes=self.y.static_shape[2],
        )

    def _summed(self, batch: Batch, tap: int, source: int, total: TensorType | None) -> Iterable[Section]:
        place = (self._sum_type(batch.count), 0)
        yield self._convolved(batch, (tap, source), place, _plus(total), _sum_so_far(total))

    def _finished(self, batch: Batch, tap: int, source: int, total: TensorType | None) -> Iterable[Section]:
        rest, parts = self._epilogue(batch)
        epilogue = _plus(total).then(rest.expr, rest.operands)
        yield self._convolved(batch, (tap, source), self._result(batch), epilogue, (*_sum_so_far(total), *parts))

    def _convolved(
        self,
        batch: Batch,
        tap: tuple[int, int],
        place: tuple[TensorType, int],
        epilogue: Epilogue,
        operands: tuple[Part | Temporary, ...],
    ) -> Section:
        out, offset = place
        x, x_offset = planes_of(self.x, batch, tap[1], batch.run.advance)
        w, w_offset = filters_of(self.w, tap[0])
        op = Conv2dOp(
            x=x,
            w=w,
            stride=self.stride[1:],
            padding=self.padding[1:],
            dilation=self.dilation[1:],
            groups=self.groups,
            epilogue=epilogue,
            accuracy=self.accuracy,
            out=out,
        )
        return Section(op=op, operands=(Part(0, x_offset), Part(1, w_offset), *operands), offset=offset)

    def _epilogue(self, batch: Batch) -> tuple[Epilogue, tuple[Part, ...]]:
        parts = () if self.bias is None else (Part(2),)
        residual = None
        if self.residual is not None:
            residual, offset = planes_of(self.residual, batch, batch.run.first, batch.run.step)
            parts = (*parts, Part(2 + len(parts), offset))
        return Epilogue.of(bias=self._bias(), activation=self.activation, residual=residual), parts


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeTransposed(_Volumes):
    """A transposed convolution of volumes; also the gradient of a convolution with respect to its volume.

    Shapes: x (n, c, d, h, w); w (c, k/groups, t, r, s); bias (k,); y (n, k, e, p, q), any e, p, q.
    """

    def by_fewest_sums(self) -> VolumeTransposed:
        """Return the same with planes and rows in each other's place, where that leaves less to sum over."""
        return self._turned()

    @property
    def _runs(self) -> tuple[Run, ...]:
        return transposed_runs(
            depth=self.x.static_shape[2],
            taps=self.w.static_shape[2],
            stride=self.stride[0],
            padding=self.padding[0],
            dilation=self.dilation[0],
            planes=self.y.static_shape[2],
        )

    def _summed(self, batch: Batch, tap: int, source: int, total: TensorType | None) -> Iterable[Section]:
        return self._phases(batch, (tap, source), total, (self._sum_type(batch.count), 0))

    def _finished(self, batch: Batch, tap: int, source: int, total: TensorType | None) -> Iterable[Section]:
        place = self._result(batch)
        return self._phases(batch, (tap, source), total, place, bias=self.bias, activation=self.activation)

    def _phases(
        self,
        batch: Batch,
        tap: tuple[int, int],
        total: TensorType | None,
        place: tuple[TensorType, int],
        *,
        bias: TensorType | None = None,
        activation: str | None = None,
    ) -> Iterator[Section]:
        out, offset = place
        x, x_offset = planes_of(self.x, batch, tap[1], batch.run.advance)
        w, w_offset = filters_of(self.w, tap[0])
        whole = Transposed(
            x=x,
            w=w,
            y=out,
            bias=bias,
            activation=activation,
            total=total,
            stride=self.stride[1:],
            padding=self.padding[1:],
            dilation=self.dilation[1:],
            groups=self.groups,
        )
        return moved(whole.sections(), {0: x_offset, 1: w_offset}, offset)

    def _epilogue(self, batch: Batch) -> tuple[Epilogue, tuple[Part, ...]]:
        del batch
        return Epilogue.of(bias=self._bias(), activation=self.activation), () if self.bias is None else (Part(2),)


def _plus(total: TensorType | None) -> Epilogue:
    """Return the epilogue that adds a sum, where there is one."""
    return Epilogue.identity() if total is None else Epilogue(Input(0) + Input(1), (total,))


def _sum_so_far(total: TensorType | None) -> tuple[Temporary, ...]:
    return () if total is None else (Temporary(0),)
