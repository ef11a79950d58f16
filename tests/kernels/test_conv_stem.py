"""Convolutions of few channels on matrix tiles: random ops, other extents, memory, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.conv_cases import amx_conv_cases, stem_cases
from tests.kernels.on_tiles import needs_tiles, on_both

from tracea.core.accuracy import error_bound
from tracea.core.dtype import DType
from tracea.core.op import Conv2dOp
from tracea.core.reference import evaluate
from tracea.errors import InvalidShape, InvalidStride
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.semantic.intrinsics import terms_of
from tracea.targets import load

CASES = {case.name: case for case in stem_cases()}


def random_stem(rng: np.random.Generator, dtype: DType) -> Conv2dOp:
    """Return a random convolution whose rows of taps fit a granule."""
    kernel = (int(rng.integers(1, 8)), int(rng.integers(1, 8)))
    channels, groups = int(rng.integers(1, 32 // kernel[1] + 1)), int(rng.choice([1, 1, 2]))
    padding = (int(rng.integers(0, 4)), int(rng.integers(0, 4)))
    height, width = (
        max(1, taps - 2 * pad) + int(rng.integers(0, 40)) for taps, pad in zip(kernel, padding, strict=True)
    )
    return Conv2dOp.of(
        batch=int(rng.integers(1, 3)),
        channels=groups * channels,
        size=(height, width),
        filters=groups * int(rng.integers(1, 80)),
        kernel=kernel,
        stride=(int(rng.integers(1, 5)), int(rng.integers(1, 5))),
        padding=padding,
        groups=groups,
        channels_last=bool(rng.integers(2)),
        bias=bool(rng.integers(2)),
        dtype=dtype,
    )


@needs_tiles
@pytest.mark.parametrize("variant", ["conv.amx_stem", "conv.amx_stem_prepacked"])
def test_random_convolutions_match_float64(variant: str, rng: np.random.Generator) -> None:
    target, found = load("amx"), find(variant)
    assert found.space is not None
    cases = []
    for number in range(12):
        dtype = (DType.F32, DType.F32, DType.BF16, DType.F16)[number % 4]
        op = random_stem(rng, dtype)
        while found.unmet(op, target):  # one column of results
            op = random_stem(rng, dtype)
        space = found.space(op, target)
        schedule = space.schedule(space.rows[int(rng.integers(0, len(space)))])
        cases.append(Case.of(f"random{number}", variant, op, **dict(schedule)))
    unit = unit_of(tuple(cases), "amx")
    for case in cases:
        for threads in (1, 3):
            check(unit, build(case, "amx"), case.op, random_inputs(case.op, rng), threads=threads)


@on_both
@pytest.mark.parametrize("name", ["amx_stem_last", "amx_stem_planar"])
def test_stem_built_once_serves_other_images_and_filters(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(amx_conv_cases(), isa), CASES[name]
    for _ in range(6 if isa == "amx" else 2):
        other = Conv2dOp.of(
            batch=int(rng.integers(0, 3)),
            channels=3,
            size=(int(rng.integers(1, 30)), int(rng.integers(20, 90))),
            filters=int(rng.integers(1, 90)),
            kernel=(7, 7),
            stride=(2, 2),
            padding=(3, 3),
            channels_last=case.op.infer().layout is not None,
            bias=True,
            activation="gelu",
            residual=True,
        )
        check(unit, build(case, isa), other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


@on_both
def test_error_is_within_the_contract_of_independent_roundings(isa: str, rng: np.random.Generator) -> None:
    case = CASES["amx_stem_whole_window"]
    inputs = random_inputs(case.op, rng)
    got = run(unit_of(amx_conv_cases(), isa), build(case, isa), case.op, inputs).astype(np.float64)
    assert (np.abs(got - evaluate(case.op, inputs)) <= error_bound(case.op, inputs)).all()


@pytest.mark.parametrize("name", CASES)
def test_scratch_is_bounded_by_a_band_and_the_filters(name: str) -> None:
    """A task keeps the rows that its band reads, and for each window two bytes a lane and term, and a mark."""
    case = CASES[name]
    built = build(case, "amx")
    op, values = case.op, arguments(built.kernel)
    filters, channels, r, s = op.w.static_shape
    (down, right), width = op.stride, int(op.shape[3])
    height = (built.kernel.schedule.integer("rows") - 1) * down + r
    image = 4 * height * ((width - 1) * right + s) * channels
    terms = terms_of(op.x.dtype)
    halo = 2 * (32 * terms + 1) * width * (height + down * (32 // width + 2))
    assert int(built.kernel.thread_scratch_bytes.evaluate(values)) <= image + halo + 128
    panels = op.groups * -(-filters // op.groups // 32) * 32 * r
    most = 0 if case.variant == "conv.amx_stem_prepacked" else 2 * (32 * terms + (terms < 3)) * panels
    assert int(built.kernel.team_scratch_bytes.evaluate(values)) <= most


def test_stem_is_first_for_images_only() -> None:
    target = load("amx")

    def first(**more: object) -> str:
        return candidates(Conv2dOp.of(filters=64, **more), target)[0].id  # type: ignore[arg-type]

    seven = {"kernel": (7, 7), "padding": (3, 3), "stride": (2, 2)}
    assert first(channels=3, size=(224, 224), **seven) == "conv.amx_stem_prepacked"
    assert first(channels=3, size=(224, 224), kernel=(3, 3)) == "conv.prepacked"  # results cost more than sums
    assert first(channels=64, size=(56, 56), kernel=(3, 3)) == "conv.amx_prepacked"
    for dtype in (DType.BF16, DType.F16):
        assert first(channels=3, size=(224, 224), dtype=dtype, **seven) == "conv.amx_stem_prepacked"


def test_stem_is_refused_where_it_does_not_fit() -> None:
    target, found = load("amx"), find("conv.amx_stem")
    wide = Conv2dOp.of(channels=5, size=(20, 20), filters=8, kernel=(7, 7))
    dilated = Conv2dOp.of(channels=3, size=(20, 20), filters=8, kernel=(3, 3), dilation=(1, 2))
    for op in (wide, dilated):
        assert "a row of taps in a granule" in {requirement.name for requirement, _ in found.unmet(op, target)}
    case = CASES["amx_stem_planar"]
    other = Conv2dOp.of(
        channels=2, size=(15, 17), filters=70, kernel=(7, 7), padding=(3, 3), stride=(2, 2), bias=True, residual=True
    )
    with pytest.raises(InvalidStride):
        arguments(build(case, "amx").kernel, other)
    fewer = Conv2dOp.of(
        channels=3,
        size=(15, 17),
        filters=70,
        kernel=(7, 5),
        padding=(3, 3),
        stride=(2, 2),
        bias=True,
        activation="gelu",
        residual=True,
    )
    with pytest.raises(InvalidShape):
        arguments(build(case, "amx").kernel, fewer)
