"""The device's primitives as data: the same list as ``include/tracea/primitives``, which a test compares with it.

Worked example: ``find("mma_m16n8k16").forms`` are f16 and bf16, ``.needs`` is "sm_80 or later", so that
``unavailable("sm_75")`` holds it, and a text that calls it does not compile for sm_75.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from tracea.errors import InvalidOption

__all__ = ["ARCHITECTURES", "PRIMITIVES", "WGMMA_EXTENTS", "Primitive", "PrimitiveKind", "find", "sm_of", "unavailable"]

ARCHITECTURES: Final = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
# The columns of a wgmma tile that the header has: multiples of 8 to 64, of 16 to 128, of 32 to 256.
WGMMA_EXTENTS: Final = (*range(8, 65, 8), *range(80, 129, 16), *range(160, 257, 32))
_EVERY = 75


class PrimitiveKind(enum.Enum):
    """What a primitive does to the threads around it."""

    INDEX = "index"  # where a thread is
    CONVERSION = "conversion"  # a value of one thread
    MEMORY = "memory"  # an access of one thread
    SYNC = "sync"  # a barrier, a fence, or the budget of registers
    COLLECTIVE = "collective"  # the lanes of a warp together
    ASYNC = "async"  # takes effect later, until a wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """One device function of the headers.

    ``minimum_sm`` is the least architecture that declares it. ``arch_specific`` forms need the ``a`` of sm_90a;
    ``only_sm`` is set where later architectures dropped the instruction. ``forms`` are the template arguments that it
    is defined for, with the least architecture of each. On an architecture in ``rewritten_on`` the compiler makes it
    of other instructions, slower and rounded otherwise: fp8 by ``mma.sync`` is a pair of f16 products there.
    """

    name: str
    signature: str
    section: str
    kind: PrimitiveKind
    minimum_sm: int = _EVERY
    arch_specific: bool = False
    only_sm: int | None = None
    forms: tuple[tuple[str, int], ...] = ()
    rewritten_on: tuple[int, ...] = ()

    @property
    def needs(self) -> str:
        """The architectures that have it, in words."""
        if self.only_sm is not None:
            return f"sm_{self.only_sm}{'a' if self.arch_specific else ''} alone"
        return f"sm_{self.minimum_sm}{'a' if self.arch_specific else ''} or later"

    def runs_on(self, architecture: str, form: str | None = None) -> bool:
        """Whether the headers declare it, or one ``form`` of it, for an architecture such as ``sm_90a``."""
        sm, specific = sm_of(architecture)
        if self.arch_specific and not specific:
            return False
        if self.only_sm is not None and sm != self.only_sm:
            return False
        return sm >= max(self.minimum_sm, dict(self.forms).get(form or "", 0))


def sm_of(architecture: str) -> tuple[int, bool]:
    """Return the number and whether it is an architecture-specific form: ``sm_90a`` is (90, True).

    Raises:
        InvalidOption: no architecture is written so.
    """
    number = architecture.removeprefix("sm_").removesuffix("a")
    if not architecture.startswith("sm_") or not number.isdecimal():
        raise InvalidOption(field="architecture", got=architecture, expected=ARCHITECTURES, remedy="name one of these")
    return int(number), architecture.endswith("a")


def _each(sm: int, *names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, sm) for name in names)


def _index(name: str, section: str) -> Primitive:
    return Primitive(name=name, signature=f"uint32_t {name}()", section=section, kind=PrimitiveKind.INDEX)


def _memory(name: str, signature: str, section: str, forms: tuple[tuple[str, int], ...] = ()) -> Primitive:
    return Primitive(name=name, signature=signature, section=section, kind=PrimitiveKind.MEMORY, forms=forms)


def _sync(name: str, signature: str, section: str, minimum_sm: int = _EVERY) -> Primitive:
    return Primitive(name=name, signature=signature, section=section, kind=PrimitiveKind.SYNC, minimum_sm=minimum_sm)


def _async(
    name: str, signature: str, section: str, minimum_sm: int, forms: tuple[tuple[str, int], ...] = ()
) -> Primitive:
    return Primitive(
        name=name,
        signature=signature,
        section=section,
        kind=PrimitiveKind.ASYNC,
        minimum_sm=minimum_sm,
        forms=forms,
    )


def _collective(
    name: str, signature: str, section: str, minimum_sm: int = _EVERY, forms: tuple[tuple[str, int], ...] = ()
) -> Primitive:
    return Primitive(
        name=name,
        signature=signature,
        section=section,
        kind=PrimitiveKind.COLLECTIVE,
        minimum_sm=minimum_sm,
        forms=forms,
    )


def _wgmma(
    name: str,
    signature: str,
    section: str = "9.7.15 wgmma.mma_async",
    kind: PrimitiveKind = PrimitiveKind.ASYNC,
    forms: tuple[tuple[str, int], ...] = (),
) -> Primitive:
    return Primitive(
        name=name,
        signature=signature,
        section=section,
        kind=kind,
        minimum_sm=90,
        arch_specific=True,
        only_sm=90,
        forms=forms,
    )


def _matrix_moves() -> tuple[Primitive, ...]:
    moves: list[Primitive] = []
    for suffix in ("", "_trans"):
        for count in (1, 2, 4):
            load, store = f"ldmatrix_x{count}{suffix}", f"stmatrix_x{count}{suffix}"
            moves += [
                _collective(load, f"void {load}(uint32_t (&r)[{count}], uint32_t address)", "9.7.14 ldmatrix"),
                _collective(
                    store, f"void {store}(uint32_t address, const uint32_t (&r)[{count}])", "9.7.14 stmatrix", 90
                ),
            ]
    return tuple(moves)


def _mma(
    name: str, d: str, registers: tuple[int, int], minimum_sm: int, forms: tuple[tuple[str, int], ...] = ()
) -> Primitive:
    a, b = registers
    template = "template <class T> " if forms else ""
    signature = f"{template}void {name}({d}, const uint32_t (&a)[{a}], const uint32_t (&b)[{b}])"
    return _collective(name, signature, "9.7.14 mma", minimum_sm, forms)


_STORAGE = _each(_EVERY, "f16", "bf16", "e4m3", "e5m2", "float")
_WIDTHS = _each(_EVERY, "int8_t", "f16", "float", "Words<2>", "Words<4>")
_COPIES = _each(80, "4", "8", "16")
_PRODUCT = "uint64_t a, uint64_t b, bool accumulate"
_SECTION_MBARRIER = "9.7.13 mbarrier"

PRIMITIVES: Final[tuple[Primitive, ...]] = (
    _index("thread_index", "10 %tid"),
    _index("block_index", "10 %ctaid"),
    _index("block_count", "10 %nctaid"),
    _index("warp_index", "9.7.9 shfl.sync"),
    _index("lane_index", "10 %laneid"),
    Primitive(
        name="bits_as",
        signature="template <class To, class From> To bits_as(From value)",
        section="9.7.9 mov",
        kind=PrimitiveKind.CONVERSION,
    ),
    Primitive(
        name="to_float",
        signature="float to_float(T x)",
        section="9.7.9 cvt",
        kind=PrimitiveKind.CONVERSION,
        forms=(*_STORAGE, *_each(_EVERY, "int8_t", "int32_t")),
    ),
    Primitive(
        name="from_float",
        signature="template <class T> T from_float(float x)",
        section="9.7.9 cvt",
        kind=PrimitiveKind.CONVERSION,
        forms=_STORAGE,
    ),
    Primitive(
        name="round_tf32",
        signature="uint32_t round_tf32(float x)",
        section="9.7.9 cvt.rna.tf32.f32",
        kind=PrimitiveKind.CONVERSION,
        minimum_sm=80,
    ),
    _memory("shared_base", "uint32_t shared_base()", "9.7.9 cvta"),
    _memory("ld_shared", "template <class T> T ld_shared(uint32_t address)", "9.7.9 ld", _WIDTHS),
    _memory("st_shared", "template <class T> void st_shared(uint32_t address, T value)", "9.7.9 st", _WIDTHS),
    _memory("ld_global", "template <class T> T ld_global(const void* address)", "9.7.9 ld", _WIDTHS),
    _memory("st_global", "template <class T> void st_global(void* address, T value)", "9.7.9 st", _WIDTHS),
    _memory("atomic_add", "void atomic_add(float* address, float value)", "9.7.13 red"),
    _memory("ld_acquire", "int ld_acquire(const int* address)", "9.7.9 ld.acquire"),
    _memory("st_release", "void st_release(int* address, int value)", "9.7.9 st.release"),
    _memory("red_release_add", "void red_release_add(int* address, int value)", "9.7.13 red.release"),
    _sync("thread_fence", "void thread_fence()", "9.7.13 fence.acq_rel"),
    _sync("sync_block", "void sync_block()", "9.7.13 bar.sync"),
    _sync("sync_warp", "void sync_warp()", "9.7.13 bar.warp.sync"),
    _sync("named_barrier_sync", "void named_barrier_sync(uint32_t id, uint32_t threads)", "9.7.13 bar.sync"),
    _sync("named_barrier_arrive", "void named_barrier_arrive(uint32_t id, uint32_t threads)", "9.7.13 bar.arrive"),
    _collective("shuffle_xor", "template <class T> T shuffle_xor(T value, int mask)", "9.7.9 shfl.sync.bfly"),
    _collective("shuffle", "template <class T> T shuffle(T value, int lane)", "9.7.9 shfl.sync.idx"),
    _collective("elect_one", "bool elect_one()", "9.7.13 elect.sync", 90),
    Primitive(
        name="setmaxnreg_inc",
        signature="template <int registers> void setmaxnreg_inc()",
        section="9.7.19 setmaxnreg",
        kind=PrimitiveKind.SYNC,
        minimum_sm=90,
        arch_specific=True,
    ),
    Primitive(
        name="setmaxnreg_dec",
        signature="template <int registers> void setmaxnreg_dec()",
        section="9.7.19 setmaxnreg",
        kind=PrimitiveKind.SYNC,
        minimum_sm=90,
        arch_specific=True,
    ),
    _async(
        "cp_async",
        "template <int bytes> void cp_async(uint32_t target, const void* source)",
        "9.7.9 cp.async",
        80,
        _COPIES,
    ),
    _async(
        "cp_async_zfill",
        "template <int bytes> void cp_async_zfill(uint32_t target, const void* source, uint32_t source_bytes)",
        "9.7.9 cp.async",
        80,
        _COPIES,
    ),
    _sync("cp_async_commit", "void cp_async_commit()", "9.7.9 cp.async.commit_group", 80),
    _sync("cp_async_wait", "template <int pending> void cp_async_wait()", "9.7.9 cp.async.wait_group", 80),
    *_matrix_moves(),
    _mma("mma_m16n8k8", "float (&d)[4]", (2, 1), 75, (("f16", 75), ("bf16", 80))),
    _mma("mma_m8n8k16_s8", "int32_t (&d)[2]", (1, 1), 75),
    _mma("mma_m16n8k16", "float (&d)[4]", (4, 2), 80, _each(80, "f16", "bf16")),
    _mma("mma_m16n8k4_tf32", "float (&d)[4]", (2, 1), 80),
    _mma("mma_m16n8k8_tf32", "float (&d)[4]", (4, 2), 80),
    _mma("mma_m16n8k32_s8", "int32_t (&d)[4]", (4, 2), 80),
    replace(_mma("mma_m16n8k32", "float (&d)[4]", (4, 2), 89, _each(89, "e4m3", "e5m2")), rewritten_on=(90, 100)),
    _sync("mbarrier_init", "void mbarrier_init(uint32_t address, uint32_t count)", f"{_SECTION_MBARRIER}.init", 80),
    _sync("mbarrier_arrive", "void mbarrier_arrive(uint32_t address)", f"{_SECTION_MBARRIER}.arrive", 80),
    _sync(
        "mbarrier_wait", "void mbarrier_wait(uint32_t address, uint32_t parity)", f"{_SECTION_MBARRIER}.try_wait", 80
    ),
    _sync("mbarrier_fence_init", "void mbarrier_fence_init()", "9.7.13 fence.mbarrier_init", 90),
    _sync(
        "mbarrier_arrive_expect",
        "void mbarrier_arrive_expect(uint32_t address, uint32_t bytes)",
        f"{_SECTION_MBARRIER}.arrive.expect_tx",
        90,
    ),
    _async("prefetch_tensor_map", "void prefetch_tensor_map(const TensorMap& map)", "9.7.9 prefetch.tensormap", 90),
    _async(
        "tma_load",
        "template <int rank> void tma_load(uint32_t target, const TensorMap& map, uint32_t mbarrier, int32_t c0, ...)",
        "9.7.9 cp.async.bulk.tensor",
        90,
        _each(90, "1", "2", "3", "4", "5"),
    ),
    _async(
        "tma_store_2d",
        "void tma_store_2d(const TensorMap& map, uint32_t source, int32_t c0, int32_t c1)",
        "9.7.9 cp.async.bulk.tensor",
        90,
    ),
    _sync("tma_store_commit", "void tma_store_commit()", "9.7.9 cp.async.bulk.commit_group", 90),
    _sync("tma_store_wait", "template <int pending> void tma_store_wait()", "9.7.9 cp.async.bulk.wait_group", 90),
    _sync(
        "tma_store_wait_read",
        "template <int pending> void tma_store_wait_read()",
        "9.7.9 cp.async.bulk.wait_group.read",
        90,
    ),
    _sync("fence_proxy_async", "void fence_proxy_async()", "9.7.13 fence.proxy.async", 90),
    _wgmma(
        "wgmma_descriptor",
        "uint64_t wgmma_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,"
        " uint32_t swizzle_bytes)",
        "9.7.15 Matrix Descriptor",
        PrimitiveKind.CONVERSION,
    ),
    _wgmma("wgmma_fence", "void wgmma_fence()", "9.7.15 wgmma.fence", PrimitiveKind.SYNC),
    _wgmma("wgmma_commit", "void wgmma_commit()", "9.7.15 wgmma.commit_group", PrimitiveKind.SYNC),
    _wgmma("wgmma_wait", "template <int pending> void wgmma_wait()", "9.7.15 wgmma.wait_group", PrimitiveKind.SYNC),
    _wgmma("wgmma_accumulators", "void wgmma_accumulators(T (&d)[count])", "none", PrimitiveKind.SYNC),
    _wgmma(
        "wgmma_m64k16",
        "template <int n, class T, bool transpose_a, bool transpose_b> void wgmma_m64k16(float (&d)[n / 2],"
        f" {_PRODUCT})",
        forms=_each(90, "f16", "bf16"),
    ),
    _wgmma("wgmma_m64k8_tf32", f"template <int n> void wgmma_m64k8_tf32(float (&d)[n / 2], {_PRODUCT})"),
    _wgmma(
        "wgmma_m64k32",
        f"template <int n, class T> void wgmma_m64k32(float (&d)[n / 2], {_PRODUCT})",
        forms=_each(90, "e4m3", "e5m2"),
    ),
    _wgmma("wgmma_m64k32_s8", f"template <int n> void wgmma_m64k32_s8(int32_t (&d)[n / 2], {_PRODUCT})"),
)


@cache
def _by_name() -> dict[str, Primitive]:
    return {primitive.name: primitive for primitive in PRIMITIVES}


def find(name: str) -> Primitive | None:
    """Return the primitive of that name, or None."""
    return _by_name().get(name)


def unavailable(architecture: str) -> tuple[Primitive, ...]:
    """Return the primitives that the headers do not declare for an architecture."""
    return tuple(primitive for primitive in PRIMITIVES if not primitive.runs_on(architecture))
