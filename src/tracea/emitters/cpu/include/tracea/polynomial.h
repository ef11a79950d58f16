// Polynomials in fused steps, the constant coefficient first.
//
//   polynomial(x, 1.0F, 0.5F)                       1 + x / 2, by Horner's scheme
//   polynomial_halved(x, 1.0, 0.5, 0.25, 0.125)     of an even number of coefficients: the even powers and the odd ones side by side, half as long to wait for
#ifndef TRACEA_POLYNOMIAL_H
#define TRACEA_POLYNOMIAL_H

#include "tracea/config.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

template <class V>
TRACEA_INLINE V polynomial(V x, typename V::element c) {
    (void)x;
    return broadcast<V>(c);
}
template <class V, class... Rest>
TRACEA_INLINE V polynomial(V x, typename V::element c, Rest... rest) {
    return fma(polynomial(x, rest...), x, broadcast<V>(c));
}

template <class V>
TRACEA_INLINE void by_halves(V s, V& even, V& odd, typename V::element c, typename V::element d) {
    (void)s;
    even = broadcast<V>(c);
    odd = broadcast<V>(d);
}
template <class V, class... Rest>
TRACEA_INLINE void by_halves(V s, V& even, V& odd, typename V::element c, typename V::element d, Rest... rest) {
    by_halves(s, even, odd, rest...);
    even = fma(even, s, broadcast<V>(c));
    odd = fma(odd, s, broadcast<V>(d));
}
template <class V, class... Rest>
TRACEA_INLINE V polynomial_halved(V x, Rest... coefficients) {
    static_assert(sizeof...(Rest) % 2 == 0, "even and odd powers are as many");
    V even;
    V odd;
    by_halves(mul(x, x), even, odd, coefficients...);
    return fma(odd, x, even);
}

}  // namespace detail

TRACEA_END_NAMESPACE

#endif
