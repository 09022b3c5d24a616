/* pyfeed: the data feed of a trainer, as a C library.
 *
 * This header is kept by hand and is the contract: the library includes it, so that a
 * difference between the two does not compile.
 *
 * What holds for every function, unless its comment says otherwise:
 *
 * - Status.     The answer is a pf_status; PF_OK is 0. Results come through out-pointers, which
 *               are zeroed before anything else happens and written only on PF_OK.
 * - Errors.     `err` may be NULL. If it is not, it MUST be initialised with PF_ERROR_INIT; after a
 *               status other than PF_OK it holds a message, until pf_error_release.
 * - Threads.    Every function may be called from any thread, at the same time as any other.
 * - Blocking.   Only functions that take a pf_wait block; a thread sleeps outside Go.
 * - Null.       A null pointer where a value is needed is PF_INVALID, not a crash.
 * - Handles.    64-bit ids with a count. 0 is never valid; a stale one answers PF_STALE_HANDLE.
 *               A function that gives a handle out gives its caller one count: pf_release it.
 * - Structs.    Each that is passed by pointer begins with its size in bytes (the _INIT macros set
 *               it) and only ever grows at its end.
 * - Strings.    UTF-8, zero-terminated, borrowed for the call.
 * - Forks.      In a child of fork() every call answers PF_FORKED at once.
 * - Panics.     A fault inside the library poisons it: that call and all later ones answer
 *               PF_POISONED. Nothing unwinds through the caller.
 */
#ifndef PYFEED_H
#define PYFEED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release: this line is the one place it is written. */
#define PF_VERSION "0.1.0"
/* What a binary depends on: raised when something old stops working, which additions never do. */
#define PF_ABI_VERSION 1u

#if defined(__GNUC__)
#define PF_API __attribute__((visibility("default")))
#else
#define PF_API
#endif

/* ---- Words ------------------------------------------------------------------------------- */

typedef uint8_t pf_status;
enum {
    PF_OK = 0,
    PF_END = 1,           /* the end of the data: no more tuples in this pass */
    PF_TIMEOUT = 2,       /* the pf_wait's time went by */
    PF_CANCELLED = 3,     /* the pf_wait's cancel handle or poll function said stop */
    PF_CLOSED = 4,        /* the queue is closed, or the push belongs to an earlier pass */
    PF_FAILED = 5,        /* a producer or kernel failed: err->cause_* tell of its error */
    PF_INVALID = 6,       /* an argument that can never be right */
    PF_SHAPE = 7,         /* wrong rank, dimension or level of detail */
    PF_DTYPE = 8,         /* wrong or unsupported type of element */
    PF_SLOTS = 9,         /* wrong number of slots */
    PF_TOO_LARGE = 10,    /* a tuple larger than bytes_limit */
    PF_STALE_HANDLE = 11, /* a handle that is not, or no longer, valid, or of another kind */
    PF_STATE = 12,        /* not now: initialised twice, not initialised, cannot be reset */
    PF_NOT_FOUND = 13,    /* no variable, kernel or block of that name or number */
    PF_UNSUPPORTED = 14,  /* this build or this machine cannot */
    PF_NO_MEMORY = 15,    /* the operating system gave no memory */
    PF_FORKED = 16,       /* called in a child of fork() */
    PF_POISONED = 17,     /* the library stopped itself after a fault */
    PF_CORRUPT = 18,      /* a file is not what its format says: err->file, offset, record say where */
    PF_IO = 19,           /* the operating system could not read or write: err->file, os_errno */
    PF_CUDA_ERROR = 20,   /* the CUDA driver said no: err->cuda_code, cuda_name */
};

/* An id of something the library keeps: a scope, variable, queue, reader, writer, format, program, executor, staging
 * buffer, kernel, trace or cancel token. */
typedef uint64_t pf_handle;

typedef int32_t pf_dtype;
enum {
    PF_DTYPE_ANY = 0, /* in a pf_slot_spec: the first tuple decides; of a kernel's output: none yet */
    PF_BOOL = 1,
    PF_INT8 = 2,
    PF_INT16 = 3,
    PF_INT32 = 4,
    PF_INT64 = 5,
    PF_UINT8 = 6,
    PF_UINT16 = 7,
    PF_UINT32 = 8,
    PF_UINT64 = 9,
    PF_FLOAT16 = 10,
    PF_BFLOAT16 = 11,
    PF_FLOAT32 = 12,
    PF_FLOAT64 = 13,
    PF_COMPLEX64 = 14,
    PF_COMPLEX128 = 15,
};

enum { PF_CPU = 0, PF_CUDA = 1, PF_CUDA_PINNED = 2 };

/* Where memory is. `device` counts from 0 and is 0 but for PF_CUDA. PF_CUDA_PINNED is the host's, from which devices
 * copy by themselves. */
typedef struct pf_place {
    int32_t kind;
    int32_t device;
} pf_place;

/* Passes are numbered from 0. In place of a number: */
#define PF_PASS_CURRENT UINT64_MAX    /* the pass that is current when the call begins */
#define PF_PASS_NONE (UINT64_MAX - 1) /* no pass: before the first of a restartable queue */

#define PF_MAX_RANK 8       /* dimensions of a tensor */
#define PF_MAX_LOD_LEVELS 8 /* levels of detail of a tensor */

/* One level of detail: `count` offsets, the first 0, never decreasing. The last offset of a level
 * is the number of sequences of the next one, that of the last level the tensor's first dimension.
 * The same numbers as Arrow's list offsets and TensorFlow's row_splits. */
typedef struct pf_lod_level {
    const int64_t *offsets;
    uint64_t count;
} pf_lod_level;

/* pf_tensor.flags */
enum {
    PF_READ_ONLY = 1,     /* the data is lent and must not be written */
    PF_HOST_EMULATED = 2, /* of PF_CUDA: PYFEED_CUDA=host is set, and the data is the host's memory */
};

/* A tensor, going in or coming out. Everything it points to is borrowed: by the call, when it goes
 * in; until pf_tuple_release, when it comes out. Elements are in native byte order. */
