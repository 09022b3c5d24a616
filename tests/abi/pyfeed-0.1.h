/* pyfeed: the data feed of a trainer, as a C library.
 *
 * This header is kept by hand and is the contract: the library includes it, so that a difference between the two does not
 * compile. tests/abi has a copy of it for each release, and programs that are built against those copies.
 *
 * What holds for every function, unless its comment says otherwise:
 *
 * - Names.      pf_X_create makes an X and gives its caller a handle; pf_release releases one. pf_X_stats fills in a
 *               pf_X_info, pf_X_list gives a JSON list. Queues push and pop, readers have next.
 * - Status.     The result is a pf_status; PF_OK is 0. Values are returned through out-pointers, which are zeroed before
 *               anything else happens and written only on PF_OK; numbers of passes are PF_PASS_NONE instead of 0.
 * - Errors.     `err` may be NULL. If it is not, it MUST be initialised with PF_ERROR_INIT; after a status other than
 *               PF_OK it holds a message, until pf_error_release.
 * - Threads.    Every function may be called from any thread, at the same time as any other.
 * - Blocking.   Only functions that take a pf_wait block; a thread sleeps outside Go.
 * - Null.       A null pointer where a value is needed is PF_INVALID, not a crash.
 * - Handles.    64-bit ids with a reference count. 0 is never valid; a stale one is PF_STALE_HANDLE. A function that gives
 *               a handle out gives its caller one reference: pf_release it.
 * - Structs.    Each that is passed by pointer begins with its size in bytes, which its _INIT macro sets, and only ever
 *               grows at its end. The library touches no more than `size` bytes of a caller's struct, and takes fields that
 *               it lacks to have their _INIT values. PF_X_SIZE_V1 is the size of a pf_x in 0.1, and the least that is
 *               accepted. Structs that the library hands out may be longer than the caller's header says: `size` is the
 *               step from one to the next in an array. pf_place and pf_lod_level have no size and never change.
 * - Strings.    UTF-8, zero-terminated, borrowed for the call. One that is given out: pf_string_release it.
 * - Forks.      In a child of fork() every call is PF_FORKED at once.
 * - Panics.     A fault inside the library poisons it: that call and all later ones are PF_POISONED. Nothing unwinds
 *               through the caller.
 * - Versions.   \since names the first release that has a function, a struct or a constant. A field or a constant without
 *               one came with its struct or enum.
 */
#ifndef PYFEED_H
#define PYFEED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The release: this line is the one place it is written. \since 0.1 */
#define PF_VERSION "0.1.0"
/** What a binary depends on: raised when something old stops working, which additions never do. \since 0.1 */
#define PF_ABI_VERSION 1u

#if defined(__GNUC__)
#define PF_API __attribute__((visibility("default")))
#else
#define PF_API
#endif

/* ---- Types ------------------------------------------------------------------------------- */

/** What a call has come to. \since 0.1 */
typedef uint8_t pf_status;
/** The values of pf_status. \since 0.1 */
enum {
    PF_OK = 0,
    PF_END = 1,           /* the end of the data: no more tuples in this pass */
    PF_TIMEOUT = 2,       /* the pf_wait's time went by */
    PF_CANCELLED = 3,     /* the pf_wait's cancel token or poll function ended the wait */
    PF_CLOSED = 4,        /* the queue is closed, or the push belongs to an earlier pass */
    PF_FAILED = 5,        /* a producer or kernel failed: err->cause_* describe its error */
    PF_INVALID = 6,       /* an argument that can never be right */
    PF_SHAPE = 7,         /* wrong rank, dimension or LoD (level of detail) */
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
    PF_CORRUPT = 18,    /* a file is not what its format says: err->file, offset and record have the place */
    PF_IO = 19,         /* the operating system could not read or write: err->file, os_errno */
    PF_CUDA_ERROR = 20, /* the CUDA driver failed: err->cuda_code, cuda_name */
};

/** The id of an object of the library: a scope, variable, queue, producer, reader, map workers, writer, format, program,
 * executor, staging buffer, kernel, trace or cancel token. \since 0.1 */
typedef uint64_t pf_handle;

/** The type of an element. \since 0.1 */
typedef int32_t pf_dtype;
/** The values of pf_dtype. \since 0.1 */
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

/** The values of pf_place.kind. PF_CUDA_PINNED is host memory that devices copy from by themselves. \since 0.1 */
enum { PF_CPU = 0, PF_CUDA = 1, PF_CUDA_PINNED = 2 };

/** Where memory is. `device` counts from 0, and is 0 except for PF_CUDA. \since 0.1 */
typedef struct pf_place {
    int32_t kind;
    int32_t device;
} pf_place;
/** \since 0.1 */
#define PF_PLACE_SIZE_V1 8

/** Passes are numbered from 0. In place of a number: the pass that is current when the call begins. \since 0.1 */
#define PF_PASS_CURRENT UINT64_MAX
/** No pass: before the first of a restartable queue. \since 0.1 */
#define PF_PASS_NONE (UINT64_MAX - 1)

/** Dimensions of a tensor, at most. \since 0.1 */
#define PF_MAX_RANK 8
/** Levels of detail of a tensor, at most. \since 0.1 */
#define PF_MAX_LOD_LEVELS 8

/** One level of detail (LoD), which marks sequences of different lengths in a tensor: `count` offsets, the first 0, never
 * decreasing. The last offset of a level is the number of sequences of the next one, that of the last level the tensor's
 * first dimension. The same numbers as Arrow's list offsets and TensorFlow's row_splits. \since 0.1 */
typedef struct pf_lod_level {
    const int64_t *offsets;
    uint64_t count;
} pf_lod_level;
/** \since 0.1 */
#define PF_LOD_LEVEL_SIZE_V1 16

/** pf_tensor.flags. \since 0.1 */
enum {
    PF_READ_ONLY = 1,     /* the data is lent and must not be written */
    PF_HOST_EMULATED = 2, /* of PF_CUDA: PYFEED_CUDA=host is set, and the data is the host's memory */
};

/** A tensor, going in or coming out. Everything that it points to is borrowed: by the call, when it goes in; until
 * pf_tuple_release, when it comes out. Elements are in native byte order. \since 0.1 */
