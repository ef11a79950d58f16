"""The order in which nodes run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tracea.core.graph import Graph
from tracea.core.op import Op, SourceOp
from tracea.core.passes.draft import Draft, in_order
from tracea.errors import InvalidShape

__all__ = ["Prioritize", "work"]

FLOPS_PER_BYTE = 16.0  # a core's arithmetic against its memory, to the nearest power of two: only ranks depend on it


def work(op: Op) -> float:
    """Return an op's cost in bytes: those that it moves, or those that memory could move while it computes.

    An op with symbolic extents counts as 1: its order then follows the number of steps that depend on it.
    """
    try:
        return max(1.0, float(op.bytes), op.flops / FLOPS_PER_BYTE)
    except InvalidShape:
        return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prioritize:
    """Among the nodes that are ready, run first the one with the most work behind it; ties keep their order."""

    cost: Callable[[Op], float] = work
    name: str = "prioritize"

    def apply(self, graph: Graph) -> Graph:
        """Return the same nodes in the new order; sources keep theirs, and inputs come before users."""
        draft = Draft(graph)
        remaining: dict[str, float] = {}
        for name in reversed(draft.order()):
            behind = max((remaining[user] for user in draft.users(name)), default=0.0)
            remaining[name] = behind + self.cost(draft.nodes[name].op)
        # Sources cost nothing and come first, in their own order: a run's inputs are bound by position.
        rank = {
            name: -math.inf if isinstance(draft.nodes[name].op, SourceOp) else -value
            for name, value in remaining.items()
        }
        order = in_order(draft.nodes.values(), rank)
        return Graph.of((draft.nodes[name] for name in order), draft.outputs)
