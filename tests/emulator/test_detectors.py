"""Each detector with the smallest kernel that it must catch, beside one that it must pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.emulator.floats import floats, run

from tracea.core.dtype import DType
from tracea.emitters.kernel_source import KernelSource
from tracea.emulator import emulate
from tracea.errors import EmitError, InvalidOption
from tracea.semantic.index import Const
from tracea.testing.conformance.source import OUT, SCRATCH, kernel, line_of

F32 = DType.F32


EXCHANGE = """
    const uint32_t t = thread_index();
    st_shared<float>(4 * t, ld_global<float>(args.a + t));
    {sync}
    const float x = ld_shared<float>(4 * (t ^ {flip}));
    st_global<float>(args.c + t, x);
"""


def exchange(sync: str, flip: int, **options: Any) -> KernelSource:
    """Return a kernel whose threads exchange values through shared memory."""
    return floats(EXCHANGE.format(sync=sync, flip=flip), shared_bytes=256, **options)


@pytest.mark.parametrize(("sync", "flip"), [("sync_block();", 33), ("sync_warp();", 1), ("", 0)])
def test_ordered_exchange_is_clean(sync: str, flip: int) -> None:
    report, given = run(exchange(sync, flip))
    assert report.clean, str(report)
    assert np.array_equal(given["c"], given["a"][np.arange(64) ^ flip])


@pytest.mark.parametrize(("sync", "flip"), [("", 1), ("sync_warp();", 33), ("", 32)])
def test_unordered_exchange_is_a_race(sync: str, flip: int) -> None:
    report, _ = run(exchange(sync, flip), schedules=range(4))
    assert "race: read after write" in report.kinds
    race = next(f for f in report.findings if f.kind == "race: read after write")
    assert race.place.text.startswith("const float x")
    assert race.other is not None
    assert race.other.text.startswith("st_shared")


def test_write_after_read_and_write_after_write_are_races() -> None:
    body = """
    const uint32_t t = thread_index();
    st_shared<float>(4 * t, 1.0F);
    sync_block();
    const float x = ld_shared<float>(4 * (t ^ 32));
    {sync}
    st_shared<float>(4 * t, x);
    st_global<float>(args.c + t, x);
"""
    assert run(floats(body.format(sync="sync_block();"), shared_bytes=256))[0].clean
    kinds = run(floats(body.format(sync=""), shared_bytes=256))[0].kinds
    assert kinds == {"race: write after read", "race: read after write"}  # by which comes first
    twice = "st_shared<float>(0, 1.0F);\nst_global<float>(args.c + thread_index(), 0.0F);"
    assert run(floats(twice, shared_bytes=256))[0].kinds == {"race: write after write"}


def test_read_by_one_lane_does_not_order_the_lanes_of_its_warp() -> None:
    # Each lane reads its own word; lane 0 tells through an mbarrier; the other warp overwrites all: 31 lanes race.
    body = """
    const uint32_t t = thread_index();
    st_shared<float>(4 * t, 1.0F);
    if (t == 0) {{
        mbarrier_init(256, 1);
    }}
    sync_block();
    if (t < 32) {{
        st_global<float>(args.c + t, ld_shared<float>(4 * t));
        {sync}
        if (t == 0) {{
            mbarrier_arrive(256);
        }}
    }} else {{
        mbarrier_wait(256, 0);
        st_shared<float>(4 * (t - 32), 2.0F);
        st_global<float>(args.c + t, 0.0F);
    }}
"""
    assert run(floats(body.format(sync="sync_warp();"), shared_bytes=264))[0].clean
    assert run(floats(body.format(sync=""), shared_bytes=264))[0].kinds == {"race: write after read"}


def test_uninitialised_shared_memory_and_output() -> None:
    report, _ = run(floats("st_global<float>(args.c + thread_index(), ld_shared<float>(0));", shared_bytes=256))
    assert "uninitialised read" in report.kinds
    assert "NaN from finite inputs" in report.kinds
    report, _ = run(floats("st_global<float>(args.c + thread_index(), ld_global<float>(args.c + thread_index()));"))
    assert "uninitialised read" in report.kinds


def test_output_that_nobody_writes_is_counted() -> None:
    report, _ = run(floats("if (thread_index() != 7) {\nst_global<float>(args.c + thread_index(), 0.0F);\n}"))
    assert [(f.kind, f.count) for f in report.findings] == [("output not written", 1)]
    assert "(7,)" in report.findings[0].detail


WORKSPACE = """
    const uint32_t t = thread_index();
    st_global<float>(args.c + t, ld_global<float>(args.w + t));
