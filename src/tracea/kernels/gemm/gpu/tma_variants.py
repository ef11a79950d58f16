"""The variants that the copy engine feeds, and the one that is not built: their requirements and schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidSchedule, ResourceExceeded
from tracea.kernels.gemm.gpu.group_tiling import GroupTiling
from tracea.kernels.gemm.gpu.operands import is_contiguous
from tracea.kernels.gemm.gpu.products import GroupProduct
from tracea.kernels.gemm.gpu.program import flag
from tracea.kernels.gemm.gpu.remedies import with_remedies
from tracea.kernels.gemm.gpu.requirements import (
    AS_STORED,
    CUDA,
    GPU_GEMM_REQUIREMENTS,
    TENSOR_CORES,
    features,
    warp_product,
)
from tracea.kernels.gemm.gpu.spaces import (
    chunks,
    default_tiling,
    holds_warps,
    in_orders,
    k_major,
    operands_of,
    tile_space,
    worth,
)
from tracea.kernels.gemm.gpu.tiling import GpuTiling
from tracea.kernels.gemm.gpu.tma import build_with_warps, check_rows
from tracea.kernels.gemm.gpu.warpgroups import build_with_groups
from tracea.kernels.gemm.operands import gemm_types
from tracea.kernels.requirements import condition
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Requirement, Unmet, Variant
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["MMA_TMA", "TCGEN05", "WGMMA", "build_mma_tma", "build_wgmma"]

_TMA_ID: Final = "gemm.mma_tma"
_WGMMA_ID: Final = "gemm.wgmma"
_PIECE: Final = 16
# bm, bn, groups
_GROUP_TILES: Final = (
    (128, 256, 2),
    (256, 128, 2),
    (128, 128, 2),
    (128, 64, 2),
    (64, 256, 1),
    (64, 128, 1),
    (64, 64, 1),
)
_TURN_TILES: Final = ((128, 128, 2), (64, 256, 2), (64, 128, 2), (64, 64, 2))  # a whole one for each group in turn
# With persistent and pingpong: a block a tile first, since that is what the others have to be faster than.
_WAYS: Final = (
    *((*tile, 0, 0) for tile in _GROUP_TILES),
    *((*tile, 1, 0) for tile in _GROUP_TILES),
    *((*tile, 1, 1) for tile in _TURN_TILES),
)


def build_mma_tma(op: GemmOp, schedule: Schedule, target: GpuTarget) -> TileKernel:
    """Return the GEMM of ``op`` by mma.sync on tiles that the copy engine brings."""
    product = warp_product(op, target)
    check_rows(schedule.integer("bk"), product.storage.nbytes)  # before what depends on it is found to be too large
    tiling = GpuTiling.of(schedule, product, target, producers=1)
    operands = operands_of(op, product, schedule)
    return build_with_warps(_TMA_ID, operands, schedule, tiling, target, swizzled=flag(schedule, "swizzle"))


def build_wgmma(op: GemmOp, schedule: Schedule, target: GpuTarget) -> TileKernel:
    """Return the GEMM of ``op`` by wgmma on tiles that the copy engine brings.

    Raises:
        InvalidSchedule: a tile that wgmma cannot take, or one without the swizzle of its rows.
    """
    if not flag(schedule, "swizzle"):
        raise InvalidSchedule(
            field="swizzle",
            got=0,
            expected="1: without one wgmma reads core matrices of 128 bytes, which a box of whole rows does not leave",
            remedy="use swizzle=1; gemm.mma_tma reads tiles without a swizzle",
        )
    product = _group_product(op, target, schedule.integer("bn"))
    check_rows(schedule.integer("bk"), product.storage.nbytes)  # before what depends on it is found to be too large
    tiling = GroupTiling.of(schedule, product, target)
    operands = operands_of(op, warp_product(op, target), schedule)
    return build_with_groups(_WGMMA_ID, operands, schedule, tiling, target, swizzled=True)


def _group_product(op: GemmOp, target: GpuTarget, columns: int) -> GroupProduct:
    product = warp_product(op, target)
    return GroupProduct(
        element=product.element, storage=product.storage, accumulator=product.accumulator, columns=columns
    )


def _check_layout(op: Any, target: Any) -> Unmet | None:
    if any(requirement.check(op, target) is not None for requirement in GPU_GEMM_REQUIREMENTS):
        return None  # said by others
    product = warp_product(op, target)
    majors, pieces = k_major(op, product), chunks(op, product)
    if majors == (True, True) and pieces == (_PIECE, _PIECE):
        return None
    types = gemm_types(op)
    stored = {"a": (types["a"], "(m, k)"), "b": (types["b_t"], "(n, k), transpose_b")}
    across = {name: each for name, each in stored.items() if not is_contiguous(each[0], -1)}
    if across:
        found = [f"{name} has stride {kind.strides[-1]} along k" for name, (kind, _) in across.items()]
        remedies = [f"store {name} as {order}" for name, (_, order) in across.items()]
        needed = "a and b contiguous along k"
    else:
        size = op.a.dtype.nbytes
        uneven = {name: step for name, (kind, _) in stored.items() if (step := _uneven_step(kind)) is not None}
        found = [f"rows of {name} {step * size} bytes apart" for name, step in uneven.items()]
        even = sorted({-(-step * size // _PIECE) * _PIECE for step in uneven.values()})
        remedies = [f"let rows begin every {nbytes // size} elements ({nbytes} bytes)" for nbytes in even]
        needed = f"rows of a and b that begin at multiples of {_PIECE} bytes"
    return Unmet(
        needed=needed,
        found=" and ".join(found) or f"{op.a} and {op.b}",
        remedy=" and ".join(remedies) or "gemm.mma_cp_async takes any layout",
    )


def _uneven_step(kind: TensorType) -> int | None:
    """Return the first distance of rows that is no multiple of a piece, in elements."""
    steps = zip(kind.shape[:-1], kind.strides[:-1], strict=True)
    uneven = [step for dim, step in steps if dim != 1 and step * kind.dtype.nbytes % _PIECE]
    return uneven[-1] if uneven else None


_ALONG_K = Requirement(name="rows along k", check=_check_layout)
_SOME_K = condition(
    "k >= 1",
    lambda op, _: op.k != 0,
    needed="k >= 1",
    found=lambda op: f"k = {op.k}",
    remedy="gemm.mma_cp_async stores the epilogue of zero",
)
_NATIVE_TMA = (CUDA, features("tma", "mbarrier"), *GPU_GEMM_REQUIREMENTS, _ALONG_K, _SOME_K)


# wgmma reads factors as they lie in shared memory, in the place of what mma.sync takes.
_GROUP_TMA = tuple(AS_STORED if each is TENSOR_CORES else each for each in _NATIVE_TMA)


def _wgmma_schedules(op: GemmOp, target: GpuTarget) -> Iterator[dict[str, Value]]:
    for bm, bn, groups, persistent, pingpong in _WAYS:
        if op.a.dtype is DType.I8 and bn % 16:
            continue
        for stages in (6, 5, 4, 3):
            product = _group_product(op, target, bn)
            values: dict[str, Value] = {
                "bm": bm,
                "bn": bn,
                "bk": 128 // op.a.dtype.nbytes,
                "stages": stages,
                "groups": groups,
                "persistent": persistent,
                "pingpong": pingpong,
                "swizzle": 1,
                "order": "row",
                "chunk_a": _PIECE,
                "chunk_b": _PIECE,
            }
            try:
                GroupTiling.of(Schedule(values), product, target)
            except (InvalidSchedule, ResourceExceeded):
                continue
            yield values


def _wgmma_space(op: GemmOp, target: GpuTarget) -> ScheduleSpace:
    return ScheduleSpace.listed(in_orders(_wgmma_schedules(op, target)))


def _wgmma_default(op: GemmOp, target: GpuTarget) -> Schedule:
    # Of equal worth the first is taken: one tile a block, until a measurement says otherwise.
    found = (values for values in _wgmma_schedules(op, target) if not values["persistent"])
    return Schedule(min(found, key=lambda values: worth(op, target, values)))


def _holds_groups(op: GemmOp, schedule: Schedule, target: GpuTarget) -> bool:
    return GroupTiling.of(schedule, _group_product(op, target, schedule.integer("bn")), target).stages > 1


def _tma_space(op: GemmOp, target: GpuTarget) -> ScheduleSpace:
    return tile_space(op, target, stages=(2, 3, 4, 5), producers=1)


def _tma_default(op: GemmOp, target: GpuTarget) -> Schedule:
    return default_tiling(op, target, most_stages=4, producers=1)


MMA_TMA = Variant(
    id=_TMA_ID,
    op_type=GemmOp,
    backend="cuda",
    requirements=_NATIVE_TMA,
    preferences=(),
    priority=70,
    build=with_remedies(build_mma_tma, _tma_space, holds_warps(producers=1), _tma_default),
    space=_tma_space,
    default_schedule=_tma_default,
)
WGMMA = Variant(
    id=_WGMMA_ID,
    op_type=GemmOp,
    backend="cuda",
    requirements=(*_GROUP_TMA, features("wgmma", "setmaxnreg")),
    preferences=(),
    priority=90,
    build=with_remedies(build_wgmma, _wgmma_space, _holds_groups, _wgmma_default),
    space=_wgmma_space,
    default_schedule=_wgmma_default,
)


def _check_tcgen05(op: object, target: Any) -> Unmet | None:
    del op
    if not target.has("tcgen05"):
        return None  # said by the requirement of the feature
    return Unmet(
        needed="a builder for tcgen05",
        found="none in this version",
        remedy="gemm.mma_tma and gemm.mma_cp_async run there by mma.sync",
    )


TCGEN05 = Variant(
    id="gemm.tcgen05",
    op_type=GemmOp,
    backend="cuda",
    requirements=(
        CUDA,
        features("tcgen05"),
        Requirement(name="builder of tcgen05", check=_check_tcgen05),  # this version lacks it, not the target
    ),
    preferences=(),
    priority=95,
    build=None,
    space=None,
    default_schedule=None,
)
