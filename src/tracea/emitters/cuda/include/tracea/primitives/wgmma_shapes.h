// Written by tools/write_wgmma_header.py: the register lists of wgmma for each n, and the instructions over them.
// clang-format off
#ifndef TRACEA_PRIMITIVES_WGMMA_SHAPES_H
#define TRACEA_PRIMITIVES_WGMMA_SHAPES_H

#include "tracea/primitives/config.h"
#include "tracea/primitives/types.h"

namespace tracea {
namespace detail {

template <class A, class B>
inline constexpr bool same_type = false;
template <class A>
inline constexpr bool same_type<A, A> = true;

template <int n>
struct Wgmma {
    static_assert(n < 0, "wgmma: this n is not in wgmma_shapes.h");
};
template <int n>
struct WgmmaS8 {
    static_assert(n < 0, "wgmma of int8: this n is not in wgmma_shapes.h");
};

// One instruction. registers: "%0, ..."; the operands after them are a, b, accumulate (p), and what `more` names.
#define TRACEA_WGMMA_TEXT(shape_and_types, registers, a, b, p, more) \
    "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " p ", 0;\n\t" \
    "wgmma.mma_async.sync.aligned." shape_and_types " {" registers "}, " a ", " b ", p" more ";\n\t}"

// The functions of one n; `list` gives the accumulators as operands, a to tb are the operands after them.
#define TRACEA_WGMMA_FLOAT(n, list, registers, a, b, p, ta, tb) \
template <> \
struct Wgmma<n> { \
    template <bool transpose_a, bool transpose_b> \
    static TRACEA_DEVICE void f16(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k16.f32.f16.f16", registers, a, b, p, ", 1, 1, " ta ", " tb) \
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)), \
                       "n"(transpose_a ? 1 : 0), "n"(transpose_b ? 1 : 0) : "memory"); \
    } \
    template <bool transpose_a, bool transpose_b> \
    static TRACEA_DEVICE void bf16(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k16.f32.bf16.bf16", registers, a, b, p, ", 1, 1, " ta ", " tb) \
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)), \
                       "n"(transpose_a ? 1 : 0), "n"(transpose_b ? 1 : 0) : "memory"); \
    } \
    static TRACEA_DEVICE void tf32(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k8.f32.tf32.tf32", registers, a, b, p, ", 1, 1") \
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)) : "memory"); \
    } \
    static TRACEA_DEVICE void e4m3(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k32.f32.e4m3.e4m3", registers, a, b, p, ", 1, 1") \
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)) : "memory"); \
    } \
    static TRACEA_DEVICE void e5m2(float (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k32.f32.e5m2.e5m2", registers, a, b, p, ", 1, 1") \
                     : list("+f") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)) : "memory"); \
    } \
};

#define TRACEA_WGMMA_INT(n, list, registers, a, b, p) \
template <> \
struct WgmmaS8<n> { \
    static TRACEA_DEVICE void s8(int32_t (&d)[n / 2], uint64_t da, uint64_t db, bool accumulate) { \
        asm volatile(TRACEA_WGMMA_TEXT("m64n" #n "k32.s32.s8.s8", registers, a, b, p, "") \
                     : list("+r") : "l"(da), "l"(db), "r"(static_cast<uint32_t>(accumulate)) : "memory"); \
    } \
};


// n = 8: 4 registers
#define TRACEA_WGMMA_D8(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3])
#define TRACEA_WGMMA_R8 \
    "%0, %1, %2, %3"
TRACEA_WGMMA_FLOAT(8, TRACEA_WGMMA_D8, TRACEA_WGMMA_R8, "%4", "%5", "%6", "%7", "%8")
TRACEA_WGMMA_INT(8, TRACEA_WGMMA_D8, TRACEA_WGMMA_R8, "%4", "%5", "%6")
#undef TRACEA_WGMMA_D8
#undef TRACEA_WGMMA_R8

// n = 16: 8 registers
#define TRACEA_WGMMA_D16(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7])
#define TRACEA_WGMMA_R16 \
    "%0, %1, %2, %3, %4, %5, %6, %7"
TRACEA_WGMMA_FLOAT(16, TRACEA_WGMMA_D16, TRACEA_WGMMA_R16, "%8", "%9", "%10", "%11", "%12")
TRACEA_WGMMA_INT(16, TRACEA_WGMMA_D16, TRACEA_WGMMA_R16, "%8", "%9", "%10")
#undef TRACEA_WGMMA_D16
#undef TRACEA_WGMMA_R16

// n = 24: 12 registers
#define TRACEA_WGMMA_D24(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11])
#define TRACEA_WGMMA_R24 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
TRACEA_WGMMA_FLOAT(24, TRACEA_WGMMA_D24, TRACEA_WGMMA_R24, "%12", "%13", "%14", "%15", "%16")
TRACEA_WGMMA_INT(24, TRACEA_WGMMA_D24, TRACEA_WGMMA_R24, "%12", "%13", "%14")
#undef TRACEA_WGMMA_D24
#undef TRACEA_WGMMA_R24

// n = 32: 16 registers
#define TRACEA_WGMMA_D32(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15])
#define TRACEA_WGMMA_R32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
TRACEA_WGMMA_FLOAT(32, TRACEA_WGMMA_D32, TRACEA_WGMMA_R32, "%16", "%17", "%18", "%19", "%20")
TRACEA_WGMMA_INT(32, TRACEA_WGMMA_D32, TRACEA_WGMMA_R32, "%16", "%17", "%18")
#undef TRACEA_WGMMA_D32
#undef TRACEA_WGMMA_R32

// n = 40: 20 registers
#define TRACEA_WGMMA_D40(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19])
#define TRACEA_WGMMA_R40 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19"
TRACEA_WGMMA_FLOAT(40, TRACEA_WGMMA_D40, TRACEA_WGMMA_R40, "%20", "%21", "%22", "%23", "%24")
#undef TRACEA_WGMMA_D40
#undef TRACEA_WGMMA_R40

// n = 48: 24 registers
#define TRACEA_WGMMA_D48(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23])
#define TRACEA_WGMMA_R48 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23"
TRACEA_WGMMA_FLOAT(48, TRACEA_WGMMA_D48, TRACEA_WGMMA_R48, "%24", "%25", "%26", "%27", "%28")
TRACEA_WGMMA_INT(48, TRACEA_WGMMA_D48, TRACEA_WGMMA_R48, "%24", "%25", "%26")
#undef TRACEA_WGMMA_D48
#undef TRACEA_WGMMA_R48

// n = 56: 28 registers
#define TRACEA_WGMMA_D56(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27])
#define TRACEA_WGMMA_R56 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27"
TRACEA_WGMMA_FLOAT(56, TRACEA_WGMMA_D56, TRACEA_WGMMA_R56, "%28", "%29", "%30", "%31", "%32")
#undef TRACEA_WGMMA_D56
#undef TRACEA_WGMMA_R56

// n = 64: 32 registers
#define TRACEA_WGMMA_D64(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31])
#define TRACEA_WGMMA_R64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
TRACEA_WGMMA_FLOAT(64, TRACEA_WGMMA_D64, TRACEA_WGMMA_R64, "%32", "%33", "%34", "%35", "%36")
TRACEA_WGMMA_INT(64, TRACEA_WGMMA_D64, TRACEA_WGMMA_R64, "%32", "%33", "%34")
#undef TRACEA_WGMMA_D64
#undef TRACEA_WGMMA_R64

// n = 80: 40 registers
#define TRACEA_WGMMA_D80(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31]), c(d[32]), c(d[33]), \
    c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39])
#define TRACEA_WGMMA_R80 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
TRACEA_WGMMA_FLOAT(80, TRACEA_WGMMA_D80, TRACEA_WGMMA_R80, "%40", "%41", "%42", "%43", "%44")
TRACEA_WGMMA_INT(80, TRACEA_WGMMA_D80, TRACEA_WGMMA_R80, "%40", "%41", "%42")
#undef TRACEA_WGMMA_D80
#undef TRACEA_WGMMA_R80

// n = 96: 48 registers
#define TRACEA_WGMMA_D96(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31]), c(d[32]), c(d[33]), \
    c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39]), c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), \
    c(d[45]), c(d[46]), c(d[47])
