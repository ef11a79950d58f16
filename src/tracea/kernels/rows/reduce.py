"""Reductions over neighbouring axes: along rows (the last axes) or along columns (axes before the last).

After merging, the reduced axes have to be one: ``sum`` over axes 1 and 2 of a contiguous (8, 3, 5, 7) reduces 15 rows
of 7 columns
in each of 8 tiles.
"""

from __future__ import annotations

from typing import Final

from tracea.core.ops.rows import ReduceOp
from tracea.core.tensor_type import Dim, StridedLayout, TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.axes import AxisPlan
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import (
    CPU_ELEMENTS,
    CPU_VECTORS,
    condition,
    non_negative_strides,
    strided_layouts,
)
from tracea.kernels.rows.operands import known
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, Region, as_given
from tracea.semantic.index import Const, Index, Param, Var
from tracea.semantic.nodes import Block, EpilogueCall, For, Level, Node, Parallel, ReduceTile, block
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = ["REDUCE", "build_reduce", "reduce_plan", "reduce_types"]

_MOST_TOGETHER: Final = 4  # blocks: three vectors of each are twelve sums


def reduce_plan(op: ReduceOp) -> AxisPlan:
    """Return the merging of the source's axes, at least two; reduced axes merge with reduced ones."""
    dims = op.source_shape
    types = (*op.x, *(_as_source(type_, op) for type_ in (*op.epilogue.operands, op.infer())))
    return AxisPlan.of(dims, types, reduced=frozenset(op.axes)).with_row_axis()


