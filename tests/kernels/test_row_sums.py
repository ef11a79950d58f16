"""Kernels of sums of rows by index: any indices and extents, any team and schedule, and what they are not built for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.native import host_isas, run_isas
from tests.kernels.planted import assert_refused
from tests.kernels.slab_cases import row_sum_cases, tensor
from tests.kernels.test_attention import later

from tracea.core.dtype import DType
from tracea.core.op import SumRowsOp
from tracea.core.reference import evaluate
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.semantic.index import Const, Var, maximum
from tracea.semantic.nodes import Block, CopyTile, For, Let, Node, Parallel
from tracea.semantic.nodes_fragments import FragmentOp
from tracea.semantic.proofs import prove
from tracea.semantic.schedule import Schedule
from tracea.targets import Target, load

HOST = host_isas()[0]
CASES = {case.name: case for case in row_sum_cases()}
ID = "rows.sum_by_index"


def row_sums(count: int, columns: int, rows: int) -> SumRowsOp:
    return SumRowsOp(x=tensor(count, columns), indices=tensor(count, dtype=DType.I64), rows=rows)


def indices(kind: str, count: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    drawn = rng.integers(0, max(1, rows), count)
    ends = np.iinfo(np.int64)
    return {
        "repeated": drawn // 3,
        "one": np.full(count, rows // 2),
        "sorted": np.sort(drawn),
        "reversed": np.sort(drawn)[::-1],
        "beyond": np.resize(np.asarray([-1, rows, ends.min, ends.max, rows - 1, 2**32, 0], np.int64), count),
    }[kind].astype(np.int64)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("kind", ["repeated", "one", "sorted", "reversed", "beyond"])
def test_a_kernel_built_once_serves_all_indices_and_other_extents(
    kind: str, isa: str, rng: np.random.Generator
) -> None:
    unit, built = unit_of(row_sum_cases(), isa), build(CASES["row_sums"], isa)
    extents = [(0, 85, 90), (1, 1, 1), (9, 2, 0), *(rng.integers(1, 150, 3).tolist() for _ in range(3))]
    for count, columns, rows in extents:
        op = row_sums(count, columns, rows)
        inputs = [*random_inputs(op, rng)[:1], indices(kind, count, rows, rng)]
        check(unit, built, op, inputs, threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("count", [7, 8, 9, 16, 17, 24])
def test_lists_about_as_long_as_rows_are_summed_together(count: int, isa: str, rng: np.random.Generator) -> None:
    unit, built = unit_of(row_sum_cases(), isa), build(CASES["row_sums"], isa)
    op = row_sums(count, 85, 3)
    inputs = [rng.integers(-9, 10, (count, 85)).astype(np.float32), np.ones(count, np.int64)]
    assert np.array_equal(run(unit, built, op, inputs), evaluate(op, inputs))  # integers: exact, or a row is missing


@pytest.mark.parametrize("isa", run_isas())
def test_an_error_is_eight_roundings_of_the_sum_of_magnitudes_however_long_the_list(
    isa: str, rng: np.random.Generator
) -> None:
    unit, built = unit_of(row_sum_cases(), isa), build(CASES["row_sums"], isa)
    count = 1 << 18
    op = row_sums(count, 3, 2)
    inputs = [rng.random((count, 3)).astype(np.float32), np.ones(count, np.int64)]
    found, magnitudes = run(unit, built, op, inputs), np.abs(inputs[0]).sum(axis=0, dtype=np.float64)
    assert np.all(np.abs(found - evaluate(op, inputs)) <= 8 * (DType.F32.eps / 2) * magnitudes)


@pytest.mark.parametrize("isa", run_isas())
def test_what_is_not_finite_stays_in_its_row(isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(row_sum_cases(), isa), CASES["row_sums_wide"]
    inputs = random_inputs(case.op, rng)
    for place, value in enumerate((np.nan, np.inf, -np.inf)):
        inputs[0][place, 7 + place] = value
    inputs[1][:3] = (1, 2, 2)
    check(unit, build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("name", CASES)
def test_the_team_and_the_order_of_its_tasks_change_no_bit(name: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(row_sum_cases(), HOST), CASES[name]
    inputs = random_inputs(case.op, rng)
    first = run(unit, build(case, HOST), case.op, inputs)
    for threads in (1, 2, 3, 5):
        for backward in (False, True):
            again = run(unit, build(case, HOST), case.op, inputs, threads=threads, backward=backward)
            assert first.tobytes() == again.tobytes()


def test_no_schedule_changes_a_bit(rng: np.random.Generator) -> None:
    op = row_sums(500, 200, 30)
    cuts = ((30, 200, 0), (7, 200, 0), (30, 48, 0), (1, 16, 1), (11, 17, 1))
    cases = tuple(
        Case.of(f"cut{at}", ID, op, rows=rows, columns=columns, streaming=streaming)
        for at, (rows, columns, streaming) in enumerate(cuts)
    )
    unit, inputs = unit_of(cases, HOST), random_inputs(op, rng)
    inputs[1] %= 40  # ten of each, on the average
    assert len({run(unit, build(case, HOST), op, inputs, threads=2).tobytes() for case in cases}) == 1


def named(name: str, change: Any) -> Any:
    return lambda node: change(node) if node.intrinsic.name == name else node


def shorter(region: Any, axis: int) -> Any:
    extent = list(region.extent)
    extent[axis] = maximum(0, extent[axis] - 1)
    return replace(region, extent=tuple(extent))


def listing(change: Any) -> tuple[type[Node], Any]:
    return FragmentOp, named("chain_rows", change)


def summing(change: Any) -> tuple[type[Node], Any]:
    return FragmentOp, named("sum_chained_rows", change)


def given(index: int, change: Any) -> tuple[type[Node], Any]:
    """Another operand of the sums: 0 heads, 1 links, 2 rows."""
    return summing(lambda n: replace(n, inputs=(*n.inputs[:index], change(n.inputs[index]), *n.inputs[index + 1 :])))


def within(change: Any) -> tuple[type[Node], Any]:
    """What a task does, as a list of nodes of which the last two are the lists and their sums."""
    return Parallel, lambda n: replace(n, body=Block(nodes=tuple(change(n.body.nodes))))


def again(*nodes: Node) -> For:
    return For(var=Var("again"), extent=Const(2), body=Block(nodes=nodes))


def let(name: str, change: Any) -> tuple[type[Node], Any]:
    return Let, lambda n: replace(n, value=change(n.value)) if n.var.name == name else n


MISTAKES: dict[str, tuple[type[Node], Any]] = {
    "no lists": listing(lambda n: None),
    "no sums": summing(lambda n: None),
    "lists of other rows": listing(lambda n: replace(n, indices=(n.indices[0] + 1, n.indices[1]))),
    "a list too few": listing(lambda n: replace(n, indices=(n.indices[0], n.indices[1] - 1))),
    "an index too few": listing(lambda n: replace(n, inputs=(shorter(n.inputs[0], 0),))),
    "a link too few": listing(lambda n: replace(n, outputs=(n.outputs[0], shorter(n.outputs[1], 1)))),
    "all twice": within(lambda nodes: (again(*nodes),)),
    "sums in another loop": within(lambda nodes: (*nodes[:-1], again(nodes[-1]))),
    "sums before lists": within(lambda nodes: (*nodes[:-2], *nodes[:-3:-1])),
    "two lists": within(lambda nodes: (*nodes[:-1], *nodes[-2:])),
    "lists that another node writes": within(
        lambda nodes: (*nodes[:-1], CopyTile(source=nodes[-1].inputs[0], target=nodes[-1].inputs[0]), nodes[-1])
    ),
    "lists for heads": given(0, lambda region: region.__class__("links", region.offset, region.extent)),
    "rows too few": given(2, lambda region: shorter(region, 0)),
    "rows of other columns": given(2, lambda region: later(region, 1, -1)),
    "another row first": summing(lambda n: replace(n, outputs=(later(n.outputs[0], 0, -1),))),
    "other columns": summing(lambda n: replace(n, outputs=(later(n.outputs[0], 1, -1),))),
    "a column too few": let("width", lambda value: value - 1),
    "a row too few": let("length", lambda value: value - 1),
    "rows that overlap": let("start", lambda value: value - 1),
    "a row skipped": listing(lambda n: replace(n, intrinsic=replace(n.intrinsic, attributes=(("skipped", 0),)))),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    assert_refused(build(CASES["row_sums"], "avx512").kernel, MISTAKES[mistake])


def test_a_kernel_says_what_it_gives() -> None:
    (fact,) = prove(build(CASES["row_sums"], "avx512").kernel).about("row sums")
    assert fact.statement == "each row of x0 goes into the row of y that x1 says"


SERVER = replace(load("avx512"), cores=32, l2_bytes=2 << 20, l3_bytes=480 << 20)


@pytest.mark.parametrize(
    ("op", "target", "schedule"),
    [
        # Columns for each core, so that one row that is all there is keeps all of them busy.
        (row_sums(4096, 768, 50257), replace(SERVER, cores=2), Schedule(rows=12565, columns=384, streaming=1)),
        (row_sums(4096, 768, 50257), replace(SERVER, cores=1), Schedule(rows=12565, columns=768, streaming=1)),
        (row_sums(4096, 768, 50257), SERVER, Schedule(rows=10052, columns=32, streaming=0)),
        # A row of few bytes is not worth many looks at its index.
        (row_sums(4096, 64, 1000), replace(SERVER, cores=2), Schedule(rows=1000, columns=32, streaming=0)),
        (row_sums(0, 1, 3), SERVER, Schedule(rows=1, columns=1, streaming=0)),
    ],
)
def test_default_schedules_cut_columns_first(op: SumRowsOp, target: Target, schedule: Schedule) -> None:
    variant = find(ID)
    assert variant.default_schedule is not None
    assert variant.space is not None
    assert variant.default_schedule(op, target) == schedule
    assert schedule in variant.space(op, target)


def test_what_it_is_not_built_for_is_refused() -> None:
    op, target = row_sums(6, 8, 5), load("avx512")
    with pytest.raises(InvalidShape, match="indices"):
        replace(op, indices=tensor(7, dtype=DType.I64))
    with pytest.raises(InvalidShape, match="columns"):
        replace(op, x=tensor(6), indices=tensor(6, dtype=DType.I64))
    with pytest.raises(InvalidDType, match="indices"):
        replace(op, indices=tensor(6))
    with pytest.raises(InvalidDType, match="floats"):
        replace(op, x=tensor(6, 8, dtype=DType.I64))
    with pytest.raises(InvalidOp, match="skipped"):
        replace(op, skipped=5)
    with pytest.raises(InvalidShape, match="extents"):
        replace(op, rows=-1)
    with pytest.raises(InvalidOp, match="skipped"):
        arguments(build(CASES["row_sums_streaming"], "avx512").kernel, row_sums(400, 64, 130))
    assert [variant.id for variant in candidates(op, target)] == [ID]
    assert candidates(row_sums(6, 0, 5), target) == ()
    assert [each.remedy for _, each in find(ID).unmet(row_sums(6, 0, 5), target)] == [
        "a result of no elements needs no kernel"
    ]
