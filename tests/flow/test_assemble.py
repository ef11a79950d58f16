"""What an assembled program keeps: packed weights once each, and not what they were packed from."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tracea.core.graph import Graph
from tracea.doctor import host
from tracea.errors import CompileError
from tracea.flow import packing
from tracea.flow.assemble import compute_nodes
from tracea.flow.compile import Compiled, compile_graph, decision_for, for_threads
from tracea.runtime.program import Program


def compiled(values: dict[str, np.ndarray]) -> Compiled:
    """Compile two products by one weight, which are packed ahead for."""
    graph = Graph()
    weight, bias = graph.add_constant((64, 96), name="w"), graph.add_constant((96,), name="b")
    inputs = [graph.add_input((24, 64), name=name) for name in ("x", "y")]
    nodes = [graph.add_gemm(each, weight, bias=bias, name=f"{each.id}w") for each in inputs]
    graph.set_outputs(*nodes)
    where = for_threads(host(), 1)
    decisions = {
        node.id: decision_for(node.op, where, threads=1, constants=(1, 2), variant="gemm.prepacked") for node in nodes
    }
    return compile_graph(graph, values, threads=1, decisions=decisions)


def check(program: Program, values: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    x, y = (rng.standard_normal((24, 64)).astype(np.float32) for _ in range(2))
    for given, result in zip((x, y), program.run(x, y), strict=True):
        assert np.abs(result - (given.astype(np.float64) @ values["w"] + values["b"])).max() < 1e-4


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_program_keeps_a_packed_weight_once_and_no_other_copy(rng: np.random.Generator, order: str) -> None:
    weight = np.asarray(rng.standard_normal((64, 96)), np.float32, order=order)
    values = {"w": weight, "b": rng.standard_normal(96).astype(np.float32)}
    program = compiled(values).program
    check(program, values, rng)
    assert len(program.constants) == 2  # the weight in panels, and the bias
    assert sum(constant.nbytes for constant in program.constants) < 1.5 * weight.nbytes


def test_a_packed_weight_is_frozen_as_it_was(rng: np.random.Generator) -> None:
    values = {"w": rng.standard_normal((64, 96)).astype(np.float32), "b": np.zeros(96, np.float32)}
    before = {name: array.copy() for name, array in values.items()}
    program = compiled(values).program
    values["w"][...] = np.nan
    check(program, before, rng)


def two_layers(rng: np.random.Generator, name: str) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return x @ first @ second: two weights of two shapes, which two kernels pack."""
    graph = Graph()
    first, second = graph.add_constant((64, 96), name="first"), graph.add_constant((96, 48), name="second")
    x = graph.add_input((24, 64), name="x")
    graph.set_outputs(graph.add_gemm(graph.add_gemm(x, first, name=f"{name}1"), second, name=f"{name}2"))
    shapes = {"first": (64, 96), "second": (96, 48)}
    return graph, {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}


def compiled_prepacked(graph: Graph, values: dict[str, np.ndarray]) -> Program:
    where = for_threads(host(), 1)
    decisions = {
        node.id: decision_for(node.op, where, threads=1, constants=(1,), variant="gemm.prepacked")
        for node in compute_nodes(graph)
    }
    return compile_graph(graph, values, threads=1, decisions=decisions).program


def test_several_weights_are_packed_by_a_thread_that_has_ended(rng: np.random.Generator) -> None:
    graph, values = two_layers(rng, "several")
    program = compiled_prepacked(graph, values)
    assert not [thread for thread in threading.enumerate() if "packing" in thread.name]
    before = {name: array.copy() for name, array in values.items()}
    for array in values.values():
        array[...] = np.nan
    x = rng.standard_normal((24, 64)).astype(np.float32)
    wanted = x.astype(np.float64) @ before["first"] @ before["second"]
    assert np.abs(program.run(x) - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert len(program.constants) == 2


def test_what_fails_in_the_packing_thread_is_raised(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(sources: object) -> None:
        raise CompileError(command=("c++",), log="no such instruction", exit_code=1)

    monkeypatch.setattr(packing, "compile", broken)
    graph, values = two_layers(rng, "failing")
    with pytest.raises(CompileError, match="no such instruction"):
        compiled_prepacked(graph, values)
    assert not [thread for thread in threading.enumerate() if "packing" in thread.name]