typedef struct pf_tensor {
    uint32_t size; /* also the step from one to the next in an array */
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
/** \since 0.1 */
#define PF_TENSOR_SIZE_V1 72
/** \since 0.1 */
#define PF_TENSOR_INIT {sizeof(pf_tensor), PF_DTYPE_ANY, {PF_CPU, 0}, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL}

/** A tuple on loan from the library: the slots of one instance or one batch. `slots` is contiguous memory aligned to 64
 * bytes, valid until pf_tuple_release. The struct may be moved by plain copy as long as only one of the copies is
 * released. \since 0.1 */
typedef struct pf_tuple {
    uint32_t size;
    uint32_t num_slots;
    const pf_tensor *slots;
    uint64_t loan; /* 0: nothing is on loan */
} pf_tuple;
/** \since 0.1 */
#define PF_TUPLE_SIZE_V1 24
/** \since 0.1 */
#define PF_TUPLE_INIT {sizeof(pf_tuple), 0, NULL, 0}

/** What went wrong. All strings belong to the struct, and are NULL where they do not apply. \since 0.1 */
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
    char *file;        /* PF_CORRUPT, PF_IO; of instances that are refused, and of those that map failed at */
    int64_t offset;    /* in the file, in bytes, decompressed ones if it is compressed; or -1 */
    int64_t record;    /* number of the record, from 0; or -1. PF_CORRUPT: the first that is not delivered */
    int32_t os_errno;  /* PF_IO: the system's number, or 0 */
    uint32_t context;  /* bytes of the message that name the place, before the cause; or 0 */
    char *op;          /* of a program's run: which operator, such as "block 1, op 3: read" */
    int32_t cuda_code; /* PF_CUDA_ERROR: the driver's CUresult; else 0 */
    int32_t exit_status; /* PF_FAILED: of the worker that died, or minus the signal that ended it; else 0 */
    char *cuda_name;     /* PF_CUDA_ERROR: the driver's name, such as "CUDA_ERROR_OUT_OF_MEMORY" */
    int64_t worker;      /* PF_FAILED: process id of the worker process that died; else 0 */
} pf_error;
/** \since 0.1 */
#define PF_ERROR_SIZE_V1 120
/** \since 0.1 */
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

/** Frees the strings and sets it back to PF_ERROR_INIT. NULL is fine. Works after a fork too. \since 0.1 */
PF_API void pf_error_release(pf_error *err);

/** How long to wait. A NULL pf_wait waits for ever. \since 0.1 */
typedef struct pf_wait {
    uint32_t size;
    uint32_t poll_interval_ms; /* with poll: how often at least; 0 means 100 */
    int64_t timeout_ns;        /* negative: for ever; 0: not at all */
    pf_handle cancel;          /* a token of pf_cancel_token_create, or 0 */
    /* Called on the waiting thread every poll_interval_ms, also while it computes rather than sleeps, and after each
     * signal it received; any result other than 0 and PF_POLL_SIGNALS_ONLY ends the wait with PF_CANCELLED. It may take
     * locks and call pyfeed. */
    int (*poll)(void *context);
    void *poll_context;
} pf_wait;
/** \since 0.1 */
#define PF_WAIT_SIZE_V1 40
/** \since 0.1 */
#define PF_WAIT_INIT {sizeof(pf_wait), 0, -1, 0, NULL, NULL}

/** A result of a poll function. It disables periodic polling for the rest of this wait: the function is then called only
 * after signals and pf_poll_now. A call that computes rather than sleeps is still polled periodically. \since 0.1 */
enum { PF_POLL_SIGNALS_ONLY = -1000 };

/* ---- The library ------------------------------------------------------------------------- */

/** The PF_ABI_VERSION the library was built with: compare before anything else. Never fails. \since 0.1 */
PF_API uint32_t pf_abi_version(void);
/** The release, such as "0.1.0". Static. \since 0.1 */
PF_API const char *pf_version(void);
/** "float32" and the like, or NULL for a number that is no dtype. Static. \since 0.1 */
PF_API const char *pf_dtype_name(pf_dtype dtype);
/** Bytes of one element, or 0 for a number that is no dtype. \since 0.1 */
PF_API size_t pf_dtype_size(pf_dtype dtype);
/** "PF_CLOSED" and the like; never NULL. Static. \since 0.1 */
PF_API const char *pf_status_name(pf_status status);

/** What is alive. `live_*` go back to 0 when all is closed and released. \since 0.1 */
typedef struct pf_memory_info {
    uint32_t size;
    uint32_t reserved;
    uint64_t handles;           /* handles with a reference */
    uint64_t tuples_on_loan;    /* pf_tuples not yet released */
    uint64_t live_queue_bytes;  /* tuples pushed by copy or in place: queued or with a consumer */
    uint64_t live_lent_bytes;   /* memory of producers, lent */
    uint64_t live_batch_bytes;  /* batches and variables */
    uint64_t live_view_bytes;   /* descriptors of tuples on loan */
    uint64_t idle_bytes;        /* pooled for the next tuple; freed with the queue or reader */
    uint64_t live_buffers;      /* number of buffers behind the live_* */
    uint64_t live_file_bytes;   /* what was read or decompressed from files, and made of it */
    uint64_t live_mapped_bytes; /* files mapped for reading: address space, and the page cache */
    uint64_t pinned_bytes;      /* host memory that devices copy from by themselves, all of it */
    uint64_t device_bytes;      /* memory of devices, all of it */
    uint64_t shared_bytes;      /* memory that worker processes write to */
} pf_memory_info;
/** \since 0.1 */
#define PF_MEMORY_INFO_SIZE_V1 112
/** \since 0.1 */
#define PF_MEMORY_INFO_INIT {sizeof(pf_memory_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** Counts what is alive in this process. \since 0.1 */
PF_API pf_status pf_memory_stats(pf_memory_info *out, pf_error *err);

/** Frees a string that a function of this header gave out. NULL is fine. Works after a fork too. \since 0.1 */
PF_API void pf_string_release(char *string);

/** One reference more. \since 0.1 */
PF_API pf_status pf_retain(pf_handle handle, pf_error *err);
/** One reference less. The last one of a queue, reader or scope drops it, unless a variable or reader still holds it.
 * \since 0.1 */
