// The places of the first elements of each row in their order: rows of few elements by counting, others by a radix sort of keys with their places.
//
// A key is an unsigned number that is ordered as the elements are: NaN is larger than all others, whatever its sign, and -0.0 equals 0.0. For the largest
// first it is the complement. Every step keeps the order of equal keys, so of equal elements the first comes first.
#ifndef TRACEA_SORT_H
#define TRACEA_SORT_H

#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "tracea/config.h"
#include "tracea/storage.h"
#include "tracea/unroll.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

// Of the bits of a float whose infinity has these bits. Negative numbers are turned around, others come after them; no branch depends on a sign.
template <class Key, Key Infinity>
TRACEA_INLINE Key key_of_float(Key bits) {
    constexpr Key sign = static_cast<Key>(static_cast<Key>(1) << (8 * sizeof(Key) - 1));
    const Key negative = static_cast<Key>(0 - (bits >> (8 * sizeof(Key) - 1)));
    const Key turned = static_cast<Key>((bits ^ (negative | sign)) + (bits == sign ? 1 : 0));  // -0.0 beside 0.0
    const Key missing = static_cast<Key>(0 - static_cast<Key>((bits & static_cast<Key>(~sign)) > Infinity));
    return static_cast<Key>(turned | missing);
}
TRACEA_INLINE uint64_t sort_key(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return key_of_float<uint64_t, 0x7ff0000000000000U>(bits);
}
TRACEA_INLINE uint32_t sort_key(float x) { return key_of_float<uint32_t, 0x7f800000U>(bits_of(x)); }
TRACEA_INLINE uint16_t sort_key(f16 x) { return key_of_float<uint16_t, 0x7c00U>(x.bits); }
TRACEA_INLINE uint16_t sort_key(bf16 x) { return key_of_float<uint16_t, 0x7f80U>(x.bits); }
TRACEA_INLINE uint64_t sort_key(int64_t x) { return static_cast<uint64_t>(x) ^ (static_cast<uint64_t>(1) << 63); }
TRACEA_INLINE uint32_t sort_key(int32_t x) { return static_cast<uint32_t>(x) ^ (1U << 31); }
TRACEA_INLINE uint8_t sort_key(int8_t x) { return static_cast<uint8_t>(static_cast<uint8_t>(x) ^ 0x80U); }
TRACEA_INLINE uint8_t sort_key(uint8_t x) { return x; }

// A key and its place, the key above: such numbers are all different.
struct NarrowPair {
    uint64_t bits;
    TRACEA_INLINE NarrowPair() = default;
    TRACEA_INLINE NarrowPair(uint64_t key, int64_t place) : bits(key << 32 | static_cast<uint64_t>(place)) {}
    TRACEA_INLINE uint64_t shifted(int shift) const { return bits >> (32 + shift); }
    TRACEA_INLINE uint64_t key() const { return bits >> 32; }
    TRACEA_INLINE int64_t place() const { return static_cast<int64_t>(bits & 0xffffffffU); }
};
struct WidePair {
    uint64_t bits;
    int64_t at;
    TRACEA_INLINE WidePair() = default;
    TRACEA_INLINE WidePair(uint64_t key, int64_t place) : bits(key), at(place) {}
    TRACEA_INLINE uint64_t shifted(int shift) const { return bits >> shift; }
    TRACEA_INLINE uint64_t key() const { return bits; }
    TRACEA_INLINE int64_t place() const { return at; }
};
template <class Key>
struct PairOf {
    using type = NarrowPair;
};
template <>
struct PairOf<uint64_t> {
    using type = WidePair;
};

// How often each digit occurs among the keys of pairs, of as many digits from the lowest on as are used.
template <int KeyBits, int Bits>
struct Digits {
    static constexpr int count = (KeyBits + Bits - 1) / Bits;
    static constexpr int radix = 1 << Bits;
    uint32_t of[count][radix];
    int used = 0;

    template <class Pair>
    static TRACEA_INLINE uint32_t digit(Pair pair, int index) {
        return static_cast<uint32_t>(pair.shifted(index * Bits)) & static_cast<uint32_t>(radix - 1);
    }
    // No key is above the range.
    TRACEA_INLINE void begin(uint64_t range) {
        for (used = 0; used < count && range >> (used * Bits) != 0; ++used) {
        }
        memset(of, 0, sizeof of[0] * static_cast<size_t>(used));
    }
    template <class Pair>
    TRACEA_INLINE void add(Pair pair) {
        for (int i = 0; i < used; ++i) ++of[i][digit(pair, i)];
    }
    template <class Pair>
    TRACEA_INLINE void add_of_all_digits(Pair pair) {
        for (int i = 0; i < count; ++i) ++of[i][digit(pair, i)];
    }
    template <class Pair>
    TRACEA_INLINE bool is_one_for_all(int index, const Pair* pairs, int64_t n) const {
        return of[index][digit(pairs[0], index)] == static_cast<uint32_t>(n);
    }
    // From how often each value of a digit occurs to where its first pair goes.
    TRACEA_INLINE void to_begins(int index) {
        uint32_t begin = 0;
        for (int value = 0; value < radix; ++value) {
            const uint32_t here = of[index][value];
            of[index][value] = begin;
            begin += here;
        }
    }
};

