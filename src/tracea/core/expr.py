"""Scalar expressions: what an epilogue, a prologue or a pointwise op does to one element.

``activation("relu")`` is ``Binary(MAX, Input(0), Constant(0.0))``. Inputs are numbered; an op says which tensor each
number means. An expression is a frozen tree with a bounded depth and size, so that whoever walks it may recurse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tracea.core.codec import Codec, encode
from tracea.core.doubles import double_of
from tracea.core.dtype import DType
from tracea.core.function import Array, BinaryFunction, UnaryFunction
from tracea.core.names import meant, near
from tracea.errors import InvalidOp

__all__ = [
    "MAX_DEPTH",
    "MAX_SIZE",
    "Binary",
    "BinaryFunction",
    "Cast",
    "Constant",
    "Expr",
    "Input",
    "Select",
    "Unary",
    "UnaryFunction",
    "activation",
    "activation_names",
    "cos",
    "exp",
    "maximum",
    "minimum",
    "select",
    "sigmoid",
    "sin",
    "tanh",
]

MAX_DEPTH = 128  # levels, some Python frames each: far below the recursion limit
MAX_SIZE = 4_096  # nodes: a kernel's epilogue has tens


@dataclass(frozen=True, slots=True)
class Expr:
    """A scalar expression; the subclasses are its nodes."""

    depth: int = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.parts
        depth = 1 + max((part.depth for part in parts), default=0)
        size = 1 + sum(part.size for part in parts)
        if depth > MAX_DEPTH or size > MAX_SIZE:
            raise InvalidOp(
                field="expr",
                got=f"depth {depth}, {size} nodes",
                expected=f"depth <= {MAX_DEPTH} and <= {MAX_SIZE} nodes",
                remedy="split the chain into several pointwise ops",
            )
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "size", size)

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The direct sub-expressions, in order."""
        return ()

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        """Return this node over other sub-expressions."""
        del parts
        return self

    def evaluate(self, inputs: Sequence[Any]) -> Array:
        """Return the value in NumPy float64 over broadcastable ``inputs``; a Cast rounds to its type.

        Raises:
            InvalidOp: the expression uses an input that is not there.
        """
        arrays = [np.asarray(value).astype(np.float64, copy=False) for value in inputs]
        return _evaluate(self, arrays, {})

    def inputs(self) -> tuple[int, ...]:
        """Return the indices of the inputs that are used, ascending."""
        return tuple(sorted({node.index for node in self.walk() if isinstance(node, Input)}))

    def walk(self) -> list[Expr]:
        """Return every node, operands before their users."""
        found: list[Expr] = []
        _walk(self, found)
        return found

    def substitute(self, replacements: Mapping[int, Expr]) -> Expr:
        """Return this expression with ``Input(i)`` replaced by ``replacements[i]``; other inputs stay."""
        return _substitute(self, replacements, {})

    def simplify(self) -> Expr:
        """Return an expression of the same value for every input, NaN and infinities included, with no more nodes."""
        from tracea.core.simplify import simplify  # its rules are written over the nodes of this module

        return simplify(self)

    @property
    def arithmetic(self) -> int:
        """Number of arithmetic operations for one element, each function counted as one."""
        return sum(isinstance(node, Unary | Binary | Select) for node in self.walk())

    def to_dict(self) -> dict[str, Any]:
        """Return the expression as plain JSON values."""
        return cast("dict[str, Any]", encode(self))

    @staticmethod
    def from_dict(data: Any) -> Expr:
        """Return the expression that :meth:`to_dict` wrote."""
        return Codec(EXPR_CLASSES).decode(data, Expr)

    def __bool__(self) -> bool:
        """Refuse: ``if a < b`` on expressions would be true whatever the values are."""
        raise InvalidOp(
            field="expr", got="a truth value", expected="an expression", remedy="use select(condition, a, b)"
        )

    def __neg__(self) -> Expr:
        """Negate."""
        return Unary(UnaryFunction.NEG, self)

    def __abs__(self) -> Expr:
        """Take the absolute value."""
        return Unary(UnaryFunction.ABS, self)

    def __add__(self, other: Expr | float) -> Expr:
        """Add."""
        return Binary(BinaryFunction.ADD, self, _as_expr(other))

    def __radd__(self, other: float) -> Expr:
        """Add."""
        return Binary(BinaryFunction.ADD, _as_expr(other), self)

    def __sub__(self, other: Expr | float) -> Expr:
        """Subtract."""
        return Binary(BinaryFunction.SUB, self, _as_expr(other))

    def __rsub__(self, other: float) -> Expr:
        """Subtract."""
        return Binary(BinaryFunction.SUB, _as_expr(other), self)

    def __mul__(self, other: Expr | float) -> Expr:
        """Multiply."""
        return Binary(BinaryFunction.MUL, self, _as_expr(other))

    def __rmul__(self, other: float) -> Expr:
        """Multiply."""
        return Binary(BinaryFunction.MUL, _as_expr(other), self)

    def __truediv__(self, other: Expr | float) -> Expr:
        """Divide."""
        return Binary(BinaryFunction.DIV, self, _as_expr(other))

    def __rtruediv__(self, other: float) -> Expr:
        """Divide."""
        return Binary(BinaryFunction.DIV, _as_expr(other), self)

    def __pow__(self, other: Expr | float) -> Expr:
        """Raise to a power."""
        return Binary(BinaryFunction.POW, self, _as_expr(other))

    def __lt__(self, other: Expr | float) -> Expr:
        """Compare: 1 or 0."""
        return Binary(BinaryFunction.LT, self, _as_expr(other))

    def __le__(self, other: Expr | float) -> Expr:
        """Compare: 1 or 0."""
        return Binary(BinaryFunction.LE, self, _as_expr(other))

    def __gt__(self, other: Expr | float) -> Expr:
        """Compare: 1 or 0."""
        return Binary(BinaryFunction.GT, self, _as_expr(other))

    def __ge__(self, other: Expr | float) -> Expr:
        """Compare: 1 or 0."""
        return Binary(BinaryFunction.GE, self, _as_expr(other))


