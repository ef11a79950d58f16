"""Our side of a benchmark: the schedule measured fastest here, else the default one; results go where the peer's go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import tracea
from tracea.bench.peers.peer import Allocation, Contender
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import Epilogue, GemmOp, PointwiseOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import Decision, host
from tracea.flow.compile import compile_node, decision_for
from tracea.runtime.buffers import aligned_empty
from tracea.targets.target import for_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["BASELINES", "baselines", "contender"]

_COPY: Final = "copy"
_PLAIN: Final = "plain product"
BASELINES: Final = (_COPY, _PLAIN)


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


def baselines(problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int) -> dict[str, Contender]:
    """Return what ours is measured by beside the peers, in the same turns, under names of ``BASELINES``.

    Beside an op that reads and writes once, a copy; beside a product with an epilogue, the product without it.
    """
    if problem.ceiling == "copy":
        return {_COPY: _copy(problem.op.bytes, threads)}
    if isinstance(problem.op, GemmOp) and not problem.op.epilogue.is_identity:
        plain = replace(problem, op=replace(problem.op, epilogue=Epilogue.identity()))
        return {_PLAIN: contender(plain, arrays[:2], threads)}
    return {}


def _copy(nbytes: int, threads: int) -> Contender:
    """Return our copy kernel over arrays that hold ``nbytes`` together: half of them are read, half written.

    What bounds an op that reads and writes once, measured in the op's own turns: memory that other programs use, and
    lines that the one before leaves in the caches, cost both alike.
    """
    shape = (max(1, nbytes // 2 // DType.F32.nbytes),)
    source, target = aligned_empty(shape, DType.F32), aligned_empty(shape, DType.F32)
    source.fill(1.0)
    op = PointwiseOp(expr=Input(index=0), inputs=(TensorType(shape, DType.F32),), out_dtype=DType.F32)
    compiled = compile_node(op, {}, threads=threads, library=False)
    run = compiled.program.bound(source, out=target, threads=threads)
    name = _name("copy", compiled.plan["y"])
    return Contender(name=name, version=tracea.__version__, run=run, result=target.copy, allocation=Allocation.OUT)


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
