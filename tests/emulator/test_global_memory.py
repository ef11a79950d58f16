"""Order between blocks: only releases and acquires of a flag make one block's writes another's to read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tracea.core.dtype import DType
from tracea.emitters.kernel_source import KernelSource
from tracea.emulator import Report, emulate
from tracea.semantic.index import Const
from tracea.testing.conformance.source import IN, OUT, SCRATCH, kernel

PARTS = 3
# Blocks 1 to PARTS write parts; block 0 waits for all and adds them up.
FIX_UP = """
    const uint32_t t = thread_index();
    const uint32_t b = block_index();
    if (b > 0) {{
        st_global<float>(args.w + b * 64 + t, static_cast<float>(b));
        {before}
        if (t == 0) {{
            {signal}
        }}
    }} else {{
        if (t == 0) {{
            {wait}
        }}
        {after}
        float sum = 0.0F;
        for (uint32_t i = 1; i <= {parts}; ++i) {{
            sum += ld_global<float>(args.w + i * 64 + t);
        }}
        st_global<float>(args.c + t, sum);
    }}
"""
GOOD = {
    "before": "sync_block();",
    "signal": "red_release_add(args.flag, 1);",
    "wait": f"while (ld_acquire(args.flag) < {PARTS}) {{\n}}",
    "after": "sync_block();",
}


def fix_up(**changes: str) -> KernelSource:
    return kernel(
        FIX_UP.format(parts=PARTS, **{**GOOD, **changes}),
        pointers={"w": (DType.F32, SCRATCH), "flag": (DType.I32, SCRATCH), "c": (DType.F32, OUT)},
        threads=64,
        blocks=PARTS + 1,
        workspace=(("w", Const(4 * 64 * (PARTS + 1))), ("flag", Const(4))),
        zeroed=("flag",),
    )


def run(source: KernelSource, **options: Any) -> tuple[Report, Any]:
    c = np.zeros(64, np.float32)
    return emulate(source, {"c": c}, {}, **options), c


@pytest.mark.parametrize("resident", [1, 2, 4])
def test_flag_orders_blocks_in_every_schedule(resident: int) -> None:
    report, c = run(fix_up(), schedules=range(16), resident_blocks=resident)
    assert report.clean, str(report)
    assert np.all(c == 1 + 2 + 3)


def test_every_part_of_the_protocol_is_necessary() -> None:
    report, _ = run(fix_up(), schedules=range(4), find_superfluous=True)
    assert not report.superfluous
    assert {place.primitive for place in report.necessary} == {"sync_block", "red_release_add", "ld_acquire"}
    fenced, _ = run(fix_up(before="sync_block();\n        thread_fence();"), find_superfluous=True)
    assert [place.primitive for place in fenced.superfluous] == ["thread_fence"]  # the release is cumulative


@pytest.mark.parametrize(
    "changes",
    [
        {"before": ""},
        {"after": ""},
        {"wait": ""},
        {"wait": "while (ld_global<int32_t>(args.flag) < 3) {\nsync_warp();\n}"},
        {"signal": "st_global<int32_t>(args.flag, 3);"},
    ],
)
def test_broken_protocol_is_reported(changes: dict[str, str]) -> None:
    report, _ = run(fix_up(**changes), schedules=range(4))
    assert not report.clean


def test_flag_that_nobody_sets_is_a_deadlock_and_names_the_poll() -> None:
    report, _ = run(fix_up(signal=""), schedules=(0, 1))
    deadlock = next(f for f in report.findings if f.kind == "deadlock")
    assert "another value of a flag" in deadlock.detail


def test_waiting_for_a_block_that_cannot_start_is_a_deadlock() -> None:
    report, _ = run(fix_up(), schedules=(0,), resident_blocks=1, capacity=1)
    deadlock = next(f for f in report.findings if f.kind == "deadlock")
    assert "3 block(s) cannot start while 1 are resident" in deadlock.detail


def test_fence_makes_an_atomic_addition_a_release() -> None:
    body = """
    const uint32_t t = thread_index();
    if (block_index() == 1) {{
        st_global<float>(args.c + t, 1.0F);
        sync_block();
        if (t == 0) {{
            {fence}
            atomic_add(args.flag, 1.0F);
        }}
    }} else {{
        if (t == 0) {{
            while (ld_acquire(reinterpret_cast<const int*>(args.flag)) == 0) {{
            }}
        }}
        sync_block();
        st_global<float>(args.c + t, ld_global<float>(args.c + t) + 1.0F);
    }}
