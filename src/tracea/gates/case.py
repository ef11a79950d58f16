"""Case: inputs of an op with what they mean, computed once and used for every candidate that is judged on that op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracea.core import reference
from tracea.core.dtype import DType
from tracea.core.expr import Input
from tracea.core.op import GatherRowsOp, GemmOp, JoinOp, PointwiseOp, ViewOp
from tracea.gates.distribution import Distribution
from tracea.gates.inputs import generate, generate_not_finite, has_meaning, turns_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tracea.core.op import Op

__all__ = ["ALL", "QUICK", "Case", "build_cases", "case_of"]

ALL: Final = tuple(Distribution)
# For a search that judges hundreds of schedules of one op: every term, the ends of the sum, its order and precision.
# The winner of a search is judged by all.
QUICK: Final = (Distribution.INTEGER, Distribution.EDGES, Distribution.WIDE)

# Products of two integers up to 3 add exactly in f32 while their sum stays below 2²⁴.
_EXACT_TERMS: Final = 2**24 // 9
# Under a stride, in a block that is not listed or behind a mask; some results are never NaN.
_AGAIN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Logical inputs, the float64 result, and the largest error of each element that the accuracy contract allows.

    ``signed_zeros``: the result is its inputs' elements as they are, zeros with their signs.
    """

    name: str
    inputs: tuple[NDArray[Any], ...]
    expected: NDArray[np.float64]
    bound: NDArray[np.float64]
    signed_zeros: bool = False


def build_cases(op: Op, rng: np.random.Generator, distributions: Iterable[Distribution] = ALL) -> tuple[Case, ...]:
    """Draw inputs from each distribution that means something for the op, and compute what they mean.

    NONFINITE is several cases of one name: all operands at once, then each float operand alone. So is EVERYWHERE: one
    for each turn.
    """
    drawn: list[Case] = []
    for distribution in distributions:
        if not has_meaning(op, distribution):
            continue
        if distribution is Distribution.EVERYWHERE:
            turns = (generate(op, distribution, rng, turn=turn) for turn in range(turns_of(op)))
            drawn += [case_of(op, inputs, name=distribution.value) for inputs in turns]
            continue
        drawn.append(_case(op, rng, distribution))
        floats = [index for index, operand in enumerate(op.operands) if operand.dtype.is_float]
        if distribution is Distribution.NONFINITE and len(floats) > 1:
            drawn += [_case_of_not_finite(op, index, rng) for index in floats]
    return tuple(drawn)


def case_of(op: Op, inputs: tuple[NDArray[Any], ...], *, name: str) -> Case:
    """Return a case of given inputs."""
    with np.errstate(all="ignore"):
        expected, bound = reference.claim(op, inputs)
    return Case(
        name=name,
        inputs=inputs,
        expected=expected,
        bound=np.broadcast_to(bound, expected.shape),
        signed_zeros=_moves(op),
    )


def _case(op: Op, rng: np.random.Generator, distribution: Distribution) -> Case:
    inputs = generate(op, distribution, rng)
    if distribution is not Distribution.INTEGER or not _is_exact(op):
        return case_of(op, inputs, name=distribution.value)
    with np.errstate(all="ignore"):
        expected = op.infer().dtype.round(np.asarray(reference.evaluate(op, inputs), dtype=np.float64))
    return Case(name=distribution.value, inputs=inputs, expected=expected, bound=np.zeros_like(expected))


def _case_of_not_finite(op: Op, index: int, rng: np.random.Generator) -> Case:
    """Return a case of which one operand alone is not finite, drawn again while its NaN lies where no one reads.

    Its last element is NaN, where that is read; else any.
    """
    case = case_of(op, generate_not_finite(op, index, rng, last=True), name=Distribution.NONFINITE.value)
    for _ in range(_AGAIN):
        if isinstance(op, GemmOp) or _shows_nan(op, case, index):  # products read all that there is
            break
        case = case_of(op, generate_not_finite(op, index, rng), name=Distribution.NONFINITE.value)
    return case


def _shows_nan(op: Op, case: Case, index: int) -> bool:
    """Whether the result has NaN that it would not have if the operand's were zeros; infinities make NaN too."""
    inputs = list(case.inputs)
    inputs[index] = np.where(np.isnan(inputs[index]), np.zeros_like(inputs[index]), inputs[index])
    with np.errstate(all="ignore"):
        swallowed = np.isnan(np.asarray(reference.evaluate(op, tuple(inputs)), dtype=np.float64))
    return bool((np.isnan(case.expected) & ~swallowed).any())


def _moves(op: Op) -> bool:
    """Whether results are elements of the operands, of the same type and without arithmetic: bits that are carried."""
    if isinstance(op, PointwiseOp):
        moves = isinstance(op.expr, Input) and op.operands[op.expr.index].dtype is op.infer().dtype
    else:
        moves = isinstance(op, ViewOp | JoinOp | GatherRowsOp) and op.operands[0].dtype is op.infer().dtype
    return moves


def _is_exact(op: Op) -> bool:
    """Whether small integers give the same bits in every order of summation: no rounding but the last."""
    return (
        isinstance(op, GemmOp)
        and op.epilogue.is_identity
        and op.accumulator in (DType.F32, DType.F64, DType.I32)
        and op.a.static_shape[-1] <= _EXACT_TERMS
    )
