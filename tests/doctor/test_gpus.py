"""GPUs: which target a device runs, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tracea.doctor import examine
from tracea.doctor.gpus import GpuReport, describe, probe_gpus, target_for
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


def test_devices_are_lines_of_the_report_and_values_of_its_json() -> None:
    facts = replace(NullDriver(load_gpu("sm_90a")).facts(), driver_version="12.4", name="H200")
    found = describe([facts])
    report = replace(examine(measure=False), gpus=found, problems=found.problems)
    text = str(report)
    assert "1" in next(line for line in text.splitlines() if line.startswith("GPUs"))
    assert "kernels for sm_90a" in text
    assert "CUDA 12.4" in text
    assert report.to_dict()["gpus"]["devices"][0]["target"] == "sm_90a"
    assert "580" in text.partition("Problems")[2]
    without = str(replace(report, gpus=GpuReport(devices=(), absent="no driver", problems=())))
    assert "GPUs          none: no driver" in without


def test_a_known_product_is_named_with_its_stated_peak() -> None:
    facts = replace(NullDriver(load_gpu("h200")).facts(), name="NVIDIA H200", driver_version="13.0")
    found = describe([facts])
    assert found.devices[0].product == "h200"
    text = str(replace(examine(measure=False), gpus=found))
    assert "stated: 989 TFLOP/s of f16 products, 4800 GB/s (tracea targets show h200)" in text
    assert describe([replace(facts, name="NVIDIA H2")]).devices[0].product is None


def test_without_a_driver_library_no_bindings_are_imported() -> None:
    code = (
        "import sys, ctypes\n"
        "real = ctypes.CDLL\n"
        "def absent(name, *rest, **more):\n"
        "    if name == 'libcuda.so.1': raise OSError('no such library')\n"
        "    return real(name, *rest, **more)\n"
        "ctypes.CDLL = absent\n"
        "from tracea.doctor.gpus import probe_gpus\n"
        "found = probe_gpus()\n"
        "assert not found.devices, found\n"
        "assert found.absent == 'no NVIDIA driver is installed (libcuda.so.1 is not found)', found\n"
        "assert not any(name.startswith('cuda.') for name in sys.modules), 'imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
