"""Lowerings of what torch computes element by element: X, Y and Z are the operands of an expression in order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tracea.core.dtype import DType
from tracea.core.expr import (
    Binary,
    BinaryFunction,
    Constant,
    Expr,
    Input,
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
from tracea.core.graph import Node
from tracea.flow.reduction import wide_type
from tracea.interface.torch import lower_images as images
from tracea.interface.torch.operand_types import NARROW, as_stored, common_type, read_as, rounded

if TYPE_CHECKING:
    from tracea.interface.torch.lowering import Lowering, Operand

__all__ = [
    "add",
    "batch_norm",
    "batch_norm_of_inference",
    "batch_norm_of_training",
    "binary",
    "celu",
    "chosen",
    "clamp",
    "clamp_max",
    "comparison",
    "convert",
    "elu",
    "exp2",
    "fill",
    "filled",
    "gelu",
    "glu",
    "hardtanh",
    "isnan",
    "leaky_relu",
    "logical",
    "logical_not",
    "masked_fill",
    "named",
    "nan_to_num",
    "of_one",
    "power",
    "rsub",
    "selu",
    "sign",
    "softplus",
    "stepping",
    "sub",
    "unary",
    "where",
]

Lowered: TypeAlias = Callable[..., "Node"]

X: Final = Input(0)
Y: Final = Input(1)
Z: Final = Input(2)
SIGN: Final = select(X > 0.0, 1.0, select(X < 0.0, -1.0, 0.0))  # of NaN 0, as torch has it
_HELD: Final = (DType.I32, DType.I8, DType.U8)  # each number of which f64 has: moved, it is what it was
_LEAST_EXPONENT: Final = 2.0**-126  # the least normal number of f32
_OF_RSQRT: Final = -0.5
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def of_one(expr: Expr) -> Lowered:
    """Return the lowering to an expression of one operand."""

    def lower(low: Lowering, x: Node, *_: Any) -> Node:
        return low.pointwise(expr, x)

    return lower


def stepping(expr: Expr) -> Lowered:
    """Return the lowering to an expression that jumps at whole numbers, which integers are: they stay as they are.

    Of 16 bits the operand is rounded before.
    """

    def lower(low: Lowering, x: Node, *_: Any) -> Node:
        if not x.type.dtype.is_float:
            return low.pointwise(X, x, exact=x.type.dtype in _HELD)
        return low.pointwise(as_stored(expr, x), x)

    return lower


def sign(low: Lowering, x: Node) -> Node:
    """Lower 1 above 0 and -1 below it."""
    return low.pointwise(as_stored(SIGN, x), x, exact=x.type.dtype in _HELD)


def named(name: str) -> Lowered:
    """Return the lowering to an activation of that name."""
    return of_one(activation(name))


def unary(function: UnaryFunction) -> Lowered:
    """Return the lowering to a function of one operand."""
    return of_one(Unary(function, X))


def binary(function: BinaryFunction) -> Lowered:
    """Return the lowering to a function of two operands, numbers allowed."""

    def lower(low: Lowering, left: Operand, right: Operand, *_: Any) -> Node:
        return low.pointwise(Binary(function, X, Y), left, right)

    return lower


def chosen(function: BinaryFunction) -> Lowered:
    """Return the lowering to the larger or the smaller of two operands."""

    def lower(low: Lowering, left: Operand, right: Operand, *_: Any) -> Node:
        return _rounded(low, Binary(function, X, Y), left, right)

    return lower


def _rounded(low: Lowering, expr: Expr, *operands: Operand, exact: bool = False, mask: bool = False) -> Node:
    """Append an expression of operands that torch rounds to a 16-bit result's type; a ``mask``, the first, is none.

    What is only chosen (``exact``) wraps around where the result's integers are narrower.
    """
    if low.dtype not in NARROW and (low.dtype.is_float or not exact):
        return low.pointwise(expr, *operands, exact=exact)
    terms, read = read_as(low, low.dtype, *operands)
    if mask:
        terms[0], read[0] = X, operands[0]
    return low.pointwise(expr.substitute(dict(enumerate(terms))), *read, exact=exact)


def power(low: Lowering, base: Operand, exponent: Operand) -> Node:
    """Lower a power; an exponent that f32 would take for 0, which makes 1 of NaN, stands for the least that it holds.

    Both give 1, 0, infinity and NaN alike: their product with the logarithm of any number is below 1e-34. The power
    -0.5 is torch's rsqrt, which is NaN of -inf and -inf of -0.0 where a power has 0 and infinity; not so in f16, nor
    where a tensor says the exponent.
    """
    number = low.number_of(exponent)
    if isinstance(number, Node) or not isinstance(number, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _rounded(low, Binary(BinaryFunction.POW, X, Y), base, exponent)
    number = (low.dtype in NARROW and rounded(float(number), low.dtype)) or float(number)  # it is not rounded to 0
    if 0.0 < abs(number) < _LEAST_EXPONENT:
        number = math.copysign(_LEAST_EXPONENT, number)
    if number == _OF_RSQRT and low.dtype is not DType.F16 and not isinstance(exponent, Node):
        return _rounded(low, Unary(UnaryFunction.RSQRT, X), base)
    return _rounded(low, Binary(BinaryFunction.POW, X, Constant(number)), base)


def exp2(low: Lowering, x: Node) -> Node:
    """Lower 2 to the power of x, which a power is to its own accuracy and the exponential of a product is not."""
    return power(low, 2.0, x)


def comparison(function: BinaryFunction) -> Lowered:
    """Return the lowering to a comparison, whose result is bool; operands of any type, read as the one of both."""

    def lower(low: Lowering, left: Operand, right: Operand) -> Node:
        (x, y), read = read_as(low, common_type(left, right), left, right, stored=True)
        return low.pointwise(Binary(function, x, y), *read, exact=True)

    return lower


def logical(function: BinaryFunction) -> Lowered:
    """Return the lowering to a connective of masks, which of numbers say where they are not 0."""

    def lower(low: Lowering, left: Node, right: Node) -> Node:
        if low.dtype is not DType.BOOL:  # where only bitwise operations give anything else
            low.refuse("a bitwise operation on integers", "use bool masks")
        x, y = (
            term
            if operand.type.dtype is DType.BOOL
            else as_stored(_unequal(Input(0), 0.0), operand).substitute({0: term})
            for term, operand in ((X, left), (Y, right))
        )
        return low.pointwise(Binary(function, x, y), left, right)

    return lower


def logical_not(low: Lowering, x: Node) -> Node:
    """Lower ``x == 0``."""
    if low.dtype is not DType.BOOL:
        low.refuse("a bitwise operation on integers", "use bool masks")
    return low.pointwise(as_stored(_equal(X, 0.0), x), x, exact=True)


def add(low: Lowering, left: Operand, right: Operand, alpha: float = 1) -> Node:
    """Lower ``left + alpha * right``."""
    return _rounded(low, X + _scaled(Y, _factor(low, alpha)), left, right)


def sub(low: Lowering, left: Operand, right: Operand, alpha: float = 1) -> Node:
    """Lower ``left - alpha * right``."""
    return _rounded(low, X - _scaled(Y, _factor(low, alpha)), left, right)


def rsub(low: Lowering, left: Operand, right: Operand, alpha: float = 1) -> Node:
    """Lower ``right - alpha * left``."""
    return _rounded(low, Y - _scaled(X, _factor(low, alpha)), left, right)


def _factor(low: Lowering, alpha: float) -> float:
    return rounded(alpha, low.dtype) if low.dtype in NARROW else alpha


def _scaled(x: Expr, factor: float) -> Expr:
    return x if factor == 1 else x * float(factor)


def gelu(low: Lowering, x: Node, approximate: str = "none") -> Node:
    """Lower the exact GELU (erf) or its tanh approximation."""
    return low.pointwise(activation("gelu_tanh" if approximate == "tanh" else "gelu"), x)


def leaky_relu(low: Lowering, x: Node, slope: float = 0.01) -> Node:
    """Lower ``x`` where positive, else ``slope * x``."""
    return low.pointwise(select(X > 0.0, X, X * float(slope)), x)


def elu(low: Lowering, x: Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Node:
    """Lower ``scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1))``."""
    # exp(z) - 1 = tanh(z / 2) * (exp(z) + 1) keeps small z exact.
    z = _scaled(minimum(X, 0.0), input_scale)
    below = tanh(z * 0.5) * (exp(z) + 1.0)
    return low.pointwise(_scaled(select(X > 0.0, X, _scaled(below, alpha)), scale), x)


def celu(low: Lowering, x: Node, alpha: float = 1.0) -> Node:
    """Lower ``x if x > 0 else alpha * (exp(x / alpha) - 1)``."""
    return elu(low, x, alpha, 1.0, 1.0 / alpha)


def selu(low: Lowering, x: Node) -> Node:
    """Lower the ELU whose constants keep mean 0 and variance 1."""
    return elu(low, x, _SELU_ALPHA, _SELU_SCALE)


def clamp(low: Lowering, x: Node, least: Operand | None = None, most: Operand | None = None) -> Node:
    """Lower ``min(max(x, least), most)``; a NaN stays NaN."""
    if least is not None and most is not None:
        return _rounded(low, minimum(maximum(X, Y), Z), x, least, most)
    if least is not None:
        return _rounded(low, maximum(X, Y), x, least)
    return x if most is None else _rounded(low, minimum(X, Y), x, most)


def clamp_max(low: Lowering, x: Node, most: Operand) -> Node:
    """Lower ``min(x, most)``."""
    return clamp(low, x, None, most)


def hardtanh(low: Lowering, x: Node, least: float = -1.0, most: float = 1.0) -> Node:
    """Lower the clamp between two numbers."""
    return clamp(low, x, least, most)


def softplus(low: Lowering, x: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    """Lower ``log(1 + exp(beta * x)) / beta``, and ``x`` itself where ``beta * x`` is above the threshold."""
    z = _scaled(X, beta)
    soft = activation("softplus").substitute({0: z})
    limit = rounded(float(threshold), DType.F64 if low.dtype is DType.F64 else DType.F32)
    return low.pointwise(select(z > limit, X, soft if beta == 1 else soft / float(beta)), x)


def glu(low: Lowering, x: Node, axis: int = -1) -> Node:
    """Lower ``a * sigmoid(b)`` over the two halves of an axis."""
    axis %= x.type.rank
    half = low.shape[axis]
    if not isinstance(half, int):
        low.refuse("a gated unit over a symbolic axis", "make that axis static")
    return low.pointwise(X * sigmoid(Y), low.slice(x, axis, 0, half), low.slice(x, axis, half, half))


def where(low: Lowering, condition: Node, if_true: Operand, if_false: Operand) -> Node:
    """Lower the choice by a mask."""
    return _rounded(low, select(X, Y, Z), condition, if_true, if_false, exact=True, mask=True)


def masked_fill(low: Lowering, x: Node, mask: Node, value: Operand) -> Node:
    """Lower ``value`` where the mask is set, else x."""
    return _rounded(low, select(X, Y, Z), mask, value, x, exact=True, mask=True)


def fill(low: Lowering, x: Node, value: Operand, *_: Any) -> Node:
    """Lower a tensor of x's shape that holds one value."""
    return _rounded(low, select(Constant(1.0), Y, X), x, value, exact=True, mask=True)


