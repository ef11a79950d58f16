"""The probe: what this machine is and lets a program use. Nothing here is timed, and PyTorch is not imported."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from tracea.doctor.installed import TorchInstall, torch_install
from tracea.doctor.tile_grant import TILE_FLAGS, TileGrant, ask_for_tiles
from tracea.errors import CompileError, InvalidOption, RunError
from tracea.profiler import machine
from tracea.runtime.compiler import Library, compile_text
from tracea.runtime.toolchain import Compiler, compilers
from tracea.targets import ISAS, Isa, Target, cpu_product_names, load, of_core
from tracea.targets import names as generic_names

__all__ = ["Cache", "Hardware", "Machine", "Toolchain", "host", "probe_machine"]

# What the emitted code of each instruction set uses, as /proc/cpuinfo spells it; most capable first.
_NEEDED: Final[dict[Isa, frozenset[str]]] = {
    "avx512": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c"}),
    "avx2": frozenset({"avx2", "fma", "f16c"}),
    "neon": frozenset({"asimd"}),
    "plain": frozenset(),
}
# Intel's server cores with AVX-512 as archspec names them, and what came next: the first with AMX.
# Source: Intel, Architecture Instruction Set Extensions Programming Reference (319433), table 1-2.
_BEFORE_TILES: Final = frozenset({"skylake_avx512", "cascadelake", "cannonlake", "icelake"})
_FIRST_WITH_TILES: Final = "sapphirerapids"
_WITH_TILES: Final = "avx512_fp16"  # what the same core brought, and hypervisors that mask its tiles leave
_LEVEL: Final = "x86_64"  # with _v2 to _v4: what archspec calls a processor of which it knows no more
# Vendor, display family and models, and archspec's name. Models whose instruction sets a name stands for as well are
# with it: Emerald and Granite Rapids have those of Sapphire Rapids.
# Source: Intel SDM vol. 4, table 2-1; AMD, Processor Programming References of families 19h and 1Ah.
_BY_NUMBER: Final = (
    ("GenuineIntel", 6, frozenset({63, 69, 70}), "haswell"),
    ("GenuineIntel", 6, frozenset({79, 86}), "broadwell"),
    ("GenuineIntel", 6, frozenset({85}), "skylake_avx512"),
    ("GenuineIntel", 6, frozenset({106, 108}), "icelake"),
    ("GenuineIntel", 6, frozenset({143, 173, 174, 207}), "sapphirerapids"),
    ("AuthenticAMD", 25, frozenset({*range(0x10), *range(0x20, 0x60)}), "zen3"),
    ("AuthenticAMD", 25, frozenset({*range(0x10, 0x20), *range(0x60, 0x80), *range(0xA0, 0xB0)}), "zen4"),
    ("AuthenticAMD", 26, frozenset(range(0x80)), "zen5"),
)
# Flags that name arithmetic a kernel may use; the others say how the system is protected and change with its updates.
_ARITHMETIC: Final = ("amx", "asimd", "avx", "bf16", "f16c", "fma", "i8mm", "sse", "sve")
_ARM: Final = ("aarch64", "arm64")
_SYSFS: Final = "sys/devices/system/cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One cache as the first allowed core sees it; ``shared_by`` counts the cores that use it."""

    level: int
    kind: str
    nbytes: int
    ways: int
    line_bytes: int
    shared_by: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Processor, caches and memory; ``isas`` are the usable ones, ``masked`` what only the processor's name promises.

    ``named`` is the microarchitecture that promises it: what archspec calls the processor by its flags, or what the
    vendor's family and model numbers say, which a hypervisor that takes flags away often leaves as they are.

    ``granted`` and ``shown`` are what the system says, whatever is installed, and so are identity: whether this process
    may use the AMX tiles that the processor shows, and the instruction sets by its flags. ``tiles`` and ``isas`` are
    what kernels may use: with a compiler at hand each was tried as well. ``tiles_refused`` is why tiles cannot be used.

    ``withheld``: flags that the user takes away by TRACEA_WITHOUT, such as ``amx_bf16`` where every product of float32
    shall be one fused multiply-add. An instruction set that vectors need cannot be taken away so.
    """

    processor: machine.Processor
    microarchitecture: str
    isas: tuple[Isa, ...]
    masked: tuple[str, ...]
    tiles: bool
    withheld: frozenset[str]
    caches: tuple[Cache, ...]
    cores_present: int
    memory_bytes: int
    huge_pages: str
    governor: str | None
    named: str = ""
    granted: bool = False
    shown: tuple[Isa, ...] = ()
    tiles_refused: str = ""

    @property
    def core(self) -> str:
        """What to call the core, for its arithmetic and its records: the microarchitecture, but where a flag is hidden.

        A hypervisor that hides a single flag has archspec name an earlier core, which tiles, or the arithmetic of
        float16 that came with them, show that it is not, or only the level of the instruction set, where the vendor's
        family and model say more. The identity keeps archspec's name: measurements are kept under it.
        """
        flags = self.processor.flags
        if self.microarchitecture in _BEFORE_TILES and (flags >= TILE_FLAGS or _WITH_TILES in flags):
            return _FIRST_WITH_TILES
        if self.microarchitecture.startswith(_LEVEL) and self.named:
            return self.named
        return self.microarchitecture


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What compiles and what runs beside us."""

    compilers: tuple[Compiler, ...]
    python: str
    libc: str
    torch: TorchInstall | None

    @property
    def compiler(self) -> Compiler | None:
        """The compiler that is used, or None."""
        return self.compilers[0] if self.compilers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything the probe found, with what this process may use of it; limits are None where there are none."""

    hardware: Hardware
    toolchain: Toolchain
    cores_allowed: tuple[int, ...]
    cores_usable: int
    quota: float | None
    memory_limit: int | None = None

    @property
    def target(self) -> Target:
        """The best usable instruction set's target with this machine's numbers in place of the catalogue's."""
        base = of_core(self.hardware.core, self.hardware.isas[0])
        l1d, l2, l3 = (self._cache(level) for level in (1, 2, 3))
        return replace(
            base,
            name="host",
            microarchitecture=self.hardware.microarchitecture,
            cores=self.cores_usable,
            l1d_bytes=l1d.nbytes if l1d else base.l1d_bytes,
            l1d_ways=l1d.ways if l1d else base.l1d_ways,
            l2_bytes=l2.nbytes if l2 else base.l2_bytes,
            l3_bytes=l3.nbytes if l3 else base.l3_bytes,
            cache_line_bytes=l1d.line_bytes if l1d else base.cache_line_bytes,
            page_bytes=os.sysconf("SC_PAGE_SIZE"),
            features=self._features(tiles=self.hardware.tiles),
        )

    @property
    def identity_features(self) -> frozenset[str]:
        """Flags of arithmetic as the system grants them: the same with and without a compiler."""
        return self._features(tiles=self.hardware.granted)

    def _features(self, *, tiles: bool) -> frozenset[str]:
        return frozenset(
            flag
            for flag in self.hardware.processor.flags
            if flag.startswith(_ARITHMETIC)
            and (tiles or not flag.startswith("amx"))
            and flag not in self.hardware.withheld
        )

    def _cache(self, level: int) -> Cache | None:
        return next((c for c in self.hardware.caches if c.level == level and c.kind != "Instruction"), None)


