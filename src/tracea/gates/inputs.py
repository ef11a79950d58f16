"""The inputs of an op: one table says what each distribution means for it, one what the tables among its operands are.

An op that is not in a row of the table takes what the distribution draws of each operand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from tracea.core.contract import Accuracy
from tracea.core.op import (
    AdaptivePool2dOp,
    AttentionGradientOp,
    AttentionOp,
    BlockSparseOp,
    Conv2dOp,
    CumulativeSumOp,
    GatherRowsOp,
    GemmOp,
    GroupedGemmOp,
    JoinOp,
    LargestOp,
    LowRankOp,
    MomentsOp,
    NormGradientOp,
    Op,
    PairsOp,
    PointwiseOp,
    Pool2dOp,
    ReduceOp,
    RowOp,
    StatisticsOp,
    SumRowsOp,
    ViewOp,
    WeightedRowsOp,
)
from tracea.core.tensor_type import static
from tracea.gates import inputs_gradients as gradients
from tracea.gates import inputs_integers as integers
from tracea.gates import inputs_moments as moments
from tracea.gates import inputs_products as products
from tracea.gates import inputs_slabs as slabs
from tracea.gates import inputs_tables as tables
from tracea.gates.distribution import OF_SOME_OPS, Distribution, draw, store, with_nonfinite_apart
from tracea.gates.inputs_everywhere import everywhere, turns_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["generate", "generate_not_finite", "has_meaning", "operands_that_change_alone", "turns_of"]

_NOT_FINITE: Final = frozenset({Distribution.NONFINITE, Distribution.EVERYWHERE, Distribution.SPECIAL})
# Changes drawn operands in place; the op is of the type that the rule stands for.
Rule: TypeAlias = Callable[[Any, "list[NDArray[np.float64]]", "np.random.Generator"], None]
Fill: TypeAlias = Callable[[Any, "list[NDArray[Any]]", "np.random.Generator", Distribution], None]

RULES: Final[Mapping[Distribution, Mapping[type[Op], Rule]]] = {
    Distribution.EDGES: {
        GemmOp: products.few_steps,
        GroupedGemmOp: products.few_steps,
        Conv2dOp: products.single_taps,
    },
    Distribution.LARGE: {GemmOp: products.there_and_back},
    Distribution.DENORMAL: {
        GemmOp: products.subnormal_factors,
        BlockSparseOp: products.subnormal_factors,
        GroupedGemmOp: products.subnormal_factors,
        Conv2dOp: products.subnormal_pixels,
        LowRankOp: products.subnormal_chain,
        AttentionOp: products.subnormal_values,
    },
    Distribution.OFFSET: {
        RowOp: slabs.far_from_zero,
        ReduceOp: slabs.far_from_zero,
        StatisticsOp: slabs.far_from_zero,
        MomentsOp: moments.columns_far_from_zero,
        NormGradientOp: gradients.rows_far_from_zero,
        CumulativeSumOp: slabs.far_from_zero,
        SumRowsOp: slabs.far_from_zero,
        WeightedRowsOp: slabs.far_from_zero,
        LargestOp: slabs.far_from_zero,
        Pool2dOp: slabs.far_from_zero,
        AdaptivePool2dOp: slabs.far_from_zero,
        AttentionOp: products.scores_far_from_zero,
    },
    Distribution.EXTREME: {
        GemmOp: products.extreme_results,
        BlockSparseOp: products.extreme_results,
        GroupedGemmOp: products.extreme_results,
        Conv2dOp: products.extreme_pixels,
        LowRankOp: products.extreme_rows,
        AttentionOp: products.extreme_values,
        AttentionGradientOp: gradients.extreme_gradients,
        RowOp: slabs.extreme,
        ReduceOp: slabs.extreme,
        StatisticsOp: slabs.extreme,
        MomentsOp: moments.extreme_columns,
        NormGradientOp: gradients.extreme_rows,
        CumulativeSumOp: slabs.extreme,
        SumRowsOp: slabs.extreme,
        WeightedRowsOp: slabs.extreme,
        LargestOp: slabs.extreme,
        Pool2dOp: slabs.extreme,
        AdaptivePool2dOp: slabs.extreme,
        PointwiseOp: slabs.every_magnitude,
        PairsOp: slabs.every_magnitude,
        ViewOp: slabs.every_magnitude,
        JoinOp: slabs.every_magnitude,
        GatherRowsOp: slabs.every_magnitude,
    },
    Distribution.SPECIAL: {
        GemmOp: products.zeros_that_face,
        BlockSparseOp: products.zeros_that_face,
        GroupedGemmOp: products.zeros_that_face,
        Conv2dOp: products.zeros_that_face,
        LowRankOp: products.zeros_that_face,
        AttentionOp: products.hidden_rows,
        AttentionGradientOp: gradients.hidden_queries,
        RowOp: slabs.special,
        ReduceOp: slabs.special,
        StatisticsOp: slabs.special,
        MomentsOp: moments.special_columns,
        NormGradientOp: gradients.special_rows,
        CumulativeSumOp: slabs.special,
        SumRowsOp: slabs.special,
        WeightedRowsOp: slabs.special,
        LargestOp: slabs.special,
        Pool2dOp: slabs.special,
        AdaptivePool2dOp: slabs.special,
        PointwiseOp: slabs.special_values,
        PairsOp: slabs.special_values,
        ViewOp: slabs.special_values,
        JoinOp: slabs.special_values,
        GatherRowsOp: slabs.special_values,
    },
}

# Operands that are tables: their numbers have a meaning that no distribution draws.
TABLES: Final[Mapping[type[Op], Fill]] = {
    GatherRowsOp: tables.row_numbers,
    SumRowsOp: tables.rows_of_sums,
    WeightedRowsOp: tables.weighted_rows,
    BlockSparseOp: tables.listed_blocks,
    GroupedGemmOp: tables.routed_rows,
    AttentionOp: tables.spans_of_pairs,
}


def has_meaning(op: Op, distribution: Distribution) -> bool:
    """Whether a distribution draws of an op what others do not."""
    if isinstance(op, Conv2dOp) and op.accuracy is Accuracy.NORMWISE and distribution in _NOT_FINITE:
        # Of an image that is not finite nothing is claimed: only that it harms no other.
        return distribution is Distribution.NONFINITE and static(op.shape[0]) > 1
    if distribution is Distribution.EVERYWHERE:
        return turns_of(op) > 0
    return distribution not in OF_SOME_OPS or type(op) in RULES[distribution]


def generate(
    op: Op, distribution: Distribution, rng: np.random.Generator, *, turn: int = 0
) -> tuple[NDArray[Any], ...]:
    """Draw logical inputs of ``op``, contiguous and in their storage types; ``turn`` is that of EVERYWHERE."""
    floats = [draw(operand.static_shape, distribution, rng) for operand in op.operands]
    if distribution is Distribution.EVERYWHERE:
        everywhere(op, floats, rng, turn)
    return _finished(op, distribution, floats, rng)


def generate_not_finite(
    op: Op, index: int, rng: np.random.Generator, *, last: bool = False
) -> tuple[NDArray[Any], ...]:
    """Draw logical inputs of which one alone is not finite everywhere: in no other does NaN hide what it swallowed.

    With ``last`` its last element is NaN.
    """
    floats = [draw(operand.static_shape, Distribution.NORMAL, rng) for operand in op.operands]
    with_nonfinite_apart(floats[index], rng, last=last)
    return _finished(op, Distribution.NORMAL, floats, rng)


def _finished(
    op: Op, distribution: Distribution, floats: list[NDArray[np.float64]], rng: np.random.Generator
) -> tuple[NDArray[Any], ...]:
    rule = cast("Rule | None", RULES.get(distribution, {}).get(type(op)))
    if rule is not None:
        rule(op, floats, rng)
    extreme = distribution is Distribution.EXTREME
    if extreme:
        integers.full_range(op, floats, rng)
    stored = [store(values, kind, whole=extreme) for values, kind in zip(floats, op.operands, strict=True)]
    fill = cast("Fill | None", TABLES.get(type(op)))
    if fill is not None:
        fill(op, stored, rng, distribution)
    return tuple(stored)


def operands_that_change_alone(op: Op) -> tuple[tuple[int, ...], ...]:
    """Return the operands, one by one; tables that belong together are one."""
    count = len(op.operands)
    together = 3 if isinstance(op, BlockSparseOp) else 0
    if isinstance(op, AttentionOp | GroupedGemmOp):
        together = len(op.tables)
    alone = [(index,) for index in range(count - together)]
    return (*alone, tuple(range(count - together, count))) if together else tuple(alone)
