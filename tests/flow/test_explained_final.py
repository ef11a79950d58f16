"""What an explanation says of the final that its choice rests on: ties, and rounds that others disturbed."""

from __future__ import annotations

from dataclasses import replace

from tests.cli.test_tune_final import FIRST, SLOWER, TIE

from tracea.core.op import GemmOp
from tracea.doctor.plan import Candidate, Decision
from tracea.doctor.roof import NoRoof
from tracea.flow.explanation import Explanation
from tracea.flow.final import FinalTime
from tracea.semantic.schedule import Schedule

REASON = "the fastest measured: 137.9 µs"


def text_of(*final: FinalTime, reason: str = REASON, others: tuple[str, ...] = ()) -> str:
    """The text of an explanation of packed at mr=6 with this final."""
    decision = Decision(
        op="gemm_8x8x8_f32_0",
        variant="gemm.packed",
        schedule=Schedule(mr=6),
        reason=reason,
        candidates=tuple(Candidate(variant=name, score=50, latency_us=137.9) for name in ("gemm.packed", *others)),
        rejections=(),
    )
    return str(
        Explanation(
            op=GemmOp.of(m=8, n=8, k=8),
            machine="m",
            is_here=True,
            threads=1,
            decision=decision,
            roof=NoRoof(because="r", remedy="s"),
            guidance=None,
            final=final,
        )
    )


def test_a_tie_in_the_final_is_named_and_the_choice_is_not_called_the_fastest() -> None:
    lower = replace(TIE, variant="gemm.packed", latency_ms=0.1359)
    text = text_of(FIRST, lower, SLOWER)
    assert "137.9 µs, a tie with gemm.packed mr=8 (135.9 µs): the race could not tell them apart" in text
    assert "the fastest measured" not in text
    for final in ((), (FIRST, SLOWER), (replace(FIRST, schedule={"mr": 4}), lower)):
        assert REASON in text_of(*final)


def test_who_ties_with_another_than_the_first_or_takes_no_part_is_no_tie_of_the_choice() -> None:
    behind = replace(SLOWER, latency_ms=0.25, ranked_ms=0.26)  # a tie with one at 260 µs, which kept it
    assert behind.is_tie
    assert REASON in text_of(FIRST, behind, others=(behind.variant,))
    assert "a tie with gemm.direct mr=8" in text_of(FIRST, TIE, others=(TIE.variant,))
    assert REASON in text_of(FIRST, TIE)  # left out, as a library is with --no-library
    early = replace(behind, comparison={}, latency_ms=0.1379, ranked_ms=0.138)  # from before comparisons were kept
    assert "a tie with library.gemm" in text_of(FIRST, early, others=(early.variant,))


def test_rounds_that_others_disturbed_are_said_where_they_are_most() -> None:
    assert "In doubt" not in text_of(FIRST)
    bad = replace(FIRST, comparison={"rounds": 60.0, "rounds_disturbed": 40.0})
    assert "40 of the final's 60 rounds were disturbed by other programs" in text_of(bad)
