"""Every problem that the doctor knows, each from a machine that has it: what is said, with numbers, and the remedy."""

# ruff: noqa: N802, N815  # a library's functions are called what it calls them

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import platform
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tracea.doctor import Problem, diagnose, examine, probe_machine
from tracea.doctor.diagnosis import diagnose_neighbours
from tracea.doctor.gpus import GpuReport, describe, diagnose_cuda, probe_gpus
from tracea.doctor.nvml import NvmlState, diagnose_nvml, read_nvml
from tracea.doctor.other_gpus import probe_amd, probe_apple
from tracea.doctor.place import CachePlace, diagnose_place, probe_place
from tracea.errors import CacheUnwritable
from tracea.profiler.machine import Processor, memory_limit, processor
from tracea.runtime.cuda.null_driver import NullDriver
from tracea.targets.gpu import load_gpu

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 flags")
AVX2 = "fpu sse2 avx avx2 fma f16c"
NONE = GpuReport(devices=(), absent="found none", problems=())


def one(problems: tuple[Problem, ...] | list[Problem]) -> Problem:
    (problem,) = problems
    assert problem.what
    assert problem.remedy
    return problem


# The processor: what its name promises, what archspec sees, what the compiled probe finds.


def shown(root: Path, *, vendor: str, family: int, number: int, flags: str) -> Path:
    path = root / "proc" / "cpuinfo"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {number}\nmodel name\t: Some\nflags\t\t: {flags}\n"
    )
    return root


@X86
@pytest.mark.parametrize(
    ("numbers", "name", "masked"),
    [
        (("GenuineIntel", 6, 143), "sapphirerapids", ("avx512", "amx_bf16")),
        (("GenuineIntel", 6, 85), "skylake_avx512", ("avx512",)),
        (("AuthenticAMD", 25, 17), "zen4", ("avx512",)),
        (("AuthenticAMD", 26, 2), "zen5", ("avx512",)),
        (("AuthenticAMD", 25, 1), "zen3", ()),
        (("GenuineIntel", 6, 63), "haswell", ()),
        (("GenuineIntel", 6, 250), "", ()),  # a number that no table has promises nothing
    ],
)
def test_an_instruction_set_that_the_virtual_machine_masks_is_named_by_the_vendors_numbers(
    tmp_path: Path, numbers: tuple[str, int, int], name: str, masked: tuple[str, ...]
) -> None:
    vendor, family, number = numbers
    machine = probe_machine(shown(tmp_path, vendor=vendor, family=family, number=number, flags=f"{AVX2} hypervisor"))
    assert machine.hardware.masked == masked
    found = [problem for problem in diagnose(machine, None) if "masks it" in problem.what]
    assert [problem.what for problem in found] == [
        f"A {name} has {isa}, but the virtual machine masks it" for isa in masked
    ]
    assert all("host-passthrough" in problem.remedy for problem in found)


@X86
def test_on_bare_metal_the_bios_is_the_remedy(tmp_path: Path) -> None:
    machine = probe_machine(shown(tmp_path, vendor="GenuineIntel", family=6, number=85, flags=AVX2))
    problem = one([each for each in diagnose(machine, None) if "skylake_avx512" in each.what])
    assert "this machine does not show it" in problem.what
    assert "BIOS" in problem.remedy


@X86
def test_what_the_compiled_probe_denies_is_masked_whatever_the_flags_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracea.doctor.probe._cpuid_agrees", lambda isa, _: isa == "plain")
    monkeypatch.setattr("tracea.doctor.probe._promised", lambda *_: ("zen4", frozenset({"avx2", "fma", "f16c"})))
    machine = probe_machine()
    assert machine.hardware.isas == ("plain",)
    assert "A zen4 has avx2" in " ".join(problem.what for problem in diagnose(machine, None))


def test_the_vendors_numbers_are_read_and_absent_ones_are_zero(tmp_path: Path) -> None:
    root = shown(tmp_path, vendor="GenuineIntel", family=6, number=143, flags=AVX2)
    assert (processor(root).family, processor(root).number) == (6, 143)
    assert Processor(model="m", vendor="v", architecture="a", flags=frozenset()).family == 0


# Memory: limits of control groups, of both versions and of parents.