typedef struct pf_tensor {
    uint32_t size; /* sizeof(pf_tensor); also the step from one to the next in an array */
    pf_dtype dtype;
    pf_place place;
    int32_t rank;
    uint32_t lod_levels;
    uint32_t flags;
    uint32_t reserved;
    void *data;
    uint64_t nbytes;         /* product of the dims times the size of an element; ignored on input */
    const int64_t *dims;     /* rank of them */
    const int64_t *strides;  /* in bytes, rank of them; NULL: contiguous, last dimension fastest */
    const pf_lod_level *lod; /* lod_levels of them, outermost first */
} pf_tensor;

#define PF_TENSOR_INIT {sizeof(pf_tensor), PF_DTYPE_ANY, {PF_CPU, 0}, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL}

struct pf_error;

/* A tuple on loan from the library: the slots of one instance or one batch. `slots` is contiguous
 * memory aligned to 64 bytes, valid until pf_tuple_release. Owned by whoever has the struct; it may
 * be moved by plain copy as long as only one of the copies is released. */
typedef struct pf_tuple {
    uint32_t size;
    uint32_t num_slots;
    const pf_tensor *slots;
    uint64_t loan; /* 0: nothing is on loan */
} pf_tuple;

#define PF_TUPLE_INIT {sizeof(pf_tuple), 0, NULL, 0}

/* Gives a tuple back and zeroes it; of a reserved slot that was not committed: drops it. A zeroed
 * one is left alone. Any thread; never blocks, but for the release function of lent memory. */
PF_API void pf_tuple_release(pf_tuple *tuple);

/* Lends the same memory once more, as a tuple of its own: it stays until both are released. Of a
 * reserved slot, so that it may be looked at after its commit. */
PF_API pf_status pf_tuple_share(const pf_tuple *tuple, pf_tuple *out, struct pf_error *err);

/* What went wrong. All strings belong to the struct, and are NULL where they do not apply. */
typedef struct pf_error {
    uint32_t size;
    pf_status status;
    uint8_t approximate; /* 1: `record` is not exact, because damage before it was skipped; else 0 */
    uint8_t reserved[2];
    int32_t slot; /* the slot it is about, or -1 */
    uint32_t reserved2;
    char *message;         /* a sentence: what was expected, what was found, where */
    char *cause_type;      /* PF_FAILED: the type of the producer's or kernel's error, */
    char *cause_message;   /* its text, */
    char *cause_traceback; /* and where it came from, several lines */
    uint64_t cause_token;  /* PF_FAILED: the number given to pf_queue_fail or pf_kernel_fail */
    char *file; /* PF_CORRUPT, PF_IO; what instances are refused for, and what a function of map failed at */
    int64_t offset;    /* in the file, in bytes, decompressed ones if it is compressed; or -1 */
    int64_t record;    /* number of the record, from 0; or -1. PF_CORRUPT: the first that is not delivered */
    int32_t os_errno;  /* PF_IO: the system's number, or 0 */
    uint32_t context;  /* bytes of the message that say where, before the cause; or 0 */
    char *op;          /* of a program's run: which operator, such as "block 1, op 3: read" */
    int32_t cuda_code; /* PF_CUDA_ERROR: the driver's CUresult; else 0 */
    int32_t
        exit_status; /* PF_FAILED: of the worker process that died: its exit status, or minus its signal; else 0 */
    char *cuda_name; /* PF_CUDA_ERROR: the driver's name of it, such as "CUDA_ERROR_OUT_OF_MEMORY" */
    int64_t worker;  /* PF_FAILED: process id of the worker process that died; else 0 */
} pf_error;

#define PF_ERROR_INIT  \
    {sizeof(pf_error), \
     PF_OK,            \
     0,                \
     {0, 0},           \
     -1,               \
     0,                \
     NULL,             \
     NULL,             \
     NULL,             \
     NULL,             \
     0,                \
     NULL,             \
     -1,               \
     -1,               \
     0,                \
     0,                \
     NULL,             \
     0,                \
     0,                \
     NULL,             \
     0}

/* Frees the strings and sets it back to PF_ERROR_INIT. NULL is fine. Works after a fork too. */
PF_API void pf_error_release(pf_error *err);

/* How long to wait. A NULL pf_wait waits for ever. */
typedef struct pf_wait {
    uint32_t size;
    uint32_t poll_interval_ms; /* with poll: how often at least; 0 means 100 */
    int64_t timeout_ns;        /* negative: for ever; 0: not at all */
    pf_handle cancel;          /* a token of pf_cancel_new, or 0 */
    /* Called on the waiting thread every poll_interval_ms, also while it works rather than sleeps, and
	 * after each signal it received; any other answer than 0 and PF_POLL_QUIETLY ends the wait with
	 * PF_CANCELLED. It may take locks and call pyfeed. */
    int (*poll)(void *context);
    void *poll_context;
} pf_wait;

#define PF_WAIT_INIT {sizeof(pf_wait), 0, -1, 0, NULL, NULL}

/* What a poll function answers that wants to be called after signals and pf_poll_now only: its thread does
 * not wake up by the time any more in this wait. A call that works rather than sleeps is still polled by the time. */
enum { PF_POLL_QUIETLY = -1000 };

/* ---- The library ------------------------------------------------------------------------- */

/* The PF_ABI_VERSION the library was built with: compare before anything else. Never fails. */
PF_API uint32_t pf_abi_version(void);
/* The release, such as "0.1.0". Static. */
PF_API const char *pf_version(void);
/* "float32" and the like, or NULL for a number that is no dtype. Static. */
PF_API const char *pf_dtype_name(pf_dtype dtype);
/* Bytes of one element, or 0 for a number that is no dtype. */
PF_API size_t pf_dtype_size(pf_dtype dtype);
/* "PF_CLOSED" and the like; never NULL. Static. */
PF_API const char *pf_status_name(pf_status status);

/* What is alive. `live_*` go back to 0 when all is closed and released. */
typedef struct pf_memory_stats {
    uint32_t size;
    uint32_t reserved;
    uint64_t handles;           /* handles with a count */
    uint64_t tuples_on_loan;    /* pf_tuples not yet released */
    uint64_t live_queue_bytes;  /* tuples pushed by copy or in place: queued or with a consumer */
    uint64_t live_lent_bytes;   /* memory of producers, lent */
    uint64_t live_batch_bytes;  /* batches and variables */
    uint64_t live_view_bytes;   /* descriptors of tuples on loan */
    uint64_t idle_bytes;        /* kept for the next tuple; freed with the queue or reader */
    uint64_t live_buffers;      /* number of buffers behind the live_* */
    uint64_t live_file_bytes;   /* what was read or decompressed from files, and made of it */
    uint64_t live_mapped_bytes; /* files mapped for reading: address space, and the system's cache */
    uint64_t pinned_bytes;      /* host memory that devices copy from by themselves, all of it */
    uint64_t device_bytes;      /* memory of devices, all of it */
    uint64_t shared_bytes;      /* memory that worker processes write to */
} pf_memory_stats;

