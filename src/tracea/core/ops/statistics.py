"""Statistics of slabs, and what is made of a slab with them: var, group norm, the backwards of softmax and norms.

A slab is what the reduced axes span: a row of a matrix, the pixels of a group's channels, a channel of all images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tracea.core.expr import Constant, Expr, Input, minimum, select
from tracea.core.ops.base import Op, result_type
from tracea.core.ops.rows import ReduceKind, check_prologue
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import Dim, TensorType, broadcast_shapes, static
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["Statistic", "StatisticsOp", "corrected_squares", "squares_about_mean"]


@dataclass(frozen=True, slots=True)
class Statistic:
    """One number a slab: ``kind`` of ``expr`` over the op's sources, and over the statistics before it."""

    kind: ReduceKind
    expr: Expr


def corrected_squares(squares: Expr, rest: Expr, count: int) -> Expr:
    """Return the sum of ``count`` squares about a mean, of squares and of sums about the mean as it is rounded.

    A mean that is wrong by e adds count · e² (the corrected two-pass algorithm: Chan, Golub and LeVeque, "Algorithms
    for Computing the Sample Variance", 1983).
    """
    added = rest * (rest / Constant(float(max(count, 1))))  # in this order no more than the squares, but for rounding
    left = squares - minimum(added, squares)  # no less than none
    return select(squares < Constant(math.inf), left, squares)  # of infinite ones the difference is no number


def squares_about_mean(count: int) -> tuple[tuple[Statistic, ...], Expr]:
    """Return statistics of one source over ``count`` elements, and of these the sum of squares about the mean."""
    away = Input(0) - Input(1)
    mean, squares = Statistic(ReduceKind.MEAN, Input(0)), Statistic(ReduceKind.SUM, away * away)
    return (mean, squares, Statistic(ReduceKind.SUM, away)), corrected_squares(Input(2), Input(3), count)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOp(Op):
    """``out = expr(x..., s...)``, ``s_i = reduce(expr_i(x..., s_0 ... s_(i-1)))`` over ``axes``.

    Of n sources, ``Input(i)`` is source i and ``Input(n + j)`` statistic j, as one number for its slab. Layer norm has
    the statistics ``mean(x)`` and ``mean((x - s0)²)``, and makes ``(x - s0) / sqrt(s1 + eps)``.

    Shapes:
        each x broadcasts; the result has the sources' shape, or, ``reduced``, one element a slab, without the axes or,
        with ``keepdims``, of extent 1 there.
    """

    name: ClassVar[str] = "statistics"

    x: tuple[TensorType, ...]
    axes: tuple[int, ...]
    statistics: tuple[Statistic, ...]
    expr: Expr
    reduced: bool = False
    keepdims: bool = False
    out: TensorType | None = None

    def __post_init__(self) -> None:
        count = len(self.x)
        if not self.statistics:
            raise InvalidOp(
                field="statistics", got=0, expected="at least one", remedy="without statistics use a pointwise op"
            )
        for index, statistic in enumerate(self.statistics):
            check_prologue("statistics", self._known(index), statistic.expr)
            if not any(used < count for used in statistic.expr.inputs()):
                raise InvalidOp(
                    field=f"statistics[{index}].expr",
                    got=f"inputs {statistic.expr.inputs()}",
                    expected=f"a source, Input(0) to Input({count - 1})",
                    remedy="compute with the other statistics in expr, which costs no pass",
                )
        check_prologue("statistics", self._known(len(self.statistics)), self.expr)
        self._check_axes()
        if self.keepdims and not self.reduced:
            object.__setattr__(self, "keepdims", False)
        if result_type("statistics", self.shape, self.x[0].dtype, self.out) == TensorType(self.shape, self.x[0].dtype):
            object.__setattr__(self, "out", None)

    def _known(self, statistics: int) -> tuple[TensorType, ...]:
        return self.x + (self.x[0],) * statistics

    def _check_axes(self) -> None:
        shape = self.source_shape
        rank = len(shape)
        axes = tuple(sorted(axis + rank if axis < 0 else axis for axis in self.axes))
        if not axes or len(set(axes)) != len(axes) or axes[0] < 0 or axes[-1] >= rank:
            raise InvalidOp(
                field="statistics.axes",
                got=self.axes,
                expected=f"distinct axes of rank {rank}",
                remedy="name axes that exist",
            )
        object.__setattr__(self, "axes", axes)
        extremes = any(statistic.kind in (ReduceKind.MAX, ReduceKind.MIN) for statistic in self.statistics)
        if extremes and any(shape[axis] == 0 for axis in axes):
            raise InvalidShape(
                field="statistics.x",
                got=shape,
                expected="at least one element",
                remedy="the empty maximum has no value",
            )
        if not self.reduced:
            return
        for index in self.expr.inputs():
            if index < len(self.x) and any(_extent(self.x[index], axis, rank) != 1 for axis in axes):
                raise InvalidShape(
                    field=f"statistics.x[{index}]",
                    got=plain_shape(self.x[index].shape),
                    expected=f"extent 1 on the axes {axes}: the result has one element a slab",
                    remedy="use the source in a statistic",
                )

    @property
    def source_shape(self) -> tuple[Dim, ...]:
        """The shape that the sources broadcast to."""
        return broadcast_shapes((x.shape for x in self.x), field="statistics.x")

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        if not self.reduced:
            return self.source_shape
        kept = enumerate(self.source_shape)
        if self.keepdims:
            return tuple(1 if axis in self.axes else dim for axis, dim in kept)
        return tuple(dim for axis, dim in kept if axis not in self.axes)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The sources."""
        return self.x

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("statistics", self.shape, self.x[0].dtype, self.out)

    @property
    def flops(self) -> int:
        """Each statistic's arithmetic and one more per source element, and the expression's per result."""
        source = math.prod(static(dim) for dim in self.source_shape)
        each = sum(1 + statistic.expr.arithmetic for statistic in self.statistics)
        return source * each + self.infer().elements * self.expr.arithmetic

    @property
    def summary(self) -> str:
        """The statistics' kinds, axes, source shape and type."""
        kinds = "_".join(statistic.kind.value for statistic in self.statistics)
        dims = "x".join(str(getattr(dim, "name", dim)) for dim in self.source_shape)
        return f"{kinds}{''.join(map(str, self.axes))}_{dims}_{self.x[0].dtype.value}"


def _extent(type_: TensorType, axis: int, rank: int) -> Dim:
    own = axis - (rank - type_.rank)
    return type_.shape[own] if own >= 0 else 1
