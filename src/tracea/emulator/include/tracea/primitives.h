// The emulator's primitives: the signatures of the device header of this name, each performed by the emulator's core.
//
// Each takes one more argument, which nobody gives: the line of its call, for reports.
#ifndef TRACEA_PRIMITIVES_H
#define TRACEA_PRIMITIVES_H

#include "tracea/emulator_abi.h"
#include "tracea/emulator_number.h"
#include "tracea/primitives/config.h"
#include "tracea/primitives/types.h"  // the device's own

namespace tracea {

namespace emulator {

inline const Core* core = nullptr;

// Stands before each statement of the emitted text.
inline void statement(int32_t line) {
    Face* face = core->face;
    face->line = line;
    ++face->statements;
    if (--face->budget < 0) core->exhausted();
}

template <class A, class B>
inline constexpr bool same = false;
template <class A>
inline constexpr bool same<A, A> = true;

template <class T>
constexpr Element element() {
    if constexpr (same<T, f16>) {
        return Element::F16;
    } else if constexpr (same<T, bf16>) {
        return Element::BF16;
    } else if constexpr (same<T, e4m3>) {
        return Element::E4M3;
    } else {
        static_assert(same<T, e5m2>, "an element type of the tensor cores");
        return Element::E5M2;
    }
}

template <bool>
struct Only {};
template <>
struct Only<true> {
    using type = void;
};
template <bool condition>
using only = typename Only<condition>::type;

template <class T>
constexpr void check_access() {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                  "one access moves 1, 2, 4, 8 or 16 bytes");
}

}  // namespace emulator

#define TRACEA_AT int at = __builtin_LINE()

// ---- where a thread is
inline uint32_t thread_index() { return emulator::core->face->thread; }
inline uint32_t block_index() { return emulator::core->face->block; }
inline uint32_t block_count() { return emulator::core->block_count; }
inline uint32_t lane_index() { return thread_index() % 32; }
inline uint32_t warp_index(TRACEA_AT) {
    return emulator::core->shuffle(thread_index() / 32, 0, emulator::Primitive::WARP_INDEX, at);
}

// ---- conversions
inline float to_float(float x) { return x; }
inline float to_float(int32_t x) { return static_cast<float>(x); }
inline float to_float(int8_t x) { return static_cast<float>(x); }
inline float to_float(f16 x) { return emulator::widen_f16(x.bits); }
inline float to_float(bf16 x) { return emulator::widen_bf16(x.bits); }
inline float to_float(e4m3 x) { return emulator::widen_e4m3(x.bits); }
inline float to_float(e5m2 x) { return emulator::widen_e5m2(x.bits); }

template <class Storage>
inline Storage from_float(float x);
template <>
inline float from_float<float>(float x) {
    return x;
}
template <>
inline f16 from_float<f16>(float x) {
    return f16{emulator::narrow_f16(x)};
}
template <>
inline bf16 from_float<bf16>(float x) {
    return bf16{emulator::narrow_bf16(x)};
}
template <>
inline e4m3 from_float<e4m3>(float x) {
    return e4m3{emulator::narrow_e4m3(x)};
}
template <>
inline e5m2 from_float<e5m2>(float x) {
    return e5m2{emulator::narrow_e5m2(x)};
}

#if TRACEA_SM >= 80
inline uint32_t round_tf32(float x) { return emulator::round_to_tf32(x); }
#endif

// ---- shared and global memory
inline uint32_t shared_base() { return 0; }

template <class T>
inline T ld_shared(uint32_t address, TRACEA_AT) {
    emulator::check_access<T>();
    T value;
    emulator::core->load_shared(&value, address, sizeof(T), at);
    return value;
}
template <class T>
inline void st_shared(uint32_t address, T value, TRACEA_AT) {
    emulator::check_access<T>();
    emulator::core->store_shared(address, &value, sizeof(T), at);
}
template <class T>
inline T ld_global(const void* address, TRACEA_AT) {
    emulator::check_access<T>();
    T value;
    emulator::core->load_global(&value, address, sizeof(T), at);
    return value;
}
template <class T>
inline void st_global(void* address, T value, TRACEA_AT) {
    emulator::check_access<T>();
    emulator::core->store_global(address, &value, sizeof(T), at);
}
inline void atomic_add(float* address, float value, TRACEA_AT) { emulator::core->atomic_add(address, value, at); }
inline int ld_acquire(const int* address, TRACEA_AT) { return emulator::core->load_acquire(address, at); }
inline void st_release(int* address, int value, TRACEA_AT) { emulator::core->store_release(address, value, at); }
inline void red_release_add(int* address, int value, TRACEA_AT) { emulator::core->add_release(address, value, at); }
inline void thread_fence(TRACEA_AT) { emulator::core->thread_fence(at); }

