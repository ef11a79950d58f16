"""Our side of a benchmark: the schedule measured fastest here, else the default one; results go where the peer's go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import tracea
from tracea.bench.peers.peer import Allocation, Contender
from tracea.doctor import Decision, host
from tracea.flow.compile import compile_node, decision_for, for_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["contender"]


def contender(
    problem: Problem,
    arrays: Sequence[NDArray[np.float32]],
    threads: int,
    *,
    allocation: Allocation = Allocation.OUT,
    library: bool = False,
) -> Contender:
    """Return ours for a problem; with ``library`` the library's variants take part in the decision.

    New memory is made as the peer makes it: by torch's allocator, as tensors.
    """
    if problem.face:
        return _through_face(problem, arrays, threads)
    constants = {index: arrays[index] for index in problem.constant}
    free: list[Any] = [array for index, array in enumerate(arrays) if index not in constants]
    compiled = compile_node(problem.op, constants, threads=threads, library=library)
    name = _name("tracea", compiled.plan["y"])
    if allocation is Allocation.FRESH:
        torch: Any = import_module("torch")
        tensors = [torch.from_numpy(array) for array in free]
        return _fresh(name, compiled.program.bound(*tensors, out=None, threads=threads))
    out = problem.result()
    run = compiled.program.bound(*free, out=out, threads=threads)

    def result() -> NDArray[np.float32]:
        out.fill(float("nan"))
        run()
        return out.copy()

    return Contender(name=name, version=tracea.__version__, run=run, result=result, allocation=Allocation.OUT)


def _through_face(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> Contender:
    """Return the call that a user writes; it decides as a call does, the library's variants included."""
    torch: Any = import_module("torch")
    a, b = (torch.from_numpy(array) for array in arrays)
    gemm = tracea.ops.gemm
    decision = decision_for(problem.op, for_threads(host(), threads), threads=threads)
    return _fresh(_name("tracea.ops.gemm", decision), lambda: gemm(a, b))


def _fresh(name: str, run: Callable[[], Any]) -> Contender:
    return Contender(
        name=name,
        version=tracea.__version__,
        run=run,
        result=lambda: run().numpy().copy(),
        allocation=Allocation.FRESH,
    )


def _name(what: str, decision: Decision) -> str:
    measured = "" if decision.chosen.latency_us is None else ", tuned"
    return f"{what} {decision.variant}{measured}"
