"""What a kernel looks like: its source, tile program, certificate, assembly, and what the compiler made of it."""

from __future__ import annotations

import platform
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tracea import targets
from tracea.core.op import Op
from tracea.doctor import host
from tracea.emitters.kernel_source import GpuLaunch
from tracea.errors import CacheUnwritable, InvalidOption, InvalidSchedule, InvalidShape, ToolchainMissing
from tracea.flow.compile import decision_for
from tracea.flow.kernel import Built, build, choose_for_gpu, narrow_copies, passed_over
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import find
from tracea.runtime.compiler import include_directory
from tracea.runtime.compiler_process import run_compiler
from tracea.runtime.native import check_threads
from tracea.runtime.nvrtc import compile_cuda
from tracea.runtime.ptxas_log import parse_ptxas_log
from tracea.runtime.sass import count_opcodes, disassemble, find_disassembler
from tracea.runtime.shortage import disk_message, is_full
from tracea.runtime.toolchain import Compiler, CompilerFamily, compile_flags, compilers, find_compiler
from tracea.runtime.unit import unit_text
from tracea.semantic.printer import print_kernel
from tracea.semantic.schedule import Schedule
from tracea.targets.gpu import GpuTarget
from tracea.targets.target import Target, for_threads

__all__ = ["FORMS", "emit_text", "never_called", "rejected_above", "slow_operands"]

FORMS: Final = ("source", "ir", "asm", "stats", "certificate")
_COMPILE_SECONDS: Final = 120.0
# Whose instruction set it is; plain C++ is everyone's.
_ARCHITECTURES: Final = {"avx512": "x86_64", "avx2": "x86_64", "amx": "x86_64", "neon": "aarch64"}
# A mnemonic class by prefix, for x86-64 and AArch64; those of matrix tiles are named where there are any.
_CLASSES: Final = {
    "fused multiply-add": ("vfmadd", "vfnmadd", "fmla"),
    "matrix-tile product": ("tdp", "tcmm"),
    "matrix-tile load or store": ("tileload", "tilestore"),
    "vector load or store": ("vmov", "ldr q", "ldp q", "str q", "stp q", "ld1", "st1"),
    "broadcast": ("vbroadcast", "ld1r", "dup"),
    "prefetch": ("prefetch", "prfm"),
    "call": ("call", "bl "),
}
_OF_TILES: Final = ("matrix-tile product", "matrix-tile load or store")
# Instructions worth a line of their own, of all GPU architectures.
_SASS: Final = (
    "HMMA",
    "IMMA",
    "QMMA",
    "HGMMA",
    "IGMMA",
    "QGMMA",
    "FFMA",
    "DFMA",
    "IMAD",
    "LDGSTS",
    "UTMALDG",
    "LDSM",
    "LDS",
    "STS",
    "LDG",
    "STG",
    "BAR",
    "SYNCS",
    "LDL",
    "STL",
)


def emit_text(
    op: Op,
    *,
    target: str = "host",
    variant: str | None = None,
    schedule: dict[str, int | str] | None = None,
    form: str = "source",
    threads: int = 1,
    constants: tuple[int, ...] = (),
) -> str:
    """Return one form of the kernel that would run ``op`` on ``target``, after its proofs passed.

    ``constants`` are the operands that are known beforehand, which some variants pack ahead. A GPU's kernel is the same
    for any number of ``threads``, which are those of a processor.

    Raises:
        InvalidOption: an unknown form, target or variant, a library's variant, a number of threads that is none, or a
            form that needs a compiler for another processor.
        InvalidSchedule, ProofFailed: the schedule is refused, or it is for other extents than the op's.
        InvalidShape: the kernel would refuse to be called for the op.
    """
    if form not in FORMS:
        raise InvalidOption(field="form", got=form, expected=FORMS, remedy="name a form")
    check_threads(threads)
    if targets.names_gpu(target):
        return _gpu_text(op, targets.load_gpu(target), variant=variant, schedule=schedule, form=form)
    where = for_threads(_cpu(target), threads)
    if variant is not None and find(variant, of=type(op)).is_library:
        raise InvalidOption(
            field="variant",
            got=f"{variant}, a library's own call",
            expected="a variant with a kernel of ours",
            remedy="leave the variant out, or name one of ours: it is these that have a text",
        )
    chosen = decision_for(
        op,
        where,
        threads=threads,
        constants=constants,
        library=False,
        variant=variant,
        schedule=schedule,
        measured=target == "host",
    )
    built = build(op, chosen.variant, chosen.schedule or Schedule(), where)
    if not never_called(op):
        _check_guard(built, op, is_stated=schedule is not None)
    match form:
        case "ir":
            return print_kernel(built.kernel)
        case "certificate":
            return str(built.certificate)
        case "asm":
            return _assembly(built)
        case "stats":
            return _statistics(built)
        case _:
            return built.source.text