// ---- barriers and shuffles
inline void sync_block(TRACEA_AT) { emulator::core->sync_block(at); }
inline void sync_warp(TRACEA_AT) { emulator::core->sync_warp(at); }
inline void named_barrier_sync(uint32_t id, uint32_t threads, TRACEA_AT) {
    emulator::core->named_barrier(id, threads, true, at);
}
inline void named_barrier_arrive(uint32_t id, uint32_t threads, TRACEA_AT) {
    emulator::core->named_barrier(id, threads, false, at);
}
template <class T>
inline T shuffle_xor(T value, int mask, TRACEA_AT) {
    return bits_as<T>(emulator::core->shuffle(bits_as<uint32_t>(value), static_cast<uint32_t>(mask),
                                              emulator::Primitive::SHUFFLE_XOR, at));
}
template <class T>
inline T shuffle(T value, int lane, TRACEA_AT) {
    return bits_as<T>(emulator::core->shuffle(bits_as<uint32_t>(value), static_cast<uint32_t>(lane),
                                              emulator::Primitive::SHUFFLE, at));
}

// ---- ldmatrix
inline void ldmatrix_x1(uint32_t (&r)[1], uint32_t address, TRACEA_AT) {
    emulator::core->load_matrix(r, 1, false, address, at);
}
inline void ldmatrix_x2(uint32_t (&r)[2], uint32_t address, TRACEA_AT) {
    emulator::core->load_matrix(r, 2, false, address, at);
}
inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address, TRACEA_AT) {
    emulator::core->load_matrix(r, 4, false, address, at);
}
inline void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t address, TRACEA_AT) {
    emulator::core->load_matrix(r, 1, true, address, at);
}
inline void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address, TRACEA_AT) {
    emulator::core->load_matrix(r, 2, true, address, at);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address, TRACEA_AT) {
    emulator::core->load_matrix(r, 4, true, address, at);
}

// ---- mma.sync: d += a·b
template <class T>
inline void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1], TRACEA_AT) {
    static_assert(emulator::same<T, f16> || (emulator::same<T, bf16> && TRACEA_SM >= 80), "f16, or bf16 from sm_80");
    emulator::core->mma({emulator::element<T>(), 16, 16}, d, a, b, at);
}
inline void mma_m8n8k16_s8(int32_t (&d)[2], const uint32_t (&a)[1], const uint32_t (&b)[1], TRACEA_AT) {
    emulator::core->mma({emulator::Element::S8, 8, 16}, d, a, b, at);
}

#if TRACEA_SM >= 80
template <class T>
inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], TRACEA_AT) {
    static_assert(emulator::same<T, f16> || emulator::same<T, bf16>, "f16 or bf16");
    emulator::core->mma({emulator::element<T>(), 16, 32}, d, a, b, at);
}
inline void mma_m16n8k4_tf32(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1], TRACEA_AT) {
    emulator::core->mma({emulator::Element::TF32, 16, 16}, d, a, b, at);
}
inline void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], TRACEA_AT) {
    emulator::core->mma({emulator::Element::TF32, 16, 32}, d, a, b, at);
}
inline void mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], TRACEA_AT) {
    emulator::core->mma({emulator::Element::S8, 16, 32}, d, a, b, at);
}

// ---- cp.async
template <int bytes>
inline void cp_async(uint32_t target, const void* source, TRACEA_AT) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    emulator::core->copy_async(target, source, bytes, bytes, at);
}
template <int bytes>
inline void cp_async_zfill(uint32_t target, const void* source, uint32_t source_bytes, TRACEA_AT) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    emulator::core->copy_async(target, source, bytes, source_bytes, at);
}
inline void cp_async_commit(TRACEA_AT) { emulator::core->copy_async_commit(at); }
template <int pending>
inline void cp_async_wait(TRACEA_AT) {
    static_assert(pending >= 0, "a number of groups");
    emulator::core->copy_async_wait(pending, at);
}

