"""Low-rank products against float64 at other extents; and intermediates that the proofs refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.conformance import build, check, random_inputs, run, unit_of
from tests.kernels.low_rank_cases import low_rank_cases, strided
from tests.kernels.native import host_isas, run_isas

from tracea.core.dtype import DType
from tracea.core.op import LowRankOp
from tracea.core.reference import evaluate
from tracea.errors import InvalidOp, InvalidShape, ProofFailed
from tracea.kernels.registry import find
from tracea.semantic.index import TRUE, Const
from tracea.semantic.nodes import Block, For, MicroKernel, Node, Pack, Parallel
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

CASES = {case.name: case for case in low_rank_cases()}


def resized(op: LowRankOp, m: int, n: int, k: int, r: int) -> LowRankOp:
    if op.infer().layout is not None:
        return strided(m, n, k, r)
    fused = {"bias": True, "activation": "gelu"} if op.epilogue.operands else {}
    return LowRankOp.of(m=m, n=n, k=k, r=r, dtype=op.x.dtype, out_dtype=op.infer().dtype, **fused)


@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", [name for name in CASES if name != "low_rank_default"])
def test_low_rank_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(low_rank_cases(), isa), CASES[name]
    for _ in range(8):
        m = 4 * int(rng.integers(0, 12)) + 1
        n, k, r = (int(value) for value in rng.integers(2, (130, 90, 50)))
        op = resized(case.op, max(m, 5), n, k, r)
        check(unit, build(case, isa), op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_a_product_without_columns_writes_nothing(isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(low_rank_cases(), isa), CASES["low_rank"]
    op = resized(case.op, 33, 0, 5, 3)
    assert run(unit, build(case, isa), op, random_inputs(op, rng), threads=2).shape == (33, 0)


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_nan_and_infinity_reach_exactly_the_rows_that_depend_on_them(isa: str, rng: np.random.Generator) -> None:
    for name in ("low_rank", "low_rank_packed", "low_rank_bf16"):
        inputs = random_inputs(CASES[name].op, rng)
        inputs[0][3, 2], inputs[0][30, 39] = np.nan, np.inf
        with np.errstate(all="ignore"):
            check(unit_of(low_rank_cases(), isa), build(CASES[name], isa), CASES[name].op, inputs, threads=2)


def test_schedules_of_the_space_build_and_prove(rng: np.random.Generator) -> None:
    variant, op = find("gemm.low_rank"), LowRankOp.of(m=100, n=90, k=70, r=24)
    assert variant.space is not None
    assert variant.build is not None
    for isa in ("avx512", "avx2", "neon", "plain"):
        space = variant.space(op, load(isa))
        for row in rng.integers(0, len(space), 3):
            prove(variant.build(op, space.schedule(space.rows[int(row)]), load(isa)))


def test_the_work_is_that_of_two_thin_products() -> None:
    assert LowRankOp.of(m=512, n=1024, k=2048, r=64).flops == 2 * 512 * 64 * (2048 + 1024)


def test_an_op_refuses_what_does_not_fit() -> None:
    op = LowRankOp.of(m=4, n=5, k=6, r=2)
    with pytest.raises(InvalidShape):
        replace(op, a=op.b)
    with pytest.raises(InvalidOp, match="floats"):
        LowRankOp.of(m=4, n=5, k=6, r=2, dtype=DType.I32)
    for empty in (replace(op, k=0, x=replace(op.x, shape=(4, 0)), a=replace(op.a, shape=(0, 2))),):
        assert [requirement.name for requirement, _ in find("gemm.low_rank").unmet(empty, load("avx512"))] == [
            "k, r >= 1"
        ]
    exact = evaluate(op, [np.eye(4, 6), np.eye(6, 2), np.eye(2, 5)])
    assert np.array_equal(exact, np.eye(4, 2) @ np.eye(2, 5))


def changed(kernel: TileKernel, change: Callable[[Node], Node]) -> TileKernel:
    def rebuilt(node: Node) -> Node:
        if isinstance(node, MicroKernel | Pack):
            return change(node)
        if isinstance(node, For | Parallel):
            return change(replace(node, body=inside(node.body)))
        return node

    def inside(body: Block) -> Block:
        return Block(nodes=tuple(map(rebuilt, body.nodes)))

    return replace(kernel, body=inside(kernel.body))


def products(node: Node) -> str:
    """Name a product by what it writes: "inner" is the first, "c" the second."""
    return node.c.buffer if isinstance(node, MicroKernel) else ""


def at(node: MicroKernel, operand: str, axis: int, shift: int) -> MicroKernel:
    region = getattr(node, operand)
    offset = list(region.offset)
    offset[axis] = offset[axis] + shift
    return replace(node, **{operand: replace(region, offset=tuple(offset))})


MUTANTS: dict[str, Callable[[Node], Node]] = {
    "the second product reads other rows": lambda n: at(n, "a", -2, 1) if products(n) == "c" else n,
    "the second product begins at another step": lambda n: at(n, "a", -1, 1) if products(n) == "c" else n,
    "the second factor begins at another step": lambda n: at(n, "b", -2, 1) if products(n) == "c" else n,
    "the second factor gives other columns": lambda n: at(n, "b", -1, 1) if products(n) == "c" else n,
    "x gives other rows": lambda n: at(n, "a", -2, 1) if products(n) == "inner" else n,
    "x and a begin at different steps": lambda n: at(n, "a", -1, 1) if products(n) == "inner" else n,
    "a gives other columns": lambda n: at(n, "b", -1, 1) if products(n) == "inner" else n,
    "the inner sum never starts": lambda n: replace(n, accumulate=TRUE) if products(n) == "inner" else n,
    "blocks of k are left out": lambda n: (
        replace(n, extent=n.extent - Const(16)) if isinstance(n, For) and n.var.name == "pc" else n
    ),
    "blocks of the rank are left out": lambda n: (
        replace(n, extent=n.extent - Const(8)) if isinstance(n, For) and n.var.name == "pr" else n
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_mistake_is_refused(mutant: str) -> None:
    kernel = build(CASES["low_rank"], "avx512").kernel
    prove(kernel)
    wrong = changed(kernel, MUTANTS[mutant])
    assert wrong != kernel
    with pytest.raises(ProofFailed):
        prove(wrong)


def test_a_product_that_is_read_before_all_of_it_is_summed_is_refused() -> None:
    kernel = build(CASES["low_rank"], "avx512").kernel
    (task,) = kernel.body.nodes
    assert isinstance(task, Parallel)
    into, out = task.body.nodes
    assert isinstance(into, For)
    early = replace(into, body=Block(nodes=(*into.body.nodes, out)))
    with pytest.raises(ProofFailed):
        prove(replace(kernel, body=Block(nodes=(replace(task, body=Block(nodes=(early,))),))))