def never_called(op: Op) -> bool:
    """Tell whether no call of an op gets to a kernel, whatever this one's guard says: the result has no elements."""
    return op.infer().elements == 0


def _check_guard(built: Built, op: Op, *, is_stated: bool) -> None:
    """Check that a call for the op passes its kernel's guard: one that refuses the op is none for it.

    Raises: InvalidShape; InvalidSchedule where the schedule is stated.
    """
    try:
        arguments(built.kernel, op)
    except InvalidShape as error:
        if not is_stated:
            raise
        raise InvalidSchedule(
            field="schedule",
            got=f"{built.kernel.schedule.key}, for {op.key}",
            expected=str(built.kernel.assumptions),
            remedy="state values for which this holds (tail is what is left of the last tile), or leave them out",
        ) from error


def rejected_above(op: Op, *, target: str, variant: str | None) -> tuple[str, ...]:
    """Return a line for each variant that a GPU's default choice passed over; none where a variant was named.

    Raises:
        InvalidOption: no variant fits.
    """
    if variant is not None or not targets.names_gpu(target):
        return ()
    gpu = targets.load_gpu(target)
    return passed_over(op, gpu, choose_for_gpu(op, gpu)[0])


def slow_operands(
    op: Op, *, target: str, variant: str | None, schedule: dict[str, int | str] | None
) -> tuple[str, ...]:
    """Return a line for each operand that a GPU's kernel copies byte by byte for its layout.

    Raises:
        InvalidOption: no variant fits.
    """
    if not targets.names_gpu(target):
        return ()
    return narrow_copies(op, *choose_for_gpu(op, targets.load_gpu(target), variant=variant, schedule=schedule))


def _cpu(name: str) -> Target:
    if name == "host":
        return host()
    if name not in (*targets.names(), *targets.cpu_product_names()):
        raise targets.unknown_target(name)
    return targets.load(name)


def _gpu_text(
    op: Op, target: GpuTarget, *, variant: str | None, schedule: dict[str, int | str] | None, form: str
) -> str:
    """Return one form of a GPU kernel: the most promising variant whose requirements hold, unless one is named."""
    chosen, values = choose_for_gpu(op, target, variant=variant, schedule=schedule)
    built = build(op, chosen, values, target)
    arguments(built.kernel, op)  # a kernel whose launch refuses the op is none for it
    match form:
        case "ir":
            return print_kernel(built.kernel)
        case "certificate":
            return str(built.certificate)
        case "asm":
            return disassemble(compile_cuda(built.source).cubin)
        case "stats":
            return _gpu_statistics(built, target)
        case _:
            return built.source.text


def _gpu_statistics(built: Built, target: GpuTarget) -> str:
    binary = compile_cuda(built.source)
    usage = parse_ptxas_log(binary.log)
    launch = built.source.launch
    rows: list[tuple[str, object]] = []
    for used in usage.kernels.values():
        rows += [
            ("registers", used.registers),
            ("spilled bytes", used.spill_store_bytes + used.spill_load_bytes),
            ("stack bytes", used.stack_bytes),
        ]
    if launch is not None:
        rows += _launch_rows(launch)
    rows += [
        (f"pointer {each.name}", f"{each.dtype.value}, a multiple of {each.alignment_bytes} bytes")
        for each in built.source.pointers
    ]
    rows.append(("compiler's advisories", len(usage.advisories)))
    if find_disassembler() is not None:
        counts = count_opcodes(disassemble(binary.cubin)).get(built.source.name, Counter[str]())
        rows.append(("instructions", sum(counts.values())))
        rows += [(name, counts[name]) for name in _SASS if counts[name]]
    rows.append((f"facts proved for {target.name}", len(built.certificate.facts)))
    return "\n".join(f"{name:30s} {value}" for name, value in rows)


