"""Block-sparse products against float64: any mask, other extents, what is not listed; and mistakes that are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, sparse_inputs, unit_of
from tests.kernels.native import has_tiles, host_isas, run_isas
from tests.kernels.sparse_cases import sparse_cases, sparse_tile_cases, strided

from tracea.core.op import BlockSparseOp
from tracea.core.reference import evaluate
from tracea.errors import InvalidInput, InvalidOp, InvalidSchedule, InvalidShape, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.gemm.block_sparse import chunk_of, run_tables
from tracea.semantic.index import FALSE, TRUE, Const
from tracea.semantic.interpreter import interpret
from tracea.semantic.nodes import Barrier, Block, For, Let, Node, Pack, Parallel
from tracea.semantic.nodes_sparse import RunProduct
from tracea.semantic.proofs import prove
from tracea.semantic.tile_builders import TileGrid, block_sparse_tiles, masked_factor_tiles
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets import load

VECTORS = {case.name: case for case in sparse_cases()}
TILES = {case.name: case for case in sparse_tile_cases()}
WHERE = [pytest.param(name, *isa.values, marks=isa.marks) for isa in run_isas()[:2] for name in VECTORS]
WHERE += [pytest.param(name, "amx") for name in TILES] if has_tiles() else []


def group(name: str) -> tuple[tuple[Case, ...], Case]:
    return (sparse_tile_cases(), TILES[name]) if name in TILES else (sparse_cases(), VECTORS[name])


def resized(op: BlockSparseOp, m: int, n: int, k: int) -> BlockSparseOp:
    if op.infer().layout is not None:
        return strided(m, n, k, op.block, op.chunk)
    kinds = {"dtype": op.a.dtype, "out_dtype": op.infer().dtype}
    return BlockSparseOp.of(m=m, n=n, k=k, block=op.block, chunk=op.chunk, **kinds)


@pytest.mark.parametrize(("name", "isa"), WHERE)
@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
def test_every_mask_gives_the_product_of_the_listed_blocks(
    name: str, isa: str, density: float, rng: np.random.Generator
) -> None:
    cases, case = group(name)
    mask = rng.random((case.op.steps, case.op.lines)) < density
    inputs = sparse_inputs(case.op, mask, rng)
    for threads in (1, 3):
        check(unit_of(cases, isa), build(case, isa), case.op, inputs, threads=threads)
    if density == 0.0:
        assert not run(unit_of(cases, isa), build(case, isa), case.op, inputs).any()


@pytest.mark.parametrize(("name", "isa"), [each for each in WHERE if "default" not in each.values[0]])
def test_a_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    cases, case = group(name)
    for _ in range(6):
        m, n, k = (int(value) for value in rng.integers(2, (90, 200, 260)))
        op = resized(case.op, m, n, k)
        check(unit_of(cases, isa), build(case, isa), op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))
    empty = resized(case.op, 0, 40, 50)
    assert run(unit_of(cases, isa), build(case, isa), empty, random_inputs(empty, rng)).shape == (0, 40)


@pytest.mark.parametrize(("name", "isa"), WHERE)
def test_nan_and_infinity_reach_exactly_the_results_that_depend_on_them(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    cases, case = group(name)
    mask = np.ones((case.op.steps, case.op.lines), dtype=bool)
    mask[0, 0] = mask[-1, -1] = False
    inputs = sparse_inputs(case.op, mask, rng)
    inputs[0][3, -1], inputs[0][5, 0], inputs[1][-1, 0] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        check(unit_of(cases, isa), build(case, isa), case.op, inputs, threads=2)


def test_bits_do_not_depend_on_the_threads(rng: np.random.Generator) -> None:
    cases, case = group("sparse_chunks")
    inputs = random_inputs(case.op, rng)
    isa = host_isas()[0]
    results = [run(unit_of(cases, isa), build(case, isa), case.op, inputs, threads=count) for count in (1, 2, 5)]
    assert len({result.tobytes() for result in results}) == 1


def test_an_op_refuses_what_does_not_fit() -> None:
    op = BlockSparseOp.of(m=4, n=5, k=6, block=2)
    with pytest.raises(InvalidShape):
        replace(op, a=op.b)
    with pytest.raises(InvalidOp, match="block"):
        replace(op, block=0)
    with pytest.raises(InvalidOp, match="chunk"):
        replace(op, chunk=0)
    kernel = build(VECTORS["sparse_chunks"], "avx512").kernel
    with pytest.raises(InvalidSchedule, match="chunk"):
        arguments(kernel, BlockSparseOp.of(m=33, n=150, k=141, block=32, chunk=1))


def test_tables_are_made_of_tiles_of_the_second_factor_alone() -> None:
    grid = TileGrid(rows=64, columns=64, depth=64, tile_rows=32, tile_columns=32)
    with pytest.raises(InvalidSchedule, match="tile table"):
        run_tables(block_sparse_tiles(grid, np.ones((2, 2))), 32, 2)
    table = masked_factor_tiles(rows=9, columns=70, depth=100, mask=np.eye(4, 3), block=32, factor="b")
    first, line, step = run_tables(table, 32, 3)
    assert first.tolist() == [0, 1, 2, 3, 3, 3, 3]
    assert line[:3].tolist() == step[:3].tolist() == [0, 1, 2]


def tables_of(
    case: Case, rng: np.random.Generator, density: float = 1.0
) -> tuple[list[np.ndarray], TileKernel, dict[str, Any]]:
    kernel = build(case, "amx" if case.name in TILES else "avx512").kernel
    inputs = sparse_inputs(case.op, rng.random((case.op.steps, case.op.lines)) < density, rng)
    out = np.zeros(case.op.shape, np.float32)
    return inputs, kernel, {"a": inputs[0], "b": inputs[1], "c": out}


@pytest.mark.parametrize(
    "damage",
    [
        lambda first, line, step: first.__setitem__(2, first[3] + 1),
        lambda first, line, step: first.__setitem__(0, 1),
        lambda first, line, step: first.__setitem__(-1, len(line) + 1),
        lambda first, line, step: line.__setitem__(0, 1),
        lambda first, line, step: line.__setitem__(0, -1),
        lambda first, line, step: step.__setitem__(0, 4),
        lambda first, line, step: step.__setitem__(0, step[1]),
        lambda first, line, step: step.__setitem__(-1, 99),
    ],
)
def test_tables_that_are_not_a_factors_blocks_are_refused(
    damage: Callable[[Any, Any, Any], None], rng: np.random.Generator
) -> None:
    case = VECTORS["sparse_chunks"]
    inputs, kernel, buffers = tables_of(case, rng)
    values = arguments(kernel, case.op)
    names = [table.name for table in kernel.tables]
    interpret(kernel, buffers, values, tables=dict(zip(names, inputs[2:], strict=True)))
    damaged = [table.copy() for table in inputs[2:]]
    damage(*damaged)
    with pytest.raises(InvalidInput):
        interpret(kernel, buffers, values, tables=dict(zip(names, damaged, strict=True)))


def changed(kernel: TileKernel, change: Callable[[Node], Node]) -> TileKernel:
    def rebuilt(node: Node) -> Node:
        if isinstance(node, For | Parallel):
            return change(replace(node, body=inside(node.body)))
        return change(node)

    def inside(body: Block) -> Block:
        return Block(nodes=tuple(rebuilt(node) for node in body.nodes))

    return replace(kernel, body=inside(kernel.body))


def product(node: Node, **fields: Any) -> Node:
    return replace(node, **fields) if isinstance(node, RunProduct) else node


def moved(node: Node, kind: type, operand: str, axis: int, shift: int = 1) -> Node:
    if not isinstance(node, kind):
        return node
    region = getattr(node, operand)
    offset = list(region.offset)
    offset[axis] = offset[axis] + shift
    return replace(node, **{operand: replace(region, offset=tuple(offset))})


MUTANTS: dict[str, Callable[[Node], Node]] = {
    "another line": lambda n: product(n, line=n.line + 1) if isinstance(n, RunProduct) else n,
    "always the first line": lambda n: product(n, line=Const(0)),
    "another chunk": lambda n: product(n, chunk=Const(0)),
    "blocks of another size": lambda n: product(n, size=16),
    "another depth": lambda n: product(n, depth=n.depth - 1) if isinstance(n, RunProduct) else n,
    "always from zero": lambda n: product(n, accumulate=FALSE),
    "never from zero": lambda n: product(n, accumulate=TRUE),
    "other rows": lambda n: moved(n, RunProduct, "c", -2),
    "other columns": lambda n: moved(n, RunProduct, "c", -1),
    "another panel": lambda n: moved(n, RunProduct, "b", 1),
    "not the first block": lambda n: moved(n, RunProduct, "b", 0),
    "other steps of the block": lambda n: moved(n, RunProduct, "b", 2),
    "tables of another kernel": lambda n: (
        product(n, runs=replace(n.runs, first="other")) if isinstance(n, RunProduct) else n
    ),
    "other lines": lambda n: (
        product(n, runs=replace(n.runs, lines=n.runs.lines + 1)) if isinstance(n, RunProduct) else n
    ),
    "a block in another place": lambda n: moved(n, Pack, "target", 0) if isinstance(n, Pack) and n.axis == 1 else n,
    "rows of a in another place": lambda n: moved(n, Pack, "source", -2) if isinstance(n, Pack) and n.axis == 0 else n,
    "steps of a in another place": lambda n: moved(n, Pack, "source", -1) if isinstance(n, Pack) and n.axis == 0 else n,
    "a block of another step": lambda n: (
        replace(n, value=n.value + 1) if isinstance(n, Let) and n.var.name == "block_step" else n
    ),
    "a block of another line": lambda n: (
        replace(n, value=n.value + 1) if isinstance(n, Let) and n.var.name == "block_line" else n
    ),
    "step and line exchanged": lambda n: (
        replace(n, value=replace(n.value, table="run_line")) if isinstance(n, Let) and n.var.name == "block_step" else n
    ),
    "blocks left out": lambda n: (
        replace(n, extent=n.extent - 1) if isinstance(n, Parallel) and n.var.name == "e" else n
    ),
    "chunks left out": lambda n: replace(n, extent=n.extent - 64) if isinstance(n, For) and n.var.name == "pc" else n,
    "blocks packed by everybody": lambda n: (
        For(var=n.var, extent=n.extent, body=n.body) if isinstance(n, Parallel) and n.var.name == "e" else n
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_mistake_is_refused(mutant: str) -> None:
    kernel = build(VECTORS["sparse_chunks"], "avx512").kernel
    prove(kernel)
    wrong = changed(kernel, MUTANTS[mutant])
    assert wrong != kernel
    with pytest.raises(ProofFailed):
        prove(wrong)


LINES: dict[str, Callable[[Node], Node]] = {
    "a line too few": lambda n: product(n, lines=n.lines - 1) if isinstance(n, RunProduct) else n,
    "a line too many": lambda n: product(n, lines=n.lines + 1) if isinstance(n, RunProduct) else n,
    "from the second line on": lambda n: product(n, line=Const(1)),
    "columns shifted": lambda n: moved(n, RunProduct, "c", -1),
    "panels from the second on": lambda n: moved(n, RunProduct, "b", 1),
    "half of a line's panels": lambda n: (
        product(n, b=replace(n.b, extent=(n.b.extent[0], Const(1), *n.b.extent[2:])))
        if isinstance(n, RunProduct)
        else n
    ),
}


@pytest.mark.parametrize("mutant", LINES)
def test_a_planted_mistake_in_a_product_of_all_lines_is_refused(mutant: str) -> None:
    kernel = build(TILES["amx_sparse_wide"], "amx").kernel
    prove(kernel)
    wrong = changed(kernel, LINES[mutant])
    assert wrong != kernel
    with pytest.raises(ProofFailed):
        prove(wrong)


@pytest.mark.parametrize("name", ["sparse_bf16", "amx_sparse_bf16"])
def test_sums_that_are_not_stored_as_they_are_are_refused(name: str) -> None:
    kernel = build(TILES[name] if name in TILES else VECTORS[name], "amx" if name in TILES else "avx512").kernel
    assert prove(kernel).facts

    def more(node: Node) -> Node:
        if not isinstance(node, RunProduct):
            return node
        assert node.epilogue is not None
        return product(node, epilogue=replace(node.epilogue, expr=node.epilogue.expr + 1.0))

    with pytest.raises(ProofFailed, match="as they are"):
        prove(changed(kernel, more))


def test_a_product_on_tiles_is_compiled_for_the_tiles() -> None:
    # Without the flags its text is as right, on arrays in place of tiles, and a thousand times slower.
    assert build(TILES["amx_sparse_wide"], "amx").source.isa == "amx"


@pytest.mark.parametrize("name", ["amx_sparse_default", "amx_sparse", "amx_sparse_bf16_to_f32"])
def test_a_product_of_all_lines_means_the_sum_of_each_lines_blocks(name: str, rng: np.random.Generator) -> None:
    inputs, kernel, buffers = tables_of(TILES[name], rng, density=0.4)
    names = [table.name for table in kernel.tables]
    interpret(kernel, buffers, arguments(kernel, TILES[name].op), tables=dict(zip(names, inputs[2:], strict=True)))
    np.testing.assert_allclose(buffers["c"], evaluate(TILES[name].op, inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sparse_chunks", "sparse_strided"])
def test_blocks_that_are_read_before_they_are_packed_are_refused(name: str) -> None:
    kernel = build(VECTORS[name], "avx512").kernel
    early = tuple(node for node in kernel.body.nodes if not isinstance(node, Barrier))
    assert len(early) == len(kernel.body.nodes) - 1
    with pytest.raises(ProofFailed):
        prove(replace(kernel, body=Block(nodes=early)))


def test_a_kernel_without_the_checked_tables_is_refused() -> None:
    kernel = build(VECTORS["sparse_chunks"], "avx512").kernel
    first, line, step = kernel.tables
    for tables in ((line, step), (first, line, replace(step, maximum=step.maximum + 1))):
        with pytest.raises(ProofFailed):
            prove(replace(kernel, tables=tables))


def test_vectors_sum_a_sparse_factor_at_once_where_the_cache_has_room() -> None:
    vectors = replace(load("avx512"), features=frozenset[str](), l2_bytes=2**20)
    assert [chunk_of(density, 2048, 64, vectors) for density in (0.05, 0.25, 0.5, 1.0)] == [32, 32, 16, 8]
    assert chunk_of(0.05, 2048, 64, replace(vectors, l2_bytes=2**19)) == 16
    tiles = replace(vectors, features=frozenset({"amx_bf16"}), l2_bytes=2**21)
    assert [chunk_of(density, 2048, 64, tiles) for density in (0.1, 0.25, 0.5, 1.0)] == [32, 16, 16, 8]
