/* Preloaded before libc: counts the file-system calls below one directory, and kills the process or fails the call at
 * a chosen one. What SQLite and the interpreter do is counted alike, since both call libc by name.
 *
 * fault_arm(root, kind, at): from here on; at = 0 only counts. Kinds: 0 kill before the call, 1 write half, then kill,
 * 2 this call fails with EIO, 3 the disk is full from this call on. fault_count(): calls so far, seen by the parent of
 * a fork too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { KILL, HALF, FAIL, FULL };

static char root[PATH_MAX];
static size_t root_size;
static int kind;
static long at;
static volatile long* count;

__attribute__((constructor)) static void start(void) {
    count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void fault_arm(const char* where, int what, long when) {
    root_size = strlen(where);
    memcpy(root, where, root_size + 1);
    kind = what;
    at = when;
    *count = 0;
}

long fault_count(void) { return *count; }

static int below(const char* path) {
    return root_size && strncmp(path, root, root_size) == 0 && (path[root_size] == '/' || path[root_size] == 0);
}

static int below_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!root_size || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long size = syscall(SYS_readlink, link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return below(path);
}

static int below_at(int fd, const char* path) { return path && path[0] == '/' ? below(path) : below_fd(fd); }

/* Whether the call must fail; a kill does not come back. */
static int hit(int is_ours, int needs_space) {
    if (!is_ours) return 0;
    long number = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    if (!at || number < at) return 0;
    if (kind == FULL) {
        errno = ENOSPC;
        return needs_space;
    }
    if (number > at) return 0;
    if (kind == FAIL) {
        errno = EIO;
        return 1;
    }
    if (kind == KILL) kill(getpid(), SIGKILL);
    return 0;
}

static int is_half(int is_ours) { return is_ours && at && kind == HALF && *count == at; }

#define PATH_CALL(name, needs_space, signature, call, ours)            \
    int name signature {                                               \
        int (*next) signature = (int (*) signature)dlsym(RTLD_NEXT, #name); \
        return hit(ours, needs_space) ? -1 : next call;                \
    }

#define OPEN_CALL(name, signature, call, ours)                                       \
    int name signature {                                                             \
        mode_t mode = 0;                                                             \
        if (flags & (O_CREAT | O_TMPFILE)) {                                         \
            va_list rest;                                                            \
            va_start(rest, flags);                                                   \
            mode = va_arg(rest, mode_t);                                             \
            va_end(rest);                                                            \
        }                                                                            \
        int (*next) signature = (int (*) signature)dlsym(RTLD_NEXT, #name);          \
        return hit(ours, flags & O_CREAT) ? -1 : next call;                          \
    }

OPEN_CALL(open, (const char* path, int flags, ...), (path, flags, mode), below(path))
OPEN_CALL(open64, (const char* path, int flags, ...), (path, flags, mode), below(path))
OPEN_CALL(openat, (int fd, const char* path, int flags, ...), (fd, path, flags, mode), below_at(fd, path))
OPEN_CALL(openat64, (int fd, const char* path, int flags, ...), (fd, path, flags, mode), below_at(fd, path))

PATH_CALL(mkdir, 1, (const char* path, mode_t mode), (path, mode), below(path))
PATH_CALL(mkdirat, 1, (int fd, const char* path, mode_t mode), (fd, path, mode), below_at(fd, path))
PATH_CALL(rename, 0, (const char* from, const char* to), (from, to), below(from) || below(to))
PATH_CALL(unlink, 0, (const char* path), (path), below(path))
PATH_CALL(unlinkat, 0, (int fd, const char* path, int flags), (fd, path, flags), below_at(fd, path))
PATH_CALL(rmdir, 0, (const char* path), (path), below(path))
PATH_CALL(chmod, 0, (const char* path, mode_t mode), (path, mode), below(path))
PATH_CALL(fchmod, 0, (int fd, mode_t mode), (fd, mode), below_fd(fd))
PATH_CALL(fchmodat, 0, (int fd, const char* path, mode_t mode, int flags), (fd, path, mode, flags), below_at(fd, path))
PATH_CALL(access, 0, (const char* path, int mode), (path, mode), below(path))
PATH_CALL(faccessat, 0, (int fd, const char* path, int mode, int flags), (fd, path, mode, flags), below_at(fd, path))
PATH_CALL(stat, 0, (const char* path, struct stat* out), (path, out), below(path))
PATH_CALL(stat64, 0, (const char* path, struct stat64* out), (path, out), below(path))
PATH_CALL(lstat, 0, (const char* path, struct stat* out), (path, out), below(path))
PATH_CALL(lstat64, 0, (const char* path, struct stat64* out), (path, out), below(path))
PATH_CALL(fstat, 0, (int fd, struct stat* out), (fd, out), below_fd(fd))
PATH_CALL(fstat64, 0, (int fd, struct stat64* out), (fd, out), below_fd(fd))
PATH_CALL(fstatat, 0, (int fd, const char* path, struct stat* out, int flags), (fd, path, out, flags), below_at(fd, path))
PATH_CALL(fstatat64, 0, (int fd, const char* path, struct stat64* out, int flags), (fd, path, out, flags), below_at(fd, path))
PATH_CALL(utimensat, 0, (int fd, const char* path, const struct timespec times[2], int flags), (fd, path, times, flags),
          below_at(fd, path))
PATH_CALL(flock, 0, (int fd, int operation), (fd, operation), below_fd(fd))
PATH_CALL(fsync, 1, (int fd), (fd), below_fd(fd))
PATH_CALL(fdatasync, 1, (int fd), (fd), below_fd(fd))
PATH_CALL(ftruncate, 1, (int fd, off_t size), (fd, size), below_fd(fd))
PATH_CALL(ftruncate64, 1, (int fd, off64_t size), (fd, size), below_fd(fd))
PATH_CALL(close, 0, (int fd), (fd), below_fd(fd))

#define WRITE_CALL(name, signature, full, half)                              \
    ssize_t name signature {                                                 \
        ssize_t (*next) signature = (ssize_t(*) signature)dlsym(RTLD_NEXT, #name); \
        int ours = below_fd(fd);                                             \
        if (hit(ours, 1)) return -1;                                         \
        if (is_half(ours)) {                                                 \
            next half;                                                       \
            kill(getpid(), SIGKILL);                                         \
        }                                                                    \
        return next full;                                                    \
    }

WRITE_CALL(write, (int fd, const void* data, size_t size), (fd, data, size), (fd, data, size / 2))
WRITE_CALL(pwrite, (int fd, const void* data, size_t size, off_t where), (fd, data, size, where),
           (fd, data, size / 2, where))
WRITE_CALL(pwrite64, (int fd, const void* data, size_t size, off64_t where), (fd, data, size, where),
           (fd, data, size / 2, where))

#define READ_CALL(name, signature, call)                                     \
    ssize_t name signature {                                                 \
        ssize_t (*next) signature = (ssize_t(*) signature)dlsym(RTLD_NEXT, #name); \
        return hit(below_fd(fd), 0) ? -1 : next call;                        \
    }

READ_CALL(read, (int fd, void* data, size_t size), (fd, data, size))
READ_CALL(pread, (int fd, void* data, size_t size, off_t where), (fd, data, size, where))
READ_CALL(pread64, (int fd, void* data, size_t size, off64_t where), (fd, data, size, where))
