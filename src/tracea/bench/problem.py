"""Problem: one row of a benchmark - an op with the data it is run on and how its operands are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core.dtype import DType
from tracea.core.op import AttentionOp, BlockSparseOp, Conv2dOp, GemmOp, GroupedGemmOp, LowRankOp, Op, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.gemm.block_sparse import run_tables
from tracea.kernels.gemm.grouped import PART_ROWS, part_tables
from tracea.runtime.buffers import aligned_empty
from tracea.semantic.tile_builders import masked_factor_tiles, ragged_tiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Problem"]

_OWN_CACHE_BYTES: Final = 4 * 1024**2  # more than a core's own caches hold: beyond, the memory's bandwidth is a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An op to be timed.

    ``constant`` names the operands that are weights: known once, so that every contender may prepack them. With
    ``face`` the contenders are the public Python functions, called as a user calls them: ``tracea.ops.gemm(a, b)``
    beside ``torch.mm(a, b)``. ``group`` is the line of a summary that the row belongs to. ``yardstick`` names the
    family of peers whose ratio is recorded even where another's peer is faster. ``density`` is the share of the
    second factor's blocks that are listed, for an op that lists them. ``other`` is the same op with its images in
    another order of axes: as peers do, ours takes the order that it is faster with.
    """

    name: str
    group: str
    op: Op
    constant: tuple[int, ...] = ()
    face: bool = False
    yardstick: str = ""
    density: float = 1.0
    other: Op | None = None

    def in_other_order(self, arrays: Sequence[NDArray[np.float32]]) -> tuple[Problem, tuple[NDArray[np.float32], ...]]:
        """Return the problem with its images in the other order, and the same operands in that; itself without one."""
        if self.other is None:
            return self, tuple(arrays)
        problem = replace(self, op=self.other, other=None)
        moved: list[NDArray[np.float32]] = []
        for operand, array in zip(problem.op.operands, arrays, strict=True):
            moved.append(_laid_out(operand)[1])
            moved[-1][...] = array
        return problem, tuple(moved)

    def arrays(self, seed: int) -> tuple[NDArray[np.float32], ...]:
        """Return fresh standard-normal operands; a product's weights are scaled so that its results stay near 1.

        Blocks of a factor that are not listed are zero, for contenders that know of no blocks; lists come last.
        """
        generator = np.random.default_rng(seed)
        if isinstance(self.op, BlockSparseOp):
            return _listed(self.op, self.density, generator)
        if isinstance(self.op, GroupedGemmOp):
            return _routed(self.op, generator)
        made: list[NDArray[np.float32]] = []
        for index, operand in enumerate(self.op.operands):
            memory, data = _laid_out(operand)
            generator.standard_normal(dtype=np.float32, out=memory)
            if isinstance(self.op, GemmOp | Conv2dOp) and index == 1:
                terms = self.op.taps if isinstance(self.op, Conv2dOp) else int(self.op.k)  # pyright: ignore[reportArgumentType]
                memory *= np.float32(max(terms, 1) ** -0.5)
            made.append(data)
        return tuple(made)

    def result(self) -> NDArray[np.float32]:
        """Return memory for a result, NaN throughout; every contender's is of the same alignment and page size."""
        out = _laid_out(self.op.infer())[1]
        out.fill(np.nan)
        return out

    @property
    def is_chain(self) -> bool:
        """Whether the op is a fused chain of element by element steps."""
        return isinstance(self.op, PointwiseOp)

    @property
    def ceiling(self) -> str:
        """What bounds the op: "copy" where it reads and writes once, "peak" a product in cache, else the "roofline"."""
        if isinstance(self.op, AttentionOp):
            return "roofline"  # one query reads its keys once
        if isinstance(self.op, Conv2dOp):  # a depthwise one reads and writes more than it computes
            return "peak" if self.op.groups == 1 else "roofline"
        if isinstance(self.op, BlockSparseOp | LowRankOp | GroupedGemmOp):
            return "roofline"
        if not isinstance(self.op, GemmOp):
            return "copy"
        return "peak" if self.op.bytes <= _OWN_CACHE_BYTES else "roofline"


def _listed(op: BlockSparseOp, density: float, generator: np.random.Generator) -> tuple[NDArray[Any], ...]:
    """Return both factors and the lists of a random mask with exactly the share of blocks that ``density`` says."""
    mask = np.zeros(op.steps * op.lines, dtype=bool)
    mask[: round(density * mask.size)] = True
    generator.shuffle(mask)
    mask = mask.reshape(op.steps, op.lines)
    made: list[NDArray[Any]] = []
    for operand in (op.a, op.b):
        memory, data = _laid_out(operand)
        generator.standard_normal(dtype=np.float32, out=memory)
        made.append(data)
    made[1] *= np.kron(mask, np.ones((op.block, op.block), np.float32))[: op.k, : op.n]
    made[1] *= np.float32(op.k**-0.5)
    table = masked_factor_tiles(rows=op.m, columns=op.n, depth=op.k, mask=mask, block=op.block, factor="b")
    for given in run_tables(table, op.block, op.chunk):
        listed: NDArray[np.int32] = aligned_empty(given.shape, DType.I32)
        listed[...] = given
        made.append(listed)
    return tuple(made)


def _routed(op: GroupedGemmOp, generator: np.random.Generator) -> tuple[NDArray[Any], ...]:
    """Return rows, matrices and the tables of a ragged draw: each group as likely as a flat Dirichlet draw says."""
    made: list[NDArray[Any]] = []
    for operand in (op.x, op.weights):
        memory, data = _laid_out(operand)
        generator.standard_normal(dtype=np.float32, out=memory)
        made.append(data)
    made[1] *= np.float32(op.k**-0.5)
    counts = generator.multinomial(op.m, generator.dirichlet(np.ones(op.groups))).tolist()
    table = ragged_tiles(counts, op.n, depth=op.k, tile_rows=PART_ROWS, tile_columns=op.n)
    for given in part_tables(table, op.groups, op.parts):
        listed: NDArray[np.int32] = aligned_empty(given.shape, DType.I32)
        listed[...] = given
        made.append(listed)
    return tuple(made)


def _laid_out(type_: TensorType) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return memory for a dense tensor as a row-major array, and the array of the type's own order of axes in it."""
    order = sorted(range(type_.rank), key=lambda axis: (-type_.strides[axis], axis))
    memory: NDArray[np.float32] = aligned_empty(tuple(type_.static_shape[axis] for axis in order), DType.F32)
    return memory, memory.transpose(sorted(range(type_.rank), key=order.__getitem__))
