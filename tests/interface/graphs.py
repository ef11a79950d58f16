"""Random small graphs with their data: products, rows, chains, reductions and views of inputs and constants."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import ReduceKind, RowKind, ViewKind

__all__ = ["Case", "cases"]

EXTENTS = (1, 3, 8, 17)


@dataclass
class Case:
    """A graph with data for its inputs and constants, by id."""

    graph: Graph
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A graph of up to six steps over matrices."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    case = Case(Graph())

    def source(shape: tuple[int, ...], *, constant: bool) -> Node:
        add = case.graph.add_constant if constant else case.graph.add_input
        node = add(shape)
        (case.constants if constant else case.inputs)[node.id] = rng.standard_normal(shape).astype(np.float32)
        return node

    rows, columns = draw(st.sampled_from(EXTENTS)), draw(st.sampled_from(EXTENTS))
    values = [source((rows, columns), constant=False)]
    for _ in range(draw(st.integers(1, 6))):
        x = draw(st.sampled_from(values))
        m, n = x.type.static_shape
        match draw(st.sampled_from(["gemm", "linear", "row", "unary", "binary", "reduce", "permute", "slice"])):
            case "gemm":
                made = case.graph.add_gemm(x, source((n, draw(st.sampled_from(EXTENTS))), constant=False))
            case "linear":
                out = draw(st.sampled_from(EXTENTS))
                weight, bias = source((out, n), constant=True), source((out,), constant=True)
                name = draw(st.sampled_from([None, "relu", "gelu"]))
                made = case.graph.add_gemm(x, weight, transpose_b=True, bias=bias, activation=name)
            case "row":
                kind = draw(st.sampled_from([RowKind.SOFTMAX, RowKind.LAYER_NORM, RowKind.RMS_NORM]))
                scaled = kind is not RowKind.SOFTMAX
                weight = source((n,), constant=True) if scaled else None
                made = case.graph.add_row(kind, x, weight=weight, eps=1e-2 if scaled else 0.0)
            case "unary":
                made = case.graph.add_pointwise(draw(st.sampled_from(["relu", "tanh", "sigmoid", "silu"])), x)
            case "binary":
                same = [value for value in values if value.type.shape == (m, n)]
                made = case.graph.add_pointwise(Input(0) * 0.5 + Input(1), x, draw(st.sampled_from(same)))
            case "reduce":
                kind = draw(st.sampled_from([ReduceKind.SUM, ReduceKind.MAX, ReduceKind.MEAN]))
                made = case.graph.add_reduce(kind, x, (draw(st.integers(0, 1)),), keepdims=True)
            case "permute":
                made = case.graph.add_view(ViewKind.PERMUTE, x, axes=(1, 0))
            case _:
                start = draw(st.integers(0, m - 1))
                made = case.graph.add_view(ViewKind.SLICE, x, starts=(start, 0), steps=(1, 1), shape=(m - start, n))
        values.append(made)
    if draw(st.booleans()):
        case.graph.set_outputs(
            *draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=lambda v: v.id))
        )
    return case
