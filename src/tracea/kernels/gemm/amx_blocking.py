"""Block sizes of the GEMM on AMX: what is valid, a good choice without tuning, and what is worth measuring."""

from __future__ import annotations

from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.blocking import PANELS_PER_SWEEP, Blocking, cores_of_matrix, equal_blocks, round_up
from tracea.kernels.gemm.matrix_tiles import GRANULE, TILE, marks_of
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.intrinsics import terms_of
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.targets.target import Target

__all__ = ["amx_blocking", "amx_default", "amx_prepacked_default", "amx_prepacked_space", "amx_space"]

# Measured, benchmarks/NOTES.md: a block of A that leaves room for B's panels and C, and one pass over C where K allows.
_WHOLE_DEPTH: Final = {1: 2048, 2: 1024, 3: 768}  # steps, by terms: up to here K is one block
_DEPTH: Final = {1: 2048, 2: 1024, 3: 512}  # steps of a K block beyond that
_SHARE_OF_CACHE: Final = {1: 0.25, 2: 0.25, 3: 0.4}  # of the second-level cache, for a block of A
_SHALLOW: Final = 384  # where all rows of A are one block, and B is packed before its panels are read
# The same of a B in panels, which come from memory, by terms: its time is that of C's sums, written for each K block.
_SHALLOW_PANELS: Final = {1: 1024, 2: 1024, 3: 512}
_TEAM_ROWS: Final = 320  # the same where threads share B, if A is small: their barriers cost more than A packed twice
_PACKING_TASKS: Final = 2  # of each core at least: all wait for the last panel of B
_FEW_ROWS: Final = 160  # up to this many rows, packing A once per task costs less than sharing B behind a barrier


def amx_blocking(schedule: Schedule, dtype: DType) -> Blocking:
    """Read and check a schedule for operands of ``dtype``.

    Raises:
        InvalidSchedule: a value is missing or not positive, or the K block is no whole number of granules.
    """
    schedule.check_range(1, "kc", "mc", "nc", "sweep", most=MOST_OF_TILE)
    kc, mc, nc, sweep = (schedule.integer(name) for name in ("kc", "mc", "nc", "sweep"))
    split = schedule.choice("split", "rows", "columns")
    if kc % GRANULE:
        raise InvalidSchedule(
            field="kc", got=kc, expected=f"a multiple of {GRANULE}", remedy=f"kc={round_up(kc, GRANULE)}"
        )
    columns = round_up(nc, TILE)
    return Blocking(
        mr=TILE,
        nv=1,
        nr=TILE,
        unroll=1,
        prefetch_a=0,
        prefetch_b=0,
        kc=kc,
        mc=round_up(mc, TILE),
        nc=columns,
        tail=0,
        sweep=min(sweep, columns // TILE),
        upcoming=0,
        split=split,
        terms=terms_of(dtype),
        marks=marks_of(terms_of(dtype)),
        granule=GRANULE,
    )


def amx_default(op: GemmOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning."""
    return _default(op, target, shallow=_SHALLOW)


def amx_space(op: GemmOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them."""
    return _space(op, target, amx_default(op, target))


def amx_prepacked_default(op: GemmOp, target: Target) -> Schedule:
    """Return the schedule for a B in panels that needs no tuning."""
    return _default(op, target, shallow=_SHALLOW_PANELS[terms_of(op.a.dtype)])


def amx_prepacked_space(op: GemmOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring where B is in panels already."""
    return _space(op, target, amx_prepacked_default(op, target))


def _default(op: GemmOp, target: Target, *, shallow: int) -> Schedule:
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    cores = cores_of_matrix(op, target)
    small = cores > 1 and m <= _TEAM_ROWS and _bytes(op) * m * k <= target.l2_bytes // 4
    if m <= _FEW_ROWS or small:
        kc, columns = _depth(k, shallow), round_up(-(-n // cores), TILE)
        return Schedule(kc=kc, mc=round_up(m, TILE), nc=columns, sweep=PANELS_PER_SWEEP, split="columns")
    terms = terms_of(op.a.dtype)
    kc = round_up(k, GRANULE) if k <= _WHOLE_DEPTH[terms] else _depth(k, _DEPTH[terms])
    most = max(TILE, int(target.l2_bytes * _SHARE_OF_CACHE[terms]) // (_bytes(op) * kc) // TILE * TILE)
    mc = round_up(equal_blocks(-(-m // target.cores), most), TILE)
    sweep = _panels_per_task(n, target.cores)
    return Schedule(kc=kc, mc=mc, nc=round_up(n, TILE), sweep=sweep, split="rows")


def _space(op: GemmOp, target: Target, default: Schedule) -> ScheduleSpace:
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    chosen: list[dict[str, Value]] = [dict(default)]
    depths = dict.fromkeys(_depth(k, limit) for limit in (128, 256, 384, 512, 768, 1024, 1536, 2048))
    widths = dict.fromkeys(round_up(equal_blocks(n, limit), TILE) for limit in (256, 512, 1024, 2048, max(n, 1)))
    for kc in depths:
        for nc in widths:
            for mc in dict.fromkeys(round_up(equal_blocks(m, limit), TILE) for limit in (64, 128, 192, 256, 384, 512)):
                if mc * kc * _bytes(op) <= target.l2_bytes:
                    chosen.append({"kc": kc, "mc": mc, "nc": nc, "sweep": PANELS_PER_SWEEP, "split": "rows"})
            if m * kc * _bytes(op) <= 2 * target.l2_bytes:
                for sweep in (1, 4, 8, 16):
                    chosen.append({"kc": kc, "mc": round_up(m, TILE), "nc": nc, "sweep": sweep, "split": "columns"})
    return ScheduleSpace.listed(chosen)


def _panels_per_task(n: int, cores: int) -> int:
    """Return the panels of B that one packing task fills: the usual sweep, unless a core would then have too few."""
    if cores == 1:
        return PANELS_PER_SWEEP
    return max(1, min(PANELS_PER_SWEEP, -(-n // TILE) // (_PACKING_TASKS * cores)))


def _depth(k: int, limit: int) -> int:
    """Return the K block that cuts K into the fewest equal blocks of at most ``limit`` steps, in whole granules."""
    return round_up(equal_blocks(max(k, 1), max(GRANULE, limit)), GRANULE)


def _bytes(op: GemmOp) -> int:
    """Return the bytes of an element that are read in panels."""
    return DType.BF16.nbytes * terms_of(op.a.dtype)


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024
