"""Durations as text: one spelling of a measured time wherever somebody reads it."""

from __future__ import annotations

__all__ = ["shown_us"]


def shown_us(duration_us: float) -> str:
    """Return a time in four digits, in milliseconds from a thousand microseconds on: ``31.91 ms``, ``214.8 µs``."""
    # What four digits round up to a thousand is a millisecond too, and not 1e+03 µs.
    return f"{duration_us / 1_000:.4g} ms" if duration_us >= 999.95 else f"{duration_us:.4g} µs"
