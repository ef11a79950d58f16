// Vector elementary functions for kernels: NaN in gives NaN out, infinities and signed zeros behave as in C, nothing raises. Float results on
// AVX-512, AVX2, NEON and plain agree bit for bit except where an estimate instruction is named, and those of gelu where TRACEA_LOOK_UP (table.h) is the same.
//
// Largest error over all float32 inputs (every 101st bit pattern: tests/headers/ulp_sweep.cpp), in units in the last place, against double:
//   sin 1.5   cos 1.5   exp 0.89   log 0.76   log2 0.94   log10 1.3   tanh 2.4   erf 2.4   sigmoid 2.3   gelu 22 (8 by table; 0 below -12.8)   silu 2.9 and gelu_tanh 20 while the result is above 1e-30 in magnitude
// (silu's deep tail multiplies a subnormal sigmoid, gelu_tanh's rounds its cubic: up to 190 units on results below that).
// Double versions of logarithms, sin and cos call the C library lane by lane; they are correct, not fast. The others are in math_double.h.
#ifndef TRACEA_MATH_H
#define TRACEA_MATH_H

#include <math.h>
#include <stdint.h>

#include "tracea/config.h"
#include "tracea/gelu_tail.h"
#include "tracea/math_double.h"
#include "tracea/polynomial.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

template <class F>
TRACEA_INLINE VecD lane_by_lane(VecD a, F&& f) {
    double lanes[VecD::lanes];
    store(lanes, a);
    for (int i = 0; i < VecD::lanes; ++i) lanes[i] = f(lanes[i]);
    return load<VecD>(lanes);
}
template <class V, class F>
TRACEA_INLINE V lane_by_lane(V a, V b, F&& f) {
    typename V::element lanes[V::lanes];
    typename V::element others[V::lanes];
    store(lanes, a);
    store(others, b);
    for (int i = 0; i < V::lanes; ++i) lanes[i] = f(lanes[i], others[i]);
    return load<V>(lanes);
}

// x = n ln 2 + r with |r| <= ln(2)/2; ln 2 in two parts, the first with eleven trailing zero bits so that n times it is exact. Adding 1.5 * 2^23 rounds
// to an integer, which costs less than an instruction that rounds.
constexpr float round_shift = 0x1.8p+23F;
TRACEA_INLINE void reduce_ln2(VecF x, VecF& n, VecF& r) {
    n = sub(fma(x, broadcast<VecF>(0x1.715476p+0F), broadcast<VecF>(round_shift)), broadcast<VecF>(round_shift));
    r = fnma(n, broadcast<VecF>(0x1.62e4p-1F), x);
    r = fnma(n, broadcast<VecF>(0x1.7f7d1cp-20F), r);
}
// exp(r) - 1 for |r| <= ln(2)/2.
TRACEA_INLINE VecF expm1_reduced(VecF r) {
    const VecF q =
        polynomial(r, 0x1p-1F, 0x1.555554p-3F, 0x1.55548ep-5F, 0x1.111272p-7F, 0x1.6d8db0p-10F, 0x1.9f0810p-13F);
    return fma(mul(r, r), q, r);
}
// exp(r) 2^Shift for |r| <= ln(2)/2: whatever the shift, the same digits.
template <int Shift = 0>
TRACEA_INLINE VecF exp_reduced(VecF r) {
    constexpr float s = Shift < 0 ? 1.0F / (1 << -Shift) : 1 << Shift;  // no constant from a builtin: clang refuses it
    return polynomial(r, s, s, s * 0x1.fffffcp-2F, s * 0x1.555492p-3F, s * 0x1.5558f2p-5F, s * 0x1.123a20p-7F,
                      s * 0x1.6a23d2p-10F);
}

}  // namespace detail

