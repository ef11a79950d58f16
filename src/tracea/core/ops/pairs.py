"""Two expressions side by side or in two halves: parts of complex numbers, rotary embeddings, sines and cosines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tracea.core.dtype import DType
from tracea.core.expr import Expr
from tracea.core.ops.base import Op, result_type
from tracea.core.ops.rows import check_prologue
from tracea.core.tensor_type import Dim, StridedLayout, TensorType, broadcast_shapes, static
from tracea.errors import InvalidDType, InvalidShape

__all__ = ["PairsOp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsOp(Op):
    """Two results of each place: ``out[..., 2i]`` is ``first(inputs...)`` at ``[..., i]``, ``out[..., 2i + 1]`` second.

    With ``halves`` they are ``out[..., i]`` and ``out[..., n + i]``.

    Worked example: of a, b, c and d the product of complex numbers is first = ac - bd and second = ad + bc.

    Shapes:
        the inputs broadcast by NumPy's rules to (..., n), n a number; the result is (..., 2n).
    """

    name: ClassVar[str] = "pairs"

    first: Expr
    second: Expr
    inputs: tuple[TensorType, ...]
    out_dtype: DType
    halves: bool = False
    out: TensorType | None = None

    def __post_init__(self) -> None:
        for expr in self.expressions:
            check_prologue("pairs", self.inputs, expr)
        if not self.half_shape or not isinstance(self.half_shape[-1], int):
            raise InvalidShape(
                field="pairs.inputs",
                got=self.half_shape,
                expected="(..., n), n a number",
                remedy="give the inputs a last axis of known extent",
            )
        if self.out is not None and self.out.dtype is not self.out_dtype:
            raise InvalidDType(
                field="pairs.out", got=self.out.dtype, expected=self.out_dtype, remedy="state one element type"
            )
        if self.halves and self.half_shape[-1] == 1:
            object.__setattr__(self, "halves", False)  # the two lie side by side either way
        plain = TensorType(self.shape, self.out_dtype)
        if result_type("pairs", self.shape, self.out_dtype, self.out) == plain:
            object.__setattr__(self, "out", None)

    @property
    def expressions(self) -> tuple[Expr, Expr]:
        """What the two results of a place are."""
        return self.first, self.second

    @property
    def half_shape(self) -> tuple[Dim, ...]:
        """The shape of the first results, and that of the second ones."""
        return broadcast_shapes((x.shape for x in self.inputs), field="pairs.inputs")

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (*self.half_shape[:-1], 2 * static(self.half_shape[-1]))

    @property
    def places(self) -> TensorType:
        """The result as (..., n, 2): with an axis of the two results of each place."""
        result = self.infer()
        step = static(self.half_shape[-1]) if self.halves else 1
        *before, last = result.strides
        strides = (*before, last if self.halves else 2 * last, step * last)
        return TensorType((*self.half_shape, 2), result.dtype, StridedLayout(strides))

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The inputs."""
        return self.inputs

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("pairs", self.shape, self.out_dtype, self.out)

    @property
    def flops(self) -> int:
        """The arithmetic of both expressions."""
        return self.infer().elements // 2 * (self.first.arithmetic + self.second.arithmetic)
