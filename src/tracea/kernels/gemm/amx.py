"""GEMM on AMX: operands as sums of bf16 terms, three of a f32, two of a f16, one of a bf16, as the packed GEMM's loops.

``gemm.amx`` packs both operands, ``gemm.amx_prepacked`` reads weights that are in panels of terms already, 6 bytes an
element of f32, 4 of f16, 2 of bf16. See :mod:`tracea.kernels.gemm.matrix_tiles` for the arithmetic and docs/adr/0004.
"""

from __future__ import annotations

from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import TensorType, static
from tracea.kernels.gemm.amx_blocking import (
    amx_blocking,
    amx_default,
    amx_prepacked_default,
    amx_prepacked_space,
    amx_space,
)
from tracea.kernels.gemm.matrix_tiles import GRANULE, TERMS_OF_FLOAT, TILE, marks_of
from tracea.kernels.gemm.packed import build_blocked
from tracea.kernels.gemm.prepacked import build_on_panels, build_panels
from tracea.kernels.gemm.requirements import GEMM_REQUIREMENTS, unit_stride
from tracea.kernels.requirements import condition
from tracea.kernels.variant import Preference, Requirement, Unmet, Variant
from tracea.semantic.intrinsics import terms_of
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.target import Target

__all__ = ["AMX", "AMX_PREPACKED", "MATRIX_TILES", "build_amx", "build_amx_pack", "build_amx_prepacked", "terms_hold"]

# Measured, benchmarks/NOTES.md, by terms: with fewer rows, columns, steps or products, splitting and storing whole
# tiles cost more than the products save.
_LEAST: Final = {1: (5, 8, 16, 32**3), 2: (20, 8, 32, 64**3), 3: (64, 96, 96, 128**3)}
_MANY_ROWS: Final = 96
_SHARE_TURNED: Final = 128  # rows that share a bf16 B by columns; measured, benchmarks/NOTES.md


def build_amx(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` that packs both operands."""
    return build_blocked(AMX_ID, op, amx_blocking(schedule, op.a.dtype), schedule, target)


def build_amx_prepacked(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the GEMM of ``op`` whose B is the result of :func:`build_amx_pack`."""
    return build_on_panels(AMX_PREPACKED_ID, op, amx_blocking(schedule, op.a.dtype), schedule, target)


def build_amx_pack(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that packs ``op``'s B: buffers ``b`` and ``panels``."""
    return build_panels(AMX_PACK_ID, op, amx_blocking(schedule, op.a.dtype), schedule, target)


def amx_panel_type(op: GemmOp, schedule: Schedule, target: Target) -> TensorType:
    """Return the type of B in panels of terms: whole granules of steps."""
    del schedule, target
    depth, terms = -(-static(op.k) // GRANULE) * GRANULE, terms_of(op.b.dtype)
    return TensorType((-(-static(op.n) // TILE), depth, TILE * terms + marks_of(terms)), DType.BF16)


def _check_tiles(op: object, target: Target) -> Unmet | None:
    del op
    if "amx_bf16" in target.features and target.isa in ("avx512", "plain"):
        return None
    return Unmet(
        needed="amx_bf16",
        found=", ".join((target.isa, *sorted(each for each in target.features if each.startswith("amx")))),
        remedy="leave it to those on vectors",
    )


MATRIX_TILES = Requirement(name="matrix tiles", check=_check_tiles)


def terms_hold(a: str, b: str, *, remedy: str) -> Requirement:
    """Return the requirement that operands ``a`` and ``b`` are of one type that bf16 terms hold."""

    def types(op: Any) -> tuple[DType, DType]:
        return getattr(op, a).dtype, getattr(op, b).dtype

    return condition(
        "factors that terms hold",
        lambda op, _: types(op) in ((dtype, dtype) for dtype in (DType.F32, DType.F16, DType.BF16)),
        needed=f"{a} and {b} of f32, both of f16 or both of bf16",
        found=lambda op: ", ".join(dtype.value for dtype in types(op)),
        remedy=remedy,
    )


_MATRIX_B = condition(
    "b is a matrix",
    lambda op, _: op.b.rank == 2,
    needed="a second operand of rank 2",
    found=lambda op: str(op.b),
    remedy="use gemm.amx: batches of weights are not packed ahead",
)


def _known(dim: object) -> int:
    return dim if isinstance(dim, int) else 1024


def _by_shape(op: GemmOp, target: Target) -> float:
    if target.isa == "plain":
        return -200.0  # arrays in place of registers: there to be read by sanitizers
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    terms = terms_of(op.a.dtype)
    if any(size < least for size, least in zip((m, n, k, m * n * k), _LEAST[terms], strict=True)):
        return -60.0
    # With few rows the time is that of reading B, and vectors on panels of float32 read 4 bytes an element, not 6.
    return 10.0 if terms == TERMS_OF_FLOAT and m < _MANY_ROWS else 40.0


def _turns(op: GemmOp, target: Target) -> float:
    """Leave a bf16 B by columns to a library where few rows share it: turning it is most of the time then."""
    del target
    return -40.0 if op.b.dtype is DType.BF16 and _known(op.m) < _SHARE_TURNED and not unit_stride(op, "b", -1) else 0.0


_SHAPE = Preference(name="whole tiles", score=_by_shape)

AMX_ID = "gemm.amx"
AMX_PREPACKED_ID = "gemm.amx_prepacked"
AMX_PACK_ID = "gemm.amx_pack_b"
_REQUIREMENTS = (*GEMM_REQUIREMENTS, MATRIX_TILES, terms_hold("a", "b", remedy="use gemm.packed"))

AMX = Variant(
    id=AMX_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(_SHAPE, Preference(name="b by rows", score=_turns)),
    priority=52,
    build=build_amx,
    space=amx_space,
    default_schedule=amx_default,
)
AMX_PREPACKED = Variant(
    id=AMX_PREPACKED_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=(*_REQUIREMENTS, _MATRIX_B),
    preferences=(_SHAPE,),
    priority=53,  # above gemm.amx; below gemm.prepacked where rows are few
    build=build_amx_prepacked,
    space=amx_prepacked_space,
    default_schedule=amx_prepacked_default,
    constant_operand=1,
    build_pack=build_amx_pack,
    pack_type=amx_panel_type,
)
