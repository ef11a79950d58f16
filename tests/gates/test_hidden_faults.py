"""What hides behind other operands is seen: subnormals of products and norms, NaN of one operand among many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.kernels.cases import vector_groups

from tracea.core import reference
from tracea.core.op import Op
from tracea.gates import Bench, Distribution, Run, build_cases, check_correctness

Array: TypeAlias = np.ndarray[Any, Any]

OPS = {case.name: case.op for group in vector_groups() for case in group}
FLUSHED = [
    ("dot_columns", 0, Distribution.DENORMAL),
    ("dot_columns", 1, Distribution.DENORMAL),
    ("packed_columns", 0, Distribution.DENORMAL),
    ("grouped", 0, Distribution.DENORMAL),
    ("grouped", 1, Distribution.DENORMAL),
    ("conv_default", 0, Distribution.DENORMAL),
    ("conv_groups", 0, Distribution.DENORMAL),
    ("conv_groups", 1, Distribution.DENORMAL),
    ("attention_default", 2, Distribution.DENORMAL),
    ("attention_bf16", 2, Distribution.DENORMAL),
    ("rms_norm_together", 0, Distribution.EXTREME),
    ("rms_norm_bf16", 0, Distribution.EXTREME),
    ("low_rank_default", 0, Distribution.DENORMAL),
    ("low_rank_default", 1, Distribution.DENORMAL),
    ("low_rank_f64", 0, Distribution.DENORMAL),
]
SWALLOWED = [
    (name, index)
    for name in ("dot_columns", "layer_norm", "sum_rows", "rms_norm_together", "conv_groups", "sparse_default")
    for index, operand in enumerate(OPS[name].operands)
    if operand.dtype.is_float
]


def right(op: Op, inputs: Sequence[Array]) -> Array:
    kind = op.infer().dtype
    with np.errstate(all="ignore"):
        return kind.round(np.asarray(reference.evaluate(op, tuple(inputs)), np.float64)).astype(kind.numpy)


def faulty(op: Op, index: int, change: Callable[[Array], Array]) -> Run:
    """A right kernel of what one operand would be after ``change``."""

    def run(inputs: Sequence[Array], out: Array) -> None:
        changed = [np.array(each) for each in inputs]
        changed[index] = change(changed[index]).astype(changed[index].dtype)
        out[...] = right(op, changed)

    return run


def failures(run: Run, op: Op, distribution: Distribution, rng: np.random.Generator) -> list[str]:
    cases = build_cases(op, rng, [distribution])
    return [check.name for check in check_correctness(run, Bench(op), cases) if not check.passed]


@pytest.mark.parametrize(("name", "index", "distribution"), FLUSHED)
def test_a_flush_of_one_operand_shows(
    name: str, index: int, distribution: Distribution, rng: np.random.Generator
) -> None:
    op = OPS[name]
    kind = op.operands[index].dtype
    normal = kind.smallest / kind.eps

    def flushed(x: Array) -> Array:
        return np.where(np.abs(x.astype(np.float64)) < normal, 0.0, x.astype(np.float64))

    assert failures(faulty(op, index, flushed), op, distribution, rng) == [f"correct on {distribution.value}"]
    assert not failures(faulty(op, index, lambda x: x), op, distribution, rng)


@pytest.mark.parametrize(("name", "index"), SWALLOWED)
def test_a_nan_of_any_operand_shows(name: str, index: int, rng: np.random.Generator) -> None:
    op = OPS[name]

    def swallowed(x: Array) -> Array:
        return np.where(np.isnan(x), 0.0, x)

    assert "correct on nonfinite" in failures(faulty(op, index, swallowed), op, Distribution.NONFINITE, rng)
    assert not failures(faulty(op, index, lambda x: x), op, Distribution.NONFINITE, rng)
