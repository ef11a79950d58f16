"""Outputs as buffers: a run writes each into memory of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import PointwiseOp, SourceOp, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.passes.memory import is_whole, joins_of, root_of

__all__ = ["MaterializeOutputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeOutputs:
    """Make an output a copy where it is a source, or a view that is not the whole of a value that is no output itself.

    A view of a part of a join is copied too: the part lies in the joined tensor.

    A copied view keeps its id, and what it was becomes ``<id>.view``; a source keeps its id, since it is bound by it,
    and the output becomes ``<id>.copy``.
    """

    name: str = "materialize outputs"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with an own buffer for every output, in the same order."""
        draft = Draft(graph)
        joined = joins_of(graph)
        taken = {node.id for node in graph.outputs if not isinstance(node.op, SourceOp | ViewOp)}
        for node in graph.outputs:
            root = root_of(graph, node)
            if node.id in taken:
                continue
            if isinstance(node.op, SourceOp):
                _copy_source(draft, node)
            elif isinstance(graph[root].op, SourceOp) or root in {*taken, *joined} or not is_whole(graph, node, root):
                _copy_view(draft, node)
            else:
                taken.add(root)
        return draft.finish()


def _copy_of(node: Node) -> PointwiseOp:
    return PointwiseOp(expr=Input(0), inputs=(node.type,), out_dtype=node.type.dtype)


def _copy_source(draft: Draft, node: Node) -> None:
    made = draft.fresh(f"{node.id}.copy")
    draft.put(Node(id=made, op=_copy_of(node), inputs=(node.id,)))
    draft.outputs = tuple(made if name == node.id else name for name in draft.outputs)


def _copy_view(draft: Draft, node: Node) -> None:
    view = draft.fresh(f"{node.id}.view")
    draft.put(replace(node, id=view, inputs=draft.nodes[node.id].inputs, fused=()))
    draft.redirect(node.id, view)  # its users have the view's type, not the copy's
    draft.put(Node(id=node.id, op=_copy_of(node), inputs=(view,), fused=node.fused))
