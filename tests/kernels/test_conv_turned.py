"""Convolutions whose taps are turned and whose result's size is stated: against float64, and seen by the proof."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.drawn import drawn
from tests.kernels.conformance import Case, build, check, random_inputs, unit_of
from tests.kernels.native import one_of_the_isas
from tests.kernels.test_conv import DTYPES, pick, random_conv

from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp, from_dict
from tracea.core.reference import evaluate
from tracea.errors import InvalidOp, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.semantic.proofs import prove
from tracea.targets import load

VARIANTS = ("conv.packed", "conv.prepacked", "conv.depthwise", "conv.depthwise_prepacked")


def turned(rng: np.random.Generator, op: Conv2dOp) -> Conv2dOp:
    """Return a plain convolution of ``op``'s operands, its taps turned, its result larger or smaller than what fits."""
    rows, columns = (max(1, int(str(dim)) + pick(rng, -2, -1, 0, 1, 3)) for dim in op.shape[2:])
    return Conv2dOp(
        x=op.x,
        w=op.w,
        stride=op.stride,
        padding=op.padding,
        dilation=op.dilation,
        groups=op.groups,
        size=(rows, columns),
        turned=True,
    )


@pytest.mark.parametrize("isa", one_of_the_isas("turned convolutions", vectors=True))
@pytest.mark.parametrize("variant", drawn(2, VARIANTS, of="turned variants"))
def test_turned_convolutions_of_any_size_match_float64(variant: str, isa: str, rng: np.random.Generator) -> None:
    target, cases = load(isa), []
    for number, dtype in enumerate((*DTYPES, DType.F32, DType.F32)):
        groups = pick(rng, 1, 5, 33) if "depthwise" in variant else None
        op = turned(rng, random_conv(rng, dtype=dtype, groups=groups, multiples=groups is None))
        cases.append(Case.of(f"turned{number}", variant, op))
    unit = unit_of(tuple(cases), isa)
    for case in cases:
        assert find(variant).unmet(case.op, target) == ()
        for threads in (1, 3):
            check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


def test_meaning_turns_the_taps_and_pads_what_the_size_reaches() -> None:
    x, w = np.arange(1.0, 6.0).reshape(1, 1, 1, 5), np.array([1.0, 10.0, 100.0]).reshape(1, 1, 1, 3)
    op = Conv2dOp.of(channels=1, size=(1, 5), filters=1, kernel=(1, 3), dtype=DType.F64)
    assert evaluate(op, [x, w]).ravel().tolist() == [321, 432, 543]
    assert evaluate(replace(op, turned=True), [x, w]).ravel().tolist() == [123, 234, 345]
    sized = replace(op, size=(1, 6), padding=(0, 1), out=None)
    assert evaluate(sized, [x, w]).ravel().tolist() == [210, 321, 432, 543, 54, 5]


def test_a_size_that_says_the_default_is_none_and_every_other_is_kept() -> None:
    op = Conv2dOp.of(channels=3, size=(9, 8), filters=2, kernel=(3, 3), stride=(2, 1))
    assert replace(op, size=(4, 6)) == op
    assert replace(op, size=(4, 6)).key == op.key
    other = replace(op, size=(5, 6), turned=True)
    assert from_dict(other.to_dict()) == other
    assert other.shape == (1, 2, 5, 6)
    with pytest.raises(InvalidOp, match="Remedy: "):
        replace(op, size=(0, 6))


def test_a_kernel_in_order_refuses_an_op_whose_taps_are_turned() -> None:
    op = Conv2dOp.of(channels=3, size=(9, 8), filters=2, kernel=(3, 3))
    kernel = build(Case.of("in order", "conv.packed", op), "plain").kernel
    with pytest.raises(InvalidOp, match="taps"):
        arguments(kernel, replace(op, turned=True))


@pytest.mark.parametrize("isa", ["plain", "amx"])
def test_packing_the_taps_in_order_for_a_turned_op_is_refused(isa: str) -> None:
    op = Conv2dOp.of(channels=16, size=(20, 20), filters=16, kernel=(3, 3), padding=(1, 1))
    kernel = build(Case.of("in order", "conv.amx" if isa == "amx" else "conv.packed", op), isa).kernel
    prove(kernel)
    with pytest.raises(ProofFailed, match="packed taps"):
        prove(replace(kernel, op=replace(op, turned=True)))


def test_every_variant_that_fits_a_convolution_fits_it_turned() -> None:
    op = Conv2dOp.of(channels=8, size=(9, 8), filters=8, kernel=(3, 3), groups=8)
    names = [variant.id for variant in candidates(op, load("avx2"))]
    assert names
    assert names == [variant.id for variant in candidates(replace(op, turned=True), load("avx2"))]
