"""What all GEMM builders share: the operands' buffers, where sums are kept, the epilogue, the register tile."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tracea.core.dtype import DType
from tracea.core.ops.gemm import GemmOp
from tracea.core.tensor_type import Dim, StridedLayout, TensorType
from tracea.kernels.axes import AxisPlan
from tracea.kernels.operands import params_of, tensor_buffer
from tracea.semantic.access import Intrinsic, Region
from tracea.semantic.index import TRUE, Const, Index, Param, Predicate, Var
from tracea.semantic.intrinsics import packed_depth_first_product, plain_product
from tracea.semantic.nodes import Barrier, Block, EpilogueCall, For, Level, Node, Parallel
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel
from tracea.targets.gpu import GpuTarget
from tracea.targets.target import Target

__all__ = ["BlockOperands", "GemmOperands", "gemm_tile", "gemm_types", "kernel_name", "merged_batch", "step_tile"]

M, N = Param("m"), Param("n")
K = Param("k", minimum=1)  # an empty sum is a kernel of its own: gemm.empty


class BlockOperands(Protocol):
    """What the loops over the tiles of a block ask of a product's operands: of a GEMM's, or of one group's."""

    @property
    def a(self) -> Buffer:
        """The first factor."""
        ...

    @property
    def c(self) -> Buffer:
        """The result."""
        ...

    @property
    def accumulator(self) -> DType:
        """The element type of the sums."""
        ...

    def at(
        self, buffer: Buffer, row: Index | int, column: Index | int, rows: Index | int, columns: Index | int
    ) -> Region:
        """Return a rectangle of one of the operands or of the result."""
        ...

    def epilogue(self, row: Index, column: Index, rows: Index, columns: Index) -> EpilogueCall | None:
        """Return the call that turns a tile of sums into C, or None where the sums are C."""
        ...


