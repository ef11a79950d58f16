"""Pruning: rules that leave schedules out before a search, each an inequality between numbers of the target.

Worked example: an AVX-512 core starts 2 multiply-adds a cycle and each takes 4, so a register tile of 4x1 has 4 sums
for 8 multiply-adds in flight and half of the cycles are lost. No such tile can win while others have 8 sums or more.

A rule is written for a variant whose whole space was timed somewhere: benchmarks/results/sweeps holds the sweeps, and
tests/doctor/test_policy.py shows for each that the best schedule is among those that are left. Other variants are
searched whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracea.core.ops.gemm import GemmOp

if TYPE_CHECKING:
    from tracea.core.tensor_type import Dim
    from tracea.kernels.space import Value
    from tracea.targets import Target

__all__ = ["RULES", "PruningRule", "rules_of"]

Chosen = Mapping[str, "Value"]

# Steps of products that one more pass over C costs, and columns of products that packing A once more costs: measured,
# benchmarks/NOTES.md ("How wide a space has to be"): K blocks of 32, 64, 128 against 768 and columns likewise.
_PASS_STEPS: Final = 24.0
_PACK_COLUMNS: Final = 16.0
# Added overheads up to this much over the least are left in: more than the model is off by on any recorded sweep.
_OVERHEAD: Final = 0.20


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningRule:
    """A reason to leave schedules out: ``keeps`` tells of one schedule's values, ``because`` says it with numbers."""

    name: str
    because: str
    keeps: Callable[[Chosen], bool]


def rules_of(variant: str, op: Any, target: Any, space: Iterable[Chosen]) -> tuple[PruningRule, ...]:
    """Return the rules for one variant's space, none where no sweep of the variant shows that they keep its best."""
    rules = RULES.get(variant)
    return () if rules is None else rules(op, target, space)


def _packed(op: GemmOp, target: Target, space: Iterable[Chosen]) -> tuple[PruningRule, ...]:
    m, n, k = (_known(dim) for dim in (op.m, op.n, op.k))
    in_flight = target.fma_per_cycle * target.fma_latency_cycles

    def sums(chosen: Chosen) -> tuple[int, int]:
        return min(int(chosen["mr"]), m), int(chosen["nv"])

    def hides(chosen: Chosen) -> bool:
        rows, vectors = sums(chosen)
        return rows * vectors >= in_flight

    def is_fed(chosen: Chosen) -> bool:
        rows, vectors = sums(chosen)
        return rows + vectors <= rows * vectors

    def overhead(chosen: Chosen) -> float:
        passes = -(-k // min(int(chosen["kc"]), max(k, 1)))
        return _PASS_STEPS * (passes - 1) / max(k, 1) + _PACK_COLUMNS / max(1, min(int(chosen["nc"]), n))

    least = min((overhead(chosen) for chosen in space), default=0.0)
    return (
        PruningRule(
            name="sums hide the latency",
            because=f"a core starts {target.fma_per_cycle} vector multiply-adds a cycle, and each takes "
            f"{target.fma_latency_cycles} cycles: a register tile of fewer than {in_flight} vectors of sums waits",
            keeps=hides,
        ),
        PruningRule(
            name="loads keep up",
            because="a tile of r rows and v vectors loads r + v operands for r·v multiply-adds in each step: "
            "where that is more loads than multiply-adds, loading is what takes the time",
            keeps=is_fed,
        ),
        PruningRule(
            name="blocks repay their packing",
            because=f"each further K block costs about {_PASS_STEPS:g} steps for another pass over C, and each block "
            f"of columns about {_PACK_COLUMNS:g} columns for packing A again: schedules that add more than "
            f"{_OVERHEAD:.0%} of the products over the least possible, {least:.1%}, are left out",
            keeps=lambda chosen: overhead(chosen) <= least + _OVERHEAD,
        ),
    )


def _known(dim: Dim) -> int:
    # A symbolic extent is scheduled for its largest case, as the variant's own space does.
    return dim if isinstance(dim, int) else dim.maximum or 1024


RULES: Final[Mapping[str, Callable[[Any, Any, Iterable[Chosen]], tuple[PruningRule, ...]]]] = {"gemm.packed": _packed}
