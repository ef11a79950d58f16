"""The GPU GEMMs that tests build: variant × element type × layout, with extents that end in the middle of tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.core.tensor_type import TensorType
from tracea.kernels.registry import find
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load_gpu

__all__ = ["CASES", "GpuCase", "data", "strided"]


@dataclass(frozen=True, kw_only=True)
class GpuCase:
    """One kernel: a variant on a target, for one op, with a small tile unless told otherwise."""

    variant: str
    target: str
    options: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, int | str] = field(default_factory=dict)

    @property
    def op(self) -> GemmOp:
        """The op."""
        return GemmOp.of(**{"m": 70, "n": 40, "k": 104, "dtype": DType.F16, **self.options})

    @property
    def chosen(self) -> Schedule:
        """The default schedule with the case's values."""
        default = find(self.variant).default_schedule
        assert default is not None
        return default(self.op, load_gpu(self.target)).with_values(**self.schedule)

    def build(self) -> TileKernel:
        """Return the kernel."""
        make = find(self.variant).build
        assert make is not None
        return make(self.op, self.chosen, load_gpu(self.target))


_LINEAR = {"transpose_b": True}
_TF32 = {"dtype": DType.F32, "math": MatrixMath.TF32}
_S8 = {"dtype": DType.I8, "out_dtype": DType.I32}
_FUSED = {"bias": True, "activation": "gelu", "residual": True}
_SMALL = {"bm": 32, "bn": 32, "warps_m": 1, "warps_n": 2}
_ASYNC = {**_SMALL, "stages": 3, "split_k": 1, "stream_k": 0}
_RING = {**_SMALL, "stages": 3}
_AHEAD = {"fragments": 2}
_GROUPS = {"bm": 128, "bn": 64, "groups": 2, "stages": 3}

