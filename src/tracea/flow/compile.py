"""Compile: a graph, or one op, becomes a program under decisions that measurements or scores made."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracea.core.graph import Graph, Node
from tracea.core.op import GemmOp, Op
from tracea.core.passes.pipeline import PipelineResult, run_pipeline
from tracea.doctor import Decision, Plan, decide, host
from tracea.doctor.plan import STATED
from tracea.errors import InvalidSchedule, ProofFailed, TraceaWarning
from tracea.flow.assemble import Values, assemble, compute_nodes, constant_operands, split_library_epilogues
from tracea.flow.history import known_variants
from tracea.flow.kernel import Built, build, completed_schedule
from tracea.flow.precision import with_casts
from tracea.flow.prepare import prepare
from tracea.kernels.registry import VARIANTS, find
from tracea.runtime.library import LibraryFunction, available
from tracea.runtime.native import check_threads, launcher
from tracea.runtime.program import Program
from tracea.semantic.schedule import Schedule
from tracea.targets.target import Target, for_threads

if TYPE_CHECKING:
    from tracea.doctor.precision import Magnitudes

__all__ = [
    "Compiled",
    "compile_graph",
    "compile_node",
    "compile_op",
    "decision_for",
    "excluded",
    "graph_of",
    "is_buildable",
    "thread_count",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A program with its plan, the graph that it runs, what the passes did, and its kernels by node."""

    program: Program
    plan: Plan
    pipeline: PipelineResult
    kernels: Mapping[str, Built]

    @property
    def graph(self) -> Graph:
        """The optimized graph, before a library's product and our epilogue were parted."""
        return self.pipeline.graph


def thread_count(threads: int | None) -> int:
    """Return a number of threads, for None what the process uses by default.

    Raises:
        InvalidOption: it is not a whole number from 1 to 1024.
    """
    return check_threads(threads) or launcher().threads()


def graph_of(op: Op, constants: Iterable[int] = ()) -> Graph:
    """Return the graph of one op: node "y" over its operands "x0", "x1", …, inputs but for the ``constants``."""
    graph, known = Graph(), frozenset(constants)
    operands = [
        (graph.add_constant if index in known else graph.add_input)(operand, name=f"x{index}")
        for index, operand in enumerate(op.operands)
    ]
    graph.add(op, operands, name="y")
    return graph


def excluded(op: Op, constants: Iterable[int], *, library: bool) -> dict[str, str]:
    """Return the variants that may not run ``op`` here, each with the reason."""
    known = frozenset(constants)
    refused: dict[str, str] = {}
    for variant in VARIANTS:
        if not isinstance(op, variant.op_type):
            continue
        if variant.constant_operand is not None and variant.constant_operand not in known:
            refused[variant.id] = f"operand {variant.constant_operand} is not constant, so it cannot be packed ahead"
        elif variant.is_library and not (library and _library_available(op)):
            refused[variant.id] = "left out by the caller" if not library else "its library, PyTorch, is not loaded"
    return refused


def decision_for(
    op: Op,
    target: Target,
    *,
    threads: int,
    constants: Iterable[int] = (),
    library: bool = True,
    variant: str | None = None,
    schedule: Mapping[str, int | str] | None = None,
    measured: bool = True,
    fallback: bool = False,
    magnitudes: Sequence[Magnitudes | None] = (),
) -> Decision:
    """Decide what runs ``op``: what is stated, else what was measured fastest here, else what scores highest.

    ``schedule`` are values that take the place of the default schedule's; a library has none. ``measured`` False leaves
    this machine's measurements out: the target is another one. ``fallback`` and ``magnitudes`` are those of
    ``tracea.doctor.decide``.

    Raises:
        InvalidOption: no variant fits, or the stated one does not; the schedule names what the variant's do not have.
        InvalidSchedule: the schedule has a word where the variant's have a number.
    """
    constants = tuple(sorted(constants))
    # Who states a schedule means one of ours; a library that is stated too is told that it has none.
    refused = excluded(op, constants, library=library and (schedule is None or variant is not None))
    if variant is not None:
        made = decide(op, target, variants=(find(variant, of=type(op)),), exclude=refused, constants=constants)
        return _with_stated(replace(made, reason=STATED), op, schedule, target)
    known = known_variants(op, threads, constants) if measured else {}

    def choose() -> Decision:
        return decide(
            op,
            target,
            known=known,
            exclude=refused,
            constants=constants,
            fallback=fallback,
            magnitudes=magnitudes,
        )

    made = choose()
    while made.variant in known and not is_buildable(op, made, target):
        del known[made.variant]
        made = choose()
    return _with_stated(made, op, schedule, target)


