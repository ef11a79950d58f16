// Elementary functions of Vec<double>; what math.h says of NaN, infinities and zeros holds.
//
// Largest error over bit patterns of all magnitudes (tests/headers/ulp_sweep_double.cpp), in units in the last place, against long double:
//   exp 1.1   exp2_scaled_or_zero 1.3   tanh 2.5   erf 2.6   sigmoid 2.4   gelu 7.1   silu 3.2 while the result is above 2^-1000
// Smaller results of gelu and silu multiply what has rounded to a subnormal; what exp would make below 2^-1075 is zero. The polynomials are Chebyshev interpolations that
// tests/headers/double_polynomials.py derives. Log, sin, cos, pow and fmod call the C library lane by lane (math.h).
#ifndef TRACEA_MATH_DOUBLE_H
#define TRACEA_MATH_DOUBLE_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/polynomial.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// x = n ln 2 + r with |r| <= ln(2)/2 for |x| < 2^20. What the first step leaves is a multiple of 2^-53 below 1/2, and so exact.
TRACEA_INLINE void reduce_ln2(VecD x, VecD& n, VecD& r) {
    const VecD shift = broadcast<VecD>(0x1.8p+52);
    n = sub(fma(x, broadcast<VecD>(0x1.71547652b82fep+0), shift), shift);
    r = fnma(n, broadcast<VecD>(0x1.62e42fefa39efp-1), x);
    r = fnma(n, broadcast<VecD>(0x1.abc9e3b39803fp-56), r);
}
// exp(r) - 1 for |r| <= ln(2)/2: r + r^2 q(r).
TRACEA_INLINE VecD expm1_reduced(VecD r) {
    const VecD q =
        polynomial_halved(r, 0x1.0000000000001p-1, 0x1.5555555555556p-3, 0x1.5555555553d68p-5, 0x1.11111111109b5p-7,
                          0x1.6c16c17889ef1p-10, 0x1.a01a01a7c2efep-13, 0x1.a019b9149a41cp-16, 0x1.71de0db2f6b19p-19,
                          0x1.28917c89a43a9p-22, 0x1.af389ecfc4b9ep-26);
    return fma(mul(r, r), q, r);
}
// exp(x + more), more much smaller than x <= 710, times factor; NaN passes. Zero below -745.5, without the assist that an underflow takes.
TRACEA_INLINE VecD exp_times(VecD x, VecD more, VecD factor) {
    const Mask<VecD> remains = not_less(x, broadcast<VecD>(-745.5));
    VecD n;
    VecD r;
    reduce_ln2(max_second(broadcast<VecD>(-800.0), x), n, r);
    r = add(r, more);
    return scale_pow2_or_zero(remains, fma(factor, expm1_reduced(r), factor), n);
}
// exp(z^2) erfc(z) for 0 <= z <= 28.5: P(t) / (z + 4), t = (z - 4) / (z + 4).
TRACEA_INLINE VecD erfcx(VecD z) {
    const VecD u = div(broadcast<VecD>(1.0), add(z, broadcast<VecD>(4.0)));
    const VecD t = mul(sub(z, broadcast<VecD>(4.0)), u);
    const VecD p =
        polynomial_halved(t, 0x1.18932bf08e154p+0, -0x1.f3fe31ecb49bfp-1, 0x1.8be202d26c708p-1, -0x1.14eacb1ad034cp-1,
                          0x1.52cac2371002dp-2, -0x1.645fd8a4bb7bdp-3, 0x1.38dbd2c8ea6aep-4, -0x1.b00c052c8068ep-6,
                          0x1.908f471c6ee90p-8, -0x1.269b5185ca912p-12, -0x1.dd2840b645330p-12, 0x1.72cda1c57f2c5p-13,
                          -0x1.e7f646e7c4d10p-19, -0x1.3c6e4ef0b9000p-16, 0x1.3b22655dee403p-18, 0x1.7e447416e13d7p-20,
                          -0x1.c805b29abeaadp-21, -0x1.4563b32db9af5p-24, 0x1.1439848da6babp-23, 0x1.e1634f68a9f89p-30,
                          -0x1.4734790904347p-26, -0x1.fbcf13e6104ccp-31, 0x1.349372285f732p-29, 0x1.04748efab3fe1p-31);
    return mul(p, u);
}

}  // namespace detail

