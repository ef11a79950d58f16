"""The passes in the order that pays, and a report of what they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracea.core.graph import Graph
from tracea.core.op import WITHOUT_KERNEL, Conv2dOp
from tracea.core.passes.columns import LayColumns
from tracea.core.passes.draft import Pass
from tracea.core.passes.eliminate import EliminateCommon, EliminateDead
from tracea.core.passes.fold import FoldConstants
from tracea.core.passes.fuse import FuseEpilogue, FusePointwise, FuseRows
from tracea.core.passes.fuse_attention import FuseAttention
from tracea.core.passes.fuse_images import FuseImages
from tracea.core.passes.fuse_pairs import FusePairs
from tracea.core.passes.outputs import MaterializeOutputs
from tracea.core.passes.place import DropCopies, PlaceParts
from tracea.core.passes.prioritize import Prioritize
from tracea.core.passes.reach import ShortenSteps
from tracea.core.passes.sink_joins import SinkJoins
from tracea.core.passes.views import EliminateViews, SinkReshapes

__all__ = ["Fusion", "PipelineResult", "Step", "default_pipeline", "fusions", "run_pipeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """One node that stands for several of the graph that came in."""

    node: str
    op: str
    parts: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What it has in common with its like in other layers: ``gemm of gemm + gelu``, without numbers and views."""
        names = dict.fromkeys(part.partition(".")[0] for part in self.parts)
        return f"{self.op} of {' + '.join(name.rstrip('0123456789').rstrip('_') or name for name in names)}"

    def __str__(self) -> str:
        """Render as ``gelu_0: gemm of gemm_0 + gelu_0``."""
        return f"{self.node}: {self.op} of {' + '.join(self.parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one pass did: kernels are the nodes that do work, so neither sources, views nor joins."""

    name: str
    kernels_before: int
    kernels_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """The graph that came out, the data of the constants that folding made, and what each pass did."""

    graph: Graph
    values: Mapping[str, np.ndarray[Any, Any]]
    steps: tuple[Step, ...]
    fusions: tuple[Fusion, ...]

    def __str__(self) -> str:
        """Render the steps that changed the number of kernels, then the fusions."""
        return self._text(tuple(map(str, self.fusions)))

    @property
    def summary(self) -> str:
        """The same with fusions of one kind in one line."""
        return self._text(self.fusions_by_kind)

    @property
    def fusions_by_kind(self) -> tuple[str, ...]:
        """A line for each kind of fusion, in the order of its first: that one by itself, or how often there is one."""
        kinds: dict[str, list[Fusion]] = {}
        for fusion in self.fusions:
            kinds.setdefault(fusion.kind, []).append(fusion)
        return tuple(
            str(alike[0]) if len(alike) == 1 else f"{kind}: {len(alike)} times, first {alike[0].node}"
            for kind, alike in kinds.items()
        )

    def _text(self, fused: Sequence[str]) -> str:
        changed = [step for step in self.steps if step.kernels_before != step.kernels_after]
        lines = [f"{step.name}: {step.kernels_before} -> {step.kernels_after} kernels" for step in changed]
        return "\n".join([*lines, *fused])


def default_pipeline() -> tuple[Pass, ...]:
    """Return the passes in order.

    Pointwise chains come first, since a diamond such as ``x·sigmoid(x)`` must be one node before it can be an epilogue;
    they come again at the end for what no GEMM and no row op took. Before them each convolution takes what is its own,
    such as its batch norm: of two whose results are added, one would take both norms and leave the other none.
    """
    return (
        EliminateDead(),
        EliminateCommon(),
        ShortenSteps(),
        FoldConstants(),
        EliminateViews(),
        SinkReshapes(),
        EliminateViews(),
        EliminateDead(),  # a dead reader would keep a value from being fused
        FuseEpilogue(producers=(Conv2dOp,)),
        FuseImages(),
        FusePointwise(),
        FuseAttention(),
        EliminateViews(),  # a transpose of a transpose, where the two products had one each
        EliminateDead(),
        FuseEpilogue(),
        SinkJoins(),
        FuseImages(),
        LayColumns(),
        EliminateViews(),  # a permuted result of a permuted result
        FuseRows(),
        FusePointwise(),
        FoldConstants(),
        EliminateCommon(),
        FusePairs(),
        DropCopies(),
        PlaceParts(),
        MaterializeOutputs(),
        EliminateDead(),
        Prioritize(),
    )


def run_pipeline(
    graph: Graph, values: Mapping[str, Any] | None = None, passes: Sequence[Pass] | None = None
) -> PipelineResult:
    """Return the graph after the passes (by default :func:`default_pipeline`), with a report.

    ``values`` gives data of constants by id, as far as they are known: what depends on them alone is then folded.
    """
    known: dict[str, Any] = dict(values or {})
    made: dict[str, np.ndarray[Any, Any]] = {}
    steps: list[Step] = []
    for each in default_pipeline() if passes is None else passes:
        before = _kernels(graph)
        if isinstance(each, FoldConstants):
            folded = FoldConstants(values={**each.values, **known}).fold(graph)
            graph = folded.graph
            made |= folded.values
            known |= folded.values
        elif isinstance(each, FuseAttention):
            graph = replace(each, values={**each.values, **known}).apply(graph)
        else:
            graph = each.apply(graph)
        steps.append(Step(name=each.name, kernels_before=before, kernels_after=_kernels(graph)))
    kept = {name: made[name] for name in graph.constants if name in made}
    return PipelineResult(graph=graph, values=kept, steps=tuple(steps), fusions=fusions(graph))


def fusions(graph: Graph) -> tuple[Fusion, ...]:
    """Return the nodes that do the work of several, in the order in which they run."""
    return tuple(
        Fusion(node=node.id, op=node.op.name, parts=(*node.fused, node.id))
        for node in graph
        if node.fused and not isinstance(node.op, WITHOUT_KERNEL)
    )


def _kernels(graph: Graph) -> int:
    return sum(not isinstance(node.op, WITHOUT_KERNEL) for node in graph)
