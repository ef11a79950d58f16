// The instruction set of this translation unit and the few compiler attributes that every header uses.
//
// Exactly one of TRACEA_ISA_AVX512, TRACEA_ISA_AVX2, TRACEA_ISA_NEON, TRACEA_ISA_PLAIN is defined by the command line; the matching
// compiler flags are the caller's: -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c | -mavx2 -mfma -mf16c | (NEON, plain: none).
// Everything lives in an inline namespace named after the instruction set, so that two kernels built for different ones can share a process.
#ifndef TRACEA_CONFIG_H
#define TRACEA_CONFIG_H

#if defined(TRACEA_ISA_AVX512) + defined(TRACEA_ISA_AVX2) + defined(TRACEA_ISA_NEON) + defined(TRACEA_ISA_PLAIN) != 1
#error "define exactly one of TRACEA_ISA_AVX512, TRACEA_ISA_AVX2, TRACEA_ISA_NEON, TRACEA_ISA_PLAIN"
#endif

#if defined(TRACEA_ISA_AVX512)
#define TRACEA_ISA_NAMESPACE avx512
#elif defined(TRACEA_ISA_AVX2)
#define TRACEA_ISA_NAMESPACE avx2
#elif defined(TRACEA_ISA_NEON)
#define TRACEA_ISA_NAMESPACE neon
#else
#define TRACEA_ISA_NAMESPACE plain
#endif

#define TRACEA_BEGIN_NAMESPACE \
    namespace tracea {         \
    inline namespace TRACEA_ISA_NAMESPACE {
#define TRACEA_END_NAMESPACE \
    }                        \
    }

// The plain build is read by sanitizers and debuggers, not timed: forced inlining would make its loops over lanes take minutes to compile.
#if defined(TRACEA_ISA_PLAIN)
#define TRACEA_INLINE inline
#else
#define TRACEA_INLINE inline __attribute__((always_inline))
#endif
#define TRACEA_NOINLINE __attribute__((noinline))
#define TRACEA_RESTRICT __restrict__
#define TRACEA_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define TRACEA_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#endif
