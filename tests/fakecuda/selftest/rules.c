/* Tests CUDA's rules for streams, events, memory, captures and forks, through the driver's own calls only. They pass
 * with the fake, and should pass with the real driver on a machine with a GPU. `rules` runs all tests. */
#include <cuda.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { N = 1 << 16 };

static CUcontext context;

static CUstream new_stream(int non_blocking) {
    CUstream s;
    OK(cuStreamCreate(&s, non_blocking ? CU_STREAM_NON_BLOCKING : 0));
    return s;
}

static CUevent new_event(void) {
    CUevent e;
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    return e;
}

static void in_thread(void *(*f)(void *), void *argument) {
    pthread_t t;
    OK(pthread_create(&t, NULL, f, argument));
    OK(pthread_join(t, NULL));
}

/* Holds a stream with a host function: later work of the stream waits until let_go. */
typedef struct Hold {
    sem_t begun, end;
} Hold;

static void CUDA_CB held(void *argument) {
    Hold *h = argument;
    sem_post(&h->begun);
    while (sem_wait(&h->end)) {
    }
}

static void hold(Hold *h, CUstream s) {
    sem_init(&h->begun, 0, 0);
    sem_init(&h->end, 0, 0);
    OK(cuLaunchHostFunc(s, held, h));
    while (sem_wait(&h->begun)) {
    }
}

static void let_go(Hold *h, CUstream s) {
    sem_post(&h->end);
    OK(cuStreamSynchronize(s));
    sem_destroy(&h->begun);
    sem_destroy(&h->end);
}

/* ---- Driver, devices, contexts ---------------------------------------------------------------------------------- */

static void before_init(void) {
    int n;
    CUcontext c;
    const char *s;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxRetain(&c, 0));
    OK(cuDriverGetVersion(&n));
    EXPECT(1, n >= 12000);
    OK(cuGetErrorName(CUDA_ERROR_NOT_READY, &s));
    OK(strcmp("CUDA_ERROR_NOT_READY", s));
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &s));
    OK(strcmp("out of memory", s));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &s));
    EXPECT(1, s == NULL);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    OK(cuInit(0));
    OK(cuInit(0));
}

static void devices(void) {
    int n, v;
    CUdevice d;
    char name[64] = "";
    size_t bytes;
    CUuuid uuid;
    OK(cuDeviceGetCount(&n));
    EXPECT(1, n >= 1);
    OK(cuDeviceGet(&d, 0));
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&d, n));
    EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&d, -1));
    OK(cuDeviceGetName(name, sizeof name, 0));
    EXPECT(1, name[0] != 0);
    OK(cuDeviceTotalMem(&bytes, 0));
    EXPECT(1, bytes > 0);
    OK(cuDeviceGetUuid(&uuid, 0));
    OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
    EXPECT(1, v);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&v, (CUdevice_attribute)0, 0));
}

static void contexts(void) {
    CUcontext c, second;
    CUstream s;
    CUdevice d;
    size_t left, total;
    unsigned flags;
    int active;
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo(&left, &total));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&s, 0));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(CU_STREAM_LEGACY));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&d));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(&c));
    OK(cuCtxGetCurrent(&c));
    EXPECT(1, c == NULL);

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRetain(&second, 0));
    EXPECT(1, context == second);
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(1, active);
    OK(cuCtxGetCurrent(&c));
    EXPECT(1, c == NULL);

    OK(cuCtxPushCurrent(context));
    OK(cuCtxPushCurrent(context));
    OK(cuCtxPopCurrent(&c));
    EXPECT(1, c == context);
    OK(cuCtxSetCurrent(NULL));
    OK(cuCtxGetCurrent(&c));
    EXPECT(1, c == NULL);

    OK(cuCtxSetCurrent(context));
    OK(cuCtxGetDevice(&d));
    EXPECT(0, d);
    OK(cuMemGetInfo(&left, &total));
    EXPECT(1, left <= total && total > 0);
}

/* ---- Streams and events ----------------------------------------------------------------------------------------- */

static void streams(void) {
    int least, greatest, priority;
    unsigned flags;
    CUstream s;
    CUcontext c;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    EXPECT(1, greatest <= least);
    OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, greatest));
    OK(cuStreamGetPriority(s, &priority));
    EXPECT(greatest, priority);
    OK(cuStreamGetFlags(s, &flags));
    EXPECT(CU_STREAM_NON_BLOCKING, flags);
    OK(cuStreamGetCtx(s, &c));
    EXPECT(1, c == context);
    OK(cuStreamGetCtx(CU_STREAM_LEGACY, &c));
    EXPECT(1, c == context);
    OK(cuStreamGetCtx(CU_STREAM_PER_THREAD, &c));
    EXPECT(1, c == context);
    OK(cuStreamQuery(s));
    Hold h;
    hold(&h, s);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
    let_go(&h, s);
    OK(cuStreamQuery(s));
    OK(cuStreamDestroy(s));
}

