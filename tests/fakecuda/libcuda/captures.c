/* The rules of stream captures. Graphs are not built; only the calls that a capture forbids or invalidates matter. */
#include <stdlib.h>

#include "internal.h"

__thread CUstreamCaptureMode capture_mode; /* of each thread; the initial mode is global */

void capture_drop(Capture *c) {
    if (!--c->refs) free(c);
}

void capture_invalidate(Capture *c) { c->invalid = true; }

/* Applies the rules of cuThreadExchangeStreamCaptureMode to a call that may be unsafe: returns an error, and
 * invalidates captures, if a capture forbids the call. */
CUresult unsafe_call(void) {
    if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    bool forbidden = false;
    for (Capture *c = state.captures; c; c = c->next) {
        bool mine = pthread_equal(c->thread, pthread_self());
        if (mine ? c->mode == CU_STREAM_CAPTURE_MODE_RELAXED
                 : c->mode != CU_STREAM_CAPTURE_MODE_GLOBAL || capture_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
            continue;
        capture_invalidate(c);
        forbidden = true;
    }
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Returns whether a stream of the context is being captured. */
bool captures_in(Context *c, bool blocking_only, bool invalidate) {
    bool found = false;
    for (Stream *s = c->streams; s; s = s->next) {
        if (!s->capture || (blocking_only && (s->flags & CU_STREAM_NON_BLOCKING))) continue;
        found = true;
        if (invalidate) capture_invalidate(s->capture);
    }
    return found;
}

CUresult capture_add(Stream *s) {
    if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    uint64_t last = s->slot < s->captured->n ? s->captured->at[s->slot] : 0;
    clock_set(s->captured, s->slot, last + 1);
    return CUDA_SUCCESS;
}

CUresult capture_wait(Stream *s, Event *e, bool external) {
    Capture *of = e->last ? e->last->capture : NULL;
    if (s->capture && s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!of) {
        if (external) return capture_add(s);
        capture_invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (of->ended) return CUDA_ERROR_CAPTURED_EVENT;
    if (of->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s == s->context->legacy) {
        capture_invalidate(of);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (s->capture && s->capture != of) {
        capture_invalidate(of);
        capture_invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!s->capture) s->captured->n = 0;
    s->capture = of;
    clock_join(s->captured, e->last->clock);
    return CUDA_SUCCESS;
}

/* Returns whether all streams that take part in a capture have joined its origin. They may be in the contexts of
 * several devices. */
static bool joined(const Capture *c) {
    for (int i = 0; i < MAX_DEVICES; i++)
        for (Stream *s = state.contexts[i].streams; s; s = s->next) {
            if (s->capture != c || s->slot >= s->captured->n) continue;
            if (!clock_holds(c->origin->captured, s->slot, s->captured->at[s->slot])) return false;
        }
    return true;
}

CUresult capture_end(Stream *s, bool any_thread) {
    Capture *c = s->capture;
    if (!c) return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s) {
        capture_invalidate(c);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (!any_thread && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult r = c->invalid  ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                 : joined(c) ? CUDA_SUCCESS
                             : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    for (int i = 0; i < MAX_DEVICES; i++)
        for (Stream *t = state.contexts[i].streams; t; t = t->next)
            if (t->capture == c) t->capture = NULL;
    for (Capture **at = &state.captures; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    c->ended = true;
    count(N_captures, -1);
    capture_drop(c);
    return r;
}

static CUresult capture_begin(Stream *s, CUstreamCaptureMode mode) {
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (s == s->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    Capture *c = calloc(1, sizeof *c);
    if (!c) abort();
    *c = (Capture){.next = state.captures, .refs = 1, .mode = mode, .thread = pthread_self(), .origin = s};
    state.captures = c;
    s->capture = c;
    s->captured->n = 0;
    count(N_captures, 1);
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCapture_v2, 0);
    Stream *s;
    CUresult r = stream_find(&call, (uint64_t)(uintptr_t)stream, true, &s);
    LEAVE(r ? r : capture_begin(s, mode));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    static char the_graph;
    ENTER(cuStreamEndCapture, 0);
    if (!graph) LEAVE(CUDA_ERROR_INVALID_VALUE);
    *graph = NULL;
    Stream *s;
    CUresult r = stream_find(&call, (uint64_t)(uintptr_t)stream, false, &s);
    if (!r) r = capture_end(s, false);
    if (!r) *graph = (CUgraph)&the_graph;
    LEAVE(r);
}

CUresult cuGraphDestroy(CUgraph graph) {
    ENTER(cuGraphDestroy, RELEASES);
    LEAVE(graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    ENTER(cuStreamIsCapturing, 0);
    if (!status) LEAVE(CUDA_ERROR_INVALID_VALUE);
    Stream *s;
    CUresult r = stream_find(&call, (uint64_t)(uintptr_t)stream, false, &s);
    if (r) LEAVE(r);
    if (s == s->context->legacy && captures_in(s->context, true, false))
        LEAVE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    *status = !s->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER(cuThreadExchangeStreamCaptureMode, 0);
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) LEAVE(CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    LEAVE(CUDA_SUCCESS);
}

int fakecuda_begin_capture(uint64_t stream, int mode) {
    Call call;
    enter_control(&call);
    Stream *s;
    CUresult r = stream_find(&call, stream, true, &s);
    LEAVE(r ? r : capture_begin(s, (CUstreamCaptureMode)mode));
}

int fakecuda_end_capture(uint64_t stream) {
    Call call;
    enter_control(&call);
    Stream *s;
    CUresult r = stream_find(&call, stream, false, &s);
    LEAVE(r ? r : capture_end(s, true));
}
