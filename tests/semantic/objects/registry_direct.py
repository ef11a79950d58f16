"""The registry's own product without packing, under a tiny schedule: rows and columns left over, bias and ReLU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.core.expr import Input, activation
from tracea.core.op import Epilogue, GemmOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.gemm.direct import DIRECT, build_direct
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

__all__ = ["arguments", "build", "expected"]

M, N, K = 8, 40, 9


def build() -> TileKernel:
    """Return the kernel: tiles of 3 rows and at last 2, blocks of 4 and 1 steps, of 32 and 8 columns."""
    bias = TensorType((N,), DType.F32)
    epilogue = Epilogue(activation("relu").substitute({0: Input(0) + Input(1)}), (bias,))
    a, b = TensorType((M, K), DType.F32), TensorType((K, N), DType.F32)
    op = GemmOp(m=M, n=N, k=K, a=a, b=b, epilogue=epilogue)
    target = load("plain")
    assert DIRECT.default_schedule is not None
    chosen = {"mr": 3, "nv": 1, "kc": 4, "mc": 3, "nc": 32, "tail": 2, "split": "columns"}
    return build_direct(op, DIRECT.default_schedule(op, target).with_values(**chosen), target)


def arguments(*, seed: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """Return arrays with padded rows, and the parameters that describe them."""
    rng = np.random.default_rng(seed)

    def random(rows: int, columns: int, pad: int) -> Any:
        return rng.standard_normal((rows, columns + pad)).astype(np.float32)[:, :columns]

    arrays = {"a": random(M, K, 2), "b": random(K, N, 3), "c": random(M, N, 1), "x1": random(1, N, 0)[0]}
    return arrays, {"m": M, "n": N, "k": K, "a_stride0": K + 2, "b_stride0": N + 3, "c_stride0": N + 1}


def expected(arrays: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """Return the outputs in float64."""
    del params
    a, b, bias = (arrays[name].astype(np.float64) for name in ("a", "b", "x1"))
    return {"c": np.maximum(a @ b + bias, 0.0)}
