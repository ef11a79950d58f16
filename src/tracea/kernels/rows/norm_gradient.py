"""Gradients of layer norm and RMS norm for x, weight and bias in one kernel, which reads x and the gradient once.

A task takes a part of the rows: it writes their gradient for x, and what they add to the others in a row of scratch for
each. Behind a barrier these rows are summed, in the order of the parts. The parts are the schedule's, and follow from
the number of rows: the bits of a result do not depend on how many threads run it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.norm_gradient import NormGradientOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.axes import AxisPlan
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, tensor_buffer
from tracea.kernels.parts import sum_of_parts
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import (
    CPU_VECTORS,
    condition,
    element_types,
    non_negative_strides,
    sizes_in_range,
    strided_layouts,
)
from tracea.kernels.rows.blocks import kept, level, returns, streams
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import Const, Index, Param, Var, ceil_div
from tracea.semantic.nodes import Barrier, Level, Parallel, ReduceTile, block
from tracea.semantic.nodes_norm_gradient import NormGradientTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = [
    "FLOATS",
    "LONG_ROWS",
    "NON_EMPTY",
    "NORM_GRADIENT",
    "build_norm_gradient",
    "compute_of",
    "norm_gradient_types",
]

_ROWS, _COLUMNS = Param("rows", minimum=1, maximum=2**31), Param("columns", minimum=1, maximum=2**24)
_FIRST, _COUNT = Var("first"), Var("count")
_START, _WIDTH = Var("start"), Var("width")
_PARTS: Final = ("grad_x", "grad_weight", "grad_bias")
_MOST_TOGETHER: Final = 8  # rows whose sums registers hold
_GAP_BYTES: Final = 256  # between the sums of two parts: what one core prefetches beyond its own is not the other's
_FEW_ROWS, _MOST_ROWS = 16, 128  # of a part: as many are added one after the other
_MANY_PARTS: Final = 32
_REGISTERS_OF_ROWS: Final = 32  # from which on several rows share the second pass


def _plan(op: NormGradientOp) -> AxisPlan:
    shape = op.x.shape
    rows = TensorType(shape, op.x.dtype)
    return AxisPlan.of(shape, (op.grad, op.x, rows), keep=frozenset({len(shape) - 1})).with_row_axis()


def norm_gradient_types(op: NormGradientOp, like: NormGradientOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer; axes are merged as for ``like``, the op that the kernel is built for."""
    plan, shape = _plan(like or op), op.x.shape
    made = [TensorType(part, op.x.dtype) for part in op.parts]
    rows = {"grad": op.grad, "x": op.x, "grad_x": made[0]}
    types = {name: plan.apply(type_, shape) for name, type_ in rows.items()}
    if op.weight is not None:
        types["weight"] = plan.apply(op.weight, shape)
    sums = (TensorType((1, *part.shape), part.dtype) for part in made[1:])
    return types | dict(zip(_PARTS[1:], sums, strict=False))