// ---- exp, log ------------------------------------------------------------------------------------------------------------------------------------
namespace detail {
// exp(min(x, most)). Beyond the bounds of its callers the result is what it is at them; NaN passes as the second operand. What underflows entirely is set to
// zero instead of computed: rounding to a subnormal costs a microcode assist, 20 times the rest, and masked or distant logits are all of that kind.
TRACEA_INLINE VecF exp_up_to(VecF x, float most) {
    const Mask<VecF> remains = not_less(x, broadcast<VecF>(-104.0F));
    VecF n;
    VecF r;
    reduce_ln2(min_second(broadcast<VecF>(most), x), n, r);
    return scale_pow2_or_zero(remains, exp_reduced(r), n);
}
}  // namespace detail

TRACEA_INLINE VecF exp(VecF x) { return detail::exp_up_to(x, 89.0F); }
// 2^(x factor) for x <= 0 and NaN, factor > 0, where `least` is -126 / factor: 2.1 units in the last place, 1 for 0; zero where the result would be below
// 2^-125.5.
TRACEA_INLINE VecF exp2_scaled_or_zero(VecF x, VecF factor, VecF least) {
    // The sum's low bits are the field of half the power: 0 of -126, and so of all that is below, which makes zero of any digits.
    const VecF shift = broadcast<VecF>(detail::round_shift + 126.0F);
    const VecF limited = max_second(least, x);
    const VecF field = fma(limited, factor, shift);
    const VecF twice = detail::polynomial(fma(limited, factor, neg(sub(field, shift))), 2.0F, 0x1.62e42ap+0F,
                                          0x1.ebf9bcp-2F, 0x1.c6b752p-4F, 0x1.3cea88p-6F, 0x1.5bba14p-9F);
    return mul(twice, exponent_field(field));
}

// exp(x) for x <= 0 and NaN, by a factor that rounds: 2.1 units in the last place and |x| / 4 more, less than rounding x itself may have cost.
TRACEA_INLINE VecF exp_or_zero(VecF x) {
    constexpr float log2_e = 0x1.715476p+0F;
    return exp2_scaled_or_zero(x, broadcast<VecF>(log2_e), broadcast<VecF>(-126.0F / log2_e));
}

namespace detail {

// x = 2^e m and ln m = r + r2 (r q - 1/2), where r = m - 1 and m is from sqrt(1/2) to sqrt(2).
struct LogParts {
    VecF e;
    VecF r;
    VecF r2;
    VecF q;
};
TRACEA_INLINE LogParts log_parts(VecF x) {
    VecF m;
    VecF e;
    split_exponent(x, m, e);
    const VecF r = sub(m, broadcast<VecF>(1.0F));
    const VecF q = detail::polynomial(r, 0x1.555558p-2F, -0x1.ffff0ep-3F, 0x1.9995f6p-3F, -0x1.55993ap-3F,
                                      0x1.25207cp-3F, -0x1.f384d4p-4F, 0x1.b4b0bap-4F, -0x1.071be4p-3F, 0x1.fa2e60p-4F);
    return {e, r, mul(r, r), q};
}

// The logarithm y of x, to any base, where x is positive and finite; else that of infinity, of zero, or NaN.
TRACEA_INLINE VecF log_or_limit(VecF x, VecF y) {
    const VecF infinity = broadcast<VecF>(__builtin_inff());
    y = select(equal(x, infinity), infinity, y);
    y = select(equal(x, zero<VecF>()), neg(infinity), y);
    return select(mask_or(less(x, zero<VecF>()), unordered(x, x)), broadcast<VecF>(__builtin_nanf("")), y);
}

}  // namespace detail

TRACEA_INLINE VecF log(VecF x) {
    const detail::LogParts of = detail::log_parts(x);
    // e ln 2 in two parts; the small ones are added to the small terms first.
    VecF small = fma(mul(of.r2, of.r), of.q, mul(of.e, broadcast<VecF>(0x1.7f7d1cp-20F)));
    small = fma(of.r2, broadcast<VecF>(-0.5F), small);
    return detail::log_or_limit(x, fma(of.e, broadcast<VecF>(0x1.62e4p-1F), add(small, of.r)));
}
TRACEA_INLINE VecD log(VecD x) {
    return detail::lane_by_lane(x, [](double v) { return ::log(v); });
}

