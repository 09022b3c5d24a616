/* Tests of the functions of fakecuda.h and of the fake's additional checks. `fake NAME` runs one test. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../fakecuda.h"
#include "check.h"

enum { N = 1 << 16 };
static const double LONG = 60; /* seconds: longer than any wait that does not hang */

static CUcontext context;
static CUdeviceptr device;
static unsigned char *pinned;

static uint64_t number(CUstream s) { return (uint64_t)(uintptr_t)s; }

static CUstream new_stream(unsigned flags) {
    CUstream s;
    OK(cuStreamCreate(&s, flags));
    return s;
}

static CUevent new_event(void) {
    CUevent e;
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    return e;
}

static void set_up(void) {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&device, N));
    OK(cuMemHostAlloc((void **)&pinned, N, 0));
    memset(pinned, 1, N);
}

static void tear_down(void) {
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(device));
    OK(cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
    static const char *const alive[] = {
        "contexts",     "retains",    "streams",          "events",  "device", "device_bytes", "pinned",
        "pinned_bytes", "registered", "registered_bytes", "pending", "waits",  "captures"};
    for (size_t i = 0; i < sizeof alive / sizeof *alive; i++)
        check(__FILE__, __LINE__, alive[i], 0, fakecuda_count(alive[i]));
}

static void expect_hazards(int line, int64_t n) {
    check(__FILE__, line, "hazards", n, fakecuda_count("hazards"));
    OK(fakecuda_count("misuses"));
    EXPECT(n > 0, fakecuda_complaint()[0] != 0);
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static void pattern(void) {
    unsigned char got[N];
    set_up();
    OK(fakecuda_peek(device, got, N));
    for (int i = 0; i < N; i++) EXPECT(0xA5, got[i]);
    EXPECT(CUDA_ERROR_INVALID_VALUE, fakecuda_peek(device + 1, got, N));
    EXPECT(1, fakecuda_hash("a", 1) != fakecuda_hash("b", 1));
    EXPECT(1, fakecuda_hash("a\0", 1) != fakecuda_hash("a\0", 2));
    for (unsigned n = 0; n < 200; n++) { /* the hash depends on each byte */
        uint64_t before = fakecuda_hash(got, n + 1);
        got[n] ^= 1;
        EXPECT(1, fakecuda_hash(got, n + 1) != before);
    }
    tear_down();
}

/* Device memory is not mapped in the child of a fork, and cannot be accessed in the parent. Both get a SIGSEGV. */
static void touched(void) {
    set_up();
    if (!fork()) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile unsigned char *)(uintptr_t)device);
    }
    int how;
    EXPECT(1, wait(&how) > 0);
    signal(SIGSEGV, SIG_DFL); /* removes the handler of a sanitizer */
    puts("touching");
    fflush(stdout);
    EXPECT(SIGSEGV, WIFSIGNALED(how) ? WTERMSIG(how) : 0);
    EXPECT(-1, *(volatile unsigned char *)(uintptr_t)device);
}

static void limits(void) {
    set_up();
    CUdeviceptr d;
    void *p;
    size_t left, total;
    fakecuda_memory(3 * N);
    OK(cuMemGetInfo(&left, &total));
    EXPECT(2 * N, left);
    EXPECT(3 * N, total);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&d, 2 * N + 1));
    OK(cuMemAlloc(&d, 2 * N));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&d, 1, NULL));
    EXPECT(3 * N, fakecuda_count("device_bytes"));
    EXPECT(2, fakecuda_count("device"));
    OK(cuMemFree(d));
    EXPECT(3 * N, fakecuda_count("device_bytes_peak"));
    fakecuda_pinned(N + 4096);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&p, 4097, 0));
    static _Alignas(4096) char page[4096];
    OK(cuMemHostRegister(page, sizeof page, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&p, 1, 0));
    EXPECT(1, fakecuda_count("registered"));
    EXPECT(4096, fakecuda_count("registered_bytes"));
    EXPECT(N, fakecuda_count("pinned_bytes"));
    EXPECT(N + 4096, fakecuda_count("pinned_bytes_peak"));
    OK(cuMemHostUnregister(page));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister((void *)(uintptr_t)-8192, 4096, 0)); /* not mapped */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(device + 256));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(device + 1, pinned, N));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(pinned, device + 1, N));
    tear_down();
}

/* ---- Order ------------------------------------------------------------------------------------------------------ */

