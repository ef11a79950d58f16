"""What the registry's own products of the tests compute: ``relu(a·b + bias)``, rows of all operands padded."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.core.op import Epilogue, GemmOp
from tracea.core.tensor_type import TensorType

__all__ = ["biased_arguments", "biased_expected", "biased_product"]


def biased_product(m: int, n: int, k: int, dtype: DType = DType.F32) -> GemmOp:
    """Return the op."""
    epilogue = Epilogue(activation("relu").substitute({0: Input(0) + Input(1)}), (TensorType((n,), dtype),))
    return GemmOp(m=m, n=n, k=k, a=TensorType((m, k), dtype), b=TensorType((k, n), dtype), epilogue=epilogue)


def biased_arguments(op: GemmOp, *, seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    rng = np.random.default_rng(seed)
    (m, k), (_, n), dtype = op.a.static_shape, op.b.static_shape, op.a.dtype.numpy

    def random(rows: int, columns: int, pad: int) -> Any:
        return rng.standard_normal((rows, columns + pad)).astype(dtype)[:, :columns]

    arrays = {"a": random(m, k, 2), "b": random(k, n, 3), "c": random(m, n, 1), "x1": random(1, n, 0)[0]}
    return arrays, {"m": m, "n": n, "k": k, "a_stride0": k + 2, "b_stride0": n + 3, "c_stride0": n + 1}


def biased_expected(op: GemmOp, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs in float64, rounded to storage."""
    a, b, bias = (arrays[name].astype(np.float64) for name in ("a", "b", "x1"))
    return {"c": np.maximum(a @ b + bias, 0.0).astype(op.a.dtype.numpy)}
