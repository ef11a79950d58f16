"""What a score does to a product: the factor in front of it, and masks that a constant says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracea.core.expr import Binary, BinaryFunction, Constant, Expr, Input
from tracea.core.function import Array
from tracea.core.op import AttentionOp, Epilogue, ViewOp
from tracea.core.passes.draft import Draft
from tracea.core.reference import evaluate

__all__ = ["hides_every_key", "known_operands", "scale_apart", "without_mask"]

_HIDDEN = -1e30  # added to a score of f32 this or less leaves nothing of it, and exp of the difference is 0

_MOST_VALUES = 3  # of a mask that hides: those that do, and the one that does not


def scale_apart(expr: Expr) -> tuple[Expr, float]:
    """Return a score without the number that every use of the product is multiplied by, and that number."""
    users = {part for part in expr.walk() if Input(0) in part.parts}
    if len(users) == 1:
        (user,) = users
        factor = _factor(user)
        if factor is not None:
            return _replaced(expr, user), factor
    return expr, 1.0


def _factor(expr: Expr) -> float | None:
    match expr:
        case Binary(function=BinaryFunction.MUL, left=Input(index=0), right=Constant(value=value)):
            factor = value
        case Binary(function=BinaryFunction.MUL, left=Constant(value=value), right=Input(index=0)):
            factor = value
        case Binary(function=BinaryFunction.DIV, left=Input(index=0), right=Constant(value=value)) if value != 0.0:
            factor = 1.0 / value
        case _:
            return None
    return factor if math.isfinite(factor) else None


def _replaced(expr: Expr, part: Expr) -> Expr:
    if expr == part:
        return Input(0)
    return expr.with_parts([_replaced(each, part) for each in expr.parts]) if expr.parts else expr


def known_operands(draft: Draft, names: Sequence[str], values: Mapping[str, Any]) -> list[Array | None]:
    """Return the data of each operand that is a known constant, or a view of one, else None."""
    return [_known(draft, name, values) for name in names]


def _known(draft: Draft, name: str, values: Mapping[str, Any]) -> Array | None:
    if name in values:
        return np.asarray(values[name], dtype=np.float64)
    node = draft.nodes[name]
    if not isinstance(node.op, ViewOp):
        return None
    source = _known(draft, node.inputs[0], values)
    return None if source is None else np.asarray(evaluate(node.op, [source]), dtype=np.float64)


def hides_every_key(op: AttentionOp, operands: Sequence[Array | None]) -> bool:
    """Whether known operands give some query nothing but scores of -inf, be the others 0 or 1, as masks are."""
    if all(array is None for array in operands):
        return False
    hidden: list[Array] = []
    with np.errstate(all="ignore"):
        for other in (0.0, 1.0):
            given = [np.full((1, 1), other) if array is None else array for array in operands]
            hidden.append(op.score.expr.evaluate([np.zeros((1, 1)), *given]) == -np.inf)
    return bool(np.any(np.all(np.logical_and(hidden[0], hidden[-1]), axis=-1)))


def without_mask(op: AttentionOp, operands: Sequence[Array | None]) -> AttentionOp | None:
    """Return the attention whose only operand, a known mask, hides no key or those behind the query; None of others."""
    mask = operands[0] if len(operands) == 1 else None
    if mask is None or op.causal or op.window is not None:
        return None
    queries, keys = op.q.static_shape[2], op.k.static_shape[2]
    if mask.shape[-2:] != (queries, keys) or mask.size != queries * keys:
        return None
    distinct: list[float] = np.unique(mask).tolist()
    if len(distinct) > _MOST_VALUES:
        return None
    hidden = np.zeros((queries, keys), dtype=np.bool_)
    seen: Expr | None = None
    for value in distinct:
        score = op.score.expr.substitute({1: Constant(value)}).simplify()
        if _is_hidden(score):
            hidden = hidden | (mask.reshape(queries, keys) == value)
        elif seen is not None:
            return None
        else:
            seen = _without_zero(score)
    causal = bool(np.any(hidden))
    if seen is None or (causal and np.any(hidden != ~np.tri(queries, keys, dtype=np.bool_))):
        return None
    expr, factor = scale_apart(seen)
    plain = replace(op, causal=causal, score=Epilogue(expr, ()))
    return plain if factor == 1.0 else replace(plain, scale=op.softmax_scale * factor)


def _is_hidden(score: Expr) -> bool:
    """Whether a score is so low that no weight is left, whatever the product."""
    match score:
        case Constant(value=value):
            return value <= _HIDDEN
        case Binary(function=BinaryFunction.ADD, right=Constant(value=value)):
            return value <= _HIDDEN
        case _:
            return False


def _without_zero(score: Expr) -> Expr:
    """Return a score to which 0 was added without that: to a softmax 0.0 and -0.0 are the same."""
    match score:
        case Binary(function=BinaryFunction.ADD, left=left, right=Constant(value=0.0)):
            return left
        case _:
            return score
