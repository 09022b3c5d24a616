/* State, the environment, counts, requested failures, and the checks at the beginning of every call. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "internal.h"

struct State state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const count_names[] = {
#define C(name) #name,
    COUNTS(C)
#undef C
};
static const char *const call_names[] = {
#define ENTRY(name) #name,
#include "entries.h"
#undef ENTRY
};

static char complaint[320];
enum { PRINTED = 20 }; /* complaints of each kind that are printed; more are only counted */

void lock(void) { pthread_mutex_lock(&state.lock); }
void unlock(void) { pthread_mutex_unlock(&state.lock); }

double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void die(const char *what, const char *found) {
    fprintf(stderr, "fakecuda: %s, found \"%s\"\n", what, found);
    abort();
}

/* ---- Counts ----------------------------------------------------------------------------------------------------- */

void count(int what, int64_t by) {
    int64_t *c = state.counts;
    c[what] += by;
    if (what == N_device_bytes && c[what] > c[N_device_bytes_peak]) c[N_device_bytes_peak] = c[what];
    if (what == N_pinned_bytes || what == N_registered_bytes) {
        int64_t all = c[N_pinned_bytes] + c[N_registered_bytes];
        if (all > c[N_pinned_bytes_peak]) c[N_pinned_bytes_peak] = all;
    }
    if (state.awaiting) pthread_cond_broadcast(&state.counted);
}

void complain(int what, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(complaint, sizeof complaint, format, args);
    va_end(args);
    const char *kind = what == N_hazards ? "HAZARD" : what == N_leaks ? "LEAK" : "MISUSE";
    if (state.counts[what] < PRINTED) fprintf(stderr, "fakecuda: %s: %s\n", kind, complaint);
    count(what, 1);
}

static int64_t *find_count(const char *name) {
    for (int i = 0; i < N_COUNTS; i++)
        if (!strcmp(name, count_names[i])) return &state.counts[i];
    for (int i = 0; i < CALLS; i++)
        if (!strcmp(name, call_names[i])) return &state.calls[i];
    return NULL;
}

int64_t fakecuda_count(const char *name) {
    lock();
    int64_t *c = find_count(name), n = c ? *c : -1;
    unlock();
    return n;
}

int fakecuda_await(const char *name, int64_t at_least, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    lock();
    int64_t *c = find_count(name);
    state.awaiting++;
    int r = 0;
    while (c && *c < at_least && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&state.counted, &state.lock, &until);
    state.awaiting--;
    r = c ? *c >= at_least : -1;
    unlock();
    return r;
}

const char *fakecuda_complaint(void) {
    static __thread char mine[sizeof complaint];
    lock();
    memcpy(mine, complaint, sizeof mine);
    unlock();
    return mine;
}

/* ---- Settings and failures -------------------------------------------------------------------------------------- */

static double from_environment(const char *name, double otherwise) {
    const char *value = getenv(name);
    if (!value || !*value) return otherwise;
    char *end;
    double x = strtod(value, &end);
    if (*end || !(x >= 0)) {
        char expected[64];
        snprintf(expected, sizeof expected, "%s: expected a number that is not negative", name);
        die(expected, value);
    }
    return x;
}

static void defaults(void) {
    double pinned = from_environment("FAKECUDA_PINNED", -1);
    state.memory = (uint64_t)from_environment("FAKECUDA_MEMORY", 1 << 30);
    state.pinned = pinned < 0 ? UINT64_MAX : (uint64_t)pinned;
    state.gbps = from_environment("FAKECUDA_GBPS", 0);
    state.latency_us = from_environment("FAKECUDA_LATENCY_US", 0);
}

static int add_failure(const char *call, int64_t nth, int code, bool later, bool from_then_on) {
    int id = -1;
    if (strcmp(call, "*"))
        for (id = 0; id < CALLS && strcmp(call, call_names[id]); id++) {
        }
    if (id == CALLS || nth < 1 || code < 1) return -1;
    struct Failure *more = realloc(state.failures, (state.nfailures + 1) * sizeof *more);
    if (!more) abort();
    state.failures = more;
    state.failures[state.nfailures++] = (struct Failure){id, nth, code, later, from_then_on};
    return 0;
}

int fakecuda_fail(const char *call, int64_t nth, int code, int later, int from_then_on) {
    lock();
    int r = add_failure(call, nth, code, later, from_then_on);
    unlock();
    return r;
}