// ---- mbarrier
inline void mbarrier_init(uint32_t address, uint32_t count, TRACEA_AT) {
    emulator::core->mbarrier_init(address, count, at);
}
inline void mbarrier_arrive(uint32_t address, TRACEA_AT) { emulator::core->mbarrier_arrive(address, 0, false, at); }
inline void mbarrier_wait(uint32_t address, uint32_t parity, TRACEA_AT) {
    emulator::core->mbarrier_wait(address, parity, at);
}
#endif

#if TRACEA_SM >= 89
template <class T>
inline void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], TRACEA_AT) {
    static_assert(emulator::same<T, e4m3> || emulator::same<T, e5m2>, "e4m3 or e5m2");
    emulator::core->mma({emulator::element<T>(), 16, 32}, d, a, b, at);
}
#endif

// ---- TMA
struct alignas(64) TensorMap {
    uint64_t opaque[16];
};

#if TRACEA_SM >= 90
inline void stmatrix_x1(uint32_t address, const uint32_t (&r)[1], TRACEA_AT) {
    emulator::core->store_matrix(address, r, 1, false, at);
}
inline void stmatrix_x2(uint32_t address, const uint32_t (&r)[2], TRACEA_AT) {
    emulator::core->store_matrix(address, r, 2, false, at);
}
inline void stmatrix_x4(uint32_t address, const uint32_t (&r)[4], TRACEA_AT) {
    emulator::core->store_matrix(address, r, 4, false, at);
}
inline void stmatrix_x1_trans(uint32_t address, const uint32_t (&r)[1], TRACEA_AT) {
    emulator::core->store_matrix(address, r, 1, true, at);
}
inline void stmatrix_x2_trans(uint32_t address, const uint32_t (&r)[2], TRACEA_AT) {
    emulator::core->store_matrix(address, r, 2, true, at);
}
inline void stmatrix_x4_trans(uint32_t address, const uint32_t (&r)[4], TRACEA_AT) {
    emulator::core->store_matrix(address, r, 4, true, at);
}

inline void mbarrier_fence_init(TRACEA_AT) { emulator::core->mbarrier_fence_init(at); }
inline void mbarrier_arrive_expect(uint32_t address, uint32_t bytes, TRACEA_AT) {
    emulator::core->mbarrier_arrive(address, bytes, true, at);
}
inline bool elect_one(TRACEA_AT) { return emulator::core->elect_one(at); }
inline void prefetch_tensor_map(const TensorMap& map, TRACEA_AT) { emulator::core->prefetch_tensor_map(&map, at); }

// A pack of coordinates on the device; one function for each rank here, so that the line can follow.
template <int rank>
inline emulator::only<rank == 1> tma_load(uint32_t target, const TensorMap& map, uint32_t mbarrier, int32_t c0,
                                          TRACEA_AT) {
    emulator::core->tile_load(target, &map, mbarrier, {rank, {c0}}, at);
}
template <int rank>
inline emulator::only<rank == 2> tma_load(uint32_t target, const TensorMap& map, uint32_t mbarrier, int32_t c0,
                                          int32_t c1, TRACEA_AT) {
    emulator::core->tile_load(target, &map, mbarrier, {rank, {c0, c1}}, at);
}
template <int rank>
inline emulator::only<rank == 3> tma_load(uint32_t target, const TensorMap& map, uint32_t mbarrier, int32_t c0,
                                          int32_t c1, int32_t c2, TRACEA_AT) {
    emulator::core->tile_load(target, &map, mbarrier, {rank, {c0, c1, c2}}, at);
}
template <int rank>
inline emulator::only<rank == 4> tma_load(uint32_t target, const TensorMap& map, uint32_t mbarrier, int32_t c0,
                                          int32_t c1, int32_t c2, int32_t c3, TRACEA_AT) {
    emulator::core->tile_load(target, &map, mbarrier, {rank, {c0, c1, c2, c3}}, at);
}
template <int rank>
inline emulator::only<rank == 5> tma_load(uint32_t target, const TensorMap& map, uint32_t mbarrier, int32_t c0,
                                          int32_t c1, int32_t c2, int32_t c3, int32_t c4, TRACEA_AT) {
    emulator::core->tile_load(target, &map, mbarrier, {rank, {c0, c1, c2, c3, c4}}, at);
}

