"""The buffers of attention: query heads as (key head, heads that share it), any strides, a score's operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import AttentionOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidOp, InvalidSchedule
from tracea.kernels.operands import scratch, tensor_buffer
from tracea.kernels.pointwise.tile import compute_type, map_tile
from tracea.kernels.requirements import CPU_VECTORS, condition, non_negative_strides, sizes_in_range, strided_layouts
from tracea.kernels.variant import Requirement
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index, Param, Var
from tracea.semantic.nodes import Node, PointwiseTile
from tracea.semantic.tile_kernel import Buffer, BufferRole, MemorySpace

__all__ = [
    "HEAD",
    "NO_SPANS",
    "SIZES",
    "AttentionOperands",
    "CopiedRows",
    "Sizes",
    "attention_requirements",
    "attention_types",
    "by_key_head",
    "computed_type",
    "copied_rows",
    "is_apart",
]

Sizes: TypeAlias = tuple[Param, Param, Param, Param, Param, Param, Param]

# batch, key heads, query heads of a key head, queries, keys, d, dv. The largest keep every product of them in 64 bits.
SIZES: Final[Sizes] = (
    Param("batch", maximum=2**16),
    Param("kv_heads", minimum=1, maximum=2**12),
    Param("sharing", minimum=1, maximum=2**10),
    Param("s", minimum=1, maximum=2**24),
    Param("t", maximum=2**24),
    Param("d", maximum=2**16),
    Param("dv", maximum=2**16),
)
HEAD: Final = (Var("i_batch"), Var("i_kv"), Var("i_sharing"))  # of a task
_EXTRA = 3  # the operands before the score's own


def attention_types(op: AttentionOp, like: AttentionOp | None = None) -> dict[str, TensorType]:
    """Return the types of the buffers: q and the result as (batch, key heads, sharing, s, d).

    Raises:
        InvalidOp: scale, mask or score are others than those of ``like``, the op that the kernel is built for.
    """
    if like is not None and _fixed(op) != _fixed(like):
        raise InvalidOp(
            field="attention", got=_fixed(op), expected=_fixed(like), remedy="build the kernel for this mask and score"
        )
    heads, kv_heads = op.q.static_shape[1], op.k.static_shape[1]
    types = {"q": by_key_head(op.q, heads, kv_heads), "k": _strided(op.k), "v": _strided(op.v)}
    for position, operand in enumerate(op.score.operands, start=_EXTRA):
        types[f"x{position}"] = by_key_head(operand, heads, kv_heads)
    return types | {"y": by_key_head(op.infer(), heads, kv_heads)}


def _fixed(op: AttentionOp) -> tuple[object, ...]:
    spans = None if op.spans is None else (op.spans.rows, op.spans.each)
    return (op.causal, op.window, op.softmax_scale, op.score.expr, spans)


def _strided(type_: TensorType) -> TensorType:
    return TensorType(type_.static_shape, type_.dtype, StridedLayout(type_.strides))


def by_key_head(type_: TensorType, heads: int, kv_heads: int) -> TensorType:
    """Split the third axis from the end, the heads, in two; a tensor without it is as it was."""
    shape, strides = type_.static_shape, type_.strides
    if len(shape) < 3:
        return _strided(type_)
    sharing = heads // max(1, kv_heads)
    split = (1, 1) if shape[-3] == 1 and heads != 1 else (kv_heads, sharing)
    step = strides[-3]
    return TensorType(
        (*shape[:-3], *split, *shape[-2:]),
        type_.dtype,
        StridedLayout((*strides[:-3], step * sharing, step, *strides[-2:])),
    )


@dataclass(frozen=True, slots=True)
class AttentionOperands:
    """The global buffers of an attention."""

    op: AttentionOp
    q: Buffer
    k: Buffer
    v: Buffer
    extras: tuple[Buffer, ...]
    y: Buffer

    @classmethod
    def of(cls, op: AttentionOp, sizes: Sizes, *, copy_keys: bool, copy_values: bool) -> AttentionOperands:
        """Return the buffers; rows of keys and values that are not copied have elements side by side."""
        types = attention_types(op)
        *lead, queries, keys, depth, width = sizes
        batch, heads, s, d = op.q.static_shape
        kv_heads, t, dv = op.k.static_shape[1], op.k.static_shape[2], op.v.static_shape[3]
        lead_dims = (batch, kv_heads, heads // max(1, kv_heads))
        key_lead, key_dims = lead[:2], (batch, kv_heads)

        def input_(name: str, shape: tuple[Index, ...], dims: tuple[int, ...], unit: int | None = None) -> Buffer:
            return tensor_buffer(name, types[name], shape, dims, BufferRole.INPUT, unit_axis=unit)

        names = tuple(f"x{position}" for position in range(_EXTRA, _EXTRA + len(op.score.operands)))
        return cls(
            op,
            input_("q", (*lead, queries, depth), (*lead_dims, s, d)),
            input_("k", (*key_lead, keys, depth), (*key_dims, t, d), None if copy_keys else -1),
            input_("v", (*key_lead, keys, width), (*key_dims, t, dv), None if copy_values else -1),
            tuple(input_(name, (*lead, queries, keys), (*lead_dims, s, t)) for name in names),
            tensor_buffer("y", types["y"], (*lead, queries, width), (*lead_dims, s, dv), BufferRole.OUTPUT),
        )

    @property
    def compute(self) -> DType:
        """The type that scores and sums are computed in."""
        return computed_type(self.op)

    def check_copy(self, name: str, *, copied: bool, widened: bool = False) -> None:
        """Check that rows of "keys" or "values" are copied where they cannot be read in place.

        Raises:
            InvalidSchedule: they are not.
        """
        if not copied and is_apart(self.op, name, widened=widened):
            raise InvalidSchedule(
                field=f"copy_{name}",
                got=0,
                expected=f"1: {name} are not {self.compute.value} with elements side by side",
                remedy=f"copy_{name}=1",
            )

    def window(
        self, buffer: Buffer, head: tuple[Var, ...], offset: tuple[Index, Index], extent: tuple[Index, Index]
    ) -> Region:
        """Return a rectangle of the last two axes at one head; the one element of an axis of extent 1."""
        offsets = (*head, *offset)
        extents: tuple[Index, ...] = (*(Const(1) for _ in head), *extent)
        single = [size == Const(1) for size in buffer.shape]
        return buffer.region(
            tuple(Const(0) if one else start for one, start in zip(single, offsets, strict=True)),
            tuple(Const(1) if one else size for one, size in zip(single, extents, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Rows of keys or values as a step reads them: the operand's own, or a copy with what makes it and its scratch."""

    rows: Region
    copies: tuple[Node, ...] = ()
    buffers: tuple[Buffer, ...] = ()