// Whole at powers of two, where r is zero. The factor, 1 / ln 2, is in two parts, and what e + r factor loses is kept.
TRACEA_INLINE VecF log2(VecF x) {
    const detail::LogParts of = detail::log_parts(x);
    const VecF factor = broadcast<VecF>(0x1.715476p+0F);
    const VecF small = fma(mul(of.r2, of.r), of.q, mul(of.r2, broadcast<VecF>(-0.5F)));
    const VecF sum = fma(of.r, factor, of.e);
    const VecF lost = fma(of.r, factor, sub(of.e, sum));
    const VecF rest = fma(of.r, broadcast<VecF>(0x1.4ae0cp-26F), fma(small, factor, lost));
    return detail::log_or_limit(x, add(sum, rest));
}
TRACEA_INLINE VecD log2(VecD x) {
    return detail::lane_by_lane(x, [](double v) { return ::log2(v); });
}

// Whole at powers of ten: log10 2 and 1 / ln 10 are in two parts, and e times the first part of log10 2 is exact.
TRACEA_INLINE VecF log10(VecF x) {
    const detail::LogParts of = detail::log_parts(x);
    const VecF factor = broadcast<VecF>(0x1.bcb7b2p-2F);
    VecF small = fma(mul(of.r2, of.r), of.q, mul(of.r2, broadcast<VecF>(-0.5F)));
    small =
        fma(of.r, broadcast<VecF>(-0x1.5b235ep-27F), fma(small, factor, mul(of.e, broadcast<VecF>(-0x1.95ec1p-19F))));
    return detail::log_or_limit(x, fma(of.e, broadcast<VecF>(0x1.3442p-2F), fma(of.r, factor, small)));
}
TRACEA_INLINE VecD log10(VecD x) {
    return detail::lane_by_lane(x, [](double v) { return ::log10(v); });
}

// The logarithm of one number in all lanes: of doubles one call of the C library and not one a lane.
template <class V>
TRACEA_INLINE V log_of(typename V::element x) {
    if constexpr (sizeof(x) == sizeof(double)) {
        return broadcast<V>(::log(x));
    } else {
        return log(broadcast<V>(x));
    }
}

// ---- sin, cos ------------------------------------------------------------------------------------------------------------------------------------
namespace detail {

// x = n pi/2 + r with |r| <= pi/4 (a little more where the product rounds), for |x| <= circle_limit: there n times the first part is exact in a fused step.
constexpr float circle_limit = 0x1p+15F;
TRACEA_INLINE VecF reduce_half_pi(VecF x, VecF& n) {
    n = sub(fma(x, broadcast<VecF>(0x1.45f306p-1F), broadcast<VecF>(round_shift)), broadcast<VecF>(round_shift));
    VecF r = fnma(n, broadcast<VecF>(0x1.921fb6p+0F), x);
    r = fnma(n, broadcast<VecF>(-0x1.777a5cp-25F), r);
    return fnma(n, broadcast<VecF>(-0x1.ee59dap-50F), r);
}
// sin(r + quarter pi/2): the quarter's parity chooses the series, its second bit the sign.
TRACEA_INLINE VecF sine_of_quarter(VecF r, VecF quarter) {
    const VecF s = mul(r, r);
    const VecF sine =
        fma(mul(r, s), polynomial(s, -0x1.555556p-3F, 0x1.111108p-7F, -0x1.a00ea2p-13F, 0x1.6c9dd2p-19F), r);
    const VecF half = mul(s, broadcast<VecF>(-0.5F));
    const VecF tail =
        mul(mul(s, s), polynomial(s, 0x1.555556p-5F, -0x1.6c16b8p-10F, 0x1.a01066p-16F, -0x1.2404a2p-22F));
    const VecF one = broadcast<VecF>(1.0F);
    // 1 + half rounds: what it loses is added to the small terms.
    const VecF near = add(one, half);
    const VecF cosine = add(near, add(add(sub(one, near), half), tail));
    const VecF pairs = floor(mul(quarter, broadcast<VecF>(0.5F)));
    const VecF is_odd = fnma(pairs, broadcast<VecF>(2.0F), quarter);
    const VecF is_turned = fnma(floor(mul(pairs, broadcast<VecF>(0.5F))), broadcast<VecF>(2.0F), pairs);
    const VecF value = select(equal(is_odd, zero<VecF>()), sine, cosine);
    return select(equal(is_turned, zero<VecF>()), value, neg(value));
}
template <class F>
TRACEA_NOINLINE VecF circle_lane_by_lane(VecF x, F&& f) {
    float lanes[VecF::lanes];
    store(lanes, x);
    for (int i = 0; i < VecF::lanes; ++i) lanes[i] = static_cast<float>(f(static_cast<double>(lanes[i])));
    return load<VecF>(lanes);
}

}  // namespace detail

