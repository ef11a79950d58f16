"""Detectors of what sm_90 brought: the copy engine's own view of memory, registers by warpgroup, the elected lane."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.floats import floats, run

from tracea.core.dtype import DType
from tracea.emitters.kernel_source import KernelSource, TensorMapSpec
from tracea.emulator import emulate
from tracea.errors import InvalidShape
from tracea.semantic.index import Const
from tracea.testing.conformance.source import IN, OUT, kernel

F32 = DType.F32


@pytest.mark.parametrize(
    ("other", "stuck"), [("setmaxnreg_dec<40>();", False), ("setmaxnreg_inc<168>();", True), ("", True)]
)
def test_more_registers_than_the_pool_has_are_waited_for(other: str, stuck: bool) -> None:
    body = f"""
    const uint32_t t = thread_index();
    if (t < 128) {{
        setmaxnreg_inc<232>();
    }} else if (t < 256) {{
        {other}
    }}
    st_global<float>(args.c + t, 0.0F);
"""
    report, _ = run(floats(body, threads=384, isa="sm_90a"), c=np.zeros(384, np.float32))
    assert ("deadlock" in report.kinds) is stuck, str(report)
    if stuck:
        assert "232 registers" in next(f for f in report.findings if f.kind == "deadlock").detail


def test_giving_back_more_registers_than_there_are() -> None:
    body = "setmaxnreg_dec<256>();\nst_global<float>(args.c + thread_index(), 0.0F);"
    report, _ = run(floats(body, threads=384, isa="sm_90a"), c=np.zeros(384, np.float32))
    assert report.kinds == {"invalid operand"}


def test_elected_lane_is_any_but_always_the_same() -> None:
    body = """
    const uint32_t t = thread_index();
    const bool first = elect_one();
    const bool second = elect_one();
    st_global<float>(args.c + t, (first ? 1.0F : 0.0F) + (second ? 2.0F : 0.0F));
"""
    lanes = set()
    for seed in range(8):
        report, given = run(floats(body, isa="sm_90a"), schedules=(seed,))
        assert report.clean
        assert sorted(given["c"]) == [0.0] * 62 + [3.0] * 2
        lanes.add(int(np.argmax(given["c"])))
    assert len(lanes) > 3


TILE = """
    const uint32_t t = thread_index();
    if (t == 0) {{
        mbarrier_init(2048, 1);
        mbarrier_fence_init();
    }}
    {early}
    {fence}
    sync_block();
    {late}
    if (t == 0) {{
        mbarrier_arrive_expect(2048, 256);
        tma_load<1>(0, args.map, 2048, 0);
    }}
    mbarrier_wait(2048, 0);
    st_global<float>(args.c + t, ld_shared<float>(4 * t));
"""


def tile(**lines: str) -> KernelSource:
    """Return a kernel that loads 64 floats by a tile copy, after whatever `lines` say."""
    text = TILE.format(**{"early": "", "fence": "", "late": "", **lines})
    spec = TensorMapSpec(
        name="map", buffer="a", dtype=F32, shape=(Const(64),), strides=(Const(1),), box=(64,), swizzle_bytes=0
    )
    return kernel(
        text,
        pointers={"c": (F32, OUT)},
        mapped={"a": (F32, IN)},
        maps=(spec,),
        threads=64,
        shared_bytes=2056,
        isa="sm_90a",
    )


def test_ordinary_store_before_a_tile_copy_needs_a_proxy_fence_at_either_end() -> None:
    store = "st_shared<float>(4 * t, 0.0F);"
    report, given = run(tile())
    assert report.clean, str(report)
    assert np.array_equal(given["c"], given["a"])
    assert run(tile(early=store))[0].kinds == {"missing fence_proxy_async"}
    assert run(tile(early=store, fence="fence_proxy_async();"))[0].clean
    assert run(tile(early=store, late="fence_proxy_async();"))[0].clean
    assert "race: write after write" in run(tile(late=store))[0].kinds


def test_proxy_fence_of_the_writer_counts_only_where_the_copy_comes_after_it() -> None:
    """A fence behind the barrier comes before the copy in some schedules, and orders nothing in any."""
    store = "if (t >= 32) {\nst_shared<float>(4 * (t - 32), 0.0F);\nst_shared<float>(4 * t, 0.0F);\n}"
    fence = "if (t >= 32) {\nfence_proxy_async();\n}"
    for seed in range(8):
        late, _ = run(tile(early=store, late=fence), schedules=(seed,))
        assert late.kinds == {"missing fence_proxy_async"}, seed
        # A fence before the barrier is enough, whatever others follow behind it.
        assert run(tile(early=store, fence="fence_proxy_async();", late=fence), schedules=(seed,))[0].clean


def test_ordinary_store_before_a_tile_store_needs_a_proxy_fence() -> None:
    body = """
    const uint32_t t = thread_index();
    st_shared<float>(4 * t, ld_global<float>(args.a + t));
    {fence}
    {sync}
    if (t == 0) {{
        tma_store_2d(args.map, 0, 0, 0);
        tma_store_commit();
        {wait}
    }}
