"""Statistics of slabs and what is made with them: a task reads its slabs from memory once and from cache after that.

A tile is a block of rows or of columns, or one slab of rows and columns. Each statistic is a reduction of the tile into
a few numbers of the thread's scratch, and the result a map of the tile beside them. The same kernels are reductions
over any axes, ``rows.reduce_slabs``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Expr, Input, Unary, UnaryFunction
from tracea.core.ops.rows import ReduceOp
from tracea.core.ops.statistics import Statistic, StatisticsOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type, map_tile
from tracea.kernels.requirements import (
    CPU_ELEMENTS,
    CPU_VECTORS,
    condition,
    non_negative_strides,
    strided_layouts,
)
from tracea.kernels.rows.blocks import has_far_cache, level, returns, streams
from tracea.kernels.rows.operands import known
from tracea.kernels.rows.reduce import reduce_plan
from tracea.kernels.rows.slabs import SlabPlan, Slabs, as_source, slab_plan, slab_types
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Preference, Variant
from tracea.semantic.access import Intrinsic, Region, as_given
from tracea.semantic.index import Const, Index, Param, Var, product
from tracea.semantic.nodes import Block, For, Level, Node, Parallel, PointwiseTile, ReduceTile, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = [
    "REDUCE_SLABS",
    "REDUCE_SLABS_ID",
    "STATISTICS",
    "as_statistics",
    "build_statistics",
    "loops_over",
    "reduce_slab_types",
    "statistics_types",
]

_COLUMNS: Final = 64  # of a tile of columns: whole cache lines, and few enough that a long slab stays in cache
_TILE_BYTES: Final = 128 << 10  # of a tile, over all sources: half of the smallest second cache that a core has
_FEW_TILES: Final = 4  # a core, at least

_WORTH_A_NUMBER: Final = 64  # elements of a slab, four vectors: from here on a function a slab costs less than one each
_CHEAP: Final = (UnaryFunction.NEG, UnaryFunction.ABS, UnaryFunction.FLOOR)
_COSTLY: Final = (BinaryFunction.DIV, BinaryFunction.POW, BinaryFunction.FMOD)

_Source: TypeAlias = StatisticsOp | ReduceOp


def as_statistics(op: _Source) -> StatisticsOp:
    """Return an op as statistics: a reduction is one statistic, and its epilogue what is made of it."""
    if isinstance(op, StatisticsOp):
        return op
    rank, count = len(op.source_shape), len(op.x)
    extras = op.epilogue.operands
    if not op.keepdims:
        extras = tuple(as_source(type_, rank, op.axes) for type_ in extras)
    last = count + len(extras)
    inputs: dict[int, Expr] = {0: Input(last)}
    inputs |= {1 + i: Input(count + i) for i in range(len(extras))}
    return StatisticsOp(
        x=(*op.x, *extras),
        axes=op.axes,
        statistics=(Statistic(op.kind, op.prologue),),
        expr=op.epilogue.expr.substitute(inputs),
        reduced=True,
        keepdims=op.keepdims,
        out=op.infer(),
    )


def statistics_types(op: StatisticsOp, like: StatisticsOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer in merged axes, those of ``like``, the op that the kernel is built for."""
    plan, dims = _plan(like or op), op.source_shape
    names = (*(f"x{i}" for i in range(len(op.x))), "y")
    return {name: plan.apply(type_, dims) for name, type_ in zip(names, slab_types(op), strict=True)}


