"""Passes that drop what nobody needs: dead nodes and nodes that say the same."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.graph import Graph
from tracea.core.op import Op, SourceKind, SourceOp
from tracea.core.passes.draft import Draft

__all__ = ["EliminateCommon", "EliminateDead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminateDead:
    """Drop nodes that no output depends on; inputs stay, since they are the program's signature."""

    name: str = "eliminate dead"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph of what the outputs need, in the same order."""
        draft = Draft(graph)
        for name in reversed(draft.order()):
            op = draft.nodes[name].op
            is_input = isinstance(op, SourceOp) and op.kind is SourceKind.INPUT
            if not draft.users(name) and name not in draft.outputs and not is_input:
                draft.remove(name)
        return draft.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class EliminateCommon:
    """Let one node stand for all that apply the same op to the same inputs; sources and outputs keep their ids."""

    name: str = "eliminate common"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph without repeated work."""
        draft = Draft(graph)
        first: dict[tuple[Op, tuple[str, ...]], str] = {}
        for name in draft.order():
            node = draft.nodes[name]
            if isinstance(node.op, SourceOp):
                continue
            other = first.setdefault((node.op, node.inputs), name)
            if other != name and name not in draft.outputs:
                draft.stand_in(name, other)
        return draft.finish()
