// What one core can do at best on this machine: fused multiply-adds from registers, and bytes from and to memory.
// Compiled once for each instruction set (TRACEA_ISA_*); the doctor calls the functions from pinned threads and takes the time.
#include <cstdint>

#if defined(TRACEA_ISA_AVX512) || defined(TRACEA_ISA_AVX2)
#include <immintrin.h>
#elif defined(TRACEA_ISA_NEON)
#include <arm_neon.h>
#endif

#define TRACEA_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// One vector of T: what the peak loop needs, under the same names for every instruction set. KEEP is the register constraint that
// makes the compiler believe the value changed, so that it neither folds the loop nor spills it.
template <typename T> struct Vector;

#if defined(TRACEA_ISA_AVX512)
#define KEEP "+v"
template <> struct Vector<float> {
    using type = __m512;
    static type set(float x) { return _mm512_set1_ps(x); }
    static type fma(type a, type b, type c) { return _mm512_fmadd_ps(a, b, c); }
};
template <> struct Vector<double> {
    using type = __m512d;
    static type set(double x) { return _mm512_set1_pd(x); }
    static type fma(type a, type b, type c) { return _mm512_fmadd_pd(a, b, c); }
};
using Bytes = __m512i;
inline Bytes load(const char* p) { return _mm512_load_si512(p); }
inline Bytes add(Bytes a, Bytes b) { return _mm512_add_epi64(a, b); }
inline void stream(char* p, Bytes x) { _mm512_stream_si512(reinterpret_cast<__m512i*>(p), x); }
inline void fence() { _mm_sfence(); }
#elif defined(TRACEA_ISA_AVX2)
#define KEEP "+x"
template <> struct Vector<float> {
    using type = __m256;
    static type set(float x) { return _mm256_set1_ps(x); }
    static type fma(type a, type b, type c) { return _mm256_fmadd_ps(a, b, c); }
};
template <> struct Vector<double> {
    using type = __m256d;
    static type set(double x) { return _mm256_set1_pd(x); }
    static type fma(type a, type b, type c) { return _mm256_fmadd_pd(a, b, c); }
};
using Bytes = __m256i;
inline Bytes load(const char* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
inline Bytes add(Bytes a, Bytes b) { return _mm256_add_epi64(a, b); }
inline void stream(char* p, Bytes x) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), x); }
inline void fence() { _mm_sfence(); }
#else
#if defined(__x86_64__)
#define KEEP "+x"
#elif defined(__aarch64__)
#define KEEP "+w"
#else
#define KEEP "+m"
#endif
template <typename T> struct Vector {
    typedef T type __attribute__((vector_size(16)));
    static type set(T x) { return type{} + x; }
#if defined(TRACEA_ISA_NEON)
    static type fma(type a, type b, type c) {
        if constexpr (sizeof(T) == 4) return (type)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
        else return (type)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
    }
#else
    static type fma(type a, type b, type c) { return a * b + c; }
#endif
};
typedef int64_t Bytes __attribute__((vector_size(16)));
inline Bytes load(const char* p) { return *reinterpret_cast<const Bytes*>(p); }
inline Bytes add(Bytes a, Bytes b) { return a + b; }
inline void stream(char* p, Bytes x) { *reinterpret_cast<Bytes*>(p) = x; }
inline void fence() {}
#endif

// Twelve independent chains cover a latency of 5 cycles on two ports, and fit 16 registers with both factors. They are twelve names
// and not an array: of an array that an asm statement touches, compilers keep a copy in memory.
constexpr int CHAINS = 12;

template <typename T> double peak(int64_t iterations) {
    using V = Vector<T>;
    using Type = typename V::type;
    const Type factor = V::set(T(0.999)), term = V::set(T(0.001));
    Type a = term, b = term, c = term, d = term, e = term, f = term, g = term, h = term, i = term, j = term, k = term, l = term;
    const auto step = [&](Type& chain) __attribute__((always_inline)) {
        chain = V::fma(chain, factor, term);
        asm volatile("" : KEEP(chain));
    };
    for (int64_t n = 0; n < iterations; ++n) {
        step(a), step(b), step(c), step(d), step(e), step(f);
        step(g), step(h), step(i), step(j), step(k), step(l);
    }
    const Type sum = a + b + c + d + e + f + g + h + i + j + k + l;
    return double(sum[0]);
}

constexpr int64_t WIDTH = sizeof(Bytes);

}  // namespace

// Operations of one iteration of the peak loops.
TRACEA_EXPORT int64_t tracea_peak_flops_f32() { return 2 * CHAINS * int64_t(sizeof(Vector<float>::type) / 4); }
TRACEA_EXPORT int64_t tracea_peak_flops_f64() { return 2 * CHAINS * int64_t(sizeof(Vector<double>::type) / 8); }
TRACEA_EXPORT double tracea_peak_f32(int64_t iterations) { return peak<float>(iterations); }
TRACEA_EXPORT double tracea_peak_f64(int64_t iterations) { return peak<double>(iterations); }

// All pointers are 64-byte aligned, all sizes multiples of 512.
TRACEA_EXPORT int64_t tracea_read(const char* source, int64_t bytes) {
    Bytes sum[8] = {};
    for (int64_t at = 0; at < bytes; at += 8 * WIDTH) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) sum[i] = add(sum[i], load(source + at + i * WIDTH));
    }
    for (int i = 1; i < 8; ++i) sum[0] = add(sum[0], sum[i]);
    return reinterpret_cast<int64_t*>(&sum[0])[0];
}

// The same as sixteen streams in turns, four lines of each: what prefetches one stream stops at the end of a page, and on some cores no other has begun then.
TRACEA_EXPORT int64_t tracea_read_streams(const char* source, int64_t bytes) {
    constexpr int64_t streams = 16, turn = 256;
    const int64_t length = bytes / (streams * turn) * turn;
    Bytes sum[4] = {};
    for (int64_t at = 0; at < length; at += turn) {
        for (int64_t stream = 0; stream < streams; ++stream) {
            const char* line = source + stream * length + at;
            for (int64_t i = 0; i < turn / WIDTH; ++i) sum[i % 4] = add(sum[i % 4], load(line + i * WIDTH));
        }
    }
    sum[0] = add(add(sum[0], sum[1]), add(sum[2], sum[3]));
    return reinterpret_cast<int64_t*>(&sum[0])[0] + tracea_read(source + streams * length, bytes - streams * length);
}

// The same bytes again and again: from the smallest cache that holds them.
TRACEA_EXPORT int64_t tracea_read_again(const char* source, int64_t bytes, int64_t times) {
    int64_t sum = 0;
    for (int64_t time = 0; time < times; ++time) {
        sum += tracea_read(source, bytes);
        asm volatile("" : : : "memory");
    }
    return sum;
}

TRACEA_EXPORT void tracea_copy(char* target, const char* source, int64_t bytes) {
    __builtin_memcpy(target, source, static_cast<uint64_t>(bytes));
}

// Past the caches: the target's lines are written without being read first.
TRACEA_EXPORT void tracea_copy_streaming(char* target, const char* source, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 4 * WIDTH) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) stream(target + at + i * WIDTH, load(source + at + i * WIDTH));
    }
    fence();
}
