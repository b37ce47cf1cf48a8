/* Lets system calls that write fail: preloaded into a program by tools/soak/full_disk.py.

   FAIL_UNDER  only calls on files below this directory count
   FAIL_AT     the number of the first call that fails; 0: none
   FAIL_REST   1: all later ones fail as well
   FAIL_ERRNO  what they fail with
   FAIL_LOG    gets a line for each call that counts
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int calls;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

/* Whether a call on a path fails; the path is absolute. */
static int fails(const char *call, const char *path) {
    const char *under = getenv("FAIL_UNDER"), *log = getenv("FAIL_LOG");
    if (!under || strncmp(path, under, strlen(under)) != 0)
        return 0;
    int place = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    long at = number("FAIL_AT");
    int failing = at && (place == at || (place > at && number("FAIL_REST")));
    if (log) {
        char line[PATH_MAX + 100];
        int size = snprintf(line, sizeof line, "%d %s %s%s\n", place, call, path, failing ? " FAILED" : "");
        long file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (file >= 0) {
            syscall(SYS_write, file, line, size);
            syscall(SYS_close, file);
        }
    }
    if (failing)
        errno = (int)number("FAIL_ERRNO");
    return failing;
}

static int file_fails(const char *call, int file) {
    int kept = errno;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) {
        errno = kept;
        return 0;
    }
    path[size] = 0;
    if (fails(call, path))
        return 1;
    errno = kept;
    return 0;
}

static int name_fails(const char *call, int folder, const char *name) {
    char path[PATH_MAX], start[PATH_MAX] = "", link[64];
    if (name[0] != '/') {
        if (folder == AT_FDCWD)
            strcpy(link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t size = readlink(link, start, sizeof start - 1);
        if (size <= 0)
            return 0;
        start[size] = 0;
    }
    if (snprintf(path, sizeof path, "%s%s%s", start, *start ? "/" : "", name) >= (int)sizeof path)
        return 0;
    return fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPENS(name)                                                                  \
    int name(const char *path, int flags, ...) {                                     \
        va_list more;                                                                \
        va_start(more, flags);                                                       \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;      \
        va_end(more);                                                                \
        if ((flags & O_ACCMODE) != O_RDONLY && name_fails("open", AT_FDCWD, path))   \
            return -1;                                                               \
        return REAL(name)(path, flags, mode);                                        \
    }
#define OPENS_AT(name)                                                               \
    int name(int folder, const char *path, int flags, ...) {                         \
        va_list more;                                                                \
        va_start(more, flags);                                                       \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;      \
        va_end(more);                                                                \
        if ((flags & O_ACCMODE) != O_RDONLY && name_fails("open", folder, path))     \
            return -1;                                                               \
        return REAL(name)(folder, path, flags, mode);                                \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

#define ON_FILE(type, name, call, given, passed)                                     \
    type name given {                                                                \
        if (file_fails(call, file))                                                  \
            return -1;                                                               \
        return REAL(name) passed;                                                    \
    }
ON_FILE(ssize_t, write, "write", (int file, const void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, writev, "write", (int file, const struct iovec *data, int size), (file, data, size))
ON_FILE(ssize_t, pwrite, "write", (int file, const void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, pwrite64, "write", (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
ON_FILE(int, ftruncate, "truncate", (int file, off_t size), (file, size))
ON_FILE(int, ftruncate64, "truncate", (int file, off64_t size), (file, size))
ON_FILE(int, fsync, "fsync", (int file), (file))
ON_FILE(int, fdatasync, "fsync", (int file), (file))

/* A close that fails has closed the file. */
int close(int file) {
    int flags = fcntl(file, F_GETFL);
    int failing = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && file_fails("close", file);
    int kept = errno, done = REAL(close)(file);
    if (!failing)
        return done;
    errno = kept;
    return -1;
}

int rename(const char *from, const char *to) {
    return name_fails("rename", AT_FDCWD, to) ? -1 : REAL(rename)(from, to);
}
int renameat(int from, const char *name, int to, const char *other) {
    return name_fails("rename", to, other) ? -1 : REAL(renameat)(from, name, to, other);
}
int mkdir(const char *path, mode_t mode) {
    return name_fails("mkdir", AT_FDCWD, path) ? -1 : REAL(mkdir)(path, mode);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    return name_fails("mkdir", folder, path) ? -1 : REAL(mkdirat)(folder, path, mode);
}
