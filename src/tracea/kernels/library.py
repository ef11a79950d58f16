"""Library entries: what a library call requires, as data; the runtime's library port makes the call.

A fused op's library variant is composite: the call, then our kernel for the epilogue.
"""

from __future__ import annotations

from dataclasses import replace

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.kernels.gemm.requirements import IEEE_PRODUCTS
from tracea.kernels.requirements import condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.variant import AnyTarget, Preference, Requirement, Unmet, Variant
from tracea.targets.target import Target

__all__ = ["LIBRARY_CUBLAS", "LIBRARY_GEMM"]


def _on(backend: str, variant: str) -> Requirement:
    """Return the requirement that the target is of this backend, whose library ``variant`` names."""

    def check(op: object, target: Target) -> Unmet | None:
        del op
        if target.backend == backend:
            return None
        return Unmet(needed=backend, found=target.backend, remedy=f"{variant} is the library of that backend")

    return Requirement(name="backend", check=check)


_NON_EMPTY = condition(
    "no empty extent",
    lambda op, _: 0 not in (op.m, op.n, op.k),
    needed="m, n, k >= 1",
    found=lambda op: f"m = {op.m}, n = {op.n}, k = {op.k}",
    remedy="gemm.empty stores the epilogue of zero",
)
_ONE_TYPE = condition(
    "one element type",
    lambda op, _: op.a.dtype is op.b.dtype is op.infer().dtype,
    needed="a, b and the result of one element type",
    found=lambda op: f"{op.a.dtype.value}, {op.b.dtype.value}, {op.infer().dtype.value}",
    remedy="use gemm.packed, which converts while it packs",
)

_PRODUCTS = condition(
    "a product that the shim has",
    lambda op, _: not op.batch or (len(op.batch) == 1 and op.a.shape[:-2] == op.b.shape[:-2] == op.batch),
    needed="no batch axis, or one that a and b both have",
    found=lambda op: f"batch {op.batch} of a {op.a.shape[:-2]} and b {op.b.shape[:-2]}",
    remedy="use gemm.packed, which broadcasts",
)
# The product is stored before our kernel applies the epilogue: f16 and bf16 would be rounded twice, beyond the accuracy
# contract.
_SEPARABLE = condition(
    "an epilogue that can be parted from the product",
    lambda op, _: op.epilogue.is_identity or (op.a.dtype in (DType.F64, DType.F32) and op.infer().layout is None),
    needed="no epilogue, or a row-major result of f64 or f32",
    found=lambda op: f"an epilogue on {op.infer()}",
    remedy="use gemm.packed, which applies it to its sums",
)


def _alone(op: GemmOp, target: AnyTarget) -> float:
    """Return how much a second pass for the epilogue sets the call back behind ours, which apply it to their sums.

    Measured on a Zen 3, one thread: a residual on 256x2048x512 0.93 of torch's time by the call, 1.21 by ours; bias,
    GELU and residual on 64x4096x1024 1.03 and 1.54.
    """
    del target
    return 0.0 if op.epilogue.is_identity else -10.0


LIBRARY_GEMM = Variant(
    id="library.gemm",
    op_type=GemmOp,
    backend="cpu",
    requirements=(
        _on("cpu", "library.cublas"),
        element_types((DType.F64, DType.F32, DType.F16, DType.BF16)),
        strided_layouts,
        non_negative_strides,
        _NON_EMPTY,
        _ONE_TYPE,
        _PRODUCTS,
        _SEPARABLE,
        IEEE_PRODUCTS,
    ),
    preferences=(Preference(name="no epilogue", score=_alone),),
    priority=55,
    build=None,
    space=None,
    default_schedule=None,
)

# The same call of the same shim, whose functions for CUDA call cuBLAS; the runtime's port refuses it without a GPU.
LIBRARY_CUBLAS = replace(
    LIBRARY_GEMM,
    id="library.cublas",
    backend="cuda",
    priority=10,  # behind our own, which can be printed and proved
    requirements=(_on("cuda", "library.gemm"), *LIBRARY_GEMM.requirements[1:]),
)