PF_API pf_status pf_release(pf_handle handle, pf_error *err);

/** A token that ends waits: see pf_wait.cancel. \since 0.1 */
PF_API pf_status pf_cancel_token_create(pf_handle *token, pf_error *err);
/** Ends, for good, every wait with this token that has begun or will begin: PF_CANCELLED. \since 0.1 */
PF_API pf_status pf_cancel_token_cancel(pf_handle token, pf_error *err);

/** Has every thread that sleeps in a wait with a poll function call it now; one that is calling it, once more.
 * \since 0.1 */
PF_API pf_status pf_poll_now(pf_error *err);

/* ---- Tuples ------------------------------------------------------------------------------ */

/** Gives a tuple back and zeroes it; a reservation that was not committed is dropped. A zeroed one is left alone. Any
 * thread; never blocks, except for the release function of lent memory. \since 0.1 */
PF_API void pf_tuple_release(pf_tuple *tuple);
/** Lends the same memory once more, as a tuple of its own: it stays until both are released. A reservation may be shared,
 * to be looked at after its commit. \since 0.1 */
PF_API pf_status pf_tuple_share(const pf_tuple *tuple, pf_tuple *out, pf_error *err);

/* Readers of a PF_CUDA place deliver tuples of that device: pf_tensor.data is an address there, the LoD is in host memory.
 * The copy may still be under way. Before a stream touches a tuple, pf_tuple_use has it wait for the copy; the host does
 * not wait. pf_tuple_release may be called while streams still use the tuple: its memory is not written before what was
 * submitted until then to the streams of pf_tuple_use is done. pf_tuple_release_on says instead up to where, if that is
 * sooner, or another stream. A stream that is being captured into a graph is PF_STATE, and is left as it was: use the
 * tuple before the capture, and copy it into the graph's own input. For a tuple in host memory these three do nothing.
 *
 * Streams are CUstreams as integers: 0 and 1 are the legacy default stream, 2 is the calling thread's own, any other is a
 * stream of the same device's primary context. */

/** Has `stream` wait until the tuple is at its device, and delays the reuse of its memory: see above. \since 0.1 */
PF_API pf_status pf_tuple_use(const pf_tuple *tuple, uint64_t stream, pf_error *err);
/** Releases the tuple: what was submitted to `stream` so far is the last there to touch it. After an error `tuple` is as
 * it was. \since 0.1 */
PF_API pf_status pf_tuple_release_on(pf_tuple *tuple, uint64_t stream, pf_error *err);
/** Waits on the host until the tuple is at the device. \since 0.1 */
PF_API pf_status pf_tuple_synchronize(const pf_tuple *tuple, const pf_wait *wait, pf_error *err);
/** Copies the data of slot `slot`, all its nbytes, to host memory, and waits for that. Of a tuple in host memory too.
 * \since 0.1 */
PF_API pf_status pf_tuple_download(const pf_tuple *tuple, uint32_t slot, void *to, uint64_t nbytes,
                                   pf_error *err);

/* ---- CUDA devices ------------------------------------------------------------------------------ */

/* The driver, libcuda.so.1, is opened by the first function that needs it: those of this section, or a place that is not
 * PF_CPU. */

/** Whether there is a device to feed. `reason` (may be NULL) gets the driver's reason why not, or NULL if there is one.
 * \since 0.1 */
PF_API pf_status pf_cuda_available(uint8_t *available, char **reason, pf_error *err);
/** How many devices there are. PF_UNSUPPORTED, with the reason, without a driver. \since 0.1 */
PF_API pf_status pf_cuda_device_count(uint32_t *count, pf_error *err);

/** A CUDA device. \since 0.1 */
typedef struct pf_cuda_device_info {
    uint32_t size;
    uint32_t device;
    uint64_t free_bytes; /* of its memory, as the driver says now */
    uint64_t total_bytes;
    char name[96]; /* such as "NVIDIA H200", zero-terminated */
} pf_cuda_device_info;
/** \since 0.1 */
#define PF_CUDA_DEVICE_INFO_SIZE_V1 120
/** \since 0.1 */
#define PF_CUDA_DEVICE_INFO_INIT {sizeof(pf_cuda_device_info), 0, 0, 0, {0}}

/** The name and the memory of a device. \since 0.1 */
PF_API pf_status pf_cuda_device_stats(uint32_t device, pf_cuda_device_info *out, pf_error *err);

/* ---- Scope and variables ----------------------------------------------------------------- */

/** Makes a scope. Look-ups that fail in it go on in `parent` (0: none), which it keeps alive. \since 0.1 */
PF_API pf_status pf_scope_create(pf_handle parent, pf_handle *scope, pf_error *err);
/** The scope that all of the process shares. \since 0.1 */
PF_API pf_status pf_scope_global(pf_handle *scope, pf_error *err);
/** The variable of that name in this scope itself, made empty if there is none. \since 0.1 */
PF_API pf_status pf_scope_var(pf_handle scope, const char *name, pf_handle *var, pf_error *err);
/** The variable of that name in this scope or the nearest parent that has it; else PF_NOT_FOUND. \since 0.1 */
PF_API pf_status pf_scope_find(pf_handle scope, const char *name, pf_handle *var, pf_error *err);
/** Takes the variable out of this scope and drops what it holds; PF_NOT_FOUND if there is none. \since 0.1 */
PF_API pf_status pf_scope_erase(pf_handle scope, const char *name, pf_error *err);
/** The read operator: the next tuple of the reader in variable `reader`, slot by slot into the variables `outs`, made in
 * `scope` itself if no scope has them. Moves, never copies. PF_SLOTS if the numbers differ: the tuple then stays with the
 * reader. PF_END leaves the variables as they are. Blocks. \since 0.1 */
PF_API pf_status pf_scope_read(pf_handle scope, const char *reader, const char *const *outs,
                               uint32_t num_outs, const pf_wait *wait, pf_error *err);

