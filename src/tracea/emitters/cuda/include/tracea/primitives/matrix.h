// ldmatrix, stmatrix and mma.sync: collectives of the 32 lanes of a warp. Where each lane's registers lie is in semantic/lane_map.py.
#ifndef TRACEA_PRIMITIVES_MATRIX_H
#define TRACEA_PRIMITIVES_MATRIX_H

#include "tracea/primitives/config.h"
#include "tracea/primitives/types.h"

namespace tracea {

// ---- ldmatrix: PTX ISA 9.0, 9.7.14 ldmatrix; sm_75 ------------------------------------------------------------------------------------------------
// Lane 8i + j gives the address of row j, 16 bytes, of matrix i; register i of each lane holds its pair of matrix i. Addresses of lanes beyond the
// matrices are not read, but must be valid on sm_75.
TRACEA_DEVICE void ldmatrix_x1(uint32_t (&r)[1], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
}
TRACEA_DEVICE void ldmatrix_x2(uint32_t (&r)[2], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}
TRACEA_DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
TRACEA_DEVICE void ldmatrix_x1_trans(uint32_t (&r)[1], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
}
TRACEA_DEVICE void ldmatrix_x2_trans(uint32_t (&r)[2], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(address)
                 : "memory");
}
TRACEA_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

#if TRACEA_SM >= 90
// ---- stmatrix: PTX ISA 9.0, 9.7.14 stmatrix; sm_90 ------------------------------------------------------------------------------------------------
// The inverse of ldmatrix.
TRACEA_DEVICE void stmatrix_x1(uint32_t address, const uint32_t (&r)[1]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0]) : "memory");
}
TRACEA_DEVICE void stmatrix_x2(uint32_t address, const uint32_t (&r)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r[0]), "r"(r[1])
                 : "memory");
}
TRACEA_DEVICE void stmatrix_x4(uint32_t address, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
TRACEA_DEVICE void stmatrix_x1_trans(uint32_t address, const uint32_t (&r)[1]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0]) : "memory");
}
TRACEA_DEVICE void stmatrix_x2_trans(uint32_t address, const uint32_t (&r)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r[0]), "r"(r[1])
                 : "memory");
}
TRACEA_DEVICE void stmatrix_x4_trans(uint32_t address, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
#endif

// ---- mma.sync: PTX ISA 9.0, 9.7.14 mma ------------------------------------------------------------------------------------------------------------
// d += a·b, A row-major, B column-major. The asm is not volatile: it reads and writes registers only, and an unused product may go.

// The instruction of one shape and pair of element types, whose A has 4, 2 or 1 registers.
#define TRACEA_MMA_4_2(shape_and_types, d, a, b)                                                               \
    asm("mma.sync.aligned." shape_and_types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define TRACEA_MMA_2_1(shape_and_types, d, a, b)                                                   \
    asm("mma.sync.aligned." shape_and_types " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(b[0]))

template <class T>
TRACEA_DEVICE void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]);
template <>
TRACEA_DEVICE void mma_m16n8k8<f16>(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {  // sm_75
    TRACEA_MMA_2_1("m16n8k8.row.col.f32.f16.f16.f32", d, a, b);
}

// sm_75
TRACEA_DEVICE void mma_m8n8k16_s8(int32_t (&d)[2], const uint32_t (&a)[1], const uint32_t (&b)[1]) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(b[0]));
}

#if TRACEA_SM >= 80
template <>
TRACEA_DEVICE void mma_m16n8k8<bf16>(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {  // sm_80
    TRACEA_MMA_2_1("m16n8k8.row.col.f32.bf16.bf16.f32", d, a, b);
}

template <class T>
TRACEA_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
TRACEA_DEVICE void mma_m16n8k16<f16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {  // sm_80
    TRACEA_MMA_4_2("m16n8k16.row.col.f32.f16.f16.f32", d, a, b);
}
template <>
TRACEA_DEVICE void mma_m16n8k16<bf16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {  // sm_80
    TRACEA_MMA_4_2("m16n8k16.row.col.f32.bf16.bf16.f32", d, a, b);
}

// sm_80. Elements as round_tf32 gives them.
TRACEA_DEVICE void mma_m16n8k4_tf32(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {
    TRACEA_MMA_2_1("m16n8k4.row.col.f32.tf32.tf32.f32", d, a, b);
}
TRACEA_DEVICE void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    TRACEA_MMA_4_2("m16n8k8.row.col.f32.tf32.tf32.f32", d, a, b);
}

// sm_80
TRACEA_DEVICE void mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#if TRACEA_SM >= 89
template <class T>
TRACEA_DEVICE void mma_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
TRACEA_DEVICE void mma_m16n8k32<e4m3>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {  // sm_89
    TRACEA_MMA_4_2("m16n8k32.row.col.f32.e4m3.e4m3.f32", d, a, b);
}
template <>
TRACEA_DEVICE void mma_m16n8k32<e5m2>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {  // sm_89
    TRACEA_MMA_4_2("m16n8k32.row.col.f32.e5m2.e5m2.f32", d, a, b);
}
#endif

#undef TRACEA_MMA_4_2
#undef TRACEA_MMA_2_1

}  // namespace tracea

#endif
