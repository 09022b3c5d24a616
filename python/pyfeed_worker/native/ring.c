/* The worker's side of the ring, without Go and without Python. */
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "futex_linux.h"
#include "memory_linux.h"
#include "process_linux.h"
#include "pyfeed_worker.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* capi/gather.c */
void pfi_gather(void *to, const pf_tensor *from);
int pfi_contiguous(const pf_tensor *t);

/* Tests stop the worker at these steps, to kill it there. */
#ifdef PFW_STEPS
void pfw_step(const char *name);
#define STEP(name) pfw_step(name)
#else
#define STEP(name) (void)0
#endif

/* The longest sleep where only polling tells that the trainer has died. */
enum { SLICE_MS = 20 };

enum { LEAVING = 1 << 30 };

/* Any process may write into the ring. So fields that never change are read once, into `at` and `specs`, and checked
 * there. Words that change are read into locals. No address and no loop depends on a value that was not checked. */
struct pfw_producer {
    pfw_header *h; /* the ring, for the words that change */
    size_t size;
    pfw_header at;    /* a checked copy of the header, for all other fields */
    pfw_spec *specs;  /* a checked copy, except the dtypes */
    pfw_spec *dtypes; /* the specs in the ring: the first tuple may decide a dtype */
    pfw_tensor *tensors;
    pfw_worker *workers;
    uint64_t *order, *states;
    pfw_task *tasks;
    char *data;
    size_t *populated; /* for each cell: the number of bytes that have pages in this process */

    int worker;       /* index in `workers`, or -1 */
    uint64_t pass;    /* the pass that this is, or was last, a worker of; or PF_PASS_NONE */
    uint32_t gate;    /* the gate while that pass takes tuples */
    uint32_t writing; /* the number of cells being written; LEAVING or more once the worker is ending */
    unsigned forks;   /* the value of the global `forks` at the attach */
    uint64_t number;  /* see pfw_worker */

    /* A thread that waits for the end of the trainer. */
    pthread_t watcher;
    unsigned watched;  /* the value of the global `forks` when the thread began; 0: no thread */
    int trainer, stop; /* a pidfd and an eventfd, or -1 */
    uint32_t gone;

    uint32_t poll; /* a request of pfw_poll_now */
};

#define LOAD(at) __atomic_load_n((at), __ATOMIC_SEQ_CST)
#define ADD(at, n) __atomic_add_fetch((at), (n), __ATOMIC_SEQ_CST)
#define STORE(at, value) __atomic_store_n((at), (value), __ATOMIC_SEQ_CST)
#define SWAP_IF(at, was, value) \
    __atomic_compare_exchange_n((at), (was), (value), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

/* ---- Forks ---- */

static unsigned forks = 1; /* has another value in a forked child */

static void reset_after_fork(void) { forks++; }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, reset_after_fork); }

/* ---- Errors ---- */

__attribute__((format(printf, 4, 5))) static pf_status fail(pfw_error *err, pf_status status, int32_t slot,
                                                            const char *format, ...) {
    if (!err) return status;
    *err = (pfw_error){.status = status, .slot = slot};
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return status;
}

static pf_status fail_os(pfw_error *err, pf_status status, int number, const char *what) {
    fail(err, status, -1, "%s: %s", what, strerror(number));
    if (err) err->os_errno = number;
    return status;
}

static pf_status overwritten(pfw_error *err, const char *what) {
    return fail(err, PF_CORRUPT, -1, "the ring was overwritten: %s", what);
}

static pf_status trainer_gone(pfw_error *err) {
    fail(err, PF_CLOSED, -1, "the trainer is gone: nobody takes tuples any more");
    if (err) err->trainer_gone = 1;
    return PF_CLOSED;
}

/* Returns PF_OK if that pass takes tuples. */
static pf_status check_gate(uint32_t gate, uint64_t pass, pfw_error *err) {
    unsigned long long asked = pass;
    if (gate == PFW_OVER) return fail(err, PF_CLOSED, -1, "the queue is gone: it takes no more tuples");
    if (pfw_gate_pass(gate) != pass)
        return fail(err, PF_CLOSED, -1, "pass %llu of the queue is over, it is at pass %u", asked,
                    pfw_gate_pass(gate));
    if (!(gate & PFW_OPEN))
        return fail(err, PF_CLOSED, -1, "the queue is closed: pass %llu takes no more tuples", asked);
    return PF_OK;
}

/* ---- Futexes, shared between processes ---- */

static void futex_wake(uint32_t *word, int n) { pfi_futex_wake(word, n, PFI_FUTEX_PROCESSES); }

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Reports a rare event to the trainer, and wakes it whatever `sleeping` says. */
static void wake_trainer_always(pfw_header *h) {
    ADD(&h->trainer_events, 1);
    STEP("arrival counted");
    futex_wake(&h->trainer_events, 1);
}

/* Reports an event to the trainer, and wakes it if it sleeps. */
static void wake_trainer(pfw_header *h) {
    ADD(&h->trainer_events, 1);
    STEP("arrival counted");
    if (LOAD(&h->trainer_sleeping)) futex_wake(&h->trainer_events, 1);
}

/* Wakes all workers that wait for a pass: one may have begun, or they have to check for another event. */
static void wake_pass_waiters(pfw_header *h) {
    ADD(&h->pass_events, 1);
    futex_wake(&h->pass_events, INT32_MAX);
}

/* Wakes all workers that wait for a task, to check for another event. */
static void wake_takers(pfw_header *h) {
    ADD(&h->task_events, 1);
    futex_wake(&h->task_events, INT32_MAX);
}

/* Wakes up to n workers that wait for a cell. */
static void wake_workers(pfw_header *h, int n) {
    ADD(&h->cell_events, 1);
    if (LOAD(&h->waiting_workers)) futex_wake(&h->cell_events, n);
}

/* ---- The watcher ---- */

static void *watch(void *p_) {
    pfw_producer *p = p_;
    struct pollfd fds[2] = {{p->trainer, POLLIN, 0}, {p->stop, POLLIN, 0}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR);
    if (fds[0].revents) {
        STORE(&p->gone, 1);
        wake_workers(p->h, INT32_MAX);
        wake_pass_waiters(p->h);
        wake_takers(p->h);
    }
    return NULL;
}

