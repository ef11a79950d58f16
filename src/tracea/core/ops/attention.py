"""Scaled dot-product attention."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Final

from tracea.core.dtype import DType
from tracea.core.ops.base import Epilogue, Op, check_broadcasts, is_real, result_type
from tracea.core.plain_shape import plain_shape
from tracea.core.tensor_type import Dim, StridedLayout, TensorType, static
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["SPAN_FIELDS", "AttentionOp", "PairSpans", "like_queries"]

SPAN_FIELDS: Final = 6
_BEYOND_F32: Final = 2.0**128


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpans:
    """That tables, operands of the op, list which pairs are seen: one kernel serves every mask of pairs.

    Blocks of ``rows`` queries have lists of spans: ``each`` batch and head its own, in the order of their blocks, or
    all of them the same. List l has the spans numbered ``first[l] … first[l + 1] - 1``. A span is six numbers, ``begin,
    end, key_begin, key_end, behind, ahead``: query i of [begin, end), a part of the list's block, sees the keys j of
    [key_begin, key_end) with ``i - behind <= j <= i + ahead``. No two spans of a list have a pair in common.

    Shapes: first is (lists + 1,), spans (room · 6,), of which the first ``first[lists]`` spans count; both i32.
    """

    rows: int
    room: int
    each: bool = False

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("room", 0)):
            if type(getattr(self, name)) is not int or getattr(self, name) < least:
                raise InvalidOp(
                    field=f"attention.spans.{name}",
                    got=getattr(self, name),
                    expected=f"at least {least}",
                    remedy="use span_tables",
                )

    def lists(self, batch: int, heads: int, queries: int) -> int:
        """Return how many lists of spans there are."""
        return -(-queries // self.rows) * (batch * heads if self.each else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOp(Op):
    """``out = softmax(score(scale · q kᵀ), masked) v`` per head; head h reads key head ``h // (heads / kv_heads)``.

    Shapes:
        q: (batch, heads, s, d); k: (batch, kv_heads, t, d); v: (batch, kv_heads, t, dv); result: (batch, heads, s, dv);
        operands of ``score`` broadcast to (batch, heads, s, t).

    ``causal`` lets query i see keys ``j <= i`` (both counted from the start, as torch's ``is_causal``); ``window``
    only keys with ``|i - j| < window``. ``score`` is applied to the scaled product, its ``Input(0)``: an additive mask
    is ``Input(0) + Input(1)``, a key that gets -inf is not seen. A query that sees no key gives zeros. What a hidden
    key's value is does not matter as long as it is finite. ``scale=None`` is ``1/sqrt(d)``. With ``spans``, tables say
    which pairs are seen, in place of ``causal`` and ``window``.
    """

    name: ClassVar[str] = "attention"

    q: TensorType
    k: TensorType
    v: TensorType
    causal: bool = False
    window: int | None = None
    scale: float | None = None
    score: Epilogue = field(default_factory=Epilogue.identity)
    out: TensorType | None = None
    spans: PairSpans | None = None

    def __post_init__(self) -> None:
        q, k, v = self.q.shape, self.k.shape, self.v.shape
        fits = len(q) == len(k) == len(v) == 4 and k[:3] == v[:3] and q[0] == k[0] and q[3] == k[3]
        if fits:
            heads, kv_heads = static(q[1]), static(k[1])
            fits = heads == 0 if kv_heads == 0 else heads % kv_heads == 0
        if not fits:
            raise InvalidShape(
                field="attention",
                got={name: plain_shape(shape) for name, shape in (("q", q), ("k", k), ("v", v))},
                expected="q (b, h, s, d), k (b, h_kv, t, d), v (b, h_kv, t, dv), h a multiple of h_kv",
                remedy=_remedy(q, k, v),
            )
        if self.window is not None and self.window < 1:
            raise InvalidOp(
                field="attention.window", got=self.window, expected=">= 1", remedy="a window of 1 is the diagonal"
            )
        if self.spans is not None and (self.causal or self.window is not None):
            raise InvalidOp(
                field="attention.spans",
                got=f"causal={self.causal}, window={self.window}",
                expected="spans alone",
                remedy="state masks by position as the bands of the spans",
            )
        if self.scale is not None and not (is_real(self.scale) and math.isfinite(self.scale)):
            raise InvalidOp(field="attention.scale", got=self.scale, expected="a finite number", remedy="use 1/sqrt(d)")
        in_f64 = any(type_.dtype is DType.F64 for type_ in (self.q, self.k, self.v, *self.score.operands))
        if self.scale is not None and abs(self.scale) >= _BEYOND_F32 and not in_f64:
            expected = "a number that f32, in which scores are computed, holds"
            raise InvalidOp(field="attention.scale", got=self.scale, expected=expected, remedy="use 1/sqrt(d)")
        for index, operand in enumerate(self.score.operands):
            check_broadcasts(f"attention.score.operands[{index}]", operand.shape, (*q[:3], k[2]))
        if result_type("attention", self.shape, self.q.dtype, self.out) == TensorType(self.shape, self.q.dtype):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (*self.q.shape[:3], self.v.shape[3])

    @property
    def described(self) -> str:
        """The name and the result's shape, then the key heads and the keys where these are others than q's."""
        (_, heads, queries, _), (_, kv_heads, keys, _) = plain_shape(self.q.shape), plain_shape(self.k.shape)
        parts = [f"{kv_heads} key head{'' if kv_heads == 1 else 's'}"] if kv_heads != heads else []
        parts += [f"{keys} key{'' if keys == 1 else 's'}"] if keys != queries else []
        return f"{self.name} {self.summary}{' over ' if parts else ''}{' of '.join(parts)}"

    @property
    def softmax_scale(self) -> float:
        """The scale as a number."""
        return 1.0 / math.sqrt(max(1, static(self.q.shape[3]))) if self.scale is None else self.scale

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """Queries, keys, values, then the score's, then the tables of spans."""
        return (self.q, self.k, self.v, *self.score.operands, *self.tables)

    @property
    def tables(self) -> tuple[TensorType, ...]:
        """The types of the tables of spans, where there are any."""
        if self.spans is None:
            return ()
        batch, heads, queries, _ = self.q.static_shape
        lists = self.spans.lists(batch, heads, queries)
        return (TensorType((lists + 1,), DType.I32), TensorType((self.spans.room * SPAN_FIELDS,), DType.I32))

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("attention", self.shape, self.q.dtype, self.out)

    @property
    def visible_pairs(self) -> int:
        """Pairs of query and key of one head that the mask lets through; all, where tables say what it is."""
        s, t = static(self.q.shape[2]), static(self.k.shape[2])
        reach = max(s, t) if self.window is None else self.window - 1
        if not self.causal and self.window is None:
            return s * t
        pairs = 0
        for i in range(s):
            last = min(t - 1, i if self.causal else i + reach)
            pairs += max(0, last - max(0, i - reach) + 1)
        return pairs

    @property
    def flops(self) -> int:
        """Two products, the score and the softmax over the pairs that are visible."""
        batch, heads, _, d = self.q.static_shape
        pair = 2 * d + 2 * static(self.v.shape[3]) + 5 + self.score.expr.arithmetic
        return batch * heads * self.visible_pairs * pair


def _remedy(q: tuple[Dim, ...], k: tuple[Dim, ...], v: tuple[Dim, ...]) -> str:
    if not len(q) == len(k) == len(v) == 4:
        return "give each four axes: (heads, s, d) has a batch as x[None], (s, d) also one head as x[None, None]"
    counted = ("batches", "heads", "keys", "elements a head")
    for pair, one, other, axes in (("q and k", q, k, (0, 3)), ("k and v", k, v, (0, 1, 2))):
        for axis in axes:
            if one[axis] != other[axis]:
                numbers = plain_shape((one[axis], other[axis]))
                return f"give {pair} as many {counted[axis]} (axis {axis}): they have {numbers[0]} and {numbers[1]}"
    heads, kv_heads = plain_shape((q[1], k[1]))
    return f"let each head of k and v serve as many of q: {kv_heads} does not divide {heads}"


def like_queries(q: TensorType, result: TensorType) -> TensorType:
    """Return the result's type with its axes in the order of q's: a model's heads stay inside its tokens."""
    shape = result.static_shape
    spread = [axis for axis in range(3) if shape[axis] > 1]
    order = sorted(spread, key=lambda axis: -q.strides[axis])
    if order == spread or 0 in shape or any(q.strides[axis] == 0 for axis in spread):
        return result
    strides, step = [0, 0, 0, 1], shape[3]
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return TensorType(shape, result.dtype, StridedLayout(tuple(strides)))
