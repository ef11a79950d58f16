"""The gradients of attention as a function, given that of the result; ``torch.autograd.Function`` joins them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tracea.core.expr import Expr
from tracea.core.op import AttentionGradientOp
from tracea.errors import InvalidShape
from tracea.flow.compile import compile_op
from tracea.interface.attention import MASKS, NAMES, checked_operands, checked_window, forward_op, written_score
from tracea.interface.keywords import tells_keywords
from tracea.interface.operands import Given, check_same_dtype, dispatched, flag, number
from tracea.interface.results import apart

if TYPE_CHECKING:
    from tracea.runtime.program import Program

__all__ = ["attention_backward"]

_NAMES = ("grad", "y", *NAMES)


@tells_keywords
def attention_backward(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    y: Any,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    mask: Any = None,
    score: Expr | None = None,
    operands: Sequence[Any] = (),
) -> tuple[Any, Any, Any]:
    """Return the gradients of ``y = attention(q, k, v, ...)`` for q, k and v; masks and operands get none.

    The largest score and the sum of weights of each query are computed again, which costs one product of six and keeps
    their digits where scores are large. A query that sees no key, and a key that no query sees, get zeros.

    Shapes: grad and y are as :func:`attention`'s result; the gradients as q, k and v.

    Raises: as :func:`attention`; InvalidOp: the score has no derivative that is written down (a power, a cast).
    """
    others = checked_operands(operands, score)
    return _dispatch()(
        grad,
        y,
        q,
        k,
        v,
        mask,
        *others,
        None,
        flag("causal", causal),
        checked_window(window),
        None if scale is None else number("scale", scale, example=0.125),
        None if score is None else written_score(score),
    )


@cache
def _dispatch() -> Any:
    return dispatched(_NAMES, _missed)


def _missed(arrays: tuple[Any, ...], out: Any, attributes: tuple[Any, ...], threads: int) -> Program:
    causal, window, scale, written = attributes
    given = Given.of(_NAMES, arrays, out, takes=MASKS)
    forward = forward_op(given, causal=causal, window=window, scale=scale, written=written, first=2)
    grad, y = given.type(0), given.type(1)
    for name, type_ in (("grad", grad), ("y", y)):
        if type_.shape != forward.shape:
            raise InvalidShape(
                field=name, got=type_.shape, expected=forward.shape, remedy="give a tensor of the result's shape"
            )
        check_same_dtype("attention_backward", forward.q, type_, others="")
    op = AttentionGradientOp(forward=forward, grad=grad, y=y)
    given.check_result(op)
    return apart(compile_op(op, threads=threads), op.parts, op.offsets)
