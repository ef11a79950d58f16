"""What routines require of their callers, phases that nobody finishes, and the count of executed statements."""

from __future__ import annotations

from tests.emulator.floats import floats, run

from tracea.testing.conformance.source import line_of


def test_phase_that_lacks_an_arrival_at_the_end_is_reported() -> None:
    body = """
    const uint32_t t = thread_index();
    if (t == 0) {{
        mbarrier_init(8, {count});
    }}
    sync_block();
    if (t % 32 == 0) {{
        mbarrier_arrive(8);
    }}
    mbarrier_wait(8, 0);
    st_global<float>(args.c + t, 0.0F);
"""
    assert run(floats(body.format(count=2), shared_bytes=64))[0].clean
    # Of four arrivals three make a phase, and any one of them may be the one that is left for the next.
    report, _ = run(floats(body.format(count=3), threads=128, shared_bytes=64), size=128)
    left = "mbarrier phase left unfinished"
    assert report.kinds == {left, "race: mbarrier arrival may count for the phase before"}
    assert "lacks 2 of its 3 arrivals" in next(f for f in report.findings if f.kind == left).detail


def test_routine_says_at_its_caller_what_it_requires() -> None:
    body = """
    const uint32_t t = thread_index();
    st_global<float>(args.c + t, 0.0F);
    TRACEA_REQUIRE(t < {most});
"""
    assert run(floats(body.format(most=64)))[0].clean
    source = floats(body.format(most=60))
    report, _ = run(source)
    (finding,) = report.findings
    assert finding.kind == "broken requirement"
    assert finding.count == 4
    assert finding.place.line == line_of(source, "TRACEA_REQUIRE")
    assert "t < 60 does not hold" in finding.detail


def test_executed_statements_are_counted() -> None:
    body = """
    const uint32_t t = thread_index();
    if (t < {guarded}) {{
        st_global<float>(args.c + t, 0.0F);
    }}
"""
    counts = [run(floats(body.format(guarded=guarded)))[0].statements for guarded in (64, 60)]
    assert counts == [3 * 64, 3 * 64 - 4]


def test_lanes_that_take_no_part_leave_their_place_in_a_phase_empty() -> None:
    # Lanes 0, 8, 16 and 24 read 16 bytes each, all in the same banks: each in a phase of its own. Lanes 0 to 3 meet.
    body = """
    const uint32_t t = thread_index();
    for (uint32_t i = 0; i < 16; ++i) {{
        st_shared<float>(4 * (t + 32 * i), 0.0F);
    }}
    sync_warp();
    float x = 0.0F;
    if ({who}) {{
        x = bits_as<float>(ld_shared<Words<4>>({address}).word[0]);
    }}
    st_global<float>(args.c + t, x);
"""
    for who, address, ways in (("t % 8 == 0", "t * 16", 1), ("t < 4", "t * 128", 4)):
        source = floats(body.format(who=who, address=address), threads=32, shared_bytes=2048)
        report, _ = run(source, size=32)
        assert report.clean, str(report)
        assert report.bank_ways(line_of(source, "ld_shared")) == ways
