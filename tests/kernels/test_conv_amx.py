"""Convolutions on matrix tiles: float32 accuracy from bf16 terms, values that terms cannot hold, random ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.conv_cases import amx_conv_cases
from tests.kernels.native import Unit
from tests.kernels.on_tiles import needs_tiles, on_both
from tests.kernels.test_conv import random_conv

from tracea.core.accuracy import error_bound
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.reference import evaluate
from tracea.core.tensor_type import StridedLayout, TensorType
from tracea.errors import InvalidSchedule
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.targets import load

CASES = {case.name: case for case in amx_conv_cases()}
Values = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def compiled(name: str, isa: str) -> tuple[Unit, Case]:
    return unit_of(amx_conv_cases(), isa), CASES[name]


@on_both
@pytest.mark.parametrize("name", CASES)
def test_kernel_matches_float64_on_one_thread_and_three(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name, isa)
    for threads in (1, 3):
        check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


@needs_tiles
@pytest.mark.parametrize("variant", ["conv.amx", "conv.amx_prepacked"])
def test_random_convolutions_match_float64(variant: str, rng: np.random.Generator) -> None:
    target, found = load("amx"), find(variant)
    assert found.space is not None
    cases = []
    for number in range(8):
        dtype = (DType.F32, DType.F32, DType.BF16, DType.F16)[number % 4]
        op = random_conv(rng, dtype=dtype, most=60)
        while found.unmet(op, target):  # one column of results
            op = random_conv(rng, dtype=dtype, most=60)
        space = found.space(op, target)
        schedule = space.schedule(space.rows[int(rng.integers(0, len(space)))])
        cases.append(Case.of(f"random{number}", variant, op, **dict(schedule)))
    unit = unit_of(tuple(cases), "amx")
    for case in cases:
        for threads in (1, 3):
            check(unit, build(case, "amx"), case.op, random_inputs(case.op, rng), threads=threads)


@on_both
@pytest.mark.parametrize("name", ["amx_conv_last", "amx_conv_planar", "amx_conv_groups"])
def test_convolution_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled(name, isa)
    op = case.op
    for _ in range(8 if isa == "amx" else 2):
        groups = 1 if op.groups == 1 else int(rng.integers(2, 4))
        other = Conv2dOp.of(
            batch=int(rng.integers(0, 3)),
            channels=groups * int(rng.integers(2, 70)),
            size=(int(rng.integers(6, 20)), int(rng.integers(30, 50))),
            filters=groups * int(rng.integers(2, 90)),
            kernel=(int(rng.integers(1, 4)), int(rng.integers(1, 4))),
            stride=op.stride,
            padding=op.padding,
            dilation=op.dilation,
            groups=groups,
            channels_last=op.infer().layout is not None,
            bias=True,
            activation="gelu",
            residual=True,
        )
        check(unit, build(case, isa), other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


@on_both
def test_error_is_within_the_contract_of_independent_roundings(isa: str, rng: np.random.Generator) -> None:
    unit, case = compiled("amx_conv_plain_result", isa)
    inputs = random_inputs(case.op, rng)
    got = run(unit, build(case, isa), case.op, inputs).astype(np.float64)
    assert (np.abs(got - evaluate(case.op, inputs)) <= error_bound(case.op, inputs)).all()


def placed(*values: float) -> Values:
    """Return normal values with a few others at places that are drawn."""

    def make(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        array = rng.standard_normal(shape).astype(np.float32)
        for value in values:
            array[tuple(int(rng.integers(0, size)) for size in shape)] = value
        return array

    return make


def scaled(factor: float) -> Values:
    return lambda rng, shape: (rng.standard_normal(shape) * factor).astype(np.float32)


def spread(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-36, 5, shape)).astype(np.float32)


ALL_DIGITS = np.array(0x7FFFE000, np.uint32).view(np.float32)[()]  # so is the f16 that it becomes
NARROW = [name for name in CASES if "_bf16_" in name or "_f16_" in name]
EXTREMES: dict[str, tuple[Values, Values]] = {
    "nan": (placed(np.nan), placed(1.0)),
    "infinities": (placed(np.inf, -np.inf), placed(np.inf)),
    "huge": (placed(3e38, -2e38), scaled(0.01)),
    "denormals": (placed(1e-40, -1e-44, 1e-38), placed(1e5)),
    "all_denormal": (scaled(1e-39), scaled(1e10)),
    "at_the_ends_of_the_safe_range": (scaled(2.0**-48), scaled(2.0**57)),
    "wide": (spread, scaled(1.0)),
    "wide_filters": (scaled(1.0), spread),
    "nan_of_all_digits": (placed(ALL_DIGITS), placed(1.0)),
    "nan_of_all_digits_in_a_filter": (placed(1.0), placed(-ALL_DIGITS)),
    "zeros": (lambda rng, shape: np.zeros(shape, np.float32), placed(np.nan)),
}


@on_both
@pytest.mark.parametrize(
    "name",
    [
        *NARROW,
        "amx_conv_last",
        "amx_conv_planar",
        "amx_conv_dilated",
        "amx_conv_one_by_one",
        "amx_conv_panel_in_parts",
        "amx_stem_last",
        "amx_stem_groups",
    ],
)
@pytest.mark.parametrize("extreme", EXTREMES)
def test_values_that_terms_cannot_hold_give_what_float32_gives(
    extreme: str, name: str, isa: str, rng: np.random.Generator
) -> None:
    unit, case = compiled(name, isa)
    inputs = random_inputs(case.op, rng)
    for operand, make in enumerate(EXTREMES[extreme]):
        with np.errstate(over="ignore"):
            inputs[operand] = make(rng, inputs[operand].shape).astype(inputs[operand].dtype)
    with np.errstate(all="ignore"):
        check(unit, build(case, isa), case.op, inputs, threads=2)


# The plain meaning of tiles takes a minute and a half for these runs.
@pytest.mark.parametrize("isa", [pytest.param("amx", marks=needs_tiles), pytest.param("plain", marks=pytest.mark.slow)])
def test_result_has_the_same_bits_for_any_team(isa: str, rng: np.random.Generator) -> None:
    for name in ("amx_conv_last", "amx_conv_planar", "amx_conv_panel_in_parts", "amx_stem_last"):
        unit, case = compiled(name, isa)
        inputs = random_inputs(case.op, rng)
        inputs[0][0, 2, 2, 2] = 1e-40
        first = run(unit, build(case, isa), case.op, inputs, threads=1)
        for threads in (1, 2, 3, 5):
            assert first.tobytes() == run(unit, build(case, isa), case.op, inputs, threads=threads).tobytes()


@needs_tiles
def test_tiles_and_their_plain_meaning_agree_bit_for_bit(rng: np.random.Generator) -> None:
    plain_results = ("amx_conv_default", "amx_conv_plain_result", "amx_conv_every_second", "amx_conv_to_bf16")
    for name in (*plain_results, "amx_stem_default", "amx_stem_whole_window", "amx_stem_row_pairs"):
        case = CASES[name]
        inputs = random_inputs(case.op, rng)
        real, plain = (
            run(unit_of(amx_conv_cases(), isa), build(case, isa), case.op, inputs) for isa in ("amx", "plain")
        )
        assert real.tobytes() == plain.tobytes(), name


@pytest.mark.parametrize("name", [case.name for case in amx_conv_cases() if "stem" not in case.variant])
def test_scratch_is_bounded_by_a_band_and_the_filters(name: str) -> None:
    """A task keeps the rows that its band reads, 6 bytes an element, and 2 more for 32 channels of a pixel."""
    case = CASES[name]
    built = build(case, "amx")
    op, values = case.op, arguments(built.kernel)
    filters, channels, r, s = op.w.static_shape
    down, right = op.stride
    blocks, rows = -(-channels // 32), built.kernel.schedule.integer("rows")
    columns = (int(op.shape[3]) - 1) * right + (s - 1) * op.dilation[1] + right
    height = (rows - 1) * down + (r - 1) * op.dilation[0] + down
    spare = (32 // (columns // right) + 1) * down
    assert int(built.kernel.thread_scratch_bytes.evaluate(values)) <= 194 * blocks * (height + spare) * columns + 64
    panels = 6 * op.groups * -(-filters // op.groups // 32) * 32 * blocks * 32 * r * s
    most = 0 if case.variant == "conv.amx_prepacked" else panels
    assert int(built.kernel.team_scratch_bytes.evaluate(values)) <= most


def test_a_band_is_as_high_as_what_its_windows_read_of_the_halo_allows() -> None:
    # 1024 channels at 14x14, every second pixel: what is read of them, a quarter, fits where the whole would not, and
    # the filters, 12 MB of terms that no cache holds, are walked once.
    op = Conv2dOp.of(channels=1024, size=(14, 14), filters=2048, kernel=(1, 1), stride=(2, 2), channels_last=True)
    found = find("conv.amx_prepacked")
    assert found.default_schedule is not None
    assert found.default_schedule(op, replace(load("amx"), cores=1)).integer("rows") == 7


@pytest.mark.parametrize(
    ("channels", "filters", "stride", "chosen"),
    [
        (17, 19, 1, "conv.amx_prepacked"),
        (40, 20, 1, "conv.amx_prepacked"),
        (32, 8, 1, "conv.amx_prepacked"),
        (12, 19, 1, "conv.pixels_prepacked"),
        (24, 8, 1, "conv.pixels_prepacked"),
        (18, 24, 2, "conv.prepacked"),
    ],
)
def test_tiles_are_chosen_where_vectors_would_multiply_more_padding(
    channels: int, filters: int, stride: int, chosen: str
) -> None:
    # 17 channels by 19 filters fill a third of a granule, but two vectors of filters no better. Strides split more
    # pixels than they use.
    op = Conv2dOp.of(
        channels=channels, size=(56, 56), filters=filters, kernel=(3, 3), padding=(1, 1), stride=(stride, stride)
    )
    assert candidates(op, load("amx"))[0].id == chosen


def test_kernel_is_refused_where_it_does_not_fit() -> None:
    op = Conv2dOp.of(channels=64, size=(14, 14), filters=64, kernel=(3, 3))
    assert "conv.amx" not in [variant.id for variant in candidates(op, load("avx512"))]
    assert candidates(op, load("amx"))[0].id == "conv.amx_prepacked"
    wide = Conv2dOp.of(channels=64, size=(14, 14), filters=64, kernel=(3, 3), dtype=DType.F64)
    assert "factors that terms hold" in {each.name for each, _ in find("conv.amx").unmet(wide, load("amx"))}
    assert "factors that terms hold" in {each.name for each, _ in find("conv.amx_stem").unmet(wide, load("amx"))}
    found = find("conv.amx")
    assert found.build is not None
    for bad in ({"rows": 0}, {"kb": 0}):
        with pytest.raises(InvalidSchedule):
            found.build(op, found.default_schedule(op, load("amx")).with_values(**bad), load("amx"))  # type: ignore[misc]


def test_image_and_filters_may_be_views_whose_rows_do_not_follow_each_other() -> None:
    op = Conv2dOp.of(batch=1, channels=64, size=(9, 40), filters=64, kernel=(3, 3))
    x = TensorType(op.x.shape, DType.F32, StridedLayout((64 * 99 * 50, 99 * 50, 50, 1)))
    w = TensorType(op.w.shape, DType.F32, StridedLayout((1, 25, 10, 64 * 40)))
    assert not find("conv.amx").unmet(replace(op, x=x, w=w), load("amx"))


@pytest.mark.parametrize(("cores", "filters"), [(1, 64), (2, 32)])
def test_windows_higher_than_the_result_are_one_band_for_each_block_of_filters(cores: int, filters: int) -> None:
    op = Conv2dOp.of(batch=1, channels=28, size=(16, 192), filters=64, kernel=(14, 1))
    found = find("conv.amx").default_schedule(op, replace(load("amx"), cores=cores))
    assert (found.integer("rows"), found.integer("kb")) == (3, filters)
