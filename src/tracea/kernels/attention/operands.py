"""The buffers of attention: query heads as (key head, heads that share it), any strides, a score's operands."""

from __future__ import annotations

from dataclasses import dataclass

from tracea.core.dtype import DType
from tracea.core.op import AttentionOp
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidOp
from tracea.kernels.operands import tensor_buffer
from tracea.kernels.pointwise.tile import compute_type
from tracea.semantic.access import Region
from tracea.semantic.index import Const, Index, Param, Var
from tracea.semantic.tile_kernel import Buffer, BufferRole

__all__ = ["BATCH", "DEPTH", "KEYS", "KV_HEADS", "QUERIES", "SHARING", "WIDTH", "AttentionOperands", "attention_types"]

# The largest values keep every product of them within 64 bits.
BATCH, KV_HEADS = Param("batch", maximum=2**16), Param("kv_heads", minimum=1, maximum=2**12)
SHARING = Param("sharing", minimum=1, maximum=2**10)  # query heads of a key head
QUERIES, KEYS = Param("s", minimum=1, maximum=2**24), Param("t", maximum=2**24)
DEPTH, WIDTH = Param("d", maximum=2**16), Param("dv", maximum=2**16)
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
    types = {"q": _by_key_head(op.q, heads, kv_heads), "k": _strided(op.k), "v": _strided(op.v)}
    for position, operand in enumerate(op.score.operands, start=_EXTRA):
        types[f"x{position}"] = _by_key_head(operand, heads, kv_heads)
    return types | {"y": _by_key_head(op.infer(), heads, kv_heads)}


def _fixed(op: AttentionOp) -> tuple[object, ...]:
    return (op.causal, op.window, op.softmax_scale, op.score.expr)


def _strided(type_: TensorType) -> TensorType:
    return TensorType(type_.static_shape, type_.dtype, StridedLayout(type_.strides))


def _by_key_head(type_: TensorType, heads: int, kv_heads: int) -> TensorType:
    """Split the third axis from the end, the heads, in two; a tensor without it is as it was."""
    shape, strides = type_.static_shape, type_.strides
    if len(shape) < 3:
        return _strided(type_)
    sharing = heads // kv_heads
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
    def of(cls, op: AttentionOp, *, copy_keys: bool, copy_values: bool) -> AttentionOperands:
        """Return the buffers; rows of keys and values that are not copied have elements side by side."""
        types = attention_types(op)
        batch, heads, s, d = op.q.static_shape
        kv_heads, t, dv = op.k.static_shape[1], op.k.static_shape[2], op.v.static_shape[3]
        lead, lead_dims = (BATCH, KV_HEADS, SHARING), (batch, kv_heads, heads // kv_heads)
        key_lead, key_dims = (BATCH, KV_HEADS), (batch, kv_heads)

        def input_(name: str, shape: tuple[Index, ...], dims: tuple[int, ...], unit: int | None = None) -> Buffer:
            return tensor_buffer(name, types[name], shape, dims, BufferRole.INPUT, unit_axis=unit)

        names = tuple(f"x{position}" for position in range(_EXTRA, len(op.operands)))
        return cls(
            op,
            input_("q", (*lead, QUERIES, DEPTH), (*lead_dims, s, d)),
            input_("k", (*key_lead, KEYS, DEPTH), (*key_dims, t, d), None if copy_keys else -1),
            input_("v", (*key_lead, KEYS, WIDTH), (*key_dims, t, dv), None if copy_values else -1),
            tuple(input_(name, (*lead, QUERIES, KEYS), (*lead_dims, s, t)) for name in names),
            tensor_buffer("y", types["y"], (*lead, QUERIES, WIDTH), (*lead_dims, s, dv), BufferRole.OUTPUT),
        )

    @property
    def compute(self) -> DType:
        """The type that scores and sums are computed in."""
        return compute_type(*(type_.dtype for type_ in (*self.op.operands, self.op.infer())))

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
