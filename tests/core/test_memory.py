from __future__ import annotations

from dataclasses import replace

import pytest

from tracea.core.expr import Input
from tracea.core.graph import Graph
from tracea.core.op import RowKind, ViewKind
from tracea.core.passes.memory import BufferKind, MemoryPlan, plan_memory
from tracea.core.passes.memory_check import check_memory
from tracea.errors import InvalidGraph


def chain() -> Graph:
    """Three GEMMs and a residual that lives across two of them."""
    graph = Graph()
    x = graph.add_input((16, 16), name="x")
    first = graph.add_gemm(x, x, name="first")
    second = graph.add_gemm(first, x, name="second")
    third = graph.add_gemm(second, x, name="third")
    total = graph.add_pointwise(Input(0) + Input(1), third, first, name="total")
    graph.add_row(RowKind.SOFTMAX, total, name="out")
    return graph


def moved(plan: MemoryPlan, **offsets: int) -> MemoryPlan:
    changed = {name: replace(plan.placements[name], offset_bytes=offset) for name, offset in offsets.items()}
    return replace(plan, placements={**plan.placements, **changed})


def test_values_share_bytes_when_their_lives_are_apart() -> None:
    graph = chain()
    plan = plan_memory(graph)
    check_memory(graph, plan)
    assert plan.arena_bytes == 3 * 1024  # first, second and third live together; total is written over one of them
    assert plan.unshared_bytes == 4 * 1024
    assert {place.buffer for place in plan.placements.values()} == {
        BufferKind.INPUT,
        BufferKind.OUTPUT,
        BufferKind.ARENA,
    }


def test_in_place_writes_over_an_input_that_dies() -> None:
    graph = chain()
    plan = plan_memory(graph)
    dying = {plan.placements[name].offset_bytes for name in ("first", "third")}
    assert plan.placements["total"].offset_bytes in dying
    apart = plan_memory(graph, in_place=False)
    check_memory(graph, apart)
    assert apart.placements["total"].offset_bytes not in {
        apart.placements[name].offset_bytes for name in ("first", "third")
    }


def test_in_place_leaves_an_input_that_is_read_again_or_otherwise() -> None:
    graph = Graph()
    x = graph.add_input((8, 8))
    kept = graph.add_pointwise("relu", x, name="kept")
    graph.add_pointwise("tanh", kept, name="early")
    turned = graph.add_view(ViewKind.PERMUTE, kept, axes=(1, 0))
    graph.add_pointwise(Input(0) + Input(1), kept, turned, name="sum")
    graph.set_outputs(graph.add_pointwise(Input(0) * Input(1), graph["early"], graph["sum"]))
    plan = plan_memory(graph)
    check_memory(graph, plan)
    assert len({plan.placements[name].offset_bytes for name in ("kept", "early", "sum")}) == 3


def test_views_lie_where_they_look() -> None:
    graph = Graph()
    value = graph.add_pointwise("relu", graph.add_input((4, 8)))
    view = graph.add_view(ViewKind.SLICE, value, starts=(1, 2), shape=(3, 5), steps=(1, 1))
    graph.add_pointwise("tanh", view)
    plan = plan_memory(graph)
    check_memory(graph, plan)
    assert plan.placements[view.id].offset_bytes == plan.placements[value.id].offset_bytes + 4 * (8 + 2)


def test_an_output_may_be_a_reshape_of_what_was_made() -> None:
    graph = Graph()
    made = graph.add_pointwise("relu", graph.add_input((4, 6)))
    flat = graph.add_view(ViewKind.RESHAPE, made, shape=(24,))
    plan = plan_memory(graph)
    check_memory(graph, plan)
    assert plan.placements[made.id].name == plan.placements[flat.id].name == flat.id


def test_an_output_without_a_buffer_of_its_own_is_refused() -> None:
    graph = Graph()
    graph.add_view(ViewKind.PERMUTE, graph.add_pointwise("relu", graph.add_input((4, 6))), axes=(1, 0))
    with pytest.raises(InvalidGraph, match="MaterializeOutputs"):
        plan_memory(graph)
    with pytest.raises(InvalidGraph, match="power of two"):
        plan_memory(chain(), alignment=48)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: moved(p, second=p.placements["first"].offset_bytes), "written over its input first"),
        (lambda p: moved(p, third=p.placements["first"].offset_bytes), "reads first"),
        (lambda p: moved(p, third=p.placements["second"].offset_bytes + 64), "written over its input second"),
        (lambda p: moved(p, first=32), "multiple of 64"),
        (lambda p: moved(p, first=p.arena_bytes), "within"),
        (lambda p: moved(p, first=-64), "within"),
        (lambda p: replace(p, arena_bytes=p.arena_bytes - 64), "within"),
        (lambda p: replace(p, placements={k: v for k, v in p.placements.items() if k != "third"}), "no placement"),
        (
            lambda p: replace(p, placements={**p.placements, "second": replace(p.placements["second"], nbytes=8)}),
            "8 bytes",
        ),
        (
            lambda p: replace(p, placements={**p.placements, "out": replace(p.placements["total"], offset_bytes=0)}),
            "out",
        ),
    ],
)
def test_the_checker_rejects_a_broken_plan(spoil, message: str) -> None:
    graph = chain()
    plan = plan_memory(graph)
    with pytest.raises(InvalidGraph, match=message):
        check_memory(graph, spoil(plan))
