"""A statement for every form of every primitive: compiled where it is claimed, refused elsewhere."""

from __future__ import annotations

from tracea.emitters.cuda.primitives import WGMMA_EXTENTS

# What the statements may name.
LOCALS = """\
    const uint32_t s = shared_base();
    uint32_t r1[1] = {}, r2[2] = {}, r4[4] = {}, one[1] = {}, two[2] = {}, four[4] = {};
    float f4[4] = {};
    int32_t i2[2] = {}, i4[4] = {};
"""
# Every array is written out, so that nothing is removed as unused.
KEEP = """\
    for (int i = 0; i < 4; ++i) {
        st_global(g + 4 * i, r4[i]);
        st_global(g + 16 + 4 * i, f4[i]);
        st_global(g + 32 + 4 * i, i4[i]);
    }
    st_global(g + 48, r1[0] + r2[0] + r2[1]);
    st_global(g + 52, i2[0] + i2[1]);
"""
_WIDTHS = ("int8_t", "f16", "float", "Words<2>", "Words<4>")
_TYPES = ("f16", "bf16", "e4m3", "e5m2")


def _wgmma(call: str, n: int, element: str = "float") -> str:
    # One commit and wait a form: accumulators are read after it.
    return (
        f"{{ {element} d[{n // 2}] = {{}}; wgmma_fence(); {call}(d, *(uint64_t*)g, *(uint64_t*)(g + 8), r1[0] != 0);"
        f" wgmma_commit(); wgmma_wait<0>(); wgmma_accumulators(d);"
        f" for (int i = 0; i < {n // 2}; ++i) st_global(g + 4 * i, d[i]); }}"
    )