#define TRACEA_WGMMA_R96 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47"
TRACEA_WGMMA_FLOAT(96, TRACEA_WGMMA_D96, TRACEA_WGMMA_R96, "%48", "%49", "%50", "%51", "%52")
TRACEA_WGMMA_INT(96, TRACEA_WGMMA_D96, TRACEA_WGMMA_R96, "%48", "%49", "%50")
#undef TRACEA_WGMMA_D96
#undef TRACEA_WGMMA_R96

// n = 112: 56 registers
#define TRACEA_WGMMA_D112(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31]), c(d[32]), c(d[33]), \
    c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39]), c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), \
    c(d[45]), c(d[46]), c(d[47]), c(d[48]), c(d[49]), c(d[50]), c(d[51]), c(d[52]), c(d[53]), c(d[54]), c(d[55])
#define TRACEA_WGMMA_R112 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55"
TRACEA_WGMMA_FLOAT(112, TRACEA_WGMMA_D112, TRACEA_WGMMA_R112, "%56", "%57", "%58", "%59", "%60")
TRACEA_WGMMA_INT(112, TRACEA_WGMMA_D112, TRACEA_WGMMA_R112, "%56", "%57", "%58")
#undef TRACEA_WGMMA_D112
#undef TRACEA_WGMMA_R112

