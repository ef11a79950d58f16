"""Copies between tensors whose contiguous axes differ: any permutation, turned in registers block by block.

The axes are ordered so that the source's contiguous axis, with what merges with it, is a tile's rows, and the result's
its columns; the others are loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.expr_text import expr_text
from tracea.core.ops.pointwise import PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.axes import AxisPlan
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer, window
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.rows.blocks import streams
from tracea.kernels.rows.operands import known
from tracea.kernels.rows.statistics import loops_over
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import Const, Index, Param, Var
from tracea.semantic.nodes import PointwiseTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = ["TRANSPOSE", "TRANSPOSE_ID", "build_transpose", "transpose_types"]

_FEWEST: Final = 8  # elements of both contiguous axes: a vector's worth
_TILE: Final = 64  # rows of a task: tiles of transpose_copy.h
_NARROW: Final = (DType.F16, DType.BF16, DType.I8, DType.U8, DType.BOOL)  # turned as they are, unless converted
_TYPES: Final = (DType.F64, DType.F32, *_NARROW)
_CONVERTED: Final = (DType.F32, DType.F16, DType.BF16)


@dataclass(frozen=True, slots=True)
class _Turn:
    """An order of the axes whose last two merged ones are the source's contiguous axis and the result's."""

    order: tuple[int, ...]
    axes: AxisPlan

    def apply(self, type_: TensorType, dims: Sequence[Any]) -> TensorType:
        return self.axes.apply(type_.permuted(self.order), [dims[axis] for axis in self.order])


def _turn(op: PointwiseOp) -> _Turn | None:
    """Return the order of the axes; None where the op is no copy, or source and result have one contiguous axis."""
    x, y = op.inputs[0], op.infer()
    if op.expr != Input(0) or not x.is_static or x.shape != y.shape:
        return None
    near = [_contiguous(type_) for type_ in (x, y)]
    if None in near or near[0] == near[1]:
        return None
    rows, columns = (_chain(axis, x, y) for axis in near if axis is not None)
    if set(rows) & set(columns):
        return None
    others = [axis for axis in range(x.rank) if axis not in (*rows, *columns)]
    others.sort(key=lambda axis: (x.shape[axis] != 1, -y.strides[axis]))
    order = (*others, *rows, *columns)
    dims = [x.shape[axis] for axis in order]
    axes = AxisPlan.of(dims, [type_.permuted(order) for type_ in (x, y)])
    start = len(others)
    wanted = (tuple(range(start, start + len(rows))), tuple(range(start + len(rows), len(order))))
    found = tuple(tuple(axis for axis in group if dims[axis] != 1) for group in axes.groups[-2:])
    return _Turn(order, axes) if found == wanted else None


def _contiguous(type_: TensorType) -> int | None:
    found = [axis for axis, dim in enumerate(type_.shape) if dim != 1 and type_.strides[axis] == 1]
    return found[0] if len(found) == 1 else None


def _chain(axis: int, x: TensorType, y: TensorType) -> tuple[int, ...]:
    """Return the axes that both tensors walk as one with ``axis``, outermost first."""
    found = [axis]
    while True:
        inner = found[0]
        size = x.static_shape[inner]
        before = [
            other
            for other, dim in enumerate(x.shape)
            if dim != 1
            and other not in found
            and all(type_.strides[other] == type_.strides[inner] * size for type_ in (x, y))
        ]
        if len(before) != 1:
            return tuple(found)
        found.insert(0, before[0])


def _of(op: PointwiseOp) -> _Turn:
    turn = _turn(op)
    if turn is None:
        raise InvalidSchedule(
            field="pointwise.transpose",
            got=str(op.inputs[0]),
            expected="a copy between different contiguous axes",
            remedy="choose pointwise.chain",
        )
    return turn


def transpose_types(op: PointwiseOp, like: PointwiseOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer in merged axes, those of ``like``, the op that the kernel is built for."""
    turn, dims = _of(like or op), op.shape
    return {"x0": turn.apply(op.inputs[0], dims), "y": turn.apply(op.infer(), dims)}