/** What a variable holds. \since 0.1 */
enum {
    PF_VAR_EMPTY = 0,
    PF_VAR_TENSOR = 1, /* a LoDTensor */
    PF_VAR_QUEUE = 2,  /* a PyArrayFeedQueueHolder */
    PF_VAR_READER = 3, /* a ReaderHolder */
};
/** `kind` gets one of the PF_VAR_ constants. \since 0.1 */
PF_API pf_status pf_var_kind(pf_handle var, int32_t *kind, pf_error *err);
/** Lends the tensor in a variable, as a tuple of one slot. The memory stays as it is until the loan is released, whatever
 * is written into the variable meanwhile. PF_STATE if it holds no tensor. \since 0.1 */
PF_API pf_status pf_var_get_tensor(pf_handle var, pf_tuple *out, pf_error *err);
/** Copies a tensor into a variable, in place of what it held. \since 0.1 */
PF_API pf_status pf_var_set_tensor(pf_handle var, const pf_tensor *tensor, pf_error *err);
/** The queue of a variable; PF_STATE before pf_queue_init_once. \since 0.1 */
PF_API pf_status pf_var_get_queue(pf_handle var, pf_handle *queue, pf_error *err);
/** The reader in a variable; PF_STATE if it holds none. \since 0.1 */
PF_API pf_status pf_var_get_reader(pf_handle var, pf_handle *reader, pf_error *err);

/* ---- The queue --------------------------------------------------------------------------- */

/** What one slot of a tuple must look like. \since 0.1 */
typedef struct pf_slot_spec {
    uint32_t size; /* also the step from one to the next in an array */
    pf_dtype dtype;
    int32_t rank;
    uint32_t lod_levels;
    const int64_t *dims; /* -1 matches anything; a first dimension of -1 is the batch's */
} pf_slot_spec;
/** \since 0.1 */
#define PF_SLOT_SPEC_SIZE_V1 24
/** \since 0.1 */
#define PF_SLOT_SPEC_INIT {sizeof(pf_slot_spec), PF_DTYPE_ANY, 0, 0, NULL}

/** How a queue is made. \since 0.1 */
typedef struct pf_queue_options {
    uint32_t size;
    uint32_t num_slots;
    const pf_slot_spec *slots;
    uint64_t capacity;    /* in tuples; at least 1 */
    uint64_t bytes_limit; /* in bytes of all tuples queued or reserved; 0: no limit */
    /* Where the consumer wants tuples. For PF_CUDA they are pushed into pinned host memory, and copied on their way
     * out. */
    pf_place place;
    /* Not 0: the producer can start over. The queue then begins without a pass, the first read opens one, and resetting
     * its reader opens the next: see pf_queue_wait_pass. */
    uint8_t restartable;
    uint8_t reserved[7];
} pf_queue_options;
/** \since 0.1 */
#define PF_QUEUE_OPTIONS_SIZE_V1 48
/** \since 0.1 */
#define PF_QUEUE_OPTIONS_INIT {sizeof(pf_queue_options), 0, NULL, 0, 0, {PF_CPU, 0}, 0, {0, 0, 0, 0, 0, 0, 0}}

/** Makes the queue of a PyArrayFeedQueueHolder variable. A second time is PF_STATE. \since 0.1 */
PF_API pf_status pf_queue_init_once(pf_handle var, const pf_queue_options *options, pf_handle *queue,
                                    pf_error *err);

/** A producer's handle of a queue: it goes wherever a queue's handle does, except to pf_queue_pop (PF_STATE). It does not
 * keep the queue open: once no other handle of the queue, no reader and no variable is left by which a tuple could be
 * popped, the queue is shut down as by pf_queue_shutdown, and pushes are PF_CLOSED, blocked ones too. Give one to each
 * thread that pushes. `queue` may be a producer's handle itself. \since 0.1 */
PF_API pf_status pf_producer_create(pf_handle queue, pf_handle *producer, pf_error *err);

/* In the three pushes below, `pass` is the number of the pass the tuple belongs to (pf_queue_stats, pf_queue_wait_pass), or
 * PF_PASS_CURRENT: once the queue has moved on, the push is PF_CLOSED. A tuple that does not fit the slots is refused
 * whole. */

/** Copies a tuple in: `num_tensors` tensors, strided or not. Blocks while the queue is full. \since 0.1 */
PF_API pf_status pf_queue_push(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                               const pf_wait *wait, pf_error *err);
/** Lends a tuple: nothing is copied, the tensors MUST be contiguous and stay as they are until `release(context)` is
 * called. That happens exactly once, on any thread, and only if this function returns PF_OK; it MUST NOT block or call
 * pyfeed. Blocks while the queue is full. \since 0.1 */
PF_API pf_status pf_queue_push_lent(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors,
                                    uint64_t pass, void (*release)(void *context), void *context,
                                    const pf_wait *wait, pf_error *err);
/** Reserves a tuple in the queue's own memory, to be written in place. Of each tensor only dtype, rank, dims and lod are
 * read. Blocks while the queue is full. Then: pf_queue_commit, or pf_tuple_release to drop it. \since 0.1 */
PF_API pf_status pf_queue_reserve(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors,
                                  uint64_t pass, const pf_wait *wait, pf_tuple *out, pf_error *err);
/** Queues a reservation and zeroes it. PF_CLOSED if its pass has ended: it is dropped then, and zeroed too. PF_STATE if it
 * is no reservation: it is left as it was. Never blocks. \since 0.1 */
PF_API pf_status pf_queue_commit(pf_tuple *reservation, pf_error *err);

/** Takes the oldest tuple. Blocks while the queue is empty. PF_END once it is closed and empty, PF_FAILED once it has
 * failed and is empty. A tuple that `out` still holds is released first, at less than the cost of a pf_tuple_release.
 * \since 0.1 */
PF_API pf_status pf_queue_pop(pf_handle queue, const pf_wait *wait, pf_tuple *out, pf_error *err);

/** Ends the pass: pushes are PF_CLOSED from now on, what is queued is still delivered, then PF_END. `pass` as for pushes:
 * another pass than the current one is left alone. Twice is fine. \since 0.1 */
PF_API pf_status pf_queue_close(pf_handle queue, uint64_t pass, pf_error *err);