def probe_machine(root: Path = Path("/")) -> Machine:
    """Look at the machine; ``root`` is the folder that ``/proc`` and ``/sys`` are under."""
    found = compilers()
    return Machine(
        hardware=_hardware(root, found[0] if found else None),
        toolchain=Toolchain(
            compilers=found,
            python=platform.python_version(),
            libc=" ".join(part for part in platform.libc_ver() if part) or "unknown",
            torch=torch_install(),
        ),
        cores_allowed=machine.cores_allowed(),
        cores_usable=machine.cores_usable(root),
        quota=machine.cpu_quota(root),
        memory_limit=machine.memory_limit(root),
    )


@cache
def _host() -> Machine:
    return probe_machine()


def host() -> Target:
    """Return this machine as a target; looked at once in a process."""
    return _host().target


def _hardware(root: Path, compiler: Compiler | None) -> Hardware:
    processor = machine.processor(root)
    name = _archspec(root)
    named, promised = _promised(name, processor)
    here = root == Path("/")
    shown: tuple[Isa, ...] = tuple(isa for isa in ISAS if _is_shown(isa, processor))
    withheld = _withheld(processor)
    kept: tuple[Isa, ...] = tuple(isa for isa in shown if not _NEEDED[isa] & withheld)
    usable: tuple[Isa, ...] = tuple(isa for isa in kept if _usable(isa, compiler, here=here))
    # Another machine's files cannot be asked: what they show counts as granted.
    grant = ask_for_tiles(processor) if here else TileGrant(granted=processor.flags >= TILE_FLAGS)
    trouble = _tiles_trouble(grant, compiler, here=here)
    return Hardware(
        processor=processor,
        microarchitecture=name,
        isas=usable,
        masked=(
            *(isa for isa in ISAS if isa not in usable and _NEEDED[isa] <= promised - withheld),
            *(("amx_bf16",) if promised >= TILE_FLAGS and not processor.flags >= TILE_FLAGS else ()),
        ),
        named=named,
        withheld=withheld,
        tiles=grant.granted and not trouble,
        granted=grant.granted,
        shown=shown,
        tiles_refused=trouble,
        caches=_caches(root),
        cores_present=os.cpu_count() or 1,
        memory_bytes=_memory_bytes(root),
        huge_pages=_selected(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        governor=_text(root / _SYSFS / "cpu0/cpufreq/scaling_governor").strip() or None,
    )


def _withheld(processor: machine.Processor) -> frozenset[str]:
    """Return the features that TRACEA_WITHOUT takes away.

    Raises:
        InvalidOption: a name that neither a kernel, a target nor this processor knows: taking it away would change
            nothing. What another processor has may be named: one setting serves several machines.
    """
    names = frozenset(os.environ.get("TRACEA_WITHOUT", "").replace(",", " ").split())
    known = TILE_FLAGS.union(*_NEEDED.values())
    unknown = names - known - processor.flags
    if unknown:
        known = known.union(*(load(name).features for name in (*generic_names(), *cpu_product_names())))
        unknown -= known
    if unknown:
        raise InvalidOption(
            field="TRACEA_WITHOUT",
            got=sorted(unknown),
            expected=sorted(known),
            remedy="TRACEA_WITHOUT=amx_bf16 leaves out float32 products of bf16 terms",
        )
    return names


def _is_shown(isa: Isa, processor: machine.Processor) -> bool:
    # Advanced SIMD is mandatory in AArch64, whatever the system lists.
    return processor.architecture in _ARM if isa == "neon" else _NEEDED[isa] <= processor.flags


def _usable(isa: Isa, compiler: Compiler | None, *, here: bool) -> bool:
    """Whether kernels of ``isa``, which the system shows, run: with a compiler at hand, CPUID is asked too."""
    return compiler is None or not here or _cpuid_agrees(isa, compiler)


def _cpuid_agrees(isa: Isa, compiler: Compiler) -> bool:
    library = _features(compiler)
    if library is None:
        return True  # a compiler that fails is a problem of its own (see diagnosis); what the system shows stands
    usable = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(library.address("tracea_isa_usable"))
    return bool(usable(ISAS.index(isa)))


def _tiles_trouble(grant: TileGrant, compiler: Compiler | None, *, here: bool) -> str:
    """Return why tiles cannot be used; with a compiler at hand a product of them is tried."""
    if not grant.granted or compiler is None or not here:
        return grant.refusal
    library = _features(compiler)
    if library is None:
        return "the compiler cannot build the trial of a product"
    usable = ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("tracea_amx_usable"))
    return "" if usable() else "a trial of a product of tiles gave a wrong result"


