"""Resources of a block: threads, shared memory and registers, against what the target has, and what would fit.

The register count is an estimate: fragments and row state are known exactly, addresses and temporaries are not. Only
the compiler's own count (the gate on the cubin) decides about spills; what is refused here cannot be compiled without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tracea.errors import InvalidSchedule, ResourceExceeded
from tracea.semantic.index import Const
from tracea.semantic.nodes import Block, Level, Parallel
from tracea.semantic.nodes_async import Roles, Wgmma
from tracea.semantic.proofs.certificate import Fact, refuse
from tracea.semantic.proofs.mbarriers import tma_rings
from tracea.semantic.proofs.placed_rings import placed_rings
from tracea.semantic.proofs.slots import group_rings
from tracea.semantic.tile_kernel import Buffer, MemorySpace, TileKernel
from tracea.targets.gpu import GpuTarget

__all__ = ["ADDRESSING_REGISTERS", "STATIC_SHARED_BYTES", "BlockResources", "block_resources", "prove_resources"]

WARP_LANES = 32
WARPGROUP_LANES = 128
ADDRESSING_REGISTERS = 24  # pointers, strides, loop counters, predicates of the leanest kernel here: a lower bound
STATIC_SHARED_BYTES = 49_152  # what a block has without opting in, on every architecture
_REGISTER_BYTES = 4
_REGISTER_GRANULE = 8  # registers of a thread are allocated in eights


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResources:
    """What one block needs: threads, bytes of shared memory, and registers of each role's threads.

    ``fragment_registers`` are those of the role that holds most; ``registers`` the estimate for a thread.
    """

    threads: int
    shared_bytes: int
    fragment_registers: int
    registers: int

    def blocks_per_sm(self, target: GpuTarget) -> int:
        """Return how many such blocks a multiprocessor holds at once, by the estimate of registers."""
        by_threads = target.threads_per_sm // self.threads
        by_registers = target.registers_per_sm // (self.threads * self.registers)
        by_shared = target.shared_bytes_per_sm // (self.shared_bytes + target.shared_bytes_reserved or 1)
        return min(target.blocks_per_sm, by_threads, by_registers, by_shared)


def block_resources(kernel: TileKernel) -> BlockResources:
    """Return what one block of the kernel needs.

    Raises:
        ProofFailed: a size depends on an argument, so that nothing can be said.
    """
    shared = kernel.team_scratch_bytes.constant
    if shared is None:
        raise refuse("resources", kernel.name, f"{kernel.team_scratch_bytes} bytes of shared memory are no constant")
    threads = 0
    fragments = 0
    bodies = list(_executors(kernel.body))
    if not bodies:
        raise refuse("resources", kernel.name, "has neither subgroups nor roles, so no thread executes it")
    for body, executors, lanes in bodies:
        if executors < 1:
            raise refuse("resources", kernel.name, f"{executors} executors of one program, must be at least 1")
        width = lanes or _lanes(kernel, body)
        threads += executors * width
        fragments = max(fragments, _fragment_registers(kernel, body, width))
    registers = -(-(fragments + ADDRESSING_REGISTERS) // _REGISTER_GRANULE) * _REGISTER_GRANULE
    return BlockResources(threads=threads, shared_bytes=shared, fragment_registers=fragments, registers=registers)


def prove_resources(kernel: TileKernel, target: GpuTarget) -> Iterator[Fact]:
    """Prove that a block fits the target, and state how many of them a multiprocessor holds.

    Raises:
        ResourceExceeded: more shared memory than a block may have; the remedy names a stage count that fits.
        InvalidSchedule: too many threads, or more registers than a thread may have.
    """
    need = block_resources(kernel)
    if need.threads > target.threads_per_block:
        raise InvalidSchedule(
            field=f"threads of {kernel.name}",
            got=need.threads,
            expected=f"at most {target.threads_per_block} on {target.name}",
            remedy=f"use at most {target.threads_per_block // WARP_LANES} warps",
        )
    if need.shared_bytes > target.shared_bytes_per_block:
        raise ResourceExceeded(
            what=f"shared memory of {kernel.name} on {target.name}",
            needed_bytes=need.shared_bytes,
            limit_bytes=target.shared_bytes_per_block,
            remedy=_stages_that_fit(kernel, need.shared_bytes, target.shared_bytes_per_block),
        )
    available = min(
        target.registers_per_thread,
        target.registers_per_sm // need.threads // _REGISTER_GRANULE * _REGISTER_GRANULE,
    )
    if need.fragment_registers + ADDRESSING_REGISTERS > available:
        raise InvalidSchedule(
            field=f"registers of a thread of {kernel.name}",
            got=f"{need.fragment_registers} for fragments and about {ADDRESSING_REGISTERS} for addresses",
            expected=f"at most {available} with {need.threads} threads on {target.name}",
            remedy=f"use tiles of at most {max(0, available - ADDRESSING_REGISTERS)} registers a thread: "
            "more warps, or a smaller bm or bn",
        )
    yield from _check_budgets(kernel, need.threads, target)
    opt_in = ", beyond what a block has unasked" if need.shared_bytes > STATIC_SHARED_BYTES else ""
    blocks = need.blocks_per_sm(target)
    yield Fact(
        "resources",
        kernel.name,
        f"{need.threads} threads, {need.shared_bytes} bytes of shared memory{opt_in}, about {need.registers} registers "
        f"a thread ({need.fragment_registers} for fragments): {blocks} blocks on a multiprocessor of {target.name}",
        (
            ("threads", need.threads),
            ("shared_bytes", need.shared_bytes),
            ("fragment_registers", need.fragment_registers),
            ("registers_estimate", need.registers),
            ("blocks_per_sm", blocks),
        ),
    )


def _stages_that_fit(kernel: TileKernel, needed: int, limit: int) -> str:
    """Return the advice: the largest stage count that fits, if stages are what there is to give up."""
    filled = group_rings(kernel) | tma_rings(kernel) | placed_rings(kernel)
    rings = [buffer for buffer in kernel.buffers_in(MemorySpace.TEAM) if buffer.name in filled]
    counts = {buffer.shape[0].constant for buffer in rings}
    stages = counts.pop() if len(counts) == 1 else None
    for fewer in range((stages or 1) - 1, 0, -1):
        smaller = tuple(
            replace(buffer, shape=(Const(fewer), *buffer.shape[1:])) if buffer in rings else buffer
            for buffer in kernel.buffers
        )
        nbytes = replace(kernel, buffers=smaller).team_scratch_bytes.constant
        if nbytes is not None and nbytes <= limit:
            return f"use stages={fewer}, which needs {nbytes:_} bytes"
    return f"use smaller tiles: {needed - limit:_} bytes too many even with one stage"


def _executors(body: Block) -> Iterator[tuple[Block, int, int | None]]:
    """Yield the programs of a block: body, how many executors run it, and lanes of each where the node says so."""
    for node in body.walk():
        match node:
            case Parallel(level=Level.SUBGROUP):
                executors = node.extent.constant
                if executors is None:
                    raise refuse("resources", f"Parallel over {node.var}", f"{node.extent} executors is no constant")
                yield node.body, executors, None
            case Roles():
                yield from ((role.body, role.executors, role.lanes) for role in node.roles)
            case _:
                pass


def _check_budgets(kernel: TileKernel, threads: int, target: GpuTarget) -> Iterator[Fact]:
    """Show that what the roles ask for by setmaxnreg is there, and that their fragments fit in it.

    A block starts with equally many registers for each thread; what a role takes on, others must have given back.
    """
    for node in kernel.body.walk():
        if not isinstance(node, Roles) or all(role.registers is None for role in node.roles):
            continue
        even = min(target.registers_per_thread, target.registers_per_sm // threads)
        even = even // _REGISTER_GRANULE * _REGISTER_GRANULE
        pool, asked = even * threads, 0
        for role in node.roles:
            lanes = role.executors * role.lanes
            asked += lanes * (even if role.registers is None else role.registers)
            held = _fragment_registers(kernel, role.body, role.lanes)
            if role.registers is not None and held + ADDRESSING_REGISTERS > role.registers:
                raise InvalidSchedule(
                    field=f"registers of role {role.name} of {kernel.name}",
                    got=role.registers,
                    expected=f"at least {held} for fragments and about {ADDRESSING_REGISTERS} for addresses",
                    remedy="use a smaller tile, or more executors",
                )
        if asked > pool:
            most = max(node.roles, key=lambda role: role.registers or 0)
            lanes = most.executors * most.lanes
            fitting = (pool - asked + lanes * (most.registers or 0)) // lanes // _REGISTER_GRANULE * _REGISTER_GRANULE
            raise InvalidSchedule(
                field=f"registers of the roles of {kernel.name}",
                got=f"{asked} together",
                expected=f"at most {pool}: {threads} threads begin with {even} each on {target.name}",
                remedy=f"give {most.name} {fitting} instead of {most.registers}: with more, setmaxnreg waits for ever",
            )
        budgets = ", ".join(f"{role.name} {role.registers or even}" for role in node.roles)
        yield Fact(
            "resources",
            kernel.name,
            f"registers by role: {budgets}; {asked} of the {pool} that the block begins with",
            (("registers_asked", asked), ("registers_pool", pool)),
        )


def _lanes(kernel: TileKernel, body: Block) -> int:
    """Return the lanes of an executor: four warps where it multiplies by wgmma or its fragments say so, else one.

    Fragments have their lanes on the axis before the last; a buffer of two axes may be a tile that lanes hold in
    pieces, whose rows are no lanes.
    """
    if any(isinstance(node, Wgmma) for node in body.walk()):
        return WARPGROUP_LANES
    fragments = [shape for shape in map(_shape, _registers(kernel, body)) if len(shape) > 2]
    return WARPGROUP_LANES if any(shape[-2] == WARPGROUP_LANES for shape in fragments) else WARP_LANES


def _fragment_registers(kernel: TileKernel, body: Block, lanes: int) -> int:
    """Return the registers that one lane's share of all fragments of a program takes."""
    return sum(
        -(-prod(_shape(buffer)) * buffer.dtype.nbytes // lanes // _REGISTER_BYTES)
        for buffer in _registers(kernel, body)
    )


def _registers(kernel: TileKernel, body: Block) -> list[Buffer]:
    names = {access.region.buffer for node in body.walk() for access in node.accesses()}
    return [buffer for buffer in kernel.buffers_in(MemorySpace.REGISTER) if buffer.name in names]


def _shape(buffer: Buffer) -> tuple[int, ...]:
    sizes = tuple(size.constant for size in buffer.shape)
    if any(size is None for size in sizes):
        raise refuse("resources", buffer.name, "fragments are of constant size")
    return tuple(size for size in sizes if size is not None)
