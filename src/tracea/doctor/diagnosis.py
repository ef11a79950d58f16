"""Diagnosis: what on this machine costs speed or keeps Tracea from working, each with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracea.doctor.doubt import OTHERS, doubts, why_under_load
from tracea.doctor.installed import INSTALL_TORCH
from tracea.doctor.tile_grant import TILE_FLAGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracea.doctor.ceilings import Ceilings
    from tracea.doctor.probe import Machine
    from tracea.profiler.load import Load

__all__ = ["Problem", "diagnose", "diagnose_load", "diagnose_neighbours"]

# Two threads that add less than this to one had no second core to themselves, or share one core's arithmetic.
_SCALING: Final = 0.7
# Of the time: a neighbour that is there less often leaves most rounds of a comparison alone.
_NEIGHBOURED: Final = 0.1
# A compiler takes some hundred MiB, and the arrays that ceilings are measured with take as much.
_LEAST_MEMORY: Final = 2 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong or costs speed, and its remedy."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}. Remedy: {self.remedy}"


def diagnose(machine: Machine, ceilings: Ceilings | None, failure: str = "") -> tuple[Problem, ...]:
    """Return the problems of a machine; ``failure`` is why the ceilings could not be measured."""
    found = [*_toolchain(machine), *_processor(machine), *_cores(machine), *_memory(machine)]
    if failure:
        found.append(Problem(what=f"The ceilings could not be measured: {failure}", remedy="mend the compiler first"))
    if ceilings is not None:
        found += _measured(machine, ceilings)
    return tuple(found)


def diagnose_load(load: Load | None) -> Problem | None:
    """Return the problem that others use this process's cores while something is about to be timed; None if not."""
    if load is None or load.busy_cores < OTHERS:
        return None
    return Problem(
        what=f"Other programs use {load.busy_cores:.1f} of the {load.cores} cores that this process may use: "
        "times will be too long, and a search may choose wrongly",
        remedy="stop them and run this again, or give this process cores of its own (taskset)",
    )


def diagnose_neighbours(shared: Mapping[int, float]) -> Problem | None:
    """Return the problem that others use what these cores share with their other hardware threads; None if not.

    ``shared`` is by core for which share of the time (see ``profiler.pace.shared_time``).
    """
    found = {core: share for core, share in shared.items() if share >= _NEIGHBOURED}
    if not found:
        return None
    cores = ", ".join(f"core {core} {share:.0%}" for core, share in found.items())
    return Problem(
        what="Something slows what cores share with their other hardware threads, or their clocks, for a part of the "
        f"time ({cores}): kernels take 1.2 to 3 times as long meanwhile, those on AMX tiles most",
        remedy="stop what else runs; of a virtual machine's neighbours nothing tells but this: take one whose cores "
        "are its own. Comparisons leave such rounds out as far as they can",
    )


def _toolchain(machine: Machine) -> list[Problem]:
    found: list[Problem] = []
    if machine.toolchain.compiler is None:
        found.append(
            Problem(
                what="No C++ compiler was found: no kernel can be built",
                remedy="install g++ or clang++, or the ziglang wheel: pip install ziglang",
            )
        )
    if machine.toolchain.torch is None:
        found.append(
            Problem(
                what="PyTorch is not installed: models cannot be captured and its libraries do not compete",
                remedy=f"{INSTALL_TORCH}; operations on NumPy arrays work without it",
            )
        )
    return found


def _processor(machine: Machine) -> list[Problem]:
    virtual, name = machine.hardware.processor.virtual, machine.hardware.named or machine.hardware.microarchitecture
    masks = "the virtual machine masks it" if virtual else "this machine does not show it"
    remedy = "enable it in the BIOS, and update the BIOS and the kernel"
    if virtual:
        remedy = "give the virtual machine the host's CPU model (QEMU and libvirt: host-passthrough)"
    found = [Problem(what=f"A {name} has {isa}, but {masks}", remedy=remedy) for isa in machine.hardware.masked]
    if machine.hardware.processor.flags >= TILE_FLAGS and not machine.hardware.tiles:
        found.append(_tiles(machine))
    if machine.hardware.isas == ("plain",):
        found.append(
            Problem(
                what="No vector instruction set that kernels are written for: plain C++ runs, several times slower",
                remedy="use a machine with AVX2, AVX-512 or NEON",
            )
        )
    if machine.hardware.governor == "powersave":
        found.append(
            Problem(
                what="The frequency governor is powersave: times depend on what ran before",
                remedy="cpupower frequency-set -g performance",
            )
        )
    return found


def _tiles(machine: Machine) -> Problem:
    why = f": {machine.hardware.tiles_refused}" if machine.hardware.tiles_refused else ""
    if machine.hardware.granted:
        return Problem(
            what=f"The system grants AMX tiles to this process, but kernels cannot use them{why}",
            remedy="install a compiler that knows AMX (GCC 11, Clang 12 or later); in an emulator, use another machine",
        )
    return Problem(
        what=f"The processor shows AMX tiles, but the system does not grant them to this process{why}",
        remedy="a Linux kernel of 5.16 or later, and a container or sandbox that allows arch_prctl",
    )


def _cores(machine: Machine) -> list[Problem]:
    present, allowed = machine.hardware.cores_present, len(machine.cores_allowed)
    found: list[Problem] = []
    if allowed < present:
        found.append(
            Problem(
                what=f"This process may run on {allowed} of {present} cores",
                remedy="start it without taskset, or in a larger cpuset",
            )
        )
    if machine.quota is not None and machine.quota < allowed:
        found.append(
            Problem(
                what=f"The control group grants the time of {machine.quota:g} cores, {allowed} are visible: "
                "more threads than that are stopped at every period",
                remedy="raise the quota (cpu.max), or keep to the threads that Tracea chooses",
            )
        )
    return found


def _memory(machine: Machine) -> list[Problem]:
    found: list[Problem] = []
    if machine.hardware.huge_pages == "never":
        found.append(
            Problem(
                what="Transparent huge pages are off: large arrays cost a page walk every 4 KiB",
                remedy="echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            )
        )
    if machine.memory_limit is not None and machine.memory_limit < _LEAST_MEMORY:
        found.append(
            Problem(
                what=f"The control group grants {machine.memory_limit / 1024**2:.0f} MiB of memory: a compiler and a "
                "kernel's operands may not fit, and the system kills what goes beyond",
                remedy=f"raise the limit (memory.max, docker --memory) to {_LEAST_MEMORY // 1024**3} GiB or more",
            )
        )
    return found


def _measured(machine: Machine, ceilings: Ceilings) -> list[Problem]:
    threads = machine.cores_usable
    found: list[Problem] = []
    if said := why_under_load(ceilings):
        found.append(
            Problem(
                what=f"The ceilings were measured {said}: rates may be too low, and times too high",
                remedy="nothing: they are measured again once the machine is quiet; or now: tracea doctor --again",
            )
        )
    found += [
        Problem(
            what=f"{why[:1].upper()}{why[1:]}: other programs disturbed the measurement",
            remedy="measure again on an idle machine: tracea doctor --again",
        )
        for why in doubts(ceilings).values()
    ]
    isa = machine.hardware.isas[0]
    share = ceilings.peak(isa, threads=threads) / (threads * ceilings.peak(isa))
    if share < _SCALING:
        found.append(
            Problem(
                what=f"{threads} threads reach {share:.0%} of {threads} times one thread: cores are shared or busy",
                remedy="measure again on an idle machine, or use one thread per physical core",
            )
        )
    return found
