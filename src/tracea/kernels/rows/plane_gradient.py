"""Gradients of group norm and batch norm of images in rows for x, weight and bias in one kernel.

A group is a few planes, each of which lies along memory: the channels of a group of one image, or one channel of all
images. A task takes a group: it sums each plane's gradients, alone and times x, and once more reads the planes, from
cache where they fit, to write their gradient. What a group adds to the gradients of weight and bias, a number a plane
or a group, is kept in a row of scratch for each image; behind a barrier these rows are summed in their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tracea.core.op import NormGradientOp, RowKind
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidOp
from tracea.kernels.gemm.blocking import round_up
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, tensor_buffer
from tracea.kernels.parts import sum_of_parts
from tracea.kernels.requirements import CPU_VECTORS, condition, non_negative_strides, sizes_in_range, strided_layouts
from tracea.kernels.rows.blocks import level, returns, streams
from tracea.kernels.rows.norm_gradient import FLOATS, LONG_ROWS, NON_EMPTY, compute_of
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, Region, as_given
from tracea.semantic.index import Const, Param, Var
from tracea.semantic.nodes import Barrier, Let, Level, Node, Parallel, block
from tracea.semantic.nodes_norm_gradient import PlaneGradientTile
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["PLANE_GRADIENT", "PLANE_GRADIENT_ID", "build_plane_gradient", "plane_gradient_types"]

_IMAGES, _GROUPS = Param("images", minimum=1, maximum=2**22), Param("groups", minimum=1, maximum=2**18)
_PLANES, _LENGTH = Param("planes", minimum=1, maximum=2**18), Param("length", minimum=1, maximum=2**31)
_SIZES: Final = (_IMAGES, _GROUPS, _PLANES, _LENGTH)
_TASK, _IMAGE, _GROUP = Var("task"), Var("image"), Var("group")
_START, _WIDTH = Var("start"), Var("width")
_PARTS: Final = ("grad_x", "grad_weight", "grad_bias")
_GROUP_RANK, _BATCH_RANK = 4, 3


@dataclass(frozen=True, slots=True)
class _Form:
    """How an op's axes are images, groups, planes and their length."""

    of_batch: bool

    @classmethod
    def of(cls, op: NormGradientOp) -> _Form | None:
        """Return the form of a group norm (n, groups, channels, pixels) or a batch norm (n, channels, pixels)."""
        shape = op.x.shape
        if len(shape) == _GROUP_RANK and op.axes == (2, 3) and op.parameter == (*shape[1:3], 1):
            return cls(of_batch=False)
        if len(shape) == _BATCH_RANK and op.axes == (0, 2) and op.parameter == (shape[1], 1):
            return cls(of_batch=True)
        return None

    def planes(self, type_: TensorType) -> TensorType:
        """Return x, its gradient or that of the result as (images, groups, planes, length)."""
        if not self.of_batch:
            return type_
        shape, strides = type_.static_shape, type_.strides
        whole = (1, shape[1], shape[0], shape[2]), (math.prod(shape), strides[1], strides[0], strides[2])
        return TensorType(whole[0], type_.dtype, StridedLayout(whole[1]))

    def parameter(self, type_: TensorType) -> TensorType:
        """Return a weight (groups, planes or 1, 1) as one that broadcasts to the planes."""
        if not self.of_batch:
            return type_
        strides = type_.strides
        return TensorType((type_.static_shape[0], 1, 1), type_.dtype, StridedLayout((strides[0], 1, 1)))