/* A copy reads its source when it runs. */
static void source(void) {
    set_up();
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
    unsigned char got;
    OK(cuMemcpyHtoDAsync(device, pinned, N, s));
    OK(cuStreamSynchronize(s));
    expect_hazards(__LINE__, 0);
    OK(fakecuda_let(number(s), 0));
    OK(cuMemcpyHtoDAsync(device, pinned, N, s));
    pinned[N - 1] = 9;
    OK(fakecuda_let(number(s), -1));
    OK(cuStreamSynchronize(s));
    expect_hazards(__LINE__, 1);
    OK(fakecuda_peek(device + N - 1, &got, 1));
    EXPECT(9, got);
    OK(fakecuda_let_copies(0, 0)); /* the same with all copies held */
    OK(cuMemcpyHtoDAsync(device, pinned, N, s));
    pinned[0] = 9;
    OK(fakecuda_let_copies(0, -1));
    OK(cuStreamSynchronize(s));
    expect_hazards(__LINE__, 2);
    EXPECT(3, fakecuda_count("copies"));
    EXPECT(3 * N, fakecuda_count("copy_bytes"));
    EXPECT(3, fakecuda_count("copies_done"));
    OK(fakecuda_count("pageable_copies"));
    unsigned char other[16] = {0};
    OK(cuMemcpyHtoDAsync(device, other, sizeof other, s));
    EXPECT(1, fakecuda_count("pageable_copies"));
    OK(cuMemcpyDtoHAsync(pinned, device, N, s));
    EXPECT(1, fakecuda_count("pageable_copies"));
    EXPECT(1, fakecuda_count("downloads"));
    EXPECT(N, fakecuda_count("download_bytes"));
    OK(cuStreamSynchronize(s));
    EXPECT(1, fakecuda_count("downloads_done"));
    OK(cuStreamDestroy(s));
    tear_down();
}

/* Each call of one() is a case: work on stream a, then a call that may order the two, then work on stream b. */
enum { READS, WRITES };
enum {
    NOTHING,
    EVENT,
    STREAM_WAITED,
    EVENT_WAITED,
    STREAM_QUERIED,
    EVENT_QUERIED,
    CONTEXT_WAITED,
    EVENT_TOO_EARLY,
    ELSEWHERE
};

static void work(CUstream s, int kind) {
    if (kind == READS)
        OK(fakecuda_kernel(number(s), 0, device, N, 0, 0, 0));
    else
        OK(cuMemcpyHtoDAsync(device + N / 2, pinned, N / 4, s));
}

static void one(int first, int how, int second, int64_t hazards) {
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent e = new_event();
    CUdeviceptr elsewhere;
    OK(cuMemAlloc(&elsewhere, N));
    fakecuda_reset();
    if (how == EVENT_TOO_EARLY) OK(cuEventRecord(e, a));
    work(a, first);
    switch (how) {
        case EVENT:
            OK(cuEventRecord(e, a));
            OK(cuStreamWaitEvent(b, e, 0));
            break;
        case EVENT_TOO_EARLY:
            OK(cuStreamWaitEvent(b, e, 0));
            break;
        case STREAM_WAITED:
            OK(cuStreamSynchronize(a));
            break;
        case EVENT_WAITED:
            OK(cuEventRecord(e, a));
            OK(cuEventSynchronize(e));
            break;
        case CONTEXT_WAITED:
            OK(cuCtxSynchronize());
            break;
        case STREAM_QUERIED:
            while (cuStreamQuery(a) == CUDA_ERROR_NOT_READY) {
            }
            break;
        case EVENT_QUERIED:
            OK(cuEventRecord(e, a));
            while (cuEventQuery(e) == CUDA_ERROR_NOT_READY) {
            }
            break;
        case NOTHING:
            EXPECT(1, fakecuda_await(first == READS ? "kernels" : "copies_done", 1, LONG));
            break;
        default:
            break;
    }
    if (how == ELSEWHERE)
        OK(cuMemcpyHtoDAsync(elsewhere, pinned, N, b));
    else
        work(b, second);
    OK(cuCtxSynchronize());
    expect_hazards(__LINE__, hazards);
    OK(cuMemFree(elsewhere));
    OK(cuEventDestroy(e));
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
}

