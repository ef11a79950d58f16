// Writes the result of every vector primitive on a fixed set of hostile inputs to standard output, element by element, so that the instruction sets can
// be compared whatever their width.
#include <math.h>
#include <string.h>

#include <vector>

#include "check.h"
#include "tracea/math.h"
#include "tracea/shift.h"
#include "tracea/vec.h"

using namespace tracea;

namespace {

constexpr int64_t count = 4096;  // a multiple of every width

template <class T>
std::vector<T> inputs(uint64_t seed) {
    const T special[] = {T(0), T(-0.0), T(1), T(-1), T(0.5), T(1.5), T(2.5), T(-2.5), T(INFINITY), T(-INFINITY), T(NAN), T(1e-40), T(-1e-45),
                         T(3.4e38), T(-3.4e38), T(65504), T(65519), T(65520), T(6e-8), T(5.96e-8), T(1e-7), T(88.72), T(-87.3), T(-103.9), T(1.17549435e-38),
                         // halfway between two bf16 or two f16, to even and to odd, and a step beside
                         T(0x1.01p0), T(0x1.03p0), T(0x1.010002p0), T(0x1.00fffep0), T(0x1.002p0), T(0x1.006p0)};
    constexpr int specials = sizeof special / sizeof special[0];
    Random random{seed};
    std::vector<T> values(count);
    for (int64_t i = 0; i < count; ++i) {
        if (i < specials * specials) {
            values[i] = seed == 1 ? special[i % specials] : special[i / specials];
        } else {
            values[i] = static_cast<T>(random.value() * ::exp2(static_cast<double>(random.below(60)) - 30));
        }
    }
    return values;
}

template <class T>
void emit(const std::vector<T>& values) {
    fwrite(values.data(), sizeof(T), values.size(), stdout);
}

template <class T, class F>
void each(F&& f) {
    using V = Vec<T>;
    const std::vector<T> a = inputs<T>(1);
    const std::vector<T> b = inputs<T>(2);
    std::vector<T> out(count);
    for (int64_t i = 0; i < count; i += V::lanes) store(&out[i], f(load<V>(&a[i]), load<V>(&b[i])));
    emit(out);
}

template <class T>
void arithmetic() {
    using V = Vec<T>;
    each<T>([](V a, V b) { return add(a, b); });
    each<T>([](V a, V b) { return sub(a, b); });
    each<T>([](V a, V b) { return mul(a, b); });
    each<T>([](V a, V b) { return div(a, b); });
    each<T>([](V a, V b) { return fma(a, b, a); });
    each<T>([](V a, V b) { return fnma(a, b, b); });
    each<T>([](V a, V b) {
        fma_into(a, b, b);
        return a;
    });
    each<T>([](V a, V) { return sqrt(a); });
    each<T>([](V a, V) { return neg(a); });
    each<T>([](V a, V) { return abs(a); });
    each<T>([](V a, V b) { return copysign(a, b); });
    each<T>([](V a, V b) { return maximum(a, b); });
    each<T>([](V a, V b) { return minimum(a, b); });
    each<T>([](V a, V b) { return max_second(a, b); });
    each<T>([](V a, V b) { return min_second(a, b); });
    {
        const std::vector<T> a = inputs<T>(1), b = inputs<T>(2);
        std::vector<T> out(2 * count);
        for (int64_t i = 0; i < count; i += V::lanes) {
            V low, high;
            interleave(load<V>(&a[i]), load<V>(&b[i]), low, high);
            store(&out[2 * i], low);
            store(&out[2 * i + V::lanes], high);
        }
        emit(out);
    }
    each<T>([](V a, V) { return round_even(a); });
    each<T>([](V a, V) { return floor(a); });
    const V one = broadcast<V>(T(1));
    const V none = zero<V>();
    each<T>([&](V a, V b) { return select(less(a, b), one, none); });
    each<T>([&](V a, V b) { return select(less_equal(a, b), one, none); });
    each<T>([&](V a, V b) { return select(equal(a, b), one, none); });
    each<T>([&](V a, V b) { return select(not_equal(a, b), one, none); });
    each<T>([&](V a, V b) { return select(unordered(a, b), one, none); });
    each<T>([&](V a, V b) { return select(mask_or(mask_and(less(a, b), less(none, a)), mask_not(less_equal(b, one))), a, b); });
    each<T>([](V a, V b) { return scale_pow2(a, min_second(broadcast<V>(T(150)), max_second(broadcast<V>(T(-150)), round_even(b)))); });
    each<T>([](V a, V) { return relu(a); });
    each<T>([](V a, V) { return rsqrt(a); });
}

void float_only() {
    using V = VecF;
    each<float>([](V a, V) {
        V m;
        V e;
        split_exponent(select(mask_and(less(zero<V>(), a), less(a, broadcast<V>(INFINITY))), a, broadcast<V>(1.0F)), m, e);
        return fma(e, broadcast<V>(4.0F), m);
    });
    // NaN compares true, and what is masked out is zero whatever the power.
    each<float>([](V a, V b) { return select(not_less(a, b), a, select(not_greater(b, a), b, zero<V>())); });
    each<float>([](V a, V b) { return scale_pow2_or_zero(not_less(b, broadcast<V>(-150.0F)), a, min_second(broadcast<V>(150.0F), round_even(b))); });
    each<float>([](V a, V b) { return keep_where(not_less(a, b), a); });
    // From the smallest normal power of two to infinity.
    each<float>([](V, V b) { return pow2<-24>(max_second(min_second(round_even(b), broadcast<V>(152.0F)), broadcast<V>(-102.0F))); });
    each<float>([](V a, V) { return exp_or_zero(neg(abs(a))); });
    each<float>([](V a, V) { return exp(a); });
    each<float>([](V a, V) { return log(a); });
    each<float>([](V a, V) { return log2(a); });
    each<float>([](V a, V) { return log10(a); });
    each<float>([](V a, V) { return sin(a); });
    each<float>([](V a, V) { return cos(a); });
    each<float>([](V a, V) { return tanh(a); });
    each<float>([](V a, V) { return sigmoid(a); });
    each<float>([](V a, V) { return erf(a); });
    each<float>([](V a, V) { return gelu(a); });
    each<float>([](V a, V) { return gelu_tanh(a); });
    each<float>([](V a, V) { return silu(a); });
}

template <class Half>
void storage() {
    const std::vector<float> a = inputs<float>(1);
    std::vector<Half> narrow(count);
    for (int64_t i = 0; i < count; i += VecF::lanes) store(&narrow[i], load<VecF>(&a[i]));
    fwrite(narrow.data(), sizeof(Half), narrow.size(), stdout);
    for (int64_t i = 0; i < count; ++i) {
        const Half scalar = from_float<Half>(a[i]);
        CHECK(scalar.bits == narrow[i].bits || a[i] != a[i], "element %ld: %a gives %#x by vector, %#x by scalar", static_cast<long>(i), static_cast<double>(a[i]),
              narrow[i].bits, scalar.bits);
    }
    // Every 16-bit pattern widens alike, and narrows back to itself.
    std::vector<Half> all(65536);
    std::vector<float> wide(65536);
    for (int i = 0; i < 65536; ++i) all[i].bits = static_cast<uint16_t>(i);
    for (int i = 0; i < 65536; i += VecF::lanes) store(&wide[i], load<VecF>(&all[i]));
    emit(wide);
    for (int i = 0; i < 65536; ++i) {
        const float scalar = to_float(all[i]);
        CHECK(scalar == wide[i] || (scalar != scalar && wide[i] != wide[i]), "pattern %#x", i);
        if (scalar == scalar) CHECK(from_float<Half>(scalar).bits == i, "pattern %#x does not survive", i);
    }
}

template <class Storage>
void memory() {
    using V = vec_t<Storage>;
    constexpr int L = V::lanes;
    constexpr int room = 8 * L;
    Storage source[room];
    Storage target[room];
    for (int i = 0; i < room; ++i) source[i] = from_float<Storage>(static_cast<arithmetic_t<Storage>>(i + 1));
    for (int n = 0; n <= L; ++n) {
        for (int stride = 1; stride <= 3; ++stride) {
            for (int i = 0; i < room; ++i) target[i] = from_float<Storage>(-1);
            const V v = stride == 1 ? load_partial<V>(source, n) : load_strided<V>(source, stride, n);
            if (stride == 1) {
                store_partial(target + L, v, n);
            } else {
                store_strided(target + L, stride, v, n);
            }
            for (int i = 0; i < room; ++i) {
                const int lane = (i - L) / stride;
                const bool written = i >= L && (i - L) % stride == 0 && lane < n;
                const double want = written ? lane * stride + 1 : -1;
                CHECK(static_cast<double>(to_float(target[i])) == want, "n %d stride %d element %d: %g, not %g", n, stride, i,
                      static_cast<double>(to_float(target[i])), want);
            }
            arithmetic_t<Storage> lanes[L];
            store(lanes, v);
            for (int i = n; i < L; ++i) CHECK(lanes[i] == 0, "lane %d beyond %d is %g", i, n, static_cast<double>(lanes[i]));
        }
    }
    arithmetic_t<Storage> lanes[L];
    store(lanes, load_broadcast<V>(source + 2));
    for (int i = 0; i < L; ++i) CHECK(lanes[i] == 3, "lane %d", i);
    double sum = 0;
    for (int i = 0; i < L; ++i) sum += i + 1;
    const V ramp = load<V>(source);
    CHECK(reduce_add(ramp) == sum && reduce_max(ramp) == L && reduce_min(ramp) == 1, "reductions of 1 .. %d", L);
    for (int n = 0; n <= L; ++n) {  // the first lanes, the last ones, one alone
        const V limit = broadcast<V>(static_cast<arithmetic_t<Storage>>(n));
        const Mask<V> masks[] = {less_equal(ramp, limit), mask_not(less_equal(ramp, limit)), equal(ramp, limit)};
        for (int shape = 0; shape < 3; ++shape) {
            for (int i = 0; i < room; ++i) target[i] = from_float<Storage>(-1);
            store_masked(target + 1, ramp, masks[shape]);
            for (int i = 0; i < room; ++i) {
                const bool written = i >= 1 && i <= L && (shape == 0 ? i <= n : shape == 1 ? i > n : i == n);
                CHECK(static_cast<double>(to_float(target[i])) == (written ? i : -1), "mask %d of %d, element %d", shape, n, i);
            }
        }
    }
    const V with_nan = select(equal(ramp, broadcast<V>(2)), broadcast<V>(NAN), ramp);
    CHECK(isnan(reduce_max(with_nan)) && isnan(reduce_min(with_nan)), "NaN lost in a reduction");
}

template <class T, int N>
void repeated() {
    using V = vec_t<T>;
    if constexpr (N <= V::lanes) {
        T source[N];
        for (int i = 0; i < N; ++i) source[i] = static_cast<T>(i + 1);
        T lanes[V::lanes];
        store(lanes, load_repeated<V, N>(source));
        for (int i = 0; i < V::lanes; ++i) CHECK(lanes[i] == i % N + 1, "lane %d of %d elements over and over", i, N);
    }
}

template <class T>
void all_repeated() {
    repeated<T, 1>();
    repeated<T, 2>();
    repeated<T, 4>();
    repeated<T, 8>();
    repeated<T, 16>();
}

template <class T, int N>
void shifted() {
    using V = Vec<T>;
    if constexpr (N < V::lanes) {
        const V nans = broadcast<V>(T(NAN));  // what is shifted in is zero, beside NaN too
        T lanes[V::lanes];
        store(lanes, shift_up<N>(nans));
        for (int i = 0; i < V::lanes; ++i) CHECK(i < N ? lanes[i] == 0 : isnan(lanes[i]), "lane %d of NaN %d up", i, N);
        store(lanes, shift_down<N>(nans));
        for (int i = 0; i < V::lanes; ++i) CHECK(i + N < V::lanes ? isnan(lanes[i]) : lanes[i] == 0, "lane %d of NaN %d down", i, N);
        for (int i = 0; i < V::lanes; ++i) lanes[i] = static_cast<T>(i + 1);
        const V counted = load<V>(lanes);
        store(lanes, shift_up<N>(counted));
        for (int i = 0; i < V::lanes; ++i) CHECK(lanes[i] == (i < N ? 0 : i + 1 - N), "lane %d of %d up", i, N);
        store(lanes, shift_down<N>(counted));
        for (int i = 0; i < V::lanes; ++i) CHECK(lanes[i] == (i + N < V::lanes ? i + 1 + N : 0), "lane %d of %d down", i, N);
        CHECK(reduce_min(repeat_first(counted)) == 1 && reduce_max(repeat_first(counted)) == 1, "the first lane");
        CHECK(reduce_min(repeat_last(counted)) == V::lanes && reduce_max(repeat_last(counted)) == V::lanes, "the last lane");
    }
}

template <class T>
void all_shifted() {
    shifted<T, 1>();
    shifted<T, 2>();
    shifted<T, 3>();
    shifted<T, 4>();
    shifted<T, 5>();
    shifted<T, 8>();
    shifted<T, 11>();
}

}  // namespace

int main() {
    arithmetic<float>();
    arithmetic<double>();
    float_only();
    storage<f16>();
    storage<bf16>();
    memory<float>();
    memory<double>();
    memory<f16>();
    memory<bf16>();
    all_repeated<float>();
    all_repeated<double>();
    all_shifted<float>();
    all_shifted<double>();
    const VecF estimate = reciprocal_estimate(broadcast<VecF>(3.0F));
    CHECK(fabsf(reduce_max(estimate) * 3.0F - 1.0F) < 0x1p-8F, "reciprocal estimate");
    return 0;
}
