// Phi(-t), what GELU takes of its argument, for 0 <= t < gelu_limit: relative to its own size, however small that is.
//
// By table, where lookups are one instruction (table.h): one polynomial of degree 5 for each of 32 segments. Segment n is about t = n / scale, and its
// polynomial one in n - scale t, between -1/2 and 1/2; the last one is centred at 31 and ends at 31.5. Minimax in relative error (Remez in 40 digits, segment
// by segment), rounded to float: 9.8e-8 at most, in the last segment.
//
// Elsewhere: the eighth power of one polynomial of degree 9. Phi(-t) falls by five orders of magnitude and its eighth root by a factor of four, so that nine
// degrees do where the function itself asks for more than fourteen; in limit - t, where the large terms are positive and nothing cancels. 1.7e-7, its
// coefficients rounded one after the other and the rest fitted anew each time; the power makes eight of the polynomial's own rounding errors.
#ifndef TRACEA_GELU_TAIL_H
#define TRACEA_GELU_TAIL_H

#include "tracea/config.h"
#include "tracea/polynomial.h"
#include "tracea/table.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

namespace detail {

#if TRACEA_LOOK_UP
constexpr float gelu_scale = 0x1.933334p+2F;
// Just below 5: scale is above 6.3, so that 5 scale is above 31.5 and would ask for row 32, which is the first.
constexpr float gelu_limit = 0x1.3ffffep+2F;
// clang-format off
inline constexpr Table32<6> gelu_tails = table_of_rows({
    {0x1p-1F, 0x1.036034p-4F, -0x1.104e7ep-33F, -0x1.16d456p-12F, -0x1.c4e59p-29F, 0x1.0c9942p-20F},
    {0x1.bf6d64p-2F, 0x1.0020f8p-4F, 0x1.9d01a6p-11F, -0x1.0c667cp-12F, -0x1.49acc4p-18F, 0x1.f91bc6p-21F},
    {0x1.80753ap-2F, 0x1.ed4256p-5F, 0x1.8db064p-10F, -0x1.dccff2p-13F, -0x1.3564f8p-17F, 0x1.9a672cp-21F},
    {0x1.44939cp-2F, 0x1.cf25dep-5F, 0x1.180f18p-9F, -0x1.80fbc8p-13F, -0x1.a0daeep-17F, 0x1.0ea7a8p-21F},
    {0x1.0d0bbep-2F, 0x1.a80e12p-5F, 0x1.55e4b4p-9F, -0x1.101704p-13F, -0x1.dc93f2p-17F, 0x1.b2cdcp-23F},
    {0x1.b5a806p-3F, 0x1.7a9ap-5F, 0x1.7d8ef4p-9F, -0x1.2d45a6p-14F, -0x1.e57e96p-17F, -0x1.94b27p-24F},
    {0x1.5d15e4p-3F, 0x1.499c3p-5F, 0x1.8e9f0ap-9F, -0x1.0788eep-16F, -0x1.bffb5ap-17F, -0x1.724a78p-22F},
    {0x1.10eac2p-3F, 0x1.17d18ap-5F, 0x1.8ace38p-9F, 0x1.1a3c9p-15F, -0x1.765bfp-17F, -0x1.178392p-21F},
    {0x1.a214c6p-4F, 0x1.cf46c6p-6F, 0x1.75840ep-9F, 0x1.31093ap-14F, -0x1.1677c8p-17F, -0x1.46d29ep-21F},
    {0x1.399ae4p-4F, 0x1.75f73cp-6F, 0x1.5332aep-9F, 0x1.a26b92p-14F, -0x1.5de548p-18F, -0x1.48bf88p-21F},
    {0x1.cc9276p-5F, 0x1.265c98p-6F, 0x1.28a92ep-9F, 0x1.e0d5cp-14F, -0x1.3339aep-19F, -0x1.25c07p-21F},
    {0x1.4afaa6p-5F, 0x1.c3e012p-7F, 0x1.f4f1fep-10F, 0x1.f192fep-14F, 0x1.923bdp-23F, -0x1.d49362p-22F},
    {0x1.d1656p-6F, 0x1.523536p-7F, 0x1.9904fep-10F, 0x1.ddc13p-14F, 0x1.130f46p-19F, -0x1.47902ep-22F},
    {0x1.400726p-6F, 0x1.edab7ep-8F, 0x1.436452p-10F, 0x1.b03fc2p-14F, 0x1.b44e7p-19F, -0x1.785bfcp-23F},
    {0x1.ae6138p-7F, 0x1.5f54fp-8F, 0x1.efb4dep-11F, 0x1.73dap-14F, 0x1.01ccc8p-18F, -0x1.0ef5c4p-24F},
    {0x1.1aeb06p-7F, 0x1.e7a008p-9F, 0x1.709354p-11F, 0x1.31edcep-14F, 0x1.081294p-18F, 0x1.80a5a4p-26F},
    {0x1.6b924p-8F, 0x1.49f9e4p-9F, 0x1.0a0af8p-11F, 0x1.e34f26p-15F, 0x1.ecfc46p-19F, 0x1.51f39ep-24F},
    {0x1.c89896p-9F, 0x1.b37a88p-10F, 0x1.750c4cp-12F, 0x1.6f9286p-15F, 0x1.ad16f8p-19F, 0x1.d11422p-24F},
    {0x1.182628p-9F, 0x1.1834fep-10F, 0x1.fc4fep-13F, 0x1.0db77ep-15F, 0x1.60ac48p-19F, 0x1.f4fb2p-24F},
    {0x1.4fdc16p-10F, 0x1.5f9fd6p-11F, 0x1.50a6ecp-13F, 0x1.7e8218p-16F, 0x1.13d73p-19F, 0x1.d9c4b6p-24F},
    {0x1.895334p-11F, 0x1.ae4408p-12F, 0x1.b1a03cp-14F, 0x1.066f5p-16F, 0x1.9cb7aep-20F, 0x1.9a1f4cp-24F},
    {0x1.c1e70cp-12F, 0x1.00b2aep-12F, 0x1.0fa33ap-14F, 0x1.5cc5aap-17F, 0x1.2860c8p-20F, 0x1.4b9c8ep-24F},
    {0x1.f69652p-13F, 0x1.2aac48p-13F, 0x1.4b1b02p-15F, 0x1.c14924p-18F, 0x1.99aa76p-21F, 0x1.faa5d2p-25F},
    {0x1.12217p-13F, 0x1.52dd8cp-14F, 0x1.88bccep-16F, 0x1.18b00cp-18F, 0x1.1105f4p-21F, 0x1.704a8p-25F},
    {0x1.23ff18p-14F, 0x1.76e69cp-15F, 0x1.c5648p-17F, 0x1.545daap-19F, 0x1.5f76b6p-22F, 0x1.fff61ep-26F},
    {0x1.2fac3p-15F, 0x1.9472dap-16F, 0x1.fd819ap-18F, 0x1.90bdfep-20F, 0x1.b57e18p-23F, 0x1.5567dcp-26F},
    {0x1.34532ep-16F, 0x1.a97822p-17F, 0x1.16b67ap-18F, 0x1.ca4e2ap-21F, 0x1.078d9ep-23F, 0x1.b5fa14p-27F},
    {0x1.319a28p-17F, 0x1.b47244p-18F, 0x1.28e636p-19F, 0x1.fd4a7cp-22F, 0x1.33998p-24F, 0x1.0ebe72p-27F},
    {0x1.27adeep-18F, 0x1.b49144p-19F, 0x1.33faf2p-20F, 0x1.130ab2p-22F, 0x1.5c01aap-25F, 0x1.431522p-28F},
    {0x1.173d56p-19F, 0x1.a9d2d4p-20F, 0x1.3720f2p-21F, 0x1.20d1ep-23F, 0x1.7de01cp-26F, 0x1.74935cp-29F},
    {0x1.01652ap-20F, 0x1.950294p-21F, 0x1.321fe4p-22F, 0x1.26ee7ap-24F, 0x1.96a1aep-27F, 0x1.9f9e06p-30F},
    {0x1.cf205p-22F, 0x1.77a12cp-22F, 0x1.256164p-23F, 0x1.24ef2cp-25F, 0x1.a458f2p-28F, 0x1.c0dbb4p-31F},
});
// clang-format on

TRACEA_INLINE VecF gelu_tail(VecF t) {
    const VecF scale = broadcast<VecF>(gelu_scale);
    const VecF shifted = fma(t, scale, broadcast<VecF>(table_shift));
    const VecF s = fnma(t, scale, sub(shifted, broadcast<VecF>(table_shift)));
    VecF c[6];
    look_up(gelu_tails, shifted, c);
    return fma(fma(fma(fma(fma(c[5], s, c[4]), s, c[3]), s, c[2]), s, c[1]), s, c[0]);
}
#else
constexpr float gelu_limit = 4.5F;

TRACEA_INLINE VecF gelu_tail(VecF t) {
    const VecF root = polynomial_halved(sub(broadcast<VecF>(gelu_limit), t), 0x1.a85a76p-3F, 0x1.f31304p-4F,
                                        0x1.7efa62p-6F, -0x1.e5563cp-13F, -0x1.76b15ap-11F, -0x1.e5d5c2p-15F,
                                        0x1.4d731ep-19F, 0x1.08b0a8p-18F, -0x1.826b2ap-22F, 0x1.307394p-29F);
    const VecF square = mul(root, root);
    const VecF fourth = mul(square, square);
    return mul(fourth, fourth);
}
#endif

}  // namespace detail

TRACEA_END_NAMESPACE

#endif