@dataclass(frozen=True, slots=True)
class GemmOperands:
    """The global buffers of a GEMM; ``at(buffer, …)`` names a rectangle of one at the current batch index."""

    op: GemmOp
    a: Buffer
    b: Buffer
    c: Buffer
    extras: tuple[Buffer, ...]
    batch: tuple[Var, ...]

    @classmethod
    def of(cls, op: GemmOp, *, b: Buffer | None = None, b_unit: int | None = None, depth: Index = K) -> GemmOperands:
        """Return the buffers of an op.

        ``b`` replaces the second operand, for weights in a layout of the kernel's own; ``b_unit`` is the axis of it
        that has to
        be contiguous; ``depth`` is the extent of K.
        """
        types, dims = gemm_types(op), merged_batch(op)
        axes = tuple(Param(f"batch{axis}") for axis in range(len(dims)))
        c_shape, c_dims = (*axes, M, N), (*dims, op.m, op.n)
        return cls(
            op=op,
            a=tensor_buffer("a", types["a"], (*axes, M, depth), (*dims, op.m, op.k), BufferRole.INPUT),
            b=b
            or tensor_buffer(
                "b", types["b"], (*axes, depth, N), (*dims, op.k, op.n), BufferRole.INPUT, unit_axis=b_unit
            ),
            c=tensor_buffer("c", types["c"], c_shape, c_dims, BufferRole.OUTPUT),
            extras=tuple(
                tensor_buffer(name, types[name], c_shape, c_dims, BufferRole.INPUT)
                for name in (f"x{position}" for position in range(1, len(op.epilogue.operands) + 1))
            ),
            batch=tuple(Var(f"i_batch{axis}") for axis in range(len(dims))),
        )

    @property
    def accumulator(self) -> DType:
        """The element type of the sums."""
        return self.op.accumulator

    @property
    def sums_in_place(self) -> bool:
        """Whether C itself can hold the sums between K blocks: the accumulator's type, columns next to each other."""
        return self.c.dtype is self.accumulator and self.c.element_strides[-1] == Const(1)

    def at(
        self, buffer: Buffer, row: Index | int, column: Index | int, rows: Index | int, columns: Index | int
    ) -> Region:
        """Return a rectangle of the last two axes at the current batch index; all of an axis of extent 1."""
        offset = (*self.batch, row, column)
        extent = (*(1 for _ in self.batch), rows, columns)
        single = [size == Const(1) for size in buffer.shape]
        return buffer.region(
            tuple(0 if one else start for one, start in zip(single, offset, strict=True)),
            tuple(1 if one else size for one, size in zip(single, extent, strict=True)),
        )

    def epilogue(self, row: Index, column: Index, rows: Index, columns: Index) -> EpilogueCall | None:
        """Return the call that turns a tile of sums into C, or None where the sums are C."""
        if self.sums_in_place and self.op.epilogue.is_identity:
            return None
        return EpilogueCall(
            expr=self.op.epilogue.expr,
            operands=tuple(self.at(buffer, row, column, rows, columns) for buffer in self.extras),
            target=None if self.sums_in_place else self.at(self.c, row, column, rows, columns),
        )

    def over_batch(self, body: Sequence[Node], *, between: Sequence[Node] = ()) -> tuple[Node, ...]:
        """Return ``body`` repeated for every batch index, one after the other, with ``between`` after each."""
        nodes = tuple(body)
        for var, size in reversed(tuple(zip(self.batch, self.c.shape, strict=False))):
            nodes = (For(var=var, extent=size, body=Block(nodes=(*nodes, *between))),)
        return nodes

    def tasks(
        self, *, var: Var, extent: Index, step: int, length: Var, body: Sequence[Node], level: Level = Level.TASK
    ) -> tuple[Node, ...]:
        """Return ``body`` for every batch index and block of ``extent`` as tasks that are shared by the team.

        The innermost batch axis makes the tasks where there is one: its indices are independent and need no tail.
        """
        if not self.batch:
            return (
                Parallel(
                    level=level,
                    var=var,
                    extent=extent,
                    step=Const(step),
                    length=length,
                    body=Block(nodes=tuple(body)),
                ),
            )
        blocks = For(var=var, extent=extent, step=Const(step), length=length, body=Block(nodes=tuple(body)))
        nodes: tuple[Node, ...] = (
            Parallel(
                level=level,
                var=self.batch[-1],
                extent=self.c.shape[len(self.batch) - 1],
                body=Block(nodes=(blocks,)),
            ),
        )
        for batch, size in reversed(tuple(zip(self.batch[:-1], self.c.shape, strict=False))):
            # All threads leave one task loop before any enters it again: the loops share a counter.
            nodes = (For(var=batch, extent=size, body=Block(nodes=(*nodes, Barrier()))),)
        return nodes

    def kernel(
        self,
        variant: str,
        schedule: Schedule,
        target: Target,
        scratch: Sequence[Buffer],
        body: Sequence[Node],
        *,
        assumptions: Predicate = TRUE,
    ) -> TileKernel:
        """Return the kernel with these operands: a, b, the epilogue's, c, then the scratch."""
        buffers = (self.a, self.b, *self.extras, self.c, *scratch)
        return TileKernel(
            name=kernel_name(self.op.key, variant, schedule, target),
            op=self.op,
            variant=variant,
            schedule=schedule,
            target=target.name,
            params=params_of(buffers),
            buffers=buffers,
            body=Block(nodes=tuple(body)),
            assumptions=assumptions,
        )


