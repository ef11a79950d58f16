"""What is no flag, no sequence, no mask or no result is refused by name, before anything reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tracea
from tracea.core.expr import Input
from tracea.errors import (
    InvalidDType,
    InvalidInput,
    InvalidOp,
    InvalidShape,
    InvalidStride,
    TraceaError,
)

pytestmark = pytest.mark.whole

X = torch.randn(4, 6)
Q = torch.randn(1, 2, 5, 16)
A, B, MASK = torch.randn(33, 64), torch.randn(64, 50), torch.ones(2, 2, dtype=torch.bool)
SEVERAL = torch.ones(3)

REFUSED: dict[str, tuple[type[TraceaError], str, Callable[[], Any]]] = {
    "causal": (InvalidOp, "causal", lambda: tracea.ops.attention(Q, Q, Q, causal=SEVERAL)),
    "causal of two": (InvalidOp, "causal: got 2", lambda: tracea.ops.attention(Q, Q, Q, causal=2)),
    "a norm of a number": (InvalidShape, r"x\[None\]", lambda: tracea.ops.layer_norm(torch.tensor(1.0))),
    "no element of a number": (InvalidOp, "k: got 0, expected 1", lambda: tracea.ops.topk(torch.tensor(1.0), 0)),
    "a gradient of integers": (
        InvalidDType,
        "grad: got i64",
        lambda: tracea.ops.cross_entropy_backward(torch.tensor(1), X, torch.tensor([0, 1, 2, 3])),
    ),
    "one tensor of operands": (InvalidOp, "operands", lambda: tracea.ops.attention(Q, Q, Q, operands=Q)),
    "lengths": (
        InvalidOp,
        "lengths",
        lambda: tracea.ops.attention(Q, Q, Q, lengths=torch.ones(5, dtype=torch.int64, device="meta")),
    ),
    "padding": (
        InvalidOp,
        "padding",
        lambda: tracea.ops.conv2d(X[None, None], X[None, None], padding=bytearray(b"ab")),
    ),
    "operands": (InvalidOp, "operands", lambda: tracea.ops.attention(Q, Q, Q, operands=5)),
    "an operand that no score reads": (
        InvalidOp,
        r"operands\[0\]",
        lambda: tracea.ops.attention(Q, Q, Q, score=Input(0) * Input(2), operands=(torch.ones(5), torch.ones(5))),
    ),
    "score": (InvalidOp, "score", lambda: tracea.ops.attention(Q, Q, Q, score=[1])),
    "reduction": (
        InvalidOp,
        r"reduction: got ndarray of shape \(2,\) and dtype <U4, expected mean \| sum \| none",
        lambda: tracea.ops.cross_entropy(X, torch.zeros(4).long(), reduction=np.array(["mean", "sum"])),
    ),
    "reduction in capitals": (
        InvalidOp,
        "Remedy: use mean, if that was meant",
        lambda: tracea.ops.cross_entropy(X, torch.zeros(4).long(), reduction="Mean"),
    ),
    "factor": (
        InvalidOp,
        "factor",
        lambda: tracea.ops.block_sparse_matmul(A, B, MASK, block_size=32, factor=np.array(["a", "b"])),
    ),
    "activation in capitals": (
        InvalidOp,
        "Remedy: use gelu, if that was meant",
        lambda: tracea.ops.gemm(A, B, activation="GELU"),
    ),
    "activation of another framework": (
        InvalidOp,
        "Remedy: use leaky_relu, if that was meant",
        lambda: tracea.ops.gemm(A, B, activation="LeakyReLU"),
    ),
    "element type": (InvalidDType, "Remedy: use bfloat16 or float16, if", lambda: tracea.DType.parse("torch.bloat16")),
    "keepdim": (InvalidOp, "keepdim", lambda: tracea.ops.sum(X, 1, keepdim=SEVERAL)),
    "correction": (InvalidOp, "correction", lambda: tracea.ops.var(X, 1, correction=float("nan"))),
    "mask of bf16": (
        InvalidDType,
        "block_mask",
        lambda: tracea.ops.block_sparse_matmul(A, B, MASK.bfloat16(), block_size=32),
    ),
    "mask of f64 with queries that are not": (
        InvalidDType,
        "mask: got f64, expected f32, f16, bf16 or booleans, where q is f32",
        lambda: tracea.ops.attention(Q, Q, Q, mask=torch.zeros(5, 5).double()),
    ),
    "operand of f64 with queries that are not": (
        InvalidDType,
        r"operands\[0\]: got f64",
        lambda: tracea.ops.attention(
            *[Q.bfloat16()] * 3, score=Input(0) + Input(1), operands=(torch.zeros(5).double(),)
        ),
    ),
    "mask of f64 backward": (
        InvalidDType,
        "mask: got f64",
        lambda: tracea.ops.attention_backward(Q, Q, Q, Q, Q, mask=torch.zeros(5, 5).double()),
    ),
    "the class of tensors": (
        InvalidDType,
        "a: got the class Tensor",
        lambda: tracea.ops.gemm(torch.Tensor, torch.Tensor),
    ),
    "the class of arrays": (InvalidDType, "x: got the class ndarray", lambda: tracea.ops.sum(np.ndarray)),
    "a class as out": (InvalidDType, "out: got the class Tensor", lambda: tracea.ops.sum(X, out=torch.Tensor)),
    "ragged mask": (
        InvalidDType,
        "block_mask",
        lambda: tracea.ops.block_sparse_matmul(A, B, [[1], [1, 0]], block_size=32),
    ),
    "block": (InvalidOp, "block_size", lambda: tracea.ops.block_sparse_matmul(A, B, MASK, block_size=2**70)),
    "no array as out": (
        InvalidDType,
        "out",
        lambda: tracea.ops.block_sparse_matmul(A, B, MASK, block_size=32, out="x"),
    ),
    "out of another shape": (
        InvalidShape,
        r"out: got \(33, 50, 1\)",
        lambda: tracea.ops.block_sparse_matmul(A, B, MASK, block_size=32, out=torch.empty(33, 50, 1)),
    ),
}


class Raises:
    """A number of the caller's own, that cannot say which."""

    def __index__(self) -> int:
        raise ValueError("no number yet")


