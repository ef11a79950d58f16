// Fibers: a stack for each emulated thread, and the switch from one to another.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace tracea::emulator {

// Save the callee-saved registers on the current stack, store its pointer, and continue on another stack.
extern "C" void tracea_emulator_switch(void** from, void* to);

// Stacks of equal size, each with an inaccessible page at its end; they are kept for the next run.
class Stacks {
public:
    static constexpr size_t BYTES = 256 << 10;

    // Return the pointer from which a first switch enters `entry`; null where the system gives no memory.
    void* prepare(size_t index, void (*entry)());

    // Whether an address lies in the inaccessible page of some stack.
    bool guards(uintptr_t address) const;

private:
    static constexpr size_t CHUNK = 64;  // stacks that are mapped together
    static constexpr size_t CHUNKS = 4096;
    uint8_t* chunks_[CHUNKS] = {};
};

// While one of these lives, a fault of the running fiber ends the run with a finding instead of the process.
class Traps {
public:
    Traps();
    ~Traps();
    Traps(const Traps&) = delete;
    Traps& operator=(const Traps&) = delete;
};

}  // namespace tracea::emulator
