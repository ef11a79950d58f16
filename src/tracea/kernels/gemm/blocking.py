"""Block sizes of a packed GEMM: the values of its schedule, what makes them valid, and a good choice without tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim
from tracea.errors import InvalidSchedule
from tracea.kernels.operands import vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target

__all__ = [
    "PANELS_PER_SWEEP",
    "Blocking",
    "equal_blocks",
    "fits_registers",
    "packed_default",
    "packed_space",
    "round_up",
]

PANELS_PER_SWEEP: Final = 8  # panels of B that one packing task fills: reads run along rows of B (pack.h)

_LINE_BYTES: Final = 64
_K_BLOCK: Final = 384  # with _M_BLOCK and _N_BLOCK the best of the sweep in benchmarks/NOTES.md
_M_BLOCK: Final = 336
_N_BLOCK: Final = 1024
_FEW_ROWS: Final = 160  # below this many rows, packing A once per task costs less than sharing B behind a barrier


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """A packed GEMM's schedule in numbers, with blocks rounded up to whole tiles.

    Units: ``mr``, ``mc`` rows; ``nv`` vectors, ``nr``, ``nc`` columns; ``kc`` steps. ``tail`` rows have code of their
    own.
    ``sweep`` panels of B are packed at a time; ``upcoming`` is 1 where tiles fetch B's next panel into the second-level
    cache.
    """

    mr: int
    nv: int
    nr: int
    unroll: int
    prefetch_a: int
    prefetch_b: int
    kc: int
    mc: int
    nc: int
    tail: int
    sweep: int
    upcoming: int
    split: str

    @classmethod
    def of(cls, schedule: Schedule, op: GemmOp, target: Target) -> Blocking:
        """Read and check a schedule.

        Raises:
            InvalidSchedule: a value is missing, not positive, or the tile does not fit the registers.
        """
        get = schedule.integer
        mr, nv = get("mr"), get("nv")
        nr = nv * vector_lanes(target, op.accumulator)
        _check_positive(schedule, "mr", "nv", "unroll", "kc", "mc", "nc", "sweep")
        if not fits_registers(mr, nv, target):
            raise InvalidSchedule(
                field="mr, nv",
                got=f"{mr}x{nv}: {mr * nv + nv + 1} registers",
                expected=f"mr*nv + nv + 1 <= {target.vector_registers}",
                remedy="choose a smaller tile",
            )
        split = schedule.word("split")
        tail = get("tail")
        if split not in ("rows", "columns") or not 0 <= tail < mr:
            raise InvalidSchedule(
                field="split, tail",
                got=(split, tail),
                expected=f"rows | columns, 0 <= tail < {mr}",
                remedy="see the space",
            )
        return cls(
            mr=mr,
            nv=nv,
            nr=nr,
            unroll=get("unroll"),
            prefetch_a=get("prefetch_a"),
            prefetch_b=get("prefetch_b"),
            kc=get("kc"),
            mc=round_up(get("mc"), mr),
            nc=round_up(get("nc"), nr),
            tail=tail,
            sweep=min(get("sweep"), round_up(get("nc"), nr) // nr),
            upcoming=get("upcoming"),
            split=split,
        )

    def upcoming_lines(self, rows: int, element_bytes: int) -> int:
        """Return the cache lines of B's next panel that each tile of a block of ``rows`` rows fetches."""
        if not self.upcoming:
            return 0
        panel_lines = -(-self.kc * self.nr * element_bytes // _LINE_BYTES)
        return -(-panel_lines // max(1, rows // self.mr))

    @property
    def rows(self) -> tuple[int, ...]:
        """Row counts with code of their own, descending."""
        return (self.mr, self.tail) if self.tail else (self.mr,)


def packed_default(op: GemmOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning: equal blocks near the measured best, a task or two for each core."""
    mr, nv, unroll = _tile(target)
    nr = nv * vector_lanes(target, op.accumulator)
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    narrow = op.accumulator.nbytes // 4  # blocks hold bytes: f64 takes half as many elements
    kc = round_up(equal_blocks(k, _K_BLOCK // narrow), unroll)
    columns = m <= _FEW_ROWS and n >= 2 * nr * target.cores
    if columns:
        mc = round_up(m, mr)
        nc = equal_blocks(n, -(-n // (1 if target.cores == 1 else 2 * target.cores)))
    else:
        blocks = -(-m // (_M_BLOCK // narrow))
        if target.cores > 1:
            blocks = max(blocks, min(2 * target.cores, -(-m // mr)))
        mc = round_up(-(-m // max(blocks, 1)), mr)
        nc = equal_blocks(n, _N_BLOCK)
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=unroll,
        prefetch_a=0,
        prefetch_b=0,
        kc=kc,
        mc=mc,
        nc=round_up(nc, nr),
        tail=m % mr,
        sweep=1 if columns else PANELS_PER_SWEEP,
        upcoming=0 if columns else 1,
        split="columns" if columns else "rows",
    )


def packed_space(op: GemmOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring, the default among them: full registers, panels that stay in a cache."""
    default = packed_default(op, target)
    lanes = vector_lanes(target, op.accumulator)
    nbytes = op.accumulator.nbytes
    m = _known(op.m)

    def valid(chosen: Mapping[str, Value]) -> bool:
        mr, nv, kc, mc, nc = (int(chosen[name]) for name in ("mr", "nv", "kc", "mc", "nc"))
        if all(chosen[name] == default[name] for name in chosen):
            return True
        latency = target.fma_per_cycle * target.fma_latency_cycles
        return (
            (mr, nv) in tiles
            and fits_registers(mr, nv, target)
            and mr * nv >= latency
            and int(chosen["tail"]) == m % mr
            and kc * nv * lanes * nbytes <= 2 * target.l1d_bytes
            and mc * kc * nbytes <= target.l2_bytes // 2
            and kc * nc * nbytes <= 8 * target.l2_bytes
            and mc >= mr
        )

    tiles = _TILES[target.isa]
    axes: dict[str, tuple[Value, ...]] = {
        "mr": _with(default["mr"], *(mr for mr, _ in tiles)),
        "nv": _with(default["nv"], *(nv for _, nv in tiles)),
        "unroll": _with(default["unroll"], 2, 4),
        "prefetch_a": (0,),
        "prefetch_b": (0,),
        "kc": _with(default["kc"], 128, 192, 256, 384, 512),
        "mc": _with(default["mc"], 84, 168, 336, 672),
        "nc": _with(default["nc"], 512, 1024, 2048),
        "tail": tuple(sorted({m % mr for mr, _ in tiles} | {int(default["tail"])})),
        "sweep": (default["sweep"],),
        "upcoming": (0, 1),
        "split": ("rows", "columns") if m <= 2 * _FEW_ROWS else (default["split"],),
    }
    return ScheduleSpace.enumerated(axes, valid)


def fits_registers(mr: int, nv: int, target: Target) -> bool:
    """Whether the accumulators, the vectors of B and one broadcast of A fit the vector registers."""
    # The plain build's vectors are arrays that no register holds: any tile compiles there.
    return target.isa == "plain" or mr * nv + nv + 1 <= target.vector_registers


def equal_blocks(extent: int, limit: int) -> int:
    """Return the block size that cuts ``extent`` into the fewest equal blocks of at most ``limit``."""
    blocks = max(1, -(-extent // limit))
    return max(1, -(-extent // blocks))


def round_up(value: int, multiple: int) -> int:
    """Round up to a multiple, which is the least result."""
    return max(1, -(-value // multiple)) * multiple


# Tiles of mr rows by nv vectors that fill the registers, by instruction set; the first is the default.
_TILES: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "avx512": ((14, 2), (12, 2), (10, 2), (9, 3), (8, 3), (6, 4), (28, 1)),
    "avx2": ((6, 2), (4, 3), (5, 2), (4, 2), (12, 1)),
    "neon": ((8, 3), (6, 4), (12, 2), (10, 2)),
    "plain": ((8, 2), (14, 2), (4, 4)),
}


def _tile(target: Target) -> tuple[int, int, int]:
    mr, nv = _TILES[target.isa][0]
    return mr, nv, 2


def _known(dim: Dim) -> int:
    # A symbolic extent is scheduled for its smallest large case: blocks stay valid for every extent.
    return dim if isinstance(dim, int) else dim.maximum or 1024


def _with(first: Value, *others: Value) -> tuple[Value, ...]:
    return tuple(dict.fromkeys((first, *others)))


def _check_positive(schedule: Schedule, *names: str) -> None:
    for name in names:
        if schedule.integer(name) < 1:
            raise InvalidSchedule(
                field=name, got=schedule[name], expected="at least 1", remedy="choose a positive block"
            )
