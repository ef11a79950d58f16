"""A whole graph explained: what is fused, and for each different kernel what one op's explanation says.

Two layers of the same op on operands that are known alike are one kernel here, as they are one search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracea.core.passes.pipeline import PipelineResult
from tracea.doctor import host
from tracea.doctor.roof import Roof
from tracea.errors import InvalidOption
from tracea.flow.assemble import compute_nodes, constant_operands
from tracea.flow.explanation import Explanation, explain, named_target
from tracea.flow.prepare import prepare

if TYPE_CHECKING:
    from tracea.core.graph import Graph, Node
    from tracea.core.op import Op

__all__ = ["ExplainedKernel", "GraphExplanation", "explain_graph"]

_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedKernel:
    """One kernel of the optimized graph: its op, the nodes that it runs, and what explains it.

    ``explanation`` is None where no variant fits the target; ``refused`` says why. ``constants`` are the operands that
    are known beforehand.
    """

    op: Op
    nodes: tuple[str, ...]
    explanation: Explanation | None
    refused: str = ""
    constants: tuple[int, ...] = ()

    @property
    def latency_us(self) -> float | None:
        """The time of all its nodes, None where there is none."""
        latency = None if self.explanation is None else self.explanation.latency_us
        return None if latency is None else latency * len(self.nodes)

    @property
    def least_us(self) -> float | None:
        """The limit of all its nodes, None where it is not known."""
        roof = None if self.explanation is None else self.explanation.roof
        return roof.least_us * len(self.nodes) if isinstance(roof, Roof) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphExplanation:
    """A graph's kernels with their explanations; prints as text that a newcomer can read.

    Where fusions of one kind repeat, the text says how often; :attr:`pipeline` has each.
    """

    name: str
    captured: int  # nodes that computed something before the passes
    pipeline: PipelineResult
    kernels: tuple[ExplainedKernel, ...]

    @property
    def nodes(self) -> int:
        """The nodes that a run computes."""
        return sum(len(kernel.nodes) for kernel in self.kernels)

    @property
    def latency_us(self) -> float | None:
        """The sum of the times, measured here or shipped with Tracea, None where one is missing."""
        return _sum([kernel.latency_us for kernel in self.kernels])

    @property
    def shipped(self) -> int:
        """How many of the kernels' times were not measured here, but came with Tracea."""
        return sum(kernel.explanation is not None and bool(kernel.explanation.shipped) for kernel in self.kernels)

    @property
    def least_us(self) -> float | None:
        """The sum of the kernels' limits, None where one is missing."""
        return _sum([kernel.least_us for kernel in self.kernels])

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain JSON values."""
        return {
            "schema_version": _SCHEMA_VERSION,
            "graph": self.name,
            "captured_nodes": self.captured,
            "fusions": [
                {"node": fusion.node, "op": fusion.op, "parts": list(fusion.parts)} for fusion in self.pipeline.fusions
            ],
            "latency_us": self.latency_us,
            "shipped": self.shipped,
            "least_us": self.least_us,
            "kernels": [
                {
                    "nodes": list(kernel.nodes),
                    "op": kernel.op.to_dict(),
                    "explanation": None if kernel.explanation is None else kernel.explanation.to_dict(),
                    "refused": kernel.refused,
                }
                for kernel in self.kernels
            ],
        }

    def __str__(self) -> str:
        from tracea.flow.explanation_text import render_graph

        return render_graph(self)


def explain_graph(
    graph: Graph,
    values: Mapping[str, Any] | None = None,
    *,
    name: str = "graph",
    target: str = "host",
    threads: int = 1,
    library: bool = True,
    measure: bool = True,
) -> GraphExplanation:
    """Explain what would run a graph on this machine or on a target of the catalogue, kernel by kernel.

    ``values`` gives the data of constants by id, as far as they are known: what depends on them alone is folded. The
    other arguments are those of :func:`tracea.explain`.

    Raises:
        InvalidOption: there is no such target. InvalidShape: a symbolic extent: bind it first.
    """
    pipeline = prepare(graph, values, host() if target == "host" else named_target(target, threads))
    kernels: list[ExplainedKernel] = []
    for nodes in _alike(pipeline.graph):
        first = nodes[0]
        known = constant_operands(pipeline.graph, first)
        found, refused = None, ""
        try:
            found = explain(
                first.op,
                target=target,
                threads=threads,
                constants=known,
                library=library,
                measure=measure,
            )
        except InvalidOption as error:
            if not error.field.startswith("variants of "):
                raise
            refused = str(error)
        kernels.append(
            ExplainedKernel(
                op=first.op,
                nodes=tuple(node.id for node in nodes),
                explanation=found,
                refused=refused,
                constants=tuple(sorted(known)),
            )
        )
    return GraphExplanation(name=name, captured=len(compute_nodes(graph)), pipeline=pipeline, kernels=tuple(kernels))


def _alike(graph: Graph) -> list[list[Node]]:
    """Return the nodes that compute something, those of one kernel together, in the order of their first run."""
    found: dict[tuple[str, frozenset[int]], list[Node]] = {}
    for node in compute_nodes(graph):
        if node.type.elements > 0:
            found.setdefault((node.op.key, constant_operands(graph, node)), []).append(node)
    return list(found.values())


def _sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
