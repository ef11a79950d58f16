"""GPUs: which target a device runs, and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracea.doctor.gpus import describe, probe_gpus, target_for
from tracea.runtime.cuda.null_driver import NullDriver
from tracea.targets.gpu import gpu_names, load_gpu


@pytest.mark.parametrize("name", gpu_names())
def test_each_target_runs_on_its_own_device(name: str) -> None:
    assert target_for(load_gpu(name).compute_capability) == name


@pytest.mark.parametrize(
    ("capability", "target"), [(87, "sm_86"), (88, "sm_86"), (103, None), (121, None), (70, None), (110, None)]
)
def test_relatives_run_what_binary_compatibility_allows(capability: int, target: str | None) -> None:
    assert target_for(capability) == target


def test_an_old_driver_and_an_unknown_device_are_problems() -> None:
    facts = replace(NullDriver(load_gpu("sm_90a")).facts(), driver_version="13.0")
    assert describe([facts]).problems == ()
    old = describe([replace(facts, driver_version="12.4")])
    assert "12.4" in old.problems[0].what
    assert "580" in old.problems[0].remedy
    unknown = describe([replace(facts, compute_capability=70)])
    assert unknown.devices[0].target is None
    assert "7.0" in unknown.problems[0].what


def test_a_machine_without_gpus_is_described() -> None:
    report = probe_gpus()
    assert bool(report.devices) != bool(report.absent)
