"""Kernels that are wrong about NaN or an infinity at one place of their result, or in rows that mix both with numbers.

Refused at every seed, whatever the place: each result is NaN once and infinite once over the cases of a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.gates.planted_ops import (
    GEMM,
    LOG_SOFTMAX,
    MAXIMUM,
    MINIMUM,
    RIGHT,
    SOFTMAX,
    SPARSE,
    F,
    Kernel,
    as_run,
    by_reference,
)
from tests.gates.test_inputs import ops_of_all_kernels

from tracea.core.contract import Accuracy
from tracea.core.dtype import DType
from tracea.core.op import (
    AttentionGradientOp,
    AttentionOp,
    Conv2dOp,
    GemmOp,
    LargestOp,
    MomentsOp,
    NormGradientOp,
    Op,
    PairsOp,
    PointwiseOp,
    ReduceKind,
    ReduceOp,
    RowKind,
    RowOp,
    StatisticsOp,
    SumRowsOp,
)
from tracea.core.tensor_type import TensorType
from tracea.gates import ALL, Distribution, build_cases, judge
from tracea.gates.inputs import has_meaning, turns_of

Array = np.ndarray[Any, Any]
Change = Callable[[Array], None]

SEEDS = 4
CHECK = "correct on everywhere"
WITHOUT = tuple(kind for kind in ALL if kind is not Distribution.EVERYWHERE)
HALF = GemmOp.of(m=21, n=53, k=100, dtype=DType.F16)
DEEP = GemmOp.of(m=21, n=53, k=1, dtype=DType.F16)
SUM_OF_HALVES = ReduceOp(kind=ReduceKind.SUM, x=(TensorType((32, 100), DType.F16),), axes=(1,))
HALVES: dict[str, Op] = {
    "product": HALF,
    "product of one step": DEEP,
    "convolution": Conv2dOp.of(channels=6, size=(9, 8), filters=10, kernel=(3, 3), padding=(1, 1), dtype=DType.F16),
    "sum": SUM_OF_HALVES,
}
# Of these no element is both: indices are numbers, gradients of attention claim nothing, and no softmax, mean square or
# variance without weights is infinite.
NEVER_NAN = ("attention's gradient", "largest")
NEVER_INFINITE = (*NEVER_NAN, "softmax", "rms norm", "layer norm", "variance")


def cleared(found: Array, *places: Any) -> None:
    for place in places:
        found[place] = np.where(np.isnan(found[place]), 0, found[place])


def clamped(found: Array, *places: Any) -> None:
    most = np.finfo(found.dtype).max
    for place in places:
        found[place] = np.clip(found[place], -most, most)


def but(op: Op, kernel: Kernel, change: Change) -> Kernel:
    """A right kernel whose stored result is changed."""

    def run(inputs: Sequence[Array]) -> Array:
        with np.errstate(all="ignore"):
            found = np.array(kernel(inputs)).astype(op.infer().dtype.numpy)
        change(found)
        return found

    return run


def where(name: str) -> tuple[Any, ...]:
    """Places of the op's result, each of which is one planted kernel's: the first, some inside, the last."""
    shape = RIGHT[name][0].infer().static_shape
    size = int(np.prod(shape))
    chosen = (0, 7 * size // 11, size - 1)
    return tuple(tuple(int(axis) for axis in np.unravel_index(place, shape)) for place in chosen)


def refused(kernel: Kernel, op: Op, seed: int, distributions: Sequence[Distribution]) -> list[str]:
    verdict = judge(as_run(kernel), op, seed=seed, distributions=distributions, concurrent=False)
    return [failure.name for failure in verdict.failures]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", [name for name in RIGHT if name not in NEVER_NAN])
def test_nan_that_is_cleared_at_a_single_place_is_refused(name: str, number: int, rng: np.random.Generator) -> None:
    (op, kernel), place = RIGHT[name], where(name)[number]
    wrong = but(op, kernel, lambda found: cleared(found, place))
    for seed in rng.integers(2**32, size=SEEDS):
        assert CHECK in refused(wrong, op, int(seed), [Distribution.EVERYWHERE]), (place, seed)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", [name for name in RIGHT if name not in NEVER_INFINITE])
def test_an_infinity_that_is_clamped_at_a_single_place_is_refused(
    name: str, number: int, rng: np.random.Generator
) -> None:
    (op, kernel), place = RIGHT[name], where(name)[number]
    if isinstance(op, NormGradientOp) and number < 2:
        pytest.skip("a row with an infinite gradient is NaN: only sums over rows are infinite")
    wrong = but(op, kernel, lambda found: clamped(found, place))
    for seed in rng.integers(2**32, size=SEEDS):
        assert CHECK in refused(wrong, op, int(seed), [Distribution.EVERYWHERE]), (place, seed)


def softmax_like(change: Callable[[Array, Array], None], *, log: bool = False) -> Kernel:
    """A right softmax whose result is changed by what its rows hold."""
    right = RIGHT["log softmax" if log else "softmax"][1]

    def run(inputs: Sequence[Array]) -> Array:
        with np.errstate(all="ignore"):
            found = np.array(right(inputs))
        change(inputs[0], found)
        return found

    return run


def hidden(x: Array) -> Any:
    return np.isneginf(x).any(1) & ~np.isneginf(x).all(1)


def rows_with_hidden_are_nan(x: Array, found: Array) -> None:
    found[hidden(x)] = np.nan


def hidden_count_as_one(x: Array, found: Array) -> None:
    """The tail's lanes are masked with the maximum itself: each of them adds exp(0) to the sum."""
    found[hidden(x)] *= F(0.5)


