"""Decisions: requirements reject with reasons, measurements beat scores, and the same question has one answer."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from tracea import targets
from tracea.core.dtype import DType
from tracea.core.op import GemmOp, RowKind, RowOp
from tracea.core.tensor_type import TensorType
from tracea.doctor import Known, decide, plan_ops
from tracea.doctor.plan import FOR_NO_WORK, Plan, Rejection
from tracea.errors import InvalidOption
from tracea.kernels.registry import find
from tracea.kernels.variant import Preference, Requirement, Unmet, Variant
from tracea.semantic.schedule import Schedule
from tracea.targets import Target

AVX512, AVX2 = targets.load("avx512"), targets.load("avx2")
GEMM = GemmOp.of(m=64, n=64, k=64)


def needs_registers(count: int) -> Requirement:
    def check(op: Any, target: Target) -> Unmet | None:
        if target.vector_registers >= count:
            return None
        return Unmet(
            needed=f"{count} vector registers", found=str(target.vector_registers), remedy="use a target with AVX-512"
        )

    return Requirement(name="vector registers", check=check)


def variant(
    name: str,
    *,
    priority: int = 0,
    requirements: tuple[Requirement, ...] = (),
    preferences: tuple[Preference, ...] = (),
    backend: str = "cpu",
    library: bool = False,
) -> Variant:
    return Variant(
        id=name,
        op_type=GemmOp,
        backend=backend,
        requirements=requirements,
        preferences=preferences,
        priority=priority,
        build=None if library else lambda op, schedule, target: pytest.fail("a decision builds nothing"),
        space=None if library else lambda op, target: pytest.fail("a decision enumerates nothing"),
        default_schedule=None if library else lambda op, target: Schedule(kc=512),
    )


PACKED = variant("packed", priority=10, requirements=(needs_registers(32),))
SMALL = variant(
    "small", priority=5, preferences=(Preference(name="few steps", score=lambda op, target: 20 if op.k <= 32 else 0),)
)
LIBRARY = variant("library", priority=1, library=True)
HIP = variant("wmma", priority=99, backend="hip")
ALL = (PACKED, SMALL, LIBRARY, HIP)


def test_the_highest_score_wins_where_nothing_was_measured() -> None:
    decision = decide(GEMM, AVX512, variants=ALL)
    assert decision.variant == "packed"
    assert decision.schedule == Schedule(kc=512)
    assert [candidate.variant for candidate in decision.candidates] == ["packed", "small", "library"]
    assert decide(GemmOp.of(m=64, n=64, k=32), AVX512, variants=ALL).variant == "small"


def test_a_variant_that_does_not_fit_is_rejected_with_numbers_and_remedy() -> None:
    decision = decide(GEMM, AVX2, variants=ALL)
    assert decision.variant == "small"
    by_variant = {rejection.variant: rejection for rejection in decision.rejections}
    assert by_variant["packed"].needed == "32 vector registers"
    assert by_variant["packed"].found == "16"
    assert (by_variant["wmma"].requirement, by_variant["wmma"].needed, by_variant["wmma"].found) == (
        "backend",
        "hip",
        "cpu",
    )


def test_a_measurement_beats_every_score() -> None:
    known = {
        "library": Known(schedule=Schedule(), latency_us=10.0),  # as the records have it
        "packed": Known(schedule=Schedule(kc=64), latency_us=12.0),
    }
    decision = decide(GEMM, AVX512, variants=ALL, known=known)
    assert decision.variant == "library"
    assert decision.schedule is None
    assert decision.reason == "the fastest measured: 10 µs"
    assert [candidate.variant for candidate in decision.candidates] == ["library", "packed", "small"]
    assert decision.flip == "packed 20.0% faster than measured"
    disturbed = {name: replace(each, is_disturbed=True) for name, each in known.items()}
    reason = "the fastest measured: 10 µs; in doubt: other programs disturbed most rounds of its final"
    assert decide(GEMM, AVX512, variants=ALL, known=disturbed).reason == reason
    faster = {**known, "packed": Known(schedule=Schedule(kc=64), latency_us=9.0)}
    assert decide(GEMM, AVX512, variants=ALL, known=faster).schedule == Schedule(kc=64)


def test_a_measurement_does_not_bring_back_what_does_not_fit_or_is_excluded() -> None:
    known = {"packed": Known(schedule=Schedule(kc=64), latency_us=1.0)}
    assert decide(GEMM, AVX2, variants=ALL, known=known).variant == "small"
    decision = decide(GEMM, AVX512, variants=ALL, known=known, exclude=["packed"])
    assert decision.variant == "small"
    assert any(r.variant == "packed" and r.requirement == "not excluded" for r in decision.rejections)


def test_the_order_of_the_registry_does_not_matter_and_equals_go_by_name() -> None:
    equals = [variant(name, priority=3) for name in ("c", "a", "b")]
    expected = decide(GEMM, AVX512, variants=[*ALL, *equals])
    for seed in range(10):
        shuffled = random.Random(seed).sample([*ALL, *equals], 7)
        assert decide(GEMM, AVX512, variants=shuffled) == expected
    assert [c.variant for c in expected.candidates] == ["packed", "small", "a", "b", "c", "library"]


def test_when_nothing_fits_the_error_says_why_for_each() -> None:
    with pytest.raises(InvalidOption, match=r"0 of 2 fit.*32 vector registers.*hip") as caught:
        decide(GEMM, AVX2, variants=(PACKED, HIP))
    assert caught.value.remedy == "use a target with AVX-512"
    softmax = RowOp(kind=RowKind.SOFTMAX, x=(TensorType((4, 4), DType.F32),))
    with pytest.raises(InvalidOption, match=r"got \[?.*packed.*rows\.normalize"):
        decide(softmax, AVX512, variants=ALL)


def test_a_plan_explains_what_was_chosen_what_lost_and_what_would_flip_it() -> None:
    history = {GEMM.key: {"library": Known(schedule=None, latency_us=10.0)}}
    plan = plan_ops({"mm1": GEMM, "mm2": GemmOp.of(m=8, n=8, k=8)}, AVX2, variants=ALL, history=history)
    assert plan["mm1"].variant == "library"
    assert plan["mm2"].variant == "small"
    text = plan.explain()
    for part in (
        "plan on avx2, 2 ops",
        "[mm1]",
        "fastest measured",
        "rejected packed: vector registers",
        "would flip it",
    ):
        assert part in text
    assert json.loads(json.dumps(plan.to_dict()))["decisions"]["mm2"]["schedule"] == {"kc": 512}
    with pytest.raises(InvalidOption, match=r"mm1.*mm2"):
        plan["mm3"]


def test_variants_that_lack_the_same_are_told_in_a_line() -> None:
    lacks = {"requirement": "width", "needed": "m <= 4", "found": "m = 8", "remedy": "use packed"}
    rejections = [Rejection(variant=name, **lacks) for name in ("stream", "split", "wide")]
    rejections.insert(1, Rejection(variant="stream", **{**lacks, "requirement": "rows"}))
    decision = replace(decide(GEMM, AVX512, variants=ALL), rejections=tuple(rejections))
    told = [line for line in decision.explain().splitlines() if "rejected" in line]
    why = "needs m <= 4, found m = 8 (use packed)"
    assert told == [f"  rejected stream: width: {why}; rows: {why}", f"  rejected split, wide: width: {why}"]


def test_a_reason_that_was_told_of_an_earlier_op_is_pointed_to() -> None:
    lacks = {"requirement": "width", "needed": "m <= 4", "found": "m = 8", "remedy": "use packed"}
    first = replace(decide(GEMM, AVX512, variants=ALL), rejections=(Rejection(variant="stream", **lacks),))
    wider = Rejection(variant="split", **{**lacks, "found": "m = 9"})
    second = replace(first, rejections=(*first.rejections, wider))
    plan = Plan(target="avx512", decisions={"mm1": first, "mm2": second, "mm3": second})
    assert [line for line in plan.explain().splitlines() if "rejected" in line] == [
        "  rejected stream: width: needs m <= 4, found m = 8 (use packed)",
        "  rejected split: width: needs m <= 4, found m = 9 (use packed)",
        "  rejected as for [mm1]: stream",
        "  rejected as for [mm1]: stream",
        "  rejected as for [mm2]: split",
    ]


def test_a_tie_is_decided_by_the_race_and_told_by_what_was_measured() -> None:
    # The race gave the tie to the library: the other one's median is lower, and not beyond the noise.
    known = {
        "library": Known(schedule=None, latency_us=10.0, ranked_us=10.0),
        "packed": Known(schedule=Schedule(kc=64), latency_us=9.9, ranked_us=10.0 + 1e-12),
    }
    decision = decide(GEMM, AVX512, variants=ALL, known=known)
    assert decision.variant == "library"
    assert {each.variant: each.latency_us for each in decision.candidates if each.latency_us} == {
        "library": 10.0,
        "packed": 9.9,
    }
    assert decision.reason == "10 µs, a tie with packed: the race could not tell them apart"
    assert "then packed: 9.9 µs measured, behind by the race's rule for what it cannot tell apart" in decision.explain()
    said = "being faster beyond the noise: it is a tie with library, 9.9 µs against 10 µs"
    assert decision.flip == f"packed: {said}"
    assert next(flip.what for flip in decision.flips if flip.variant == "packed") == said


def test_what_was_too_noisy_to_tell_is_in_doubt_and_never_a_tie() -> None:
    known = {
        "library": Known(schedule=None, latency_us=53.45, ranked_us=53.45, is_unclear=True),
        "packed": Known(schedule=Schedule(kc=64), latency_us=21.54, ranked_us=21.54),
    }
    decision = decide(GEMM, AVX512, variants=ALL, known=known)
    assert decision.variant == "packed"
    assert decision.reason == "21.54 µs, in doubt: the race was too noisy to tell it from library"
    said = "a race on a quieter machine: this one was too noisy to tell them apart, 53.45 µs against 21.54 µs"
    assert decision.flip == f"library: {said}"
    assert "tie" not in decision.explain()
    without = decide(GEMM, AVX512, variants=ALL, known=known, exclude=["packed"])
    assert without.reason == "the fastest measured: 53.45 µs"  # nothing else was measured
    # A rank that contradicts the times is no tie either, whoever wrote it.
    odd = {
        "library": Known(schedule=None, latency_us=53.45, ranked_us=53.45),
        "packed": Known(schedule=Schedule(kc=64), latency_us=21.54, ranked_us=53.46),
    }
    assert "tie" not in decide(GEMM, AVX512, variants=ALL, known=odd).explain()


def test_a_product_is_not_told_of_the_variant_for_no_work() -> None:
    decision = decide(GemmOp.of(m=64, n=64, k=64), targets.load("avx2"))
    assert "gemm.empty" in {rejection.variant for rejection in decision.rejections}  # the data has it
    assert "gemm.empty" not in decision.explain()
    assert "gemm.stream" in decision.explain()
    assert {find(name).id for name in FOR_NO_WORK} == FOR_NO_WORK
    nothing = decide(GemmOp.of(m=64, n=64, k=0), targets.load("avx2"))
    assert nothing.variant == "gemm.empty"
    assert "gemm.empty" in nothing.explain()
