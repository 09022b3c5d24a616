/* A fake CUDA driver for tests on machines without a GPU, and the functions by which a test controls it.
 *
 * tests/fakecuda/build.sh builds a libcuda.so.1 that uses host memory. A program finds it through LD_LIBRARY_PATH, or
 * because a library with its SONAME is loaded already. The fake is stricter than a GPU:
 *
 *  - Each stream is a thread with a queue of work, so work runs later than its call and beside other work. An event is
 *    a snapshot of its stream. The legacy stream (0 and 1) and blocking streams wait for one another; non-blocking
 *    streams wait for no other stream. Stream 2 is the calling thread's own stream.
 *  - Host code that touches device memory gets a SIGSEGV. Newly allocated device memory is filled with 0xA5.
 *  - A copy from pinned memory reads its source when it runs. If the source has changed since the call, that is a
 *    hazard. A copy from other host memory reads the source during the call, and counts as pageable.
 *  - Two pieces of work that touch the same device or pinned memory, of which at least one writes, must be ordered: by
 *    their stream, by an event, or by a wait of the host. If they are not, that is a hazard. It is also a hazard to
 *    unregister memory before the host has waited for the work that touches it. Both are found from the order of the
 *    calls, not from the times at which work runs, so a missing wait is found in every run.
 *  - Freeing device or pinned memory waits for all work of its context.
 *  - Hazards are counted, and so are misuses that may crash a real driver, such as the use of a destroyed handle. The
 *    first twenty of each are printed to stderr.
 *  - Captures follow the driver's rules; captured work never runs.
 *  - In the child of a fork, calls return CUDA_ERROR_NOT_INITIALIZED (3). When the process ends, calls return
 *    CUDA_ERROR_DEINITIALIZED (4), except in atexit handlers that were registered after cuInit.
 *
 * Environment variables. They are read when the library is loaded. fakecuda_reset reads those again that it restores:
 *
 *   FAKECUDA_DEVICES=n         number of devices, 0 to 8; with 0, cuInit returns                  default 1
 *                              CUDA_ERROR_NO_DEVICE (100)
 *   FAKECUDA_MEMORY=bytes      memory of each device                                              default 1 GiB
 *   FAKECUDA_PINNED=bytes      limit of pinned and registered host memory together                default: no limit
 *   FAKECUDA_GBPS=x            speed of copies to and from the host, in 1e9 bytes a second        default: unlimited
 *   FAKECUDA_LATENCY_US=x      additional time of each such copy, in microseconds                 default 0
 *   FAKECUDA_FAIL=list         calls that fail, as in fakecuda_fail: call@nth=code, separated by commas, with "!" after
 *                              a code for `later`: cuMemAlloc_v2@3=2,cuMemcpyHtoDAsync_v2@5=719!
 *   FAKECUDA_DRIVER_VERSION=n  result of cuDriverGetVersion                                       default 13000
 *   FAKECUDA_REPORT=1          if cuInit was called, print "fakecuda:" and all counts that are not 0 to stderr at exit
 *
 * Streams, device addresses and result codes are integers in this header, so that a test does not need cuda.h. Unless
 * stated otherwise, a function that returns int returns a CUresult, with 0 for success. The functions are not counted
 * as calls and cannot be made to fail. Any thread may call them. Streams 0 to 2 belong to the calling thread's current
 * context, or to the context of device 0 if the thread has none. */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Counts ------------------------------------------------------------------------------------------------------ */

/* Returns the count of that name, or -1 if there is no such count. The name of an entry point ("cuMemAlloc_v2") stands
 * for the number of its calls, including failed ones. These counts give the current state of all contexts together:
 *   contexts             primary contexts that are retained         retains           retains of these contexts
 *   streams              created and not destroyed                  events            created and not destroyed
 *   device, device_bytes allocations of device memory               pinned, pinned_bytes, registered, registered_bytes
 *   pending              work that was submitted and is not done    captures          begun and not ended
 *   waits                threads that wait for work in a call
 * These counts begin at 0 at the start and at each reset:
 *   calls                of all entry points                        failures          caused by fakecuda_fail
 *   hazards              of all kinds                               misuses           see the top of this file
 *   copies, copy_bytes   host to device, submitted                  copies_done       of these, the ones that ran
 *   downloads, download_bytes, downloads_done                       the same for copies from a device to the host
 *   pageable_copies      both ways, with unpinned host memory       kernels           that ran
 *   leaks                streams, events and allocations that existed when their context was destroyed, except in
 *                        broken contexts
 *   device_bytes_peak, pinned_bytes_peak                            largest values; pinned includes registered */