// A lane beyond 32768 takes the C library's double function, whose reduction is exact for any argument; the others do not, so that a lane's bits
// do not depend on its neighbours.
TRACEA_INLINE VecF sin(VecF x) {
    VecF n;
    const VecF r = detail::reduce_half_pi(x, n);
    const VecF value = select(equal(x, zero<VecF>()), x, detail::sine_of_quarter(r, n));
    const auto far = less(broadcast<VecF>(detail::circle_limit), abs(x));
    if (TRACEA_UNLIKELY(any(far)))
        return select(far, detail::circle_lane_by_lane(x, [](double v) { return ::sin(v); }), value);
    return value;
}
TRACEA_INLINE VecD sin(VecD x) {
    return detail::lane_by_lane(x, [](double v) { return ::sin(v); });
}
TRACEA_INLINE VecF cos(VecF x) {
    VecF n;
    const VecF r = detail::reduce_half_pi(x, n);
    const VecF value = detail::sine_of_quarter(r, add(n, broadcast<VecF>(1.0F)));
    const auto far = less(broadcast<VecF>(detail::circle_limit), abs(x));
    if (TRACEA_UNLIKELY(any(far)))
        return select(far, detail::circle_lane_by_lane(x, [](double v) { return ::cos(v); }), value);
    return value;
}
TRACEA_INLINE VecD cos(VecD x) {
    return detail::lane_by_lane(x, [](double v) { return ::cos(v); });
}

// ---- tanh, sigmoid, silu -------------------------------------------------------------------------------------------------------------------------
TRACEA_INLINE VecF tanh(VecF x) {
    // tanh|x| = t / (t + 2) with t = exp(2|x|) - 1, accurate near zero because t is; 1 to the last bit from |x| = 9.1 on.
    const VecF limited = min_second(broadcast<VecF>(10.0F), abs(x));
    VecF n;
    VecF r;
    detail::reduce_ln2(add(limited, limited), n, r);
    const VecF power = pow2<0>(n);
    const VecF t = fma(power, detail::expm1_reduced(r), sub(power, broadcast<VecF>(1.0F)));
    return copysign(div(t, add(t, broadcast<VecF>(2.0F))), x);
}

TRACEA_INLINE VecF sigmoid(VecF x) {
    // exp(r) / (exp(r) + 2^-n) where x = n ln 2 + r, both sides of the fraction 2^-24 of that: then a power of two reaches from 1, to the last bit from 17
    // on, to results that are subnormal, which round once, in the division. From n = -152 on it is infinity, and so the quotient zero without the assist that
    // a division takes which underflows.
    const VecF limited = max_second(broadcast<VecF>(-105.5F), min_second(broadcast<VecF>(20.0F), x));
    const VecF shift = broadcast<VecF>(detail::round_shift);
    const VecF minus_n = sub(fma(limited, broadcast<VecF>(-0x1.715476p+0F), shift), shift);
    VecF r = fma(minus_n, broadcast<VecF>(0x1.62e4p-1F), limited);
    r = fma(minus_n, broadcast<VecF>(0x1.7f7d1cp-20F), r);
    const VecF e = detail::exp_reduced<-24>(r);
    return div(e, add(e, pow2<-24>(minus_n)));
}
// x sigmoid(x); as torch, minus infinity gives NaN (minus infinity times zero).
template <class V>
TRACEA_INLINE V silu(V x) {
    return mul(x, sigmoid(x));
}