static void watcher_end(pfw_producer *p) {
    if (p->watched == forks) {
        event_set(p->stop);
        pthread_join(p->watcher, NULL);
    }
    if (p->trainer >= 0) close(p->trainer);
    if (p->stop >= 0) close(p->stop);
    p->watched = 0;
    p->trainer = p->stop = -1;
}

static int is_gone(pfw_producer *p) {
    if (p->watched == forks || LOAD(&p->gone)) return (int)LOAD(&p->gone);
    uint64_t was = p->at.trainer_started;
    int seen = was && process_started(getpid()); /* /proc is mounted */
    int gone =
        seen ? process_started(p->at.trainer) != was : kill((pid_t)p->at.trainer, 0) < 0 && errno == ESRCH;
    if (gone) STORE(&p->gone, 1);
    return gone;
}

/* Starts the thread that waits for the end of the trainer. */
static pf_status watcher_begin(pfw_producer *p, pfw_error *err) {
    p->gone = 0;
    p->trainer = process_descriptor(p->at.trainer);
    if (p->trainer < 0 && errno == ESRCH) return trainer_gone(err);
    if (is_gone(p)) return trainer_gone(err);
    if (p->trainer < 0) return PF_OK; /* an old kernel: sleeps last SLICE_MS at most */
    fcntl(p->trainer, F_SETFD, FD_CLOEXEC);
    p->stop = event_descriptor();
    if (p->stop < 0) return fail_os(err, PF_IO, errno, "a descriptor for the watcher");
    /* The thread blocks all signals: they are for the other threads of the process. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&p->watcher, NULL, watch, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) return fail_os(err, PF_NO_MEMORY, failed, "the system could not start a thread");
    p->watched = forks;
    return PF_OK;
}

/* ---- Limits of a wait ---- */

/* The limits of a wait: its end, and the next call of the poll function. */
typedef struct {
    pf_wait wait;
    int64_t deadline, interval, next_poll; /* 0: none */
    int quietly;                           /* the poll function has disabled periodic polling */
} wait_limit;

static wait_limit wait_limit_of(const pf_wait *given) {
    wait_limit w = {.wait = PF_WAIT_INIT};
    if (given) memcpy(&w.wait, given, given->size < sizeof w.wait ? given->size : sizeof w.wait);
    w.interval = (w.wait.poll_interval_ms ? w.wait.poll_interval_ms : 100) * 1000000LL;
    if (w.wait.timeout_ns > 0 && w.wait.timeout_ns < INT64_MAX / 2) w.deadline = now() + w.wait.timeout_ns;
    return w;
}

/* Returns PF_OK if the wait may continue, else the status that ends it. */
static pf_status wait_limit_check(pfw_producer *p, wait_limit *w, pfw_error *err) {
    if (w->wait.timeout_ns == 0 || (w->deadline && now() >= w->deadline))
        return fail(err, PF_TIMEOUT, -1, "the time to wait went by");
    if (!w->wait.poll) return PF_OK;
    if (!__atomic_exchange_n(&p->poll, 0, __ATOMIC_SEQ_CST) && !(w->next_poll && now() >= w->next_poll))
        return PF_OK;
    int answer = w->wait.poll(w->wait.poll_context);
    w->quietly = answer == PF_POLL_SIGNALS_ONLY;
    w->next_poll = 0;
    return answer && !w->quietly ? fail(err, PF_CANCELLED, -1, "the wait was cancelled") : PF_OK;
}

/* Sleeps while the word has that value. Returns 1 if another thread or process woke it. */
static int wait_limit_sleep(pfw_producer *p, wait_limit *w, uint32_t *word, uint32_t value) {
    int64_t until = w->deadline;
    if (w->wait.poll && !w->quietly && !w->next_poll) w->next_poll = now() + w->interval;
    if (w->next_poll && (!until || w->next_poll < until)) until = w->next_poll;
    if (p->watched != forks && (!until || now() + SLICE_MS * 1000000LL < until))
        until = now() + SLICE_MS * 1000000LL;
    int r = pfi_futex_wait(word, value, until, PFI_FUTEX_PROCESSES);
    if (r == EINTR && w->wait.poll) w->next_poll = 1; /* a time in the past: poll now */
    return r == 0;
}

void pfw_poll_now(pfw_producer *p) {
    STORE(&p->poll, 1);
    wake_workers(p->h, INT32_MAX);
    wake_pass_waiters(p->h);
    wake_takers(p->h);
}

/* ---- Opening and closing ---- */

static int within(const pfw_header *h, uint64_t at, uint64_t count, uint64_t size) {
    return at % 8 == 0 && at <= h->total_bytes && count <= (h->total_bytes - at) / size;
}

static int tasks_fit(const pfw_header *h) {
    if (h->tasks == 0) return 1;
    return h->tasks <= UINT16_MAX && h->task_slots > 0 && h->task_slots <= UINT16_MAX &&
           h->task_stride % PFW_ALIGNMENT == 0 && h->task_stride > PFW_TASK_FAILURE &&
           h->task_bytes <= h->task_stride - PFW_TASK_FAILURE && h->task_data_at % PFW_ALIGNMENT == 0 &&
           within(h, h->tasks_at, h->tasks, sizeof(pfw_task)) &&
           within(h, h->task_tensors_at, (uint64_t)h->tasks * h->task_slots, sizeof(pfw_tensor)) &&
           within(h, h->task_data_at, h->tasks, h->task_stride);
}

/* Checks a copy of the header: everything must lie inside the ring and be aligned as atomic instructions need. */
static pf_status check_header(const pfw_header *h, size_t size, pfw_error *err) {
    if (memcmp(h->magic, PFW_MAGIC, sizeof h->magic) != 0)
        return fail(err, PF_CORRUPT, -1, "expected a ring of pyfeed's, found a file that begins otherwise");
    if (h->version != PFW_VERSION || h->header_bytes != sizeof *h)
        return fail(err, PF_UNSUPPORTED, -1,
                    "expected a ring of version %d, found version %u: trainer and worker need the same "
                    "release of pyfeed",
                    PFW_VERSION, h->version);
    if (h->total_bytes != size || h->ring_cells == 0 || h->ring_cells > UINT16_MAX || h->num_slots == 0 ||
        h->num_slots > UINT16_MAX || h->workers != PFW_WORKERS || h->order < 2 * h->ring_cells ||
        (h->order & (h->order - 1)) != 0 || h->stride == 0 || h->stride % PFW_ALIGNMENT != 0 ||
        h->cell_bytes > h->stride || h->data_at % PFW_ALIGNMENT != 0 || h->trainer <= 0 ||
        h->trainer > INT32_MAX || !within(h, h->specs_at, h->num_slots, sizeof(pfw_spec)) ||
        !within(h, h->workers_at, h->workers, sizeof(pfw_worker)) ||
        !within(h, h->failures_at, h->workers, PFW_FAILURE) || !within(h, h->order_at, h->order, 8) ||
        !within(h, h->states_at, h->ring_cells, 8) ||
        !within(h, h->tensors_at, (uint64_t)h->ring_cells * h->num_slots, sizeof(pfw_tensor)) ||
        !within(h, h->data_at, h->ring_cells, h->stride) || !tasks_fit(h))
        return fail(err, PF_CORRUPT, -1, "the ring's sizes do not fit its %zu bytes", size);
    return PF_OK;
}

/* Checks a copy of the specs. */
static pf_status check_specs(const pfw_spec *specs, uint32_t n, pfw_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const pfw_spec *s = &specs[i];
        int fits = s->rank >= 0 && s->rank <= PFW_RANK && s->lod_levels <= PFW_LEVELS;
        for (int32_t j = 0; fits && j < s->rank; j++) fits = s->dims[j] >= -1;
        if (!fits)
            return fail(err, PF_CORRUPT, (int32_t)i, "slot %u: its description in the ring is damaged", i);
    }
    return PF_OK;
}

