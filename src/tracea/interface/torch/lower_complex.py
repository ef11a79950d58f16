"""Lowerings of complex numbers: a value is two tensors of its shape, its real and its imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import torch

from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input, Unary, UnaryFunction, exp, maximum, minimum
from tracea.core.expr import select as choice
from tracea.core.graph import Node
from tracea.core.op import JoinOp
from tracea.core.tensor_type import static
from tracea.interface.torch import lower_matrix as matrix
from tracea.interface.torch import lower_pointwise as pointwise
from tracea.interface.torch.lower_pools import stack
from tracea.interface.torch.lower_resizing import pad_as

if TYPE_CHECKING:
    from tracea.interface.torch.lowering import Lowering, Operand

__all__ = [
    "PARTS",
    "Complex",
    "conjugate",
    "has_complex",
    "imaginary_part",
    "nodes_of",
    "of_complex",
    "of_pairs",
    "of_parts",
    "of_polar",
    "pairs_of",
    "real_part",
]

_Lowered: TypeAlias = Callable[..., Any]

A, B, C, D = (Input(index) for index in range(4))
PARTS: Final = ("real", "imag")


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex value; a part that is a number is that everywhere."""

    real: Operand
    imag: Operand

    @classmethod
    def of(cls, operand: Any) -> Complex:
        """Return an operand of any kind as a complex one."""
        if isinstance(operand, complex):
            return cls(operand.real, operand.imag)
        return operand if isinstance(operand, Complex) else cls(operand, 0.0)

    @property
    def is_real(self) -> bool:
        """Whether the imaginary part is 0 whatever the run."""
        return not isinstance(self.imag, Node) and self.imag == 0


def has_complex(value: Any) -> bool:
    """Tell whether an argument, or a tensor of torch's, is complex or a list with something that is."""
    if isinstance(value, list | tuple):
        return any(map(has_complex, cast("Sequence[Any]", value)))
    return value.is_complex() if isinstance(value, torch.Tensor) else isinstance(value, Complex | complex)


def nodes_of(value: Any) -> list[Node]:
    """Return the graph's tensors that a lowered value is: one, two, or none."""
    parts = (value.real, value.imag) if isinstance(value, Complex) else (value,)
    return [each for each in parts if isinstance(each, Node)]


def _whole(low: Lowering, real: Operand, imag: Operand) -> Complex:
    """Return the current node's result, each part a tensor of its shape."""
    return Complex(_of_shape(low, real), _of_shape(low, imag))


def _of_shape(low: Lowering, part: Operand) -> Node:
    return low.expand(part, low.shape) if isinstance(part, Node) else low.filled(float(part), low.shape)


def of_pairs(low: Lowering, x: Node) -> Complex:
    """Lower ``view_as_complex``: the last axis holds the two parts."""
    return Complex(*(low.reshape(low.slice(x, x.type.rank - 1, part, 1), low.shape) for part in (0, 1)))


def of_parts(low: Lowering, real: Node, imag: Node) -> Complex:
    """Lower ``torch.complex``."""
    return _whole(low, real, imag)


def of_polar(low: Lowering, size: Node, angle: Node) -> Complex:
    """Lower ``size * exp(i angle)``."""
    functions = (UnaryFunction.COS, UnaryFunction.SIN)
    return Complex(*(low.pointwise(A * Unary(each, B), size, angle) for each in functions))


def of_complex(low: Lowering, name: str, arguments: Sequence[Any], lowering: _Lowered | None) -> Any:
    """Lower an operator of complex operands, which is ``lowering`` where they are real."""
    known = lowering if name in _OF_COMPLEX_ALONE else _OPERATORS.get(name)
    if known is not None:
        return known(low, *arguments)
    if lowering is None or name not in _BY_PART:
        low.refuse(
            "complex numbers in an operator that takes none",
            "write it with real and imaginary parts (x.real, x.imag), or call it outside of the optimized module",
        )
    return _by_part(low, lowering, arguments)


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


# Arithmetic.


def add(low: Lowering, left: Any, right: Any, alpha: Any = 1) -> Complex:
    """Lower ``left + alpha * right``."""
    a, b = Complex.of(left), Complex.of(right)
    if alpha != 1:
        b = _product(low, b, Complex.of(alpha))
    return _whole(low, _sum(low, A + B, a.real, b.real), _sum(low, A + B, a.imag, b.imag))


def sub(low: Lowering, left: Any, right: Any, alpha: Any = 1) -> Complex:
    """Lower ``left - alpha * right``."""
    a, b = Complex.of(left), Complex.of(right)
    if alpha != 1:
        b = _product(low, b, Complex.of(alpha))
    return _whole(low, _sum(low, A - B, a.real, b.real), _sum(low, A - B, a.imag, b.imag))


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
    return _product(low, Complex.of(left), Complex.of(right), whole=True)


def _product(low: Lowering, x: Complex, y: Complex, *, whole: bool = False) -> Complex:
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
    return _whole(low, *parts) if whole else Complex(*parts)


def _times(low: Lowering, left: Operand, right: Operand, *, negated: bool = False) -> Operand:
    if isinstance(left, Node) or isinstance(right, Node):
        return low.pointwise(-(A * B) if negated else A * B, left, right)
    return -left * right if negated else left * right


