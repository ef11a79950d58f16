"""Mean and variance of the columns of matrices, and a gradient's sums beside them, as one op: x is walked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tracea.core.expr import Input
from tracea.core.ops.base import Op
from tracea.core.ops.rows import ReduceKind
from tracea.core.ops.statistics import Statistic, StatisticsOp
from tracea.core.tensor_type import Dim, TensorType
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["MomentsOp"]

_RANK = 3
_AWAY = Input(0) - Input(1)
_MEAN = Statistic(ReduceKind.MEAN, _AWAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsOp(Op):
    """What a column is about: ``mean(x - about)`` and ``mean((x - mean x)²)``.

    Given ``grad``, also ``sum(grad)`` and ``sum(grad · (x - mean x))``. ``about`` is any number near the column's: what
    is summed is what an element is beyond it, so that a mean far from zero loses no digits.

    Shapes: x and grad are (images, rows, columns), with rows; about is (images, 1, columns); the result, of the type of
    about, is (images, 2 or 4, columns).
    """

    name: ClassVar[str] = "moments"

    x: TensorType
    about: TensorType
    grad: TensorType | None = None

    def __post_init__(self) -> None:
        if self.x.rank != _RANK or (self.x.is_static and 0 in self.x.static_shape):
            raise InvalidShape(
                field="moments.x",
                got=self.x.shape,
                expected="(images, rows, columns), none of them 0",
                remedy="give a matrix as x[None]; what has no rows has no mean",
            )
        shapes: dict[str, tuple[TensorType, tuple[Dim, ...]]] = {
            "about": (self.about, (self.x.shape[0], 1, self.x.shape[2]))
        }
        if self.grad is not None:
            shapes["grad"] = (self.grad, self.x.shape)
        for name, (type_, wanted) in shapes.items():
            if type_.shape != wanted:
                raise InvalidShape(
                    field=f"moments.{name}", got=type_.shape, expected=wanted, remedy="give one that belongs to x"
                )
        if not self.about.dtype.is_float:
            raise InvalidOp(
                field="moments.about", got=self.about.dtype.value, expected="a float", remedy="cast it: about.float()"
            )

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """x, what it is taken about, then the gradient where there is one."""
        return (self.x, self.about) if self.grad is None else (self.x, self.about, self.grad)

    @property
    def parts(self) -> tuple[StatisticsOp, ...]:
        """The ops that make each row of the result from the operands alone."""
        columns = TensorType(self.about.shape, self.about.dtype)
        first = len(self.operands)
        away = _AWAY - Input(first)
        made = [((_MEAN,), Input(first)), ((_MEAN, Statistic(ReduceKind.MEAN, away * away)), Input(first + 1))]
        if self.grad is not None:
            made.append(((Statistic(ReduceKind.SUM, Input(2)),), Input(first)))
            made.append(((_MEAN, Statistic(ReduceKind.SUM, Input(2) * away)), Input(first + 1)))
        return tuple(
            StatisticsOp(
                x=self.operands, axes=(1,), statistics=statistics, expr=expr, reduced=True, keepdims=True, out=columns
            )
            for statistics, expr in made
        )

    def infer(self) -> TensorType:
        """Return the result's type."""
        images, _, columns = self.x.shape
        return TensorType((images, len(self.operands) * 2 - 2, columns), self.about.dtype)

    @property
    def flops(self) -> int:
        """A difference, a sum and a product for each element, and as many for one of the gradient."""
        return (4 if self.grad is None else 7) * math.prod(self.x.static_shape)

    @property
    def summary(self) -> str:
        """The shape and type of x, and whether there is a gradient."""
        graded = "" if self.grad is None else "_with_gradient"
        return f"{'x'.join(map(str, self.x.shape))}_{self.x.dtype.value}{graded}"