/** A producer's error for the consumer; a kernel's, for the caller of pf_executor_run. \since 0.1 */
typedef struct pf_failure {
    uint32_t size;
    uint32_t reserved;
    const char *type; /* may be NULL, as the next two */
    const char *message;
    const char *traceback;
    uint64_t token; /* the consumer finds it in err->cause_token */
} pf_failure;
/** \since 0.1 */
#define PF_FAILURE_SIZE_V1 40
/** \since 0.1 */
#define PF_FAILURE_INIT {sizeof(pf_failure), 0, NULL, NULL, NULL, 0}

/** Ends the pass with an error: as pf_queue_close, but every pop after the last tuple is PF_FAILED. The first failure of a
 * pass counts; one after a close is PF_CLOSED. \since 0.1 */
PF_API pf_status pf_queue_fail(pf_handle queue, uint64_t pass, const pf_failure *failure, pf_error *err);

/** Begins the next pass: closes, drops what is still queued, opens. `pass` and `dropped` (may be NULL) get the new pass's
 * number (PF_PASS_NONE after an error) and the number of tuples dropped. A push begun before is PF_CLOSED, a pop begun
 * before PF_END: neither can see the new pass. \since 0.1 */
PF_API pf_status pf_queue_reopen(pf_handle queue, uint64_t *pass, uint64_t *dropped, pf_error *err);

/** For the producer of a restartable queue: waits until a pass with a number above `after` (PF_PASS_NONE: any) is open, and
 * gives its number, PF_PASS_NONE after an error. PF_CLOSED once the queue is shut down. \since 0.1 */
PF_API pf_status pf_queue_wait_pass(pf_handle queue, uint64_t after, const pf_wait *wait, uint64_t *pass,
                                    pf_error *err);

/** Closes for good and drops what is queued: every blocked call wakes, pops are PF_END, a reopen is PF_CLOSED.
 * \since 0.1 */
PF_API pf_status pf_queue_shutdown(pf_handle queue, pf_error *err);

