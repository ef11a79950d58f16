// Largest error of the float functions of math.h against double, over every `stride`-th bit pattern: one line `name max_ulp at_input` each.
//   ulp_sweep 101
#include <math.h>
#include <string.h>

#include "check.h"
#include "tracea/math.h"

using namespace tracea;

namespace {

double ulp_of(double x) {
    const double magnitude = fabs(x);
    if (magnitude < 0x1p-126) return 0x1p-149;
    return ::ldexp(1.0, ilogb(magnitude) - 23);
}

template <class F, class R>
void sweep(const char* name, uint64_t stride, F&& f, R&& reference) {
    double worst = 0;
    float at = 0;
    for (uint64_t u = 0; u < (1ULL << 32); u += stride * VecF::lanes) {
        float in[VecF::lanes];
        float out[VecF::lanes];
        for (int i = 0; i < VecF::lanes; ++i) in[i] = float_of(static_cast<uint32_t>(u + stride * i));
        store(out, f(load<VecF>(in)));
        for (int i = 0; i < VecF::lanes; ++i) {
            const double want = reference(static_cast<double>(in[i]));
            const float rounded = static_cast<float>(want);
            if (isnan(want)) {
                CHECK(isnan(out[i]), "%s(%a) is %a, not NaN", name, static_cast<double>(in[i]), static_cast<double>(out[i]));
                continue;
            }
            if (out[i] == rounded) continue;
            CHECK(!isnan(out[i]), "%s(%a) is NaN, not %a", name, static_cast<double>(in[i]), want);
            // One step short of, or into, infinity is an error of that step.
            const double got = isinf(out[i]) ? copysign(0x1p128, out[i]) : static_cast<double>(out[i]);
            const double target = fabs(want) > 0x1p128 ? copysign(0x1p128, want) : want;
            const double error = fabs(got - target) / ulp_of(target);
            if (error > worst) {
                worst = error;
                at = in[i];
            }
        }
    }
    printf("%s %.3f %a\n", name, worst, static_cast<double>(at));
}

// Both sides of each border between two polynomials of a table, and of where the table or the one polynomial ends: what a sweep steps over.
void gelu_borders() {
    for (int half = 1; half <= 2 * 32 - 1; half += 2) {
#if TRACEA_LOOK_UP
        const float border = static_cast<float>(half / (2.0 * static_cast<double>(detail::gelu_scale)));
        const double most = 9.0;
#else
        const float border = detail::gelu_limit * static_cast<float>(half) / 63.0F;
        const double most = 22.0;
#endif
        uint32_t bits = 0;
        memcpy(&bits, &border, sizeof bits);
        for (uint32_t u = bits - 64; u < bits + 64; u += VecF::lanes) {
            for (const uint32_t sign : {0U, 0x80000000U}) {
                float in[VecF::lanes];
                float out[VecF::lanes];
                for (int i = 0; i < VecF::lanes; ++i) in[i] = float_of((u + static_cast<uint32_t>(i)) | sign);
                store(out, gelu(load<VecF>(in)));
                for (int i = 0; i < VecF::lanes; ++i) {
                    const double x = static_cast<double>(in[i]);
                    const double want = x * 0.5 * ::erfc(-x * 0.70710678118654752440);
                    const double error = fabs(static_cast<double>(out[i]) - want) / ulp_of(want);
                    CHECK(error <= most, "gelu(%a) is %a, wrong by %.1f units", x, static_cast<double>(out[i]), error);
                }
            }
        }
    }
}

// Phi(x) + x phi(x) has a zero: beside the size of its two terms. Below -12.8 the first one is 0.
void gelu_slopes(uint64_t stride) {
    for (uint64_t u = 0; u < (1ULL << 32); u += stride * VecF::lanes) {
        float in[VecF::lanes];
        float out[VecF::lanes];
        for (int i = 0; i < VecF::lanes; ++i) in[i] = float_of(static_cast<uint32_t>(u + stride * i));
        store(out, gelu_slope(load<VecF>(in)));
        for (int i = 0; i < VecF::lanes; ++i) {
            const double x = static_cast<double>(in[i]);
            if (isnan(x) || isinf(x)) {
                CHECK(isnan(out[i]), "gelu_slope(%a) is %a, not NaN", x, static_cast<double>(out[i]));
                continue;
            }
            const double below = 0.5 * ::erfc(-x * 0.70710678118654752440);
            const double density = 0.39894228040143267794 * ::exp(-0.5 * x * x);
            const double beside = x * density;
            const double error = fabs(static_cast<double>(out[i]) - (below + beside));
            const double most = (24.0 + x * x) * ulp_of(fabs(below) + fabs(beside)) + (x < -12.8 ? 1e-36 : 0.0);
            CHECK(error <= most, "gelu_slope(%a) is %a, wrong by %a", x, static_cast<double>(out[i]), error);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const uint64_t stride = argc > 1 ? strtoull(argv[1], nullptr, 10) : 10007;
    const auto sigmoid_exact = [](double x) { return x < 0 ? ::exp(x) / (1 + ::exp(x)) : 1 / (1 + ::exp(-x)); };
    sweep("exp", stride, [](VecF x) { return exp(x); }, [](double x) { return ::exp(x); });
    sweep("log", stride, [](VecF x) { return log(x); }, [](double x) { return ::log(x); });
    sweep("log2", stride, [](VecF x) { return log2(x); }, [](double x) { return ::log2(x); });
    sweep("log10", stride, [](VecF x) { return log10(x); }, [](double x) { return ::log10(x); });
    sweep("sin", stride, [](VecF x) { return sin(x); }, [](double x) { return ::sin(x); });
    sweep("cos", stride, [](VecF x) { return cos(x); }, [](double x) { return ::cos(x); });
    sweep("tanh", stride, [](VecF x) { return tanh(x); }, [](double x) { return ::tanh(x); });
    sweep("erf", stride, [](VecF x) { return erf(x); }, [](double x) { return ::erf(x); });
    sweep("sigmoid", stride, [](VecF x) { return sigmoid(x); }, sigmoid_exact);
    sweep("silu", stride, [](VecF x) { return silu(x); }, [&](double x) { return x * sigmoid_exact(x); });
    // Below -12.8 the stated result is 0: what is flushed there is smaller than 1.1e-36.
    sweep("gelu", stride, [](VecF x) { return gelu(x); }, [](double x) {
        const double exact = x * 0.5 * ::erfc(-x * 0.70710678118654752440);
        if (x >= static_cast<double>(-12.8F) || isnan(exact)) return exact;
        CHECK(exact > -1.1e-36, "gelu(%a) is %a, which is not negligible", x, exact);
        return isinf(x) ? exact : -0.0;
    });
    gelu_borders();
    gelu_slopes(stride);
    sweep("gelu_tanh", stride, [](VecF x) { return gelu_tanh(x); },
          [&](double x) { return x * sigmoid_exact(1.5957691216057308 * (x + 0.044715 * x * x * x)); });
    return 0;
}
