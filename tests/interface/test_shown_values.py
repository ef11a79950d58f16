"""What was given is shown as it was: a string in quotes, an array by its type, an overlap by its argument."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import tracea
from tracea.errors import InvalidDType, InvalidInput, InvalidStride, OverlappingOutput

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


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda it: tracea.ops.softmax(A, it), "dim"),
        (lambda it: tracea.ops.sum(A, it), "dim"),
        (lambda it: tracea.ops.layer_norm(A, None, None, it), "eps"),
        (lambda it: tracea.ops.rms_norm(A, A[0], it), "eps"),
        (lambda it: tracea.ops.group_norm(X, it), "num_groups"),
        (lambda it: tracea.ops.conv2d(X, W, stride=it), "stride"),
        (lambda it: tracea.ops.conv2d(X, W, stride=(1, it)), "stride"),
        (lambda it: tracea.ops.conv2d(X, W, padding=it), "padding"),
        (lambda it: tracea.ops.conv2d(X, W, activation=it), "activation"),
        (lambda it: tracea.ops.max_pool2d(X, it), "kernel_size"),
        (lambda it: tracea.ops.max_pool2d(X, 2, ceil_mode=it), "ceil_mode"),
        (lambda it: tracea.ops.adaptive_avg_pool2d(X, it), "output_size"),
        (lambda it: tracea.ops.gemm(A, A, alpha=it), "alpha"),
        (lambda it: tracea.ops.topk(A, it), "k"),
        (lambda it: tracea.ops.attention(X, X, X, causal=it), "causal"),
        (tracea.load, "path"),
        (lambda it: tracea.Budget(trials=it), "budget.trials"),
    ],
)
@pytest.mark.parametrize(
    ("it", "shown"),
    [
        (torch.full((3, 2), 0.625), "Tensor of shape (3, 2) and dtype torch.float32"),
        (np.full((3, 2), 0.625), "ndarray of shape (3, 2) and dtype float64"),
    ],
    ids=["torch", "numpy"],
)
def test_an_array_in_the_place_of_a_number_is_shown_by_its_type_and_not_by_its_elements(
    call: Callable[[object], object], field: str, it: object, shown: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        call(it)
    assert f"{field}: got {shown}" in str(caught.value)
    assert "0.625" not in str(caught.value)


def test_what_an_array_cannot_say_of_itself_is_left_out() -> None:
    class Hostile(np.ndarray):
        @property
        def shape(self) -> None:  # type: ignore[override]
            raise RuntimeError

    with pytest.raises(InvalidInput, match="dim: got Hostile, expected an axis"):
        tracea.ops.softmax(A, np.zeros((2, 2)).view(Hostile))


@pytest.mark.parametrize(
    "call",
    [
        lambda: tracea.ops.layer_norm(A, 1e-3, A[0]),
        lambda: tracea.ops.layer_norm(A, A[0], 1e-3),
        lambda: tracea.ops.rms_norm(A, 1e-3),
        lambda: tracea.ops.group_norm(X, 3, 1e-3),
    ],
)
def test_an_eps_in_the_place_of_a_parameter_is_told_its_name(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidDType, match=r"(weight|bias): got 0\.001, .* Remedy: give it by name: eps=0\.001"):
        call()


@pytest.mark.parametrize("size", [None, 0, (0, 1), 2.5, (2, 2, 2)])
def test_a_window_is_told_a_size_that_pools_something(size: object) -> None:
    for pool in (tracea.ops.max_pool2d, tracea.ops.avg_pool2d):
        with pytest.raises(InvalidInput, match=r"Remedy: kernel_size=2$"):
            pool(X, size)


FLOATS = ("f64", "f32", "f16", "bf16")
ROW = np.zeros(8, np.int64)


@pytest.mark.parametrize(
    ("op", "field", "taken"),
    [
        (tracea.ops.softmax, "x", FLOATS),
        (tracea.ops.mean, "x", FLOATS),
        (lambda it: tracea.ops.gemm(A, A, residual=it), "residual", FLOATS),
        (lambda it: tracea.ops.softmax(A, out=it), "out", FLOATS),
        (tracea.ops.sum, "x", (*FLOATS, "i64", "i32", "i8", "u8", "bool")),
        (tracea.ops.argmax, "x", (*FLOATS, "i64", "i32", "i8", "u8", "bool")),
        (lambda it: tracea.ops.argmax(A, 0, out=it), "out", "i64"),
        (lambda it: tracea.ops.sum(A, 0, out=it), "out", "the result's own type"),
        (lambda it: tracea.ops.embedding(it, A), "indices", ("i64", "i32")),
        (lambda it: tracea.ops.cross_entropy(A, it), "target", ("i64", "i32")),
        (lambda it: tracea.ops.attention(X, X, X, mask=it), "mask", (*FLOATS, "bool")),
        (tracea.ops.fuse(["relu"]), "operand 0", (*FLOATS, "i32", "i8", "u8", "bool")),
    ],
)
def test_an_unknown_element_type_is_told_those_that_this_op_takes(
    op: Callable[[object], object], field: str, taken: object
) -> None:
    for unknown in (np.zeros((8, 8), np.complex64), torch.zeros(8, 8, dtype=torch.int16)):
        with pytest.raises(InvalidDType) as caught:
            op(unknown)
        assert caught.value.field == field
        assert caught.value.expected in (taken, (taken,))


@pytest.mark.parametrize(
    "call",
    [
        lambda: tracea.ops.sum(A, 0, out=np.broadcast_to(A[0, :1], 8)),
        lambda: tracea.ops.var(A, 0, out=np.broadcast_to(A[0, :1], 8)),
        lambda: tracea.ops.argmax(A, 0, out=np.broadcast_to(ROW[:1], 8)),
        lambda: tracea.ops.softmax(A, out=np.broadcast_to(A[0], (8, 8))),
        lambda: tracea.ops.layer_norm(A, out=np.broadcast_to(A[0], (8, 8))),
        lambda: tracea.ops.gemm(A, A, out=np.broadcast_to(A[0], (8, 8))),
        lambda: tracea.ops.cumsum(A, 0, out=np.broadcast_to(A[0], (8, 8))),
        lambda: tracea.ops.max_pool2d(X, 2, out=np.broadcast_to(X[:1, :1, :1, :1], (2, 3, 4, 4))),
    ],
)
def test_an_expanded_out_is_called_out(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidStride, match=r"^out: got \(.*, expected one address per element"):
        call()
