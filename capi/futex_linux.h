/* Sleeping on a word in memory until another thread, or another process that maps the word, wakes the sleeper. */
#ifndef PYFEED_FUTEX_H
#define PYFEED_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Who may wake a sleeper. Calls for threads of one process are faster. */
enum { PFI_FUTEX_THREADS = FUTEX_PRIVATE_FLAG, PFI_FUTEX_PROCESSES = 0 };

/* Sleeps while the word has that value, until `until` on the monotonic clock, in ns; 0: for ever. Returns 0 if it was
 * woken, else the errno: EAGAIN (the word has another value), EINTR (a signal came) or ETIMEDOUT. */
static inline int pfi_futex_wait(uint32_t *word, uint32_t value, int64_t until, int by) {
    struct timespec t = {until / 1000000000LL, until % 1000000000LL};
    long r = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | by, value, until ? &t : NULL, NULL,
                     FUTEX_BITSET_MATCH_ANY);
    return r == 0 ? 0 : errno;
}

/* Wakes up to n sleepers. */
static inline void pfi_futex_wake(uint32_t *word, int n, int by) {
    syscall(SYS_futex, word, FUTEX_WAKE | by, n, NULL, NULL, 0);
}

#endif