def _launch_rows(launch: GpuLaunch) -> list[tuple[str, object]]:
    """Return what somebody needs who launches the text without Tracea; expressions are over the named integers."""
    rows: list[tuple[str, object]] = [
        ("blocks", launch.blocks),
        ("threads", launch.threads),
        ("blocks of a cluster", launch.clusters),
        ("shared memory bytes", launch.shared_bytes),
        ("argument bytes", launch.argument_bytes),
    ]
    rows += [
        (f"argument at byte {field.offset_bytes}", f"{field.kind} {field.name}, {field.size_bytes} bytes")
        for field in launch.arguments
    ]
    for spec in launch.tensor_maps:
        # cuTensorMapEncodeTiled counts dimensions from the innermost.
        shape, strides = ([str(each) for each in reversed(values)] for values in (spec.shape, spec.strides[:-1]))
        laid_out = (
            f"of {spec.buffer}, {spec.dtype.value}, innermost first: extents {', '.join(shape)}; "
            f"strides in elements {', '.join(strides)}; box {', '.join(map(str, reversed(spec.box)))}; "
            f"swizzle of {spec.swizzle_bytes} bytes"
        )
        rows.append((f"tensor map {spec.name}", laid_out))
    zeroed = set(launch.zeroed)
    rows += [
        (f"workspace {name}", f"{nbytes} bytes{', zeros at each launch' if name in zeroed else ''}")
        for name, nbytes in launch.workspace
    ]
    return rows


def _cross_compiler(isa: str) -> tuple[Compiler, tuple[str, ...]]:
    """Return a compiler that makes code for an instruction set, and the flags that name the processor.

    Raises: ToolchainMissing: the instruction set is another architecture's, and nothing here compiles for it.
    """
    architecture = _ARCHITECTURES.get(isa, platform.machine())
    if architecture == platform.machine():
        return find_compiler(), ()
    for compiler in compilers():
        if compiler.family is CompilerFamily.ZIG:
            return compiler, ("-target", f"{architecture}-linux-gnu")
    raise ToolchainMissing(
        tool=f"C++ compiler for {architecture}, which {isa} needs; this machine is {platform.machine()}",
        searched=("python -m ziglang c++",),
        remedy="pip install ziglang, a wheel that compiles for it; or leave --asm and --stats out, "
        "since source, --ir and --certificate need no compiler",
    )


def _assembly(built: Built) -> str:
    compiler, target = _cross_compiler(built.source.isa)
    with tempfile.TemporaryDirectory(prefix="tracea-asm-") as folder:
        source, assembly = Path(folder) / "kernel.cpp", Path(folder) / "kernel.s"
        source.write_text(unit_text((built.source,)), encoding="utf-8")
        flags = (*compile_flags(compiler, built.source.isa), *target)
        command = (*compiler.command, *flags, f"-I{include_directory()}", "-S", "-o", str(assembly), str(source))
        try:
            run_compiler(command, _COMPILE_SECONDS, Path(folder), assembly.name)
        except OSError as error:
            if not is_full(error):
                raise
            remedy = "free space there, or set TMPDIR to a directory with room"
            raise CacheUnwritable(path=folder, detail=disk_message(error, Path(folder)), remedy=remedy) from error
        return assembly.read_text(encoding="utf-8")


def _statistics(built: Built) -> str:
    lines = [
        line.strip() for line in _assembly(built).splitlines() if line.startswith("\t") and not line.startswith("\t.")
    ]
    frames = [int(found, 0) for line in lines for found in re.findall(r"^subq?\s+\$(\d+), %rsp", line)]
    vector_spills = sum(1 for line in lines if re.match(r"v\w+\s.*\(%rsp\)", line))
    rows = [("instructions", len(lines)), *_classes(lines), ("stack frame bytes", max(frames, default=0))]
    rows.append(("vector accesses of the stack", vector_spills))
    rows.append(("facts proved", len(built.certificate.facts)))
    return "\n".join(f"{name:30s} {value}" for name, value in rows)


def _classes(lines: Sequence[str]) -> list[tuple[str, int]]:
    """Return how many instructions of each class there are; the classes of matrix tiles where there are any."""
    plain = [re.sub(r"\s+", " ", line) for line in lines]
    counts = [(name, sum(line.startswith(prefixes) for line in plain)) for name, prefixes in _CLASSES.items()]
    return [(name, count) for name, count in counts if count or name not in _OF_TILES]