// Sorts n pairs by their keys and writes the places of the first k; `pairs` and `spare` have room for n each, and lose what they hold.
template <int KeyBits, int Bits, class Pair>
TRACEA_INLINE void radix_sort(int64_t n, Digits<KeyBits, Bits>& digits, Pair* pairs, Pair* spare, int64_t k, int64_t* y,
                              int64_t y_col) {
    using D = Digits<KeyBits, Bits>;
    int last = digits.used - 1;
    while (last >= 0 && digits.is_one_for_all(last, pairs, n)) --last;
    for (int index = 0; index < last; ++index) {
        if (digits.is_one_for_all(index, pairs, n)) continue;
        digits.to_begins(index);
        uint32_t* const begins = digits.of[index];
        for (int64_t i = 0; i < n; ++i) spare[begins[D::digit(pairs[i], index)]++] = pairs[i];
        Pair* const sorted = spare;
        spare = pairs;
        pairs = sorted;
    }
    if (last < 0) {
        for (int64_t i = 0; i < k; ++i) y[i * y_col] = pairs[i].place();
        return;
    }
    digits.to_begins(last);
    uint32_t* const begins = digits.of[last];
    for (int64_t i = 0; i < n; ++i) {
        const int64_t to = begins[D::digit(pairs[i], last)]++;
        if (to < k) y[to * y_col] = pairs[i].place();
    }
}

// The key of an element in the order that is asked for.
template <bool Smallest, class Storage>
TRACEA_INLINE auto ordered_key(Storage x) {
    const auto key = sort_key(x);
    return Smallest ? key : static_cast<decltype(key)>(~key);
}

