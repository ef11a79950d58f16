"""Timing on a device, with a device whose clock is the test's."""

from __future__ import annotations

from typing import Any

import pytest

from tracea.errors import InvalidOption, RunError
from tracea.profiler.environment import capture
from tracea.profiler.gpu_timer import DRIFT_LIMIT, Flush, clock_drift, compare_on_device
from tracea.profiler.measurement import Ratio
from tracea.runtime.cuda.null_driver import NullDriver
from tracea.targets.gpu import load_gpu


class ClockedDriver(NullDriver):
    """A device that takes ``slow`` percent longer with each event; work is a number of microseconds."""

    def __init__(self, slow: float = 0.0) -> None:
        super().__init__(load_gpu("sm_90a"))
        self.now, self.slow, self.pending, self.fills, self.inputs = 0.0, slow, None, 0, []  # type: ignore[var-annotated]

    def work(self, cost_us: float, index: int) -> None:
        if self.pending is None:
            self.now += cost_us * (1.0 + self.slow * self.now)
        else:
            self.pending.append(cost_us)
            self.inputs.append(index)

    def record(self, stream: int = 0) -> Any:
        return self.now

    def elapsed_us(self, first: Any, last: Any) -> float:
        return last - first

    def capture(self, stream: int) -> Any:
        driver = self

        class Capture:
            def __enter__(self) -> list[Any]:
                driver.pending, self.graphs = [], []
                return self.graphs

            def __exit__(self, *_: object) -> None:
                self.graphs.append(tuple(driver.pending))
                driver.pending = None

        return Capture()

    def replay(self, graph: Any, *, stream: int = 0) -> None:
        for cost in graph:
            self.work(cost, -1)

    def fill(self, address: int, nbytes: int, byte: int = 0, *, stream: int = 0) -> None:
        self.fills += 1


def test_pairs_give_the_ratio_and_small_kernels_are_batched() -> None:
    driver = ClockedDriver()
    result = compare_on_device(
        driver,
        {"peer": lambda i: driver.work(20.0, i), "ours": lambda i: driver.work(10.0, i)},
        stream=1,
        environment=capture(threads=1),
        input_sets=3,
        flush=Flush(0, 1),
        pairs=30,
    )
    assert Ratio.of(result["peer"], result["ours"]).median == pytest.approx(2.0)
    assert result["ours"].calls_per_sample == 64, "200 calls would last two milliseconds; a graph holds 64"
    assert result["ours"].median_us == pytest.approx(10.0)
    assert driver.fills == 60
    assert set(driver.inputs) == {0, 1, 2}


def test_a_long_kernel_is_a_batch_of_its_own() -> None:
    driver = ClockedDriver()
    result = compare_on_device(
        driver, {"ours": lambda i: driver.work(9_000.0, i)}, stream=0, environment=capture(threads=1), pairs=6
    )
    assert result["ours"].calls_per_sample == 1


def test_drift_is_seen_and_stays_out_of_the_ratio() -> None:
    driver = ClockedDriver(slow=1e-6)
    result = compare_on_device(
        driver,
        {"peer": lambda i: driver.work(2000.0, i), "ours": lambda i: driver.work(1000.0, i)},
        stream=0,
        environment=capture(threads=1),
        pairs=30,
    )
    assert clock_drift(result) > DRIFT_LIMIT
    assert Ratio.of(result["peer"], result["ours"]).median == pytest.approx(2.0, rel=0.01)
    steady = ClockedDriver()
    calm = compare_on_device(
        steady, {"ours": lambda i: steady.work(50.0, i)}, stream=0, environment=capture(threads=1), pairs=30
    )
    assert abs(clock_drift(calm)) < 1e-9


def test_without_a_device_nothing_is_timed() -> None:
    driver = NullDriver(load_gpu("sm_90a"))
    with pytest.raises(RunError, match="no device"):
        compare_on_device(driver, {"ours": lambda _: None}, stream=0, environment=capture(threads=1))
    with pytest.raises(InvalidOption):
        compare_on_device(driver, {}, stream=0, environment=capture(threads=1))
