"""What all convolution builders share: the operands' buffers over five axes, the tasks, and the names of sizes.

The channels of x, of w and of the result are split into groups, so that a kernel's rectangles lie in one group:
x is (images, groups, h, w, c), w is (groups, r, s, c, k), the result (images, groups, p, q, k), in any strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from tracea.core.dtype import DType
from tracea.core.ops.conv2d import LONG_STEP, Conv2dOp
from tracea.core.tensor_type import Dim, StridedLayout, TensorType, static
from tracea.errors import InvalidOp
from tracea.kernels.conv.folding import folded_like
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, tensor_buffer
from tracea.semantic.access import Region
from tracea.semantic.index import TRUE, Const, Index, Param, Predicate, Var, ceil_div, minimum
from tracea.semantic.nodes import Block, EpilogueCall, Let, Level, Node, Parallel
from tracea.semantic.rewrite import within
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, TileKernel
from tracea.targets.target import Target

__all__ = [
    "BAND",
    "FILTERS",
    "GROUP",
    "IMAGE",
    "IMAGES",
    "C",
    "ConvOperands",
    "H",
    "K",
    "P",
    "Q",
    "R",
    "S",
    "conv_types",
    "flattened",
    "is_flat",
    "own_sizes",
    "sizes_of",
    "tap_of",
    "window_of",
    "window_steps",
]

# The largest values keep every product of them, the number of tasks first, within 64 bits.
IMAGES = Param("images", maximum=2**16)
GROUPS = Param("groups", minimum=1, maximum=2**13)
H, W = Param("h", minimum=1, maximum=2**15), Param("width", minimum=1, maximum=2**24)
C = Param("c", minimum=1, maximum=2**15)  # channels of a group
K = Param("k", minimum=1, maximum=2**15)  # filters of a group
R, S = Param("r", minimum=1, maximum=2**8), Param("s", minimum=1, maximum=2**8)
P, Q = Param("p", minimum=1, maximum=2**15), Param("q", minimum=1, maximum=2**24)

IMAGE, GROUP = Var("image"), Var("group")
TOP, BAND = Var("top"), Var("band")  # the first row of a task's band and its rows
FIRST, FILTERS = Var("first"), Var("filters")  # a task's first filter and their number


@dataclass(frozen=True, slots=True)
class ConvOperands:
    """The global buffers of a convolution; ``at(buffer, …)`` names a rectangle of one in the task's image and group."""

    op: Conv2dOp
    x: Buffer
    w: Buffer
    y: Buffer
    extras: tuple[Buffer, ...]
    groups: Index

    @classmethod
    def of(cls, op: Conv2dOp, *, w: Buffer | None = None, flat: bool = False, fixed_taps: bool = False) -> ConvOperands:
        """Return the buffers of an op; ``w`` replaces the filters, for a layout of the kernel's own.

        ``flat``: the pixels of the result and of what broadcasts to it are one axis; the launcher checks that.
        ``fixed_taps``: the kernel serves the op's own taps and channels of a group only.
        """
        types = conv_types(op)
        groups: Index = Const(1) if op.groups == 1 else GROUPS
        images, filters = op.shape[0], static(op.w.shape[0])
        _, channels, r, s = op.w.static_shape
        p, q = (static(dim) for dim in op.shape[2:])
        _, _, h, width = op.x.shape
        taps: tuple[Index, ...] = (Const(r), Const(s), Const(channels)) if fixed_taps else (R, S, C)
        y_shape = (IMAGES, groups, P, Q, K)
        y_dims: tuple[Dim, ...] = (images, op.groups, p, q, filters // op.groups)
        x_dims: tuple[Dim, ...] = (images, op.groups, h, width, channels)
        w_dims: tuple[Dim, ...] = (op.groups, r, s, channels, filters // op.groups)
        names = tuple(f"x{position}" for position in range(1, len(op.epilogue.operands) + 1))

        def result(name: str, role: BufferRole) -> Buffer:
            buffer = tensor_buffer(name, types[name], y_shape, y_dims, role)
            return flattened(buffer) if flat else buffer

        return cls(
            op=op,
            x=tensor_buffer("x", types["x"], (IMAGES, groups, H, W, taps[-1]), x_dims, BufferRole.INPUT),
            w=w or tensor_buffer("w", types["w"], (groups, *taps, K), w_dims, BufferRole.INPUT),
            y=result("y", BufferRole.OUTPUT),
            extras=tuple(result(name, BufferRole.INPUT) for name in names),
            groups=groups,
        )

    @property
    def accumulator(self) -> DType:
        """The element type of the sums."""
        return self.op.accumulator

    @property
    def sums_in_place(self) -> bool:
        """Whether the result itself can hold sums: the accumulator's type, filters next to each other."""
        return self.y.dtype is self.accumulator and self.y.element_strides[-1] == Const(1)

    @property
    def reads_image(self) -> bool:
        """Whether tiles on vectors read the image: a halo would hold the same pixels in the same order and no other."""
        ordered = self.x.element_strides[-1] == Const(1) and self.x.dtype is self.accumulator
        return ordered and self.op.padding == (0, 0) and self.op.size is None and self.op.w.static_shape[2:] == (1, 1)

    @property
    def in_place(self) -> bool:
        """Whether tiles on vectors read the image itself, without a halo."""
        return self.reads_image or self._holds_windows

    @property
    def _holds_windows(self) -> bool:
        """Whether windows lie in the image, each row of which has its columns next to each other and all its channels.

        So they do where a channel is its neighbour moved by some columns: a halo would hold every pixel once a channel.
        """
        op, type_ = self.op, conv_types(self.op)["x"]
        if op.padding != (0, 0) or self.x.dtype is not self.accumulator or not type_.is_static:
            return False
        _, _, *size, channels = type_.static_shape
        *_, row, column, channel = type_.strides
        axes = zip(op.shape[2:], op.w.shape[2:], op.stride, op.dilation, size, strict=True)
        inside = all((static(p) - 1) * step + (static(r) - 1) * gap < most for p, r, step, gap, most in axes)
        return inside and column == 1 < channel and (channels - 1) * channel + size[1] <= row

    @property
    def planar(self) -> bool:
        """Whether a filter's pixels lie next to each other in the result, and a pixel's filters do not."""
        return self.y.element_strides[-1] != Const(1) and self.y.element_strides[-2] == Const(1)

    def at(
        self,
        buffer: Buffer,
        row: Index | int,
        column: Index | int,
        filter_: Index | int,
        extents: tuple[Index | int, Index | int, Index | int],
        *,
        of: tuple[Index, Index] = (IMAGE, GROUP),
    ) -> Region:
        """Return a rectangle of pixels and filters ``of`` an image's group, of the result or what broadcasts to it."""
        single = [size == Const(1) for size in buffer.shape]
        offset = (*of, row, column, filter_)
        return buffer.region(
            tuple(0 if one else start for one, start in zip(single, offset, strict=True)),
            tuple(1 if one else size for one, size in zip(single, (1, 1, *extents), strict=True)),
        )

    def epilogue(
        self, row: Index, column: Index | int, filter_: Index, extents: tuple[Index | int, Index | int, Index | int]
    ) -> EpilogueCall | None:
        """Return the call that turns a tile of sums into results, or None where the sums are the results."""
        if self.sums_in_place and self.op.epilogue.is_identity:
            return None
        return EpilogueCall(
            expr=self.op.epilogue.expr,
            operands=tuple(self.at(buffer, row, column, filter_, extents) for buffer in self.extras),
            target=None if self.sums_in_place else self.at(self.y, row, column, filter_, extents),
        )

    def applied(
        self, row: Index, column: Index | int, filter_: Index, extents: tuple[Index | int, Index | int, Index | int]
    ) -> EpilogueCall | None:
        """Return the call of a routine that applies the epilogue itself while it stores; None where there is none."""
        if self.op.epilogue.is_identity:
            return None
        operands = tuple(self.at(buffer, row, column, filter_, extents) for buffer in self.extras)
        return EpilogueCall(expr=self.op.epilogue.expr, operands=operands)

    def tasks(self, rows: int, filters: int, body: Sequence[Node]) -> Parallel:
        """Return ``body`` for every image, group, band of ``rows`` rows and block of ``filters`` filters, as tasks."""
        task, bands, blocks = Var("task"), ceil_div(P, rows), ceil_div(K, filters)
        lets = (
            Let(var=IMAGE, value=task // (self.groups * bands * blocks)),
            Let(var=GROUP, value=Const(0) if self.groups == Const(1) else task // (bands * blocks) % self.groups),
            Let(var=TOP, value=task // blocks % bands * rows),
            Let(var=BAND, value=minimum(rows, P - TOP)),
            Let(var=FIRST, value=task % blocks * filters),
            Let(var=FILTERS, value=minimum(filters, K - FIRST)),
        )
        return Parallel(
            level=Level.TASK,
            var=task,
            extent=IMAGES * self.groups * bands * blocks,
            body=Block(nodes=(*lets, *body)),
        )

    def kernel(
        self,
        variant: str,
        schedule: Schedule,
        target: Target,
        scratch: Sequence[Buffer],
        body: Sequence[Node],
        *,
        assumptions: Predicate = TRUE,
    ) -> TileKernel:
        """Return the kernel with these operands: x, w, the epilogue's, y, then the scratch."""
        buffers = (self.x, self.w, *self.extras, self.y, *scratch)
        kernel = conv_kernel(self.op, variant, schedule, target, buffers=buffers, body=tuple(body))
        return own_sizes(replace(kernel, assumptions=assumptions))


def conv_kernel(
    op: Conv2dOp,
    variant: str,
    schedule: Schedule,
    target: Target,
    *,
    buffers: Sequence[Buffer],
    body: tuple[Node, ...],
) -> TileKernel:
    """Return the kernel of an op over these buffers, with the parameters that they are made of."""
    kernel = TileKernel(
        name=kernel_name(op.key, variant, schedule, target),
        op=op,
        variant=variant,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=tuple(buffers),
        body=Block(nodes=body),
    )
    return own_sizes(kernel)


def own_sizes(kernel: TileKernel) -> TileKernel:
    """Return a kernel whose steps are long for sizes up to its op's own; another one as it is.

    Times the longest filters and rows of any op, what long steps lead over would be more than 64 bits count.
    """
    if max(*kernel.op.stride, *kernel.op.dilation) <= LONG_STEP:
        return kernel
    return within(kernel, {size.name: value for size, value in sizes_of(kernel.op).items()})


@lru_cache(maxsize=1024)  # asked again by each variant's requirements, its default schedule and its call
def conv_types(op: Conv2dOp, like: Conv2dOp | None = None) -> Mapping[str, TensorType]:
    """Return the type of each buffer of a convolution; ``like`` is the op that its kernel was built for.

    Names that end in ``_last`` are the operands of kernels whose groups have one channel: see :func:`_ungrouped`.

    Raises:
        InvalidOp: the ops differ in what the kernel has fixed: strides, padding, dilation, or groups against none.
    """
    if like is not None and _fixed(op) != _fixed(like):
        raise InvalidOp(
            field="conv2d",
            got=_fixed(op),
            expected=_fixed(like),
            remedy="build the kernel for this stride, padding and dilation",
        )
    op = op if like is None else folded_like(op, like)
    filters = _split(op.w, 0, op.groups)  # groups, k, c, r, s
    types = {
        "x": _permuted(_split(op.x, 1, op.groups), (0, 1, 3, 4, 2)),
        "w": _permuted(filters, (0, 3, 4, 2, 1)),
        "y": _one_axis(_permuted(_split(op.infer(), 1, op.groups), (0, 1, 3, 4, 2))),
    }
    for position, type_ in enumerate(op.epilogue.operands, start=1):
        types[f"x{position}"] = _spread(type_, op.groups)
    return MappingProxyType(types | {f"{name}_last": _ungrouped(name, type_) for name, type_ in types.items()})


def _ungrouped(name: str, type_: TensorType) -> TensorType:
    """Return a type with the groups, of one channel each, as its last axis: w is (r, s, k), the others (…, p, q, k)."""
    if name == "w":
        return _permuted(type_, (1, 2, 0))
    *images, groups, rows, columns, _ = range(type_.rank)
    return _permuted(type_, (*images, rows, columns, groups))


def sizes_of(op: Conv2dOp) -> dict[Param, int]:
    """Return the value of each size that a kernel takes."""
    filters, channels, r, s = op.w.static_shape
    images, _, h, width = op.x.static_shape
    p, q = (static(dim) for dim in op.shape[2:])
    values = (images, op.groups, h, width, channels, filters // op.groups, r, s, p, q)
    return dict(zip((IMAGES, GROUPS, H, W, C, K, R, S, P, Q), values, strict=True))


def window_of(op: Conv2dOp, rows: Index | int, columns: Index | int) -> tuple[Index, Index]:
    """Return the rows and columns of x, padding among them, that ``rows`` by ``columns`` results are computed from."""
    (down, right), (gap_r, gap_s) = op.stride, op.dilation
    return (rows - 1) * down + (R - 1) * gap_r + 1, (columns - 1) * right + (S - 1) * gap_s + 1  # type: ignore[return-value]


def tap_of(op: Conv2dOp, r: Index, s: Index) -> tuple[Index, Index]:
    """Return the row and column of the filters that are applied as tap (r, s)."""
    return (R - 1 - r, S - 1 - s) if op.turned else (r, s)


def window_steps(op: Conv2dOp) -> tuple[tuple[str, int], ...]:
    """Return the attributes of a tile that say how far its windows and their taps lie apart."""
    (down, right), (gap_r, gap_s) = op.stride, op.dilation
    steps = {"stride_rows": down, "stride_columns": right, "dilation_rows": gap_r, "dilation_columns": gap_s}
    return tuple(steps.items())


def flattened(buffer: Buffer) -> Buffer:
    """Return a buffer over the result's axes whose rows follow each other like its columns."""
    images, groups, rows, columns, filters = buffer.element_strides
    if Const(0) in (rows, columns):  # the same for all pixels; the other axis has one element
        rows = columns = Const(0)
    else:
        rows = Q * columns
    return replace(buffer, strides=(images, groups, rows, columns, filters))


def _one_axis(type_: TensorType) -> TensorType:
    """Return a type over (…, p, q, k) with the stride of an axis of one element as its neighbour's would have it."""
    *_, p, q, _ = type_.static_shape
    *outer, row, column, filters = type_.strides
    row, column = (row, row) if q == 1 else (q * column, column) if p == 1 else (row, column)
    return TensorType(type_.shape, type_.dtype, StridedLayout((*outer, row, column, filters)))


def is_flat(type_: TensorType) -> bool:
    """Whether the pixels of a type over (…, p, q, k) are one axis."""
    *_, q, _ = type_.static_shape
    *_, row, column, _ = type_.strides
    return row == q * column


def _fixed(op: Conv2dOp) -> dict[str, object]:
    return {
        "stride": op.stride,
        "padding": op.padding,
        "dilation": op.dilation,
        "groups": "one" if op.groups == 1 else "several",
        "taps": "turned" if op.turned else "in order",
    }


def _split(type_: TensorType, axis: int, groups: int) -> TensorType:
    """Return a type with an axis as (groups, the rest)."""
    inner = static(type_.shape[axis]) // groups
    step = type_.strides[axis]
    return TensorType(
        (*type_.shape[:axis], groups, inner, *type_.shape[axis + 1 :]),
        type_.dtype,
        StridedLayout((*type_.strides[:axis], inner * step, step, *type_.strides[axis + 1 :])),
    )


def _permuted(type_: TensorType, axes: tuple[int, ...]) -> TensorType:
    strides = type_.strides
    return TensorType(
        tuple(type_.shape[axis] for axis in axes), type_.dtype, StridedLayout(tuple(strides[axis] for axis in axes))
    )


def _spread(type_: TensorType, groups: int) -> TensorType:
    """Return an epilogue's operand over the axes of the result; without images where it has none."""
    missing = max(0, 3 - type_.rank)
    shape, strides = (1,) * missing + type_.shape, (0,) * missing + type_.strides
    whole = TensorType(shape, type_.dtype, StridedLayout(strides))
    channels = whole.rank - 3
    split = _split(whole, channels, 1 if whole.shape[channels] == 1 else groups)
    outer = tuple(range(channels))
    return _one_axis(_permuted(split, (*outer, channels, channels + 2, channels + 3, channels + 1)))
