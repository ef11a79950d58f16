"""The ceilings: operations and bytes per second that this machine reaches at best.

Each figure is the best of several short runs, since a ceiling is what can be reached and interference only takes
away. Threads are pinned, one a core, and start together.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tracea.core.dtype import DType
from tracea.doctor.fork_join import fork_join_us
from tracea.doctor.teams import shortest, span, together
from tracea.errors import InvalidOption
from tracea.profiler.load import LoadMeter
from tracea.profiler.machine import load_average
from tracea.profiler.roofline import Roofline
from tracea.runtime.compiler import Library, compile_text

if TYPE_CHECKING:
    from tracea.doctor.probe import Machine
    from tracea.runtime.toolchain import Compiler
    from tracea.targets import Isa, Target

__all__ = ["Bandwidth", "CacheBandwidth", "Ceilings", "Peak", "ingredients_of", "measure"]

_SCHEMA_VERSION: Final = 4  # 1 had neither caches nor fork_join_us, 2 no busy_cores, 3 no tiles
# Many short runs find a gap between other programs' time slices (milliseconds) where few long ones do not.
_PEAK_REPEATS: Final = 30  # twice: before and after the other measurements
_PEAK_SECONDS: Final = 0.002
_CALIBRATION: Final = 50_000
_TILES: Final = "amx"
_MEMORY_REPEATS: Final = 6
_CACHE_REPEATS: Final = 12
_CACHE_BYTES: Final = 1 << 28  # read in one run: milliseconds
_BEYOND_L2: Final = 8  # times the second cache: a share of the third one that a core may count on
# Far beyond a core's own caches; a quarter of a large shared cache may still serve it, which the report says.
_LEAST_BYTES: Final = 64 * 1024**2
_MOST_BYTES: Final = 256 * 1024**2

Pattern = Literal["copy", "read"]


class Peak(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fused multiply-adds from registers, counted as two operations each. Units: 10⁹ operations a second."""

    isa: str
    dtype: str
    threads: int
    gflops: float


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes moved per second over arrays of ``working_set_bytes`` in all; a copy counts both its reads and its writes.

    Units: 10⁹ bytes a second.
    """

    pattern: Pattern
    threads: int
    gbytes: float
    working_set_bytes: int


class CacheBandwidth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes that one core reads per second where they are in a cache of that level. Units: 10⁹ bytes a second."""

    level: int
    gbytes: float
    working_set_bytes: int


