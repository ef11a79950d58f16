"""Joined tensors: what they mean, which parts they may have, and that parts lie where they are joined."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import JoinOp, PointwiseOp, RowKind, SourceOp, ViewKind, ViewOp
from tracea.core.ops.images import image_type
from tracea.core.ops.join import _meet
from tracea.core.passes.memory import BufferKind, plan_memory
from tracea.core.passes.memory_check import check_memory
from tracea.core.passes.outputs import MaterializeOutputs
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.passes.place import DropCopies, PlaceParts
from tracea.core.passes.sink_joins import SinkJoins
from tracea.core.reference import evaluate, run
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidGraph, InvalidShape


def joined(graph: Graph, *parts: Node, axis: int = 0, name: str | None = None, last: bool = False) -> Node:
    op = JoinOp.along([part.type for part in parts], axis)
    if last:
        op = JoinOp.along(op.parts, axis, image_type(op.shape, op.parts[0].dtype, channels_last=True))
    return graph.add(op, parts, name=name)


def copies(graph: Graph) -> list[Node]:
    return [node for node in graph if isinstance(node.op, PointwiseOp) and node.op.expr == Input(0)]


def assert_same(before: Graph, after: Graph, rng: np.random.Generator) -> None:
    values = {node.id: rng.standard_normal(node.type.static_shape) for node in before if isinstance(node.op, SourceOp)}
    found = run(after, values)
    for name, value in run(before, values).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)


def check_plan(graph: Graph) -> None:
    for in_place in (True, False):
        check_memory(graph, plan_memory(graph, in_place=in_place))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_concatenation_is_what_numpy_says(axis: int, rng: np.random.Generator) -> None:
    shapes = [tuple(size if each == axis else 2 + each for each in range(3)) for size in (1, 4, 2)]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    op = JoinOp.along([TensorType(shape, DType.F32) for shape in shapes], axis)
    np.testing.assert_array_equal(evaluate(op, arrays), np.concatenate(arrays, axis))
    assert (op.flops, op.bytes) == (0, 0)


def test_phases_are_every_so_many_rows_and_columns(rng: np.random.Generator) -> None:
    phases = [(row, column) for row in range(2) for column in range(3)]
    shapes = [(-(-5 // 2) if row == 0 else 2, 7 // 3 + (column < 7 % 3)) for row, column in phases]
    whole = rng.standard_normal((5, 7))
    op = JoinOp(
        parts=tuple(TensorType(shape, DType.F32) for shape in shapes),
        starts=tuple(phases),
        steps=((2, 3),) * len(phases),
        shape=(5, 7),
    )
    np.testing.assert_array_equal(evaluate(op, [whole[row::2, column::3] for row, column in phases]), whole)
    type_, first = op.place(5)
    assert (type_.strides, first) == ((14, 3), 9)


def test_progressions_meet_exactly_where_they_have_a_number_in_common() -> None:
    some = [range(a, a + n * s, s) for a in range(5) for n in range(1, 5) for s in (1, 2, 3, 4, 6)]
    for first, second in itertools.product(some, repeat=2):
        assert _meet(first, second) == bool(set(first) & set(second)), (first, second)


@pytest.mark.parametrize(
    "wrong",
    [
        {"starts": ((0, 0), (0, 2))},  # one column twice
        {"starts": ((0, 0), (0, 4))},  # beyond the end, and one column missing
        {"starts": ((0, 0), (0, -1))},
        {"shape": (2, 7)},
        {"shape": (2, 6, 1)},
        {"steps": ((1, 1), (1, 0))},
        {"parts": (TensorType((2, 3), DType.F32), TensorType((2, 3), DType.F64))},
        {"parts": (TensorType((2, 3), DType.F32),)},
        {"parts": (), "starts": (), "steps": ()},
    ],
)
def test_parts_that_do_not_hold_each_element_once_are_refused(wrong: dict[str, object]) -> None:
    right = {
        "parts": (TensorType((2, 3), DType.F32),) * 2,
        "starts": ((0, 0), (0, 3)),
        "steps": ((1, 1),) * 2,
        "shape": (2, 6),
    }
    JoinOp(**right)  # type: ignore[arg-type]
    with pytest.raises(InvalidShape, match="each element"):
        JoinOp(**{**right, **wrong})  # type: ignore[arg-type]


def test_a_part_is_written_where_it_is_joined(rng: np.random.Generator) -> None:
    graph = Graph()
    x = graph.add_input((4, 6), name="x")
    left = graph.add_gemm(x, graph.add_constant((6, 3), name="w"), name="left")
    right = graph.add_pointwise("relu", x, name="right")
    whole = joined(graph, left, right, axis=1, name="whole")
    graph.set_outputs(graph.add_pointwise("tanh", whole, name="out"))
    placed = PlaceParts().apply(graph)
    assert not copies(placed)
    assert placed["left"].type.strides == placed["right"].type.strides == (9, 1)
    plan = plan_memory(placed)
    check_plan(placed)
    base = plan.placements["whole"].offset_bytes
    assert [plan.placements[name].offset_bytes - base for name in ("left", "right")] == [0, 12]
    assert_same(graph, placed, rng)


def test_a_joined_output_takes_its_parts_in_the_callers_buffer() -> None:
    graph = Graph()
    x = graph.add_input((4, 6), name="x")
    parts = [graph.add_pointwise(name, x, name=name) for name in ("relu", "tanh")]
    joined(graph, *parts, axis=0, name="out")
    placed = run_pipeline(graph).graph
    plan = plan_memory(placed)
    check_plan(placed)
    assert plan.arena_bytes == 0
    assert [
        (plan.placements[n].buffer, plan.placements[n].name, plan.placements[n].offset_bytes) for n in ("relu", "tanh")
    ] == [
        (BufferKind.OUTPUT, "out", 0),
        (BufferKind.OUTPUT, "out", 96),
    ]


def test_what_cannot_move_is_copied_once(rng: np.random.Generator) -> None:
    graph = Graph()
    x = graph.add_input((2, 4), name="x")
    kept = graph.add_pointwise("relu", x, name="kept")
    twice = graph.add_pointwise("tanh", x, name="twice")
    view = graph.add_view(ViewKind.SLICE, twice, starts=(0, 1), steps=(1, 1), shape=(2, 2), name="view")
    whole = joined(graph, x, kept, twice, twice, view, axis=1, name="whole")
    graph.set_outputs(kept, graph.add_pointwise("tanh", whole, name="out"))
    placed = PlaceParts().apply(graph)
    assert [node.inputs for node in copies(placed)] == [("x",), ("kept",), ("twice",), ("view",)]
    check_plan(placed)
    assert_same(graph, placed, rng)
    assert PlaceParts().apply(placed) == placed


def test_other_readers_see_the_new_strides(rng: np.random.Generator) -> None:
    """A skip connection: the image is pooled, and joined later."""
    graph = Graph()
    x = graph.add_input(image_type((1, 3, 8, 8), DType.F32, channels_last=True), name="x")
    w = graph.add_constant((4, 3, 3, 3), name="w")
    image = image_type((1, 4, 6, 6), DType.F32, channels_last=True)
    skip = graph.add_conv2d(x, w, out=image, name="skip")
    other = graph.add_conv2d(x, w, activation="relu", out=image, name="other")
    pixels = graph.add_view(ViewKind.PERMUTE, skip, axes=(0, 2, 3, 1), name="pixels")
    low = graph.add_pointwise("tanh", pixels, name="low")
    joined(graph, skip, other, axis=1, name="whole", last=True)
    graph.set_outputs(low, graph.add_pointwise("relu", graph["whole"], name="out"))
    placed = PlaceParts().apply(graph)
    assert not copies(placed)
    assert placed["skip"].type.strides == (288, 1, 48, 8)
    assert placed["pixels"].type.strides == (288, 48, 8, 1)
    check_plan(placed)
    assert_same(graph, placed, rng)


def test_joins_of_a_dense_block_nest(rng: np.random.Generator) -> None:
    graph = Graph()
    made = [graph.add_pointwise("relu", graph.add_input((3, 2), name="x"), name="first")]
    for number in range(3):
        features = joined(graph, *made, axis=1, name=f"features{number}") if number else made[0]
        w = graph.add_constant((2 * len(made), 2), name=f"w{number}")
        made.append(graph.add_gemm(features, w, name=f"made{number}"))
    whole = joined(graph, *made, axis=1, name="whole")
    graph.set_outputs(graph.add_pointwise("tanh", whole, name="out"))
    placed = PlaceParts().apply(graph)
    assert not copies(placed)
    assert placed["whole"].inputs == ("features2", "made2")
    assert placed["features2"].inputs == ("features1", "made1")
    assert {node.type.strides for node in placed if node.id.startswith(("made", "features"))} == {(8, 1)}
    check_plan(placed)
    assert plan_memory(placed).arena_bytes == 128  # one buffer of 3×8 f32 for all of them
    assert_same(graph, placed, rng)


def test_a_view_of_a_part_is_no_output_buffer(rng: np.random.Generator) -> None:
    graph = Graph()
    made = graph.add_pointwise("relu", graph.add_input((4, 6), name="x"), name="made")
    joined(graph, made, graph.add_pointwise("tanh", graph["x"], name="other"), name="whole")
    graph.set_outputs("whole", graph.add_view(ViewKind.RESHAPE, made, shape=(24,), name="flat"))
    with pytest.raises(InvalidGraph, match="MaterializeOutputs"):
        plan_memory(PlaceParts().apply(graph))
    ready = MaterializeOutputs().apply(PlaceParts().apply(graph))
    check_plan(ready)
    assert_same(graph, ready, rng)


def test_a_join_that_was_not_placed_has_no_memory() -> None:
    graph = Graph()
    x = graph.add_input((4, 6), name="x")
    joined(graph, x, graph.add_pointwise("relu", x))
    with pytest.raises(InvalidGraph, match="PlaceParts"):
        plan_memory(graph)


def test_the_checker_sees_a_part_that_lies_elsewhere() -> None:
    from dataclasses import replace

    graph = Graph()
    x = graph.add_input((4, 6), name="x")
    whole = joined(graph, *(graph.add_pointwise(name, x, name=name) for name in ("relu", "tanh")), axis=1)
    graph.set_outputs(graph.add_pointwise("relu", whole, name="out"))
    placed = PlaceParts().apply(graph)
    plan = plan_memory(placed)
    wrong = replace(plan.placements["tanh"], offset_bytes=plan.placements["tanh"].offset_bytes + 4)
    with pytest.raises(InvalidGraph, match="memory of node"):
        check_memory(placed, replace(plan, placements={**plan.placements, "tanh": wrong}))


def test_a_pointwise_result_may_have_strides_of_its_own() -> None:
    strided = TensorType((2, 3), DType.F32, StridedLayout((8, 2)))
    x = TensorType((2, 3), DType.F32)
    op = PointwiseOp(expr=Input(0), inputs=(x,), out_dtype=DType.F32, out=strided)
    assert op.infer() == strided
    plain = PointwiseOp(expr=Input(0), inputs=(x,), out_dtype=DType.F32)
    assert PointwiseOp(expr=Input(0), inputs=(x,), out_dtype=DType.F32, out=x) == plain
    assert plain.to_dict() == {k: v for k, v in op.to_dict().items() if k != "out"}  # keys of what was measured stay


def test_a_join_round_trips_through_json() -> None:
    graph = Graph()
    x = graph.add_input((4, 6), name="x")
    joined(graph, graph.add_pointwise("relu", x), x, axis=1)
    assert Graph.from_json(graph.to_json()) == graph
    assert not isinstance(graph.outputs[0].op, ViewOp)


def rotated(graph: Graph, x: Node, cos: Node, sin: Node) -> Node:
    """``x * cos + cat(-b, a) * sin`` of halves a and b, as models write a rotation."""
    rows, half = x.type.static_shape[0], x.type.static_shape[1] // 2
    a, b = (
        graph.add_view(ViewKind.SLICE, x, starts=(0, start), steps=(1, 1), shape=(rows, half)) for start in (0, half)
    )
    turned = joined(graph, negated(graph, b), a, axis=1)
    expr = Input(0) * Input(1) + Input(2) * Input(3)
    op = PointwiseOp(expr=expr, inputs=(x.type, cos.type, turned.type, sin.type), out_dtype=DType.F32)
    return graph.add(op, (x, cos, turned, sin))


def negated(graph: Graph, x: Node) -> Node:
    return graph.add(PointwiseOp(expr=-Input(0), inputs=(x.type,), out_dtype=DType.F32), (x,))


def test_a_rotation_of_halves_is_one_kernel(rng: np.random.Generator) -> None:
    graph = Graph()
    x, cos, sin = (graph.add_input((5, 8), name=name) for name in ("x", "cos", "sin"))
    graph.set_outputs(graph.add_pointwise("relu", rotated(graph, x, cos, sin), name="out"))
    after = run_pipeline(graph).graph
    assert [(node.op.name, node.type.shape) for node in after if node.op.name not in ("source", "view")] == [
        ("pairs", (5, 8))
    ]
    assert not copies(after)
    check_plan(after)
    assert_same(graph, after, rng)


def test_work_on_a_join_of_products_stays_one_kernel(rng: np.random.Generator) -> None:
    graph = Graph()
    x, w = graph.add_input((4, 3), name="x"), graph.add_constant((3, 6), name="w")
    products = [graph.add_row(RowKind.SOFTMAX, graph.add_gemm(x, w)) for _ in range(2)]
    graph.set_outputs(graph.add_pointwise("tanh", joined(graph, *products, axis=0), name="out"))
    sunk = SinkJoins().apply(graph)
    assert sunk == graph
    assert_same(graph, sunk, rng)


def test_a_copy_of_another_order_is_written_by_who_makes_it(rng: np.random.Generator) -> None:
    graph = Graph()
    made = graph.add_gemm(graph.add_input((2, 3, 4), name="x"), graph.add_constant((2, 4, 6), name="w"))
    turned = graph.add_view(ViewKind.PERMUTE, made, axes=(1, 0, 2))
    copy = graph.add(PointwiseOp(expr=Input(0), inputs=(turned.type,), out_dtype=DType.F32), (turned,), name="copy")
    graph.set_outputs(graph.add_pointwise("tanh", graph.add_view(ViewKind.RESHAPE, copy, shape=(3, 12)), name="out"))
    dropped = DropCopies().apply(graph)
    assert not copies(dropped)
    assert dropped[made.id].type.strides == (6, 12, 1)
    assert_same(graph, dropped, rng)
    check_plan(MaterializeOutputs().apply(dropped))


@pytest.mark.parametrize("why", ["another reader", "an output", "elements apart", "an input"])
def test_a_copy_that_is_needed_stays(why: str) -> None:
    graph = Graph()
    x = graph.add_input((3, 2, 4), name="x")
    made = x if why == "an input" else graph.add_pointwise("relu", x, name="made")
    axes = (2, 0, 1) if why == "elements apart" else (1, 0, 2)
    turned = graph.add_view(ViewKind.PERMUTE, made, axes=axes)
    copy = graph.add(PointwiseOp(expr=Input(0), inputs=(turned.type,), out_dtype=DType.F32), (turned,), name="copy")
    out = graph.add_row(RowKind.SOFTMAX, copy, name="out")
    more = [graph.add_row(RowKind.SOFTMAX, turned)] if why == "another reader" else [copy] if why == "an output" else []
    graph.set_outputs(out, *more)
    assert DropCopies().apply(graph) == graph