pf_status pfw_open(int fd, pfw_producer **out, pfw_error *err) {
    *out = NULL;
    struct stat s;
    if (fstat(fd, &s) < 0) return fail_os(err, PF_IO, errno, "the ring's descriptor");
    if (s.st_size < (off_t)sizeof(pfw_header))
        return fail(err, PF_CORRUPT, -1, "expected a ring of at least %zu bytes, found a file of %lld",
                    sizeof(pfw_header), (long long)s.st_size);
    if (!is_sealed(fd))
        return fail(err, PF_CORRUPT, -1,
                    "expected a ring of pyfeed's, found a file that could be cut short (it is not sealed)");
    size_t size = (size_t)s.st_size;
    void *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) return fail_os(err, PF_NO_MEMORY, errno, "mapping the ring");
    char *base = ring;
    pfw_header h;
    memcpy(&h, ring, sizeof h);
    pfw_producer *p = NULL;
    size_t *populated = NULL;
    pfw_spec *specs = NULL;
    pf_status status = check_header(&h, size, err);
    if (status == PF_OK) {
        p = calloc(1, sizeof *p);
        populated = calloc(h.ring_cells, sizeof *populated);
        specs = calloc(h.num_slots, sizeof *specs);
        if (!p || !populated || !specs) status = fail(err, PF_NO_MEMORY, -1, "out of memory");
    }
    if (status == PF_OK) {
        memcpy(specs, base + h.specs_at, h.num_slots * sizeof *specs);
        status = check_specs(specs, h.num_slots, err);
    }
    if (status) {
        free(specs);
        free(populated);
        free(p);
        munmap(ring, size);
        return status;
    }
    size_t data_at = h.data_at & ~(page_size() - 1);
    advise_huge(base + data_at, size - data_at);
    *p = (pfw_producer){.h = ring,
                        .size = size,
                        .at = h,
                        .specs = specs,
                        .dtypes = (pfw_spec *)(base + h.specs_at),
                        .tensors = (pfw_tensor *)(base + h.tensors_at),
                        .workers = (pfw_worker *)(base + h.workers_at),
                        .order = (uint64_t *)(base + h.order_at),
                        .states = (uint64_t *)(base + h.states_at),
                        .tasks = (pfw_task *)(base + h.tasks_at),
                        .data = base + h.data_at,
                        .populated = populated,
                        .worker = -1,
                        .pass = PF_PASS_NONE,
                        .trainer = -1,
                        .stop = -1};
    *out = p;
    return PF_OK;
}

void pfw_free(pfw_producer *p) {
    if (!p) return;
    watcher_end(p);
    munmap(p->h, p->size);
    free(p->specs);
    free(p->populated);
    free(p);
}

/* ---- Attaching and ending ---- */

int pfw_attached(const pfw_producer *p) { return LOAD(&p->worker) >= 0 && p->forks == forks; }

static char *failure_of(pfw_producer *p, int worker) {
    return (char *)p->h + p->at.failures_at + (size_t)worker * PFW_FAILURE;
}

void pfw_set_number(pfw_producer *p, uint32_t number) { p->number = (uint64_t)number + 1; }

pf_status pfw_attach(pfw_producer *p, uint64_t only, pfw_error *err) {
    pfw_header *h = p->h;
    if (pfw_attached(p)) return PF_OK;
    p->worker = -1; /* the parent's worker, if this process was forked */
    watcher_end(p);
    p->writing = 0;
    p->forks = forks;
    int64_t me = getpid();
    uint64_t namespace = pid_namespace();
    if (namespace && p->at.pid_namespace && namespace != p->at.pid_namespace)
        return fail(err, PF_UNSUPPORTED, -1,
                    "the trainer is in another PID namespace: it could not learn of the worker's end");
    if (me == p->at.trainer)
        return fail(err, PF_STATE, -1,
                    "this is the trainer's own process: a SharedFeedQueue takes tuples from others; use a "
                    "PyArrayFeedQueue");
    pf_status status = watcher_begin(p, err);
    if (status) {
        watcher_end(p);
        return status;
    }
    uint32_t gate = LOAD(&h->gate);
    uint64_t pass = only == PF_PASS_CURRENT ? pfw_gate_pass(gate) : only;
    status = check_gate(gate, pass, err);
    if (status) {
        watcher_end(p);
        return status;
    }
    p->gate = gate;
    p->pass = pass;
    for (int i = 0; i < PFW_WORKERS; i++) {
        uint64_t vacant = PFW_VACANT;
        if (LOAD(&p->workers[i].state) != vacant ||
            !SWAP_IF(&p->workers[i].state, &vacant, pfw_worker_state(PFW_ATTACHING, pass, (uint64_t)me)))
            continue;
        STEP("attaching");
        STORE(&p->workers[i].started, process_started(me));
        STORE(&p->workers[i].pushed, 0);
        STORE(&p->workers[i].number, p->number);
        memset(failure_of(p, i), 0, 1);
        STORE(&p->workers[i].state, pfw_worker_state(PFW_ATTACHED, pass, (uint64_t)me));
        STORE(&p->worker, i); /* after the gate and the pass, which other threads read once they see it */
        STEP("attached");
        ADD(&h->worker_events, 1);
        wake_trainer_always(h);
        return PF_OK;
    }
    watcher_end(p);
    return fail(err, PF_STATE, -1, "expected at most %d workers at one time, found more", PFW_WORKERS);
}

