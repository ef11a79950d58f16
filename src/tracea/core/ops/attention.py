"""Scaled dot-product attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tracea.core.ops.base import Op, result_type
from tracea.core.tensor_type import Dim, TensorType, static
from tracea.errors import InvalidOp, InvalidShape

__all__ = ["AttentionOp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOp(Op):
    """``out = softmax(scale · q kᵀ, masked) v`` per head; query head ``h`` reads key head ``h // (heads / kv_heads)``.

    Shapes:
        q: (batch, heads, s, d); k: (batch, kv_heads, t, d); v: (batch, kv_heads, t, dv); result: (batch, heads, s, dv).

    ``causal`` lets query i see keys ``j <= i`` (both counted from the start, as torch's ``is_causal``); ``window``
    only keys with ``|i - j| < window``. A query that sees no key gives NaN, as a softmax of -inf does. ``scale=None``
    is ``1/sqrt(d)``.
    """

    name: ClassVar[str] = "attention"

    q: TensorType
    k: TensorType
    v: TensorType
    causal: bool = False
    window: int | None = None
    scale: float | None = None
    out: TensorType | None = None

    def __post_init__(self) -> None:
        q, k, v = self.q.shape, self.k.shape, self.v.shape
        fits = len(q) == len(k) == len(v) == 4 and k[:3] == v[:3] and q[0] == k[0] and q[3] == k[3]
        if fits:
            heads, kv_heads = static(q[1]), static(k[1])
            fits = kv_heads >= 1 and heads % kv_heads == 0
        if not fits:
            raise InvalidShape(
                field="attention",
                got={name: tuple(map(str, shape)) for name, shape in (("q", q), ("k", k), ("v", v))},
                expected="q (b, h, s, d), k (b, h_kv, t, d), v (b, h_kv, t, dv), h a multiple of h_kv",
                remedy="make batch, heads, keys and head size agree",
            )
        if self.window is not None and self.window < 1:
            raise InvalidOp(
                field="attention.window", got=self.window, expected=">= 1", remedy="a window of 1 is the diagonal"
            )
        if self.scale is not None and not math.isfinite(self.scale):
            raise InvalidOp(field="attention.scale", got=self.scale, expected="a finite number", remedy="use 1/sqrt(d)")
        if result_type("attention", self.shape, self.q.dtype, self.out) == TensorType(self.shape, self.q.dtype):
            object.__setattr__(self, "out", None)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The result's shape."""
        return (*self.q.shape[:3], self.v.shape[3])

    @property
    def softmax_scale(self) -> float:
        """The scale as a number."""
        return 1.0 / math.sqrt(static(self.q.shape[3])) if self.scale is None else self.scale

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """Queries, keys, values."""
        return (self.q, self.k, self.v)

    def infer(self) -> TensorType:
        """Return the result's type."""
        return result_type("attention", self.shape, self.q.dtype, self.out)

    @property
    def visible_pairs(self) -> int:
        """Pairs of query and key of one head that the mask lets through."""
        s, t = static(self.q.shape[2]), static(self.k.shape[2])
        reach = max(s, t) if self.window is None else self.window - 1
        pairs = 0
        for i in range(s):
            last = min(t - 1, i if self.causal else i + reach)
            pairs += max(0, last - max(0, i - reach) + 1)
        return pairs

    @property
    def flops(self) -> int:
        """Two products and the softmax over the pairs that are visible."""
        batch, heads, _, d = self.q.static_shape
        return batch * heads * self.visible_pairs * (2 * d + 2 * static(self.v.shape[3]) + 5)
