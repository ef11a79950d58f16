"""A pass that leaves room between the pixels of images inside of a graph, where they would share sets of the caches."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp
from tracea.core.passes.draft import Draft
from tracea.core.passes.retype import relaid
from tracea.core.tensor_type import StridedLayout, TensorType

__all__ = ["SpreadPixels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadPixels:
    """Put ``gap`` elements between the pixels of what a 1×1 convolution makes and only convolutions read.

    Pixels a multiple of ``pitch_bytes`` apart, channels next to each other: those of a panel of filters fall on few
    sets of a cache, which holds no more lines of them than it has ways.
    """

    pitch_bytes: int = 1024
    gap: int = 16
    name: str = "spread pixels"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph in which these images have their pixels apart."""
        draft = Draft(graph)
        for name in draft.order():
            wanted = self._spread(draft, draft.nodes[name])
            changed = None if wanted is None else relaid(draft, name, wanted)
            for node in (changed or {}).values():
                draft.put(node)
        return draft.finish()

    def _spread(self, draft: Draft, node: Node) -> TensorType | None:
        """Return the type that a node's result should have; None where it stays as it is."""
        op, type_ = node.op, node.type
        if not isinstance(op, Conv2dOp) or not type_.is_static or op.w.static_shape[2:] != (1, 1):
            return None
        images, channels, rows, columns = type_.static_shape
        dense = (rows * columns * channels, 1, columns * channels, channels)
        if channels * type_.dtype.nbytes % self.pitch_bytes or type_.strides != dense or images * rows * columns < 2:
            return None
        readers = draft.users(node.id)
        if node.id in draft.outputs or not readers:
            return None
        if not all(isinstance(draft.nodes[reader].op, Conv2dOp) for reader in readers):
            return None
        pitch = channels + self.gap
        layout = StridedLayout((rows * columns * pitch, 1, columns * pitch, pitch))
        return TensorType(type_.shape, type_.dtype, layout)
