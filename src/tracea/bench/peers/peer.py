"""Peer: a library's way to run a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["Contender", "Peer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A problem made ready by one implementation: ``run`` is timed, ``result`` reads what it computed.

    ``allocation`` says where results go: "out" is memory given once, "fresh" is new memory a call.
    """

    name: str
    version: str
    run: Callable[[], Any]
    result: Callable[[], NDArray[np.float32]]
    allocation: str


Build: TypeAlias = "Callable[[Problem, Sequence[NDArray[np.float32]], int], Contender]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A way to run the problems that it ``supports``; ``build`` takes a problem, its arrays and the threads."""

    name: str
    supports: Callable[[Problem], bool]
    build: Build