// ---- erf, gelu -----------------------------------------------------------------------------------------------------------------------------------
namespace detail {
// exp(-square) (1 + square_error) t P(t), t = 1 / (1 + 0.35 z): erfc(z) for z >= 0 where square - square_error is z^2. The square is the caller's, because
// rounding it costs the tail its relative accuracy.
TRACEA_INLINE VecF erfc_positive(VecF z, VecF square, VecF square_error) {
    const VecF t = div(broadcast<VecF>(1.0F), fma(z, broadcast<VecF>(0.35F), broadcast<VecF>(1.0F)));
    const VecF p = polynomial(t, 0x1.947198p-3F, 0x1.93cb82p-3F, 0x1.80634ep-3F, 0x1.378f74p-3F, 0x1.25c566p-3F,
                              0x1.7769bap-4F, -0x1.0ed56ep-5F, 0x1.7b9084p-3F, -0x1.48bfd4p-3F, 0x1.3cea36p-5F);
    const VecF e = exp(neg(square));
    return mul(mul(t, p), fma(e, square_error, e));
}
}  // namespace detail

TRACEA_INLINE VecF erf(VecF x) {
    const VecF z = abs(x);
    const VecF s = mul(x, x);
    const VecF near = mul(x, detail::polynomial(s, 0x1.20dd76p+0F, -0x1.812746p-2F, 0x1.ce2f0ap-4F, -0x1.b829d8p-6F,
                                                0x1.562b1ap-8F, -0x1.bcd7dep-11F, 0x1.d8b88ep-14F, -0x1.44cfbep-17F));
    const VecF limited = min_second(broadcast<VecF>(4.0F), z);  // 1 to the last bit from 3.92 on
    const VecF square = mul(limited, limited);
    const VecF tail = detail::erfc_positive(limited, square, fnma(limited, limited, square));
    const VecF far = copysign(sub(broadcast<VecF>(1.0F), tail), x);
    return select(less(z, broadcast<VecF>(1.0F)), near, far);
}
namespace detail {
// x Phi(x) by an exponential, which has the relative accuracy of its tail wherever it is not subnormal: exp(-x^2 / 2) times a quotient of polynomials, so
// that nothing cancels; both have positive terms only. Minus infinity gives NaN, as torch. Below -12.8, where the result is smaller than 1.1e-36, it is 0:
// subnormal intermediates would cost fifteen times the rest; above 12.8, infinity among it, the tail is that of 0, times 0.
TRACEA_INLINE VecF gelu_far(VecF x) {
    const VecF most = broadcast<VecF>(12.8F);
    const VecF m = keep_where(not_greater(x, most), abs(x));
    // -m^2 / 2 = n ln 2 - r / 2 with m^2 in two parts: what the square's rounding adds is not in r, so the tail keeps its relative accuracy. 2 ln 2 is
    // within 4e-9 of a float. The steps of independent sums alternate: in a line of dependent ones the next vectors' would wait behind them.
    const VecF square = mul(m, m);
    const VecF gained = fnma(m, m, square);
    const VecF shift = broadcast<VecF>(detail::round_shift);
    const VecF n = sub(fma(square, broadcast<VecF>(-0x1.715476p-1F), shift), shift);
    VecF p = fma(m, broadcast<VecF>(0x1.14bae2p-22F), broadcast<VecF>(0x1.d228b6p-7F));
    VecF q = fma(m, broadcast<VecF>(0x1.245d9ep-5F), broadcast<VecF>(0x1.1201bap-2F));
    const VecF r = sub(fma(n, broadcast<VecF>(0x1.62e43p+0F), square), gained);
    p = fma(p, m, broadcast<VecF>(0x1.b63422p-4F));
    q = fma(q, m, broadcast<VecF>(0x1.c83be8p-1F));
    // exp(-r / 2) for |r| <= ln 2.
    VecF e = fma(r, broadcast<VecF>(-0x1.0fe5c6p-12F), broadcast<VecF>(0x1.575ef6p-9F));
    p = fma(p, m, broadcast<VecF>(0x1.5acd1cp-2F));
    q = fma(q, m, broadcast<VecF>(0x1.79a848p+0F));
    e = fma(e, r, broadcast<VecF>(-0x1.555a02p-6F));
    p = fma(p, m, broadcast<VecF>(0x1.fffff6p-2F));
    q = fma(q, m, broadcast<VecF>(1.0F));
    e = fma(e, r, broadcast<VecF>(0x1.fffd06p-4F));
    const VecF quotient = div(p, q);
    e = fma(e, r, broadcast<VecF>(-0x1.fffff6p-2F));
    e = fma(e, r, broadcast<VecF>(0x1.000002p+0F));
    const VecF tail = scale_pow2_where(not_greater(m, most), mul(e, quotient), n);
    return fnma(m, tail, max_second(zero<VecF>(), x));
}
}  // namespace detail

