"""Mutants: kernels with one mechanical mistake each, which the proofs or the interpreter must notice.

A mistake is off by one in an index, a dropped side of a minimum, a dropped mask or guard, an accumulation that starts
or finishes wrongly, a lost wait, barrier, commit or arrival, a laxer wait, a stride or a scratch shape that is one
off.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracea.semantic.fields import map_indices
from tracea.semantic.index import Const, Index, Max, Min
from tracea.semantic.nodes import (
    Barrier,
    Block,
    CopyTile,
    For,
    If,
    Let,
    MicroKernel,
    Node,
    Parallel,
    ReduceTile,
)
from tracea.semantic.nodes_async import (
    AsyncCopy,
    AwaitFlag,
    CommitGroup,
    Gather,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    Mma,
    SegmentLoop,
    SignalFlag,
    TileLoop,
    WaitGroup,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
)
from tracea.semantic.predicate import FALSE, TRUE, And
from tracea.semantic.rewrite import edited, places
from tracea.semantic.tile_kernel import BufferRole, TileKernel

__all__ = ["Mutant", "edited", "evenly", "mutants", "places", "unguarded", "without"]

_SYNCHRONISATION = (
    Barrier,
    WaitGroup,
    CommitGroup,
    MbarrierWait,
    MbarrierArrive,
    MbarrierExpect,
    WgmmaWait,
    WgmmaCommit,
    AwaitFlag,
    SignalFlag,
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with one mistake: its family (bound, mask, split, sum, wait, stride), where and what it is."""

    family: str
    description: str
    kernel: TileKernel


def mutants(kernel: TileKernel) -> Iterator[Mutant]:
    """Yield every mechanical mutant of a kernel, in program order."""
    for place, node in places(kernel.body, ()):
        for family, what, changed in _changes(node):
            where = f"{type(node).__name__} at {'.'.join(map(str, place))}"
            yield Mutant(family, f"{where}: {what}", edited(kernel, place, changed))
    yield from _of_buffers(kernel)


def evenly(kinds: Sequence[str], count: int, seed: int) -> list[int]:
    """Return the numbers of ``count`` mutants, given the kind of each: one of each kind in turn, its own at random.

    Worked example: of kinds ``w w w s`` two are the ``s`` and one ``w``.
    """
    rng = random.Random(seed)
    numbers: dict[str, list[int]] = {}
    for number, kind in enumerate(kinds):
        numbers.setdefault(kind, []).append(number)
    for those in numbers.values():
        rng.shuffle(those)
    turns = list(numbers.values())
    rng.shuffle(turns)
    chosen = [those[turn] for turn in range(len(kinds)) for those in turns if turn < len(those)]
    return sorted(chosen[:count])


def without(kernel: TileKernel, kind: type[Node] | tuple[type[Node], ...]) -> Iterator[Mutant]:
    """Yield the kernel without one node of a kind, for each of them."""
    for place, node in places(kernel.body, ()):
        if isinstance(node, kind):
            where = f"{type(node).__name__} at {'.'.join(map(str, place))}"
            yield Mutant("wait", f"{where}: removed", edited(kernel, place, None))


def unguarded(kernel: TileKernel) -> Iterator[Mutant]:
    """Yield the kernel without one of its guards on arguments, for each of them."""
    parts = _flat((kernel.assumptions,)) if kernel.assumptions != TRUE else ()
    for number, part in enumerate(parts):
        rest = And(tuple(other for position, other in enumerate(parts) if position != number))
        yield Mutant("guard", f"without the guard {part}", replace(kernel, assumptions=rest))


def _changes(node: Node) -> Iterator[tuple[str, str, Node | None]]:
    if isinstance(node, _SYNCHRONISATION):
        yield "wait", "removed", None
    family = "split" if isinstance(node, For | Parallel | Let | SegmentLoop | TileLoop) else "bound"
    for number, index in enumerate(_own_expressions(node)):
        for what, changed in _off(index):
            yield family, f"#{number} {index} becomes {what}", _with_expression(node, number, changed)
    yield from _mask_changes(node)
    yield from _sum_changes(node)