NO_NUMBERS: dict[str, Any] = {
    "a truth value": True,
    "a tensor of one": torch.tensor(True),
    "a vector of one": torch.tensor([True]),
    "an array of one": np.array(True),
    "its own error": Raises(),
    "an array": np.array([1, 2]),
    "a tensor": torch.tensor([1, 2]),
    "a float": torch.tensor(1.5),
    "no data": torch.ones((), dtype=torch.int64, device="meta"),
    "too large": 2**70,
}
ONE = torch.ones(1, 1, 1, 1)
PAIR = torch.ones(1, 1, 1, 16)
TAKES_A_NUMBER: dict[str, tuple[type[TraceaError], Callable[[Any], Any]]] = {
    "window": (InvalidOp, lambda n: tracea.ops.attention(Q, Q, Q, window=n)),
    "global_tokens": (InvalidOp, lambda n: tracea.ops.attention(Q, Q, Q, window=3, global_tokens=n)),
    "num_groups": (InvalidOp, lambda n: tracea.ops.group_norm(X, n)),
    "k": (InvalidOp, lambda n: tracea.ops.topk(X, n)),
    "ignore_index": (InvalidOp, lambda n: tracea.ops.cross_entropy(X, torch.zeros(4).long(), ignore_index=n)),
    "stride": (InvalidOp, lambda n: tracea.ops.conv2d(X[None, None], X[None, None], stride=n)),
    "dim": (InvalidShape, lambda n: tracea.ops.softmax(X, dim=n)),
    "dim of sums": (InvalidShape, lambda n: tracea.ops.sum(X, dim=n)),
    "dim of places": (InvalidShape, lambda n: tracea.ops.argmax(X, dim=n)),
    "dim of running sums": (InvalidShape, lambda n: tracea.ops.cumsum(X, dim=n)),
    "dim of several": (InvalidShape, lambda n: tracea.ops.sum(X, dim=(n,))),
    "block_size": (InvalidOp, lambda n: tracea.ops.block_sparse_matmul(A, B, MASK, block_size=n)),
    "block_size of pairs": (
        InvalidOp,
        lambda n: tracea.ops.attention(PAIR, PAIR, PAIR, block_mask=MASK[:1, :1], block_size=(n, 1)),
    ),
    "input_shape": (InvalidShape, lambda n: tracea.ops.conv2d_grad_input(ONE, ONE, (1, 1, n, 1))),
    "weight_shape": (InvalidShape, lambda n: tracea.ops.conv2d_grad_weight(ONE, ONE, (1, 1, n, 1))),
    "lengths": (InvalidInput, lambda n: tracea.ops.attention(PAIR, PAIR, PAIR, lengths=[n])),
}


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("name", TAKES_A_NUMBER)
def test_what_is_no_whole_number_is_refused_by_name(name: str, value: str) -> None:
    kind, call = TAKES_A_NUMBER[name]
    with pytest.raises(kind, match=f"{name.split(maxsplit=1)[0]}: got .*Remedy: "):
        call(NO_NUMBERS[value])


