"""The unpruned space of the packed GEMM: a grid of tiles and blocks, of which each valid schedule is there once.

None is left out for being slow. That is for a search to find, and for a sweep to show (benchmarks/sweep_gemm.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.kernels.gemm.blocking import PANELS_PER_SWEEP, Blocking, fetches_rows, fits_registers, packed_default
from tracea.kernels.operands import vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target

__all__ = ["unpruned_space"]

_FEW_ROWS: Final = 320  # up to this many, a task of columns that packs all rows of A is worth a trial
_K_BLOCKS: Final = (32, 64, 128, 512)
_M_BLOCKS: Final = (56, 168)
_N_BLOCKS: Final = (32, 64, 128, 512, 2048)
# Heights in rows and widths in vectors: from the smallest tiles up to those that fill the registers.
_HEIGHTS: Final[Mapping[str, tuple[int, ...]]] = {
    "avx512": (1, 2, 4, 6, 8, 9, 14, 28),
    "avx2": (1, 2, 4, 5, 6, 12),
    "neon": (1, 2, 4, 6, 8, 10, 12),
    "plain": (1, 2, 4, 8, 14),
}
_WIDTHS: Final[Mapping[str, tuple[int, ...]]] = {
    "avx512": (1, 2, 3, 4),
    "avx2": (1, 2, 3),
    "neon": (1, 2, 3, 4),
    "plain": (2, 4),
}


def unpruned_space(op: GemmOp, target: Target) -> ScheduleSpace:
    """Return the schedules with blocks from a cache line of columns and 32 steps up to the whole extent.

    Of blocks that come to the same, once rounded to whole tiles and cut to the extent, one is kept. Unrolling and
    prefetches, which made no difference where they were measured, are the default's.
    """
    default = packed_default(op, target)
    lanes = vector_lanes(target, op.accumulator)
    nbytes = op.accumulator.nbytes
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    heights, widths = _HEIGHTS[target.isa], _WIDTHS[target.isa]
    fetched = (0, 1) if fetches_rows(op, target) else (0,)
    mc_values = _up_to_whole(m, default["mc"], *_M_BLOCKS)
    splits = ("rows", "columns") if m <= _FEW_ROWS or default["split"] == "columns" else ("rows",)

    def valid(chosen: Mapping[str, Value]) -> bool:
        if all(chosen[name] == default[name] for name in chosen):
            return True
        mr, nv, kc, mc, nc = (int(chosen[name]) for name in ("mr", "nv", "kc", "mc", "nc"))
        columns = chosen["split"] == "columns"
        return (
            (mr in heights and nv in widths and fits_registers(mr, nv, target))
            and int(chosen["tail"]) == m % mr
            and kc * nv * lanes * nbytes <= 2 * target.l1d_bytes
            and kc * nc * nbytes <= 8 * target.l2_bytes
            # A task of columns packs all rows, and each panel of B just before its use; shared panels are packed in
            # sweeps, and gained from fetching the next one wherever that was measured. To fetch the rows that the next
            # one is packed from gained with short K blocks only.
            and (mc == mc_values[-1] if columns else mc >= mr and mc * kc * nbytes <= target.l2_bytes // 2)
            and chosen["sweep"] == (1 if columns else PANELS_PER_SWEEP)
            and chosen["upcoming"] in (fetched if columns else (1,))
        )

    axes: dict[str, tuple[Value, ...]] = {
        "mr": _sorted(default["mr"], *heights),
        "nv": _sorted(default["nv"], *widths),
        "unroll": (default["unroll"],),
        "prefetch_a": (default["prefetch_a"],),
        "prefetch_b": (default["prefetch_b"],),
        "kc": _up_to_whole(k, default["kc"], *_K_BLOCKS),
        "mc": mc_values,
        "nc": _up_to_whole(n, default["nc"], *_N_BLOCKS),
        "tail": _sorted(default["tail"], *(m % mr for mr in heights)),
        "sweep": _sorted(default["sweep"], *(1 if split == "columns" else PANELS_PER_SWEEP for split in splits)),
        "upcoming": _sorted(
            default["upcoming"], *(fetched if "columns" in splits else ()), *((1,) if "rows" in splits else ())
        ),
        "split": splits,
    }
    space = ScheduleSpace.enumerated(axes, valid)
    distinct = {_effect(space.schedule(row), op, target): row for row in space.rows[::-1]}
    distinct[_effect(default, op, target)] = next(row for row in space.rows if space.schedule(row) == default)
    return ScheduleSpace(names=space.names, values=space.values, rows=tuple(sorted(distinct.values())))


def _effect(schedule: Schedule, op: GemmOp, target: Target) -> tuple[int | str, ...]:
    """Return what a schedule's values come to: tile, blocks, split, and what is fetched early."""
    blocking = Blocking.of(schedule, op, target)
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    rows = m if blocking.split == "columns" else min(blocking.mc, m)
    return blocking.mr, blocking.nv, min(blocking.kc, k), rows, min(blocking.nc, n), blocking.split, blocking.upcoming


def _up_to_whole(extent: int, default: Value, *blocks: int) -> tuple[int, ...]:
    """Return the default and the blocks, ascending, up to the least of those that hold the whole extent."""
    ascending = _sorted(default, *blocks)
    return _sorted(default, *ascending[: sum(block < extent for block in ascending) + 1])


def _sorted(*values: Value) -> tuple[int, ...]:
    return tuple(sorted({int(value) for value in values}))


def _known(dim: Dim) -> int:
    # A symbolic extent is scheduled for its smallest large case, as packed_default does.
    return dim if isinstance(dim, int) else dim.maximum or 1024
