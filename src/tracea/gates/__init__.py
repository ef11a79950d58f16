"""The gates: nothing is timed, cached or shipped before its verdict passed."""

from tracea.gates.case import ALL, QUICK, Case, build_cases
from tracea.gates.comparison import Comparison, compare_output
from tracea.gates.correctness import Bench, Observation, Run, check_correctness
from tracea.gates.determinism import check_determinism
from tracea.gates.distribution import Distribution, generate
from tracea.gates.gate import judge
from tracea.gates.guarded import GuardedArray, Poison
from tracea.gates.stability import check_stability
from tracea.gates.timing import VerifiedTimes, time_verified
from tracea.gates.verdict import Check, Verdict

__all__ = [
    "ALL",
    "QUICK",
    "Bench",
    "Case",
    "Check",
    "Comparison",
    "Distribution",
    "GuardedArray",
    "Observation",
    "Poison",
    "Run",
    "Verdict",
    "VerifiedTimes",
    "build_cases",
    "check_correctness",
    "check_determinism",
    "check_stability",
    "compare_output",
    "generate",
    "judge",
    "time_verified",
]