static void events(void) {
    CUstream a = new_stream(1), b = new_stream(1);
    CUevent e = new_event();
    float ms;
    OK(cuEventQuery(e)); /* nothing recorded */
    OK(cuEventSynchronize(e));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuStreamSynchronize(b));

    Hold h;
    hold(&h, a);
    OK(cuEventRecord(e, a));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
    OK(cuStreamWaitEvent(b, e, 0));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
    OK(cuEventRecord(e, CU_STREAM_PER_THREAD)); /* does not change b's wait, for the earlier recording */
    OK(cuEventSynchronize(e));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
    OK(cuEventDestroy(e)); /* the wait does not need the event any more */
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
    let_go(&h, a);
    OK(cuStreamSynchronize(b));

    CUevent from, to, never;
    OK(cuEventCreate(&from, 0));
    OK(cuEventCreate(&to, 0));
    OK(cuEventCreate(&never, 0));
    OK(cuEventRecord(from, a));
    hold(&h, a);
    OK(cuEventRecord(to, a));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, from, to));
    let_go(&h, a);
    OK(cuEventElapsedTime(&ms, from, to));
    EXPECT(1, ms >= 0);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, from, never));
    OK(cuEventDestroy(from));
    OK(cuEventDestroy(to));
    OK(cuEventDestroy(never));
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
}

/* The legacy stream and blocking streams wait for each other's work. Non-blocking streams do not take part. */
static void legacy(void) {
    CUstream blocking = new_stream(0), apart = new_stream(1);
    CUevent e = new_event();
    Hold h;
    hold(&h, blocking);
    OK(cuEventRecord(e, CU_STREAM_LEGACY));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
    OK(cuEventRecord(e, NULL));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
    let_go(&h, blocking);
    OK(cuEventSynchronize(e));

    hold(&h, CU_STREAM_LEGACY);
    OK(cuEventRecord(e, blocking));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
    OK(cuEventRecord(e, CU_STREAM_PER_THREAD));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
    OK(cuEventRecord(e, apart));
    OK(cuEventSynchronize(e));
    let_go(&h, CU_STREAM_LEGACY);

    hold(&h, apart);
    OK(cuEventRecord(e, CU_STREAM_LEGACY));
    OK(cuEventSynchronize(e));
    let_go(&h, apart);
    OK(cuEventDestroy(e));
    OK(cuStreamDestroy(apart));
    OK(cuStreamDestroy(blocking));
}

static void *of_another_thread(void *e) {
    OK(cuCtxSetCurrent(context));
    OK(cuEventRecord(e, CU_STREAM_PER_THREAD));
    OK(cuEventSynchronize(e));
    return NULL;
}

static void per_thread(void) {
    CUevent e = new_event();
    Hold h;
    hold(&h, CU_STREAM_PER_THREAD);
    in_thread(of_another_thread, e); /* stream 2 is another stream in that thread */
    let_go(&h, CU_STREAM_PER_THREAD);
    OK(cuEventDestroy(e));
}

/* Destroying a stream does not wait for its work, which continues. */
static void destroyed_with_work(void) {
    CUstream s = new_stream(1);
    CUevent e = new_event();
    Hold h;
    hold(&h, s);
    OK(cuEventRecord(e, s));
    OK(cuStreamDestroy(s));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(e));
    sem_post(&h.end);
    OK(cuEventSynchronize(e));
    OK(cuEventDestroy(e));
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static void memory(void) {
    CUdeviceptr d, other;
    unsigned char *pinned, *pageable = malloc(N), *back = malloc(N);
    unsigned type;
    int ordinal;
    CUstream s = new_stream(1);
    OK(cuMemAlloc(&d, N));
    OK(cuMemAlloc(&other, N));
    EXPECT(0, d % 256);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&other, 0));
    OK(cuMemHostAlloc((void **)&pinned, N, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 5));
    EXPECT(CU_MEMORYTYPE_DEVICE, type);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned + 5));
    EXPECT(CU_MEMORYTYPE_HOST, type);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, d));
    EXPECT(0, ordinal);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pageable));

    for (int i = 0; i < N; i++) pinned[i] = (unsigned char)(i * 7), pageable[i] = (unsigned char)(i * 11);
    OK(cuMemcpyHtoDAsync(d, pinned, N, s));
    OK(cuMemcpyDtoDAsync(other, d, N, s));
    OK(cuMemcpyDtoHAsync(back, other, N, s));
    OK(cuStreamSynchronize(s));
    OK(memcmp(pinned, back, N));
    OK(cuMemcpyHtoD(d, pageable, N));
    memset(back, 0, N);
    OK(cuMemcpyDtoH(back, d, N));
    OK(memcmp(pageable, back, N));
    OK(cuMemsetD8Async(d, 0x42, N, s));
    OK(cuMemcpyDtoHAsync(pinned, d, N, s));
    OK(cuStreamSynchronize(s));
    for (int i = 0; i < N; i++) EXPECT(0x42, pinned[i]);
    OK(cuMemcpyHtoDAsync(d, pinned, 0, s));

    /* Pageable memory may be overwritten after the call. */
    Hold h;
    hold(&h, s);
    memset(pageable, 1, 4096);
    OK(cuMemcpyHtoDAsync(d, pageable, 4096, s));
    memset(pageable, 2, 4096);
    let_go(&h, s);
    OK(cuMemcpyDtoH(back, d, 4096));
    EXPECT(1, back[0]);
    EXPECT(1, back[4095]);

    OK(cuMemFree(0));
    OK(cuMemFree(d));
    OK(cuMemFree(other));
    OK(cuMemFreeHost(pinned));
    OK(cuStreamDestroy(s));
    free(pageable);
    free(back);
}