/** The state of a queue. \since 0.1 */
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
/** \since 0.1 */
#define PF_QUEUE_INFO_SIZE_V1 120
/** \since 0.1 */
#define PF_QUEUE_INFO_INIT \
    {sizeof(pf_queue_info), 0, 0, 0, 0, 0, 0, PF_PASS_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** What is in the queue, and what went through. Never blocks. \since 0.1 */
PF_API pf_status pf_queue_stats(pf_handle queue, pf_queue_info *out, pf_error *err);

/** The specification of slot `slot`, with the dtype that the first tuple has decided. `dims` (PF_MAX_RANK numbers) is
 * written by the call; out->dims points to it. \since 0.1 */
PF_API pf_status pf_queue_slot(pf_handle queue, uint32_t slot, pf_slot_spec *out, int64_t *dims,
                               pf_error *err);

/* ---- Tuples from other processes --------------------------------------------------------------- */

/** A queue that worker processes write into, through a ring of cells in shared memory: nothing is copied between the
 * processes, and workers need neither this library nor Go (pyfeed_worker.h, pyfeed_worker of Python). \since 0.1 */
typedef struct pf_shared_queue_options {
    uint32_t size;
    uint32_t num_slots; /* of a tuple */
    const pf_slot_spec *slots;
    uint64_t ring_cells; /* tuples in the ring at one time: being written, queued, or with the consumer */
    uint64_t cell_bytes; /* the most that a tuple takes, with its offsets and alignment */
    pf_place place;
} pf_shared_queue_options;
/** \since 0.1 */
#define PF_SHARED_QUEUE_OPTIONS_SIZE_V1 40
/** \since 0.1 */
#define PF_SHARED_QUEUE_OPTIONS_INIT {sizeof(pf_shared_queue_options), 0, NULL, 0, 0, {PF_CPU, 0}}

/** Makes the queue of a PyArrayFeedQueueHolder variable, as pf_queue_init_once does, with a ring that fills it. `fd` gets
 * the ring's file descriptor, which stays the library's: workers map it, having inherited, been sent or opened it
 * (/proc/PID/fd/N). Pushes from this process are PF_STATE. The death of a worker, at any moment, fails the queue within
 * 50 ms (err->worker, exit_status) unless it had ended its part. \since 0.1 */
PF_API pf_status pf_shared_queue_init_once(pf_handle var, const pf_shared_queue_options *options, int *fd,
                                           pf_handle *queue, pf_error *err);
/** The current pass ends when so many workers have ended their part of it, as pf_queue_close ends it. \since 0.1 */
PF_API pf_status pf_shared_queue_expect(pf_handle queue, uint32_t num_workers, pf_error *err);
/** Reports the exit status (minus the signal; INT32_MIN: unknown) of a worker that is not this process's child, for the
 * error. A worker that has not attached to this pass fails it, unless its status is 0 and no number of workers is
 * expected. \since 0.1 */
PF_API pf_status pf_shared_queue_report_exit(pf_handle queue, int64_t pid, int32_t exit_status,
                                             pf_error *err);

/* ---- Readers ----------------------------------------------------------------------------- */

/** Runs the operator `op`: makes a reader of the readers in the variables `ins` (num_ins of them) and puts a ReaderHolder
 * into the variable `out`, which is made if need be. `attributes` is a JSON object, or NULL for none; a name that an
 * operator does not have is PF_INVALID, with those it has in the message. Nothing is read except, by open_files and
 * create_file_reader without "slots", the beginning of the first file. Read only the topmost reader of a chain: tuples
 * that are taken from below are missing above. Blocks where an operator has to wait: a FIFO without "slots" for its
 * writer, a name with ** for the search through directories.
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
 *                              delivered; ordered (true). What workers make of the tuples: see
 *                              pf_map_workers_next
 * create_zip_reader            strict (false): readers that do not end together are an error. Joins the slots
 *                              of its readers. Takes 2 inputs or more
 * create_shard_reader          rank (0); world. Every world-th tuple, from the rank-th on
 * create_random_data_generator slots; low (0); high (1); seed (0); count (-1): instances a pass; -1: without
 *                              end. Random numbers from low to below high; of integers, high is included
 *
 * slots is a list of {"name": "", "dtype": "float32", "dims": [-1, 3], "lod_levels": 0}. \since 0.1 */
PF_API pf_status pf_reader_create(pf_handle scope, const char *op, const char *out, const char *const *ins,
                                  uint32_t num_ins, const char *attributes, const pf_wait *wait,
                                  pf_error *err);

/** The next tuple; PF_END at the end of the pass, until the reader is reset. Blocks. A tuple that `out` still holds is
 * released first, as by pf_queue_pop. \since 0.1 */
PF_API pf_status pf_reader_next(pf_handle reader, const pf_wait *wait, pf_tuple *out, pf_error *err);
/** Whether there is a next tuple: reads one ahead and so may block. \since 0.1 */
PF_API pf_status pf_reader_has_next(pf_handle reader, const pf_wait *wait, uint8_t *out, pf_error *err);
/** Starts over, at any time, also while another thread is blocked in this reader: that call is PF_CANCELLED. PF_STATE
 * where there is nothing to start over from: the message says what to do. \since 0.1 */
PF_API pf_status pf_reader_reset(pf_handle reader, pf_error *err);
/** Begins a loop over the reader, as Python's `for` does. The first loop since the reader was made or reset goes on where
 * the reader is, and so does one after an error of the reader. Any other loop resets the reader first, at any time, and
 * does not begin if that fails, as pf_reader_reset would. With `current`, the loop goes through what is left of the current
 * pass in any case. Loops over the readers below count, too. `loop` is for pf_reader_next_in_loop; 0 after an error.
 * \since 0.1 */
PF_API pf_status pf_reader_begin_loop(pf_handle reader, uint8_t current, uint64_t *loop, pf_error *err);
/** pf_reader_next for a loop, which takes nothing of another pass than its own: PF_CANCELLED if the reader was reset since
 * the loop began, even while the call was on its way. \since 0.1 */
PF_API pf_status pf_reader_next_in_loop(pf_handle reader, uint64_t loop, const pf_wait *wait, pf_tuple *out,
                                        pf_error *err);
/** What the reader and those below it did since they were made, and what its tuples look like, as a JSON object: reader,
 * tuples, bytes, passes, length (tuples of a pass; left out where it is not known, -1 where a pass has no end),
 * waited_seconds, slots, details and below, a list of the same. May wait for a reader that another
 * thread reads from, never for data. \since 0.1 */
PF_API pf_status pf_reader_stats(pf_handle reader, char **json, pf_error *err);

/* ---- Workers of a map reader ------------------------------------------------------------- */

/** A handle by which threads compute the results of a map reader. It does not keep the reader alive: they go on as long
 * as other handles, readers or variables do. PF_STATE if the reader is of another kind. \since 0.1 */
PF_API pf_status pf_map_workers_create(pf_handle reader, pf_handle *workers, pf_error *err);
/** The next tuple to compute a result of. Any number of threads may each take a tuple and complete it, again and again.
 * Blocks until the reader is read from, there is a tuple, and fewer than `capacity` are out; PF_CLOSED once the reader is
 * gone. A tuple that `out` still holds is released first. `ticket` names the result. The end of the data and errors below
 * are the consumer's to see: a worker waits for the next pass then. \since 0.1 */
PF_API pf_status pf_map_workers_next(pf_handle workers, const pf_wait *wait, pf_tuple *out, uint64_t *ticket,
                                     pf_error *err);
/** The result for a ticket: copied, strided or not. One that does not fit the reader's slots is refused and the ticket
 * still open. A ticket of before a reset is ignored, which is PF_OK. Never blocks. \since 0.1 */
PF_API pf_status pf_map_workers_complete(pf_handle workers, uint64_t ticket, const pf_tensor *tensors,
                                         uint32_t num_tensors, pf_error *err);
/** There is no result for a ticket: the consumer gets PF_FAILED in its place. Its message begins with the number of the
 * tuple in the pass, and the file and the record that the tuple is from, or that begin its batch; err->file and record
 * have them. Never blocks. \since 0.1 */
PF_API pf_status pf_map_workers_fail(pf_handle workers, uint64_t ticket, const pf_failure *failure,
                                     pf_error *err);

/** Completes a ticket, by pf_map_workers_complete, from the tuple `in`, which is borrowed for the call. A result other
 * than 0, or no completion, is the consumer's PF_FAILED. It is called from threads of the library, from many at once.
 * \since 0.1 */
typedef int (*pf_map_function)(void *context, pf_handle workers, uint64_t ticket, const pf_tuple *in);
/** Starts `num_threads` threads of the library that call `function` for one tuple after the other, until the reader is
 * gone. `function` and `context` MUST be good until `finished(context)` is called (NULL: for ever), once, when the last of
 * the threads has ended, from any thread. \since 0.1 */
PF_API pf_status pf_map_workers_start(pf_handle workers, pf_map_function function, void *context,
                                      uint32_t num_threads, void (*finished)(void *context), pf_error *err);

/* ---- Formats and writers ----------------------------------------------------------------- */

/** The formats there are, as a JSON list of {"tag", "suffixes", "writes"}. \since 0.1 */
PF_API pf_status pf_format_list(char **json, pf_error *err);

/** The files that names stand for, as open_files takes them with a `format` or NULL: a JSON list of strings, each with its
 * format's tag and a colon before the path. Blocks: a name with ** or a pattern among its directories may stand for many.
 *
 * A path that is a parameter of this header, or a member of pf_error, is the bytes that the system knows. In JSON, a byte
 * that is not part of UTF-8 is \u0000 and two hexadecimal digits ("a\u0000ff.npy" is the file a\xff.npy): here, in the
 * attribute filenames, in saved programs and in pf_reader_stats. No file's name has a NUL. \since 0.1 */
PF_API pf_status pf_file_list(const char *const *names, uint32_t num_names, const char *format,
                              const pf_wait *wait, char **json, pf_error *err);

/** Adds a format that threads of the caller read: see pf_format_wait. `suffixes` are those of its files, each with its
 * dot, num_suffixes of them. `slots` is what its instances look like where open_files is not told, as the JSON list it
 * takes, or NULL. PF_STATE if the tag or a suffix is taken. A format stays for good; releasing the handle has its files
 * fail to open. \since 0.1 */
PF_API pf_status pf_format_register(const char *tag, const char *const *suffixes, uint32_t num_suffixes,
                                    const char *slots, pf_handle *format, pf_error *err);
/** Waits for a file of the format to be opened. Its reader then reads `queue`: push its instances there, in order, then
 * pf_queue_close it, or pf_queue_fail it; a push that is PF_CLOSED says that the reader is gone. `path` and `options`, a
 * JSON object, are strings that are given out. Each file that is open MUST have a thread of its own, and one more MUST
 * wait here: files that are read in turn, such as those of open_files, would wait for each other. \since 0.1 */
PF_API pf_status pf_format_wait(pf_handle format, const pf_wait *wait, pf_handle *queue, char **path,
                                char **options, pf_error *err);

/** Begins to write a file, in the format that its name or, if not NULL, `format` says. `attributes`, a JSON object or
 * NULL: slots, as of pf_reader_create, else the first tuple decides, and names may name them; options, the format's. Until
 * pf_writer_close there is no file of that name, or the old one; a writer released before leaves nothing. \since 0.1 */
PF_API pf_status pf_writer_create(const char *filename, const char *format, const char *attributes,
                                  pf_handle *writer, pf_error *err);
/** Adds a tuple. After an error nothing more can be written. Waits for the disk. \since 0.1 */
PF_API pf_status pf_writer_write(pf_handle writer, const pf_tensor *tensors, uint32_t num_tensors,
                                 pf_error *err);
/** Completes the file and syncs it to the disk. Then only pf_release is left. \since 0.1 */
PF_API pf_status pf_writer_close(pf_handle writer, pf_error *err);

/* ---- Staging ------------------------------------------------------------------------------ */

/** The staging buffer of a place, of which the process has one: the first call makes it, for good. `capacity` counts
 * tuples, at least 1; `bytes_limit` bytes, 0: no limit. Later calls with the same limits get the same buffer, with others
 * PF_STATE. \since 0.1 */
PF_API pf_status pf_staging_create(pf_place place, uint64_t capacity, uint64_t bytes_limit, pf_handle *buffer,
                                   pf_error *err);
/** Copies a tuple to the buffer's place, behind the others. Tuples need not look alike. Blocks while it is full;
 * PF_TOO_LARGE if the tuple alone is more than bytes_limit. \since 0.1 */
PF_API pf_status pf_staging_put(pf_handle buffer, const pf_tensor *tensors, uint32_t num_tensors,
                                const pf_wait *wait, pf_error *err);
/** Takes the oldest tuple out. Blocks while there is none. A tuple that `out` still holds is released first. \since 0.1 */
PF_API pf_status pf_staging_get(pf_handle buffer, const pf_wait *wait, pf_tuple *out, pf_error *err);
/** Drops what is in it, gives its memory back to the system, and goes on: blocked puts get the room. `dropped` (may be
 * NULL) gets the number of tuples. \since 0.1 */
PF_API pf_status pf_staging_clear(pf_handle buffer, uint64_t *dropped, pf_error *err);

/** The state of a staging buffer. \since 0.1 */
typedef struct pf_staging_info {
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
} pf_staging_info;
/** \since 0.1 */
#define PF_STAGING_INFO_SIZE_V1 112
/** \since 0.1 */
#define PF_STAGING_INFO_INIT {sizeof(pf_staging_info), {PF_CPU, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** What is in it, and what went through. Never blocks. \since 0.1 */
PF_API pf_status pf_staging_stats(pf_handle buffer, pf_staging_info *out, pf_error *err);
/** Shuts all staging buffers down for good: every wait in them, now and later, ends with PF_CLOSED, and what is in them is
 * dropped. For the end of a process whose threads would wait for each other for ever. \since 0.1 */
PF_API pf_status pf_staging_shutdown(pf_error *err);

/* ---- Programs ------------------------------------------------------------------------------ */

/** Makes an empty program: blocks of operators over variables, for an executor to run. The first block is what runs; each
 * other one is the body of one operator of its parent. docs/program.md describes operators and attributes. Programs may be
 * built and run by several threads; a run goes by what the program was when it began. \since 0.1 */
PF_API pf_status pf_program_create(pf_handle *program, pf_error *err);
/** A copy, which may be changed apart from the original. \since 0.1 */
PF_API pf_status pf_program_clone(pf_handle program, pf_handle *clone, pf_error *err);

/** Adds a block within block `parent`, to be the body of an operator that is added to that one later. \since 0.1 */
PF_API pf_status pf_program_add_block(pf_handle program, uint32_t parent, uint32_t *block, pf_error *err);
/** Adds a variable to a block: a JSON object of name; kind: "tensor" (if left out), "reader" or "stage"; persistable
 * (false): it is the scope's and outlives the run; of a tensor: dtype, dims (-1: any) and lod_levels (0), of a reader or
 * stage: slots, as of pf_reader_create; what is left out is not known. PF_STATE if the block has one of that name.
 * \since 0.1 */
PF_API pf_status pf_program_add_variable(pf_handle program, uint32_t block, const char *variable,
                                         pf_error *err);
/** Adds an operator at the end of a block: a JSON object of type, inputs and outputs (lists of names of variables of this
 * block or those around it), attributes (an object) and where (for messages: the line that it was built at). It is checked
 * as far as its variables are known, and what it says of its outputs is noted in them; if it is refused, nothing has
 * changed. \since 0.1 */
PF_API pf_status pf_program_add_op(pf_handle program, uint32_t block, const char *op, pf_error *err);
/** What is known of the variable of that name, in the block or those around it, as JSON. PF_NOT_FOUND if there is none.
 * \since 0.1 */
PF_API pf_status pf_program_get_variable(pf_handle program, uint32_t block, const char *name, char **variable,
                                         pf_error *err);

/** The program in a form: "protobuf", as it is saved (docs/program.md); "json", for people to read and edit; "mermaid" or
 * "graphviz", a picture as text. `data` has `size` bytes and a zero behind them; pf_string_release it. \since 0.1 */
PF_API pf_status pf_program_serialize(pf_handle program, const char *form, char **data, uint64_t *size,
                                      pf_error *err);
/** A program of what pf_program_serialize gave as "protobuf" or "json". PF_CORRUPT, with the byte's offset, if it is
 * damaged; PF_UNSUPPORTED if it is of another version; PF_INVALID and others if it is not a program that could run.
 * \since 0.1 */
PF_API pf_status pf_program_parse(const char *data, uint64_t size, pf_handle *program, pf_error *err);
/** Writes it to a file: as "json" if its name ends with .json, else as "protobuf"; compressed if it ends with .gz or .zst
 * behind that. It is written whole or not at all; an old file is replaced. \since 0.1 */
PF_API pf_status pf_program_save(pf_handle program, const char *path, pf_error *err);
/** Reads what pf_program_save wrote. \since 0.1 */
PF_API pf_status pf_program_load(const char *path, pf_handle *program, pf_error *err);

/* ---- Kernels ------------------------------------------------------------------------------- */

/** What a kernel is called with: by the thread that runs the program, with no lock held. Everything is borrowed for the
 * call. The functions below that take it are for one thread at a time, until the kernel returns. \since 0.1 */
typedef struct pf_kernel_call {
    uint32_t size;
    uint32_t num_ins;
    uint32_t num_outs;
    uint32_t reserved;
    const pf_tensor *ins; /* not to be written */
    /* An output that is an input as well has its tensor here, to be written in place: nothing else refers to it. Any
     * other has dtype PF_DTYPE_ANY and no data, until pf_kernel_output or pf_kernel_set. */
    const pf_tensor *outs;
    pf_place place;         /* the executor's */
    uint64_t stream;        /* of a GPU, to compute on; else 0 */
    const char *kernel;     /* the name */
    const char *attributes; /* of the operator, a JSON object */
    uint64_t run;           /* for the functions below, as the next */
} pf_kernel_call;
/** \since 0.1 */
#define PF_KERNEL_CALL_SIZE_V1 72

/** A kernel. A result other than 0 ends the run with PF_FAILED; pf_kernel_fail, called before, says why. Every output MUST
 * have got a tensor. It may call every function of this header. \since 0.1 */
typedef int (*pf_kernel)(void *context, const pf_kernel_call *call);

/** Gives output `output` memory for a tensor of that dtype, dims and LoD (data is ignored), in place of what it has, and
 * sets call->outs[output] to it. `data` (may be NULL) gets where to write it; its contents are undefined. \since 0.1 */
PF_API pf_status pf_kernel_output(const pf_kernel_call *call, uint32_t output, const pf_tensor *like,
                                  void **data, pf_error *err);
/** Copies a tensor, strided or not, to an output. \since 0.1 */
PF_API pf_status pf_kernel_set(const pf_kernel_call *call, uint32_t output, const pf_tensor *tensor,
                               pf_error *err);
/** Lends an input as a tuple of one slot, which may outlive the call. \since 0.1 */
PF_API pf_status pf_kernel_share(const pf_kernel_call *call, uint32_t input, pf_tuple *out, pf_error *err);
/** Says why the kernel is about to return something other than 0. \since 0.1 */
PF_API pf_status pf_kernel_fail(const pf_kernel_call *call, const pf_failure *failure, pf_error *err);

/** Makes `kernel` known by a name, for every program in the process. PF_STATE if the name is taken. Releasing the handle
 * takes it back: later runs do not find it; `finished(context)` (may be NULL) is called once, on any thread, when no run
 * has it any more. It MUST NOT block, nor call more of pyfeed than what releases handles and tuples. \since 0.1 */
PF_API pf_status pf_kernel_register(const char *name, pf_kernel kernel, void *context,
                                    void (*finished)(void *context), pf_handle *handle, pf_error *err);
/** Loads a shared object, for good, and calls its `int pyfeed_register_kernels(pf_error *err)`, which registers its kernels
 * and returns 0 or a pf_status; strings that it puts into `err` are malloc's. It MUST be linked with this library. A name
 * without a slash is a file's in the current folder. A second time is fine and does nothing. PF_IO if it cannot be loaded,
 * PF_INVALID if it has no such function. \since 0.1 */
PF_API pf_status pf_kernel_load(const char *path, pf_error *err);
/** The names there are, as a JSON list. \since 0.1 */
PF_API pf_status pf_kernel_list(char **json, pf_error *err);

/* ---- The executor -------------------------------------------------------------------------- */

/** Makes an executor, which runs programs at a place. Any number of threads may run programs by one executor at a time.
 * \since 0.1 */
PF_API pf_status pf_executor_create(pf_place place, pf_handle *executor, pf_error *err);

/** Runs a program once through, on the calling thread. Persistable variables are those of `scope` and its parents, made in
 * `scope` where there are none; all others are the run's own and go with it. First, `num_feeds` tensors are copied into
 * the variables `feed_names`; last, those in the `num_fetches` variables `fetch_names` are lent as `fetched`, which may be
 * NULL if there are none. A tuple that it still holds is released first. Blocks as its operators do; `wait` is checked
 * between operators too, its cancel token at once, its timeout and poll function every 50 ms, or poll_interval_ms if that
 * is less; a timeout of 0 ends no operator but one that would block. An error names the operator in its message and in
 * err->op. PF_END: a read came to the end of the data. \since 0.1 */
PF_API pf_status pf_executor_run(pf_handle executor, pf_handle program, pf_handle scope,
                                 const char *const *feed_names, const pf_tensor *feeds, uint32_t num_feeds,
                                 const char *const *fetch_names, uint32_t num_fetches, const pf_wait *wait,
                                 pf_tuple *fetched, pf_error *err);

/* ---- Tracing ------------------------------------------------------------------------------- */

/** Begins to record what runs, threads that read, readers and queues of this process do, until pf_trace_stop: `max_events`
 * spans at most (0: a million), 56 bytes each; what does not fit is counted. PF_STATE if there is a recording already.
 * Costs some 100 ns a span. Released, it stops. \since 0.1 */
PF_API pf_status pf_trace_start(uint64_t max_events, pf_handle *trace, pf_error *err);
/** Ends it. Twice is fine. \since 0.1 */
PF_API pf_status pf_trace_stop(pf_handle trace, pf_error *err);
/** What was recorded, once it has ended: as "chrome", JSON for Perfetto and chrome://tracing; "summary", a JSON object that
 * says what limits the loop, of runs and of threads that call pf_reader_next, pf_scope_read or pf_queue_pop; "table", the
 * same for people. PF_STATE before. \since 0.1 */
PF_API pf_status pf_trace_export(pf_handle trace, const char *form, char **text, pf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* PYFEED_H */
