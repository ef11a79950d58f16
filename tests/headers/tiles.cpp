// Packing, micro-kernels, tile store and skinny products against a plain triple loop in double, on random shapes and layouts.
#include <math.h>

#include <vector>

#include "check.h"
#include "tracea/gemm.h"
#include "tracea/gemm_store.h"
#include "tracea/gemv.h"
#include "tracea/math.h"
#include "tracea/pack.h"

using namespace tracea;

namespace {

#if defined(TRACEA_ISA_AVX2)
constexpr int tile_rows = 6;
constexpr int tile_vectors = 2;
#elif defined(TRACEA_ISA_AVX512)
constexpr int tile_rows = 14;
constexpr int tile_vectors = 2;
#else
constexpr int tile_rows = 3;
constexpr int tile_vectors = 1;
#endif

// Exactly as many elements as the strides reach, so that a sanitizer sees one too many.
template <class Storage>
struct Matrix {
    std::vector<Storage> data;
    int64_t row_stride;
    int64_t column_stride;
    Matrix(int64_t rows, int64_t columns, int64_t pad, bool transposed, Random& random) {
        row_stride = transposed ? 1 : columns + pad;
        column_stride = transposed ? rows + pad : 1;
        if (pad == 5) {  // both strides above one
            row_stride *= 2;
            column_stride *= 2;
        }
        data.resize((rows - 1) * row_stride + (columns - 1) * column_stride + 1);
        for (Storage& x : data) x = from_float<Storage>(static_cast<arithmetic_t<Storage>>(random.value()));
    }
    double at(int64_t i, int64_t j) const { return static_cast<double>(to_float(data[i * row_stride + j * column_stride])); }
};

template <class T>
double tolerance(int64_t k) {
    return (sizeof(T) == 4 ? 0x1p-23 : 0x1p-52) * static_cast<double>(k + 4);
}

struct Doubled {
    const float* bias;
    template <class V>
    V operator()(V acc, int64_t row, int64_t col, int64_t n) const {
        (void)row;
        return relu(add(mul(acc, broadcast<V>(2)), load_partial<V>(bias + col, n)));
    }
};

template <class T, class Storage>
void packed(Random& random) {
    using V = Vec<T>;
    constexpr int MR = tile_rows;
    constexpr int NR = tile_vectors * V::lanes;
    using Tile = GemmTile<T, MR, tile_vectors, 2, PanelA<MR>, PackedB, GemmPrefetch<4, 2, true, true>>;
    const int64_t m = 1 + random.below(3 * MR);
    const int64_t n = 1 + random.below(3 * NR);
    const int64_t k = 1 + random.below(70);
    const Matrix<Storage> a(m, k, random.below(6), random.below(2) == 1, random);
    const Matrix<Storage> b(k, n, random.below(6), random.below(2) == 1, random);
    const int64_t row_panels = (m + MR - 1) / MR;
    const int64_t column_panels = (n + NR - 1) / NR;
    std::vector<T> memory(row_panels * MR * k + column_panels * NR * k + 16);
    T* packed_b = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    T* packed_a = packed_b + column_panels * NR * k;
    pack_a<T, MR>(a.data.data(), a.row_stride, a.column_stride, m, k, k, packed_a);
    pack_b<T, NR, 2, 2>(b.data.data(), b.row_stride, b.column_stride, k, n, k, packed_b);
    std::vector<T> c(m * n, T(1));
    for (int64_t j = 0; j < n; j += NR) {
        for (int64_t i = 0; i < m; i += MR) {
            Tile::template run<MR, 2>(m - i < MR ? m - i : MR, n - j < NR ? n - j : NR, k, packed_a + i * k, MR, packed_b + j * k, NR, &c[i * n + j], n, true,
                                         Upcoming<T>{packed_b, 3});
        }
    }
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
            double want = 1;
            double size = 1;
            for (int64_t x = 0; x < k; ++x) {
                want += a.at(i, x) * b.at(x, j);
                size += fabs(a.at(i, x) * b.at(x, j));
            }
            CHECK(fabs(static_cast<double>(c[i * n + j]) - want) <= tolerance<T>(k) * size, "%ldx%ldx%ld C[%ld][%ld] is %g, not %g", static_cast<long>(m),
                  static_cast<long>(n), static_cast<long>(k), static_cast<long>(i), static_cast<long>(j), static_cast<double>(c[i * n + j]), want);
        }
    }
}

