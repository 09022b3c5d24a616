/* How a thread sleeps: outside Go, so that it occupies nothing there and a signal reaches it. */
#define _GNU_SOURCE
#include "wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pause.h"

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

/* A wake-up through the kernel costs several microseconds: a partner that is about to come is worth looking out
 * for first, but not for longer than that, and not each time if it was in vain lately. */
enum { LOOK_NS = 2000, MOST_PASSED = 63 };
static unsigned passed,
    to_pass; /* sleeps since one was in vain, and how many there are to be; only roughly */

static int look_out(const uint32_t *word) {
    unsigned pass = __atomic_load_n(&to_pass, __ATOMIC_RELAXED);
    if (__atomic_fetch_add(&passed, 1, __ATOMIC_RELAXED) < pass) return 0;
    int there = 0;
    int64_t until = now() + LOOK_NS; /* how long a pause is depends on the processor */
    do {
        for (int i = 0; i < 16 && !there; i++) {
            pause_briefly();
            there = __atomic_load_n(word, __ATOMIC_ACQUIRE) == 1;
        }
    } while (!there && now() < until);
    pass = there ? 0 : pass < MOST_PASSED ? 2 * pass + 1 : MOST_PASSED;
    __atomic_store_n(&to_pass, pass, __ATOMIC_RELAXED);
    __atomic_store_n(&passed, 0, __ATOMIC_RELAXED);
    return there;
}

/* Those that sleep and poll, for pf_poll_now. */
typedef struct sleeper {
    uint32_t *word;
    struct sleeper *prev, *next;
} sleeper;

static pthread_mutex_t sleepers_lock = PTHREAD_MUTEX_INITIALIZER;
static sleeper *sleepers;

static void sleeper_enter(sleeper *s) {
    pthread_mutex_lock(&sleepers_lock);
    s->next = sleepers;
    if (s->next) s->next->prev = s;
    sleepers = s;
    pthread_mutex_unlock(&sleepers_lock);
}

static void sleeper_leave(sleeper *s) {
    pthread_mutex_lock(&sleepers_lock);
    if (s->prev)
        s->prev->next = s->next;
    else
        sleepers = s->next;
    if (s->next) s->next->prev = s->prev;
    pthread_mutex_unlock(&sleepers_lock);
}

static int swap_if(uint32_t *word, uint32_t was, uint32_t value) {
    return __atomic_compare_exchange_n(word, &was, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void pfi_poll_sleepers(void) {
    pthread_mutex_lock(&sleepers_lock);
    for (sleeper *s = sleepers; s; s = s->next)
        if (swap_if(s->word, 2, 3)) syscall(SYS_futex, s->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    pthread_mutex_unlock(&sleepers_lock);
}

/* Whether the poll function wants the wait to end; sets whether it wants to hear of the time. */
static int polled(pfi_waiter *w, int *quietly) {
    int answer = w->wait.poll(w->wait.poll_context);
    *quietly = answer == PF_POLL_QUIETLY;
    return answer && !*quietly;
}

static void sleep_on(pfi_waiter *w, pfi_call *call) {
    int64_t interval = (w->wait.poll_interval_ms ? w->wait.poll_interval_ms : 100) * 1000000LL;
    int64_t next_poll = w->wait.poll ? now() + interval : 0;
    for (;;) {
        int64_t until = w->deadline;
        if (next_poll && (!until || next_poll < until)) until = next_poll;
        struct timespec t = {until / 1000000000LL, until % 1000000000LL};
        long r = syscall(SYS_futex, &call->word, FUTEX_WAIT_BITSET_PRIVATE, 2, until ? &t : NULL, NULL,
                         FUTEX_BITSET_MATCH_ANY);
        int told = r != 0 && errno == EINTR;
        told |= swap_if(&call->word, 3, 2);
        if (__atomic_load_n(&call->word, __ATOMIC_ACQUIRE) == 1) return;
        int64_t at = until || told ? now() : 0;
        if (w->wait.poll && (told || (next_poll && at >= next_poll))) {
            int quietly;
            if (polled(w, &quietly)) {
                call->phase = PFI_STOPPED;
                return;
            }
            next_poll = quietly ? 0 : now() + interval;
        }
        if (w->deadline && at >= w->deadline) {
            call->phase = PFI_TIMED_OUT;
            return;
        }
    }
}

void pfi_sleep(pfi_waiter *w, pfi_call *call) {
    call->phase = PFI_AGAIN;
    if (look_out(&call->word)) return;
    if (!swap_if(&call->word, 0, 2)) return;
    sleeper s = {&call->word, NULL, NULL};
    if (w->wait.poll) sleeper_enter(&s);
    sleep_on(w, call);
    if (w->wait.poll) sleeper_leave(&s);
}

void pfi_look(pfi_waiter *w, pfi_call *call) {
    int quietly;
    if (w->wait.poll && polled(w, &quietly))
        call->phase = PFI_STOPPED;
    else if (w->deadline && now() >= w->deadline)
        call->phase = PFI_TIMED_OUT;
}