def plane_gradient_types(op: NormGradientOp, like: NormGradientOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer in the axes of the kernel, which is built for ``like``.

    Raises:
        InvalidOp: the norm is neither a group norm nor a batch norm, or another than that of ``like``.
    """
    form = _Form.of(op)
    if form is None or (like is not None and form != _Form.of(like)):
        raise InvalidOp(
            field="op.axes",
            got=op.axes,
            expected=like.axes if like is not None else "those of a group norm or of a batch norm",
            remedy="build a kernel for this norm",
        )
    dtype, (whole, *parts) = op.x.dtype, op.parts
    types = {"grad": form.planes(op.grad), "x": form.planes(op.x)}
    if op.weight is not None:
        types["weight"] = form.parameter(op.weight)
    types["grad_x"] = form.planes(TensorType(whole, dtype))
    sums = (TensorType((1, math.prod(part)), dtype) for part in parts)
    return types | dict(zip(_PARTS[1:], sums, strict=True))


def build_plane_gradient(op: NormGradientOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of the gradients of a norm over planes."""
    schedule.check_range(1, "fold")
    schedule.check_range(0, "streaming", most=1)
    types, compute, form = plane_gradient_types(op), compute_of(op), _Form.of(op)
    assert form is not None
    each = Const(1) if form.of_batch else _PLANES  # parameters of a group
    columns = _GROUPS if form.of_batch else _GROUPS * _PLANES
    dims = types["x"].static_shape
    spread = {"weight": (0, 2, 3) if form.of_batch else (0, 3)}
    inputs = [
        tensor_buffer(name, types[name], _SIZES, dims, BufferRole.INPUT, spread=spread.get(name, ()))
        for name in ("grad", "x", "weight")
        if name in types
    ]
    grad_x = tensor_buffer("grad_x", types["grad_x"], _SIZES, dims, BufferRole.OUTPUT, unit_axis=-1)
    others = [
        tensor_buffer(name, types[name], (Const(1), columns), (1, types[name].static_shape[1]), BufferRole.OUTPUT)
        for name in _PARTS[1:]
    ]
    sums = scratch("sums", compute, MemorySpace.TEAM, _IMAGES, len(others), columns)

    def planes(buffer: Buffer) -> Region:
        return buffer.region((_IMAGE, _GROUP, 0, 0), (1, 1, _PLANES, _LENGTH))

    tile = PlaneGradientTile(
        intrinsic=Intrinsic(
            name="plane_gradient",
            meaning=as_given,
            source="emitters/cpu/include/tracea/plane_gradient.h",
            attributes=(("compute", compute.value), ("streaming", schedule.integer("streaming"))),
        ),
        grads=planes(inputs[0]),
        source=planes(inputs[1]),
        weight=inputs[2].region((0, _GROUP, 0, 0), (1, 1, each, 1)) if op.weight is not None else None,
        target=planes(grad_x),
        sums=sums.region((_IMAGE, 0, _GROUP * each), (1, len(others), each)),
        eps=op.eps,
    )
    lets: tuple[Node, ...] = (Let(var=_IMAGE, value=_TASK // _GROUPS), Let(var=_GROUP, value=_TASK % _GROUPS))
    tasks = Parallel(level=level(schedule), var=_TASK, extent=_IMAGES * _GROUPS, body=block(*lets, tile))
    folds = (
        sum_of_parts(sums, row, _START, _WIDTH, target=result.region((0, _START), (1, _WIDTH)), compute=compute)
        for row, result in enumerate(others)
    )
    fold = Parallel(
        level=Level.TEAM,
        var=_START,
        extent=columns,
        step=Const(schedule.integer("fold")),
        length=_WIDTH,
        body=block(*folds),
    )
    buffers = (*inputs, grad_x, *others, sums)
    return TileKernel(
        name=kernel_name(op.key, PLANE_GRADIENT_ID, schedule, target),
        op=op,
        variant=PLANE_GRADIENT_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=block(tasks, Barrier(), fold),
    )


def _default(op: NormGradientOp, target: Target) -> Schedule:
    result = op.infer()
    columns, line = math.prod(op.parameter), target.cache_line_bytes // op.x.dtype.nbytes
    return Schedule(
        fold=round_up(-(-columns // target.cores), line),
        streaming=int(streams(result.nbytes, target)),
        fixed=int(returns((*op.operands, result), target)),
    )


def _space(op: NormGradientOp, target: Target) -> ScheduleSpace:
    default = _default(op, target)
    return ScheduleSpace.enumerated({"fold": (default["fold"],), "streaming": (0, 1), "fixed": (0, 1)})


_OF_PLANES = condition(
    "a norm of planes",
    lambda op, _: op.kind is RowKind.LAYER_NORM and op.x.is_static and _Form.of(op) is not None,
    needed="a group norm of (n, groups, channels, pixels) or a batch norm of (n, channels, pixels), of known extents",
    found=lambda op: f"{op.kind.value} of {op.x}, axes {op.axes}, parameters {op.parameter}",
    remedy="compute the gradients by rows.statistics and a reduction",
)


def _sizes(op: NormGradientOp) -> dict[Param, int]:
    """Return the sizes of the kernel's axes; none where there is no kernel."""
    form = _Form.of(op) if op.x.is_static else None
    return {} if form is None else dict(zip(_SIZES, form.planes(op.x).static_shape, strict=True))


PLANE_GRADIENT_ID = "rows.plane_gradient"
PLANE_GRADIENT = Variant(
    id=PLANE_GRADIENT_ID,
    op_type=NormGradientOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        FLOATS,
        strided_layouts,
        non_negative_strides,
        _OF_PLANES,
        sizes_in_range(_sizes, or_empty=True),
        LONG_ROWS,
        NON_EMPTY,
    ),
    preferences=(),
    priority=50,
    build=build_plane_gradient,
    space=_space,
    default_schedule=_default,
)
