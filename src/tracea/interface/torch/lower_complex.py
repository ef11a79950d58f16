"""Lowerings of complex numbers: a value is two tensors of its shape, its real and its imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import torch

from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, Unary, UnaryFunction, exp, maximum, minimum
from tracea.core.expr import select as choice
from tracea.core.graph import Node
from tracea.interface.torch import lower_complex_choices as choices
from tracea.interface.torch import lower_matrix as matrix
from tracea.interface.torch import lower_pointwise as pointwise
from tracea.interface.torch import lower_statistics as statistics
from tracea.interface.torch.complex_value import PARTS, Complex, has_complex, nodes_of, of_shape, whole
from tracea.interface.torch.lower_pools import stack
from tracea.interface.torch.lower_resizing import pad_as

if TYPE_CHECKING:
    from tracea.interface.torch.lowering import Lowering, Operand

__all__ = [
    "conjugate",
    "imaginary_part",
    "of_complex",
    "of_pairs",
    "of_parts",
    "of_polar",
    "pairs_of",
    "real_part",
]

_Lowered: TypeAlias = Callable[..., Any]

A, B, C, D = (Input(index) for index in range(4))


def of_pairs(low: Lowering, x: Node) -> Complex:
    """Lower ``view_as_complex``: the last axis holds the two parts."""
    return Complex(*(low.reshape(low.slice(x, x.type.rank - 1, part, 1), low.shape) for part in (0, 1)))


def of_parts(low: Lowering, real: Node, imag: Node) -> Complex:
    """Lower ``torch.complex``."""
    return whole(low, real, imag)


def of_polar(low: Lowering, size: Node, angle: Node) -> Complex:
    """Lower ``size * exp(i angle)``."""
    functions = (UnaryFunction.COS, UnaryFunction.SIN)
    return Complex(*(low.pointwise(A * Unary(each, B), size, angle) for each in functions))


def of_complex(
    low: Lowering, name: str, arguments: Sequence[Any], lowering: _Lowered | None, *, to_complex: bool
) -> Any:
    """Lower an operator of complex operands or results, which is ``lowering`` where they are real.

    ``to_complex`` says that the result is complex.
    """
    known = lowering if name in _OF_COMPLEX_ALONE else _OPERATORS.get(name)
    if known is not None:
        return known(low, *arguments)
    if not to_complex:
        low.refuse("complex numbers in an operator of real ones", "say which are meant: z.real, z.imag or z.abs()")
    if lowering is not None and name in _BY_PART and not has_complex(arguments):  # such as x.sum(dtype=torch.cfloat)
        return whole(low, lowering(low, *arguments), 0.0)
    if lowering is None or name not in _BY_PART:
        low.refuse(
            "complex numbers in an operator that takes none",
            "write it with real and imaginary parts (x.real, x.imag), or call it outside of the optimized module",
        )
    return _by_part(low, lowering, [_beside(low, each) for each in arguments] if name in _INTO else arguments)


def _by_part(low: Lowering, lowering: _Lowered, arguments: Sequence[Any]) -> Complex | list[Complex]:
    """Lower what is done to both parts alike; a real tensor among complex ones has an imaginary part of 0."""
    results: list[Any] = [lowering(low, *(_part(low, each, side) for each in arguments)) for side in PARTS]
    several = cast("list[list[Node]]", [each if isinstance(each, list) else [each] for each in results])
    made = [Complex(real, imag) for real, imag in zip(*several, strict=True)]
    return made if isinstance(results[0], list) else made[0]


def _part(low: Lowering, argument: Any, side: str) -> Any:
    if isinstance(argument, Complex):
        part = getattr(argument, side)
        return part if isinstance(part, Node) else low.filled(float(part), low.shape)
    if isinstance(argument, complex):
        return getattr(argument, side)
    items = cast("list[Any]", argument if isinstance(argument, list) else [])
    if any(isinstance(each, Complex) for each in items):
        return [_part(low, _beside(low, each), side) for each in items]
    return cast("Any", argument)


def _beside(low: Lowering, tensor: Any) -> Any:
    """Return a real tensor among complex ones as one of them."""
    if not isinstance(tensor, Node):
        return tensor
    cast_ = low.cast(tensor, low.dtype)
    return Complex(cast_, low.filled(0.0, tensor.type.shape))


def adjoint(low: Lowering, x: Complex) -> Complex:
    """Lower the conjugate of each matrix, transposed."""
    return Complex(*map(low.transpose, nodes_of(conjugate(low, x))))


# Arithmetic.


def add(low: Lowering, left: Any, right: Any, alpha: Any = 1) -> Complex:
    """Lower ``left + alpha * right``."""
    a, b = Complex.of(left), Complex.of(right)
    if alpha != 1:
        b = _product(low, b, Complex.of(alpha))
    return whole(low, _sum(low, A + B, a.real, b.real), _sum(low, A + B, a.imag, b.imag))


def sub(low: Lowering, left: Any, right: Any, alpha: Any = 1) -> Complex:
    """Lower ``left - alpha * right``."""
    a, b = Complex.of(left), Complex.of(right)
    if alpha != 1:
        b = _product(low, b, Complex.of(alpha))
    return whole(low, _sum(low, A - B, a.real, b.real), _sum(low, A - B, a.imag, b.imag))


def rsub(low: Lowering, left: Any, right: Any, alpha: Any = 1) -> Complex:
    """Lower ``right - alpha * left``."""
    return sub(low, right, left, alpha)


def _sum(low: Lowering, expr: Expr, left: Operand, right: Operand) -> Operand:
    """Return a sum or difference of parts; nothing is computed where one is the number 0."""
    if not isinstance(right, Node) and right == 0:
        return left
    if isinstance(left, Node) or isinstance(right, Node):
        return low.pointwise(expr, left, right)
    return left + right if expr == A + B else left - right


def mul(low: Lowering, left: Any, right: Any) -> Complex:
    """Lower ``(a + ib)(c + id) = (ac - bd) + i(ad + bc)``."""
    return _product(low, Complex.of(left), Complex.of(right), as_result=True)


def _product(low: Lowering, x: Complex, y: Complex, *, as_result: bool = False) -> Complex:
    if x.is_real:
        x, y = y, x
    if y.is_real:
        parts = _times(low, x.real, y.real), _times(low, x.imag, y.real)
    elif not isinstance(y.real, Node) and y.real == 0:  # i times a number or tensor
        parts = _times(low, x.imag, y.imag, negated=True), _times(low, x.real, y.imag)
    else:
        four = (x.real, x.imag, y.real, y.imag)
        if not any(isinstance(each, Node) for each in four):
            low.refuse("a product of numbers alone", "compute it once, outside of forward")
        parts = low.pointwise(A * C - B * D, *four), low.pointwise(A * D + B * C, *four)
    return whole(low, *parts) if as_result else Complex(*parts)


def _times(low: Lowering, left: Operand, right: Operand, *, negated: bool = False) -> Operand:
    if isinstance(left, Node) or isinstance(right, Node):
        return low.pointwise(-(A * B) if negated else A * B, left, right)
    return -left * right if negated else left * right


def div(low: Lowering, left: Any, right: Any) -> Complex:
    """Lower a quotient, by the larger part of the divisor as torch does (Smith 1962): no square leaves the range."""
    x, y = Complex.of(left), Complex.of(right)
    if y.is_real:
        return whole(low, *(low.pointwise(A / B, part, y.real) for part in (x.real, x.imag)))
    four = (x.real, x.imag, y.real, y.imag)
    is_first = Binary(BinaryFunction.GE, _size(C), _size(D))
    ratio = choice(is_first, D, C) / choice(is_first, C, D)
    scale = 1.0 / choice(is_first, C + D * ratio, D + C * ratio)
    is_zero = Binary(BinaryFunction.EQ, maximum(_size(C), _size(D)), Constant(0.0))
    real = choice(is_first, A + B * ratio, A * ratio + B) * scale
    imag = choice(is_first, B - A * ratio, B * ratio - A) * scale
    parts = choice(is_zero, A / _size(C), real), choice(is_zero, B / _size(D), imag)
    return whole(low, *(low.pointwise(part, *four) for part in parts))


def reciprocal(low: Lowering, x: Complex) -> Complex:
    """Lower ``1 / x``."""
    return div(low, 1.0, x)


def absolute(low: Lowering, x: Complex) -> Node:
    """Lower the absolute value; the larger part is taken out, so that no square leaves the range of the type."""
    large, small = maximum(_size(A), _size(B)), minimum(_size(A), _size(B))
    ratio = choice(Binary(BinaryFunction.GT, large, Constant(0.0)), small / large, 0.0)
    size = large * Unary(UnaryFunction.SQRT, ratio * ratio + 1.0)
    infinite = Constant(float("inf"))
    is_infinite = Binary(BinaryFunction.MAX, *(Binary(BinaryFunction.EQ, _size(part), infinite) for part in (A, B)))
    return low.pointwise(choice(is_infinite, infinite, size), x.real, x.imag)


def _size(x: Expr) -> Expr:
    return Unary(UnaryFunction.ABS, x)


def conjugate(low: Lowering, x: Complex | Node) -> Complex | Node:
    """Lower ``real - i imag``; what is real stays as it is."""
    if isinstance(x, Node):
        return x
    return Complex(x.real, -x.imag if not isinstance(x.imag, Node) else low.pointwise(-A, x.imag))


def exponential(low: Lowering, x: Complex) -> Complex:
    """Lower ``exp(real) (cos(imag) + i sin(imag))``."""
    turned = exp(A) * Unary(UnaryFunction.SIN, B)
    imag = choice(Binary(BinaryFunction.EQ, B, Constant(0.0)), B, turned)  # also of an infinite real part
    parts = exp(A) * Unary(UnaryFunction.COS, B), imag
    return whole(low, *(low.pointwise(part, x.real, x.imag) for part in parts))


def power(low: Lowering, x: Complex, exponent: Any) -> Complex:
    """Lower a square; no other power."""
    number = low.number_of(exponent) if not isinstance(exponent, complex) else exponent
    if number != 2:
        low.refuse("a power of complex numbers other than the square", "write it as products")
    return mul(low, x, x)


def square(low: Lowering, x: Complex) -> Complex:
    """Lower ``x * x``."""
    return mul(low, x, x)


def vector_norm(low: Lowering, x: Complex, *others: Any) -> Node:
    """Lower the norm of a vector: that of its absolute values."""
    return statistics.vector_norm(low, absolute(low, x), *others)


# Products of matrices.


def matmul(low: Lowering, left: Complex, right: Complex) -> Complex:
    """Lower a product, four of real matrices; torch takes no complex and real ones."""
    a, b, c, d = (cast("Node", part) for each in (left, right) for part in (each.real, each.imag))
    real = low.pointwise(A - B, matrix.matmul(low, a, c), matrix.matmul(low, b, d))
    return Complex(real, low.pointwise(A + B, matrix.matmul(low, a, d), matrix.matmul(low, b, c)))


def linear(low: Lowering, x: Complex, weight: Complex, bias: Complex | None = None) -> Complex:
    """Lower ``x @ weight.T + bias``."""
    product = matmul(low, x, Complex(*map(low.transpose, nodes_of(weight))))
    return product if bias is None else add(low, product, bias)


# Parts and types.


def pairs_of(low: Lowering, x: Complex) -> Node:
    """Lower ``view_as_real``: the parts side by side in a new last axis; who makes one writes every other element."""
    shape = low.shape[:-1]
    parts = [part if isinstance(part, Node) else low.filled(float(part), shape) for part in (x.real, x.imag)]
    return stack(low, parts, -1)


def pad(low: Lowering, x: Complex, amounts: Sequence[int], mode: Any = "constant", value: Any = None) -> Complex:
    """Lower ``F.pad``; a value is that of the real part."""
    values = (mode, 0.0) if not isinstance(mode, str) else (value, 0.0)  # of constant_pad_nd, which has no mode
    kind = mode if isinstance(mode, str) else "constant"
    parts = zip(nodes_of(x), values, strict=True)
    return Complex(*(pad_as(low, part, amounts, kind, each) for part, each in parts))


def real_part(low: Lowering, x: Any) -> Node:
    """Lower the real part; of what is real, all."""
    return of_shape(low, Complex.of(x).real)


def imaginary_part(low: Lowering, x: Complex) -> Node:
    """Lower the imaginary part."""
    return of_shape(low, x.imag)


def convert(low: Lowering, x: Any, dtype: Any = None, *others: Any) -> Any:
    """Lower a conversion to a complex type; to a real one the imaginary part is dropped, but to bool, as torch does."""
    del others
    given = Complex.of(x)
    if dtype is torch.bool:
        return choices.unequal(low, given, 0.0)
    real = pointwise.convert(low, cast("Node", given.real))
    if dtype is not None and not dtype.is_complex:
        return real
    return whole(low, real, pointwise.convert(low, given.imag) if isinstance(given.imag, Node) else given.imag)


_KINDS: Final = ("Tensor", "Scalar")
_OPERATORS: Final[dict[str, _Lowered]] = {
    "aten.abs.default": absolute,
    "aten.exp.default": exponential,
    "aten.square.default": square,
    "aten.pow.Tensor_Scalar": power,
    "aten.reciprocal.default": reciprocal,
    "aten.to.dtype": convert,
    "aten._to_copy.default": convert,
    "aten.linear.default": linear,
    **dict.fromkeys(("aten.mH.default", "aten.adjoint.default"), adjoint),
    "aten.linalg_vector_norm.default": vector_norm,
    "aten.isnan.default": choices.isnan,
    "aten.zeros_like.default": choices.zeros,
    "aten.ones_like.default": choices.ones,
    **{f"aten.where.{kind}": choices.where for kind in ("self", "ScalarOther", "ScalarSelf")},
    **{f"aten.eq.{kind}": choices.equal for kind in _KINDS},
    **{f"aten.ne.{kind}": choices.unequal for kind in _KINDS},
    **dict.fromkeys(("aten.masked_fill.Scalar", "aten.masked_fill.Tensor"), choices.masked_fill),
    **dict.fromkeys(("aten.full_like.default", "aten.fill.Scalar", "aten.fill.Tensor"), choices.filled),
    "aten.pad.default": pad,
    "aten.constant_pad_nd.default": pad,
    **{f"aten.{name}.default": matmul for name in ("matmul", "mm", "bmm", "mv", "dot")},
    **{
        f"aten.{name}.{kind}": lowering
        for name, lowering in {"add": add, "sub": sub, "rsub": rsub, "mul": mul, "div": div}.items()
        for kind in _KINDS
    },
}

_OF_COMPLEX_ALONE: Final = frozenset(
    f"aten.{name}.default"
    for name in ("view_as_complex", "view_as_real", "complex", "polar", "real", "imag", "_conj", "conj_physical")
)

_WHOLE: Final = """
    view reshape _unsafe_view view_as reshape_as ravel squeeze unsqueeze permute t swapaxes numpy_T mT expand expand_as
    broadcast_to narrow unfold chunk split_with_sizes contiguous clone detach alias lift_fresh_copy repeat flip
    resolve_conj resolve_neg cat concat stack index_select embedding gather take_along_dim sum mean
    cumsum neg slice_scatter select_scatter
"""
_INTO: Final = frozenset(("aten.slice_scatter.default", "aten.select_scatter.default"))  # whose tensors are all numbers
_BY_PART: Final = {f"aten.{name}.default" for name in _WHOLE.split()} | {
    f"aten.{name}"
    for name in (
        *("flatten.using_ints", "unflatten.int", "squeeze.dim", "squeeze.dims", "transpose.int", "movedim.int"),
        *("movedim.intlist", "select.int", "slice.Tensor", "split.Tensor", "split.sizes", "unbind.int"),
        *("index.Tensor", "sum.dim_IntList", "mean.dim"),
    )
}
