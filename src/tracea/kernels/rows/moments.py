"""Mean and variance of columns, and a gradient's sums beside them: rows are read once, in parts of some of them.

A task takes a part of an image's rows, whole rows one after the other as they lie in memory: its columns' sums are
about their own mean over its first rows, so that none of them cancels. Behind a barrier parts are added in their order,
each moved to the mean of those before it. The parts are the schedule's, and follow from the number of rows: the bits of
a result do not depend on how many threads run it.
"""

from __future__ import annotations

from typing import Final

from tracea.core.dtype import DType
from tracea.core.ops.moments import MomentsOp
from tracea.core.tensor_type import TensorType
from tracea.kernels.gemm.operands import kernel_name
from tracea.kernels.operands import params_of, scratch, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type
from tracea.kernels.requirements import CPU_VECTORS, condition, element_types, non_negative_strides, strided_layouts
from tracea.kernels.rows.blocks import kept
from tracea.kernels.space import ScheduleSpace
from tracea.kernels.variant import Variant
from tracea.semantic.access import Intrinsic, as_given
from tracea.semantic.index import Const, Param, Var, ceil_div, minimum
from tracea.semantic.nodes import Barrier, Let, Level, Parallel, block
from tracea.semantic.nodes_moments import MomentsFold, MomentsTile, state_rows
from tracea.semantic.schedule import Schedule
from tracea.semantic.tile_kernel import BufferRole, MemorySpace, TileKernel
from tracea.targets.target import Target

__all__ = ["MOMENTS", "build_moments", "moments_types"]

# So that all sums of all parts have a place that int64 counts.
_MOST: Final = (2**15, 2**25, 2**16)
_IMAGES, _ROWS, _COLUMNS = _SIZES = tuple(
    Param(name, minimum=1, maximum=most) for name, most in zip(("images", "rows", "columns"), _MOST, strict=True)
)
_TASK, _IMAGE, _PART = Var("task"), Var("image"), Var("part")
_FIRST, _COUNT = Var("first"), Var("count")
_PLACE, _OF, _START, _WIDTH = Var("place"), Var("of"), Var("start"), Var("width")
# Rows of a part. A sum about the mean of its first eight loses as many bits, at worst, as there are doublings from
# eight to the part; and as many are added one after the other.
_FEW_ROWS, _MOST_ROWS = 16, 256
_MANY_PARTS: Final = 8
_FOLDED: Final = 64  # columns of a fold's task: whole lines, and fewer tasks than parts


def moments_types(op: MomentsOp, like: MomentsOp | None = None) -> dict[str, TensorType]:
    """Return the type of each buffer; ``like`` has a gradient where the op has one."""
    del like
    types = {"x": op.x, "about": op.about}
    if op.grad is not None:
        types["grad"] = op.grad
    return types | {"y": op.infer()}


