"""Peer: a library's way to run a problem."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracea.bench.problem import Problem

__all__ = ["Allocation", "Contender", "Family", "Peer"]


class Allocation(enum.Enum):
    """Where results go: memory that is given once, or new memory in each call."""

    OUT = "out"
    FRESH = "fresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A problem made ready by one implementation: ``run`` is timed, ``result`` reads what it computed."""

    name: str
    version: str
    run: Callable[[], Any]
    result: Callable[[], NDArray[np.float32]]
    allocation: Allocation


Build: TypeAlias = "Callable[[Problem, Sequence[NDArray[np.float32]], int], Contender]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A way to run the problems that it ``supports``; ``build`` takes a problem, its arrays and the threads."""

    name: str
    supports: Callable[[Problem], bool]
    build: Build


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A library's peers, and what surrounds their runs: its threads, and its fastest mode of execution."""

    peers: tuple[Peer, ...]
    surroundings: Callable[[int], AbstractContextManager[None]]