def _off(index: Index) -> Iterator[tuple[str, Index]]:
    for changed in (index + 1, index - 1):
        yield str(changed), changed
    for changed in _one_sided(index):
        yield str(changed), changed


def _one_sided(index: Index) -> Iterator[Index]:
    if isinstance(index, Min | Max):
        yield index.left
        yield index.right


def _mask_changes(node: Node) -> Iterator[tuple[str, str, Node | None]]:
    match node:
        case CopyTile(masked=True) | AsyncCopy(masked=True):
            yield "mask", "no mask", replace(node, masked=False)
        case If():
            yield "mask", "always", Block(nodes=node.then.nodes)
            yield "mask", "never", Block(nodes=node.otherwise.nodes)
            if isinstance(node.predicate, And):
                for part in node.predicate.parts:
                    rest = And(tuple(other for other in node.predicate.parts if other is not part))
                    yield "mask", f"without {part}", replace(node, predicate=rest)
        case Gather(predicate=And(parts=parts)):
            for number, part in enumerate(_flat(parts)):
                rest = And(tuple(other for position, other in enumerate(_flat(parts)) if position != number))
                yield "mask", f"without {part}", replace(node, predicate=rest)
        case _:
            pass


def _sum_changes(node: Node) -> Iterator[tuple[str, str, Node | None]]:
    if isinstance(node, MicroKernel | ReduceTile | Mma | Wgmma):
        for value, name in ((TRUE, "always"), (FALSE, "never")):
            if node.accumulate != value:
                yield "sum", f"accumulates {name}", replace(node, accumulate=value)
    if isinstance(node, MicroKernel | ReduceTile) and node.epilogue is not None:
        for value, name in ((TRUE, "always"), (FALSE, "never")):
            if node.finish != value:
                yield "sum", f"finishes {name}", replace(node, finish=value)


def _of_buffers(kernel: TileKernel) -> Iterator[Mutant]:
    for position, buffer in enumerate(kernel.buffers):
        if buffer.role is BufferRole.SCRATCH:
            for axis, size in enumerate(buffer.shape):
                shape = (*buffer.shape[:axis], size - 1, *buffer.shape[axis + 1 :])
                changed = replace(buffer, shape=shape)
                yield Mutant(
                    "stride", f"{buffer.name}: axis {axis} is one shorter", _with_buffer(kernel, position, changed)
                )
        elif buffer.strides is not None:
            for axis, stride in enumerate(buffer.strides):
                if stride == Const(0):
                    continue
                strides = (*buffer.strides[:axis], stride + 1, *buffer.strides[axis + 1 :])
                changed = replace(buffer, strides=strides)
                yield Mutant(
                    "stride", f"{buffer.name}: stride {axis} is one larger", _with_buffer(kernel, position, changed)
                )


def _flat(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    result: tuple[Any, ...] = ()
    for part in parts:
        result += _flat(part.parts) if isinstance(part, And) else (part,)
    return result


def _own_expressions(node: Node) -> list[Index]:
    found: list[Index] = []
    map_indices(node, _collector(found), binders=False)
    return found


def _collector(found: list[Index]) -> Callable[[Index], Index]:
    def collect(index: Index) -> Index:
        found.append(index)
        return index

    return collect


def _with_expression(node: Node, number: int, changed: Index) -> Node:
    count = [-1]

    def swap(index: Index) -> Index:
        count[0] += 1
        return changed if count[0] == number else index

    result: Node = map_indices(node, swap, binders=False)
    return result


def _with_buffer(kernel: TileKernel, position: int, changed: Any) -> TileKernel:
    return replace(kernel, buffers=(*kernel.buffers[:position], changed, *kernel.buffers[position + 1 :]))