@pytest.mark.parametrize(
    ("group", "files", "limit"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "536870912\n"}, 2**29),
        ("4:memory:/x\n", {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1073741824\n"}, 2**30),
        ("4:memory:/\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("0::/\n", {}, None),
    ],
)
def test_the_memory_limit_of_the_control_group(
    tmp_path: Path, group: str, files: dict[str, str], limit: int | None
) -> None:
    for name, text in {"proc/self/cgroup": group, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_limit(tmp_path) == limit


def test_a_small_memory_limit_is_a_problem_and_the_measured_arrays_fit_it() -> None:
    from tracea.doctor import ceilings

    machine = dataclasses.replace(probe_machine(), memory_limit=2**29)
    problem = one([each for each in diagnose(machine, None) if "MiB of memory" in each.what])
    assert "grants 512 MiB" in problem.what
    assert ceilings._array_bytes(machine) <= 2**29 // 8
    assert not [
        each
        for each in diagnose(dataclasses.replace(machine, memory_limit=2**34), None)
        if "MiB of memory" in each.what
    ]


# The cache directory.


def test_a_sound_cache_directory_is_no_problem(tmp_path: Path) -> None:
    place = probe_place(lambda: tmp_path / "cache")
    assert (place.path, place.refused) == (str(tmp_path / "cache"), "")
    assert place.free_bytes is not None
    roomy = dataclasses.replace(place, free_bytes=2**40, runs=True)
    assert diagnose_place(roomy) == ()


def _is_file(path: Path) -> None:
    path.write_text("")


def _is_writable_by_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "what", "remedy"),
    [
        (_is_file, "cannot be used", "TRACEA_CACHE_DIR"),
        (_is_writable_by_others, "can be written by others (mode 0777)", "chmod go-w"),
    ],
)
def test_a_cache_directory_that_is_refused(
    tmp_path: Path, make: Callable[[Path], None], what: str, remedy: str
) -> None:
    make(tmp_path / "cache")
    problem = one(diagnose_place(probe_place(lambda: tmp_path / "cache")))
    assert what in problem.what
    assert "compiled again in every process" in problem.what
    assert remedy in problem.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_directory_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    problem = one(diagnose_place(probe_place(lambda: tmp_path / "cache")))
    assert "Permission denied" in problem.what


def test_no_home_a_disk_without_room_and_one_that_runs_nothing() -> None:
    def homeless() -> Path:
        raise CacheUnwritable(path="~/.cache", detail="this user has no home directory")

    assert "no home directory" in one(diagnose_place(probe_place(homeless))).what
    good = CachePlace(path="/c", refused="", remedy="", runs=True, free_bytes=2**40)
    full = one(diagnose_place(dataclasses.replace(good, free_bytes=100 * 2**20)))
    assert "100 MiB left" in full.what
    assert "tracea cache gc" in full.remedy
    assert "noexec" in one(diagnose_place(dataclasses.replace(good, runs=False))).what
    assert diagnose_place(dataclasses.replace(good, runs=None, free_bytes=None)) == ()


# NVIDIA: a library that answers as NVML does.


class FakeNvml:
    """NVML with two GPUs, whose facts a test sets."""

    def __init__(self, *, init: int = 0, reasons: int = 0, mode: int = 0, limit: int = 700_000) -> None:
        self.init, self.reasons, self.mode, self.limit = init, reasons, mode, limit
        self.open = 0

    def nvmlInit_v2(self) -> int:
        self.open += self.init == 0
        return self.init

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: Any, handle: Any) -> int:
        handle._obj.value = number.value + 1
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = b"580.65"
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:
        text.value = b"NVIDIA H200"
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, reasons: Any) -> int:
        reasons._obj.value = self.reasons if handle.value == 2 else 0
        return 0

    def nvmlDeviceGetComputeMode(self, handle: Any, mode: Any) -> int:
        mode._obj.value = self.mode if handle.value == 2 else 0
        return 0

    def nvmlDeviceGetPowerManagementLimit(self, handle: Any, milliwatts: Any) -> int:
        milliwatts._obj.value = self.limit if handle.value == 2 else 700_000
        return 0

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any, milliwatts: Any) -> int:
        milliwatts._obj.value = 700_000
        return 3 if handle.value == 1 else 0  # the first one does not say


def asked(**facts: int) -> NvmlState:
    library = FakeNvml(**facts)
    state = read_nvml(lambda _: library)
    assert state is not None
    assert library.open == 0  # shut down again
    return state


def test_nvml_is_asked_and_shut_down() -> None:
    state = asked()
    assert (state.driver, len(state.devices)) == ("580.65", 2)
    assert state.devices[0].default_power_limit_w is None
    assert state.devices[1].power_limit_w == 700.0
    assert diagnose_nvml(state) == ()


@pytest.mark.parametrize(
    ("facts", "what", "remedy"),
    [
        ({"init": 18}, "of different versions", "restart the machine"),
        ({"init": 9}, "the driver is not loaded", "nvidia-smi"),
        ({"init": 77}, "error 77", "nvidia-smi"),
        ({"reasons": 0x04 | 0x20}, "held down by the power limit and the temperature, by the driver", "cool down"),
        ({"reasons": 0x01}, "", ""),  # idle: clocks are low since nothing runs
        ({"mode": 2}, "GPU 1 (NVIDIA H200) may not compute", "nvidia-smi -i 1 -c DEFAULT"),
        ({"limit": 350_000}, "limited to 350 W of its usual 700 W", "nvidia-smi -i 1 -pl 700"),
    ],
)
def test_what_nvml_says_is_a_problem_with_a_remedy(facts: dict[str, int], what: str, remedy: str) -> None:
    problems = diagnose_nvml(asked(**facts))
    if not what:
        assert problems == ()
        return
    problem = one(problems)
    assert what in problem.what
    assert remedy in problem.remedy


