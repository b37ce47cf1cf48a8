/* A clock that another process steps, for the programs that are started with this library (LD_PRELOAD).
 *
 * STEPPED_CLOCK names a file of eight bytes: the seconds that are added to the time of the machine. libfaketime
 * can do more, and cannot do this: after a step its clock_nanosleep() fails, which is time.sleep() in Python.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none = 0;
static const volatile int64_t *offset = &none;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("STEPPED_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *shared = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);

    if (shared == MAP_FAILED)
        abort(); /* a clock that does not step proves nothing */
    close(file);
    offset = shared;
}

int clock_gettime(clockid_t which, struct timespec *found)
{
    int failed = (int)syscall(SYS_clock_gettime, which, found);

    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        found->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *found = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *found)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (found != NULL)
        *found = now.tv_sec;
    return now.tv_sec;
}

/* mongod waits until an instant of either clock, which it has read above; the system knows no offset. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    struct timespec end = *until;

    if (end.tv_sec < 1000000000) /* seconds since the boot */
        return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &end);
    end.tv_sec -= *offset;
    return pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, &end);
}
