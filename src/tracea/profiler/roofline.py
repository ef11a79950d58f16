"""Roofline: what the measured ceilings allow an op, and how far a measured time is from that.

Worked example: 2 · 128³ operations over 3 · 128² · 4 bytes are 21.3 operations a byte; with a peak of 200 GFLOP/s and
10 GB/s the memory allows 213, so the peak is the roof and a time at 150 GFLOP/s is 0.75 of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tracea.errors import InvalidOption
from tracea.profiler.duration import shown_us

__all__ = ["Distance", "Roofline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """A measured time against the roof: ``fraction`` 1 is the roof, ``bound`` says which of the two it is.

    A fraction above 1 is possible where the operands stay in a cache that is faster than the bandwidth of the roof.
    """

    fraction: float
    bound: Literal["compute", "memory"]
    attained_gflops: float
    attained_gbytes: float
    least_us: float

    def __str__(self) -> str:
        return (
            f"{self.fraction:.0%} of the {self.bound} roof "
            f"({self.attained_gflops:.1f} GFLOP/s, {self.attained_gbytes:.1f} GB/s, at least {shown_us(self.least_us)})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Two measured ceilings: operations and bytes per second, for one number of threads.

    Units: 10⁹ floating-point operations a second and 10⁹ bytes a second.
    """

    peak_gflops: float
    bandwidth_gbytes: float

    def __post_init__(self) -> None:
        for field in ("peak_gflops", "bandwidth_gbytes"):
            if not getattr(self, field) > 0:
                raise InvalidOption(
                    field=field, got=getattr(self, field), expected="more than 0", remedy="measure it first"
                )

    @property
    def ridge(self) -> float:
        """The intensity, in operations a byte, from which the peak is the roof."""
        return self.peak_gflops / self.bandwidth_gbytes

    def attainable_gflops(self, intensity: float) -> float:
        """Return min(peak, intensity · bandwidth), with the intensity in operations a byte."""
        return min(self.peak_gflops, intensity * self.bandwidth_gbytes)

    def least_us(self, *, flops: float, nbytes: float) -> float:
        """Return the shortest time that both ceilings allow, in microseconds."""
        return max(flops / self.peak_gflops, nbytes / self.bandwidth_gbytes) / 1_000

    def distance(self, *, flops: float, nbytes: float, latency_us: float) -> Distance:
        """Compare a measured time with the shortest that the ceilings allow."""
        least = self.least_us(flops=flops, nbytes=nbytes)
        return Distance(
            fraction=least / latency_us,
            bound="compute" if flops / self.peak_gflops >= nbytes / self.bandwidth_gbytes else "memory",
            attained_gflops=flops / latency_us / 1_000,
            attained_gbytes=nbytes / latency_us / 1_000,
            least_us=least,
        )
