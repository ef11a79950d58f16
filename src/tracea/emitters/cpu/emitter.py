"""The CPU emitter: a TileKernel as C++ text, one line per node, each a call of a routine of include/tracea.

The same kernel prints the same text on every machine. The instruction set is chosen by the compiler's command line
(config.h); what depends on its vector length is checked in the text by ``static_assert``.
"""

from __future__ import annotations

import re

from tracea.core.dtype import DType
from tracea.core.ops.base import Op
from tracea.emitters.cpu.index_text import predicate_text
from tracea.emitters.cpu.printer import Printer
from tracea.emitters.cpu.tiles import TILE_LINES
from tracea.emitters.kernel_source import KernelSource, PointerParameter
from tracea.emitters.writer import Writer
from tracea.errors import EmitError
from tracea.semantic.index import Const, Index, ceil_div, minimum
from tracea.semantic.nodes import Barrier, Block, For, If, Let, Level, Node, Parallel
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel
from tracea.targets.target import ISAS

__all__ = ["emit"]

_OF_TILES = "_amx.h"  # so end the headers whose text needs the matrix tiles beside the vectors
_TASK_SLOTS = 8  # TRACEA_TASK_SLOTS of abi.h


def emit(kernel: TileKernel, isa: str) -> KernelSource:
    """Return the C++ text of a kernel for an instruction set.

    Raises: EmitError for a node without a line, or an instruction set without headers.
    """
    if isa not in ISAS:
        raise EmitError(node=isa, detail=f"no headers for this instruction set, there are {', '.join(ISAS)}")
    printer = Printer(kernel)
    _Structure(printer).block(kernel.body)
    return KernelSource(
        name=kernel.name,
        text=_assemble(printer, isa),
        language="c++",
        isa="amx" if isa == "avx512" and any(name.endswith(_OF_TILES) for name in printer.headers) else isa,
        pointers=_pointers(kernel),
        integers=tuple(param.name for param in kernel.params),
        scalars=tuple(scalar.name for scalar in kernel.scalars),
        team_scratch_bytes=kernel.team_scratch_bytes,
        thread_scratch_bytes=kernel.thread_scratch_bytes,
        headers=tuple(f"tracea/{header}" for header in sorted(printer.headers)),
    )


class _Structure:
    """Prints loops, conditions and barriers; every other node is a tile routine."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._task_loops = 0
        self._static_loops = 0

    def block(self, body: Block) -> None:
        for node in body.nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        writer = self._printer.body
        match node:
            case Block():
                self.block(node)
            case For(var=var, extent=extent, step=step):
                text = self._printer.text
                advance = f"++{var.name}" if step == Const(1) else f"{var.name} += {text(step)}"
                with writer.block(f"for (int64_t {var.name} = 0; {var.name} < {text(extent)}; {advance})"):
                    self._length(node)
                    self.block(node.body)
            case Parallel():
                self._parallel(node)
            case Barrier(level=Level.TEAM | Level.TASK):
                self._printer.use("team.h")
                writer.line("team_barrier(call, rank);")
            case If(predicate=predicate, then=then, otherwise=otherwise):
                with writer.block(f"if ({predicate_text(predicate)})"):
                    self.block(then)
                if otherwise.nodes:
                    with writer.block("else"):
                        self.block(otherwise)
            case Let(var=var, value=value):
                writer.line(f"const int64_t {var.name} = {self._printer.text(value)};")
            case _:
                line = TILE_LINES.get(type(node))
                if line is None:
                    raise EmitError(node=type(node).__name__)
                line(self._printer, node)

    def _parallel(self, node: Parallel) -> None:
        printer, var = self._printer, node.var.name
        printer.use("team.h")
        count = printer.text(ceil_div(node.extent, node.step))
        if node.level is Level.TASK:
            if self._task_loops == _TASK_SLOTS:
                raise EmitError(
                    node=node.var.name,
                    detail=f"task loop {_TASK_SLOTS + 1} of {_TASK_SLOTS}",
                    remedy="merge task loops",
                )
            loop = f"tasks{self._task_loops}"
            head = f"for (TaskLoop {loop}(call, rank, {self._task_loops}, {count}); {loop}.next();)"
            self._task_loops += 1
        elif node.level is Level.TEAM:
            loop = f"range{self._static_loops}"
            head = f"for (StaticLoop {loop}(call, rank, {count}); {loop}.next();)"
            self._static_loops += 1
        else:
            raise EmitError(node=f"Parallel({node.level.value})", detail="a CPU has tasks and a team")
        with printer.body.block(head):
            scale = "" if node.step == Const(1) else f" * {printer.text(node.step)}"
            if var in _names_used(node):
                printer.body.line(f"const int64_t {var} = {loop}.task(){scale};")
            self._length(node)
            self.block(node.body)
            if printer.streaming and node.level is Level.TASK:
                printer.body.line("streaming_fence();")
                printer.streaming = False

    def _length(self, node: For | Parallel) -> None:
        if node.length is not None:
            length: Index = minimum(node.step, node.extent - node.var)
            self._printer.body.line(f"const int64_t {node.length.name} = {self._printer.text(length)};")


def _names_used(node: Parallel) -> frozenset[str]:
    """Return the names that a loop's body reads; an index that nothing reads is not declared."""
    found: set[str] = set(node.extent.names()) if node.length is not None else set()
    if node.length is not None:
        found.add(node.var.name)
    for inner in node.body.walk():
        for access in inner.accesses():
            for index in (*access.region.offset, *access.region.extent):
                found |= index.names()
        match inner:
            case For() | Parallel():
                found |= inner.extent.names() | inner.step.names()
            case Let(value=value):
                found |= value.names()
            case _:
                pass
    return frozenset(found)