// n = 128: 64 registers
#define TRACEA_WGMMA_D128(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31]), c(d[32]), c(d[33]), \
    c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39]), c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), \
    c(d[45]), c(d[46]), c(d[47]), c(d[48]), c(d[49]), c(d[50]), c(d[51]), c(d[52]), c(d[53]), c(d[54]), c(d[55]), \
    c(d[56]), c(d[57]), c(d[58]), c(d[59]), c(d[60]), c(d[61]), c(d[62]), c(d[63])
#define TRACEA_WGMMA_R128 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
TRACEA_WGMMA_FLOAT(128, TRACEA_WGMMA_D128, TRACEA_WGMMA_R128, "%64", "%65", "%66", "%67", "%68")
TRACEA_WGMMA_INT(128, TRACEA_WGMMA_D128, TRACEA_WGMMA_R128, "%64", "%65", "%66")
#undef TRACEA_WGMMA_D128
#undef TRACEA_WGMMA_R128

// n = 160: 80 registers
#define TRACEA_WGMMA_D160(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31]), c(d[32]), c(d[33]), \
    c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39]), c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), \
    c(d[45]), c(d[46]), c(d[47]), c(d[48]), c(d[49]), c(d[50]), c(d[51]), c(d[52]), c(d[53]), c(d[54]), c(d[55]), \
    c(d[56]), c(d[57]), c(d[58]), c(d[59]), c(d[60]), c(d[61]), c(d[62]), c(d[63]), c(d[64]), c(d[65]), c(d[66]), \
    c(d[67]), c(d[68]), c(d[69]), c(d[70]), c(d[71]), c(d[72]), c(d[73]), c(d[74]), c(d[75]), c(d[76]), c(d[77]), \
    c(d[78]), c(d[79])
#define TRACEA_WGMMA_R160 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, " \
    "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
TRACEA_WGMMA_FLOAT(160, TRACEA_WGMMA_D160, TRACEA_WGMMA_R160, "%80", "%81", "%82", "%83", "%84")
TRACEA_WGMMA_INT(160, TRACEA_WGMMA_D160, TRACEA_WGMMA_R160, "%80", "%81", "%82")
#undef TRACEA_WGMMA_D160
#undef TRACEA_WGMMA_R160

// n = 192: 96 registers
#define TRACEA_WGMMA_D192(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31]), c(d[32]), c(d[33]), \
    c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39]), c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), \
    c(d[45]), c(d[46]), c(d[47]), c(d[48]), c(d[49]), c(d[50]), c(d[51]), c(d[52]), c(d[53]), c(d[54]), c(d[55]), \
    c(d[56]), c(d[57]), c(d[58]), c(d[59]), c(d[60]), c(d[61]), c(d[62]), c(d[63]), c(d[64]), c(d[65]), c(d[66]), \
    c(d[67]), c(d[68]), c(d[69]), c(d[70]), c(d[71]), c(d[72]), c(d[73]), c(d[74]), c(d[75]), c(d[76]), c(d[77]), \
    c(d[78]), c(d[79]), c(d[80]), c(d[81]), c(d[82]), c(d[83]), c(d[84]), c(d[85]), c(d[86]), c(d[87]), c(d[88]), \
    c(d[89]), c(d[90]), c(d[91]), c(d[92]), c(d[93]), c(d[94]), c(d[95])
#define TRACEA_WGMMA_R192 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, " \
    "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, " \
    "%90, %91, %92, %93, %94, %95"
TRACEA_WGMMA_FLOAT(192, TRACEA_WGMMA_D192, TRACEA_WGMMA_R192, "%96", "%97", "%98", "%99", "%100")
TRACEA_WGMMA_INT(192, TRACEA_WGMMA_D192, TRACEA_WGMMA_R192, "%96", "%97", "%98")
#undef TRACEA_WGMMA_D192
#undef TRACEA_WGMMA_R192

