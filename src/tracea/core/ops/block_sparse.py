"""Products with a factor most of whose blocks are zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tracea.core.dtype import DType
from tracea.core.ops.base import Op, check_dim, result_type
from tracea.core.ops.gemm import accumulator_of
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["BlockSparseOp", "block_sparse_value"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSparseOp(Op):
    """``out = a @ b`` where of b only the blocks that tables list count; what b holds elsewhere is not read.

    Shapes:
        a: (m, k); b: (k, n); result: (m, n). Blocks are (block, block), the last of each axis cut off; ``lines`` are
        the blocks of columns, ``steps`` those of the depth.
        first: (runs + 1,), line and step: (lines · steps,), all i32: run ``c·lines + g``, of line g and the c-th
        ``chunk`` blocks of the depth, has the blocks ``first[run]`` to ``first[run + 1]``, block e lying at
        ``step[e]``, ``line[e]``; the steps of a run ascend.

    The tables are operands: one kernel serves every mask.
    """

    name: ClassVar[str] = "block_sparse"

    m: int
    n: int
    k: int
    block: int
    chunk: int
    a: TensorType
    b: TensorType
    accumulator: DType = DType.F32
    out: TensorType | None = None

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            check_dim("block_sparse", name, getattr(self, name))
        for name in ("block", "chunk"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidOp(
                    field=f"block_sparse.{name}", got=getattr(self, name), expected="at least 1", remedy="block=32"
                )
        for name, shape in (("a", (self.m, self.k)), ("b", (self.k, self.n))):
            operand: TensorType = getattr(self, name)
            if operand.shape != shape:
                raise InvalidShape(
                    field=f"block_sparse.{name}",
                    got=operand.shape,
                    expected=shape,
                    remedy="a is (m, k) and b is (k, n); say a transpose by the strides",
                )
        types = (self.a.dtype, self.b.dtype)
        if not all(dtype.is_float for dtype in types):
            raise InvalidOp(
                field="block_sparse", got=[dtype.value for dtype in types], expected="floats", remedy="cast them"
            )
        object.__setattr__(self, "accumulator", accumulator_of(self.accumulator, *types))
        if result_type("block_sparse", self.shape, self.a.dtype, self.out) == TensorType(self.shape, self.a.dtype):
            object.__setattr__(self, "out", None)

    @classmethod
    def of(
        cls,
        *,
        m: int,
        n: int,
        k: int,
        block: int,
        chunk: int | None = None,
        dtype: DType = DType.F32,
        out_dtype: DType | None = None,
    ) -> BlockSparseOp:
        """Return an op of fresh row-major operands; ``chunk`` None is the whole depth."""
        result = TensorType((m, n), out_dtype or dtype)
        a, b = TensorType((m, k), dtype), TensorType((k, n), dtype)
        chunk = max(1, -(-k // block)) if chunk is None else chunk
        return cls(m=m, n=n, k=k, block=block, chunk=chunk, a=a, b=b, out=result)

    @property
    def shape(self) -> tuple[int, int]:
        """The result's shape."""
        return (self.m, self.n)

    @property
    def lines(self) -> int:
        """Blocks of columns."""
        return -(-self.n // self.block)

    @property
    def steps(self) -> int:
        """Blocks of the depth."""
        return -(-self.k // self.block)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """Both factors, then the tables."""
        return (self.a, self.b, *self.tables)

    @property
    def tables(self) -> tuple[TensorType, ...]:
        """The types of the tables: where each run of blocks begins, then of each block its line and its step."""
        room = TensorType((self.lines * self.steps,), DType.I32)
        runs = self.lines * -(-self.steps // self.chunk)
        return (TensorType((runs + 1,), DType.I32), room, room)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("block_sparse", self.shape, self.a.dtype, self.out)

    @property
    def flops(self) -> int:
        """``2·m·n·k``: what the tables leave out is not known to the op."""
        return 2 * self.m * self.n * self.k

    @property
    def summary(self) -> str:
        """``m x n x k x block x chunk`` and the operands' type."""
        return f"{self.m}x{self.n}x{self.k}x{self.block}x{self.chunk}_{self.a.dtype.value}"


def block_sparse_value(op: BlockSparseOp, arrays: Sequence[Array]) -> Array:
    """Return the product in float64, block by block as the tables list them."""
    a, b, first, line, step = arrays
    out = np.zeros(op.shape)
    for entry in range(int(first[-1])):
        rows = slice(int(step[entry]) * op.block, (int(step[entry]) + 1) * op.block)
        columns = slice(int(line[entry]) * op.block, (int(line[entry]) + 1) * op.block)
        out[:, columns] += a[:, rows] @ b[rows, columns]
    return out
