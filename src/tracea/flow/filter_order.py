"""The last step of a gradient for filters: sums of parts of it become one, in the order that the gradient has.

Parts lie behind each other in one temporary, each in the order filters, rows, columns, channels. They are added as they
lie, every element next to the other; only then a gradient of another order is copied, as a transposition.
"""

from __future__ import annotations

from collections.abc import Iterator

from tracea.core.expr import Input
from tracea.core.op import PointwiseOp, ReduceKind, ReduceOp
from tracea.core.tensor_type import TensorType
from tracea.flow.sections import Section, Temporary, part_type

__all__ = ["is_ordered", "sum_of_parts"]


def is_ordered(y: TensorType) -> bool:
    """Whether the gradient ``y`` (k, c, r, s) has the order of its parts: filters, rows, columns, channels."""
    given = zip(y.static_shape, y.strides, _strides(y), strict=True)
    return all(extent == 1 or stride == step for extent, stride, step in given)


def sum_of_parts(y: TensorType, parts: int, *, source: int, total: int | None) -> Iterator[Section]:
    """Yield what adds the parts in temporary ``source`` and puts the sum in the order of ``y`` (k, c, r, s).

    Temporary ``total`` holds the sum between; it is needed where there are several parts and ``y`` has another order.
    """
    size = y.elements
    if parts > 1 or is_ordered(y):
        flat = part_type(y, (size,), (1,))
        op = ReduceOp(kind=ReduceKind.SUM, x=(part_type(y, (parts, size), (size, 1)),), axes=(0,), out=flat)
        yield Section(op=op, operands=(Temporary(source),), temporary=None if is_ordered(y) else total)
    if not is_ordered(y):
        given = part_type(y, y.static_shape, _strides(y))
        op = PointwiseOp(expr=Input(0), inputs=(given,), out_dtype=y.dtype, out=y)
        yield Section(op=op, operands=(Temporary(source if parts == 1 or total is None else total),))


def _strides(y: TensorType) -> tuple[int, int, int, int]:
    _, c, r, s = y.static_shape
    return r * s * c, 1, s * c, c