#define PF_MEMORY_STATS_INIT {sizeof(pf_memory_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

PF_API pf_status pf_memory(pf_memory_stats *out, pf_error *err);

/* Frees a string that a function of this header gave out. NULL is fine. Works after a fork too. */
PF_API void pf_string_free(char *string);

/* One count more, one count less. The last count of a queue, reader or scope drops it, unless a
 * variable or reader still holds it. */
PF_API pf_status pf_retain(pf_handle handle, pf_error *err);
PF_API pf_status pf_release(pf_handle handle, pf_error *err);

/* A token that ends waits. pf_cancel is for good: every call that waits or will wait with this
 * token answers PF_CANCELLED. */
PF_API pf_status pf_cancel_new(pf_handle *token, pf_error *err);
PF_API pf_status pf_cancel(pf_handle token, pf_error *err);

/* Has every thread that sleeps in a wait with a poll function call it now; one that is calling it, once more. */
PF_API pf_status pf_poll_now(pf_error *err);

/* ---- GPUs -------------------------------------------------------------------------------------- */

/* The driver, libcuda.so.1, is opened by the first function that needs it: those of this section, or a place that is not
 * PF_CPU. Streams are CUstreams as integers: 0 and 1 are the legacy default stream, 2 is the calling thread's own, any
 * other is a stream of the same device's primary context. */

/* Whether there is a device to feed. `reason`, pf_string_free it, says in the driver's words why not, and is NULL if there
 * is; it may be NULL itself. */
PF_API pf_status pf_cuda_available(uint8_t *available, char **reason, pf_error *err);
/* How many devices there are. PF_UNSUPPORTED, with the reason, without a driver. */
PF_API pf_status pf_cuda_device_count(uint32_t *count, pf_error *err);

typedef struct pf_cuda_device_info {
    uint32_t size;
    uint32_t device;
    uint64_t free_bytes; /* of its memory, as the driver says now */
    uint64_t total_bytes;
    char name[96]; /* such as "NVIDIA H200", zero-terminated */
} pf_cuda_device_info;

#define PF_CUDA_DEVICE_INFO_INIT {sizeof(pf_cuda_device_info), 0, 0, 0, {0}}

PF_API pf_status pf_cuda_device(uint32_t device, pf_cuda_device_info *out, pf_error *err);

/* What readers of a PF_CUDA place deliver are tuples of that device: pf_tensor.data is an address there, the LoD is the
 * host's. The copy may still be under way. Before a stream touches a tuple, pf_tuple_use has it wait for the copy; nothing
 * waits on the host. pf_tuple_release may be called while streams still work with the tuple: its memory is not written
 * before what was submitted until then to the streams of pf_tuple_use is done. pf_tuple_release_on says instead up to
 * where, if that is sooner, or another stream. A stream that is being captured into a graph is PF_STATE, and left
 * as it was: use the tuple before the capture, and copy it into the graph's own input. For a tuple of the host's these
 * three do nothing. */
PF_API pf_status pf_tuple_use(const pf_tuple *tuple, uint64_t stream, pf_error *err);
/* What was submitted to `stream` so far is the last there to touch the tuple. Released as by pf_tuple_release, unless the
 * answer is an error: then `tuple` is as it was. */
PF_API pf_status pf_tuple_release_on(pf_tuple *tuple, uint64_t stream, pf_error *err);
/* Waits on the host until the tuple is at the device. */
PF_API pf_status pf_tuple_synchronize(const pf_tuple *tuple, const pf_wait *wait, pf_error *err);
/* Copies the data of slot `slot`, all its nbytes, to memory of the host's, and waits for that. Of a tuple of the host's too. */
PF_API pf_status pf_tuple_download(const pf_tuple *tuple, uint32_t slot, void *to, uint64_t nbytes,
                                   pf_error *err);

/* ---- Scope and variables ----------------------------------------------------------------- */

/* Makes a scope. Look-ups that fail in it go on in `parent` (0: none), which it keeps alive. */
PF_API pf_status pf_scope_new(pf_handle parent, pf_handle *scope, pf_error *err);
/* The scope every part of the process shares. */
PF_API pf_status pf_scope_global(pf_handle *scope, pf_error *err);
/* The variable of that name in this scope itself, made empty if there is none. */
PF_API pf_status pf_scope_var(pf_handle scope, const char *name, pf_handle *var, pf_error *err);
/* The variable of that name in this scope or the nearest parent that has it; else PF_NOT_FOUND. */
PF_API pf_status pf_scope_find(pf_handle scope, const char *name, pf_handle *var, pf_error *err);
/* Takes the variable out of this scope and drops what it holds; PF_NOT_FOUND if there is none. */
PF_API pf_status pf_scope_erase(pf_handle scope, const char *name, pf_error *err);

enum {
    PF_VAR_EMPTY = 0,
    PF_VAR_TENSOR = 1, /* a LoDTensor */
    PF_VAR_QUEUE = 2,  /* a PyArrayFeedQueueHolder */
    PF_VAR_READER = 3, /* a ReaderHolder */
};
PF_API pf_status pf_var_kind(pf_handle var, int32_t *kind, pf_error *err);
/* Lends the tensor in a variable, as a tuple of one slot. The memory stays as it is until the loan
 * is released, whatever is written into the variable meanwhile. PF_STATE if it holds no tensor. */
PF_API pf_status pf_var_get_tensor(pf_handle var, pf_tuple *out, pf_error *err);
/* Copies a tensor into a variable, in place of what it held. */
PF_API pf_status pf_var_set_tensor(pf_handle var, const pf_tensor *tensor, pf_error *err);

/* ---- The queue --------------------------------------------------------------------------- */