"""
    spec = TensorMapSpec(
        name="map", buffer="c", dtype=F32, shape=(Const(8), Const(8)), strides=(Const(8), Const(1)), box=(8, 8),
        swizzle_bytes=0,
    )  # fmt: skip
    good = {"fence": "fence_proxy_async();", "sync": "sync_block();", "wait": "tma_store_wait_read<0>();"}

    def kinds(**changes: str) -> frozenset[str]:
        source = kernel(
            body.format(**{**good, **changes}),
            pointers={"a": (F32, IN)},
            mapped={"c": (F32, OUT)},
            maps=(spec,),
            threads=64,
            shared_bytes=256,
            isa="sm_90a",
        )
        c = np.zeros((8, 8), np.float32)
        a = np.arange(64, dtype=np.float32)
        report = emulate(source, {"a": a, "c": c}, {})
        assert report.findings or np.array_equal(c.reshape(-1), a)
        return report.kinds

    assert not kinds()
    assert kinds(fence="") == {"missing fence_proxy_async"}
    assert any("race" in kind for kind in kinds(sync=""))
    assert "thread ends with a tile store under way" in kinds(wait="")


@pytest.mark.parametrize(
    ("wait", "kind"),
    [
        ("", "lax wait: read of a copy's destination before it has landed"),
        ("tma_store_wait_read<0>();", "race: read after write"),
        ("tma_store_wait<0>();", None),
    ],
)
@pytest.mark.parametrize("reader", [0, 32])
def test_what_a_tile_store_writes_is_read_only_after_the_wait_for_the_writes(
    reader: int, wait: str, kind: str | None
) -> None:
    body = f"""
    const uint32_t t = thread_index();
    st_shared<float>(4 * t, ld_global<float>(args.a + t));
    fence_proxy_async();
    sync_block();
    if (t == 0) {{
        tma_store_2d(args.map, 0, 0, 0);
        tma_store_commit();
        {wait}
    }}
    sync_block();
    if (t == {reader}) {{
        st_global<float>(args.d, ld_global<float>(args.c));
    }}
    sync_block();
    if (t == 0) {{
        tma_store_wait<0>();
    }}
"""
    spec = TensorMapSpec(
        name="map", buffer="c", dtype=F32, shape=(Const(8), Const(8)), strides=(Const(8), Const(1)), box=(8, 8),
        swizzle_bytes=0,
    )  # fmt: skip
    source = kernel(
        body,
        pointers={"a": (F32, IN), "c": (F32, OUT), "d": (F32, OUT)},
        maps=(spec,),
        threads=64,
        shared_bytes=256,
        isa="sm_90a",
    )
    for seed in range(4):
        arrays = {"a": np.arange(64, dtype=np.float32), "c": np.zeros((8, 8), np.float32), "d": np.zeros(1, np.float32)}
        kinds = emulate(source, arrays, {}, initialised=("c",), schedules=(seed,)).kinds
        assert kinds == ({kind} if kind else set()), (seed, kinds)


def test_source_of_a_tile_copy_must_not_change_before_it_has_landed() -> None:
    text = """
    const uint32_t t = thread_index();
    if (t == 0) {{
        mbarrier_init(256, 1);
        mbarrier_fence_init();
    }}
    sync_block();
    if (t == 0) {{
        mbarrier_arrive_expect(256, 256);
        tma_load<1>(0, args.map, 256, 0);
    }}
    {before}
    sync_block();
    st_global<float>(args.w + t, 2.0F);
    mbarrier_wait(256, 0);
    st_global<float>(args.c + t, ld_shared<float>(4 * t));
"""
    spec = TensorMapSpec(
        name="map", buffer="w", dtype=F32, shape=(Const(64),), strides=(Const(1),), box=(64,), swizzle_bytes=0
    )

    def kinds(before: str, seed: int) -> frozenset[str]:
        source = kernel(
            text.format(before=before),
            pointers={"w": (F32, OUT), "c": (F32, OUT)},
            maps=(spec,),
            threads=64,
            shared_bytes=264,
            isa="sm_90a",
        )
        arrays = {"w": np.ones(64, np.float32), "c": np.zeros(64, np.float32)}
        return emulate(source, arrays, {}, initialised=("w",), schedules=(seed,)).kinds

    for seed in range(4):
        assert not kinds("mbarrier_wait(256, 0);", seed)
        found = kinds("", seed)
        assert found & {"lax wait: write to what an asynchronous operation still reads", "race: write after read"}, seed


def test_tensor_map_that_reaches_beyond_its_array_is_refused() -> None:
    with pytest.raises(InvalidShape, match="do not fit"):
        run(tile(), a=np.zeros(63, np.float32))


def test_tile_copy_may_cross_the_border_at_any_byte() -> None:
    body = """
    const uint32_t t = thread_index();
    if (t == 0) {
        mbarrier_init(64, 1);
        mbarrier_fence_init();
        mbarrier_arrive_expect(64, 64);
        tma_load<1>(128, args.map, 64, 64);
    }
    sync_block();
    mbarrier_wait(64, 0);
    st_global<uint16_t>(args.c + 2 * t, ld_shared<uint16_t>(128 + 2 * t));
"""
    spec = TensorMapSpec(
        name="map", buffer="a", dtype=DType.U8, shape=(Const(83),), strides=(Const(1),), box=(64,), swizzle_bytes=0
    )
    source = kernel(
        body,
        pointers={"c": (DType.U8, OUT)},
        mapped={"a": (DType.U8, IN)},
        maps=(spec,),
        shared_bytes=192,
        isa="sm_90a",
    )
    a, c = np.arange(1, 84, dtype=np.uint8), np.zeros(64, np.uint8)
    report = emulate(source, {"a": a, "c": c}, {})
    assert report.clean, str(report)
    assert np.array_equal(c, np.concatenate([a[64:], np.zeros(45, np.uint8)]))
