"""Low-rank product in one kernel: a task multiplies its rows by the first thin factor, then that by the second.

What lies between, ``x @ a`` of the task's rows, is as wide as the rank and stays in the thread's own scratch, in the
type of the sums. Operands are read where they lie if their rows are contiguous and stored as they are summed; others
are packed: ``x`` by the task that reads it, both factors once, by the team.

Where the rank is small, a step gives a vector of the first factor too little to do. Its panels then hold several
``steps`` in a vector, and all of k is one sum.

The tile of the last rows has code for exactly ``tail`` rows: the schedule is for one value of m modulo mr, a guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.ops.low_rank import LowRankOp
from tracea.core.tensor_type import Dim, TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.blocking import MOST_UNROLLED, check_tile, equal_blocks, round_up
from tracea.kernels.gemm.direct import row_height, row_width
from tracea.kernels.gemm.operands import GemmOperands, K, M, N, gemm_tile, kernel_name, step_tile
from tracea.kernels.gemm.requirements import FLOATS
from tracea.kernels.gemm.thin_factor import ThinFactor
from tracea.kernels.operands import params_of, scratch, tensor_buffer, vector_lanes
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.space import ScheduleSpace, Value
from tracea.kernels.variant import Variant
from tracea.semantic.index import Const, Index, Param, Var, ceil_div, equal
from tracea.semantic.nodes import Barrier, Block, For, Level, MicroKernel, Node, Pack, Parallel, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = [
    "LOW_RANK",
    "NOT_EMPTY",
    "ONE_ARITHMETIC",
    "R",
    "build_low_rank",
    "low_rank_types",
    "second_product",
]

R = Param("r", minimum=1, maximum=2**16)  # so that all of a factor in panels has a size
_IC, _MC = Var("ic"), Var("mc")
_IB, _HIGH = Var("ib"), Var("high")  # rows whose products follow each other, of a task
_IR, _ROWS = Var("ir"), Var("rows")
_IS, _LINES = Var("is"), Var("lines")  # rows of the second product
_PC, _KC = Var("pc"), Var("kc")
_PR, _RC = Var("pr"), Var("rc")
_JR, _WIDE = Var("jr"), Var("wide")  # columns of the rank
_JN, _COLUMNS = Var("jn"), Var("columns")
_JP, _PW = Var("jp"), Var("pw")  # columns of a factor that is packed
_JQ, _QW = Var("jq"), Var("qw")

_K_BLOCK: Final = 1024
_TASK_ROWS: Final = 48  # with theirs of x and of the result, a fraction of a second-level cache
_FEW_REGISTERS: Final = 16
_TILE_ROWS: Final = 6  # as many addresses as stay in integer registers
_PACKED_ROWS: Final = 24  # packing both factors paid from here on (benchmarks/NOTES.md)
_TASKS: Final = (12, 24, 48, 96, 192)
_PACKS: Final = ("pack_x", "pack_a", "pack_b")
_STEPS: Final = 4  # of a vector where it holds several
_STEP_TASK_ROWS: Final = 512  # each task packs
_STEP_LANES: Final = 16  # of vectors that hold them: of shorter ones all that is wanted are the same products
_STEP_RANK: Final = 24  # (benchmarks/NOTES.md)
_STEP_SHARE: Final = 4  # of a second-level cache that panels fill at most


def low_rank_types(op: LowRankOp, like: LowRankOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer."""
    del like
    extras = {f"x{i}": type_ for i, type_ in enumerate(op.epilogue.operands, start=1)}
    return {"x": op.x, "a": op.a, "b": op.b, **extras, "c": op.infer()}