/* What one slot of a tuple must look like. */
typedef struct pf_slot_spec {
    uint32_t size; /* sizeof(pf_slot_spec); also the step from one to the next in an array */
    pf_dtype dtype;
    int32_t rank;
    uint32_t lod_levels;
    const int64_t *dims; /* -1 matches anything; a first dimension of -1 is the batch's */
} pf_slot_spec;

#define PF_SLOT_SPEC_INIT {sizeof(pf_slot_spec), PF_DTYPE_ANY, 0, 0, NULL}

typedef struct pf_queue_options {
    uint32_t size;
    uint32_t num_slots;
    const pf_slot_spec *slots;
    uint64_t capacity;    /* in tuples; at least 1 */
    uint64_t bytes_limit; /* in bytes of all tuples queued or being written; 0: no limit */
    /* Where the consumer wants tuples. For PF_CUDA they are pushed into pinned memory of the host's, and copied on
     * their way out. */
    pf_place place;
    /* Not 0: the producer can start over. The queue then begins without a pass, the first read opens
	 * one, and resetting its reader opens the next: see pf_queue_wait_pass. */
    uint8_t restartable;
    uint8_t reserved[7];
} pf_queue_options;

#define PF_QUEUE_OPTIONS_INIT {sizeof(pf_queue_options), 0, NULL, 0, 0, {PF_CPU, 0}, 0, {0, 0, 0, 0, 0, 0, 0}}

/* Makes the queue of a PyArrayFeedQueueHolder variable. A second time is PF_STATE. */
PF_API pf_status pf_queue_init_once(pf_handle var, const pf_queue_options *options, pf_handle *queue,
                                    pf_error *err);
/* The queue of a variable; PF_STATE before pf_queue_init_once. */
PF_API pf_status pf_queue_of(pf_handle var, pf_handle *queue, pf_error *err);

/* A producer's handle of a queue: it goes wherever one of a queue does, except to pf_queue_pop (PF_STATE). It does not
 * keep the queue open: once no other handle of the queue, no reader and no variable is left by which a tuple could be
 * popped, the queue is shut down as by pf_queue_shutdown, and pushes are PF_CLOSED, blocked ones too. Give one to
 * each thread that pushes. `queue` may be a producer's handle itself. */
PF_API pf_status pf_queue_producer(pf_handle queue, pf_handle *producer, pf_error *err);

/* In the three pushes below, `pass` is the number of the pass the tuple belongs to (pf_queue_stats,
 * pf_queue_wait_pass), or PF_PASS_CURRENT: once the queue has moved on, the push is PF_CLOSED. A tuple that does not fit
 * the slots is refused whole. */

/* Copies a tuple in: `num_tensors` tensors, strided or not. Blocks while the queue is full. */
PF_API pf_status pf_queue_push(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                               const pf_wait *wait, pf_error *err);

/* Lends a tuple: nothing is copied, the tensors MUST be contiguous and stay as they are until
 * `release(context)` is called. That happens exactly once, on any thread, and only if this function
 * answers PF_OK; it MUST NOT block or call pyfeed. Blocks while the queue is full. */
PF_API pf_status pf_queue_push_lent(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors,
                                    uint64_t pass, void (*release)(void *context), void *context,
                                    const pf_wait *wait, pf_error *err);

/* Reserves a tuple in the queue's own memory, to be written in place. Of each tensor only dtype,
 * rank, dims and lod are read. Blocks while the queue is full. Then: pf_queue_commit, or
 * pf_tuple_release to drop it. */
PF_API pf_status pf_queue_reserve(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors,
                                  uint64_t pass, const pf_wait *wait, pf_tuple *out, pf_error *err);
/* Queues a reserved tuple and zeroes `slot`. PF_CLOSED if its pass has ended: it is dropped then, and
 * zeroed too. PF_STATE if it is no reserved tuple: it is left as it was. Never blocks. */
PF_API pf_status pf_queue_commit(pf_tuple *slot, pf_error *err);

/* Takes the oldest tuple. Blocks while the queue is empty. PF_END once it is closed and empty,
 * PF_FAILED once it has failed and is empty. A tuple that `out` still holds is released first, at less
 * than the cost of a pf_tuple_release. */
PF_API pf_status pf_queue_pop(pf_handle queue, const pf_wait *wait, pf_tuple *out, pf_error *err);

/* Ends the pass: pushes are PF_CLOSED from now on, what is queued is still delivered, then PF_END.
 * `pass` as for pushes: another pass than the current one is left alone. Twice is fine. */
PF_API pf_status pf_queue_close(pf_handle queue, uint64_t pass, pf_error *err);

/* A producer's error, on its way to the consumer; a kernel's, to whoever runs the program. */
typedef struct pf_failure {
    uint32_t size;
    uint32_t reserved;
    const char *type; /* may be NULL, as the next two */
    const char *message;
    const char *traceback;
    uint64_t token; /* whatever the producer's side wants to find in err->cause_token */
} pf_failure;

#define PF_FAILURE_INIT {sizeof(pf_failure), 0, NULL, NULL, NULL, 0}

/* Ends the pass with an error: as pf_queue_close, but every pop after the last tuple is PF_FAILED.
 * The first failure of a pass counts; one after a close is PF_CLOSED. */
PF_API pf_status pf_queue_fail(pf_handle queue, uint64_t pass, const pf_failure *failure, pf_error *err);

/* Begins the next pass: closes, drops what is still queued, opens. `pass` and `dropped` (may be
 * NULL) get the new pass's number (PF_PASS_NONE after an error) and the number of tuples dropped. A push begun before is
 * PF_CLOSED, a pop begun before PF_END: neither can see the new pass. */
PF_API pf_status pf_queue_reopen(pf_handle queue, uint64_t *pass, uint64_t *dropped, pf_error *err);

/* For the producer of a restartable queue: waits until a pass with a number above `after` (PF_PASS_NONE: any) is open,
 * and gives its number, PF_PASS_NONE after an error. PF_CLOSED once the queue is shut down. */
PF_API pf_status pf_queue_wait_pass(pf_handle queue, uint64_t after, const pf_wait *wait, uint64_t *pass,
                                    pf_error *err);

/* Closes for good and drops what is queued: every blocked call wakes, pops get PF_END, a reopen
 * is PF_CLOSED. */