TRACEA_INLINE VecD exp(VecD x) {
    const VecD limited = min_second(broadcast<VecD>(710.0), x);
    return detail::exp_times(limited, zero<VecD>(), broadcast<VecD>(1.0));
}
// 2^(x factor) for x <= 0 and NaN, factor > 0, where `least` is -126 / factor; the product is not rounded.
TRACEA_INLINE VecD exp2_scaled_or_zero(VecD x, VecD factor, VecD least) {
    const VecD limited = max_second(mul(least, broadcast<VecD>(9.0)), x);
    const VecD shift = broadcast<VecD>(0x1.8p+52);
    const VecD n = sub(fma(limited, factor, shift), shift);
    const VecD r = mul(fma(limited, factor, neg(n)), broadcast<VecD>(0x1.62e42fefa39efp-1));
    const VecD one = broadcast<VecD>(1.0);
    return scale_pow2_or_zero(not_less(n, broadcast<VecD>(-1075.0)), add(detail::expm1_reduced(r), one), n);
}
TRACEA_INLINE VecD exp_or_zero(VecD x) { return exp(x); }

TRACEA_INLINE VecD tanh(VecD x) {
    // tanh|x| = t / (t + 2) with t = exp(2|x|) - 1, accurate near zero because t is; 1 to the last bit from |x| = 19.1 on.
    const VecD limited = min_second(broadcast<VecD>(20.0), abs(x));
    VecD n;
    VecD r;
    detail::reduce_ln2(add(limited, limited), n, r);
    const VecD one = broadcast<VecD>(1.0);
    const VecD power = scale_pow2(one, n);
    const VecD t = fma(power, detail::expm1_reduced(r), sub(power, one));
    return copysign(div(t, add(t, broadcast<VecD>(2.0))), x);
}

TRACEA_INLINE VecD sigmoid(VecD x) {
    const VecD one = broadcast<VecD>(1.0);
    const VecD e = detail::exp_times(neg(abs(x)), zero<VecD>(), one);
    return div(select(less(x, zero<VecD>()), e, one), add(one, e));
}

TRACEA_INLINE VecD erf(VecD x) {
    const VecD z = abs(x);
    const VecD near =
        mul(x, detail::polynomial_halved(mul(x, x), 0x1.20dd750429b6dp+0, -0x1.812746b0379c1p-2, 0x1.ce2f21a040f66p-4,
                                         -0x1.b82ce31203772p-6, 0x1.565bccfa44156p-8, -0x1.c02db0665e53dp-11,
                                         0x1.f9a2be4f731a1p-14, -0x1.f4ca838adb73bp-17, 0x1.b981d78881a5dp-20,
                                         -0x1.5c131500d3f88p-23, 0x1.d76af6ca49787p-27, -0x1.ac9585a44fe29p-31));
    const VecD limited = min_second(broadcast<VecD>(6.0), z);  // 1 to the last bit from 5.93 on
    const VecD square = mul(limited, limited);
    const VecD tail = detail::exp_times(neg(square), fnma(limited, limited, square), detail::erfcx(limited));
    const VecD far = copysign(sub(broadcast<VecD>(1.0), tail), x);
    return select(less(z, broadcast<VecD>(1.0)), near, far);
}

namespace detail {
// Phi(-m) for m >= 0, relative to its own size: what the square rounds is carried along. What is beyond 40 is taken for 40.
TRACEA_INLINE VecD gelu_tail(VecD m) {
    const VecD limited = min_second(broadcast<VecD>(40.0), m);
    const VecD square = mul(limited, limited);
    const VecD half = broadcast<VecD>(0.5);
    const VecD rounded = mul(fnma(limited, limited, square), half);
    const VecD ratio = mul(erfcx(mul(limited, broadcast<VecD>(0x1.6a09e667f3bcdp-1))), half);
    return exp_times(mul(square, neg(half)), rounded, ratio);
}
}  // namespace detail

// x Phi(x), the exact form: x or 0, less |x| Phi(-|x|), whose tail keeps its relative accuracy. Minus infinity gives NaN, as torch; above 40, infinity
// among it, the tail is that of 0, times 0.
TRACEA_INLINE VecD gelu(VecD x) {
    const VecD m = select(not_greater(x, broadcast<VecD>(40.0)), abs(x), zero<VecD>());
    return fnma(m, detail::gelu_tail(m), max_second(zero<VecD>(), x));
}
// Phi(x) + x phi(x), the slope of gelu. An infinity gives NaN, as torch.
TRACEA_INLINE VecD gelu_slope(VecD x) {
    const VecD density = mul(exp(mul(mul(x, x), broadcast<VecD>(-0.5))), broadcast<VecD>(0x1.9884533d43651p-2));
    const VecD tail = detail::gelu_tail(abs(x));
    return fma(x, density, select(less(x, zero<VecD>()), tail, sub(broadcast<VecD>(1.0), tail)));
}

TRACEA_END_NAMESPACE

#endif
