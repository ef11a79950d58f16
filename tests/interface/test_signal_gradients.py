"""Transposed convolutions of signals and the gradients of their convolutions against float64; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.drawn import drawn
from tests.interface.accuracy import TORCH, poisoned, strided, values
from tests.interface.aten_calls import AtenCalls
from torch.nn import functional

import tracea
from tracea.core.dtype import DType
from tracea.errors import InvalidDType, InvalidInput, InvalidOp, InvalidShape, InvalidStride, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")

ops = tracea.ops
# Rounding errors of one sum of the tested lengths, relative to the sum of its products' magnitudes.
TOLERANCE = {DType.F64: 1e-13, DType.F32: 2e-5, DType.F16: 2e-3, DType.BF16: 1.6e-2}
LAYOUTS = ("rows", "columns", "gaps")  # columns: the channels, or those of a filter, next to each other


def operand(rng: np.random.Generator, kind: str, dtype: DType, shape: tuple[int, ...]) -> Any:
    return strided(rng, kind, dtype, shape, LAYOUTS[rng.integers(3)])


def wide(array: Any) -> torch.Tensor:
    return torch.from_numpy(values(array).astype(np.float64))


def assert_close(found: Any, expected: torch.Tensor, magnitude: torch.Tensor, dtype: DType) -> None:
    """Compare with float64; ``magnitude`` is the same op of the operands' magnitudes."""
    assert tuple(found.shape) == tuple(expected.shape)
    if isinstance(found, torch.Tensor):
        assert found.dtype is TORCH[dtype]
    wrong = ~((wide(found) - expected).abs() <= TOLERANCE[dtype] * (magnitude + 1e-30))
    assert not wrong.any(), (int(wrong.sum()), wide(found)[wrong][:3], expected[wrong][:3])


def random_case(rng: np.random.Generator) -> tuple[str, DType, dict[str, int]]:
    dtype = (DType.F32, DType.F32, DType.F64, DType.BF16, DType.F16)[rng.integers(5)]
    given = {
        "stride": int(rng.integers(1, 4)),
        "padding": int(rng.integers(0, 4)),
        "dilation": int(rng.integers(1, 4)),
        "groups": int(rng.choice([1, 1, 2, 3])),
    }
    return "torch" if dtype is DType.BF16 else ("torch", "numpy")[rng.integers(2)], dtype, given


@pytest.mark.costly
def test_random_transposed_convolutions(rng):
    done = 0
    while done < 4:
        kind, dtype, given = random_case(rng)
        groups, taps = given["groups"], int(rng.integers(1, 6))
        given["output_padding"] = int(rng.integers(0, max(given["stride"], given["dilation"])))
        shape = (int(rng.integers(1, 4)), groups * int(rng.choice([1, 3, 8])), int(rng.integers(1, 30)))
        x = operand(rng, kind, dtype, shape)
        weight = operand(rng, kind, dtype, (shape[1], int(rng.choice([1, 5, 17])), taps))
        bias = strided(rng, kind, dtype, (groups * weight.shape[1],), "gaps") if rng.integers(2) else None
        operands = [None if each is None else wide(each) for each in (x, weight, bias)]
        magnitudes = [None if each is None else each.abs() for each in operands]
        try:
            expected = functional.conv_transpose1d(*operands, **given)
        except RuntimeError:
            with pytest.raises(InvalidShape, match=r"^conv_transpose1d: .*Remedy: pad less"):
                ops.conv_transpose1d(x, weight, bias, **given)
            continue
        magnitude = functional.conv_transpose1d(*magnitudes, **given)
        assert_close(ops.conv_transpose1d(x, weight, bias, **given), expected, magnitude, dtype)
        out = poisoned(kind, dtype, tuple(expected.shape), ("rows", "columns")[rng.integers(2)])
        assert ops.conv_transpose1d(x, weight, bias, **given, activation="relu", out=out) is out
        assert_close(out, expected.relu(), magnitude, dtype)
        done += 1