PROBES: dict[str, tuple[str, ...]] = {
    "thread_index": ("r1[0] = thread_index();",),
    "block_index": ("r1[0] = block_index();",),
    "block_count": ("r1[0] = block_count();",),
    "warp_index": ("r1[0] = warp_index();",),
    "lane_index": ("r1[0] = lane_index();",),
    "shared_base": ("r1[0] = shared_base();",),
    "bits_as": ("r1[0] = bits_as<uint32_t>(ld_global<float>(g));",),
    "to_float": tuple(f"f4[0] = to_float(ld_global<{t}>(g));" for t in (*_TYPES, "float", "int8_t", "int32_t")),
    "from_float": tuple(f"st_global(g, from_float<{t}>(ld_global<float>(g)));" for t in (*_TYPES, "float")),
    "round_tf32": ("r1[0] = round_tf32(ld_global<float>(g));",),
    "ld_shared": tuple(f"st_global(g, ld_shared<{t}>(s));" for t in _WIDTHS),
    "st_shared": tuple(f"st_shared(s, ld_global<{t}>(g));" for t in _WIDTHS),
    "ld_global": tuple(f"st_global(g + 64, ld_global<{t}>(g));" for t in _WIDTHS),
    "st_global": tuple(f"st_global(g + 64, ld_shared<{t}>(s));" for t in _WIDTHS),
    "atomic_add": ("atomic_add((float*)g, 1.0F);",),
    "ld_acquire": ("i2[0] = ld_acquire((const int*)g);",),
    "st_release": ("st_release((int*)g, 1);",),
    "red_release_add": ("red_release_add((int*)g, 1);",),
    "thread_fence": ("thread_fence();",),
    "sync_block": ("sync_block();",),
    "sync_warp": ("sync_warp();",),
    "named_barrier_sync": ("named_barrier_sync(1, 128);",),
    "named_barrier_arrive": ("named_barrier_arrive(1, 128);",),
    "shuffle_xor": ("f4[0] = shuffle_xor(f4[0], 1);", "i2[0] = shuffle_xor(i2[0], 16);"),
    "shuffle": ("f4[0] = shuffle(ld_global<float>(g), 3);",),
    "elect_one": ("if (elect_one()) r1[0] = 1;",),
    "setmaxnreg_inc": ("setmaxnreg_inc<232>();",),
    "setmaxnreg_dec": ("setmaxnreg_dec<40>();",),
    "cp_async": tuple(f"cp_async<{n}>(s, g);" for n in (4, 8, 16)),
    "cp_async_zfill": tuple(f"cp_async_zfill<{n}>(s, g, {n - 1});" for n in (4, 8, 16)),
    "cp_async_commit": ("cp_async_commit();",),
    "cp_async_wait": ("cp_async_wait<0>();", "cp_async_wait<3>();"),
    "ldmatrix_x1": ("ldmatrix_x1(r1, s);",),
    "ldmatrix_x2": ("ldmatrix_x2(r2, s);",),
    "ldmatrix_x4": ("ldmatrix_x4(r4, s);",),
    "ldmatrix_x1_trans": ("ldmatrix_x1_trans(r1, s);",),
    "ldmatrix_x2_trans": ("ldmatrix_x2_trans(r2, s);",),
    "ldmatrix_x4_trans": ("ldmatrix_x4_trans(r4, s);",),
    "stmatrix_x1": ("stmatrix_x1(s, one);",),
    "stmatrix_x2": ("stmatrix_x2(s, two);",),
    "stmatrix_x4": ("stmatrix_x4(s, four);",),
    "stmatrix_x1_trans": ("stmatrix_x1_trans(s, one);",),
    "stmatrix_x2_trans": ("stmatrix_x2_trans(s, two);",),
    "stmatrix_x4_trans": ("stmatrix_x4_trans(s, four);",),
    "mma_m16n8k8": ("mma_m16n8k8<f16>(f4, two, one);", "mma_m16n8k8<bf16>(f4, two, one);"),
    "mma_m8n8k16_s8": ("mma_m8n8k16_s8(i2, one, one);",),
    "mma_m16n8k16": ("mma_m16n8k16<f16>(f4, four, two);", "mma_m16n8k16<bf16>(f4, four, two);"),
    "mma_m16n8k4_tf32": ("mma_m16n8k4_tf32(f4, two, one);",),
    "mma_m16n8k8_tf32": ("mma_m16n8k8_tf32(f4, four, two);",),
    "mma_m16n8k32_s8": ("mma_m16n8k32_s8(i4, four, two);",),
    "mma_m16n8k32": ("mma_m16n8k32<e4m3>(f4, four, two);", "mma_m16n8k32<e5m2>(f4, four, two);"),
    "mbarrier_init": ("mbarrier_init(s, 1);",),
    "mbarrier_arrive": ("mbarrier_arrive(s);",),
    "mbarrier_wait": ("mbarrier_wait(s, 0); mbarrier_wait(s + 8, 1);",),
    "mbarrier_fence_init": ("mbarrier_fence_init();",),
    "mbarrier_arrive_expect": ("mbarrier_arrive_expect(s, 4096);",),
    "prefetch_tensor_map": ("prefetch_tensor_map(args.map);",),
    "tma_load": tuple(f"tma_load<{rank}>(s, args.map, s + 1024, {', '.join('0' * rank)});" for rank in range(1, 6)),
    "tma_store_2d": ("tma_store_2d(args.map, s, 0, 0);",),
    "tma_store_commit": ("tma_store_commit();",),
    "tma_store_wait": ("tma_store_wait<0>();",),
    "tma_store_wait_read": ("tma_store_wait_read<1>();",),
    "fence_proxy_async": ("fence_proxy_async();",),
    "wgmma_descriptor": ("st_global(g, wgmma_descriptor(s, 16, 1024, 128));",),
    "wgmma_fence": ("wgmma_fence();",),
    # A group without a wgmma would be given one by the compiler.
    "wgmma_commit": (_wgmma("wgmma_m64k8_tf32<8>", 8),),
    "wgmma_wait": ("wgmma_wait<0>();", "wgmma_wait<1>();"),
    "wgmma_accumulators": ("wgmma_accumulators(f4);", "wgmma_accumulators(i4);"),
    "wgmma_m64k16": tuple(
        _wgmma(f"wgmma_m64k16<{n}, {t}, {a}, {b}>", n)
        for n in WGMMA_EXTENTS
        for t, a, b in (("f16", "false", "false"), ("bf16", "false", "true"), ("f16", "true", "true"))
    ),
    "wgmma_m64k8_tf32": tuple(_wgmma(f"wgmma_m64k8_tf32<{n}>", n) for n in WGMMA_EXTENTS),
    "wgmma_m64k32": tuple(_wgmma(f"wgmma_m64k32<{n}, {t}>", n) for n in WGMMA_EXTENTS for t in ("e4m3", "e5m2")),
    "wgmma_m64k32_s8": tuple(
        _wgmma(f"wgmma_m64k32_s8<{n}>", n, "int32_t") for n in WGMMA_EXTENTS if n in (8, 24) or n % 16 == 0
    ),
}


def probe_text(statements: tuple[str, ...]) -> str:
    """Return a translation unit with one kernel for each statement."""
    kernels = "\n".join(
        f"TRACEA_KERNEL(128, 1) void probe_{i}(const TRACEA_GRID_CONSTANT Args args) {{\n"
        f"    unsigned char* g = args.g;\n{LOCALS}    {statement}\n{KEEP}}}"
        for i, statement in enumerate(statements)
    )
    return (
        '#include "tracea/primitives.h"\nusing namespace tracea;\n'
        f"struct Args {{ TensorMap map; unsigned char* g; }};\n{kernels}\n"
    )
