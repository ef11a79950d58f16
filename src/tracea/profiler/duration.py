"""Durations as text: one spelling of a measured time wherever somebody reads it, without powers of ten."""

from __future__ import annotations

from typing import Final

__all__ = ["shown_interval_us", "shown_us"]

# What four digits round up to a thousand is one of the next unit, and not 1e+03 of this one.
_THOUSAND: Final = 999.95
_CLOCK_US: Final = 0.001  # no clock tells less, and an average over calls does not mean it


def shown_us(duration_us: float) -> str:
    """Return a time in four digits, from a thousand of a unit on in the next: ``214.8 µs``, ``31.91 ms``, ``2.5 s``.

    Below a nanosecond it says no more than that.
    """
    if 0.0 < duration_us < _CLOCK_US:
        return "less than 1 ns"
    unit, scale = _unit(duration_us)
    return f"{_digits(duration_us / scale)} {unit}"


def shown_interval_us(median_us: float, low_us: float, high_us: float) -> str:
    """Return a time with its interval in the unit of the first: ``31.91 ms [31.82, 32.05]``."""
    if 0.0 < median_us < _CLOCK_US:
        return shown_us(median_us)
    _, scale = _unit(median_us)
    low, high = (_digits(each / scale) for each in (low_us, high_us))
    return f"{shown_us(median_us)} [{low}, {high}]"


def _unit(duration_us: float) -> tuple[str, float]:
    if duration_us < _THOUSAND:
        return "µs", 1.0
    return ("ms", 1_000.0) if duration_us / 1_000 < _THOUSAND else ("s", 1_000_000.0)


def _digits(number: float) -> str:
    if number >= _THOUSAND:
        return f"{number:.0f}"
    return f"{number:.4g}" if number >= _CLOCK_US or number == 0.0 else f"{number:.4f}"