class Ceilings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured, when, in how many seconds and under which load.

    ``busy_cores`` is what others took of the cores meanwhile, ``load`` the system's load average before; None: unknown.
    ``tiles`` are products of bf16 on matrix tiles; none where kernels have no tiles.
    ``fork_join_us`` is what it takes to have all cores start on something and to wait for them, in µs; None for one.
    ``attempts`` counts the measurements since the last one that somebody asked for, all under load.
    """

    schema_version: int = _SCHEMA_VERSION
    fingerprint: str
    peaks: tuple[Peak, ...]
    bandwidths: tuple[Bandwidth, ...]
    date: str
    seconds: float
    load: float | None
    tiles: tuple[Peak, ...] = ()
    caches: tuple[CacheBandwidth, ...] = ()
    fork_join_us: float | None = None
    busy_cores: float | None = None
    attempts: int = 1

    def peak(self, isa: str, dtype: DType = DType.F32, *, threads: int = 1) -> float:
        """Return the peak of ``threads`` cores in 10⁹ operations a second; f16 and bf16 compute in f32.

        Raises:
            InvalidOption: nothing was measured for these; the message lists what was.
        """
        for row in self.peaks:
            if (row.isa, row.dtype, row.threads) == (isa, dtype.compute.value, threads):
                return row.gflops
        raise InvalidOption(
            field="peak",
            got=(isa, dtype.value, threads),
            expected=[(row.isa, row.dtype, row.threads) for row in self.peaks],
            remedy="ask for a measured combination",
        )

    def tile_peak(self, *, threads: int = 1) -> float | None:
        """Return what ``threads`` cores multiply on matrix tiles, in 10⁹ operations of bf16 a second; None: unknown."""
        return next((row.gflops for row in self.tiles if row.threads == threads), None)

    def bandwidth(self, pattern: Pattern = "copy", *, threads: int = 1) -> float:
        """Return the memory bandwidth of ``threads`` cores in 10⁹ bytes a second.

        Raises:
            InvalidOption: nothing was measured for these; the message lists what was.
        """
        for row in self.bandwidths:
            if (row.pattern, row.threads) == (pattern, threads):
                return row.gbytes
        raise InvalidOption(
            field="bandwidth",
            got=(pattern, threads),
            expected=[(row.pattern, row.threads) for row in self.bandwidths],
            remedy="ask for a measured combination",
        )

    def roofline(self, isa: str, dtype: DType = DType.F32, *, threads: int = 1) -> Roofline:
        """Return the roofline of one instruction set, element type and number of threads, with copy bandwidth."""
        return Roofline(
            peak_gflops=self.peak(isa, dtype, threads=threads), bandwidth_gbytes=self.bandwidth(threads=threads)
        )


def ingredients_of(machine: Machine, identity: str) -> dict[str, object]:
    """Return all that these ceilings depend on: the key that they are kept by."""
    return {
        "kind": "ceilings",
        "schema_version": _SCHEMA_VERSION,
        "fingerprint": identity,
        # The cores that this process may use are no part of the identity, but "all threads" means another number then.
        "cores": list(machine.cores_allowed[: machine.cores_usable]),
        "source": _source_text(),
        "tiles": _source_text("ceilings_amx.cpp") if _has_tiles(machine.target) else None,
    }


def measure(machine: Machine, compiler: Compiler, identity: str) -> Ceilings:
    """Measure now (seconds). Raises: CompileError: the compiler failed."""
    load = load_average()
    cores = machine.cores_allowed[: machine.cores_usable]
    teams = tuple(dict.fromkeys(((cores[0],), cores)))
    libraries = {isa: _library(isa, compiler) for isa in machine.hardware.isas}
    on_tiles = _tile_library(compiler) if _has_tiles(machine.target) else None
    start, meter = time.perf_counter(), LoadMeter()  # after compilers have run: they are other programs
    loops = [(isa, dtype, library) for isa, library in libraries.items() for dtype in ("f32", "f64")]
    if on_tiles is not None:
        loops.append((_TILES, "bf16", on_tiles))
    before = _peaks(loops, teams)
    bandwidths = _bandwidths(libraries[machine.hardware.isas[0]], machine, teams)
    caches = _caches(libraries[machine.hardware.isas[0]], machine)
    # Seconds later: a neighbour of a virtual machine may hold the clock down for longer than many short runs take.
    peaks = [max(pair, key=lambda row: row.gflops) for pair in zip(before, _peaks(loops, teams), strict=True)]
    busy, seconds = meter.read(), time.perf_counter() - start
    return Ceilings(
        fingerprint=identity,
        peaks=tuple(row for row in peaks if row.isa != _TILES),
        tiles=tuple(row for row in peaks if row.isa == _TILES),
        bandwidths=bandwidths,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        load=load,
        busy_cores=None if busy is None else busy.busy_cores,
        caches=caches,
        fork_join_us=fork_join_us(len(cores), machine.hardware.isas[0], compiler),
    )


def _caches(library: Library, machine: Machine) -> tuple[CacheBandwidth, ...]:
    read = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        library.address("tracea_read_again")
    )
    sizes = _cache_sizes(machine)
    pages = _Pages(max(sizes.values()))
    ctypes.memset(pages.address, 1, max(sizes.values()))
    team = machine.cores_allowed[:1]
    found: list[CacheBandwidth] = []
    for level, nbytes in sizes.items():
        times = max(1, _CACHE_BYTES // nbytes)

        def reading(_: int, nbytes: int = nbytes, times: int = times) -> object:
            return read(pages.address, nbytes, times)

        seconds = shortest(team, reading, _CACHE_REPEATS)
        found.append(CacheBandwidth(level=level, gbytes=nbytes * times / seconds / 1e9, working_set_bytes=nbytes))
    pages.close()
    return tuple(found)


def _cache_sizes(machine: Machine) -> dict[int, int]:
    """Return by level how many bytes are surely in that cache and in none before it: half of it, in whole lines."""
    target = machine.target
    sizes = {1: target.l1d_bytes // 2, 2: target.l2_bytes // 2}
    third = min(target.l3_bytes // 2, _BEYOND_L2 * target.l2_bytes)
    if third > 2 * target.l2_bytes:
        sizes[3] = third
    return {level: nbytes // 512 * 512 for level, nbytes in sizes.items()}


def _peaks(loops: list[tuple[str, str, Library]], teams: tuple[tuple[int, ...], ...]) -> list[Peak]:
    found: list[Peak] = []
    for isa, dtype, library in loops:
        rates = {len(team): _rates(library, dtype, team) for team in teams}
        # What a core did beside others it can do alone: registers are no shared thing.
        alone = max(single for single, _ in rates.values())
        found += [
            Peak(isa=isa, dtype=dtype, threads=count, gflops=alone if count == 1 else all_of_them)
            for count, (_, all_of_them) in rates.items()
        ]
    return found


def _rates(library: Library, dtype: str, team: tuple[int, ...]) -> tuple[float, float]:
    """Return the best rates of one of the team's cores and of all together, in 10⁹ operations a second."""
    flops = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address(f"tracea_peak_flops_{dtype}"))()
    run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(library.address(f"tracea_peak_{dtype}"))
    seconds = min(span(together(team[:1], lambda _: run(_CALIBRATION))) for _ in range(_PEAK_REPEATS))
    iterations = max(_CALIBRATION, int(_CALIBRATION * _PEAK_SECONDS / seconds))
    times = [together(team, lambda _: run(iterations)) for _ in range(_PEAK_REPEATS)]
    rates = [[1 / (end - start) for start, end in each] for each in times]
    # The threads' rates are added: who starts a little late still shows its own.
    scale = iterations * flops / 1e9
    return max(map(max, rates)) * scale, max(map(sum, rates)) * scale