int64_t fakecuda_count(const char *name);

/* Waits until a count has at least the given value. Returns 1 if it has, 0 after the timeout, -1 if there is no such
 * count. */
int fakecuda_await(const char *name, int64_t at_least, double seconds);

/* Returns a description of the last hazard, misuse or leak, or "". Valid until the thread calls it again. */
const char *fakecuda_complaint(void);

/* Returns the i-th stream, from 0, of those that were created and not destroyed, in the order of their creation, or 0.
 * A test can so find a stream that the tested code does not show. */
uint64_t fakecuda_stream_at(int i);

/* ---- Settings and failures --------------------------------------------------------------------------------------- */

/* Restores the settings below, except the number of devices, to those of the start, without FAKECUDA_FAIL. Sets the
 * counts of events to 0, resumes held streams and copies, ends captures, and repairs broken contexts. Existing streams,
 * events and memory remain. */
void fakecuda_reset(void);

/* Makes the nth call of an entry point from now on (1: the next one) fail with `code`, and also all later calls if
 * `from_then_on`. "*" stands for all entry points except cuGetErrorName and cuGetErrorString. If `later`, the call
 * succeeds and its work fails when it runs. The context is then broken: calls in it return the code. A call that
 * submits no work fails at once. Calls that destroy, free, release or unregister do their work even if they are made to
 * fail. Returns -1 if there is no such entry point, or if nth or code is less than 1. */
int fakecuda_fail(const char *call, int64_t nth, int code, int later, int from_then_on);

/* Breaks the context of a device, as if some work in it had failed with the code. */
int fakecuda_break(int device, int code);

void fakecuda_devices(int n);         /* number of devices, 0 to 8; call it before cuInit */
void fakecuda_memory(uint64_t bytes); /* memory of each device */
void fakecuda_pinned(uint64_t bytes); /* limit of pinned and registered memory; UINT64_MAX: no limit */
void fakecuda_pace(double gbps, double latency_us); /* copies to and from the host; 0, 0: unlimited */

/* With 1, every call returns CUDA_ERROR_DEINITIALIZED, as at the end of the process; with 0, calls work again. */
void fakecuda_deinitialize(int yes);

/* ---- Control of when work runs ----------------------------------------------------------------------------------- */

/* Lets n more pieces of work of a stream begin; -1 stands for all. 0 holds the stream: when the function returns, no
 * work of the stream is running. A test uses it to force an order. Holds have no effect in a broken context. */
int fakecuda_let(uint64_t stream, int64_t n);

/* The same for copies from the host to a device, in all streams. */
int fakecuda_let_copies(int device, int64_t n);

/* ---- A consumer -------------------------------------------------------------------------------------------------- */

/* Creates a stream in a device's primary context, as a trainer does, and retains the context. It may call cuInit. */
int fakecuda_stream_create(int device, int non_blocking, uint64_t *stream);

/* Waits for the stream's work, destroys the stream and releases the context. */
int fakecuda_stream_destroy(uint64_t stream);

/* Waits for the stream's work. */
int fakecuda_synchronize(uint64_t stream);

/* Submits work that takes `us` microseconds, reads one range of device memory and fills another with 0xC3. A range of
 * 0 bytes is left out. If `code` is not 0, the work fails with it when it runs, which breaks the context. */
int fakecuda_kernel(uint64_t stream, double us, uint64_t reads, uint64_t nreads, uint64_t writes,
                    uint64_t nwrites, int code);

/* Submits work that hashes device memory. The hash is in *out when the stream has been synchronized. */
int fakecuda_sum(uint64_t stream, uint64_t address, uint64_t n, uint64_t *out);

/* Returns the same hash of host memory, for comparison. */
uint64_t fakecuda_hash(const void *p, uint64_t n);

/* Copies device memory as it is now, without an order with work that may be writing it. */
int fakecuda_peek(uint64_t address, void *to, uint64_t n);

/* Begins and ends a capture. `mode` is 0 for global, 1 for thread-local, 2 for relaxed. The end returns the result of
 * cuStreamEndCapture, but may be called by any thread. */
int fakecuda_begin_capture(uint64_t stream, int mode);
int fakecuda_end_capture(uint64_t stream);

#ifdef __cplusplus
}
#endif

#endif