def build_moments(op: MomentsOp, schedule: Schedule, target: Target) -> TileKernel:
    """Return the kernel of the moments of columns."""
    schedule.check_range(1, "rows", "fold")
    schedule.check_range(0, "prefetch", most=1)
    rows, fold = schedule.integer("rows"), schedule.integer("fold")
    types, graded, compute = moments_types(op), op.grad is not None, op.about.dtype
    dims = op.x.shape
    inputs = [
        tensor_buffer(name, type_, _SIZES, dims, BufferRole.INPUT, unit_axis=-1, spread=(1,) if name == "about" else ())
        for name, type_ in types.items()
        if name != "y"
    ]
    results = op.infer().static_shape[1]
    y = tensor_buffer(
        "y", types["y"], (_IMAGES, Const(results), _COLUMNS), (dims[0], results, dims[2]), BufferRole.OUTPUT
    )
    parts, numbers = ceil_div(_ROWS, rows), state_rows(graded=graded)
    sums = scratch("sums", compute, MemorySpace.TEAM, _IMAGES, parts, numbers, _COLUMNS)
    x, about, *grads = inputs

    def routine(name: str, *attributes: tuple[str, int]) -> Intrinsic:
        return Intrinsic(
            name=name,
            meaning=as_given,
            source="emitters/cpu/include/tracea/moments.h",
            attributes=(("compute", compute.value), *attributes),
        )

    own, span = (_IMAGE, _FIRST, 0), (1, _COUNT, _COLUMNS)
    tile = MomentsTile(
        intrinsic=routine("column_moments", ("prefetch", schedule.integer("prefetch"))),
        source=x.region(own, span),
        grads=grads[0].region(own, span) if grads else None,
        target=sums.region((_IMAGE, _PART, 0, 0), (1, 1, numbers, _COLUMNS)),
    )
    whole, all_rows = (_OF, 0, _START), (1, _ROWS, _WIDTH)
    end = MomentsFold(
        intrinsic=routine("fold_moments"),
        states=sums.region((_OF, 0, 0, _START), (1, parts, numbers, _WIDTH)),
        source=x.region(whole, all_rows),
        about=about.region(whole, (1, 1, _WIDTH)),
        grads=grads[0].region(whole, all_rows) if grads else None,
        target=y.region(whole, (1, results, _WIDTH)),
        step=Const(rows),
    )
    blocks = ceil_div(_COLUMNS, fold)
    of_part = (
        Let(var=_IMAGE, value=_TASK // parts),
        Let(var=_PART, value=_TASK % parts),
        Let(var=_FIRST, value=_PART * rows),
        Let(var=_COUNT, value=minimum(rows, _ROWS - _FIRST)),
    )
    of_fold = (
        Let(var=_OF, value=_PLACE // blocks),
        Let(var=_START, value=_PLACE % blocks * fold),
        Let(var=_WIDTH, value=minimum(fold, _COLUMNS - _START)),
    )
    buffers = (*inputs, y, sums)
    return TileKernel(
        name=kernel_name(op.key, MOMENTS_ID, schedule, target),
        op=op,
        variant=MOMENTS_ID,
        schedule=schedule,
        target=target.name,
        params=params_of(buffers),
        buffers=buffers,
        body=block(
            Parallel(level=Level.TASK, var=_TASK, extent=_IMAGES * parts, body=block(*of_part, tile)),
            Barrier(),
            Parallel(level=Level.TASK, var=_PLACE, extent=_IMAGES * blocks, body=block(*of_fold, end)),
        ),
    )


def _default(op: MomentsOp, target: Target) -> Schedule:
    images, rows, _ = op.x.static_shape
    most = min(_MOST_ROWS, max(_FEW_ROWS, -(-rows * images // _MANY_PARTS)))
    return Schedule(
        rows=-(-rows // -(-rows // most)),  # parts of one length
        fold=_FOLDED,
        prefetch=int(not kept(op.operands, target)),
    )


def _space(op: MomentsOp, target: Target) -> ScheduleSpace:
    rows = _default(op, target).integer("rows")
    return ScheduleSpace.enumerated(
        {"rows": tuple(dict.fromkeys((rows, 64, 128, _MOST_ROWS))), "fold": (_FOLDED,), "prefetch": (0, 1)}
    )


_STATIC = condition(
    "columns side by side",
    lambda op, _: all(type_.is_static for type_ in op.operands) and _beside(op),
    needed="known extents, and neighbours of a row side by side",
    found=lambda op: " and ".join(map(str, op.operands)),
    remedy="reduce in steps, or copy the tensors",
)


def _beside(op: MomentsOp) -> bool:
    return all(type_.shape[-1] == 1 or type_.strides[-1] == 1 for type_ in op.operands)


_COUNTED = condition(
    "sums that are counted",
    lambda op, _: not op.x.is_static or all(map(int.__le__, op.x.static_shape, _MOST)),
    needed=f"at most {' x '.join(map(str, _MOST))} images, rows and columns",
    found=lambda op: str(op.x),
    remedy="reduce in steps",
)
_WIDE = condition(
    "sums in the type of pivots",
    lambda op, _: op.about.dtype is compute_type(*(type_.dtype for type_ in op.operands)),
    needed="pivots of the type that sums are made in: f64 beside f64, else f32",
    found=lambda op: " and ".join(map(str, op.operands)),
    remedy="cast the pivots",
)

MOMENTS_ID = "rows.moments"
MOMENTS = Variant(
    id=MOMENTS_ID,
    op_type=MomentsOp,
    backend="cpu",
    requirements=(
        CPU_VECTORS,
        element_types((DType.F64, DType.F32, DType.F16, DType.BF16)),
        strided_layouts,
        non_negative_strides,
        _STATIC,
        _COUNTED,
        _WIDE,
    ),
    preferences=(),
    priority=50,
    build=build_moments,
    space=_space,
    default_schedule=_default,
)
