"""Attention as a function: zero copy, any strides, shared key heads, masks and scores; the result lies as q does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from tracea.core.dtype import DType
from tracea.core.expr import EXPR_CLASSES, Expr, Input, select
from tracea.core.op import AttentionOp, Epilogue, PairSpans
from tracea.core.ops.attention import like_queries
from tracea.core.plain_shape import axes_remedy
from tracea.errors import InvalidDType, InvalidOp, InvalidShape
from tracea.flow.compile import compile_op
from tracea.interface.attention_pairs import listed_pairs
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import FLOATS, Given, check_same_dtype, dispatched, flag, number
from tracea.interface.whole_numbers import whole_number
from tracea.kernels.attention.spans import Band

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["MASKS", "NAMES", "attention", "checked_operands", "checked_window", "forward_op", "written_score"]

_MOST_OPERANDS: Final = 4
NAMES: Final = ("q", "k", "v", "mask", *(f"operands[{i}]" for i in range(_MOST_OPERANDS)))
MASKS: Final = dict.fromkeys(NAMES[3:], (*FLOATS, "bool"))  # what they may be besides q, k and v
_TABLES: Final = ("firsts", "pairs")


@tells_keywords
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    mask: Any = None,
    score: Expr | None = None,
    operands: Sequence[Any] = (),
    block_mask: Any = None,
    block_size: int | Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
    key_lengths: Sequence[int] | None = None,
    global_tokens: int = 0,
    out: Any = None,
) -> Any:
    """Return ``softmax(score(scale · q kᵀ) + mask) v`` per head, as torch's ``scaled_dot_product_attention``.

    Shapes: q is (batch, heads, s, d); k (batch, kv_heads, t, d); v (batch, kv_heads, t, dv), heads a multiple of
    kv_heads; mask and operands broadcast to (batch, heads, s, t).

    ``causal``: query i sees keys j <= i; ``window``: keys with ``|i - j| < window``; a mask of booleans is true where a
    key is seen, one of floats is added. ``score`` is an expression of the scaled product, ``Input(0)``, and of at most
    four ``operands``, ``Input(1)`` and on. A query that sees no key gives zeros. ``scale`` None is ``1/sqrt(d)``.

    What costs nothing where it is not seen: ``block_mask`` is true where a block of ``block_size`` queries by as many
    keys (64, or a pair of sizes) is seen, (⌈s/block⌉, ⌈t/block⌉) for all heads or with axes before it that broadcast to
    (batch, heads). ``lengths`` are the tokens of sequences that lie side by side in a batch of 1, ``key_lengths`` those
    of their keys: each sequence sees its own, and positions count from its first token. ``global_tokens``: with a
    window, the first so many queries, all where there are fewer, see all keys and the first so many keys are seen by
    all, but for what a block_mask hides. causal and window hold besides.

    An infinity or a NaN in v may reach queries that do not see its key, as NaN: those of its 96 queries that meet in
    the kernel, of another sequence too. Weights of what is hidden are zeros there, which hide finite values alone.

    Raises: InvalidShape, InvalidDType, InvalidDevice, InvalidStride, OverlappingOutput; InvalidOp for a window below 1,
    a scale that is not finite, a score that names other operands than there are, or what does not go together.
    """
    others, window = checked_operands(operands, score), checked_window(window)
    band = Band(
        causal=flag("causal", causal),
        window=window,
        global_tokens=whole_number("global_tokens", global_tokens, 0, remedy="0 is a window alone"),
    )
    listed = listed_pairs(
        q, k, band=band, block_mask=block_mask, block_size=block_size, lengths=lengths, key_lengths=key_lengths
    )
    spans, *tables = (None, None, None) if listed is None else listed
    by_position = (band.causal, band.window) if spans is None else (False, None)
    return _dispatch()(
        q,
        k,
        v,
        mask,
        *others,
        *tables,
        out,
        *by_position,
        None if scale is None else number("scale", scale, example=0.125),
        None if score is None else written_score(score),
        *((None,) * 3 if spans is None else (spans.rows, spans.room, spans.each)),
    )


def checked_operands(operands: Any, score: Any) -> tuple[Any, ...]:
    """Return a score's operands, None for those that there are not.

    Raises: InvalidOp: they are no sequence, or too many, or there is no score to read them.
    """
    kind = type(operands).__name__
    is_sequence = isinstance(operands, Sequence) and not isinstance(operands, str | bytes)
    given = tuple(cast("Sequence[Any]", operands)) if is_sequence else None
    if given is None or len(given) > _MOST_OPERANDS:
        raise InvalidOp(
            field="operands",
            got=kind if given is None else len(given),
            expected=f"a sequence of at most {_MOST_OPERANDS} arrays",
            remedy="operands=(x,) for one of them"
            if given is None
            else "compute what does not depend on the score beforehand",
        )
    if given and score is None:
        raise InvalidOp(
            field="operands",
            got=f"{len(given)} without a score",
            expected="a score that reads them",
            remedy="give score=, an expression of Input(0), the scaled product, and of Input(1) and on, the operands",
        )
    return (*given, *(None,) * (_MOST_OPERANDS - len(given)))


def checked_window(window: Any) -> int | None:
    """Return a window as a number.

    Raises: InvalidOp: it is none, or below 1.
    """
    return None if window is None else whole_number("window", window, 1, remedy="1 is the diagonal, None sees all")


def written_score(score: Any) -> str:
    """Return an expression as text: what a signature is told apart by."""
    if not isinstance(score, EXPR_CLASSES):
        raise InvalidOp(
            field="score",
            got=type(score).__name__,
            expected="an expression of tracea.core.expr",
            remedy="write it over Input(0), the scaled product, and Input(1) ..., the operands",
        )
    return _written(score)


@lru_cache(maxsize=256)
def _written(score: Expr) -> str:
    return json.dumps(score.to_dict(), sort_keys=True)


@cache
def _dispatch() -> Any:
    return dispatched((*NAMES, *_TABLES), _missed)


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    causal, window, scale, written, rows, room, each = attributes
    given = Given.of(NAMES, arrays[: len(NAMES)], out, takes=MASKS)
    op = forward_op(given, causal=causal, window=window, scale=scale, written=written)
    given.check_result_arithmetic(op.q.dtype)
    spans = None if rows is None else PairSpans(rows=rows, room=room, each=each)
    op = replace(op, out=given.result, spans=spans)
    if out is None:
        op = replace(op, out=like_queries(op.q, op.infer()))
    given.check_result(op)
    return compile_op(op, threads=threads)


def forward_op(
    given: Given, *, causal: bool, window: int | None, scale: float | None, written: str | None, first: int = 0
) -> AttentionOp:
    """Return the op of a call whose q, k, v, mask and score's operands are given from ``first`` on.

    Raises: InvalidShape, InvalidDType; InvalidOp: the score names more operands than there are, or fewer.
    """
    q, k, v, mask = *(given.type(first + i) for i in range(3)), given.optional(first + 3)
    for name, type_ in (("q", q), ("k", k), ("v", v)):
        if type_.rank != 4 or not type_.dtype.is_float:
            kind = InvalidShape if type_.rank != 4 else InvalidDType
            raise kind(
                field=name,
                got=str(type_),
                expected="floats of (batch, heads, tokens, size)",
                remedy=axes_remedy(name, type_.rank, 4) or "convert integers to floats",
            )
    check_same_dtype("attention", q, k, others="")
    check_same_dtype("attention", q, v, others="")
    for position in range(first + 3, first + len(NAMES)):
        other = given.optional(position)
        if other is not None and not (other.dtype.is_float or other.dtype is DType.BOOL):
            raise InvalidDType(
                field=given.names[position],
                got=other.dtype.value,
                expected=MASKS[NAMES[3]],
                remedy="convert integers to floats",
            )
        if other is not None and other.dtype is DType.F64 and q.dtype is not DType.F64:
            raise InvalidDType(
                field=given.names[position],
                got=other.dtype.value,
                expected=f"f32, f16, bf16 or booleans, where q is {q.dtype.value}",
                remedy="convert it to the type of q, or q, k and v to f64",
            )
    score: Expr = Input(0) if written is None else Expr.from_dict(json.loads(written))
    others = [type_ for type_ in map(given.optional, range(first + 4, first + len(NAMES))) if type_ is not None]
    used = max(score.inputs(), default=0)
    if used > len(others):
        raise InvalidOp(
            field="score",
            got=f"Input({used}) with {len(others)} operands",
            expected=f"Input(0), the scaled product, to Input({len(others)})"
            if others
            else "Input(0), the scaled product, alone",
            remedy="give operands= an array for each of Input(1), Input(2) ...",
        )
    unread = [i for i in range(len(others)) if i + 1 not in score.inputs()]
    if unread:
        raise InvalidOp(
            field=f"operands[{unread[0]}]",
            got="an array that the score does not read",
            expected=f"one that it names, as Input({unread[0] + 1})",
            remedy="leave it out, or write it into score=",
        )
    if mask is not None:
        # The arrays come in the order q, k, v, mask, operands: the mask is the first of the score's.
        shifted = {position: Input(position + 1) for position in range(1, len(others) + 1)}
        score = score.substitute({0: Input(0), **shifted})
        seen = mask.dtype is DType.BOOL
        score = select(Input(1), score, float("-inf")) if seen else score + Input(1)
        others = [mask, *others]
    heads = (*q.shape[:3], k.shape[2])
    given.check_broadcasts(
        heads,
        *range(first + 3, first + len(NAMES)),
        whose="the scores' (batch, heads, s, t)",
        remedy="make each axis, counted from the last, 1 or the scores': t counts the keys, s the queries",
    )
    return AttentionOp(
        q=q,
        k=k,
        v=v,
        causal=causal,
        window=window,
        scale=scale,
        score=Epilogue(score, tuple(others)),
    )
