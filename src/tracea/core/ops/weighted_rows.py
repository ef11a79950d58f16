"""Weighted sums of rows of a table: a product by a matrix that has as many elements in each row, at places given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tracea.core.dtype import DType
from tracea.core.ops.base import Op, result_type
from tracea.core.tensor_type import Dim, TensorType, static
from tracea.errors import InvalidDType, InvalidOp, InvalidShape

__all__ = ["MOST_ROWS", "WeightedRowsOp"]

MOST_ROWS = 4096  # of a sum


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedRowsOp(Op):
    """``out[b, i] = Σ weights[i, j] · table[b, indices[i, j]]`` over j; with a row that there is not it is NaN.

    Worked example: to a line of pixels at half their distance each index has two pixels that lie next to each other,
    and the weights are 0.5 and 0.5, or 1 and 0.

    Shapes:
        table: (b, rows, columns); indices: (n, k), whole numbers; weights: (n, k); result: (b, n, columns).
    """

    name: ClassVar[str] = "weighted_rows"

    table: TensorType
    indices: TensorType
    weights: TensorType
    out: TensorType | None = None

    def __post_init__(self) -> None:
        if self.table.rank != 3 or self.indices.rank != 2 or self.weights.shape != self.indices.shape:
            operands = {"table": self.table, "indices": self.indices, "weights": self.weights}
            raise InvalidShape(
                field="weighted_rows",
                got={name: tuple(map(str, type_.shape)) for name, type_ in operands.items()},
                expected="table (b, rows, columns), indices and weights (n, k)",
                remedy="reshape them: a weight for each index",
            )
        if self.indices.dtype not in (DType.I64, DType.I32):
            raise InvalidDType(
                field="weighted_rows.indices",
                got=self.indices.dtype.value,
                expected="i64 | i32",
                remedy="convert the indices to int64",
            )
        if self.weights.dtype not in (DType.F64, DType.F32):
            raise InvalidDType(
                field="weighted_rows.weights",
                got=self.weights.dtype.value,
                expected="f64 | f32",
                remedy="convert the weights to float32",
            )
        found = result_type("weighted_rows", self.shape, self.table.dtype, self.out)
        if not (self.table.dtype.is_float and found.dtype.is_float):
            raise InvalidDType(
                field="weighted_rows",
                got=f"{self.table.dtype.value} to {found.dtype.value}",
                expected="f64 | f32 | f16 | bf16",
                remedy="convert the table to floats first",
            )
        if not 1 <= self.count <= MOST_ROWS:
            raise InvalidOp(
                field="weighted_rows.indices",
                got=self.count,
                expected=f"1 to {MOST_ROWS} rows of each sum",
                remedy="sum in parts",
            )
        if found == TensorType(self.shape, self.table.dtype):
            object.__setattr__(self, "out", None)

    @property
    def count(self) -> int:
        """The rows of each sum."""
        return static(self.indices.shape[1])

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (self.table.shape[0], self.indices.shape[0], self.table.shape[2])

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The table, the indices and the weights."""
        return (self.table, self.indices, self.weights)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("weighted_rows", self.shape, self.table.dtype, self.out)

    @property
    def flops(self) -> int:
        """Two for each element of each row that is summed."""
        return 2 * self.count * self.infer().elements
