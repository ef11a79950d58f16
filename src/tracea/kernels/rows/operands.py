"""What kernels over rows share: operands in merged axes, and tasks over blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracea.core.ops.base import Op
from tracea.core.tensor_type import Dim, TensorType
from tracea.kernels.axes import AxisPlan
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer
from tracea.semantic.index import Const, Index, Param, Var
from tracea.semantic.nodes import Barrier, Block, For, Level, Node, Parallel
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = ["RowOperands", "known", "row_types"]


def row_types(op: Op, plan: AxisPlan) -> dict[str, TensorType]:
    """Return the type of each buffer over merged axes: ``x0``, ``x1``, … in the op's order, and the result ``y``."""
    result = op.infer()
    types = {f"x{i}": plan.apply(type_, result.shape) for i, type_ in enumerate(op.operands)}
    return types | {"y": plan.apply(result, result.shape)}


@dataclass(frozen=True, slots=True)
class RowOperands:
    """Buffers over merged axes ``n0, n1, …``; the last one or two are a tile, the others are walked by loops."""

    op: Op
    inputs: tuple[Buffer, ...]
    y: Buffer
    dims: tuple[Dim, ...]
    sizes: tuple[Param, ...]

    @classmethod
    def of(cls, op: Op, plan: AxisPlan) -> RowOperands:
        """Return the buffers of an op whose operands broadcast to its result."""
        dims = plan.dims(op.infer().shape)
        sizes = tuple(Param(f"n{axis}") for axis in range(len(dims)))
        types = row_types(op, plan)
        y = tensor_buffer("y", types.pop("y"), sizes, dims, BufferRole.OUTPUT)
        inputs = tuple(tensor_buffer(name, type_, sizes, dims, BufferRole.INPUT) for name, type_ in types.items())
        return cls(op, inputs, y, dims, sizes)

    @property
    def rank(self) -> int:
        """Number of merged axes."""
        return len(self.sizes)

    def over_blocks(
        self,
        axis: int,
        step: int,
        tile: Callable[[tuple[Index, ...], tuple[Index, ...]], Node],
        level: Level = Level.TASK,
    ) -> tuple[Node, ...]:
        """Return tasks over blocks of ``axis``, one of the last two; ``tile`` gets the offset and extent of a block.

        With ``level`` TEAM each thread gets the same blocks in every run. The axes before the last two are loops,
        around the tasks or, for the outermost one if ``axis`` is negative, the tasks.
        """
        leads = tuple(Var(f"i{position}") for position in range(max(0, self.rank - 2)))
        start, length = Var("start"), Var("length")
        offset: list[Index] = [*leads, *(Const(0) for _ in self.sizes[len(leads) :])]
        extent: list[Index] = [*(Const(1) for _ in leads), *self.sizes[len(leads) :]]
        outermost = axis < 0
        if not outermost:
            offset[axis], extent[axis] = start, length
        node = tile(tuple(offset), tuple(extent))
        if not outermost:
            size = self.sizes[axis]
            nodes: tuple[Node, ...] = (
                Parallel(
                    level=level, var=start, extent=size, step=Const(step), length=length, body=Block(nodes=(node,))
                ),
            )
            for var, size in reversed(tuple(zip(leads, self.sizes, strict=False))):
                # All threads leave one task loop before any enters it again: the loops share a counter.
                nodes = (For(var=var, extent=size, body=Block(nodes=(*nodes, Barrier()))),)
            return nodes
        nodes = (node,)
        for var, size in reversed(tuple(zip(leads[1:], self.sizes[1:], strict=False))):
            nodes = (For(var=var, extent=size, body=Block(nodes=nodes)),)
        return (Parallel(level=level, var=leads[0], extent=self.sizes[0], body=Block(nodes=nodes)),)

    def kernel(
        self, variant: str, schedule: Schedule, target: Target, scratch: Sequence[Buffer], body: Sequence[Node]
    ) -> TileKernel:
        """Return the kernel with these operands in the op's order, the result, then the scratch."""
        buffers = (*self.inputs, self.y, *scratch)
        return TileKernel(
            name=kernel_name(self.op.key, variant, schedule, target),
            op=self.op,
            variant=variant,
            schedule=schedule,
            target=target.name,
            params=params_of(buffers),
            buffers=buffers,
            body=Block(nodes=tuple(body)),
        )


def known(dim: Dim) -> int:
    """Return an extent as a number; a symbolic one is scheduled for its maximum or a large case."""
    return dim if isinstance(dim, int) else dim.maximum or 1024