// n = 224: 112 registers
#define TRACEA_WGMMA_D224(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31]), c(d[32]), c(d[33]), \
    c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39]), c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), \
    c(d[45]), c(d[46]), c(d[47]), c(d[48]), c(d[49]), c(d[50]), c(d[51]), c(d[52]), c(d[53]), c(d[54]), c(d[55]), \
    c(d[56]), c(d[57]), c(d[58]), c(d[59]), c(d[60]), c(d[61]), c(d[62]), c(d[63]), c(d[64]), c(d[65]), c(d[66]), \
    c(d[67]), c(d[68]), c(d[69]), c(d[70]), c(d[71]), c(d[72]), c(d[73]), c(d[74]), c(d[75]), c(d[76]), c(d[77]), \
    c(d[78]), c(d[79]), c(d[80]), c(d[81]), c(d[82]), c(d[83]), c(d[84]), c(d[85]), c(d[86]), c(d[87]), c(d[88]), \
    c(d[89]), c(d[90]), c(d[91]), c(d[92]), c(d[93]), c(d[94]), c(d[95]), c(d[96]), c(d[97]), c(d[98]), c(d[99]), \
    c(d[100]), c(d[101]), c(d[102]), c(d[103]), c(d[104]), c(d[105]), c(d[106]), c(d[107]), c(d[108]), c(d[109]), \
    c(d[110]), c(d[111])
#define TRACEA_WGMMA_R224 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, " \
    "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, " \
    "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, " \
    "%110, %111"
TRACEA_WGMMA_FLOAT(224, TRACEA_WGMMA_D224, TRACEA_WGMMA_R224, "%112", "%113", "%114", "%115", "%116")
TRACEA_WGMMA_INT(224, TRACEA_WGMMA_D224, TRACEA_WGMMA_R224, "%112", "%113", "%114")
#undef TRACEA_WGMMA_D224
#undef TRACEA_WGMMA_R224

// n = 256: 128 registers
#define TRACEA_WGMMA_D256(c) \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]), c(d[8]), c(d[9]), c(d[10]), c(d[11]), \
    c(d[12]), c(d[13]), c(d[14]), c(d[15]), c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), \
    c(d[23]), c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31]), c(d[32]), c(d[33]), \
    c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39]), c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), \
    c(d[45]), c(d[46]), c(d[47]), c(d[48]), c(d[49]), c(d[50]), c(d[51]), c(d[52]), c(d[53]), c(d[54]), c(d[55]), \
    c(d[56]), c(d[57]), c(d[58]), c(d[59]), c(d[60]), c(d[61]), c(d[62]), c(d[63]), c(d[64]), c(d[65]), c(d[66]), \
    c(d[67]), c(d[68]), c(d[69]), c(d[70]), c(d[71]), c(d[72]), c(d[73]), c(d[74]), c(d[75]), c(d[76]), c(d[77]), \
    c(d[78]), c(d[79]), c(d[80]), c(d[81]), c(d[82]), c(d[83]), c(d[84]), c(d[85]), c(d[86]), c(d[87]), c(d[88]), \
    c(d[89]), c(d[90]), c(d[91]), c(d[92]), c(d[93]), c(d[94]), c(d[95]), c(d[96]), c(d[97]), c(d[98]), c(d[99]), \
    c(d[100]), c(d[101]), c(d[102]), c(d[103]), c(d[104]), c(d[105]), c(d[106]), c(d[107]), c(d[108]), c(d[109]), \
    c(d[110]), c(d[111]), c(d[112]), c(d[113]), c(d[114]), c(d[115]), c(d[116]), c(d[117]), c(d[118]), c(d[119]), \
    c(d[120]), c(d[121]), c(d[122]), c(d[123]), c(d[124]), c(d[125]), c(d[126]), c(d[127])
#define TRACEA_WGMMA_R256 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, " \
    "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, " \
    "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, " \
    "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
TRACEA_WGMMA_FLOAT(256, TRACEA_WGMMA_D256, TRACEA_WGMMA_R256, "%128", "%129", "%130", "%131", "%132")
TRACEA_WGMMA_INT(256, TRACEA_WGMMA_D256, TRACEA_WGMMA_R256, "%128", "%129", "%130")
#undef TRACEA_WGMMA_D256
#undef TRACEA_WGMMA_R256

#undef TRACEA_WGMMA_TEXT
#undef TRACEA_WGMMA_FLOAT
#undef TRACEA_WGMMA_INT

}  // namespace detail
}  // namespace tracea

#endif