@pytest.mark.costly
def test_random_gradients(rng):
    done = 0
    while done < 4:
        kind, dtype, given = random_case(rng)
        groups, taps = given["groups"], int(rng.integers(1, 6))
        length = int(rng.integers(1, 40))
        if length + 2 * given["padding"] < given["dilation"] * (taps - 1) + 1:
            continue
        x = operand(rng, kind, dtype, (int(rng.integers(1, 4)), groups * int(rng.choice([1, 3, 8, 20])), length))
        weight = operand(rng, kind, dtype, (groups * int(rng.choice([1, 2, 17])), x.shape[1] // groups, taps))
        grad = operand(rng, kind, dtype, tuple(functional.conv1d(wide(x), wide(weight), **given).shape))
        double = [wide(each) for each in (x, weight, grad)]
        for name, arrays, shape in (("input", (1, 2), x.shape), ("weight", (0, 2), weight.shape)):
            first, second = (double[index] for index in arrays)
            call, reference = getattr(ops, f"conv1d_grad_{name}"), getattr(torch.nn.grad, f"conv1d_{name}")
            expected, magnitude = (
                reference(shape, of(first), of(second), *given.values())
                if name == "input"
                else reference(of(first), shape, of(second), *given.values())
                for of in (torch.clone, torch.abs)
            )
            taken = (grad, weight, shape) if name == "input" else (x, grad, shape)
            out = poisoned(kind, dtype, tuple(shape), ("rows", "columns")[rng.integers(2)])
            assert call(*taken, **given, out=out) is out
            assert_close(out, expected, magnitude, dtype)
            found = call(*taken, **given)
            assert type(found) is type(x)
            assert_close(found, expected, magnitude, dtype)
        done += 1


@pytest.mark.costly
@pytest.mark.parametrize("layout", drawn(1, ["rows", "columns"], of="ways of signals, order"))
@pytest.mark.parametrize(
    ("sizes", "given"),
    [
        ((64, 64, 3), {"padding": 1}),  # products
        ((3, 32, 5), {"padding": 2}),  # planes of few channels
        ((96, 48, 1), {}),  # one product
        ((16, 16, 3), {"groups": 16, "padding": 1}),  # depthwise
        ((32, 32, 4), {"stride": 2, "padding": 1}),  # phases
    ],
    ids=["products", "planes", "one tap", "depthwise", "phases"],
)
def test_gradients_by_each_way_that_images_have_them(rng, sizes, given, layout):
    channels, filters, taps = sizes
    x = strided(rng, "torch", DType.F32, (2, channels, 70), layout)
    weight = strided(rng, "torch", DType.F32, (filters, channels // given.get("groups", 1), taps), "rows")
    grad = strided(rng, "torch", DType.F32, tuple(functional.conv1d(x, weight, **given).shape), layout)
    numbers = [given.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    numbers.append(given.get("groups", 1))
    for found, reference, first, second in (
        (ops.conv1d_grad_input(grad, weight, x.shape, **given), torch.nn.grad.conv1d_input, x.shape, weight),
        (ops.conv1d_grad_weight(x, grad, weight.shape, **given), torch.nn.grad.conv1d_weight, x, weight.shape),
    ):
        expected, magnitude = (
            reference(
                *(of(each.double()) if torch.is_tensor(each) else each for each in (first, second, grad)), *numbers
            )
            for of in (torch.clone, torch.abs)
        )
        assert_close(found, expected, magnitude, DType.F32)


@pytest.mark.costly
@pytest.mark.parametrize("layout", drawn(1, ["rows", "columns"], of="long signals, order"))
@pytest.mark.parametrize(
    ("shapes", "given"),
    [
        (((2, 1, 1000), (8, 1, 5)), {"padding": 2}),
        (((1, 6, 900), (4, 3, 3)), {"groups": 2, "padding": 700, "dilation": 3}),  # bands in the padding alone
        (((2, 4, 700), (6, 4, 3)), {"stride": 2}),
        (((1, 2, 2), (3, 2, 1)), {"padding": 1000, "stride": 3}),  # no window meets the signal
        (((2, 64, 600), (64, 64, 3)), {"padding": 1}),
        (((2, 16, 600), (16, 1, 4)), {"padding": 3, "groups": 16}),
    ],
    ids=["one channel", "groups", "stride", "padding", "products", "depthwise"],
)
def test_gradients_of_filters_of_more_places_than_a_kernel_has_taps(rng, shapes, given, layout):
    dtype = (DType.F32, DType.F64, DType.BF16)[rng.integers(3)]
    x = strided(rng, "torch", dtype, shapes[0], layout)
    result = functional.conv1d(wide(x), torch.zeros(shapes[1], dtype=torch.float64), **given)
    assert result.shape[2] > 256
    grad = strided(rng, "torch", dtype, tuple(result.shape), layout)
    numbers = [given.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    expected, magnitude = (
        torch.nn.grad.conv1d_weight(of(wide(x)), shapes[1], of(wide(grad)), *numbers, given.get("groups", 1))
        for of in (torch.clone, torch.abs)
    )
    out = poisoned("torch", dtype, shapes[1])
    assert ops.conv1d_grad_weight(x, grad, shapes[1], **given, out=out) is out
    assert_close(out, expected, magnitude, dtype)


class _Conv1d(torch.autograd.Function):
    """A convolution whose three products are ours."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.given = given
        return ops.conv1d(x.detach(), weight.detach(), **given)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight = (each.detach() for each in ctx.saved_tensors)
        return (
            ops.conv1d_grad_input(grad, weight, x.shape, **ctx.given),
            ops.conv1d_grad_weight(x, grad, weight.shape, **ctx.given),
            None,
        )


@pytest.mark.costly
def test_gradcheck_in_float64(rng):
    x = strided(rng, "torch", DType.F64, (2, 4, 9), "rows").requires_grad_()
    weight = strided(rng, "torch", DType.F64, (4, 2, 3), "rows").requires_grad_()
    given = {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}
    assert torch.autograd.gradcheck(lambda *both: _Conv1d.apply(*both, given), (x, weight))


def test_no_call_of_aten(rng):
    x, weight, grad = (strided(rng, "torch", DType.F32, shape, "rows") for shape in ((2, 8, 9), (6, 8, 3), (2, 6, 5)))
    given = {"stride": 2, "padding": 1}
    outs = [torch.empty(shape) for shape in ((2, 8, 9), (6, 8, 3), (2, 8, 10))]
    with AtenCalls():  # a process's first call under a mode: torch sets its compiler up then, and makes a tensor
        ops.sum(x)
    for _ in range(2):  # a new signature, then a known one
        with AtenCalls() as counted:
            ops.conv1d_grad_input(grad, weight, (2, 8, 9), **given, out=outs[0])
            ops.conv1d_grad_weight(x, grad, (6, 8, 3), **given, out=outs[1])
            ops.conv_transpose1d(grad, weight, **given, output_padding=1, out=outs[2])
        assert counted.calls == 0
    with AtenCalls() as counted:
        functional.conv1d(x, weight)
    assert counted.calls > 0


@pytest.mark.costly
def test_the_result_has_the_order_of_the_signal(rng):
    for layout in ("rows", "columns"):
        x, image = (strided(rng, "torch", DType.F32, shape, layout) for shape in ((2, 3, 5), (2, 6, 7)))
        weight = strided(rng, "torch", DType.F32, (3, 6, 3), "rows")
        for found in (
            ops.conv_transpose1d(x, weight, stride=2),
            ops.conv1d_grad_input(x, weight, image.shape),
            ops.conv1d_grad_weight(image, x, weight.shape),
        ):
            assert (found if layout == "rows" else found.mT).is_contiguous()


def test_places_that_nothing_reaches_are_the_epilogue_of_zero_whatever_the_operands_hold():
    x, weight = torch.full((1, 1, 3), float("nan")), torch.full((1, 1, 1), float("inf"))
    result = ops.conv_transpose1d(x, weight, torch.tensor([2.5]), stride=3, output_padding=1)[0, 0]
    assert result[0::3].isnan().tolist() == [True, True, True]
    assert result[1::3].tolist() == [2.5, 2.5, 2.5]
    assert result[2::3].tolist() == [2.5, 2.5]
    unread = ops.conv1d_grad_input(torch.ones(1, 1, 2), torch.ones(1, 1, 1), (1, 1, 6), stride=3)
    assert unread.tolist() == [[[1, 0, 0, 1, 0, 0]]]


def test_of_no_signals_and_no_filters():
    assert ops.conv_transpose1d(torch.empty(0, 3, 4), torch.empty(3, 2, 3)).shape == (0, 2, 6)
    assert ops.conv_transpose1d(torch.empty(1, 3, 4), torch.empty(3, 0, 3)).shape == (1, 0, 6)
    assert ops.conv1d_grad_input(torch.empty(0, 2, 4), torch.empty(2, 3, 3), (0, 3, 6)).shape == (0, 3, 6)
    out = np.full((6, 4, 3), 7, np.float32)
    x, grad = np.empty((0, 4, 8), np.float32), np.empty((0, 6, 6), np.float32)
    assert ops.conv1d_grad_weight(x, grad, out.shape, out=out) is out
    assert not out.any()
    assert ops.conv1d_grad_weight(torch.ones(1, 4, 8), torch.empty(1, 0, 6), (0, 4, 3)).shape == (0, 4, 3)


X, W, G, K = torch.zeros(1, 4, 8), torch.zeros(4, 6, 3), torch.zeros(1, 6, 6), torch.zeros(6, 4, 3)
transposed, grad_input, grad_weight = ops.conv_transpose1d, ops.conv1d_grad_input, ops.conv1d_grad_weight
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "two axes": (
        InvalidShape,
        lambda: transposed(X[0], W),
        "conv_transpose1d: got x (4, 8), weight (4, 6, 3), expected three axes each: (n, c, l), and filters "
        "(c, k/groups, s). Remedy: x[None] is a batch of one signal",
    ),
    "channels that differ": (
        InvalidShape,
        lambda: transposed(X[:, :3], W),
        "conv_transpose1d: got x (1, 3, 8), weight (4, 6, 3), groups 1, expected x (n, c, l), weight (c, k/groups, s)",
    ),
    "groups that do not divide": (
        InvalidShape,
        lambda: transposed(X, W, groups=3),
        "Remedy: groups=3 must divide the 4 channels",
    ),
    "no groups": (InvalidOp, lambda: transposed(X, W, groups=0), "groups: got 0"),
    "no taps": (InvalidShape, lambda: transposed(X, W[..., :0]), "one place and one tap"),
    "no places": (InvalidShape, lambda: transposed(X[..., :0], W), "one place and one tap"),
    "a result that padding leaves out": (
        InvalidShape,
        lambda: transposed(X, W, padding=5),
        "conv_transpose1d: got x (1, 4, 8), weight (4, 6, 3), result (0,), expected a result of at least 1. "
        "Remedy: pad less: padding leaves out places of the result",
    ),
    "an output padding of a stride": (
        InvalidOp,
        lambda: transposed(X, W, stride=2, output_padding=2),
        "output_padding: got 2, expected less than the stride 2 or the dilation 1. Remedy: output_padding=0",
    ),
    "two strides": (
        InvalidOp,
        lambda: grad_input(G, K, X.shape, stride=(1, 1)),
        "stride: got (1, 1), expected a whole number, or a sequence of one",
    ),
    "a stride of very many phases": (
        InvalidOp,
        lambda: transposed(X, W, stride=2000),
        "stride: got 2000, expected at most 1024: each phase is a kernel",
    ),
    "more taps at a place than a kernel has": (
        InvalidShape,
        lambda: transposed(X, torch.zeros(4, 6, 515), stride=2),
        "weight: got weight (4, 6, 515), stride 2, taps of a place 258, expected at most 256",
    ),
    "more taps than a kernel has": (
        InvalidShape,
        lambda: grad_input(torch.zeros(1, 6, 2), torch.zeros(6, 4, 300), (1, 4, 301)),
        "taps of a place 300, expected at most 256",
    ),
    "a bias of another length": (InvalidShape, lambda: transposed(X, W, torch.zeros(5)), "bias: got (5,)"),
    "an unknown activation": (InvalidOp, lambda: transposed(X, W, activation="swisch"), "activation: got swisch"),
    "two element types": (InvalidDType, lambda: transposed(X, W.half()), "conv_transpose1d: got f32 and f16"),
    "integers": (InvalidDType, lambda: transposed(X.int(), W.int()), "x: got i32"),
    "an out of another shape": (
        InvalidShape,
        lambda: transposed(X, W, out=torch.zeros(1, 6, 9)),
        "out: got f32[1×6×9], expected f32[1×6×10]",
    ),
    "an out of another type": (
        InvalidDType,
        lambda: transposed(X, W, out=torch.zeros(1, 6, 10).half()),
        "Remedy: give an out of f32",
    ),
    "an out over itself": (
        InvalidStride,
        lambda: grad_input(G, K, X.shape, out=torch.zeros(1, 1, 8).expand(1, 4, 8)),
        "out: got (8, 0, 1), expected one address per element",
    ),
    "an out that is an operand": (OverlappingOutput, lambda: transposed(X, torch.zeros(4, 4, 1), out=X), "out: got"),
    "a signal that asks for a gradient": (InvalidInput, lambda: transposed(X.clone().requires_grad_(), W), "Remedy: "),
    "a gradient of another shape": (
        InvalidShape,
        lambda: grad_input(G[..., :5], K, X.shape),
        "grad: got (1, 6, 5), expected (1, 6, 6)",
    ),
    "an input shape of four": (
        InvalidShape,
        lambda: grad_input(G, K, (1, 4, 1, 8)),
        "input_shape: got (1, 4, 1, 8), expected three extents",
    ),
    "an input shape of other channels": (
        InvalidShape,
        lambda: grad_input(G, K, (1, 5, 8)),
        "conv1d_grad_input: got x (1, 5, 8), weight (6, 4, 3), groups 1, expected x (n, c, l)",
    ),
    "filters of another shape": (
        InvalidShape,
        lambda: grad_weight(X, G, (6, 4, 4)),
        "grad: got (1, 6, 6), expected (1, 6, 5)",
    ),
    "a filter beyond the signal": (
        InvalidShape,
        lambda: grad_weight(X, G, (6, 4, 9)),
        "conv1d_grad_weight: got x (1, 4, 8), weight (6, 4, 9), result (0,), expected a result of at least 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_in_the_words_of_signals(name: str) -> None:
    error, call, said = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert said in str(caught.value)
    assert "Remedy: " in str(caught.value)
    assert "2d" not in str(caught.value)
    assert "rows" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: ops.conv_transpose2d(X, W), "conv_transpose1d takes three axes each; x[None] is a batch of one image"),
        (lambda: ops.conv_transpose3d(X, W), "conv_transpose1d takes three axes each; add the 2 axes that x lacks"),
        (lambda: ops.conv2d_grad_input(G, K, (1, 4, 1, 8)), "conv1d_grad_input takes three axes each; grad[None] is"),
        (lambda: ops.conv2d_grad_weight(X, G, (6, 4, 1, 3)), "conv1d_grad_weight takes three axes each; x[None] is"),
        (lambda: transposed(X[None], W[None]), "conv_transpose2d takes four axes each; join the first 2 axes"),
        (lambda: ops.conv2d(X, K), "conv1d takes three axes each; x[None] is a batch of one image"),
    ],
)
def test_ops_of_other_axes_name_that_of_those_that_were_given(call: Any, remedy: str) -> None:
    with pytest.raises(InvalidShape) as caught:
        call()
    assert caught.value.remedy.startswith(remedy)