def copied_rows(name: str, rows: Region, compute: DType, block: int, *, copied: bool) -> CopiedRows:
    """Return the last two axes of a region, at most ``block`` rows, in the type of the sums and side by side."""
    if not copied:
        return CopiedRows(rows)
    count, width = rows.extent[-2:]
    buffer = scratch(f"{name}_rows", compute, MemorySpace.THREAD, block, width)
    target = buffer.region((0, 0), (count, width))
    copy = PointwiseTile(intrinsic=map_tile(compute, streaming=False), expr=Input(0), inputs=(rows,), target=target)
    return CopiedRows(target, (copy,), (buffer,))


def is_apart(op: AttentionOp, name: str, *, widened: bool = False) -> bool:
    """Whether rows of "keys" or "values" cannot be read in place: of another type than the sums', or elements apart.

    ``widened``: the routine reads 16-bit floats too, where the sums are of f32.
    """
    type_, compute = attention_types(op)["k" if name == "keys" else "v"], computed_type(op)
    natural = type_.dtype is compute or (widened and compute is DType.F32 and type_.dtype in (DType.F16, DType.BF16))
    return not natural or (type_.shape[-1] != 1 and type_.strides[-1] != 1)


def computed_type(op: AttentionOp) -> DType:
    """Return the type that scores and sums are computed in."""
    return compute_type(*(type_.dtype for type_ in (op.q, op.k, op.v, *op.score.operands, op.infer())))


def attention_requirements(sizes: Sizes) -> tuple[Requirement, ...]:
    """Return what a kernel whose extents are these parameters requires of an op."""

    def of(op: AttentionOp) -> dict[Param, int]:
        batch, heads, s, d = op.q.static_shape
        _, kv_heads, t, dv = op.v.static_shape
        return dict(zip(sizes, (batch, kv_heads, heads // max(1, kv_heads), s, t, d, dv), strict=True))

    fits = sizes_in_range(of, or_empty=True)
    return (CPU_VECTORS, _ELEMENTS, strided_layouts, non_negative_strides, fits)


_TYPES: Final = (DType.F32, DType.F64, DType.F16, DType.BF16, DType.BOOL)
_ELEMENTS = condition(
    "element types",
    lambda op, _: _own_types(op) <= set(_TYPES),
    needed=" | ".join(dtype.value for dtype in _TYPES),
    found=lambda op: ", ".join(sorted(dtype.value for dtype in _own_types(op))),
    remedy="cast the operands first",
)


NO_SPANS = condition(
    "no tables",
    lambda op, _: op.spans is None,
    needed="masks by position",
    found=lambda op: "lists of spans",
    remedy="use attention.flash, which takes lists of spans",
)


def _own_types(op: AttentionOp) -> set[DType]:
    """Return the element types of the operands, tables aside, and of the result."""
    return {type_.dtype for type_ in (op.q, op.k, op.v, *op.score.operands, op.infer())}
