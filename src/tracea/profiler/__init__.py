"""Measuring: interleaved timer, measurements with their environment, ratios with intervals, roofline, records."""

from tracea.profiler.environment import Environment, capture
from tracea.profiler.measurement import CONFIDENCE, MINIMUM_PAIRS, Measurement, Ratio, median_interval
from tracea.profiler.processes import run_in_processes
from tracea.profiler.race import Race, race
from tracea.profiler.record import Record, Row, read, write
from tracea.profiler.roofline import Distance, Roofline
from tracea.profiler.sequential import RESOLUTION, RULE, Rule, Standing, sequential_interval
from tracea.profiler.timer import BATCH_US, Timed, compare, measure
from tracea.profiler.watch import PATIENT, WATCH, Watch

__all__ = [
    "BATCH_US",
    "CONFIDENCE",
    "MINIMUM_PAIRS",
    "PATIENT",
    "RESOLUTION",
    "RULE",
    "WATCH",
    "Distance",
    "Environment",
    "Measurement",
    "Race",
    "Ratio",
    "Record",
    "Roofline",
    "Row",
    "Rule",
    "Standing",
    "Timed",
    "Watch",
    "capture",
    "compare",
    "measure",
    "median_interval",
    "race",
    "read",
    "run_in_processes",
    "sequential_interval",
    "write",
]
