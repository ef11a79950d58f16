"""``tracea emit``: print the kernel of one op for a target, this machine or another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tracea.cli.console import print_json, print_notes
from tracea.cli.problem import parse_constants, parse_op, parse_schedule
from tracea.cli.problem_flags import KIND_NAMES, ProblemFlags
from tracea.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["emit"]

_SWITCH = Parameter(negative=(), group="Form")


def emit(
    kind: Annotated[str, Parameter(help=f"{KIND_NAMES}; of a GPU gemm alone.")],
    /,
    *,
    problem: ProblemFlags = ProblemFlags(),  # noqa: B008  # frozen
    target: str = "host",
    variant: str | None = None,
    schedule: str | None = None,
    threads: int = 1,
    ir: Annotated[bool, _SWITCH] = False,
    asm: Annotated[bool, _SWITCH] = False,
    stats: Annotated[bool, _SWITCH] = False,
    certificate: Annotated[bool, _SWITCH] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Print the source of an op's kernel, after its proofs passed; without a flag for the form, the source.

    Example: tracea emit gemm -m 128 -n 3072 -k 768 --epilogue bias,gelu --target avx512 --ir

    Parameters
    ----------
    target
        host, an architecture such as avx512, neon or sm_90a, or a product such as zen4 or h200 (tracea targets ls).
    variant
        The variant; by default the one of ours that would run, if not the library's.
    schedule
        key=value,... ; by default the one that would run.
    threads
        Threads on a processor: by more of them another kernel, or schedule, may run.
    ir
        Print the tile program.
    asm
        Print the compiler's assembly; of a GPU the machine code (needs tracea[cuda]).
    stats
        Print what the compiler made of it: instructions by kind, registers, stack, spills; of a GPU how it is launched.
    certificate
        Print the facts that were proved.
    json
        Print the text within JSON.
    """
    chosen = [
        name for name, wanted in (("ir", ir), ("asm", asm), ("stats", stats), ("certificate", certificate)) if wanted
    ]
    if len(chosen) > 1:
        raise InvalidOption(field="form", got=chosen, expected="one form", remedy=f"give --{chosen[0]} alone")
    form = chosen[0] if chosen else "source"
    op, values = parse_op(kind, problem, target=target), parse_schedule(schedule)
    from tracea.flow.text import emit_text, never_called, rejected_above, slow_operands

    text = emit_text(
        op,
        target=target,
        variant=variant,
        schedule=values,
        form=form,
        threads=threads,
        constants=parse_constants(problem),
    )
    rejected = _with_flag(rejected_above(op, target=target, variant=variant), kind, problem, target)
    notes = slow_operands(op, target=target, variant=variant, schedule=values)
    if never_called(op):
        notes = (*notes, "the result has no elements: a call returns it, and runs no kernel")
    if json:
        found = {"op": op.to_dict(), "target": target, "threads": threads, "form": form, "text": text}
        print_json({**found, "rejected": list(rejected), "notes": list(notes)})
    else:
        print(text)
        print_notes((*rejected, *notes))
    return 0


def _with_flag(rejected: Iterable[str], kind: str, problem: ProblemFlags, target: str) -> tuple[str, ...]:
    """Name the flag behind a rejected variant that another layout of b would admit."""
    lines = tuple(rejected)
    if not lines or kind != "gemm" or problem.transpose_b:
        return lines
    from tracea import targets
    from tracea.kernels.registry import find

    turned = parse_op(kind, replace(problem, transpose_b=True))
    gpu = targets.load_gpu(target)
    return tuple(
        line if find(line.partition(" ")[0]).unmet(turned, gpu) else f"{line}; --transpose-b stores b so"
        for line in lines
    )
