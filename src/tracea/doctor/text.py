"""The report as text that a newcomer can read: one fact a line, units on every number, problems last."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final

from tracea.doctor.doubt import Row, doubts, why_under_load
from tracea.targets import read_product

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracea.doctor.gpus import GpuReport
    from tracea.doctor.report import Report, VariantLine

__all__ = ["render"]

_WIDTH: Final = 100  # columns of a line that lists names
_HUGE_PAGES: Final = {"madvise": "where a program asks for them (madvise)", "never": "off (never)"}
_DEEPEST: Final = 25  # columns that such a line hangs in


def render(report: Report, *, variants: bool = False) -> str:
    """Return the report's lines; with ``variants`` a line each with what it requires, else only how many there are."""
    lines = [
        *_machine(report),
        *_toolchain(report),
        *_place(report),
        *_gpus(report.gpus),
        *_ceilings(report),
        *(_variants(report) if variants else _variant_count(report)),
        *_problems(report),
    ]
    return "\n".join(lines)


def _machine(report: Report) -> Iterator[str]:
    machine, hardware = report.machine, report.machine.hardware
    place = ", in a virtual machine" if hardware.processor.virtual else ""
    kind = f"{hardware.core}, {hardware.processor.architecture}{place}"
    yield f"Processor     {hardware.processor.model} ({kind})"
    isas = ["plain C++" if isa == "plain" else isa for isa in hardware.isas]
    yield f"Kernels for   {', '.join(isas)} (the first is used)"
    if "amx_bf16" in report.target.features:
        yield (
            "Matrix tiles  amx_bf16: products of float32 as sums of bf16 ones, as accurate; TRACEA_WITHOUT=amx_bf16 "
            "does without"
        )
    elif hardware.withheld:
        yield f"Withheld      {', '.join(sorted(hardware.withheld))}, by TRACEA_WITHOUT"
    quota = "" if machine.quota is None else f", time of {machine.quota:g} cores granted"
    yield (
        f"Cores         {machine.cores_usable} usable: {len(machine.cores_allowed)} of {hardware.cores_present} "
        f"allowed to this process{quota}"
    )
    caches = [
        f"L{cache.level}{'d' if cache.kind == 'Data' else ''} {_size(cache.nbytes)}"
        + (f" shared by {cache.shared_by}" if cache.shared_by > 1 else "")
        for cache in hardware.caches
        if cache.kind != "Instruction"
    ]
    yield f"Caches        {', '.join(caches) or 'not shown by the system'}"
    pages = _HUGE_PAGES.get(hardware.huge_pages, hardware.huge_pages)
    yield f"Memory        {_size(hardware.memory_bytes)}, huge pages: {pages}"


def _toolchain(report: Report) -> Iterator[str]:
    toolchain = report.toolchain
    names = [f"{compiler.version} ({' '.join(compiler.command)})" for compiler in toolchain.compilers]
    first = " (the first is used)" if len(names) > 1 else ""
    yield f"Compilers     {'; '.join(names) or 'none'}{first}"
    torch = toolchain.torch
    yield f"PyTorch       {f'{torch.version}, matrix products by {torch.blas}' if torch else 'not installed'}"
    yield f"Python        {toolchain.python}, C library {toolchain.libc}"
    yield (
        f"Fingerprint   hardware {report.fingerprint.hardware}, toolchain {report.fingerprint.toolchain}: "
        "what is measured is kept under both"
    )


def _place(report: Report) -> Iterator[str]:
    if report.place is not None:
        free = report.place.free_bytes
        left = "" if free is None else f", {_size(free)} free on its disk"
        yield f"Cache         {report.place.path or 'none'}{left}: compiled kernels and measurements"


def _gpus(found: GpuReport | None) -> Iterator[str]:
    if found is None:
        return
    for other in found.others:
        units = "" if other.compute_units is None else f", {other.compute_units} compute units"
        yield f"GPUs          {other.name} ({other.backend}{units}): seen, no kernels for it run yet"
    if not found.devices:
        yield f"GPUs          none{' of NVIDIA' if found.others else ''}: {found.absent}"
        return
    yield f"GPUs          {len(found.devices)}"
    for device in found.devices:
        kernels = f"kernels for {device.target}" if device.target is not None else "no kernels for it"
        major, minor = divmod(device.compute_capability, 10)
        yield (
            f"  {device.number}. {device.name}, {_size(device.memory_bytes)}, {device.sm_count} multiprocessors, "
            f"compute capability {major}.{minor}, CUDA {device.driver_version}: {kernels}"
        )
        yield from _stated(device.product)


def _stated(product: str | None) -> Iterator[str]:
    """Say what the catalogue states of a product's peaks; nothing where it is not described."""
    if product is None:
        return
    known = read_product(product)
    peak = None if known.gpu is None else known.gpu.gops("f16_matrix")
    bandwidth = known.memory.bandwidth_mb_per_s
    if peak is not None and bandwidth is not None:
        yield (
            f"     stated: {peak / 1000:.0f} TFLOP/s of f16 products, {bandwidth / 1000:.0f} GB/s "
            f"(tracea targets show {product})"
        )


