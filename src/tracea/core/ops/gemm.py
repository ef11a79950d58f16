"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import ClassVar

from tracea.core.dtype import DType
from tracea.core.ops.base import Epilogue, Op, check_dim, result_type
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import Dim, StridedLayout, TensorType, broadcast_shapes, static
from tracea.errors import InvalidDType, InvalidOp, InvalidShape

__all__ = ["GemmOp", "MatrixMath", "accumulator_of"]


class MatrixMath(Enum):
    """How the factors enter the products: as they are stored, or rounded first, which the accuracy contract knows."""

    IEEE = "ieee"
    TF32 = "tf32"  # f32 rounded to 10 bits of fraction, ties away from zero (PTX cvt.rna.tf32)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmOp(Op):
    """``out = epilogue(a @ b)`` over leading batch axes; a transpose is a layout of ``a`` or ``b``.

    Shapes:
        a: batch + (m, k); b: batch + (k, n), batch axes broadcastable; result: batch + (m, n).

    Sums are kept in ``accumulator``: f32 for f32, f16 and bf16, and f64 as soon as an operand is f64, i32 for 8-bit
    integers. ``math`` allows f32 factors to be rounded to TF32 first: the reference rounds them too. An ``out`` that
    says the default (row-major, a's type) becomes None. With ``k == 0`` the sum is 0.
    """

    name: ClassVar[str] = "gemm"

    m: Dim
    n: Dim
    k: Dim
    batch: tuple[Dim, ...] = ()
    a: TensorType
    b: TensorType
    epilogue: Epilogue = field(default_factory=Epilogue.identity)
    accumulator: DType = DType.F32
    out: TensorType | None = None
    math: MatrixMath = MatrixMath.IEEE

    def __post_init__(self) -> None:
        if self.math is MatrixMath.TF32 and not self.a.dtype is self.b.dtype is DType.F32:
            raise InvalidDType(
                field="gemm.math",
                got=f"tf32 of {self.a.dtype.value} and {self.b.dtype.value}",
                expected="f32 factors",
                remedy="leave math at ieee for other types",
            )
        for name, dim in (("m", self.m), ("n", self.n), ("k", self.k), *(("batch", dim) for dim in self.batch)):
            check_dim("gemm", name, dim)
        self._check_operand("a", self.a, (self.m, self.k))
        self._check_operand("b", self.b, (self.k, self.n))
        object.__setattr__(self, "accumulator", accumulator_of(self.accumulator, self.a.dtype, self.b.dtype))
        self.epilogue.check(self.shape, "gemm")
        if result_type("gemm", self.shape, self.a.dtype, self.out) == TensorType(self.shape, self.a.dtype):
            object.__setattr__(self, "out", None)

    def _check_operand(self, name: str, operand: TensorType, matrix: tuple[Dim, Dim]) -> None:
        fits = operand.rank >= 2 and operand.shape[-2:] == matrix and operand.rank - 2 <= len(self.batch)
        if not fits or broadcast_shapes((self.batch, operand.shape[:-2]), field=f"gemm.{name}") != self.batch:
            raise InvalidShape(
                field=f"gemm.{name}",
                got=plain_shape(operand.shape),
                expected=f"batch {plain_shape(self.batch)} + {plain_shape(matrix)}",
                remedy="a is batch + (m, k) and b is batch + (k, n); say a transpose by the strides",
            )

    @classmethod
    def of(
        cls,
        *,
        m: Dim,
        n: Dim,
        k: Dim,
        dtype: DType = DType.F32,
        batch: tuple[Dim, ...] = (),
        transpose_a: bool = False,
        transpose_b: bool = False,
        alpha: float = 1.0,
        bias: bool | TensorType = False,
        activation: str | None = None,
        residual: bool | TensorType = False,
        out_dtype: DType | None = None,
        math: MatrixMath = MatrixMath.IEEE,
    ) -> GemmOp:
        """Return a product of fresh operands; ``transpose_b`` stores b as batch + (n, k), as ``torch.nn.Linear`` does.

        ``bias=True`` is (n,) and ``residual=True`` is batch + (m, n), both of the result's type.
        """
        result = TensorType((*batch, m, n), out_dtype or dtype)
        bias_type = TensorType((n,), result.dtype) if bias is True else bias or None
        residual_type = result if residual is True else residual or None
        return cls(
            m=m,
            n=n,
            k=k,
            batch=batch,
            a=_matrix(batch, m, k, dtype, transpose_a),
            b=_matrix(batch, k, n, dtype, transpose_b),
            epilogue=Epilogue.of(alpha=alpha, bias=bias_type, activation=activation, residual=residual_type),
            out=result,
            math=math,
        )

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (*self.batch, self.m, self.n)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """Both factors, then the epilogue's."""
        return (self.a, self.b, *self.epilogue.operands)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("gemm", self.shape, self.a.dtype, self.out)

    @property
    def flops(self) -> int:
        """``2·m·n·k`` per batch and the epilogue's arithmetic."""
        results = prod(static(dim) for dim in self.shape)
        return results * (2 * static(self.k) + self.epilogue.expr.arithmetic)

    @property
    def summary(self) -> str:
        """``m x n x k`` and the operands' type."""
        dims = "x".join(str(getattr(dim, "name", dim)) for dim in (*self.batch, self.m, self.n, self.k))
        return f"{dims}_{self.a.dtype.value}"


def accumulator_of(stated: DType, *operands: DType) -> DType:
    """Return the type that sums of products of ``operands`` are kept in.

    Raises:
        InvalidDType: integers and floats are mixed, or the stated accumulator cannot hold the operands.
    """
    floats = [dtype for dtype in operands if dtype.is_float]
    if floats and len(floats) != len(operands):
        raise InvalidDType(
            field="operands",
            got=[dtype.value for dtype in operands],
            expected="all floats or all integers",
            remedy="cast one side",
        )
    if DType.F64 in operands:
        wanted = DType.F64
    elif floats:
        wanted = stated
    else:
        wanted = DType.I64 if DType.I64 in operands else DType.I32
    if wanted not in (DType.F32, DType.F64, DType.I32, DType.I64) or wanted.is_float != bool(floats):
        raise InvalidOp(
            field="accumulator", got=stated, expected="f32 or f64 for floats", remedy="accumulate in f32 or wider"
        )
    return wanted


def _matrix(batch: tuple[Dim, ...], rows: Dim, columns: Dim, dtype: DType, transposed: bool) -> TensorType:
    if not transposed:
        return TensorType((*batch, rows, columns), dtype)
    stored = TensorType((*batch, columns, rows), dtype).strides
    return TensorType((*batch, rows, columns), dtype, StridedLayout((*stored[:-2], stored[-1], stored[-2])))
