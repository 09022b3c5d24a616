/* Calls of the driver that gorgonia.org/cu lacks, or that are combined here to cross from Go to C only
 * once. */
#include "calls.h"

#include <stdatomic.h>
#include <stddef.h>

static pfd_result answer(CUresult code, const char *call) {
    pfd_result r = {code, call};
    return r;
}
#define CALL(name, ...) answer(name(__VA_ARGS__), #name)

/* The state to restore on a thread after a call that changes its context and capture mode. */
typedef struct visit {
    CUstreamCaptureMode mode; /* the previous mode */
    uint8_t current, pushed, relaxed;
} visit;

static pfd_result enter(visit *v, uintptr_t context) {
    CUcontext now = NULL;
    v->pushed = v->relaxed = 0;
    pfd_result r = CALL(cuCtxGetCurrent, &now);
    v->current = !r.code && (uintptr_t)now == context;
    if (v->current) return r;
    r = CALL(cuCtxPushCurrent, (CUcontext)context);
    v->current = v->pushed = !r.code;
    return r;
}

/* While any thread captures a graph in global mode, calls that could disturb the capture fail and end it,
 * unless the calling thread is in relaxed mode. Relaxed mode is safe here: our calls are never part of a
 * graph. */
static pfd_result enter_relaxed(visit *v, uintptr_t context) {
    v->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    pfd_result r = enter(v, context);
    if (r.code) return r;
    r = CALL(cuThreadExchangeStreamCaptureMode, &v->mode);
    v->relaxed = !r.code;
    return r;
}

static pfd_result leave(visit *v, pfd_result r) {
    if (v->relaxed) cuThreadExchangeStreamCaptureMode(&v->mode);
    if (v->pushed) cuCtxPopCurrent(&(CUcontext){NULL});
    return r;
}

#define VISIT(context)                               \
    visit v;                                         \
    pfd_result entered = enter_relaxed(&v, context); \
    if (entered.code) return leave(&v, entered)

/* A call that releases a resource is made even if relaxed mode could not be set. */
#define UNDO(context, ...)                           \
    visit v;                                         \
    pfd_result entered = enter_relaxed(&v, context); \
    return v.current ? leave(&v, CALL(__VA_ARGS__)) : entered

pfd_result pfd_memory_info(uintptr_t context, uint64_t *free_bytes, uint64_t *total_bytes) {
    size_t left = 0, all = 0;
    VISIT(context);
    pfd_result r = leave(&v, CALL(cuMemGetInfo, &left, &all));
    *free_bytes = left;
    *total_bytes = all;
    return r;
}

pfd_result pfd_alloc(uintptr_t context, uint64_t bytes, uint64_t *address) {
    CUdeviceptr p = 0;
    VISIT(context);
    pfd_result r = leave(&v, CALL(cuMemAlloc, &p, bytes));
    *address = p;
    return r;
}

pfd_result pfd_free(uintptr_t context, uint64_t address) { UNDO(context, cuMemFree, address); }

pfd_result pfd_register(uintptr_t context, void *p, uint64_t bytes) {
    VISIT(context);
    return leave(&v, CALL(cuMemHostRegister, p, bytes, CU_MEMHOSTREGISTER_PORTABLE));
}

pfd_result pfd_unregister(uintptr_t context, void *p) { UNDO(context, cuMemHostUnregister, p); }

pfd_result pfd_host_alloc(uintptr_t context, uint64_t bytes, void **p) {
    VISIT(context);
    return leave(&v, CALL(cuMemHostAlloc, p, bytes, CU_MEMHOSTALLOC_PORTABLE));
}

pfd_result pfd_host_free(uintptr_t context, void *p) { UNDO(context, cuMemFreeHost, p); }

pfd_result pfd_new_stream(uintptr_t context, int high, uintptr_t *stream) {
    CUstream s = NULL;
    int lowest = 0, highest = 0;
    VISIT(context);
    pfd_result r = answer(CUDA_SUCCESS, NULL);
    if (high) r = CALL(cuCtxGetStreamPriorityRange, &lowest, &highest);
    if (!r.code) r = CALL(cuStreamCreateWithPriority, &s, CU_STREAM_NON_BLOCKING, highest);
    *stream = (uintptr_t)s;
    return leave(&v, r);
}

