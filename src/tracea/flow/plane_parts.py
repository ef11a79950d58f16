"""Parts of volumes: planes as batches of images, planes of filters, and sections that are moved to where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.flow.planes import Batch
from tracea.flow.sections import Part, Section, Temporary, part_type

__all__ = [
    "Triple",
    "filters_of",
    "in_one_plane",
    "in_turns",
    "moved",
    "planes_of",
    "swapped",
    "swapped_numbers",
    "zeros_of",
]

Triple: TypeAlias = tuple[int, int, int]


def in_turns(sections: Iterable[Section], number: int, *, is_last: bool) -> Iterator[Section]:
    """Yield the sections of summand ``number``, which read the sum of the one before and write their own elsewhere."""
    for section in sections:
        operands = tuple(
            replace(each, index=(number + 1) % 2) if isinstance(each, Temporary) else each for each in section.operands
        )
        yield replace(section, operands=operands, temporary=None if is_last else number % 2)


def moved(sections: Iterable[Section], starts: dict[int, int], offset: int) -> Iterator[Section]:
    """Yield sections whose inputs begin at ``starts``, by index, and whose result begins at ``offset``."""
    for section in sections:
        operands = tuple(
            replace(each, offset=each.offset + starts.get(each.index, 0)) if isinstance(each, Part) else each
            for each in section.operands
        )
        yield replace(section, operands=operands, offset=section.offset + offset)


def planes_of(whole: TensorType, batch: Batch, first: int, step: int) -> tuple[TensorType, int]:
    """Return planes ``first``, ``first + step``, … of a batch's images as images, and where they begin."""
    _, channels, _, rows, columns = whole.static_shape
    image, channel, plane, row, column = whole.strides
    between = image if batch.images > 1 else step * plane
    part = part_type(whole, (batch.count, channels, rows, columns), (between, channel, row, column))
    return part, batch.image * image + first * plane


def filters_of(whole: TensorType, tap: int) -> tuple[TensorType, int]:
    """Return one plane of filters, and where it begins."""
    first, second, _, rows, columns = whole.static_shape
    outer, inner, plane, row, column = whole.strides
    return part_type(whole, (first, second, rows, columns), (outer, inner, row, column)), tap * plane


def zeros_of(x: TensorType, y: TensorType, offset: int, epilogue: Epilogue, parts: tuple[Part, ...]) -> Section:
    """Return images that are the epilogue of zero, whatever x holds."""
    count, k, p, q = y.static_shape
    zeros = np.zeros((k, 1, 1, 1), x.dtype.numpy)
    op = Conv2dOp(
        x=part_type(x, (count, 1, 1, 1), (0, 0, 0, 0)),
        w=TensorType(zeros.shape, x.dtype),
        padding=(p, 0),
        size=(p, q),
        epilogue=epilogue,
        out=y,
    )
    return Section(op=op, operands=(Part(0), zeros, *parts), offset=offset)


def in_one_plane(type_: TensorType) -> TensorType | None:
    """Return a type over (n, c, d, h, w) as one over (n, c, 1, d · h, w); None where planes lie apart."""
    images, channels, planes, rows, columns = type_.static_shape
    image, channel, plane, row, column = type_.strides
    if rows > 1 and plane != rows * row:
        return None
    return part_type(
        type_, (images, channels, 1, planes * rows, columns), (image, channel, 0, row if rows > 1 else plane, column)
    )


def swapped(type_: TensorType) -> TensorType:
    """Return a type over (n, c, d, h, w) as one over (n, c, h, d, w)."""
    order = (0, 1, 3, 2, 4)
    strides = type_.strides
    layout = StridedLayout(tuple(strides[axis] for axis in order))
    return TensorType(tuple(type_.shape[axis] for axis in order), type_.dtype, layout)


def swapped_numbers(numbers: Triple) -> Triple:
    """Return numbers of planes, rows, columns as those of rows, planes, columns."""
    return numbers[1], numbers[0], numbers[2]
