"""Mistakes planted in kernels: what a proof has to refuse, where it accepts the kernel as it was built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tracea.errors import ProofFailed
from tracea.semantic.nodes import Block, For, Node, Parallel
from tracea.semantic.proofs import prove
from tracea.semantic.tile_kernel import TileKernel

__all__ = ["assert_refused", "changed"]


def changed(kernel: TileKernel, kind: type[Node], which: Any) -> TileKernel:
    """Return the kernel with ``which(node)`` for each node of a kind, inside of loops too; None leaves it out."""

    def rebuilt(node: Node) -> tuple[Node, ...]:
        made = which(node) if isinstance(node, kind) else node
        if made is None:
            return ()
        if isinstance(made, For | Parallel):
            return (replace(made, body=Block(nodes=tuple(new for each in made.body.nodes for new in rebuilt(each)))),)
        return (made,)

    return replace(kernel, body=Block(nodes=tuple(new for each in kernel.body.nodes for new in rebuilt(each))))


def assert_refused(kernel: TileKernel, mistake: tuple[type[Node], Any]) -> None:
    """Check that the kernel is proved, and that it is not with a mistake, a kind of node and what it becomes."""
    assert prove(kernel).facts
    wrong = changed(kernel, *mistake)
    assert wrong.body != kernel.body
    with pytest.raises(ProofFailed):
        prove(wrong)