pfd_result pfd_destroy_stream(uintptr_t context, uintptr_t stream) {
    UNDO(context, cuStreamDestroy, (CUstream)stream);
}

pfd_result pfd_synchronize_stream(uintptr_t context, uintptr_t stream) {
    VISIT(context);
    return leave(&v, CALL(cuStreamSynchronize, (CUstream)stream));
}

pfd_result pfd_new_event(uintptr_t context, int timing, uintptr_t *event) {
    CUevent e = NULL;
    VISIT(context);
    unsigned flags = CU_EVENT_BLOCKING_SYNC | (timing ? 0 : CU_EVENT_DISABLE_TIMING);
    pfd_result r = leave(&v, CALL(cuEventCreate, &e, flags));
    *event = (uintptr_t)e;
    return r;
}

pfd_result pfd_destroy_event(uintptr_t context, uintptr_t event) {
    UNDO(context, cuEventDestroy, (CUevent)event);
}

/* Waits for a stream that writes to the caller's memory. A single failure must not end the wait, because
 * the work may continue. Only repeated failures do. */
static pfd_result wait_for(CUstream s) {
    pfd_result r;
    int tries = 8;
    do r = CALL(cuStreamSynchronize, s);
    while (r.code && --tries);
    return r;
}

/* Uses a new stream. A plain copy goes through the legacy default stream: it would wait for the work of
 * the training program there, and fail while a graph is being captured. */
pfd_result pfd_download(uintptr_t context, void *to, uint64_t from, uint64_t bytes) {
    CUstream s = NULL;
    VISIT(context);
    pfd_result r = CALL(cuStreamCreateWithPriority, &s, CU_STREAM_NON_BLOCKING, 0);
    if (!r.code) {
        r = CALL(cuMemcpyDtoHAsync, to, from, bytes, s);
        /* Also after an error: the caller may free `to` when this returns. */
        pfd_result waited = wait_for(s);
        if (!r.code) r = waited;
        cuStreamDestroy(s);
    }
    return leave(&v, r);
}

/* 0, 1 and 2 are not handles: which stream they mean depends on the current context and the thread. */
static int is_name(uintptr_t stream) { return stream <= (uintptr_t)CU_STREAM_PER_THREAD; }

/* A query does not affect a capture, but waits and records would become part of it. The legacy stream is
 * refused while a stream that waits for it is being captured. */
static pfd_result refuse_capturing(uintptr_t stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    pfd_result r = CALL(cuStreamIsCapturing, (CUstream)stream, &status);
    if (r.code == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || (!r.code && status != CU_STREAM_CAPTURE_STATUS_NONE))
        r.code = PFD_CAPTURING;
    return r;
}

static pfd_result refuse_foreign(uintptr_t context, uintptr_t stream) {
    CUcontext its = NULL;
    pfd_result r = CALL(cuStreamGetCtx, (CUstream)stream, &its);
    /* Not supported: a stream of a green context. */
    if (r.code == CUDA_ERROR_NOT_SUPPORTED || (!r.code && (uintptr_t)its != context)) r.code = PFD_FOREIGN;
    return r;
}

/* A cache of streams that are known to belong to a context, so that the driver is asked only once. The
 * driver may reuse the handle of a destroyed stream for a stream of another context. That stream then
 * waits correctly, and its first release is refused.
 *
 * The cache never blocks a thread: a reader that meets a writer asks the driver. Versions are odd during a
 * write. The cache is not per thread, because thread-local storage would make the library depend on the
 * dynamic loader's library. */
enum { KNOWN = 64 };
static struct {
    _Atomic uint64_t version;
    _Atomic uintptr_t context, stream;
} known[KNOWN];

static unsigned place_of(uintptr_t stream) {
    return (unsigned)((uint64_t)stream * 0x9E3779B97F4A7C15u >> 58); /* Fibonacci hashing */
}

static int is_known(uintptr_t context, uintptr_t stream) {
    unsigned i = place_of(stream);
    uint64_t version = atomic_load_explicit(&known[i].version, memory_order_acquire);
    int same = atomic_load_explicit(&known[i].context, memory_order_relaxed) == context &&
               atomic_load_explicit(&known[i].stream, memory_order_relaxed) == stream;
    atomic_thread_fence(memory_order_acquire);
    return same && !(version & 1) && atomic_load_explicit(&known[i].version, memory_order_relaxed) == version;
}

