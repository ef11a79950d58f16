"""Accuracy: every convolution of a graph asks for one contract."""

from __future__ import annotations

from dataclasses import replace

from tracea.core.contract import Accuracy
from tracea.core.graph import Graph
from tracea.core.op import Conv2dOp
from tracea.core.passes.draft import Draft

__all__ = ["with_accuracy"]


def with_accuracy(graph: Graph, accuracy: Accuracy) -> Graph:
    """Return the graph with convolutions of that contract; the same graph where they ask for it already."""
    asked = [node for node in graph if isinstance(node.op, Conv2dOp) and node.op.accuracy is not accuracy]
    if not asked:
        return graph
    draft = Draft(graph)
    for node in asked:
        assert isinstance(node.op, Conv2dOp)
        draft.put(replace(node, op=replace(node.op, accuracy=accuracy)))
    return draft.finish()