/* Work on a that happens to be done is not ordered before work on b, unless the host has waited for it. */
static void order(void) {
    set_up();
    one(READS, NOTHING, WRITES, 1);
    one(WRITES, NOTHING, READS, 1);
    one(WRITES, NOTHING, WRITES, 1);
    one(READS, NOTHING, READS, 0);
    one(READS, ELSEWHERE, WRITES, 0);
    one(READS, EVENT_TOO_EARLY, WRITES, 1);
    for (int how = EVENT; how <= CONTEXT_WAITED; how++) {
        one(READS, how, WRITES, 0);
        one(WRITES, how, READS, 0);
    }

    /* an order through a third stream, while the reader is held */
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING),
             c = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent e = new_event();
    fakecuda_reset();
    OK(fakecuda_let(number(a), 0));
    work(a, READS);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuEventRecord(e, b));
    OK(cuStreamWaitEvent(c, e, 0));
    work(c, WRITES);
    expect_hazards(__LINE__, 0);
    EXPECT(6, fakecuda_count("pending"));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(c));
    work(b, WRITES);
    expect_hazards(__LINE__, 1); /* b's copy is not ordered with c's */
    OK(fakecuda_let(number(a), 1));
    EXPECT(1, fakecuda_await("kernels", 1, LONG));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
    OK(fakecuda_let(number(a), -1));
    OK(cuStreamSynchronize(c));
    OK(cuStreamSynchronize(b));
    expect_hazards(__LINE__, 1);

    /* streams that wait for one another without events */
    fakecuda_reset();
    CUstream blocking = new_stream(0);
    work(blocking, READS);
    work(CU_STREAM_LEGACY, WRITES);
    work(CU_STREAM_PER_THREAD, READS);
    work(NULL, WRITES);
    expect_hazards(__LINE__, 0);
    work(a, READS);
    expect_hazards(__LINE__, 1);
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    OK(cuStreamDestroy(c));
    OK(cuStreamDestroy(blocking));
    OK(cuEventDestroy(e));
    tear_down();
}

/* Accesses to pinned memory must be ordered too, and the host must wait for them before it unregisters the memory. */
static void host_memory(void) {
    set_up();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    static _Alignas(4096) unsigned char ours[4096];
    OK(cuMemHostRegister(ours, sizeof ours, 0));
    OK(cuMemcpyHtoDAsync(device + N / 2, ours, sizeof ours, a));
    EXPECT(1, fakecuda_await("copies_done", 1, LONG));
    expect_hazards(__LINE__, 0);
    OK(cuMemcpyDtoHAsync(ours, device, sizeof ours, b)); /* not ordered after a's copy, which reads `ours` */
    EXPECT(1, fakecuda_await("downloads_done", 1, LONG));
    expect_hazards(__LINE__, 1);
    OK(cuStreamSynchronize(a));
    OK(cuMemHostUnregister(ours)); /* before the host has waited for b */
    expect_hazards(__LINE__, 2);
    fakecuda_reset();
    OK(cuMemHostRegister(ours, sizeof ours, 0));
    ours[0] = 1;
    OK(fakecuda_let(number(a), 0));
    OK(cuMemcpyDtoHAsync(ours, device, sizeof ours, a)); /* changes the source of the next copy, in order */
    OK(cuMemcpyHtoDAsync(device, ours, sizeof ours, a));
    OK(fakecuda_let(number(a), -1));
    OK(cuStreamSynchronize(a));
    EXPECT(0xA5, ours[0]);
    OK(cuMemHostUnregister(ours));
    expect_hazards(__LINE__, 0);
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    tear_down();
}

static void CUDA_CB slow(void *argument) {
    int *state = argument;
    fakecuda_fail("cuInit", 1, 999, 0, 0); /* locks, so that other threads see the next write */
    state[0] = 1;
    usleep(20000);
    state[1] = 1;
}

