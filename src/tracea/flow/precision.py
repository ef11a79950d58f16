"""Precision in a graph: the conversions that a decision's fallback needs become nodes before the product."""

from __future__ import annotations

from collections.abc import Mapping

from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import GemmOp, PointwiseOp
from tracea.core.passes.draft import Draft
from tracea.doctor import Decision
from tracea.doctor.precision import with_factors

__all__ = ["with_casts"]


def with_casts(graph: Graph, decisions: Mapping[str, Decision]) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph in which converted factors are values of their own, and the ids of the new nodes.

    A product keeps its id, so that whatever reads it still finds it; decisions that convert nothing change nothing.
    """
    draft = Draft(graph)
    added: list[str] = []
    for name, decision in decisions.items():
        precision = decision.precision
        if precision is None or not precision.casts:
            continue
        node = draft.nodes[name]
        op = node.op
        assert isinstance(op, GemmOp)  # the ladder is of factors
        inputs = list(node.inputs)
        for index in precision.casts:
            inputs[index] = draft.fresh(f"{name}.{precision.used.value}.{index}")
            cast = PointwiseOp(expr=Input(0), inputs=(op.operands[index],), out_dtype=precision.used)
            draft.put(Node(id=inputs[index], op=cast, inputs=(node.inputs[index],)))
            added.append(inputs[index])
        computed = with_factors(op, precision.used)
        draft.put(Node(id=name, op=computed, inputs=tuple(inputs), fused=node.fused))
    return draft.finish(), tuple(added)
