/* How a C thread sleeps: outside Go, so that it occupies no thread or processor of Go and signals reach it. Also cancel
 * tokens. */
#define _GNU_SOURCE
#include "wait.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "futex_linux.h"
#include "guard.h"

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static uint32_t poll_requests; /* the number of calls of pf_poll_now */

static void set_next_poll(pfi_waiter *w, int64_t at) {
    w->next_poll = at + (w->wait.poll_interval_ms ? w->wait.poll_interval_ms : 100) * 1000000LL;
}

pfi_waiter pfi_waiter_begin(const pf_wait *wait) {
    pf_wait all = PF_WAIT_INIT;
    if (wait) pfi_copy_struct(&all, wait);
    pfi_waiter w = {.wait = all, .poll_requests = __atomic_load_n(&poll_requests, __ATOMIC_ACQUIRE)};
    if (all.timeout_ns <= 0 && !all.poll) return w;
    int64_t at = now();
    if (all.timeout_ns > 0 && all.timeout_ns < INT64_MAX - at) w.deadline = at + all.timeout_ns;
    if (all.poll) set_next_poll(&w, at);
    /* A pf_poll_now may have come before this wait began, and no periodic poll would make up for it. So the first check
     * polls. */
    if (all.poll_interval_ms == UINT32_MAX) w.poll_requests--;
    return w;
}

/* The threads that sleep with a poll function, for pf_poll_now. */
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

/* Calls the poll function. Returns whether that ends the wait. */
static int poll_cancels(pfi_waiter *w, pfi_call *call) {
    w->poll_requests = __atomic_load_n(&poll_requests, __ATOMIC_ACQUIRE);
    int result = w->wait.poll(w->wait.poll_context);
    w->signals_only = result == PF_POLL_SIGNALS_ONLY;
    if (result && !w->signals_only) {
        call->phase = PFI_CANCELLED;
        return 1;
    }
    set_next_poll(w, now());
    return 0;
}

static int awake(const pfi_call *call) { return __atomic_load_n(&call->word, __ATOMIC_ACQUIRE) == 1; }

/* Polls if a poll is due or a signal has come, and checks the deadline. Returns whether the wait is over. A call that
 * is awake polls periodically even if its poll function disabled that, because a signal that came while it computed has
 * interrupted no sleep. A call that is awake after its deadline tries once more. */
static int wait_is_over(pfi_waiter *w, pfi_call *call, int signalled) {
    int64_t at = w->deadline || w->wait.poll ? now() : 0;
    if (w->wait.poll) {
        signalled |= __atomic_load_n(&poll_requests, __ATOMIC_ACQUIRE) != w->poll_requests;
        int due = at >= w->next_poll && (!w->signals_only || awake(call));
        if ((signalled || due) && poll_cancels(w, call)) return 1;
    }
    if (!w->deadline || at < w->deadline) return 0;
    if (awake(call) && !w->last_attempt) {
        w->last_attempt = 1;
        return 0;
    }
    call->phase = PFI_TIMED_OUT;
    return 1;
}

static void futex_sleep(pfi_waiter *w, pfi_call *call) {
    int signalled = 0;
    while (!wait_is_over(w, call, signalled) && !awake(call)) {
        int64_t until = w->deadline;
        if (w->wait.poll && !w->signals_only && (!until || w->next_poll < until)) until = w->next_poll;
        signalled = pfi_futex_wait(&call->word, 2, until, PFI_FUTEX_THREADS) == EINTR;
        signalled |= swap_if(&call->word, 3, 2);
    }
}

void pfi_sleep(pfi_waiter *w, pfi_call *call) {
    call->phase = PFI_AGAIN;
    if (!swap_if(&call->word, 0, 2)) {
        wait_is_over(w, call, 0);
        return;
    }
    sleeper s = {&call->word, NULL, NULL};
    if (w->wait.poll) sleeper_enter(&s);
    futex_sleep(w, call);
    if (w->wait.poll) sleeper_leave(&s);
}

void pfi_check_wait(pfi_waiter *w, pfi_call *call) {
    if (w->wait.poll && poll_cancels(w, call)) return;
    if (w->deadline && now() >= w->deadline) call->phase = PFI_TIMED_OUT;
}

pf_status pf_poll_now(pf_error *err) {
    CHECK_ALIVE(err);
    __atomic_fetch_add(&poll_requests, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&sleepers_lock);
    for (sleeper *s = sleepers; s; s = s->next)
        if (swap_if(s->word, 2, 3)) pfi_futex_wake(s->word, 1, PFI_FUTEX_THREADS);
    pthread_mutex_unlock(&sleepers_lock);
    return PF_OK;
}

pf_status pf_cancel_token_create(pf_handle *token, pf_error *err) {
    ZERO(token);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(token, err);
    return pfgo_cancel_token_create(token, err);
}

pf_status pf_cancel_token_cancel(pf_handle token, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_cancel_token_cancel(token, err);
}
