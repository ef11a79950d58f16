"""Transposed convolutions and the gradients of convolutions against float64, by fresh seeds; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.accuracy import TORCH
from tests.interface.aten_calls import AtenCalls
from torch.nn import functional

import tracea
from tracea.core.dtype import DType
from tracea.errors import InvalidDType, InvalidInput, InvalidOp, InvalidShape, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")

# Rounding errors of one sum of the tested lengths, relative to the sum of its products' magnitudes.
TOLERANCE = {DType.F64: 1e-13, DType.F32: 2e-5, DType.F16: 2e-3, DType.BF16: 1.6e-2}


def pick(rng: np.random.Generator, *values: int) -> int:
    return int(rng.choice(values))


def pair(rng: np.random.Generator, low: int, high: int) -> tuple[int, int]:
    first, second = rng.integers(low, high, 2)
    return int(first), int(second)


def tensor(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], *, last: Any = None) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape)).to(TORCH[dtype])
    is_last = rng.integers(2) if last is None else last
    return made.contiguous(memory_format=torch.channels_last) if is_last else made


def assert_close(found: torch.Tensor, expected: torch.Tensor, magnitude: torch.Tensor, dtype: DType) -> None:
    """Compare with float64; ``magnitude`` is the same op of the operands' magnitudes."""
    assert found.shape == expected.shape
    assert found.dtype is TORCH[dtype]
    wrong = ~((found.double() - expected).abs() <= TOLERANCE[dtype] * (magnitude + 1e-30))
    assert not wrong.any(), (int(wrong.sum()), found[wrong][:3], expected[wrong][:3])


def random_numbers(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "stride": pair(rng, 1, 4),
        "padding": pair(rng, 0, 4),
        "dilation": pair(rng, 1, 4),
        "groups": pick(rng, 1, 1, 2, 3),
    }


@pytest.mark.costly
def test_random_transposed_convolutions(rng):
    done = 0
    while done < 3:
        dtype = (DType.F32, DType.F32, DType.F64, DType.BF16, DType.F16)[rng.integers(5)]
        given, size, taps = random_numbers(rng), pair(rng, 1, 9), pair(rng, 1, 5)
        given["output_padding"] = tuple(
            int(rng.integers(0, max(step, gap))) for step, gap in zip(given["stride"], given["dilation"], strict=True)
        )
        groups = given["groups"]
        x = tensor(rng, dtype, (pick(rng, 1, 2), groups * pick(rng, 1, 3, 8), *size))
        weight = tensor(rng, dtype, (x.shape[1], pick(rng, 1, 5, 17), *taps))
        bias = tensor(rng, dtype, (groups * weight.shape[1],), last=False) if rng.integers(2) else None
        operands = [None if each is None else each.double() for each in (x, weight, bias)]
        magnitudes = [None if each is None else each.abs() for each in operands]
        try:
            expected = functional.conv_transpose2d(*operands, **given)
        except RuntimeError:
            with pytest.raises(InvalidShape, match="Remedy: "):
                tracea.ops.conv_transpose2d(x, weight, bias, **given)
            continue
        magnitude = functional.conv_transpose2d(*magnitudes, **given)
        out = torch.full(expected.shape, float("nan"), dtype=x.dtype)
        assert tracea.ops.conv_transpose2d(x, weight, bias, **given, activation="relu", out=out) is out
        assert_close(out, expected.relu(), magnitude, dtype)
        done += 1


