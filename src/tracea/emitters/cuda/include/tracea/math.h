// Scalar functions of epilogues, in float: exact operations of IEEE 754, and functions of the CUDA math library without fast-math.
//
// Maximum errors in units of the last place, over the full range (CUDA C++ Programming Guide 13.0, Mathematical Functions, single precision):
// expf 1, logf 1, log2f 1, log10f 2, sinf 2, cosf 2, tanhf 2, erff 2, erfcf 4, rsqrtf 2, powf 4, fmodf 0; sqrtf and division are rounded
// correctly.
#ifndef TRACEA_MATH_H
#define TRACEA_MATH_H

#include "tracea/primitives.h"

namespace tracea {

// Some elements in one access.
template <class T, int count>
struct alignas(sizeof(T) * count) Elements {
    T value[count];
};

namespace detail {
template <class A, class B>
inline constexpr bool same_storage = false;
template <class A>
inline constexpr bool same_storage<A, A> = true;
}  // namespace detail

TRACEA_DEVICE float neg(float x) { return -x; }
TRACEA_DEVICE float abs(float x) { return bits_as<float>(bits_as<uint32_t>(x) & 0x7fffffffU); }
TRACEA_DEVICE float add(float a, float b) { return a + b; }
TRACEA_DEVICE float sub(float a, float b) { return a - b; }
TRACEA_DEVICE float mul(float a, float b) { return a * b; }
TRACEA_DEVICE float div(float a, float b) { return a / b; }
TRACEA_DEVICE float sqrt(float x) { return ::sqrtf(x); }
TRACEA_DEVICE float rsqrt(float x) { return 1.0F / ::sqrtf(x); }
TRACEA_DEVICE float reciprocal(float x) { return 1.0F / x; }
TRACEA_DEVICE float exp(float x) { return ::expf(x); }
TRACEA_DEVICE float log(float x) { return ::logf(x); }
TRACEA_DEVICE float log2(float x) { return ::log2f(x); }
TRACEA_DEVICE float log10(float x) { return ::log10f(x); }
TRACEA_DEVICE float sin(float x) { return ::sinf(x); }
TRACEA_DEVICE float cos(float x) { return ::cosf(x); }
TRACEA_DEVICE float tanh(float x) { return ::tanhf(x); }
TRACEA_DEVICE float erf(float x) { return ::erff(x); }
TRACEA_DEVICE float pow(float a, float b) { return ::powf(a, b); }
TRACEA_DEVICE float fmod(float a, float b) { return ::fmodf(a, b); }
TRACEA_DEVICE float floor(float x) { return ::floorf(x); }
TRACEA_DEVICE float sigmoid(float x) { return 1.0F / (1.0F + ::expf(-x)); }

// NaN of either operand is the result.
TRACEA_DEVICE float maximum(float a, float b) { return a > b || a != a ? a : b; }
TRACEA_DEVICE float minimum(float a, float b) { return a < b || a != a ? a : b; }
TRACEA_DEVICE bool less(float a, float b) { return a < b; }
TRACEA_DEVICE bool less_equal(float a, float b) { return a <= b; }
TRACEA_DEVICE bool equal(float a, float b) { return a == b; }
TRACEA_DEVICE bool not_equal(float a, float b) { return a != b; }
TRACEA_DEVICE float select(bool condition, float if_true, float if_false) { return condition ? if_true : if_false; }

// x·Φ(x), by erfc, which keeps the relative accuracy of the negative tail.
TRACEA_DEVICE float gelu(float x) { return 0.5F * x * ::erfcf(-0.70710678118654752F * x); }
// Φ(x) + x·φ(x), the slope of gelu.
TRACEA_DEVICE float gelu_slope(float x) {
    return 0.5F * ::erfcf(-0.70710678118654752F * x) + x * (0.39894228040143268F * ::expf(-0.5F * x * x));
}
TRACEA_DEVICE float silu(float x) { return x / (1.0F + ::expf(-x)); }
TRACEA_DEVICE float relu(float x) { return x < 0.0F ? 0.0F : x; }
// 0.5·x·(1 + tanh(u)) = x·sigmoid(2u) with u = sqrt(2/π)·(x + 0.044715·x³).
TRACEA_DEVICE float gelu_tanh(float x) {
    const float u = 0.79788456080286536F * (x + 0.044715F * x * x * x);
    return x / (1.0F + ::expf(-2.0F * u));
}

// The value as it comes back from storage.
template <class T>
TRACEA_DEVICE float round_to(float x) {
    if constexpr (detail::same_storage<T, int32_t>) {
        if (x != x) return 0.0F;
        return x >= 2147483648.0F ? 2147483647.0F : x <= -2147483648.0F ? -2147483648.0F : ::truncf(x);
    } else {
        return to_float(from_float<T>(x));
    }
}

}  // namespace tracea

#endif
