"""Gradients for filters of long signals as sums over bands: which bands there are, and what they sum to."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.ops.images import one_row
from tracea.core.tensor_type import TensorType
from tracea.flow.filter_gradient import FilterGradient
from tracea.flow.sections import compile_sections
from tracea.flow.signal_bands import SignalBands


def gradient(length: int, places: int, taps: int, *, stride: int = 1, padding: int = 0) -> FilterGradient:
    x, grad, y = (one_row(TensorType(shape, DType.F64)) for shape in ((1, 2, length), (1, 3, places), (3, 2, taps)))
    return FilterGradient(x=x, grad=grad, y=y, stride=(1, stride), padding=(0, padding), dilation=(1, 1), groups=1)


def test_bands_are_of_signals_of_more_places_than_a_kernel_has_taps() -> None:
    assert SignalBands.of(gradient(258, 256, 3)) is None
    assert SignalBands.of(gradient(259, 257, 3)) is not None


def test_bands_that_lie_in_the_padding_are_left_out() -> None:
    bands = SignalBands(whole=gradient(2, 20, 3, padding=10), most=4)
    assert len(tuple(bands.sections())) == 1  # places 8 to 11: window 8 begins 2 before the signal, 12 at its end


@pytest.mark.parametrize(("length", "places", "numbers"), [(7, 5, {}), (7, 4, {"stride": 2, "padding": 1})])
def test_bands_sum_to_the_gradient(length, places, numbers, rng) -> None:
    whole = gradient(length, places, 3, **numbers)
    bands = SignalBands(whole=whole, most=2)
    assert len(bands.temporaries) == min(2, -(-places // 2) - 1)
    inputs, y = (
        (TensorType((1, 2, length), DType.F64), TensorType((1, 3, places), DType.F64)),
        TensorType((3, 2, 3), DType.F64),
    )
    program = compile_sections(
        tuple(bands.sections()), inputs=inputs, output=y, temporaries=bands.temporaries, threads=1
    )
    x, grad = (rng.standard_normal(type_.static_shape) for type_ in inputs)
    padding, stride = numbers.get("padding", 0), numbers.get("stride", 1)
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    expected = np.stack(
        [grad[0] @ padded[0, :, tap : tap + (places - 1) * stride + 1 : stride].T for tap in range(3)], axis=2
    )
    np.testing.assert_allclose(program.run(x, grad), expected, rtol=1e-12, atol=1e-12)
