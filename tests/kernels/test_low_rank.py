"""Low-rank products against float64 at other extents; and intermediates that the proofs refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.low_rank_cases import low_rank_cases, low_rank_tile_cases, strided
from tests.kernels.native import has_tiles, host_isas, run_isas
from tests.kernels.test_amx import EXTREMES, placed, scaled

from tracea.core.dtype import DType
from tracea.core.op import LowRankOp
from tracea.core.reference import evaluate
from tracea.errors import InvalidOp, InvalidSchedule, InvalidShape, ProofFailed
from tracea.kernels.registry import candidates, find
from tracea.semantic.access import Region
from tracea.semantic.index import TRUE, Const
from tracea.semantic.nodes import Block, For, MicroKernel, Node, Pack, Parallel
from tracea.semantic.proofs import prove
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

CASES = {case.name: case for case in low_rank_cases()}
TILES = {case.name: case for case in low_rank_tile_cases()}
WHERE = [pytest.param(name, *isa.values, marks=isa.marks) for isa in run_isas()[:2] for name in CASES]
WHERE += [pytest.param(name, "amx") for name in TILES] if has_tiles() else []
ON_TILES = ["plain", *(["amx"] if has_tiles() else [])]


def group(name: str) -> tuple[tuple[Case, ...], Case]:
    return (low_rank_tile_cases(), TILES[name]) if name in TILES else (low_rank_cases(), CASES[name])


def resized(op: LowRankOp, m: int, n: int, k: int, r: int) -> LowRankOp:
    if op.infer().layout is not None:
        return strided(m, n, k, r, step=op.x.strides[-1])
    fused = {"bias": True, "activation": "gelu"} if op.epilogue.operands else {}
    return LowRankOp.of(m=m, n=n, k=k, r=r, dtype=op.x.dtype, out_dtype=op.infer().dtype, **fused)


@pytest.mark.parametrize(("name", "isa"), [each for each in WHERE if "default" not in each.values[0]])
def test_low_rank_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    cases, case = group(name)
    for _ in range(8):
        m = 4 * int(rng.integers(0, 12)) + 1  # of the same tail
        n, k, r = (int(value) for value in rng.integers(2, (130, 90, 50)))
        op = resized(case.op, max(m, 5), n, k, r)
        check(unit_of(cases, isa), build(case, isa), op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", ON_TILES)
@pytest.mark.parametrize("name", TILES)
def test_low_rank_on_tiles_matches_float64_for_any_team(name: str, isa: str, rng: np.random.Generator) -> None:
    case = TILES[name]
    inputs = random_inputs(case.op, rng)
    for threads in (1, 3):
        check(unit_of(low_rank_tile_cases(), isa), build(case, isa), case.op, inputs, threads=threads)
    results = [
        run(unit_of(low_rank_tile_cases(), isa), build(case, isa), case.op, inputs, threads=threads)
        for threads in (1, 2, 3)
    ]
    assert len({result.tobytes() for result in results}) == 1


# The same for what lies between: a product that terms cannot hold where neither factor is out of their range.
BETWEEN = {
    "denormal_between": (scaled(2.0**-45), scaled(2.0**-48)),
    "huge_between": (scaled(2.0**55), scaled(2.0**50)),
    "one_huge_row_between": (placed({(3, 40): 2.0**59, (40, 7): -(2.0**59)}), scaled(2.0**59)),
}


@pytest.mark.parametrize("isa", ON_TILES)
@pytest.mark.parametrize("extreme", [*EXTREMES, *BETWEEN])
def test_values_that_terms_cannot_hold_give_what_float32_gives(
    extreme: str, isa: str, rng: np.random.Generator
) -> None:
    for name in ("amx_low_rank", "amx_low_rank_strided"):
        case = TILES[name]
        inputs = random_inputs(case.op, rng)
        x, a = {**EXTREMES, **BETWEEN}[extreme]
        inputs[0] = x(rng, inputs[0].shape)
        # Made for a product of 101 columns: the 41 of this factor are the first and the last of them.
        inputs[1] = a(rng, (inputs[1].shape[0], 101))[:, np.r_[:20, 80:101]]
        with np.errstate(all="ignore"):
            check(unit_of(low_rank_tile_cases(), isa), build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_a_product_without_columns_writes_nothing(isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(low_rank_cases(), isa), CASES["low_rank"]
    op = resized(case.op, 33, 0, 5, 3)
    assert run(unit, build(case, isa), op, random_inputs(op, rng), threads=2).shape == (33, 0)


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_nan_and_infinity_reach_exactly_the_rows_that_depend_on_them(isa: str, rng: np.random.Generator) -> None:
    for name in ("low_rank", "low_rank_packed", "low_rank_steps", "low_rank_bf16"):
        inputs = random_inputs(CASES[name].op, rng)
        inputs[0][3, 2], inputs[0][30, 39] = np.nan, np.inf
        with np.errstate(all="ignore"):
            check(unit_of(low_rank_cases(), isa), build(CASES[name], isa), CASES[name].op, inputs, threads=2)


def test_schedules_of_the_space_build_and_prove(rng: np.random.Generator) -> None:
    op = LowRankOp.of(m=100, n=90, k=70, r=24)
    vectors = [("gemm.low_rank", isa) for isa in ("avx512", "avx2", "neon", "plain")]
    for name, isa in (*vectors, ("gemm.amx_low_rank", "amx"), ("gemm.amx_low_rank", "plain")):
        variant = find(name)
        assert variant.space is not None
        assert variant.build is not None
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


STEP_MUTANTS: dict[str, Callable[[Node], Node]] = {
    "x gives other rows": MUTANTS["x gives other rows"],
    "every block takes the first rows of x": lambda n: replace(n, a=rows_of_zero(n.a)) if products(n) == "inner" else n,
    "a begins at another step": lambda n: at(n, "b", -2, 4) if products(n) == "inner" else n,
    "a gives other columns": lambda n: at(n, "b", -3, 1) if products(n) == "inner" else n,
    "steps are left out": lambda n: shorter(shorter(n, "a", -1), "b", -2) if products(n) == "inner" else n,
    "other steps of a are packed": lambda n: (
        replace(n, source=replace(n.source, offset=(Const(1), n.source.offset[1]))) if isinstance(n, Pack) else n
    ),
    "blocks of rows are left out": lambda n: (
        replace(n, extent=n.extent - Const(8)) if isinstance(n, For) and n.var.name == "ib" else n
    ),
}


@pytest.mark.parametrize("mutant", STEP_MUTANTS)
def test_a_planted_mistake_where_vectors_hold_steps_is_refused(mutant: str) -> None:
    kernel = build(CASES["low_rank_steps"], "avx512").kernel
    prove(kernel)
    wrong = changed(kernel, STEP_MUTANTS[mutant])
    assert wrong != kernel
    with pytest.raises(ProofFailed):
        prove(wrong)


def test_vectors_hold_steps_where_the_rank_is_small_and_rows_repay_the_packing() -> None:
    variant = find("gemm.low_rank")
    assert variant.default_schedule is not None
    for m, k, r, isa, dtype, steps in (
        (512, 1024, 16, "amx", DType.F32, 4),
        (512, 1024, 24, "avx512", DType.F32, 4),
        (512, 1024, 32, "avx512", DType.F32, 1),
        (512, 65536, 16, "avx512", DType.F32, 1),
        (16, 1024, 16, "avx512", DType.F32, 1),
        (512, 1024, 16, "avx2", DType.F32, 1),
        (512, 1024, 16, "avx512", DType.BF16, 1),
    ):
        op = LowRankOp.of(m=m, n=1024, k=k, r=r, dtype=dtype)
        assert variant.default_schedule(op, load(isa)).integer("steps") == steps


@pytest.mark.parametrize("wrong", [{"steps": 2}, {"pack_a": 0}, {"pack_x": 1}])
def test_steps_of_operands_that_no_such_tile_reads_are_refused(wrong: dict[str, int]) -> None:
    op, target, variant = LowRankOp.of(m=512, n=1024, k=1024, r=16), load("avx512"), find("gemm.low_rank")
    assert variant.default_schedule is not None
    assert variant.build is not None
    with pytest.raises(InvalidSchedule, match="steps"):
        variant.build(op, Schedule({**dict(variant.default_schedule(op, target).items()), **wrong}), target)


def test_a_product_that_is_read_before_all_of_it_is_summed_is_refused() -> None:
    kernel = build(CASES["low_rank"], "avx512").kernel
    (task,) = kernel.body.nodes
    assert isinstance(task, Parallel)
    into, out = task.body.nodes
    assert isinstance(into, For)
    early = replace(into, body=Block(nodes=(*into.body.nodes, out)))
    with pytest.raises(ProofFailed):
        prove(replace(kernel, body=Block(nodes=(replace(task, body=Block(nodes=(early,))),))))


def rows_of_zero(region: Region) -> Region:
    return replace(region, offset=(Const(0), *region.offset[1:]))


TILE_MUTANTS: dict[str, Callable[[Node], Node]] = {
    "every task takes the first rows of x": lambda n: replace(n, a=rows_of_zero(n.a)) if products(n) == "inner" else n,
    "x and a begin at different steps": lambda n: at(n, "b", -2, 32) if products(n) == "inner" else n,
    "a gives other columns": lambda n: at(n, "b", -3, 1) if products(n) == "inner" else n,
    "a granule of x is left out": lambda n: shorter(n, "a", -1) if products(n) == "inner" else n,
    "the inner sum never starts": lambda n: replace(n, accumulate=TRUE) if products(n) == "inner" else n,
    "the second product leaves out steps": lambda n: shorter(n, "a", -2) if products(n) == "c" else n,
    "the second product reads other rows": lambda n: at(n, "a", -3, 1) if products(n) == "c" else n,
    "the second factor gives other columns": lambda n: at(n, "b", -3, 1) if products(n) == "c" else n,
    "other columns of a factor are split": lambda n: (
        replace(n, source=replace(n.source, offset=(n.source.offset[0], Const(0))))
        if isinstance(n, Pack) and n.source.buffer == "b"
        else n
    ),
    "one row of the inner product is split": lambda n: first_of(n, "inner", 0),
    "one column of a factor is split": lambda n: first_of(n, "a", 1),
}


def first_of(node: Node, operand: str, axis: int) -> Node:
    """One line of an operand for a panel of lines: what follows is zeros, in as many panels as before."""
    if not isinstance(node, Pack) or node.source.buffer != operand:
        return node
    extent = tuple(Const(1) if at == axis else size for at, size in enumerate(node.source.extent))
    return replace(node, source=replace(node.source, extent=extent))


def shorter(node: MicroKernel, operand: str, axis: int) -> MicroKernel:
    region = getattr(node, operand)
    extent = list(region.extent)
    extent[axis] = extent[axis] - 1
    return replace(node, **{operand: replace(region, extent=tuple(extent))})


@pytest.mark.parametrize("mutant", TILE_MUTANTS)
def test_a_planted_mistake_on_tiles_is_refused(mutant: str) -> None:
    kernel = build(TILES["amx_low_rank"], "amx").kernel
    prove(kernel)
    wrong = changed(kernel, TILE_MUTANTS[mutant])
    assert wrong != kernel
    with pytest.raises(ProofFailed):
        prove(wrong)


def test_tiles_are_refused_where_they_cannot_read_and_come_first_where_they_pay() -> None:
    op = LowRankOp.of(m=512, n=1024, k=1024, r=32)
    assert next(variant.id for variant in candidates(op, load("amx"))) == "gemm.amx_low_rank"
    assert [variant.id for variant in candidates(op, load("avx512"))] == ["gemm.low_rank"]
    few = LowRankOp.of(m=8, n=1024, k=1024, r=32)
    assert next(variant.id for variant in candidates(few, load("amx"))) == "gemm.low_rank"
    for wrong, why in (
        (strided(512, 1024, 1024, 32), "rows of x"),
        (LowRankOp.of(m=512, n=1024, k=1024, r=32, dtype=DType.BF16), "float32 operands"),
    ):
        unmet = find("gemm.amx_low_rank").unmet(wrong, load("amx"))
        assert [requirement.name for requirement, _ in unmet] == [why]