def missing(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_a_machine_without_nvml_is_no_problem() -> None:
    assert read_nvml(missing) is None
    assert diagnose_nvml(None) == ()


def test_a_driver_in_the_kernel_without_its_libraries_and_gpus_without_a_compiler() -> None:
    assert diagnose_cuda(NONE, None, module=False, compiler=None) == ()
    problem = one(diagnose_cuda(NONE, None, module=True, compiler=None))
    assert "kernel driver is loaded, but CUDA finds no GPU: found none" in problem.what
    assert "--gpus all" in problem.remedy
    # What NVML says of it is the cause: said once.
    assert len(diagnose_cuda(NONE, asked(init=18), module=True, compiler=None)) == 1
    facts = dataclasses.replace(NullDriver(load_gpu("sm_90a")).facts(), driver_version="13.0")
    found = describe([facts])
    assert diagnose_cuda(found, None, module=True, compiler=None) == ()
    assert "cannot be compiled" in one(diagnose_cuda(found, None, module=True, compiler="no NVRTC")).what


def test_a_driver_older_than_the_toolkit() -> None:
    facts = dataclasses.replace(NullDriver(load_gpu("sm_90a")).facts(), driver_version="12.4")
    problem = one(describe([facts]).problems)
    assert "speaks CUDA 12.4, older than the compiler's 13.0" in problem.what
    assert "580" in problem.remedy


# AMD and Apple.


def amd_machine(root: Path, *, device: bool) -> Path:
    nodes = {0: "simd_count 0\ngfx_target_version 0\n", 1: "simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\n"}
    for number, text in nodes.items():
        path = root / f"sys/class/kfd/kfd/topology/nodes/{number}/properties"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    if device:
        (root / "dev").mkdir()
        (root / "dev/kfd").write_text("")
    return root


def test_amds_gpus_are_found_by_the_kernels_files_and_hip_is_looked_for(tmp_path: Path) -> None:
    root = amd_machine(tmp_path, device=True)
    found, problems = probe_amd(root, lambda name: name)
    assert [(gpu.architecture, gpu.compute_units, gpu.backend) for gpu in found] == [("gfx942", 304, "hip")]
    assert problems == ()
    _, problems = probe_amd(root, missing)
    assert "HIP runtime" in one(problems).what
    assert "ROCm" in one(problems).remedy


def test_a_user_who_may_not_open_amds_device(tmp_path: Path) -> None:
    _, problems = probe_amd(amd_machine(tmp_path, device=False), lambda name: name)
    assert "/dev/kfd" in one(problems).what
    assert "render" in one(problems).remedy


def test_nothing_is_loaded_where_there_is_no_such_gpu(tmp_path: Path) -> None:
    assert probe_amd(tmp_path, missing) == ((), ())
    assert probe_apple(missing, "Linux") == ()
    assert probe_apple(missing, "Darwin") == ()


def test_apples_gpu_is_asked_for_its_name() -> None:
    title = ctypes.create_string_buffer(b"Apple M3 Max")

    class Function:
        def __init__(self, answer: Callable[..., int]) -> None:
            self.answer, self.restype = answer, None

        def __call__(self, *arguments: Any) -> int:
            return self.answer(*arguments)

    class Library:
        MTLCreateSystemDefaultDevice = Function(lambda: 1)
        sel_registerName = Function(lambda name: 7 if name == b"name" else 8)
        objc_msgSend = Function(lambda _, selector: 2 if selector.value == 7 else ctypes.addressof(title))

    (gpu,) = probe_apple(lambda _: Library, "Darwin")
    assert (gpu.backend, gpu.name, gpu.architecture) == ("metal", "Apple M3 Max", "m3")


def test_other_gpus_are_lines_of_the_report(tmp_path: Path) -> None:
    found = probe_gpus(amd_machine(tmp_path, device=True))
    report = dataclasses.replace(examine(measure=False), gpus=found, problems=found.problems)
    assert "GPUs          AMD gfx942 (hip, 304 compute units): seen" in str(report)
    assert json.loads(report.to_json())["gpus"]["others"][0]["architecture"] == "gfx942"


def test_looking_for_gpus_loads_no_bindings_where_there_is_none() -> None:
    script = (
        "import sys, json, tracea.doctor as d; d.examine(measure=False)\n"
        "print(json.dumps([n for n in sys.modules if n.split('.')[0] in ('cuda', 'torch', 'hip', 'pynvml')]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    if not examine(measure=False).gpus.devices:
        assert loaded == []


def test_neighbours_are_named_by_core_where_they_take_a_part_of_the_time() -> None:
    assert diagnose_neighbours({0: 0.02, 1: 0.0}) is None
    assert diagnose_neighbours({}) is None
    problem = diagnose_neighbours({0: 0.74, 1: 0.02})
    assert problem is not None
    assert "core 0 74%" in problem.what
    assert "core 1" not in problem.what
