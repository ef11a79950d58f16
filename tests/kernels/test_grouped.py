"""Grouped products against float64: any routing, other extents, what no group has; and mistakes that are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.grouped_cases import FUSED, grouped_cases, grouped_tile_cases, strided, turned
from tests.kernels.native import has_tiles, host_isas, run_isas
from tests.kernels.routing import grouped_inputs

from tracea.core.expr import Constant, Input
from tracea.core.op import GroupedGemmOp
from tracea.errors import InvalidInput, InvalidOp, InvalidSchedule, InvalidShape, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.gemm.grouped import PART_ROWS, part_tables, parts_of
from tracea.semantic.index import TRUE, Const, Lookup, Param
from tracea.semantic.interpreter import interpret
from tracea.semantic.nodes import Block, For, If, Let, MicroKernel, Node, Pack, Parallel, PointwiseTile
from tracea.semantic.proofs import prove
from tracea.semantic.tile_builders import ragged_tiles
from tracea.semantic.tile_kernel import TileKernel

VECTORS = {case.name: case for case in grouped_cases()}
TILES = {case.name: case for case in grouped_tile_cases()}
WHERE = [pytest.param(name, *isa.values, marks=isa.marks) for isa in run_isas()[:2] for name in VECTORS]
WHERE += [pytest.param(name, "amx") for name in TILES] if has_tiles() else []

Routing = tuple[np.ndarray, np.ndarray]


def group(name: str) -> tuple[tuple[Case, ...], Case]:
    return (grouped_tile_cases(), TILES[name]) if name in TILES else (grouped_cases(), VECTORS[name])


def routed(op: GroupedGemmOp, *parts: tuple[int, int]) -> Routing:
    """Parts as (rows, group), then parts of no rows for the rest of the room."""
    parts = (*parts, *[(0, 0)] * (op.parts - len(parts)))
    rows, number = (np.array(column) for column in zip(*parts, strict=True))
    return np.concatenate([[0], np.cumsum(rows)]), number


ROUTINGS: dict[str, Callable[[GroupedGemmOp], Routing]] = {
    "one group has all": lambda op: routed(op, (op.m, 2)),
    "one group has all in two parts": lambda op: routed(op, (op.m - 7, 3), (7, 3)),
    "none has any": lambda op: routed(op, (op.m, op.groups)),
    "rows of none first, between and last": lambda op: routed(
        op, (5, op.groups), (op.m - 20, 1), (9, op.groups), (0, 0), (6, op.groups)
    ),
    "every height of a tile's rest": lambda op: routed(op, (1, 0), (2, 1), (3, 2), (op.m - 6, 3)),
}


@pytest.mark.parametrize(("name", "isa"), WHERE)
@pytest.mark.parametrize("routing", ROUTINGS)
def test_each_group_takes_its_own_matrix(name: str, isa: str, routing: str, rng: np.random.Generator) -> None:
    cases, case = group(name)
    inputs = grouped_inputs(case.op, *ROUTINGS[routing](case.op), rng)
    for threads in (1, 3):
        check(unit_of(cases, isa), build(case, isa), case.op, inputs, threads=threads)
    if routing == "none has any":
        assert not run(unit_of(cases, isa), build(case, isa), case.op, inputs).any()


def resized(case: Case, sizes: dict[str, int]) -> GroupedGemmOp:
    like = case.op
    fused = FUSED if like.expr.arithmetic > 1 else {"bias": like.bias is not None}
    op = GroupedGemmOp.of(**sizes, dtype=like.x.dtype, out_dtype=like.infer().dtype, **fused)
    change = strided if "strided" in case.name else turned if like.weights.layout is not None else replace
    return change(op)


@pytest.mark.parametrize(("name", "isa"), [each for each in WHERE if "default" not in each.values[0]])
def test_a_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    cases, case = group(name)
    for _ in range(6):
        drawn = rng.integers(1, (90, 200, 160, 8, 12))
        op = resized(case, dict(zip(("m", "n", "k", "groups", "parts"), map(int, drawn), strict=True)))
        check(unit_of(cases, isa), build(case, isa), op, random_inputs(op, rng), threads=int(rng.integers(1, 4)))
    for m, n, groups in ((0, 40, 3), (30, 0, 3), (30, 40, 0)):
        empty = resized(case, {"m": m, "n": n, "k": 5, "groups": groups, "parts": 4})
        found = run(unit_of(cases, isa), build(case, isa), empty, random_inputs(empty, rng))
        assert found.shape == (m, n)
        assert groups or not found.any()


@pytest.mark.parametrize(("name", "isa"), WHERE)
def test_nan_and_infinity_reach_exactly_the_results_that_depend_on_them(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    cases, case = group(name)
    inputs = random_inputs(case.op, rng)
    inputs[0][3, -1], inputs[0][5, 0], inputs[1][-1, -1, 0] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        check(unit_of(cases, isa), build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("name", ["grouped", *(["amx_grouped"] if has_tiles() else [])])
def test_bits_do_not_depend_on_the_threads(name: str, rng: np.random.Generator) -> None:
    cases, case = group(name)
    inputs, isa = random_inputs(case.op, rng), "amx" if name in TILES else host_isas()[0]
    results = [run(unit_of(cases, isa), build(case, isa), case.op, inputs, threads=count) for count in (1, 2, 5)]
    assert len({result.tobytes() for result in results}) == 1


def test_an_op_refuses_what_does_not_fit() -> None:
    op = GroupedGemmOp.of(m=4, n=5, k=6, groups=2, bias=True)
    assert op.flops == 2 * 4 * 5 * 6 + 4 * 5
    for name in ("x", "weights", "bias"):
        with pytest.raises(InvalidShape, match=name):
            replace(op, **{name: replace(op.x, shape=(7, 7, 7))})
    with pytest.raises(InvalidOp, match="parts"):
        replace(op, parts=-1)
    with pytest.raises(InvalidOp, match="expr"):
        replace(op, bias=None, expr=Input(0) + Input(1))


def test_parts_are_the_tiles_of_ragged_groups() -> None:
    counts = [0, 300, 5, 0, 256]
    rows, parts = sum(counts) + 40, parts_of(sum(counts) + 40, len(counts))
    table = ragged_tiles([*counts, 40], 70, depth=9, tile_rows=PART_ROWS, tile_columns=70)
    first, number = part_tables(table, len(counts), parts)
    assert first.tolist() == [0, 256, 300, 305, 561, *[rows] * (parts - 4)]
    assert number.tolist() == [1, 1, 2, 4, *[5] * (parts - 4)]
    for wrong in (
        ragged_tiles([*counts, 40], 70, depth=9, tile_rows=PART_ROWS, tile_columns=35),
        ragged_tiles([rows], 70, depth=9, tile_rows=8, tile_columns=70),
    ):
        with pytest.raises(InvalidSchedule, match="tile table"):
            part_tables(wrong, len(counts), parts)


@pytest.mark.parametrize(
    "damage",
    [
        lambda first, number: first.__setitem__(2, first[3] + 1),
        lambda first, number: first.__setitem__(0, 1),
        lambda first, number: first.__setitem__(-1, first[-1] - 1),
        lambda first, number: first.__setitem__(-1, first[-1] + 1),
        lambda first, number: number.__setitem__(0, -1),
        lambda first, number: number.__setitem__(0, 6),
    ],
)
def test_tables_that_are_no_routing_are_refused(damage: Callable[[Any, Any], None], rng: np.random.Generator) -> None:
    case = VECTORS["grouped"]
    kernel = build(case, "avx512").kernel
    inputs = grouped_inputs(case.op, *routed(case.op, (30, 0), (11, 2), (20, 4)), rng)
    x, weights, bias, *_ = inputs
    buffers = {"a": x, "b": weights, "bias": bias[:, None], "c": np.zeros(case.op.shape, np.float32)}
    values, names = arguments(kernel, case.op), [table.name for table in kernel.tables]
    interpret(kernel, buffers, values, tables=dict(zip(names, inputs[3:], strict=True)))
    damaged = [table.copy() for table in inputs[3:]]
    damage(*damaged)
    with pytest.raises(InvalidInput):
        interpret(kernel, buffers, values, tables=dict(zip(names, damaged, strict=True)))


def changed(kernel: TileKernel, change: Callable[[Node], Node]) -> TileKernel:
    def rebuilt(node: Node) -> Node:
        match node:
            case For() | Parallel():
                return change(replace(node, body=inside(node.body)))
            case If():
                return change(replace(node, then=inside(node.then), otherwise=inside(node.otherwise)))
            case _:
                return change(node)

    def inside(body: Block) -> Block:
        return Block(nodes=tuple(rebuilt(node) for node in body.nodes))

    return replace(kernel, body=inside(kernel.body))


def moved(node: Node, kind: type, operand: str, axis: int, shift: Any = 1) -> Node:
    if not isinstance(node, kind):
        return node
    region = getattr(node, operand)
    offset = list(region.offset)
    offset[axis] = offset[axis] + shift
    return replace(node, **{operand: replace(region, offset=tuple(offset))})


def said(node: Node, name: str, change: Callable[[Any], Any]) -> Node:
    return replace(node, value=change(node.value)) if isinstance(node, Let) and node.var.name == name else node


def biased(node: Node, **fields: Any) -> Node:
    if not isinstance(node, MicroKernel) or node.epilogue is None:
        return node
    (operand,) = node.epilogue.operands
    places = zip(("group", "row", "column"), operand.offset, strict=True)
    offset = tuple(fields.get(axis, place) for axis, place in places)
    return replace(node, epilogue=replace(node.epilogue, operands=(replace(operand, offset=offset),)))


def epilogue_of(node: Node, **changes: Callable[[Any], Any]) -> Node:
    if not isinstance(node, MicroKernel) or node.epilogue is None:
        return node
    fields = {name: change(getattr(node.epilogue, name)) for name, change in changes.items()}
    return replace(node, epilogue=replace(node.epilogue, **fields))


def one_column(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(replace(operand, extent=(*operand.extent[:-1], Const(1))) for operand in operands)


MUTANTS: dict[str, Callable[[Node], Node]] = {
    "the group of another part": lambda n: said(
        n, "group", lambda value: Lookup(value.table, value.index + 1) if isinstance(value, Lookup) else value
    ),
    "always the first group": lambda n: said(n, "group", lambda _: Const(0)),
    "a part as the group": lambda n: said(n, "group", lambda value: value.index),
    "rows of the part before": lambda n: said(n, "part_begin", lambda value: Lookup(value.table, value.index - 1)),
    "a row too many": lambda n: said(n, "part_rows", lambda value: value + 1),
    "a row too few": lambda n: said(n, "part_rows", lambda value: value - 1),
    "columns left out": lambda n: said(n, "nc", lambda value: value - 1),
    "another column": lambda n: said(n, "jc", lambda value: value + 1),
    "parts left out": lambda n: replace(n, extent=n.extent - 1) if isinstance(n, Parallel) else n,
    "steps left out": lambda n: replace(n, extent=n.extent - 32) if isinstance(n, For) and n.var.name == "pc" else n,
    "never from zero": lambda n: replace(n, accumulate=TRUE) if isinstance(n, MicroKernel) else n,
    "other rows of the result": lambda n: moved(n, MicroKernel, "c", -2),
    "rows of a in another place": lambda n: moved(n, Pack, "source", -2) if isinstance(n, Pack) and n.axis == 0 else n,
    "columns of b in another place": lambda n: (
        moved(n, Pack, "source", -1) if isinstance(n, Pack) and n.axis == 1 else n
    ),
    "the matrix of another group": lambda n: (
        moved(n, Pack, "source", 0, -1) if isinstance(n, Pack) and n.axis == 1 else n
    ),
    "the bias of the first group": lambda n: biased(n, group=Const(0)),
    "the bias of the first columns": lambda n: biased(n, column=Const(0)),
    "one bias for all columns": lambda n: epilogue_of(n, operands=one_column),
    "another expression": lambda n: epilogue_of(n, expr=lambda expr: expr + 1.0),
    "no bias": lambda n: epilogue_of(n, expr=lambda _: Input(0), operands=lambda _: ()),
    "the matrices for a bias": lambda n: epilogue_of(
        n, operands=lambda operands: tuple(replace(operand, buffer="b") for operand in operands)
    ),
    "one for zero": lambda n: replace(n, expr=Constant(1.0)) if isinstance(n, PointwiseTile) else n,
    "no zeros": lambda n: replace(n, otherwise=Block(nodes=())) if isinstance(n, If) else n,
    "products for rows of none": lambda n: (
        replace(n, predicate=Param("groups") >= Lookup("part_group", n.predicate.left)) if isinstance(n, If) else n
    ),
    "zeros for rows of a group": lambda n: (
        replace(n, then=n.otherwise, otherwise=n.otherwise) if isinstance(n, If) else n
    ),
    "zeros in other rows": lambda n: moved(n, PointwiseTile, "target", 0),
    "tasks for everybody": lambda n: For(var=n.var, extent=n.extent, body=n.body) if isinstance(n, Parallel) else n,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_mistake_is_refused(mutant: str) -> None:
    kernel = build(VECTORS["grouped"], "avx512").kernel
    prove(kernel)
    wrong = changed(kernel, MUTANTS[mutant])
    assert wrong != kernel
    with pytest.raises(ProofFailed):
        prove(wrong)


def test_a_kernel_without_the_checked_tables_is_refused() -> None:
    kernel = build(VECTORS["grouped"], "avx512").kernel
    first, number = kernel.tables
    for tables in (
        (replace(first, ascending=False), number),
        (replace(first, maximum=first.maximum - 1), number),
        (replace(first, length=first.length + 1), number),
        (first, replace(number, maximum=number.maximum + 1)),
        (first,),
    ):
        with pytest.raises(ProofFailed):
            prove(replace(kernel, tables=tables))


def test_tiles_ask_ahead_for_rows_of_matrices_that_have_them_alone() -> None:
    op = turned(GroupedGemmOp.of(m=9, n=20, k=30, groups=2))
    with pytest.raises(InvalidSchedule, match="upcoming"):
        build(Case.of("turned", "gemm.grouped", op, upcoming=1), "avx512")
