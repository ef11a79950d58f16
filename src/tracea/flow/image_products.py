"""The gradient of a 1x1 convolution with respect to its image, as one matrix product.

``gradient[pixel, c] = sum over k of grad[pixel, k] · w[k, c]``: the pixels of all images are one axis. A convolution of
one tap gives the same; where filters are more than channels, sums are longer than what they give, and a product of the
same matrices packs less. Where filters are far larger than images, and pixels lie next to each other, the result is
turned afterwards, and what is given before, unless the product reads its columns in place: turning the filters while
they are packed takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tracea.core.expr import Input
from tracea.core.op import GemmOp, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.flow.filter_products import pixels_step
from tracea.flow.in_place import is_read_in_place
from tracea.flow.sections import Part, Section, Temporary, part_type
from tracea.flow.transposed import Transposed

__all__ = ["ImageProduct"]

_SMALL_IMAGE: Final = 4  # channels are this many times as many as the pixels, or more


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageProduct:
    """The gradient for the image of a 1x1 convolution, of inputs 0, the gradient of its result, and 1, its filters.

    ``from_step`` and ``to_step`` are the strides of all pixels as one axis, of what is given and of the result. Where
    images are turned, ``is_copied`` says that what is given is too: a product that packs nothing reads it as it is.
    """

    whole: Transposed
    from_step: int
    to_step: int
    is_copied: bool = False

    @classmethod
    def of(cls, whole: Transposed, *, threads: int, library: bool) -> ImageProduct | None:
        """Return the same gradient as a product; None where it is none, or a convolution is faster.

        Measured, benchmarks/NOTES.md: with more filters than channels the product took 0.54 to 1.09 of the
        convolution's time, with fewer 0.95 to 1.11.
        """
        is_plain = whole.w.static_shape[2:] == (1, 1) and whole.stride == (1, 1) and whole.padding == (0, 0)
        is_bare = whole.bias is None and whole.total is None and whole.activation is None
        k, c = whole.w.static_shape[:2]
        if not is_plain or not is_bare or whole.groups != 1 or k <= c or not whole.x.elements * whole.y.elements:
            return None
        from_step, to_step = pixels_step(whole.x), pixels_step(whole.y)
        if from_step is None or to_step is None:
            return None
        made = cls(whole=whole, from_step=from_step, to_step=to_step)
        packs = made._is_turned and not is_read_in_place(made._product, threads=threads, library=library)
        return replace(made, is_copied=packs)

    @property
    def temporaries(self) -> tuple[TensorType, ...]:
        """The result, pixels first, and what is given, where they are turned."""
        if not self._is_turned:
            return ()
        copies = (self.whole.y, self.whole.x) if self.is_copied else (self.whole.y,)
        return tuple(TensorType((type_.elements,), type_.dtype) for type_ in copies)

    def sections(self) -> Iterator[Section]:
        """Yield the product, between two copies where images are turned."""
        product = self._product
        if not self._is_turned:
            parts = (Part(0), Part(1)) if self._is_last else (Part(1), Part(0))
            yield Section(op=product, operands=parts)
            return
        if self.is_copied:
            yield Section(op=_copy(self._given, product.a), operands=(Part(0),), temporary=1)
        yield Section(op=product, operands=(Temporary(1) if self.is_copied else Part(0), Part(1)), temporary=0)
        yield Section(op=_copy(product.infer(), self._result), operands=(Temporary(0),))

    @property
    def _given(self) -> TensorType:
        """What is given, pixels by filters."""
        return part_type(self.whole.x, (self._pixels, self._channels[0]), (self.from_step, self.whole.x.strides[1]))

    @property
    def _result(self) -> TensorType:
        """The result, pixels by channels."""
        return part_type(self.whole.y, (self._pixels, self._channels[1]), (self.to_step, self.whole.y.strides[1]))

    @property
    def _channels(self) -> tuple[int, int]:
        """Of what is given, and of the result."""
        k, c = self.whole.w.static_shape[:2]
        return k, c

    @property
    def _product(self) -> GemmOp:
        (k, c), pixels = self._channels, self._pixels
        w_filter, w_channel = self.whole.w.strides[:2]
        filters = part_type(self.whole.w, (k, c), (w_filter, w_channel))
        if self._is_turned:
            given = part_type(self.whole.x, (pixels, k), (k, 1)) if self.is_copied else self._given
            return GemmOp(m=pixels, n=c, k=k, a=given, b=filters, out=part_type(self.whole.y, (pixels, c), (c, 1)))
        if self._is_last:  # columns of the product are what lies next to each other in the result
            return GemmOp(m=pixels, n=c, k=k, a=self._given, b=filters, out=self._result)
        return GemmOp(m=c, n=pixels, k=k, a=_turned(filters), b=_turned(self._given), out=_turned(self._result))

    @property
    def _pixels(self) -> int:
        n, _, p, q = self.whole.x.static_shape
        return prod((n, p, q))

    @property
    def _is_last(self) -> bool:
        """Whether channels of the result lie next to each other."""
        return self.whole.y.strides[1] == 1 and self.whole.y.static_shape[1] > 1

    @property
    def _is_turned(self) -> bool:
        return not self._is_last and self._pixels * _SMALL_IMAGE <= self.whole.y.static_shape[1]


def _copy(x: TensorType, y: TensorType) -> PointwiseOp:
    return PointwiseOp(expr=Input(0), inputs=(x,), out_dtype=x.dtype, out=y)


def _turned(matrix: TensorType) -> TensorType:
    return part_type(matrix, matrix.static_shape[::-1], matrix.strides[::-1])