PF_API pf_status pf_queue_shutdown(pf_handle queue, pf_error *err);

typedef struct pf_queue_info {
    uint32_t size;
    uint32_t num_slots;
    uint64_t num_tuples; /* queued */
    uint64_t capacity;
    uint64_t reserved_tuples; /* being written */
    uint64_t bytes;           /* of both */
    uint64_t bytes_limit;
    uint64_t pass;  /* the current pass, or PF_PASS_NONE */
    uint8_t closed; /* no more pushes in this pass */
    uint8_t failed;
    uint8_t shut_down;
    uint8_t restartable;
    uint32_t waiting_producers;
    uint32_t waiting_consumers;
    uint32_t reserved;
    uint64_t pushed; /* tuples since the queue was made, as the next two */
    uint64_t popped;
    uint64_t dropped;
    uint64_t pushed_bytes;
    uint64_t producers_waited_ns; /* summed over threads, waits in progress included */
    uint64_t consumers_waited_ns;
} pf_queue_info;

#define PF_QUEUE_INFO_INIT \
    {sizeof(pf_queue_info), 0, 0, 0, 0, 0, 0, PF_PASS_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

PF_API pf_status pf_queue_stats(pf_handle queue, pf_queue_info *out, pf_error *err);

/* The specification of slot `slot`, with the dtype the first tuple settled. `dims` (PF_MAX_RANK
 * numbers) is written by the call; out->dims points to it. */
PF_API pf_status pf_queue_slot(pf_handle queue, uint32_t slot, pf_slot_spec *out, int64_t *dims,
                               pf_error *err);

/* ---- Readers ----------------------------------------------------------------------------- */

/* Runs the operator `op`: makes a reader of the readers in the variables `ins` (num_ins of them) and puts a
 * ReaderHolder into the variable `out`, which is made if need be. `attributes` is a JSON object, or NULL for
 * none; a name that an operator does not have is PF_INVALID, with those it has in the message. Nothing is read
 * but, by open_files and create_file_reader without "slots", the beginning of the first file. Read only the
 * topmost of a chain: what another takes from below is missing above.
 *
 * op                           attributes (and what they are if left out)
 * create_py_array_reader       feeder_name: the variable of the queue. The tuples that are pushed into a queue
 * open_files                   filenames: paths, globs or directories, each with a format's tag and a colon
 *                              before it where its suffix does not tell; format (""): a tag for all; slots
 *                              (what the files say): see below; num_threads (2); ordered (true): one order
 *                              whatever num_threads; interleave (8): files read in turn when ordered;
 *                              shuffle_files (as they are listed): a seed, by which the files come in another
 *                              order in each pass; on_corrupt ("raise"): or "skip"; verify_first (false): each
 *                              file is read twice, the first time to verify all of it; storage ({"compression":
 *                              "auto", "io": "auto"}); options (none): the format's, see docs/formats.md. Reads
 *                              many files at a time, by threads of its own
 * create_file_reader           as open_files. Reads one file, in the calling thread. num_threads, ordered,
 *                              interleave and shuffle_files say nothing here
 * create_batch_reader          batch_size; drop_last (false); ragged (false). Joins that many tuples to one:
 *                              slots whose first dimension is -1 are concatenated along it and their LoD
 *                              merged; others are stacked under a new first dimension. The last batch of a pass
 *                              may be smaller, unless drop_last. A tuple whose slots add different numbers of
 *                              rows (of a slot with LoD, its outermost sequences count; a stacked one is one
 *                              row) is PF_SHAPE, unless ragged
 * create_shuffle_reader        buffer_size: tuples of a block; seed (0). Block by block, the next one is read
 *                              while this one is served; one order for one seed, another each pass
 * create_multi_pass_reader     pass_num (0): 0 goes on for ever. Resets the reader below at the end of each
 *                              pass
 * create_double_buffer_reader  place ({"kind": 0, "device": 0}): where tuples are made ready; or a list of
 *                              places, which get them in turn; depth (2): tuples made ready ahead at each.
 *                              Reads ahead, in a thread of its own
 * create_map_reader            slots (those of the reader below); capacity (16): tuples taken and not yet
 *                              delivered; ordered (true). What workers make of the tuples: see pf_map_take
 * create_zip_reader            strict (false): readers that do not end together are an error. Joins the slots
 *                              of its readers. Takes 2 inputs or more
 * create_shard_reader          rank (0); world. Every world-th tuple, from the rank-th on
 * create_random_data_generator slots; low (0); high (1); seed (0); count (-1): instances a pass; -1: without
 *                              end. Random numbers from low to below high; of integers, high is included
 *
 * slots is a list of {"name": "", "dtype": "float32", "dims": [-1, 3], "lod_levels": 0}. */
PF_API pf_status pf_create_reader(pf_handle scope, const char *op, const char *out, const char *const *ins,
                                  uint32_t num_ins, const char *attributes, pf_error *err);

/* The same, where the wait may come to an end: a reader of a FIFO that is to say what its instances look like waits for
 * whoever writes into it, and one of a name with ** looks through directories. */
PF_API pf_status pf_create_reader_waiting(pf_handle scope, const char *op, const char *out,
                                          const char *const *ins, uint32_t num_ins, const char *attributes,
                                          const pf_wait *wait, pf_error *err);

/* The reader in a variable; PF_STATE if it holds none. */
PF_API pf_status pf_reader_of(pf_handle var, pf_handle *reader, pf_error *err);
/* The next tuple; PF_END at the end of the pass, until the reader is reset. Blocks. A tuple that `out`
 * still holds is released first, as by pf_queue_pop. */
PF_API pf_status pf_reader_next(pf_handle reader, const pf_wait *wait, pf_tuple *out, pf_error *err);
/* Whether there is a next tuple: reads one ahead and so may block. */
PF_API pf_status pf_reader_has_next(pf_handle reader, const pf_wait *wait, uint8_t *out, pf_error *err);
/* What the reader and those below it did since they were made, and what its tuples look like, as a JSON object:
 * reader, tuples, bytes, passes, waited_seconds, slots, details and below, a list of the same. pf_string_free
 * it. May wait for a reader that another thread reads from, never for data. */
PF_API pf_status pf_reader_stats(pf_handle reader, char **json, pf_error *err);
/* Starts over, at any time, also while another thread is blocked in this reader: that call answers
 * PF_CANCELLED. PF_STATE where there is nothing to start over from: the message says what to do. */
PF_API pf_status pf_reader_reset(pf_handle reader, pf_error *err);

/* The read op: the next tuple of the reader in variable `reader`, slot by slot into the variables
 * `outs`, made in `scope` itself if no scope has them. Moves, never copies. PF_SLOTS if the numbers
 * differ: the tuple then stays with the reader. PF_END leaves the variables as they are. Blocks. */
PF_API pf_status pf_read(pf_handle scope, const char *reader, const char *const *outs, uint32_t num_outs,
                         const pf_wait *wait, pf_error *err);

/* ---- Workers of a map reader ------------------------------------------------------------- */

/* A handle by which threads do the work of a map reader. It does not keep the reader: they go on as long as
 * somebody else has it. PF_STATE if the reader is of another kind. */
PF_API pf_status pf_map_workers(pf_handle reader, pf_handle *workers, pf_error *err);
/* Any number of threads may each take a tuple and give its result, again and again. Blocks until the reader is
 * read from, there is a tuple, and fewer than `capacity` are out; PF_CLOSED once the reader is gone. A tuple
 * that `out` still holds is released first. `ticket` is what the result is given for. The end of the data and
 * errors below are the consumer's to see: a worker waits for the next pass then. */
PF_API pf_status pf_map_take(pf_handle workers, const pf_wait *wait, pf_tuple *out, uint64_t *ticket,
                             pf_error *err);
/* The result for a ticket: copied, strided or not. One that does not fit the reader's slots is refused and the
 * ticket still open. A ticket of before a reset is forgotten, which is PF_OK. Never blocks. */
PF_API pf_status pf_map_give(pf_handle workers, uint64_t ticket, const pf_tensor *tensors,
                             uint32_t num_tensors, pf_error *err);
/* There is no result for a ticket: the consumer gets PF_FAILED in its place. Its message begins with the number of the
 * tuple in the pass, and the file and the record that the tuple is from, or that begin its batch; err->file and record
 * have them. Never blocks. */
PF_API pf_status pf_map_fail(pf_handle workers, uint64_t ticket, const pf_failure *failure, pf_error *err);

/* Gives the result for a ticket, by pf_map_give, from the tuple `in`, which is borrowed for the call. Another
 * answer than 0, or none given, is the consumer's PF_FAILED. It is called from threads of the library, from
 * many at once. */
typedef int (*pf_map_function)(void *context, pf_handle workers, uint64_t ticket, const pf_tuple *in);
/* Starts `num_threads` threads of the library that take, call `function` and go on, until the reader is gone.
 * `function` and `context` MUST be good until `finished(context)` is called (NULL: for ever), once, when the
 * last of them has ended, from any thread. */
PF_API pf_status pf_map_run(pf_handle workers, pf_map_function function, void *context, uint32_t num_threads,
                            void (*finished)(void *context), pf_error *err);

/* ---- Tuples from other processes --------------------------------------------------------------- */

/* A queue that worker processes write into, through a ring of cells in shared memory: nothing is copied between the
 * processes, and workers need neither this library nor Go (pyfeed_worker.h, pyfeed_worker of Python). */
typedef struct pf_shared_queue_options {
    uint32_t size;
    uint32_t num_slots; /* of a tuple */
    const pf_slot_spec *slots;
    uint64_t
        ring_cells; /* tuples that are in the ring at one time: being written, queued, or with the consumer */
    uint64_t cell_bytes; /* the most that a tuple takes, with its offsets and alignment */
    pf_place place;
} pf_shared_queue_options;

#define PF_SHARED_QUEUE_OPTIONS_INIT {sizeof(pf_shared_queue_options), 0, NULL, 0, 0, {PF_CPU, 0}}

/* Makes the queue of a PyArrayFeedQueueHolder variable, as pf_queue_init_once does, with a ring that fills it. `fd` gets the
 * ring's file descriptor, which stays the library's: workers map it, having inherited, been sent or opened it
 * (/proc/PID/fd/N). Pushes from this process are PF_STATE. The death of a worker, at any moment, fails the queue
 * within 50 ms (err->worker, exit_status) unless it had ended its part. */
PF_API pf_status pf_shared_queue_init_once(pf_handle var, const pf_shared_queue_options *options, int *fd,
                                           pf_handle *queue, pf_error *err);
/* The current pass ends when so many workers have ended their part of it, as pf_queue_close ends it. */
PF_API pf_status pf_shared_queue_expect(pf_handle queue, uint32_t num_workers, pf_error *err);
/* Tells the exit status (minus the signal; INT32_MIN: nobody knows) of a worker that is not this process's child, for the
 * error. One that has not attached to this pass fails it, unless its status is 0 and no number of workers is expected. */
PF_API pf_status pf_shared_queue_exited(pf_handle queue, int64_t pid, int32_t exit_status, pf_error *err);

/* ---- Formats and writers ----------------------------------------------------------------- */

/* The formats there are, as a JSON list of {"tag", "suffixes", "writes"}. pf_string_free it. */
PF_API pf_status pf_formats(char **json, pf_error *err);

/* The files that names stand for, as open_files takes them with a `format` or NULL: a JSON list of strings, each with
 * its format's tag and a colon before the path. pf_string_free it.
 *
 * A path that is a parameter of this header, or a member of pf_error, is the bytes that the system knows. In JSON, a byte
 * that is not part of UTF-8 is \u0000 and two hexadecimal digits ("a\u0000ff.npy" is the file a\xff.npy): here, in the
 * attribute filenames, in saved programs and in pf_reader_stats. No file's name has a NUL. */
PF_API pf_status pf_list_files(const char *const *names, uint32_t num_names, const char *format, char **json,
                               pf_error *err);
/* The same, where the wait may come to an end: a name with ** or a pattern among its directories may stand for many. */
PF_API pf_status pf_list_files_waiting(const char *const *names, uint32_t num_names, const char *format,
                                       const pf_wait *wait, char **json, pf_error *err);

/* Adds a format that threads of the caller read: see pf_format_wait. `suffixes` are those of its files, each with
 * its dot, num_suffixes of them. `slots` is what its instances look like where open_files is not told, as the
 * JSON list it takes, or NULL. PF_STATE if the tag or a suffix is taken. A format stays for good; releasing the
 * handle has its files fail to open. */
PF_API pf_status pf_register_format(const char *tag, const char *const *suffixes, uint32_t num_suffixes,
                                    const char *slots, pf_handle *format, pf_error *err);
/* Waits for a file of the format to be opened. Its reader then reads `queue`: push its instances there, in order,
 * then pf_queue_close it, or pf_queue_fail it; a push that is PF_CLOSED says that nobody reads on. `path` and
 * `options`, a JSON object, are to be given to pf_string_free. Each file that is open MUST have a thread of its own,
 * and one more MUST wait here: files that are read in turn, such as those of open_files, would wait for each other. */
PF_API pf_status pf_format_wait(pf_handle format, const pf_wait *wait, pf_handle *queue, char **path,
                                char **options, pf_error *err);

/* Begins to write a file, in the format that its name or, if not NULL, `format` says. `attributes`, a JSON object
 * or NULL: slots, as of pf_create_reader, else the first tuple decides, and names may name them; options, the
 * format's. Until pf_writer_close there is no file of that name, or the old one; a writer released before leaves
 * nothing. */
PF_API pf_status pf_writer_create(const char *filename, const char *format, const char *attributes,
                                  pf_handle *writer, pf_error *err);
/* Adds a tuple. After an error nothing more can be written. Waits for the disk. */
PF_API pf_status pf_writer_write(pf_handle writer, const pf_tensor *tensors, uint32_t num_tensors,
                                 pf_error *err);
/* Completes the file and sees its bytes to the disk. Then only pf_release is left. */
PF_API pf_status pf_writer_close(pf_handle writer, pf_error *err);

/* ---- Staging ------------------------------------------------------------------------------ */

/* The staging buffer of a place, which the process has one of: made by the first call, for good. `capacity`
 * counts tuples, at least 1; `bytes_limit` bytes, 0: no limit. Later calls with the same limits get the same
 * buffer, with others PF_STATE. */
PF_API pf_status pf_get_buffer(pf_place place, uint64_t capacity, uint64_t bytes_limit, pf_handle *buffer,
                               pf_error *err);
/* Copies a tuple to the buffer's place, behind the others. Tuples need not look alike. Blocks while it is full;
 * PF_TOO_LARGE if the tuple alone is more than bytes_limit. */
PF_API pf_status pf_buffer_put(pf_handle buffer, const pf_tensor *tensors, uint32_t num_tensors,
                               const pf_wait *wait, pf_error *err);
/* Takes the oldest tuple out. Blocks while there is none. A tuple that `out` still holds is released first. */
PF_API pf_status pf_buffer_get(pf_handle buffer, const pf_wait *wait, pf_tuple *out, pf_error *err);
/* Drops what is in it, gives its memory back to the system, and goes on: those that wait for room get it.
 * `dropped` (may be NULL) gets the number of tuples. */
PF_API pf_status pf_buffer_clear(pf_handle buffer, uint64_t *dropped, pf_error *err);

typedef struct pf_buffer_info {
    uint32_t size;
    pf_place place;
    uint32_t reserved;
    uint64_t num_tuples; /* ready to be taken out */
    uint64_t capacity;
    uint64_t reserved_tuples; /* being written */
    uint64_t bytes;           /* of both */
    uint64_t bytes_limit;
    uint32_t waiting_producers, waiting_consumers; /* threads */
    uint64_t put, got, dropped, put_bytes;         /* since the buffer was made */
    uint64_t producers_waited_ns, consumers_waited_ns;
} pf_buffer_info;

#define PF_BUFFER_INFO_INIT {sizeof(pf_buffer_info), {PF_CPU, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* What is in it, and what went through. Never blocks. */
PF_API pf_status pf_buffer_stats(pf_handle buffer, pf_buffer_info *out, pf_error *err);
/* Shuts all staging buffers down for good: every wait in them, now and later, ends with PF_CLOSED, and what is in
 * them is dropped. For the end of a process whose threads would wait for each other for ever. */
PF_API pf_status pf_buffers_shutdown(pf_error *err);

/* ---- Programs ------------------------------------------------------------------------------ */

/* A program is blocks of operators over variables, for an executor to run. The first block is what runs; each other
 * one is the body of one operator of its parent. docs/program.md describes operators and attributes. Programs may be
 * built and run by several threads; a run goes by what the program was when it began. */
PF_API pf_status pf_program_new(pf_handle *program, pf_error *err);
/* A copy, which may be changed apart from the original. */
PF_API pf_status pf_program_clone(pf_handle program, pf_handle *clone, pf_error *err);

/* Adds a block within block `parent`, to be the body of an operator that is added to that one later. */
PF_API pf_status pf_program_add_block(pf_handle program, uint32_t parent, uint32_t *block, pf_error *err);
/* Adds a variable to a block: a JSON object of name; kind: "tensor" (if left out), "reader" or "stage"; persistable
 * (false): it is the scope's and outlives the run; of a tensor: dtype, dims (-1: any) and lod_levels (0), of a
 * reader or stage: slots, as of pf_create_reader; what is left out is not known. PF_STATE if the block has one of that
 * name. */
PF_API pf_status pf_program_add_variable(pf_handle program, uint32_t block, const char *variable,
                                         pf_error *err);
/* Adds an operator at the end of a block: a JSON object of type, inputs and outputs (lists of names of variables of this
 * block or those around it), attributes (an object) and where (for messages: the line that it was built at). It is
 * checked as far as its variables are known, and what it says of its outputs is noted in them; if it is refused,
 * nothing has changed. */
PF_API pf_status pf_program_add_op(pf_handle program, uint32_t block, const char *op, pf_error *err);
/* What is known of the variable of that name, in the block or those around it, as JSON. PF_NOT_FOUND if there is none.
 * pf_string_free it. */
PF_API pf_status pf_program_variable(pf_handle program, uint32_t block, const char *name, char **variable,
                                     pf_error *err);

/* The program in a form: "protobuf", as it is saved (program/desc/program.proto); "json", for people to read and edit;
 * "mermaid" or "graphviz", a picture as text. `data` has `size` bytes and a zero behind them; pf_string_free it. */
PF_API pf_status pf_program_serialize(pf_handle program, const char *form, char **data, uint64_t *size,
                                      pf_error *err);
/* A program of what pf_program_serialize gave as "protobuf" or "json". PF_CORRUPT, with the byte's offset, if it is
 * damaged; PF_UNSUPPORTED if it is of another version; PF_INVALID and others if it is not a program that could run. */
PF_API pf_status pf_program_parse(const char *data, uint64_t size, pf_handle *program, pf_error *err);
/* The same to and from a file: as "json" if its name ends with .json, else as "protobuf"; compressed if it ends with .gz or .zst behind that. It is written whole or not at
 * all; a file that is there is replaced. */
PF_API pf_status pf_program_save(pf_handle program, const char *path, pf_error *err);
PF_API pf_status pf_program_load(const char *path, pf_handle *program, pf_error *err);

/* ---- Kernels ------------------------------------------------------------------------------- */

/* What a kernel is called with: by the thread that runs the program, with no lock held. Everything is borrowed for the
 * call. The functions below that take it are for one thread at a time, until the kernel answers. */
typedef struct pf_kernel_call {
    uint32_t size;
    uint32_t num_ins;
    uint32_t num_outs;
    uint32_t reserved;
    const pf_tensor *ins; /* not to be written */
    /* An output that is an input as well has its tensor here, to be written in place: nobody else has it. Any other
     * has dtype PF_DTYPE_ANY and no data, until pf_kernel_output or pf_kernel_set. */
    const pf_tensor *outs;
    pf_place place;         /* the executor's */
    uint64_t stream;        /* of a GPU, to work on; else 0 */
    const char *kernel;     /* the name */
    const char *attributes; /* of the operator, a JSON object */
    uint64_t run;           /* for the functions below, as the next */
} pf_kernel_call;

/* Another answer than 0 ends the run with PF_FAILED; pf_kernel_fail, called before, says why. Every output MUST have got
 * a tensor. It may call every function of this header. */
typedef int (*pf_kernel)(void *context, const pf_kernel_call *call);

/* Gives output `output` memory for a tensor of that dtype, dims and LoD (data is ignored), in place of what it has, and
 * sets call->outs[output] to it. `data` (may be NULL) gets where to write it; what is there is not defined. */
PF_API pf_status pf_kernel_output(const pf_kernel_call *call, uint32_t output, const pf_tensor *like,
                                  void **data, pf_error *err);
/* Copies a tensor, strided or not, to an output. */
PF_API pf_status pf_kernel_set(const pf_kernel_call *call, uint32_t output, const pf_tensor *tensor,
                               pf_error *err);
/* Lends an input as a tuple of one slot, which may outlive the call. */
PF_API pf_status pf_kernel_share(const pf_kernel_call *call, uint32_t input, pf_tuple *out, pf_error *err);
/* Says why the kernel is about to answer something else than 0. */
PF_API pf_status pf_kernel_fail(const pf_kernel_call *call, const pf_failure *failure, pf_error *err);

/* Makes `kernel` known by a name, for every program in the process. PF_STATE if the name is taken. Releasing the handle
 * takes it back: later runs do not find it; `finished(context)` (may be NULL) is called once, on any thread, when no run
 * has it any more. It MUST NOT block, nor call more of pyfeed than what releases handles and tuples. */
PF_API pf_status pf_register_kernel(const char *name, pf_kernel kernel, void *context,
                                    void (*finished)(void *context), pf_handle *handle, pf_error *err);
/* Loads a shared object, for good, and calls its `int pyfeed_register_kernels(pf_error *err)`, which registers its
 * kernels and answers 0 or a pf_status; strings that it puts into `err` are malloc's. It MUST be linked with this library.
 * A name without a slash is a file's in the current folder. A second time is fine and does nothing. PF_IO if it cannot be
 * loaded, PF_INVALID if it has no such function. */
PF_API pf_status pf_load_kernels(const char *path, pf_error *err);
/* The names there are, as a JSON list. pf_string_free it. */
PF_API pf_status pf_kernels(char **json, pf_error *err);

/* ---- The executor -------------------------------------------------------------------------- */

/* Runs programs at a place. Any number of threads may run programs by one executor at a time. */
PF_API pf_status pf_executor_new(pf_place place, pf_handle *executor, pf_error *err);

/* Runs a program once through, on the calling thread. Persistable variables are those of `scope` and its parents, made in
 * `scope` where there are none; all others are the run's own and go with it. First, `num_feeds` tensors are copied
 * into the variables `feed_names`; last, those in the `num_fetches` variables `fetch_names` are lent as `fetched`, which
 * may be NULL if there are none. A tuple that it still holds is released first. Blocks as its operators do; the time,
 * cancel token and poll function of `wait` are looked at between operators too, the token at once, the others every 50 ms,
 * or poll_interval_ms if that is less; a time of 0 ends no operator but one that would block. An error names the operator
 * in its message and in err->op. PF_END: a read came to the end of the data. */
PF_API pf_status pf_executor_run(pf_handle executor, pf_handle program, pf_handle scope,
                                 const char *const *feed_names, const pf_tensor *feeds, uint32_t num_feeds,
                                 const char *const *fetch_names, uint32_t num_fetches, const pf_wait *wait,
                                 pf_tuple *fetched, pf_error *err);

/* ---- Tracing ------------------------------------------------------------------------------- */

/* Begins to record what runs, threads that read, readers and queues of this process do, until pf_trace_stop: `max_events` spans at most (0:
 * a million), 56 bytes each; what does not fit is counted. PF_STATE if there is a recording already. Costs
 * some 100 ns a span. Released, it stops. */
PF_API pf_status pf_trace_start(uint64_t max_events, pf_handle *trace, pf_error *err);
/* Ends it. Twice is fine. */
PF_API pf_status pf_trace_stop(pf_handle trace, pf_error *err);
/* What was recorded, once it has ended: as "chrome", JSON for Perfetto and chrome://tracing; "summary", a JSON object that
 * says what limits the loop, of runs and of threads that call pf_reader_next, pf_read or pf_queue_pop; "table", the same
 * for people. PF_STATE before. pf_string_free it. */
PF_API pf_status pf_trace_text(pf_handle trace, const char *form, char **text, pf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* PYFEED_H */
