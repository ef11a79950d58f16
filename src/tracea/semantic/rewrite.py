"""Rewriting: a kernel with the node at one place replaced or removed.

A *place* is a path: positions in blocks and numbers of child blocks, alternating, as the proofs print it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tracea.semantic.nodes import Block, For, If, Node, Parallel, block
from tracea.semantic.nodes_async import Roles, SegmentLoop, TileLoop
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["Place", "edited", "places"]

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