static void registering(void) {
    char *p = mmap(NULL, 4 * N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(1, p != MAP_FAILED);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(p, 0, 0));
    OK(cuMemHostRegister(p, 2 * N, CU_MEMHOSTREGISTER_PORTABLE));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(p, 2 * N, 0));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(p + N, 2 * N, 0));
    OK(cuMemHostRegister(p + 2 * N, N, 0));
    EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(p + 3 * N));
    OK(cuMemHostUnregister(p + 2 * N));
    OK(cuMemHostUnregister(p));
    EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(p));
    munmap(p, 4 * N);
}

static void in_order_of_a_stream(void) {
    CUstream s = new_stream(1);
    CUdeviceptr d;
    unsigned char back[16];
    OK(cuMemAllocAsync(&d, N, s));
    OK(cuMemsetD8Async(d, 9, N, s));
    OK(cuMemcpyDtoHAsync(back, d, sizeof back, s));
    OK(cuMemFreeAsync(d, s));
    OK(cuStreamSynchronize(s));
    EXPECT(9, back[15]);
    OK(cuStreamDestroy(s));
}

static void too_much(void) {
    size_t left, total;
    CUdeviceptr d;
    OK(cuMemGetInfo(&left, &total));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&d, total + N));
    OK(cuMemAlloc(&d, N)); /* the error before did not break the context */
    OK(cuMemFree(d));
}

/* ---- Captures --------------------------------------------------------------------------------------------------- */

static void begin(CUstream s, CUstreamCaptureMode mode) { OK(cuStreamBeginCapture(s, mode)); }

static CUresult end(CUstream s) {
    CUgraph graph;
    CUresult r = cuStreamEndCapture(s, &graph);
    EXPECT(r == CUDA_SUCCESS, graph != NULL);
    if (graph) OK(cuGraphDestroy(graph));
    return r;
}

static CUstreamCaptureStatus status(CUstream s) {
    CUstreamCaptureStatus found;
    OK(cuStreamIsCapturing(s, &found));
    return found;
}

static CUresult allocate(void) {
    void *p;
    CUresult r = cuMemHostAlloc(&p, 4096, 0);
    if (!r) OK(cuMemFreeHost(p));
    return r;
}

typedef struct Allocation {
    CUstreamCaptureMode mode;
    CUresult r;
} Allocation;

static void *allocate_elsewhere(void *argument) {
    Allocation *a = argument;
    CUstreamCaptureMode before = a->mode;
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&before));
    EXPECT(CU_STREAM_CAPTURE_MODE_GLOBAL, before); /* the mode of a new thread */
    a->r = allocate();
    return NULL;
}

/* The effect of an allocation on a capture of another thread, or of the same thread. */
static void unsafe_calls(CUstreamCaptureMode capture, CUstreamCaptureMode thread, int elsewhere,
                         int allowed) {
    CUstream s = new_stream(1);
    CUresult r;
    begin(s, capture);
    if (elsewhere) {
        Allocation a = {thread, CUDA_SUCCESS};
        in_thread(allocate_elsewhere, &a);
        r = a.r;
    } else {
        OK(cuThreadExchangeStreamCaptureMode(&thread));
        r = allocate();
        OK(cuThreadExchangeStreamCaptureMode(&thread));
    }
    EXPECT(allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, r);
    EXPECT(allowed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED, status(s));
    EXPECT(allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(s));
    EXPECT(CU_STREAM_CAPTURE_STATUS_NONE, status(s));
    OK(cuStreamDestroy(s));
}