def build_transpose(op: PointwiseOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of a copy that turns."""
    turn, types = _of(op), transpose_types(op)
    dims = turn.axes.dims([op.shape[axis] for axis in turn.order])
    rank = len(dims)
    schedule.check_range(1, "block")
    sizes = tuple(Param(f"n{axis}") for axis in range(rank))
    x = tensor_buffer("x0", types["x0"], sizes, dims, BufferRole.INPUT, unit_axis=-2)
    y = tensor_buffer("y", types["y"], sizes, dims, BufferRole.OUTPUT, unit_axis=-1)
    start, length = Var("start"), Var("length")
    offset: tuple[Index, ...] = (*(Var(f"i{axis}") for axis in range(rank - 2)), start, Const(0))
    extent: tuple[Index, ...] = (*(Const(1) for _ in range(rank - 2)), length, sizes[-1])
    node = PointwiseTile(
        intrinsic=Intrinsic(
            name="transpose_copy",
            meaning=as_given,
            source="emitters/cpu/include/tracea/transpose_copy.h",
            attributes=(
                ("compute", _moved_as(op).value),
                ("streaming", schedule.integer("streaming")),
            ),
        ),
        expr=Input(0),
        inputs=(window(x, offset, extent),),
        target=window(y, offset, extent),
    )
    step, tasks = Const(schedule.integer("block")), schedule.integer("tasks")
    body = loops_over((node,), list(range(rank - 1)), sizes=sizes, blocked=rank - 2, step=step, tasks=tasks)
    return TileKernel(
        name=kernel_name(op.key, TRANSPOSE_ID, schedule, target),
        op=op,
        variant=TRANSPOSE_ID,
        schedule=schedule,
        target=target.name,
        params=params_of((x, y)),
        buffers=(x, y),
        body=body,
    )


def _is_narrow(op: PointwiseOp) -> bool:
    """Tell whether elements of one or two bytes stay what they are."""
    return op.inputs[0].dtype is op.out_dtype and op.out_dtype in _NARROW


def _moved_as(op: PointwiseOp) -> DType:
    """Return the type of the elements in registers."""
    return op.out_dtype if _is_narrow(op) else compute_type(op.inputs[0].dtype, op.out_dtype)


def _default(op: PointwiseOp, target: Target) -> Schedule:
    turn = _of(op)
    dims = [known(dim) for dim in turn.axes.dims([op.shape[axis] for axis in turn.order])]
    counts = [*dims[:-2], -(-dims[-2] // _TILE)]
    most = max(range(len(counts)), key=counts.__getitem__)
    if dims[-1] < _FEWEST:  # a line of the result holds several steps of the axes between: one task goes along them
        most = len(counts) - 1
    past_caches = not _is_narrow(op) and streams(op.infer().nbytes, target)
    return Schedule(block=_TILE, tasks=most, streaming=int(past_caches))


def _space(op: PointwiseOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    return ScheduleSpace.enumerated(
        {
            "block": (_TILE, 4 * _TILE),
            "tasks": (default.integer("tasks"),),
            "streaming": (0,) if _is_narrow(op) else (0, 1),
        }
    )


def _turns(op: PointwiseOp, target: Target) -> bool:
    turn, of, to = _turn(op), op.inputs[0].dtype, op.out_dtype
    if turn is None or (of is not to and not (of in _CONVERTED and to in _CONVERTED)):
        return False
    sizes = [known(dim) for dim in turn.axes.dims([op.shape[axis] for axis in turn.order])]
    if _is_narrow(op):
        return min(sizes[-2:]) >= 2 and max(sizes[-2:]) >= _FEWEST
    # Few columns are worth it with an axis between them and the rows, which chains walk apart: 3x400x300 f32 to the
    # other order takes 0.3 of their time on a Xeon, bf16 0.2, but f64 as long; on a Zen 3 f32 0.15, f64 0.3.
    few = len(sizes) > 2 and (op.out_dtype is not DType.F64 or target.vector_bytes < 64)
    return sizes[-2] >= _FEWEST and sizes[-1] >= (2 if few else _FEWEST)


def _expression(op: PointwiseOp) -> str:
    return expr_text(op.expr, [f"x{number}" for number in range(len(op.inputs))])


TRANSPOSE_ID = "pointwise.transpose"
TRANSPOSE = Variant(
    id=TRANSPOSE_ID,
    op_type=PointwiseOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        element_types(_TYPES),
        strided_layouts,
        non_negative_strides,
        condition(
            "a copy that turns",
            _turns,
            needed="a copy to the same type, or between f32, f16 and bf16, contiguous axes that differ, "
            f"{_FEWEST} elements each, or 2 of the result's with an axis between, not of f64 in vectors of 64 bytes, "
            f"or, of one or two bytes as they are, 2 and {_FEWEST} elements",
            found=lambda op: f"{_expression(op)} of {' | '.join(map(str, op.inputs))}",
            remedy="choose pointwise.chain",
        ),
    ),
    preferences=(),
    priority=60,
    build=build_transpose,
    space=_space,
    default_schedule=_default,
)