static void failures_of_environment(void) {
    const char *value = getenv("FAKECUDA_FAIL");
    if (!value || !*value) return;
    char *list = strdup(value), *rest = list;
    for (char *item; (item = strsep(&rest, ","));) {
        char call[64] = "", mark = 0, more = 0;
        long nth = 0;
        int code = 0, n = sscanf(item, "%63[^@]@%ld=%d%c%c", call, &nth, &code, &mark, &more);
        if (n < 3 || n > 4 || (n == 4 && mark != '!') || add_failure(call, nth, code, mark == '!', false))
            die("FAKECUDA_FAIL: expected call@nth=code or call@nth=code! with the name of an entry point or "
                "*",
                item);
    }
    free(list);
}

/* Returns 0, the code with which this call fails, or minus the code with which its work fails. */
static int injected(int id) {
    if (id == CALL_cuGetErrorName || id == CALL_cuGetErrorString) return 0;
    for (int i = 0; i < state.nfailures; i++) {
        struct Failure *f = &state.failures[i];
        if (f->call != -1 && f->call != id) continue;
        f->nth--;
        if (f->nth == 0 || (f->nth < 0 && f->from_then_on)) {
            count(N_failures, 1);
            return f->later ? -f->code : f->code;
        }
    }
    return 0;
}

void fakecuda_devices(int n) {
    lock();
    state.devices = n < 0 ? 0 : n > MAX_DEVICES ? MAX_DEVICES : n;
    unlock();
}

void fakecuda_memory(uint64_t bytes) {
    lock();
    state.memory = bytes;
    unlock();
}

void fakecuda_pinned(uint64_t bytes) {
    lock();
    state.pinned = bytes;
    unlock();
}

void fakecuda_pace(double gbps, double latency_us) {
    lock();
    state.gbps = gbps, state.latency_us = latency_us;
    unlock();
}

void fakecuda_deinitialize(int yes) {
    lock();
    state.ended = yes;
    unlock();
}

void fakecuda_reset(void) {
    lock();
    memset(state.counts + N_FIRST_EVENT, 0, (N_COUNTS - N_FIRST_EVENT) * sizeof *state.counts);
    memset(state.calls, 0, sizeof state.calls);
    count(N_device_bytes, 0), count(N_pinned_bytes, 0); /* sets the peaks to the current values */
    complaint[0] = 0;
    state.nfailures = 0;
    state.ended = false;
    defaults();
    while (state.captures) {
        Stream *origin = state.captures->origin;
        capture_end(origin, true);
    }
    for (int i = 0; i < MAX_DEVICES; i++) {
        Context *c = &state.contexts[i];
        c->broken = 0;
        c->copies_allowed = -1;
        for (Stream *s = c->streams; s; s = s->next) s->allowed = -1;
    }
    pthread_cond_broadcast(&state.done);
    unlock();
}

/* ---- Checks of every call --------------------------------------------------------------------------------------- */

__thread bool in_host_function;

CUresult check_broken(Call *call, Context *c) {
    if (!c->broken) return CUDA_SUCCESS;
    if (!(call->rules & RELEASES)) return c->broken;
    call->answer = c->broken;
    return CUDA_SUCCESS;
}

CUresult enter(Call *call, int id, unsigned rules) {
    lock();
    *call = (Call){.rules = rules, .context = current_context()};
    state.calls[id]++;
    count(N_calls, 1);
    CUresult r = CUDA_SUCCESS;
    if (in_host_function && id != CALL_cuGetErrorName && id != CALL_cuGetErrorString) {
        complain(N_misuses, "%s called in a function of cuLaunchHostFunc", call_names[id]);
        r = CUDA_ERROR_NOT_PERMITTED;
    } else if (rules & ALWAYS) {
    } else if (state.forked) {
        r = CUDA_ERROR_NOT_INITIALIZED;
    } else if (state.ended) {
        r = CUDA_ERROR_DEINITIALIZED;
    } else if (!state.initialized) {
        r = CUDA_ERROR_NOT_INITIALIZED;
    } else if (rules & CURRENT) {
        if (!call->context)
            r = CUDA_ERROR_INVALID_CONTEXT;
        else if (!call->context->retains)
            r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        else
            r = check_broken(call, call->context);
    }
    if (!r && (rules & UNSAFE)) r = unsafe_call();
    if (!r) {
        int code = injected(id);
        if (code < 0 && (rules & WORKS))
            call->later = -code;
        else if (code && (rules & RELEASES))
            call->answer = abs(code);
        else
            r = abs(code);
    }
    if (r) unlock();
    return r;
}

CUresult leave(Call *call, CUresult answer) {
    unlock();
    return answer ? answer : (CUresult)call->answer;
}