def _assemble(printer: Printer, isa: str) -> str:
    kernel, body = printer.kernel, printer.body.text()
    code = "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("//"))
    arguments = _arguments(kernel, frozenset(re.findall(r"[A-Za-z_]\w*", code)))
    writer = Writer()
    op = kernel.op.key if isinstance(kernel.op, Op) else str(kernel.op)
    place = isa if kernel.target == isa else f"{kernel.target}, {isa}"
    writer.comment(f"{op} | {kernel.variant} | {place} | {kernel.schedule.key}")
    for header in sorted(printer.headers):
        writer.line(f'#include "tracea/{header}"')
    writer.line()
    writer.line(f"namespace {kernel.name}_text {{")
    writer.line("using namespace tracea;")
    writer.line()
    for line in printer.declarations.text().splitlines():
        writer.line(line)
    unused = "" if "rank" in body or any("rank" in line for line in arguments) else "[[maybe_unused]] "
    signature = f"{kernel.name}(const tracea_call* call, {unused}int32_t rank)"
    with writer.block(f'extern "C" __attribute__((visibility("default"))) void {signature}'):
        for line in (*arguments, *body.splitlines()):
            writer.line(line)
    writer.line(f"}}  // namespace {kernel.name}_text")
    return writer.text()


def _pointers(kernel: TileKernel) -> tuple[PointerParameter, ...]:
    """Return the arrays of a call: the buffers in order, tables after the operands and before the outputs."""
    own = [
        PointerParameter(name=buffer.name, dtype=buffer.dtype, role=buffer.role)
        for buffer in kernel.buffers
        if buffer.role is not BufferRole.SCRATCH
    ]
    tables = [PointerParameter(name=t.name, dtype=DType.I32, role=BufferRole.INPUT) for t in kernel.tables]
    if not tables:
        return tuple(own)
    outputs = [pointer for pointer in own if pointer.role is BufferRole.OUTPUT]
    return (*(pointer for pointer in own if pointer.role is not BufferRole.OUTPUT), *tables, *outputs)


def _arguments(kernel: TileKernel, used: frozenset[str]) -> list[str]:
    # Only what the body names: a stride that is a constant of this kernel has no argument to read.
    lines: list[str] = []
    printer = Printer(kernel)
    for position, pointer in enumerate(_pointers(kernel)):
        const = "" if pointer.role is BufferRole.OUTPUT else "const "
        kind = f"{const}{printer.storage(pointer.name, pointer.dtype)}*"
        if pointer.name in used:
            lines.append(f"{kind} const {pointer.name} = static_cast<{kind}>(call->pointers[{position}]);")
    scratch = [
        line for buffer in kernel.buffers if buffer.name in used for line in _scratch(kernel, printer, buffer.name)
    ]
    needed = used | frozenset(re.findall(r"[A-Za-z_]\w*", " ".join(scratch)))
    for position, param in enumerate(kernel.params):
        if param.name in needed:
            lines.append(f"const int64_t {param.name} = call->integers[{position}];")
    for position, scalar in enumerate(kernel.scalars):
        if scalar.name in needed:
            lines.append(f"const double {scalar.name} = call->scalars[{position}];")
    return lines + scratch


def _scratch(kernel: TileKernel, printer: Printer, name: str) -> list[str]:
    buffer = kernel.buffer(name)
    if buffer.role is not BufferRole.SCRATCH:
        return []
    bases = {MemorySpace.TEAM: "call->team_scratch", MemorySpace.THREAD: "thread_scratch(call, rank)"}
    if buffer.space not in bases:
        raise EmitError(node=name, detail=f"no memory of the CPU is {buffer.space.value}")
    kind = f"{printer.c_type(buffer)}*"
    offset = printer.text(kernel.scratch_offset_bytes(name))
    base = bases[buffer.space] if offset == "0" else f"{bases[buffer.space]} + {offset}"
    return [f"{kind} const {name} = reinterpret_cast<{kind}>({base});"]
