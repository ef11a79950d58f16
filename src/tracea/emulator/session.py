"""A kernel with its arguments, run once for each schedule, and what the runs show."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from tracea.emitters.kernel_source import GpuLaunch, KernelSource
from tracea.emulator.memory import DeviceArray
from tracea.emulator.native import (
    BufferDescription,
    CompiledKernel,
    Core,
    RawCost,
    RawReport,
    RunDescription,
)
from tracea.emulator.report import Access, AccessCost, Finding, Place, Report
from tracea.errors import InvalidOption, InvalidShape
from tracea.semantic.tile_kernel import BufferRole

__all__ = ["Session"]

_POISON: Final = 0xFFBFFFFF  # of accumulators in flight, as wgmma.cpp has it
_GAP: Final = 1 << 20  # bytes between two buffers
# Calls that only order: each can be made to take part without ordering.
_ORDERING: Final = (
    "sync_block",
    "sync_warp",
    "named_barrier_sync",
    "named_barrier_arrive",
    "cp_async_wait",
    "mbarrier_fence_init",
    "mbarrier_wait",
    "tma_store_wait",
    "tma_store_wait_read",
    "fence_proxy_async",
    "wgmma_fence",
    "wgmma_wait",
    "thread_fence",
    "ld_acquire",
    "st_release",
    "red_release_add",
)

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class Session:
    """One kernel bound to the core, with the caller's arguments by name."""

    core: Core
    kernel: CompiledKernel
    source: KernelSource
    launch: GpuLaunch
    arrays: dict[str, Array]
    integers: dict[str, int]
    scalars: dict[str, float]
    initialised: set[str]
    traced_line: int = 0
    most_statements: int = 0
    shared_granule: int = 2

    def __post_init__(self) -> None:
        for name, size in self.launch.workspace:
            self.arrays.setdefault(name, np.zeros(int(size.evaluate(self.integers)), dtype=np.uint8))
        for kind, given, wanted in (
            ("integers", self.integers, self.source.integers),
            ("scalars", self.scalars, self.source.scalars),
            ("arrays", self.arrays, self._array_names()),
        ):
            missing = [name for name in wanted if name not in given]
            if missing:
                raise InvalidOption(field=kind, got=sorted(given), expected=list(wanted), remedy=f"give {missing}")

    def _array_names(self) -> list[str]:
        return [field.name for field in self.launch.arguments if field.kind in {"pointer", "table"}]

    def _memory(self) -> dict[str, DeviceArray]:
        roles = {pointer.name: pointer.role for pointer in self.source.pointers}
        workspace = {name for name, _ in self.launch.workspace}
        made: dict[str, DeviceArray] = {}
        names = dict.fromkeys([*self._array_names(), *(spec.buffer for spec in self.launch.tensor_maps)])
        for name in names:
            array = self.arrays[name]
            writable = name in workspace or roles.get(name) in {BufferRole.OUTPUT, BufferRole.SCRATCH}
            given = not writable or name in self.initialised or name in self.launch.zeroed
            if name in workspace and array.dtype == np.uint8 and array.size % 4 == 0:
                array = array.view(np.uint32)  # races of workspaces are told apart by words
            made[name] = DeviceArray(name, array, writable, given)
        total = sum(device.data.size + 256 + _GAP for device in made.values()) + _GAP
        address = self.core.reserve(total) + _GAP
        for device in made.values():
            address = -(-address // 256) * 256 + device.lead
            device.address = address
            address += device.data.size + _GAP
        return made

    def _arguments(self, memory: Mapping[str, DeviceArray]) -> tuple[Array, int]:
        """Return the argument struct, at an address that is a multiple of 64."""
        store = np.zeros(self.launch.argument_bytes + 64, dtype=np.uint8)
        base = -(-store.ctypes.data // 64) * 64
        start = base - store.ctypes.data
        maps = {spec.name: spec for spec in self.launch.tensor_maps}
        for field in self.launch.arguments:
            at = start + field.offset_bytes
            match field.kind:
                case "tensor_map":
                    spec = maps[field.name]
                    shape = [int(extent.evaluate(self.integers)) for extent in spec.shape]
                    strides = [int(stride.evaluate(self.integers)) * spec.dtype.nbytes for stride in spec.strides]
                    device = memory[spec.buffer]
                    self._check_reach(spec.buffer, device, shape, strides, spec.dtype.nbytes)
                    self.core.encode_map(
                        base + field.offset_bytes,
                        base=device.pointer,
                        extents=shape[::-1],
                        pitches=strides[-2::-1],
                        box=spec.box[::-1],
                        element_bytes=spec.dtype.nbytes,
                        swizzle_bytes=spec.swizzle_bytes,
                    )
                    continue
                case "pointer" | "table":
                    data = struct.pack("<Q", memory[field.name].pointer)
                case "integer":
                    data = struct.pack("<q", int(self.integers[field.name]))
                case "scalar":
                    data = struct.pack("<f", float(self.scalars[field.name]))
            store[at : at + len(data)] = np.frombuffer(data, dtype=np.uint8)
        return store, base

    def _check_reach(self, name: str, device: DeviceArray, shape: list[int], strides: list[int], size: int) -> None:
        last = device.offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + size
        if last > device.data.size:
            raise InvalidShape(
                field=name,
                got=f"a tensor map of shape {shape}, byte strides {strides}",
                expected=f"within the {device.data.size} bytes of the array",
                remedy="the map's shape and strides do not fit this array",
            )

    def _run(
        self, seed: int, resident: int, capacity: int, statistics: bool, elided: tuple[int, int, str] | None = None
    ) -> tuple[RawReport, dict[str, DeviceArray]]:
        while True:
            raw, memory = self._attempt(seed, resident, capacity, statistics, elided)
            if not raw.bytewise or self.shared_granule == 1:
                return raw, memory
            self.shared_granule = 1  # it stopped at an access of a single byte: races are told apart by bytes from now

    def _attempt(
        self, seed: int, resident: int, capacity: int, statistics: bool, elided: tuple[int, int, str] | None
    ) -> tuple[RawReport, dict[str, DeviceArray]]:
        memory = self._memory()
        keep, arguments = self._arguments(memory)
        buffers: list[BufferDescription] = [device.describe() for device in memory.values()]
        raw = self.core.run(
            self.kernel,
            arguments,
            buffers,
            RunDescription(
                threads=self.launch.threads,
                blocks=int(self.launch.blocks.evaluate(self.integers)),
                shared_bytes=self.launch.shared_bytes,
                resident=resident,
                capacity=max(capacity, resident),
                shared_granule=self.shared_granule,
                statistics=int(statistics),
                elided_line=elided[0] if elided else 0,
                elided_at=elided[1] if elided else 0,
                elided_primitive=elided[2].encode() if elided else None,
                traced_line=self.traced_line if statistics else 0,
                seed=seed,
                budget=self.most_statements,
            ),
        )
        del keep
        return raw, memory

    def report(
        self, seeds: Sequence[int], *, statistics: bool, superfluous: bool, resident: int, capacity: int
    ) -> Report:
        """Run every schedule, store the first one's outputs in the caller's arrays, and return what was found."""
        findings: dict[tuple[str, Place, Place | None], Finding] = {}
        accesses: tuple[AccessCost, ...] = ()
        traced: tuple[Access, ...] = ()
        calls: dict[str, int] = {}
        statements = 0
        places: dict[Place, tuple[int, int, str]] = {}
        first: dict[str, Array] = {}
        deterministic = True
        for number, seed in enumerate(seeds):
            raw, memory = self._run(seed, resident, capacity, statistics and number == 0)
            for finding in (*self._findings(raw, seed), *self._outcome(memory, seed, stopped=_stopped(raw))):
                findings.setdefault((finding.kind, finding.place, finding.other), finding)
            for index, site in enumerate(raw.sites[1:], start=1):
                places[self._place(raw, index)] = (site.line, site.at, site.primitive)
            outputs = {name: device.elements().copy() for name, device in memory.items() if device.writable}
            if number == 0:
                accesses = self._accesses(raw)
                traced = self._traced(raw, memory)
                statements = raw.statements
                for site in raw.sites[1:]:
                    calls[site.primitive] = calls.get(site.primitive, 0) + site.count
                first = outputs
            else:
                deterministic = deterministic and all(
                    first[name].tobytes() == output.tobytes() for name, output in outputs.items()
                )
        needless, needed = (
            self._superfluous(seeds, places, resident, capacity) if superfluous and not findings else ((), ())
        )
        for name, output in first.items():
            given = self.arrays[name]
            if output.dtype == np.float32:  # the poison signals in arithmetic: not in the caller's
                output.view(np.uint32)[output.view(np.uint32) == _POISON] = 0xFFFFFFFF
            given[...] = output.view(given.dtype).reshape(given.shape)
        return Report(
            kernel=self.source.name,
            seeds=tuple(seeds),
            findings=tuple(findings.values()),
            accesses=accesses,
            calls=calls,
            statements=statements,
            deterministic=deterministic,
            superfluous=needless,
            necessary=needed,
            traced=traced,
        )

    def _superfluous(
        self, seeds: Sequence[int], places: Mapping[Place, tuple[int, int, str]], resident: int, capacity: int
    ) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
        needless: list[Place] = []
        needed: list[Place] = []
        for place, (line, at, primitive) in sorted(places.items()):
            if primitive not in _ORDERING:
                continue
            elided = (line, at, primitive)
            missed = False
            for seed in seeds:
                raw, memory = self._run(seed, resident, capacity, False, elided)
                missed = bool(raw.findings or self._outcome(memory, seed, stopped=False))
                if missed:
                    break
            (needed if missed else needless).append(place)
        return tuple(needless), tuple(needed)

    def _place(self, raw: RawReport, site: int) -> Place:
        entry = raw.sites[site]
        lines = self.source.text.splitlines()
        text = lines[entry.line - 1].strip() if 0 < entry.line <= len(lines) else ""
        direct = entry.at == entry.line or (
            0 < entry.at <= len(lines)
            and entry.line < entry.at <= entry.line + 8
            and entry.primitive in lines[entry.at - 1]
        )
        return Place(
            line=entry.line, primitive=entry.primitive, text=text, inner_line=0 if direct or site == 0 else entry.at
        )

    def _findings(self, raw: RawReport, seed: int) -> list[Finding]:
        return [
            Finding(
                kind=found.kind,
                place=self._place(raw, found.site),
                other=self._place(raw, found.other) if found.other else None,
                detail=found.detail,
                block=found.block,
                thread=found.thread,
                iteration=found.iteration,
                count=found.count,
                seed=seed,
            )
            for found in raw.findings
        ]

    def _accesses(self, raw: RawReport) -> tuple[AccessCost, ...]:
        return tuple(
            AccessCost(
                place=self._place(raw, cost.site),
                space=space,
                requests=cost.requests,
                actual=cost.actual,
                ideal=cost.ideal,
                bytes=cost.bytes,
                worst=cost.ways,
            )
            for space, costs in _spaces(raw)
            for cost in costs
        )

    def _traced(self, raw: RawReport, memory: Mapping[str, DeviceArray]) -> tuple[Access, ...]:
        found: list[Access] = []
        for each in raw.traced:
            place = self._place(raw, each.site)
            if not each.global_:
                found.append(Access(place=place, block=each.block, space="shared", addresses=each.addresses))
                continue
            device = next(d for d in memory.values() if d.holds(each.addresses[0]))
            within = tuple(address - device.pointer for address in each.addresses)
            found.append(Access(place=place, block=each.block, space="global", addresses=within, buffer=device.name))
        return tuple(found)

    def _outcome(self, memory: Mapping[str, DeviceArray], seed: int, *, stopped: bool) -> list[Finding]:
        """Return what the memory shows after a run: outputs not written, NaN that nobody gave."""
        if stopped:
            return []
        found: list[Finding] = []
        outputs = {pointer.name for pointer in self.source.pointers if pointer.role is BufferRole.OUTPUT}
        tables = {
            field.name for field in self.launch.arguments if field.kind == "table"
        }  # of indices, which are finite
        given = [device.array for name, device in memory.items() if not device.writable and name not in tables]
        finite = all(_finite(array) for array in given)
        for name in sorted(outputs & memory.keys()):
            device = memory[name]
            count, where = device.unwritten()
            if count and not device.initialised:
                found.append(
                    _at_end("output not written", f"{count} element(s) of {name}, the first {where}", seed, count)
                )
            elif finite and not _finite(device.elements(), nan_only=True):
                missing = int(np.isnan(device.elements().astype(np.float32)).sum())
                found.append(_at_end("NaN from finite inputs", f"{missing} element(s) of {name}", seed, missing))
        return found


def _spaces(raw: RawReport) -> tuple[tuple[Literal["shared", "global"], tuple[RawCost, ...]], ...]:
    return ("shared", raw.shared), ("global", raw.global_)


def _at_end(kind: str, detail: str, seed: int, count: int) -> Finding:
    return Finding(kind=kind, place=Place(line=0, primitive=""), detail=detail, seed=seed, count=count)


def _stopped(raw: RawReport) -> bool:
    return any(found.kind in {"deadlock", "divergence at a collective", "raw access"} for found in raw.findings)


def _finite(array: Array, *, nan_only: bool = False) -> bool:
    if array.dtype.kind in "iub":
        return nan_only or array.dtype == np.int8  # wider integers may be anything's bits
    values = array.astype(np.float32)
    return not bool(np.isnan(values).any() if nan_only else (~np.isfinite(values)).any())