def div(low: Lowering, left: Any, right: Any) -> Complex:
    """Lower a quotient; the divisor is scaled by its larger part, so that no square leaves the range of the type."""
    x, y = Complex.of(left), Complex.of(right)
    if y.is_real:
        return _whole(low, *(low.pointwise(A / B, part, y.real) for part in (x.real, x.imag)))
    four = (x.real, x.imag, y.real, y.imag)
    size = maximum(_size(C), _size(D))
    c, d = C / size, D / size
    below = C * c + D * d
    real = low.pointwise((A * c + B * d) / below, *four)
    return _whole(low, real, low.pointwise((B * c - A * d) / below, *four))


def reciprocal(low: Lowering, x: Complex) -> Complex:
    """Lower ``1 / x``."""
    return div(low, 1.0, x)


def absolute(low: Lowering, x: Complex) -> Node:
    """Lower the absolute value; the larger part is taken out, so that no square leaves the range of the type."""
    large, small = maximum(_size(A), _size(B)), minimum(_size(A), _size(B))
    ratio = choice(Binary(BinaryFunction.GT, large, Constant(0.0)), small / large, 0.0)
    size = large * Unary(UnaryFunction.SQRT, ratio * ratio + 1.0)
    infinite = Binary(BinaryFunction.EQ, large, Constant(float("inf")))
    return low.pointwise(choice(infinite, large, size), x.real, x.imag)


def _size(x: Expr) -> Expr:
    return Unary(UnaryFunction.ABS, x)


def conjugate(low: Lowering, x: Complex) -> Complex:
    """Lower ``real - i imag``."""
    return Complex(x.real, -x.imag if not isinstance(x.imag, Node) else low.pointwise(-A, x.imag))


def exponential(low: Lowering, x: Complex) -> Complex:
    """Lower ``exp(real) (cos(imag) + i sin(imag))``."""
    functions = (UnaryFunction.COS, UnaryFunction.SIN)
    return _whole(low, *(low.pointwise(exp(A) * Unary(each, B), x.real, x.imag) for each in functions))


def power(low: Lowering, x: Complex, exponent: Any) -> Complex:
    """Lower a square; no other power."""
    number = low.number_of(exponent) if not isinstance(exponent, complex) else exponent
    if number != 2:
        low.refuse("a power of complex numbers other than the square", "write it as products")
    return mul(low, x, x)


def square(low: Lowering, x: Complex) -> Complex:
    """Lower ``x * x``."""
    return mul(low, x, x)


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
    if not shape or not all(part.type.is_static and part.type.elements for part in parts):
        return stack(low, parts, -1)
    before, last = (0,) * (len(shape) - 1), static(shape[-1])
    op = JoinOp(
        parts=tuple(part.type for part in parts),
        starts=tuple((*before, first) for first in range(len(PARTS))),
        steps=((*(1 for _ in before), len(PARTS)),) * len(PARTS),
        shape=(*map(static, shape[:-1]), len(PARTS) * last),
    )
    return low.reshape(low.graph.add(op, parts, name=low.label("pairs")), low.shape)


def pad(low: Lowering, x: Complex, amounts: Sequence[int], mode: Any = "constant", value: Any = None) -> Complex:
    """Lower ``F.pad``; a value is that of the real part."""
    values = (mode, 0.0) if not isinstance(mode, str) else (value, 0.0)  # of constant_pad_nd, which has no mode
    kind = mode if isinstance(mode, str) else "constant"
    parts = zip(nodes_of(x), values, strict=True)
    return Complex(*(pad_as(low, part, amounts, kind, each) for part, each in parts))


def real_part(low: Lowering, x: Any) -> Node:
    """Lower the real part; of what is real, all."""
    return _of_shape(low, Complex.of(x).real)


def imaginary_part(low: Lowering, x: Complex) -> Node:
    """Lower the imaginary part."""
    return _of_shape(low, x.imag)


def convert(low: Lowering, x: Any, dtype: Any = None, *others: Any) -> Any:
    """Lower a conversion to a complex type; to a real one the imaginary part is dropped, as torch does."""
    del others
    given = Complex.of(x)
    real = pointwise.convert(low, cast("Node", given.real))
    if dtype is not None and not dtype.is_complex:
        return real
    return _whole(low, real, pointwise.convert(low, given.imag) if isinstance(given.imag, Node) else given.imag)


_OPERATORS: Final[dict[str, _Lowered]] = {
    "aten.abs.default": absolute,
    "aten.exp.default": exponential,
    "aten.square.default": square,
    "aten.pow.Tensor_Scalar": power,
    "aten.reciprocal.default": reciprocal,
    "aten.to.dtype": convert,
    "aten._to_copy.default": convert,
    "aten.linear.default": linear,
    "aten.pad.default": pad,
    "aten.constant_pad_nd.default": pad,
    **{f"aten.{name}.default": matmul for name in ("matmul", "mm", "bmm", "mv", "dot")},
    **{
        f"aten.{name}.{kind}": lowering
        for name, lowering in {"add": add, "sub": sub, "rsub": rsub, "mul": mul, "div": div}.items()
        for kind in ("Tensor", "Scalar")
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
_BY_PART: Final = {f"aten.{name}.default" for name in _WHOLE.split()} | {
    f"aten.{name}"
    for name in (
        *("flatten.using_ints", "unflatten.int", "squeeze.dim", "squeeze.dims", "transpose.int", "movedim.int"),
        *("movedim.intlist", "select.int", "slice.Tensor", "split.Tensor", "split.sizes", "unbind.int"),
        *("index.Tensor", "sum.dim_IntList", "mean.dim"),
    )
}
