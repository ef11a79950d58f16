"""``tracea explain``: what would run an op or a model and why, what lost, what would change it, how far the limit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from tracea.cli.command import command_of
from tracea.cli.console import print_json, printable
from tracea.cli.problem import parse_constants, parse_op, refuse_problem_flags
from tracea.cli.problem_flags import KIND_NAMES, KINDS, ProblemFlags
from tracea.errors import InvalidOption

if TYPE_CHECKING:
    from tracea.doctor.precision import Magnitudes
    from tracea.flow.graph_explanation import ExplainedKernel

__all__ = ["explain"]

_KIND: Final = (
    f"{KIND_NAMES}; or a model, file.py:function, where the function takes nothing and returns "
    "(module, example_inputs)."
)


def explain(
    kind: Annotated[str, Parameter(help=_KIND)],
    /,
    *,
    problem: ProblemFlags = ProblemFlags(),  # noqa: B008  # frozen
    target: str = "host",
    variant: str | None = None,
    threads: int = 1,
    library: bool = True,
    measure: bool = True,
    range: str | None = None,
    verbose: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Say which kernel would run an op, or each of a model's, and why, which others there are, and the least time.

    Nothing is built or searched; a model is captured and fused as tracea optimize does. Times are those of earlier
    searches on this machine; before there were any, those that Tracea ships for such a processor, marked as shipped,
    with where and when they were measured. The limit follows from the machine's measured ceilings, or for another
    machine from what its vendor states.

    Example: tracea explain gemm -m 2048 -n 2048 -k 2048 --target a100 --dtype f16

    Example: tracea explain examples/mlp.py:build

    Parameters
    ----------
    target
        host, an instruction set such as avx512, a GPU architecture such as sm_80, or a product such as zen4 or a100
        (tracea targets ls). Another machine's kernels are chosen by what they require and by score, and judged
        nowhere; tracea verify judges.
    variant
        Explain this variant of an op, with its best schedule measured here or else its default; by default the one that
        would run.
    threads
        Threads on a processor.
    library
        Let the library's kernels compete (this loads PyTorch where it is installed).
    measure
        Measure this machine's ceilings where they are not known yet (seconds, once).
    range
        LEAST,MOST: no operand's values but zeros are of smaller or larger magnitude; lets bf16 fall back to f16.
    verbose
        Of a model, name each fused kernel, not how often there is one of a kind.
    json
        Print the explanation as JSON.
    """
    if kind not in KINDS and (":" in kind or kind.endswith(".py")):
        return _explain_model(
            kind,
            problem,
            target=target,
            variant=variant,
            threads=threads,
            library=library,
            measure=measure,
            range=range,
            verbose=verbose,
            json=json,
        )
    if verbose:
        raise InvalidOption(
            field="--verbose",
            got=kind,
            expected="a model, file.py:function",
            remedy="leave it out: one op is told whole",
        )
    op = parse_op(kind, problem, target=target)
    bounds = _bounds(range)
    from tracea.flow.explanation import explain_call

    found = explain_call(
        op,
        target=target,
        threads=threads,
        constants=parse_constants(problem),
        library=library,
        magnitudes=bounds,
        measure=measure,
        variant=variant,
    )
    if found.asked is not None:
        found = replace(found, flags=command_of(found.op))
    if json:
        print_json(found.to_dict())
    else:
        print(printable(str(found)))
    return 0


def _explain_model(
    builder: str,
    problem: ProblemFlags,
    *,
    target: str,
    variant: str | None,
    threads: int,
    library: bool,
    measure: bool,
    range: str | None,
    verbose: bool,
    json: bool,
) -> int:
    refuse_problem_flags(builder, replace(problem, accuracy=None))
    if range is not None:
        raise InvalidOption(field="--range", got=range, expected="none for a model", remedy="explain one op with it")
    if variant is not None:
        raise InvalidOption(
            field="--variant", got=variant, expected="none for a model", remedy="explain one op with it"
        )
    from tracea.bench.session import explain_file
    from tracea.flow.explanation_text import render_graph
    from tracea.flow.phases import telling
    from tracea.flow.progress import shown_progress

    with shown_progress() as progress, telling(progress.phase):
        found = explain_file(
            builder,
            target=target,
            threads=threads,
            library=library,
            measure=measure,
            accuracy=problem.accuracy or "elementwise",
        )
    found = replace(found, kernels=tuple(map(_with_flags, found.kernels)))
    if json:
        print_json(found.to_dict())
    else:
        print(printable(render_graph(found, verbose=verbose)))
    return 0


def _with_flags(kernel: ExplainedKernel) -> ExplainedKernel:
    if kernel.explanation is None:
        return kernel
    flags = command_of(kernel.op, kernel.constants)
    return replace(kernel, explanation=replace(kernel.explanation, flags=flags))


def _bounds(text: str | None) -> Magnitudes | None:
    """Return the magnitudes that ``--range`` says.

    Raises:
        InvalidOption: it is not two numbers with 0 < least <= most.
    """
    if text is None:
        return None
    from tracea.doctor.precision import Magnitudes

    try:
        least, most = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidOption(
            field="--range", got=text, expected="two numbers: LEAST,MOST", remedy="--range 0.001,100"
        ) from None
    return Magnitudes(least=least, most=most)