@dataclass(frozen=True, slots=True)
class Input(Expr):
    """Element of the tensor that the op gives this index."""

    index: int

    def __post_init__(self) -> None:
        if self.index < 0:
            raise InvalidOp(field="index", got=self.index, expected=">= 0", remedy="number inputs from 0")
        Expr.__post_init__(self)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expr):
    """A number. Equal by bits: 0.0 is not -0.0, and NaN is NaN."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        Expr.__post_init__(self)

    def __eq__(self, other: object) -> bool:
        """Compare by bits."""
        return isinstance(other, Constant) and self.value.hex() == other.value.hex()

    def __hash__(self) -> int:
        """Hash by bits."""
        return hash((Constant, self.value.hex()))


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """A function of one operand."""

    function: UnaryFunction
    operand: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The operand."""
        return (self.operand,)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        """Return the function of another operand."""
        return Unary(self.function, parts[0])


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """A function of two operands."""

    function: BinaryFunction
    left: Expr
    right: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """Left, right."""
        return (self.left, self.right)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        """Return the function of other operands."""
        return Binary(self.function, parts[0], parts[1])


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """``if_true`` where the condition is not zero (NaN is not zero), else ``if_false``; both sides may be evaluated."""

    condition: Expr
    if_true: Expr
    if_false: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """Condition, true side, false side."""
        return (self.condition, self.if_true, self.if_false)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        """Return the choice between others."""
        return Select(parts[0], parts[1], parts[2])


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """The operand rounded to a type, as :meth:`DType.round` says."""

    operand: Expr
    dtype: DType

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The operand."""
        return (self.operand,)

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        """Return the same cast of another operand."""
        return Cast(parts[0], self.dtype)


EXPR_CLASSES: tuple[type[Expr], ...] = (Input, Constant, Unary, Binary, Select, Cast)


def _as_expr(value: Expr | float) -> Expr:
    return value if isinstance(value, Expr) else Constant(double_of(value))


def _walk(expr: Expr, found: list[Expr]) -> None:
    for part in expr.parts:
        _walk(part, found)
    found.append(expr)


def _substitute(expr: Expr, replacements: Mapping[int, Expr], done: dict[int, Expr]) -> Expr:
    if isinstance(expr, Input):
        return replacements.get(expr.index, expr)
    if id(expr) not in done:
        parts = [_substitute(part, replacements, done) for part in expr.parts]
        same = all(new is old for new, old in zip(parts, expr.parts, strict=True))
        done[id(expr)] = expr if same else expr.with_parts(parts)
    return done[id(expr)]


def _evaluate(expr: Expr, inputs: Sequence[Array], done: dict[int, Array]) -> Array:
    # Sub-expressions that are one object are computed once.
    if id(expr) not in done:
        parts = [_evaluate(part, inputs, done) for part in expr.parts]
        match expr:
            case Input(index=index) if index < len(inputs):
                value = inputs[index]
            case Constant(value=number):
                value = np.float64(number)
            case Unary(function=function):
                value = function.meaning(np.asarray(parts[0]))
            case Binary(function=function):
                value = function.meaning(parts[0], parts[1])
            case Select():
                value = np.where(parts[0] != 0.0, parts[1], parts[2])
            case Cast(dtype=dtype):
                value = dtype.round(parts[0])
            case _:
                raise InvalidOp(
                    field="expr", got=expr, expected=f"inputs 0..{len(inputs) - 1}", remedy="give every input a value"
                )
        done[id(expr)] = np.asarray(value, dtype=np.float64)
    return done[id(expr)]


def exp(x: Expr) -> Expr:
    """Return e to the power of ``x``."""
    return Unary(UnaryFunction.EXP, x)


def sin(x: Expr) -> Expr:
    """Return the sine of radians; NaN of infinities."""
    return Unary(UnaryFunction.SIN, x)


def cos(x: Expr) -> Expr:
    """Return the cosine of radians; NaN of infinities."""
    return Unary(UnaryFunction.COS, x)


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent."""
    return Unary(UnaryFunction.TANH, x)


