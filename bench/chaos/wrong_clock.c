/* A wall clock that is wrong by as many nanoseconds as the file $ARRIERO_CHAOS_CLOCK says (8 bytes).
   Preloaded into the daemons; the monotonic clock stays right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *wrong_by;
static int (*right)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ARRIERO_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    right = dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *wrong_by, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) wrong_by = page;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!right) right = dlsym(RTLD_NEXT, "clock_gettime");
    int result = right(id, now);
    if (result == 0 && wrong_by && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t nanoseconds = now->tv_nsec + *wrong_by % 1000000000;
        int64_t seconds = now->tv_sec + *wrong_by / 1000000000;
        if (nanoseconds < 0) { nanoseconds += 1000000000; seconds -= 1; }
        if (nanoseconds >= 1000000000) { nanoseconds -= 1000000000; seconds += 1; }
        now->tv_sec = seconds;
        now->tv_nsec = nanoseconds;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
