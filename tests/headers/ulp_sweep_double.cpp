// Largest error of the double functions of math_double.h against long double, over random bit patterns and all magnitudes that matter: one line
// `name max_ulp at_input` each.
//   ulp_sweep_double 2000000 7
#include <math.h>
#include <string.h>

#include "check.h"
#include "tracea/math.h"

using namespace tracea;

namespace {

using Wide = long double;

double ulp_of(Wide x) {
    const double magnitude = static_cast<double>(fabsl(x));
    if (magnitude < 0x1p-1022) return 0x1p-1074;
    return ::ldexp(1.0, ilogb(magnitude < INFINITY ? magnitude : 0x1p1023) - 52);
}

// Of three inputs one is any pattern, two are of the magnitudes at which results change; edges come first.
double input(int64_t i, Random& random) {
    static const double edges[] = {0.0,     -0.0,    0x1p-1074, -0x1p-1074, 0x1p-1022, -0x1p-1022, INFINITY,   -INFINITY, NAN,     709.78,  709.79,  710.0,
                                   1e300,   -1e300,  -708.3,    -708.4,     -745.13,   -745.14,    -745.5,     -746.0,    1.0,     -1.0,    0x1.fffffffffffffp-1,
                                   5.92,    5.93,    6.0,       -6.0,       19.0,      19.1,       20.0,       -37.5,     -38.4,   -38.6,   40.0,    -40.0, 41.0,
                                   -41.0,   0x1p-26, -0x1p-27,  0.34657359, 0.3465736, 1.0397,     0x1p-54,    8.3,       1e-8,    -1e-8,   0x1.fffffffffffffp+1023};
    constexpr int64_t known = sizeof edges / sizeof edges[0];
    if (i < known) return edges[i];
    if (i % 3 == 0) {
        const uint64_t bits = static_cast<uint64_t>(random.bits()) << 33 ^ static_cast<uint64_t>(random.bits()) << 16 ^ random.bits();
        double x = 0;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    const double fraction = random.value() + random.value() * 0x1p-30;
    return fraction * (i % 3 == 1 ? 3.0 : ::exp2(static_cast<double>(random.below(11))));
}

template <class F, class R>
void sweep(const char* name, int64_t count, uint64_t seed, F&& f, R&& reference) {
    double worst = 0;
    double at = 0;
    Random random{seed};
    for (int64_t first = 0; first < count; first += VecD::lanes) {
        double in[VecD::lanes];
        double out[VecD::lanes];
        for (int i = 0; i < VecD::lanes; ++i) in[i] = input(first + i, random);
        store(out, f(load<VecD>(in)));
        for (int i = 0; i < VecD::lanes; ++i) {
            const Wide want = reference(static_cast<Wide>(in[i]));
            if (isnan(want)) {
                CHECK(isnan(out[i]), "%s(%a) is %a, not NaN", name, in[i], out[i]);
                continue;
            }
            const double rounded = static_cast<double>(want);
            if (out[i] == rounded) continue;
            CHECK(!isnan(out[i]), "%s(%a) is NaN, not %a", name, in[i], rounded);
            CHECK(isinf(out[i]) == isinf(rounded), "%s(%a) is %a, not %a", name, in[i], out[i], rounded);
            const double error = static_cast<double>(fabsl(static_cast<Wide>(out[i]) - want)) / ulp_of(want);
            if (static_cast<double>(fabsl(want)) < 0x1p-1000) {  // silu and gelu multiply what has rounded to a subnormal
                CHECK(error <= 1000.0, "%s(%a) is %a, not %a", name, in[i], out[i], rounded);
            } else if (error > worst) {
                worst = error;
                at = in[i];
            }
        }
    }
    printf("%s %.3f %a\n", name, worst, at);
}

}  // namespace

int main(int argc, char** argv) {
    const int64_t count = (argc > 1 ? strtoll(argv[1], nullptr, 10) : 100000) / VecD::lanes * VecD::lanes;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1;
    const auto sigmoid_exact = [](Wide x) { return x < 0 ? ::expl(x) / (1 + ::expl(x)) : 1 / (1 + ::expl(-x)); };
    sweep("exp", count, seed, [](VecD x) { return exp(x); }, [](Wide x) { return ::expl(x); });
    const VecD factor = broadcast<VecD>(0x1.71547652b82fep+0);
    sweep("exp2", count, seed, [&](VecD x) { return exp2_scaled_or_zero(neg(abs(x)), factor, broadcast<VecD>(-126 / 0x1.71547652b82fep+0)); },
          [](Wide x) { return ::exp2l(-fabsl(x) * static_cast<Wide>(0x1.71547652b82fep+0)); });
    sweep("tanh", count, seed, [](VecD x) { return tanh(x); }, [](Wide x) { return ::tanhl(x); });
    sweep("erf", count, seed, [](VecD x) { return erf(x); }, [](Wide x) { return ::erfl(x); });
    sweep("sigmoid", count, seed, [](VecD x) { return sigmoid(x); }, sigmoid_exact);
    sweep("silu", count, seed, [](VecD x) { return silu(x); }, [&](Wide x) { return x * sigmoid_exact(isinf(x) ? x : fmaxl(x, -11000)); });
    sweep("gelu", count, seed, [](VecD x) { return gelu(x); }, [](Wide x) {
        if (isinf(x) && x < 0) return static_cast<Wide>(NAN);
        return x * 0.5L * ::erfcl(-x * 0.70710678118654752440084436210484904L);
    });
    return 0;
}