static pf_status wait_for_pass(pfw_producer *p, uint64_t after, wait_limit *w, uint64_t *pass,
                               pfw_error *err) {
    pfw_header *h = p->h;
    for (;;) {
        uint32_t events = LOAD(&h->pass_events), gate = LOAD(&h->gate);
        if (is_gone(p)) return trainer_gone(err);
        if (gate == PFW_OVER)
            return after == PF_PASS_NONE
                       ? fail(err, PF_CLOSED, -1, "the queue is gone: no pass begins any more")
                       : fail(err, PF_CLOSED, -1, "the queue is gone: there is no pass after %llu",
                              (unsigned long long)after);
        *pass = pfw_gate_pass(gate);
        if ((gate & PFW_OPEN) && (after == PF_PASS_NONE || *pass > after)) return PF_OK;
        pf_status status = wait_limit_check(p, w, err);
        if (status) return status;
        STEP("waits for a pass");
        wait_limit_sleep(p, w, &h->pass_events, events);
    }
}

pf_status pfw_attach_next(pfw_producer *p, const pf_wait *given, pfw_error *err) {
    if (pfw_attached(p))
        return fail(err, PF_STATE, -1, "the producer is a worker of pass %llu still: close() ends its part",
                    (unsigned long long)p->pass);
    uint64_t pass = PF_PASS_NONE;
    wait_limit w = wait_limit_of(given);
    for (;;) {
        watcher_end(p);
        pf_status status = watcher_begin(p, err);
        if (status == PF_OK) status = wait_for_pass(p, p->pass, &w, &pass, err);
        watcher_end(p);
        if (status) return status;
        pfw_error missed; /* the error of a pass that has ended meanwhile */
        status = pfw_attach(p, pass, &missed);
        if (status != PF_CLOSED || missed.trainer_gone) {
            if (err) *err = missed;
            return status;
        }
    }
}

uint64_t pfw_pass(const pfw_producer *p) { return p->pass; }

static pf_status not_attached(pfw_producer *p, pfw_error *err) {
    if (p->worker >= 0 && p->forks != forks)
        return fail(err, PF_STATE, -1,
                    "this process was forked from the worker that attached: it has to attach for itself");
    return fail(err, PF_STATE, -1, "the producer is not attached, or was closed");
}

static pf_status end_as(pfw_producer *p, uint64_t state, pfw_error *err) {
    if (!pfw_attached(p)) return not_attached(p, err);
    uint32_t writing = 0; /* a thread that begins to write is seen here, or sees LEAVING */
    if (state == PFW_ENDED && !SWAP_IF(&p->writing, &writing, LEAVING))
        return fail(err, PF_STATE, -1, "%u reservation%s still being written: commit or abandon first",
                    writing, writing == 1 ? " is" : "s are");
    pfw_worker *w = &p->workers[p->worker];
    STEP("ending");
    STORE(&w->state, pfw_worker_state(state, p->pass, (uint64_t)getpid()));
    STORE(&p->worker, -1); /* the trainer owns the entry from here on */
    STEP("ended");
    ADD(&p->h->worker_events, 1);
    wake_trainer_always(p->h);
    watcher_end(p);
    return PF_OK;
}

pf_status pfw_end(pfw_producer *p, pfw_error *err) { return end_as(p, PFW_ENDED, err); }

static char *put(char *to, size_t room, const char *text) {
    size_t n = text ? strnlen(text, room - 1) : 0;
    if (n) memcpy(to, text, n);
    to[n] = 0;
    return to + room;
}

pf_status pfw_fail(pfw_producer *p, const char *type, const char *message, const char *traceback,
                   pfw_error *err) {
    if (!pfw_attached(p)) return not_attached(p, err);
    char *to = failure_of(p, p->worker);
    to = put(to, PFW_TYPE, type);
    to = put(to, PFW_TEXT, message);
    /* The end of a long traceback is kept: it says most. */
    size_t room = PFW_FAILURE - PFW_TYPE - PFW_TEXT, n = traceback ? strlen(traceback) : 0;
    put(to, room, n < room ? traceback : traceback + (n - room + 1));
    STEP("failing");
    return end_as(p, PFW_FAILED, err);
}

/* ---- What a tuple must look like ---- */

static pf_status check_lod(const pf_tensor *t, uint32_t i, pfw_error *err) {
    for (uint32_t j = 0; j < t->lod_levels; j++) {
        uint64_t least = j == 0 ? 2 : 1, n = t->lod[j].count;
        if (n < least)
            return fail(err, PF_SHAPE, (int32_t)i,
                        "slot %u: LoD level %u: expected at least %llu offsets, found %llu", i, j,
                        (unsigned long long)least, (unsigned long long)n);
    }
    for (uint32_t j = 0; j < t->lod_levels; j++) {
        const int64_t *at = t->lod[j].offsets;
        uint64_t n = t->lod[j].count;
        if (at[0] != 0)
            return fail(err, PF_SHAPE, (int32_t)i,
                        "slot %u: LoD level %u: expected the first offset to be 0, found %lld", i, j,
                        (long long)at[0]);
        for (uint64_t k = 1; k < n; k++)
            if (at[k] < at[k - 1])
                return fail(err, PF_SHAPE, (int32_t)i,
                            "slot %u: LoD level %u: offset %llu decreases from %lld to %lld", i, j,
                            (unsigned long long)k, (long long)at[k - 1], (long long)at[k]);
        int last = j + 1 == t->lod_levels;
        int64_t want = last ? t->dims[0] : (int64_t)t->lod[j + 1].count - 1;
        if (at[n - 1] != want)
            return fail(err, PF_SHAPE, (int32_t)i,
                        "slot %u: LoD level %u: expected the last offset to be %lld, %s, found %lld", i, j,
                        (long long)want,
                        last ? "the first dimension" : "the number of sequences of the level below",
                        (long long)at[n - 1]);
    }
    return PF_OK;
}

