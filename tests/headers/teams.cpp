// Barriers and task loops under several threads: every task once, every write before a barrier seen after it, slots reused without clearing.
#include <string.h>

#include <thread>
#include <vector>

#include "check.h"
#include "tracea/team.h"

using namespace tracea;

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 200;
    for (int size = 1; size <= 4; ++size) {
        tracea_team team;
        memset(&team, 0, sizeof team);
        team.size = size;
        tracea_call call;
        memset(&call, 0, sizeof call);
        call.team = &team;
        constexpr int64_t tasks = 37;
        std::vector<int64_t> first(tasks);
        std::vector<int64_t> second(tasks);
        std::vector<int64_t> third(tasks);
        tracea_call backward = call;
        backward.backward = 1;
        const auto kernel = [&](int32_t rank) {
            for (int64_t round = 1; round <= rounds; ++round) {
                for (TaskLoop loop(&call, rank, 0, tasks); loop.next();) first[loop.task()] += 1;
                for (StaticLoop loop(&call, rank, tasks); loop.next();) third[loop.task()] += 1;
                int64_t before = tasks;
                for (StaticLoop loop(&backward, rank, tasks); loop.next(); before = loop.task()) {
                    CHECK(third[loop.task()] == 2 * round - 1, "another range than forwards, or a task twice");
                    CHECK(loop.task() < before, "task %ld after task %ld", static_cast<long>(loop.task()), static_cast<long>(before));
                    third[loop.task()] += 1;
                }
                team_barrier(&call, rank);
                for (TaskLoop loop(&call, rank, 1, tasks); loop.next();) {
                    CHECK(first[tasks - 1 - loop.task()] == round, "a write before the barrier was not seen");
                    second[loop.task()] += first[tasks - 1 - loop.task()];
                }
                for (TaskLoop loop(&call, rank, 2, 0); loop.next();) CHECK(false, "a task of an empty loop");
                team_barrier(&call, rank);
            }
        };
        std::vector<std::thread> threads;
        for (int rank = 1; rank < size; ++rank) threads.emplace_back(kernel, rank);
        kernel(0);
        for (std::thread& thread : threads) thread.join();
        for (int64_t i = 0; i < tasks; ++i) {
            CHECK(first[i] == rounds && third[i] == 2 * rounds, "task %ld ran %ld times in %d rounds", static_cast<long>(i), static_cast<long>(first[i]), rounds);
            CHECK(second[i] == static_cast<int64_t>(rounds) * (rounds + 1) / 2, "task %ld of the second loop", static_cast<long>(i));
        }
        for (const tracea_counter& counter : team.tasks) CHECK(counter.value == 0, "a counter was left at %ld", static_cast<long>(counter.value));
    }
    return 0;
}
