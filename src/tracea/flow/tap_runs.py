"""Runs of a convolution's results along one axis whose windows have the same taps within the image."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

__all__ = ["TapRun"]


@dataclass(frozen=True, slots=True)
class TapRun:
    """Consecutive rows of the result, or columns, whose windows have the same taps within the image."""

    first: int
    count: int
    tap: int
    taps: int

    @classmethod
    def all(cls, *, count: int, size: int, taps: int, stride: int, padding: int, dilation: int) -> tuple[TapRun, ...]:
        """Return the runs of ``count`` rows over an image of ``size``, without those that meet no tap."""

        def met(row: int) -> tuple[int, int]:
            top = row * stride - padding
            first = min(taps, max(0, -(top // dilation)))
            return first, max(first, min(taps, (size - 1 - top) // dilation + 1))

        found = [(*taps, list(rows)) for taps, rows in groupby(range(count), met)]
        return tuple(cls(rows[0], len(rows), tap, end - tap) for tap, end, rows in found if end > tap)
