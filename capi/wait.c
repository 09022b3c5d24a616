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

static uint32_t asked; /* how often pfi_poll_sleepers was called */

static void set_next_poll(pfi_waiter *w, int64_t at) {
    w->next_poll = at + (w->wait.poll_interval_ms ? w->wait.poll_interval_ms : 100) * 1000000LL;
}

pfi_waiter pfi_waiter_begin(const pf_wait *wait) {
    pf_wait all = PF_WAIT_INIT;
    if (wait) memcpy(&all, wait, wait->size < sizeof all ? wait->size : sizeof all);
    pfi_waiter w = {.wait = all, .asked = __atomic_load_n(&asked, __ATOMIC_ACQUIRE)};
    if (all.timeout_ns <= 0 && !all.poll) return w;
    int64_t at = now();
    if (all.timeout_ns > 0 && all.timeout_ns < INT64_MAX - at) w.deadline = at + all.timeout_ns;
    if (all.poll) set_next_poll(&w, at);
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
    __atomic_fetch_add(&asked, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&sleepers_lock);
    for (sleeper *s = sleepers; s; s = s->next)
        if (swap_if(s->word, 2, 3)) syscall(SYS_futex, s->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    pthread_mutex_unlock(&sleepers_lock);
}

/* Calls the poll function; whether it wants the wait to end. */
static int stopped(pfi_waiter *w, pfi_call *call) {
    w->asked = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);
    int answer = w->wait.poll(w->wait.poll_context);
    w->quiet = answer == PF_POLL_QUIETLY;
    if (answer && !w->quiet) {
        call->phase = PFI_STOPPED;
        return 1;
    }
    set_next_poll(w, now());
    return 0;
}

static int awake(const pfi_call *call) { return __atomic_load_n(&call->word, __ATOMIC_ACQUIRE) == 1; }

/* Polls if that is due or a signal has come, and looks at the time: whether the wait is over. A call that is awake is polled
 * by the time even if its poll function wants quiet: a signal that came while it worked has interrupted no sleep. One that is
 * awake when its time is up tries once more. */
static int over(pfi_waiter *w, pfi_call *call, int signalled) {
    int64_t at = w->deadline || w->wait.poll ? now() : 0;
    if (w->wait.poll) {
        signalled |= __atomic_load_n(&asked, __ATOMIC_ACQUIRE) != w->asked;
        int due = at >= w->next_poll && (!w->quiet || awake(call));
        if ((signalled || due) && stopped(w, call)) return 1;
    }
    if (!w->deadline || at < w->deadline) return 0;
    if (awake(call) && !w->late) {
        w->late = 1;
        return 0;
    }
    call->phase = PFI_TIMED_OUT;
    return 1;
}

static void sleep_on(pfi_waiter *w, pfi_call *call) {
    int signalled = 0;
    while (!over(w, call, signalled) && !awake(call)) {
        int64_t until = w->deadline;
        if (w->wait.poll && !w->quiet && (!until || w->next_poll < until)) until = w->next_poll;
        struct timespec t = {until / 1000000000LL, until % 1000000000LL};
        long r = syscall(SYS_futex, &call->word, FUTEX_WAIT_BITSET_PRIVATE, 2, until ? &t : NULL, NULL,
                         FUTEX_BITSET_MATCH_ANY);
        signalled = r != 0 && errno == EINTR;
        signalled |= swap_if(&call->word, 3, 2);
    }
}

void pfi_sleep(pfi_waiter *w, pfi_call *call) {
    call->phase = PFI_AGAIN;
    if (look_out(&call->word) || !swap_if(&call->word, 0, 2)) {
        over(w, call, 0);
        return;
    }
    sleeper s = {&call->word, NULL, NULL};
    if (w->wait.poll) sleeper_enter(&s);
    sleep_on(w, call);
    if (w->wait.poll) sleeper_leave(&s);
}

void pfi_look(pfi_waiter *w, pfi_call *call) {
    if (w->wait.poll && stopped(w, call)) return;
    if (w->deadline && now() >= w->deadline) call->phase = PFI_TIMED_OUT;
}
