"""The CUDA emitter: a TileKernel as CUDA C++ text, one line per node, each a primitive or a routine of include/tracea.

Coordinates are 32 bits wide (``prove`` shows that they fit), addresses and strides 64. Loops of constant length are
unrolled, so that subscripts of registers are constants. The grid is the outermost ``Parallel(BLOCK)``; a block's
threads are the executors of what is inside it.
"""

from __future__ import annotations

import re
from typing import Final

from tracea.core.ops.base import Op
from tracea.emitters.cuda.printer import Printer
from tracea.emitters.cuda.tiles import TILE_LINES
from tracea.emitters.kernel_source import ArgumentField, GpuLaunch, KernelSource, PointerParameter, TensorMapSpec
from tracea.emitters.writer import Writer
from tracea.errors import EmitError
from tracea.semantic.fields import expressions
from tracea.semantic.index import Const, Index, minimum
from tracea.semantic.nodes import Barrier, Block, For, If, Let, Level, Node, Parallel
from tracea.semantic.nodes_async import (
    MbarrierArrive,
    MbarrierInit,
    Mma,
    Role,
    Roles,
    SegmentLoop,
    SignalFlag,
    TileLoop,
    TmaCopy,
)
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel

__all__ = ["emit"]

_WARP: Final = 32
_ARGUMENT_BYTES: Final = 8
_MAP_BYTES: Final = 128
_REGISTERS_PER_BLOCK: Final = 65_536  # of a multiprocessor: a block of a kernel with roles has them all


def emit(kernel: TileKernel, isa: str) -> KernelSource:
    """Return the CUDA text of a kernel for an architecture such as ``sm_80``.

    Raises: EmitError for a node without a line.
    """
    printer = Printer(kernel)
    structure = _Structure(printer)
    structure.grid(kernel.body)
    if structure.blocks is None:
        raise EmitError(node=kernel.name, detail="has no grid of blocks")
    pointers = tuple(buffer for buffer in kernel.buffers_in(MemorySpace.GLOBAL))
    maps = tuple(printer.tensor_maps.values())
    arguments, size = _layout(kernel, tuple(b for b in pointers if b.name not in {m.buffer for m in maps}), maps)
    shared = kernel.team_scratch_bytes.constant
    if shared is None:
        raise EmitError(node=kernel.name, detail=f"{kernel.team_scratch_bytes} bytes of shared memory are no constant")
    launch = GpuLaunch(
        threads=structure.threads,
        blocks=structure.blocks,
        shared_bytes=shared,
        argument_bytes=size,
        arguments=arguments,
        tensor_maps=maps,
        workspace=tuple((b.name, b.nbytes) for b in pointers if b.role is BufferRole.SCRATCH),
        zeroed=tuple(sorted({n.flag.buffer for n in kernel.body.walk() if isinstance(n, SignalFlag)})),
    )
    return KernelSource(
        name=kernel.name,
        text=_assemble(printer, structure, isa, arguments),
        language="cuda",
        isa=isa,
        pointers=tuple(
            PointerParameter(name=b.name, dtype=b.dtype, role=b.role, alignment_bytes=max(b.aligned_bytes, 1))
            for b in pointers
        ),
        integers=tuple(param.name for param in kernel.params),
        scalars=tuple(scalar.name for scalar in kernel.scalars),
        team_scratch_bytes=kernel.team_scratch_bytes,
        thread_scratch_bytes=kernel.thread_scratch_bytes,
        headers=("tracea/gpu.h",),
        launch=launch,
    )