inline void tma_store_2d(const TensorMap& map, uint32_t source, int32_t c0, int32_t c1, TRACEA_AT) {
    emulator::core->tile_store(&map, source, {2, {c0, c1}}, at);
}
inline void tma_store_commit(TRACEA_AT) { emulator::core->tile_store_commit(at); }
template <int pending>
inline void tma_store_wait(TRACEA_AT) {
    emulator::core->tile_store_wait(pending, false, at);
}
template <int pending>
inline void tma_store_wait_read(TRACEA_AT) {
    emulator::core->tile_store_wait(pending, true, at);
}
inline void fence_proxy_async(TRACEA_AT) { emulator::core->fence_proxy_async(at); }
#endif

// ---- wgmma
#if TRACEA_SM == 90 && defined(TRACEA_ARCH_SPECIFIC)
inline uint64_t wgmma_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
                                 uint32_t swizzle_bytes) {
    TRACEA_REQUIRE(address % 16 == 0 && leading_bytes % 16 == 0 && stride_bytes % 16 == 0);  // the rest is dropped
    const uint64_t mode = swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : swizzle_bytes == 32 ? 3 : 0;
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) |
           static_cast<uint64_t>((leading_bytes & 0x3ffff) >> 4) << 16 |
           static_cast<uint64_t>((stride_bytes & 0x3ffff) >> 4) << 32 | mode << 62;
}
inline void wgmma_fence(TRACEA_AT) { emulator::core->wgmma_fence(at); }
inline void wgmma_commit(TRACEA_AT) { emulator::core->wgmma_commit(at); }
template <int pending>
inline void wgmma_wait(TRACEA_AT) {
    static_assert(pending >= 0 && pending <= 7, "0 to 7 groups");
    emulator::core->wgmma_wait(pending, at);
}
template <class T, int count>
inline void wgmma_accumulators(T (&d)[count], TRACEA_AT) {
    emulator::core->settle_accumulators(d, sizeof d, at);
}

template <int n, class T, bool transpose_a, bool transpose_b>
inline void wgmma_m64k16(float (&d)[n / 2], uint64_t a, uint64_t b, bool accumulate, TRACEA_AT) {
    static_assert(emulator::same<T, f16> || emulator::same<T, bf16>, "wgmma_m64k16 multiplies f16 or bf16");
    emulator::core->wgmma({emulator::element<T>(), n, transpose_a, transpose_b}, d, a, b, accumulate, at);
}
template <int n>
inline void wgmma_m64k8_tf32(float (&d)[n / 2], uint64_t a, uint64_t b, bool accumulate, TRACEA_AT) {
    emulator::core->wgmma({emulator::Element::TF32, n, false, false}, d, a, b, accumulate, at);
}
template <int n, class T>
inline void wgmma_m64k32(float (&d)[n / 2], uint64_t a, uint64_t b, bool accumulate, TRACEA_AT) {
    static_assert(emulator::same<T, e4m3> || emulator::same<T, e5m2>, "wgmma_m64k32 multiplies e4m3 or e5m2");
    emulator::core->wgmma({emulator::element<T>(), n, false, false}, d, a, b, accumulate, at);
}
template <int n>
inline void wgmma_m64k32_s8(int32_t (&d)[n / 2], uint64_t a, uint64_t b, bool accumulate, TRACEA_AT) {
    emulator::core->wgmma({emulator::Element::S8, n, false, false}, d, a, b, accumulate, at);
}
#endif

// ---- registers of warpgroups
#if TRACEA_SM >= 90 && defined(TRACEA_ARCH_SPECIFIC)
template <int registers>
inline void setmaxnreg_inc(TRACEA_AT) {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "24 to 256 registers, a multiple of 8");
    emulator::core->set_registers(registers, true, at);
}
template <int registers>
inline void setmaxnreg_dec(TRACEA_AT) {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "24 to 256 registers, a multiple of 8");
    emulator::core->set_registers(registers, false, at);
}
#endif

#undef TRACEA_AT

}  // namespace tracea

#endif
