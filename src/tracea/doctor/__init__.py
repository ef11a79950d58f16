"""The doctor: what this machine is, how fast it can be, and which variant runs an op there and why.

``tracea.doctor()`` is the public face: importing this package binds its name on ``tracea``, so the module itself is
what one calls.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tracea.doctor.ceilings import Bandwidth, Ceilings, Peak
from tracea.doctor.diagnosis import Problem, diagnose, diagnose_load
from tracea.doctor.fingerprint import Fingerprint, identify
from tracea.doctor.kept_ceilings import measure_ceilings, measured_ceilings
from tracea.doctor.plan import Candidate, Decision, Flip, Plan, Rejection
from tracea.doctor.probe import Cache, Hardware, Machine, Toolchain, host, probe_machine
from tracea.doctor.report import Report, VariantLine, examine
from tracea.doctor.select import History, Known, check_served, decide, plan_ops

__all__ = [
    "Bandwidth",
    "Cache",
    "Candidate",
    "Ceilings",
    "Decision",
    "Fingerprint",
    "Flip",
    "Hardware",
    "History",
    "Known",
    "Machine",
    "Peak",
    "Plan",
    "Problem",
    "Rejection",
    "Report",
    "Toolchain",
    "VariantLine",
    "check_served",
    "decide",
    "diagnose",
    "diagnose_load",
    "examine",
    "host",
    "identify",
    "measure_ceilings",
    "measured_ceilings",
    "plan_ops",
    "probe_machine",
]


def __dir__() -> list[str]:
    """List the public names, and what every module has."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


class _Doctor(ModuleType):
    """The module, which examines the machine when called."""

    def __call__(self, *, again: bool = False, measure: bool = True) -> Report:
        """Look at this machine, measure its ceilings once, and report; see ``examine``."""
        return examine(again=again, measure=measure)


sys.modules[__name__].__class__ = _Doctor
