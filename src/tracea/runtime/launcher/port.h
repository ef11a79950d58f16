// Library ports: torch's exported C shim, called with tensors made from our addresses.
#ifndef TRACEA_LAUNCHER_PORT_H
#define TRACEA_LAUNCHER_PORT_H

#include <stdint.h>

namespace tracea_launcher {

constexpr int32_t port_operands = 4;
constexpr int32_t port_rank = 8;

// How torch is to see the memory behind one slot.
struct Blob {
    int32_t dtype;
    int32_t rank;
    int64_t sizes[port_rank];
    int64_t strides[port_rank];  // elements
};

// How many operands a function takes, the output first; -1 for no such function.
int32_t port_arity(int32_t function);
// Finds the functions in the torch that is loaded; false where torch is not, or does not export them.
bool resolve_port(int32_t function);
// Runs a function on the calling thread; 0 is success.
int32_t call_port(int32_t function, void* const* pointers, const Blob* blobs, const double* scalars);

}  // namespace tracea_launcher

#endif
