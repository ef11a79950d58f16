"""Measuring: interleaved timer, measurements with their environment, ratios with intervals, roofline, records."""

from tracea.profiler.environment import Environment, capture
from tracea.profiler.measurement import CONFIDENCE, MINIMUM_PAIRS, Measurement, Ratio, median_interval
from tracea.profiler.processes import run_in_processes
from tracea.profiler.record import Record, Row, read, write
from tracea.profiler.roofline import Distance, Roofline
from tracea.profiler.timer import BATCH_US, Timed, compare, measure

__all__ = [
    "BATCH_US",
    "CONFIDENCE",
    "MINIMUM_PAIRS",
    "Distance",
    "Environment",
    "Measurement",
    "Ratio",
    "Record",
    "Roofline",
    "Row",
    "Timed",
    "capture",
    "compare",
    "measure",
    "median_interval",
    "read",
    "run_in_processes",
    "write",
]
