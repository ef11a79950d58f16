"""Search over schedules: what to try next, how every trial is recorded, and when to stop.

Pure search: it knows neither kernels nor compilers. Evaluation is given to it as a function from a Trial to an Outcome.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tracea.optimizer.budget import Budget
from tracea.optimizer.samplers import Sampler, sampler
from tracea.optimizer.space import Parameter, SearchSpace
from tracea.optimizer.trial import Outcome, OutcomeKind, Trial

if TYPE_CHECKING:
    from tracea.optimizer.isolation import IsolatedEvaluation, Limits
    from tracea.optimizer.storage import StudyKey, TrialRecord, TrialStore
    from tracea.optimizer.study import Progress, Study

__all__ = [
    "Budget",
    "IsolatedEvaluation",
    "Limits",
    "Outcome",
    "OutcomeKind",
    "Parameter",
    "Progress",
    "Sampler",
    "SearchSpace",
    "Study",
    "StudyKey",
    "Trial",
    "TrialRecord",
    "TrialStore",
    "sampler",
]

# Loaded on first use: a search in memory needs neither SQLite nor a child process.
_LAZY: Final = {
    "IsolatedEvaluation": "isolation",
    "Limits": "isolation",
    "Progress": "study",
    "Study": "study",
    "StudyKey": "storage",
    "TrialRecord": "storage",
    "TrialStore": "storage",
}


def __getattr__(name: str) -> Any:
    """Load a public name on its first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, and what every module has."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