class _Structure:
    """Prints loops, conditions and barriers; every other node is a primitive or a tile routine."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self.blocks: Index | None = None
        self.threads = 0
        self.min_blocks = 1
        self._words = frozenset(
            region.buffer
            for node in printer.kernel.body.walk()
            if isinstance(node, Mma) and node.intrinsic.attribute("form") == "mma"
            for region in (node.a, node.b)
        )
        # One executor's arrival is one of each of its warps.
        self._warps_that_arrive = {
            node.barrier: role.lanes // _WARP
            for roles in printer.kernel.body.walk()
            if isinstance(roles, Roles)
            for role in roles.roles
            for node in role.body.walk()
            if isinstance(node, MbarrierArrive)
        }

    def grid(self, body: Block) -> None:
        """Print the grid: the body's only node."""
        match body.nodes:
            case (Parallel(level=Level.BLOCK, var=var, extent=extent, body=inside),):
                self.blocks = extent
                self._printer.body.line(f"const int32_t {var.name} = static_cast<int32_t>(block_index());")
                self.block(inside)
            case _:
                raise EmitError(node="grid", detail="a GPU kernel is one Parallel over blocks")

    def block(self, body: Block) -> None:
        for node in body.nodes:
            self._node(node)

    def _node(self, node: Node) -> None:
        printer, writer = self._printer, self._printer.body
        match node:
            case Block():
                self.block(node)
            case Parallel(level=Level.SUBGROUP, var=var, extent=Const(value=warps), body=body):
                self._begin(warps * _WARP)
                writer.line(f"const int32_t {var.name} = static_cast<int32_t>(warp_index());")
                self.registers(body)
                self.block(body)
            case For() if not self.threads and any(isinstance(n, MbarrierInit) for n in node.body.walk()):
                with writer.block("if (thread_index() == 0)"):
                    self._loop(node)
                    writer.line("mbarrier_fence_init();")
            case MbarrierInit(barrier=barrier, slot=slot, count=count):
                arrivals = printer.text(count * self._warps_that_arrive.get(barrier, 1))
                writer.line(f"mbarrier_init({printer.mbarrier(barrier, slot)}, {arrivals});")
            case For():
                self._loop(node)
            case SegmentLoop():
                self._segments(node)
            case TileLoop():
                self._turns(node)
            case Roles(roles=roles):
                self._roles(roles)
            case Barrier(level=Level.BLOCK):
                writer.line("sync_block();")
            case Barrier(level=Level.SUBGROUP):
                writer.line("sync_warp();")
            case If(predicate=predicate, then=then, otherwise=otherwise):
                with writer.block(f"if ({printer.condition(predicate)})"):
                    self.block(then)
                if otherwise.nodes:
                    with writer.block("else"):
                        self.block(otherwise)
            case Let(var=var, value=value):
                writer.line(f"const int32_t {var.name} = {printer.text(value)};")
            case _:
                line = TILE_LINES.get(type(node))
                if line is None:
                    raise EmitError(node=type(node).__name__)
                line(printer, node)

    def _segments(self, node: SegmentLoop) -> None:
        printer, writer = self._printer, self._printer.body
        arguments = ", ".join(map(printer.text, (node.worker, node.workers, node.tiles, node.steps)))
        with writer.block(f"for (Segments segments({arguments}); segments.next();)"):
            for name, value in (("tile", node.tile), ("first", node.first), ("count", node.count), ("last", node.last)):
                writer.line(f"const int32_t {value.name} = segments.{name};")
            self.block(node.body)

    def _turns(self, node: TileLoop) -> None:
        printer, writer = self._printer, self._printer.body
        numbers = (node.worker, node.workers, node.tiles, node.steps, node.share, node.shares)
        walk = f"{node.turn.name}s"
        used = {name for inner in node.body.walk() for index in expressions(inner) for name in index.names()}
        with writer.block(f"for (Turns {walk}({', '.join(map(printer.text, numbers))}); {walk}.next();)"):
            for name, value in (("tile", node.tile), ("turn", node.turn), ("first", node.first)):
                if value.name in used:
                    writer.line(f"const int32_t {value.name} = {walk}.{name};")
            self.block(node.body)

    def _roles(self, roles: tuple[Role, ...]) -> None:
        """Print one branch a role: warps in order, each executor as many as it has."""
        printer, writer = self._printer, self._printer.body
        self._begin(sum(role.executors * role.lanes for role in roles))
        number = "warp_number"
        writer.line(f"const int32_t {number} = static_cast<int32_t>(warp_index());")
        first = 0
        for position, role in enumerate(roles):
            warps, end = role.lanes // _WARP, first + role.executors * role.lanes // _WARP
            last = position == len(roles) - 1
            head = f"if ({number} < {end})"
            with writer.block(head if position == 0 else "else" if last else f"else {head}"):
                writer.comment(f"Role {role.name}")
                if role.registers is not None:
                    change = "dec" if role.registers * self.threads < _REGISTERS_PER_BLOCK else "inc"
                    writer.line(f"setmaxnreg_{change}<{role.registers}>();")
                printer.lanes = role.lanes
                if any(isinstance(node, TmaCopy) for node in role.body.walk()):
                    # The copy engine takes orders from one lane: the role's other lanes have nothing to do.
                    with writer.block(f"if ({number} == {first} && elect_one())"):
                        self.block(role.body)
                else:
                    own = number if first == 0 else f"({number} - {first})"
                    index = own if warps == 1 else f"{own} / {warps}"
                    writer.line(f"const int32_t {role.index.name} = {index};")
                    self.registers(role.body)
                    self.block(role.body)
                printer.lanes = _WARP
            first = end

    def _begin(self, threads: int) -> None:
        if self.threads:
            raise EmitError(node="Parallel(subgroup)", detail="a block's threads begin at one node")
        self.threads = threads

    def registers(self, body: Block) -> None:
        """Declare the fragments of a lane that a program uses."""
        used = {access.region.buffer for node in body.walk() for access in node.accesses()}
        for buffer in self._printer.kernel.buffers_in(MemorySpace.REGISTER):
            if buffer.name not in used:
                continue
            self._printer.body.line(self._printer.declaration(buffer, as_words=buffer.name in self._words))

    def _loop(self, node: For) -> None:
        printer, writer, var = self._printer, self._printer.body, node.var.name
        advance = f"++{var}" if node.step == Const(1) else f"{var} += {printer.text(node.step)}"
        writer.line("TRACEA_UNROLL" if isinstance(node.extent.simplify(), Const) else "TRACEA_NO_UNROLL")
        with writer.block(f"for (int32_t {var} = 0; {var} < {printer.text(node.extent)}; {advance})"):
            if node.length is not None:
                length = minimum(node.step, node.extent - node.var)
                writer.line(f"const int32_t {node.length.name} = {printer.text(length)};")
            self.block(node.body)


