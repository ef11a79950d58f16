"""The sparse suite: a factor with blocks of zeros beside the dense product, thin factors, rows routed to experts."""

from __future__ import annotations

from tracea.bench.problem import Problem
from tracea.core.op import BlockSparseOp, GemmOp, GroupedGemmOp, LowRankOp
from tracea.doctor import host
from tracea.kernels.gemm.block_sparse import chunk_of
from tracea.kernels.gemm.grouped import parts_of

__all__ = ["grouped_problem", "low_rank_problem", "sparse_problem", "sparse_problems"]

_SIDE = 2048
_DENSITIES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
_BLOCKS = (32, 64)
_RANKS = (8, 16, 32, 64, 128, 256)
_EXPERTS = ((8, 512, 4096, 1024), (64, 2048, 512, 512))  # groups, rows, columns, steps


def sparse_problem(side: int, block: int, density: float) -> Problem:
    """A square product, ``density`` of the second factor's blocks of which are listed; the others are zero."""
    op = BlockSparseOp.of(m=side, n=side, k=side, block=block, chunk=chunk_of(density, side, block, host()))
    name = f"{side}x{side}x{side} blocks of {block} density {density:g}"
    return Problem(name=name, group=f"blocks of {block}", op=op, density=density)


def low_rank_problem(m: int, n: int, k: int, r: int) -> Problem:
    """A product with two thin factors; its rival is the two products in turn."""
    return Problem(name=f"{m}x{n}x{k} rank {r}", group="low rank", op=LowRankOp.of(m=m, n=n, k=k, r=r))


def grouped_problem(groups: int, m: int, n: int, k: int) -> Problem:
    """Rows of ragged groups, each group with a matrix of its own; its rival is a product for each group in turn."""
    op = GroupedGemmOp.of(m=m, n=n, k=k, groups=groups, parts=parts_of(m, groups))
    return Problem(name=f"{m}x{n}x{k} of {groups} experts", group="experts", op=op)


def sparse_problems() -> tuple[Problem, ...]:
    """Return the suite's problems."""
    return (
        Problem(name=f"{_SIDE}x{_SIDE}x{_SIDE} dense", group="dense", op=GemmOp.of(m=_SIDE, n=_SIDE, k=_SIDE)),
        *(sparse_problem(_SIDE, block, density) for block in _BLOCKS for density in _DENSITIES),
        *(low_rank_problem(512, 1024, 1024, rank) for rank in _RANKS),
        *(grouped_problem(*sizes) for sizes in _EXPERTS),
    )
