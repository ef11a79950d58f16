// Row operations and pointwise chains against plain loops in double, for every row length around the vector widths.
#include <math.h>
#include <string.h>

#include <type_traits>
#include <vector>

#include "check.h"
#include "tracea/normalize.h"
#include "tracea/pointwise.h"
#include "tracea/rows.h"

using namespace tracea;

namespace {

void near(double got, double want, double tolerance, const char* what, int64_t columns) {
    CHECK(fabs(got - want) <= tolerance * (1 + fabs(want)), "%s of %ld columns: %.9g, not %.9g", what, static_cast<long>(columns), got, want);
}

template <int Overlap>
using Overlapped = std::integral_constant<int, Overlap>;

// Blocks of 1 to `count` rows with the passes one after the other, and overlapped in each way: the same bits, and nothing else written.
template <class Storage, class Routine>
std::vector<Storage> normalized(int64_t count, int64_t columns, int64_t stride, Routine&& routine) {
    using T = arithmetic_t<Storage>;
    std::vector<T> memory(4 * normalize_pitch<Vec<T>>(columns) + 64);
    T* buffer = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    std::vector<Storage> apart;
    for (int64_t block = 1; block <= count; ++block) {
        apart.assign((count - 1) * stride + columns, from_float<Storage>(T(7)));
        std::vector<Storage> together = apart;
        std::vector<Storage> paired = apart;
        for (int64_t row = 0; row < count; row += block) {
            const int64_t length = row + block < count ? block : count - row;
            routine(Overlapped<0>{}, row, length, buffer, apart.data());
            routine(Overlapped<1>{}, row, length, buffer, together.data());
            routine(Overlapped<2>{}, row, length, buffer, paired.data());
        }
        streaming_fence();
        for (const std::vector<Storage>* other : {&together, &paired}) {
            CHECK(memcmp(apart.data(), other->data(), apart.size() * sizeof(Storage)) == 0, "%ld columns in blocks of %ld rows: overlapped passes differ",
                  static_cast<long>(columns), static_cast<long>(block));
        }
        for (int64_t row = 0; row + 1 < count; ++row) {
            for (int64_t gap = columns; gap < stride; ++gap)
                CHECK(static_cast<double>(to_float(apart[row * stride + gap])) == 7, "a gap after %ld columns was written", static_cast<long>(columns));
        }
    }
    return apart;
}

template <class Storage>
void rows(int64_t columns, double offset, double tolerance, Random& random) {
    using T = arithmetic_t<Storage>;
    constexpr int64_t count = 5;
    const int64_t stride = columns + 3;
    std::vector<Storage> x((count - 1) * stride + columns);
    for (Storage& v : x) v = from_float<Storage>(static_cast<T>(random.value() + offset));
    const LoadRows<Storage> source{x.data(), stride};
    const auto from = [&](int64_t row) { return LoadRows<Storage>{x.data() + row * stride, stride}; };
    const std::vector<Storage> softmax = normalized<Storage>(count, columns, stride, [&](auto overlap, int64_t row, int64_t length, T* buffer, Storage* y) {
        softmax_rows<T, decltype(overlap)::value, 4>(length, columns, buffer, from(row), StoreRows<Storage, true>{y + row * stride, stride});
    });
    const std::vector<Storage> logarithms = normalized<Storage>(count, columns, stride, [&](auto overlap, int64_t row, int64_t length, T* buffer, Storage* y) {
        log_softmax_rows<T, decltype(overlap)::value, 0>(length, columns, buffer, from(row), StoreRows<Storage>{y + row * stride, stride});
    });
    const std::vector<Storage> layer = normalized<Storage>(count, columns, stride, [&](auto overlap, int64_t row, int64_t length, T* buffer, Storage* y) {
        layer_norm_rows<T, decltype(overlap)::value, 0>(length, columns, 1e-5, buffer, from(row), StoreRows<Storage>{y + row * stride, stride});
    });
    const std::vector<Storage> rms = normalized<Storage>(count, columns, stride, [&](auto overlap, int64_t row, int64_t length, T* buffer, Storage* y) {
        rms_norm_rows<T, decltype(overlap)::value, 4>(length, columns, 1e-5, buffer, from(row), StoreRows<Storage>{y + row * stride, stride});
    });
    for (int64_t row = 0; row < count; ++row) {
        double sum = 0;
        double peak = -INFINITY;
        double low = INFINITY;
        double squares = 0;
        const auto at = [&](int64_t j) { return static_cast<double>(to_float(x[row * stride + j])); };
        for (int64_t j = 0; j < columns; ++j) {
            sum += at(j);
            squares += at(j) * at(j);
            peak = fmax(peak, at(j));
            low = fmin(low, at(j));
        }
        const double n = static_cast<double>(columns);
        double variance = 0;
        double total = 0;
        for (int64_t j = 0; j < columns; ++j) {
            variance += (at(j) - sum / n) * (at(j) - sum / n);
            total += ::exp(at(j) - peak);
        }
        near(static_cast<double>(sum_row<T>(row, columns, source)) / n, sum / n, tolerance, "sum", columns);
        near(static_cast<double>(mean_row<T>(row, columns, source)), sum / n, tolerance, "mean", columns);
        CHECK(static_cast<double>(max_row<T>(row, columns, source)) == peak, "max of %ld", static_cast<long>(columns));
        CHECK(static_cast<double>(min_row<T>(row, columns, source)) == low, "min of %ld", static_cast<long>(columns));
        const auto check = [&](const char* what, const std::vector<Storage>& y, auto&& want) {
            for (int64_t j = 0; j < columns; ++j) near(static_cast<double>(to_float(y[row * stride + j])), want(j), tolerance, what, columns);
        };
        check("softmax", softmax, [&](int64_t j) { return ::exp(at(j) - peak) / total; });
        check("log-softmax", logarithms, [&](int64_t j) { return at(j) - peak - ::log(total); });
        check("layer norm", layer, [&](int64_t j) { return (at(j) - sum / n) / ::sqrt(variance / n + 1e-5); });
        check("rms norm", rms, [&](int64_t j) { return at(j) / ::sqrt(squares / n + 1e-5); });
    }
}

// The stated error of what a softmax sums, and zero where the result would be below 2^-125.5.
void exponentials() {
    for (uint32_t u = 0; u < bits_of(200.0F); u += 4001 * VecF::lanes) {
        float in[VecF::lanes];
        float out[VecF::lanes];
        for (int i = 0; i < VecF::lanes; ++i) in[i] = -float_of(u + 4001 * static_cast<uint32_t>(i));
        store(out, exp_or_zero(load<VecF>(in)));
        for (int i = 0; i < VecF::lanes; ++i) {
            const double x = static_cast<double>(in[i]);
            const double want = x * 0x1.715476p+0 < -125.5 ? 0 : ::exp(x);
            const double unit = want == 0 ? 0 : ::ldexp(1.0, ilogb(want) - 23);
            CHECK(fabs(static_cast<double>(out[i]) - want) <= (2.1 - x / 4) * unit, "exp_or_zero(%a) is %a, not %a", x, static_cast<double>(out[i]), want);
        }
    }
    float far[VecF::lanes];
    store(far, exp_or_zero(broadcast<VecF>(-INFINITY)));
    CHECK(far[0] == 0, "exp_or_zero of minus infinity is %g", static_cast<double>(far[0]));
    store(far, exp_or_zero(broadcast<VecF>(NAN)));
    CHECK(isnan(far[0]), "exp_or_zero dropped a NaN");
}

void not_a_number() {
    std::vector<float> x(300, 1.0F);
    std::vector<float> y(300);
    alignas(64) float buffer[3 * 192];
    x[97] = NAN;
    x[150] = INFINITY;
    x[250] = -INFINITY;
    for (int overlap = 0; overlap < 2; ++overlap) {
        const LoadRows<float> source{x.data(), 100};
        const StoreRows<float> target{y.data(), 100};
        if (overlap == 0) softmax_rows<float, 0, 0>(3, 100, buffer, source, target);
        else softmax_rows<float, 1, 0>(3, 100, buffer, source, target);
        for (int i = 0; i < 200; ++i) CHECK(isnan(y[i]), "softmax dropped a NaN or an infinity");
        for (int i = 200; i < 300; ++i) {
            const float want = i == 250 ? 0.0F : 1.0F / 99.0F;
            CHECK(fabs(y[i] - want) < 1e-8F, "element %d beside minus infinity: %g", i, static_cast<double>(y[i]));
        }
    }
    CHECK(isnan(max_row<float>(0, 100, LoadRows<float>{x.data(), 100})), "max dropped a NaN");
}

void chains(Random& random) {
    using V = VecF;
    tracea_team team;
    memset(&team, 0, sizeof team);
    team.size = 1;
    tracea_call call;
    memset(&call, 0, sizeof call);
    call.team = &team;
    const int64_t sizes[3] = {1 + random.below(4), 1 + random.below(5), 1 + random.below(90)};
    const int64_t lines = sizes[0] * sizes[1];
    std::vector<float> x(lines * sizes[2]);
    std::vector<float> bias(sizes[0]);
    std::vector<float> y((lines * sizes[2] - 1) * 2 + 1);
    for (float& v : x) v = static_cast<float>(random.value());
    for (float& v : bias) v = static_cast<float>(random.value());
    const int64_t strides[3][3] = {{sizes[1] * sizes[2], sizes[2], 1}, {1, 0, 0}, {2 * sizes[1] * sizes[2], 2 * sizes[2], 2}};
    const Operand<const float, Inner::unit> in{x.data(), 1};
    const Operand<const float, Inner::zero> shift{bias.data(), 0};
    const Operand<float, Inner::strided> out{y.data(), 2};
    pointwise<V, 3, 3>(&call, 0, 0, sizes, strides, 1 + random.below(100), [&](const int64_t* at, int64_t i, int64_t n) TRACEA_LAMBDA {
        out.put(at[2], i, mul(add(in.get<V>(at[0], i, n), shift.get<V>(at[1], i, n)), broadcast<V>(3.0F)), n);
    });
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
        const float want = (x[i] + bias[i / (sizes[1] * sizes[2])]) * 3.0F;
        CHECK(y[2 * i] == want, "element %ld: %g, not %g", static_cast<long>(i), static_cast<double>(y[2 * i]), static_cast<double>(want));
    }
}

}  // namespace

int main() {
    Random random{11};
    for (int64_t columns = 1; columns <= 140; ++columns) {
        rows<float>(columns, 0, 2e-5, random);
        rows<double>(columns, 0, 1e-12, random);
        rows<f16>(columns, 0, 2e-3, random);
        rows<bf16>(columns, 0, 2e-2, random);
    }
    rows<float>(5000, 0, 2e-5, random);
    rows<float>(3000, 1000, 3e-3, random);  // a mean far above the deviation: inputs are exact, the result must not be noise
    exponentials();
    not_a_number();
    for (int trial = 0; trial < 100; ++trial) chains(random);
    return 0;
}
