// Work sharing inside a team function: barrier, dynamic task loop, static task loop.
//
// A team of one thread executes no atomic instruction. Tasks of one loop write disjoint outputs, so the dynamic loop does not change a bit of the result.
//
//   for (TaskLoop loop(call, rank, 0, row_blocks); loop.next();) compute(loop.task());
//   team_barrier(call, rank);
//
// Slots: a dynamic loop names one of TRACEA_TASK_SLOTS counters. All threads pass the same sequence of loops, every loop is drained (next() returned
// false to every thread), and between two loops that use the same slot lies a team_barrier. No barrier is needed between loops of different slots, and
// none to reset a counter: the last thread to leave a loop finds it exhausted by everybody and clears it.
#ifndef TRACEA_TEAM_H
#define TRACEA_TEAM_H

#include <sched.h>
#include <stdint.h>

#include "tracea/abi.h"
#include "tracea/config.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

TRACEA_BEGIN_NAMESPACE

namespace detail {

TRACEA_INLINE void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

TRACEA_INLINE int32_t* generation_word(tracea_team* team) {
    return reinterpret_cast<int32_t*>(&team->generation.value);
}

// About 50 us of spinning (the other thread is nearly done), then a few yields (the machine is busy), then sleep until woken, which takes up to 1 ms in a
// virtual machine (benchmarks/NOTES.md).
TRACEA_NOINLINE inline void wait_for_generation(tracea_team* team, int32_t seen) {
    constexpr int spins = 2000;
    constexpr int yields = 8;
    int32_t* word = generation_word(team);
    for (int i = 0; i < spins; ++i) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen) return;
        spin_pause();
    }
    for (int i = 0; i < yields; ++i) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen) return;
        sched_yield();
    }
#if defined(__linux__)
    // Sequentially consistent against the releasing thread: either it sees this sleeper and wakes it, or the futex sees the new generation.
    __atomic_add_fetch(&team->sleeping.value, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    __atomic_sub_fetch(&team->sleeping.value, 1, __ATOMIC_SEQ_CST);
#else
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == seen) sched_yield();
#endif
}

TRACEA_NOINLINE inline void team_barrier_shared(tracea_team* team) {
    int32_t* word = generation_word(team);
    const int32_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&team->arrived.value, 1, __ATOMIC_ACQ_REL) < team->size) {
        wait_for_generation(team, seen);
        return;
    }
    __atomic_store_n(&team->arrived.value, 0, __ATOMIC_RELAXED);
    __atomic_store_n(word, static_cast<int32_t>(static_cast<uint32_t>(seen) + 1U), __ATOMIC_SEQ_CST);
#if defined(__linux__)
    if (__atomic_load_n(&team->sleeping.value, __ATOMIC_SEQ_CST) > 0)
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, team->size, nullptr, nullptr, 0);
#endif
}

}  // namespace detail

// Returns after every thread of the team has called it; writes before it are visible after it.
TRACEA_INLINE void team_barrier(const tracea_call* call, int32_t rank) {
    (void)rank;
    if (call->team->size > 1) detail::team_barrier_shared(call->team);
}

// Hands out tasks 0 .. tasks-1, each once: the first half of the team draws from the front, the others from the back, until they meet. So but for the
// middle a thread has the same tasks in every run, and in the next loop those that lie where its own did: it finds in its caches what it wrote.
class TaskLoop {
public:
    TRACEA_INLINE TaskLoop(const tracea_call* call, int32_t rank, int slot, int64_t tasks)
        : counter_(call->team->size > 1 ? &call->team->tasks[slot].value : nullptr),
          tasks_(tasks),
          size_(call->team->size),
          from_back_(2 * rank >= call->team->size && tasks <= most_from_both_ends) {}
    TaskLoop(const TaskLoop&) = delete;
    TaskLoop& operator=(const TaskLoop&) = delete;

    // Moves to the next task; false when none is left, after which it is not called again.
    TRACEA_INLINE bool next() {
        if (counter_ == nullptr) return ++task_ < tasks_;
        // The low half of the counter counts draws from the front, the high half those from the back.
        const int64_t before = __atomic_fetch_add(counter_, from_back_ ? one_from_back : 1, __ATOMIC_ACQ_REL);
        const int64_t back = tasks_ <= most_from_both_ends ? before / one_from_back : 0;
        const int64_t front = before - back * one_from_back;
        if (front + back < tasks_) {
            task_ = from_back_ ? tasks_ - 1 - back : front;
            return true;
        }
        // Each thread draws exactly one number past the end, so this one is the last draw of the loop.
        if (front + back == tasks_ + size_ - 1) __atomic_store_n(counter_, 0, __ATOMIC_RELEASE);
        return false;
    }
    TRACEA_INLINE int64_t task() const { return task_; }

private:
    static constexpr int64_t one_from_back = int64_t{1} << 32;
    static constexpr int64_t most_from_both_ends = one_from_back / 4;
    int64_t* counter_;
    int64_t tasks_;
    int64_t size_;
    bool from_back_;
    int64_t task_ = -1;
};

// Hands each thread one contiguous range of the tasks; the same on every run, and no shared state. With call->backward a thread walks its range from the
// end. Of data that exceed a cache, a walk that always begins at the front finds nothing: what it needs first is what it lost first. One that
// comes back begins with what the last one left there.
class StaticLoop {
public:
    TRACEA_INLINE StaticLoop(const tracea_call* call, int32_t rank, int64_t tasks)
        : first_(tasks * rank / call->team->size),
          count_(tasks * (rank + 1) / call->team->size - first_),
          start_(call->backward != 0 ? first_ + count_ - 1 : first_),
          step_(call->backward != 0 ? -1 : 1) {}

    TRACEA_INLINE bool next() { return ++walked_ < count_; }
    TRACEA_INLINE int64_t task() const { return start_ + step_ * walked_; }

private:
    int64_t first_;
    int64_t count_;
    int64_t start_;
    int64_t step_;
    int64_t walked_ = -1;
};

// This thread's part of the per-thread scratch.
TRACEA_INLINE char* thread_scratch(const tracea_call* call, int32_t rank) {
    return call->thread_scratch + rank * call->thread_scratch_bytes;
}

TRACEA_END_NAMESPACE

#endif