def sigmoid(x: Expr) -> Expr:
    """Return ``1 / (1 + exp(-x))``."""
    return Unary(UnaryFunction.SIGMOID, x)


def maximum(left: Expr | float, right: Expr | float) -> Expr:
    """Return the larger; NaN if either is."""
    return Binary(BinaryFunction.MAX, _as_expr(left), _as_expr(right))


def minimum(left: Expr | float, right: Expr | float) -> Expr:
    """Return the smaller; NaN if either is."""
    return Binary(BinaryFunction.MIN, _as_expr(left), _as_expr(right))


def select(condition: Expr, if_true: Expr | float, if_false: Expr | float) -> Expr:
    """Return ``if_true`` where the condition is not zero, else ``if_false``."""
    return Select(condition, _as_expr(if_true), _as_expr(if_false))


def activation_names() -> tuple[str, ...]:
    """Return the names that :func:`activation` knows."""
    from tracea.core.activation import ACTIVATIONS  # written over the nodes of this module

    return tuple(ACTIVATIONS)


def activation(name: str) -> Expr:
    """Return an activation over ``Input(0)``; ``gelu`` is the exact one (erf), ``gelu_tanh`` the approximation.

    Raises:
        InvalidOp: the name is not known; the error lists those that are.
    """
    from tracea.core.activation import ACTIVATIONS  # written over the nodes of this module

    known = ACTIVATIONS.get(str(name))
    if known is None:
        guess = meant(near(str(name), ACTIVATIONS))
        remedy = f"{guess}name one of these, or give an expression"
        raise InvalidOp(field="activation", got=name, expected=tuple(ACTIVATIONS), remedy=remedy)
    return known