def reduce_types(op: ReduceOp, like: ReduceOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer, ``x0``, … in the op's order and the result ``y``, in the source's merged axes."""
    plan, dims = reduce_plan(like or op), op.source_shape
    types = {f"x{i}": plan.apply(type_, dims) for i, type_ in enumerate(op.x)}
    types |= {
        f"x{i}": plan.apply(_as_source(type_, op), dims)
        for i, type_ in enumerate(op.epilogue.operands, start=len(op.x))
    }
    return types | {"y": plan.apply(_as_source(op.infer(), op), dims)}


def _as_source(type_: TensorType, op: ReduceOp) -> TensorType:
    """Return a type that broadcasts to the result with axes of extent 1 where the source's are reduced."""
    if op.keepdims:
        return type_
    shape, strides = list(type_.shape), list(type_.strides)
    kept = [axis for axis in range(len(op.source_shape)) if axis not in op.axes]
    full_shape: list[Dim] = [1] * len(op.source_shape)
    full_strides = [0] * len(op.source_shape)
    for axis, dim, stride in zip(reversed(kept), reversed(shape), reversed(strides), strict=False):
        full_shape[axis], full_strides[axis] = dim, stride
    return TensorType(tuple(full_shape), type_.dtype, StridedLayout(tuple(full_strides)))


def _reduced_group(op: ReduceOp) -> int | None:
    """Return the merged axis that is reduced: the last one or the one before it; None where the axes are others."""
    plan = reduce_plan(op)
    groups = {plan.group_of(axis) for axis in op.axes}
    if len(groups) != 1:
        return None
    group = groups.pop()
    return group if group >= len(plan.groups) - 2 else None


def _together(op: ReduceOp) -> int:
    """Return how many neighbouring blocks of columns are reduced at once: few, that have an operand in common.

    What they have in common is then loaded once for all of them. Blocks have rows of their own in some operand, and
    no epilogue that reads memory.
    """
    plan, group = reduce_plan(op), _reduced_group(op)
    dims = plan.dims(op.source_shape)
    if len(dims) < 4 or group != len(dims) - 2 or op.epilogue.operands:
        return 1
    count = dims[-3]
    steps = [reduce_types(op)[f"x{index}"].strides[-3] for index in range(len(op.x))]
    shares = 0 in steps and any(steps)
    return count if isinstance(count, int) and 1 < count <= _MOST_TOGETHER and shares else 1


def build_reduce(op: ReduceOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of a reduction."""
    plan, group = reduce_plan(op), _reduced_group(op)
    if group is None:
        raise InvalidSchedule(
            field="axes",
            got=op.axes,
            expected="axes that merge into one of the last two",
            remedy="reduce one axis after another, or choose another variant",
        )
    schedule.check_range(1, "rows", "columns")
    dims = plan.dims(op.source_shape)
    rank = len(dims)
    together = _together(op)
    sizes: list[Index] = [Param(f"n{axis}", minimum=1 if axis == group else 0) for axis in range(rank)]
    if together > 1:
        sizes[-3] = Const(together)
    types = reduce_types(op)
    # The result has extent 1 on the reduced axis, also where that axis has one element.
    result_sizes = tuple(Const(1) if axis == group else size for axis, size in enumerate(sizes))
    result_dims = tuple(1 if axis == group else dim for axis, dim in enumerate(dims))
    y = tensor_buffer("y", types["y"], result_sizes, result_dims, BufferRole.OUTPUT)
    xs = tuple(tensor_buffer(f"x{i}", types[f"x{i}"], sizes, dims, BufferRole.INPUT) for i in range(len(op.x)))
    extras = tuple(
        tensor_buffer(name, types[name], result_sizes, result_dims, BufferRole.INPUT)
        for name in (f"x{i}" for i in range(len(op.x), len(op.operands)))
    )
    compute = compute_type(*(type_.dtype for type_ in (*op.operands, op.infer())))
    along_rows = group == rank - 1
    leads = tuple(Var(f"i{axis}") for axis in range(rank - 2 if together == 1 else rank - 3))
    start, length = Var("start"), Var("length")
    blocked = rank - 2 if along_rows else rank - 1  # the kept one of the last two axes
    offset: list[Index] = [*leads, *(Const(0) for _ in sizes[len(leads) :])]
    extent: list[Index] = [*(Const(1) for _ in leads), *sizes[len(leads) :]]
    offset[blocked], extent[blocked] = start, length
    tile = ReduceTile(
        kind=op.kind,
        intrinsic=Intrinsic(
            name="reduce_rows" if along_rows else "reduce_columns",
            meaning=as_given,
            source="emitters/cpu/include/tracea/row_tiles.h",
            attributes=(("compute", compute.value), *((("together", together),) if together > 1 else ())),
        ),
        inputs=tuple(_window(buffer, offset, extent) for buffer in xs),
        prologue=op.prologue,
        shape=tuple(extent),
        axes=(group,),
        target=_window(y, offset, extent),
        count=sizes[group],
        epilogue=EpilogueCall(
            expr=op.epilogue.expr, operands=tuple(_window(buffer, offset, extent) for buffer in extras)
        ),
    )
    step = schedule.integer("rows" if along_rows else "columns")
    # Where there are axes before the last two, the outermost makes the tasks.
    nodes: tuple[Node, ...] = (
        (For(var=start, extent=sizes[blocked], step=Const(step), length=length, body=block(tile)),)
        if leads
        else (
            Parallel(
                level=Level.TASK, var=start, extent=sizes[blocked], step=Const(step), length=length, body=block(tile)
            ),
        )
    )
    for var, size in reversed(tuple(zip(leads[1:], sizes[1:], strict=False))):
        nodes = (For(var=var, extent=size, body=Block(nodes=nodes)),)
    if leads:
        nodes = (Parallel(level=Level.TASK, var=leads[0], extent=sizes[0], body=Block(nodes=nodes)),)
    buffers = (*xs, *extras, y)
    return TileKernel(
        name=kernel_name(op.key, REDUCE_ID, schedule, target),
        op=op,
        variant=REDUCE_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=Block(nodes=nodes),
    )


def _window(buffer: Buffer, offset: list[Index], extent: list[Index]) -> Region:
    single = [size == Const(1) for size in buffer.shape]
    return buffer.region(
        tuple(Const(0) if one else start for one, start in zip(single, offset, strict=True)),
        tuple(Const(1) if one else size for one, size in zip(single, extent, strict=True)),
    )


def _default(op: ReduceOp, target: Target) -> Schedule:
    dims = [known(dim) for dim in reduce_plan(op).dims(op.source_shape)]
    rows = max(1, -(-(dims[-2] if len(dims) > 1 else 1) // (4 * target.cores)))
    return Schedule(rows=min(rows, max(1, (1 << 16) // max(1, dims[-1]))), columns=256)


def _space(op: ReduceOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows = int(default["rows"])
    return ScheduleSpace.enumerated(
        {"rows": tuple(dict.fromkeys((rows, max(1, rows // 4), 4 * rows))), "columns": (256, 64, 1024)}
    )


_NEIGHBOURS = condition(
    "reduced axes side by side",
    lambda op, _: _reduced_group(op) is not None,
    needed="reduced axes that merge into the last axis or the one before it",
    found=lambda op: f"axes {op.axes} of {' | '.join(map(str, op.x))}",
    remedy="reduce in two ops, or copy the tensor into row-major order",
)
_NON_EMPTY = condition(
    "something to reduce",
    lambda op, _: all(op.source_shape[axis] != 0 for axis in op.axes),
    needed="at least one element along the reduced axes",
    found=lambda op: f"axes {op.axes} of {op.source_shape}",
    remedy="the result of an empty reduction is a constant: fold it",
)

REDUCE_ID = "rows.reduce"
REDUCE = Variant(
    id=REDUCE_ID,
    op_type=ReduceOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        CPU_ELEMENTS,
        strided_layouts,
        non_negative_strides,
        _NEIGHBOURS,
        _NON_EMPTY,
    ),
    preferences=(),
    priority=50,
    build=build_reduce,
    space=_space,
    default_schedule=_default,
)
