"""Convolutions with few filters in vectors along channels: choice, results, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.drawn import drawn
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.conv_cases import FUSED, ONE, conv
from tests.kernels.dot_cases import dot_cases
from tests.kernels.moved_regions import later, moved, narrowed, nothing, twice
from tests.kernels.native import host_isas, one_of_the_isas, run_isas
from tests.kernels.test_conv import DTYPES, random_conv
from tests.kernels.test_conv_turned import turned

from tracea.core.op import Conv2dOp
from tracea.emitters.cpu.emitter import emit
from tracea.errors import EmitError, InvalidSchedule, ProofFailed
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.semantic.index import TRUE
from tracea.semantic.nodes import Barrier, Block, CopyTile, MicroKernel, Node, Pack
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.targets import load

CASES = {case.name: case for case in dot_cases()}
VARIANTS = ("conv.dot", "conv.dot_prepacked")


@pytest.mark.parametrize("isa", one_of_the_isas("sums along channels", vectors=True))
@pytest.mark.parametrize("variant", drawn(1, VARIANTS, of="sums along channels"))
def test_random_convolutions_match_float64(variant: str, isa: str, rng: np.random.Generator) -> None:
    target, found, cases = load(isa), find(variant), []
    assert found.space is not None
    for number, dtype in enumerate((*DTYPES, *DTYPES)):
        op = random_conv(rng, dtype=dtype, most=24)
        op = turned(rng, op) if number % 3 == 2 else op
        if found.unmet(op, target):  # groups of one channel
            continue
        space = found.space(op, target)
        schedule = space.schedule(space.rows[int(rng.integers(0, len(space)))])
        cases.append(Case.of(f"dot{number}", variant, op, **dict(schedule)))
    unit = unit_of(tuple(cases), isa)
    for case in cases:
        for threads in (1, 3):
            check(unit, build(case, isa), case.op, random_inputs(case.op, rng), threads=threads)


@pytest.mark.costly
@pytest.mark.parametrize("isa", run_isas()[:2])
@pytest.mark.parametrize("name", ["dot_last", "dot_rows", "dot_groups", "dot_dilated", "dot_f64", "dot_bf16"])
def test_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(dot_cases(), isa), CASES[name]
    built, op = build(case, isa), case.op
    for _ in range(10):
        groups = 1 if op.groups == 1 else int(rng.integers(2, 5))
        other = Conv2dOp.of(
            batch=int(rng.integers(0, 3)),
            channels=groups * int(rng.integers(2, 40)),
            size=(int(rng.integers(8, 20)), int(rng.integers(8, 20))),
            filters=groups * int(rng.integers(2, 9)),
            kernel=(int(rng.integers(1, 5)), int(rng.integers(1, 4))),
            stride=op.stride,
            padding=op.padding,
            dilation=op.dilation,
            groups=groups,
            dtype=op.x.dtype,
            channels_last=op.infer().layout is not None,
            **(FUSED if op.epilogue.operands else {}),  # type: ignore[arg-type]
        )
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["dot_last", "dot_rows", "dot_wide_border"])
def test_nan_and_infinity_reach_exactly_the_results_that_depend_on_them(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    unit, case = unit_of(dot_cases(), isa), CASES[name]
    inputs = random_inputs(case.op, rng)
    inputs[0][0, 0, 2, 1] = np.nan  # a first channel, behind the tail of the pixel before
    inputs[0][-1, -1, 0, 0] = np.inf  # a last one
    with np.errstate(all="ignore"):
        check(unit, build(case, isa), case.op, inputs, threads=2)


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_result_has_the_same_bits_for_any_team(isa: str, rng: np.random.Generator) -> None:
    for name in ("dot_last", "dot_groups"):
        unit, case = unit_of(dot_cases(), isa), CASES[name]
        inputs = random_inputs(case.op, rng)
        first = run(unit, build(case, isa), case.op, inputs, threads=1)
        for threads in (2, 3, 5):
            assert first.tobytes() == run(unit, build(case, isa), case.op, inputs, threads=threads).tobytes()


@pytest.mark.parametrize("name", CASES)
def test_an_image_with_its_channels_together_is_not_copied(name: str) -> None:
    built = build(CASES[name], "avx512")
    kernel, op, values = built.kernel, CASES[name].op, arguments(built.kernel)
    direct = op.x.strides[1] == 1
    assert direct != any(buffer.name == "halo" for buffer in kernel.buffers)
    if direct:
        assert int(kernel.thread_scratch_bytes.evaluate(values)) <= 14 * 4 * 8 + 64  # a tile's sums at most


def test_it_is_chosen_for_few_filters_and_channels_that_fill_vectors() -> None:
    target = load("avx512")
    last = {"channels_last": True}

    def first(op: Conv2dOp) -> bool:
        return candidates(op, target)[0].id == "conv.dot_prepacked"

    assert all(first(conv(64, (56, 56), filters, **last)) for filters in (1, 3, 7))
    assert first(conv(64, (56, 56), 2, **ONE, **last))
    assert first(conv(128, (56, 56), 8, groups=4, **last))
    assert not first(conv(64, (56, 56), 16, **last))
    assert not first(conv(64, (56, 56), 64, **last))


def said(node: MicroKernel, name: str, value: int | str) -> Node:
    """Return a tile whose routine says another number of itself."""
    attributes = tuple((key, value if key == name else old) for key, old in node.intrinsic.attributes)
    return replace(node, intrinsic=replace(node.intrinsic, attributes=attributes))


# In order: what is wrong, in which kernel, in which node, and how.
MUTANTS: dict[str, tuple[str, type[Node], Callable[[Any], Node]]] = {
    "the window is a row lower": ("dot_last", MicroKernel, lambda node: replace(node, a=moved(node.a, -3, later))),
    "the window is a column to the right": (
        "dot_last",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, -2, later)),
    ),
    "every tile reads the first pixels": (
        "dot_rows",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, -2, nothing)),
    ),
    "the window moves too far": ("dot_rows", MicroKernel, lambda node: replace(node, a=moved(node.a, -3, twice))),
    "every image is the first one": ("dot_last", MicroKernel, lambda node: replace(node, a=moved(node.a, 0, nothing))),
    "every group is the first one": (
        "dot_groups",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, 1, nothing)),
    ),
    "what is beside the image is read": ("dot_last", MicroKernel, lambda node: replace(node, masked=False)),
    "a channel is left out": (
        "dot_last",
        MicroKernel,
        lambda node: replace(node, a=narrowed(node.a, -1), b=narrowed(node.b, -2)),
    ),
    "a row of taps is left out": ("dot_dilated", MicroKernel, lambda node: replace(node, b=narrowed(node.b, -4))),
    "each tile has the first filters": (
        "dot_last",
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, -5, nothing)),
    ),
    "a filter of the tile is not read": ("dot_last", MicroKernel, lambda node: replace(node, b=narrowed(node.b, -5))),
    "a tile is stored a pixel later": (
        "dot_dense",
        MicroKernel,
        lambda node: replace(node, c=moved(node.c, -2, later)),
    ),
    "sums are added to what is there": ("dot_dense", MicroKernel, lambda node: replace(node, accumulate=TRUE)),
    "bias and residual are left out": ("dot_last", MicroKernel, lambda node: replace(node, epilogue=None)),
    "the routine holds fewer filters": ("dot_last", MicroKernel, lambda node: said(node, "nk", 1)),
    "the routine holds fewer pixels": ("dot_last", MicroKernel, lambda node: said(node, "mr", 2)),
    "whole tiles have no code": ("dot_last", MicroKernel, lambda node: said(node, "rows", "2,1")),
    "taps lie further apart": ("dot_last", MicroKernel, lambda node: said(node, "dilation_columns", 2)),
    "a channel is not copied": (
        "dot_rows",
        CopyTile,
        lambda node: replace(node, source=narrowed(node.source, -1), target=narrowed(node.target, -1)),
    ),
    "filters are packed one further": (
        "dot_last",
        Pack,
        lambda node: replace(node, source=moved(node.source, -1, later)),
    ),
    "no one waits for the filters": ("dot_last", Barrier, lambda _: Block(nodes=())),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_kernel_with_one_thing_wrong_is_refused(name: str) -> None:
    case, kind, change = MUTANTS[name]
    kernel = build(CASES[case], "avx512").kernel
    assert prove(kernel).facts
    place, node = next((place, node) for place, node in places(kernel.body) if isinstance(node, kind))
    with pytest.raises(ProofFailed):
        prove(edited(kernel, place, change(node)))


def test_filters_in_wider_panels_are_not_emitted() -> None:
    kernel = build(CASES["dot_dense"], "avx512").kernel
    w = kernel.buffer("w")
    buffers = tuple(replace(b, shape=(*w.shape[:-1], w.shape[-1] + 1)) if b is w else b for b in kernel.buffers)
    with pytest.raises(EmitError, match="next to each other"):
        emit(replace(kernel, buffers=buffers), "avx512")


@pytest.mark.parametrize(
    ("values", "named"),
    [({"mr": 9, "nk": 4}, "registers"), ({"tail": 3}, "tail"), ({"gap": -1}, "gap"), ({"rows": 0}, "rows")],
)
def test_schedule_out_of_range_is_refused(values: dict[str, int], named: str) -> None:
    good = {"mr": 3, "nk": 2, "tail": 1, "rows": 3, "kb": 4, "gap": 5}
    with pytest.raises(InvalidSchedule, match=named):
        build(Case.of("wrong", "conv.dot", conv(20, (5, 7), 3), **{**good, **values}), "avx512")


def test_groups_of_one_channel_are_refused_with_the_reason() -> None:
    op = conv(9, (5, 7), 18, groups=9, channels_last=True)
    (unmet,) = (reason for _, reason in find("conv.dot").unmet(op, load("avx512")))
    assert "two channels" in unmet.needed
    assert "conv.depthwise" in unmet.remedy
