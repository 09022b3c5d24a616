/* A CUDA driver without a GPU, for tests: what a test asks of it beyond the driver's own calls.
 *
 * tests/fakecuda/build.sh makes a libcuda.so.1 on host memory. A program finds it by LD_LIBRARY_PATH, or because
 * it is loaded already: it bears the driver's name (SONAME). It is made to be stricter than a GPU:
 *
 *  - Each stream is a thread with a queue, so that work runs later and beside other work. Events are snapshots.
 *    Streams 0 and 1 (legacy) and blocking streams wait for one another, non-blocking ones for nobody; stream 2 is
 *    the calling thread's own.
 *  - The host that touches device memory faults. Device memory is filled with 0xA5 when it is allocated.
 *  - A copy from pinned memory reads its source when it runs. One whose source has changed since the call is a
 *    hazard. A copy from other host memory reads at the call, and is counted as pageable.
 *  - Work that touches memory, of a device or pinned, which other work writes, or writes what other work reads,
 *    without a stream's order, an event or a wait of the host's between the two, is a hazard; so is unregistering
 *    memory before the host has waited for the work that touches it. That is worked out from the calls, not from what
 *    happens to run when: a wait that is missing is found every time.
 *  - Freeing memory, of a device or pinned, waits for all work of its context.
 *  - Hazards, and misuse that a driver would answer with a crash (a handle that has been destroyed), are counted, and
 *    the first twenty of each are printed to stderr.
 *  - Captures follow the driver's rules; nothing that was captured ever runs.
 *  - After fork, the child's calls answer CUDA_ERROR_NOT_INITIALIZED (3). Once the process ends, after the handlers
 *    of atexit that were registered after cuInit, calls answer CUDA_ERROR_DEINITIALIZED (4).
 *
 * The environment, read when the library is loaded (and by fakecuda_reset, for what that puts back):
 *
 *   FAKECUDA_DEVICES=n         1 to 8 devices; 0: cuInit answers CUDA_ERROR_NO_DEVICE (100)       default 1
 *   FAKECUDA_MEMORY=bytes      of each device                                                     default 1 GiB
 *   FAKECUDA_PINNED=bytes      of pinned and registered host memory, in all                       default: no limit
 *   FAKECUDA_GBPS=x            how fast a copy to or from the host is, in 1e9 bytes a second      default: as it comes
 *   FAKECUDA_LATENCY_US=x      what such a copy takes besides                                     default 0
 *   FAKECUDA_FAIL=list         call@nth=code, separated by commas; "!" after the code: later.
 *                              As fakecuda_fail: cuMemAlloc_v2@3=2,cuMemcpyHtoDAsync_v2@5=719!
 *   FAKECUDA_DRIVER_VERSION=n  what cuDriverGetVersion answers                                    default 13000
 *   FAKECUDA_REPORT=1          a line on stderr at the end, if cuInit was called: "fakecuda:" and the counts that are not 0
 *
 * Streams, device addresses and codes are integers here, so that a test needs no cuda.h. Functions that answer int
 * answer a CUresult, 0 for success. None of them is counted as a call or made to fail; all may be called by any
 * thread. Streams 0 to 2 are those of the calling thread's current context, or else of device 0's. */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What happened, and what is alive --------------------------------------------------------------------------- */

/* A count by name, or -1 if there is none of that name. The name of an entry point ("cuMemAlloc_v2") counts its calls,
 * failed ones too. Alive, in all contexts:
 *   contexts             primary contexts that somebody retains     retains           how often they are retained
 *   streams              made and not destroyed                     events            made and not destroyed
 *   device, device_bytes allocations of device memory               pinned, pinned_bytes, registered, registered_bytes
 *   pending              work that was submitted and is not done    captures          begun and not ended
 *   waits                threads that wait for work in a call
 * What happened since the start or the last reset:
 *   calls                of all entry points                        failures          that fakecuda_fail asked for
 *   hazards              of either kind                             misuses           see above
 *   copies, copy_bytes   host to device, submitted                  copies_done       and run
 *   downloads, download_bytes, downloads_done                       the other way
 *   pageable_copies      of both, with host memory not pinned       kernels           run
 *   leaks                streams, events and memory that were there when their context went, unless it was broken
 *   device_bytes_peak, pinned_bytes_peak                            the most at one time; pinned: with registered */