// x Phi(x), the exact form: x or 0, less |x| Phi(-|x|). Below the limit that tail takes half the time of an exponential; where any lane is further out,
// those lanes take the exponential, and the others do not, so that a lane's bits do not depend on its neighbours.
TRACEA_INLINE VecF gelu(VecF x) {
    const VecF t = abs(x);
    const VecF near = fnma(t, detail::gelu_tail(t), max_second(zero<VecF>(), x));
    const auto far = less(broadcast<VecF>(detail::gelu_limit), t);
    if (TRACEA_UNLIKELY(any(far))) return select(far, detail::gelu_far(x), near);
    return near;
}
// Phi(x) + x phi(x), the slope of gelu, with the same tail: near its one zero at -0.75 as exact as these two are. An infinity gives NaN, as torch.
TRACEA_INLINE VecF gelu_slope(VecF x) {
    const VecF t = abs(x);
    const VecF density = mul(exp_or_zero(mul(mul(x, x), broadcast<VecF>(-0.5F))), broadcast<VecF>(0x1.988454p-2F));
    VecF tail = detail::gelu_tail(t);
    const auto far = less(broadcast<VecF>(detail::gelu_limit), t);
    if (TRACEA_UNLIKELY(any(far))) tail = select(far, div(detail::gelu_far(neg(t)), neg(t)), tail);
    return fma(x, density, select(less(x, zero<VecF>()), tail, sub(broadcast<VecF>(1.0F), tail)));
}
// x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)), which is 0.5 x (1 + tanh(...)) without its cancellation.
template <class V>
TRACEA_INLINE V gelu_tanh(V x) {
    using T = typename V::element;
    const V inner = fma(mul(x, x), broadcast<V>(T(0.044715 * 1.5957691216057308)), broadcast<V>(T(1.5957691216057308)));
    return mul(x, sigmoid(mul(x, inner)));
}

// ---- powers, remainders --------------------------------------------------------------------------------------------------------------------------
template <class V>
TRACEA_INLINE V relu(V x) {
    return max_second(zero<V>(), x);  // a NaN is the second operand and stays
}
template <class V>
TRACEA_INLINE V reciprocal(V x) {
    return div(broadcast<V>(typename V::element(1)), x);
}
template <class V>
TRACEA_INLINE V rsqrt(V x) {
    return reciprocal(sqrt(x));
}
// The C library's pow lane by lane: an exponential of a float logarithm would lose up to seven bits.
TRACEA_INLINE VecD pow(VecD a, VecD b) {
    return detail::lane_by_lane(a, b, [](double x, double y) { return ::pow(x, y); });
}
TRACEA_INLINE VecF pow(VecF a, VecF b) {
    return detail::lane_by_lane(a, b, [](float x, float y) { return ::powf(x, y); });
}
// What is left of a after b is taken from it as often as it goes, of a's sign: exact, however many times that is.
TRACEA_INLINE VecD fmod(VecD a, VecD b) {
    return detail::lane_by_lane(a, b, [](double x, double y) { return ::fmod(x, y); });
}
TRACEA_INLINE VecF fmod(VecF a, VecF b) {
    return detail::lane_by_lane(a, b, [](float x, float y) { return ::fmodf(x, y); });
}

TRACEA_END_NAMESPACE

#endif
