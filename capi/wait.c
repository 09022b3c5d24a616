/* How a thread sleeps: outside Go, so that it occupies nothing there and a signal reaches it. */
#define _GNU_SOURCE
#include "wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

pfi_waiter pfi_waiter_begin(const pf_wait *wait) {
    pf_wait all = PF_WAIT_INIT;
    if (wait) memcpy(&all, wait, wait->size < sizeof all ? wait->size : sizeof all);
    pfi_waiter w = {all, 0};
    if (all.timeout_ns > 0 && all.timeout_ns < INT64_MAX - now()) w.deadline = now() + all.timeout_ns;
    return w;
}

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A wake-up through the kernel costs several microseconds: a partner that is about to come is
 * worth looking out for first, but not for longer than that. */
enum { LOOKS = 40 };

void pfi_sleep(pfi_waiter *w, pfi_call *call) {
    call->phase = PFI_AGAIN;
    for (int i = 0; i < LOOKS; i++) {
        if (__atomic_load_n(&call->word, __ATOMIC_ACQUIRE) == 1) return;
        pause_briefly();
    }
    uint32_t waiting = 0;
    if (!__atomic_compare_exchange_n(&call->word, &waiting, 2, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
    int64_t interval = (w->wait.poll_interval_ms ? w->wait.poll_interval_ms : 100) * 1000000LL;
    int64_t next_poll = w->wait.poll ? now() + interval : 0;
    for (;;) {
        int64_t until = w->deadline;
        if (next_poll && (!until || next_poll < until)) until = next_poll;
        struct timespec t = {until / 1000000000LL, until % 1000000000LL};
        long r = syscall(SYS_futex, &call->word, FUTEX_WAIT_BITSET_PRIVATE, 2, until ? &t : NULL, NULL,
                         FUTEX_BITSET_MATCH_ANY);
        int interrupted = r != 0 && errno == EINTR;
        if (__atomic_load_n(&call->word, __ATOMIC_ACQUIRE) == 1) return;
        int64_t at = until || interrupted ? now() : 0;
        if (w->wait.poll && (interrupted || at >= next_poll)) {
            if (w->wait.poll(w->wait.poll_context)) {
                call->phase = PFI_STOPPED;
                return;
            }
            next_poll = now() + interval;
        }
        if (w->deadline && at >= w->deadline) {
            call->phase = PFI_TIMED_OUT;
            return;
        }
    }
}

void pfi_look(pfi_waiter *w, pfi_call *call) {
    if (w->wait.poll && w->wait.poll(w->wait.poll_context))
        call->phase = PFI_STOPPED;
    else if (w->deadline && now() >= w->deadline)
        call->phase = PFI_TIMED_OUT;
}