def filled(value: float) -> Lowered:
    """Return the lowering to a tensor of x's shape that holds a fixed value."""

    def lower(low: Lowering, x: Node, *_: Any) -> Node:
        return fill(low, x, value)

    return lower


def convert(low: Lowering, x: Node, *_: Any) -> Node:
    """Lower a conversion to the result's type; device and memory format change nothing here."""
    return low.cast(x, low.dtype)


def nan_to_num(
    low: Lowering, x: Node, nan: float | None = None, positive: float | None = None, negative: float | None = None
) -> Node:
    """Lower ``x`` with NaN and the infinities replaced, by 0 and the ends of the type where nothing else is said."""
    if not low.dtype.is_float:
        return x
    high = low.dtype.largest if positive is None else positive
    least = low.dtype.lowest if negative is None else negative
    finite = select(_equal(X, math.inf), float(high), select(_equal(X, -math.inf), float(least), X))
    return low.pointwise(as_stored(select(_equal(X, X), finite, float(nan or 0.0)), x), x)


def isnan(low: Lowering, x: Node) -> Node:
    """Lower ``x != x``."""
    return low.pointwise(Binary(BinaryFunction.NE, X, X), x, exact=True)


def _unequal(left: Expr, right: Expr | float) -> Expr:
    return Binary(BinaryFunction.NE, left, right if isinstance(right, Expr) else Constant(right))