def hidden_are_not_zero(x: Array, found: Array) -> None:
    found[np.isneginf(x) & (found == 0)] = F(1e-6)


def one_hidden_is_not_zero(x: Array, found: Array) -> None:
    found[5, 17] = F(1e-6) if np.isneginf(x[5, 17]) and found[5, 17] == 0 else found[5, 17]


def hidden_logarithms_are_lowest(x: Array, found: Array) -> None:
    found[:, 96:] = np.maximum(found[:, 96:], np.finfo(F).min)


def hidden_logarithm_of_one_place(x: Array, found: Array) -> None:
    found[5, 17] = np.maximum(found[5, 17], np.finfo(F).min)


def reduced(op: ReduceOp, change: Callable[[Array, Array], None]) -> Kernel:
    right = RIGHT["maximum" if op.kind is ReduceKind.MAX else "minimum"][1]

    def run(inputs: Sequence[Array]) -> Array:
        found = np.array(right(inputs))
        change(inputs[0], found)
        return found

    return run


def mixed(x: Array) -> Any:
    return np.isinf(x).any(1) & np.isfinite(x).any(1)


def nan_where_mixed(x: Array, found: Array) -> None:
    found[mixed(x) & np.isfinite(found)] = np.nan


def first_where_mixed(x: Array, found: Array) -> None:
    finite = np.where(np.isfinite(x), x, F(0))
    found[:] = np.where(mixed(x) & np.isfinite(found), finite[:, -1], found)


MIXED: dict[str, tuple[Op, Kernel]] = {
    "softmax rows with hidden elements are nan": (SOFTMAX, softmax_like(rows_with_hidden_are_nan)),
    "softmax counts hidden elements": (SOFTMAX, softmax_like(hidden_count_as_one)),
    "softmax of hidden elements is not zero": (SOFTMAX, softmax_like(hidden_are_not_zero)),
    "softmax of one hidden element is not zero": (SOFTMAX, softmax_like(one_hidden_is_not_zero)),
    "log softmax rows with hidden elements are nan": (LOG_SOFTMAX, softmax_like(rows_with_hidden_are_nan, log=True)),
    "log softmax of a tail's hidden elements": (LOG_SOFTMAX, softmax_like(hidden_logarithms_are_lowest, log=True)),
    "log softmax of one hidden element": (LOG_SOFTMAX, softmax_like(hidden_logarithm_of_one_place, log=True)),
    "maximum of a mixed row is nan": (MAXIMUM, reduced(MAXIMUM, nan_where_mixed)),
    "minimum of a mixed row is nan": (MINIMUM, reduced(MINIMUM, nan_where_mixed)),
    "maximum of a mixed row is its last number": (MAXIMUM, reduced(MAXIMUM, first_where_mixed)),
    "minimum of a mixed row is its last number": (MINIMUM, reduced(MINIMUM, first_where_mixed)),
}


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_mix_numbers_with_infinities_are_claimed(name: str, rng: np.random.Generator) -> None:
    op, wrong = MIXED[name]
    for seed in rng.integers(2**32, size=SEEDS):
        assert CHECK in refused(wrong, op, int(seed), [Distribution.EVERYWHERE]), seed