"""

    def build(fence: str) -> KernelSource:
        return kernel(
            body.format(fence=fence),
            pointers={"flag": (DType.F32, SCRATCH), "c": (DType.F32, OUT)},
            threads=64,
            blocks=2,
            workspace=(("flag", Const(4)),),
            zeroed=("flag",),
        )

    report, c = run(build("thread_fence();"), schedules=range(4))
    assert report.clean, str(report)
    assert np.all(c == 2)
    assert "race: read after write" in run(build(""), schedules=range(4))[0].kinds


def test_blocks_that_write_one_place_race_and_atomics_do_not() -> None:
    def build(statement: str) -> KernelSource:
        return kernel(statement, pointers={"a": (DType.F32, IN), "c": (DType.F32, OUT)}, threads=32, blocks=4)

    def kinds(statement: str) -> frozenset[str]:
        c = np.zeros(32, np.float32)
        return emulate(build(statement), {"a": c.copy(), "c": c}, {}, initialised=("c",)).kinds

    assert kinds("st_global<float>(args.c + thread_index(), 1.0F);") == {"race: write after write"}
    assert not kinds("atomic_add(args.c + thread_index(), 1.0F);")
    mixed = "if (block_index() == 0) {\nst_global<float>(args.c, 1.0F);\n} else {\natomic_add(args.c, 1.0F);\n}"
    assert "race: write after write" in kinds(mixed)


def test_flag_read_twice_with_one_value_is_no_deadlock() -> None:
    body = """
    const uint32_t t = thread_index();
    for (int i = 0; i < 5; ++i) {
        if (ld_acquire(args.flag) > 0) {
            break;
        }
    }
    st_global<float>(args.c + t, 1.0F);
"""
    source = kernel(
        body,
        pointers={"flag": (DType.I32, SCRATCH), "c": (DType.F32, OUT)},
        threads=64,
        workspace=(("flag", Const(4)),),
        zeroed=("flag",),
    )
    report, _ = run(source)
    assert report.clean, str(report)


def test_source_of_a_copy_must_not_change_before_it_has_landed() -> None:
    body = """
    const uint32_t t = thread_index();
    st_global<float>(args.w + t, 1.0F);
    sync_block();
    cp_async<4>(4 * t, args.w + (63 - t));
    cp_async_commit();
    {before}
    sync_block();
    st_global<float>(args.w + t, 2.0F);
    cp_async_wait<0>();
    st_global<float>(args.c + t, ld_shared<float>(4 * t));
"""

    def kinds(before: str, seed: int) -> frozenset[str]:
        source = kernel(
            body.format(before=before),
            pointers={"w": (DType.F32, SCRATCH), "c": (DType.F32, OUT)},
            threads=64,
            shared_bytes=256,
            workspace=(("w", Const(256)),),
        )
        return emulate(source, {"c": np.zeros(64, np.float32)}, {}, schedules=(seed,)).kinds

    for seed in range(4):
        assert not kinds("cp_async_wait<0>();", seed)
        found = kinds("", seed)
        assert found & {"lax wait: write to what an asynchronous operation still reads", "race: write after read"}, seed


def test_table_of_indices_does_not_hide_a_nan() -> None:
    source = kernel(
        "st_global<float>(args.c + thread_index(), bits_as<float>(0x7fffffffU));",
        pointers={"a": (DType.F32, IN), "order": (DType.I32, IN), "c": (DType.F32, OUT)},
    )
    assert source.launch is not None
    fields = tuple(replace(f, kind="table") if f.name == "order" else f for f in source.launch.arguments)
    pointers = tuple(pointer for pointer in source.pointers if pointer.name != "order")
    tabled = replace(source, launch=replace(source.launch, arguments=fields), pointers=pointers)
    arrays = {"a": np.ones(32, np.float32), "order": np.zeros(4, np.int32), "c": np.zeros(32, np.float32)}
    assert emulate(tabled, arrays, {}).kinds == {"NaN from finite inputs"}