/* Held streams and copies: exactly as much work begins as is allowed. */
static void held(void) {
    set_up();
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
    OK(fakecuda_let(number(s), 0));
    for (int i = 0; i < 3; i++) OK(fakecuda_kernel(number(s), 0, 0, 0, 0, 0, 0));
    OK(fakecuda_await("kernels", 1, 0.05));
    OK(fakecuda_let(number(s), 2));
    EXPECT(1, fakecuda_await("kernels", 2, LONG));
    OK(fakecuda_await("kernels", 3, 0.05));
    OK(fakecuda_let(number(s), -1));
    EXPECT(1, fakecuda_await("kernels", 3, LONG));

    OK(fakecuda_let_copies(0, 0));
    OK(cuMemcpyHtoDAsync(device, pinned, 1, s));
    OK(cuMemcpyHtoDAsync(device + 1, pinned, 1, other));
    OK(fakecuda_kernel(number(CU_STREAM_PER_THREAD), 0, 0, 0, 0, 0, 0)); /* not a copy, so not held */
    EXPECT(1, fakecuda_await("kernels", 4, LONG));
    OK(fakecuda_await("copies_done", 1, 0.05));
    OK(fakecuda_let_copies(0, 1));
    EXPECT(1, fakecuda_await("copies_done", 1, LONG));
    OK(fakecuda_await("copies_done", 2, 0.05));
    fakecuda_reset(); /* resumes all streams and copies */
    OK(cuCtxSynchronize());
    OK(fakecuda_let(number(s), 0));
    OK(fakecuda_kernel(number(s), 0, 0, 0, 0, 0, 0));
    fakecuda_reset();
    OK(cuStreamSynchronize(s));

    int did[2] = {0}; /* fakecuda_let(.., 0) waits for work that is running */
    fakecuda_pace(0, 1000);
    OK(cuLaunchHostFunc(s, slow, did));
    OK(fakecuda_kernel(number(s), 0, 0, 0, 0, 0, 0));
    OK(cuMemcpyHtoD(device, pinned, 1)); /* gives the function time to begin */
    OK(fakecuda_let(number(s), 0));
    EXPECT(did[0], did[1]);
    OK(fakecuda_let(number(s), -1));
    OK(cuStreamSynchronize(s));
    EXPECT(1, did[1]);
    OK(cuStreamDestroy(s));
    OK(cuStreamDestroy(other));
    tear_down();
}

static void CUDA_CB post(void *said) { sem_post(said); }

/* A host function orders the work before it in its stream before later calls of the host. */
static void told(void) {
    set_up();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    sem_t said;
    sem_init(&said, 0, 0);
    work(a, READS);
    OK(cuLaunchHostFunc(a, post, &said));
    while (sem_wait(&said)) {
    }
    work(b, WRITES);
    expect_hazards(__LINE__, 0);
    work(a, READS); /* after the function, so not ordered with b */
    expect_hazards(__LINE__, 1);
    sem_destroy(&said);
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    tear_down();
}

/* Another stream must wait before it uses memory that a stream allocates. */
static void allocated_in_a_stream(void) {
    set_up();
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr d;
    OK(cuMemAllocAsync(&d, N, a));
    OK(fakecuda_kernel(number(a), 0, d, N, 0, 0, 0));
    expect_hazards(__LINE__, 0);
    OK(fakecuda_kernel(number(b), 0, d, N, 0, 0, 0));
    expect_hazards(__LINE__, 1);
    OK(fakecuda_let(number(a), 0));
    OK(cuMemFreeAsync(d, a)); /* not ordered after b's kernel */
    expect_hazards(__LINE__, 2);
    EXPECT(2, fakecuda_count("device"));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(d, a));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(d, pinned, N, a));
    OK(fakecuda_let(number(a), -1));
    OK(cuCtxSynchronize());
    EXPECT(1, fakecuda_count("device"));
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    tear_down();
}

static void *free_it(void *unused) {
    OK(cuCtxSetCurrent(context));
    OK(cuMemFree(device));
    return unused;
}

/* Freeing waits for the context's work, here for that of a held stream. */
static void freeing_waits(void) {
    set_up();
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
    OK(fakecuda_let(number(s), 0));
    OK(cuMemcpyHtoDAsync(device, pinned, N, s));
    pthread_t t;
    OK(pthread_create(&t, NULL, free_it, NULL));
    EXPECT(1, fakecuda_await("cuMemFree_v2", 1, LONG));
    EXPECT(1, fakecuda_count("device"));
    OK(fakecuda_let(number(s), -1));
    OK(pthread_join(t, NULL));
    EXPECT(1, fakecuda_count("copies_done"));
    OK(fakecuda_count("device"));
    OK(cuMemAlloc(&device, N));
    OK(cuStreamDestroy(s));
    tear_down();
}

static void sums(void) {
    set_up();
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
    uint64_t before, after;
    unsigned char filled[N];
    OK(cuMemcpyHtoDAsync(device, pinned, N, s));
    OK(fakecuda_sum(number(s), device, N, &before));
    OK(fakecuda_kernel(number(s), 1, 0, 0, device, N, 0));
    OK(fakecuda_sum(number(s), device, N, &after));
    OK(fakecuda_synchronize(number(s)));
    memset(filled, 0xC3, N);
    EXPECT(1, fakecuda_hash(pinned, N) == before);
    EXPECT(1, fakecuda_hash(filled, N) == after);
    EXPECT(1, before != after);
    EXPECT(1, fakecuda_count("kernels"));
    EXPECT(CUDA_ERROR_INVALID_VALUE, fakecuda_kernel(number(s), 0, device, N + 1, 0, 0, 0));
    OK(cuStreamDestroy(s));
    tear_down();
}