def build_norm_gradient(op: NormGradientOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of a norm's gradients."""
    schedule.check_range(1, "rows", "fold")
    schedule.check_range(1, "together", most=_MOST_TOGETHER)
    schedule.check_range(0, "prefetch", "streaming", most=1)
    rows, compute = schedule.integer("rows"), compute_of(op)
    types, names = norm_gradient_types(op), _PARTS[: len(op.parts)]
    dims = types["x"].shape

    def tensor(name: str, role: BufferRole) -> Buffer:
        shape: tuple[Index, ...] = (
            (_ROWS, _COLUMNS) if name in ("grad", "x", "weight", "grad_x") else (Const(1), _COLUMNS)
        )
        full = dims if shape[0] is _ROWS else (1, dims[1])
        spread = (0,) if name == "weight" else ()  # one for all rows, also where there is one
        return tensor_buffer(name, types[name], shape, full, role, spread=spread)

    inputs = [tensor(name, BufferRole.INPUT) for name in ("grad", "x", "weight") if name in types]
    outputs = [tensor(name, BufferRole.OUTPUT) for name in names]
    gap = _GAP_BYTES // compute.nbytes
    pitch = ceil_div(_COLUMNS, gap) * gap + gap
    sums = scratch("sums", compute, MemorySpace.TEAM, ceil_div(_ROWS, rows), len(names) - 1, pitch)
    grads, source, *weight = (
        buffer.region((_FIRST, 0), (_COUNT, _COLUMNS))
        if buffer.shape[0] != Const(1)
        else buffer.region((0, 0), (1, _COLUMNS))
        for buffer in inputs
    )
    tile = NormGradientTile(
        kind=op.kind,
        intrinsic=Intrinsic(
            name="norm_gradient_rows",
            meaning=as_given,
            source="emitters/cpu/include/tracea/norm_gradient.h",
            attributes=(
                ("compute", compute.value),
                *((name, schedule.integer(name)) for name in ("together", "prefetch", "streaming")),
            ),
        ),
        grads=grads,
        source=source,
        weight=weight[0] if weight else None,
        target=outputs[0].region((_FIRST, 0), (_COUNT, _COLUMNS)),
        sums=sums.region((_FIRST // rows, 0, 0), (1, len(names) - 1, _COLUMNS)),
        eps=op.eps,
    )

    def gradient(row: int, result: Buffer) -> ReduceTile:
        return sum_of_parts(sums, row, _START, _WIDTH, target=result.region((0, _START), (1, _WIDTH)), compute=compute)

    parts = Parallel(level=level(schedule), var=_FIRST, extent=_ROWS, step=Const(rows), length=_COUNT, body=block(tile))
    fold = Parallel(
        level=Level.TEAM,
        var=_START,
        extent=_COLUMNS,
        step=Const(schedule.integer("fold")),
        length=_WIDTH,
        body=block(*(gradient(index, result) for index, result in enumerate(outputs[1:]))),
    )
    buffers = (*inputs, *outputs, sums)
    return TileKernel(
        name=kernel_name(op.key, NORM_GRADIENT_ID, schedule, target),
        op=op,
        variant=NORM_GRADIENT_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=block(parts, Barrier(), fold),
    )


def compute_of(op: NormGradientOp) -> DType:
    """Return the type that sums are made in."""
    return compute_type(*(type_.dtype for type_ in op.operands))


def _default(op: NormGradientOp, target: Target) -> Schedule:
    rows, columns = math.prod(op.x.static_shape[:-1]), op.x.static_shape[-1]
    result, line = op.infer(), target.cache_line_bytes // op.x.dtype.nbytes
    far = streams(result.nbytes, target)
    # Measured on a Zen 3, 4096x4096: four rows in turns took 4.6 times as long past the caches, where half a line a
    # store leaves lines unfinished, and 1.1 times into them. Fewer registers do not keep their sums either.
    together = 4 if target.vector_registers >= _REGISTERS_OF_ROWS else 1
    return Schedule(
        rows=min(_MOST_ROWS, max(_FEW_ROWS, -(-rows // _MANY_PARTS))),
        together=together,
        fold=round_up(-(-columns // target.cores), line),
        prefetch=int(not kept((*op.operands, result), target)),
        streaming=int(far),
        fixed=int(returns((*op.operands, result), target)),
    )


def _space(op: NormGradientOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    rows = default.integer("rows")
    return ScheduleSpace.enumerated(
        {
            "rows": tuple(dict.fromkeys((rows, _FEW_ROWS, _MOST_ROWS))),
            "together": (4, 2),
            "fold": (default["fold"],),
            "prefetch": (0, 1),
            "streaming": (0, 1),
            "fixed": (0, 1),
        }
    )


def _by_rows(types: Sequence[TensorType]) -> bool:
    return all(type_.shape[-1] == 1 or type_.strides[-1] == 1 for type_ in types)


FLOATS = element_types((DType.F64, DType.F32, DType.F16, DType.BF16))
LONG_ROWS = condition(
    "rows along memory",
    lambda op, _: op.x.is_static and op.grad.is_static and _by_rows((op.grad, op.x)),
    needed="known extents, and neighbours of a row side by side",
    found=lambda op: f"{op.grad} and {op.x}",
    remedy="compute the gradients by rows.statistics and a reduction, or copy the tensors",
)
_SIZES = sizes_in_range(lambda op: {_COLUMNS: op.x.static_shape[-1]} if op.x.is_static else {}, or_empty=True)
_OF_ROWS = condition(
    "a norm of rows",
    lambda op, _: op.axes == (op.x.rank - 1,) and op.parameter == op.x.shape[-1:],
    needed="the last axis, and a parameter for each of its elements",
    found=lambda op: f"axes {op.axes}, parameters {op.parameter}",
    remedy="use rows.plane_gradient",
)
_ONE_WALK = condition(
    "one axis of rows",
    lambda op, _: not op.x.is_static or op.axes != (op.x.rank - 1,) or len(_plan(op).groups) == 2,
    needed="leading axes that merge into one",
    found=lambda op: f"{op.grad} and {op.x}",
    remedy="compute the gradients by rows.statistics and a reduction, or copy the tensors",
)
NON_EMPTY = condition(
    "something to sum",
    lambda op, _: op.x.elements > 0,
    needed="a row and a column, at least",
    found=lambda op: str(op.x),
    remedy="the gradients of nothing are zeros: fold them",
)

NORM_GRADIENT_ID = "rows.norm_gradient"
NORM_GRADIENT = Variant(
    id=NORM_GRADIENT_ID,
    op_type=NormGradientOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        FLOATS,
        strided_layouts,
        non_negative_strides,
        _OF_ROWS,
        LONG_ROWS,
        _SIZES,
        _ONE_WALK,
        NON_EMPTY,
    ),
    preferences=(),
    priority=50,
    build=build_norm_gradient,
    space=_space,
    default_schedule=_default,
)
