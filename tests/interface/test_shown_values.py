"""What was given is shown as it was: a string in quotes where a number is expected, an overlap by its operand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tracea
from tracea.errors import InvalidInput

X = np.ones((2, 3, 8, 8), np.float32)
W = np.ones((4, 3, 3, 3), np.float32)
A = np.ones((8, 8), np.float32)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tracea.ops.gemm(A, A, alpha="2"), "alpha: got '2', expected a number"),
        (lambda: tracea.Budget(seconds="60"), "budget.seconds: got '60', expected a positive"),
        (lambda: tracea.Budget(trials="4"), "budget.trials: got '4', expected an integer"),
        (lambda: tracea.ops.layer_norm(A, eps="x"), "eps: got 'x', expected a number"),
        (lambda: tracea.ops.conv2d(X, W, groups="1"), "groups: got '1', expected whole numbers"),
        (lambda: tracea.ops.conv2d(X, W, padding="SAME"), 'Remedy: use "same", if that was meant; pad the image'),
        (lambda: tracea.ops.conv2d(X, W, padding="same", stride=2), "Remedy: pad the image"),
        (lambda: tracea.ops.gemm(A, A, out=A), "out: got 256 bytes in which operand 0 lies too, expected memory of"),
    ],
)
def test_an_error_shows_what_was_given(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert said in str(caught.value)
