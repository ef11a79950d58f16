"""Winograd's F(m, r): extents, proofs that refuse, the contract that they keep and the one they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.kernels.conformance import Built, Case, build, check, random_inputs, run, unit_of
from tests.kernels.conv_cases import FUSED, conv
from tests.kernels.moved_regions import later, moved, narrowed, nothing
from tests.kernels.native import host_isas, run_isas
from tests.kernels.winograd_cases import winograd_cases

from tracea.core.accuracy import claim, sum_constant
from tracea.core.contract import Accuracy
from tracea.core.op import Conv2dOp
from tracea.emitters.cpu.emitter import emit
from tracea.errors import InvalidSchedule, ProofFailed
from tracea.gates import ALL, build_cases
from tracea.gates.case import case_of
from tracea.kernels.arguments import arguments
from tracea.kernels.registry import candidates, find
from tracea.semantic import winograd
from tracea.semantic.index import FALSE
from tracea.semantic.nodes import Block, CopyTile, For, MicroKernel, Node
from tracea.semantic.nodes_winograd import TransformBack, TransformFilters, TransformImage
from tracea.semantic.proofs import prove
from tracea.semantic.rewrite import edited, places
from tracea.semantic.winograd import ALGORITHMS
from tracea.targets import load

CASES = {case.name: case for case in winograd_cases()}
BY_NORM = {"channels_last": True, "accuracy": Accuracy.NORMWISE}


@pytest.mark.costly
@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize(
    "name",
    ["winograd_two", "winograd_four_prepacked", "winograd_groups", "winograd_f64", "winograd_rows", "winograd_wide"],
)
def test_kernel_built_once_serves_other_extents(name: str, isa: str, rng: np.random.Generator) -> None:
    unit, case = unit_of(winograd_cases(), isa), CASES[name]
    built, op = build(case, isa), case.op
    assert isinstance(op, Conv2dOp)
    for _ in range(8):
        groups = 1 if op.groups == 1 else int(rng.integers(2, 5))
        other = Conv2dOp.of(
            batch=int(rng.integers(0, 3)),
            channels=groups * int(rng.integers(2, 40)),
            size=(int(rng.integers(1, 20)), int(rng.integers(1, 20))),
            filters=groups * int(rng.integers(2, 90)),
            kernel=op.w.static_shape[2:],  # type: ignore[arg-type]
            padding=op.padding,
            groups=groups,
            dtype=op.x.dtype,
            accuracy=op.accuracy,
            channels_last=op.x.strides[1] == 1,
            **(FUSED if op.epilogue.operands else {}),  # type: ignore[arg-type]
        )
        check(unit, built, other, random_inputs(other, rng), threads=int(rng.integers(1, 4)))


@pytest.mark.parametrize("isa", host_isas()[:1])
def test_result_has_the_same_bits_for_any_team(isa: str, rng: np.random.Generator) -> None:
    for name in ("winograd_two", "winograd_four", "winograd_groups"):
        unit, case = unit_of(winograd_cases(), isa), CASES[name]
        inputs = random_inputs(case.op, rng)
        first = run(unit, build(case, isa), case.op, inputs, threads=1)
        for threads in (2, 3, 5):
            assert first.tobytes() == run(unit, build(case, isa), case.op, inputs, threads=threads).tobytes()


# In order: what is wrong, in which kernel, in which node, and how.
MUTANTS: dict[str, tuple[str, type[Node], Callable[[Node], Node]]] = {
    "pixels a column later": (
        "winograd_two",
        TransformImage,
        lambda node: replace(node, source=moved(node.source, -2, later)),  # type: ignore[attr-defined]
    ),
    "every band is the first one's pixels": (
        "winograd_two",
        TransformImage,
        lambda node: replace(node, source=moved(node.source, -3, nothing)),  # type: ignore[attr-defined]
    ),
    "every image is the first one": (
        "winograd_two",
        TransformImage,
        lambda node: replace(node, source=moved(node.source, 0, nothing)),  # type: ignore[attr-defined]
    ),
    "every group is the first one": (
        "winograd_groups",
        TransformImage,
        lambda node: replace(node, source=moved(node.source, 1, nothing)),  # type: ignore[attr-defined]
    ),
    "every band copies the first one's pixels": (
        "winograd_rows",
        CopyTile,
        lambda node: replace(node, source=moved(node.source, -3, nothing)),  # type: ignore[attr-defined]
    ),
    "the copy's second row is its first": (
        "winograd_rows",
        TransformImage,
        lambda node: replace(node, source=moved(node.source, -3, later)),  # type: ignore[attr-defined]
    ),
    "the last channel is left out": (
        "winograd_two_prepacked",
        MicroKernel,
        lambda node: replace(node, a=narrowed(node.a, -1), b=narrowed(node.b, -2)),  # type: ignore[attr-defined]
    ),
    "the filters of the next place": (
        "winograd_two_prepacked",
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, -3, nothing)),  # type: ignore[attr-defined]
    ),
    "the image's first place": (
        "winograd_four",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, 0, nothing)),  # type: ignore[attr-defined]
    ),
    "the first tiles": (
        "winograd_four",
        MicroKernel,
        lambda node: replace(node, a=moved(node.a, 1, nothing)),  # type: ignore[attr-defined]
    ),
    "the first panel of filters": (
        "winograd_two",
        MicroKernel,
        lambda node: replace(node, b=moved(node.b, 1, nothing)),  # type: ignore[attr-defined]
    ),
    "filters of two groups": (
        "winograd_two",
        MicroKernel,
        lambda node: replace(node, b=replace(node.b, extent=(node.b.extent[0] + 1, *node.b.extent[1:]))),  # type: ignore[attr-defined]
    ),
    "sums are not begun": (
        "winograd_two",
        MicroKernel,
        lambda node: replace(node, finish=FALSE),
    ),
    "another algorithm's way back": ("winograd_two", TransformBack, lambda node: replace(node, m=4)),
    "another algorithm's image": ("winograd_four", TransformImage, lambda node: replace(node, m=2)),
    "another algorithm's filters": ("winograd_two", TransformFilters, lambda node: replace(node, m=4)),
    "a row of tiles less": (
        "winograd_two",
        TransformBack,
        lambda node: replace(node, tiles=(node.tiles[0] - 1, node.tiles[1])),  # type: ignore[attr-defined]
    ),
    "rows and columns of tiles change places": (
        "winograd_two",
        TransformBack,
        lambda node: replace(node, tiles=node.tiles[::-1]),  # type: ignore[attr-defined]
    ),
    "results a row later": (
        "winograd_two",
        TransformBack,
        lambda node: replace(node, target=moved(node.target, -3, later)),  # type: ignore[attr-defined]
    ),
    "taps in another order": (
        "winograd_two",
        TransformFilters,
        lambda node: replace(node, source=moved(node.source, 1, later)),  # type: ignore[attr-defined]
    ),
    "every panel is the first one's filters": (
        "winograd_two",
        TransformFilters,
        lambda node: replace(node, source=moved(node.source, -1, nothing)),  # type: ignore[attr-defined]
    ),
    "the last filter of a panel is left out": (
        "winograd_two",
        TransformFilters,
        lambda node: replace(node, source=narrowed(node.source, -1)),  # type: ignore[attr-defined]
    ),
    "an operand of the first rows": (
        "winograd_two",
        TransformBack,
        lambda node: replace(node, operands=(node.operands[0], moved(node.operands[1], 2, nothing))),  # type: ignore[attr-defined]
    ),
    "operands change places": (
        "winograd_two",
        TransformBack,
        lambda node: replace(node, operands=node.operands[::-1]),  # type: ignore[attr-defined]
    ),
    "another epilogue": (
        "winograd_two",
        TransformBack,
        lambda node: replace(node, expr=node.expr + 1.0),  # type: ignore[attr-defined]
    ),
    "a place is left out": (
        "winograd_two",
        For,
        lambda node: replace(node, extent=node.extent - 1) if node.var.name == "place" else node,  # type: ignore[attr-defined]
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_kernel_with_one_thing_wrong_is_refused(name: str) -> None:
    case, kind, change = MUTANTS[name]
    kernel = build(CASES[case], "avx512").kernel
    assert prove(kernel).facts
    found = [(place, node) for place, node in places(kernel.body) if isinstance(node, kind) and change(node) != node]
    assert found
    place, node = found[0]
    with pytest.raises(ProofFailed):
        prove(edited(kernel, place, change(node)))


def test_products_that_nothing_transforms_back_are_refused() -> None:
    kernel = build(CASES["winograd_two_prepacked"], "avx512").kernel
    place, _ = next((place, node) for place, node in places(kernel.body) if isinstance(node, TransformBack))
    with pytest.raises(ProofFailed):
        prove(edited(kernel, place, Block(nodes=())))


@pytest.mark.parametrize("name", ["winograd_two_prepacked", "winograd_four_prepacked", "winograd_wide_prepacked"])
def test_matrices_are_right_and_one_wrong_entry_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = build(CASES[name], "avx512").kernel
    (back,) = [node for _, node in places(kernel.body) if isinstance(node, TransformBack)]
    algorithm = back.algorithm
    assert algorithm.is_exact()
    for field in ("image", "filters", "result"):
        matrix = getattr(algorithm, field)
        for row, entries in enumerate(matrix):
            for column, entry in enumerate(entries):
                changed = [list(line) for line in matrix]
                changed[row][column] = entry + Fraction(1, 2)
                wrong = replace(algorithm, **{field: tuple(map(tuple, changed))})
                assert not wrong.is_exact()
    monkeypatch.setitem(winograd.ALGORITHMS, (back.m, back.taps), wrong)
    with pytest.raises(ProofFailed, match="matrices"):
        prove(kernel)


def test_algorithm_of_other_taps_is_refused() -> None:
    """F(2, 5) has as many places as F(4, 3), and the same transform of an image."""
    kernel = build(CASES["winograd_wide_prepacked"], "avx512").kernel
    for kind in (TransformImage, TransformBack):
        (place, node), *_ = [found for found in places(kernel.body) if isinstance(found[1], kind)]
        with pytest.raises(ProofFailed):
            prove(edited(kernel, place, replace(node, m=4, taps=3)))


def test_accuracy_by_element_is_no_contract_for_it(rng: np.random.Generator) -> None:
    """The variant says so, and a kernel that is built all the same is beyond what the gates allow."""
    op = conv(16, (12, 12), 16, channels_last=True)
    target = load("avx512")
    (unmet,) = [unmet for requirement, unmet in find("conv.winograd").unmet(op, target)]
    assert "normwise" in unmet.remedy
    assert all("winograd" not in variant.id for variant in candidates(op, target))
    isa = host_isas()[0]
    by_norm = Case.of("winograd_edges", "conv.winograd", replace(op, accuracy=Accuracy.NORMWISE), m=2)
    unit, built = unit_of((by_norm,), isa), build(by_norm, isa)
    refused = [case.name for case in build_cases(op, rng, ALL) if not _within(unit_run(unit, built, op, case), case)]
    assert "edges" in refused


@pytest.mark.costly
@pytest.mark.parametrize(
    ("m", "taps", "channels"),
    [(2, 3, 1), (2, 3, 3), (2, 3, 64), (4, 3, 1), (4, 3, 64), (4, 3, 256), (2, 5, 1), (2, 5, 64)],
)
def test_accuracy_by_norm_is_kept_on_every_distribution_of_the_gates(
    m: int, taps: int, channels: int, rng: np.random.Generator
) -> None:
    isa = host_isas()[0]
    op = conv(channels, (14, 13), 24, kernel=(taps, taps), padding=(taps // 2, taps // 2), **BY_NORM)
    name = f"winograd_norm_{m}_{taps}_{channels}"
    case = Case.of(name, "conv.winograd", op, m=m, mr=4, nv=1, kb=32, rows=1, columns=4, tail=0)
    unit, built = unit_of((case,), isa), build(case, isa)
    for inputs in build_cases(op, rng, ALL):
        assert _within(unit_run(unit, built, op, inputs), inputs), inputs.name


@pytest.mark.parametrize(("m", "taps"), ALGORITHMS)
def test_coefficient_that_is_wrong_by_a_thousandth_is_beyond_the_contract_by_norm(
    m: int, taps: int, rng: np.random.Generator
) -> None:
    """The bound is one: whatever entry of a matrix is wrong, some input of the gates shows it."""
    op = conv(64, (16, 16), 16, kernel=(taps, taps), padding=(taps // 2, taps // 2), **BY_NORM)
    cases = build_cases(op, rng, ALL)
    algorithm = ALGORITHMS[m, taps]
    assert all(_within(in_double(algorithm, case.inputs), case) for case in cases)
    for field in ("image", "filters", "result"):
        matrix = [list(row) for row in getattr(algorithm, field)]
        places = [(i, j) for i, row in enumerate(matrix) for j, entry in enumerate(row) if entry]
        row, column = places[int(rng.integers(len(places)))]
        matrix[row][column] *= Fraction(1001, 1000)
        wrong = replace(algorithm, **{field: tuple(map(tuple, matrix))})
        assert not all(_within(in_double(wrong, case.inputs), case) for case in cases), (field, row, column)


def in_double(algorithm: winograd.Algorithm, inputs: object) -> np.ndarray:
    """The convolution of an image of 16 by 16, padded to a result of that size, in float64."""
    x, w = (np.asarray(array, np.float64) for array in inputs)  # type: ignore[attr-defined]
    m, n, pad = algorithm.m, algorithm.n, (algorithm.taps // 2,) * 2
    padded = np.pad(x, ((0, 0), (0, 0), pad, pad))
    with np.errstate(all="ignore"):
        tiles = np.lib.stride_tricks.sliding_window_view(padded, (n, n), (2, 3))[:, :, ::m, ::m]
        image, filters = algorithm.transformed_image(tiles), algorithm.transformed_filters(w)
        results = algorithm.results(np.einsum("ncijuv,kcuv->nkijuv", image, filters, optimize=True))
    return results.transpose(0, 1, 2, 4, 3, 5).reshape(x.shape[0], w.shape[0], 16, 16)


@pytest.mark.parametrize(("m", "taps"), [(4, 3), (2, 5)])
def test_filters_of_one_tap_keep_the_bound(m: int, taps: int, rng: np.random.Generator) -> None:
    """No other channel hides what the transforms leave there; a bound by the sum of k products alone would not hold."""
    isa, count = host_isas()[0], taps * taps
    op = conv(64, (32, 32), 64, kernel=(taps, taps), padding=(taps // 2, taps // 2), **BY_NORM)
    case = Case.of(f"winograd_single_{taps}", "conv.winograd", op, m=m, mr=4, nv=1, kb=32, rows=1, columns=8, tail=0)
    unit, built = unit_of((case,), isa), build(case, isa)
    x = (rng.choice((-1.0, 1.0), (1, 64, 32, 32)) * rng.uniform(0.99, 1.0, (1, 64, 32, 32))).astype(np.float32)
    w = np.zeros((64, 64 * count), np.float32)
    place = rng.integers(0, count, 64)
    place[::2] = count - 1  # where the factors are largest: left to chance, one run in fourteen had none there
    w[np.arange(64), place] = rng.normal(size=64)
    inputs = (x, w.reshape(64, 64, taps, taps))
    found = unit_run(unit, built, op, case_of(op, inputs, name="single"))
    expected, bound = claim(op, inputs)
    error = np.abs(found - expected)
    assert np.all(error <= bound)
    size = np.abs(x[0, 0]).max() * np.abs(w).sum(axis=1)[:, None, None]
    assert np.any(error > sum_constant(op.taps, op.accumulator) * op.accumulator.eps * size)


def unit_run(unit: object, built: Built, op: Conv2dOp, case: object) -> np.ndarray:
    with np.errstate(all="ignore"):
        return run(unit, built, op, case.inputs)  # type: ignore[attr-defined,arg-type]


def _within(found: np.ndarray, case: object) -> bool:
    expected, bound = case.expected, case.bound  # type: ignore[attr-defined]
    with np.errstate(all="ignore"):
        same = (np.isnan(found) & np.isnan(expected)) | (found == expected)
        return bool((same | np.isinf(bound) | (np.abs(found.astype(np.float64) - expected) <= bound)).all())


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "plain"])
def test_schedules_of_the_space_build_prove_and_emit(isa: str, rng: np.random.Generator) -> None:
    target, found = load(isa), find("conv.winograd_prepacked")
    op = conv(128, (28, 28), 128, bias=True, **BY_NORM)
    assert found.space is not None
    assert found.build is not None
    schedules = list(found.space(op, target))
    assert found.default_schedule is not None
    assert found.default_schedule(op, target) in schedules
    for index in rng.choice(len(schedules), min(4, len(schedules)), replace=False):
        kernel = found.build(op, schedules[index], target)
        assert prove(kernel).facts
        assert emit(kernel, target.isa).text


@pytest.mark.parametrize("layout", ["last", "rows"])
def test_scratch_does_not_grow_with_the_image(layout: str) -> None:
    """A task holds one block of tiles and their products with a panel, however wide the image and high the result."""
    target = load("avx512")
    held: list[int] = []
    for size in ((224, 224), (16, 4096), (4096, 16_384)):
        op = conv(64, size, 128, accuracy=Accuracy.NORMWISE, channels_last=layout == "last")
        kernel = build(Case.of(f"winograd_large_{size}", "conv.winograd_prepacked", op), "avx512").kernel
        held.append(int(kernel.thread_scratch_bytes.evaluate(arguments(kernel))))
    assert max(held) <= target.l2_bytes
    assert held[1] == held[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [("m", 3), ("mr", 0), ("mr", 40), ("tail", 7), ("rows", 0), ("columns", 0), ("unroll", 999), ("rows", 9999)],
)
def test_schedule_out_of_range_is_refused_with_the_remedy(name: str, value: int) -> None:
    op, target, found = conv(64, (14, 14), 64, **BY_NORM), load("avx512"), find("conv.winograd")
    assert found.default_schedule is not None
    assert found.build is not None
    schedule = found.default_schedule(op, target).with_values(**{"mr": 4, "nv": 2, "tail": 1, name: value})
    with pytest.raises(InvalidSchedule) as raised:
        found.build(op, schedule, target)
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"stride": (2, 2)}, "3×3 or 5×5 filters"),
        ({"kernel": (3, 2)}, "3×3 or 5×5 filters"),
        ({"kernel": (4, 4)}, "3×3 or 5×5 filters"),
        ({"kernel": (5, 5), "dilation": (2, 1)}, "3×3 or 5×5 filters"),
        ({"dilation": (2, 1)}, "3×3 or 5×5 filters"),
        ({"accuracy": Accuracy.ELEMENTWISE}, "accuracy by norm"),
    ],
)
def test_other_convolutions_are_refused_by_name(changes: dict[str, object], missing: str) -> None:
    op = conv(32, (14, 14), 32, **{**BY_NORM, **changes})
    unmet = find("conv.winograd").unmet(op, load("avx512"))
    assert missing in [requirement.name for requirement, _ in unmet]
