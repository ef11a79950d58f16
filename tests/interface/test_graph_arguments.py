"""Arguments of a graph's builder that are of the wrong kind, and graphs that no machine or no kernel holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracea
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.errors import InvalidGraph, InvalidOp, InvalidOption, InvalidShape, ResourceExceeded, TraceaError


def graph_of(*shapes: tuple[int, ...], dtype: DType = DType.F32) -> tuple[tracea.Graph, list[Any]]:
    graph = tracea.Graph()
    return graph, [graph.add_input(shape, dtype, name=f"x{index}") for index, shape in enumerate(shapes)]


REFUSED: dict[str, tuple[type[TraceaError], str, Callable[[tracea.Graph, Any, Any], Any]]] = {
    "no operand": (InvalidGraph, "got NoneType", lambda g, x, q: g.add_pointwise("relu", None)),
    "a function": (InvalidOp, "got function", lambda g, x, q: g.add_pointwise(lambda z: z, x)),
    "one axis": (InvalidOp, r"Remedy: axes=\(1,\)", lambda g, x, q: g.add_reduce("sum", x, 1)),
    "eps in words": (InvalidOp, "row.eps: got x", lambda g, x, q: g.add_row("softmax", x, eps="x")),
    "scale in words": (InvalidOp, "attention.scale: got x", lambda g, x, q: g.add_attention(q, q, q, scale="x")),
    "a scale of doubles": (InvalidOp, "a number that f32", lambda g, x, q: g.add_attention(q, q, q, scale=1e300)),
    "eps of a softmax": (InvalidOp, "softmax has no root", lambda g, x, q: g.add_row("softmax", x, eps=1e-5)),
    "no results": (InvalidGraph, "at least one node", lambda g, x, q: g.set_outputs()),
    "a start of a half": (
        InvalidShape,
        "whole numbers",
        lambda g, x, q: g.add_view("slice", x, starts=(0.5, 0), steps=(1, 1), shape=(1, 4)),
    ),
    "a step of 1.5": (
        InvalidShape,
        "whole numbers",
        lambda g, x, q: g.add_view("slice", x, starts=(0, 0), steps=(1.5, 1), shape=(2, 4)),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_of_another_kind_are_typed_errors(name: str) -> None:
    error, said, call = REFUSED[name]
    graph, (x, q) = graph_of((3, 4), (1, 1, 4, 4))
    with pytest.raises(error, match=said):
        call(graph, x, q)


def test_a_step_back_along_one_index_is_no_step() -> None:
    graph, (x,) = graph_of((3, 4, 3))
    last = graph.add_view("slice", x, starts=(2, 0, 0), steps=(-2, 1, 1), shape=(1, 4, 1))
    graph.add_reduce("sum", last, (0, 1, 2))
    given = np.arange(36, dtype=np.float32).reshape(3, 4, 3)
    assert float(tracea.Context(threads=1).optimize_graph(graph).run(given)) == given[2, :, 0].sum()


def test_results_that_exceed_the_memory_are_refused_before_anything_is_compiled() -> None:
    graph, (a, b) = graph_of((10**6, 10), (10, 10**7))
    graph.add_gemm(a, b)
    with pytest.raises(ResourceExceeded, match="40_000_000_000_000 bytes"):
        tracea.Context(threads=1).optimize_graph(graph)


def test_results_between_two_ops_that_exceed_the_memory_are_refused_too() -> None:
    graph, (a, b, c) = graph_of((2**20, 1), (1, 2**20), (2**20, 1))
    graph.add_gemm(graph.add_gemm(a, b), c)
    with pytest.raises(ResourceExceeded, match=r"the intermediate results of .*: got 4_398_046_511_104 bytes"):
        tracea.Context(threads=1).optimize_graph(graph)


@pytest.mark.parametrize("dtype", [DType.E4M3, DType.E5M2])
def test_an_element_type_that_no_cpu_kernel_stores_is_a_requirement_that_is_not_met(dtype: DType) -> None:
    graph, (x,) = graph_of((4, 4))
    graph.add_pointwise(Input(0), x, out_dtype=dtype)
    with pytest.raises(InvalidOption, match=f"element types: needs .*found {dtype.value}"):
        tracea.Context(threads=1).optimize_graph(graph)
    graph, (x,) = graph_of((4, 4), dtype=dtype)
    graph.add_reduce("sum", x, (1,))
    with pytest.raises(InvalidOption, match=f"element types: needs .*found {dtype.value}"):
        tracea.Context(threads=1).optimize_graph(graph)


def test_a_loaded_program_takes_inputs_in_order_alone(tmp_path: Any) -> None:
    graph, (x,) = graph_of((3, 4))
    graph.add_pointwise("relu", x)
    program = tracea.Context(threads=1).optimize_graph(graph)
    with pytest.raises(InvalidOption, match="path: got None"):
        program.save(None)  # pyright: ignore[reportArgumentType]
    program.save(tmp_path / "relu.tracea")
    given = np.full((3, 4), -1.0, np.float32)
    loaded = tracea.load(tmp_path / "relu.tracea")
    assert not loaded.run(given).any()
    with pytest.raises(InvalidOption, match="in the order of the graph"):
        loaded.run({"x0": given})
