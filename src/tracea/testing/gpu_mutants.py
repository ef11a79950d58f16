"""Mutants of GPU kernels: one mechanical mistake each in what their pipelines are made of.

Beside what :func:`tracea.testing.mutants.mutants` changes anyway (every index, mask, wait and shape): swizzles of one
side or of both, tensor maps, who meets at a barrier, how many executors a role has, the width and the alignment of
copies, guards of the launch, the order of neighbours, and which mbarrier a node names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tracea.errors import TraceaError
from tracea.semantic.nodes import Barrier, Let, Level, Node, block
from tracea.semantic.nodes_async import (
    AsyncCopy,
    AwaitFlag,
    Clear,
    CommitGroup,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Roles,
    SignalFlag,
    TmaCopy,
    WaitGroup,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
)
from tracea.semantic.predicate import TRUE, And, Predicate
from tracea.semantic.rewrite import edited, places
from tracea.semantic.swizzle import TMA_MODES, Swizzle
from tracea.semantic.tile_kernel import BufferRole, TileKernel
from tracea.testing.mutants import Mutant, mutants

__all__ = ["gpu_mutants"]

_ORDERED = (
    Barrier,
    WaitGroup,
    CommitGroup,
    MbarrierWait,
    MbarrierArrive,
    MbarrierExpect,
    TmaCopy,
    WgmmaWait,
    WgmmaCommit,
    Wgmma,
    AwaitFlag,
    SignalFlag,
)
_DROPPED = (MbarrierInit, Clear, TmaCopy, AsyncCopy)  # beside the synchronisation that ``mutants`` drops
_WIDER = 2
_WIDEST_BYTES = 16


def gpu_mutants(kernel: TileKernel) -> Iterator[Mutant]:
    """Yield every mechanical mutant of a GPU kernel: the general ones, then those of its pipeline and its layouts."""
    yield from mutants(kernel)
    barriers = sorted({node.barrier for node in kernel.body.walk() if isinstance(node, MbarrierInit)})
    for place, node in places(kernel.body, ()):
        where = f"{type(node).__name__} at {'.'.join(map(str, place))}"
        for family, what, changed in _of_node(node, barriers):
            yield Mutant(family, f"{where}: {what}", edited(kernel, place, changed))
    yield from _swapped(kernel)
    yield from _of_swizzles(kernel)
    yield from _of_guards(kernel)


def _of_node(node: Node, barriers: list[str]) -> Iterator[tuple[str, str, Node | None]]:
    if isinstance(node, _DROPPED):
        yield "wait" if isinstance(node, MbarrierInit) else "stage", "removed", None
    match node:
        case Barrier(level=Level.BLOCK):
            yield "wait", "only the subgroup meets", replace(node, level=Level.SUBGROUP)
        case AsyncCopy(chunk_bytes=chunk) if chunk < _WIDEST_BYTES:
            yield "width", f"{chunk} bytes become {_WIDER * chunk}", replace(node, chunk_bytes=_WIDER * chunk)
        case Roles():
            for number, role in enumerate(node.roles):
                for executors in (role.executors + 1, role.executors - 1):
                    roles = list(node.roles)
                    roles[number] = replace(role, executors=executors)
                    yield "role", f"{role.name} has {executors} executors", replace(node, roles=tuple(roles))
        case TmaCopy():
            descriptor = node.descriptor
            for mode in (0, *TMA_MODES):
                if mode != descriptor.swizzle_bytes:
                    changed = replace(descriptor, swizzle_bytes=mode)
                    yield "swizzle", f"swizzle {mode} in the map", replace(node, descriptor=changed)
            for axis, size in enumerate(descriptor.box):
                for other in (size + 1, size - 1, 2 * size):
                    box = (*descriptor.box[:axis], other, *descriptor.box[axis + 1 :])
                    yield "bound", f"box {box}", replace(node, descriptor=replace(descriptor, box=box))
        case _:
            pass
    if isinstance(node, MbarrierInit | MbarrierExpect | MbarrierArrive | MbarrierWait | TmaCopy):
        for other in barriers:
            if other != node.barrier:
                yield "stage", f"names {other}", replace(node, barrier=other)


def _swapped(kernel: TileKernel) -> Iterator[Mutant]:
    """Yield the kernel with a node of its pipeline and the one after it in the other order."""
    found = dict(places(kernel.body, ()))
    for place, node in found.items():
        following = (*place[:-1], place[-1] + 1)
        after = found.get(following)
        if after is None or not (isinstance(node, _ORDERED) or isinstance(after, _ORDERED)):
            continue
        if type(node) is type(after) or isinstance(node, Let) or isinstance(after, Let):
            continue  # two of a kind commute, and a name for a number touches nothing
        changed = edited(edited(kernel, following, None), place, block(after, node))
        where = f"{type(node).__name__} at {'.'.join(map(str, place))}"
        yield Mutant("order", f"{where}: after {type(after).__name__}", changed)


def _of_swizzles(kernel: TileKernel) -> Iterator[Mutant]:
    for position, buffer in enumerate(kernel.buffers):
        if buffer.swizzle is None:
            continue
        for swizzle in (None, *_neighbours(buffer.swizzle)):
            buffers = (*kernel.buffers[:position], replace(buffer, swizzle=swizzle), *kernel.buffers[position + 1 :])
            what = f"{buffer.name}: {swizzle or 'no swizzle'} for {buffer.swizzle}"
            yield Mutant("swizzle", what, replace(kernel, buffers=buffers))


def _neighbours(of: Swizzle) -> Iterator[Swizzle]:
    for bits, base, shift in ((-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1)):
        try:
            yield Swizzle(of.bits + bits, of.base + base, of.shift + shift, of.also)
        except TraceaError:
            continue  # none is so
    if of.also is None:
        return
    yield replace(of, also=None)
    for also in _neighbours(of.also):
        try:
            yield replace(of, also=also)
        except TraceaError:
            continue  # the two do not go together


def _of_guards(kernel: TileKernel) -> Iterator[Mutant]:
    parts = _flat(kernel.assumptions)
    for part in parts:
        rest = tuple(other for other in parts if other is not part)
        assumptions = And(rest) if len(rest) > 1 else (rest[0] if rest else TRUE)
        yield Mutant("guard", f"launches without {part}", replace(kernel, assumptions=assumptions))
    for position, buffer in enumerate(kernel.buffers):
        if buffer.role is not BufferRole.SCRATCH and buffer.aligned_bytes > buffer.dtype.nbytes:
            changed = replace(buffer, aligned_bytes=buffer.aligned_bytes // _WIDER)
            buffers = (*kernel.buffers[:position], changed, *kernel.buffers[position + 1 :])
            what = f"{buffer.name}: aligned to {changed.aligned_bytes} bytes"
            yield Mutant("guard", what, replace(kernel, buffers=buffers))


def _flat(predicate: Predicate) -> tuple[Predicate, ...]:
    if predicate == TRUE:
        return ()
    if not isinstance(predicate, And):
        return (predicate,)
    return tuple(part for inner in predicate.parts for part in _flat(inner))
