"""The report of the GPU suite as text: times as people read them."""

from __future__ import annotations

import pytest

from tracea.bench.gpu.run import _row_line
from tracea.profiler import Measurement, Ratio, Row, capture


@pytest.mark.parametrize(("sample_us", "said"), [(31_912.4, "31.91 ms"), (4.25, "4.25 µs"), (2e-6, "less than 1 ns")])
def test_a_time_has_no_powers_of_ten(sample_us: float, said: str) -> None:
    ours, peer = (
        Measurement(name=name, samples_us=(sample_us,) * 6, calls_per_sample=1, environment=capture(threads=1))
        for name in ("tracea", "cublas")
    )
    row = Row(problem="gemm", measurements=(ours, peer), ratios={"cublas": Ratio.of(peer, ours)})
    line = _row_line(row, {"tflops": {"tracea": 1.0}, "share_of_peak": {"tracea": 0.5}})
    assert f" {said} " in line
    assert "e+" not in line
    assert "e-" not in line
