"""Convolutions of volumes, transposed ones and gradients against float64, by fresh seeds; and what is refused."""

from __future__ import annotations

from itertools import product
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
from tracea.core.tensor_type import TensorType
from tracea.errors import InvalidDType, InvalidInput, InvalidOp, InvalidShape, OverlappingOutput
from tracea.flow.planes import forward_runs, transposed_runs
from tracea.flow.sections import compile_sections
from tracea.flow.volume_gradient import VolumeFilterGradient
from tracea.flow.volumes import VolumeConvolution

pytestmark = pytest.mark.usefixtures("one_thread")

# Rounding errors of one sum of the tested lengths, relative to the sum of its products' magnitudes.
TOLERANCE = {DType.F64: 1e-13, DType.F32: 2e-5, DType.F16: 2e-3, DType.BF16: 1.6e-2}


def pick(rng: np.random.Generator, *values: int) -> int:
    return int(rng.choice(values))


def triple(rng: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    planes, rows, columns = rng.integers(low, high, 3)
    return int(planes), int(rows), int(columns)


def tensor(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], *, last: Any = None) -> torch.Tensor:
    made = torch.from_numpy(rng.standard_normal(shape)).to(TORCH[dtype])
    is_last = rng.integers(2) if last is None else last
    return made.contiguous(memory_format=torch.channels_last_3d) if is_last else made


def gaps(x: torch.Tensor) -> torch.Tensor:
    """The same values, with other memory between them."""
    wide = torch.full([2 * size + 1 for size in x.shape], float("nan"), dtype=x.dtype)
    inside = wide[tuple(slice(1, 2 * size + 1, 2) for size in x.shape)]
    inside.copy_(x)
    return inside


def assert_close(found: torch.Tensor, expected: torch.Tensor, magnitude: torch.Tensor, dtype: DType) -> None:
    """Compare with float64; ``magnitude`` is the same op of the operands' magnitudes."""
    assert found.shape == expected.shape
    assert found.dtype is TORCH[dtype]
    wrong = ~((found.double() - expected).abs() <= TOLERANCE[dtype] * (magnitude + 1e-30))
    assert not wrong.any(), (int(wrong.sum()), found[wrong][:3], expected[wrong][:3])


def random_numbers(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "stride": triple(rng, 1, 3),
        "padding": triple(rng, 0, 4),
        "dilation": triple(rng, 1, 3),
        "groups": pick(rng, 1, 1, 2, 3),
    }


