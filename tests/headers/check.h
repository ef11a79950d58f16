// Checks of the header drivers: the first failure ends the process with its numbers.
#ifndef TRACEA_TESTS_CHECK_H
#define TRACEA_TESTS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition, ...)                                                     \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);       \
            fprintf(stderr, __VA_ARGS__);                                         \
            fprintf(stderr, "\n");                                                \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

// A small reproducible generator: values in [-1, 1).
struct Random {
    uint64_t state;
    uint32_t bits() {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<uint32_t>(state >> 33);
    }
    double value() { return bits() / 1073741824.0 - 1.0; }
    int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
};

#endif