def _with_stated(made: Decision, op: Op, schedule: Mapping[str, int | str] | None, target: Target) -> Decision:
    if schedule is None:
        return made
    reason = made.reason if made.reason == STATED else f"{made.reason}; schedule stated"
    return replace(made, schedule=completed_schedule(op, find(made.variant), schedule, target), reason=reason)


def is_buildable(op: Op, decision: Decision, target: Target) -> bool:
    """Tell, with a warning if not, whether a recorded schedule is still its variant's: kernels change by release."""
    if find(decision.variant).is_library:
        return True
    try:
        build(op, decision.variant, decision.schedule or Schedule(), target, kept=True)
    except (InvalidSchedule, ProofFailed) as error:
        warnings.warn(TraceaWarning(f"a recorded schedule of {op.key} is passed over: {error}"), stacklevel=2)
        return False
    return True


def compile_op(op: Op, *, threads: int, library: bool = True) -> Program:
    """Return the program of one op as it was decided; its inputs are the op's operands in order."""
    return compile_node(op, {}, threads=threads, library=library).program


def compile_node(
    op: Op,
    constants: Mapping[int, Any],
    *,
    threads: int,
    target: Target | None = None,
    library: bool = True,
    variant: str | None = None,
    schedule: Schedule | None = None,
) -> Compiled:
    """Compile one op as it is, without passes.

    ``constants`` gives the operands that are known now; the others are inputs, in order.
    """
    where = for_threads(target or host(), threads)
    graph = graph_of(op, constants)
    values = {f"x{index}": array for index, array in constants.items()}
    decision = decision_for(
        op, where, threads=threads, constants=constants, library=library, variant=variant, schedule=schedule
    )
    pipeline = run_pipeline(graph, passes=())
    if op.infer().elements == 0:
        return _compiled(pipeline, values, {}, where, op.key)
    return _compiled(pipeline, values, {"y": decision}, where, op.key)


def compile_graph(
    graph: Graph,
    values: Values | None = None,
    *,
    threads: int | None = None,
    target: Target | None = None,
    library: bool = True,
    decisions: Mapping[str, Decision] | None = None,
    pipeline: PipelineResult | None = None,
    name: str = "graph",
) -> Compiled:
    """Optimize a graph, decide each node, and return its program.

    ``values`` gives the data of the graph's constants by id; ``decisions`` states some nodes' decisions, by id of the
    optimized graph. The other nodes are decided here. ``pipeline`` is the passes' result where it is known already.
    """
    count = thread_count(threads)
    where = for_threads(target or host(), count)
    pipeline = prepare(graph, values, where) if pipeline is None else pipeline
    made = {**(values or {}), **pipeline.values}
    data = {name: made[name] for name in pipeline.graph.constants if name in made}
    chosen = dict(decisions or {})
    alike: dict[tuple[Op, frozenset[int]], Decision] = {}  # layers of the same shapes are decided once
    for node in compute_nodes(pipeline.graph):
        if node.id not in chosen and node.type.elements > 0:
            kind = (node.op, constant_operands(pipeline.graph, node))
            if kind not in alike:
                alike[kind] = decide_node(pipeline.graph, node, where, threads=count, library=library)
            chosen[node.id] = alike[kind]
    return _compiled(pipeline, data, chosen, where, name)


def decide_node(graph: Graph, node: Node, target: Target, *, threads: int, library: bool) -> Decision:
    """Decide one node of an optimized graph."""
    return decision_for(node.op, target, threads=threads, constants=constant_operands(graph, node), library=library)


def _compiled(
    pipeline: PipelineResult, values: Values, decisions: Mapping[str, Decision], target: Target, name: str
) -> Compiled:
    """Assemble, with conversions and the epilogues that no library fuses as pointwise nodes of our own."""
    libraries = [node for node, decision in decisions.items() if find(decision.variant).is_library]
    converted, casts = with_casts(pipeline.graph, decisions)
    parted, products = split_library_epilogues(converted, libraries)
    every = {**decisions, **{node: decide(parted[node].op, target) for node in casts}}
    for node, product in products.items():
        every[product] = decisions[node]
        every[node] = decide(parted[node].op, target)
    result = assemble(parted, values, every, target, name=name)
    plan = Plan(target=target.name, decisions=decisions)
    return Compiled(program=result.program, plan=plan, pipeline=pipeline, kernels=result.kernels)


def _library_available(op: Op) -> bool:
    if not isinstance(op, GemmOp) or "torch" not in sys.modules:
        return False
    return available(LibraryFunction.BMM if op.batch else LibraryFunction.MM)
