"""The gradients of scaled dot-product attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tracea.core.derivative import derivative
from tracea.core.expr import Expr
from tracea.core.ops.attention import AttentionOp
from tracea.core.ops.base import Op
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["AttentionGradientOp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGradientOp(Op):
    """The gradients of an attention for queries, keys and values, one after the other as one row of elements.

    With the weights w of the forward op, its result y and the result's gradient g: ``dv = wᵀ g``; a score's gradient is
    ``w · (g vᵀ - delta)``, delta being the sum of ``g · y`` over a row; times the score's derivative and scale it is
    the products', from which ``dq`` and ``dk`` follow. Keys' and values' are summed over the heads that share them.

    Shapes: grad and y as the forward op's result; the result is (elements of q, k and v,), each row-major.
    """

    name: ClassVar[str] = "attention_gradient"

    forward: AttentionOp
    grad: TensorType
    y: TensorType

    def __post_init__(self) -> None:
        shape = self.forward.shape
        for name, type_ in (("grad", self.grad), ("y", self.y)):
            if type_.shape != shape:
                raise InvalidShape(
                    field=name, got=type_.shape, expected=shape, remedy="give a tensor of the result's shape"
                )
        if self.forward.spans is not None or self.forward.out is not None:
            raise InvalidOp(
                field="attention_gradient.forward",
                got="spans" if self.forward.spans is not None else "a layout of the result",
                expected="masks by position, and no result",
                remedy="leave spans and out away",
            )
        derivative(self.forward.score.expr, 0)  # raises where there is none

    @property
    def slope(self) -> Expr:
        """The score's derivative for the scaled product, simplified."""
        return derivative(self.forward.score.expr, 0).simplify()

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The result's gradient, the result, then the forward op's."""
        return (self.grad, self.y, *self.forward.operands)

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the three gradients."""
        return tuple(type_.static_shape for type_ in (self.forward.q, self.forward.k, self.forward.v))

    @property
    def offsets(self) -> tuple[int, ...]:
        """The element of the result that each gradient begins with."""
        sizes = [math.prod(shape) for shape in self.parts]
        return (0, sizes[0], sizes[0] + sizes[1])

    def infer(self) -> TensorType:
        """Return the result's type."""
        return TensorType((sum(math.prod(shape) for shape in self.parts),), self.forward.q.dtype)

    @property
    def described(self) -> str:
        """The name and the result's shape, which is flat, then the attention whose gradients these are."""
        return f"{self.name} {self.summary} of {self.forward.described}"

    @property
    def flops(self) -> int:
        """Five products, the score and its derivative over the pairs that are visible."""
        batch, heads, _, d = self.forward.q.static_shape
        dv = self.forward.v.static_shape[3]
        pair = 6 * d + 4 * dv + 9 + self.forward.score.expr.arithmetic + self.slope.arithmetic
        return batch * heads * self.forward.visible_pairs * pair
