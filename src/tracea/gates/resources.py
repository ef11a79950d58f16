"""The resource gate: what a compiled CUDA kernel uses, against what it may: no spill, no stack, no lost speed.

Worked example::

    judged = judge_binary(source, target=load_gpu("sm_90a"), budget=ResourceBudget(least={"HGMMA": 1}))
    print(judged)     # one line a check; or «not checked» with the reason where no compiler is installed
    judged.require()  # raises VerdictFailed, or ToolchainMissing
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tracea.errors import InvalidOption, ToolchainMissing
from tracea.gates.verdict import Check, Verdict
from tracea.runtime.cubin import CubinKernel, read_cubin
from tracea.runtime.nvrtc import CudaBinary, compile_cuda
from tracea.runtime.ptxas_log import parse_ptxas_log
from tracea.runtime.sass import count_opcodes, disassemble, find_disassembler

if TYPE_CHECKING:
    from tracea.emitters.kernel_source import KernelSource
    from tracea.targets.gpu import GpuTarget

__all__ = [
    "KernelResources",
    "NotChecked",
    "ResourceBudget",
    "check_resources",
    "judge_binary",
    "measure_resources",
    "resident_blocks",
]

_WARP: Final = 32
_REGISTER_UNIT: Final = 8  # registers of a thread come in eights
_PARTITIONS: Final = 4  # a multiprocessor's warps and registers lie in four parts
_SHARED_UNIT: Final = 128
# Loads and stores of a thread's own memory: spills and arrays that are indexed at run time.
_LOCAL: Final = ("LDL", "STL")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceBudget:
    """What a kernel may use, and which instructions it must have.

    ``registers`` is that of one thread, 0 for the target's own limit. ``least`` are opcodes with the number that the
    text must at least have: a kernel for tensor cores whose text has none of their instructions is not that kernel.
    """

    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    least: Mapping[str, int] = field(default_factory=dict[str, int])
    least_blocks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What one compiled kernel uses. ``opcodes`` is None where no disassembler is installed.

    Units: registers, spilled and stack bytes are those of one thread, shared bytes those of a block.
    """

    kernel: str
    architecture: str
    threads: int
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    reserved_shared_bytes: int
    parameter_bytes: int
    code_bytes: int
    resident_blocks: int
    complaints: tuple[str, ...]
    opcodes: Mapping[str, int] | None
    compile_seconds: float

    @property
    def spill_bytes(self) -> int:
        """All traffic of spilled registers."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """A gate that could not look: it did not pass, and it says why."""

    subject: str
    reason: ToolchainMissing

    @property
    def passed(self) -> bool:
        """Never."""
        return False

    def require(self) -> Verdict:
        """Raise the reason: ToolchainMissing."""
        raise self.reason

    def __str__(self) -> str:
        return f"{self.subject}: not checked: {self.reason}"


def judge_binary(
    source: KernelSource, *, target: GpuTarget, budget: ResourceBudget | None = None
) -> Verdict | NotChecked:
    """Compile an emitted kernel for its target and judge what it uses.

    Raises:
        CompileError: the text does not compile.
    """
    try:
        binary = compile_cuda(source)
    except ToolchainMissing as error:
        return NotChecked(subject=source.name, reason=error)
    if source.launch is None:
        raise InvalidOption(
            field=f"{source.name}: launch", got=None, expected="a launch", remedy="emit it for a GPU target"
        )
    used = measure_resources(
        binary,
        source.name,
        target=target,
        threads=source.launch.threads,
        shared_bytes=source.launch.shared_bytes,
    )
    checks = check_resources(used, budget or ResourceBudget(), target)
    parameters = Check(
        name="parameter bytes",
        passed=used.parameter_bytes == source.launch.argument_bytes,
        figure=used.parameter_bytes,
        limit=source.launch.argument_bytes,
        detail="the compiled struct and the launch's are one",
    )
    return Verdict(subject=f"{source.name} for {source.isa}", checks=(*checks, parameters), seed=0)


def measure_resources(
    binary: CudaBinary, kernel: str, *, target: GpuTarget, threads: int, shared_bytes: int = 0
) -> KernelResources:
    """Return what one kernel of a compiled text uses when launched with so many threads and dynamic shared bytes.

    Raises:
        InvalidOption: the text has no such kernel, or its log and its CUBIN disagree.
    """
    report = parse_ptxas_log(binary.log)
    facts = read_cubin(binary.cubin).get(kernel)
    usage = report.kernels.get(kernel)
    if facts is None or usage is None:
        raise InvalidOption(
            field="kernel", got=kernel, expected=sorted(report.kernels), remedy="name an entry point of the text"
        )
    if (facts.registers, facts.stack_bytes) != (usage.registers, usage.stack_bytes):
        raise InvalidOption(
            field=f"{kernel}: registers and stack in the CUBIN",
            got=(facts.registers, facts.stack_bytes),
            expected=(usage.registers, usage.stack_bytes),
            remedy="the log and the binary are of two compilations: clear the cache",
        )
    opcodes = None
    if find_disassembler() is not None:
        opcodes = dict(count_opcodes(disassemble(binary.cubin)).get(kernel, {}))
    return KernelResources(
        kernel=kernel,
        architecture=binary.architecture,
        threads=threads,
        registers=usage.registers,
        spill_store_bytes=usage.spill_store_bytes,
        spill_load_bytes=usage.spill_load_bytes,
        stack_bytes=usage.stack_bytes,
        static_shared_bytes=facts.static_shared_bytes,
        dynamic_shared_bytes=shared_bytes,
        reserved_shared_bytes=facts.reserved_shared_bytes,
        parameter_bytes=facts.parameter_bytes,
        code_bytes=facts.code_bytes,
        resident_blocks=resident_blocks(facts, target, threads=threads, shared_bytes=shared_bytes),
        complaints=(*report.advisories, *report.warnings, *map(str, binary.warnings)),
        opcodes=opcodes,
        compile_seconds=binary.seconds,
    )


def check_resources(used: KernelResources, budget: ResourceBudget, target: GpuTarget) -> tuple[Check, ...]:
    """Compare what a kernel uses with its budget and its target."""
    shared = used.static_shared_bytes + used.dynamic_shared_bytes
    register_limit = budget.registers or target.registers_per_thread
    checks = [
        _at_most("registers", used.registers, register_limit),
        _at_most("spilled bytes", used.spill_bytes, budget.spill_bytes),
        _at_most("stack bytes", used.stack_bytes, budget.stack_bytes),
        _at_most("shared bytes", shared, target.shared_bytes_per_block),
        _at_most("threads", used.threads, target.threads_per_block),
        Check(
            name="resident blocks",
            passed=used.resident_blocks >= budget.least_blocks,
            figure=used.resident_blocks,
            limit=budget.least_blocks,
            detail="of one multiprocessor, at least",
        ),
        Check(
            name="complaints of the compiler",
            passed=not used.complaints,
            figure=len(used.complaints),
            limit=0,
            detail="; ".join(used.complaints),
        ),
    ]
    checks += [_at_least(used.opcodes, opcode, count) for opcode, count in budget.least.items()]
    if used.opcodes is not None and budget.spill_bytes == 0 and budget.stack_bytes == 0:
        local = sum(used.opcodes.get(opcode, 0) for opcode in _LOCAL)
        checks.append(_at_most("instructions of local memory", local, 0))
    return tuple(checks)


def resident_blocks(kernel: CubinKernel, target: GpuTarget, *, threads: int, shared_bytes: int) -> int:
    """Return how many blocks of a kernel one multiprocessor holds at once; 0: it cannot be launched.

    Source: CUDA C++ Programming Guide, hardware multithreading: registers are given to warps in 256s within each of
    four partitions, shared memory to blocks in 128 bytes.
    """
    warps = -(-threads // _WARP)
    registers = -(-kernel.registers // _REGISTER_UNIT) * _REGISTER_UNIT * _WARP
    warps_by_registers = _PARTITIONS * (target.registers_per_sm // _PARTITIONS // registers) if registers else warps
    shared = kernel.static_shared_bytes + shared_bytes
    if shared > target.shared_bytes_per_block or threads > target.threads_per_block:
        return 0
    whole = -(-(shared + target.shared_bytes_reserved) // _SHARED_UNIT) * _SHARED_UNIT
    limits = [target.blocks_per_sm, target.threads_per_sm // (warps * _WARP), warps_by_registers // warps]
    if whole:
        limits.append(target.shared_bytes_per_sm // whole)
    return min(limits)


def _at_most(name: str, figure: int, limit: int) -> Check:
    return Check(name=name, passed=figure <= limit, figure=figure, limit=limit)


def _at_least(opcodes: Mapping[str, int] | None, opcode: str, count: int) -> Check:
    name = f"{opcode} instructions"
    if opcodes is None:
        detail = "not checked: no nvdisasm. Remedy: pip install 'tracea[cuda]'"
        return Check(name=name, passed=False, figure="not checked", limit=count, detail=detail)
    figure = opcodes.get(opcode, 0)
    return Check(name=name, passed=figure >= count, figure=figure, limit=count, detail="at least")
