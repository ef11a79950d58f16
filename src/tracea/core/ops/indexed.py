"""Ops that walk an axis element by element, or by an index tensor: cumulative sums, rows of a table, the k largest.

Sums of rows by index are the gradient of rows of a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tracea.core.dtype import DType
from tracea.core.ops.base import Op, result_type
from tracea.core.tensor_type import Dim, TensorType, static
from tracea.errors import InvalidDType, InvalidOp, InvalidShape

__all__ = ["CumulativeSumOp", "GatherRowsOp", "LargestOp", "SumRowsOp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeSumOp(Op):
    """``out[..., i, ...] = x[..., 0, ...] + ... + x[..., i, ...]`` along ``axis``, which becomes non-negative.

    With ``backward`` element i is the sum of those from i to the last one.
    """

    name: ClassVar[str] = "cumulative_sum"

    x: TensorType
    axis: int
    backward: bool = False
    out: TensorType | None = None

    def __post_init__(self) -> None:
        rank = self.x.rank
        if not -rank <= self.axis < rank:
            raise InvalidOp(
                field="cumulative_sum.axis",
                got=self.axis,
                expected=f"an axis of rank {rank}",
                remedy="name an axis that exists",
            )
        object.__setattr__(self, "axis", self.axis % rank)
        if result_type("cumulative_sum", self.x.shape, self.x.dtype, self.out) == TensorType(
            self.x.shape, self.x.dtype
        ):
            object.__setattr__(self, "out", None)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The tensor."""
        return (self.x,)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("cumulative_sum", self.x.shape, self.x.dtype, self.out)

    @property
    def flops(self) -> int:
        """One an element."""
        return self.infer().elements


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherRowsOp(Op):
    """``out[i] = table[indices[i]]``; a row that there is not becomes NaN, of integers all bits.

    Shapes:
        table: (rows, columns); indices: (n,), whole numbers; result: (n, columns).
    """

    name: ClassVar[str] = "gather_rows"

    table: TensorType
    indices: TensorType
    out: TensorType | None = None

    def __post_init__(self) -> None:
        if self.table.rank != 2 or self.indices.rank != 1:
            raise InvalidShape(
                field="gather_rows",
                got={"table": tuple(map(str, self.table.shape)), "indices": tuple(map(str, self.indices.shape))},
                expected="table (rows, columns), indices (n,)",
                remedy="reshape them",
            )
        if self.indices.dtype not in (DType.I64, DType.I32):
            raise InvalidDType(
                field="gather_rows.indices",
                got=self.indices.dtype.value,
                expected="i64 | i32",
                remedy="convert the indices to int64",
            )
        found = result_type("gather_rows", self.shape, self.table.dtype, self.out)
        if found.dtype is not self.table.dtype:
            raise InvalidDType(
                field="gather_rows.out",
                got=found.dtype.value,
                expected=self.table.dtype.value,
                remedy="rows are copied as they are: cast the table or the result",
            )
        if found == TensorType(self.shape, self.table.dtype):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (self.indices.shape[0], self.table.shape[1])

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The table and the indices."""
        return (self.table, self.indices)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("gather_rows", self.shape, self.table.dtype, self.out)

    @property
    def flops(self) -> int:
        """None: rows are copied."""
        return 0

    @property
    def bytes(self) -> int:
        """Each index, and each row that is named once read and once written."""
        return self.indices.nbytes + 2 * self.infer().nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRowsOp(Op):
    """``out[r]`` is the sum of the rows ``x[i]`` with ``indices[i] == r``, zero where there is none, or r ``skipped``.

    The gradient of :class:`GatherRowsOp` for its table. An index that no row has adds to none.

    Shapes:
        x: (n, columns); indices: (n,), whole numbers; result: (rows, columns).
    """

    name: ClassVar[str] = "sum_rows"

    x: TensorType
    indices: TensorType
    rows: int
    skipped: int | None = None
    out: TensorType | None = None

    def __post_init__(self) -> None:
        if self.x.rank != 2 or self.indices.shape != self.x.shape[:1]:
            raise InvalidShape(
                field="sum_rows",
                got={"x": tuple(map(str, self.x.shape)), "indices": tuple(map(str, self.indices.shape))},
                expected="x (n, columns), indices (n,)",
                remedy="reshape them: an index for each row",
            )
        if self.indices.dtype not in (DType.I64, DType.I32):
            raise InvalidDType(
                field="sum_rows.indices",
                got=self.indices.dtype.value,
                expected="i64 | i32",
                remedy="convert the indices to int64",
            )
        found = result_type("sum_rows", self.shape, self.x.dtype, self.out)
        if not (self.x.dtype.is_float and found.dtype.is_float):
            raise InvalidDType(
                field="sum_rows",
                got=f"{self.x.dtype.value} to {found.dtype.value}",
                expected="f64 | f32 | f16 | bf16",
                remedy="convert x to floats first",
            )
        if self.skipped is not None and not 0 <= self.skipped < self.rows:
            raise InvalidOp(
                field="sum_rows.skipped",
                got=self.skipped,
                expected=f"a row of {self.rows}, or None",
                remedy="skipped=None",
            )
        if found == TensorType(self.shape, self.x.dtype):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (self.rows, self.x.shape[1])

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The rows and their indices."""
        return (self.x, self.indices)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("sum_rows", self.shape, self.x.dtype, self.out)

    @property
    def flops(self) -> int:
        """One an element of x."""
        return self.x.elements


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestOp(Op):
    """The places of the ``k`` largest elements of each row, or the smallest, in order; of equals the first.

    NaN is larger than all others. With as many as there are columns it sorts the rows.

    Shapes:
        x: (..., columns), k <= columns; result: (..., k) of i64.
    """

    name: ClassVar[str] = "largest"

    x: TensorType
    k: int
    smallest: bool = False
    out: TensorType | None = None

    def __post_init__(self) -> None:
        if self.x.rank == 0 or not 1 <= self.k <= static(self.x.shape[-1]):
            raise InvalidOp(
                field="largest.k",
                got=self.k,
                expected=f"1 to the columns of {self.x}",
                remedy="ask for no more than there are",
            )
        found = result_type("largest", self.shape, DType.I64, self.out)
        if found.dtype is not DType.I64:
            raise InvalidDType(
                field="largest.out", got=found.dtype.value, expected="i64", remedy="places are int64 numbers"
            )
        if found == TensorType(self.shape, DType.I64):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (*self.x.shape[:-1], self.k)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The tensor."""
        return (self.x,)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("largest", self.shape, DType.I64, self.out)

    @property
    def flops(self) -> int:
        """A comparison an element."""
        return self.x.elements