"""


def test_workspace_is_uninitialised_unless_zeroed() -> None:
    def build(zeroed: tuple[str, ...]) -> KernelSource:
        return kernel(
            WORKSPACE,
            pointers={"w": (F32, SCRATCH), "c": (F32, OUT)},
            threads=64,
            workspace=(("w", Const(256)),),
            zeroed=zeroed,
        )

    assert "uninitialised read" in run(build(()))[0].kinds
    report, given = run(build(("w",)))
    assert report.clean, str(report)
    assert not given["c"].any()


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("st_global<float>(args.c + 64, 0.0F);", "global out of bounds"),
        ("st_global<float>(args.c - 1, 0.0F);", "global out of bounds"),
        ("st_global<float>(args.c + (1LL << 33), 0.0F);", "global out of bounds"),
        ("ld_global<Words<4>>(args.a + 62);", "misaligned"),
        ("ld_global<Words<4>>(args.a + 64);", "global out of bounds"),
        ("st_global<float>(const_cast<float*>(args.a), 0.0F);", "write to an input"),
        ("st_shared<float>(256, 0.0F);", "shared out of bounds"),
        ("st_shared<float>(-4, 0.0F);", "shared out of bounds"),
        ("st_shared<Words<2>>(12, Words<2>{});", "misaligned"),
        ("cp_async<16>(8, args.a);", "misaligned"),
        ("cp_async<16>(0, args.a + 1);", "misaligned"),
        ("cp_async<16>(0, args.a + 64);", "global out of bounds"),
        ("cp_async_zfill<16>(0, args.a + 60, 17);", "invalid operand"),
    ],
)
def test_access_that_must_not_be(statement: str, kind: str) -> None:
    body = f"st_global<float>(args.c + thread_index(), 0.0F);\nif (thread_index() == 5) {{\n{statement}\n}}"
    report, _ = run(floats(body, shared_bytes=256))
    finding = next((f for f in report.findings if f.kind == kind), None)
    assert finding is not None, str(report)
    assert finding.thread == 5
    assert finding.place.text == statement


def test_zero_filled_copy_reads_only_its_source_bytes() -> None:
    body = """
    const uint32_t t = thread_index();
    cp_async_zfill<16>(16 * t, args.a + 4 * t, t == 15 ? 8 : t < 15 ? 16 : 0);
    cp_async_commit();
    cp_async_wait<0>();
    st_global<float>(args.c + t, ld_shared<float>(16 * t + 8) + ld_shared<float>(16 * t));
"""
    report, given = run(floats(body, shared_bytes=1024), size=64, a=np.arange(1, 63, dtype=np.float32))
    assert report.clean, str(report)
    expected = np.zeros(64, np.float32)
    expected[:15] = 8 * np.arange(15) + 4
    expected[15] = 61
    assert np.array_equal(given["c"], expected)


def test_rows_between_which_lies_foreign_memory() -> None:
    source = floats("st_global<float>(args.c + thread_index(), 0.0F);", threads=32)
    wide = np.ones((4, 16), np.float32)
    report, _ = run(source, c=wide[:, :8])
    assert report.kinds == {"global out of bounds", "output not written"}
    assert np.all(wide[:, 8:] == 1)


@pytest.mark.parametrize(
    "statement",
    [
        "if (t < 40) {\nsync_block();\n}",
        "if (t % 2 == 0) {\nsync_warp();\n} else {\nshuffle(t, 0);\n}",
        "if (t % 32 < 8) {\nshuffle_xor(t, 1);\n} else {\nshuffle_xor(t, 2);\n}",
        "named_barrier_sync(t % 32 == 0 ? 1 : 2, 64);",
    ],
)
def test_divergence_at_a_collective(statement: str) -> None:
    report, _ = run(floats(f"const uint32_t t = thread_index();\n{statement}\nst_global<float>(args.c + t, 0.0F);"))
    assert report.kinds & {"divergence at a collective", "deadlock"}, str(report)


def test_deadlock_says_who_waits_where() -> None:
    body = """
    const uint32_t t = thread_index();
    if (t == 0) {
        mbarrier_init(8, 2);
    }
    sync_block();
    if (t == 1) {
        mbarrier_arrive(8);
    }
    mbarrier_wait(8, 0);
    st_global<float>(args.c + t, 0.0F);
