"""What keeps a module from being captured: a line, why, and what to do, all of which one error tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from tracea.errors import UnsupportedNode
from tracea.interface.torch.location import line_of_node

__all__ = ["Problem", "known_before", "unsupported"]


@dataclass(slots=True)
class Problem:
    """An operator that was refused, and the line of the user's that calls it."""

    node: str
    location: str
    reason: str
    remedy: str


_EFFECT: Final = "with_effects"  # torch's own, around a check that it makes of an operator which it takes apart


def unsupported(problems: Sequence[Problem]) -> UnsupportedNode:
    """Return the error that names all problems, of which there is one; none for a check of what is refused itself."""
    lines = {problem.location for problem in problems if problem.node != _EFFECT}
    first, *rest = [each for each in problems if each.node != _EFFECT or each.location not in lines]
    others = "".join(
        f"; also {p.node} at {p.location}: {p.reason}{'' if p.remedy == first.remedy else f' ({p.remedy})'}"
        for p in rest
    )
    return UnsupportedNode(
        node=f"{first.node}: {first.reason}", location=first.location, remedy=f"{first.remedy}{others}"
    )


def known_before(value: Any, node: Any) -> Any:
    """Return what a result holds that is no tensor: the same in each call.

    Raises:
        UnsupportedNode: it is torch's symbol of a number that each call computes.
    """
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    raise UnsupportedNode(
        node="a number among the results of forward, which only a call knows (.item(), a dynamic extent)",
        location=line_of_node(node),
        remedy="return the tensor that holds it, and call .item() on the result; of an extent ask a result's shape",
    )
