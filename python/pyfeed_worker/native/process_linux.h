/* How a worker finds out that its trainer has ended. */
#ifndef PFW_PROCESS_H
#define PFW_PROCESS_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns the start time of a process, in ticks since the system started; 0 if it is not visible or the process has
 * ended. The time is that of the main thread: the emulator qemu-user shows a process another start time in its own
 * /proc/PID/stat than it shows to all others. */
static inline uint64_t process_started(int64_t pid) {
    char path[60], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/task/%lld/stat", (long long)pid, (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    char *at = strrchr(text, ')'); /* the process name before it may contain any character */
    if (!at || strncmp(at, ") Z", 3) == 0 || strncmp(at, ") X", 3) == 0) return 0;
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* Returns a number of the space that pids are of, or 0. */
static inline uint64_t pid_namespace(void) {
    struct stat s;
    return stat("/proc/self/ns/pid", &s) == 0 ? (uint64_t)s.st_ino : 0;
}

/* Returns a descriptor that becomes readable for poll() when the process ends, or -1 and an errno: ENOSYS if the system has
 * none. */
static inline int process_descriptor(int64_t pid) {
#if defined(SYS_pidfd_open) && !defined(PFW_NO_PIDFD) /* a test defines PFW_NO_PIDFD */
    return (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
#else
    (void)pid;
    errno = ENOSYS;
    return -1;
#endif
}

/* Returns a descriptor for an event between two threads, or -1 and an errno. */
static inline int event_descriptor(void) { return eventfd(0, EFD_CLOEXEC); }

/* Makes the descriptor readable for poll(). */
static inline void event_set(int fd) {
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR);
}

#endif
