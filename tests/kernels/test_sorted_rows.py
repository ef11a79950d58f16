"""Sorted rows: the order of whatever a type holds, equal elements in theirs, and kernels whose room is no room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.conformance import Case, build, check, random_inputs, run, unit_of
from tests.kernels.native import run_isas
from tests.kernels.planted import assert_refused, changed
from tests.kernels.slab_cases import sorted_row_cases, tensor
from tests.kernels.test_attention import later

from tracea.core.dtype import DType
from tracea.core.indexed_meaning import first_places
from tracea.core.op import LargestOp
from tracea.errors import ProofFailed
from tracea.kernels.registry import candidates
from tracea.semantic.index import Const, maximum
from tracea.semantic.nodes import Node
from tracea.semantic.nodes_fragments import FragmentOp
from tracea.semantic.proofs import prove
from tracea.targets import load

CASES = {case.name: case for case in sorted_row_cases()}
FLOATS = [name for name, case in CASES.items() if case.op.operands[0].dtype.is_float]
INTEGERS = [name for name in CASES if name not in FLOATS]


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", FLOATS)
def test_equal_elements_and_whatever_is_no_number_keep_their_order(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    unit, case = unit_of(sorted_row_cases(), isa), CASES[name]
    (x,) = random_inputs(case.op, rng)
    few = rng.integers(-3, 4, x.shape).astype(x.dtype)
    specials = np.asarray([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0], x.dtype)
    for values in (x, few, np.zeros_like(x), np.full_like(x, np.nan)):
        mixed = values.copy()
        chosen = rng.random(x.shape) < 0.3
        mixed[chosen] = rng.choice(specials, int(chosen.sum()))
        for each in (values, mixed):
            check(unit, build(case, isa), case.op, [each], threads=2)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", FLOATS)
def test_every_magnitude_has_its_place(name: str, isa: str, rng: np.random.Generator) -> None:
    """Subnormal numbers and the largest ones, which random bits are."""
    unit, case = unit_of(sorted_row_cases(), isa), CASES[name]
    type_ = case.op.operands[0]
    nbytes = type_.dtype.nbytes
    bits = rng.integers(0, 256, (*type_.static_shape, nbytes), dtype=np.uint8)
    bits[..., -1] &= np.where(rng.random(type_.static_shape) < 0.2, 0x80, 0xFF).astype(np.uint8)
    values = bits.view(type_.dtype.numpy).reshape(type_.static_shape)
    with np.errstate(invalid="ignore"):  # NaN that signals, in casts
        check(unit, build(case, isa), case.op, [values])


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", INTEGERS)
def test_whole_numbers_are_compared_as_they_are(name: str, isa: str, rng: np.random.Generator) -> None:
    """Over the whole type: what a double does not hold is told apart."""
    unit, case = unit_of(sorted_row_cases(), isa), CASES[name]
    op = case.op
    assert isinstance(op, LargestOp)
    ends = np.iinfo(op.x.dtype.numpy)
    for low, high in ((ends.min, ends.max), (ends.max - 3, ends.max), (ends.min, ends.min + 2), (0, 0)):
        x = rng.integers(low, high, op.x.static_shape, op.x.dtype.numpy, endpoint=True)
        assert np.array_equal(run(unit, build(case, isa), op, [x]), first_places(x, op.k, smallest=op.smallest))


@pytest.mark.parametrize("isa", run_isas())
def test_one_kernel_sorts_rows_of_every_length(isa: str, rng: np.random.Generator) -> None:
    """Around where counting ends and digits get longer, of its own k places."""
    case = Case.of("first", "rows.sorted", LargestOp(x=tensor(2, 50), k=3))
    unit, built = unit_of((case,), isa), build(case, isa)
    for columns in (3, 4, 95, 97, 255, 256, 257, 1023, 1024, 1025, 5000):
        op = LargestOp(x=tensor(3, columns), k=3)
        check(unit, built, op, random_inputs(op, rng))
    op = LargestOp(x=tensor(0, 60), k=3)
    assert run(unit, built, op, random_inputs(op, rng)).shape == (0, 3)


@pytest.mark.parametrize("isa", run_isas())
@pytest.mark.parametrize("name", ["first_of_many", "first_of_many_f64"])
def test_every_eighth_element_may_be_the_largest_or_the_smallest(name: str, isa: str, rng: np.random.Generator) -> None:
    """The bound is of every eighth element: it then leaves out what comes first, or nothing."""
    unit, case = unit_of(sorted_row_cases(), isa), CASES[name]
    (x,) = random_inputs(case.op, rng)
    for away in (100.0, -100.0):
        for begin in (0, 3):
            moved = x.copy()
            moved[..., begin::8] += away
            check(unit, build(case, isa), case.op, [moved])


def sorting(change: Any) -> tuple[type[Node], Any]:
    return FragmentOp, lambda node: change(node) if node.intrinsic.name == "sort_rows" else node


def shorter(region: Any, axis: int) -> Any:
    extent = list(region.extent)
    extent[axis] = maximum(0, extent[axis] - 1)
    return replace(region, extent=tuple(extent))


def saying(**said: int) -> Any:
    def change(node: Any) -> Any:
        attributes = tuple((dict(node.intrinsic.attributes) | said).items())
        return replace(node, intrinsic=replace(node.intrinsic, attributes=attributes))

    return sorting(change)


MISTAKES: dict[str, tuple[type[Node], Any]] = {
    "nothing sorted": sorting(lambda n: None),
    "a column too few": sorting(lambda n: replace(n, inputs=(shorter(n.inputs[0], 1),))),
    "other rows": sorting(lambda n: replace(n, inputs=(later(n.inputs[0], 0, -1),))),
    "a place too few": sorting(lambda n: replace(n, outputs=(shorter(n.outputs[0], 1), n.outputs[1]))),
    "a word of room too few": sorting(lambda n: replace(n, outputs=(n.outputs[0], shorter(n.outputs[1], 0)))),
    "room for one row of words": sorting(
        lambda n: replace(n, outputs=(n.outputs[0], replace(n.outputs[1], extent=(n.inputs[0].extent[1],))))
    ),
    "no room": sorting(lambda n: replace(n, outputs=n.outputs[:1])),
    "room from elsewhere": sorting(lambda n: replace(n, outputs=(n.outputs[0], later(n.outputs[1], 0, 1)))),
    "another k": saying(k=7),
    "the other end": saying(smallest=1),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_refused(mistake: str) -> None:
    assert_refused(build(CASES["sorted"], "avx512").kernel, MISTAKES[mistake])


def test_a_kernel_without_enough_room_is_refused() -> None:
    kernel = build(CASES["sorted_f64"], "avx512").kernel
    (fact,) = prove(kernel).about("sorted rows")
    assert fact.statement == "room has 2 pairs of 16 bytes for each column"
    *others, room = kernel.buffers
    (words,) = room.shape
    half = words // Const(2)
    smaller = replace(kernel, buffers=(*others, replace(room, shape=(half,))))
    less = sorting(lambda n: replace(n, outputs=(n.outputs[0], replace(n.outputs[1], extent=(half,)))))
    with pytest.raises(ProofFailed, match="bounds: "):
        prove(smaller)
    with pytest.raises(ProofFailed, match=r"sorted rows: .* bytes are used"):
        prove(changed(smaller, *less))


def test_few_of_many_are_kept_in_order_and_more_are_sorted() -> None:
    target = load("avx512")

    def first(k: int, *shape: int, dtype: DType = DType.F32) -> str:
        return candidates(LargestOp(x=tensor(*shape, dtype=dtype), k=k), target)[0].id

    assert first(8, 512, 768) == first(3, 512, 12) == first(1, 30) == first(100, 1, 50257) == "rows.largest"
    assert first(128, 16, 300) == first(129, 16, 4096) == first(120, 4, 160) == "rows.sorted"
    assert first(2, 9, 40, dtype=DType.I64) == "rows.sorted"
