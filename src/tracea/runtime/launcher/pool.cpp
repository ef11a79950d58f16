#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tracea/team.h"

namespace tracea_launcher {
namespace {

// About 10 us: what a region costs to start when its threads sleep. Longer spinning takes the core from whoever else is there.
constexpr int spins = 400;
constexpr int32_t most_workers = 1023;

struct Job {
    void (*body)(void*, int32_t);
    void* context;
    int32_t remaining;  // workers still inside; a futex word
};

struct alignas(2 * TRACEA_CACHE_LINE) Worker {
    int32_t go;  // 1: a job waits; a futex word
    int32_t rank;
    Job* job;
    Worker* next;
};

pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
Worker* idle_workers = nullptr;
int32_t count = 0;

void futex_wait(int32_t* word, int32_t seen) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0); }
void futex_wake(int32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

// Returns when *word == wanted.
void await(int32_t* word, int32_t wanted) {
    for (int i = 0; i < spins; ++i) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == wanted) return;
        tracea::detail::spin_pause();
    }
    for (int32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE); seen != wanted; seen = __atomic_load_n(word, __ATOMIC_ACQUIRE)) futex_wait(word, seen);
}

void* work(void* argument) {
    Worker* self = static_cast<Worker*>(argument);
    for (;;) {
        await(&self->go, 1);
        Job* job = self->job;
        job->body(job->context, self->rank);
        __atomic_store_n(&self->go, 0, __ATOMIC_RELAXED);
        // The job lies on the stack of rank 0, which may return after this line; the address alone is used then, and waking it is harmless.
        int32_t* remaining = &job->remaining;
        if (__atomic_sub_fetch(remaining, 1, __ATOMIC_ACQ_REL) == 0) futex_wake(remaining);
    }
}

Worker* spawn() {
    Worker* worker = nullptr;
    if (posix_memalign(reinterpret_cast<void**>(&worker), alignof(Worker), sizeof(Worker)) != 0) return nullptr;
    *worker = Worker{};
    // Signals belong to the threads of the program that called us.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    const int failed = pthread_create(&thread, &attributes, work, worker);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failed == 0) return worker;
    free(worker);
    return nullptr;
}

// Takes up to `wanted` workers, idle ones first; returns them as a list and their number.
Worker* take(int32_t wanted, int32_t* taken) {
    Worker* list = nullptr;
    *taken = 0;
    lock_pool();
    while (*taken < wanted) {
        Worker* worker = idle_workers;
        if (worker != nullptr) {
            idle_workers = worker->next;
        } else {
            worker = count < most_workers ? spawn() : nullptr;
            if (worker == nullptr) break;
            ++count;
        }
        worker->next = list;
        list = worker;
        ++*taken;
    }
    unlock_pool();
    return list;
}

}  // namespace

void lock_pool() { pthread_mutex_lock(&pool_mutex); }
void unlock_pool() { pthread_mutex_unlock(&pool_mutex); }

void reset_pool() {
    pthread_mutex_init(&pool_mutex, nullptr);
    idle_workers = nullptr;
    count = 0;
}

int64_t worker_count() {
    lock_pool();
    const int64_t workers = count;
    unlock_pool();
    return workers;
}

void pool_run(int32_t threads, void (*begin)(void*, int32_t), void (*body)(void*, int32_t), void* context) {
    int32_t taken = 0;
    Worker* workers = take(threads - 1, &taken);
    begin(context, taken + 1);
    Job job{body, context, taken};
    int32_t rank = 0;
    for (Worker* worker = workers; worker != nullptr; worker = worker->next) {
        worker->job = &job;
        worker->rank = ++rank;
        __atomic_store_n(&worker->go, 1, __ATOMIC_RELEASE);
        futex_wake(&worker->go);
    }
    body(context, 0);
    if (taken == 0) return;
    await(&job.remaining, 0);
    lock_pool();
    while (workers != nullptr) {
        Worker* next = workers->next;
        workers->next = idle_workers;
        idle_workers = workers;
        workers = next;
    }
    unlock_pool();
}

}  // namespace tracea_launcher
