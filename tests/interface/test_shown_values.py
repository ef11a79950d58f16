"""What was given is shown as it was: a string in quotes where a number is expected, an overlap by its operand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tracea
from tracea.errors import InvalidInput, OverlappingOutput

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
        (lambda: tracea.ops.gemm(A, A, out=A), "out: got 256 bytes in which a lies too, expected memory of"),
    ],
)
def test_an_error_shows_what_was_given(call: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda residual, out: tracea.ops.gemm(A, A, residual=residual, out=out),
        lambda residual, out: tracea.ops.gemm(A, A, bias=A[0], residual=residual, out=out),
        lambda residual, out: tracea.ops.gemm(A, tracea.ops.prepack(A), residual=residual, out=out),
        lambda residual, out: tracea.ops.conv1d(A[None], A[:, :, None], residual=residual[None], out=out[None]),
        lambda residual, out: tracea.ops.conv2d(
            A[None, :, None], A[:, :, None, None], residual=residual[None, :, None], out=out[None, :, None]
        ),
    ],
)
def test_an_overlap_names_the_argument_that_was_given_at_the_first_call_and_later(
    call: Callable[[np.ndarray, np.ndarray], object],
) -> None:
    memory = np.zeros(96, np.float32)
    residual, out = memory[:64].reshape(8, 8), memory[32:].reshape(8, 8)
    for _ in range(2):
        with pytest.raises(
            OverlappingOutput, match=r"out: got 128 bytes in which residual lies too.*or copy residual$"
        ):
            call(residual, out)


def test_an_overlap_is_named_by_the_operands_that_were_left_out_too() -> None:
    memory = np.zeros(96, np.float32)
    bias, out = memory[:8], memory[:64].reshape(8, 8)
    with pytest.raises(OverlappingOutput, match="32 bytes in which bias lies too"):
        tracea.ops.layer_norm(A, None, bias, out=out)