static void set_known(uintptr_t context, uintptr_t stream, int yes) {
    unsigned i = place_of(stream);
    uint64_t version = atomic_load_explicit(&known[i].version, memory_order_relaxed);
    if ((version & 1) || !atomic_compare_exchange_strong(&known[i].version, &version, version + 1)) return;
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&known[i].context, context, memory_order_relaxed);
    atomic_store_explicit(&known[i].stream, yes ? stream : 0, memory_order_relaxed);
    atomic_store_explicit(&known[i].version, version + 2, memory_order_release);
}

static pfd_result use(uintptr_t context, uintptr_t stream, uintptr_t event) {
    pfd_result r = refuse_capturing(stream);
    /* Any stream may wait for an event, but only a stream of its context can record one when the tuple is
     * released. */
    if (!r.code && !is_name(stream) && !is_known(context, stream)) {
        r = refuse_foreign(context, stream);
        if (!r.code) set_known(context, stream, 1);
    }
    return r.code || !event
               ? r
               : CALL(cuStreamWaitEvent, (CUstream)stream, (CUevent)event, CU_EVENT_WAIT_DEFAULT);
}

static pfd_result release(uintptr_t context, uintptr_t stream, uintptr_t event) {
    pfd_result r = refuse_capturing(stream);
    if (r.code) return r;
    r = CALL(cuEventRecord, (CUevent)event, (CUstream)stream);
    if (r.code && !is_name(stream) && refuse_foreign(context, stream).code == PFD_FOREIGN) {
        r.code = PFD_FOREIGN;
        set_known(context, stream, 0);
    }
    return r;
}

/* Streams 0 to 2 depend on the current context, and a thread that releases a tuple may have no context. In
 * both cases the context is made current for the call. */
static pfd_result by_consumer(pfd_result (*call)(uintptr_t, uintptr_t, uintptr_t), uintptr_t context,
                              uintptr_t stream, uintptr_t event) {
    if (!is_name(stream)) {
        pfd_result r = call(context, stream, event);
        if (r.code != CUDA_ERROR_INVALID_CONTEXT) return r;
    }
    visit v;
    pfd_result r = enter(&v, context);
    if (!r.code) r = call(context, stream, event);
    return leave(&v, r);
}

pfd_result pfd_use(uintptr_t context, uintptr_t stream, uintptr_t event) {
    return by_consumer(use, context, stream, event);
}

pfd_result pfd_release(uintptr_t context, uintptr_t stream, uintptr_t event) {
    return by_consumer(release, context, stream, event);
}

pfd_result pfd_relax(int *before) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    pfd_result r = CALL(cuThreadExchangeStreamCaptureMode, &mode);
    *before = mode;
    return r;
}

pfd_result pfd_restore(int mode) {
    return CALL(cuThreadExchangeStreamCaptureMode, &(CUstreamCaptureMode){(CUstreamCaptureMode)mode});
}

pfd_result pfd_attach(uintptr_t context) {
    int before;
    pfd_result r = pfd_relax(&before);
    return r.code ? r : CALL(cuCtxSetCurrent, (CUcontext)context);
}

pfd_result pfd_detach(void) {
    pfd_result r = CALL(cuCtxSetCurrent, NULL);
    pfd_result restored = pfd_restore(CU_STREAM_CAPTURE_MODE_GLOBAL);
    return r.code ? r : restored;
}

pfd_result pfd_copy_and_record(uint64_t to, const void *from, uint64_t bytes, uintptr_t stream,
                               uintptr_t event) {
    pfd_result r = CALL(cuMemcpyHtoDAsync, to, from, bytes, (CUstream)stream);
    return r.code ? r : CALL(cuEventRecord, (CUevent)event, (CUstream)stream);
}

pfd_result pfd_query(uintptr_t event) { return CALL(cuEventQuery, (CUevent)event); }

const char *pfd_error_name(int32_t code) {
    const char *name = NULL;
    return cuGetErrorName((CUresult)code, &name) == CUDA_SUCCESS ? name : NULL;
}

const char *pfd_error_text(int32_t code) {
    const char *text = NULL;
    return cuGetErrorString((CUresult)code, &text) == CUDA_SUCCESS ? text : NULL;
}
