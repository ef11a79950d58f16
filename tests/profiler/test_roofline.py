"""The roofline."""

from __future__ import annotations

import pytest

from tracea.errors import InvalidOption
from tracea.profiler import Roofline

ROOF = Roofline(peak_gflops=200.0, bandwidth_gbytes=10.0)


def test_the_roof_is_the_lower_of_peak_and_intensity_times_bandwidth() -> None:
    assert ROOF.ridge == 20.0
    assert ROOF.attainable_gflops(5.0) == 50.0
    assert ROOF.attainable_gflops(20.0) == ROOF.attainable_gflops(1_000.0) == 200.0


def test_the_distance_of_a_product_is_from_the_peak_and_of_a_copy_from_the_bandwidth() -> None:
    flops, nbytes = 2 * 128**3, 3 * 128**2 * 4
    product = ROOF.distance(flops=flops, nbytes=nbytes, latency_us=flops / 150e9 * 1e6)
    assert product.bound == "compute"
    assert product.fraction == pytest.approx(0.75)
    assert product.attained_gflops == pytest.approx(150.0)
    copy = ROOF.distance(flops=0, nbytes=8_000_000, latency_us=1_000.0)
    assert copy.bound == "memory"
    assert copy.fraction == pytest.approx(0.8)
    assert copy.least_us == pytest.approx(800.0)
    assert str(copy) == "80% of the memory roof (0.0 GFLOP/s, 8.0 GB/s, at least 800 µs)"


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_ceiling_that_was_not_measured_is_refused(value: float) -> None:
    with pytest.raises(InvalidOption, match="measure it first"):
        Roofline(peak_gflops=value, bandwidth_gbytes=1.0)