@pytest.mark.parametrize("shape", [torch.ones(4, dtype=torch.bool), torch.ones(4, dtype=torch.int64, device="meta")])
def test_a_shape_of_truth_values_or_without_data_is_refused(shape: torch.Tensor) -> None:
    with pytest.raises(InvalidShape, match=r"input_shape: got .*, expected four extents"):
        tracea.ops.conv2d_grad_input(ONE, ONE, shape)
    with pytest.raises(InvalidOp, match="lengths: got Tensor, expected a sequence of whole numbers"):
        tracea.ops.attention(PAIR, PAIR, PAIR, lengths=shape[:1])


def test_numbers_of_arrays_are_numbers() -> None:
    assert torch.equal(tracea.ops.conv2d_grad_input(ONE, ONE, torch.tensor([1, 1, 1, 1])), ONE)
    assert torch.equal(
        tracea.ops.block_sparse_matmul(A, B, MASK, block_size=np.int64(32)),
        tracea.ops.block_sparse_matmul(A, B, MASK, block_size=32),
    )
    assert torch.equal(tracea.ops.sum(X, torch.tensor(1)), tracea.ops.sum(X, 1))
    assert torch.equal(tracea.ops.topk(X, np.int64(2))[1], X.topk(2).indices)


def test_gradients_of_attention_take_what_attention_takes() -> None:
    class Foreign:
        def __init__(self, array: torch.Tensor) -> None:
            self.__dlpack__ = array.__dlpack__
            self.__dlpack_device__ = array.__dlpack_device__

    found = tracea.ops.attention_backward(*[Foreign(Q)] * 5)
    for got, wanted in zip(found, tracea.ops.attention_backward(*[Q] * 5), strict=True):
        np.testing.assert_array_equal(got, wanted.numpy())


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str) -> None:
    kind, match, call = REFUSED[name]
    with pytest.raises(kind, match=match):
        call()


def test_flags_of_numpy_are_flags() -> None:
    assert tracea.ops.sum(X, 1, keepdim=np.True_).shape == (4, 1)


def _read_only(*shape: int) -> np.ndarray[Any, Any]:
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


NOTHING = np.zeros((0, 3), np.float32)
OF_NOTHING: dict[str, tuple[type[TraceaError], Callable[[], Any]]] = {
    "read-only": (InvalidStride, lambda: tracea.ops.mean(NOTHING, dim=0, out=_read_only(3))),
    "over itself": (
        InvalidStride,
        lambda: tracea.ops.sum(
            NOTHING, dim=0, out=np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3,), (0,), writeable=True)
        ),
    ),
    "expanded": (
        InvalidStride,
        lambda: tracea.ops.prod(torch.ones(0, 3), dim=0, out=torch.zeros(1).expand(3)),
    ),
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_an_out_for_a_reduction_of_nothing_is_checked_as_any_other(name: str) -> None:
    error, call = OF_NOTHING[name]
    with pytest.raises(error, match="out"):
        call()