void enter_control(Call *call) {
    lock();
    *call = (Call){.rules = 0, .context = current_context()};
    if (!call->context || !call->context->retains) call->context = &state.contexts[0];
}

/* ---- Handles ---------------------------------------------------------------------------------------------------- */

enum { HANDLES = 1 << 26, STRIDE = 16 };
static char *handle_base;
static struct {
    int kind;
    void *thing;
} *handles;
static unsigned nhandles, handle_room;

uint64_t handle_new(int kind, void *thing) {
    if (!handle_base) {
        handle_base = mmap(NULL, (size_t)HANDLES * STRIDE, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (handle_base == MAP_FAILED) abort();
    }
    if (nhandles == handle_room) {
        handle_room = handle_room ? 2 * handle_room : 64;
        void *more = realloc(handles, handle_room * sizeof *handles);
        if (!more || nhandles >= HANDLES) abort();
        handles = more;
    }
    handles[nhandles].kind = kind;
    handles[nhandles].thing = thing;
    return (uint64_t)(uintptr_t)(handle_base + (size_t)nhandles++ * STRIDE);
}

static unsigned handle_index(uint64_t handle) {
    uint64_t offset = handle - (uint64_t)(uintptr_t)handle_base;
    return handle_base && offset % STRIDE == 0 && offset / STRIDE < nhandles ? offset / STRIDE : HANDLES;
}

void *handle_find(int kind, uint64_t handle) {
    unsigned i = handle_index(handle);
    return i < HANDLES && handles[i].kind == kind ? handles[i].thing : NULL;
}

void handle_drop(uint64_t handle) {
    unsigned i = handle_index(handle);
    if (i < HANDLES) handles[i].kind = NOTHING, handles[i].thing = NULL;
}

void handles_of(int kind, void (*f)(uint64_t handle, void *thing, void *data), void *data) {
    for (unsigned i = 0; i < nhandles; i++)
        if (handles[i].kind == kind)
            f((uint64_t)(uintptr_t)(handle_base + (size_t)i * STRIDE), handles[i].thing, data);
}

/* ---- Beginning and end ------------------------------------------------------------------------------------------ */

static void at_exit(void) {
    lock();
    if (!state.forked && getenv("FAKECUDA_REPORT")) {
        fprintf(stderr, "fakecuda:");
        for (int i = 0; i < N_COUNTS; i++)
            if (state.counts[i]) fprintf(stderr, " %s=%lld", count_names[i], (long long)state.counts[i]);
        fprintf(stderr, "\n");
    }
    state.ended = true;
    unlock();
}

/* The forking thread holds the lock during a fork. So no other thread holds it, and the child can unlock it. */
static void after_fork(void) {
    state.forked = state.initialized;
    state.awaiting = 0;
    unlock();
}

__attribute__((constructor)) static void begin(void) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&state.done, NULL);
    pthread_cond_init(&state.counted, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_atfork(lock, unlock, after_fork);
    for (int i = 0; i < MAX_DEVICES; i++) {
        Context *c = &state.contexts[i];
        c->device = i;
        c->copies_allowed = -1;
        pthread_mutex_init(&c->engine[0], NULL);
        pthread_mutex_init(&c->engine[1], NULL);
    }
    state.host = clock_new();
    double n = from_environment("FAKECUDA_DEVICES", 1);
    state.devices = n > MAX_DEVICES ? MAX_DEVICES : (int)n;
    defaults();
    failures_of_environment();
}

CUresult initialize(void) {
    if (state.forked) return CUDA_ERROR_NOT_INITIALIZED;
    if (state.ended) return CUDA_ERROR_DEINITIALIZED;
    if (!state.devices) return CUDA_ERROR_NO_DEVICE;
    if (!state.initialized) {
        state.initialized = true;
        atexit(at_exit);
    }
    return CUDA_SUCCESS;
}

/* Accepts the exported name, or the name without its version suffix, which stands for the newest version. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    static const struct {
        const char *name;
        void *function;
    } entries[] = {
#define ENTRY(name) {#name, (void *)name},
#include "entries.h"
#undef ENTRY
    };
    (void)version, (void)flags;
    ENTER(cuGetProcAddress_v2, ALWAYS);
    if (!symbol || !function) LEAVE(CUDA_ERROR_INVALID_VALUE);
    *function = NULL;
    size_t n = strlen(symbol);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const char *name = entries[i].name;
        if (!strncmp(name, symbol, n) && (!name[n] || (!strncmp(name + n, "_v", 2) && !name[n + 3])))
            *function = entries[i].function;
    }
    if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    LEAVE(*function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}
