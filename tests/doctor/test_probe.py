"""The probe: this machine, and others by their files."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tracea import targets
from tracea.doctor import host, identify, probe_machine
from tracea.doctor.installed import torch_install
from tracea.doctor.probe import Machine
from tracea.doctor.report import Report

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 flags")
AVX512 = "fpu sse2 avx2 fma f16c avx512f avx512bw avx512dq avx512vl"


def machine(root: Path, flags: str, **files: str) -> Machine:
    texts = {
        "proc/cpuinfo": f"model name: Some Processor\nvendor_id: GenuineIntel\nflags: {flags}\n",
        "proc/meminfo": "MemTotal:       16000000 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    }
    folders = {
        "index0": ("1", "Data", "48K", "12", "0-1"),
        "index1": ("1", "Instruction", "32K", "8", "0-1"),
        "index2": ("2", "Unified", "2048K", "16", "0-1"),
        "index3": ("3", "Unified", "105M", "15", "0-27,56-83"),
    }
    names = ("level", "type", "size", "ways_of_associativity", "shared_cpu_list")
    for folder, values in folders.items():
        base = f"sys/devices/system/cpu/cpu0/cache/{folder}"
        texts |= {f"{base}/{name}": f"{value}\n" for name, value in zip(names, values, strict=True)}
        texts[f"{base}/coherency_line_size"] = "64\n"
    for name, text in {**texts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return probe_machine(root)


@X86
@pytest.mark.parametrize(
    ("flags", "isas"),
    [
        (AVX512, ("avx512", "avx2", "plain")),
        (AVX512.replace("avx512vl", ""), ("avx2", "plain")),
        ("fpu sse2 avx avx2", ("plain",)),  # avx2 without fma
        ("", ("plain",)),
    ],
)
def test_an_instruction_set_is_usable_when_every_feature_it_needs_is_shown(
    tmp_path: Path, flags: str, isas: tuple[str, ...]
) -> None:
    assert machine(tmp_path, flags).hardware.isas == isas


@X86
def test_the_target_has_the_machines_own_numbers(tmp_path: Path) -> None:
    found = machine(tmp_path, AVX512)
    target = found.target
    assert (target.name, target.isa, target.vector_bytes) == ("host", "avx512", 64)
    assert (target.l1d_bytes, target.l1d_ways, target.l2_bytes, target.l3_bytes) == (49_152, 12, 2_097_152, 110_100_480)
    assert target.features == {"sse2", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"}
    assert found.hardware.memory_bytes == 16_384_000_000
    assert found.hardware.caches[3].shared_by == 56
    assert (found.hardware.huge_pages, found.hardware.governor) == ("madvise", "powersave")


@X86
def test_a_system_that_shows_no_caches_gets_the_catalogues_assumptions(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"flags: {AVX512}\n")
    found = probe_machine(tmp_path)
    assert found.hardware.caches == ()
    assert found.target.l2_bytes == targets.load("avx512").l2_bytes
    assert found.hardware.huge_pages == "unavailable"


@X86
def test_the_fingerprint_is_of_identity_and_not_of_limits(tmp_path: Path) -> None:
    found = machine(tmp_path / "a", AVX512)
    quota = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}
    limited = machine(tmp_path / "b", AVX512, **quota)
    assert limited.quota == 1.0
    assert limited.cores_usable == 1
    assert identify(limited) == identify(found)
    other = machine(tmp_path / "c", AVX512.replace("avx512vl", ""))
    assert identify(other).hardware != identify(found).hardware
    assert identify(other).toolchain == identify(found).toolchain


@X86
def test_a_core_of_which_a_flag_is_hidden_is_called_by_the_vendors_numbers(tmp_path: Path) -> None:
    found = machine(tmp_path, AVX512)
    level = replace(found.hardware, microarchitecture="x86_64_v4", named="zen4", isas=("avx512",))
    assert level.core == "zen4"
    assert replace(found, hardware=level).target.fma_per_cycle == 1  # where the generic target has two
    assert replace(level, named="").core == "x86_64_v4"
    assert replace(level, microarchitecture="icelake").core == "icelake"


@X86
def test_a_core_with_matrix_tiles_is_not_called_one_of_those_before_them(tmp_path: Path) -> None:
    plain = machine(tmp_path / "plain", AVX512)
    tiled = machine(tmp_path / "tiled", f"{AVX512} amx_tile amx_bf16")
    for name, called in (("icelake", "sapphirerapids"), ("sapphirerapids", "sapphirerapids"), ("zen5", "zen5")):
        assert replace(tiled.hardware, microarchitecture=name).core == called
        assert replace(plain.hardware, microarchitecture=name).core == name
    masked = machine(tmp_path / "masked", f"{AVX512} avx512_bf16 avx512_fp16").hardware
    assert replace(masked, microarchitecture="icelake").core == "sapphirerapids"
    hidden = replace(tiled, hardware=replace(tiled.hardware, microarchitecture="icelake"))
    report = Report(
        machine=hidden, target=hidden.target, fingerprint=identify(hidden), ceilings=None, variants=(), problems=()
    )
    assert "Some Processor (sapphirerapids, x86_64" in str(report)
    assert report.to_dict()["processor"]["core"] == "sapphirerapids"
    assert identify(hidden) != identify(replace(hidden, hardware=replace(hidden.hardware, microarchitecture="zen5")))


def test_this_machine_is_found_once_and_names_a_known_instruction_set() -> None:
    target = host()
    assert target is host() or target == host()
    assert target.isa in targets.ISAS
    assert target.cores >= 1
    assert target.l1d_bytes >= 8 * 1024


def test_looking_at_the_machine_imports_no_framework() -> None:
    script = (
        "import sys, json, tracea.doctor as d\n"
        "m = d.probe_machine()\n"
        "torch = m.toolchain.torch\n"
        "print(json.dumps([sorted(n for n in ('torch', 'scipy', 'sklearn') if n in sys.modules),"
        " torch and torch.version]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded, version = json.loads(done.stdout)
    assert loaded == []
    found = torch_install()
    # What is installed names its build differently from what is loaded: 2.13.0 and 2.13.0+cpu.
    assert (version or "").split("+")[0] == (found.version if found else "").split("+")[0]


def test_the_blas_that_is_read_from_files_is_the_one_that_torch_names() -> None:
    torch = pytest.importorskip("torch")
    script = "import tracea.doctor.installed as i; print(i.torch_install().blas)"
    by_files = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    found = torch_install()
    assert found is not None
    assert found.loaded
    assert found.version == torch.__version__
    assert found.blas.split()[0] == by_files
