"""Ops along axes: normalisations of rows, and reductions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from tracea.core.expr import Expr, Input
from tracea.core.ops.base import Epilogue, Op, is_real, result_type
from tracea.core.tensor_type import Dim, TensorType, broadcast_shapes, static
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["ReduceKind", "ReduceOp", "RowKind", "RowOp", "check_prologue"]


class RowKind(Enum):
    """A normalisation of a row ``v`` of ``n`` elements."""

    SOFTMAX = "softmax"  # exp(v - max v) / sum; a row whose maximum is -inf or that holds NaN gives NaN, as in torch
    LOG_SOFTMAX = "log_softmax"  # v - max v - log(sum of exp(v - max v))
    LAYER_NORM = "layer_norm"  # (v - mean) / sqrt(variance + eps), variance over n, not n - 1
    RMS_NORM = "rms_norm"  # v / sqrt(mean of v² + eps)

    @property
    def usual_eps(self) -> float:
        """What ``eps`` is where none is said: 1e-5 of layer norm, as in torch, 1e-6 of RMS norm, 0 of others."""
        return {RowKind.LAYER_NORM: 1e-5, RowKind.RMS_NORM: 1e-6}.get(self, 0.0)

    def eps_or_usual(self, eps: float | None) -> float:
        """Return what was said, or the usual one if nothing was.

        Raises:
            InvalidOp: it is said of a kind that has no root to add it in.
        """
        if eps and not self.usual_eps:
            expected = f"none: {self.value} has no root"
            raise InvalidOp(field="row.eps", got=eps, expected=expected, remedy="leave eps out")
        return self.usual_eps if eps is None else eps


_FLOPS_OF_ROW = {RowKind.SOFTMAX: 5, RowKind.LOG_SOFTMAX: 5, RowKind.LAYER_NORM: 6, RowKind.RMS_NORM: 3}


class ReduceKind(Enum):
    """A reduction; the empty SUM is 0, the empty PRODUCT 1, the empty MEAN NaN; MAX and MIN hand a NaN on."""

    SUM = "sum"
    PRODUCT = "product"
    MAX = "max"
    MIN = "min"
    MEAN = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOp(Op):
    """``out = epilogue(normalise(prologue(x...)))`` along the last axis; weight and bias are epilogue operands.

    Shapes:
        each x broadcasts to the result; ``eps`` is added inside the square root of the two norms.
    """

    name: ClassVar[str] = "row"

    kind: RowKind
    x: tuple[TensorType, ...]
    prologue: Expr = field(default_factory=lambda: Input(0))
    epilogue: Epilogue = field(default_factory=Epilogue.identity)
    eps: float = 0.0
    axis: int = -1
    out: TensorType | None = None

    def __post_init__(self) -> None:
        check_prologue("row", self.x, self.prologue)
        shape = self.shape
        if not shape or self.axis not in (-1, len(shape) - 1):
            raise InvalidOp(
                field="row.axis",
                got=self.axis,
                expected="the last axis of a tensor with axes",
                remedy="permute the axis to the end first",
            )
        object.__setattr__(self, "axis", -1)
        if not (is_real(self.eps) and math.isfinite(self.eps) and self.eps >= 0.0):
            raise InvalidOp(field="row.eps", got=self.eps, expected="a finite number >= 0", remedy="use 1e-5 or so")
        self.epilogue.check(shape, "row")
        if result_type("row", shape, self.x[0].dtype, self.out) == TensorType(shape, self.x[0].dtype):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return broadcast_shapes((x.shape for x in self.x), field="row.x")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The sources, then the epilogue's."""
        return self.x + self.epilogue.operands

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("row", self.shape, self.x[0].dtype, self.out)

    @property
    def flops(self) -> int:
        """A few operations per element by kind, and the arithmetic of prologue and epilogue."""
        per_element = _FLOPS_OF_ROW[self.kind] + self.prologue.arithmetic + self.epilogue.expr.arithmetic
        return self.infer().elements * per_element

    @property
    def summary(self) -> str:
        """Kind, shape and type."""
        return f"{self.kind.value}_{Op.summary.fget(self)}"  # pyright: ignore[reportOptionalCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceOp(Op):
    """``out = epilogue(reduce(prologue(x...)))`` over ``axes``, which become ascending and non-negative.

    Shapes:
        each x broadcasts; the result loses the axes, or keeps them with extent 1.
    """

    name: ClassVar[str] = "reduce"

    kind: ReduceKind
    x: tuple[TensorType, ...]
    axes: tuple[int, ...]
    prologue: Expr = field(default_factory=lambda: Input(0))
    epilogue: Epilogue = field(default_factory=Epilogue.identity)
    keepdims: bool = False
    out: TensorType | None = None

    def __post_init__(self) -> None:
        check_prologue("reduce", self.x, self.prologue)
        rank = len(self.source_shape)
        axes = tuple(sorted(axis + rank if axis < 0 else axis for axis in self.axes))
        if not axes or len(set(axes)) != len(axes) or axes[0] < 0 or axes[-1] >= rank:
            raise InvalidOp(
                field="reduce.axes",
                got=self.axes,
                expected=f"distinct axes of rank {rank}",
                remedy="name axes that exist",
            )
        object.__setattr__(self, "axes", axes)
        if self.kind in (ReduceKind.MAX, ReduceKind.MIN) and any(self.source_shape[axis] == 0 for axis in axes):
            raise InvalidShape(
                field="reduce.x",
                got=self.source_shape,
                expected="at least one element",
                remedy="the empty maximum has no value",
            )
        self.epilogue.check(self.shape, "reduce")
        if result_type("reduce", self.shape, self.x[0].dtype, self.out) == TensorType(self.shape, self.x[0].dtype):
            object.__setattr__(self, "out", None)

    @property
    def source_shape(self) -> tuple[Dim, ...]:
        """The shape before the reduction."""
        return broadcast_shapes((x.shape for x in self.x), field="reduce.x")

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        kept = enumerate(self.source_shape)
        if self.keepdims:
            return tuple(1 if axis in self.axes else dim for axis, dim in kept)
        return tuple(dim for axis, dim in kept if axis not in self.axes)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """x..., then the epilogue's."""
        return self.x + self.epilogue.operands

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("reduce", self.shape, self.x[0].dtype, self.out)

    @property
    def flops(self) -> int:
        """One operation and the prologue's per source element, the epilogue's per result."""
        source = math.prod(static(dim) for dim in self.source_shape)
        return source * (1 + self.prologue.arithmetic) + self.infer().elements * self.epilogue.expr.arithmetic

    @property
    def summary(self) -> str:
        """Kind, axes, source shape and type."""
        axes = "".join(map(str, self.axes))
        dims = "x".join(str(getattr(dim, "name", dim)) for dim in self.source_shape)
        return f"{self.kind.value}{axes}_{dims}_{self.x[0].dtype.value}"


def check_prologue(owner: str, x: tuple[TensorType, ...], expr: Expr) -> None:
    """Check that there is a source and that the expression uses no more inputs than there are.

    Raises:
        InvalidOp: there is none, or it does.
    """
    used = expr.inputs()
    if not x or (used and used[-1] >= len(x)):
        raise InvalidOp(
            field=f"{owner}.prologue",
            got=f"inputs {used} of {len(x)} tensors",
            expected="at least one tensor, and a tensor for each input",
            remedy="give a tensor for each Input of the expression",
        )
