"""Long steps taken out of convolutions: taps that never meet the image, and pixels that no tap reads.

Worked example: of 3 taps 1000 pixels apart on 9 pixels, padded by 1000, the outer two lie over zeros for each result,
so this is a convolution of one tap without padding. One tap every 400 pixels reads 5 of 2000: a view of x under stride
1. Without this a kernel would copy all pixels from the first that a window reads to the last, zeros among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from tracea.core.graph import Graph, Node
from tracea.core.op import Conv2dOp, ViewKind, ViewOp
from tracea.core.ops.conv2d import LONG_STEP
from tracea.core.passes.draft import Draft
from tracea.core.tensor_type import StridedLayout, TensorType, static

__all__ = ["Reach", "ShortenSteps", "reach_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """What a convolution needs along one axis: ``taps`` from ``tap`` on, ``pixels`` ``step`` apart from ``start`` on.

    The first window begins ``padding`` of these pixels before the first; stride and dilation count them too.
    """

    taps: int
    pixels: int
    padding: int
    stride: int
    dilation: int
    tap: int = 0
    start: int = 0
    step: int = 1

    @classmethod
    def given(cls, op: Conv2dOp, axis: int) -> Along:
        """Return all of it."""
        taps, pixels = static(op.w.shape[2 + axis]), static(op.x.shape[2 + axis])
        return cls(
            taps=taps, pixels=pixels, padding=op.padding[axis], stride=op.stride[axis], dilation=op.dilation[axis]
        )

    @classmethod
    def of(cls, op: Conv2dOp, axis: int) -> Along | None:
        """Return what ``op`` needs along its rows, axis 0, or its columns; None where it meets no pixel."""
        given = cls.given(op, axis)
        size, taps, padding, stride, dilation = given.pixels, given.taps, given.padding, given.stride, given.dilation
        if max(stride, dilation) <= LONG_STEP:
            return given
        result = static(op.shape[2 + axis])
        # Tap r of result p lies over pixel p · stride + r · dilation - padding.
        first = max(0, -(((result - 1) * stride - padding) // dilation))
        end = min(taps, (size - 1 + padding) // dilation + 1)
        if first >= end:
            return None
        before = padding - first * dilation
        # A step that nothing takes says nothing: all others lead from pixel to pixel of those that are read.
        step = gcd(stride if result > 1 else 0, dilation if end - first > 1 else 0) or size
        step = step if step > LONG_STEP else 1
        padded = max(0, -(-before // step))
        start = padded * step - before
        if start >= size:
            return None
        return cls(
            tap=taps - end if op.turned else first,
            taps=end - first,
            start=start,
            step=step,
            pixels=-(-(size - start) // step),
            padding=padded,
            stride=max(1, stride // step) if result > 1 else 1,
            dilation=max(1, dilation // step) if end - first > 1 else 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A convolution of parts of another's image and filters, which has the same result.

    ``x`` and ``w`` are these parts, (starts, steps, shape) each: views.
    """

    plain: Conv2dOp
    rows: Along
    columns: Along

    @property
    def x(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The pixels that are read."""
        along = (self.rows, self.columns)
        starts, steps, pixels = zip(*((each.start, each.step, each.pixels) for each in along), strict=True)
        return (0, 0, *starts), (1, 1, *steps), (*self.plain.x.static_shape[:2], *pixels)

    @property
    def w(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The taps that meet the image."""
        along = (self.rows, self.columns)
        starts, taps = zip(*((each.tap, each.taps) for each in along), strict=True)
        return (0, 0, *starts), (1, 1, 1, 1), (*self.plain.w.static_shape[:2], *taps)

    def op(self, x: TensorType, w: TensorType) -> Conv2dOp:
        """Return the convolution of the views ``x`` and ``w``."""
        rows, columns, plain = self.rows, self.columns, self.plain
        p, q = plain.shape[2:]
        return replace(
            plain,
            x=x,
            w=w,
            stride=(rows.stride, columns.stride),
            padding=(rows.padding, columns.padding),
            dilation=(rows.dilation, columns.dilation),
            size=(static(p), static(q)),
            turned=plain.turned and rows.taps * columns.taps > 1,
        )


def reach_of(op: Conv2dOp) -> Reach | None:
    """Return the convolution of what ``op`` reads, where its steps are long and that is less; None of another."""
    if max(*op.stride, *op.dilation) <= LONG_STEP or not all(map(_is_strided, (op.x, op.w))) or 0 in op.shape:
        return None
    rows, columns = (Along.of(op, axis) for axis in (0, 1))
    if rows is None or columns is None:
        # All that any window meets is zeros: one tap of windows that lie above the image.
        rows = Along(taps=1, pixels=1, padding=static(op.shape[2]), stride=1, dilation=1)
        columns = replace(rows, padding=0)
    is_given = (rows, columns) == (Along.given(op, 0), Along.given(op, 1))
    return None if is_given else Reach(plain=op, rows=rows, columns=columns)


def _is_strided(type_: TensorType) -> bool:
    return type_.is_static and isinstance(type_.layout, StridedLayout | None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortenSteps:
    """Let convolutions of long steps read views of their image and filters, without what no result depends on."""

    name: str = "shorten steps"

    def apply(self, graph: Graph) -> Graph:
        """Return the graph in which those convolutions read views."""
        draft = Draft(graph)
        for name in draft.order():
            node = draft.nodes[name]
            reach = reach_of(node.op) if isinstance(node.op, Conv2dOp) else None
            if reach is None:
                continue
            image, filters, *extras = node.inputs
            image, filters = _sliced(draft, image, *reach.x), _sliced(draft, filters, *reach.w)
            op = reach.op(draft.nodes[image].type, draft.nodes[filters].type)
            draft.put(replace(node, op=op, inputs=(image, filters, *extras)))
        return draft.finish()


def _sliced(draft: Draft, name: str, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> str:
    """Return the id of a view of a value, or its own where the view is all of it."""
    type_ = draft.nodes[name].type
    if tuple(shape) == type_.shape:
        return name
    view = ViewOp(kind=ViewKind.SLICE, x=type_, starts=tuple(starts), steps=tuple(steps), shape=tuple(shape))
    made = draft.fresh(f"{name}.reached")
    draft.put(Node(id=made, op=view, inputs=(name,)))
    return made
