"""Block sizes of a packed GEMM: the values of its schedule, what makes them valid, and a good choice without tuning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from tracea.core.ops.gemm import GemmOp
from tracea.core.ops.grouped_gemm import GroupedGemmOp
from tracea.core.tensor_type import Dim
from tracea.errors import InvalidSchedule
from tracea.kernels.cores import waits_long
from tracea.kernels.operands import vector_lanes
from tracea.kernels.space import ScheduleSpace, Value
from tracea.semantic.schedule import MOST_OF_TILE, Schedule
from tracea.targets.target import Target

__all__ = [
    "MOST_UNROLLED",
    "PANELS_PER_SWEEP",
    "Blocking",
    "check_registers",
    "check_tile",
    "cores_of_matrix",
    "equal_blocks",
    "fetches_rows",
    "fits_registers",
    "has_rows",
    "packed_default",
    "prepacked_default",
    "prepacked_space",
    "round_up",
    "row_block_cost",
    "tile_cycles",
    "wide_tile",
]

MOST_UNROLLED: Final = 64  # steps of a tile: a compiler takes minutes for the text of thousands
PANELS_PER_SWEEP: Final = 8  # panels of B that one packing task fills: reads run along rows of B (pack.h)

_LINE_BYTES: Final = 64
_DEEP: Final = 1024  # bytes / 4 of a K block: few passes over C; the best of the sweep in benchmarks/NOTES.md
_SHALLOW: Final = 384  # where all rows of A are one block
_FETCHED: Final = 192  # the same where tiles fetch the rows of the next panel: this one stays in the first-level cache
_SHORT_SUM: Final = 192  # below this K, packing and C weigh more than the products
_FAR_AHEAD: Final = 32  # steps: B straight from memory
_WALKED_ROWS: Final = 16  # of a block whose sums are short: C is walked along its rows
_TALLEST: Final = 182  # rows of a block: taller ones were slower
_L2_SHARE: Final = 3  # a block of A is this part of the second-level cache
_FEW_ROWS: Final = 160  # below this many rows, packing A once per task costs less than sharing B behind a barrier
_SURELY: Final = 1.05  # of the cycles of a tile: another that takes as many more is slower
_TEAM_ROWS: Final = 640  # the same where threads share B: a barrier for every K block costs more
_ROW_BLOCK_COST: Final = 8.0  # rows of products that cost as much as the start of a row block
# The same on Intel's servers, and what a block's size costs there: a thread that comes late leaves others what it has
# not begun, so short tasks are worth their starts (two threads, measured: benchmarks/NOTES.md, 2026-11-27).
_SHORT_TASKS: Final = (2.0, 0.1)
_K_BLOCK_COST: Final = 24.0  # steps of products that cost as much as one more pass over C


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """A packed GEMM's schedule in numbers, with blocks rounded up to whole tiles.

    Units: ``mr``, ``mc`` rows; ``nv`` vectors, ``nr``, ``nc`` columns; ``kc`` steps. ``tail`` rows have code of their
    own.
    ``sweep`` panels of B are packed at a time; ``upcoming`` is 1 where tiles fetch B's next panel into the second-level
    cache, or the rows that it is packed from where that is done just before its use. Panels for matrix tiles hold each
    element as a sum of ``terms``, then ``marks`` of each step, and come in granules of ``granule`` steps.
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
    terms: int = 1
    marks: int = 0
    granule: int = 1

    @classmethod
    def of(cls, schedule: Schedule, op: GemmOp | GroupedGemmOp, target: Target) -> Blocking:
        """Read and check a schedule.

        Raises:
            InvalidSchedule: a value is missing, not positive, or the tile does not fit the registers.
        """
        get = schedule.integer
        mr, nv = get("mr"), get("nv")
        nr = nv * vector_lanes(target, op.accumulator)
        schedule.check_range(1, "mr", "nv", "kc", "mc", "nc", "sweep", most=MOST_OF_TILE)
        schedule.check_range(1, "unroll", most=MOST_UNROLLED)
        schedule.check_range(0, "prefetch_a", "prefetch_b", "upcoming", most=MOST_OF_TILE)
        check_tile(schedule, target)
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
            tail=get("tail"),
            sweep=min(get("sweep"), round_up(get("nc"), nr) // nr),
            upcoming=get("upcoming"),
            split=schedule.word("split"),
        )

    def upcoming_lines(self, rows: int, element_bytes: int) -> int:
        """Return the cache lines of B's next panel that each tile of a block of ``rows`` rows fetches."""
        if not self.upcoming:
            return 0
        panel_lines = -(-self.kc * self.nr * element_bytes // _LINE_BYTES)
        return -(-panel_lines // max(1, rows // self.mr))

    def upcoming_rows(self, rows: int) -> int:
        """Return the rows of B's next panel that each tile of a block of ``rows`` rows fetches before it is packed."""
        return -(-self.kc // max(1, rows // self.mr))

    def width(self, panel: int) -> int:
        """Return the elements of a step of a panel of so many rows or columns."""
        return panel * self.terms + self.marks

    @property
    def matrix_tiles(self) -> bool:
        """Whether tiles are matrix registers, whose routine works on a whole block of C."""
        return self.granule > 1

    @property
    def rows(self) -> tuple[int, ...]:
        """Row counts with code of their own, descending."""
        return (self.mr, self.tail) if self.tail else (self.mr,)


def has_rows(op: GemmOp) -> bool:
    """Whether the columns of B follow each other in the sums' type, so that tiles can ask for its rows by lines."""
    return op.b.strides[-1] == 1 and op.b.dtype is op.accumulator


def fetches_rows(op: GemmOp, target: Target) -> bool:
    """Whether tiles ask for the rows that the next panel is packed from: B has rows, and no core's cache holds them."""
    n, k = _known(op.n), _known(op.k)
    return has_rows(op) and k * n * op.accumulator.nbytes > target.l2_bytes


def cores_of_matrix(op: GemmOp, target: Target) -> int:
    """Return how many cores one matrix of a batch is divided among: one, where matrices are work enough for all."""
    return -(-target.cores // max(1, prod(map(_known, op.batch))))


def packed_default(op: GemmOp, target: Target) -> Schedule:
    """Return the schedule that needs no tuning: blocks near the measured best that divide evenly among the cores."""
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    lanes, narrow = vector_lanes(target, op.accumulator), op.accumulator.nbytes // 4
    cores = cores_of_matrix(op, target)
    columns = m <= (_FEW_ROWS if cores == 1 else _TEAM_ROWS) and n >= 2 * cores * _widest(target, lanes)
    wide = columns or k * narrow < _SHORT_SUM
    # The epilogue walks a tile row by row: longer rows, fewer of them.
    mr, nv = _TILES[target.isa][1 if wide or not op.epilogue.is_identity else 0]
    full = _TILES[target.isa][0]
    # Measured, tiles of 14 by 2 beside 8 by 3: 49 rows 0.96 of the time, 33 0.99, 17 0.89; 9 rows, less than one, 1.10.
    if columns and m > full[0]:
        # What is left of a task's columns decides, beyond a margin where tiles hold fewer products or rows are walked.
        alike = prod(full) == mr * nv and op.epilogue.is_identity
        surely, share = 1.0 if alike else _SURELY, -(-n // cores)
        others = tile_cycles(m, share, (mr, nv), lanes, target)
        mr, nv = full if surely * tile_cycles(m, share, full, lanes, target) <= others else (mr, nv)
    if columns:
        depth = _FETCHED if fetches_rows(op, target) else _SHALLOW
        kc, mc, nc = equal_blocks(k, depth // narrow), round_up(m, mr), -(-n // cores)
    else:
        kc, mc = min(_row_blocks(m, k, mr, op, target, walked=wide))[1:]
        nc = _shared_columns(n, kc, op, target)
    kc = round_up(kc, 2)
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=2,
        prefetch_a=0,
        prefetch_b=0,
        kc=kc,
        mc=mc,
        nc=round_up(nc, nv * lanes),
        tail=m % mr,
        sweep=1 if columns else PANELS_PER_SWEEP,
        upcoming=int(fetches_rows(op, target) if columns else 4 * kc * nc * op.accumulator.nbytes > target.l2_bytes),
        split="columns" if columns else "rows",
    )


def prepacked_default(op: GemmOp, target: Target) -> Schedule:
    """Return the schedule for a B in panels that needs no tuning."""
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    if m > _FEW_ROWS:
        return packed_default(op, target)
    mr, nv = _TILES[target.isa][1]
    few = m <= 2 * mr  # so few that the time is that of reading B: ask for it early
    nr = nv * vector_lanes(target, op.accumulator)
    return Schedule(
        mr=mr,
        nv=nv,
        unroll=2,
        prefetch_a=0,
        prefetch_b=_FAR_AHEAD if few else 0,
        kc=k if m <= mr else round_up(equal_blocks(k, 512 * 4 // op.accumulator.nbytes), 2),
        mc=round_up(m, mr),
        nc=round_up(-(-n // target.cores), nr),
        tail=m % mr,
        sweep=1,
        upcoming=0 if m <= mr else 1,
        split="columns",
    )


def prepacked_space(op: GemmOp, target: Target) -> ScheduleSpace:
    """Return the schedules worth measuring where B is in panels already."""
    default = prepacked_default(op, target)
    lanes, nbytes = vector_lanes(target, op.accumulator), op.accumulator.nbytes
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    share, latency = _a_elements(op, target), target.fma_per_cycle * target.fma_latency_cycles
    tiles = [(mr, nv) for mr, nv in _TILES[target.isa] if fits_registers(mr, nv, target) and mr * nv >= latency]
    depths = (4 * depth // nbytes for depth in (256, 384, 512, 1024, k))
    kcs = _sizes(default.integer("kc"), *(round_up(equal_blocks(k, depth), 2) for depth in depths))
    mcs = _sizes(default.integer("mc"), *(mc for mc in _ROW_BLOCKS if mc < m), m)
    ncs = _sizes(default.integer("nc"), *(nc for nc in (1024,) if nc < n), round_up(n, lanes))

    def blocks() -> Iterator[dict[str, Value]]:
        for kc, mc, nc, upcoming in product(kcs, mcs, ncs, (0, 1)):
            rows = min(mc, m)
            kept = (2 * rows * kc >= share or mc >= m or k <= _SHORT_SUM) and 3 * rows * kc <= 4 * share
            if kept and kc * nc * nbytes <= 8 * target.l2_bytes:
                yield {"kc": kc, "mc": mc, "nc": nc, "upcoming": upcoming, "split": "rows", "sweep": PANELS_PER_SWEEP}
        # All rows of A are one block.
        for kc, nc, upcoming in product(kcs, ncs, (0, 1)):
            if 2 * m * kc * nbytes <= target.l2_bytes:
                yield {"kc": kc, "mc": default["mc"], "nc": nc, "upcoming": upcoming, "split": "columns", "sweep": 1}

    chosen: list[Mapping[str, Value]] = [default]
    for (mr, nv), unroll, prefetch_b, block in product(tiles, (1, 2), (0, 8, _FAR_AHEAD), tuple(blocks())):
        tile: dict[str, Value] = {
            "mr": mr,
            "nv": nv,
            "tail": m % mr,
            "unroll": unroll,
            "prefetch_a": 0,
            "prefetch_b": prefetch_b,
        }
        chosen.append({**tile, **block})
    return ScheduleSpace.listed(chosen)


def _a_elements(op: GemmOp, target: Target) -> int:
    return target.l2_bytes // (_L2_SHARE * op.accumulator.nbytes)


def _row_blocks(
    m: int, k: int, mr: int, op: GemmOp, target: Target, *, walked: bool
) -> Iterator[tuple[float, int, int]]:
    """Yield pairs of K block and rows of a task, whole tiles, with their cost: in steps of the core that is last."""
    narrow = op.accumulator.nbytes // 4
    start, late = _SHORT_TASKS if target.cores > 1 and waits_long(target) else (_ROW_BLOCK_COST, 0.0)
    fewest = max(1, -(-k // (_DEEP // narrow)))
    for passes in (fewest, fewest + 1):
        kc = -(-k // passes)
        limit = _WALKED_ROWS if walked else min(_TALLEST, _a_elements(op, target) // kc)
        most = max(mr, min(limit, round_up(m, mr)) // mr * mr)
        for mc in range(most, max(mr, most // 3) - 1, -mr):
            rows = row_block_cost(m, mc, target.cores, start=start) + late * mc
            yield rows * (k + _K_BLOCK_COST * passes), kc, mc


def row_block_cost(m: int, mc: int, cores: int, *, start: float = _ROW_BLOCK_COST) -> float:
    """Return what row blocks of ``mc`` cost the core that is last, in rows of products; ``start`` is what each adds."""
    rounds, left = divmod(m // mc, cores)
    rows = rounds * mc + (mc if left else m % mc)
    return rows + start * -(-m // (mc * cores))


def _shared_columns(n: int, kc: int, op: GemmOp, target: Target) -> int:
    """Return the columns of B in panels at a time: all of them, unless they would not fit a few second-level caches."""
    return equal_blocks(n, max(_widest(target, 1), 8 * target.l2_bytes // (kc * op.accumulator.nbytes)))


def _widest(target: Target, lanes: int) -> int:
    return lanes * max(nv for _, nv in _TILES[target.isa])


def fits_registers(mr: int, nv: int, target: Target) -> bool:
    """Whether the accumulators, the vectors of B and one broadcast of A fit the vector registers."""
    # The plain build's vectors are arrays that no register holds: any tile compiles there.
    return target.isa == "plain" or mr * nv + nv + 1 <= target.vector_registers


def tile_cycles(m: int, n: int, tile: tuple[int, int], lanes: int, target: Target) -> int:
    """Return what one step of the reduction costs in tiles of so many rows and vectors: in products.

    A tile of few rows waits for its loads, or for its own sums of the step before.
    """
    mr, nv = tile
    latency = target.fma_per_cycle * target.fma_latency_cycles
    full, rest = divmod(m, mr)
    rows = full * max(mr * nv, mr + nv, latency) + (max(rest * nv, rest + nv, latency) if rest else 0)
    return -(-n // (nv * lanes)) * rows


def wide_tile(target: Target) -> tuple[int, int]:
    """Return rows and vectors of the register tile for few rows and short sums, one that leaves a register free.

    A tile that asks for rows ahead spilled a sum on AVX2 where 4 by 3 filled all sixteen.
    """
    full, (mr, nv) = _TILES[target.isa][:2]
    return (mr, nv) if target.isa == "plain" or mr * nv + nv + 1 < target.vector_registers else full


def check_tile(schedule: Schedule, target: Target) -> None:
    """Check a schedule's register tile ``mr`` by ``nv``, its ``tail`` and its ``split``.

    Raises:
        InvalidSchedule: the tile does not fit the vector registers, the tail is no part of it, or the split is none.
    """
    check_registers(schedule, target)
    schedule.check_range(0, "tail", most=schedule.integer("mr") - 1)  # the rows that are left of the last tile
    schedule.choice("split", "rows", "columns")


def check_registers(schedule: Schedule, target: Target, *, broadcast: str = "mr") -> None:
    """Check a register tile of ``broadcast`` elements, as the schedule calls them, by ``nv`` vectors.

    Raises:
        InvalidSchedule: sums, vectors and one broadcast do not fit the vector registers.
    """
    mr, nv = schedule.integer(broadcast), schedule.integer("nv")
    if not fits_registers(mr, nv, target):
        most = (target.vector_registers - 1) // nv - 1
        smaller = f"{broadcast}={most} at most with nv={nv}" if most > 0 else "choose a smaller nv"
        raise InvalidSchedule(
            field=f"{broadcast}, nv",
            got=f"{broadcast}={mr}, nv={nv}: {mr * nv + nv + 1} vector registers",
            expected=f"{broadcast}*nv + nv + 1 <= {target.vector_registers}, the registers of {target.isa}",
            remedy=smaller,
        )


def equal_blocks(extent: int, limit: int) -> int:
    """Return the block size that cuts ``extent`` into the fewest equal blocks of at most ``limit``."""
    blocks = max(1, -(-extent // limit))
    return max(1, -(-extent // blocks))


def round_up(value: int, multiple: int) -> int:
    """Round up to a multiple, which is the least result."""
    return max(1, -(-value // multiple)) * multiple


# Tiles of mr rows by nv vectors that fill the registers, by instruction set: the first is the default, the second the
# one for few rows and short sums.
_TILES: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "avx512": ((14, 2), (8, 3), (13, 2), (12, 2), (9, 3), (6, 4), (28, 1), (4, 4)),
    "avx2": ((6, 2), (4, 3), (5, 2), (4, 2), (12, 1)),
    "neon": ((8, 3), (6, 4), (12, 2), (10, 2)),
    "plain": ((8, 2), (4, 4), (14, 2)),
}
_ROW_BLOCKS: Final = (32, 56, 84, 126, 168, 224, 252, 336, 504)


def _known(dim: Dim) -> int:
    # A symbolic extent is scheduled for its smallest large case: blocks stay valid for every extent.
    return dim if isinstance(dim, int) else dim.maximum or 1024


def _sizes(first: int, *others: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((first, *others)))
