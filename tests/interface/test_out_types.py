"""What an ``out`` of another element type is told: the one that is needed, by every op that takes no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tracea import ops
from tracea.errors import InvalidDType

pytestmark = pytest.mark.usefixtures("one_thread")

X, IMAGE, SIGNAL = torch.randn(4, 8), torch.randn(2, 4, 9, 9), torch.randn(2, 4, 20)
BF16, F64, I32 = torch.bfloat16, torch.float64, torch.int32
NEEDED = "give an out of {}, or leave it out and convert the result"

CALLS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], str]] = {
    "softmax": (lambda out: ops.softmax(X, out=out), (4, 8), "f32"),
    "group_norm": (lambda out: ops.group_norm(IMAGE, 2, out=out), (2, 4, 9, 9), "f32"),
    "conv1d": (lambda out: ops.conv1d(SIGNAL, torch.randn(6, 4, 3), out=out), (2, 6, 18), "f32"),
    "copy": (lambda out: ops.copy(X, out=out), (4, 8), "f32"),
    "cumsum": (lambda out: ops.cumsum(X, 1, out=out), (4, 8), "f32"),
    "mean": (lambda out: ops.mean(X, 1, out=out), (4,), "f32"),
    "any": (lambda out: ops.any(X > 0, 1, out=out), (4,), "bool"),
    "argmax": (lambda out: ops.argmax(X, 1, out=out), (4,), "i64"),
    "embedding": (lambda out: ops.embedding(torch.tensor([1, 2]), X, out=out), (2, 8), "f32"),
    "activation_backward": (lambda out: ops.activation_backward(X, X, "relu", out=out), (4, 8), "f32"),
}
# These take an out of any floats, but for f64, which is throughout or not at all.
OF_FLOATS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "gemm": (lambda out: ops.gemm(X, torch.randn(8, 5), out=out), (4, 5)),
    "conv2d": (lambda out: ops.conv2d(IMAGE, torch.randn(6, 4, 3, 3), out=out), (2, 6, 7, 7)),
    "attention": (lambda out: ops.attention(*[X.reshape(1, 2, 4, 4)] * 3, out=out), (1, 2, 4, 4)),
    "max_pool2d": (lambda out: ops.max_pool2d(IMAGE, 3, out=out), (2, 4, 3, 3)),
    "avg_pool2d": (lambda out: ops.avg_pool2d(IMAGE, 3, out=out), (2, 4, 3, 3)),
    "adaptive_avg_pool2d": (lambda out: ops.adaptive_avg_pool2d(IMAGE, 4, out=out), (2, 4, 4, 4)),
}


@pytest.mark.parametrize("dtype", [BF16, F64, I32])
@pytest.mark.parametrize("name", CALLS)
def test_the_type_that_is_needed_is_named(name: str, dtype: torch.dtype) -> None:
    call, shape, needed = CALLS[name]
    with pytest.raises(InvalidDType) as caught:
        call(torch.empty(shape, dtype=dtype))
    assert caught.value.field == "out"
    assert caught.value.remedy == NEEDED.format(needed)


@pytest.mark.parametrize("name", OF_FLOATS)
def test_an_out_of_another_arithmetic_is_refused_and_one_of_less_precision_is_written(name: str) -> None:
    call, shape = OF_FLOATS[name]
    for dtype in (F64, I32):
        with pytest.raises(InvalidDType) as caught:
            call(torch.empty(shape, dtype=dtype))
        assert caught.value.field == "out"
        assert caught.value.remedy == NEEDED.format("f32")
    out = torch.empty(shape, dtype=BF16)
    assert call(out) is out


def test_pooling_in_double_precision_writes_no_single() -> None:
    image, single = IMAGE.double(), torch.empty(2, 4, 3, 3)
    with pytest.raises(InvalidDType, match=r"operands f64, out f32, .*Remedy: give an out of f64"):
        ops.max_pool2d(image, 3, out=single)
    assert torch.equal(ops.max_pool2d(image, 3, out=single.double()), torch.nn.functional.max_pool2d(image, 3))
