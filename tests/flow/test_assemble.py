"""What an assembled program keeps: packed weights once each, and not what they were packed from."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tracea.core.graph import Graph
from tracea.core.op import GemmOp
from tracea.doctor import host
from tracea.errors import ProofFailed
from tracea.flow import assemble
from tracea.flow import kernel as kernel_module
from tracea.flow.compile import Compiled, compile_graph, compile_op, decision_for
from tracea.runtime.at_once import check_wanted
from tracea.runtime.program import Program
from tracea.semantic.proofs import Certificate
from tracea.semantic.tile_kernel import TileKernel
from tracea.targets.target import for_threads


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


def test_a_kernel_whose_proof_fails_is_in_no_program_though_its_compiler_began(monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()

    def waits(*_: object, **__: object) -> tuple[()]:
        began.set()
        for _ in range(3000):
            check_wanted()
            time.sleep(0.01)
        return ()

    def refuses(kernel: TileKernel) -> Certificate:
        assert began.wait(timeout=30)
        raise ProofFailed(proof="bounds", node=kernel.name, detail="of a test")

    monkeypatch.setattr(assemble, "compile", waits)
    monkeypatch.setattr(kernel_module, "prove", refuses)
    monkeypatch.setattr(kernel_module, "kept_certificate", lambda op, chosen, text, prove: prove())
    start = time.monotonic()
    with pytest.raises(ProofFailed, match="of a test"):
        compile_op(GemmOp.of(m=31, n=37, k=41), threads=1, library=False)
    assert time.monotonic() - start < 20  # the compiler was not waited for