@pytest.mark.costly
def test_random_convolutions(rng):
    done = 0
    while done < 2:
        dtype = (DType.F32, DType.F32, DType.F64, DType.BF16, DType.F16)[rng.integers(5)]
        given, size, taps = random_numbers(rng), triple(rng, 1, 9), triple(rng, 1, 5)
        groups = given["groups"]
        x = tensor(rng, dtype, (pick(rng, 1, 2, 9), groups * pick(rng, 1, 3, 8), *size))
        x = gaps(x) if rng.integers(3) == 0 else x
        weight = tensor(rng, dtype, (groups * pick(rng, 1, 5, 17), x.shape[1] // groups, *taps))
        bias = tensor(rng, dtype, weight.shape[:1], last=False) if rng.integers(2) else None
        operands = [None if each is None else each.double() for each in (x, weight, bias)]
        magnitudes = [None if each is None else each.abs() for each in operands]
        try:
            expected = functional.conv3d(*operands, **given)
        except RuntimeError:
            with pytest.raises(InvalidShape, match="Remedy: "):
                tracea.ops.conv3d(x, weight, bias, **given)
            continue
        magnitude = functional.conv3d(*magnitudes, **given)
        shapes = (expected.shape, expected.shape[3:], (expected.shape[1], 1, 1, 1))
        residual = tensor(rng, dtype, tuple(shapes[rng.integers(3)]), last=False) if rng.integers(2) else None
        wanted = expected.relu() + (0 if residual is None else residual.double())
        magnitude = magnitude + (0 if residual is None else residual.double().abs())
        result = tracea.ops.conv3d(x, weight, bias, residual=residual, activation="relu", **given)
        assert_close(result, wanted, magnitude, dtype)
        out = gaps(torch.zeros(expected.shape, dtype=x.dtype)).fill_(float("nan"))
        assert tracea.ops.conv3d(x, weight, bias, residual=residual, activation="relu", **given, out=out) is out
        assert_close(out, wanted, magnitude, dtype)
        done += 1


@pytest.mark.slow
def test_random_transposed_convolutions(rng):
    done = 0
    while done < 2:
        dtype = (DType.F32, DType.F32, DType.F64, DType.BF16)[rng.integers(4)]
        given, size, taps = random_numbers(rng), triple(rng, 1, 6), triple(rng, 1, 4)
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
            expected = functional.conv_transpose3d(*operands, **given)
        except RuntimeError:
            with pytest.raises(InvalidShape, match="Remedy: "):
                tracea.ops.conv_transpose3d(x, weight, bias, **given)
            continue
        magnitude = functional.conv_transpose3d(*magnitudes, **given)
        out = torch.full(expected.shape, float("nan"), dtype=x.dtype)
        assert tracea.ops.conv_transpose3d(x, weight, bias, **given, activation="relu", out=out) is out
        assert_close(out, expected.relu(), magnitude, dtype)
        done += 1


@pytest.mark.costly
def test_random_gradients(rng):
    done = 0
    while done < 2:
        dtype = (DType.F32, DType.F32, DType.F64, DType.BF16)[rng.integers(4)]
        given, size, taps = random_numbers(rng), triple(rng, 1, 8), triple(rng, 1, 4)
        groups = given["groups"]
        x = tensor(rng, dtype, (pick(rng, 1, 2, 3), groups * pick(rng, 1, 3, 8), *size))
        weight = tensor(rng, dtype, (groups * pick(rng, 1, 2, 17), x.shape[1] // groups, *taps))
        reach = [gap * (tap - 1) + 1 for gap, tap in zip(given["dilation"], taps, strict=True)]
        if any(length + 2 * pad < span for length, pad, span in zip(size, given["padding"], reach, strict=True)):
            continue
        shape = functional.conv3d(x.float(), weight.float(), **given).shape
        grad = tensor(rng, dtype, tuple(shape))
        numbers = tuple(given.values())
        double = [each.double() for each in (x, weight, grad)]
        found = tracea.ops.conv3d_grad_input(grad, weight, x.shape, **given)
        expected, magnitude = (
            torch.nn.grad.conv3d_input(x.shape, of(double[1]), of(double[2]), *numbers)
            for of in (torch.clone, torch.abs)
        )
        assert_close(found, expected, magnitude, dtype)
        found = tracea.ops.conv3d_grad_weight(x, grad, weight.shape, **given)
        expected, magnitude = (
            torch.nn.grad.conv3d_weight(of(double[0]), weight.shape, of(double[2]), *numbers)
            for of in (torch.clone, torch.abs)
        )
        assert_close(found, expected, magnitude, dtype)
        done += 1


class _Conv3d(torch.autograd.Function):
    """A convolution whose three products are ours."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.given = given
        return tracea.ops.conv3d(x.detach(), weight.detach(), **given)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight = (each.detach() for each in ctx.saved_tensors)
        return (
            tracea.ops.conv3d_grad_input(grad, weight, x.shape, **ctx.given),
            tracea.ops.conv3d_grad_weight(x, grad, weight.shape, **ctx.given),
            None,
        )


@pytest.mark.parametrize("last", drawn(1, [False, True], of="gradcheck, order"), ids=["rows", "last"])
@pytest.mark.parametrize(
    "given",
    drawn(1, [{"padding": 1}, {"stride": (2, 1, 2), "padding": (0, 2, 1), "groups": 2}], of="gradcheck"),
    ids=["plain", "strided groups"],
)
def test_gradcheck_in_float64(rng, given, last):
    x = tensor(rng, DType.F64, (2, 4, 3, 4, 3), last=last).requires_grad_()
    weight = tensor(rng, DType.F64, (4, 4 // given.get("groups", 1), 2, 3, 2), last=last).requires_grad_()
    assert torch.autograd.gradcheck(lambda *both: _Conv3d.apply(*both, given), (x, weight))


def test_runs_hold_each_plane_once_and_meet_what_float64_meets(rng):
    """Every sum of taps, against the definition, for all small numbers."""
    for depth, taps, stride, padding, dilation in product((1, 2, 5), (1, 2, 3), (1, 2, 3), (0, 1, 4), (1, 2)):
        planes = (depth + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
        if planes >= 1:
            numbers = {"stride": stride, "padding": padding, "dilation": dilation, "planes": planes}
            found = sums_of(forward_runs(depth=depth, taps=taps, **numbers))
            assert found == {
                plane: {
                    (tap, plane * stride + tap * dilation - padding)
                    for tap in range(taps)
                    if 0 <= plane * stride + tap * dilation - padding < depth
                }
                for plane in range(planes)
            }
        wide = (depth - 1) * stride - 2 * padding + dilation * (taps - 1) + 1
        if wide >= 1:
            found = sums_of(
                transposed_runs(depth=depth, taps=taps, stride=stride, padding=padding, dilation=dilation, planes=wide)
            )
            assert found == {
                plane: {
                    (tap, source)
                    for tap in range(taps)
                    for source in range(depth)
                    if source * stride + tap * dilation - padding == plane
                }
                for plane in range(wide)
            }


def sums_of(runs: Any) -> dict[int, set[tuple[int, int]]]:
    found: dict[int, set[tuple[int, int]]] = {}
    for run in runs:
        for index in range(run.count):
            plane = run.first + index * run.step
            assert plane not in found
            found[plane] = {(tap, source + index * run.advance) for tap, source in run.taps}
    return found


SUMS = {(3, 3, 3): 2, (2, 3, 3): 1, (3, 1, 3): 0, (1, 3, 3): 0, (3, 1, 1): 0}


@pytest.mark.parametrize("taps", drawn(2, SUMS, of="sums of planes"))
def test_memory_beside_the_result_is_two_sums_of_a_batch_of_planes(taps):
    x, planes = TensorType((1, 16, 40, 64, 64), DType.F32), 40 - taps[0] + 1
    y = TensorType((1, 32, planes, 64 - taps[1] + 1, 64 - taps[2] + 1), DType.F32)
    w = TensorType((32, 16, *taps), DType.F32)
    ones, none = (1, 1, 1), (0, 0, 0)
    whole = VolumeConvolution(x=x, w=w, y=y, stride=ones, padding=none, dilation=ones, groups=1).by_fewest_sums()
    assert len(whole.temporaries) == SUMS[taps]
    plane = y.nbytes // planes
    program = compile_sections(
        tuple(whole.sections()), inputs=(x, w), output=y, temporaries=whole.temporaries, threads=1
    )
    assert program.arena_bytes <= SUMS[taps] * (max(4 * 2**20, plane) + 64)
    kernels = [call.team_scratch_bytes for call in program.calls]
    assert max(kernels) <= 2 * 3 * w.nbytes  # the filters of one plane in panels of terms; never the windows
    assert all(call.thread_scratch_bytes < 4 * 2**20 for call in program.calls)
    gradient = VolumeFilterGradient(x=x, grad=y, y=w, stride=ones, padding=none, dilation=ones, groups=1)
    assert gradient.by_fewest_sums().temporaries == ()


def test_no_call_of_aten(rng):
    x, weight = tensor(rng, DType.F32, (2, 8, 5, 9, 9)), tensor(rng, DType.F32, (6, 8, 2, 3, 3))
    grad = tensor(rng, DType.F32, (2, 6, 4, 7, 7))
    outs = [torch.empty(shape) for shape in (grad.shape, x.shape, weight.shape)]
    with AtenCalls():
        tracea.ops.sum(x)  # a process's first call under a mode makes a tensor of torch's
    with AtenCalls() as counted:
        functional.conv3d(x, weight)
    assert counted.calls > 0
    for _ in range(2):  # a new signature, then a known one
        with AtenCalls() as counted:
            tracea.ops.conv3d(x, weight, out=outs[0])
            tracea.ops.conv3d_grad_input(grad, weight, x.shape, out=outs[1])
            tracea.ops.conv_transpose3d(grad, weight, out=outs[1])
            tracea.ops.conv3d_grad_weight(x, grad, weight.shape, out=outs[2])
        assert counted.calls == 0


@pytest.mark.costly
def test_result_has_the_order_of_the_volume(rng):
    for last in (False, True):
        order = torch.channels_last_3d if last else torch.contiguous_format
        x = tensor(rng, DType.F32, (2, 3, 5, 4, 6), last=last)
        weight = tensor(rng, DType.F32, (6, 3, 1, 3, 3), last=False)
        grad = tracea.ops.conv3d(x, weight)
        assert grad.is_contiguous(memory_format=order)
        assert tracea.ops.conv3d_grad_input(grad, weight, x.shape).is_contiguous(memory_format=order)
        assert tracea.ops.conv3d_grad_weight(x, grad, weight.shape).is_contiguous(memory_format=order)
        assert tracea.ops.conv_transpose3d(grad, weight).is_contiguous(memory_format=order)
    made = tracea.ops.conv_transpose3d(torch.randn(2, 3, 1, 1, 1), torch.randn(3, 4, 2, 2, 2))
    assert made.is_contiguous()  # a volume of one voxel is in both orders


@pytest.mark.costly
def test_numbers_are_taken_as_torch_takes_them(rng):
    x, weight = tensor(rng, DType.F32, (1, 4, 5, 6, 7)), tensor(rng, DType.F32, (3, 4, 3, 1, 3))
    for given in (
        {"stride": [2]},
        {"padding": "valid"},
        {"padding": "same", "dilation": (2, 3, 1)},
        {"padding": (2, 0, 1)},
    ):
        expected = functional.conv3d(x.double(), weight.double(), **given)
        result = tracea.ops.conv3d(x, weight, **given)
        assert result.shape == expected.shape
        assert float((result - expected).abs().max()) < 1e-4


def test_numpy_arrays_are_read_where_they_lie(rng):
    x = rng.standard_normal((2, 8, 4, 10, 6)).astype(np.float32)[:, ::2, :, 1::2, ::2]
    weight = rng.standard_normal((3, 4, 2, 3, 2)).astype(np.float32).swapaxes(2, 4)
    result = tracea.ops.conv3d(x, weight, padding=1)
    assert isinstance(result, np.ndarray)
    expected = functional.conv3d(torch.tensor(x).double(), torch.tensor(weight).double(), padding=1)
    assert np.abs(result - expected.numpy()).max() < 1e-4


@pytest.mark.costly
def test_planes_that_nothing_reaches_are_the_epilogue_of_zero_whatever_the_operands_hold():
    x, weight = torch.full((1, 1, 2, 2, 2), float("nan")), torch.full((1, 1, 1, 1, 1), float("inf"))
    bias = torch.tensor([2.5])
    result = tracea.ops.conv3d(x, weight, bias, padding=(2, 0, 0))
    assert result[0, 0, 2:4].isnan().all()
    assert (result[0, 0, [0, 1, 4, 5]] == 2.5).all()
    result = tracea.ops.conv_transpose3d(x, weight, bias, stride=(3, 1, 2))
    reached = torch.zeros(4, 2, 3, dtype=torch.bool)
    reached[0::3, :, 0::2] = True
    assert result[0, 0][reached].isnan().all()
    assert (result[0, 0][~reached] == 2.5).all()


def test_filters_that_only_meet_padding_have_gradients_of_zero():
    x, grad = torch.ones(1, 2, 1, 4, 4), torch.ones(1, 3, 1, 4, 4)
    found = tracea.ops.conv3d_grad_weight(x, grad, (3, 2, 3, 3, 3), padding=1)
    assert (found[:, :, [0, 2]] == 0).all()
    assert (found[:, :, 1, 1, 1] == 16).all()


def test_no_volumes_and_no_filters_are_an_empty_result():
    assert tracea.ops.conv3d(torch.empty(0, 3, 4, 4, 4), torch.empty(2, 3, 3, 3, 3)).shape == (0, 2, 2, 2, 2)
    assert tracea.ops.conv3d(torch.empty(1, 3, 4, 4, 4), torch.empty(0, 3, 3, 3, 3)).shape == (1, 0, 2, 2, 2)
    assert tracea.ops.conv_transpose3d(torch.empty(0, 3, 4, 4, 4), torch.empty(3, 2, 3, 3, 3)).shape[0] == 0
    shape = (0, 3, 6, 6, 6)
    grad = torch.empty(0, 2, 4, 4, 4)
    assert tracea.ops.conv3d_grad_input(grad, torch.empty(2, 3, 3, 3, 3), shape).shape == shape
    found = tracea.ops.conv3d_grad_weight(torch.empty(shape), grad, (2, 3, 3, 3, 3))
    assert found.shape == (2, 3, 3, 3, 3)
    assert not found.any()


@pytest.mark.costly
def test_results_are_the_same_each_time_and_with_any_threads(rng):
    x, weight = tensor(rng, DType.F32, (1, 20, 4, 13, 11)), tensor(rng, DType.F32, (40, 20, 3, 3, 3))
    first = tracea.ops.conv3d(x, weight, padding=1)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        assert torch.equal(first, tracea.ops.conv3d(x, weight, padding=1))


X, W = torch.zeros(2, 4, 5, 6, 7), torch.zeros(6, 4, 3, 3, 3)
REFUSED: dict[str, tuple[type[InvalidInput], Any]] = {
    "four axes": (InvalidShape, lambda: tracea.ops.conv3d(X[0], W)),
    "channels that differ": (InvalidShape, lambda: tracea.ops.conv3d(X[:, :3], W)),
    "no channels": (InvalidShape, lambda: tracea.ops.conv3d(X[:, :0], W[:, :0])),
    "no taps": (InvalidShape, lambda: tracea.ops.conv3d(X, W[:, :, :0])),
    "a filter beyond the volume": (InvalidShape, lambda: tracea.ops.conv3d(X[:, :, :2], W)),
    "a bias of another length": (InvalidShape, lambda: tracea.ops.conv3d(X, W, torch.zeros(5))),
    "a residual that is larger": (InvalidShape, lambda: tracea.ops.conv3d(X, W, residual=torch.zeros(2, 6, 6, 6, 6))),
    "an out of another shape": (InvalidShape, lambda: tracea.ops.conv3d(X, W, out=torch.zeros(2, 6, 3, 4, 4))),
    "two element types": (InvalidDType, lambda: tracea.ops.conv3d(X, W.half())),
    "integers": (InvalidDType, lambda: tracea.ops.conv3d(X.int(), W.int())),
    "a stride of two numbers": (InvalidOp, lambda: tracea.ops.conv3d(X, W, stride=(1, 1))),
    "a stride of zero": (InvalidOp, lambda: tracea.ops.conv3d(X, W, stride=(1, 0, 1))),
    "a fraction": (InvalidOp, lambda: tracea.ops.conv3d(X, W, padding=0.5)),
    "same with a stride": (InvalidOp, lambda: tracea.ops.conv3d(X, W, padding="same", stride=2)),
    "an unknown activation": (InvalidOp, lambda: tracea.ops.conv3d(X, W, activation="nonesuch")),
    "groups that do not divide": (InvalidShape, lambda: tracea.ops.conv3d(X, W[:, :2], groups=3)),
    "transposed, channels that differ": (InvalidShape, lambda: tracea.ops.conv_transpose3d(X, W)),
    "transposed, padded away": (InvalidShape, lambda: tracea.ops.conv_transpose3d(X, W[:4], padding=9)),
    "an output padding of a stride": (InvalidOp, lambda: tracea.ops.conv_transpose3d(X, W[:4], output_padding=1)),
    "a gradient of another shape": (InvalidShape, lambda: tracea.ops.conv3d_grad_input(X, W, (2, 4, 5, 6, 7))),
    "four extents": (InvalidShape, lambda: tracea.ops.conv3d_grad_weight(X, X, (6, 4, 3, 3))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_convolution_is_refused_with_numbers_and_remedy(name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error, match="Remedy: "):
        call()


def test_out_may_share_no_element_with_an_input() -> None:
    whole = torch.zeros(2, 4, 5, 6, 7)
    with pytest.raises(OverlappingOutput):
        tracea.ops.conv3d(whole, torch.zeros(4, 4, 1, 1, 1), out=whole)
