"""Attention written as products and a softmax becomes one op of the same meaning; what only looks like it stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.expr import Input, select, tanh
from tracea.core.graph import Graph, Node
from tracea.core.op import AttentionOp, GemmOp, PointwiseOp, RowKind, ViewKind
from tracea.core.passes.pipeline import run_pipeline
from tracea.core.reference import run

S, T, D, DV = 5, 6, 4, 3
X = Input(0)
INF = float("inf")


def swap(graph: Graph, x: Node) -> Node:
    axes = list(range(x.type.rank))
    axes[-2:] = axes[:-3:-1]
    return graph.add_view(ViewKind.PERMUTE, x, axes=axes)


def pointwise(graph: Graph, expr: Any, *inputs: Node) -> Node:
    op = PointwiseOp(expr=expr, inputs=tuple(node.type for node in inputs), out_dtype=inputs[0].type.dtype)
    return graph.add(op, inputs)


def product(graph: Graph, a: Node, b: Node) -> Node:
    return graph.add_gemm(a, b)


def attended(graph: Graph, scores: Node, v: Node) -> Node:
    return product(graph, graph.add_row(RowKind.SOFTMAX, scores), v)


def operands(graph: Graph, *lead: int) -> tuple[Node, Node, Node]:
    return graph.add_input((*lead, S, D)), graph.add_input((*lead, T, D)), graph.add_input((*lead, T, DV))


def plain(graph: Graph) -> Node:
    q, k, v = operands(graph, 2, 3)
    return attended(graph, pointwise(graph, X / 2.0, product(graph, q, swap(graph, k))), v)


def without_lead(graph: Graph) -> Node:
    q, k, v = operands(graph)
    return attended(graph, product(graph, q, swap(graph, k)), v)


def merged_lead(graph: Graph) -> Node:
    """Products over batch times heads, the mask over batch and heads, as torch decomposes it."""
    q, k, v = operands(graph, 6)
    scores = graph.add_view(ViewKind.RESHAPE, product(graph, q, swap(graph, k)), shape=(2, 3, S, T))
    masked = pointwise(graph, X * 0.5 + Input(1), scores, graph.add_input((2, 1, 1, T)))
    flat = graph.add_view(ViewKind.RESHAPE, masked, shape=(6 * S, T))
    weights = graph.add_view(ViewKind.RESHAPE, graph.add_row(RowKind.SOFTMAX, flat), shape=(6, S, T))
    return product(graph, weights, v)


def repeated_heads(graph: Graph) -> Node:
    q = graph.add_input((2, 6, S, D))

    def repeat(size: int) -> Node:
        x = graph.add_view(ViewKind.RESHAPE, graph.add_input((2, 3, T, size)), shape=(2, 3, 1, T, size))
        x = pointwise(graph, X, graph.add_view(ViewKind.EXPAND, x, shape=(2, 3, 2, T, size)))
        return graph.add_view(ViewKind.RESHAPE, x, shape=(2, 6, T, size))

    return attended(graph, product(graph, q, swap(graph, repeat(D))), repeat(DV))


def one_repeated_head(graph: Graph) -> Node:
    """A head of keys for all queries, which strides of 0 say without a copy."""
    q = graph.add_input((1, 6, S, D))

    def repeat(size: int) -> Node:
        x = graph.add_view(ViewKind.RESHAPE, graph.add_input((1, 1, T, size)), shape=(1, 1, 1, T, size))
        x = graph.add_view(ViewKind.EXPAND, x, shape=(1, 1, 6, T, size))
        return graph.add_view(ViewKind.RESHAPE, x, shape=(1, 6, T, size))

    return attended(graph, product(graph, q, swap(graph, repeat(D))), repeat(DV))


def one_head_of_keys(graph: Graph) -> Node:
    q, k, v = graph.add_input((2, 3, S, D)), graph.add_input((T, D)), graph.add_input((1, 1, T, DV))
    return attended(graph, product(graph, q, swap(graph, k)), v)


def capped(graph: Graph) -> Node:
    q, k, v = operands(graph, 1, 2)
    bias = graph.add_input((S, T))
    return attended(
        graph, pointwise(graph, tanh(X * 0.25) * 3.0 + Input(1), product(graph, q, swap(graph, k)), bias), v
    )


def epilogue_of_the_product(graph: Graph) -> Node:
    q, k, v = operands(graph, 1, 2)
    scores = graph.add_gemm(q, swap(graph, k), bias=graph.add_input((T,)), alpha=0.5)
    return attended(graph, scores, v)


def keys_of_batch_inside(graph: Graph) -> Node:
    """Heads inside tokens on the way in and on the way out, where a copy merges them."""
    q, k, v = (graph.add_view(ViewKind.PERMUTE, graph.add_input((2, n, 3, D)), axes=(0, 2, 1, 3)) for n in (S, T, T))
    out = graph.add_view(ViewKind.PERMUTE, attended(graph, product(graph, q, swap(graph, k)), v), axes=(0, 2, 1, 3))
    merged = graph.add_view(ViewKind.RESHAPE, pointwise(graph, X, out), shape=(2 * S, 3 * D))
    return graph.add_row(RowKind.LAYER_NORM, merged, eps=1e-5)


CASES: dict[str, Callable[[Graph], Node]] = {
    each.__name__.replace("_", " "): each
    for each in (
        plain,
        without_lead,
        merged_lead,
        repeated_heads,
        one_repeated_head,
        one_head_of_keys,
        capped,
        epilogue_of_the_product,
        keys_of_batch_inside,
    )
}


def data_of(graph: Graph, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {node.id: rng.standard_normal(node.type.static_shape) for node in graph.inputs}


def same_meaning(graph: Graph, seed: int, constants: dict[str, Any] | None = None) -> Graph:
    """Return the graph after the passes, which compute what it did before."""
    bound = data_of(graph, seed) | (constants or {})
    passed = run_pipeline(graph, constants or {})
    (expected,), (found,) = run(graph, bound).values(), run(passed.graph, bound | dict(passed.values)).values()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    return passed.graph


def attentions(graph: Graph) -> list[AttentionOp]:
    return [node.op for node in graph if isinstance(node.op, AttentionOp)]


@pytest.mark.parametrize("name", CASES)
def test_products_around_a_softmax_are_one_attention(name: str, seed: int) -> None:
    graph = Graph()
    CASES[name](graph)
    after = same_meaning(graph, seed)
    assert len(attentions(after)) == 1
    assert not any(isinstance(node.op, GemmOp | PointwiseOp) for node in after)


def test_a_factor_becomes_the_scale_and_the_default_one_none() -> None:
    graph = Graph()
    plain(graph)
    (op,) = attentions(run_pipeline(graph).graph)
    assert op.scale is None  # 1 / sqrt(4)
    assert op.score.is_identity


@pytest.mark.parametrize(("build", "lead"), [(repeated_heads, (2, 3)), (one_repeated_head, (1, 1))])
def test_shared_keys_are_read_once(build: Callable[[Graph], Node], lead: tuple[int, int]) -> None:
    graph = Graph()
    build(graph)
    (op,) = attentions(run_pipeline(graph).graph)
    assert (op.k.shape, op.v.shape) == ((*lead, T, D), (*lead, T, DV))


MASKS: dict[str, tuple[Any, Any, bool]] = {
    "booleans that keep": (select(Input(1), X / 2.0, -INF), np.tri(S, dtype=np.bool_), True),
    "booleans that hide": (select(Input(1), -INF, X), ~np.tri(S, dtype=np.bool_), True),
    "added": (X * 3.0 + Input(1), np.where(np.tri(S), 0.0, -INF), True),
    "added, the least number": (X + Input(1), np.where(np.tri(S), 0.0, np.finfo(np.float32).min), True),
    "another triangle": (select(Input(1), X, -INF), np.tri(S, k=1, dtype=np.bool_), False),
    "a triangle and weights": (X + Input(1), np.where(np.tri(S), np.arange(S) % 2, -INF), False),
    "two hidden values": (X + Input(1), np.where(np.tri(S), 0.0, np.where(np.eye(S, k=1), -INF, -1e38)), True),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_constant_triangle_becomes_causal(name: str, seed: int) -> None:
    expr, mask, causal = MASKS[name]
    graph = Graph()
    q, k, v = (graph.add_input((1, 2, S, D)) for _ in range(3))
    dtype = DType.BOOL if mask.dtype == np.bool_ else DType.F32
    constant = graph.add_constant(mask.shape, dtype=dtype)
    attended(graph, pointwise(graph, expr, product(graph, q, swap(graph, k)), constant), v)
    after = same_meaning(graph, seed, {constant.id: mask})
    (op,) = attentions(after)
    assert op.causal is causal
    assert len(op.score.operands) == (0 if causal else 1)
    assert len(after.constants) == len(op.score.operands)


def test_a_mask_that_hides_nothing_goes(seed: int) -> None:
    graph = Graph()
    q, k, v = operands(graph, 1, 2)
    mask = graph.add_constant((S, T), dtype=DType.BOOL)
    attended(graph, pointwise(graph, select(Input(1), X, -INF), product(graph, q, swap(graph, k)), mask), v)
    (op,) = attentions(same_meaning(graph, seed, {mask.id: np.ones((S, T), dtype=np.bool_)}))
    assert not op.causal
    assert op.score.is_identity


def test_a_constant_mask_without_a_key_for_some_query_keeps_its_nan(seed: int) -> None:
    graph = Graph()
    q, k, v = operands(graph, 1, 2)
    mask = graph.add_constant((S, T), dtype=DType.BOOL)
    attended(graph, pointwise(graph, select(Input(1), X, -INF), product(graph, q, swap(graph, k)), mask), v)
    seen = np.ones((S, T), dtype=np.bool_)
    seen[2] = False
    assert not attentions(same_meaning(graph, seed, {mask.id: seen}))


def read_twice(graph: Graph) -> None:
    q, k, v = operands(graph, 1, 2)
    weights = graph.add_row(RowKind.SOFTMAX, product(graph, q, swap(graph, k)))
    graph.set_outputs(product(graph, weights, v), weights)


def of_columns(graph: Graph) -> None:
    q, k, v = operands(graph, 1, 2)
    columns = graph.add_row(RowKind.SOFTMAX, swap(graph, product(graph, q, swap(graph, k))))
    graph.set_outputs(product(graph, swap(graph, columns), v))


def logarithms(graph: Graph) -> None:
    q, k, v = operands(graph, 1, 2)
    graph.set_outputs(product(graph, graph.add_row(RowKind.LOG_SOFTMAX, product(graph, q, swap(graph, k))), v))


def a_softmax_of_other_rows(graph: Graph) -> None:
    q, k, v = operands(graph, 1, 2)
    flat = graph.add_view(ViewKind.RESHAPE, product(graph, q, swap(graph, k)), shape=(2, S * T))
    weights = graph.add_view(ViewKind.RESHAPE, graph.add_row(RowKind.SOFTMAX, flat), shape=(1, 2, S, T))
    graph.set_outputs(product(graph, weights, v))


def wide_heads(graph: Graph) -> None:
    q, k, v = (graph.add_input((1, 1, 2, size)) for size in (257, 257, 2))
    graph.set_outputs(attended(graph, product(graph, q, swap(graph, k)), v))


def flipped_keys(graph: Graph) -> None:
    q, k, v = operands(graph, 1, 2)
    flip = graph.add_view(ViewKind.SLICE, k, starts=(0, 0, T - 1, 0), steps=(1, 1, -1, 1), shape=k.type.shape)
    graph.set_outputs(attended(graph, product(graph, q, swap(graph, flip)), v))


def heads_in_groups(graph: Graph) -> None:
    q, k, v = (graph.add_input((1, 2, groups, size, D)) for groups, size in ((3, S), (1, T), (1, T)))
    graph.set_outputs(attended(graph, product(graph, q, graph.add_view(ViewKind.PERMUTE, k, axes=(0, 1, 2, 4, 3))), v))


@pytest.mark.parametrize(
    "build", [heads_in_groups, read_twice, of_columns, logarithms, a_softmax_of_other_rows, wide_heads, flipped_keys]
)
def test_what_only_looks_like_attention_stays(build: Callable[[Graph], None], seed: int) -> None:
    graph = Graph()
    build(graph)
    bound = data_of(graph, seed)
    after = run_pipeline(graph).graph
    assert not attentions(after)
    for found, expected in zip(run(after, bound).values(), run(graph, bound).values(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