"""
    source = floats(body, shared_bytes=64)
    report, _ = run(source)
    deadlock = next(f for f in report.findings if f.kind == "deadlock")
    assert "64 thread(s) from 0 wait for phase parity 0 of the mbarrier at byte 8" in deadlock.detail
    assert f"at line {line_of(source, 'mbarrier_wait')}" in deadlock.detail
    assert "lacks 1 of 2 arrivals and 0 bytes" in deadlock.detail


def test_named_barriers_order_producers_and_consumers() -> None:
    body = """
    const uint32_t t = thread_index();
    if (t < 32) {{
        st_shared<float>(4 * t, ld_global<float>(args.a + t));
        {arrive}
        st_global<float>(args.c + t, 0.0F);
    }} else {{
        {sync}
        st_global<float>(args.c + t, ld_shared<float>(4 * (95 - t - 32)));
    }}
"""
    arrive, sync = "named_barrier_arrive(3, 64);", "named_barrier_sync(3, 64);"
    assert run(floats(body.format(arrive=arrive, sync=sync), shared_bytes=256))[0].clean
    assert (
        "race: read after write"
        in run(floats(body.format(arrive="", sync=""), shared_bytes=256), schedules=(0,))[0].kinds
    )
    assert "deadlock" in run(floats(body.format(arrive="", sync=sync), shared_bytes=256))[0].kinds
    counts = run(floats(body.format(arrive=arrive, sync="named_barrier_sync(3, 32);"), shared_bytes=256))[0].kinds
    assert counts & {"barrier with two thread counts", "race: read after write"}
    invalid = run(floats(body.format(arrive=arrive, sync="named_barrier_sync(16, 64);"), shared_bytes=256))[0]
    assert "invalid operand" in invalid.kinds


def test_bank_conflicts_are_counted_by_line() -> None:
    body = """
    const uint32_t t = thread_index();
    st_shared<float>(4 * (t * {stride} % 1024), 1.0F);
    sync_block();
    st_global<float>(args.c + t, ld_shared<float>(0));
"""
    for stride, ways in ((1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (33, 1)):
        source = floats(body.format(stride=stride), threads=32, shared_bytes=4096)
        report, _ = run(source, c=np.zeros(32, np.float32))
        assert report.clean, str(report)
        assert report.bank_ways(line=line_of(source, "st_shared")) == ways
        assert report.conflicts(line=line_of(source, "st_shared")) == ways - 1
        assert report.bank_ways(line=line_of(source, "ld_shared")) == 1  # one word for all lanes: a broadcast


def test_wide_accesses_go_by_parts_of_a_warp() -> None:
    body = """
    const uint32_t t = thread_index();
    st_shared<Words<4>>(16 * t, Words<4>{});
    st_shared<Words<2>>(8 * t + 512, Words<2>{});
    st_shared<Words<4>>(1024 + 128 * t, Words<4>{});
    st_global<float>(args.c + t, 0.0F);
"""
    source = floats(body, threads=32, shared_bytes=8192)
    report, _ = run(source, c=np.zeros(32, np.float32))
    whole, half, column = (
        next(c for c in report.accesses if c.place.line == line_of(source, "st_shared", i)) for i in range(3)
    )
    assert (whole.actual, whole.ideal, whole.worst) == (4, 4, 1)
    assert (half.actual, half.ideal, half.worst) == (2, 2, 1)
    assert (column.actual, column.ideal, column.worst) == (32, 4, 8)


def test_sectors_of_global_accesses() -> None:
    body = """
    const uint32_t t = thread_index();
    const float x = ld_global<float>(args.a + t);
    const float y = ld_global<float>(args.a + t * 8);
    st_global<float>(args.c + t, x + y);
