// mbarriers: eight bytes of shared memory that count arrivals and, from sm_90 on, bytes that have landed; a phase ends when both counts are met.
#ifndef TRACEA_PRIMITIVES_MBARRIER_H
#define TRACEA_PRIMITIVES_MBARRIER_H

#include "tracea/primitives/config.h"

#if TRACEA_SM >= 80
namespace tracea {

// PTX ISA 9.0, 9.7.13 mbarrier.init; sm_80. A phase needs `count` arrivals; address is a multiple of 8.
TRACEA_DEVICE void mbarrier_init(uint32_t address, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
}

// PTX ISA 9.0, 9.7.13 mbarrier.arrive; sm_80. Release: what this thread did before is seen by who waits for the phase.
TRACEA_DEVICE void mbarrier_arrive(uint32_t address) {
    asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(address) : "memory");
}

// PTX ISA 9.0, 9.7.13 mbarrier.test_wait (sm_80), mbarrier.try_wait (sm_90). Waits until the phase of this parity has ended; acquire. A fresh
// barrier is in phase 0, so that waiting for parity 1 passes at once.
TRACEA_DEVICE void mbarrier_wait(uint32_t address, uint32_t parity) {
#if TRACEA_SM >= 90
    asm volatile(
        "{\n\t.reg .pred done;\n\t"
        "wait:\n\t"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
        "@!done bra wait;\n\t}" ::"r"(address),
        "r"(parity)
        : "memory");
#else
    asm volatile(
        "{\n\t.reg .pred done;\n\t"
        "wait:\n\t"
        "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n\t"
        "@!done bra wait;\n\t}" ::"r"(address),
        "r"(parity)
        : "memory");
#endif
}

#if TRACEA_SM >= 90
// PTX ISA 9.0, 9.7.13 fence.mbarrier_init; sm_90. Makes initializations of this thread visible to the copy engine and the cluster.
TRACEA_DEVICE void mbarrier_fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// PTX ISA 9.0, 9.7.13 mbarrier.arrive.expect_tx; sm_90. Announces `bytes` more that the phase must see land, then arrives.
TRACEA_DEVICE void mbarrier_arrive_expect(uint32_t address, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
}
#endif

}  // namespace tracea
#endif

#endif
