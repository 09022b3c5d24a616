#ifndef PYFEED_THREAD_H
#define PYFEED_THREAD_H

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Whether the calling thread is the first one of its process. */
static inline int is_first_thread(void) { return syscall(SYS_gettid) == getpid(); }

/* Returns the CPU time of a thread in nanoseconds. The thread must not end meanwhile. */
static inline long long cpu_time(unsigned long thread) {
    clockid_t clock;
    struct timespec t = {0, 0};
    if (pthread_getcpuclockid((pthread_t)thread, &clock) == 0) clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#endif
