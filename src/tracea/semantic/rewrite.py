"""Rewriting: a kernel with the node at one place replaced or removed, or one for smaller sizes.

A *place* is a path: positions in blocks and numbers of child blocks, alternating, as the proofs print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tracea.semantic.fields import map_indices
from tracea.semantic.index import Index, Param
from tracea.semantic.nodes import Block, For, If, Node, Parallel, block
from tracea.semantic.nodes_async import Roles, SegmentLoop, TileLoop
from tracea.semantic.nodes_halo import Halo
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["Place", "edited", "places", "within"]

Place = tuple[int, ...]


def places(body: Block, place: Place = ()) -> Iterator[tuple[Place, Node]]:
    """Yield every node of a block with its place: positions in blocks and numbers of child blocks, alternating."""
    for position, node in enumerate(body.nodes):
        yield (*place, position), node
        for number, child in enumerate(node.children()):
            yield from places(child, (*place, position, number))


def edited(kernel: TileKernel, place: Place, changed: Node | None) -> TileKernel:
    """Return the kernel with the node at a place replaced, or removed."""
    return replace(kernel, body=_in_block(kernel.body, place, changed))


def within(kernel: TileKernel, most: Mapping[str, int]) -> TileKernel:
    """Return the kernel for parameters up to ``most``, by name: less to prove, and the same text."""
    values: dict[str, Index] = {
        param.name: replace(param, maximum=max(param.minimum, most[param.name]))
        for param in kernel.params
        if param.name in most
    }

    def bounded(index: Index) -> Index:
        return index.substitute(values)

    def node_of(node: Node) -> Node:
        if isinstance(node, Halo):  # mutants change what map_indices does, which are of other kernels
            source, target, taps = (map_indices(part, bounded) for part in (node.source, node.target, node.taps))
            return replace(node, source=source, target=target, taps=taps)
        changed: Node = map_indices(node, bounded)
        for number, child in enumerate(node.children()):
            changed = _with_child(changed, number, block_of(child))
        return changed

    def block_of(body: Block) -> Block:
        return Block(nodes=tuple(map(node_of, body.nodes)))

    params = [values.get(param.name, param) for param in kernel.params]
    return replace(
        kernel,
        params=tuple(param for param in params if isinstance(param, Param)),
        buffers=tuple(
            replace(
                buffer,
                shape=map_indices(buffer.shape, bounded),
                strides=map_indices(buffer.strides, bounded),
            )
            for buffer in kernel.buffers
        ),
        body=block_of(kernel.body),
        assumptions=map_indices(kernel.assumptions, bounded),
    )


def _in_block(body: Block, place: Place, changed: Node | None) -> Block:
    position, *rest = place
    node = body.nodes[position]
    if rest:
        number, *inner = rest
        new: tuple[Node, ...] = (_with_child(node, number, _in_block(node.children()[number], tuple(inner), changed)),)
    elif changed is None:
        new = ()
    else:
        new = changed.nodes if isinstance(changed, Block) else (changed,)
    return Block(nodes=(*body.nodes[:position], *new, *body.nodes[position + 1 :]))


def _with_child(node: Node, number: int, child: Block) -> Node:
    match node:
        case For() | Parallel() | SegmentLoop() | TileLoop():
            return replace(node, body=child)
        case If():
            return replace(node, then=child) if number == 0 else replace(node, otherwise=child)
        case Roles():
            roles = list(node.roles)
            roles[number] = replace(roles[number], body=child)
            return replace(node, roles=tuple(roles))
        case _:
            return block(*child.nodes)