def _bandwidths(library: Library, machine: Machine, teams: tuple[tuple[int, ...], ...]) -> tuple[Bandwidth, ...]:
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    reads = [
        ctypes.CFUNCTYPE(ctypes.c_int64, pointer, size)(library.address(name))
        for name in ("tracea_read", "tracea_read_streams")
    ]
    copies = [
        ctypes.CFUNCTYPE(None, pointer, pointer, size)(library.address(name))
        for name in ("tracea_copy", "tracea_copy_streaming")
    ]
    nbytes = _array_bytes(machine)
    source, target = _Pages(nbytes), _Pages(nbytes)
    # Written before they are timed: a page that never was is the system's one zero page, which a cache holds.
    for pages in (source, target):
        ctypes.memset(pages.address, 1, nbytes)
    found: list[Bandwidth] = []
    for team in teams:
        part = nbytes // len(team) // 4096 * 4096

        def reading(rank: int, read: Callable[..., object], part: int = part) -> object:
            return read(source.address + rank * part, part)

        def copying(rank: int, copy: Callable[..., object], part: int = part) -> object:
            return copy(target.address + rank * part, source.address + rank * part, part)

        moved = part * len(team)
        seconds = min(shortest(team, lambda rank, read=read: reading(rank, read), _MEMORY_REPEATS) for read in reads)
        found.append(_row("read", team, moved, moved, seconds))
        seconds = min(shortest(team, lambda rank, copy=copy: copying(rank, copy), _MEMORY_REPEATS) for copy in copies)
        found.append(_row("copy", team, 2 * moved, 2 * moved, seconds))
    source.close()
    target.close()
    return tuple(found)


def _row(pattern: Pattern, team: tuple[int, ...], moved: int, working_set: int, seconds: float) -> Bandwidth:
    return Bandwidth(pattern=pattern, threads=len(team), gbytes=moved / seconds / 1e9, working_set_bytes=working_set)


def _array_bytes(machine: Machine) -> int:
    """Return the size of one array: twice the last cache, within what is quick to run and an eighth of the memory."""
    wanted = max(_LEAST_BYTES, min(_MOST_BYTES, 2 * machine.target.l3_bytes))
    granted = machine.hardware.memory_bytes if machine.memory_limit is None else machine.memory_limit
    limit = granted // 8 or wanted
    return max(4096 * 512, min(wanted, limit) // 4096 * 4096)


class _Pages:
    """Anonymous memory, on huge pages where the system grants them: address translation is no part of the figure."""

    def __init__(self, nbytes: int) -> None:
        # Python's default is memory shared with forked children, which Linux backs by small pages whatever is advised.
        self._map = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._view = (ctypes.c_char * nbytes).from_buffer(self._map)
        self.address = ctypes.addressof(self._view)

    def close(self) -> None:
        """Give the memory back."""
        del self._view
        self._map.close()


def _library(isa: Isa, compiler: Compiler) -> Library:
    return compile_text(_source_text(), isa=isa, name=f"ceilings_{isa}", compiler=compiler)


def _has_tiles(target: Target) -> bool:
    return "amx_bf16" in target.features and target.isa == "avx512"  # the compiler's flags for tiles hold AVX-512's


def _tile_library(compiler: Compiler) -> Library:
    return compile_text(_source_text("ceilings_amx.cpp"), isa="amx", name="ceilings_amx", compiler=compiler)


def _source_text(name: str = "ceilings.cpp") -> str:
    return (files("tracea.doctor") / name).read_text(encoding="utf-8")
