"""Library time: a kernel that was judged, timed in turns with the best library's call of its op, in a child process.

Products have library variants. An op that none runs is timed against what the caller names: ``tracea verify`` names
PyTorch's own call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tracea.core.op import GemmOp
from tracea.doctor.installed import INSTALL_TORCH
from tracea.flow.evaluate import Candidate, Request
from tracea.flow.final import LIBRARY_MODULES, rivals
from tracea.gates.verdict import Check
from tracea.optimizer.isolation import IsolatedFunction, Limits
from tracea.optimizer.trial import OutcomeKind

if TYPE_CHECKING:
    from tracea.core.op import Op
    from tracea.targets.target import Target

__all__ = ["RivalCall", "time_against"]

_AGAINST_LIBRARIES: Final = "tracea.flow.evaluate:against_libraries"  # what the child runs
_LATENCY_S: Final = 300.0


class RivalCall(Protocol):
    """Time a candidate, which is judged, against another implementation of its op; or say why that is not possible."""

    def __call__(
        self, op: Op, candidate: Candidate, /, *, constants: tuple[int, ...], threads: int, seed: int
    ) -> Check | str:
        """Return the latency gate's check, or why there is none."""
        ...


def time_against(
    op: Op,
    candidate: Candidate,
    target: Target,
    *,
    constants: tuple[int, ...],
    threads: int,
    seed: int,
    rival: RivalCall | None = None,
) -> Check | str:
    """Return the latency gate's check against the libraries' calls of an op, else ``rival``'s, or why there is none."""
    libraries = rivals(op, target, constants)
    if not libraries and isinstance(op, GemmOp):
        return f"latency: no library's call of {op.key} is here. Remedy: {INSTALL_TORCH}"
    if not libraries and rival is None:
        return f"latency: no library's call of {op.key} is known, and the caller named nothing else to compare with"
    if not libraries and rival is not None:
        return rival(op, candidate, constants=constants, threads=threads, seed=seed)
    request = Request(
        op=op.to_dict(),
        constants=constants,
        threads=threads,
        seed=seed,
        candidates=(candidate, *(Candidate(variant=name) for name in libraries)),
        modules=LIBRARY_MODULES,
    )
    with IsolatedFunction(_AGAINST_LIBRARIES, Limits(seconds=_LATENCY_S)) as function:
        answer = function.call(msgspec.to_builtins(request))
    if answer.kind is not OutcomeKind.OK:
        return f"latency: {answer.kind}: {answer.detail}"
    return msgspec.json.decode(answer.value, type=Check)