"""
    source = floats(body, threads=32)
    report, _ = run(source, a=np.zeros(256, np.float32), c=np.zeros(32, np.float32))
    costs = {c.place.line: c for c in report.accesses}
    assert (costs[line_of(source, "float x")].actual, costs[line_of(source, "float x")].ideal) == (4, 4)
    assert (costs[line_of(source, "float y")].actual, costs[line_of(source, "float y")].ideal) == (32, 4)


def test_raw_access_traps_with_its_line() -> None:
    source = floats("float x = 0;\nst_global<float>(args.c + thread_index(), 0.0F);\nargs.c[3] = 1.0F;")
    report, _ = run(source)
    finding = next(f for f in report.findings if f.kind == "raw access")
    assert finding.place.line == line_of(source, "args.c[3]")


def test_other_traps_end_the_run_with_a_finding() -> None:
    zero = floats(
        "const int t = static_cast<int>(thread_index()) + 7;\n"
        "st_global<float>(args.c + t - 7, 1.0F / (t / static_cast<int>(block_index())));"
    )
    assert "arithmetic trap" in run(zero, schedules=(0,))[0].kinds
    deep = floats(
        "st_global<float>(args.c + thread_index(), deep(1.0F, 100000));",
        head="TRACEA_DEVICE float deep(float x, int n) {\nfloat y[64];\nfor (int i = 0; i < 64; ++i) y[i] = x + i;\n"
        "return n == 0 ? x : deep(y[n % 64], n - 1) + y[(n + 1) % 64];\n}",
    )
    assert "stack overflow" in run(deep, schedules=(0,))[0].kinds
    endless = floats("int i = 0;\nwhile (block_index() == 0) {\ni += 1;\n}\nst_global<float>(args.c, 0.0F + i);")
    assert "endless loop" in run(endless, schedules=(0,))[0].kinds


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("__shared__ float x[32];", "one arena"),
        ('asm volatile("");', "primitive"),
        ("__syncthreads();", "sync_block"),
        ("static int count = 0;", "all threads share"),
        ("int t = threadIdx.x;", "thread_index"),
        ("__shfl_xor_sync(0xffffffff, 1, 1);", "primitive"),
    ],
)
def test_text_that_hides_from_the_emulator_is_refused(line: str, reason: str) -> None:
    with pytest.raises(EmitError, match=reason):
        run(floats(line))


def test_missing_argument_names_itself() -> None:
    with pytest.raises(InvalidOption, match="'c'"):
        emulate(floats(""), {"a": np.zeros(4, np.float32)}, {})


def test_same_seed_repeats_the_same_run_and_order_shows_in_sums() -> None:
    body = "atomic_add(args.c, ld_global<float>(args.a + block_index() * 32 + thread_index()));"
    source = floats(body, threads=32, blocks=32)
    values = (np.random.default_rng(3).standard_normal(1024) * 10.0 ** (np.arange(1024) % 7)).astype(np.float32)
    seen = set()
    for seed in (0, 1, 2, 3, 2):
        c = np.zeros(1, np.float32)
        report = emulate(source, {"a": values, "c": c}, {}, schedules=(seed,), initialised=("c",))
        assert report.clean, str(report)
        seen.add((seed, c[0].tobytes()))
    assert len(seen) == 4  # seed 2 twice the same
    assert len({bits for _, bits in seen}) > 1
    several = emulate(source, {"a": values, "c": np.zeros(1, np.float32)}, {}, schedules=range(4), initialised=("c",))
    assert not several.deterministic


def test_report_is_json_and_names_places() -> None:
    import json

    report, _ = run(exchange("", 1))
    data = json.loads(report.to_json())
    assert data["clean"] is False
    assert {"kind", "place", "other", "thread", "block", "iteration", "seed", "count"} <= data["findings"][0].keys()
    assert replace(report, findings=()).clean


def test_traced_line_gives_its_lanes_addresses() -> None:
    body = """
    const uint32_t t = thread_index();
    st_shared<float>(4 * (t ^ 3), ld_global<float>(args.a + 63 - t));
    sync_block();
    st_global<float>(args.c + t, ld_shared<float>(4 * t));
"""
    source = floats(body, shared_bytes=256)
    a, c = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    report = emulate(source, {"a": a, "c": c}, {}, traced_line=line_of(source, "st_shared"))
    shared = [access.addresses for access in report.traced if access.space == "shared"]
    loads = [(access.buffer, access.addresses) for access in report.traced if access.space == "global"]
    assert shared == [tuple(4 * (t ^ 3) for t in range(w, w + 32)) for w in (0, 32)]
    assert loads == [("a", tuple(4 * (63 - t) for t in range(w, w + 32))) for w in (0, 32)]