def gemm_types(op: GemmOp, like: GemmOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer of a GEMM; batch axes are merged as for ``like``, the kernel's own.

    ``a_t`` and ``b_t`` are a and b with their last two axes exchanged, for kernels that declare them so.
    """
    plan = _batch_plan(like or op)
    c_dims = (*op.batch, op.m, op.n)
    types = {
        "a": plan.apply(op.a, (*op.batch, op.m, op.k)),
        "b": plan.apply(op.b, (*op.batch, op.k, op.n)),
    }
    if op.b.rank == 2:  # one matrix for all of the batch: kernels that pack it ahead of time know of no batch
        types["b"] = _matrix(types["b"])
    types |= {f"{name}_t": _transposed(types[name]) for name in ("a", "b")}
    types |= {f"x{i}": plan.apply(type_, c_dims) for i, type_ in enumerate(op.epilogue.operands, start=1)}
    return types | {"c": plan.apply(op.infer(), c_dims)}


def _matrix(type_: TensorType) -> TensorType:
    return TensorType(type_.shape[-2:], type_.dtype, StridedLayout(type_.strides[-2:]))


def _transposed(type_: TensorType) -> TensorType:
    (*outer, rows, columns), (*steps, row_step, column_step) = type_.shape, type_.strides
    return TensorType((*outer, columns, rows), type_.dtype, StridedLayout((*steps, column_step, row_step)))


def _batch_plan(op: GemmOp) -> AxisPlan:
    rank = len(op.batch)
    types = (op.a, op.b, *op.epilogue.operands, op.infer())
    return AxisPlan.of((*op.batch, op.m, op.n), types, keep=frozenset((rank, rank + 1)))


def merged_batch(op: GemmOp) -> tuple[Dim, ...]:
    """Return the extents of the batch axes after those that every operand walks like one were merged."""
    return _batch_plan(op).dims((*op.batch, op.m, op.n))[:-2]


def kernel_name(key: str, variant: str, schedule: Schedule, target: Target | GpuTarget) -> str:
    """Return the C symbol of a kernel: the variant in words and a digest of everything that the text depends on."""
    digest = hashlib.sha256("\0".join((key, variant, schedule.key, target.isa)).encode()).hexdigest()[:20]
    return f"tracea_{variant.replace('.', '_')}_{digest}"


def gemm_tile(
    *,
    panels: tuple[bool, bool],
    mr: int,
    nv: int,
    nr: int,
    unroll: int,
    prefetch: tuple[int, int],
    rows: Sequence[int],
    upcoming_lines: int = 0,
    columns_of_a: bool = False,
    streaming: bool = False,
) -> Intrinsic:
    """Return the register tile of ``mr`` rows by ``nv`` vectors, which are ``nr`` columns.

    ``panels`` says of a and of b whether they are packed, ``columns_of_a`` whether it is the columns of an a that is
    not that are next to each other; ``prefetch`` are the distances in steps for a and b;
    ``rows`` are the row counts that have code of their own, descending from ``mr``. Each tile fetches
    ``upcoming_lines`` cache lines of b's next panel, so that the tiles of one panel fetch all of it; of listed blocks,
    whose number a table says, any number but 0 means its share of them. ``streaming``: listed blocks' sums are stored
    past the caches.
    """
    a_packed, b_packed = panels
    return Intrinsic(
        name="gemm_tile",
        meaning=_MEANINGS[panels],
        source="emitters/cpu/include/tracea/gemm.h",
        attributes=(
            ("a", "panel" if a_packed else "columns" if columns_of_a else "rows"),
            ("b", "panel" if b_packed else "rows"),
            ("mr", mr),
            ("nv", nv),
            ("nr", nr),
            ("unroll", unroll),
            ("prefetch_a", prefetch[0]),
            ("prefetch_b", prefetch[1]),
            ("rows", ",".join(map(str, rows))),
            ("upcoming_lines", upcoming_lines),
            *((("streaming", 1),) if streaming else ()),
        ),
    )


def step_tile(*, mr: int, nv: int, nr: int, unroll: int, rows: Sequence[int]) -> Intrinsic:
    """Return the tile of ``mr`` rows by ``nv`` vectors whose lanes are steps of ``nr`` columns; ``rows`` as above."""
    return Intrinsic(
        name="step_tile",
        meaning=plain_product,
        source="emitters/cpu/include/tracea/step_tile.h",
        attributes=(("mr", mr), ("nv", nv), ("nr", nr), ("unroll", unroll), ("rows", ",".join(map(str, rows)))),
    )


_MEANINGS = {
    (True, True): packed_depth_first_product,
    (True, False): packed_depth_first_product,
    (False, True): plain_product,
    (False, False): plain_product,
}
