"""Measurement and Ratio: samples with their environment, and what paired samples say about two implementations.

Worked example: in each of 30 rounds the peer's batch and ours run one after the other. Each round gives one quotient
peer / ours, in which the host's slow and fast phases cancel; the ratio is the median of the 30, and the 10th and the
21st of them in order are a 95.7 % confidence interval for it, whatever the distribution of the noise: if the rounds are
independent, and no side has more of it. What other programs do to rounds is neither, so each measurement says how many
rounds they disturbed.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tracea.errors import InvalidOption
from tracea.profiler.duration import shown_interval_us
from tracea.profiler.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["CONFIDENCE", "MINIMUM_PAIRS", "Measurement", "Ratio", "median_interval"]

CONFIDENCE: Final = 0.95
MINIMUM_PAIRS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The times of one function, one sample a round, with the environment that they were taken in.

    Units: each sample is microseconds of one call of ``calls_per_sample``: their mean, of a team's the median of short
    slices. ``discarded`` rounds were measured and left out since other programs disturbed them, ``disturbed`` ones are
    among the samples all the same; ``left_out`` is the share of a team's slices that do not count, since a thread lost
    its core in them; ``busy_cores`` is how many cores' worth of time other programs took meanwhile, None where nobody
    says.
    """

    name: str
    samples_us: tuple[float, ...]
    calls_per_sample: int
    environment: Environment
    discarded: int = 0
    disturbed: int = 0
    busy_cores: float | None = None
    left_out: float = 0.0

    def __post_init__(self) -> None:
        if not self.samples_us or not all(math.isfinite(sample) and sample > 0 for sample in self.samples_us):
            raise InvalidOption(
                field=f"measurement {self.name}: samples_us",
                got=self.samples_us,
                expected="at least 1 sample, all positive",
                remedy="measure with a clock that advances within a batch",
            )

    @property
    def median_us(self) -> float:
        """The median time of a call."""
        return statistics.median(self.samples_us)

    @property
    def minimum_us(self) -> float:
        """The fastest sample."""
        return min(self.samples_us)

    @property
    def spread(self) -> float:
        """The distance between the quartiles over the median: 0 is a quiet machine."""
        if len(self.samples_us) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.samples_us, n=4, method="inclusive")
        return (high - low) / self.median_us

    @property
    def interval_us(self) -> tuple[float, float]:
        """The confidence interval of the median."""
        low, high, _ = median_interval(self.samples_us)
        return low, high

    def __str__(self) -> str:
        return f"{self.name}: {shown_interval_us(self.median_us, *self.interval_us)}, {len(self.samples_us)} samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times faster ours is than the peer: the median of paired quotients peer / ours, with its interval.

    With several processes the interval also covers the median of each process, since address layout and the state of
    the host change between processes and not within one.
    """

    median: float
    low: float
    high: float
    pairs: int
    processes: int = 1
    confidence: float = field(default=CONFIDENCE)

    @classmethod
    def of(cls, peer: Measurement, ours: Measurement) -> Ratio:
        """Compare two measurements of one interleaved run."""
        return cls.merge([(peer, ours)])

    @classmethod
    def merge(cls, processes: Iterable[tuple[Measurement, Measurement]]) -> Ratio:
        """Compare (peer, ours) as interleaved in each of several processes.

        Raises:
            InvalidOption: no process, or a peer and ours that were not measured in the same rounds.
        """
        quotients = [_quotients(peer, ours) for peer, ours in processes]
        if not quotients:
            raise InvalidOption(field="processes", got=0, expected="at least 1", remedy="measure at least once")
        pooled = [quotient for process in quotients for quotient in process]
        medians = [statistics.median(process) for process in quotients]
        low, high, confidence = median_interval(pooled)
        return cls(
            median=statistics.median(pooled),
            low=min(low, *medians),
            high=max(high, *medians),
            pairs=len(pooled),
            processes=len(quotients),
            confidence=confidence,
        )

    @property
    def sufficient(self) -> bool:
        """Whether there were enough pairs to report the ratio."""
        return self.pairs >= MINIMUM_PAIRS

    @property
    def decided(self) -> bool:
        """Whether the interval leaves 1 out: one of the two is faster, beyond the noise."""
        return self.low > 1.0 or self.high < 1.0

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Return (low, high, confidence reached) of the median: two order statistics, free of assumptions on the noise.

    With fewer than 6 samples no two order statistics reach 95 %: the extremes are returned with what they do reach.
    Source: David and Nagaraja, Order Statistics, 7.1: P(X_(k) <= median <= X_(n+1-k)) = 1 - 2 P(Binomial(n, 1/2) < k).
    """
    ordered = sorted(samples)
    n = len(ordered)
    rank, reached, below = 1, max(0.0, 1 - 2 * 0.5**n), 0.5**n
    for k in range(2, (n + 1) // 2 + 1):
        below += math.comb(n, k - 1) / 2**n
        if 1 - 2 * below < confidence:
            break
        rank, reached = k, 1 - 2 * below
    return ordered[rank - 1], ordered[n - rank], reached


def _quotients(peer: Measurement, ours: Measurement) -> list[float]:
    if len(peer.samples_us) != len(ours.samples_us):
        raise InvalidOption(
            field=f"samples of {peer.name} and {ours.name}",
            got=(len(peer.samples_us), len(ours.samples_us)),
            expected="one sample of each in every round",
            remedy="measure both in one call of compare",
        )
    return [theirs / mine for theirs, mine in zip(peer.samples_us, ours.samples_us, strict=True)]