CASES: dict[str, GpuCase] = {
    "simt.f32": GpuCase(variant="gemm.simt", target="sm_75", options={"dtype": DType.F32, "k": 30}),
    "simt.f64": GpuCase(variant="gemm.simt", target="sm_80", options={"dtype": DType.F64, "k": 30}),
    "simt.bf16": GpuCase(
        variant="gemm.simt", target="sm_75", options={"dtype": DType.BF16, "transpose_a": True, "bias": True}
    ),
    "simt.s8": GpuCase(variant="gemm.simt", target="sm_75", options=_S8 | {"k": 21}),
    "simt.e4m3": GpuCase(
        variant="gemm.simt", target="sm_75", options={"dtype": DType.E4M3, "out_dtype": DType.F16, **_LINEAR}
    ),
    "mma_sync.f16": GpuCase(variant="gemm.mma_sync", target="sm_75", options={"batch": (2,)}, schedule=_SMALL),
    "mma_sync.s8": GpuCase(variant="gemm.mma_sync", target="sm_75", options=_S8 | _LINEAR, schedule=_SMALL),
    "mma_sync.bf16": GpuCase(variant="gemm.mma_sync", target="sm_80", options={"dtype": DType.BF16}, schedule=_SMALL),
    "mma_sync.f16.ahead": GpuCase(variant="gemm.mma_sync", target="sm_75", schedule=_SMALL | _AHEAD),
    "cp_async.f16": GpuCase(variant="gemm.mma_cp_async", target="sm_80", schedule=_ASYNC),
    "cp_async.f16.ahead": GpuCase(variant="gemm.mma_cp_async", target="sm_80", schedule=_ASYNC | _AHEAD | {"bk": 64}),
    "cp_async.tf32.ahead": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options=_TF32 | _LINEAR, schedule=_ASYNC | _AHEAD | {"split_k": 2}
    ),
    "cp_async.f16.fused": GpuCase(variant="gemm.mma_cp_async", target="sm_80", options=_FUSED, schedule=_ASYNC),
    "cp_async.f16.mish": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options={"activation": "mish"}, schedule=_ASYNC
    ),
    "cp_async.f16.transposed": GpuCase(
        variant="gemm.mma_cp_async", target="sm_86", options={"transpose_a": True, **_LINEAR, "m": 72}, schedule=_ASYNC
    ),
    "cp_async.f16.odd": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options={"m": 33, "n": 47, "k": 21}, schedule=_ASYNC
    ),
    "cp_async.f16.one_row": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options={"m": 1, "k": 8}, schedule=_ASYNC
    ),
    "cp_async.f16.one_column": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options={"n": 1, "k": 8}, schedule=_ASYNC
    ),
    "cp_async.f16.empty_sum": GpuCase(variant="gemm.mma_cp_async", target="sm_80", options={"k": 0}, schedule=_ASYNC),
    "cp_async.f16.one_stage": GpuCase(variant="gemm.mma_cp_async", target="sm_80", schedule=_ASYNC | {"stages": 1}),
    "cp_async.f16.unswizzled": GpuCase(variant="gemm.mma_cp_async", target="sm_80", schedule=_ASYNC | {"swizzle": 0}),
    "cp_async.f16.split_k": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options={"k": 300, "bias": True}, schedule=_ASYNC | {"split_k": 3}
    ),
    "cp_async.f16.wavefront": GpuCase(
        variant="gemm.mma_cp_async",
        target="sm_80",
        options={"m": 200, "n": 200},
        schedule=_ASYNC | {"order": "wavefront"},
    ),
    "cp_async.f16.stream_k": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options={"k": 150}, schedule=_ASYNC | {"stream_k": 5}
    ),
    "cp_async.s8.stream_k": GpuCase(
        variant="gemm.mma_cp_async",
        target="sm_86",
        options=_S8 | _LINEAR | {"k": 272, "batch": (2,)},
        schedule=_ASYNC | {"stream_k": 7},
    ),
    "cp_async.bf16.batched": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options={"dtype": DType.BF16, "batch": (2, 3)}, schedule=_ASYNC
    ),
    "cp_async.f16.batched.morton": GpuCase(
        variant="gemm.mma_cp_async",
        target="sm_80",
        options={"m": 130, "n": 100, "batch": (2,)},
        schedule=_ASYNC | {"order": "morton"},
    ),
    "cp_async.f16.stream_k.hilbert": GpuCase(
        variant="gemm.mma_cp_async",
        target="sm_80",
        options={"m": 70, "n": 70, "k": 150},
        schedule=_ASYNC | {"stream_k": 5, "order": "hilbert"},
    ),
    "cp_async.tf32": GpuCase(variant="gemm.mma_cp_async", target="sm_80", options=_TF32, schedule=_ASYNC),
    "cp_async.tf32.transposed": GpuCase(
        variant="gemm.mma_cp_async", target="sm_80", options=_TF32 | {"transpose_a": True, **_LINEAR}, schedule=_ASYNC
    ),
    "cp_async.s8": GpuCase(variant="gemm.mma_cp_async", target="sm_80", options=_S8 | _LINEAR, schedule=_ASYNC),
    "cp_async.s8.rows": GpuCase(variant="gemm.mma_cp_async", target="sm_80", options=_S8, schedule=_ASYNC),
    "cp_async.e4m3": GpuCase(
        variant="gemm.mma_cp_async",
        target="sm_89",
        options={"dtype": DType.E4M3, "out_dtype": DType.F32, **_LINEAR},
        schedule=_ASYNC,
    ),
    "cp_async.e5m2": GpuCase(
        variant="gemm.mma_cp_async",
        target="sm_100a",
        options={"dtype": DType.E5M2, "out_dtype": DType.BF16, "transpose_a": True},
        schedule=_ASYNC,
    ),
    "mma_tma.f16": GpuCase(variant="gemm.mma_tma", target="sm_120a", options=_LINEAR, schedule=_RING),
    "mma_tma.f16.ahead": GpuCase(variant="gemm.mma_tma", target="sm_120a", options=_LINEAR, schedule=_RING | _AHEAD),
    "mma_tma.f16.hilbert": GpuCase(
        variant="gemm.mma_tma",
        target="sm_120a",
        options={"m": 200, "n": 200} | _LINEAR,
        schedule=_RING | {"order": "hilbert"},
    ),
    "mma_tma.bf16.fused": GpuCase(
        variant="gemm.mma_tma", target="sm_90a", options=_FUSED | _LINEAR | {"dtype": DType.BF16}, schedule=_RING
    ),
    "mma_tma.tf32.batched": GpuCase(
        variant="gemm.mma_tma", target="sm_100a", options=_TF32 | _LINEAR | {"batch": (2,)}, schedule=_RING
    ),
    "mma_tma.s8": GpuCase(variant="gemm.mma_tma", target="sm_120a", options=_S8 | _LINEAR | {"k": 112}, schedule=_RING),
    "mma_tma.e4m3": GpuCase(
        variant="gemm.mma_tma",
        target="sm_120a",
        options={"dtype": DType.E4M3, "out_dtype": DType.F32, "k": 112, **_LINEAR},
        schedule=_RING,
    ),
    "wgmma.f16": GpuCase(variant="gemm.wgmma", target="sm_90a", options=_LINEAR, schedule=_GROUPS),
    "wgmma.f16.morton": GpuCase(
        variant="gemm.wgmma",
        target="sm_90a",
        options={"m": 200, "n": 200} | _LINEAR,
        schedule=_GROUPS | {"order": "morton"},
    ),
    "wgmma.f16.pingpong": GpuCase(
        variant="gemm.wgmma",
        target="sm_90a",
        options={"m": 200, "n": 200} | _LINEAR,
        schedule=_GROUPS | {"bm": 64, "persistent": 1, "pingpong": 1},
    ),
    "wgmma.f16.pingpong.wavefront": GpuCase(
        variant="gemm.wgmma",
        target="sm_90a",
        options={"m": 200, "n": 200, "batch": (2,)} | _LINEAR,
        schedule=_GROUPS | {"bm": 64, "persistent": 1, "pingpong": 1, "order": "wavefront"},
    ),
    "wgmma.bf16.persistent": GpuCase(
        variant="gemm.wgmma",
        target="sm_90a",
        options=_FUSED | _LINEAR | {"dtype": DType.BF16, "m": 150, "n": 70, "batch": (2,)},
        schedule=_GROUPS | {"persistent": 1},
    ),
    "wgmma.f16.one_group": GpuCase(
        variant="gemm.wgmma", target="sm_90a", options=_LINEAR, schedule=_GROUPS | {"bm": 64, "groups": 1}
    ),
    "wgmma.bf16.fused": GpuCase(
        variant="gemm.wgmma",
        target="sm_90a",
        options=_FUSED | _LINEAR | {"dtype": DType.BF16, "m": 150, "n": 70},
        schedule=_GROUPS,
    ),
    "wgmma.s8": GpuCase(variant="gemm.wgmma", target="sm_90a", options=_S8 | _LINEAR | {"k": 208}, schedule=_GROUPS),
    "wgmma.e4m3": GpuCase(
        variant="gemm.wgmma",
        target="sm_90a",
        options={"dtype": DType.E4M3, "out_dtype": DType.F16, "k": 112, **_LINEAR},
        schedule=_GROUPS,
    ),
    "wgmma.e5m2": GpuCase(
        variant="gemm.wgmma",
        target="sm_90a",
        options={"dtype": DType.E5M2, "out_dtype": DType.F32, "k": 16, **_LINEAR},
        schedule=_GROUPS,
    ),
}


def strided(values: Any, type_: TensorType) -> np.ndarray[Any, Any]:
    """Return an array of the type's strides that holds the values."""
    reach = sum((dim - 1) * step for dim, step in zip(type_.static_shape, type_.strides, strict=True))
    empty = 0 in type_.static_shape
    memory = np.zeros(1 if empty else reach + 1, dtype=type_.dtype.numpy)
    bits = memory.view(f"u{memory.itemsize}")
    steps = [step * memory.itemsize for step in type_.strides]
    view = np.lib.stride_tricks.as_strided(bits, type_.static_shape, steps).view(memory.dtype)
    view[...] = np.asarray(values).astype(memory.dtype)
    return view


def data(op: GemmOp, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Return random operands in their layouts."""
    return [
        strided(
            rng.standard_normal(type_.static_shape)
            if type_.dtype.is_float
            else rng.integers(-100, 100, type_.static_shape),
            type_,
        )
        for type_ in op.operands
    ]
