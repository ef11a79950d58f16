"""Images while a module is captured: each is kept channels last, and worked on element by element as its pixels.

A convolution or a pooling writes (n, c, h, w) channels last. The same memory is (n, h, w, c) row-major, its pixels: ops
element by element are made over these, so that the kernels of a network hand images on as they are, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tracea.core.op import ViewKind
from tracea.core.passes.fuse_images import TO_IMAGE, TO_PIXELS
from tracea.errors import InvalidInput

if TYPE_CHECKING:
    from tracea.core.graph import Graph, Node

__all__ = ["Images"]


class Images:
    """Knows the pixels of the images that were made so far."""

    def __init__(self, graph: Graph, label: Callable[[str], str]) -> None:
        self._graph = graph
        self._label = label
        self._pixels: dict[str, Node] = {}  # by the image's id

    def made(self, image: Node) -> Node:
        """Return a new image channels last, and remember its pixels."""
        self._pixels[image.id] = self._view(image, TO_PIXELS, "pixels")
        return image

    def of_pixels(self, pixels: Node) -> Node:
        """Return the image of new pixels."""
        image = self._view(pixels, TO_IMAGE, "")
        self._pixels[image.id] = pixels
        return image

    def pixels(self, image: Node) -> Node | None:
        """Return the pixels of an image that is kept channels last; None of any other value."""
        return self._pixels.get(image.id)

    def operands(self, tensors: Sequence[Node], shape: Sequence[object]) -> list[Node] | None:
        """Return the operands of an op element by element as pixels; None where no image has the result's shape."""
        if len(shape) != 4 or not any(
            tensor.id in self._pixels and tensor.type.shape == tuple(shape) for tensor in tensors
        ):
            return None
        found = [self._pixels.get(tensor.id) or self._as_pixels(tensor) for tensor in tensors]
        return None if any(each is None for each in found) else [each for each in found if each is not None]

    def _as_pixels(self, x: Node) -> Node | None:
        rank = x.type.rank
        if rank == 0:
            return x
        if rank > 4 or not x.type.is_static:
            return None
        shape = x.type.static_shape
        try:
            if rank >= 3 and shape[-2:] == (1, 1) and set(shape[:-3]) <= {1}:  # one number for each channel
                return self._graph.add_view(
                    ViewKind.RESHAPE, x, shape=(shape[-3],), name=self._label(f"{x.id}.channels")
                )
            if rank < 4:
                padded = (*(1,) * (4 - rank), *shape)
                x = self._graph.add_view(ViewKind.RESHAPE, x, shape=padded, name=self._label(f"{x.id}.image"))
        except InvalidInput:
            return None
        return self._view(x, TO_PIXELS, f"{x.id}.pixels")

    def _view(self, x: Node, axes: tuple[int, ...], part: str) -> Node:
        return self._graph.add_view(ViewKind.PERMUTE, x, axes=axes, name=self._label(part))
