"""What the matrix of CUDA GEMMs runs: the problems of every cell, and the features that some variants have.

Worked example: ``Problem(m=70, n=1, k=16, transpose_b=True)`` is one column, and a k that ends before the stages do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp, MatrixMath
from tracea.core.tensor_type import StridedLayout, TensorType

__all__ = ["ELEMENTS", "FEATURES", "LARGE", "ODD", "RUN", "Cell", "Feature", "Problem"]

_DTYPES: Final = {
    "f32": (DType.F32, DType.F32),
    "tf32": (DType.F32, DType.F32),
    "f16": (DType.F16, DType.F16),
    "bf16": (DType.BF16, DType.BF16),
    "s8": (DType.I8, DType.I32),
    "e4m3": (DType.E4M3, DType.F32),
    "e5m2": (DType.E5M2, DType.F32),
}
ELEMENTS: Final = tuple(_DTYPES)
_PITCH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One entry of the matrix."""

    variant: str
    architecture: str
    element: str

    def __str__(self) -> str:
        """Render as ``gemm.simt sm_75 f16``."""
        return f"{self.variant} {self.architecture} {self.element}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The extents of one run, how its operands are stored, and what follows the product."""

    m: int
    n: int
    k: int
    transpose_a: bool = False
    transpose_b: bool = False
    padded: bool = False  # rows begin at multiples of 64 elements
    batch: tuple[int, ...] = ()
    fused: bool = False  # bias, GELU and a residual, stored as f16

    def op(self, element: str) -> GemmOp:
        """Return the product of this element type: sums in f32 or i32, stored as such from 8-bit elements."""
        dtype, result = _DTYPES[element]
        op = GemmOp.of(
            m=self.m,
            n=self.n,
            k=self.k,
            batch=self.batch,
            dtype=dtype,
            transpose_a=self.transpose_a,
            transpose_b=self.transpose_b,
            out_dtype=DType.F16 if self.fused else result,
            math=MatrixMath.TF32 if element == "tf32" else MatrixMath.IEEE,
            bias=self.fused,
            activation="gelu" if self.fused else None,
            residual=self.fused,
        )
        return replace(op, a=_padded(op.a), b=_padded(op.b)) if self.padded else op


# Wide copies with tails on every axis; odd extents and strides; odd extents in padded rows; one row;
# one column, and a k that is shorter than the stages reach; A along m; one element, and a k shorter than a fragment.
RUN: Final = (
    Problem(m=80, n=144, k=80, transpose_b=True),
    Problem(m=67, n=45, k=83),
    Problem(m=131, n=77, k=83, transpose_b=True, padded=True),
    Problem(m=1, n=96, k=48, transpose_b=True),
    Problem(m=70, n=1, k=16, transpose_b=True),
    Problem(m=48, n=40, k=64, transpose_a=True),
    Problem(m=1, n=1, k=5, transpose_b=True),
)
LARGE: Final = Problem(m=4096, n=4096, k=4096, transpose_b=True)
ODD: Final = Problem(m=4095, n=4093, k=4099)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Something that a variant does beside a plain product: its problems, and what they change of their schedules."""

    name: str
    cell: Cell
    runs: tuple[Problem, ...]
    changes: tuple[tuple[str, int | str], ...]

    def __str__(self) -> str:
        """Render as ``split-K of gemm.mma_cp_async sm_80 f16``."""
        return f"{self.name} of {self.cell}"


# The first architecture of each variant.
_HOMES: Final = {
    "gemm.simt": "sm_75",
    "gemm.mma_sync": "sm_75",
    "gemm.mma_cp_async": "sm_80",
    "gemm.mma_tma": "sm_120a",
    "gemm.wgmma": "sm_90a",
}
_ORDERED: Final = ("gemm.mma_cp_async", "gemm.mma_tma", "gemm.wgmma")
_SWIZZLED: Final = ("gemm.mma_sync", "gemm.mma_cp_async", "gemm.mma_tma")  # wgmma needs its swizzle
_BATCHED: Final = (Problem(m=72, n=40, k=80, transpose_b=True, batch=(2, 3)),)
# Stores of 16 bytes, then an odd number of columns: element by element.
_FUSED: Final = (
    Problem(m=67, n=72, k=80, transpose_b=True, fused=True),
    Problem(m=35, n=45, k=80, transpose_b=True, fused=True),
)
_DEEP: Final = (Problem(m=70, n=40, k=720, transpose_b=True), Problem(m=1, n=96, k=528, transpose_b=True))
_TILES: Final = (Problem(m=330, n=290, k=48, transpose_b=True),)
_TAILS: Final = (Problem(m=67, n=72, k=208, transpose_b=True), Problem(m=35, n=45, k=80, transpose_b=True))
_WHOLE: Final = (Problem(m=128, n=256, k=256, transpose_b=True),)
_SHARES: Final = (("split-K", {"split_k": 3, "stream_k": 0}), ("stream-K", {"split_k": 1, "stream_k": 7}))
# More tiles than a walk begins with, tails on every axis; two groups share each tile, or take turns.
_MANY: Final = (
    Problem(m=330, n=290, k=176, transpose_b=True),
    Problem(m=200, n=100, k=48, transpose_b=True, batch=(3,)),
)
_WALKS: Final[tuple[tuple[str, dict[str, int | str]], ...]] = (
    ("persistent blocks", {"persistent": 1}),
    ("persistent blocks in wavefronts", {"persistent": 1, "order": "wavefront"}),
    ("groups in turns", {"persistent": 1, "pingpong": 1, "groups": 2, "bm": 64, "bn": 256, "stages": 4}),
)


def _features() -> Iterator[Feature]:
    def of(name: str, variant: str, runs: tuple[Problem, ...], element: str = "f16", **changes: int | str) -> Feature:
        cell = Cell(variant=variant, architecture=_HOMES[variant], element=element)
        return Feature(name=name, cell=cell, runs=runs, changes=tuple(changes.items()))

    for variant in _HOMES:
        yield of("batch axes", variant, _BATCHED)
        yield of("bias, GELU, residual", variant, _FUSED)
    for element in ("f16", "s8"):
        for name, changes in _SHARES:
            yield of(name, "gemm.mma_cp_async", _DEEP, element, **changes)
    yield of("stream-K in wavefronts", "gemm.mma_cp_async", _DEEP, split_k=1, stream_k=7, order="wavefront")
    for element in ("f16", "s8"):
        for name, walk in _WALKS:
            yield of(name, "gemm.wgmma", _MANY, element, **walk)
    for variant, element in product(_SWIZZLED, ("f16", "tf32", "s8")):
        if (variant, element) != ("gemm.mma_sync", "tf32"):  # its first architecture has none
            yield of("fragments loaded ahead", variant, _TAILS, element, fragments=2)
    for variant in _ORDERED:
        for order in ("wavefront", "morton", "hilbert"):
            yield of(f"tiles in {order} order", variant, _TILES, order=order)
    for variant in _SWIZZLED:
        yield of("no swizzle", variant, _WHOLE, swizzle=0)


FEATURES: Final = tuple(_features())


def _padded(type_: TensorType) -> TensorType:
    """Return the type with its longer steps rounded up to 64 elements."""
    strides = tuple(stride if stride == 1 else -(-stride // _PITCH) * _PITCH for stride in type_.strides)
    return TensorType(type_.shape, type_.dtype, StridedLayout(strides))