/* A copy at 0.001 GB/s takes at least as long as its size requires. */
static void pace(void) {
    set_up();
    struct timespec a, b;
    fakecuda_pace(1e-2, 1000);
    clock_gettime(CLOCK_MONOTONIC, &a);
    OK(cuMemcpyHtoD(device, pinned, N));
    clock_gettime(CLOCK_MONOTONIC, &b);
    EXPECT(1, (b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) / 1e3 >= N / 1e-2 / 1e3 + 1000);
    tear_down();
}

/* ---- Misuse ----------------------------------------------------------------------------------------------------- */

static void CUDA_CB calls_cuda(void *result) {
    int n;
    *(CUresult *)result = cuDeviceGetCount(&n);
}

static void misuse(void) {
    set_up();
    CUstream s = new_stream(0);
    CUevent e = new_event();
    OK(cuStreamDestroy(s));
    OK(cuEventDestroy(e));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(s));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(s));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(e));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(e, NULL));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery((CUstream)(uintptr_t)0x1234));
    EXPECT(5, fakecuda_count("misuses"));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(NULL));
    CUresult r = CUDA_SUCCESS;
    OK(cuLaunchHostFunc(CU_STREAM_LEGACY, calls_cuda, &r));
    OK(cuStreamSynchronize(CU_STREAM_LEGACY));
    EXPECT(CUDA_ERROR_NOT_PERMITTED, r);
    EXPECT(6, fakecuda_count("misuses"));
    EXPECT(1, strstr(fakecuda_complaint(), "cuDeviceGetCount") != NULL);
    EXPECT(-1, fakecuda_count("no such count"));
    EXPECT(-1, fakecuda_await("no such count", 1, 1));
    OK(fakecuda_await("misuses", 7, 0));
    for (int i = 0; i < 100; i++) EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(s));
    EXPECT(106, fakecuda_count("misuses"));
    tear_down();
}

/* Objects that were not destroyed are destroyed with their context at its last release, and counted as leaks. */
static void leaks(void) {
    set_up();
    CUstream s = new_stream(0);
    (void)new_event();
    OK(fakecuda_let(number(s), 0));
    OK(cuMemcpyHtoDAsync(device, pinned, N, s));
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT(4, fakecuda_count("leaks"));
    EXPECT(1, fakecuda_count("copies_done"));
    static const char *const alive[] = {"contexts", "streams", "events", "device", "pinned", "pending"};
    for (size_t i = 0; i < sizeof alive / sizeof *alive; i++) OK(fakecuda_count(alive[i]));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamCreate(&s, 0));
    EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery(NULL));
}

/* ---- Failures --------------------------------------------------------------------------------------------------- */

static void failures(void) {
    set_up();
    CUdeviceptr d;
    EXPECT(-1, fakecuda_fail("cuNoSuch", 1, 2, 0, 0));
    EXPECT(-1, fakecuda_fail("cuMemAlloc_v2", 0, 2, 0, 0));
    EXPECT(-1, fakecuda_fail("cuMemAlloc_v2", 1, 0, 0, 0));
    fakecuda_reset();
    OK(fakecuda_fail("cuMemAlloc_v2", 2, 2, 0, 0));
    OK(cuMemAlloc(&d, N));
    OK(cuMemFree(d));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&d, N));
    EXPECT(1, fakecuda_count("failures"));
    EXPECT(2, fakecuda_count("cuMemAlloc_v2"));
    EXPECT(3, fakecuda_count("calls"));
    OK(cuMemAlloc(&d, N));
    OK(fakecuda_fail("cuMemFree_v2", 1, 999, 0, 0)); /* the call frees nevertheless */
    EXPECT(CUDA_ERROR_UNKNOWN, cuMemFree(d));
    EXPECT(1, fakecuda_count("device"));
    OK(fakecuda_fail("*", 2, 46, 0, 1));
    int n;
    const char *s;
    OK(cuDeviceGetCount(&n));
    OK(cuGetErrorName(CUDA_SUCCESS, &s));
    EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuDeviceGetCount(&n));
    EXPECT(CUDA_ERROR_DEVICE_UNAVAILABLE, cuMemAlloc(&d, N));
    OK(cuGetErrorName(CUDA_SUCCESS, &s));
    fakecuda_reset();
    OK(fakecuda_count("failures"));
    tear_down();
}