void in_place(Random& random) {
    using V = VecF;
    constexpr int NR = tile_vectors * V::lanes;
    using Tile = GemmTile<float, 4, tile_vectors, 3, RowsA, RowsB>;
    const int64_t m = 1 + random.below(4);
    const int64_t n = 1 + random.below(NR);
    const int64_t k = 1 + random.below(40);
    const Matrix<float> a(m, k, random.below(4), false, random);
    const Matrix<float> b(k, n, random.below(4), false, random);
    std::vector<float> sums(4 * NR, NAN);
    Tile::run<4, 3, 2, 1>(m, n, k, a.data.data(), a.row_stride, b.data.data(), b.row_stride, sums.data(), NR, false);
    // Through an epilogue into 16-bit storage with both strides above one.
    std::vector<float> bias(n);
    for (float& x : bias) x = static_cast<float>(random.value());
    std::vector<bf16> out((m - 1) * 3 * n + (n - 1) * 2 + 1, bf16{0x7fc0});
    store_tile(sums.data(), NR, m, n, 0, 0, out.data(), 3 * n, 2, Doubled{bias.data()});
    std::vector<float> plain(m * n);
    store_tile(sums.data(), NR, m, n, 0, 0, plain.data(), n, 1, Doubled{bias.data()});
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
            double want = 0;
            for (int64_t x = 0; x < k; ++x) want += a.at(i, x) * b.at(x, j);
            want = fmax(2 * want + static_cast<double>(bias[j]), 0);
            CHECK(fabs(static_cast<double>(plain[i * n + j]) - want) <= 1e-5, "f32 [%ld][%ld]", static_cast<long>(i), static_cast<long>(j));
            CHECK(out[i * 3 * n + j * 2].bits == from_float<bf16>(plain[i * n + j]).bits, "bf16 [%ld][%ld]", static_cast<long>(i), static_cast<long>(j));
        }
    }
}

void skinny(Random& random) {
    const int64_t n = 1 + random.below(70);
    const int64_t k = 1 + random.below(70);
    const Matrix<float> a(3, k, 0, false, random);
    const Matrix<bf16> b(k, n, random.below(4), false, random);
    const Matrix<float> bt(n + 4, k, random.below(4), false, random);
    std::vector<float> columns(3 * n, 1.0F);
    gemv_columns<float, 3, 4>(n, k, a.data.data(), a.row_stride, a.column_stride, b.data.data(), b.row_stride, columns.data(), n, true, 0);
    std::vector<float> dots(3 * 4);
    dot_tile<float, 3, 4>(k, a.data.data(), a.row_stride, bt.data.data(), bt.row_stride, dots.data(), 4, false, 0);
    for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < n; ++j) {
            double want = 1;
            double dot = 0;
            for (int64_t x = 0; x < k; ++x) {
                want += a.at(i, x) * b.at(x, j);
                dot += a.at(i, x) * bt.at(j, x);
            }
            CHECK(fabs(static_cast<double>(columns[i * n + j]) - want) <= 1e-4, "column form [%ld][%ld]", static_cast<long>(i), static_cast<long>(j));
            if (j < 4) CHECK(fabs(static_cast<double>(dots[i * 4 + j]) - dot) <= 1e-4, "dot form [%ld][%ld]", static_cast<long>(i), static_cast<long>(j));
        }
    }
}

}  // namespace

int main() {
    Random random{7};
    for (int trial = 0; trial < 60; ++trial) {
        packed<float, float>(random);
        packed<float, f16>(random);
        packed<float, bf16>(random);
        packed<double, double>(random);
        in_place(random);
        skinny(random);
    }
    return 0;
}
