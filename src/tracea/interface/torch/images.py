"""Images while a module is captured: each is kept channels last, and worked on element by element as its pixels.

A convolution or a pooling writes (n, c, h, w) channels last. The same memory is (n, h, w, c) row-major, its pixels: ops
element by element are made over these, so that the kernels of a network hand images on as they are, without a copy. A
sequence (n, c, l) is an image of one row, a volume (n, c, d, h, w) the images of its planes, (n·d, c, h, w).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tracea.core.expr import Input
from tracea.core.op import PointwiseOp, ViewKind
from tracea.core.passes.fuse_images import TO_IMAGE, TO_PIXELS
from tracea.core.tensor_type import static
from tracea.errors import InvalidInput

if TYPE_CHECKING:
    from tracea.core.graph import Graph, Node
    from tracea.core.tensor_type import Dim

__all__ = ["Images"]

PLANES_FIRST: Final = (0, 2, 1, 3, 4)  # of (n, c, d, h, w): (n, d, c, h, w), and back


class Images:
    """Knows the pixels of the images that were made so far, and the images of the sequences and volumes."""

    def __init__(self, graph: Graph, label: Callable[[str], str]) -> None:
        self._graph = graph
        self._label = label
        self._pixels: dict[str, Node] = {}  # by the image's id
        self._image_of: dict[str, Node] = {}  # by the sequence's or the volume's id
        self._batch_of: dict[str, Node] = {}  # a batch of one, by the id of what it holds

    def made(self, image: Node) -> Node:
        """Return a new image channels last, and remember its pixels."""
        self._pixels[image.id] = self._view(image, TO_PIXELS, "pixels")
        return image

    def of_pixels(self, pixels: Node, shape: Sequence[Dim]) -> Node:
        """Return the image of new pixels, or the sequence or volume, as which it has ``shape``."""
        rank = len(shape)
        image = self._view(pixels, TO_IMAGE, "" if rank == 4 else "image")
        self._pixels[image.id] = pixels
        return image if rank == 4 else self.sequence(image) if rank == 3 else self.volume(image, static(shape[0]))

    def pixels(self, image: Node, *, of_planes: bool = False) -> Node | None:
        """Return the pixels of an image or a sequence that is kept channels last; None of any other value.

        ``of_planes``: those of a volume's planes, too.
        """
        if image.type.rank == 5 and not of_planes:
            return None
        return self._pixels.get(self._image_of.get(image.id, image).id)

    def volume(self, planes: Node, n: int) -> Node:
        """Return images of planes as n volumes (n, c, d, h, w), and remember them."""
        count, c, h, width = planes.type.static_shape
        apart = self._reshaped(planes, (n, count // n, c, h, width), "planes_apart")
        made = self._view(apart, PLANES_FIRST, "")
        self._image_of[made.id] = planes
        return made

    def planes_of(self, x: Node) -> Node:
        """Return the planes of a volume (n, c, d, h, w) as images, copied where they follow at several distances."""
        if x.id not in self._image_of:
            n, c, d, h, width = x.type.static_shape
            first = self._view(x, PLANES_FIRST, f"{x.id}.planes")
            try:
                planes = self._reshaped(first, (n * d, c, h, width), f"{x.id}.images")
            except InvalidInput:
                copy = PointwiseOp(expr=Input(0), inputs=(first.type,), out_dtype=x.type.dtype)
                copied = self._graph.add(copy, (first,), name=self._label(f"{x.id}.copy"))
                planes = self._reshaped(copied, (n * d, c, h, width), f"{x.id}.images")
            self._image_of[x.id] = planes
        return self._image_of[x.id]

    def sequence(self, image: Node) -> Node:
        """Return an image of one row as (n, c, l), and remember it."""
        n, c, _, length = image.type.shape
        made = self._reshaped(image, (n, c, length), "")
        self._image_of[made.id] = image
        return made

    def image_of(self, x: Node) -> Node:
        """Return a sequence (n, c, l) as an image of one row."""
        if x.id not in self._image_of:
            self._image_of[x.id] = self._reshaped(x, _lifted(x.type.shape), f"{x.id}.image")
        return self._image_of[x.id]

    def alone(self, batch: Node) -> Node:
        """Return what a batch of one holds: one image, sequence or volume; and remember the batch."""
        made = self._reshaped(batch, batch.type.shape[1:], "")
        self._batch_of[made.id] = batch
        return made

    def batch_of(self, x: Node) -> Node:
        """Return one image, sequence or volume as a batch of one."""
        if x.id not in self._batch_of:
            self._batch_of[x.id] = self._reshaped(x, (1, *x.type.shape), f"{x.id}.batch")
        return self._batch_of[x.id]

    def batches(self, tensors: Sequence[Node], shape: Sequence[Dim]) -> list[Node] | None:
        """Return the operands of an op element by element for a batch of one; None where none is kept channels last."""
        known = [self._batch_of.get(tensor.id) for tensor in tensors if tensor.type.shape == tuple(shape)]
        if all(batch is None or self.pixels(batch, of_planes=True) is None for batch in known):
            return None
        return [self.batch_of(tensor) if tensor.type.rank == len(shape) else tensor for tensor in tensors]

    def operands(self, tensors: Sequence[Node], shape: Sequence[Dim]) -> list[Node] | None:
        """Return the operands of an op element by element as pixels; None where no image has the result's shape."""
        if len(shape) not in (3, 4, 5) or not any(
            self.pixels(tensor, of_planes=True) is not None and tensor.type.shape == tuple(shape) for tensor in tensors
        ):
            return None
        lift = self._as_planes if len(shape) == 5 else self._as_image
        lifted = tensors if len(shape) == 4 else [lift(tensor) for tensor in tensors]
        found = [None if each is None else self._pixels.get(each.id) or self._as_pixels(each) for each in lifted]
        return None if any(each is None for each in found) else [each for each in found if each is not None]

    def _as_image(self, x: Node) -> Node | None:
        """Return an operand that broadcasts to a sequence as one that broadcasts to its image."""
        if x.type.rank < 2:
            return x
        if x.type.rank > 3 or not x.type.is_static:
            return None
        try:
            return self._image_of.get(x.id) or self._reshaped(x, _lifted(x.type.shape), f"{x.id}.image")
        except InvalidInput:
            return None

    def _as_planes(self, x: Node) -> Node | None:
        """Return an operand that broadcasts to a volume as one that broadcasts to its planes."""
        if x.type.rank == 0 or x.id in self._image_of:
            return self._image_of.get(x.id, x)
        if x.type.rank < 4 or not x.type.is_static:
            return None
        *batch, c, d, h, width = x.type.static_shape
        if (d, h, width) == (1, 1, 1) and set(batch) <= {1}:  # one number for each channel
            return self._reshaped(x, (c, 1, 1), f"{x.id}.image")
        return None

    def _as_pixels(self, x: Node) -> Node | None:
        rank = x.type.rank
        if rank == 0:
            return x
        if rank > 4 or not x.type.is_static:
            return None
        shape = x.type.static_shape
        try:
            if rank >= 3 and shape[-2:] == (1, 1) and set(shape[:-3]) <= {1}:  # one number for each channel
                return self._reshaped(x, (shape[-3],), f"{x.id}.channels")
            if rank < 4:
                x = self._reshaped(x, (*(1,) * (4 - rank), *shape), f"{x.id}.image")
        except InvalidInput:
            return None
        return self._view(x, TO_PIXELS, f"{x.id}.pixels")

    def _reshaped(self, x: Node, shape: tuple[Dim, ...], part: str) -> Node:
        return self._graph.add_view(ViewKind.RESHAPE, x, shape=shape, name=self._label(part))

    def _view(self, x: Node, axes: tuple[int, ...], part: str) -> Node:
        return self._graph.add_view(ViewKind.PERMUTE, x, axes=axes, name=self._label(part))


def _lifted(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return (*shape[:-1], 1, shape[-1])