def _equal(left: Expr, right: Expr | float) -> Expr:
    return Binary(BinaryFunction.EQ, left, right if isinstance(right, Expr) else Constant(right))


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
        return batch_norm_of_training(low)
    if low.images.pixels(x, of_planes=True) is not None:
        return images.normalized(low, x, (mean, variance), weight, bias, float(eps))
    factor: Expr = Unary(UnaryFunction.RSQRT, X + float(eps))
    factors = [variance] if weight is None else [variance, weight]
    factor = factor if weight is None else factor * Y
    wide = wide_type(variance.type.dtype)
    scale = low.graph.add_pointwise(factor, *factors, out_dtype=wide, name=low.label("scale"))
    operands = [mean, scale] if bias is None else [mean, scale, bias]
    expr = (X - Y) * Z if bias is None else (X - Y) * Z + Input(3)
    trailing = (1,) * (x.type.rank - 2)
    return low.pointwise(expr, x, *(low.reshape(row, (*row.type.shape, *trailing)) for row in operands))


def batch_norm_of_inference(
    low: Lowering,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node,
    variance: Node,
    momentum: float,
    eps: float,
) -> tuple[Node, None, None]:
    """Lower the overload that also returns statistics, which nothing may use."""
    return batch_norm(low, x, weight, bias, mean, variance, False, momentum, eps), None, None


def batch_norm_of_training(low: Lowering, *_: Any) -> Node:
    """Refuse a normalisation by the batch's own statistics."""
    low.refuse(
        "a batch norm by its batch's statistics, as in training mode",
        "call module.eval() first: this is for inference; one of track_running_stats=False has no others",
    )
