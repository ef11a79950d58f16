"""An explanation as text: one fact a line, numbers with their units, words that need no knowledge of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracea.core.dtype import DType
from tracea.core.op import GemmOp
from tracea.doctor.plan import NOT_EXCLUDED, told_together
from tracea.doctor.roof import NoRoof, Roof
from tracea.kernels.registry import find
from tracea.profiler.duration import shown_us
from tracea.profiler.machine import cores_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracea.doctor.plan import Decision, Rejection
    from tracea.flow.explanation import Explanation
    from tracea.flow.final import FinalTime
    from tracea.flow.graph_explanation import ExplainedKernel, GraphExplanation

__all__ = ["render", "render_graph", "tie_of_choice"]

_WIDTH: Final = 17


def render(found: Explanation) -> str:
    """Return the explanation's lines."""
    return "\n".join(
        [*_problem(found), *_choice(found), *_roof(found), *_others(found), *_flips(found), *_policy(found)]
    )


def render_graph(found: GraphExplanation, *, verbose: bool = False) -> str:
    """Return the lines of a whole graph's explanation: its sums, what is fused, then kernel by kernel.

    Fusions of one kind are one line; ``verbose`` has a line for each.
    """
    fused = tuple(map(str, found.pipeline.fusions)) if verbose else found.pipeline.fusions_by_kind
    lines = (_line("Fused" if index == 0 else "", line) for index, line in enumerate(fused))
    return "\n".join([*_sums(found), *lines, *(line for kernel in found.kernels for line in _kernel(kernel))])


def _sums(found: GraphExplanation) -> Iterator[str]:
    different = len(found.kernels)
    yield _line(
        "Model",
        f"{found.name}: {_counted(found.captured, 'node')} captured, {_counted(found.nodes, 'kernel')} after fusion, "
        f"{different} of them different",
    )
    for explained in found.kernels:
        if explained.explanation is not None:
            yield _machine(explained.explanation)
            break
    limit = found.least_us
    least = "their limits are not all known" if limit is None else f"their limits together are {shown_us(limit)}"
    beside = sum(_is_beside(kernel) for kernel in found.kernels)
    if limit is not None and beside:
        least += f" ({beside} of the {different} use matrix tiles, which may beat their limits: those are of vectors)"
    if found.latency_us is not None:
        share = "" if not limit else f"; the time is {found.latency_us / limit:.2f} times that"
        title, origin = "Measured", ""
        if found.shipped == different:
            title, origin = "Shipped", ", none of them measured here"
        elif found.shipped:
            origin = f", {found.shipped} of the {different} shipped with Tracea and not measured here"
        yield _line(title, f"{shown_us(found.latency_us)}, the kernels' times added up{origin}; {least}{share}")
    else:
        missing = sum(kernel.latency_us is None for kernel in found.kernels)
        what = "none was" if missing == different else f"not all: {missing} of the {different} were not"
        yield _line("Measured", f"{what}; {least}")


def _is_beside(kernel: ExplainedKernel) -> bool:
    roof = None if kernel.explanation is None else kernel.explanation.roof
    return isinstance(roof, Roof) and _is_of_vectors(roof)


def _kernel(found: ExplainedKernel) -> Iterator[str]:
    yield ""
    times = f" ({len(found.nodes)} times)" if len(found.nodes) > 1 else ""
    yield _line("Kernel", f"{', '.join(found.nodes)}{times}")
    if found.explanation is None:
        yield _line("Operation", found.op.described)
        yield _line("Not possible", found.refused)
        return
    machine = _machine(found.explanation)
    yield from (line for line in render(found.explanation).splitlines() if line != machine)


