"""Products with a factor that is itself a product of two thin ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from tracea.core.dtype import DType
from tracea.core.ops.base import Epilogue, Op, check_dim, result_type
from tracea.core.ops.gemm import accumulator_of
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import Dim, TensorType, static
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["LowRankOp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRankOp(Op):
    """``out = epilogue((x @ a) @ b)``, of ``2·m·r·(k + n)`` operations instead of the ``2·m·k·n`` of ``x @ (a @ b)``.

    Shapes:
        x: (m, k); a: (k, r); b: (r, n); result: (m, n).

    Both sums are kept in ``accumulator``, and so is ``x @ a`` between them: it is never rounded to a narrower type.
    """

    name: ClassVar[str] = "low_rank"

    m: Dim
    n: Dim
    k: Dim
    r: Dim
    x: TensorType
    a: TensorType
    b: TensorType
    epilogue: Epilogue = field(default_factory=Epilogue.identity)
    accumulator: DType = DType.F32
    out: TensorType | None = None

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "r"):
            check_dim("low_rank", name, getattr(self, name))
        for name, shape in (("x", (self.m, self.k)), ("a", (self.k, self.r)), ("b", (self.r, self.n))):
            operand: TensorType = getattr(self, name)
            if operand.shape != shape:
                raise InvalidShape(
                    field=f"low_rank.{name}",
                    got=plain_shape(operand.shape),
                    expected=plain_shape(shape),
                    remedy="x is (m, k), a is (k, r) and b is (r, n); say a transpose by the strides",
                )
        types = (self.x.dtype, self.a.dtype, self.b.dtype)
        if not all(dtype.is_float for dtype in types):
            raise InvalidOp(
                field="low_rank", got=[dtype.value for dtype in types], expected="floats", remedy="cast the operands"
            )
        object.__setattr__(self, "accumulator", accumulator_of(self.accumulator, *types))
        self.epilogue.check(self.shape, "low_rank")
        if result_type("low_rank", self.shape, self.x.dtype, self.out) == TensorType(self.shape, self.x.dtype):
            object.__setattr__(self, "out", None)

    @classmethod
    def of(
        cls,
        *,
        m: Dim,
        n: Dim,
        k: Dim,
        r: Dim,
        dtype: DType = DType.F32,
        bias: bool = False,
        activation: str | None = None,
        out_dtype: DType | None = None,
    ) -> LowRankOp:
        """Return an op of fresh row-major operands; ``bias`` is (n,)."""
        result = TensorType((m, n), out_dtype or dtype)
        return cls(
            m=m,
            n=n,
            k=k,
            r=r,
            x=TensorType((m, k), dtype),
            a=TensorType((k, r), dtype),
            b=TensorType((r, n), dtype),
            epilogue=Epilogue.of(
                bias=TensorType((n,), result.dtype) if bias else None,
                activation=activation,
            ),
            out=result,
        )

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (self.m, self.n)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The rows, both factors, then the epilogue's."""
        return (self.x, self.a, self.b, *self.epilogue.operands)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("low_rank", self.shape, self.x.dtype, self.out)

    @property
    def flops(self) -> int:
        """``2·m·r·(k + n)`` and the epilogue's arithmetic."""
        m, n, k, r = (static(dim) for dim in (self.m, self.n, self.k, self.r))
        return 2 * m * r * (k + n) + prod((m, n)) * self.epilogue.expr.arithmetic

    @property
    def summary(self) -> str:
        """``m x n x k x r`` and the operands' type."""
        dims = "x".join(str(getattr(dim, "name", dim)) for dim in (self.m, self.n, self.k, self.r))
        return f"{dims}_{self.x.dtype.value}"