static void dims_text(char *to, size_t room, const int64_t *dims, int32_t rank) {
    size_t n = 0;
    for (int32_t i = 0; i < rank && n < room; i++)
        n += (size_t)snprintf(to + n, room - n, "%s%lld", i ? " " : "", (long long)dims[i]);
    if (n == 0) to[0] = 0;
}

static pf_status check_dims(const pfw_spec *spec, const pf_tensor *t, uint32_t i, pfw_error *err) {
    char want[200], found[200];
    int32_t wrong = -1;
    for (int32_t j = 0; t->rank == spec->rank && j < t->rank && wrong < 0; j++)
        if (t->dims[j] < 0 || (spec->dims[j] != -1 && t->dims[j] != spec->dims[j])) wrong = j;
    if (t->rank == spec->rank && wrong < 0) return PF_OK;
    dims_text(want, sizeof want, spec->dims, spec->rank);
    dims_text(found, sizeof found, t->dims, t->rank);
    if (t->rank != spec->rank)
        return fail(err, PF_SHAPE, (int32_t)i, "slot %u: shape: expected [%s], found [%s]", i, want, found);
    if (t->dims[wrong] < 0)
        return fail(err, PF_SHAPE, (int32_t)i, "slot %u: dimension %d: expected a size, found %lld", i, wrong,
                    (long long)t->dims[wrong]);
    return fail(err, PF_SHAPE, (int32_t)i,
                "slot %u: dimension %d: expected %lld, found %lld: dims [%s] for [%s]", i, wrong,
                (long long)spec->dims[wrong], (long long)t->dims[wrong], found, want);
}

static pf_status check_tensor(pfw_producer *p, const pf_tensor *t, uint32_t i, int with_data,
                              pfw_error *err) {
    const pfw_spec *spec = &p->specs[i];
    if (pf_dtype_size(t->dtype) == 0)
        return fail(err, PF_DTYPE, (int32_t)i, "slot %u: expected a dtype, found number %d", i, t->dtype);
    int32_t want = LOAD(&p->dtypes[i].dtype);
    if (want && pf_dtype_size(want) == 0) return overwritten(err, "the dtype of a slot");
    if (want && t->dtype != want)
        return fail(err, PF_DTYPE, (int32_t)i, "slot %u: dtype: expected %s, found %s", i,
                    pf_dtype_name(want), pf_dtype_name(t->dtype));
    if (t->rank < 0 || t->rank > PF_MAX_RANK)
        return fail(err, PF_SHAPE, (int32_t)i, "slot %u: rank: expected at most %d dimensions, found %d", i,
                    PF_MAX_RANK, t->rank);
    pf_status status = check_dims(spec, t, i, err);
    if (status) return status;
    if (t->lod_levels != spec->lod_levels)
        return fail(err, PF_SHAPE, (int32_t)i, "slot %u: LoD: expected %u levels, found %u", i,
                    spec->lod_levels, t->lod_levels);
    status = check_lod(t, i, err);
    if (status) return status;
    int empty = 0;
    for (int32_t j = 0; j < t->rank; j++) empty |= t->dims[j] == 0;
    if (with_data && !t->data && !empty)
        return fail(err, PF_INVALID, (int32_t)i, "slot %u: data: expected a pointer, found NULL", i);
    return PF_OK;
}

static const pf_tensor *tensor_at(const pf_tensor *first, uint32_t i) {
    return (const pf_tensor *)((const char *)first + (size_t)i * first->size);
}

static int overflows(uint64_t *n, uint64_t by) { return __builtin_mul_overflow(*n, by, n); }

/* Computes the place of a tensor in a cell, after the tensors that end at `at`, and its description. Returns the end of
 * the tensor, or UINT64_MAX if it is too large. */
static uint64_t lay_out(const pf_tensor *t, uint64_t at, pfw_tensor *out) {
    pfw_tensor d = {.dtype = t->dtype, .rank = t->rank, .lod_levels = t->lod_levels};
    d.nbytes = pf_dtype_size(t->dtype);
    int too_many = 0, none = 0;
    for (int32_t j = 0; j < t->rank; j++) {
        d.dims[j] = t->dims[j];
        none |= t->dims[j] == 0;
        too_many |= overflows(&d.nbytes, (uint64_t)t->dims[j]);
    }
    if (none) d.nbytes = 0;
    if ((too_many && !none) || d.nbytes > INT64_MAX / 2) return UINT64_MAX;
    for (uint32_t j = 0; j < t->lod_levels; j++) {
        d.lod_at[j] = at;
        d.lod_count[j] = t->lod[j].count;
        if (t->lod[j].count > INT64_MAX / 16) return UINT64_MAX;
        at = (at + t->lod[j].count * sizeof(int64_t) + PFW_ALIGNMENT - 1) & ~(uint64_t)(PFW_ALIGNMENT - 1);
    }
    d.data_at = at;
    at = (at + d.nbytes + PFW_ALIGNMENT - 1) & ~(uint64_t)(PFW_ALIGNMENT - 1);
    if (at > INT64_MAX / 2) return UINT64_MAX;
    *out = d;
    return at;
}

/* Checks a whole tuple, and decides the dtypes that were open. */
static pf_status check(pfw_producer *p, const pf_tensor *tensors, uint32_t n, int with_data, pfw_error *err) {
    if (n != p->at.num_slots)
        return fail(err, PF_SLOTS, -1, "slots: expected %u, found %u", p->at.num_slots, n);
    int64_t rows = -1;
    uint32_t first = 0;
    for (uint32_t i = 0; i < n; i++) {
        const pf_tensor *t = tensor_at(tensors, i);
        pf_status status = check_tensor(p, t, i, with_data, err);
        if (status) return status;
        if (p->specs[i].rank == 0 || p->specs[i].dims[0] != -1) continue;
        int64_t has = t->lod_levels ? (int64_t)t->lod[0].count - 1 : t->dims[0];
        if (rows < 0) {
            rows = has;
            first = i;
        } else if (has != rows) {
            return fail(err, PF_SHAPE, (int32_t)i,
                        "slot %u: batch dimension: expected %lld, as in slot %u, found %lld", i,
                        (long long)rows, first, (long long)has);
        }
    }
    uint64_t bytes = 0;
    pfw_tensor unused;
    for (uint32_t i = 0; i < n && bytes != UINT64_MAX; i++)
        bytes = lay_out(tensor_at(tensors, i), bytes, &unused);
    if (bytes > p->at.cell_bytes)
        return fail(err, PF_TOO_LARGE, -1, "cell_bytes: expected a tuple of at most %llu bytes, found %llu",
                    (unsigned long long)p->at.cell_bytes, (unsigned long long)bytes);
    for (uint32_t i = 0; i < n; i++) {
        int32_t any = 0, found = tensor_at(tensors, i)->dtype;
        if (!SWAP_IF(&p->dtypes[i].dtype, &any, found) && any != found)
            return check_tensor(p, tensor_at(tensors, i), i, with_data, err);
    }
    return PF_OK;
}

