"""Features beside the instruction set: tiles only where they are granted and tried, none that the user withholds."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import subprocess
import sys
from dataclasses import replace

import pytest

from tracea.core.op import GemmOp
from tracea.doctor import decide, diagnose, identify, tile_grant
from tracea.doctor.probe import Machine, _features, probe_machine
from tracea.errors import InvalidOption
from tracea.profiler.machine import Processor
from tracea.runtime.toolchain import compilers


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("TRACEA_WITHOUT", raising=False)
    return probe_machine()


def test_tiles_that_are_not_granted_are_no_feature(machine: Machine) -> None:
    refused = replace(machine, hardware=replace(machine.hardware, tiles=False))
    assert not [flag for flag in refused.target.features if flag.startswith("amx")]
    decision = decide(GemmOp.of(m=512, n=512, k=512), refused.target)
    rejected = {rejection.variant: rejection for rejection in decision.rejections}
    assert rejected["gemm.amx"].needed == "amx_bf16"


def test_withheld_feature_rejects_what_needs_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEA_WITHOUT", "amx_bf16, avx512_bf16")
    target = probe_machine().target
    assert not {"amx_bf16", "avx512_bf16"} & target.features
    assert target.isa == machine.target.isa
    decision = decide(GemmOp.of(m=512, n=512, k=512), target)
    assert "gemm.amx" in {rejection.variant for rejection in decision.rejections}


def test_an_instruction_set_goes_with_a_feature_that_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for withheld, gone in (("avx512bw", {"avx512"}), ("fma", {"avx512", "avx2"}), ("asimd", {"neon"})):
        monkeypatch.setenv("TRACEA_WITHOUT", withheld)
        found = probe_machine()
        assert not gone & set(found.hardware.isas)
        assert not gone & set(found.hardware.masked)
        assert found.target.isa == found.hardware.isas[0]
        assert found.target.isa not in gone


def test_what_only_another_processor_has_may_be_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEA_WITHOUT", "avx512_bf16, amx_bf16, asimd")
    assert probe_machine().hardware.withheld == {"avx512_bf16", "amx_bf16", "asimd"}


def test_a_feature_that_nobody_knows_cannot_be_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEA_WITHOUT", "amx")
    with pytest.raises(InvalidOption, match="TRACEA_WITHOUT"):
        probe_machine()


def test_no_compiler_on_the_path_changes_nothing_of_the_hardwares_identity(machine: Machine) -> None:
    program = (
        "import json; from tracea.doctor import identify, probe_machine; found = probe_machine(); "
        "print(json.dumps([identify(found).hardware, found.hardware.granted, len(found.toolchain.compilers)]))"
    )
    environment = {**os.environ, "PATH": "", "TRACEA_CXX": ""}
    with_none = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['ziglang'] = None; {program}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert with_none.stdout.split() == [
        f'["{identify(machine).hardware}",',
        f"{machine.hardware.granted}".lower() + ",",
        "0]",
    ]


def test_a_trial_that_fails_withholds_tiles_and_leaves_the_identity(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracea.doctor.probe._features", lambda _: None)
    found = probe_machine()
    assert not found.hardware.tiles
    assert not [flag for flag in found.target.features if flag.startswith("amx")]
    assert identify(found).hardware == identify(machine).hardware
    if found.hardware.granted:
        assert found.hardware.tiles_refused == "the compiler cannot build the trial of a product"


class _Refusing:
    """A C library whose system call answers EPERM, as a sandbox's does."""

    def __init__(self, *_: object, **__: object) -> None:
        self.asked: list[tuple[int, ...]] = []

        def syscall(*numbers: int) -> int:
            self.asked.append(numbers)
            ctypes.set_errno(errno.EPERM)
            return -1

        self.syscall = syscall


def test_a_refusal_says_what_the_system_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Processor(model="m", vendor="v", architecture="x86_64", flags=tile_grant.TILE_FLAGS)
    library = _Refusing()
    monkeypatch.setattr(tile_grant.platform, "system", lambda: "Linux")
    monkeypatch.setattr(tile_grant.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(tile_grant.ctypes, "CDLL", lambda *_, **__: library)
    found = tile_grant.ask_for_tiles(shown)
    assert (found.granted, found.refusal) == (False, f"arch_prctl answers: {os.strerror(errno.EPERM)}")
    assert library.asked == [(158, 0x1023, 18)]
    assert tile_grant.ask_for_tiles(replace(shown, flags=frozenset({"amx_tile"}))) == tile_grant.TileGrant(
        granted=False
    )
    assert len(library.asked) == 1  # nothing is asked where nothing is shown
    monkeypatch.setattr(tile_grant.platform, "system", lambda: "Darwin")
    assert "Linux" in tile_grant.ask_for_tiles(shown).refusal


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 flags")
def test_tiles_that_the_system_does_not_grant_are_a_problem() -> None:
    machine = probe_machine()
    flags = machine.hardware.processor.flags | {"amx_tile", "amx_bf16"}
    hardware = replace(
        machine.hardware,
        processor=replace(machine.hardware.processor, flags=flags),
        tiles=False,
        granted=False,
        tiles_refused="arch_prctl answers: Operation not permitted",
    )
    problems = diagnose(replace(machine, hardware=hardware), None)
    (problem,) = [each for each in problems if "AMX" in each.what]
    assert "does not grant them to this process: arch_prctl answers: Operation not permitted" in problem.what
    assert "5.16" in problem.remedy
    untried = replace(hardware, granted=True, tiles_refused="the compiler cannot build the trial")
    (problem,) = [each for each in diagnose(replace(machine, hardware=untried), None) if "AMX" in each.what]
    assert "kernels cannot use them: the compiler cannot build the trial" in problem.what
    assert "GCC 11" in problem.remedy
    granted = replace(hardware, tiles=True, granted=True)
    assert not [each for each in diagnose(replace(machine, hardware=granted), None) if "AMX" in each.what]


def test_every_compiler_here_builds_what_asks_for_features() -> None:
    # zig's own runtime cannot be linked into a shared library: what needs it fails with that compiler only.
    assert [compiler.family.value for compiler in compilers() if _features(compiler) is None] == []
