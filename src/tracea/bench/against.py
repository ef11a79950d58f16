"""Against: a verified kernel timed in turns with PyTorch's own call of the same op, where no library variant runs it.

Products have library variants, which the latency gate calls without PyTorch's Python. Convolutions, attention and rows
have none: here PyTorch's calls are those of the benchmark's peers, on the same arrays, with results in memory of the
same kind.
"""

from __future__ import annotations

import time
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tracea.bench.peers import peers, surroundings
from tracea.bench.peers.peer import Allocation
from tracea.bench.problem import Problem
from tracea.bench.same_result import error_and_limit
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import AttentionOp, Conv2dOp, RowKind, RowOp, from_dict
from tracea.core.reference import evaluate
from tracea.doctor.installed import INSTALL_TORCH
from tracea.flow.compile import compile_node
from tracea.flow.evaluate import Candidate, Request
from tracea.gates import Check, check_latency
from tracea.optimizer.isolation import IsolatedFunction, Limits
from tracea.optimizer.trial import OutcomeKind
from tracea.semantic.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.peers.peer import Peer
    from tracea.core.op import Op

__all__ = ["against_torch", "time_against_torch", "torch_peers"]

_FAMILY: Final = ("torch",)
_CHILD: Final = "tracea.bench.against:time_against_torch"
_SECONDS: Final = 300.0
_SCALED: Final = Input(0) * Input(1)
# The epilogues that PyTorch's one call has: none for softmax, the weight and the bias of a norm.
_ROW_CALLS: Final = {RowKind.SOFTMAX: Input(0), RowKind.LAYER_NORM: _SCALED + Input(2), RowKind.RMS_NORM: _SCALED}


def torch_peers(op: Op, constants: Sequence[int] = ()) -> tuple[Peer, ...]:
    """Return PyTorch's ways to compute exactly ``op``; none where no call of it does, or not in this element type."""
    types = (*op.operands, op.infer())
    if not all(type_.dtype is DType.F32 and type_.is_static for type_ in types):
        return ()
    if isinstance(op, RowOp):
        if len(op.x) != 1 or op.epilogue.expr != _ROW_CALLS.get(op.kind) or any(t.rank > 2 for t in types):
            return ()
    elif not isinstance(op, AttentionOp | Conv2dOp):
        return ()
    problem = Problem(name=op.key, group="verify", op=op, constant=tuple(constants))
    return tuple(peer for peer in peers(_FAMILY) if peer.supports(problem))


def against_torch(op: Op, candidate: Candidate, *, constants: tuple[int, ...], threads: int, seed: int) -> Check | str:
    """Return the latency gate's check against PyTorch's fastest call of the op, or why there is none."""
    if find_spec("torch") is None:
        return f"latency: PyTorch is not installed. Remedy: {INSTALL_TORCH}"
    if not torch_peers(op, constants):
        return (
            f"latency: {op.key} has no library call to be timed against: of PyTorch's, those of float32 softmax, "
            "layer_norm, rms_norm, attention without a score function, and conv2d with a bias and a ReLU are known here"
        )
    request = Request(op=op.to_dict(), constants=constants, threads=threads, seed=seed, candidates=(candidate,))
    with IsolatedFunction(_CHILD, Limits(seconds=_SECONDS)) as function:
        answer = function.call(msgspec.to_builtins(request))
    if answer.kind is not OutcomeKind.OK:
        return f"latency: {answer.kind}: {answer.detail}"
    return msgspec.json.decode(answer.value, type=Check | str)  # pyright: ignore[reportReturnType]


def time_against_torch(data: Any) -> dict[str, Any] | str:
    """Time a request's candidate, which is judged, in turns with PyTorch's calls; what the child runs.

    Returns the fields of the latency gate's Check, or which call computed something else.
    """
    request = msgspec.convert(data, Request)
    op = from_dict(request.op)
    problem = Problem(name=op.key, group="verify", op=op, constant=request.constants)
    arrays = problem.arrays(request.seed)
    expected = evaluate(op, arrays)
    with surroundings(_FAMILY, request.threads):
        calls = [peer.build(problem, arrays, request.threads) for peer in torch_peers(op, request.constants)]
        for call in calls:
            error, limit = error_and_limit(call.result(), expected)
            if not error <= limit:
                return (
                    f"latency: {call.name} is {error:.3g} from float64, above {limit:.3g}: it computes something else"
                )
        fresh = {call.allocation for call in calls} == {Allocation.FRESH}
        check, _ = check_latency(
            _ours(problem, arrays, request, fresh=fresh),
            {call.name: call.run for call in calls},
            threads=request.threads,
            clock=time.thread_time_ns if request.threads == 1 else time.perf_counter_ns,
        )
    return msgspec.to_builtins(check)


def _ours(
    problem: Problem, arrays: Sequence[NDArray[np.float32]], request: Request, *, fresh: bool
) -> Callable[[], object]:
    """Return a call of the candidate, into new memory where PyTorch's calls all return new memory."""
    (candidate,) = request.candidates
    constants = {index: arrays[index] for index in request.constants}
    free: list[Any] = [array for index, array in enumerate(arrays) if index not in constants]
    schedule = Schedule.parse(candidate.schedule) if candidate.schedule else None
    compiled = compile_node(
        problem.op, constants, threads=request.threads, variant=candidate.variant, schedule=schedule
    )
    if fresh:
        torch: Any = import_module("torch")
        return compiled.program.bound(*map(torch.from_numpy, free), out=None, threads=request.threads)
    return compiled.program.bound(*free, out=problem.result(), threads=request.threads)
