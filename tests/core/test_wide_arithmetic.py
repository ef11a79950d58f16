"""Values of f64 and wide integers between narrower ends: fusion leaves them an op that is computed in f64."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.core.arithmetic import computed_in
from tracea.core.dtype import DType
from tracea.core.expr import Binary, BinaryFunction, Constant, Input, select
from tracea.core.graph import Graph, Node
from tracea.core.op import AttentionOp, ReduceKind, RowKind
from tracea.core.passes.fold import FoldConstants
from tracea.core.passes.fuse import FusePointwise, FuseRows
from tracea.core.passes.pipeline import run_pipeline

WIDE = (DType.F64, DType.I64, DType.I32)
ABOVE = Input(0) > 0.1
EQUAL = Binary(BinaryFunction.EQ, Input(0), Constant(16777217.0))


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph if node.op.name != "source"]


def computed(graph: Graph) -> list[DType]:
    """Return what each op that runs is computed in, in order."""
    nodes = [node for node in graph if node.op.name != "source"]
    return [computed_in([node.type.dtype, *(operand.dtype for operand in node.op.operands)]) for node in nodes]


def wide(graph: Graph, dtype: DType, *, source: DType = DType.F32) -> Node:
    return graph.add_pointwise(Input(0), graph.add_input((4, 8), source), out_dtype=dtype)


@pytest.mark.parametrize("dtype", WIDE)
def test_a_wide_value_between_narrow_ends_keeps_an_op_on_either_side(dtype: DType) -> None:
    graph = Graph()
    value = graph.add_pointwise(Input(0) + 1e8, wide(graph, dtype))
    graph.add_pointwise(EQUAL, graph.add_pointwise(Input(0) - 1e8, value), out_dtype=DType.BOOL)
    for fused in (FusePointwise().apply(graph), run_pipeline(graph).graph):
        assert computed(fused) == [DType.F64, DType.F64]


@pytest.mark.parametrize("keep_rounding", [False, True])
def test_a_wide_end_lets_wide_values_be_fused(keep_rounding: bool) -> None:
    graph = Graph()
    other = graph.add_input((4, 8), DType.F64)
    both = graph.add_pointwise(Input(0) + Input(1), wide(graph, DType.F64), other)
    graph.add_pointwise(Input(0), both, out_dtype=DType.F32)
    assert computed(FusePointwise(keep_rounding=keep_rounding).apply(graph)) == [DType.F64]


def test_an_operand_of_f64_is_not_made_where_only_it_has_an_op_computed_in_f64() -> None:
    graph = Graph()
    made = graph.add_pointwise(Input(0) * 1e200, wide(graph, DType.F64))
    graph.add_pointwise(Input(0) / Input(1), graph.add_input((4, 8)), made)
    assert computed(run_pipeline(graph).graph) == [DType.F64, DType.F64]


def test_masks_are_fused_with_floats_and_their_sums_in_f64_are_not() -> None:
    graph = Graph()
    x, first, second = graph.add_input((4, 8)), *(graph.add_input((4, 8), DType.BOOL) for _ in range(2))
    both = graph.add_pointwise(Input(0) * Binary(BinaryFunction.EQ, Input(1), Constant(0.0)), first, second)
    graph.add_pointwise(select(Input(0), Input(1), 0.0), both, x)
    assert ops(run_pipeline(graph).graph) == ["pointwise"]
    sums = Graph()
    x, mask = sums.add_input((4, 8)), sums.add_input((4, 8), DType.BOOL)
    least = sums.add_pointwise(Input(0) + 1e8 > 1e8, mask)
    sums.add_pointwise(select(Input(0), Input(1), 0.0), least, x)
    assert computed(run_pipeline(sums).graph) == [DType.F64, DType.F32]


def test_rows_of_f64_take_no_second_narrow_end() -> None:
    for is_row in (False, True):
        graph = Graph()
        x = wide(graph, DType.F64)
        made = graph.add_row(RowKind.SOFTMAX, x) if is_row else graph.add_reduce(ReduceKind.SUM, x, axes=(-1,))
        graph.add_pointwise(Input(0) - 1e8, made, out_dtype=DType.F32)
        for fused in (FuseRows().apply(graph), run_pipeline(graph).graph):
            assert computed(fused) == [DType.F64, DType.F64]


def test_a_maximum_of_masks_takes_what_compares_floats() -> None:
    graph = Graph()
    above = graph.add_pointwise(ABOVE, graph.add_input((4, 8)), out_dtype=DType.BOOL)
    graph.add_reduce(ReduceKind.MAX, above, axes=(-1,))
    assert ops(run_pipeline(graph).graph) == ["reduce"]


def test_a_softmax_of_f64_between_products_of_f32_is_no_attention() -> None:
    for dtype, attends in ((DType.F32, True), (DType.F64, False)):
        graph = Graph()
        q, k, v = (graph.add_input((2, 3, 8, 4), name=name) for name in "qkv")
        scores = graph.add_gemm(q, k, transpose_b=True)
        scores = scores if dtype is DType.F32 else graph.add_pointwise(Input(0), scores, out_dtype=dtype)
        weights = graph.add_row(RowKind.SOFTMAX, scores)
        weights = weights if dtype is DType.F32 else graph.add_pointwise(Input(0), weights, out_dtype=DType.F32)
        graph.add_gemm(weights, v)
        assert any(isinstance(node.op, AttentionOp) for node in run_pipeline(graph).graph) is attends


def test_a_known_number_of_f64_stays_an_operand_where_it_alone_is_wide(rng: np.random.Generator) -> None:
    graph = Graph()
    x, number = graph.add_input((4, 8)), graph.add_constant((1,), DType.F64, name="number")
    graph.add_pointwise(Input(0) > Input(1), x, number, out_dtype=DType.BOOL)
    folded = FoldConstants(values={"number": np.array([0.1])}).apply(graph)
    assert computed(folded) == [DType.F64]
    wider = Graph()
    x, number = wider.add_input((4, 8), DType.F64), wider.add_constant((1,), DType.F64, name="number")
    wider.add_pointwise(Input(0) > Input(1), x, number, out_dtype=DType.BOOL)
    assert FoldConstants(values={"number": np.array([0.1])}).apply(wider).outputs[0].op.expr == ABOVE