// The least and the largest of keys.
template <class Key>
struct KeyRange {
    Key least = static_cast<Key>(~static_cast<Key>(0));
    Key most = 0;
    TRACEA_INLINE void take(Key key) {
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    TRACEA_INLINE uint64_t size() const { return static_cast<uint64_t>(most) - static_cast<uint64_t>(least); }
};

// Lists, in their order, the pairs that come first by a bound that every eighth element of a long row says, and returns how many they are, k or more: -1
// where the bound left out one of the first k, or leaves more than half of the row.
template <bool Smallest, class Pair, class Storage>
TRACEA_INLINE int64_t list_first(int64_t columns, const Storage* x, int64_t x_col, int64_t k, Pair* pairs) {
    using Key = decltype(sort_key(Storage{}));
    constexpr int bits = 11;
    constexpr int64_t radix = 1 << bits;
    const int64_t step = columns >= 2048 ? 8 : 1;
    // Of samples some more, lest a row has fewer elements below the bound than its share of them: 3 deviations of 150 elements.
    const int64_t share = (k + step - 1) / step;
    const int64_t wanted = step == 1 ? k : share + share / 4 + 10;
    KeyRange<Key> range;
    for (int64_t col = 0; col < columns; col += step) range.take(ordered_key<Smallest>(x[col * x_col]));
    int shift = 0;
    while (range.size() >> shift >= static_cast<uint64_t>(radix)) ++shift;
    uint32_t counts[2][radix];  // of neighbours, so that equal ones do not wait for each other
    memset(counts, 0, sizeof counts);
    const auto place = [&](int64_t col) TRACEA_LAMBDA {
        return static_cast<size_t>(static_cast<Key>(ordered_key<Smallest>(x[col * x_col]) - range.least) >> shift);
    };
    int64_t col = 0;
    for (; col + step < columns; col += 2 * step) {
        ++counts[0][place(col)];
        ++counts[1][place(col + step)];
    }
    if (col < columns) ++counts[0][place(col)];
    int64_t found = 0;
    int64_t last = 0;
    for (; last < radix; ++last) {
        found += counts[0][last] + counts[1][last];
        if (found >= wanted) break;
    }
    if (last == radix || 2 * found * step > columns) return -1;
    const uint64_t above = static_cast<uint64_t>(last + 1) << shift;
    const Key bound = above > range.size() ? range.most : static_cast<Key>(range.least + above - 1);
    int64_t held = 0;
    for (col = 0; col < columns; ++col) {
        const Key key = ordered_key<Smallest>(x[col * x_col]);
        pairs[held] = Pair(key, col);
        held += key <= bound ? 1 : 0;
    }
    return held < k ? -1 : held;
}

// Sorts the n pairs that are listed, or where n is negative all of a row. Keys are taken from the least on, so that numbers of a small range have few digits.
template <int Bits, bool Smallest, class Storage, class Pair>
TRACEA_INLINE void radix_sorted_row(int64_t n, int64_t columns, const Storage* x, int64_t x_col, int64_t k, int64_t* y,
                                    int64_t y_col, Pair* pairs) {
    using Key = decltype(sort_key(Storage{}));
    Digits<8 * static_cast<int>(sizeof(Key)), Bits> digits;
    KeyRange<Key> range;
    if (n >= 0) {
        for (int64_t i = 0; i < n; ++i) range.take(static_cast<Key>(pairs[i].key()));
        digits.begin(range.size());
        for (int64_t i = 0; i < n; ++i) {
            pairs[i] = Pair(pairs[i].key() - range.least, pairs[i].place());
            digits.add(pairs[i]);
        }
    } else {
        n = columns;
        for (int64_t col = 0; col < columns; ++col) range.take(ordered_key<Smallest>(x[col * x_col]));
        digits.begin(range.size());
        const auto pair = [&](int64_t col) TRACEA_LAMBDA {
            return pairs[col] = Pair(static_cast<Key>(ordered_key<Smallest>(x[col * x_col]) - range.least), col);
        };
        if (digits.used == digits.count) {
            for (int64_t col = 0; col < columns; ++col) digits.add_of_all_digits(pair(col));
        } else {
            for (int64_t col = 0; col < columns; ++col) digits.add(pair(col));
        }
    }
    radix_sort(n, digits, pairs, pairs + columns, k, y, y_col);
}

// The place of an element is how many come before it: no branch depends on an element.
template <bool Smallest, int Most, class Storage>
TRACEA_INLINE void counted_row(int64_t columns, const Storage* x, int64_t x_col, int64_t k, int64_t* y, int64_t y_col) {
    using Key = decltype(sort_key(Storage{}));
    // Comparisons of signed numbers are one instruction of vectors.
    using Signed = std::conditional_t<sizeof(Key) == 8, int64_t, int32_t>;
    constexpr int free_bits = 8 * static_cast<int>(sizeof(Signed) - sizeof(Key));
    Signed keys[Most];
    Signed ranks[Most];
    const int n = static_cast<int>(columns);
    for (int i = 0; i < n; ++i) {
        const Key ordered = ordered_key<Smallest>(x[i * x_col]);
        if constexpr (free_bits > 0)
            keys[i] = static_cast<Signed>(ordered);
        else
            keys[i] = static_cast<Signed>(ordered ^ static_cast<Key>(static_cast<Key>(1) << (8 * sizeof(Key) - 1)));
        ranks[i] = 0;
    }
    for (int i = 0; i < n; ++i) {
        const Signed key = keys[i];
        Signed behind = 0;
        for (int j = i + 1; j < n; ++j) {
            const Signed follows = static_cast<Signed>(key <= keys[j]);
            ranks[j] += follows;
            behind += follows;
        }
        ranks[i] += static_cast<Signed>(n - 1 - i) - behind;
    }
    for (int i = 0; i < n; ++i) {
        if (ranks[i] < k) y[ranks[i] * y_col] = i;
    }
}

}  // namespace detail

// The places of the k first of each row; `room` has 2 columns of int64_t, of elements of 64 bits 4 columns. At most 2^31 columns.
template <bool Smallest, class Storage>
TRACEA_INLINE void sort_rows(int64_t rows, int64_t columns, const Storage* x, int64_t x_row, int64_t x_col, int64_t k,
                             int64_t* y, int64_t y_row, int64_t y_col, int64_t* room) {
    // Measured on a Zen 3, ns an element of counting, digits of 8 bits and of 11. float: 64 8, 21, 70, 256 13, 16, 23; 1024 13 and 12, 4096 14 and 9.
    // double: 256 21, 33, 33; 1024 30 and 18. bf16: 64 8, 12, 36, 256 16, 9, 14; 1024 7 and 7, 4096 8 and 6.
    constexpr int64_t counted = sizeof(Storage) < 4 ? 96 : 256;
    constexpr int64_t many = 1024;
    using Pair = typename detail::PairOf<decltype(detail::sort_key(Storage{}))>::type;
    Pair* const pairs = reinterpret_cast<Pair*>(room);
    for (int64_t row = 0; row < rows; ++row, x += x_row, y += y_row) {
        if (columns <= counted) {
            detail::counted_row<Smallest, counted>(columns, x, x_col, k, y, y_col);
            continue;
        }
        const int64_t listed = 2 * k <= columns ? detail::list_first<Smallest>(columns, x, x_col, k, pairs) : -1;
        if (sizeof(Storage) == 1 || (listed < 0 ? columns : listed) < many) {
            detail::radix_sorted_row<8, Smallest>(listed, columns, x, x_col, k, y, y_col, pairs);
        } else {
            detail::radix_sorted_row<11, Smallest>(listed, columns, x, x_col, k, y, y_col, pairs);
        }
    }
}

TRACEA_END_NAMESPACE

#endif
