#include "index_range.h"

#include <limits>
#include <type_traits>

#include "launcher.h"

namespace tracea_extension {
namespace {

constexpr int64_t block = 512;  // numbers between two looks at whether one was wrong

// Its sign bit tells whether v is beyond `last`.
template <class Word>
Word beyond(Word v, Word last) {
    return v | (last - v);
}

template <class T>
bool line_holds(const IndexRange& range, const T* numbers, int64_t count, int64_t stride) {
    using Word = std::make_unsigned_t<T>;
    const int64_t largest = std::numeric_limits<T>::max();
    const Word last = static_cast<Word>(range.count - 1 < largest ? range.count - 1 : largest);
    const Word least = static_cast<Word>(range.least);
    for (int64_t begin = 0; begin < count; begin += block) {
        const int64_t end = begin + block < count ? begin + block : count;
        // With v less the least number the sign of v, and of last - v where v has none, tell both bounds: these need no comparison of 64 bits, which
        // SSE2 lacks.
        Word wrong = 0;
        if (stride == 1) {
            for (int64_t i = begin; i < end; ++i) wrong |= beyond(static_cast<Word>(numbers[i]) - least, last);
        } else {
            for (int64_t i = begin; i < end; ++i) wrong |= beyond(static_cast<Word>(numbers[i * stride]) - least, last);
        }
        if (static_cast<T>(wrong) >= 0) continue;
        if (!range.ignores) return false;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t number = numbers[i * stride];
            const uint64_t from_least = static_cast<uint64_t>(number) - static_cast<uint64_t>(range.least);
            const bool is_outside = number < range.least || from_least >= static_cast<uint64_t>(range.count);
            if (is_outside && number != range.ignored) return false;
        }
    }
    return true;
}

template <class T>
bool all_hold(const IndexRange& range, const Operand& operand) {
    int64_t elements = 1;
    bool row_major = true;
    for (int i = operand.rank - 1; i >= 0; --i) {
        row_major = row_major && (operand.shape[i] <= 1 || operand.strides[i] == elements);
        elements *= operand.shape[i];
    }
    const T* line = reinterpret_cast<const T*>(operand.data);
    if (elements == 0) return true;
    if (row_major) return line_holds(range, line, elements, 1);
    const int inner = operand.rank - 1;
    int64_t at[most_dims] = {};
    for (;;) {
        if (!line_holds(range, line, operand.shape[inner], operand.strides[inner])) return false;
        int axis = inner - 1;
        for (; axis >= 0; --axis) {
            line += operand.strides[axis];
            if (++at[axis] < operand.shape[axis]) break;
            line -= operand.strides[axis] * operand.shape[axis];
            at[axis] = 0;
        }
        if (axis < 0) return true;
    }
}

}  // namespace

bool IndexRange::holds(const Operand& operand) const {
    return operand.dtype == TRACEA_I64 ? all_hold<int64_t>(*this, operand) : all_hold<int32_t>(*this, operand);
}

}  // namespace tracea_extension
