// Runs one kernel of this unit on memory that it reads from standard input, and writes that memory back. What comes before this text: the kernels, and
// `tracea_test_kernels`, which lists them.
//
// Request, 64-bit integers: kernel, threads, count of integers, count of pointers, bytes of team scratch, bytes of a thread's scratch, whether tasks are
// walked from the last one; the integers; for each pointer the bytes of its block; then the blocks. A kernel's pointer is `margin` bytes into its block.
// Answer: the blocks.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thread>
#include <vector>

#include "tracea/abi.h"

namespace {

constexpr int64_t margin = 256;

void require(bool holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "driver: %s\n", what);
    exit(2);
}

void read_exactly(void* to, int64_t bytes) { require(fread(to, 1, static_cast<size_t>(bytes), stdin) == static_cast<size_t>(bytes), "the request is cut short"); }

std::vector<int64_t> read_integers(int64_t count) {
    std::vector<int64_t> values(static_cast<size_t>(count));
    read_exactly(values.data(), count * 8);
    return values;
}

char* allocate(int64_t bytes) {
    const size_t rounded = (static_cast<size_t>(bytes) + 127) / 64 * 64;
    char* memory = static_cast<char*>(aligned_alloc(64, rounded));
    require(memory != nullptr, "out of memory");
    memset(memory, 0xFF, rounded);  // NaN in every float type
    return memory;
}

}  // namespace

int main() {
    const std::vector<int64_t> head = read_integers(7);
    const tracea_kernel kernel = tracea_test_kernels[head[0]];
    const int32_t threads = static_cast<int32_t>(head[1]);
    const std::vector<int64_t> integers = read_integers(head[2]);
    const std::vector<int64_t> sizes = read_integers(head[3]);
    std::vector<char*> blocks;
    std::vector<void*> pointers;
    for (const int64_t bytes : sizes) {
        blocks.push_back(allocate(bytes));
        read_exactly(blocks.back(), bytes);
        pointers.push_back(blocks.back() + margin);
    }

    tracea_team team;
    memset(&team, 0, sizeof team);
    team.size = threads;
    const tracea_call call = {pointers.data(), integers.data(), nullptr, allocate(head[4]), allocate(head[5] * threads), head[5], &team, head[6]};
    std::vector<std::thread> others;
    for (int32_t rank = 1; rank < threads; ++rank) others.emplace_back([&call, kernel, rank] { kernel(&call, rank); });
    kernel(&call, 0);
    for (std::thread& other : others) other.join();

    for (size_t i = 0; i < blocks.size(); ++i) {
        require(fwrite(blocks[i], 1, static_cast<size_t>(sizes[i]), stdout) == static_cast<size_t>(sizes[i]), "the answer was not taken");
    }
    return 0;
}
