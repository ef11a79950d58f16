"""Durations: no powers of ten, and milliseconds where microseconds would have four digits or more."""

from __future__ import annotations

import pytest

from tracea.profiler.duration import shown_interval_us, shown_us


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (2.0, "2 µs"),
        (214.83, "214.8 µs"),
        (999.94, "999.9 µs"),
        (999.96, "1 ms"),
        (31_912.4, "31.91 ms"),
        (999_960.0, "1 s"),
        (2.5e6, "2.5 s"),
        (1.23456e10, "12346 s"),
        (0.1538, "0.1538 µs"),
        (0.0012, "0.0012 µs"),
        (8.3e-6, "less than 1 ns"),
        (0.0, "0 µs"),
    ],
)
def test_a_time_is_spelled_without_powers_of_ten(duration_us: float, text: str) -> None:
    assert shown_us(duration_us) == text


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((2.0, 1.9, 2.25), "2 µs [1.9, 2.25]"),
        ((31_912.4, 31_820.1, 32_049.9), "31.91 ms [31.82, 32.05]"),
        ((1_000.0, 900.0, 1_234_567.0), "1 ms [0.9, 1235]"),
        ((0.0005, 0.0004, 0.0006), "less than 1 ns"),
        ((2.0, 0.00001, 3.0), "2 µs [0.0000, 3]"),
    ],
)
def test_an_interval_is_in_the_unit_of_its_median(times: tuple[float, float, float], text: str) -> None:
    assert shown_interval_us(*times) == text