static void CUDA_CB never(void *called) { *(int *)called = 1; }

/* Work that fails breaks its context, but no other. Holds of streams in a broken context have no effect. */
static void broken(void) {
    fakecuda_devices(2);
    set_up();
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING), held = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent e = new_event(), unused = new_event();
    int called = 0;
    uint64_t other;
    OK(fakecuda_stream_create(1, 1, &other));
    OK(fakecuda_let(number(held), 0));
    OK(fakecuda_let_copies(0, 0));
    OK(cuMemcpyHtoDAsync(device + N / 2, pinned, N / 4, held));
    OK(fakecuda_fail("cuMemcpyHtoDAsync_v2", 1, 719, 1, 0));
    OK(fakecuda_let(number(s), 0));
    OK(cuMemcpyHtoDAsync(device, pinned, N / 2, s)); /* the call succeeds; its work fails */
    static _Alignas(4096) unsigned char ours[4096];
    OK(cuMemHostRegister(ours, sizeof ours, 0));
    OK(cuLaunchHostFunc(s, never, &called));
    OK(cuEventRecord(e, s));
    OK(cuStreamQuery(CU_STREAM_LEGACY));
    OK(fakecuda_let(number(CU_STREAM_PER_THREAD), 0));
    OK(cuMemcpyHtoDAsync(device + 3 * N / 4, ours, sizeof ours, CU_STREAM_PER_THREAD));
    OK(fakecuda_let_copies(0, -1));
    OK(fakecuda_let(number(s), -1));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuEventSynchronize(e));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(held));
    OK(called);
    OK(fakecuda_count("copies_done"));
    CUdeviceptr d;
    size_t left, total;
    float ms;
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuMemAlloc(&d, N));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuMemGetInfo(&left, &total));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuMemcpyHtoDAsync(device, pinned, N, s));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamQuery(s));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuEventQuery(e));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuEventRecord(e, s));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamWaitEvent(s, e, 0));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuEventElapsedTime(&ms, e, e));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamCreate(&held, 0));
    OK(fakecuda_kernel(other, 0, 0, 0, 0, 0, 0));
    OK(fakecuda_synchronize(other));
    EXPECT(1, fakecuda_count("kernels"));
    /* calls that release do so and return the code */
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuMemHostUnregister(ours));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuEventDestroy(e));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamDestroy(s));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuMemFree(device));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuMemFreeHost(pinned));
    expect_hazards(__LINE__, 0);
    EXPECT(1, fakecuda_count("events"));
    OK(cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0)); /* objects of a broken context are not leaks */
    (void)unused;
    OK(fakecuda_count("leaks"));
    OK(fakecuda_stream_destroy(other));
    set_up(); /* a new context is not broken */
    OK(cuMemcpyHtoD(device, pinned, N));
    OK(fakecuda_break(0, 700));
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyHtoD(device, pinned, N));
    fakecuda_reset();
    OK(cuMemcpyHtoD(device, pinned, N));
    OK(fakecuda_kernel(0, 0, device, N, 0, 0, 716));
    EXPECT(CUDA_ERROR_MISALIGNED_ADDRESS, fakecuda_synchronize(0));
    fakecuda_reset();
    tear_down();
}

/* ---- Several devices -------------------------------------------------------------------------------------------- */

static void devices(void) {
    fakecuda_devices(8);
    set_up();
    int n;
    char name[32];
    CUcontext second;
    CUdeviceptr there;
    OK(cuDeviceGetCount(&n));
    EXPECT(8, n);
    OK(cuDeviceGetName(name, sizeof name, 7));
    OK(strcmp("Fake GPU 7", name));
    CUuuid a, b;
    OK(cuDeviceGetUuid(&a, 0));
    OK(cuDeviceGetUuid_v2(&b, 1));
    EXPECT(1, memcmp(&a, &b, sizeof a) != 0);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    EXPECT(1, second != context);
    EXPECT(2, fakecuda_count("contexts"));

    CUstream here = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent of_here = new_event();
    OK(cuCtxPushCurrent(second));
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent e = new_event();
    OK(cuMemAlloc(&there, N));
    OK(cuPointerGetAttribute(&n, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
    EXPECT(1, n);
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(of_here, s)); /* the event belongs to another context */
    OK(cuEventRecord(of_here, here));
    OK(cuStreamWaitEvent(s, of_here, 0)); /* waits for an event of another context are allowed */
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync(device, pinned, N, s));
    OK(fakecuda_let(number(here), 0)); /* such a wait takes effect, below */
    OK(cuMemcpyHtoDAsync(device, pinned, N, here));
    OK(cuEventRecord(of_here, here));
    OK(cuStreamWaitEvent(s, of_here, 0));
    OK(cuMemcpyDtoDAsync(there, device, N, s));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
    OK(fakecuda_let(number(here), -1));
    OK(cuStreamSynchronize(s));
    expect_hazards(__LINE__, 0);
    unsigned char got;
    OK(fakecuda_peek(there + N - 1, &got, 1));
    EXPECT(1, got);
    EXPECT(1, fakecuda_stream_at(0) == number(here));
    EXPECT(1, fakecuda_stream_at(1) == number(s));
    OK(fakecuda_stream_at(2));
    OK(cuMemFree(there));
    OK(cuEventDestroy(e));
    OK(cuEventDestroy(of_here));
    OK(cuStreamDestroy(s));
    OK(cuStreamDestroy(here));
    OK(cuCtxPopCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(1));
    tear_down();
}