def _counted(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"


def _line(title: str, text: str) -> str:
    return f"{title:<{_WIDTH}}{text}"


def _problem(found: Explanation) -> Iterator[str]:
    op = found.asked or found.op
    intensity = op.flops / max(1, op.bytes)
    yield _line(
        "Operation",
        f"{op.described}: {_count(op.flops)} operations, at least {_bytes(op.bytes)} to read and write, "
        f"{intensity:.3g} operations a byte",
    )
    if found.asked is not None:
        what = (
            "filters times pixels, a matrix product" if isinstance(found.op, GemmOp) else "of one row, not one column"
        )
        yield _line("Runs as", f"{found.op.described}: {what}, which the rest is about")
    if found.flags is not None:
        none = f"none: no flags say this op as it is; {_search(found)} searches it"
        yield _line(
            "Command", f"tracea tune {found.flags}; explain, emit and verify take the same" if found.flags else none
        )
    yield _machine(found)


def _search(found: Explanation) -> str:
    """Name what searches the op that is explained: by its flags where they are known, else the verb that asked."""
    if found.flags:
        return "tracea tune with these flags"
    if found.asked is None:
        return "tracea tune" if found.flags is None else "tracea optimize of its model"
    if isinstance(op := found.op, GemmOp) and op.key == GemmOp.of(m=op.m, n=op.n, k=op.k, dtype=op.a.dtype).key:
        dtype = "" if op.a.dtype is DType.F32 else f" --dtype {op.a.dtype.value}"
        return f"tracea tune gemm -m {op.m} -n {op.n} -k {op.k}{dtype}"
    return "tracea.tune in Python"


def _machine(found: Explanation) -> str:
    is_gpu = not found.is_here and find(found.decision.variant).backend != "cpu"
    return _line("Machine", found.machine if is_gpu else f"{found.machine}, {_threads(found.threads)}")


def tie_of_choice(decision: Decision, final: Sequence[FinalTime]) -> str:
    """Say with whom the choice ties in its final, schedules of its own variant included; empty where nothing is to add.

    A reason that names a doubt, or a tie between variants, says enough by itself. One behind others with whom it ties,
    and not with the first, is no tie with the choice; nor is one that was left out of this decision.
    """
    if not final or not decision.reason.startswith("the fastest measured"):
        return ""
    first, possible = final[0], {each.variant for each in decision.candidates}
    tied = [each for each in final[1:] if each.variant in possible and _ties(each, first)]
    if not tied:
        return ""
    if (first.variant, dict(first.schedule)) != (decision.variant, dict(decision.schedule or {})):
        return ""
    names = " and ".join(f"{_named(each)} ({shown_us(1e3 * each.latency_ms)})" for each in tied)
    return f"{shown_us(1e3 * first.latency_ms)}, a tie with {names}: the race could not tell them apart"


def _ties(each: FinalTime, first: FinalTime) -> bool:
    return each.ties_with_first or (each.is_tie and each.latency_ms <= first.latency_ms)


def _named(each: FinalTime) -> str:
    return " ".join([each.variant, *(f"{name}={value}" for name, value in each.schedule.items())])


def _disturbed(found: Explanation) -> Iterator[str]:
    if found.final and found.final[0].is_disturbed:
        rounds, disturbed = (found.final[0].comparison[key] for key in ("rounds", "rounds_disturbed"))
        yield _line("In doubt", f"{disturbed:.0f} of the final's {rounds:.0f} rounds were disturbed by other programs")


def _choice(found: Explanation) -> Iterator[str]:
    decision = found.decision
    kind = "a library's kernel" if find(decision.variant).is_library else "a kernel of Tracea"
    yield _line("Chosen", f"{decision.variant}, {kind}: {tie_of_choice(decision, found.final) or decision.reason}")
    yield from _disturbed(found)
    if decision.schedule:
        yield _line("Schedule", f"{decision.schedule.key}{'' if decision.measurement else ' (the default, not tuned)'}")
    if decision.precision is not None:
        yield _line(
            "Precision", f"factors of {decision.precision.requested.value}; the first type that can be used is taken:"
        )
        for step in decision.precision.steps:
            yield f"  {step}"
        if decision.precision.casts:
            yield "  a and b are converted before the kernel runs"


def _roof(found: Explanation) -> Iterator[str]:
    roof = found.roof
    if isinstance(roof, NoRoof):
        yield _line("Limits", f"not known: {roof.because}. Remedy: {roof.remedy}")
    elif not roof.least_us:
        yield _line("Limits", "none: nothing is computed, read or written")
    else:
        peak, bandwidth = roof.ceilings.peak_gflops, roof.ceilings.bandwidth_gbytes
        place = f"the {roof.holder}" if roof.holder else "memory"
        what, rate = ("the arithmetic", "arithmetic") if roof.is_arithmetic else ("moving the bytes", "copy")
        if roof.holder and not roof.is_arithmetic:
            rate = "read"
        speed = _rate(peak, "FLOP/s") if roof.is_arithmetic else _rate(bandwidth, "B/s")
        rate = f"{rate} rate of vectors, not of the matrix tiles that run," if _is_of_vectors(roof) else f"{rate} rate"
        basis = f"measured {rate} of {_threads(roof.threads)}" if roof.threads else "stated rate"
        yield _line(
            "Limits", f"at the {basis} ({speed}) {what} would take {shown_us(roof.least_us)} with operands in {place}:"
        )
        beside = "; vectors, not matrix tiles" if roof.note else ""
        yield f"  arithmetic    {shown_us(roof.arithmetic_us)} at {_rate(peak, 'FLOP/s')} ({roof.peak_from}{beside})"
        yield f"  moving bytes  {shown_us(roof.moving_us)} at {_rate(bandwidth, 'B/s')} ({roof.bandwidth_from})"
        yield f"  the greater of the two is the limit: {'arithmetic' if roof.is_arithmetic else 'moving bytes'}"
        if found.op.fewest_flops < found.op.flops:
            fewest, direct = _count(found.op.fewest_flops), _count(found.op.flops)
            yield f"  the limit is of {fewest} operations, by Winograd; rates count all {direct}"
        if roof.note:
            yield f"  note: {roof.note}"
        yield from _doubts(found, roof)
    if found.imported:
        count = _counted(found.imported, "schedule")
        yield _line(
            "Imported", f"{count} of this op, none measured here yet: {_search(found)} tries the best of them first"
        )
    latency = found.latency_us
    if latency is None:
        remedy = f"{_search(found)} measures it" if found.is_here else "only the machine itself can tell"
        if found.is_here and found.threads > (cores := len(cores_allowed())):
            remedy = f"nothing can be: {found.threads} threads wait for each other on the {cores} cores of this process"
        is_empty = 0 in found.op.infer().shape
        yield _line("Measured", "nothing to time: the result is empty" if is_empty else f"not yet; {remedy}")
        return
    distance = ""
    if isinstance(roof, Roof) and roof.least_us > 0:
        distance = f", {latency / roof.least_us:.2f} times {_limit(roof)}"
    speed = f"{shown_us(latency)}, {_rate(found.op.flops / latency / 1_000, 'FLOP/s')}{distance}"
    if found.shipped:
        yield _line("Shipped", f"{speed}; no time of this machine: {_search(found)} measures it here")
    else:
        yield _line("Measured", speed)


def _limit(roof: Roof) -> str:
    """Name the limit: of vectors, where matrix tiles run, which multiply faster and so are not bound by it."""
    return "the limit of vectors, which matrix tiles may beat" if _is_of_vectors(roof) else "the limit"


def _is_of_vectors(roof: Roof) -> bool:
    return roof.is_arithmetic and bool(roof.note)


def _doubts(found: Explanation, roof: Roof) -> Iterator[str]:
    """Say where the limit is doubtful: what was measured beats it, or the ceilings were not measured alone."""
    remedy = "tracea doctor --again, on an idle machine, measures them again"
    beaten = roof.beaten_by(found.decision.candidates)
    if beaten is not None and beaten.latency_us is not None:
        yield (
            f"  doubtful: {beaten.variant} was measured {'elsewhere ' if beaten.shipped else ''}"
            f"at {shown_us(beaten.latency_us)}, below that: "
            f"a rate is too low ({remedy})"
        )
    if roof.doubt:
        yield f"  doubtful: {roof.doubt}: rates may be too low ({remedy})"


def _others(found: Explanation) -> Iterator[str]:
    decision = found.decision
    won = decision.chosen
    others = [each for each in decision.candidates if each.variant != decision.variant]
    if others:
        ties = set(decision.in_spite_of_times) - {each.variant for each in others if each.ties_with(won)}
        rule = "; where times are out of order, by the race's rule for what it cannot tell apart" if ties else ""
        yield _line("Also possible", f"{len(others)}, best first{rule}")
    for each in others:
        if each.latency_us is None:
            yield f"  {each.variant}: not measured, its score is {each.score:g} against {won.score:g}"
        elif won.latency_us is None:
            yield f"  {each.variant}: {'shipped' if each.shipped else 'measured'}, {shown_us(each.latency_us)}"
        elif each.is_in_doubt(won):
            best = shown_us(won.latency_us)
            yield f"  {each.variant}: {shown_us(each.latency_us)}, too noisy to tell from {won.variant} at {best}"
        elif each.ties_with(won):
            best = shown_us(won.latency_us)
            yield f"  {each.variant}: {shown_us(each.latency_us)}, a tie with {won.variant} at {best}"
        else:
            yield f"  {each.variant}: {shown_us(each.latency_us)}, {each.latency_us / won.latency_us:.2f} times as long"
    refused = {each.variant for each in decision.told_rejections}
    if refused:
        yield _line("Not possible", f"{len(refused)}")
    alike = told_together((each.variant, _why_not(each)) for each in decision.told_rejections)
    yield from (f"  {variants}: {reasons}" for variants, reasons in alike)


def _why_not(rejection: Rejection) -> str:
    if rejection.requirement == NOT_EXCLUDED:
        return rejection.found
    return f"needs {rejection.needed}, here: {rejection.found}"


def _flips(found: Explanation) -> Iterator[str]:
    if found.decision.is_stated:
        yield _line("Would change it", found.decision.flip)
        return
    flips = {flip.variant: flip for flip in found.decision.flips}
    possible = [each.variant for each in found.decision.candidates if each.variant in flips]
    if not flips:
        yield _line("Would change it", "nothing: there is no other kernel for this")
        return
    yield _line(
        "Would change it", "" if possible else "only one that is not possible now, once it has what it needs"
    ).rstrip()
    for name in possible:
        yield f"  {flips[name]}"
    if possible and len(possible) < len(flips):
        yield "  one that is not possible now could compete once it has what it needs"


def _policy(found: Explanation) -> Iterator[str]:
    if found.guidance is None:
        return
    yield _line(
        "A search", f"of other schedules of {found.guidance.variant} ({_search(found) if found.is_here else 'there'}):"
    )
    for reason in found.guidance.reasons:
        yield f"  {reason}"
    order = None if found.decision.schedule is None else found.decision.schedule.get("order")
    if order is not None and order != found.guidance.tiling.order.value:
        yield f"  The schedule above takes its tiles in {order} order all the same, until a search measures another."


def _count(number: float) -> str:
    for scale, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= scale:
            return f"{number / scale:.3g} {word}"
    return f"{number:g}"


def _bytes(number: float) -> str:
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:g} bytes"


def _rate(giga: float, unit: str) -> str:
    return f"{giga / 1_000:.4g} T{unit}" if giga >= 1_000 else f"{giga:.4g} G{unit}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