def build_low_rank(op: LowRankOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of ``op``."""
    get = schedule.integer
    schedule.check_range(1, "mr", "nv_rank", "nv", "kc", "rc", "mc")
    schedule.check_range(1, "unroll", most=MOST_UNROLLED)
    schedule.check_range(0, "pack_x", "pack_a", "pack_b", most=1)
    for nv in ("nv", "nv_rank"):
        check_tile(Schedule({"mr": get("mr"), "nv": get(nv), "tail": get("tail"), "split": "rows"}), target)
    mr, kc, lanes = get("mr"), get("kc"), vector_lanes(target, op.accumulator)
    steps = _steps(schedule, op)
    mc, rows = round_up(get("mc"), mr), (mr, get("tail")) if get("tail") else (mr,)
    second = GemmOperands.of(second_product(op), depth=R)
    x = tensor_buffer("x", op.x, (M, K), (op.m, op.k), BufferRole.INPUT)
    first = ThinFactor.of(
        tensor_buffer("a", op.a, (K, R), (op.k, op.r), BufferRole.INPUT),
        op.accumulator,
        get("nv_rank") * lanes // steps,
        packed=_must_pack(op.a, op) or bool(get("pack_a")),
        steps=steps,
    )
    last = ThinFactor.of(
        second.b, op.accumulator, get("nv") * lanes, packed=_must_pack(op.b, op) or bool(get("pack_b"))
    )
    packs_x = _must_pack(op.x, op) or bool(get("pack_x"))
    # A task that packs has many rows; what lies between is that of a few at a time.
    few = min(mc, round_up(_TASK_ROWS, mr))
    origin, high, most = (_IC, _MC, mc) if steps == 1 else (_IC + _IB, _HIGH, few)
    inner = scratch("inner", op.accumulator, MemorySpace.THREAD, most, R)
    x_panels = scratch("x_panels", op.accumulator, MemorySpace.THREAD, mc // mr, kc, mr)
    sums = () if second.sums_in_place else (scratch("sums", op.accumulator, MemorySpace.THREAD, most, N),)

    tile = MicroKernel(
        intrinsic=gemm_tile(
            panels=(packs_x, first.panels is not None),
            mr=mr,
            nv=get("nv_rank"),
            nr=first.columns,
            unroll=get("unroll"),
            prefetch=(0, 0),
            rows=rows,
        ),
        a=x_panels.region((_IR // mr, 0, 0), (1, _KC, mr)) if packs_x else x.region((_IC + _IR, _PC), (_ROWS, _KC)),
        b=first.region(_PC, _JR, _KC, _WIDE),
        c=inner.region((_IR, _JR), (_ROWS, _WIDE)),
        accumulate=_PC > 0,
    )
    pack_x = Pack(
        source=x.region((_IC, _PC), (_MC, _KC)),
        target=x_panels.region((0, 0, 0), (ceil_div(_MC, mr), _KC, mr)),
        panel=mr,
        axis=0,
    )
    thin = MicroKernel(
        intrinsic=step_tile(mr=mr, nv=get("nv_rank"), nr=first.columns, unroll=get("unroll"), rows=rows),
        a=x.region((origin + _IR, 0), (_ROWS, K)),
        b=first.region(Const(0), _JR, K, _WIDE),
        c=inner.region((_IR, _JR), (_ROWS, _WIDE)),
        granule=steps,
    )
    in_blocks = For(
        var=_PC,
        extent=K,
        step=Const(kc),
        length=_KC,
        body=block(
            *((pack_x,) if packs_x else ()),
            _tiles((_JR, R, first.columns, _WIDE), (_IR, high, mr, _ROWS), tile),
        ),
    )
    columns, lines = (_JR, R, first.columns, _WIDE), (_IR, high, mr, _ROWS)
    into_rank = in_blocks if steps == 1 else _tiles(columns, lines, thin, rows_first=True)
    row = origin + _IS
    out = MicroKernel(
        intrinsic=gemm_tile(
            panels=(False, last.panels is not None),
            mr=mr,
            nv=get("nv"),
            nr=last.columns,
            unroll=get("unroll"),
            prefetch=(0, 0),
            rows=rows,
        ),
        a=inner.region((_IS, _PR), (_LINES, _RC)),
        b=last.region(_PR, _JN, _RC, _COLUMNS),
        c=sums[0].region((_IS, _JN), (_LINES, _COLUMNS)) if sums else second.c.region((row, _JN), (_LINES, _COLUMNS)),
        accumulate=_PR > 0,
        finish=_PR + _RC >= R,
        epilogue=second.epilogue(row, _JN, _LINES, _COLUMNS),
    )
    out_of_rank = For(
        var=_PR,
        extent=R,
        step=Const(get("rc")),
        length=_RC,
        # A row of tiles after the other: the result is then written along its rows (benchmarks/NOTES.md).
        body=block(_tiles((_JN, N, last.columns, _COLUMNS), (_IS, high, mr, _LINES), out, rows_first=True)),
    )
    products: tuple[Node, ...] = (into_rank, out_of_rank)
    if steps > 1:
        blocks = For(var=_IB, extent=_MC, step=Const(few), length=_HIGH, body=block(*products))
        products = (*first.packed_by_task(), blocks)
    task = Parallel(level=Level.TASK, var=_IC, extent=M, step=Const(mc), length=_MC, body=block(*products))
    packing = (*first.packing(_JP, _PW), *last.packing(_JQ, _QW))
    panels = [factor.panels for factor in (first, last) if factor.panels is not None]
    buffers = (
        x,
        first.buffer,
        second.b,
        *second.extras,
        second.c,
        *panels,
        *((x_panels,) if packs_x else ()),
        inner,
        *sums,
    )
    return TileKernel(
        name=kernel_name(op.key, LOW_RANK_ID, schedule, target),
        op=op,
        variant=LOW_RANK_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=Block(nodes=(*packing, *((Barrier(),) if packing else ()), task)),
        assumptions=equal(M % mr, get("tail")),
    )


def _tiles(
    columns: tuple[Var, Index, int, Var], rows: tuple[Var, Index, int, Var], tile: Node, *, rows_first: bool = False
) -> Node:
    """Return the loops over the tiles of some rows: ``columns`` and ``rows`` are (variable, extent, step, length)."""
    column, width, wide, length = columns
    row, tall, high, lines = rows

    def over_columns(inside: Node) -> For:
        return For(var=column, extent=width, step=Const(wide), length=length, body=block(inside))

    def over_rows(inside: Node) -> For:
        return For(var=row, extent=tall, step=Const(high), length=lines, body=block(inside))

    return over_rows(over_columns(tile)) if rows_first else over_columns(over_rows(tile))


def second_product(op: LowRankOp) -> GemmOp:
    """Return the product that makes the result: what lies between by ``b``, then the epilogue."""
    return GemmOp(
        m=op.m,
        n=op.n,
        k=op.r,
        a=TensorType((op.m, op.r), op.accumulator),
        b=op.b,
        epilogue=op.epilogue,
        accumulator=op.accumulator,
        out=op.infer(),
    )


def _steps(schedule: Schedule, op: LowRankOp) -> int:
    """Return how many steps a vector of the first factor holds.

    Raises:
        InvalidSchedule: several, of operands that such a tile does not read.
    """
    steps = schedule.integer("steps")
    fits = _holds_steps(op) and bool(schedule.integer("pack_a")) and not schedule.integer("pack_x")
    if steps != 1 and (steps != _STEPS or not fits or schedule.integer("nv_rank") > _STEPS):
        wanted = f"1, or {_STEPS} with pack_a=1, pack_x=0, nv_rank <= {_STEPS}, f32 and contiguous rows of x"
        raise InvalidSchedule(field="steps", got=schedule.key, expected=wanted, remedy="steps=1")
    return steps


def _holds_steps(op: LowRankOp) -> bool:
    return op.x.dtype is op.a.dtype is op.accumulator is DType.F32 and not _must_pack(op.x, op)


def _must_pack(type_: TensorType, op: LowRankOp) -> bool:
    return type_.dtype is not op.accumulator or not (type_.shape[-1] == 1 or type_.strides[-1] == 1)


def _default(op: LowRankOp, target: Target) -> Schedule:
    m, n, k, r = (_known(dim) for dim in (op.m, op.n, op.k, op.r))
    lanes = vector_lanes(target, op.accumulator)
    packs = _repays_packing(m, target)
    width = _panel_width if packs else row_width
    mr = equal_blocks(m, _TILE_ROWS) if packs else row_height(m, target)  # of both products
    nv_rank, nv = (width(mr, columns, lanes, target) for columns in (r, n))
    mc = _shared_rows(m, mr, target.cores) if packs else round_up(min(_TASK_ROWS, -(-m // target.cores)), mr)
    steps = 1
    if _repays_steps(op, -(-m // target.cores), k, r, target):
        steps, nv_rank = _STEPS, _step_vectors(r, lanes)
        mc = round_up(equal_blocks(-(-m // target.cores), _STEP_TASK_ROWS), mr)
    return Schedule(
        mr=mr,
        nv_rank=nv_rank,
        nv=nv,
        kc=equal_blocks(k, _K_BLOCK),
        rc=equal_blocks(r, _K_BLOCK),
        mc=mc,
        tail=m % mr,
        unroll=2,
        steps=steps,
        pack_x=0,
        pack_a=int(packs or steps > 1),
        pack_b=int(packs),
    )


def _repays_packing(m: int, target: Target) -> bool:
    """Whether factors are read from panels: tiles of sixteen registers are too small to hide where a factor lies.

    A tile of 6 rows by 2 vectors asks for 64 bytes in 6 cycles. Rows of a factor are far apart, all in few sets of the
    first-level cache, so that without panels each tile reads them from the second (benchmarks/NOTES.md).
    """
    return target.isa != "plain" and target.vector_registers <= _FEW_REGISTERS and m >= _PACKED_ROWS


def _repays_steps(op: LowRankOp, rows: int, k: int, r: int, target: Target) -> bool:
    """Whether a vector of the first factor holds several steps: few columns would give a vector of them few uses.

    Each tile of rows reads all panels, from the second-level cache.
    """
    cached = _STEP_SHARE * k * r * op.accumulator.nbytes <= target.l2_bytes
    few = r <= _STEP_RANK and rows >= _PACKED_ROWS and cached
    return few and vector_lanes(target, op.accumulator) == _STEP_LANES and _holds_steps(op)


def _step_vectors(r: int, lanes: int) -> int:
    """Return the vectors of a tile that hold several steps: equal tiles, of one vector of results at most."""
    return equal_blocks(-(-r * _STEPS // lanes), _STEPS)


def _panel_width(mr: int, n: int, lanes: int, target: Target) -> int:
    """Return the vectors of a register tile that reads ``mr`` rows of A where they lie, and panels of B."""
    return min((target.vector_registers - 1) // (mr + 1), -(-n // lanes))


def _shared_rows(m: int, mr: int, cores: int) -> int:
    """Return the rows of a task: near the usual, and such that the core that is last has the fewest."""
    fewest = max(mr, round_up(min(_TASK_ROWS, -(-m // cores)), mr))
    return min(range(fewest, 2 * fewest, mr), key=lambda rows: (_last_rows(m, rows, cores), rows))


def _last_rows(m: int, mc: int, cores: int) -> int:
    """Return the rows of the core that has the most, where tasks have ``mc``."""
    rounds, left = divmod(-(-m // mc), cores)
    return min(m, (rounds + (left > 0)) * mc)


def _space(op: LowRankOp, target: Target) -> ScheduleSpace:
    default = dict(_default(op, target).items())
    m = _known(op.m)
    lanes = vector_lanes(target, op.accumulator)
    width = _panel_width if _repays_packing(m, target) else row_width
    chosen: list[Mapping[str, Value]] = [default]
    for high in _heights(int(default["mr"])):
        nv_rank, nv = (width(high, _known(columns), lanes, target) for columns in (op.r, op.n))
        tile: dict[str, Value] = {"mr": high, "nv_rank": nv_rank, "nv": nv, "tail": m % high, "steps": 1}
        for rows, packed in product(_TASKS, product((0, 1), repeat=3)):
            mc = round_up(min(rows, -(-m // target.cores)), high)
            chosen.append({**default, **tile, "mc": mc, **dict(zip(_PACKS, packed, strict=True))})
            if lanes == _STEP_LANES and packed == (0, 1, 0) and _holds_steps(op):
                vectors = _step_vectors(_known(op.r), lanes)
                chosen.append({**chosen[-1], "steps": _STEPS, "nv_rank": vectors})
    return ScheduleSpace.listed(chosen)


def _heights(default: int) -> Sequence[int]:
    return tuple(dict.fromkeys((default, max(1, default - 1), max(1, default - 2))))


def _known(dim: Dim) -> int:
    return dim if isinstance(dim, int) else dim.maximum or 1024


NOT_EMPTY = condition(
    "k, r >= 1",
    lambda op, _: op.k != 0 and op.r != 0,
    needed="k >= 1 and r >= 1",
    found=lambda op: f"k = {op.k}, r = {op.r}",
    remedy="an empty sum is the epilogue of zero: use gemm with k = 0",
)


def _is_pure(op: LowRankOp) -> bool:
    types = {type_.dtype for type_ in (*op.operands, op.infer())}
    return (types == {DType.F64}) == (op.accumulator is DType.F64) and (DType.F64 not in types or len(types) == 1)


ONE_ARITHMETIC = condition(
    "one arithmetic",
    lambda op, _: _is_pure(op),
    needed="f64 everywhere with f64 sums, or nowhere with f32 sums",
    found=lambda op: f"{', '.join(type_.dtype.value for type_ in op.operands)}, sums {op.accumulator.value}",
    remedy="cast the operands to one of the two",
)

LOW_RANK_ID = "gemm.low_rank"
LOW_RANK = Variant(
    id=LOW_RANK_ID,
    op_type=LowRankOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        element_types(FLOATS),
        strided_layouts,
        non_negative_strides,
        NOT_EMPTY,
        ONE_ARITHMETIC,
    ),
    preferences=(),
    priority=50,
    build=build_low_rank,
    space=_space,
    default_schedule=_default,
)
