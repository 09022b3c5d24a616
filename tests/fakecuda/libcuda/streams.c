/* Each stream is a thread with a queue. A piece of work runs when all other work in its clock has run. The order of a
 * stream, events and the legacy stream all work in this way. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"

enum { NON_BLOCKING = CU_STREAM_NON_BLOCKING };

/* ---- Running ---------------------------------------------------------------------------------------------------- */

static void sleep_until(double us) {
    struct timespec t = {(time_t)(us / 1e6), (long)((us - (double)(time_t)(us / 1e6) * 1e6) * 1e3)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {
    }
}

/* The bytes are copied at once, and the simulated time passes afterwards. So the host sees the end of a copy late,
 * never early. The hash of the copied bytes shows whether the source has changed. */
static void copy(Work *w, pthread_mutex_t *engine, double gbps, double latency_us) {
    pthread_mutex_lock(engine);
    double until = now_us() + latency_us + (gbps > 0 ? (double)w->n / gbps / 1e3 : 0);
    memcpy(w->to, w->from, w->n);
    bool changed = w->checked && fakecuda_hash(w->to, w->n) != w->hash;
    if (gbps > 0 || latency_us > 0) sleep_until(until);
    pthread_mutex_unlock(engine);
    if (!changed) return;
    lock();
    complain(N_hazards, "the source of a copy, %zu bytes at %p, changed between the call and the copy", w->n,
             (const void *)w->from);
    unlock();
}

static void perform(Context *c, Work *w, double gbps, double latency_us) {
    switch (w->kind) {
        case TO_DEVICE:
            copy(w, &c->engine[0], gbps, latency_us);
            break;
        case FROM_DEVICE:
            copy(w, &c->engine[1], gbps, latency_us);
            break;
        case ON_DEVICE:
            memmove(w->to, w->from, w->n);
            break;
        case FILL:
            memset(w->to, w->value, w->n);
            break;
        case SUM:
            *w->out = fakecuda_hash(w->from, w->n);
            break;
        case FUNCTION:
            in_host_function = true;
            w->function(w->argument);
            in_host_function = false;
            break;
        case KERNEL:
            if (w->us > 0) sleep_until(now_us() + w->us);
            if (w->to) memset(w->to, 0xC3, w->n);
            break;
        default:
            break;
    }
}

static bool may_begin(const Stream *s, const Work *w) {
    const Context *c = s->context;
    if (c->broken) return true;
    if (!s->allowed || (w->kind == TO_DEVICE && !c->copies_allowed)) return false;
    return clock_done(w->clock, s->slot);
}

static void begin(Stream *s, const Work *w) {
    Context *c = s->context;
    s->running = true;
    if (s->allowed > 0) s->allowed--;
    if (w->kind == TO_DEVICE) {
        c->copying++;
        if (c->copies_allowed > 0) c->copies_allowed--;
    }
    if (w->kind == FUNCTION && !c->broken) { /* the function may tell host threads that it runs */
        uint64_t mine = w->clock->at[s->slot];
        w->clock->at[s->slot] = w->seq - 1;
        clock_join(state.host, w->clock);
        w->clock->at[s->slot] = mine;
    }
}

static void finish(Stream *s, Work *w, bool performed) {
    s->running = false;
    if (w->kind == TO_DEVICE) s->context->copying--;
    if (w->kind == RECORD) w->recording->at = now_us();
    if (performed && w->kind == TO_DEVICE) count(N_copies_done, 1);
    if (performed && w->kind == FROM_DEVICE) count(N_downloads_done, 1);
    if (performed && w->kind == KERNEL) count(N_kernels, 1);
    state.slots[s->slot].done = w->seq;
    if (!(s->head = w->next)) s->tail = &s->head;
    work_drop(w);
    count(N_pending, -1);
    pthread_cond_broadcast(&state.done);
}

static void *run(void *argument) {
    Stream *s = argument;
    lock();
    for (;;) {
        while (!s->head && !s->closing) pthread_cond_wait(&s->work, &state.lock);
        Work *w = s->head;
        if (!w) break;
        while (!may_begin(s, w)) pthread_cond_wait(&state.done, &state.lock);
        begin(s, w);
        if (w->code && !s->context->broken) break_context(s->context, w->code);
        bool performed = !s->context->broken;
        double gbps = state.gbps, latency_us = state.latency_us;
        unlock();
        if (performed) perform(s->context, w, gbps, latency_us);
        lock();
        finish(s, w, performed);
    }
    for (Stream **at = &s->context->streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    state.slots[s->slot].taken = false;
    pthread_cond_destroy(&s->work);
    free(s->before);
    free(s->captured);
    free(s);
    pthread_cond_broadcast(&state.done);
    unlock();
    return NULL;
}

/* ---- Streams ---------------------------------------------------------------------------------------------------- */

Stream *stream_new(Context *c, unsigned flags, int priority, bool made) {
    unsigned slot = 0;
    while (slot < MAX_SLOTS && state.slots[slot].taken) slot++;
    Stream *s = slot < MAX_SLOTS ? calloc(1, sizeof *s) : NULL;
    if (!s) return NULL;
    *s = (Stream){
        .next = c->streams, .context = c, .slot = slot, .flags = flags, .priority = priority, .made = made};
    s->allowed = -1;
    s->tail = &s->head;
    s->before = clock_new();
    s->captured = clock_new();
    pthread_cond_init(&s->work, NULL);

    /* The program's own threads must get the signals, so the new thread blocks them. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&s->thread, &attributes, run, s);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        free(s->before), free(s->captured), free(s);
        return NULL;
    }
    state.slots[slot].taken = true;
    c->streams = s;
    s->handle = handle_new(A_STREAM, s);
    if (made) count(N_streams, 1);
    return s;
}

/* Closes a stream. Its work continues, and its thread ends after the work. */
void stream_close(Stream *s) {
    if (s->capture) capture_invalidate(s->capture);
    if (s->capture && s->capture->origin == s) capture_end(s, true);
    s->capture = NULL;
    handle_drop(s->handle);
    s->closing = true;
    if (s->made) count(N_streams, -1);
    pthread_cond_signal(&s->work);
}

/* The per-thread streams of a thread, one for each device. They are closed when the thread ends. */
static __thread uint64_t own[MAX_DEVICES];
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void thread_ends(void *unused) {
    (void)unused;
    lock();
    for (int i = 0; i < MAX_DEVICES && !state.forked; i++) {
        Stream *s = handle_find(A_STREAM, own[i]);
        if (s) stream_close(s);
    }
    unlock();
}

static void make_key(void) { pthread_key_create(&own_key, thread_ends); }

CUresult stream_find(Call *call, uint64_t handle, bool uses, Stream **s) {
    Context *c = call->context;
    if (state.forked) return CUDA_ERROR_NOT_INITIALIZED; /* the child has no stream threads */
    if (handle > 2) {
        *s = handle_find(A_STREAM, handle);
        if (!*s) {
            complain(N_misuses, "0x%llx is no stream, or one that was destroyed", (unsigned long long)handle);
            return CUDA_ERROR_INVALID_HANDLE;
        }
    } else if (!c) {
        return CUDA_ERROR_INVALID_CONTEXT;
    } else if (!c->retains) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    } else if (handle == 2) {
        pthread_once(&own_once, make_key);
        pthread_setspecific(own_key, own);
        *s = handle_find(A_STREAM, own[c->device]);
        if (!*s) *s = stream_new(c, 0, 0, false);
        if (*s) own[c->device] = (*s)->handle;
    } else {
        if (uses && captures_in(c, true, true)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        if (!c->legacy) c->legacy = stream_new(c, 0, 0, false);
        *s = c->legacy;
    }
    if (!*s) return CUDA_ERROR_OUT_OF_MEMORY;
    return check_broken(call, (*s)->context);
}

#define FIND(variable, handle, uses)                                                           \
    Stream *variable;                                                                          \
    do {                                                                                       \
        CUresult why_not = stream_find(&call, (uint64_t)(uintptr_t)(handle), uses, &variable); \
        if (why_not) LEAVE(why_not);                                                           \
    } while (0)

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    ENTER(cuStreamCreateWithPriority, CURRENT | UNSAFE);
    if (!stream || flags > NON_BLOCKING) LEAVE(CUDA_ERROR_INVALID_VALUE);
    Stream *s = stream_new(call.context, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority, true);
    if (!s) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    *stream = (CUstream)(uintptr_t)s->handle;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER(cuStreamCreate, CURRENT | UNSAFE);
    if (!stream || flags > NON_BLOCKING) LEAVE(CUDA_ERROR_INVALID_VALUE);
    Stream *s = stream_new(call.context, flags, 0, true);
    if (!s) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    *stream = (CUstream)(uintptr_t)s->handle;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    ENTER(cuStreamDestroy_v2, UNSAFE | RELEASES);
    if ((uintptr_t)stream < 3) LEAVE(CUDA_ERROR_INVALID_HANDLE);
    FIND(s, stream, false);
    if (!s->made) LEAVE(CUDA_ERROR_INVALID_HANDLE);
    stream_close(s);
    LEAVE(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    ENTER(cuStreamGetCtx, 0);
    FIND(s, stream, false);
    *context = (CUcontext)s->context;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    ENTER(cuStreamGetPriority, 0);
    FIND(s, stream, false);
    *priority = s->priority;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    ENTER(cuStreamGetFlags, 0);
    FIND(s, stream, false);
    *flags = s->flags;
    LEAVE(CUDA_SUCCESS);
}

/* A captured stream cannot be queried or waited for, since its work never runs. */
static CUresult not_capturing(Stream *s) {
    if (!s->capture) return CUDA_SUCCESS;
    capture_invalidate(s->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuStreamQuery(CUstream stream) {
    ENTER(cuStreamQuery, UNSAFE);
    FIND(s, stream, true);
    CUresult r = not_capturing(s);
    if (r) LEAVE(r);
    Clock *c = work_of_stream(s);
    bool done = clock_done(c, NO_SLOT);
    if (done) clock_join(state.host, c);
    free(c);
    LEAVE(done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuStreamSynchronize(CUstream stream) {
    ENTER(cuStreamSynchronize, UNSAFE);
    FIND(s, stream, true);
    CUresult r = not_capturing(s);
    if (r) LEAVE(r);
    Context *c = s->context;
    wait_for(work_of_stream(s));
    LEAVE((CUresult)c->broken);
}

CUresult cuCtxSynchronize(void) {
    ENTER(cuCtxSynchronize, CURRENT | UNSAFE);
    if (captures_in(call.context, false, true)) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    wait_for(work_of(call.context));
    LEAVE((CUresult)call.context->broken);
}

/* ---- Work ------------------------------------------------------------------------------------------------------- */

Work *work_new(Call *call, int kind) {
    Work *w = calloc(1, sizeof *w);
    if (!w) abort();
    w->kind = kind;
    w->code = call->later;
    return w;
}

void work_drop(Work *w) {
    for (int i = 0; i < 3; i++)
        if (w->uses[i]) memory_put(w->uses[i]);
    if (w->recording) recording_drop(w->recording);
    free(w->staged);
    free(w->clock);
    free(w);
}

/* Adds to s->before the work of other streams that comes before the next work of the stream. */
static void look_back(Stream *s) {
    Context *c = s->context;
    clock_join(s->before, state.host);
    if (s == c->legacy) {
        Clock *all = work_of_stream(s);
        clock_join(s->before, all);
        free(all);
    } else if (c->legacy && !(s->flags & NON_BLOCKING)) {
        clock_join(s->before, c->legacy->before);
    }
}

CUresult submit(Stream *s, Work *w, const Range *ranges, int n) {
    if (s->capture) {
        CUresult r = capture_add(s);
        work_drop(w);
        return r;
    }
    look_back(s);
    w->seq = ++state.slots[s->slot].submitted;
    clock_set(s->before, s->slot, w->seq);
    w->clock = clock_copy(s->before);
    for (int i = 0, used = 0; i < n; i++) {
        Memory *m = ranges[i].memory;
        if (!m) continue;
        m->users++;
        w->uses[used++] = m;
        order_check(s, w, &ranges[i]);
    }
    *s->tail = w;
    s->tail = &w->next;
    count(N_pending, 1);
    pthread_cond_signal(&s->work);
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument) {
    ENTER(cuLaunchHostFunc, WORKS);
    if (!function) LEAVE(CUDA_ERROR_INVALID_VALUE);
    FIND(s, stream, true);
    Work *w = work_new(&call, FUNCTION);
    w->function = function;
    w->argument = argument;
    LEAVE(submit(s, w, NULL, 0));
}

/* ---- Events ----------------------------------------------------------------------------------------------------- */

void recording_drop(Recording *r) {
    if (!r || --r->refs) return;
    if (r->capture) capture_drop(r->capture);
    free(r->clock);
    free(r);
}

static bool recorded(const Recording *r) { return !r || state.slots[r->slot].done >= r->seq; }

static CUresult event_find(Call *call, CUevent event, Event **e) {
    *e = handle_find(AN_EVENT, (uint64_t)(uintptr_t)event);
    if (*e) return check_broken(call, (*e)->context);
    complain(N_misuses, "%p is no event, or one that was destroyed", (void *)event);
    return CUDA_ERROR_INVALID_HANDLE;
}

#define FIND_EVENT(variable, handle)                             \
    Event *variable;                                             \
    do {                                                         \
        CUresult why_not = event_find(&call, handle, &variable); \
        if (why_not) LEAVE(why_not);                             \
    } while (0)

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    ENTER(cuEventCreate, CURRENT);
    if (!event || flags > 7) LEAVE(CUDA_ERROR_INVALID_VALUE);
    Event *e = calloc(1, sizeof *e);
    if (!e) abort();
    e->context = call.context;
    e->flags = flags;
    *event = (CUevent)(uintptr_t)handle_new(AN_EVENT, e);
    count(N_events, 1);
    LEAVE(CUDA_SUCCESS);
}

void event_destroy(uint64_t handle, Event *e) {
    handle_drop(handle);
    recording_drop(e->last);
    free(e);
    count(N_events, -1);
}

CUresult cuEventDestroy_v2(CUevent event) {
    ENTER(cuEventDestroy_v2, RELEASES);
    FIND_EVENT(e, event);
    event_destroy((uint64_t)(uintptr_t)event, e);
    LEAVE(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER(cuEventRecord, WORKS);
    FIND_EVENT(e, event);
    FIND(s, stream, true);
    if (s->context != e->context) LEAVE(CUDA_ERROR_INVALID_HANDLE);
    Recording *r = calloc(1, sizeof *r);
    if (!r) abort();
    r->refs = 1;
    r->slot = s->slot;
    Capture *capture = s->capture;
    if (capture) {
        CUresult refused = capture_add(s);
        if (refused) {
            recording_drop(r);
            LEAVE(refused);
        }
        r->capture = capture;
        capture->refs++;
        r->clock = clock_copy(s->captured);
    } else {
        Work *w = work_new(&call, RECORD);
        w->recording = r;
        r->refs++;
        submit(s, w, NULL, 0); /* cannot run before this thread unlocks */
        r->seq = w->seq;
        r->clock = clock_copy(w->clock);
    }
    recording_drop(e->last);
    e->last = r;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    ENTER(cuStreamWaitEvent, WORKS);
    if (flags > CU_EVENT_WAIT_EXTERNAL) LEAVE(CUDA_ERROR_INVALID_VALUE);
    FIND_EVENT(e, event);
    FIND(s, stream, true);
    if (s->capture || (e->last && e->last->capture)) LEAVE(capture_wait(s, e, flags));
    if (!e->last) LEAVE(CUDA_SUCCESS);
    clock_join(s->before, e->last->clock);
    LEAVE(submit(s, work_new(&call, WAIT), NULL, 0));
}

/* An event that was recorded in a capture cannot be queried or waited for. */
static CUresult not_captured(Event *e) {
    if (!e->last || !e->last->capture) return CUDA_SUCCESS;
    capture_invalidate(e->last->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cuEventQuery(CUevent event) {
    ENTER(cuEventQuery, UNSAFE);
    FIND_EVENT(e, event);
    CUresult r = not_captured(e);
    if (r) LEAVE(r);
    if (!recorded(e->last)) LEAVE(CUDA_ERROR_NOT_READY);
    if (e->last) clock_join(state.host, e->last->clock);
    LEAVE(CUDA_SUCCESS);
}

CUresult cuEventSynchronize(CUevent event) {
    ENTER(cuEventSynchronize, UNSAFE);
    FIND_EVENT(e, event);
    CUresult r = not_captured(e);
    if (r) LEAVE(r);
    if (!e->last) LEAVE(CUDA_SUCCESS);
    Context *c = e->context;
    wait_for(clock_copy(e->last->clock));
    LEAVE((CUresult)c->broken);
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
    ENTER(cuEventElapsedTime, UNSAFE);
    FIND_EVENT(a, start);
    FIND_EVENT(b, end);
    CUresult r = not_captured(a);
    if (!r) r = not_captured(b);
    if (r) LEAVE(r);
    if (((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) || !a->last || !b->last || a->context != b->context)
        LEAVE(CUDA_ERROR_INVALID_HANDLE);
    if (!recorded(a->last) || !recorded(b->last)) LEAVE(CUDA_ERROR_NOT_READY);
    *ms = (float)((b->last->at - a->last->at) / 1e3);
    LEAVE(CUDA_SUCCESS);
}

/* ---- For tests -------------------------------------------------------------------------------------------------- */

typedef struct Wanted {
    int left;
    uint64_t found;
} Wanted;

static void count_down(uint64_t handle, void *thing, void *data) {
    Wanted *w = data;
    if (((Stream *)thing)->made && w->left-- == 0) w->found = handle;
}

uint64_t fakecuda_stream_at(int i) {
    Wanted w = {i, 0};
    lock();
    handles_of(A_STREAM, count_down, &w);
    unlock();
    return w.found;
}

int fakecuda_let(uint64_t stream, int64_t n) {
    Call call;
    enter_control(&call);
    Stream *s;
    CUresult r = stream_find(&call, stream, false, &s);
    if (!r) {
        s->allowed = n;
        uint64_t handle = s->handle;
        pthread_t self = pthread_self();
        pthread_cond_broadcast(&state.done);
        while (n == 0 && (s = handle_find(A_STREAM, handle)) && s->running && !pthread_equal(s->thread, self))
            pthread_cond_wait(&state.done, &state.lock);
    }
    LEAVE(r);
}

int fakecuda_let_copies(int device, int64_t n) {
    Call call;
    enter_control(&call);
    if (device < 0 || device >= MAX_DEVICES) LEAVE(CUDA_ERROR_INVALID_DEVICE);
    Context *c = &state.contexts[device];
    c->copies_allowed = n;
    pthread_cond_broadcast(&state.done);
    while (n == 0 && c->copying && !state.forked) pthread_cond_wait(&state.done, &state.lock);
    LEAVE(CUDA_SUCCESS);
}

int fakecuda_stream_create(int device, int non_blocking, uint64_t *stream) {
    Call call;
    enter_control(&call);
    CUresult r = initialize();
    if (!r) r = context_retain(device);
    if (r) LEAVE(r);
    Stream *s = stream_new(&state.contexts[device], non_blocking ? NON_BLOCKING : 0, 0, true);
    if (!s) context_release(&state.contexts[device]);
    *stream = s ? s->handle : 0;
    LEAVE(s ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

int fakecuda_stream_destroy(uint64_t stream) {
    Call call;
    enter_control(&call);
    call.rules = RELEASES;
    FIND(s, stream, false);
    if (!s->made) LEAVE(CUDA_ERROR_INVALID_HANDLE);
    Context *c = s->context;
    wait_for(work_of_stream(s));
    if ((s = handle_find(A_STREAM, stream))) {
        stream_close(s);
        context_release(c);
    }
    LEAVE(CUDA_SUCCESS);
}

int fakecuda_synchronize(uint64_t stream) {
    Call call;
    enter_control(&call);
    FIND(s, stream, false);
    Context *c = s->context;
    wait_for(work_of_stream(s));
    LEAVE((CUresult)c->broken);
}

int fakecuda_kernel(uint64_t stream, double us, uint64_t reads, uint64_t nreads, uint64_t writes,
                    uint64_t nwrites, int code) {
    Call call;
    enter_control(&call);
    FIND(s, stream, true);
    Range ranges[2] = {0};
    CUresult r = nreads ? range_of(s, reads, nreads, false, &ranges[0]) : CUDA_SUCCESS;
    if (!r && nwrites) r = range_of(s, writes, nwrites, true, &ranges[1]);
    if (r) LEAVE(r);
    Work *w = work_new(&call, KERNEL);
    w->us = us;
    w->code = code;
    if (nwrites) w->to = shadow_of(&ranges[1]), w->n = nwrites;
    LEAVE(submit(s, w, ranges, 2));
}

int fakecuda_sum(uint64_t stream, uint64_t address, uint64_t n, uint64_t *out) {
    Call call;
    enter_control(&call);
    FIND(s, stream, true);
    Range range;
    CUresult r = range_of(s, address, n, false, &range);
    if (r) LEAVE(r);
    Work *w = work_new(&call, SUM);
    w->from = shadow_of(&range);
    w->n = n;
    w->out = out;
    LEAVE(submit(s, w, &range, 1));
}
