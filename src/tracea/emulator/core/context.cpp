#include "context.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "machine.h"

#if defined(__x86_64__)
__asm__(
    ".text\n"
    ".globl tracea_emulator_switch\n"
    ".hidden tracea_emulator_switch\n"
    ".type tracea_emulator_switch,@function\n"
    "tracea_emulator_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  retq\n"
    ".size tracea_emulator_switch, .-tracea_emulator_switch\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n"
    ".globl tracea_emulator_switch\n"
    ".hidden tracea_emulator_switch\n"
    ".type tracea_emulator_switch,%function\n"
    "tracea_emulator_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size tracea_emulator_switch, .-tracea_emulator_switch\n");
#else
#error "the emulator has a context switch for x86-64 and aarch64 only"
#endif

namespace tracea::emulator {
namespace {

constexpr size_t PAGE = 64 << 10;  // the largest page size of either architecture
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

struct sigaction before[4];
stack_t stack_before;
alignas(64) uint8_t signal_stack[64 << 10];
alignas(64) uint8_t landing_stack[64 << 10];
int trapped_signal;
uintptr_t trapped_address;

[[noreturn]] void land() { machine.trap(trapped_signal, trapped_address); }

// Leave the faulting fiber for good: execution resumes in `land`, on a stack of its own.
void redirect(ucontext_t* context) {
    const uintptr_t top = reinterpret_cast<uintptr_t>(landing_stack + sizeof landing_stack) - 64;
#if defined(__x86_64__)
    context->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(top - 8);  // as after a call
    context->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&land);
#else
    context->uc_mcontext.sp = top;
    context->uc_mcontext.pc = reinterpret_cast<uintptr_t>(&land);
#endif
}

void on_signal(int signal, siginfo_t* info, void* context) {
    if (machine.current == nullptr) {  // not the kernel's: whoever was there before sees it again
        for (int i = 0; i < 4; ++i) {
            if (SIGNALS[i] == signal) sigaction(signal, &before[i], nullptr);
        }
        return;
    }
    trapped_signal = signal;
    trapped_address = reinterpret_cast<uintptr_t>(info->si_addr);
    redirect(static_cast<ucontext_t*>(context));
}

}  // namespace

void* Stacks::prepare(size_t index, void (*entry)()) {
    const size_t chunk = index / CHUNK;
    if (chunk >= CHUNKS) return nullptr;
    if (chunks_[chunk] == nullptr) {
        void* memory =
            mmap(nullptr, CHUNK * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return nullptr;
        chunks_[chunk] = static_cast<uint8_t*>(memory);
        for (size_t i = 0; i < CHUNK; ++i) mprotect(chunks_[chunk] + i * BYTES, PAGE, PROT_NONE);
    }
    uint8_t* end = chunks_[chunk] + (index % CHUNK + 1) * BYTES;
    // Equal offsets in all stacks would meet in one set of the first-level cache.
    void** top = reinterpret_cast<void**>(end - 64 - index % 16 * 192);
#if defined(__x86_64__)
    *--top = nullptr;  // as after a call: the stack is 8 off a multiple of 16 when `entry` begins
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
#else
    top -= 20;
    memset(top, 0, 160);
    top[11] = reinterpret_cast<void*>(entry);  // x30
#endif
    return top;
}

bool Stacks::guards(uintptr_t address) const {
    for (const uint8_t* chunk : chunks_) {
        const uintptr_t base = reinterpret_cast<uintptr_t>(chunk);
        if (chunk != nullptr && address >= base && address < base + CHUNK * BYTES)
            return (address - base) % BYTES < PAGE;
    }
    return false;
}

Traps::Traps() {
    stack_t own = {};
    own.ss_sp = signal_stack;
    own.ss_size = sizeof signal_stack;
    sigaltstack(&own, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 4; ++i) sigaction(SIGNALS[i], &action, &before[i]);
}

Traps::~Traps() {
    for (int i = 0; i < 4; ++i) sigaction(SIGNALS[i], &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
}

}  // namespace tracea::emulator
