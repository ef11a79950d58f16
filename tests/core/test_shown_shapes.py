"""Messages show extents as the numbers that they are, and symbolic ones by their names."""

from __future__ import annotations

import pytest

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.core.ops.base import result_type
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import SymbolicDim, TensorType
from tracea.errors import InvalidShape


def test_extents_are_numbers_and_names() -> None:
    assert plain_shape((SymbolicDim("rows"), 46)) == ("rows", 46)


def test_a_refused_operand_and_result_show_numbers() -> None:
    with pytest.raises(InvalidShape) as caught:
        GemmOp(m=8, n=46, k=8, a=TensorType((8, 8), DType.F32), b=TensorType((33, 46), DType.F32))
    assert "got (33, 46), expected batch () + (8, 46)" in str(caught.value)
    with pytest.raises(InvalidShape, match=r"got \(2, 3\), expected \(3, 2\)"):
        result_type("gemm", (3, 2), DType.F32, TensorType((2, 3), DType.F32))
