"""Lowerings of what torch computes element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracea.core.dtype import DType
from tracea.core.expr import (
    Binary,
    BinaryFunction,
    Constant,
    Expr,
    Unary,
    UnaryFunction,
    activation,
    exp,
    maximum,
    minimum,
    select,
    sigmoid,
    tanh,
)

if TYPE_CHECKING:
    from tracea.core.graph import Node
    from tracea.interface.torch.lowering import Lowering, Operand

__all__ = [
    "add",
    "batch_norm",
    "binary",
    "clamp",
    "comparison",
    "convert",
    "div",
    "elu",
    "fill",
    "gelu",
    "glu",
    "hardtanh",
    "leaky_relu",
    "logical",
    "logical_not",
    "masked_fill",
    "named",
    "norm_of_training",
    "rsub",
    "softplus",
    "sub",
    "type_as",
    "unary",
    "where",
]

Lowered = Callable[..., "Node"]


def named(name: str) -> Lowered:
    """Return the lowering to an activation of that name."""
    return _of_one(lambda x: activation(name).substitute({0: x}))


def unary(function: UnaryFunction) -> Lowered:
    """Return the lowering to a function of one operand."""
    return _of_one(lambda x: Unary(function, x))


def _of_one(build: Callable[[Expr], Expr]) -> Lowered:
    def lower(low: Lowering, x: Node, *_: Any) -> Node:
        return low.pointwise(build, x)

    return lower


def binary(function: BinaryFunction) -> Lowered:
    """Return the lowering to a function of two operands, numbers allowed."""

    def lower(low: Lowering, left: Operand, right: Operand, *_: Any) -> Node:
        return low.pointwise(lambda a, b: Binary(function, a, b), left, right)

    return lower


def comparison(function: BinaryFunction) -> Lowered:
    """Return the lowering to a comparison, whose result is bool; operands of any type."""

    def lower(low: Lowering, left: Operand, right: Operand) -> Node:
        return low.pointwise(lambda a, b: Binary(function, a, b), left, right, exact=True)

    return lower


def logical_not(low: Lowering, x: Node) -> Node:
    """Lower ``x == 0``."""
    if low.dtype is not DType.BOOL:
        low.refuse("a bitwise operation on integers", "use bool masks")
    return low.pointwise(lambda a: Binary(BinaryFunction.EQ, a, Constant(0.0)), x, exact=True)


def logical(function: BinaryFunction) -> Lowered:
    """Return the lowering to a connective of masks."""

    def lower(low: Lowering, left: Node, right: Node) -> Node:
        if left.type.dtype is not DType.BOOL or right.type.dtype is not DType.BOOL:
            low.refuse("a bitwise operation on integers", "use bool masks")
        return low.pointwise(lambda a, b: Binary(function, a, b), left, right)

    return lower


def add(low: Lowering, left: Operand, right: Operand, alpha: float = 1) -> Node:
    """Lower ``left + alpha * right``."""
    return low.pointwise(lambda a, b: a + _scaled(b, alpha), left, right)


def sub(low: Lowering, left: Operand, right: Operand, alpha: float = 1) -> Node:
    """Lower ``left - alpha * right``."""
    return low.pointwise(lambda a, b: a - _scaled(b, alpha), left, right)


def rsub(low: Lowering, left: Operand, right: Operand, alpha: float = 1) -> Node:
    """Lower ``right - alpha * left``."""
    return low.pointwise(lambda a, b: b - _scaled(a, alpha), left, right)


def _scaled(x: Expr, alpha: float) -> Expr:
    return x if alpha == 1 else x * float(alpha)


def div(low: Lowering, left: Operand, right: Operand, rounding_mode: str | None = None) -> Node:
    """Lower ``left / right``, or the floor of it."""
    if rounding_mode == "floor":
        return low.pointwise(lambda a, b: Unary(UnaryFunction.FLOOR, a / b), left, right)
    if rounding_mode is not None:
        low.refuse(f"rounding_mode={rounding_mode!r}", "divide without a rounding mode, or with 'floor'")
    return low.pointwise(lambda a, b: a / b, left, right)


def gelu(low: Lowering, x: Node, approximate: str = "none") -> Node:
    """Lower the exact GELU (erf) or its tanh approximation."""
    return named("gelu_tanh" if approximate == "tanh" else "gelu")(low, x)


def leaky_relu(low: Lowering, x: Node, slope: float = 0.01) -> Node:
    """Lower ``x`` where positive, else ``slope * x``."""
    return low.pointwise(lambda v: select(v > 0.0, v, v * float(slope)), x)


def elu(low: Lowering, x: Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Node:
    """Lower ``scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1))``."""

    def build(v: Expr) -> Expr:
        # exp(z) - 1 = tanh(z / 2) * (exp(z) + 1) keeps small z exact.
        z = minimum(v, 0.0) if input_scale == 1.0 else minimum(v, 0.0) * float(input_scale)
        below = tanh(z * 0.5) * (exp(z) + 1.0)
        return _scaled(select(v > 0.0, v, _scaled(below, alpha)), scale)

    return low.pointwise(build, x)


def hardtanh(low: Lowering, x: Node, least: float = -1.0, most: float = 1.0) -> Node:
    """Lower the clamp of an activation."""
    return clamp(low, x, least, most)


def clamp(low: Lowering, x: Node, least: Operand | None = None, most: Operand | None = None) -> Node:
    """Lower ``min(max(x, least), most)``; a NaN stays NaN."""
    if least is None and most is None:
        return x
    if most is None:
        return low.pointwise(maximum, x, _given(least))
    if least is None:
        return low.pointwise(minimum, x, most)
    return low.pointwise(lambda v, a, b: minimum(maximum(v, a), b), x, least, most)


def _given(operand: Operand | None) -> Operand:
    assert operand is not None
    return operand


def softplus(low: Lowering, x: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    """Lower ``log(1 + exp(beta * x)) / beta``, and ``x`` itself where ``beta * x`` is above the threshold."""

    def build(v: Expr) -> Expr:
        z = _scaled(v, beta)
        soft = activation("softplus").substitute({0: z})
        return select(z > float(threshold), v, soft if beta == 1 else soft / float(beta))

    return low.pointwise(build, x)


def glu(low: Lowering, x: Node, axis: int = -1) -> Node:
    """Lower ``a * sigmoid(b)`` over the two halves of an axis."""
    axis %= x.type.rank
    half = low.shape[axis]
    if not isinstance(half, int):
        low.refuse("a gated unit over a symbolic axis", "make that axis static")
    first, second = low.slice(x, axis, 0, half), low.slice(x, axis, half, half)
    return low.pointwise(lambda a, b: a * sigmoid(b), first, second)


def where(low: Lowering, condition: Node, if_true: Operand, if_false: Operand) -> Node:
    """Lower the choice by a mask."""
    return low.pointwise(select, condition, if_true, if_false, exact=True)


def masked_fill(low: Lowering, x: Node, mask: Node, value: Operand) -> Node:
    """Lower ``value`` where the mask is set, else x."""
    return low.pointwise(select, mask, value, x, exact=True)


def fill(low: Lowering, x: Node, value: Operand) -> Node:
    """Lower a tensor of x's shape that holds one value."""
    return low.pointwise(lambda v, number: select(Constant(1.0), number, v), x, value, exact=True)


