"""What every op has: operands, a result type, counts of work and a stable key; and the epilogue that most carry."""

from __future__ import annotations

import hashlib
import json
import numbers
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from tracea.core.codec import encode
from tracea.core.dtype import DType
from tracea.core.expr import EXPR_CLASSES, Expr, Input, activation
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import TYPE_CLASSES, Dim, SymbolicDim, TensorType, bind_dims
from tracea.errors import InvalidOp, InvalidShape, InvalidStride

__all__ = ["Epilogue", "Op", "check_broadcasts", "check_dim", "is_real", "result_type"]

T = TypeVar("T", bound="Op")


def is_real(value: object) -> bool:
    """Tell whether a value is a number with an order, which True and False are not here."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real)


@dataclass(frozen=True, slots=True, kw_only=True)
class Op(ABC):
    """A logical intent: what is computed from tensors of given types, never how."""

    name: ClassVar[str] = "op"

    @property
    @abstractmethod
    def operands(self) -> tuple[TensorType, ...]:
        """Types of the input tensors, in order; an epilogue's operands come last."""

    @property
    def tables(self) -> tuple[TensorType, ...]:
        """Types of the last operands where those say which memory is read: whoever runs the op has checked them."""
        return ()

    @abstractmethod
    def infer(self) -> TensorType:
        """Return the type of the result."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Arithmetic operations, each function counted as one and a fused multiply-add as two.

        Raises:
            InvalidShape: an extent is symbolic.
        """

    @property
    def fewest_flops(self) -> int:
        """The least arithmetic by which the op's contract is kept: less than flops where an algorithm here knows it."""
        return self.flops

    @property
    def bytes(self) -> int:
        """Bytes that any kernel has to move: each distinct operand element read once, each result written once."""
        read = sum(operand.distinct_elements * operand.dtype.nbytes for operand in self.operands)
        return read + self.infer().nbytes

    @property
    def summary(self) -> str:
        """The shape and type in a few words, for names and tables."""
        result = self.infer()
        dims = "x".join(dim.name if isinstance(dim, SymbolicDim) else str(dim) for dim in result.shape) or "scalar"
        return f"{dims}_{result.dtype.value}"

    @property
    def described(self) -> str:
        """The name, the shape and what of the extents these leave open, for whoever reads it; no key depends on it."""
        return f"{self.name} {self.summary}"

    @property
    def key(self) -> str:
        """A stable identifier: equal keys mean equal ops, in every process and version of Python."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return re.sub(r"\W", "_", f"{self.name}_{self.summary}_{digest}")

    def bind(self: T, values: Mapping[str, int]) -> T:
        """Return the op with symbolic extents replaced by numbers."""
        return bind_dims(self, values)

    def to_dict(self) -> dict[str, Any]:
        """Return the op as plain JSON values; ``tracea.core.op.from_dict`` reads them."""
        return encode(self)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What happens to each result before it is stored: ``Input(0)`` is the accumulator, ``Input(i)`` operand ``i - 1``.

    Operands broadcast to the result by NumPy's rules: a bias is ``(n,)``, a residual ``(m, n)``.
    """

    expr: Expr
    operands: tuple[TensorType, ...] = ()

    def __post_init__(self) -> None:
        used = self.expr.inputs()
        if used and used[-1] > len(self.operands):
            raise InvalidOp(
                field="epilogue",
                got=f"Input({used[-1]})",
                expected=f"Input(0), the accumulator, to Input({len(self.operands)})",
                remedy="give the epilogue an operand for each input",
            )

    @staticmethod
    def identity() -> Epilogue:
        """Return the epilogue that stores the accumulator."""
        return _IDENTITY

    @staticmethod
    def of(
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        bias: TensorType | None = None,
        activation: str | None = None,
        residual: TensorType | None = None,
    ) -> Epilogue:
        """Return ``activation(alpha * accumulator + beta * bias) + residual``; operands are bias, residual."""
        expr: Expr = Input(0) if alpha == 1.0 else Input(0) * alpha
        operands: list[TensorType] = []
        if bias is not None:
            operands.append(bias)
            expr = expr + (Input(len(operands)) if beta == 1.0 else Input(len(operands)) * beta)
        if activation is not None:
            expr = _activated(activation, expr)
        if residual is not None:
            operands.append(residual)
            expr = expr + Input(len(operands))
        return Epilogue(expr, tuple(operands))

    @property
    def is_identity(self) -> bool:
        """Whether the accumulator is stored as it is."""
        return self.expr == Input(0)

    def then(self, expr: Expr, operands: tuple[TensorType, ...] = ()) -> Epilogue:
        """Return this epilogue followed by ``expr``, ``Input(0)`` of which is this one's value."""
        shift = len(self.operands)
        inputs: dict[int, Expr] = {0: self.expr}
        inputs |= {index: Input(index + shift) for index in range(1, len(operands) + 1)}
        return Epilogue(expr.substitute(inputs), self.operands + operands)

    def check(self, shape: tuple[Dim, ...], owner: str) -> None:
        """Check that every operand broadcasts to the result's shape.

        Raises:
            InvalidShape: one does not.
        """
        for index, operand in enumerate(self.operands):
            check_broadcasts(f"{owner}.epilogue.operands[{index}]", operand.shape, shape)


def check_broadcasts(
    field: str, shape: tuple[Dim, ...], result: tuple[Dim, ...], *, whose: str = "the result's", remedy: str = ""
) -> None:
    """Check that a tensor which is combined with a result as it is stored broadcasts to the result's shape.

    ``whose`` says what has that shape, where it is no result, and ``remedy`` what to do then.

    Raises:
        InvalidShape: it does not.
    """
    extents = zip(reversed(shape), reversed(result), strict=False)
    if len(shape) > len(result) or not all(extent in (1, whole) for extent, whole in extents):
        raise InvalidShape(
            field=field,
            got=_shown(shape),
            expected=f"a shape that broadcasts to {_shown(result)}, {whose}",
            remedy=remedy
            or "make each axis, counted from the last, 1 or the result's; an epilogue cannot enlarge the result",
        )


def _shown(shape: tuple[Dim, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _activated(name: str, expr: Expr) -> Expr:
    return activation(name).substitute({0: expr})


_IDENTITY = Epilogue(Input(0))
BASE_CLASSES: tuple[type, ...] = (*EXPR_CLASSES, *TYPE_CLASSES, Epilogue)


def check_dim(owner: str, field: str, dim: Dim) -> None:
    """Check that an op's own extent is a whole number >= 0 or symbolic.

    Raises:
        InvalidOp: it is not.
    """
    if isinstance(dim, SymbolicDim):
        return
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOp(
            field=f"{owner}.{field}", got=dim, expected="an extent >= 0", remedy="give a whole, non-negative extent"
        )


def result_type(owner: str, shape: tuple[Dim, ...], default: DType, out: TensorType | None) -> TensorType:
    """Return the result's type: ``out`` where the op states one, else row-major of the default type.

    Raises:
        InvalidShape: ``out`` has another shape.
        InvalidStride: two results would lie at one address.
    """
    if out is None:
        return TensorType(shape, default)
    if out.shape != shape:
        raise InvalidShape(
            field=f"{owner}.out",
            got=plain_shape(out.shape),
            expected=plain_shape(shape),
            remedy="give out the result's shape",
        )
    if out.is_static and out.overlaps_itself:
        raise InvalidStride(
            field=f"{owner}.out",
            got=out.strides,
            expected="one address per element",
            remedy="write to a tensor without broadcast axes",
        )
    return out