int64_t fakecuda_count(const char *name);

/* Waits until a count is at least so high. 1: it is. 0: time is up. -1: there is no such count. */
int fakecuda_await(const char *name, int64_t at_least, double seconds);

/* What the last hazard or misuse was, or "". Valid until the calling thread asks again. */
const char *fakecuda_complaint(void);

/* The i-th, from 0, of the streams that were made and not destroyed, in the order in which they were made, or 0: a
 * way to get hold of a stream that the code under test keeps for itself. */
uint64_t fakecuda_stream_at(int i);

/* ---- What is to happen ------------------------------------------------------------------------------------------ */

/* Everything below but the number of devices as it was at the start, without FAKECUDA_FAIL; counts of what happened at
 * 0; held streams and copies let go, captures ended, contexts no longer broken. What is alive stays. */
void fakecuda_reset(void);

/* The nth call (1: the next) of an entry point from now on fails with a code: once, or with every call from then on.
 * "*" stands for every entry point but cuGetErrorName and cuGetErrorString. Later: the call succeeds and its work
 * fails when it runs; then the context is broken and answers that code from then on; a call that submits no work fails
 * at once. Calls that destroy, free, release or unregister do so even when they are made to fail. -1: there is no such
 * entry point, or nth or code is less than 1. */
int fakecuda_fail(const char *call, int64_t nth, int code, int later, int from_then_on);

/* The context of a device is broken from now on, as if work of somebody else's had failed with the code. */
int fakecuda_break(int device, int code);

void fakecuda_devices(int n);         /* 0 to 8; before cuInit */
void fakecuda_memory(uint64_t bytes); /* of each device */
void fakecuda_pinned(uint64_t bytes); /* of pinned and registered memory, in all; UINT64_MAX: no limit */
void fakecuda_pace(double gbps, double latency_us); /* of copies to and from the host; 0, 0: as it comes */

/* As if the process ended (1): every call answers CUDA_ERROR_DEINITIALIZED until it is taken back (0). */
void fakecuda_deinitialize(int yes);

/* ---- What runs when --------------------------------------------------------------------------------------------- */

/* So many more pieces of work of a stream may begin; -1: all that come. 0 holds the stream, which is how a test makes
 * an order of events certain: when it answers, nothing is running there. A broken context holds nothing. */
int fakecuda_let(uint64_t stream, int64_t n);

/* The same for copies from the host to a device, whichever stream they are in. */
int fakecuda_let_copies(int device, int64_t n);

/* ---- A consumer ------------------------------------------------------------------------------------------------- */

/* A stream in a device's primary context, which it retains (cuInit is called if need be): a trainer's. */
int fakecuda_stream_create(int device, int non_blocking, uint64_t *stream);

/* Waits for the stream's work, destroys it and releases the context. */
int fakecuda_stream_destroy(uint64_t stream);

/* Waits for the stream's work. */
int fakecuda_synchronize(uint64_t stream);

/* Work that takes so long, reads one range of device memory and fills another with 0xC3; n of 0: none. code is 0, or
 * what it fails with when it runs, which breaks the context. Several ranges: several kernels. */
int fakecuda_kernel(uint64_t stream, double us, uint64_t reads, uint64_t nreads, uint64_t writes,
                    uint64_t nwrites, int code);

/* Work that reads device memory and puts its hash where the host, once the stream is synchronized, finds it. */
int fakecuda_sum(uint64_t stream, uint64_t address, uint64_t n, uint64_t *out);

/* The hash of host memory, to compare with. */
uint64_t fakecuda_hash(const void *p, uint64_t n);

/* Device memory as it is now, whoever may be writing it. */
int fakecuda_peek(uint64_t address, void *to, uint64_t n);

/* A capture; mode is 0 for global, 1 for thread-local, 2 for relaxed. Its end answers what cuStreamEndCapture would,
 * but does not mind which thread calls. */
int fakecuda_begin_capture(uint64_t stream, int mode);
int fakecuda_end_capture(uint64_t stream);

#ifdef __cplusplus
}
#endif

#endif
