"""A pass that reduces in stages where a reduction over several axes has no kernel.

``x[:, 1:3, 2:5].sum()`` walks memory in three loops, and kernels reduce over two at most. The same comes of fusion:
``((x - mean) / deviation).mean()`` reads operands that repeat along other axes than x has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracea.core.expr import Input
from tracea.core.graph import Graph, Node
from tracea.core.op import Epilogue, PointwiseOp, ReduceOp, SourceOp, StatisticsOp
from tracea.core.passes.draft import Draft
from tracea.core.tensor_type import TensorType
from tracea.flow.reduction import add_reduction, add_statistics, wide_type
from tracea.kernels.registry import candidates

if TYPE_CHECKING:
    from tracea.targets.target import Target

__all__ = ["StageReductions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReductions:
    """Put several nodes in the place of each reduction and each op of statistics that no kernel of ``target`` takes."""

    target: Target
    name: str = "stage reductions"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph in which every reduction has a kernel, if its types have one."""
        draft = Draft(graph)
        for name in draft.order():
            node = draft.nodes[name]
            if isinstance(node.op, ReduceOp | StatisticsOp) and self._lacks_a_kernel(node.op):
                _exchange(draft, node, node.op)
        return draft.finish()

    def _lacks_a_kernel(self, op: ReduceOp | StatisticsOp) -> bool:
        known = all(type_.is_static and type_.elements for type_ in op.operands)
        return known and not candidates(op, self.target)


def _exchange(draft: Draft, node: Node, op: ReduceOp | StatisticsOp) -> None:
    """Put the stages before a node and the last of them in its place."""
    stages = Graph()
    sources = [stages.add_input(type_) for type_ in op.operands]
    names = {source.id: name for source, name in zip(sources, node.inputs, strict=True)}
    last = _staged(stages, op, sources)
    for stage in stages:
        if isinstance(stage.op, SourceOp):
            continue
        name = node.id if stage.id == last.id else draft.fresh(f"{node.id}.stage")
        inputs = tuple(names[each] for each in stage.inputs)
        draft.put(Node(id=name, op=stage.op, inputs=inputs, fused=node.fused if name == node.id else ()))
        names[stage.id] = name


def _staged(graph: Graph, op: ReduceOp | StatisticsOp, sources: list[Node]) -> Node:
    if isinstance(op, StatisticsOp):
        return add_statistics(graph, op, sources, threads=1)
    nodes, extras = sources[: len(op.x)], sources[len(op.x) :]
    bare = replace(op, epilogue=Epilogue(Input(0)), out=None)
    wide = TensorType(op.shape, wide_type(*(node.type.dtype for node in nodes), bare.infer().dtype))
    reduced = add_reduction(
        graph,
        op.kind,
        nodes,
        op.axes,
        prologue=op.prologue,
        epilogue=None if extras else op.epilogue.expr,
        keepdims=op.keepdims,
        out=wide if extras else op.infer(),
        threads=1,
    )
    if not extras:
        return reduced
    inputs, result = [reduced, *extras], op.infer()
    types = tuple(node.type for node in inputs)
    return graph.add(PointwiseOp(expr=op.epilogue.expr, inputs=types, out_dtype=result.dtype, out=result), inputs)