/* ---- Cells ---- */

/* Claims the first free cell: the cells that were used last are still in the cache. */
static int try_claim_cell(pfw_producer *p, int worker, pfw_reservation *reservation) {
    for (uint32_t i = 0; i < p->at.ring_cells; i++) {
        uint64_t was = __atomic_load_n(&p->states[i], __ATOMIC_RELAXED);
        if ((was & 0xff) != PFW_FREE) continue;
        uint64_t mine = pfw_state(PFW_WRITING, (uint64_t)worker, pfw_generation(was), p->pass);
        if (!SWAP_IF(&p->states[i], &was, mine)) continue;
        STEP("claimed");
        *reservation = (pfw_reservation){mine, i};
        return 1;
    }
    return 0;
}

static pf_status check_open(pfw_producer *p, pfw_error *err) {
    return is_gone(p) ? trainer_gone(err) : check_gate(LOAD(&p->h->gate), p->pass, err);
}

static pf_status claim_cell(pfw_producer *p, int worker, const pf_wait *given, pfw_reservation *reservation,
                            pfw_error *err) {
    pfw_header *h = p->h;
    wait_limit w = wait_limit_of(given);
    int woken = 0;
    for (;;) {
        uint32_t events = LOAD(&h->cell_events);
        pf_status status = check_open(p, err);
        if (status == PF_OK && try_claim_cell(p, worker, reservation)) return PF_OK;
        if (status == PF_OK) status = wait_limit_check(p, &w, err);
        if (status) {
            if (woken) wake_workers(h, 1); /* passes the wake-up on to the next worker */
            return status;
        }
        ADD(&h->waiting_workers, 1);
        /* If that word was overwritten while the trainer slept, no other wake-up would reach the trainer. */
        if (!LOAD(&h->trainer_sleeping)) futex_wake(&h->trainer_events, 1);
        STEP("blocked");
        woken = wait_limit_sleep(p, &w, &h->cell_events, events);
        ADD(&h->waiting_workers, -1);
    }
}

static char *cell_data(pfw_producer *p, uint32_t index) { return p->data + (size_t)index * p->at.stride; }

/* Maps the pages of a cell in one call. Single page faults would cost more than the copy. */
static void populate(pfw_producer *p, uint32_t index, uint64_t bytes) {
    size_t have = __atomic_load_n(&p->populated[index], __ATOMIC_RELAXED);
    if (have >= bytes) return;
    size_t page = page_size(), begin = have & ~(page - 1);
    char *at = cell_data(p, index);
    size_t offset = (size_t)(at + begin - (char *)p->h) & (page - 1);
    map_pages(at + begin - offset, bytes - begin + offset);
    __atomic_store_n(&p->populated[index], bytes, __ATOMIC_RELAXED);
}

/* The size in bytes from which tensors are written with non-temporal stores, which bypass the caches. Ordinary stores
 * would first read the cache lines from memory, and this core does not use them again. Non-temporal stores are at least
 * a fifth faster. memcpy uses them only above the size of the last-level cache, which cores share. */
enum { STREAMED = 2 << 20 };

static void copy(char *to, const pf_tensor *t, uint64_t bytes) {
#if defined(__SSE2__)
    if (bytes >= STREAMED && pfi_contiguous(t)) {
        const char *from = t->data;
        uint64_t i = 0;
        for (; i + 64 <= bytes; i += 64) { /* `to` is aligned, `from` need not be */
            const __m128i *in = (const __m128i *)(from + i);
            __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                    d = _mm_loadu_si128(in + 3), *out = (__m128i *)(to + i);
            _mm_stream_si128(out, a);
            _mm_stream_si128(out + 1, b);
            _mm_stream_si128(out + 2, c);
            _mm_stream_si128(out + 3, d);
        }
        memcpy(to + i, from + i, bytes - i);
        _mm_sfence(); /* before the cell is committed */
        return;
    }
#endif
    (void)bytes;
    pfi_gather(to, t);
}

/* Claims a cell for a tuple and describes the tuple there. With `data`, stores the addresses of the tensors; else
 * copies them. */
static pf_status reserve(pfw_producer *p, const pf_tensor *tensors, uint32_t n, const pf_wait *wait,
                         pfw_reservation *reservation, void **data, pfw_error *err) {
    reservation->state = 0;
    if (!pfw_attached(p)) return not_attached(p, err);
    if (n > 0 && !tensors) return fail(err, PF_INVALID, -1, "tensors: expected a pointer, found NULL");
    pf_status status = check(p, tensors, n, !data, err);
    if (status) return status;
    int leaving = ADD(&p->writing, 1) >= LEAVING, worker = LOAD(&p->worker);
    status = leaving || worker < 0 ? not_attached(p, err) : claim_cell(p, worker, wait, reservation, err);
    if (status) {
        ADD(&p->writing, -1);
        return status;
    }
    /* The places of the tensors are computed again, not read back from the ring. */
    pfw_tensor *told = p->tensors + (size_t)reservation->cell * p->at.num_slots, d;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes = lay_out(tensor_at(tensors, i), bytes, &d);
        told[i] = d;
    }
    STEP("described");
    if (bytes > 1 << 16) populate(p, reservation->cell, bytes);
    STEP(data ? "writing" : "copying");
    char *to = cell_data(p, reservation->cell);
    bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        const pf_tensor *t = tensor_at(tensors, i);
        bytes = lay_out(t, bytes, &d);
        for (uint32_t j = 0; j < t->lod_levels; j++)
            memcpy(to + d.lod_at[j], t->lod[j].offsets, d.lod_count[j] * sizeof(int64_t));
        if (data)
            data[i] = to + d.data_at;
        else
            copy(to + d.data_at, t, d.nbytes);
    }
    return PF_OK;
}

