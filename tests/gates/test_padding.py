"""Padding under a filter that is not finite: a kernel may multiply its zeros or skip them; inside nothing is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tracea.core.op import Conv2dOp
from tracea.gates import Distribution, Run, build_cases, judge

Array = np.ndarray[Any, Any]
DEPTHWISE = Conv2dOp.of(channels=6, size=(5, 7), filters=6, kernel=(3, 3), padding=(1, 1), groups=6)


def taps(kind: str) -> Run:
    """A depthwise convolution, tap by tap."""

    def run(inputs: Sequence[Array], out: Array) -> None:
        x, w = inputs
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        inside = np.pad(np.ones(x.shape, np.bool_), ((0, 0), (0, 0), (1, 1), (1, 1)))
        total = np.zeros(out.shape, np.float32)
        for r in range(3):
            for s in range(3):
                window = (..., slice(r, r + 5), slice(s, s + 7))
                product = padded[window] * w[None, :, 0, r, s, None, None]
                match kind:
                    case "skips":
                        product = np.where(inside[window], product, np.float32(0))
                    case "swallows":
                        product = np.nan_to_num(product, nan=0.0, posinf=np.inf, neginf=-np.inf)
                    case _:
                        pass
                total += product
        out[...] = total

    return run


@pytest.mark.parametrize("kind", ["multiplies", "skips"])
def test_a_kernel_may_hold_the_padding_or_skip_it(kind: str, rng: np.random.Generator) -> None:
    for _ in range(8):  # where the odd taps fall is drawn anew each time
        verdict = judge(taps(kind), DEPTHWISE, seed=int(rng.integers(2**32)), runs=2)
        assert verdict.passed, str(verdict)


def test_a_kernel_that_swallows_nan_inside_of_the_image_is_rejected(seed: int) -> None:
    assert "correct on nonfinite" in [check.name for check in judge(taps("swallows"), DEPTHWISE, seed=seed).failures]


def test_the_inside_of_an_image_is_claimed_whatever_the_filters_hold(rng: np.random.Generator) -> None:
    for case in build_cases(DEPTHWISE, rng, [Distribution.NONFINITE] * 8):
        assert not np.isinf(case.bound[:, :, 1:-1, 1:-1]).any()
