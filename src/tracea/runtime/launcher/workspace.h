// Workspaces: what one run needs besides its operands (team, arguments, arena, scratch) in one block that is reused by later runs.
#ifndef TRACEA_LAUNCHER_WORKSPACE_H
#define TRACEA_LAUNCHER_WORKSPACE_H

#include <stdint.h>

namespace tracea_launcher {

struct Workspace {
    char* base;        // 2 MiB aligned
    int64_t capacity;  // bytes mapped
    Workspace* next;
};

// Returns a workspace of at least `bytes` that no other run has, or nullptr.
Workspace* acquire_workspace(int64_t bytes);
void release_workspace(Workspace* workspace);

void lock_workspaces();
void unlock_workspaces();
void reset_workspace_lock();  // in the child of a fork

}  // namespace tracea_launcher

#endif
