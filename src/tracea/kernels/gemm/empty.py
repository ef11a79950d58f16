"""The GEMM of an empty sum (k = 0): every result is the epilogue of zero."""

from __future__ import annotations

from tracea.core.expr import Constant, Input
from tracea.core.ops.gemm import GemmOp
from tracea.kernels.gemm.operands import GemmOperands, M, N
from tracea.kernels.gemm.requirements import FLOATS
from tracea.kernels.pointwise.tile import map_tile
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.index import Const, Var
from tracea.semantic.nodes import PointwiseTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.target import Target

__all__ = ["EMPTY", "build_empty"]

_IC, _MC = Var("ic"), Var("mc")


def build_empty(op: GemmOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel that stores the epilogue of zero everywhere."""
    schedule.check_range(1, "mc")
    operands = GemmOperands.of(op, depth=Const(0))
    # Input(0), the sum, is zero; Input(i) stays operand i - 1 and becomes input i - 1 of the tile.
    shifted = {index: Input(index - 1) for index in range(1, len(operands.extras) + 1)}
    tile = PointwiseTile(
        intrinsic=map_tile(op.accumulator, streaming=False),
        expr=op.epilogue.expr.substitute({0: Constant(0.0), **shifted}),
        inputs=tuple(operands.at(buffer, _IC, Const(0), _MC, N) for buffer in operands.extras),
        target=operands.at(operands.c, _IC, Const(0), _MC, N),
    )
    body = operands.tasks(var=_IC, extent=M, step=schedule.integer("mc"), length=_MC, body=(tile,))
    return operands.kernel(EMPTY_ID, schedule, target, (), body)


def _default(op: GemmOp, target: Target) -> Schedule:
    del op, target
    return Schedule(mc=64)


def _space(op: GemmOp, target: Target) -> ScheduleSpace:
    del op, target
    return ScheduleSpace.enumerated({"mc": (64, 16)})


_EMPTY_SUM = condition(
    "k = 0", lambda op, _: op.k == 0, needed="k = 0", found=lambda op: f"k = {op.k}", remedy="any other GEMM variant"
)

EMPTY_ID = "gemm.empty"
EMPTY = Variant(
    id=EMPTY_ID,
    op_type=GemmOp,
    backend="cpu",
    requirements=(CPU_VECTORS, element_types(FLOATS), strided_layouts, non_negative_strides, _EMPTY_SUM),
    preferences=(),
    priority=90,
    build=build_empty,
    space=_space,
    default_schedule=_default,
)