def _ceilings(report: Report) -> Iterator[str]:
    ceilings = report.ceilings
    if ceilings is None:
        yield f"Ceilings      not measured{'' if report.toolchain.compiler else ': that takes a compiler'}"
        return
    busy, strange = why_under_load(ceilings), doubts(ceilings)
    spoiled = f", {busy}: rates may be too low, times too high" if busy else ""
    measured = f"measured {ceilings.date} in {ceilings.seconds:.1f} s"
    yield f"Ceilings      the most that this machine reaches, {measured}{spoiled}"

    counted = ceilings.busy_cores is not None  # a load average is of the minute before

    def mark(*rows: Row) -> str:
        whys = [strange[row] for row in rows if row in strange]
        return f" - doubtful: {'; '.join(whys)}" if whys else " - doubtful" if busy and counted else ""

    groups: dict[tuple[str, str], list[str]] = {}
    for row in ceilings.peaks:
        groups.setdefault((row.isa, row.dtype), []).append(f"{row.gflops:.0f} GFLOP/s ({_threads(row.threads)})")
    for (isa, dtype), figures in groups.items():
        yield f"  multiply-add  {isa} {dtype}: {', '.join(figures)}{mark()}"
    if ceilings.tiles:
        figures = [f"{row.gflops:.0f} GFLOP/s ({_threads(row.threads)})" for row in ceilings.tiles]
        yield f"  matrix tiles  {ceilings.tiles[0].isa} {ceilings.tiles[0].dtype}: {', '.join(figures)}{mark()}"
    moved: dict[str, list[str]] = {}
    for row in ceilings.bandwidths:
        moved.setdefault(row.pattern, []).append(f"{row.gbytes:.1f} GB/s ({_threads(row.threads)})")
    sizes = {row.pattern: row.working_set_bytes for row in ceilings.bandwidths}
    for pattern, figures in moved.items():
        why = mark(*((row.pattern, row.threads) for row in ceilings.bandwidths if row.pattern == pattern))
        both = ", read and written" if pattern == "copy" else ""
        yield f"  memory {pattern:<6} {', '.join(figures)} over {_size(sizes[pattern])}{both}{why}"
    for cache in ceilings.caches:
        size = _size(cache.working_set_bytes)
        yield f"  cache L{cache.level} read {cache.gbytes:.0f} GB/s (1 thread) over {size}{mark()}"
    if ceilings.fork_join_us is not None:
        why = mark(("fork_join", 0))
        yield f"  fork-join     {_us(ceilings.fork_join_us)} to start all threads and to wait for them{why}"


def _variant_count(report: Report) -> Iterator[str]:
    count = Counter(line.op for line in report.variants)
    by_op = ", ".join(f"{number} for {op.removesuffix('Op')}" for op, number in sorted(count.items()))
    listed = (
        f"{len(report.variants)} ways to run an op: {by_op or 'none'} (tracea doctor --variants says what each needs)"
    )
    yield from _wrapped("Variants      ", listed)


def _variants(report: Report) -> Iterator[str]:
    count = len(report.variants)
    listed = f"{count} ways to run an op: what all of a group require, then what each requires beyond that"
    yield from _wrapped("Variants      ", listed)
    groups: dict[tuple[str, str, bool], list[VariantLine]] = {}
    for line in report.variants:
        groups.setdefault((line.op, line.backend, line.library), []).append(line)
    for (op, backend, library), lines in groups.items():
        shared = [name for name in lines[0].requirements if all(name in line.requirements for line in lines)]
        kind = f"{backend}, {'libraries' if library else 'generated'}"
        yield from _wrapped(f"  {op} ({kind}): ", ", ".join(shared) or "nothing in common")
        for line in lines:
            own = [name for name in line.requirements if name not in shared]
            yield from _wrapped(f"    {line.id:<20} ", ", ".join(own))


def _wrapped(lead: str, text: str) -> Iterator[str]:
    """Break text at words into lines of a terminal's width that hang below the lead."""
    indent = " " * min(len(lead), _DEEPEST)
    lines = textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=indent, break_long_words=False)
    yield from lines or [lead.rstrip()]


def _problems(report: Report) -> Iterator[str]:
    if not report.problems:
        yield "Problems      none found"
        return
    yield f"Problems      {len(report.problems)}"
    for number, problem in enumerate(report.problems, start=1):
        yield f"  {number}. {problem.what}"
        yield f"     remedy: {problem.remedy}"


def _us(number: float) -> str:
    scaled, unit = (number / 1_000, "ms") if number >= 1_000 else (number, "µs")
    return f"{scaled:.1f} {unit}" if scaled < 10 else f"{scaled:.0f} {unit}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _size(nbytes: int) -> str:
    for unit, scale in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if nbytes >= scale:
            return f"{nbytes / scale:.4g} {unit}"
    return f"{nbytes} bytes"
