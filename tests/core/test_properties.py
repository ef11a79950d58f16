"""Random graphs: every pass keeps the meaning, JSON keeps the graph, and the memory plan keeps every value alive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Expr, Input, activation_names, select
from tracea.core.graph import Graph
from tracea.core.op import GemmOp, JoinOp, ReduceKind, RowKind, SourceOp, ViewKind, ViewOp
from tracea.core.passes.draft import Pass
from tracea.core.passes.eliminate import EliminateCommon, EliminateDead
from tracea.core.passes.fold import FoldConstants
from tracea.core.passes.fuse import FuseEpilogue, FusePointwise, FuseRows
from tracea.core.passes.fuse_attention import FuseAttention
from tracea.core.passes.memory import BufferKind, plan_memory
from tracea.core.passes.memory_check import check_memory
from tracea.core.passes.outputs import MaterializeOutputs
from tracea.core.passes.pipeline import default_pipeline, run_pipeline
from tracea.core.passes.place import DropCopies, PlaceParts
from tracea.core.passes.prioritize import Prioritize
from tracea.core.passes.sink_joins import SinkJoins
from tracea.core.passes.views import EliminateViews, SinkReshapes
from tracea.core.reference import run

PASSES: tuple[Pass, ...] = (
    EliminateDead(),
    EliminateCommon(),
    FoldConstants(),
    EliminateViews(),
    SinkReshapes(),
    FusePointwise(),
    FuseEpilogue(),
    FuseRows(),
    FuseAttention(),
    SinkJoins(),
    DropCopies(),
    PlaceParts(),
    MaterializeOutputs(),
    Prioritize(),
)
SHAPES = [(4, 4), (4,), (1, 4), (2, 2, 4), (1,)]


def combine(draw: st.DrawFn) -> Expr:
    function = draw(st.sampled_from([BinaryFunction.ADD, BinaryFunction.SUB, BinaryFunction.MUL, BinaryFunction.MAX]))
    expr: Expr = Binary(function, Input(0), Input(1))
    return draw(st.sampled_from([expr, select(Input(0) > Input(1), expr, 0.5), expr * 1.0]))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    graph = Graph()
    for _ in range(draw(st.integers(1, 3))):
        add = draw(st.sampled_from([graph.add_input, graph.add_constant]))
        add(draw(st.sampled_from(SHAPES)))
    graph.add_input((4, 4))
    for _ in range(draw(st.integers(1, 14))):
        nodes = graph.nodes
        # The latest nodes more often than not: chains, which are what passes work on.
        x = draw(st.sampled_from([*nodes[-3:], *nodes]))
        y = draw(st.sampled_from(nodes))
        match draw(
            st.sampled_from(
                ["map", "map", "map", "zip", "zip", "gemm", "row", "reduce", "view", "view", "join", "join"]
            )
        ):
            case "map":
                graph.add_pointwise(draw(st.sampled_from(activation_names())), x)
            case "zip" if fits(x.type.shape, y.type.shape):
                graph.add_pointwise(combine(draw), x, y)
            case "gemm" if multiply(x.type.shape, y.type.shape):
                graph.add_gemm(x, y, activation=draw(st.sampled_from([None, "relu"])))
            case "row" if x.type.rank:
                graph.add_row(draw(st.sampled_from(RowKind)), x)
            case "reduce" if x.type.rank:
                graph.add_reduce(draw(st.sampled_from(ReduceKind)), x, (-1,), keepdims=draw(st.booleans()))
            case "join" if x.type.rank:
                parts = [x, *(node for node in nodes[-4:] if node.type.shape == x.type.shape)]
                graph.add(JoinOp.along([node.type for node in parts], draw(st.integers(0, x.type.rank - 1))), parts)
            case "view":
                add_view(draw, graph, x.id)
            case _:
                graph.add_pointwise("tanh", x)
    outputs = draw(st.lists(st.sampled_from([node.id for node in graph]), min_size=1, max_size=3, unique=True))
    if draw(st.booleans()):
        graph.set_outputs(*outputs)
    return graph


def fits(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    return all(a in (b, 1) or b == 1 for a, b in zip(left[::-1], right[::-1], strict=False))


def multiply(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    are_matrices = len(left) >= 2 and len(right) >= 2
    return are_matrices and left[-1] == right[-2] and fits(left[:-2], right[:-2])


def add_view(draw: st.DrawFn, graph: Graph, name: str) -> None:
    node = graph[name]
    tensor = node.type
    kind = draw(st.sampled_from(ViewKind))
    if kind is ViewKind.PERMUTE:
        graph.add_view(kind, node, axes=draw(st.permutations(range(tensor.rank))))
    elif kind is ViewKind.EXPAND:
        graph.add_view(kind, node, shape=(2, *tensor.shape) if tensor.rank < 3 else tensor.shape)
    elif kind is ViewKind.SLICE:
        flips = [draw(st.booleans()) for _ in tensor.shape]
        starts = [dim - 1 if flip else 0 for dim, flip in zip(tensor.static_shape, flips, strict=True)]
        steps = [-1 if flip else 1 for flip in flips]
        graph.add_view(kind, node, starts=starts, steps=steps, shape=tensor.shape)
    elif kind is ViewKind.WINDOWS:
        if 0 < tensor.rank < 3:
            axis = draw(st.integers(0, tensor.rank - 1))
            size, step = draw(st.integers(1, tensor.static_shape[axis])), draw(st.integers(1, 3))
            graph.add_view(kind, node, axes=(axis,), shape=(size,), steps=(step,))
    elif tensor.is_contiguous:
        elements = tensor.elements
        shapes = [(elements,), (1, elements), *([(elements // 4, 4)] if elements % 4 == 0 else [])]
        graph.add_view(kind, node, shape=draw(st.sampled_from(shapes)))


def data_for(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n.id: rng.uniform(-1, 1, n.type.static_shape) for n in graph if isinstance(n.op, SourceOp)}


def assert_same(before: Graph, after: Graph, data: dict[str, np.ndarray]) -> None:
    old, new = run(before, data), run(after, data)
    assert len(old) == len(new)
    for left, right in zip(old.values(), new.values(), strict=True):
        assume(np.isfinite(left).all() and np.abs(left).max(initial=0) < 1e6)
        np.testing.assert_allclose(right, left, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("each", PASSES, ids=lambda each: type(each).__name__)
@settings(max_examples=20)
@given(graph=graphs(), seed=st.integers(0, 2**32 - 1))
def test_every_pass_keeps_the_meaning_and_its_argument(each: Pass, graph: Graph, seed: int) -> None:
    text = graph.to_json()
    after = each.apply(graph)
    assert graph.to_json() == text
    after.verify()
    assert_same(graph, after, data_for(graph, seed))


@settings(max_examples=30)
@given(graph=graphs(), seed=st.integers(0, 2**32 - 1))
def test_fusion_that_keeps_rounding_keeps_every_bit(graph: Graph, seed: int) -> None:
    after = FuseEpilogue(keep_rounding=True).apply(FusePointwise(keep_rounding=True).apply(graph))
    data = data_for(graph, seed)
    old, new = run(graph, data, rounded=True), run(after, data, rounded=True)
    for left, right in zip(old.values(), new.values(), strict=True):
        np.testing.assert_array_equal(right, left)


@settings(max_examples=40)
@given(graph=graphs(), seed=st.integers(0, 2**32 - 1), partly=st.booleans())
def test_the_pipeline_keeps_the_meaning_with_and_without_constants(graph: Graph, seed: int, partly: bool) -> None:
    data = data_for(graph, seed)
    values = {name: data[name].astype(np.float32) for name in graph.constants} if partly else {}
    result = run_pipeline(graph, values)
    before = {**data, **values}
    old, new = run(graph, before), run(result.graph, {**before, **result.values})
    for left, right in zip(old.values(), new.values(), strict=True):
        assume(np.isfinite(left).all() and np.abs(left).max(initial=0) < 1e3)
        # What was folded was rounded once to f32; later ops may magnify that.
        np.testing.assert_allclose(right, left, rtol=1e-2 if partly else 1e-9, atol=1e-2 if partly else 1e-9)


@settings(max_examples=25)
@given(graph=graphs())
def test_the_pipeline_adds_no_work_and_comes_to_rest(graph: Graph) -> None:
    once = run_pipeline(graph).graph
    gemms = [sum(isinstance(node.op, GemmOp) for node in g) for g in (once, graph)]
    assert gemms[0] <= gemms[1]
    twice = run_pipeline(once).graph
    assert len([n for n in twice if not isinstance(n.op, ViewOp)]) <= len(
        [n for n in once if not isinstance(n.op, ViewOp)]
    )


@settings(max_examples=25)
@given(graph=graphs())
def test_random_graphs_round_trip_through_json(graph: Graph) -> None:
    assert Graph.from_json(graph.to_json()) == graph
    assert Graph.from_json(graph.to_json()).key == graph.key


@settings(max_examples=50)
@given(graph=graphs(), in_place=st.booleans(), alignment=st.sampled_from([1, 64, 4096]), fuse=st.booleans())
def test_no_value_is_overwritten_while_it_is_needed(graph: Graph, in_place: bool, alignment: int, fuse: bool) -> None:
    ready = run_pipeline(graph, passes=default_pipeline() if fuse else [PlaceParts(), MaterializeOutputs()]).graph
    plan = plan_memory(ready, alignment, in_place=in_place)
    check_memory(ready, plan)
    assert plan.arena_bytes <= plan.unshared_bytes


@settings(max_examples=25)
@given(graph=graphs(), seed=st.integers(0, 2**32 - 1))
def test_a_plan_carries_the_right_values_through_real_bytes(graph: Graph, seed: int) -> None:
    """Run the graph in one arena of f32, each value written where the plan says and read back from there."""
    ready = MaterializeOutputs().apply(PlaceParts().apply(graph))
    plan = plan_memory(ready)
    data = data_for(ready, seed)
    memory: dict[tuple[BufferKind, str], np.ndarray] = {
        (BufferKind.ARENA, ""): np.full(plan.arena_bytes, 0xFF, np.uint8),
        **{(BufferKind.OUTPUT, n.id): np.full(n.type.storage_bytes, 0xFF, np.uint8) for n in ready.outputs},
    }

    def window(name: str) -> np.ndarray:
        tensor, place = ready[name].type, plan.placements[name]
        buffer = memory.setdefault((place.buffer, place.name), np.full(tensor.storage_bytes, 0xFF, np.uint8))
        strides = [4 * stride for stride in tensor.strides]
        return np.ndarray(tensor.static_shape, np.float32, buffer.data, place.offset_bytes, strides)

    from tracea.core.reference import evaluate

    expected = run(ready, data, rounded=True)
    for node in ready:
        if isinstance(node.op, SourceOp):
            window(node.id)[...] = data[node.id]
        elif not isinstance(node.op, ViewOp | JoinOp):
            value = evaluate(node.op, [window(name).copy() for name in node.inputs], rounded=True)
            window(node.id)[...] = DType.F32.round(value)
    for name, value in expected.items():
        np.testing.assert_array_equal(window(name), value)
