"""Guarded arrays and the comparison: what they notice and what they let be."""

from __future__ import annotations

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.core.tensor_type import BlockedLayout, StridedLayout, TensorType
from tracea.errors import InvalidStride, VerdictFailed
from tracea.gates import Check, GuardedArray, Poison, Verdict, compare_output

LAYOUTS = {
    "contiguous": TensorType((3, 5), DType.F32),
    "gaps": TensorType((3, 5), DType.F32, StridedLayout((8, 1))),
    "transposed": TensorType((3, 5), DType.BF16, StridedLayout((1, 4))),
    "backwards": TensorType((3, 5), DType.F64, StridedLayout((-5, 1))),
    "broadcast": TensorType((3, 5), DType.F32, StridedLayout((0, 1))),
    "scalar": TensorType((), DType.F16),
    "empty": TensorType((0, 5), DType.F32),
    "integer": TensorType((3, 5), DType.I8),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("misaligned", [0, 1, 7])
def test_an_array_has_its_types_layout_and_alignment(name: str, misaligned: int) -> None:
    kind = LAYOUTS[name]
    guarded = GuardedArray.of(kind, misaligned=misaligned)
    assert guarded.array.shape == kind.static_shape
    assert guarded.array.dtype == kind.dtype.numpy
    if guarded.array.size:
        assert guarded.array.strides == tuple(stride * kind.dtype.nbytes for stride in kind.strides)
        assert guarded.array.ctypes.data % 64 == misaligned * kind.dtype.nbytes % 64


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("poison", Poison)
def test_poison_is_counted_until_it_is_written_over_and_writing_does_no_damage(name: str, poison: Poison) -> None:
    guarded = GuardedArray.of(LAYOUTS[name])
    guarded.poison(poison)
    assert guarded.unwritten(poison) == guarded.array.size
    assert guarded.damage() == 0
    guarded.fill(np.ones(guarded.array.shape, guarded.array.dtype))
    assert guarded.unwritten(poison) == 0
    assert guarded.damage() == 0
    assert guarded.differing(np.ones(guarded.array.shape, guarded.array.dtype)) == 0


@pytest.mark.parametrize("name", ["contiguous", "gaps", "transposed", "backwards", "broadcast"])
def test_every_byte_that_belongs_to_no_element_is_watched(name: str) -> None:
    guarded = GuardedArray.of(LAYOUTS[name])
    guarded.poison(Poison.NAN)
    for part in guarded.outside:
        part[0] ^= 1
        part[-1] ^= 1
    assert guarded.damage() == 4
    if guarded.gaps is not None:
        guarded.between[guarded.gaps] = 7
        assert guarded.damage() == 4 + int(guarded.gaps.sum())
    guarded.poison(Poison.NAN)
    assert guarded.damage() == 0


def test_a_gap_is_exactly_what_the_strides_leave_out() -> None:
    assert GuardedArray.of(LAYOUTS["contiguous"]).gaps is None
    gaps = GuardedArray.of(LAYOUTS["gaps"]).gaps
    assert gaps is not None
    assert int(gaps.sum()) == 2 * 3 * 4  # three elements behind each row but the last


def test_the_bits_of_zero_and_minus_zero_differ() -> None:
    guarded = GuardedArray.of(TensorType((2,), DType.F32))
    guarded.fill(np.array([0.0, np.nan], np.float32))
    assert guarded.differing(np.array([-0.0, np.nan], np.float32)) == 1


def test_an_integer_that_is_right_and_equals_the_poison_counts_as_written() -> None:
    guarded = GuardedArray.of(TensorType((3,), DType.I32))
    guarded.poison(Poison.NAN)
    poison = int(guarded.array[0])
    assert guarded.unwritten(Poison.NAN) == 3
    assert guarded.unwritten(Poison.NAN, possible=np.array([poison, poison, 0.0])) == 1
    floats = GuardedArray.of(TensorType((1,), DType.F32))
    floats.poison(Poison.NAN)
    assert floats.unwritten(Poison.NAN, possible=np.array([np.nan])) == 1  # no arithmetic makes this NaN


def test_a_blocked_layout_is_refused() -> None:
    with pytest.raises(InvalidStride, match="behind its packing"):
        GuardedArray.of(TensorType((4, 32), DType.F32, BlockedLayout(blocks=((1, 16),))))


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("got", "expected", "bound", "right"),
    [
        (1.0, 1.0, 0.0, True),
        (1.1, 1.0, 0.2, True),
        (1.3, 1.0, 0.2, False),
        (1.0 + 1e-7, 1.0, 0.0, False),
        (NAN, NAN, 0.0, True),
        (NAN, 1.0, 0.5, False),
        (1.0, NAN, 0.5, False),
        (INF, INF, 0.0, True),
        (-INF, INF, 0.0, False),
        (3e38, INF, 0.0, False),
        (INF, 1.0, 0.5, False),
        (INF, 1e39, INF, True),  # may overflow: the contract claims nothing
        (NAN, 1.0, INF, True),
        (1.0, 1.0, NAN, True),
        (2.0, 1.0, NAN, False),  # a bound that is no number vouches for nothing
        (-0.0, 0.0, 0.0, True),  # the sign of a zero is not part of the contract, whichever way it is lost
        (0.0, -0.0, 0.0, True),
    ],
)
def test_an_element_is_right_within_its_bound_and_of_the_same_kind(
    got: float, expected: float, bound: float, right: bool
) -> None:
    padding = [0.0, 0.0]  # the answer must not depend on the neighbours
    found = compare_output(np.array([*padding, got]), np.array([*padding, expected]), np.array([*padding, bound]))
    assert found.passed == right, found
    assert (found.worst <= 1.0) == right
    if not right:
        assert "1 of 3 elements, worst at (2)" in found.detail


def test_a_verdict_passes_only_if_every_check_does() -> None:
    good = Check(name="a", passed=True, figure=0.5, limit=1.0)
    bad = Check(name="b", passed=False, figure=3, limit=0, detail="elements")
    assert Verdict(subject="k", checks=(good,), seed=1).require().passed
    verdict = Verdict(subject="k", checks=(good, bad), seed=1)
    assert verdict.failures == (bad,)
    assert '"passed":false' in verdict.to_json()
    assert str(verdict).splitlines() == [
        "k: FAILED, 1 of 2 checks failed, seed 1",
        "  ok   a: 0.5 (limit 1)",
        "  FAIL b: 3 (limit 0): elements",
    ]
    with pytest.raises(VerdictFailed, match=r"b \(elements\): k: got 3, limit 0"):
        verdict.require()
