// Compile-time repetition: the body sees its index as a constant, so arrays indexed by it stay in registers.
//
//   unroll<4>([&](auto i) TRACEA_LAMBDA { acc[i] = zero<V>(); });
#ifndef TRACEA_UNROLL_H
#define TRACEA_UNROLL_H

#include <utility>

#include "tracea/config.h"

// Between a lambda's parameter list and its body.
#if defined(TRACEA_ISA_PLAIN)
#define TRACEA_LAMBDA
#else
#define TRACEA_LAMBDA __attribute__((always_inline))
#endif

TRACEA_BEGIN_NAMESPACE

template <int I>
using constant = std::integral_constant<int, I>;

namespace detail {
template <class Body, int... I>
TRACEA_INLINE void unroll_indices(Body&& body, std::integer_sequence<int, I...>) {
    (body(constant<I>{}), ...);
}
}  // namespace detail

template <int Count, class Body>
TRACEA_INLINE void unroll(Body&& body) {
    detail::unroll_indices(body, std::make_integer_sequence<int, Count>{});
}

TRACEA_END_NAMESPACE

#endif