FEW = TensorType((2, 40), DType.F32)
OF_HIDDEN_ROWS: dict[str, tuple[Op, float]] = {
    "a softmax's": (RowOp(kind=RowKind.SOFTMAX, x=(FEW,)), 0.0),
    "a log softmax's": (RowOp(kind=RowKind.LOG_SOFTMAX, x=(FEW,)), -np.inf),
    "a maximum's, which starts from the lowest": (
        ReduceOp(kind=ReduceKind.MAX, x=(FEW,), axes=(1,)),
        float(np.finfo(F).min),
    ),
    "a minimum's, which starts from the largest": (
        ReduceOp(kind=ReduceKind.MIN, x=(FEW,), axes=(1,)),
        float(np.finfo(F).max),
    ),
    "places of the largest": (LargestOp(x=FEW, k=3), -1.0),
}


@pytest.mark.parametrize("name", OF_HIDDEN_ROWS)
def test_one_of_two_rows_that_is_infinite_throughout_is_refused(name: str, rng: np.random.Generator) -> None:
    op, left = OF_HIDDEN_ROWS[name]
    infinity = np.inf if getattr(op, "kind", None) is ReduceKind.MIN else -np.inf

    def wrong(inputs: Sequence[Array]) -> Array:
        with np.errstate(all="ignore"):
            found = np.array(by_reference(op)(inputs))
        found[1] = left if (inputs[0][1] == infinity).all() else found[1]
        return found

    for seed in rng.integers(2**32, size=SEEDS):
        assert CHECK in refused(wrong, op, int(seed), [Distribution.EVERYWHERE]), seed
        assert not refused(by_reference(op), op, int(seed), [Distribution.EVERYWHERE]), seed


def halved(found: Array) -> None:
    """What a conversion that saturates leaves: the largest for what is beyond it."""
    clamped(found, ...)


