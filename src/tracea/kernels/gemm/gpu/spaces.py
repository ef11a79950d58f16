"""Schedules of the GPU GEMMs: the legal tilings of an op on a target, and the one to begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product as product_of
from math import prod
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.gpu.operands import GpuOperands, chunk_bytes_of, is_contiguous
from tracea.kernels.gemm.gpu.products import FmaProduct, WarpProduct
from tracea.kernels.gemm.gpu.requirements import warp_product
from tracea.kernels.gemm.gpu.tiling import GpuTiling, fits
from tracea.kernels.gemm.operands import gemm_types
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_order import TileOrder
from tracea.targets.gpu import GpuTarget

__all__ = [
    "chunks",
    "default_shared",
    "default_simt",
    "default_tiling",
    "fma_product",
    "holds_lanes",
    "holds_warps",
    "k_major",
    "operands_of",
    "shared_space",
    "simt_space",
    "tile_space",
    "worth",
]

# bm, bn, warps_m, warps_n: from one warp with few rows to eight warps with 128 sums a lane.
_TILES: Final = (
    (128, 256, 2, 4),
    (256, 128, 4, 2),
    (128, 128, 2, 4),
    (128, 128, 2, 2),
    (128, 64, 2, 2),
    (64, 128, 2, 2),
    (64, 64, 2, 2),
    (32, 128, 1, 4),
    (64, 32, 2, 1),
    (32, 64, 1, 2),
    (16, 128, 1, 4),
    (16, 64, 1, 2),
)
_STEPS_OF_A_SHARE: Final = 4  # fewer do not repay the sums that blocks hand to each other
_MOST_SPLITS: Final = 16
_ROW_BYTES: Final = (64, 128)
_LANE_SUMS: Final = (1, 2, 4, 8, 16)  # rows or columns of a lane: its pieces are of up to four


def k_major(op: GemmOp, product: WarpProduct | FmaProduct) -> tuple[bool, bool]:
    """Return of A and of B whether their tiles' rows run along k: as they are stored, where fragments allow both.

    8-bit elements are loaded along k only; the form without tensor cores reads along m and n only.
    """
    if isinstance(product, FmaProduct):
        return False, False
    if product.storage.nbytes == 1:
        return True, True
    types = gemm_types(op)
    along_n = is_contiguous(types["b"], -1)
    # One column lies along both axes: along k its pieces are wide.
    column = op.n == 1 and is_contiguous(types["b_t"], -1)
    return is_contiguous(types["a"], -1), column or not along_n


def chunks(op: GemmOp, product: WarpProduct | FmaProduct) -> tuple[int, int]:
    """Return the widest pieces in which A and B may be copied: 16, 8 or 4 bytes, or an element."""
    types, (a_major, b_major) = gemm_types(op), k_major(op, product)
    return chunk_bytes_of(types["a" if a_major else "a_t"]), chunk_bytes_of(types["b_t" if b_major else "b"])


def operands_of(op: GemmOp, product: WarpProduct | FmaProduct, schedule: Schedule) -> GpuOperands:
    """Return the operands as the product wants them, copied in pieces as the schedule says."""
    a_major, b_major = k_major(op, product)
    return GpuOperands.of(
        op,
        a_k_major=a_major,
        b_k_major=b_major,
        a_chunk_bytes=schedule.integer("chunk_a"),
        b_chunk_bytes=schedule.integer("chunk_b"),
        order=order_of(schedule),
    )


def in_orders(schedules: Iterable[dict[str, Value]]) -> list[dict[str, Value]]:
    """Return schedules with their tiles row by row and by wavefronts."""
    orders = (TileOrder.ROW, TileOrder.WAVEFRONT)
    return [{**values, "order": order.value} for values in schedules for order in orders]


def order_of(schedule: Schedule) -> TileOrder:
    """Return the order of tiles that a schedule says; row by row where it says none.

    Raises:
        InvalidSchedule: there is no such order.
    """
    name = schedule.get("order", TileOrder.ROW.value)
    try:
        return TileOrder(name)
    except ValueError:
        orders = [order.value for order in TileOrder]
        raise InvalidSchedule(field="order", got=name, expected=orders, remedy="name one of these") from None


def fma_product(op: GemmOp, schedule: Schedule) -> FmaProduct:
    """Return the product without tensor cores whose lanes have as many sums as the schedule says.

    Raises:
        InvalidSchedule: a number of rows or columns that lanes do not share evenly.
    """
    lanes = {name: schedule.integer(name) for name in ("lane_rows", "lane_columns")}
    for name, count in lanes.items():
        if count not in _LANE_SUMS:
            raise InvalidSchedule(
                field=name,
                got=count,
                expected=f"one of {list(_LANE_SUMS)}",
                remedy=f"use {name}={min(_LANE_SUMS, key=lambda legal: abs(legal - count))}",
            )
    return FmaProduct(storage=op.a.dtype, accumulator=op.accumulator, **lanes)


def holds_warps(*, held: bool = False, producers: int = 0) -> Callable[[GemmOp, Schedule, GpuTarget], bool]:
    """Return what says of a schedule whether a target can hold the tiling of its warps, without a remedy."""

    def holds(op: GemmOp, schedule: Schedule, target: GpuTarget) -> bool:
        tiling = GpuTiling.read(schedule, warp_product(op, target), held=held, producers=producers)
        return tiling.is_held_by(target)

    return holds


def holds_lanes(op: GemmOp, schedule: Schedule, target: GpuTarget) -> bool:
    """Return whether a target can hold the tiling of a schedule without tensor cores."""
    return GpuTiling.read(schedule, fma_product(op, schedule), held=True, producers=0).is_held_by(target)


def default_tiling(
    op: GemmOp, target: GpuTarget, *, most_stages: int, producers: int = 0, held: bool = False
) -> Schedule:
    """Return the tiling to begin with: the largest tile that still gives every multiprocessor one, by shape class."""
    product = warp_product(op, target)
    stages = (most_stages,) if held else range(most_stages, 0, -1)
    chosen = next(_candidates(op, product, target, stages, producers, held=held), None)
    if chosen is None:
        raise InvalidSchedule(
            field="tiling", got=target.name, expected="a tile that fits", remedy="no tile of the list fits this target"
        )
    return Schedule(chosen)


def tile_space(
    op: GemmOp, target: GpuTarget, *, stages: Sequence[int], producers: int = 0, held: bool = False
) -> ScheduleSpace:
    """Return the space of all tilings that the target can hold."""
    product = warp_product(op, target)
    return ScheduleSpace.listed(in_orders(_all(op, product, target, stages, producers, held=held, ahead=(1, 2))))


def default_shared(op: GemmOp, target: GpuTarget, *, most_stages: int) -> Schedule:
    """Return the tiling to begin with, and how many blocks share a tile: more where tiles leave the machine idle."""
    chosen = default_tiling(op, target, most_stages=most_stages)
    bm, bn, bk = (chosen.integer(name) for name in ("bm", "bn", "bk"))
    tiles = prod(map(_known, op.batch)) * -(-_known(op.m) // bm) * -(-_known(op.n) // bn)
    steps = -(-_known(op.k) // bk)
    split = min(target.sm_count // max(tiles, 1), steps // _STEPS_OF_A_SHARE, _MOST_SPLITS)
    return chosen.with_values(split_k=max(1, split), stream_k=0)


def shared_space(op: GemmOp, target: GpuTarget, *, stages: Sequence[int]) -> ScheduleSpace:
    """Return all tilings with all ways to share a tile's steps that leave every block some."""
    product = warp_product(op, target)
    found: list[dict[str, Value]] = [dict(default_shared(op, target, most_stages=max(stages)))]
    for values in _all(op, product, target, stages, ahead=(1, 2)):
        bm, bn, bk = (int(values[name]) for name in ("bm", "bn", "bk"))
        steps = -(-_known(op.k) // bk)
        tiles = prod(map(_known, op.batch)) * -(-_known(op.m) // bm) * -(-_known(op.n) // bn)
        found += in_orders([{**values, "split_k": 1, "stream_k": 0}])
        splits = [split for split in (2, 4, 8) if split * _STEPS_OF_A_SHARE <= steps]
        found += [{**values, "split_k": split, "stream_k": 0} for split in splits]
        if tiles % target.sm_count and tiles * steps >= target.sm_count * _STEPS_OF_A_SHARE:
            found.append({**values, "split_k": 1, "stream_k": target.sm_count})
    return ScheduleSpace.listed(found)


# bm, bn, bk, warps_m, warps_n, lane_rows, lane_columns without tensor cores.
_SIMT_TILES: Final = (
    (128, 128, 8, 4, 2, 8, 8),
    (64, 64, 16, 2, 1, 8, 8),
    (64, 64, 8, 4, 2, 4, 4),
    (32, 64, 8, 1, 1, 8, 8),
    (16, 64, 16, 1, 2, 4, 4),
)


def _simt(op: GemmOp, target: GpuTarget) -> Iterator[dict[str, Value]]:
    for bm, bn, bk, warps_m, warps_n, lane_rows, lane_columns in _SIMT_TILES:
        product = FmaProduct(
            storage=op.a.dtype, accumulator=op.accumulator, lane_rows=lane_rows, lane_columns=lane_columns
        )
        chunk_a, chunk_b = chunks(op, product)
        values: dict[str, Value] = {
            "bm": bm,
            "bn": bn,
            "bk": bk,
            "warps_m": warps_m,
            "warps_n": warps_n,
            "lane_rows": lane_rows,
            "lane_columns": lane_columns,
            "stages": 2,
            "chunk_a": chunk_a,
            "chunk_b": chunk_b,
        }
        if fits(values, product, target, held=True):
            yield values


def simt_space(op: GemmOp, target: GpuTarget) -> ScheduleSpace:
    """Return the tilings without tensor cores that the target can hold."""
    return ScheduleSpace.listed(_simt(op, target))


def default_simt(op: GemmOp, target: GpuTarget) -> Schedule:
    """Return the tiling without tensor cores to begin with."""
    return Schedule(min(_simt(op, target), key=lambda values: worth(op, target, values)))


def _all(
    op: GemmOp,
    product: WarpProduct | FmaProduct,
    target: GpuTarget,
    stages: Sequence[int],
    producers: int = 0,
    *,
    held: bool = False,
    ahead: Sequence[int] = (1,),
) -> Iterator[dict[str, Value]]:
    """Yield the tilings that fit; ``ahead`` are the slots of fragments, 2 to load one step of k before its products."""
    chunk_a, chunk_b = chunks(op, product)
    for bm, bn, warps_m, warps_n in _TILES:
        for row_bytes, count, fragments in product_of(_ROW_BYTES, stages, ahead):
            values: dict[str, Value] = {
                "bm": bm,
                "bn": bn,
                "bk": row_bytes // product.storage.nbytes,
                "stages": count,
                "fragments": fragments,
                "warps_m": warps_m,
                "warps_n": warps_n,
                "swizzle": 1,
                "order": TileOrder.ROW.value,
                "chunk_a": chunk_a,
                "chunk_b": chunk_b,
            }
            if fits(values, product, target, held=held, producers=producers):
                yield values


def _candidates(
    op: GemmOp, product: WarpProduct, target: GpuTarget, stages: Sequence[int], producers: int, *, held: bool
) -> Iterator[dict[str, Value]]:
    found = _all(op, product, target, stages, producers, held=held)
    yield from sorted(found, key=lambda values: worth(op, target, values))


def worth(op: GemmOp, target: GpuTarget, values: dict[str, Value]) -> tuple[float, ...]:
    """Order tilings, the best one first: results for each load and multiprocessor, then more stages, then shorter."""
    m, n, batches = _known(op.m), _known(op.n), prod(map(_known, op.batch))
    bm, bn, bk = (int(values[name]) for name in ("bm", "bn", "bk"))
    tiles = batches * -(-m // bm) * -(-n // bn)
    waves = -(-tiles // target.sm_count)
    used = m * n * batches / (waves * target.sm_count * bm * bn)  # share of the machine that makes results
    reuse = bm * bn / (bm + bn)
    return (-used * reuse / (reuse + 48), -int(values.get("stages", 1)), bk)


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024
