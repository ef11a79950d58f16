"""Optimize a graph: tune its distinct ops within a budget, compile it, and keep what is worth telling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from tracea.core.collector import collector_paused
from tracea.core.graph import Graph, Node
from tracea.core.op import Op
from tracea.doctor import host
from tracea.errors import InvalidDType, InvalidGraph, InvalidOption, InvalidShape
from tracea.flow.assemble import Values, compute_nodes, constant_operands
from tracea.flow.compile import Compiled, compile_graph, thread_count
from tracea.flow.completed import tuned_once
from tracea.flow.final import is_in_doubt, run_final
from tracea.flow.load_note import load_noted_once
from tracea.flow.phases import phase
from tracea.flow.prepare import prepare
from tracea.flow.progress import Listener, silent
from tracea.flow.room import require_room_for_results
from tracea.flow.tuning import Tuned
from tracea.flow.verdicts import recorded_verdict
from tracea.gates import Verdict
from tracea.kernels.registry import find
from tracea.optimizer.budget import Budget
from tracea.optimizer.isolation import children_kept
from tracea.runtime.buffers import view
from tracea.targets.target import for_threads

__all__ = ["Optimized", "optimize_graph"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Optimized:
    """A compiled graph with what was measured on the way: the searches by node, and each kernel's verdict."""

    captured: Graph
    compiled: Compiled
    tuned: Mapping[str, Tuned]
    verdicts: Mapping[str, Verdict]
    threads: int

    def __repr__(self) -> str:
        """Say in one line what was made."""
        searched = f"{len(self.tuned)} searched" if self.tuned else "none searched"
        return f"Optimized({len(self.captured)} nodes as {len(self.plan)} kernels, {searched}, threads={self.threads})"

    @property
    def plan(self) -> Any:
        """What was chosen for each node."""
        return self.compiled.plan

    @property
    def from_cache(self) -> bool:
        """Whether every schedule was known, so that nothing was measured."""
        return all(tuned.fresh == 0 for tuned in self.tuned.values())

    @property
    def share(self) -> float | None:
        """The share of the measured time of all nodes that our kernels take; None where a node was never measured."""
        times: dict[bool, float] = {True: 0.0, False: 0.0}
        for decision in self.compiled.plan.decisions.values():
            if decision.chosen.latency_us is None:
                return None
            times[find(decision.variant).is_library] += decision.chosen.latency_us
        total = sum(times.values())
        return times[False] / total if total else None

    @property
    def kernels_us(self) -> float | None:
        """The measured times of all nodes added up; None where one was never measured."""
        times = [decision.chosen.latency_us for decision in self.compiled.plan.decisions.values()]
        known = [each for each in times if each is not None]
        return sum(known) if known and len(known) == len(times) else None

    def repeat_doubtful_finals(self) -> bool:
        """Let each final that is in doubt take place once more; return whether there was one.

        What comes out is for the next program that is made of the graph: this one stays as it is.
        """
        doubtful = [
            (op, constants)
            for _, op, constants in _distinct(self.compiled.graph)
            if is_in_doubt(op, self.threads, constants)
        ]
        target = for_threads(host(), self.threads)
        for op, constants in doubtful:
            phase(f"in doubt: {op.key}")
            run_final(op, target, constants=constants, threads=self.threads, seed=0)
        return bool(doubtful)

    def judged(self) -> Optimized:
        """Return the same with a verdict on each kernel, which without a search nothing has judged on this machine.

        Raises: VerdictFailed: a chosen kernel fails a gate.
        """
        return replace(self, verdicts=_verdicts(self.compiled, self.threads))

    def explain(self) -> str:
        """Return the passes' work and the plan as text."""
        return f"{self.compiled.pipeline}\n{self.compiled.plan.explain()}"


