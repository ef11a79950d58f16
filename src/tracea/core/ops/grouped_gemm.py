"""Products of groups of rows with a matrix of each group's own, as the experts of a mixture take their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Expr, Input
from tracea.core.ops.base import Epilogue, Op, check_dim, result_type
from tracea.core.ops.gemm import accumulator_of
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["GroupedGemmOp", "grouped_rows", "grouped_value"]

Array = np.ndarray[Any, Any]
_SUM: Expr = Input(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemmOp(Op):
    """``out[rows of g] = expr(x[rows of g] @ weights[g], bias[g])``; rows of no group are zero.

    Shapes:
        x: (m, k); weights: (groups, k, n); bias: (groups, n) where there is one; result: (m, n).
        first: (parts + 1,), number: (parts,), both i32: part ``p`` is the rows ``first[p]`` to ``first[p + 1]`` and
        belongs to group ``number[p]``, or to none where that is ``groups``. ``first`` ascends from 0 to m; parts may
        be empty, and several may be of one group.

    ``Input(0)`` of ``expr`` is the sum, ``Input(1)`` the bias of the row's group. The tables are operands: one kernel
    serves every routing.
    """

    name: ClassVar[str] = "grouped_gemm"

    m: int
    n: int
    k: int
    groups: int
    parts: int
    x: TensorType
    weights: TensorType
    bias: TensorType | None = None
    expr: Expr = _SUM
    accumulator: DType = DType.F32
    out: TensorType | None = None

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "groups", "parts"):
            check_dim("grouped_gemm", name, getattr(self, name))
        wanted = {"x": (self.m, self.k), "weights": (self.groups, self.k, self.n), "bias": (self.groups, self.n)}
        given = {name: type_ for name in wanted if (type_ := getattr(self, name)) is not None}
        for name, type_ in given.items():
            if type_.shape != wanted[name]:
                raise InvalidShape(
                    field=f"grouped_gemm.{name}",
                    got=type_.shape,
                    expected=wanted[name],
                    remedy="x is (m, k), weights (groups, k, n), bias (groups, n); say a transpose by the strides",
                )
        types = [type_.dtype for type_ in given.values()]
        if not all(dtype.is_float for dtype in types):
            raise InvalidOp(
                field="grouped_gemm", got=[dtype.value for dtype in types], expected="floats", remedy="cast them"
            )
        used = self.expr.inputs()
        if used and used[-1] > int(self.bias is not None):
            raise InvalidOp(
                field="grouped_gemm.expr",
                got=f"Input({used[-1]})",
                expected="Input(0), the sum, and Input(1) where there is a bias",
                remedy="give a bias of each group",
            )
        object.__setattr__(self, "accumulator", accumulator_of(self.accumulator, self.x.dtype, self.weights.dtype))
        if result_type("grouped_gemm", self.shape, self.x.dtype, self.out) == TensorType(self.shape, self.x.dtype):
            object.__setattr__(self, "out", None)

    @classmethod
    def of(
        cls,
        *,
        m: int,
        n: int,
        k: int,
        groups: int,
        parts: int | None = None,
        dtype: DType = DType.F32,
        bias: bool = False,
        activation: str | None = None,
        out_dtype: DType | None = None,
    ) -> GroupedGemmOp:
        """Return an op of fresh row-major operands; ``parts`` None is one for each group and one for the other rows."""
        result = TensorType((m, n), out_dtype or dtype)
        given = TensorType((groups, n), result.dtype) if bias else None
        return cls(
            m=m,
            n=n,
            k=k,
            groups=groups,
            parts=groups + 1 if parts is None else parts,
            x=TensorType((m, k), dtype),
            weights=TensorType((groups, k, n), dtype),
            bias=given,
            expr=Epilogue.of(bias=given, activation=activation).expr,
            out=result,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The result's shape."""
        return (self.m, self.n)

    @property
    def tables(self) -> tuple[TensorType, TensorType]:
        """The types of ``first`` and ``number``."""
        return TensorType((self.parts + 1,), DType.I32), TensorType((self.parts,), DType.I32)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The rows, the groups' matrices, their bias if there is one, then the tables."""
        bias = () if self.bias is None else (self.bias,)
        return (self.x, self.weights, *bias, *self.tables)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("grouped_gemm", self.shape, self.x.dtype, self.out)

    @property
    def flops(self) -> int:
        """``2·m·n·k`` and the expression's arithmetic: how many rows are of no group is not known to the op."""
        return 2 * self.m * self.n * self.k + self.m * self.n * self.expr.arithmetic

    @property
    def summary(self) -> str:
        """``groups x m x n x k`` and the operands' type."""
        return f"{self.groups}x{self.m}x{self.n}x{self.k}_{self.x.dtype.value}"


def grouped_rows(op: GroupedGemmOp, arrays: Sequence[Array]) -> Iterator[tuple[slice, int]]:
    """Yield the rows of each part that is of a group, and the group's number."""
    first, number = (np.asarray(table, np.int64) for table in arrays[-2:])
    for part, group in enumerate(number):
        if group < op.groups:
            yield slice(int(first[part]), int(first[part + 1])), int(group)


def grouped_value(op: GroupedGemmOp, arrays: Sequence[Array]) -> Array:
    """Return the result in float64, part by part."""
    x, weights, *rest = arrays
    out = np.zeros(op.shape)
    for rows, group in grouped_rows(op, arrays):
        extras = () if op.bias is None else (rest[0][group],)
        out[rows] = op.expr.evaluate([x[rows] @ weights[group], *extras])
    return out
