"""Explanation: what would run an op and why - the choice, all that lost, what would flip it, and how far the roof is.

``tracea.explain(op)`` decides and builds nothing: it asks the same questions as a run and keeps the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, overload

from tracea import targets
from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, GemmOp, Op
from tracea.doctor import Decision, Known, decide, measured_ceilings, probe_machine
from tracea.doctor.installed import torch_install
from tracea.doctor.plan import STATED
from tracea.doctor.policy import Guidance, guide
from tracea.doctor.precision import Magnitudes, with_factors
from tracea.doctor.roof import NoRoof, Roof, measured_roof, stated_roof
from tracea.errors import CompileError, InvalidOption, RunError, ToolchainMissing
from tracea.flow.asked import check_constants, check_op
from tracea.flow.compile import decision_for, excluded, is_buildable
from tracea.flow.final import FinalTime, final_times
from tracea.flow.history import imported, known_variants, winners
from tracea.flow.sections import simplest
from tracea.kernels.registry import find
from tracea.runtime.native import check_threads
from tracea.targets import GpuTarget, Target
from tracea.targets.target import for_threads

if TYPE_CHECKING:
    from tracea.flow.graph_explanation import GraphExplanation

__all__ = ["Explanation", "explain", "explain_call", "named_target"]

_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One op's decision with everything that it rests on; prints as text that a newcomer can read.

    ``guidance`` is where a search of the chosen variant would look, None where a library was chosen. ``latency_us`` is
    the time of the choice, None where there is none. ``final`` is what the last final here timed, best first.
    ``imported`` counts the schedules of this op that were measured elsewhere, where nothing was measured here.
    ``asked`` is what was asked for where a call runs ``op`` in its place, the simplest that does the same.
    ``flags`` are the kind and flags after which a verb means ``op``, empty where none do, None where nobody looked.
    """

    op: Op
    machine: str
    is_here: bool
    threads: int
    decision: Decision
    roof: Roof | NoRoof
    guidance: Guidance | None
    final: tuple[FinalTime, ...] = ()
    imported: int = 0
    asked: Op | None = None
    flags: str | None = None

    @property
    def latency_us(self) -> float | None:
        """The time of the choice, from the records of this machine or, where :attr:`shipped` says so, of Tracea's."""
        return self.decision.chosen.latency_us

    @property
    def shipped(self) -> str:
        """Where and when the time was measured, if that was not here; empty where it was."""
        return self.decision.chosen.shipped

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain JSON values."""
        roof: dict[str, Any]
        if isinstance(self.roof, Roof):
            roof = self.roof.to_dict()
            if self.latency_us is not None:
                roof["fraction"] = self.roof.distance(self.latency_us).fraction
        else:
            roof = {"unknown": self.roof.because, "remedy": self.roof.remedy}
        return {
            "schema_version": _SCHEMA_VERSION,
            "op": self.op.to_dict(),
            "asked": None if self.asked is None else self.asked.to_dict(),
            **({} if self.flags is None else {"flags": self.flags}),
            "machine": self.machine,
            "threads": self.threads,
            "flops": self.op.flops,
            "bytes": self.op.bytes,
            "latency_us": self.latency_us,
            "shipped": self.shipped,
            "imported": self.imported,
            "decision": self.decision.to_dict(),
            "roof": roof,
            "policy": None if self.guidance is None else self.guidance.to_dict(),
        }

    def __str__(self) -> str:
        from tracea.flow.explanation_text import render

        return render(self)


@overload
def explain(
    problem: Op | Node,
    *,
    target: str = "host",
    threads: int = 1,
    constants: Iterable[int] = (),
    library: bool = True,
    magnitudes: Sequence[Magnitudes | None] = (),
    measure: bool = True,
    variant: str | None = None,
) -> Explanation: ...
@overload
def explain(
    problem: Graph, *, target: str = "host", threads: int = 1, library: bool = True, measure: bool = True
) -> GraphExplanation: ...
def explain(
    problem: Op | Node | Graph,
    *,
    target: str = "host",
    threads: int = 1,
    constants: Iterable[int] = (),
    library: bool = True,
    magnitudes: Sequence[Magnitudes | None] = (),
    measure: bool = True,
    variant: str | None = None,
) -> Explanation | GraphExplanation:
    """Explain what would run an op, a graph's node or a whole graph, on this machine or on a target of the catalogue.

    A graph is fused as a run fuses it, and each different kernel explained. For an op, ``constants`` are the operands
    that are known beforehand, and ``magnitudes`` bounds the operands' values, which lets a precision fallback use f16.
    ``library`` False leaves libraries out; where they compete, PyTorch is loaded to have them. ``measure`` False leaves
    this machine's ceilings out: measuring them takes seconds, once. ``variant`` names one to explain in place of the
    one that would run, with the best schedule that was measured here, else its default.

    Raises:
        InvalidOption: no variant fits, or the stated one does not, there is no such target, or no operand at a place of
            ``constants``.
        InvalidOp: the problem is none. InvalidShape: a symbolic extent: bind it first.
    """
    if isinstance(problem, Graph):
        from tracea.flow.graph_explanation import explain_graph

        given = not isinstance(constants, Iterable) or tuple(constants) or tuple(magnitudes)  # pyright: ignore[reportUnnecessaryIsInstance]
        if given or variant is not None:
            raise InvalidOption(
                field="constants, magnitudes and variant",
                got="some",
                expected="none for a graph",
                remedy="explain one of its nodes",
            )
        return explain_graph(problem, target=target, threads=threads, library=library, measure=measure)
    op = check_op(
        problem.op if isinstance(problem, Node) else problem, "explain", expected="an op, a graph's node or a graph"
    )
    count, known = check_threads(threads) or 1, check_constants(op, constants)
    if target == "host":
        return _here(
            op,
            threads=count,
            constants=known,
            library=library,
            magnitudes=magnitudes,
            measure=measure,
            variant=variant,
        )
    return _elsewhere(
        op,
        named_target(target, count),
        constants=known,
        library=library,
        magnitudes=magnitudes,
        threads=count,
        variant=variant,
    )


def explain_call(
    op: Op,
    *,
    target: str = "host",
    threads: int = 1,
    constants: tuple[int, ...] = (),
    library: bool = True,
    magnitudes: Magnitudes | None = None,
    measure: bool = True,
    variant: str | None = None,
) -> Explanation:
    """Explain what a call of ``tracea.ops`` runs for an op, as :func:`explain` does: a convolution may be a product.

    With constant operands, or a ``variant`` of the op's own kind, it is explained as it is. ``magnitudes`` are those of
    every operand.

    Raises: as :func:`explain`.
    """
    run, is_own = op, variant is not None and find(variant, of=type(op)).op_type is type(op)
    if isinstance(op, Conv2dOp) and not constants and not is_own:
        aim = for_threads(probe_machine().target, threads) if target == "host" else named_target(target, threads)
        run = op if isinstance(aim, GpuTarget) else simplest(op, aim)
    found = explain(
        run,
        target=target,
        threads=threads,
        constants=constants,
        library=library,
        magnitudes=() if magnitudes is None else [magnitudes] * len(run.operands),
        measure=measure,
        variant=variant,
    )
    return found if run is op else replace(found, asked=op)


def _here(
    op: Op,
    *,
    threads: int,
    constants: tuple[int, ...],
    library: bool,
    magnitudes: Sequence[Magnitudes | None],
    measure: bool,
    variant: str | None,
) -> Explanation:
    machine = probe_machine()
    target = for_threads(machine.target, threads)
    if library and isinstance(op, GemmOp) and torch_install() is not None:
        import_module("torch")  # a library's variants are there only in a process that has loaded it
    if variant is None:
        decision = decision_for(
            op, target, threads=threads, constants=constants, library=library, fallback=True, magnitudes=magnitudes
        )
    else:
        refused, known = excluded(op, constants, library=library), known_variants(op, threads, constants)
        decision = _stated(
            op, target, variant, exclude=refused, constants=constants, magnitudes=magnitudes, known=known
        )
    ceilings = None
    if machine.toolchain.compiler is not None and measure:
        try:
            ceilings = measured_ceilings(machine)
        except (CompileError, RunError, ToolchainMissing):
            ceilings = None  # the doctor says what is wrong with the compiler; here the roof is not known
    computed = _computed(op, decision)
    name = f"{machine.hardware.processor.model} ({machine.hardware.core}), {target.isa}"
    return Explanation(
        op=op,
        machine=f"this one: {name}",
        is_here=True,
        threads=threads,
        decision=decision,
        roof=measured_roof(computed, target, ceilings, decision.variant, threads=threads),
        guidance=_guidance(computed, target, decision, threads, constants, is_here=True),
        final=final_times(computed, threads, constants),
        imported=imported(computed, constants) if decision.measurement is None else 0,
    )


def _elsewhere(
    op: Op,
    target: Target | GpuTarget,
    *,
    constants: tuple[int, ...],
    library: bool,
    magnitudes: Sequence[Magnitudes | None],
    threads: int,
    variant: str | None,
) -> Explanation:
    refused = {} if isinstance(target, GpuTarget) else excluded(op, constants, library=False)
    for name in refused:
        if find(name).is_library:
            refused[name] = f"no library of {target.name} can be asked from here"
    if not library and isinstance(target, GpuTarget):
        refused["library.cublas"] = "left out by the caller"
    if variant is None:
        decision = decide(op, target, exclude=refused, constants=constants, fallback=True, magnitudes=magnitudes)
    else:
        decision = _stated(op, target, variant, exclude=refused, constants=constants, magnitudes=magnitudes)
    computed = _computed(op, decision)
    product = f", for example {target.product}" if isinstance(target, GpuTarget) else f", {target.isa}"
    return Explanation(
        op=op,
        machine=f"{target.name} of the catalogue{product}",
        is_here=False,
        threads=threads,
        decision=decision,
        roof=stated_roof(computed, target, decision.variant, threads=threads),
        guidance=_guidance(computed, target, decision, threads, constants, is_here=False),
    )


def _stated(
    op: Op,
    target: Target | GpuTarget,
    variant: str,
    *,
    exclude: Mapping[str, str],
    constants: tuple[int, ...],
    magnitudes: Sequence[Magnitudes | None],
    known: Mapping[str, Known] = MappingProxyType({}),
) -> Decision:
    """Return the decision for a variant that the caller names, with the best schedule that is ``known`` of it."""
    own = (find(variant, of=type(op)),)
    decide(op, target, variants=own, exclude=exclude, constants=constants)  # as it was asked for: no fallback's misfit

    def decided(known: Mapping[str, Known]) -> Decision:
        made = decide(
            op,
            target,
            variants=own,
            known=known,
            exclude=exclude,
            constants=constants,
            fallback=True,
            magnitudes=magnitudes,
        )
        return replace(made, reason=STATED)

    made = decided(known)
    if made.measurement is None or not isinstance(target, Target) or is_buildable(op, made, target):
        return made
    return decided({})  # its recorded schedule is none of this release


def _guidance(
    op: Op, target: Target | GpuTarget, decision: Decision, threads: int, constants: tuple[int, ...], *, is_here: bool
) -> Guidance | None:
    variant = find(decision.variant)
    if variant.is_library or decision.schedule is None:
        return None
    history = winners(op, variant.id, threads, constants) if is_here else ()
    return guide(op, target, variant, history=history, keep=[decision.schedule])


def _computed(op: Op, decision: Decision) -> Op:
    """Return the op as it is computed: after the conversions of a precision fallback."""
    precision = decision.precision
    if precision is None or not precision.casts or not isinstance(op, GemmOp):
        return op
    return with_factors(op, precision.used)


def named_target(name: str, threads: int) -> Target | GpuTarget:
    """Return a target of the catalogue.

    Raises:
        InvalidOption: there is none of that name.
    """
    if targets.names_gpu(name):
        return targets.load_gpu(name)
    if name not in (*targets.names(), *targets.cpu_product_names()):
        raise targets.unknown_target(name)
    return for_threads(targets.load(name), threads)
