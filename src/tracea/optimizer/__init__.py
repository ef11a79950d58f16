"""Search over schedules: what to try next, how every trial is recorded, and when to stop.

Pure search: it knows neither kernels nor compilers. Evaluation is given to it as a function from a Trial to an Outcome.
"""

from __future__ import annotations

from tracea.optimizer.budget import Budget
from tracea.optimizer.samplers import Sampler, sampler
from tracea.optimizer.space import Parameter, SearchSpace

__all__ = ["Budget", "Parameter", "Sampler", "SearchSpace", "sampler"]