def _features(compiler: Compiler) -> Library | None:
    text = (files("tracea.doctor") / "features.cpp").read_text(encoding="utf-8")
    # The assembly of one instruction needs its flag on some compilers; nothing else of the text does.
    tiles = ("-mamx-tile", "-mamx-bf16") if platform.machine() == "x86_64" else ()
    for flags in (tiles, ()) if tiles else ((),):
        try:
            return compile_text(text, isa="plain", name="features", compiler=compiler, extra_flags=flags)
        except (CompileError, RunError):
            continue
    return None


def _archspec(root: Path) -> str:
    """Return archspec's name of the microarchitecture, which it finds by the flags that are shown."""
    if root != Path("/"):
        return "unknown"
    import archspec.cpu

    return str(archspec.cpu.host().name)


def _promised(shown: str, processor: machine.Processor) -> tuple[str, frozenset[str]]:
    """Return the name that promises the most instruction sets, and the features that it promises."""
    import archspec.cpu

    targets: Mapping[str, Any] = dict(archspec.cpu.TARGETS)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    by_number = next(
        (
            name
            for vendor, family, numbers, name in _BY_NUMBER
            if (vendor, family) == (processor.vendor, processor.family) and processor.number in numbers
        ),
        "",
    )
    best: tuple[str, frozenset[str]] = (shown, frozenset())
    for name in (shown, by_number):
        features = frozenset(map(str, targets[name].features)) if name in targets else frozenset[str]()
        if len(features) > len(best[1]):
            best = (name, features)
    return best


def _caches(root: Path) -> tuple[Cache, ...]:
    first = min(machine.cores_allowed()) if root == Path("/") else 0
    found: list[Cache] = []
    for folder in sorted((root / _SYSFS / f"cpu{first}" / "cache").glob("index*")):
        size = _text(folder / "size").strip()
        level, ways, line = (
            _text(folder / name).strip() for name in ("level", "ways_of_associativity", "coherency_line_size")
        )
        if not (size and level.isdigit() and line.isdigit()):
            continue
        scale = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(size[-1].upper(), 1)
        found.append(
            Cache(
                level=int(level),
                kind=_text(folder / "type").strip(),
                nbytes=int(size.rstrip("KMGkmg")) * scale,
                ways=max(1, int(ways or 0)),  # 0: fully associative or not said
                line_bytes=int(line),
                shared_by=_count(_text(folder / "shared_cpu_list")),
            )
        )
    return tuple(found)


def _count(cores: str) -> int:
    """Return how many cores a list such as ``0-3,8`` names."""
    total = 0
    for part in cores.strip().split(","):
        low, _, high = part.partition("-")
        if low.isdigit():
            total += int(high or low) - int(low) + 1
    return max(1, total)


def _memory_bytes(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _selected(choices: str) -> str:
    """Return the bracketed word of ``always [madvise] never``."""
    return choices.partition("[")[2].partition("]")[0] or "unavailable"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