def convert(low: Lowering, x: Node, *_: Any) -> Node:
    """Lower a conversion to the result's type; device and memory format change nothing here."""
    return low.cast(x, low.dtype)


def type_as(low: Lowering, x: Node, other: Node) -> Node:
    """Lower the conversion to another tensor's type."""
    return low.cast(x, other.type.dtype)


def batch_norm(
    low: Lowering,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node | None,
    variance: Node | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Node:
    """Lower the normalisation by stored statistics, channels on axis 1."""
    del momentum
    if training or mean is None or variance is None:
        norm_of_training(low)
    shape = (-1, *[1] * (x.type.rank - 2))
    rows = [
        low.reshape(row, (*row.type.shape, *shape[1:])) if x.type.rank > 2 else row
        for row in (mean, variance, weight, bias)
        if row is not None
    ]

    def build(v: Expr, center: Expr, spread: Expr, *affine: Expr) -> Expr:
        value = (v - center) * Unary(UnaryFunction.RSQRT, spread + float(eps))
        terms = list(affine)
        if weight is not None:
            value = value * terms.pop(0)
        return value + terms.pop(0) if bias is not None else value

    return low.pointwise(build, x, *rows)


def norm_of_training(low: Lowering, *_: Any) -> Node:
    """Refuse a normalisation by the batch's own statistics."""
    low.refuse("a batch norm in training mode", "call module.eval() first: this is for inference")