@pytest.mark.costly
def test_random_gradients(rng):
    done = 0
    while done < 3:
        dtype = (DType.F32, DType.F32, DType.F64, DType.BF16)[rng.integers(4)]
        given, size, taps = random_numbers(rng), pair(rng, 1, 14), pair(rng, 1, 5)
        groups = given["groups"]
        x = tensor(rng, dtype, (pick(rng, 1, 2, 3), groups * pick(rng, 1, 3, 8), *size))
        weight = tensor(rng, dtype, (groups * pick(rng, 1, 2, 17), x.shape[1] // groups, *taps))
        reach = [gap * (tap - 1) + 1 for gap, tap in zip(given["dilation"], taps, strict=True)]
        if any(length + 2 * pad < span for length, pad, span in zip(size, given["padding"], reach, strict=True)):
            continue
        shape = functional.conv2d(x.float(), weight.float(), **given).shape
        grad = tensor(rng, dtype, tuple(shape))
        found = tracea.ops.conv2d_grad_input(grad, weight, x.shape, **given)
        numbers = tuple(given.values())
        double = [each.double() for each in (x, weight, grad)]
        expected, magnitude = (
            torch.nn.grad.conv2d_input(x.shape, of(double[1]), of(double[2]), *numbers)
            for of in (torch.clone, torch.abs)
        )
        assert_close(found, expected, magnitude, dtype)
        found = tracea.ops.conv2d_grad_weight(x, grad, weight.shape, **given)
        expected, magnitude = (
            torch.nn.grad.conv2d_weight(of(double[0]), weight.shape, of(double[2]), *numbers)
            for of in (torch.clone, torch.abs)
        )
        assert_close(found, expected, magnitude, dtype)
        done += 1


@pytest.mark.costly
@pytest.mark.parametrize(
    ("batch", "groups", "last", "given"),
    [
        (2, 1, False, {"padding": (1, 2), "dilation": (2, 1)}),
        (1, 2, False, {"padding": 1, "stride": (2, 1)}),
        (1, 1, True, {"padding": 1, "stride": 2}),
        (3, 1, True, {"padding": (0, 1), "stride": (2, 1)}),
        (1, 1, False, {"padding": (1, 1), "stride": 2}),
    ],
    ids=["columns and images", "columns and groups", "columns last", "merged", "images"],
)
def test_gradients_of_filters_whichever_axis_is_summed_as_channels(rng, batch, groups, last, given):
    x = tensor(rng, DType.F32, (batch, 11 * groups, 9, 23), last=last)
    weight = torch.empty(5 * groups, 11, 3, 3)
    numbers = [given.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    grad = tensor(rng, DType.F32, tuple(functional.conv2d(x, weight.zero_(), None, *numbers, groups).shape))
    expected, magnitude = (
        torch.nn.grad.conv2d_weight(of(x.double()), weight.shape, of(grad.double()), *numbers, groups)
        for of in (torch.clone, torch.abs)
    )
    out = torch.full(weight.shape, float("nan"))
    tracea.ops.conv2d_grad_weight(x, grad, weight.shape, **given, groups=groups, out=out)
    assert_close(out, expected, magnitude, DType.F32)


class _Conv2d(torch.autograd.Function):
    """A convolution whose three products are ours."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.given = given
        return tracea.ops.conv2d(x.detach(), weight.detach(), **given)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight = (each.detach() for each in ctx.saved_tensors)
        return (
            tracea.ops.conv2d_grad_input(grad, weight, x.shape, **ctx.given),
            tracea.ops.conv2d_grad_weight(x, grad, weight.shape, **ctx.given),
            None,
        )


@pytest.mark.costly
@pytest.mark.parametrize("last", drawn(1, [False, True], of="gradcheck, order"), ids=["rows", "last"])
@pytest.mark.parametrize(
    "given",
    drawn(
        1,
        [{"padding": 1}, {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)}, {"groups": 2, "stride": 2}],
        of="gradcheck",
    ),
    ids=["plain", "strided", "groups"],
)
def test_gradcheck_in_float64(rng, given, last):
    x = tensor(rng, DType.F64, (2, 4, 5, 6), last=last).requires_grad_()
    weight = tensor(rng, DType.F64, (4, 4 // given.get("groups", 1), 3, 2), last=last).requires_grad_()
    assert torch.autograd.gradcheck(lambda *both: _Conv2d.apply(*both, given), (x, weight))


def test_no_call_of_aten(rng):
    x, weight = tensor(rng, DType.F32, (2, 8, 9, 9)), tensor(rng, DType.F32, (6, 8, 3, 3))
    grad, signal = tensor(rng, DType.F32, (2, 6, 5, 5)), tensor(rng, DType.F32, (2, 8, 9), last=False)
    filters = tensor(rng, DType.F32, (6, 8, 3), last=False)
    given = {"stride": 2, "padding": 1}
    outs = [torch.empty(shape) for shape in ((2, 8, 9, 9), (6, 8, 3, 3), (2, 8, 10, 10), (2, 6, 5))]
    with AtenCalls():
        tracea.ops.sum(x)  # a process's first call under a mode makes a tensor of torch's
    with AtenCalls() as counted:
        functional.conv2d(x, weight)
    assert counted.calls > 0
    for _ in range(2):  # a new signature, then a known one
        with AtenCalls() as counted:
            tracea.ops.conv2d_grad_input(grad, weight, (2, 8, 9, 9), **given, out=outs[0])
            tracea.ops.conv2d_grad_weight(x, grad, (6, 8, 3, 3), **given, out=outs[1])
            tracea.ops.conv_transpose2d(grad, weight, **given, output_padding=1, out=outs[2])
            tracea.ops.conv1d(signal, filters, **given, out=outs[3])
        assert counted.calls == 0


@pytest.mark.costly
def test_result_has_the_order_of_the_image(rng):
    for last in (False, True):
        order = torch.channels_last if last else torch.contiguous_format
        x = tensor(rng, DType.F32, (2, 3, 5, 4), last=last)
        weight = tensor(rng, DType.F32, (3, 6, 3, 3), last=False)
        assert tracea.ops.conv_transpose2d(x, weight, stride=2).is_contiguous(memory_format=order)
        image = tensor(rng, DType.F32, (2, 6, 7, 6), last=last)
        assert tracea.ops.conv2d_grad_input(x, weight, image.shape).is_contiguous(memory_format=order)
        assert tracea.ops.conv2d_grad_weight(image, x, weight.shape).is_contiguous(memory_format=order)


def test_numpy_arrays_and_gaps_are_read_where_they_lie(rng):
    x = rng.standard_normal((2, 8, 10, 6)).astype(np.float32)[:, ::2, 1::2, ::2]
    weight = rng.standard_normal((4, 3, 3, 4)).astype(np.float32).swapaxes(2, 3)
    result = tracea.ops.conv_transpose2d(x, weight, stride=3, padding=1)
    assert isinstance(result, np.ndarray)
    expected = functional.conv_transpose2d(torch.tensor(x).double(), torch.tensor(weight).double(), stride=3, padding=1)
    assert np.abs(result - expected.numpy()).max() < 1e-4


@pytest.mark.costly
def test_rows_that_nothing_reaches_are_the_epilogue_of_zero_whatever_the_operands_hold():
    x, weight = torch.full((1, 1, 2, 2), float("nan")), torch.full((1, 1, 1, 1), float("inf"))
    result = tracea.ops.conv_transpose2d(x, weight, torch.tensor([2.5]), stride=3, output_padding=1)
    reached = torch.zeros(5, 5, dtype=torch.bool)
    reached[0::3, 0::3] = True
    assert result[0, 0][reached].isnan().all()
    assert (result[0, 0][~reached] == 2.5).all()


def test_no_images_and_no_filters_are_an_empty_result():
    assert tracea.ops.conv_transpose2d(torch.empty(0, 3, 4, 4), torch.empty(3, 2, 3, 3)).shape == (0, 2, 6, 6)
    assert tracea.ops.conv_transpose2d(torch.empty(1, 3, 4, 4), torch.empty(3, 0, 3, 3)).shape == (1, 0, 6, 6)
    shape = (0, 3, 6, 6)
    assert tracea.ops.conv2d_grad_input(torch.empty(0, 2, 4, 4), torch.empty(2, 3, 3, 3), shape).shape == shape


def test_the_gradient_for_filters_of_no_images_is_zero():
    for x, grad, given in (
        (torch.empty(0, 4, 8, 8), torch.empty(0, 6, 6, 6), {}),
        (torch.empty(0, 4, 600, 8), torch.empty(0, 6, 300, 4), {"stride": 2, "padding": 1}),
    ):
        found = tracea.ops.conv2d_grad_weight(x, grad, (6, 4, 3, 3), **given)
        assert found.shape == (6, 4, 3, 3)
        assert not found.any()
    out = np.full((6, 4, 3, 3), 7, np.float32)
    x, grad = np.empty((0, 4, 8, 8), np.float32), np.empty((0, 6, 6, 6), np.float32)
    assert tracea.ops.conv2d_grad_weight(x, grad, out.shape, out=out) is out
    assert not out.any()
    found = tracea.ops.conv2d_grad_weight(torch.ones(1, 4, 8, 8), torch.empty(1, 0, 6, 6), (0, 4, 3, 3))
    assert found.shape == (0, 4, 3, 3)


def test_a_gradient_of_too_many_rows_is_told_that_alone():
    x = torch.zeros(1, 1, 1, 300)
    with pytest.raises(
        InvalidShape, match=r"expected at most 256 rows and columns\. Remedy: sum the gradients of bands"
    ):
        tracea.ops.conv2d_grad_weight(x, x, (1, 1, 1, 1))


@pytest.mark.costly
def test_results_are_the_same_each_time_and_with_any_threads(rng):
    x, weight = tensor(rng, DType.F32, (1, 20, 13, 11)), tensor(rng, DType.F32, (40, 20, 3, 3))
    grad, given = tensor(rng, DType.F32, (1, 40, 7, 6)), {"stride": 2, "padding": 1}
    first = tracea.ops.conv2d_grad_weight(x, grad, weight.shape, **given)
    second = tracea.ops.conv2d_grad_input(grad, weight, x.shape, **given)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for _ in range(2):
            assert tracea.ops.conv2d_grad_input(grad, weight, x.shape, **given).allclose(second, atol=1e-5)
            again = tracea.ops.conv2d_grad_weight(x, grad, weight.shape, **given)
            assert threads == 2 or again.equal(first)


X, W, G = torch.zeros(1, 4, 8, 8), torch.zeros(4, 6, 3, 3), torch.zeros(1, 6, 6, 6)
F = torch.zeros(6, 4, 3, 3)
transposed, grad_input, grad_weight = (
    tracea.ops.conv_transpose2d,
    tracea.ops.conv2d_grad_input,
    tracea.ops.conv2d_grad_weight,
)
REFUSED = {
    "three axes": (InvalidShape, lambda: transposed(X[0], W)),
    "channels that differ": (InvalidShape, lambda: transposed(X[:, :3], W)),
    "groups that do not divide": (InvalidShape, lambda: transposed(X, W, groups=3)),
    "no groups": (InvalidOp, lambda: transposed(X, W, groups=0)),
    "no taps": (InvalidShape, lambda: transposed(X, W[:, :, :0])),
    "no pixels": (InvalidShape, lambda: transposed(X[:, :, :0], W)),
    "a result that padding leaves out": (InvalidShape, lambda: transposed(X, W, padding=5)),
    "an output padding of a stride": (InvalidOp, lambda: transposed(X, W, stride=2, output_padding=2)),
    "a bias of another length": (InvalidShape, lambda: transposed(X, W, torch.zeros(5))),
    "an out of another shape": (InvalidShape, lambda: transposed(X, W, out=torch.zeros(1, 6, 9, 10))),
    "an out of another type": (InvalidDType, lambda: transposed(X, W, out=torch.zeros(1, 6, 10, 10).half().double())),
    "two element types": (InvalidDType, lambda: transposed(X, W.half())),
    "integers": (InvalidDType, lambda: transposed(X.int(), W.int())),
    "a stride of 0": (InvalidOp, lambda: transposed(X, W, stride=0)),
    "an unknown activation": (InvalidOp, lambda: transposed(X, W, activation="swisch")),
    "an image that asks for a gradient": (InvalidInput, lambda: transposed(X.clone().requires_grad_(), W)),
    "a gradient of another shape": (InvalidShape, lambda: grad_input(G[:, :, :5], F, X.shape)),
    "an input shape of three": (InvalidShape, lambda: grad_input(G, F, (4, 8, 8))),
    "an input shape of no numbers": (InvalidShape, lambda: grad_input(G, F, "abcd")),
    "an input shape of other channels": (InvalidShape, lambda: grad_input(G, F, (1, 5, 8, 8))),
    "filters of another shape": (InvalidShape, lambda: grad_weight(X, G, (6, 4, 4, 3))),
    "more taps than a kernel has": (
        InvalidShape,
        lambda: grad_weight(torch.zeros(1, 1, 1, 300), torch.zeros(1, 1, 1, 300), (1, 1, 1, 1)),
    ),
}


def test_a_remedy_speaks_of_what_does_not_agree():
    with pytest.raises(InvalidShape, match=r"groups=3 must divide the 4 channels"):
        transposed(X, W, groups=3)
    with pytest.raises(InvalidShape, match=r"at least one channel, one place and one tap"):
        transposed(X[:, :, :0], W)
    with pytest.raises(InvalidShape, match=r"channels of x and weight agree"):
        transposed(X[:, :3], W)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()


def test_out_may_not_be_an_operand():
    weight = torch.zeros(4, 4, 1, 1)
    with pytest.raises(OverlappingOutput):
        transposed(X, weight, out=X)
    with pytest.raises(OverlappingOutput):
        grad_input(X, weight, X.shape, out=X)


def test_a_stride_of_very_many_phases_is_refused_before_anything_is_compiled() -> None:
    two = np.ones((1, 1, 2, 2), np.float32)
    with pytest.raises(InvalidOp, match="stride"):
        tracea.ops.conv2d_grad_input(two, two, (1, 1, 502, 502), stride=500)