def optimize_graph(
    graph: Graph,
    values: Mapping[str, Any] | None = None,
    *,
    budget: Budget | None = None,
    threads: int | None = None,
    library: bool = True,
    listener: Listener = silent,
    makes_tables: bool = False,
) -> Optimized:
    """Return the graph as a program whose schedules were searched, ``budget`` trials an op; None searches nothing.

    ``values`` are the constants' data by their names, arrays of NumPy or tensors of PyTorch.
    ``makes_tables`` says that the graph makes whatever its ops read by, within bounds whatever its inputs hold.

    Raises:
        InvalidInput: the graph or its values do not fit, or it has an op that reads by tables.
        ResourceExceeded: the results are larger than this machine's memory.
        VerdictFailed: a chosen kernel fails a gate on this machine.
    """
    _check_graph(graph)
    values = _checked_values(graph, values)
    require_room_for_results(graph)
    count = thread_count(threads)
    if not makes_tables:
        _check_tables(graph)
    nodes = len(compute_nodes(graph))
    phase(f"fuse {nodes} node{'s' if nodes != 1 else ''}")
    tuned: dict[str, Tuned] = {}
    with collector_paused():
        pipeline = prepare(graph, values, host())
    searches = _distinct(pipeline.graph) if budget is not None else []
    with load_noted_once(), children_kept():
        for number, (node, op, constants) in enumerate(searches, start=1):
            label = f"kernel {number}/{len(searches)}: {op.key}"
            heard = _for_node(listener, node)
            assert budget is not None  # else there are no searches
            tuned[node.id] = tuned_once(
                op, budget=budget, threads=count, constants=constants, library=library, listener=heard, label=label
            )
    with collector_paused():
        compiled = compile_graph(graph, values, threads=count, library=library, pipeline=pipeline)
    verdicts = _verdicts(compiled, count) if budget is not None else {}
    return Optimized(captured=graph, compiled=compiled, tuned=tuned, verdicts=verdicts, threads=count)


def _verdicts(compiled: Compiled, threads: int) -> dict[str, Verdict]:
    """Return the verdict on each distinct kernel, by node.

    Raises: VerdictFailed: one fails.
    """
    verdicts: dict[str, Verdict] = {}
    judged = _distinct(compiled.graph)
    for number, (node, op, constants) in enumerate(judged, start=1):
        decision, label = compiled.plan[node.id], f"kernel {number}/{len(judged)}: {op.key}"
        verdict = recorded_verdict(op, decision, constants=constants, threads=threads, label=label)
        verdicts[node.id] = verdict.require()
    return verdicts


def _check_graph(graph: Any) -> None:
    """Refuse what is no graph, and one without a node: nothing says what it would return."""
    if not isinstance(graph, Graph) or len(graph) == 0:
        raise InvalidGraph(
            field="graph",
            got="a graph without nodes" if isinstance(graph, Graph) else repr(graph),
            expected="a tracea.Graph of at least one node",
            remedy="build it with graph.add_input and the other add_...; tracea.optimize takes PyTorch modules",
        )


def _checked_values(graph: Graph, values: Any) -> Values:
    """Return the data as NumPy arrays; refuse what is no constant's, and other types, by name and before any search."""
    constants = graph.constants
    data: Mapping[Any, Any] = cast("Any", values) if isinstance(values, Mapping) else {}
    unknown = [str(name) for name in data if name not in constants]
    if unknown or not (values is None or isinstance(values, Mapping)):
        raise InvalidOption(
            field="values",
            got=unknown or repr(cast("object", values)),
            expected=f"arrays by the graph's constants: {', '.join(constants) or 'it has none'}",
            remedy="name constants as graph.add_constant does; the data of inputs are given to each run",
        )
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, type_ in constants.items():
        if name not in data:
            continue  # one that nothing reads needs no data; the others are missed where the program is made
        given = arrays[name] = view(data[name], f"values[{name!r}]").numpy()
        has_elements, has_shape = given.dtype == type_.dtype.numpy, given.shape == type_.static_shape
        if type_.is_static and not (has_elements and has_shape):
            raise (InvalidShape if has_elements else InvalidDType)(
                field=f"values[{name!r}]",
                got=f"{given.dtype}{list(given.shape)}",
                expected=str(type_),
                remedy=f"give the constant {name} as an array of its type",
            )
    return arrays


def _check_tables(graph: Graph) -> None:
    """Refuse ops whose tables say which memory is read: nothing of a graph checks what they hold."""
    for node in compute_nodes(graph):
        if node.op.tables:
            raise InvalidGraph(
                field=node.id,
                got=f"{node.op.name} with {len(node.op.tables)} tables as operands",
                expected="ops that read by no tables",
                remedy="call the function of tracea.ops, which makes the tables and checks what they are made from",
            )


def _distinct(graph: Graph) -> list[tuple[Node, Op, tuple[int, ...]]]:
    """Return one node for each distinct op: two layers of the same shapes are searched once."""
    found: dict[tuple[str, tuple[int, ...]], tuple[Node, Op, tuple[int, ...]]] = {}
    for node in compute_nodes(graph):
        if node.type.elements > 0:
            constants = tuple(sorted(constant_operands(graph, node)))
            found.setdefault((node.op.key, constants), (node, node.op, constants))
    return list(found.values())


def _for_node(listener: Listener, node: Node) -> Listener:
    return lambda variant, progress: listener(f"{node.id} {variant}", progress)
