"""Functions of images against float64: layouts, strides, paddings, groups, element types, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.interface.accuracy import TORCH, assert_meaning, poisoned, strided, type_of, values

import tracea
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp, Epilogue
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidDType, InvalidInput, InvalidOp, InvalidShape, OverlappingOutput

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = ("torch", "numpy")


def image(rng, kind, dtype, shape, layout):
    """Normal numbers; "last" has the channels of a pixel next to each other."""
    if layout != "last":
        return strided(rng, kind, dtype, shape, layout)
    made = strided(rng, kind, dtype, (shape[0], shape[2], shape[3], shape[1]), "rows")
    return made.permute(0, 3, 1, 2) if kind == "torch" else made.transpose(0, 3, 1, 2)


def check_conv(x, weight, bias=None, **options):
    activation, residual, out = (options.get(name) for name in ("activation", "residual", "out"))
    numbers = {name: options[name] for name in ("stride", "padding", "dilation", "groups") if name in options}
    result = tracea.ops.conv2d(x, weight, bias, **options)
    assert type(result) is type(x)
    op = Conv2dOp(x=type_of(x), w=type_of(weight), **numbers)
    per_filter = None if bias is None else TensorType((len(bias), 1, 1), type_of(bias).dtype)
    epilogue = Epilogue.of(
        bias=per_filter, activation=activation, residual=None if residual is None else type_of(residual)
    )
    if out is not None:
        assert result is out
    extras = [] if bias is None else [values(bias).reshape(-1, 1, 1)]
    extras += [] if residual is None else [residual]
    assert_meaning(result, replace(op, epilogue=epilogue, out=type_of(result)), x, weight, *extras)
    return result


@pytest.mark.costly
def test_random_convolutions(rng):
    for _ in range(4):
        kind = KINDS[rng.integers(2)]
        dtype = (DType.F32, DType.F32, DType.BF16, DType.F16, DType.F64)[rng.integers(5)]
        groups = int(rng.choice([1, 1, 1, 2, 5]))
        channels, filters = groups * int(rng.integers(1, 9)), groups * int(rng.integers(1, 20))
        r, s = (int(value) for value in rng.integers(1, 4, 2))
        numbers = {
            "stride": tuple(int(value) for value in rng.integers(1, 3, 2)),
            "padding": tuple(int(value) for value in rng.integers(0, 3, 2)),
            "dilation": tuple(int(value) for value in rng.integers(1, 3, 2)),
            "groups": groups,
        }
        size = tuple(int(value) for value in rng.integers(5, 12, 2))
        layout = ("rows", "last", "gaps")[rng.integers(3)]
        x = image(rng, kind, dtype, (int(rng.integers(1, 3)), channels, *size), layout)
        weight = image(rng, kind, dtype, (filters, channels // groups, r, s), ("rows", "last")[rng.integers(2)])
        bias = strided(rng, kind, dtype, (filters,), "gaps") if rng.integers(2) else None
        check_conv(x, weight, bias, activation=(None, "relu", "silu")[rng.integers(3)], **numbers)


@pytest.mark.costly
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["rows", "last"])
def test_the_result_has_the_order_of_the_image_and_out_its_own(rng, kind, layout):
    x = image(rng, kind, DType.F32, (2, 5, 7, 8), layout)
    weight, bias = strided(rng, kind, DType.F32, (6, 5, 3, 3), "rows"), strided(rng, kind, DType.F32, (6,), "rows")
    residual = image(rng, kind, DType.F32, (2, 6, 7, 8), layout)
    given = {"padding": (1, 1), "activation": "relu", "residual": residual}
    first, second = (check_conv(x, weight, bias, **given) for _ in range(2))  # a new signature, then a known one
    order = np.argsort(values(x).strides)
    for result in (first, second):
        assert list(np.argsort(values(result).strides)) == list(order)
        assert np.array_equal(values(result), values(first))
    for other in ("rows", "last"):
        out = image(rng, kind, DType.F32, (2, 6, 7, 8), other)
        out[...] = float("nan")
        check_conv(x, weight, bias, out=out, **given)


@pytest.mark.costly
def test_numbers_are_taken_as_torch_takes_them(rng):
    x, weight = (
        strided(rng, "torch", DType.F32, (1, 4, 9, 8), "rows"),
        strided(rng, "torch", DType.F32, (3, 4, 3, 5), "rows"),
    )
    for given in (
        {"stride": 2},
        {"stride": [2]},
        {"padding": "valid"},
        {"padding": "same"},
        {"padding": "same", "dilation": (2, 1)},
        {"padding": (2, 0), "stride": (1, 3)},
    ):
        expected = torch.nn.functional.conv2d(x.double(), weight.double(), **given)
        result = tracea.ops.conv2d(x, weight, **given)
        assert result.shape == expected.shape
        assert float((result - expected).abs().max()) < 1e-4


def test_no_images_are_an_empty_result():
    x, weight = torch.empty(0, 3, 8, 8), torch.empty(4, 3, 3, 3)
    assert tracea.ops.conv2d(x, weight).shape == (0, 4, 6, 6)


def test_nan_and_infinity_propagate(rng):
    x, weight = (strided(rng, "numpy", DType.F32, shape, "rows") for shape in ((1, 3, 6, 6), (4, 3, 3, 3)))
    x[0, 0, 0, 0], x[0, 1, 5, 5] = np.nan, np.inf
    check_conv(x, weight, padding=(1, 1), activation="relu")


X, W = torch.zeros(1, 4, 8, 8), torch.zeros(6, 4, 3, 3)
REFUSED = {
    "three axes": (InvalidShape, lambda: tracea.ops.conv2d(X[0], W)),
    "channels that differ": (InvalidShape, lambda: tracea.ops.conv2d(X[:, :3], W)),
    "groups that do not divide": (InvalidShape, lambda: tracea.ops.conv2d(X, W, groups=4)),
    "no groups": (InvalidOp, lambda: tracea.ops.conv2d(X, W, groups=0)),
    "a filter beyond the image": (InvalidShape, lambda: tracea.ops.conv2d(X[..., :2], W)),
    "more taps than a kernel has": (
        InvalidShape,
        lambda: tracea.ops.conv1d(torch.ones(1, 1, 900), torch.ones(1, 1, 257)),
    ),
    "a bias of another length": (InvalidShape, lambda: tracea.ops.conv2d(X, W, torch.zeros(5))),
    "a residual that is larger": (InvalidShape, lambda: tracea.ops.conv2d(X, W, residual=torch.zeros(2, 6, 6, 6))),
    "an out of another shape": (InvalidShape, lambda: tracea.ops.conv2d(X, W, out=torch.zeros(1, 6, 5, 6))),
    "an out of another type": (InvalidDType, lambda: tracea.ops.conv2d(X, W, out=torch.zeros(1, 6, 6, 6).double())),
    "two element types": (InvalidDType, lambda: tracea.ops.conv2d(X, W.half())),
    "integers": (InvalidDType, lambda: tracea.ops.conv2d(X.int(), W.int())),
    "torch and numpy": (InvalidDType, lambda: tracea.ops.conv2d(X, W.numpy())),
    "a stride of 0": (InvalidOp, lambda: tracea.ops.conv2d(X, W, stride=0)),
    "a stride of three": (InvalidOp, lambda: tracea.ops.conv2d(X, W, stride=(1, 1, 1))),
    "a padding below 0": (InvalidOp, lambda: tracea.ops.conv2d(X, W, padding=-1)),
    "a padding of half a pixel": (InvalidOp, lambda: tracea.ops.conv2d(X, W, padding=0.5)),
    "the same size at stride 2": (InvalidOp, lambda: tracea.ops.conv2d(X, W, padding="same", stride=2)),
    "an unknown padding": (InvalidOp, lambda: tracea.ops.conv2d(X, W, padding="full")),
    "an unknown activation": (InvalidOp, lambda: tracea.ops.conv2d(X, W, activation="swisch")),
    "an image that asks for a gradient": (InvalidInput, lambda: tracea.ops.conv2d(X.clone().requires_grad_(), W)),
}


@pytest.mark.parametrize("shape", [(1, 4, 0, 5), (1, 4, 5, 0)])
def test_padding_alone_is_no_image_as_in_torch(shape):
    with pytest.raises(InvalidShape, match=r"^conv2d\.x: got h \d, w \d, expected an image"):
        tracea.ops.conv2d(torch.zeros(shape), torch.zeros(2, 4, 3, 3), padding=2)


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_remedy(name):
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()


def test_out_may_not_be_the_image():
    weight = torch.zeros(4, 4, 1, 1)
    with pytest.raises(OverlappingOutput):
        tracea.ops.conv2d(X, weight, out=X)


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=lambda dtype: dtype.value)
def test_a_poisoned_out_is_written_whole(rng, dtype):
    x = image(rng, "torch", dtype, (1, 3, 11, 9), "last")
    weight = torch.randn(5, 3, 3, 3, dtype=torch.float32).to(TORCH[dtype])
    check_conv(x, weight, out=poisoned("torch", dtype, (1, 5, 5, 4)), stride=(2, 2))


@pytest.mark.parametrize("stride", [7, 8, 10**6, (10**6, 2)])
def test_a_stride_beyond_the_image_reaches_one_window(rng, stride):
    x, weight = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((2, 4, 9, 9), (6, 4, 3, 3)))
    x.requires_grad_()
    weight.requires_grad_()
    y = torch.nn.functional.conv2d(x, weight, stride=stride)
    grad = torch.from_numpy(rng.standard_normal(y.shape))
    y.backward(grad)
    numbers = {"x": x.detach(), "weight": weight.detach(), "stride": stride}
    torch.testing.assert_close(tracea.ops.conv2d(**numbers), y.detach())
    torch.testing.assert_close(
        tracea.ops.conv2d_grad_weight(numbers["x"], grad, weight.shape, stride=stride), weight.grad
    )
    torch.testing.assert_close(tracea.ops.conv2d_grad_input(grad, numbers["weight"], x.shape, stride=stride), x.grad)


def test_a_stride_beyond_a_volume_or_of_one_pixel_reaches_one_window(rng):
    x, weight = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((2, 4, 5, 6, 7), (3, 4, 2, 2, 2)))
    expected = torch.nn.functional.conv3d(x, weight, stride=10**6)
    torch.testing.assert_close(tracea.ops.conv3d(x, weight, stride=10**6), expected)
    pixel, taps = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((1, 2, 1, 1), (2, 3, 3, 3)))
    expected = torch.nn.functional.conv_transpose2d(pixel, taps, stride=10**6)
    torch.testing.assert_close(tracea.ops.conv_transpose2d(pixel, taps, stride=10**6), expected)


def test_a_long_step_that_nothing_takes_is_no_longer_than_the_image():
    image, weight = TensorType((1, 4, 9, 9), DType.F32), TensorType((6, 4, 3, 1), DType.F32)
    far = Conv2dOp(x=image, w=weight, stride=(10**6, 10**6), dilation=(2, 10**5))
    assert (far.stride, far.dilation) == ((5, 9), (2, 1))
    assert far.infer().static_shape == (1, 6, 1, 1)
    assert Conv2dOp(x=image, w=weight, stride=(400, 17)).stride == (7, 9)
    assert Conv2dOp(x=image, w=weight, stride=(16, 16)).stride == (16, 16)  # a kernel is built for it
    stated = Conv2dOp(x=image, w=weight, stride=(10**4, 10**4), size=(1, 2))
    assert stated.stride == (1, 10**4)  # the second window begins there
