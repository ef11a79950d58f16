// A chain of pointwise work over N-dimensional strided operands with broadcasting: the loops; the chain itself is printed per kernel.
//
//   using V = Vec<float>;
//   const Operand<const float, Inner::unit> x{x_pointer, 1};
//   const Operand<const float, Inner::zero> bias{bias_pointer, 0};         // the same value along the inner dimension
//   const Operand<float, Inner::strided> y{y_pointer, y_stride};
//   pointwise<V, 3, 3>(call, rank, 0, sizes, strides, 1 << 14, [&](const int64_t* at, int64_t i, int64_t n) TRACEA_LAMBDA {
//       y.put(at[2], i, tanh(add(x.get<V>(at[0], i, n), bias.get<V>(at[1], i, n))), n);
//   });
//
// sizes[Rank]; strides[Operands][Rank] in elements, zero where an operand broadcasts. `at` holds the element offset of each operand at the start of the
// current line; i counts along the inner (last) dimension and n <= V::lanes lanes are valid. Operands of lesser kind may be passed as a greater:
// unit < strided, zero < strided.
#ifndef TRACEA_POINTWISE_H
#define TRACEA_POINTWISE_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/team.h"
#include "tracea/unroll.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

enum class Inner { unit, zero, strided };

template <class Storage, Inner Kind, bool Streaming = false>
struct Operand {
    Storage* base;
    int64_t inner_stride;

    template <class V>
    TRACEA_INLINE V get(int64_t at, int64_t i, int64_t n) const {
        if constexpr (Kind == Inner::unit) {
            return load_partial<V>(base + at + i, n);
        } else if constexpr (Kind == Inner::zero) {
            return load_broadcast<V>(base + at);
        } else {
            return load_strided<V>(base + at + i * inner_stride, inner_stride, n);
        }
    }
    template <class V>
    TRACEA_INLINE void put(int64_t at, int64_t i, V value, int64_t n) const {
        static_assert(Kind != Inner::zero, "a result is written once per element");
        if constexpr (Kind == Inner::unit) {
            Storage* p = base + at + i;
            if constexpr (Streaming) {
                if (n == V::lanes && (reinterpret_cast<uintptr_t>(p) & (V::lanes * sizeof(Storage) - 1)) == 0) {
                    store_streaming(p, value);
                    return;
                }
            }
            store_partial(p, value, n);
        } else {
            store_strided(base + at + i * inner_stride, inner_stride, value, n);
        }
    }
};

// Work is divided into pieces of about `grain` elements: several lines, or part of a long line; the loop uses team slot `slot`.
template <class V, int Rank, int Operands, class Body>
TRACEA_INLINE void pointwise(const tracea_call* call, int32_t rank, int slot, const int64_t (&sizes)[Rank],
                             const int64_t (&strides)[Operands][Rank], int64_t grain, Body&& body) {
    static_assert(Rank >= 1, "a scalar is one dimension of size one");
    const int64_t inner = sizes[Rank - 1];
    int64_t lines = 1;
    for (int d = 0; d < Rank - 1; ++d) lines *= sizes[d];
    if (lines == 0 || inner == 0) return;
    // Pieces of a line end at whole vectors.
    const int64_t pieces = inner > 2 * grain ? (inner + grain - 1) / grain : 1;
    const int64_t piece = ((inner + pieces - 1) / pieces + V::lanes - 1) / V::lanes * V::lanes;
    const int64_t lines_per_task = pieces > 1 || inner >= grain ? 1 : (grain + inner - 1) / inner;
    const int64_t line_tasks = (lines + lines_per_task - 1) / lines_per_task;
    for (TaskLoop loop(call, rank, slot, line_tasks * pieces); loop.next();) {
        const int64_t first = loop.task() / pieces * lines_per_task;
        const int64_t last = first + lines_per_task < lines ? first + lines_per_task : lines;
        const int64_t begin = loop.task() % pieces * piece;
        const int64_t end = begin + piece < inner ? begin + piece : inner;
        int64_t index[Rank];
        int64_t at[Operands];
        for (int64_t line = first; line < last; ++line) {
            int64_t rest = line;
            for (int d = Rank - 2; d >= 0; --d) {
                index[d] = rest % sizes[d];
                rest /= sizes[d];
            }
            for (int o = 0; o < Operands; ++o) {
                at[o] = 0;
                for (int d = 0; d < Rank - 1; ++d) at[o] += index[d] * strides[o][d];
            }
            int64_t i = begin;
            for (; i + V::lanes <= end; i += V::lanes)
                body(static_cast<const int64_t*>(at), i, static_cast<int64_t>(V::lanes));
            if (i < end) body(static_cast<const int64_t*>(at), i, end - i);
        }
    }
}

TRACEA_END_NAMESPACE

#endif
