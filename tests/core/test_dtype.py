from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracea.core.dtype import DType
from tracea.errors import InvalidDType


@pytest.mark.parametrize("dtype", DType)
def test_a_type_is_known_by_its_short_name_and_its_numpy_type(dtype: DType) -> None:
    assert DType.parse(dtype.value) is dtype
    assert DType.parse(dtype) is dtype
    assert DType.of(dtype.numpy) is dtype
    assert dtype.nbytes == dtype.numpy.itemsize


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("torch.bfloat16", DType.BF16), ("float32", DType.F32), (" Half ", DType.F16), ("int8", DType.I8)],
)
def test_framework_names_parse(name: str, dtype: DType) -> None:
    assert DType.parse(name) is dtype


@pytest.mark.parametrize("name", ["", "f33", "float\x00", "f32; rm -rf", "é" * 5000, None, 32])
def test_an_unknown_name_lists_the_known_ones(name: object) -> None:
    with pytest.raises(InvalidDType, match="bf16"):
        DType.parse(name)  # type: ignore[arg-type]
    with pytest.raises(InvalidDType):
        DType.of("complex64")
    with pytest.raises(InvalidDType):
        DType.of(">f4")


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_float])
def test_float_constants_are_those_of_the_format(dtype: DType) -> None:
    info = ml_dtypes.finfo(dtype.numpy)
    assert dtype.eps == float(info.eps)
    assert dtype.largest == float(info.max)
    assert dtype.lowest == float(info.min)
    assert dtype.smallest == float(info.smallest_subnormal)


def test_eps_of_integers_is_zero() -> None:
    assert [d.eps for d in DType if not d.is_float] == [0.0] * 5


@given(st.floats(width=64))
def test_rounding_to_f32_and_f16_is_one_rounding(value: float) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(DType.F32.round(value), np.float64(np.float32(value)))
        np.testing.assert_array_equal(DType.F16.round(value), np.float64(np.float16(value)))


def test_rounding_to_bf16_does_not_round_twice() -> None:
    # Just above the midpoint of 1 and 1 + 2^-7: by way of f32 it becomes the midpoint, and then the even neighbour 1.
    above_middle = 1.0 + 2.0**-8 + 2.0**-40
    assert DType.BF16.round(above_middle) == 1.0 + 2.0**-7
    assert DType.BF16.round(-above_middle) == -1.0 - 2.0**-7
    assert DType.BF16.round(1.0 + 2.0**-8) == 1.0
    assert DType.BF16.round(1e300) == np.inf
    assert np.isnan(DType.BF16.round(np.nan))
    assert DType.BF16.round(0.0) == 0.0


@given(st.floats(min_value=-3e38, max_value=3e38, width=64))
def test_rounding_to_bf16_gives_a_nearest_value(value: float) -> None:
    rounded = float(DType.BF16.round(value))
    bits = int(np.abs(np.float32(rounded)).view(np.uint32)) >> 16
    neighbours = np.array([max(bits - 1, 0), bits + 1], dtype=np.uint32) << np.uint32(16)
    around = np.copysign(neighbours.view(np.float32).astype(np.float64), rounded)
    assert abs(rounded - value) <= np.abs(around - value).min()


def test_integers_truncate_and_saturate() -> None:
    values = np.array([1.9, -1.9, 300.0, -300.0, np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(DType.I8.round(values), [1, -1, 127, -128, 0, 127, -128])
    np.testing.assert_array_equal(DType.U8.round(values), [1, 0, 255, 0, 0, 255, 0])
    np.testing.assert_array_equal(DType.BOOL.round(np.array([0.0, -0.0, 0.5, np.nan])), [0, 0, 1, 1])
    assert float(DType.I64.round(1e300)) < 2.0**63


@pytest.mark.parametrize("wide", DType)
@pytest.mark.parametrize("narrow", DType)
def test_a_type_holds_another_only_if_the_cast_changes_nothing(wide: DType, narrow: DType, rng) -> None:
    values = narrow.round(rng.standard_normal(2000) * 10.0 ** rng.integers(-6, 10, 2000))
    values = np.concatenate([values, [narrow.lowest, narrow.largest, narrow.smallest]])
    if wide.holds(narrow):
        np.testing.assert_array_equal(wide.round(values), values)