pf_status pfw_reserve(pfw_producer *p, const pf_tensor *tensors, uint32_t n, const pf_wait *wait,
                      pfw_reservation *reservation, void **data, pfw_error *err) {
    return reserve(p, tensors, n, wait, reservation, data, err);
}

pf_status pfw_push(pfw_producer *p, const pf_tensor *tensors, uint32_t n, const pf_wait *wait,
                   pfw_error *err) {
    pfw_reservation reservation;
    pf_status status = reserve(p, tensors, n, wait, &reservation, NULL, err);
    return status ? status : pfw_commit(p, &reservation, err);
}

/* How many times, a millisecond apart, a worker gives the trainer time to repair the order. */
enum { ORDER_TRIES = 250 };

/* Appends a committed cell to the order. */
static pf_status enqueue(pfw_producer *p, uint64_t state, uint32_t index, pfw_error *err) {
    pfw_header *h = p->h;
    uint32_t length = p->at.order;
    for (int tries = 0;;) {
        uint64_t tail = LOAD(&h->tail), lap = tail / length;
        uint64_t *entry = &p->order[tail & (length - 1)];
        uint64_t found = LOAD(entry), empty = pfw_order_entry(lap, 0, 0);
        if (found == empty) {
            if (!SWAP_IF(entry, &empty, pfw_order_entry(lap, pfw_generation(state), index + 1))) continue;
            STEP("queued");
            SWAP_IF(&h->tail, &tail, tail + 1);
            return PF_OK;
        }
        if (found >> 40 == (lap & 0xffffff))
            SWAP_IF(&h->tail, &tail, tail + 1); /* for a worker that has filled the entry only */
        else if (LOAD(&h->tail) == tail) {
            /* The order is full of cells of an earlier pass, or was overwritten; the trainer is about to repair it.
             * After the end of the pass the trainer finds the cell without the order. */
            if (is_gone(p) || LOAD(&h->gate) != p->gate) return PF_OK;
            if (++tries > ORDER_TRIES) return overwritten(err, "the order of its cells");
            wake_trainer(h);
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
    }
}

static void give_up(pfw_producer *p, pfw_reservation *reservation) {
    uint64_t *state = &p->states[reservation->cell], was = reservation->state;
    uint64_t revoked = (was & ~(uint64_t)0xff) | PFW_REVOKED;
    uint64_t freed = pfw_state(PFW_FREE, 0, pfw_generation(was) + 1, 0);
    if (!SWAP_IF(state, &was, freed)) SWAP_IF(state, &revoked, freed); /* or it has a new owner */
    reservation->state = 0;
    STEP("abandoned");
    wake_workers(p->h, 1);
}

pf_status pfw_commit(pfw_producer *p, pfw_reservation *reservation, pfw_error *err) {
    if (!reservation->state) return fail(err, PF_STATE, -1, "commit: expected a reservation, found none");
    if (p->forks != forks) { /* the parent process owns the cell */
        reservation->state = 0;
        return not_attached(p, err);
    }
    uint64_t number = reservation->state >> 8 & 0xffff;
    if (reservation->cell >= p->at.ring_cells || number >= PFW_WORKERS)
        return fail(err, PF_STATE, -1, "commit: expected a reservation, found none of this ring's");
    STEP("written");
    pf_status status = LOAD(&p->worker) < 0 ? not_attached(p, err) : check_open(p, err);
    uint64_t was = reservation->state, mine = was;
    if (status == PF_OK &&
        !SWAP_IF(&p->states[reservation->cell], &was, (mine & ~(uint64_t)0xff) | PFW_COMMITTED)) {
        status = check_open(p, err);
        if (status == PF_OK)
            status = fail(err, PF_CLOSED, -1, "the queue took the cell back: the pass is over");
    }
    if (status) {
        give_up(p, reservation);
        ADD(&p->writing, -1);
        return status;
    }
    STEP("committed");
    status = enqueue(p, mine, reservation->cell, err);
    reservation->state = 0;
    wake_trainer(p->h);
    ADD(&p->workers[number].pushed, 1);
    ADD(&p->writing, -1);
    return status;
}

void pfw_abandon(pfw_producer *p, pfw_reservation *reservation) {
    if (!reservation->state || reservation->cell >= p->at.ring_cells) return;
    if (p->forks != forks) {
        reservation->state = 0;
        return;
    }
    give_up(p, reservation);
    ADD(&p->writing, -1);
}

/* ---- Tasks ---- */

/* Takes the posted task with the lowest ticket. Returns 0 if there is none. */
static int try_take(pfw_producer *p, int worker, pfw_taken *out) {
    for (;;) {
        uint32_t first = 0;
        uint64_t lowest = 0, state = 0;
        for (uint32_t i = 0; i < p->at.tasks; i++) {
            uint64_t was = LOAD(&p->tasks[i].state), ticket = LOAD(&p->tasks[i].ticket);
            if ((was & 0xff) != PFW_TASK_POSTED || (state && ticket >= lowest)) continue;
            first = i;
            lowest = ticket;
            state = was;
        }
        if (!state) return 0;
        uint64_t mine = pfw_state(PFW_TASK_TAKEN, (uint64_t)worker, pfw_generation(state), p->pass);
        if (!SWAP_IF(&p->tasks[first].state, &state, mine)) continue;
        STORE(&p->tasks[first].owner,
              (uint64_t)getpid()); /* until then, the trainer finds it by its worker */
        STEP("taken");
        const pfw_task *task = &p->tasks[first];
        *out = (pfw_taken){mine, first, LOAD(&task->ticket), LOAD(&task->pass), LOAD(&task->index)};
        return 1;
    }
}

static char *task_memory(pfw_producer *p, uint32_t index) {
    return (char *)p->h + p->at.task_data_at + (size_t)index * p->at.task_stride;
}

static int lies_in_task(const pfw_producer *p, uint64_t at, uint64_t bytes) {
    return at <= p->at.task_bytes && bytes <= p->at.task_bytes - at;
}

/* Describes the tensors of a task, as views of its memory. Each description is read from the ring once. */
static pf_status view_task(pfw_producer *p, uint32_t index, pf_tensor *tensors, int64_t (*dims)[PF_MAX_RANK],
                           pf_lod_level (*lod)[PF_MAX_LOD_LEVELS], pfw_error *err) {
    const pfw_tensor *all = (const pfw_tensor *)((char *)p->h + p->at.task_tensors_at);
    char *memory = task_memory(p, index) + PFW_TASK_FAILURE;
    for (uint32_t i = 0; i < p->at.task_slots; i++) {
        pfw_tensor d = all[(size_t)index * p->at.task_slots + i];
        uint64_t bytes = pf_dtype_size(d.dtype);
        int fits = bytes > 0 && d.rank >= 0 && d.rank <= PF_MAX_RANK && d.lod_levels <= PF_MAX_LOD_LEVELS &&
                   d.data_at % PFW_ALIGNMENT == 0 && lies_in_task(p, d.data_at, d.nbytes);
        for (int32_t j = 0; fits && j < d.rank; j++)
            fits = d.dims[j] >= 0 && !overflows(&bytes, (uint64_t)d.dims[j]);
        for (uint32_t j = 0; fits && j < d.lod_levels; j++)
            fits = d.lod_at[j] % sizeof(int64_t) == 0 &&
                   d.lod_count[j] <= p->at.task_bytes / sizeof(int64_t) &&
                   lies_in_task(p, d.lod_at[j], d.lod_count[j] * sizeof(int64_t));
        if (!fits || bytes != d.nbytes) return overwritten(err, "a task");
        memcpy(dims[i], d.dims, sizeof dims[i]);
        for (uint32_t j = 0; j < d.lod_levels; j++)
            lod[i][j] = (pf_lod_level){(const int64_t *)(memory + d.lod_at[j]), d.lod_count[j]};
        tensors[i] = (pf_tensor)PF_TENSOR_INIT;
        tensors[i].dtype = d.dtype;
        tensors[i].rank = d.rank;
        tensors[i].dims = dims[i];
        tensors[i].data = memory + d.data_at;
        tensors[i].nbytes = d.nbytes;
        tensors[i].lod_levels = d.lod_levels;
        tensors[i].lod = lod[i];
    }
    return PF_OK;
}

pf_status pfw_take(pfw_producer *p, const pf_wait *given, pfw_taken *out, pf_tensor *tensors,
                   int64_t (*dims)[PF_MAX_RANK], pf_lod_level (*lod)[PF_MAX_LOD_LEVELS], pfw_error *err) {
    pfw_header *h = p->h;
    if (!pfw_attached(p)) return not_attached(p, err);
    if (p->at.tasks == 0) return fail(err, PF_STATE, -1, "take: expected a ring with tasks, found none");
    int worker = LOAD(&p->worker);
    if (worker < 0) return not_attached(p, err);
    wait_limit w = wait_limit_of(given);
    for (int woken = 0;;) {
        uint32_t events = LOAD(&h->task_events);
        pf_status status = check_open(p, err);
        if (status == PF_OK && try_take(p, worker, out)) {
            status = view_task(p, out->task, tensors, dims, lod, err);
            if (status) pfw_release_task(p, out);
            return status;
        }
        if (status == PF_OK) status = wait_limit_check(p, &w, err);
        if (status) {
            if (woken) wake_takers(h); /* passes the wake-up on to the next worker */
            return status;
        }
        ADD(&h->waiting_takers, 1);
        if (LOAD(&h->tasks_wanted))
            wake_trainer(h); /* this worker may have freed a task since its last result */
        STEP("wants a task");
        woken = wait_limit_sleep(p, &w, &h->task_events, events);
        ADD(&h->waiting_takers, -1);
    }
}

void pfw_release_task(pfw_producer *p, const pfw_taken *taken) {
    if (p->forks != forks || taken->task >= p->at.tasks) return; /* the parent process has the task */
    uint64_t was = taken->state;
    SWAP_IF(&p->tasks[taken->task].state, &was,
            pfw_state(PFW_TASK_FREE, 0, pfw_generation(was) + 1, 0)); /* or the trainer has freed it */
    STEP("released");
}

pf_status pfw_fail_task(pfw_producer *p, const pfw_taken *taken, const char *type, const char *message,
                        const char *traceback, const void *pickle, size_t pickle_bytes, pfw_error *err) {
    if (!pfw_attached(p)) return not_attached(p, err);
    pfw_task *task = &p->tasks[taken->task];
    if (taken->task >= p->at.tasks || LOAD(&task->state) != taken->state)
        return fail(err, PF_STATE, -1,
                    "fail_task: expected a task that this worker has taken, found another");
    char *to = task_memory(p, taken->task);
    to = put(to, PFW_TYPE, type);
    to = put(to, PFW_TEXT, message);
    size_t n = traceback ? strlen(traceback) : 0, room = PFW_TASK_TRACEBACK;
    to = put(to, room, n < room ? traceback : traceback + (n - room + 1)); /* the end of it says most */
    if (pickle_bytes > PFW_TASK_FAILURE - PFW_TYPE - PFW_TEXT - PFW_TASK_TRACEBACK) pickle_bytes = 0;
    memcpy(to, pickle, pickle_bytes);
    STORE(&task->pickle_bytes, pickle_bytes);
    STORE(&task->raised, 1);
    STEP("raised");
    wake_trainer(p->h);
    return PF_OK;
}

uint32_t pfw_task_slots(const pfw_producer *p) { return p->at.task_slots; }

/* ---- Properties of the ring ---- */

uint32_t pfw_num_slots(const pfw_producer *p) { return p->at.num_slots; }
uint32_t pfw_ring_cells(const pfw_producer *p) { return p->at.ring_cells; }
uint64_t pfw_cell_bytes(const pfw_producer *p) { return p->at.cell_bytes; }
const uint8_t *pfw_identity(const pfw_producer *p) { return p->at.identity; }

void pfw_slot_spec(const pfw_producer *p, uint32_t i, pf_slot_spec *out, int64_t *dims) {
    const pfw_spec *s = &p->specs[i];
    *out = (pf_slot_spec)PF_SLOT_SPEC_INIT;
    out->dtype = LOAD(&p->dtypes[i].dtype);
    out->rank = s->rank;
    out->lod_levels = s->lod_levels;
    out->dims = dims;
    memcpy(dims, s->dims, sizeof s->dims);
}