static void no_device(void) {
    int n;
    fakecuda_devices(0);
    EXPECT(CUDA_ERROR_NO_DEVICE, cuInit(0));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
    uint64_t s;
    EXPECT(CUDA_ERROR_NO_DEVICE, fakecuda_stream_create(0, 0, &s));
}

/* ---- A consumer, captures --------------------------------------------------------------------------------------- */

static void consumer(void) {
    uint64_t s;
    OK(fakecuda_stream_create(0, 1, &s));
    OK(fakecuda_count("calls"));
    EXPECT(1, fakecuda_count("streams"));
    EXPECT(1, fakecuda_count("contexts"));
    OK(fakecuda_begin_capture(s, 0));
    EXPECT(1, fakecuda_count("captures"));
    OK(fakecuda_kernel(s, 0, 0, 0, 0, 0, 0));
    CUcontext shared;
    OK(cuDevicePrimaryCtxRetain(&shared, 0));
    OK(cuCtxSetCurrent(shared));
    CUevent e = new_event();
    OK(cuEventRecord(e, (CUstream)(uintptr_t)s));
    OK(fakecuda_end_capture(s));
    EXPECT(CUDA_ERROR_CAPTURED_EVENT,
           cuStreamWaitEvent((CUstream)(uintptr_t)s, e, 0)); /* also after the capture */
    OK(cuEventDestroy(e));
    OK(cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, fakecuda_end_capture(s));
    OK(fakecuda_count("kernels"));
    OK(fakecuda_begin_capture(s, 0));
    fakecuda_reset();
    OK(fakecuda_count("captures"));
    CUstreamCaptureStatus found;
    OK(cuStreamIsCapturing((CUstream)(uintptr_t)s, &found));
    EXPECT(CU_STREAM_CAPTURE_STATUS_NONE, found);
    OK(fakecuda_stream_destroy(s));
    OK(fakecuda_count("streams"));
    OK(fakecuda_count("contexts"));
    OK(fakecuda_count("leaks"));
    OK(fakecuda_count("misuses"));
}

static void proc_address(void) {
    void *f = NULL;
    CUdriverProcAddressQueryResult how;
    OK(cuGetProcAddress("cuMemAlloc", &f, 12000, 0, &how));
    EXPECT(1, f == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    OK(cuGetProcAddress("cuInit", &f, 12000, 0, NULL));
    EXPECT(1, f == dlsym(RTLD_DEFAULT, "cuInit"));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuMem", &f, 12000, 0, &how));
    EXPECT(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, how);
    EXPECT(1, f == NULL);
}

/* ---- The environment, and the end ------------------------------------------------------------------------------- */

/* Run with FAKECUDA_DEVICES=3 FAKECUDA_MEMORY=131072 FAKECUDA_PINNED=65536 FAKECUDA_DRIVER_VERSION=12060
 * FAKECUDA_FAIL=cuMemAlloc_v2@2=2,cuMemcpyHtoDAsync_v2@1=719! */
static void environment(void) {
    set_up();
    int n;
    void *p;
    CUdeviceptr d;
    size_t left, total;
    CUstream s = new_stream(0);
    OK(cuDeviceGetCount(&n));
    EXPECT(3, n);
    OK(cuDriverGetVersion(&n));
    EXPECT(12060, n);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&p, 1, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&d, 1));
    OK(cuMemAlloc(&d, 1));
    OK(cuMemFree(d));
    OK(cuMemGetInfo(&left, &total));
    EXPECT(131072, total);
    OK(cuMemcpyHtoDAsync(device, pinned, N, s));
    EXPECT(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(s));
    fakecuda_reset();
    OK(cuMemcpyHtoDAsync(device, pinned, N, s));
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy(s));
    tear_down();
}

