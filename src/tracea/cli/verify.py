"""``tracea verify``: one kernel through every checker that this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tracea.cli.console import print_json, print_notes
from tracea.cli.problem import parse_constants, parse_op, parse_schedule
from tracea.cli.problem_flags import KIND_NAMES, ProblemFlags
from tracea.cli.report_file import require_writable, write_report
from tracea.flow.phases import telling
from tracea.flow.progress import shown_progress

__all__ = ["verify"]


def verify(
    kind: Annotated[str, Parameter(help=f"{KIND_NAMES}; of a GPU gemm alone.")],
    /,
    *,
    problem: ProblemFlags = ProblemFlags(),  # noqa: B008  # frozen
    target: str = "host",
    variant: str | None = None,
    schedule: str | None = None,
    threads: int = 1,
    seed: int | None = None,
    latency: bool | None = None,
    junit: Path | None = None,
    certificate: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Judge an op's kernel: proofs, results against float64, memory beside its arrays, determinism, resources, latency.

    A kernel for this machine runs here, and is timed where a search measured it: a product against the best library,
    a convolution, softmax or norm against PyTorch's call of it. A GPU's text runs in the emulator, under several
    hostile schedules; its machine code is judged where NVRTC is installed. What cannot be looked at is said to be not
    checked. Exit code 1: a check failed.

    Example: tracea verify gemm -m 4096 -n 4096 -k 4096 --dtype f16 --target sm_80

    Parameters
    ----------
    target
        host, a GPU architecture such as sm_90a, or a product such as h200 (tracea targets ls).
    variant
        The variant; by default the one of ours that would run, if not the library's.
    schedule
        key=value,... ; by default the one that would run.
    threads
        Threads of a kernel for this machine.
    seed
        Of the inputs; by default a fresh one, which is printed.
    latency
        Time it against the best library's call in any case, or never. PyTorch's is of float32.
    junit
        Write the verdict as JUnit XML here too; what is not checked is skipped.
    certificate
        Print the facts that were proved too.
    json
        Print the verdict as JSON.
    """
    op, values = parse_op(kind, problem, target=target), parse_schedule(schedule)
    require_writable(junit, option="--junit")
    from tracea.bench.against import against_torch
    from tracea.flow.text import rejected_above
    from tracea.flow.verify import verify_op

    with shown_progress(quick_s=1.0) as progress, telling(progress.phase):
        found = verify_op(
            op,
            target=target,
            variant=variant,
            schedule=values,
            threads=threads,
            constants=parse_constants(problem),
            seed=seed,
            latency=latency,
            rival=against_torch,
        )
    rejected = rejected_above(op, target=target, variant=variant)
    facts = str(found.certificate) if certificate and found.certificate is not None else ""
    if json:
        shown = {"op": op.to_dict(), "target": target, **found.to_dict(), "rejected": list(rejected)}
        print_json({**shown, **({"certificate": facts} if facts else {})})
    else:
        print("\n\n".join(part for part in (str(found), facts) if part))
        print_notes(rejected)
    written = write_report(junit, found.to_junit() if junit is not None else "", option="--junit")
    return 0 if found.passed and written else 1
