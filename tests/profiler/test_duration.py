"""Durations: no powers of ten, and milliseconds where microseconds would have four digits or more."""

from __future__ import annotations

import pytest

from tracea.profiler.duration import shown_us


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [(2.0, "2 µs"), (214.83, "214.8 µs"), (999.94, "999.9 µs"), (999.96, "1 ms"), (31_912.4, "31.91 ms")],
)
def test_a_time_is_spelled_without_powers_of_ten(duration_us: float, text: str) -> None:
    assert shown_us(duration_us) == text
