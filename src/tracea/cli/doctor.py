"""``tracea doctor``: what this machine is, how fast it can be, and what stands in the way."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tracea.cli.console import print_json

__all__ = ["doctor"]


def doctor(
    *,
    measure: bool = True,
    again: Annotated[bool, Parameter(negative=())] = False,
    variants: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Name this machine's instruction sets, caches, cores, compilers and PyTorch, and measure its ceilings.

    Example: tracea doctor --json

    Parameters
    ----------
    measure
        Measure peak arithmetic and bandwidth (seconds, once; then they are remembered).
    again
        Measure again.
    variants
        List every variant and what it requires.
    json
        Print the report as JSON.
    """
    from tracea.doctor import examine

    report = examine(again=again, measure=measure)
    if json:
        print_json(report.to_json())
    else:
        print(report.text(variants=True) if variants else report)
    return 0