static void capture_modes(void) {
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL,
                              local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    /* captures of the same thread */
    unsafe_calls(global, global, 0, 0);
    unsafe_calls(global, local, 0, 0);
    unsafe_calls(global, relaxed, 0, 1);
    unsafe_calls(local, global, 0, 0);
    unsafe_calls(local, local, 0, 0);
    unsafe_calls(local, relaxed, 0, 1);
    unsafe_calls(relaxed, global, 0, 1);
    /* captures of another thread */
    unsafe_calls(global, global, 1, 0);
    unsafe_calls(global, local, 1, 1);
    unsafe_calls(global, relaxed, 1, 1);
    unsafe_calls(local, global, 1, 1);
    unsafe_calls(relaxed, global, 1, 1);
}

static void *end_elsewhere(void *s) {
    CUgraph graph;
    OK(cuCtxSetCurrent(context));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(s, &graph));
    return NULL;
}

static void captured_work(void) {
    CUstream s = new_stream(1), fork = new_stream(1), other = new_stream(1);
    CUevent e = new_event(), outside = new_event(), back = new_event();
    CUdeviceptr d;
    unsigned char byte = 0;
    OK(cuMemAlloc(&d, N));
    OK(cuMemsetD8Async(d, 1, N, s));
    OK(cuStreamSynchronize(s));
    OK(cuEventRecord(outside, other));

    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(d, 2, N, s));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(fork, e, 0)); /* the stream joins the capture */
    EXPECT(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(fork));
    OK(cuMemsetD8Async(d, 3, N, fork));
    OK(cuEventRecord(back, fork));
    OK(cuStreamWaitEvent(s, back, 0));
    OK(end(s));
    OK(cuStreamSynchronize(s)); /* no captured work has run */
    OK(cuMemcpyDtoH(&byte, d, 1));
    EXPECT(1, byte);

    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(fork, e, 0));
    OK(cuMemsetD8Async(d, 3, N, fork));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, end(s));
    EXPECT(CU_STREAM_CAPTURE_STATUS_NONE, status(fork));

    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, outside, 0));
    EXPECT(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status(s));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(d, 4, N, s));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(s));

    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(s));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(s));
    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(s));
    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(s));
    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, s));
    EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(s));

    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    begin(other, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, other));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(s, e, 0));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(s));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(other));

    begin(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    in_thread(end_elsewhere, s);
    OK(end(s));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, end(s));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));

    OK(cuMemFree(d));
    OK(cuEventDestroy(e));
    OK(cuEventDestroy(outside));
    OK(cuEventDestroy(back));
    OK(cuStreamDestroy(s));
    OK(cuStreamDestroy(fork));
    OK(cuStreamDestroy(other));
}

/* While a blocking stream captures, the legacy stream cannot be used. */
static void capture_and_legacy(void) {
    CUstream blocking = new_stream(0), apart = new_stream(1);
    CUevent e = new_event();
    CUstreamCaptureStatus found;
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(CU_STREAM_LEGACY, &found));
    EXPECT(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(blocking)); /* the query does not invalidate the capture */
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuEventRecord(e, CU_STREAM_LEGACY));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(blocking));
    EXPECT(CU_STREAM_CAPTURE_STATUS_NONE, status(CU_STREAM_LEGACY));
    begin(apart, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, CU_STREAM_LEGACY));
    OK(end(apart));
    OK(cuEventDestroy(e));
    OK(cuStreamDestroy(blocking));
    OK(cuStreamDestroy(apart));
}

/* Calls that a consumer's thread makes frequently are safe during a capture. */
static void safe_calls(void) {
    CUstream s = new_stream(1), other = new_stream(1);
    CUevent e = new_event();
    CUcontext c;
    begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(e, other));
    OK(cuStreamWaitEvent(other, e, 0));
    OK(cuStreamGetCtx(other, &c));
    EXPECT(CU_STREAM_CAPTURE_STATUS_NONE, status(other));
    EXPECT(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(s));
    OK(end(s));
    OK(cuEventDestroy(e));
    OK(cuStreamDestroy(s));
    OK(cuStreamDestroy(other));
}

/* ---- Processes -------------------------------------------------------------------------------------------------- */

static void forks(void) {
    pid_t child = fork();
    if (!child) {
        int n;
        CUcontext c;
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDevicePrimaryCtxRetain(&c, 0));
        _exit(42);
    }
    int how;
    EXPECT(child, waitpid(child, &how, 0));
    EXPECT(42, WIFEXITED(how) ? WEXITSTATUS(how) : -1);
}

int main(void) {
    before_init();
    devices();
    contexts();
    streams();
    events();
    legacy();
    per_thread();
    destroyed_with_work();
    memory();
    registering();
    in_order_of_a_stream();
    too_much();
    capture_modes();
    captured_work();
    capture_and_legacy();
    safe_calls();
    forks();
    OK(cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    puts("ok");
    return 0;
}