def one_of_a_tile(found: Array) -> None:
    clamped(found, tuple(extent // 2 for extent in found.shape))


def infinite_lines(op: Op, inputs: Sequence[Array], shape: tuple[int, ...]) -> Any:
    """Where a result is infinite since one of its operands is."""
    first: Any = np.isinf(inputs[0].astype(np.float32))
    lines = first.any(axis=tuple(range(1, first.ndim)))
    found: Any = np.broadcast_to(lines.reshape(-1, *[1] * (len(shape) - 1)), shape)
    if len(inputs) > 1:
        second: Any = np.isinf(inputs[1].astype(np.float32))
        found = found | (second.any(axis=0) if isinstance(op, GemmOp) else second.any(axis=(1, 2, 3))[:, None, None])
    return found


@pytest.mark.parametrize("change", [halved, one_of_a_tile])
@pytest.mark.parametrize("name", HALVES)
def test_sums_beyond_the_largest_half_are_infinite(name: str, change: Change, rng: np.random.Generator) -> None:
    """Of the clamped kernels, the infinities that come from infinite operands are kept: only overflow is clamped."""
    op = HALVES[name]

    def wrong(inputs: Sequence[Array]) -> Array:
        with np.errstate(all="ignore"):
            found = np.array(by_reference(op)(inputs)).astype(np.float16)
        kept = found.copy()
        change(found)
        return np.where(infinite_lines(op, inputs, found.shape), kept, found)

    for seed in rng.integers(2**32, size=SEEDS):
        assert CHECK in refused(wrong, op, int(seed), [Distribution.EVERYWHERE]), seed
        assert not refused(by_reference(op), op, int(seed), ALL)


def eighth_rows(found: Array) -> None:
    cleared(found, np.s_[::8, 17])


def one_place(found: Array) -> None:
    cleared(found, (13, 41))


def one_infinity(found: Array) -> None:
    clamped(found, (6, 29))


HIDDEN_FROM_THE_OTHERS: dict[str, tuple[Op, Change]] = {
    "one of each eighth row": (GEMM, eighth_rows),
    "one place": (GEMM, one_place),
    "one infinity": (GEMM, one_infinity),
    "one infinity of halves": (HALF, one_infinity),
    "one infinity of a sparse product": (SPARSE, lambda found: clamped(found, (3, 40))),
}


@pytest.mark.parametrize("name", HIDDEN_FROM_THE_OTHERS)
def test_a_whole_judgement_refuses_at_every_seed_what_passes_at_some_without_this_distribution(name: str) -> None:
    op, change = HIDDEN_FROM_THE_OTHERS[name]
    wrong = but(op, by_reference(op), change)
    passed = 0
    for seed in range(8):
        assert refused(wrong, op, seed, ALL), seed
        passed += not refused(wrong, op, seed, WITHOUT)
    assert passed, "the other distributions refuse it at each seed: it shows nothing of this one"


TAILS: dict[str, tuple[Op, Change]] = {
    "last columns of one row": (GEMM, lambda found: cleared(found, np.s_[11, 48:])),
    "last columns of the last row": (GEMM, lambda found: cleared(found, np.s_[-1, 48:])),
    "last rows of one column": (GEMM, lambda found: cleared(found, np.s_[16:, 5])),
    "infinities of the last columns": (GEMM, lambda found: clamped(found, np.s_[20, 48:])),
    "last element of a softmax's rows": (SOFTMAX, lambda found: cleared(found, np.s_[9, 96:])),
    "last elements of a log softmax's row": (LOG_SOFTMAX, lambda found: clamped(found, np.s_[9, 96:])),
}


@pytest.mark.parametrize("name", TAILS)
def test_tails_of_one_line_that_are_masked_away_are_refused(name: str, rng: np.random.Generator) -> None:
    op, change = TAILS[name]
    wrong = but(op, by_reference(op), change)
    for seed in rng.integers(2**32, size=SEEDS):
        assert CHECK in refused(wrong, op, int(seed), [Distribution.EVERYWHERE]), seed


def column_of_the_second(inputs: Sequence[Array]) -> Array:
    """A packing that clears NaN of one column of the second factor, wherever it is."""
    b = inputs[1].copy()
    cleared(b, np.s_[:, 48])
    return inputs[0] @ b


def test_nan_that_is_cleared_in_a_column_of_the_second_factor_is_refused(rng: np.random.Generator) -> None:
    for seed in rng.integers(2**32, size=SEEDS):
        assert CHECK in refused(column_of_the_second, GEMM, int(seed), [Distribution.EVERYWHERE]), seed


def reached(op: Op, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return where results are NaN in some case and where infinite, of those that are claimed."""
    cases = build_cases(op, rng, [Distribution.EVERYWHERE])
    exact = [case.bound == 0.0 for case in cases]
    nan = np.any([np.isnan(case.expected) & sure for case, sure in zip(cases, exact, strict=True)], axis=0)
    infinite = np.any([np.isinf(case.expected) & sure for case, sure in zip(cases, exact, strict=True)], axis=0)
    return nan, infinite


def test_every_result_of_the_ops_of_all_kernels_is_nan_once_and_infinite_once(rng: np.random.Generator) -> None:
    """But for what is none by its meaning; each op that is left out says so here."""
    # Without a visible key, a listed row or a term a result is 0; indices are numbers.
    others = (AttentionGradientOp, LargestOp, NormGradientOp, SumRowsOp)
    # An infinity becomes NaN, as in a variance, or what an activation makes of it.
    bounded = (RowOp, StatisticsOp, MomentsOp, PointwiseOp, PairsOp)
    left: list[str] = []
    for name, op in ops_of_all_kernels().items():
        floats = all(kind.dtype.is_float for kind in op.operands[:1])
        if isinstance(op, Conv2dOp) and op.accuracy is Accuracy.NORMWISE:
            assert not has_meaning(op, Distribution.EVERYWHERE)  # nothing of that is claimed
            continue
        if isinstance(op, others) or not floats or (isinstance(op, GemmOp) and not op.a.static_shape[-1]):
            continue
        if isinstance(op, AttentionOp) and (op.window is not None or op.spans is not None or not op.k.elements):
            continue
        nan, infinite = reached(op, rng)
        scored = isinstance(op, AttentionOp) and not op.score.is_identity
        if not nan.all() or not (infinite.all() or isinstance(op, bounded) or scored):
            left.append(f"{name}: NaN {nan.mean():.2f}, infinite {infinite.mean():.2f}")
    assert not left, left


def test_rows_of_weights_and_logarithms_are_infinite_too(rng: np.random.Generator) -> None:
    weighted = [op for op in ops_of_all_kernels().values() if isinstance(op, RowOp) and op.epilogue.operands]
    norms = [op for op in weighted if op.kind in (RowKind.LAYER_NORM, RowKind.RMS_NORM)]
    assert norms
    for op in (*norms, LOG_SOFTMAX):
        assert reached(op, rng)[1].mean() > 0.9, op.key


def test_integers_and_gradients_of_attention_have_no_turns() -> None:
    assert turns_of(GemmOp.of(m=5, n=6, k=7, dtype=DType.I8)) == 0
    assert turns_of(RIGHT["attention's gradient"][0]) == 0
    assert (turns_of(GEMM), turns_of(HALF), turns_of(SOFTMAX), turns_of(MAXIMUM)) == (4, 5, 4, 4)