static void late(void) {
    int n;
    EXPECT(CUDA_ERROR_DEINITIALIZED, cuDeviceGetCount(&n));
    EXPECT(CUDA_ERROR_DEINITIALIZED, cuInit(0));
    puts("late");
}

/* Ends the process while a stream is working. */
static void ends(void) {
    atexit(late);
    set_up();
    int n;
    fakecuda_deinitialize(1);
    EXPECT(CUDA_ERROR_DEINITIALIZED, cuDeviceGetCount(&n));
    fakecuda_deinitialize(0);
    OK(cuDeviceGetCount(&n));
    CUstream s = new_stream(0);
    OK(fakecuda_kernel(number(s), 3600e6, 0, 0, 0, 0, 0));
}

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

static void *churn(void *seed) {
    unsigned random = (unsigned)(uintptr_t)seed;
    OK(cuCtxSetCurrent(context));
    CUdeviceptr mine;
    unsigned char *host;
    OK(cuMemAlloc(&mine, N));
    OK(cuMemHostAlloc((void **)&host, N, 0));
    for (int i = 0; i < 200; i++) {
        CUstream a = i % 3 ? new_stream(i % 2) : CU_STREAM_PER_THREAD, b = new_stream(CU_STREAM_NON_BLOCKING);
        CUevent e = new_event();
        uint64_t hash;
        memset(host, i, N);
        OK(cuMemcpyHtoDAsync(mine, host, N, a));
        OK(cuEventRecord(e, a));
        OK(cuStreamWaitEvent(b, e, 0));
        OK(fakecuda_sum(number(b), mine, N, &hash));
        random = random * 1103515245 + 12345;
        if (random >> 16 & 1) OK(cuEventRecord(e, NULL));
        OK(cuStreamSynchronize(b));
        EXPECT(1, hash == fakecuda_hash(host, N));
        OK(cuEventDestroy(e));
        if (i % 3) OK(cuStreamDestroy(a));
        OK(cuStreamDestroy(b));
    }
    OK(cuMemFreeHost(host));
    OK(cuMemFree(mine));
    return NULL;
}

static void threads(void) {
    enum { THREADS = 8 };
    pthread_t t[THREADS];
    set_up();
    for (uintptr_t i = 0; i < THREADS; i++) OK(pthread_create(&t[i], NULL, churn, (void *)i));
    for (int i = 0; i < THREADS; i++) OK(pthread_join(t[i], NULL));
    expect_hazards(__LINE__, 0);
    tear_down();
}

/* A fork while other threads call the driver: calls in the child fail and do not hang. */
static void forks(void) {
    enum { THREADS = 2, FORKS = 20 };
    pthread_t t[THREADS];
    set_up();
    for (uintptr_t i = 0; i < THREADS; i++) OK(pthread_create(&t[i], NULL, churn, (void *)i));
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (!child) {
            int n;
            uint64_t s;
            EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
            EXPECT(CUDA_ERROR_NOT_INITIALIZED, fakecuda_stream_create(0, 0, &s));
            EXPECT(1, fakecuda_count("calls") > 0);
            _exit(42);
        }
        int how;
        EXPECT(child, waitpid(child, &how, 0));
        EXPECT(42, WIFEXITED(how) ? WEXITSTATUS(how) : -1);
    }
    for (int i = 0; i < THREADS; i++) OK(pthread_join(t[i], NULL));
    tear_down();
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
#define TEST(name) {#name, name}
    TEST(pattern),       TEST(touched),      TEST(limits),
    TEST(source),        TEST(order),        TEST(held),
    TEST(host_memory),   TEST(told),         TEST(allocated_in_a_stream),
    TEST(freeing_waits), TEST(sums),         TEST(pace),
    TEST(misuse),        TEST(leaks),        TEST(failures),
    TEST(broken),        TEST(devices),      TEST(no_device),
    TEST(consumer),      TEST(proc_address), TEST(environment),
    TEST(ends),          TEST(threads),      TEST(forks),
};

int main(int n, char **names) {
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (n < 2) puts(tests[i].name);
        if (n < 2 || strcmp(names[1], tests[i].name)) continue;
        tests[i].run();
        puts("ok");
        return 0;
    }
    return n < 2 ? 0 : 2;
}
