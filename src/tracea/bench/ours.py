"""Our side of a benchmark: the schedule measured fastest here, else the default one, into memory given once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

import tracea
from tracea.bench.peers.peer import Contender
from tracea.flow.compile import compile_node

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["contender"]


def contender(
    problem: Problem, arrays: Sequence[NDArray[np.float32]], threads: int, *, library: bool = False
) -> Contender:
    """Return ours for a problem; with ``library`` the library's variants take part in the decision."""
    constants = {index: arrays[index] for index in problem.constant}
    free = [array for index, array in enumerate(arrays) if index not in constants]
    compiled = compile_node(problem.op, constants, threads=threads, library=library)
    out = np.full(problem.op.infer().static_shape, np.nan, np.float32)
    run = compiled.program.bound(*free, out=out, threads=threads)

    def result() -> NDArray[np.float32]:
        out.fill(np.nan)
        run()
        return out.copy()

    decision = compiled.plan["y"]
    measured = "" if decision.chosen.latency_us is None else ", tuned"
    return Contender(
        name=f"tracea {decision.variant}{measured}",
        version=tracea.__version__,
        run=run,
        result=result,
        allocation="out",
    )