def reduce_slab_types(op: ReduceOp, like: ReduceOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer of a reduction that is built as statistics."""
    return statistics_types(as_statistics(op), None if like is None else as_statistics(like))


def _plan(op: StatisticsOp) -> SlabPlan:
    plan = slab_plan(op)
    if plan is None:
        raise InvalidSchedule(
            field="axes",
            got=op.axes,
            expected="reduced axes that merge into at most two",
            remedy="reduce one axis after another, or choose another variant",
        )
    return plan


def build_statistics(op: _Source, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of statistics, or of a reduction as one."""
    meant = as_statistics(op)
    schedule.check_range(1, "block")
    plan = _plan(meant)
    dims, types = plan.dims(meant.source_shape), statistics_types(meant)
    rank, reduced = len(dims), plan.reduced
    sizes: tuple[Index, ...] = tuple(Param(f"n{axis}", minimum=int(axis in reduced)) for axis in range(rank))
    # The result has extent 1 on the reduced axes, also where those have one element.
    gone = reduced if meant.reduced else ()
    y_sizes = tuple(Const(1) if axis in gone else size for axis, size in enumerate(sizes))
    y_dims = tuple(1 if axis in gone else dim for axis, dim in enumerate(dims))
    y = tensor_buffer("y", types["y"], y_sizes, y_dims, BufferRole.OUTPUT)
    # What the result reads has one element a slab: it broadcasts over the slab, also where that has one element.
    read = meant.expr.inputs() if meant.reduced else ()
    xs = tuple(
        tensor_buffer(f"x{i}", types[f"x{i}"], sizes, dims, BufferRole.INPUT, spread=reduced if i in read else ())
        for i in range(len(meant.x))
    )
    compute = compute_type(*(type_.dtype for type_ in (*meant.x, meant.infer())))

    blocked = {Slabs.ROWS: rank - 2, Slabs.WHOLE: None, Slabs.COLUMNS: rank - 1}[plan.slabs]
    step = schedule.integer("block")
    loops = [axis for axis in range(rank) if axis not in reduced]
    start, length = Var("start"), Var("length")
    offset: list[Index] = [Var(f"i{axis}") if axis in loops else Const(0) for axis in range(rank)]
    extent: list[Index] = [Const(1) if axis in loops else size for axis, size in enumerate(sizes)]
    held: list[Index | int] = [1] * rank
    if blocked is not None:
        offset[blocked], extent[blocked], held[blocked] = start, length, step
    steps, result = _steps(meant, plan)
    numbers = tuple(scratch(f"s{i}", compute, MemorySpace.THREAD, *held) for i in range(len(steps)))
    one: list[Index] = [Const(1) if axis in reduced else size for axis, size in enumerate(extent)]
    regions = [_window(buffer, offset, extent) for buffer in xs]
    regions += [_window(buffer, [Const(0)] * rank, one) for buffer in numbers]

    nodes: list[Node] = []
    for made, target_ in zip(steps, regions[len(xs) :], strict=True):
        if isinstance(made, Statistic):
            expr, inputs = _used(made.expr, regions)
            nodes.append(
                ReduceTile(
                    kind=made.kind,
                    intrinsic=_routine(plan.slabs, compute),
                    inputs=inputs,
                    prologue=expr,
                    shape=tuple(extent),
                    axes=reduced,
                    target=target_,
                    count=product(*(sizes[axis] for axis in reduced)),
                )
            )
        else:
            expr, inputs = _used(made, regions)
            nodes.append(
                PointwiseTile(intrinsic=map_tile(compute, streaming=False), expr=expr, inputs=inputs, target=target_)
            )
    expr, inputs = _used(result, regions)
    streaming = not meant.reduced and bool(schedule.integer("streaming"))
    into = one if meant.reduced else extent
    nodes.append(
        PointwiseTile(
            intrinsic=map_tile(compute, streaming=streaming), expr=expr, inputs=inputs, target=_window(y, offset, into)
        )
    )
    tasks = schedule.integer("tasks")
    body = loops_over(
        tuple(nodes), loops, sizes=sizes, blocked=blocked, step=Const(step), tasks=tasks, dealt=level(schedule)
    )
    buffers = (*xs, y, *numbers)
    variant = STATISTICS_ID if meant is op else REDUCE_SLABS_ID
    return TileKernel(
        name=kernel_name(op.key, variant, schedule, target),
        op=op,
        variant=variant,
        schedule=schedule,
        target=target.name,
        params=params_of((*xs, y)),
        buffers=buffers,
        body=body,
    )


def _steps(op: StatisticsOp, plan: SlabPlan) -> tuple[list[Statistic | Expr], Expr]:
    """Return the numbers of a slab in the order in which they are made, and the result's expression, over all of them.

    What costs more than arithmetic and follows from numbers alone, such as the root of a variance, is a number too:
    made once a slab, not once a vector of it.
    """
    count = len(op.x)
    dims = plan.dims(op.source_shape)
    is_long = math.prod(known(dims[axis]) for axis in plan.reduced) >= _WORTH_A_NUMBER
    steps: list[Statistic | Expr] = []
    place: dict[Expr, int] = {}  # of what is made once
    moved: dict[int, Expr] = {}  # the op's statistics among the steps

    def once(expr: Expr) -> Expr:
        used = expr.inputs()
        if used and used[0] >= count and any(_is_costly(part) for part in expr.walk()):
            if expr not in place:
                place[expr] = count + len(steps)
                steps.append(expr)
            return Input(place[expr])
        return expr.with_parts([once(part) for part in expr.parts])

    def placed(expr: Expr) -> Expr:
        stated = expr.substitute(moved)
        return once(stated) if is_long else stated

    for index, statistic in enumerate(op.statistics):
        expr = placed(statistic.expr)
        moved[count + index] = Input(count + len(steps))
        steps.append(Statistic(statistic.kind, expr))
    return steps, op.expr.substitute(moved) if op.reduced else placed(op.expr)


def _is_costly(expr: Expr) -> bool:
    if isinstance(expr, Unary):
        return expr.function not in _CHEAP
    return isinstance(expr, Binary) and expr.function in _COSTLY


def _window(buffer: Buffer, offset: Sequence[Index], extent: Sequence[Index]) -> Region:
    single = [size == Const(1) for size in buffer.shape]
    return buffer.region(
        tuple(Const(0) if one else start for one, start in zip(single, offset, strict=True)),
        tuple(Const(1) if one else size for one, size in zip(single, extent, strict=True)),
    )


def _used(expr: Expr, regions: Sequence[Region]) -> tuple[Expr, tuple[Region, ...]]:
    """Return an expression over the regions that it uses, and those."""
    used = expr.inputs()
    return expr.substitute({index: Input(at) for at, index in enumerate(used)}), tuple(regions[i] for i in used)


def _routine(slabs: Slabs, compute: DType) -> Intrinsic:
    header = "slabs.h" if slabs is Slabs.WHOLE else "row_tiles.h"
    return Intrinsic(
        name=slabs.value,
        meaning=as_given,
        source=f"emitters/cpu/include/tracea/{header}",
        attributes=(("compute", compute.value),),
    )


def loops_over(
    nodes: tuple[Node, ...],
    axes: Sequence[int],
    *,
    sizes: Sequence[Index],
    blocked: int | None,
    step: Index,
    tasks: int,
    dealt: Level = Level.TASK,
) -> Block:
    """Return the nodes in a loop over each kept axis; the axis ``tasks`` is the outermost and makes the tasks."""
    if tasks not in axes:
        raise InvalidSchedule(field="tasks", got=tasks, expected=list(axes), remedy="name a kept axis")
    body = Block(nodes=nodes)
    for axis in (*(axis for axis in reversed(axes) if axis != tasks), tasks):
        start, length = (Var("start"), Var("length")) if axis == blocked else (Var(f"i{axis}"), None)
        by = step if axis == blocked else Const(1)
        if axis == tasks:
            loop: Node = Parallel(level=dealt, var=start, extent=sizes[axis], step=by, length=length, body=body)
        else:
            loop = For(var=start, extent=sizes[axis], step=by, length=length, body=body)
        body = block(loop)
    return body


def _default(op: _Source, target: Target) -> Schedule:
    meant = as_statistics(op)
    plan = _plan(meant)
    dims = [known(dim) for dim in plan.dims(meant.source_shape)]
    result = meant.infer()
    widest = sum(type_.dtype.nbytes for type_ in (*meant.x, result) if type_.elements > 1)
    kept = [axis for axis in range(len(dims)) if axis not in plan.reduced]
    blocks = {axis: dims[axis] for axis in kept}
    far = not meant.reduced and result.dtype.is_float and streams(result.nbytes, target)
    fixed = plan.slabs is Slabs.ROWS and not meant.reduced and returns((*meant.x, result), target)
    block = 1
    if plan.slabs is Slabs.COLUMNS:
        block = _COLUMNS
        blocks[len(dims) - 1] = -(-dims[-1] // block)
    elif plan.slabs is Slabs.ROWS:
        others = math.prod(dims[axis] for axis in kept if axis != len(dims) - 2)
        enough = -(-dims[-2] * others // (_FEW_TILES * target.cores))
        # Where rows come from near, what counts is the first-level cache between the passes. With a result stored past
        # the caches the same rows took longer in every measurement (512x768: 166 us and 133).
        room = target.l1d_bytes * 3 // 4 if fixed else _TILE_BYTES
        if not (fixed or far or meant.reduced or has_far_cache(target)):
            # From a near last cache too. Zen 4, softmax's gradient: 2048x768 0.53 of the time, 512x768 0.86.
            room = target.l1d_bytes // 2
        block = max(1, min(room // max(1, dims[-1] * widest), enough, dims[-2]))
        blocks[len(dims) - 2] = -(-dims[-2] // block)
    tasks = max(kept, key=lambda axis: blocks[axis])
    return Schedule(block=block, tasks=tasks, streaming=int(far), fixed=int(fixed))


def _space(op: _Source, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    block = default.integer("block")
    floats = not as_statistics(op).reduced and op.infer().dtype.is_float
    return ScheduleSpace.enumerated(
        {
            "block": tuple(dict.fromkeys((block, max(1, block // 4), 4 * block))),
            "tasks": (default.integer("tasks"),),
            "streaming": (0, 1) if floats else (0,),
            "fixed": (0, 1),
        }
    )


def _is_static(op: Any) -> bool:
    return all(type_.is_static for type_ in op.operands)


def _against_memory(op: ReduceOp, target: Target) -> float:
    """Score a reduction whose rows the other variant would read across memory."""
    del target
    groups = reduce_plan(op)
    last = groups.apply(op.x[0], op.source_shape)
    return 20.0 if last.shape[-1] != 1 and last.strides[-1] != 1 else 0.0


_STATIC = condition(
    "known extents",
    lambda op, _: _is_static(op),
    needed="extents that are numbers, which say the order of the axes",
    found=lambda op: " | ".join(map(str, op.operands)),
    remedy="bind the symbolic extents",
)
_SLABS = condition(
    "slabs of two axes",
    lambda op, _: not _is_static(op) or slab_plan(as_statistics(op)) is not None,
    needed="reduced axes that merge into at most two",
    found=lambda op: f"axes {op.axes} of {' | '.join(map(str, op.operands))}",
    remedy="reduce in two ops, or copy the tensor into row-major order",
)
_NON_EMPTY = condition(
    "something to reduce",
    lambda op, _: all(op.source_shape[axis] != 0 for axis in op.axes),
    needed="at least one element along the reduced axes",
    found=lambda op: f"axes {op.axes} of {op.source_shape}",
    remedy="the result of an empty reduction is a constant: fold it",
)
_REQUIREMENTS: Final = (
    CPU_VECTORS,
    CPU_ELEMENTS,
    strided_layouts,
    non_negative_strides,
    _STATIC,
    _NON_EMPTY,
    _SLABS,
)

STATISTICS_ID = "rows.statistics"
STATISTICS = Variant(
    id=STATISTICS_ID,
    op_type=StatisticsOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(),
    priority=50,
    build=build_statistics,
    space=_space,
    default_schedule=_default,
)
REDUCE_SLABS_ID = "rows.reduce_slabs"
REDUCE_SLABS = Variant(
    id=REDUCE_SLABS_ID,
    op_type=ReduceOp,
    backend="cpu",
    requirements=_REQUIREMENTS,
    preferences=(Preference(name="rows along memory", score=_against_memory),),
    priority=40,
    build=build_statistics,
    space=_space,
    default_schedule=_default,
)
