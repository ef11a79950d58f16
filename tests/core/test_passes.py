from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.expr import Cast, Constant, Input, exp, select
from tracea.core.graph import Graph
from tracea.core.op import GemmOp, PointwiseOp, ReduceKind, RowKind, SourceOp, ViewKind, ViewOp
from tracea.core.passes.draft import Draft, Pass
from tracea.core.passes.eliminate import EliminateCommon, EliminateDead
from tracea.core.passes.fold import FoldConstants
from tracea.core.passes.fuse import FuseEpilogue, FusePointwise, FuseRows
from tracea.core.passes.outputs import MaterializeOutputs
from tracea.core.passes.pipeline import default_pipeline, fusions, run_pipeline
from tracea.core.passes.prioritize import Prioritize
from tracea.core.passes.views import EliminateViews, SinkReshapes
from tracea.core.reference import run
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidGraph


def data_for(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {n.id: rng.standard_normal(n.type.static_shape) for n in graph if isinstance(n.op, SourceOp)}


def assert_same(before: Graph, after: Graph, rng: np.random.Generator) -> None:
    data = data_for(before, rng)
    old, new = run(before, data), run(after, data)
    for left, right in zip(old.values(), new.values(), strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-12, atol=1e-14)


def kernels(graph: Graph) -> list[str]:
    return [node.op.name for node in graph if not isinstance(node.op, SourceOp | ViewOp)]


def test_bias_activation_and_residual_become_an_epilogue(rng) -> None:
    graph = Graph()
    x, residual = graph.add_input((6, 4)), graph.add_input((6, 5))
    gemm = graph.add_gemm(x, graph.add_constant((4, 5)), name="linear")
    biased = graph.add_pointwise(Input(0) + Input(1), gemm, graph.add_constant((5,), name="bias"))
    out = graph.add_pointwise(Input(1) + Input(0), graph.add_pointwise("gelu", biased), residual, name="out")
    fused = FuseEpilogue().apply(graph)
    assert kernels(fused) == ["gemm"]
    assert fused[out].inputs[2:] == ("bias", residual.id)
    assert fused["linear"].id == out.id  # the plan of the node that the user added
    assert_same(graph, fused, rng)
    assert len(graph) == 8  # the argument is as it was


def test_a_result_with_two_users_is_not_fused() -> None:
    graph = Graph()
    gemm = graph.add_gemm(m=3, n=4, k=5)
    graph.set_outputs(graph.add_pointwise("relu", gemm), graph.add_pointwise("tanh", gemm))
    assert FuseEpilogue().apply(graph) == graph


def test_a_result_that_a_run_returns_is_not_fused() -> None:
    graph = Graph()
    gemm = graph.add_gemm(m=3, n=4, k=5)
    graph.set_outputs(gemm, graph.add_pointwise("relu", gemm))
    assert kernels(FuseEpilogue().apply(graph)) == ["gemm", "pointwise"]


def test_an_epilogue_cannot_enlarge_the_result() -> None:
    graph = Graph()
    gemm = graph.add_gemm(m=1, n=4, k=5)
    graph.add_pointwise(Input(0) + Input(1), gemm, graph.add_input((3, 4)))
    assert kernels(FuseEpilogue().apply(graph)) == ["gemm", "pointwise"]


def test_the_other_gemm_of_a_sum_becomes_an_operand(rng) -> None:
    graph = Graph()
    first, second = graph.add_gemm(m=3, n=4, k=5), graph.add_gemm(m=3, n=4, k=6)
    graph.add_pointwise(Input(0) * Input(1), first, second)
    fused = FuseEpilogue().apply(graph)
    assert kernels(fused) == ["gemm", "gemm"]
    assert_same(graph, fused, rng)


def test_a_result_used_twice_by_one_op_is_fused(rng) -> None:
    graph = Graph()
    gemm = graph.add_gemm(m=3, n=4, k=5)
    graph.add_pointwise(Input(0) * Input(1), gemm, gemm)
    fused = FuseEpilogue().apply(graph)
    assert kernels(fused) == ["gemm"]
    assert_same(graph, fused, rng)


def test_integer_results_keep_their_rounding_and_floats_only_on_request() -> None:
    graph = Graph()
    x = graph.add_input((4,), DType.BF16)
    middle = graph.add_pointwise(Input(0) / 3.0, x)
    graph.add_pointwise(Input(0) * 3.0, middle)
    assert FusePointwise().apply(graph).outputs[0].op.expr == Input(0) / 3.0 * 3.0
    kept = FusePointwise(keep_rounding=True).apply(graph)
    assert kept.outputs[0].op.expr == Cast(Input(0) / 3.0, DType.BF16) * 3.0
    whole = Graph()
    steps = whole.add_pointwise(Input(0) / 3.0, whole.add_input((4,)), out_dtype=DType.I32)
    whole.add_pointwise(Input(0) * 3.0, steps)
    assert FusePointwise().apply(whole).outputs[0].op.expr == Cast(Input(0) / 3.0, DType.I32) * 3.0


def test_keep_rounding_gives_the_bits_of_the_unfused_graph(rng) -> None:
    graph = Graph()
    gemm = graph.add_gemm(m=8, n=8, k=8, dtype=DType.BF16)
    graph.add_pointwise("tanh", gemm)
    fused = FuseEpilogue(keep_rounding=True).apply(graph)
    data = data_for(graph, rng)
    (old,), (new,) = run(graph, data, rounded=True).values(), run(fused, data, rounded=True).values()
    np.testing.assert_array_equal(new, old)


def test_a_diamond_becomes_one_pointwise_op(rng) -> None:
    graph = Graph()
    gemm = graph.add_gemm(m=3, n=4, k=5)
    half, scaled = graph.add_pointwise(Input(0) * 0.5, gemm), graph.add_pointwise("tanh", gemm)
    graph.add_pointwise(Input(0) * (1.0 + Input(1)), half, scaled)
    result = run_pipeline(graph)
    assert kernels(result.graph) == ["gemm"]
    assert_same(graph, result.graph, rng)


@pytest.mark.parametrize("kind", RowKind)
def test_rows_take_prologue_and_epilogue(kind: RowKind, rng) -> None:
    graph = Graph()
    x, y = graph.add_input((3, 8)), graph.add_input((8,))
    row = graph.add_row(kind, graph.add_pointwise(Input(0) + Input(1), x, y), eps=kind.usual_eps, name="row")
    graph.add_pointwise(Input(0) * Input(1), row, y, out_dtype=DType.F64)
    fused = FuseRows().apply(graph)
    assert kernels(fused) == ["row"]
    assert fused["row"].op.prologue == Input(0) + Input(1)
    assert fused["row"].type.dtype is DType.F64
    assert_same(graph, fused, rng)


def test_reductions_take_prologue_and_epilogue(rng) -> None:
    graph = Graph()
    square = graph.add_pointwise(Input(0) * Input(0), graph.add_input((3, 8)))
    graph.add_pointwise(Input(0) / 8.0, graph.add_reduce(ReduceKind.SUM, square, (1,)))
    fused = FuseRows().apply(graph)
    assert kernels(fused) == ["reduce"]
    assert_same(graph, fused, rng)


def test_fusion_stops_at_its_limits() -> None:
    graph = Graph()
    value = graph.add_input((4,))
    for _ in range(300):
        value = graph.add_pointwise(Input(0) + 1.0, value)
    for limit in (16, 256):
        fused = FusePointwise(max_size=limit).apply(graph)
        assert all(node.op.expr.size <= limit for node in fused if isinstance(node.op, PointwiseOp))
        assert len(fused) < 300
    wide = Graph()
    total = wide.add_input((4,))
    for _ in range(12):
        total = wide.add_pointwise(Input(0) + Input(1), total, wide.add_input((4,)))
    fused = FusePointwise(max_operands=4).apply(wide)
    assert max(len(node.inputs) for node in fused) == 4


def test_dead_nodes_go_and_inputs_stay() -> None:
    graph = Graph()
    x, unused = graph.add_input((4,)), graph.add_input((5,))
    graph.add_pointwise("tanh", graph.add_pointwise("relu", graph.add_constant((4,))))
    graph.set_outputs(graph.add_pointwise("relu", x))
    assert [node.id for node in EliminateDead().apply(graph)] == [x.id, unused.id, graph.outputs[0].id]


def test_the_same_work_is_done_once(rng) -> None:
    graph = Graph()
    x = graph.add_input((4,))
    twins = [graph.add_pointwise(exp(Input(0)), x) for _ in range(3)]
    graph.add_pointwise(Input(0) + Input(1) * Input(2), *twins)
    common = EliminateCommon().apply(graph)
    assert len(kernels(common)) == 2
    assert common[twins[2]].id == twins[0].id
    assert_same(graph, common, rng)


def test_zeros_of_either_sign_are_not_the_same_work() -> None:
    graph = Graph()
    x = graph.add_input((4,))
    graph.set_outputs(graph.add_pointwise(Input(0) * 0.0, x), graph.add_pointwise(Input(0) * -0.0, x))
    assert EliminateCommon().apply(graph) == graph


def test_known_scalars_move_into_expressions(rng) -> None:
    graph = Graph()
    x, scale = graph.add_input((4,)), graph.add_constant((1,), name="scale")
    graph.add_pointwise(Input(0) * Input(1), x, scale)
    folded = FoldConstants(values={"scale": np.array([2.0])}).apply(graph)
    assert folded.outputs[0].op.expr == Input(0) * Constant(2.0)
    assert folded.outputs[0].inputs == (x.id,)
    np.testing.assert_array_equal(
        *(next(iter(run(g, {x.id: np.arange(4.0), "scale": [2.0]}).values())) for g in (graph, folded))
    )


def test_an_operand_that_gives_the_shape_stays() -> None:
    graph = Graph()
    x, wide = graph.add_input((1,)), graph.add_input((7,))
    graph.add_pointwise(Input(0) + Input(1) ** 0.0, x, wide)
    assert FoldConstants().apply(graph).outputs[0].type.shape == (7,)


def test_a_constant_keeps_the_strides_that_its_readers_were_told(rng) -> None:
    graph = Graph()
    x, c = graph.add_input((3, 4)), graph.add_constant((3, 4), name="c")
    columns = TensorType((3, 4), DType.F32, StridedLayout((1, 3)))
    twice = graph.add(PointwiseOp(expr=Input(0) * 2.0, inputs=(c.type,), out_dtype=DType.F32, out=columns), [c])
    graph.add_pointwise(Input(0) + Input(1), twice, x)
    values = {"c": rng.standard_normal((3, 4), np.float32)}
    result = run_pipeline(graph, values)
    assert kernels(result.graph) == ["pointwise"]
    (found,) = run(result.graph, {x.id: np.ones((3, 4)), **values, **result.values}).values()
    np.testing.assert_allclose(found, 2 * values["c"] + 1, rtol=1e-6)


def test_constant_subgraphs_become_constants(rng) -> None:
    graph = Graph()
    x, w = graph.add_input((4, 4)), graph.add_constant((4, 4), DType.BF16, name="w")
    scaled = graph.add_pointwise(Input(0) * 3.0, w, name="scaled")
    graph.add_gemm(x, scaled, transpose_b=True)
    values = {"w": rng.standard_normal((4, 4)).astype(DType.BF16.numpy)}
    folded = FoldConstants(values=values).fold(graph)
    assert kernels(folded.graph) == ["gemm"]
    assert folded.values["scaled"].dtype == DType.BF16.numpy
    data = {x.id: np.eye(4), **values}
    (old,), (new,) = (
        run(graph, data, rounded=True).values(),
        run(folded.graph, {**data, **folded.values}, rounded=True).values(),
    )
    np.testing.assert_array_equal(new, old)


def test_views_in_a_row_become_one_and_views_of_nothing_none(rng) -> None:
    graph = Graph()
    x = graph.add_input((4, 6))
    once = graph.add_view(ViewKind.PERMUTE, x, axes=(1, 0))
    back = graph.add_view(ViewKind.PERMUTE, once, axes=(1, 0))
    inner = graph.add_view(ViewKind.SLICE, back, starts=(1, 1), shape=(3, 5), steps=(1, 1))
    outer = graph.add_view(ViewKind.SLICE, inner, starts=(2, 0), shape=(2, 5), steps=(-1, 1))
    wide = graph.add_view(ViewKind.EXPAND, graph.add_input((1, 5)), shape=(2, 5))
    graph.add_pointwise(Input(0) + Input(1), outer, wide)
    simple = EliminateDead().apply(EliminateViews().apply(graph))
    assert [node.op.kind for node in simple if isinstance(node.op, ViewOp)] == [ViewKind.SLICE]
    assert_same(graph, simple, rng)


def test_linear_over_three_axes_fuses_through_its_reshapes(rng) -> None:
    graph = Graph()
    x, residual = graph.add_input((2, 3, 8)), graph.add_input((2, 3, 5))
    flat = graph.add_view(ViewKind.RESHAPE, x, shape=(6, 8))
    gemm = graph.add_gemm(flat, graph.add_constant((8, 5)))
    value = graph.add_view(ViewKind.RESHAPE, gemm, shape=(2, 3, 5))
    value = graph.add_pointwise(Input(0) + Input(1), value, graph.add_constant((5,)))
    value = graph.add_pointwise(Input(0) + Input(1), graph.add_pointwise("gelu", value), residual)
    graph.add_row(RowKind.SOFTMAX, value)
    assert kernels(run_pipeline(graph).graph) == ["gemm", "row"]
    assert_same(graph, SinkReshapes().apply(graph), rng)
    assert_same(graph, run_pipeline(graph).graph, rng)


def test_outputs_that_are_no_buffers_become_copies(rng) -> None:
    graph = Graph()
    x = graph.add_input((4, 6))
    y = graph.add_pointwise("relu", x)
    turned, whole = graph.add_view(ViewKind.PERMUTE, y, axes=(1, 0)), graph.add_view(ViewKind.RESHAPE, y, shape=(24,))
    graph.set_outputs(whole, x, y, turned)
    made = MaterializeOutputs().apply(graph)
    assert [isinstance(node.op, PointwiseOp) for node in made.outputs] == [True] * 4
    assert [node.id for node in made.outputs] == [whole.id, f"{x.id}.copy", y.id, turned.id]
    assert_same(graph, made, rng)
    alone = Graph()
    relu = alone.add_pointwise("relu", alone.add_input((4, 6)))
    alone.add_view(ViewKind.RESHAPE, relu, shape=(24,))
    assert MaterializeOutputs().apply(alone) == alone  # the whole of its root: written in place


def test_the_order_follows_the_critical_path_and_is_stable() -> None:
    graph = Graph()
    x = graph.add_input((64, 64))
    short = graph.add_pointwise("relu", x)
    long = graph.add_gemm(graph.add_gemm(x, x), x)
    graph.add_pointwise(Input(0) + Input(1), short, long)
    order = [node.id for node in Prioritize().apply(graph)]
    assert order.index(long.id) < order.index(short.id)
    assert Prioritize().apply(Prioritize().apply(graph)) == Prioritize().apply(graph)
    assert Prioritize(cost=lambda op: 0.0).apply(graph) == graph


def test_fusions_of_one_kind_are_one_line_of_the_summary() -> None:
    graph = Graph()
    last = graph.add_input((5, 5))
    for layer in range(3):
        product = graph.add_gemm(last, last, name="linear" if layer == 0 else f"linear_{layer}")
        last = graph.add_pointwise(
            "gelu" if layer < 2 else "relu", product, name=f"{'gelu' if layer < 2 else 'up'}_{layer}"
        )
    result = run_pipeline(graph)
    assert len(result.fusions) == 3
    assert result.fusions_by_kind == (
        "gemm of linear + gelu: 2 times, first gelu_0",
        "up_2: gemm of linear_2 + up_2",
    )
    assert result.summary.splitlines()[-2:] == list(result.fusions_by_kind)
    assert str(result).splitlines()[-3:] == list(map(str, result.fusions))


def test_the_pipeline_reports_what_was_fused() -> None:
    graph = Graph()
    gemm = graph.add_gemm(m=3, n=4, k=5, name="linear")
    graph.add_pointwise("gelu", gemm, name="gelu")
    result = run_pipeline(graph)
    assert str(result.fusions[0]) == "gelu: gemm of linear + gelu"
    assert result.fusions_by_kind == ("gelu: gemm of linear + gelu",)
    assert "fuse epilogue: 2 -> 1 kernels" in str(result)
    assert result.summary == str(result)
    assert fusions(graph) == ()
    assert [step.name for step in result.steps] == [each.name for each in default_pipeline()]


@dataclass(frozen=True)
class Swap:
    """A pass that makes a cycle."""

    name: str = "swap"

    def apply(self, graph: Graph) -> Graph:
        draft = Draft(graph)
        draft.put(graph["b"].__class__(id="a", op=graph["a"].op, inputs=("b",)))
        return draft.finish()


def test_a_pass_that_breaks_the_graph_is_refused() -> None:
    graph = Graph()
    x = graph.add_input((4,))
    graph.add_pointwise("relu", graph.add_pointwise("relu", x, name="a"), name="b")
    broken: Pass = Swap()
    with pytest.raises(InvalidGraph, match="cycle"):
        broken.apply(graph)


def test_passes_keep_symbolic_extents() -> None:
    from tracea.core.tensor_type import SymbolicDim

    graph = Graph()
    x = graph.add_input((SymbolicDim("rows"), 8))
    graph.add_pointwise("gelu", graph.add_gemm(x, graph.add_constant((8, 4))))
    result = run_pipeline(graph).graph
    assert kernels(result) == ["gemm"]
    assert isinstance(result.outputs[0].op, GemmOp)
    assert result.bind({"rows": 2}).outputs[0].type.shape == (2, 4)


@pytest.mark.parametrize("each", default_pipeline(), ids=lambda each: each.name)
def test_no_pass_changes_the_order_of_inputs(each: Pass) -> None:
    # A run binds its inputs by position, whatever work waits behind each.
    graph = Graph()
    first, second, unused = graph.add_input((4, 6)), graph.add_input((6,)), graph.add_input((2,))
    graph.set_outputs(graph.add_pointwise(Input(0) + Input(1), graph.add_pointwise("tanh", second), first))
    assert [node.id for node in each.apply(graph).inputs] == [first.id, second.id, unused.id]


@pytest.mark.parametrize("wide", [False, True], ids=["an operand", "the result"])
def test_f64_stays_out_of_sums_of_f32(wide: bool) -> None:
    graph = Graph()
    product = graph.add_gemm(graph.add_input((4, 6)), graph.add_input((6, 5)))
    if wide:
        graph.add_pointwise(Input(0), product, out_dtype=DType.F64)
    else:
        graph.add_pointwise(Input(0) + Input(1), product, graph.add_input((5,), DType.F64), out_dtype=DType.F32)
    assert FuseEpilogue().apply(graph) == graph


def test_a_mask_stays_out_of_a_gemm_and_goes_into_the_rows_behind_it(rng) -> None:
    graph = Graph()
    scores = graph.add_gemm(graph.add_input((4, 6)), graph.add_input((6, 5)))
    mask = graph.add_input((4, 5), DType.BOOL)
    masked = graph.add_pointwise(select(Input(1), Input(0), 0.25), scores, mask)
    graph.set_outputs(graph.add_row(RowKind.SOFTMAX, masked))
    made = run_pipeline(graph).graph
    assert [node.op.name for node in made if not isinstance(node.op, SourceOp)] == ["gemm", "row"]
    assert_same(graph, made, rng)
    signs = Graph()
    product = signs.add_gemm(signs.add_input((4, 6)), signs.add_input((6, 5)))
    signs.add_pointwise(Input(0) > 0.0, product, out_dtype=DType.BOOL)
    assert FuseEpilogue().apply(signs) == signs