def _layout(
    kernel: TileKernel, pointers: tuple[Buffer, ...], maps: tuple[TensorMapSpec, ...]
) -> tuple[tuple[ArgumentField, ...], int]:
    """Return the members of the argument struct, every one at a multiple of 8 bytes, and its size."""
    fields: list[ArgumentField] = []
    offset = 0

    def add(name: str, kind: str, size: int) -> None:
        nonlocal offset
        fields.append(ArgumentField(name=name, kind=kind, offset_bytes=offset, size_bytes=size))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        offset += size

    for each in maps:
        add(each.name, "tensor_map", _MAP_BYTES)
    for buffer in pointers:
        add(buffer.name, "pointer", _ARGUMENT_BYTES)
    for table in kernel.tables:
        add(table.name, "table", _ARGUMENT_BYTES)
    for param in kernel.params:
        add(param.name, "integer", _ARGUMENT_BYTES)
    for scalar in kernel.scalars:
        add(scalar.name, "scalar", _ARGUMENT_BYTES // 2)
    alignment = _MAP_BYTES // 2 if maps else _ARGUMENT_BYTES
    return tuple(fields), -(-offset // alignment) * alignment


def _assemble(printer: Printer, structure: _Structure, isa: str, fields: tuple[ArgumentField, ...]) -> str:
    kernel, body = printer.kernel, printer.body.text()
    code = "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("//"))
    used = frozenset(re.findall(r"[A-Za-z_]\w*", code))
    writer = Writer()
    op = kernel.op.key if isinstance(kernel.op, Op) else str(kernel.op)
    place = isa if kernel.target == isa else f"{kernel.target}, {isa}"
    writer.comment(f"{op} | {kernel.variant} | {place} | {kernel.schedule.key}")
    writer.line('#include "tracea/gpu.h"')
    writer.line()
    writer.line(f"namespace {kernel.name}_text {{")
    writer.line("using namespace tracea;")
    writer.line()
    for line in printer.declarations.text().splitlines():
        writer.line(line)
    writer.line()
    with writer.block(f"struct {kernel.name}_args", tail="};"):
        for field in fields:
            writer.line(f"{_member(kernel, printer, field)};")
    writer.line()
    head = f"TRACEA_KERNEL({structure.threads}, {structure.min_blocks}) void {kernel.name}"
    with writer.block(f"{head}(const TRACEA_GRID_CONSTANT {kernel.name}_args args)"):
        for line in (*_locals(kernel, printer, used), *body.splitlines()):
            writer.line(line)
    writer.line(f"}}  // namespace {kernel.name}_text")
    writer.line(f"using {kernel.name}_text::{kernel.name}, {kernel.name}_text::{kernel.name}_args;")
    return writer.text()


def _member(kernel: TileKernel, printer: Printer, field: ArgumentField) -> str:
    match field.kind:
        case "pointer":
            return f"{_pointer(kernel.buffer(field.name), printer)} {field.name}"
        case "integer":
            return f"int64_t {field.name}"
        case "scalar":
            return f"float {field.name}"
        case "table":
            return f"const int32_t* {field.name}"
        case _:
            return f"TensorMap {field.name}"


def _pointer(buffer: Buffer, printer: Printer) -> str:
    const = "" if buffer.role in (BufferRole.OUTPUT, BufferRole.SCRATCH) else "const "
    return f"{const}{printer.storage(buffer)}*"


def _locals(kernel: TileKernel, printer: Printer, used: frozenset[str]) -> list[str]:
    # Only what the body names: a stride that is a constant of this kernel has no argument to read.
    strides = {
        name
        for buffer in kernel.buffers_in(MemorySpace.GLOBAL)
        for stride in buffer.element_strides
        for name in stride.names()
    } - {name for buffer in kernel.buffers for size in buffer.shape for name in size.names()}
    lines = [
        f"{_pointer(buffer, printer)} const {buffer.name} = args.{buffer.name};"
        for buffer in kernel.buffers_in(MemorySpace.GLOBAL)
        if buffer.name in used
    ]
    lines += [f"const int32_t* const {t.name} = args.{t.name};" for t in kernel.tables if t.name in used]
    for param in kernel.params:
        if param.name not in used:
            continue
        if param.name in strides:
            lines.append(f"const int64_t {param.name} = args.{param.name};")
        else:
            lines.append(f"const int32_t {param.name} = static_cast<int32_t>(args.{param.name});")
    lines += [f"const float {s.name} = args.{s.name};" for s in kernel.scalars if s.name in used]
    for buffer in kernel.buffers_in(MemorySpace.TEAM):
        if buffer.name in used:
            offset = printer.text(kernel.scratch_offset_bytes(buffer.name))
            lines.append(f"const uint32_t {buffer.name} = shared_base() + {offset};")
    return lines
