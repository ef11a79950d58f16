"""The gates: nothing is timed, cached or shipped before its verdict passed."""

from tracea.gates.baseline import against_baseline, read_evidence
from tracea.gates.case import ALL, QUICK, Case, build_cases, case_of
from tracea.gates.comparison import Comparison, compare_output
from tracea.gates.concurrency import check_concurrency
from tracea.gates.correctness import Bench, Observation, Run, check_correctness
from tracea.gates.determinism import check_determinism
from tracea.gates.distribution import Distribution
from tracea.gates.fence import Fence, check_fences
from tracea.gates.gate import judge
from tracea.gates.guarded import GuardedArray, Poison
from tracea.gates.inputs import generate
from tracea.gates.junit import to_junit
from tracea.gates.latency import check_latency
from tracea.gates.operands import check_operands
from tracea.gates.safety import check_certificate, check_emulation, check_safety
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
    "Fence",
    "GuardedArray",
    "Observation",
    "Poison",
    "Run",
    "Verdict",
    "VerifiedTimes",
    "against_baseline",
    "build_cases",
    "case_of",
    "check_certificate",
    "check_concurrency",
    "check_correctness",
    "check_determinism",
    "check_emulation",
    "check_fences",
    "check_latency",
    "check_operands",
    "check_safety",
    "check_stability",
    "compare_output",
    "generate",
    "judge",
    "read_evidence",
    "time_verified",
    "to_junit",
]
