"""The gradients of layer norm, RMS norm, group norm and batch norm, from one pass over what they are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tracea.core.expr import Expr, Input, Unary, UnaryFunction
from tracea.core.ops.base import Op
from tracea.core.ops.rows import ReduceKind, RowKind
from tracea.core.ops.statistics import Statistic, StatisticsOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["NormGradientOp", "norm_moments", "norm_slope"]


def norm_moments(first: int, x: Expr, *, is_centred: bool) -> tuple[tuple[Statistic, ...], Expr, int]:
    """Return the statistics of a norm from ``Input(first)`` on, what is scaled, and where the next statistic is."""
    if not is_centred:
        return (Statistic(ReduceKind.MEAN, x * x),), x, first + 1
    away = x - Input(first)
    return (Statistic(ReduceKind.MEAN, x), Statistic(ReduceKind.MEAN, away * away)), away, first + 2


def norm_slope(first: int, g: Expr, x: Expr, eps: float, *, is_centred: bool) -> tuple[tuple[Statistic, ...], Expr]:
    """Return the statistics of a norm's gradient for x, from ``Input(first)`` on, and the gradient.

    It is ``scale · (g - mean g - normal · mean(g · normal))``, g the gradient before the weight; RMS norm lacks mean g.
    """
    moments, away, following = norm_moments(first, x, is_centred=is_centred)
    scale = Unary(UnaryFunction.RSQRT, Input(following - 1) + eps)
    along = Statistic(ReduceKind.MEAN, g * (away * scale))
    level = (Statistic(ReduceKind.MEAN, g),) if is_centred else ()
    slope = g - (away * scale) * Input(following)
    if is_centred:
        slope = slope - Input(following + 1)
    return (*moments, along, *level), slope * scale


@dataclass(frozen=True, slots=True, kw_only=True)
class NormGradientOp(Op):
    """The gradients of a norm over ``axes`` for x, weight and bias, one after the other as one row of elements.

    That of the weight sums ``grad · normal`` over what it broadcasts to, that of the bias, which RMS norm lacks,
    ``grad``. Both are there without a weight too, of the shape ``parameter``. By default the norm is one of rows: over
    the last axis, with a weight for each column. A group norm of (n, groups, channels, pixels) is a layer norm over the
    axes 2 and 3 with parameters (groups, channels, 1), a batch norm of (n, channels, pixels) over 0 and 2 with
    (channels, 1).

    Shapes: grad and x are alike; weight is ``parameter``, which broadcasts to x; the result (elements of x, of the
    parameter and, but for RMS norm, of the parameter again,).
    """

    name: ClassVar[str] = "norm_gradient"

    kind: RowKind
    grad: TensorType
    x: TensorType
    weight: TensorType | None = None
    eps: float = 0.0
    axes: tuple[int, ...] = ()
    parameter: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in (RowKind.LAYER_NORM, RowKind.RMS_NORM):
            expected = f"{RowKind.LAYER_NORM.value} | {RowKind.RMS_NORM.value}"
            raise InvalidOp(
                field="norm_gradient.kind", got=self.kind.value, expected=expected, remedy="name a norm of rows"
            )
        if not 0.0 <= self.eps < math.inf:
            raise InvalidOp(field="norm_gradient.eps", got=self.eps, expected="a finite number >= 0", remedy="eps=1e-5")
        if self.x.rank == 0 or self.grad.shape != self.x.shape:
            raise InvalidShape(
                field="norm_gradient.grad",
                got=self.grad.shape,
                expected=f"(…, columns), as x: {self.x.shape}",
                remedy="give the gradient of the norm's result",
            )
        self._check_axes()
        if self.weight is not None and self.weight.shape != self.parameter:
            raise InvalidShape(
                field="norm_gradient.weight",
                got=self.weight.shape,
                expected=self.parameter,
                remedy="give one value for each column",
            )

    def _check_axes(self) -> None:
        """State the axes and the parameters' shape, where they are those of rows, and check them."""
        rank = self.x.rank
        axes = self.axes or (rank - 1,)
        if tuple(sorted(set(axes))) != axes or not 0 <= axes[0] <= axes[-1] < rank:
            raise InvalidOp(
                field="norm_gradient.axes",
                got=self.axes,
                expected=f"increasing axes of rank {rank}",
                remedy="name axes that exist",
            )
        parameter = self.parameter or (self.x.shape[-1:] if axes == (rank - 1,) else ())
        pairs = zip(reversed(parameter), reversed(self.x.shape), strict=False)
        if not 0 < len(parameter) <= rank or any(ours not in (1, theirs) for ours, theirs in pairs):
            raise InvalidShape(
                field="norm_gradient.parameter",
                got=parameter,
                expected=f"a shape that broadcasts to {self.x.shape}",
                remedy="give the shape of weight and bias, with axes of one element where they are repeated",
            )
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "parameter", parameter)

    @property
    def is_centred(self) -> bool:
        """Whether the norm takes the mean away, and adds a bias."""
        return self.kind is RowKind.LAYER_NORM

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The gradient of the result, x, then the weight where there is one."""
        return (self.grad, self.x) if self.weight is None else (self.grad, self.x, self.weight)

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the gradients."""
        shape, parameter = self.x.static_shape, self.parameter
        return (shape, parameter, parameter) if self.is_centred else (shape, parameter)

    @property
    def summed(self) -> tuple[int, ...]:
        """The axes of x that gradients for weight and bias are summed over: those that these have not, or one of."""
        missing = self.x.rank - len(self.parameter)
        return tuple(axis for axis in range(self.x.rank) if axis < missing or self.parameter[axis - missing] == 1)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The element of the result that each gradient begins with."""
        elements = self.x.elements
        return (0, elements, elements + math.prod(self.parameter))[: len(self.parts)]

    def infer(self) -> TensorType:
        """Return the result's type."""
        return TensorType((sum(math.prod(shape) for shape in self.parts),), self.x.dtype)

    @property
    def for_x(self) -> StatisticsOp:
        """The op that makes the gradient for x alone."""
        g = Input(0) if self.weight is None else Input(0) * Input(2)
        statistics, slope = norm_slope(len(self.operands), g, Input(1), self.eps, is_centred=self.is_centred)
        return StatisticsOp(
            x=self.operands,
            axes=self.axes,
            statistics=statistics,
            expr=slope,
            out=TensorType(self.x.shape, self.x.dtype),
        )

    @property
    def normal(self) -> StatisticsOp:
        """The op that makes the normalised x, before the weight."""
        moments, away, following = norm_moments(1, Input(0), is_centred=self.is_centred)
        scale = Unary(UnaryFunction.RSQRT, Input(following - 1) + self.eps)
        return StatisticsOp(x=(self.x,), axes=self.axes, statistics=moments, expr=away * scale)

    @property
    def flops(self) -> int:
        """Those of the gradient for x, and of the sums over rows."""
        return self.for_x.flops + (3 if self.is_centred else 2) * self.x.elements

    @property
    def summary(self) -> str:
        """The norm's kind, the shape and type of x, and the axes where they are not those of rows."""
        over = "" if self.axes == (self.x.rank - 1,) else f"_over_{'_'.join(map(str, self.axes))}"
        return f"{self.kind.value}_{'x'.join(map(str, self.x.shape))}{over}_{self.x.dtype.value}"
