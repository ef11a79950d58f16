"""Two chains of elementwise work in one pass, whose results lie side by side or in two halves of a row."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tracea.core.arithmetic import computed_in, is_stored_as_computed
from tracea.core.dtype import DType
from tracea.core.ops.pairs import PairsOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.kernels.axes import AxisPlan
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer, window
from tracea.kernels.requirements import CPU_ELEMENTS, CPU_VECTORS, condition, non_negative_strides, strided_layouts
from tracea.kernels.rows.blocks import default_blocks, piece_of_row, streams
from tracea.kernels.rows.operands import known
from tracea.kernels.rows.statistics import loops_over
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import Const, Index, Param, Var
from tracea.semantic.nodes_pairs import PairsTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = ["PAIRS", "build_pairs", "pairs_types"]

_LONG: Final = 1 << 13  # elements of a row of the result that is worth cutting where there are few rows


def _plan(op: PairsOp) -> AxisPlan:
    """Return the merging of the axes of places, at least two; the last one is innermost."""
    first = _first(op)
    outer = range(first.rank - 1)
    if not op.infer().is_contiguous:
        outer = sorted(outer, key=lambda axis: (first.shape[axis] != 1, -first.strides[axis]))
    types, order = (*op.inputs, first), (*outer, first.rank - 1)
    plan = AxisPlan.of(op.half_shape, types, order=order)
    if plan.apply(first, op.half_shape).strides[-1] != first.strides[-1]:  # of one place a row, and a gap behind it
        plan = AxisPlan.of(op.half_shape, types, order=order, keep=frozenset({first.rank - 1}))
    return plan.with_row_axis()


def _first(op: PairsOp) -> TensorType:
    """Return the type of the first results within the whole."""
    places = op.places
    return TensorType(places.shape[:-1], places.dtype, StridedLayout(places.strides[:-1]))


def pairs_types(op: PairsOp, like: PairsOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer in merged axes, those of ``like``; the result has the axis of the two beside."""
    plan = _plan(like or op)
    types = {f"x{number}": plan.apply(type_, op.half_shape) for number, type_ in enumerate(op.inputs)}
    first = plan.apply(_first(op), op.half_shape)
    both = TensorType((*first.shape, 2), first.dtype, StridedLayout((*first.strides, op.places.strides[-1])))
    return types | {"y": both}


def build_pairs(op: PairsOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of two results a place."""
    schedule.check_range(1, "block")
    split = schedule.choice("split", "rows", "columns")
    plan, types = _plan(op), pairs_types(op)
    dims = plan.dims(op.half_shape)
    rank = len(dims)
    sizes = tuple(Param(f"n{axis}") for axis in range(rank))
    inputs = tuple(
        _in_twos(tensor_buffer(name, type_, sizes, dims, BufferRole.INPUT), type_, -1)
        for name, type_ in types.items()
        if name != "y"
    )
    unit = -2 if op.halves else -1
    y = tensor_buffer("y", types["y"], (*sizes, Const(2)), (*dims, 2), BufferRole.OUTPUT, unit_axis=unit)
    y = y if op.halves else _in_twos(y, types["y"], -2)
    blocked = rank - 2 if split == "rows" else rank - 1
    offset: list[Index] = [Var(f"i{axis}") for axis in range(rank)]
    extent: list[Index] = [Const(1) for _ in range(rank)]
    offset[blocked], extent[blocked] = Var("start"), Var("length")
    if split == "rows":
        offset[-1], extent[-1] = Const(0), sizes[-1]
    node = PairsTile(
        intrinsic=Intrinsic(
            name="halve_rows" if op.halves else "interleave_rows",
            meaning=as_given,
            source="emitters/cpu/include/tracea/pairs.h",
            attributes=(("compute", _compute(op).value), ("streaming", schedule.integer("streaming"))),
        ),
        first=op.first,
        second=op.second,
        inputs=tuple(window(buffer, offset, extent) for buffer in inputs),
        target=y.region((*offset, Const(0)), (*extent, Const(2))),
    )
    axes = list(range(rank if split == "columns" else rank - 1))
    step, tasks = Const(schedule.integer("block")), schedule.integer("tasks")
    buffers = (*inputs, y)
    return TileKernel(
        name=kernel_name(op.key, PAIRS_ID, schedule, target),
        op=op,
        variant=PAIRS_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=loops_over((node,), axes, sizes=sizes, blocked=blocked, step=step, tasks=tasks),
    )


def _in_twos(buffer: Buffer, type_: TensorType, axis: int) -> Buffer:
    """Return the buffer with a step of two along an axis as a promise, which `bind` checks: the code need not ask."""
    assert buffer.strides is not None
    strides = list(buffer.strides)
    if type_.strides[axis] == 2 and isinstance(strides[axis], Param):
        strides[axis] = Const(2)
    return replace(buffer, strides=tuple(strides))


def _compute(op: PairsOp) -> DType:
    return computed_in((*(x.dtype for x in op.inputs), op.out_dtype))


def _default(op: PairsOp, target: Target) -> Schedule:
    dims = [known(dim) for dim in _plan(op).dims(op.half_shape)]
    nbytes, last = op.out_dtype.nbytes, len(dims) - 1
    streaming = streams(2 * nbytes * math.prod(dims), target) and op.out_dtype.is_float
    if math.prod(dims[:-1]) < 4 * target.cores and 2 * dims[-1] > _LONG:
        piece = max(1, piece_of_row(2 * dims[-1], nbytes, target) // 2)
        return Schedule(block=piece, split="columns", tasks=last, streaming=int(streaming))
    rows, tasks = default_blocks((*dims[:-1], 2 * dims[-1]), nbytes, target)
    return Schedule(block=rows, split="rows", tasks=0 if tasks == "outer" else last - 1, streaming=int(streaming))


def _space(op: PairsOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    block = default.integer("block")
    return ScheduleSpace.enumerated(
        {
            "block": tuple(dict.fromkeys((block, 4 * block, max(1, block // 4)))),
            "split": (default["split"],),
            "tasks": (default["tasks"],),
            "streaming": (0, 1) if op.out_dtype.is_float else (0,),
        }
    )


def _has_place(op: PairsOp, _: Target) -> bool:
    plain = is_stored_as_computed(op.out_dtype, (x.dtype for x in op.inputs))
    return plain and op.out_dtype.is_float and op.infer().strides[-1] == 1


PAIRS_ID: Final = "pointwise.pairs"
PAIRS = Variant(
    id=PAIRS_ID,
    op_type=PairsOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        CPU_ELEMENTS,
        strided_layouts,
        non_negative_strides,
        condition(
            "a place for both results",
            _has_place,
            needed="a result of floats whose last axis is contiguous, of f64 where that is what is computed in",
            found=lambda op: f"{op.infer()} of {' | '.join(map(str, op.inputs))}",
            remedy="make the halves by ops of their own and join them",
        ),
    ),
    preferences=(),
    priority=50,
    build=build_pairs,
    space=_space,
    default_schedule=_default,
)
