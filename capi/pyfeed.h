/* pyfeed: the data feed of a training program, as a C library.
 *
 * This header is written by hand and is the contract. The library includes it, so a declaration that differs from its
 * definition does not compile. tests/abi has a copy of this header for each release, and programs that are compiled
 * against those copies.
 *
 * The terms:
 *
 * - Tuple.      One instance (sample) or one batch: a list of tensors. A slot is a position in that list.
 * - Pass.       One run through the data, an epoch. Passes are numbered from 0.
 * - LoD.        Level of detail: ragged offsets, which divide a tensor into sequences of different lengths. See
 *               pf_lod_level.
 * - Place.      Where memory is: on the host, pinned (page-locked) on the host, or on a CUDA device.
 * - Loan.       A tuple whose memory the caller borrows from the library, until pf_tuple_release.
 *
 * The following rules hold for every function, except where its comment says otherwise:
 *
 * - Names.      pf_X_create makes an X and gives the caller a handle; pf_release releases it. pf_X_stats reports the
 *               state of an X, as a pf_X_info or as JSON. pf_X_list returns a JSON list. Queues have push and pop,
 *               readers have next.
 * - Status.     The result is a pf_status; PF_OK is 0. Values are returned through out-pointers. The library sets them
 *               to 0 before anything else, and writes a value only if it returns PF_OK. In place of 0, a pass number is
 *               PF_PASS_NONE.
 * - Errors.     `err` may be NULL. If it is not, the caller MUST initialise it with PF_ERROR_INIT. A status other than
 *               PF_OK stores a message in it, which is valid until pf_error_release or the next failure with the same
 *               struct. PF_OK leaves it unchanged.
 * - Arguments.  The library borrows strings, tensors and other arrays for the call, and copies what it keeps.
 * - Threads.    Every function may be called from any thread, at the same time as any other. Two calls at the same time
 *               MUST NOT write to the same out-pointer, pf_tuple or pf_error.
 * - Blocking.   Only functions that take a pf_wait wait for data, room or another thread. The thread sleeps outside Go.
 * - Null.       A NULL pointer where a value is needed is PF_INVALID, not a crash.
 * - Handles.    64-bit ids with a reference count. 0 is never valid. A handle without references left is
 *               PF_STALE_HANDLE. A function that returns a handle gives its caller one reference, which the caller
 *               releases with pf_release.
 * - Structs.    Each struct that is passed by pointer begins with its size in bytes. Its _INIT macro sets the size. A
 *               struct only ever grows at its end. The library touches no more than `size` bytes of a caller's struct.
 *               Fields that this struct lacks count as having their _INIT values. PF_X_SIZE_V1 is the size of a pf_x in
 *               release 0.1, and the smallest size that is accepted. Structs that the library hands out may be longer
 *               than the caller's header says: step through an array of them by `size`. pf_place and pf_lod_level have
 *               no size and never change.
 * - Tuples.     An out pf_tuple MUST be initialised with PF_TUPLE_INIT. Functions that wait for a tuple first release
 *               the tuple that `out` still holds, as their comments say. All others overwrite `out` without releasing
 *               it.
 * - Strings.    UTF-8, zero-terminated. A string that the library returns belongs to the caller, who frees it with
 *               pf_string_release. For paths see pf_file_list.
 * - Signals.    A signal handler that is installed after the library was loaded MUST be installed by sigaction with
 *               SA_ONSTACK, not by signal(). A handler without SA_ONSTACK may run on the stack of a goroutine and
 *               corrupt memory. A handler may set a flag, and MUST NOT call the library.
 * - Forks.      In a child of fork() every call returns PF_FORKED at once.
 * - Panics.     A fault inside the library poisons it: that call and all later ones return PF_POISONED. Nothing unwinds
 *               through the caller.
 * - Versions.   \since names the first release that has a function, a struct or a constant. A field or a constant
 *               without \since came with its struct or enum. */
#ifndef PYFEED_H
#define PYFEED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The release. This line is the only place where it is written. \since 0.1 */
#define PF_VERSION "0.1.0"
/** The version of the binary interface. It is raised when something old stops working. Additions do not raise it.
 * \since 0.1 */
#define PF_ABI_VERSION 1u

#if defined(__GNUC__)
#define PF_API __attribute__((visibility("default")))
#else
#define PF_API
#endif

/* ---- Types ------------------------------------------------------------------------------- */

/** The result of a call. \since 0.1 */
typedef uint8_t pf_status;
/** The values of pf_status. \since 0.1 */
enum {
    PF_OK = 0,
    PF_END = 1,           /* the end of the data: this pass has no more tuples */
    PF_TIMEOUT = 2,       /* the timeout of the pf_wait has passed */
    PF_CANCELLED = 3,     /* the wait's cancel token or poll function, or a reset, ended the call */
    PF_CLOSED = 4,        /* the queue is closed or shut down, or the push is for an earlier pass */
    PF_FAILED = 5,        /* a producer, function or kernel failed: err->cause_* describe its error */
    PF_INVALID = 6,       /* an argument that is never valid */
    PF_SHAPE = 7,         /* wrong rank, dimension or LoD (level of detail) */
    PF_DTYPE = 8,         /* wrong or unsupported type of element */
    PF_SLOTS = 9,         /* wrong number of slots, or no slot of that number */
    PF_TOO_LARGE = 10,    /* larger than a limit, such as a tuple that is larger than bytes_limit */
    PF_STALE_HANDLE = 11, /* a handle that is not valid, no longer valid, or of another kind */
    PF_STATE = 12,        /* the wrong state for this call: made twice, not made yet, not resettable */
    PF_NOT_FOUND = 13,    /* no variable, kernel or block of that name or number */
    PF_UNSUPPORTED = 14,  /* this build or this machine cannot do it */
    PF_NO_MEMORY = 15,    /* out of memory */
    PF_FORKED = 16,       /* called in a child of fork() */
    PF_POISONED = 17,     /* the library has stopped after a fault inside it */
    PF_CORRUPT = 18,      /* a file does not conform to its format: err->file, offset and record */
    PF_IO = 19,           /* the operating system failed to read or write: err->file, os_errno */
    PF_CUDA_ERROR = 20,   /* the CUDA driver failed: err->cuda_code, cuda_name */
};

/** The id of an object of the library, with a reference count. The object is a scope, variable, queue, producer,
 * reader, map workers, writer, format, program, executor, staging buffer, kernel, trace or cancel token. \since 0.1 */
typedef uint64_t pf_handle;

/** The type of the elements of a tensor. \since 0.1 */
typedef int32_t pf_dtype;
/** The values of pf_dtype. \since 0.1 */
enum {
    PF_DTYPE_ANY = 0, /* in a pf_slot_spec: the first tuple decides; of a kernel's output: no tensor yet */
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

/** The values of pf_place.kind. PF_CUDA_PINNED is pinned (page-locked) host memory, which devices copy from directly.
 * \since 0.1 */
enum { PF_CPU = 0, PF_CUDA = 1, PF_CUDA_PINNED = 2 };

/** Where memory is. `device` is the number of a CUDA device, from 0. It is 0 for the other kinds. \since 0.1 */
typedef struct pf_place {
    int32_t kind;
    int32_t device;
} pf_place;
/** \since 0.1 */
#define PF_PLACE_SIZE_V1 8

/** In place of the number of a pass: the pass that is current when the call begins. \since 0.1 */
#define PF_PASS_CURRENT UINT64_MAX
/** No pass: a restartable queue has this number before its first pass. \since 0.1 */
#define PF_PASS_NONE (UINT64_MAX - 1)

/** The largest number of dimensions of a tensor. \since 0.1 */
#define PF_MAX_RANK 8
/** The largest number of LoD levels of a tensor. \since 0.1 */
#define PF_MAX_LOD_LEVELS 8

/** One level of ragged offsets (LoD, level of detail), which divide a tensor into sequences of different lengths. There
 * are `count` offsets; the first is 0, and they never decrease. Sequence i begins at offsets[i] and ends before
 * offsets[i+1]. The offsets of the last level count rows: the last of them is the first dimension of the tensor. The
 * offsets of another level count sequences of the next level: the last offset is the number of these sequences. The
 * offsets are the same numbers as list offsets in Arrow and row_splits in TensorFlow. \since 0.1 */
typedef struct pf_lod_level {
    const int64_t *offsets;
    uint64_t count;
} pf_lod_level;
/** \since 0.1 */
#define PF_LOD_LEVEL_SIZE_V1 16

/** The values of pf_tensor.flags; they are combined by |. \since 0.1 */
enum {
    PF_READ_ONLY = 1,     /* the data is lent: it MUST NOT be written */
    PF_HOST_EMULATED = 2, /* the place is PF_CUDA, but PYFEED_CUDA=host is set: the data is in host memory */
};

/** A tensor, as an argument or as a result. Everything that it points to is borrowed: an argument for the duration of
 * the call (pf_queue_push_lent: longer), a result until pf_tuple_release. Elements are in native byte order. Results
 * have no strides. \since 0.1 */
typedef struct pf_tensor {
    uint32_t size; /* also the step from one to the next in an array */
    pf_dtype dtype;
    pf_place place;
    int32_t rank;
    uint32_t lod_levels;
    uint32_t flags;
    uint32_t reserved;
    void *data;
    uint64_t nbytes;         /* product of the dims and the size of an element; ignored in arguments */
    const int64_t *dims;     /* `rank` of them; NULL only if rank is 0 */
    const int64_t *strides;  /* in bytes, `rank` of them; NULL: contiguous, the last dimension fastest */
    const pf_lod_level *lod; /* `lod_levels` of them, outermost first */
} pf_tensor;
/** \since 0.1 */
#define PF_TENSOR_SIZE_V1 72
/** \since 0.1 */
#define PF_TENSOR_INIT {sizeof(pf_tensor), PF_DTYPE_ANY, {PF_CPU, 0}, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL}

/** A tuple on loan from the library: the slots of one instance or one batch. `slots` is an array of `num_slots`
 * tensors, valid until pf_tuple_release. The data of each is contiguous. It is aligned to 64 bytes if the library
 * allocated it, and to its elements (at most 8 bytes) if it is a view of a file. Lent memory keeps the alignment that
 * its owner gave it. The struct may be moved by plain copy as long as only one of the copies is released.
 * \since 0.1 */
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

/** What went wrong. The struct owns its strings; pf_error_release frees them. A string that does not apply is NULL.
 * \since 0.1 */
typedef struct pf_error {
    uint32_t size;
    pf_status status;
    uint8_t approximate; /* 1: `record` is not exact, because damage before it was skipped; else 0 */
    uint8_t reserved[2];
    int32_t slot; /* the slot that the error is about, or -1 */
    uint32_t reserved2;
    char *message;         /* one sentence: what was expected, what was found, where */
    char *cause_type;      /* PF_FAILED: the type of the error of the producer, function or kernel */
    char *cause_message;   /* PF_FAILED: the text of that error */
    char *cause_traceback; /* PF_FAILED: where that error came from, several lines */
    uint64_t cause_token;  /* PF_FAILED: the token of the pf_failure */
    char *file;            /* PF_CORRUPT, PF_IO; also of an instance that is refused or fails in map */
    int64_t offset;        /* in `file`, in bytes, of the decompressed data; or -1 */
    int64_t record;        /* number of the record, from 0, or -1; PF_CORRUPT: the first one not delivered */
    int32_t os_errno;      /* PF_IO: the errno of the operating system, or 0 */
    uint32_t context;      /* bytes at the beginning of the message that say where the error is; or 0 */
    char *op;              /* in a run of a program: the operator, such as "block 1, op 3: read" */
    int32_t cuda_code;     /* PF_CUDA_ERROR: the CUresult of the driver; else 0 */
    int32_t exit_status;   /* PF_FAILED: of the worker that died, or its negated signal number; else 0 */
    char *cuda_name;       /* PF_CUDA_ERROR: the name of cuda_code, such as "CUDA_ERROR_OUT_OF_MEMORY" */
    int64_t worker;        /* PF_FAILED: process id of the worker process that died; else 0 */
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

/** Frees the strings and sets the struct back to PF_ERROR_INIT. NULL is allowed and does nothing. Works in a child of
 * fork() too. \since 0.1 */
PF_API void pf_error_release(pf_error *err);

/** How long a call may wait, and what ends the wait early. A NULL pf_wait waits for ever. \since 0.1 */
typedef struct pf_wait {
    uint32_t size;
    /* How often `poll` is called. 0 means 100 ms. UINT32_MAX: no periodic calls; instead one call before the first
     * sleep, which lets the function see a change that a pf_poll_now announced before this wait began. */
    uint32_t poll_interval_ms;
    int64_t timeout_ns; /* negative: for ever; 0: PF_TIMEOUT instead of a wait */
    pf_handle cancel;   /* the handle of a cancel token, or 0 */
    /* May be NULL. Called on the waiting thread every poll_interval_ms, also while the call computes instead of
     * sleeping, and after each signal that the thread receives. 0 goes on waiting. PF_POLL_SIGNALS_ONLY goes on without
     * periodic calls. Any other result ends the wait with PF_CANCELLED. The function may take locks and call pyfeed. */
    int (*poll)(void *context);
    void *poll_context;
} pf_wait;
/** \since 0.1 */
#define PF_WAIT_SIZE_V1 40
/** \since 0.1 */
#define PF_WAIT_INIT {sizeof(pf_wait), 0, -1, 0, NULL, NULL}

/** A result of a poll function. It stops the periodic calls in this wait, until the function returns something else.
 * The function is then called only after signals and pf_poll_now. A call that computes instead of sleeping still calls
 * it periodically. \since 0.1 */
enum { PF_POLL_SIGNALS_ONLY = -1000 };

/* ---- The library ------------------------------------------------------------------------- */

/** The PF_ABI_VERSION that the library was built with. Compare it with PF_ABI_VERSION before any other call. Never
 * fails. \since 0.1 */
PF_API uint32_t pf_abi_version(void);
/** The release of the library, such as "0.1.0". The string is static. \since 0.1 */
PF_API const char *pf_version(void);
/** The name of a dtype, such as "float32"; NULL for a number that is no dtype. The string is static. \since 0.1 */
PF_API const char *pf_dtype_name(pf_dtype dtype);
/** The size of one element in bytes; 0 for a number that is no dtype. \since 0.1 */
PF_API size_t pf_dtype_size(pf_dtype dtype);
/** The name of a status, such as "PF_CLOSED"; never NULL. The string is static. \since 0.1 */
PF_API const char *pf_status_name(pf_status status);

/** The memory and the objects that the library has in this process. `live_*` are 0 again once everything is closed and
 * released. \since 0.1 */
typedef struct pf_memory_info {
    uint32_t size;
    uint32_t reserved;
    uint64_t handles;           /* handles with at least one reference */
    uint64_t tuples_on_loan;    /* pf_tuples that are not released yet */
    uint64_t live_queue_bytes;  /* tuples pushed by copy or in place: queued, or lent to a consumer */
    uint64_t live_lent_bytes;   /* memory that producers have lent to the library */
    uint64_t live_batch_bytes;  /* batches, results of map, tensors of variables and programs */
    uint64_t live_view_bytes;   /* the pf_tensor arrays of tuples on loan */
    uint64_t idle_bytes;        /* kept in pools for the next tuple; freed with the queue or reader */
    uint64_t live_buffers;      /* the number of buffers that the live_* consist of */
    uint64_t live_file_bytes;   /* data that was read or decompressed from files, and tuples parsed from it */
    uint64_t live_mapped_bytes; /* files mapped for reading: address space and page cache */
    uint64_t pinned_bytes;      /* pinned host memory, in use and idle */
    uint64_t device_bytes;      /* memory of devices, in use and idle */
    uint64_t shared_bytes;      /* the rings that worker processes write to */
} pf_memory_info;
/** \since 0.1 */
#define PF_MEMORY_INFO_SIZE_V1 112
/** \since 0.1 */
#define PF_MEMORY_INFO_INIT {sizeof(pf_memory_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** Reports the memory and the objects of this process. Never blocks. \since 0.1 */
PF_API pf_status pf_memory_stats(pf_memory_info *out, pf_error *err);

/** Frees a string that a function of this header returned. NULL is allowed and does nothing. Works in a child of fork()
 * too. \since 0.1 */
PF_API void pf_string_release(char *string);

/** Adds a reference to a handle. \since 0.1 */
PF_API pf_status pf_retain(pf_handle handle, pf_error *err);
/** Releases a reference to a handle; with the last one the handle becomes stale. A queue, a reader or a scope itself
 * lives until no handle, variable or reader holds it. \since 0.1 */
PF_API pf_status pf_release(pf_handle handle, pf_error *err);

/** Makes a token that ends waits: see pf_wait.cancel. Any number of calls may use it. \since 0.1 */
PF_API pf_status pf_cancel_token_create(pf_handle *token, pf_error *err);
/** Cancels a token for good. All waits with this token end with PF_CANCELLED, those in progress and later ones. A call
 * that need not wait still succeeds. \since 0.1 */
PF_API pf_status pf_cancel_token_cancel(pf_handle token, pf_error *err);

/** Makes every thread that sleeps in a wait with a poll function call that function now. A thread that is just calling
 * it calls it once more. Takes a lock, so a signal handler MUST NOT call it. Never blocks. \since 0.1 */
PF_API pf_status pf_poll_now(pf_error *err);

/* ---- Tuples ------------------------------------------------------------------------------ */

/** Returns a tuple to the library and zeroes the struct, except its size. A reservation that was not committed is
 * dropped. NULL and a tuple without a loan do nothing. Never blocks, except in the release function of lent memory,
 * which it may call. In a child of fork() it only zeroes the struct. \since 0.1 */
PF_API void pf_tuple_release(pf_tuple *tuple);
/** Lends the same memory again as another tuple. The memory stays until both are released. The share of a reservation
 * lets the producer read the tuple after the commit. \since 0.1 */
PF_API pf_status pf_tuple_share(const pf_tuple *tuple, pf_tuple *out, pf_error *err);

/* A reader whose place is PF_CUDA delivers tuples in the memory of that device: pf_tensor.data is a device address. The
 * LoD offsets are in host memory. The copy to the device may still be in progress, so:
 *
 * - Call pf_tuple_use before a stream touches a tuple. The stream then waits for the copy; the host does not wait.
 * - pf_tuple_release may be called while streams still work on the tuple. The library overwrites the memory only after
 *   the work that was submitted to the streams of pf_tuple_use, up to the last release, has finished.
 * - pf_tuple_release_on says that the work submitted to a stream so far is all of its work on the tuple. Use it if
 *   other shares of the tuple live on, or for a stream without a pf_tuple_use.
 * - For a stream that is being captured into a graph, these functions return PF_STATE and leave the capture intact. Use
 *   the tuple before the capture, and copy it into an input of the graph.
 *
 * For a tuple in host memory pf_tuple_use and pf_tuple_synchronize do nothing, and pf_tuple_release_on only releases.
 *
 * Streams are CUstreams as integers. 0 and 1 are the legacy default stream, 2 is the default stream of the calling
 * thread. Any other number is a stream of the primary context of the same device. */

/** Makes the work that is submitted to `stream` from now on wait until the tuple is on its device, and delays the reuse
 * of its memory as described above. Never blocks. The tuple stays on loan. \since 0.1 */
PF_API pf_status pf_tuple_use(const pf_tuple *tuple, uint64_t stream, pf_error *err);
/** Releases the tuple and zeroes the struct, except its size. The work submitted to `stream` so far is its last work on
 * the tuple. After an error the tuple stays on loan. Never blocks. \since 0.1 */
PF_API pf_status pf_tuple_release_on(pf_tuple *tuple, uint64_t stream, pf_error *err);
/** Waits on the host until the tuple is on the device. Returns the error of the copy if that has failed. \since 0.1 */
PF_API pf_status pf_tuple_synchronize(const pf_tuple *tuple, const pf_wait *wait, pf_error *err);
/** Copies the data of slot `slot` to host memory and waits until that is done. `nbytes` MUST be the nbytes of the slot,
 * else PF_INVALID. Works for tuples in host memory too. \since 0.1 */
PF_API pf_status pf_tuple_download(const pf_tuple *tuple, uint32_t slot, void *to, uint64_t nbytes,
                                   pf_error *err);

/* ---- CUDA devices ------------------------------------------------------------------------------ */

/* The first function that needs the driver opens it (libcuda.so.1): one of this section, or one that is given a place
 * other than PF_CPU. */

/** Whether there is a CUDA device that can be fed. If there is none, `reason` gets the driver's reason; else NULL.
 * `reason` itself may be NULL. \since 0.1 */
PF_API pf_status pf_cuda_available(uint8_t *available, char **reason, pf_error *err);
/** The number of devices. PF_UNSUPPORTED, with the reason, if there is no driver. \since 0.1 */
PF_API pf_status pf_cuda_device_count(uint32_t *count, pf_error *err);

/** The name and the memory of a CUDA device. \since 0.1 */
typedef struct pf_cuda_device_info {
    uint32_t size;
    uint32_t device;
    uint64_t free_bytes; /* of its memory, as the driver reports it now */
    uint64_t total_bytes;
    char name[96]; /* such as "NVIDIA H200", zero-terminated */
} pf_cuda_device_info;
/** \since 0.1 */
#define PF_CUDA_DEVICE_INFO_SIZE_V1 120
/** \since 0.1 */
#define PF_CUDA_DEVICE_INFO_INIT {sizeof(pf_cuda_device_info), 0, 0, 0, {0}}

/** Reports the name and the memory of device number `device`. \since 0.1 */
PF_API pf_status pf_cuda_device_stats(uint32_t device, pf_cuda_device_info *out, pf_error *err);

/* ---- Scope and variables ----------------------------------------------------------------- */

/** Makes a scope, which maps names to variables. A look-up that finds nothing in it goes on in `parent` (0: none). The
 * scope keeps its parent alive. The last release of a scope erases its variables. \since 0.1 */
PF_API pf_status pf_scope_create(pf_handle parent, pf_handle *scope, pf_error *err);
/** The global scope, which all of the process shares. \since 0.1 */
PF_API pf_status pf_scope_global(pf_handle *scope, pf_error *err);
/** The variable of that name in this scope itself; an empty one is made if there is none. The handle of a variable does
 * not keep the scope or the content alive. \since 0.1 */
PF_API pf_status pf_scope_var(pf_handle scope, const char *name, pf_handle *var, pf_error *err);
/** The variable of that name in this scope or its nearest parent that has one. PF_NOT_FOUND if there is none.
 * \since 0.1 */
PF_API pf_status pf_scope_find(pf_handle scope, const char *name, pf_handle *var, pf_error *err);
/** Removes the variable from this scope itself and drops its content. PF_NOT_FOUND if there is none. Handles of the
 * variable stay valid, but nothing can be put into it any more (PF_NOT_FOUND). \since 0.1 */
PF_API pf_status pf_scope_erase(pf_handle scope, const char *name, pf_error *err);
/** The read operator: takes the next tuple of the reader in variable `reader`, and moves its slots into the variables
 * `outs` without a copy. A variable that no scope has is made in `scope`. PF_SLOTS if num_outs is not the number of
 * slots: the tuple then stays with the reader. PF_END leaves the variables as they are. Blocks. \since 0.1 */
PF_API pf_status pf_scope_read(pf_handle scope, const char *reader, const char *const *outs,
                               uint32_t num_outs, const pf_wait *wait, pf_error *err);

/** What a variable contains. \since 0.1 */
enum {
    PF_VAR_EMPTY = 0,
    PF_VAR_TENSOR = 1, /* a LoDTensor */
    PF_VAR_QUEUE = 2,  /* a PyArrayFeedQueueHolder, which holds a queue */
    PF_VAR_READER = 3, /* a ReaderHolder, which holds a reader */
};
/** What the variable contains: `kind` gets one of the PF_VAR_ constants. \since 0.1 */
PF_API pf_status pf_var_kind(pf_handle var, int32_t *kind, pf_error *err);
/** Lends the tensor in a variable, as a tuple of one slot. Later writes to the variable do not change the lent memory.
 * PF_STATE if the variable contains no tensor, or if a kernel is writing it in place. \since 0.1 */
PF_API pf_status pf_var_get_tensor(pf_handle var, pf_tuple *out, pf_error *err);
/** Copies a tensor into a variable and drops what it contained before. \since 0.1 */
PF_API pf_status pf_var_set_tensor(pf_handle var, const pf_tensor *tensor, pf_error *err);
/** The queue of a variable. PF_STATE before pf_queue_init_once. \since 0.1 */
PF_API pf_status pf_var_get_queue(pf_handle var, pf_handle *queue, pf_error *err);
/** The reader in a variable. PF_STATE if it contains none. \since 0.1 */
PF_API pf_status pf_var_get_reader(pf_handle var, pf_handle *reader, pf_error *err);

/* ---- The queue --------------------------------------------------------------------------- */

/** What one slot of a tuple must look like: its dtype, dimensions and LoD levels; and its name. \since 0.1 */
typedef struct pf_slot_spec {
    uint32_t size; /* also the step from one to the next in an array */
    pf_dtype dtype;
    int32_t rank;
    uint32_t lod_levels;
    const int64_t *dims; /* -1 matches any size; a first dimension of -1 is the batch dimension */
    const char *name;    /* UTF-8; NULL: none */
} pf_slot_spec;
/** \since 0.1 */
#define PF_SLOT_SPEC_SIZE_V1 24
/** \since 0.1 */
#define PF_SLOT_SPEC_INIT {sizeof(pf_slot_spec), PF_DTYPE_ANY, 0, 0, NULL, NULL}

/** How a queue is made. \since 0.1 */
typedef struct pf_queue_options {
    uint32_t size;
    uint32_t num_slots;
    const pf_slot_spec *slots;
    uint64_t capacity;    /* in tuples; at least 1 */
    uint64_t bytes_limit; /* for all tuples that are queued or reserved, in bytes; 0: no limit */
    /* Where the consumer wants the tuples. With PF_CUDA, producers push into pinned host memory, and a pop copies the
     * tuple to the device. */
    pf_place place;
    /* Not 0: the producer can start over. The queue then begins without a pass. The first read opens a pass, and each
     * reset of the reader opens the next one: see pf_queue_wait_pass. */
    uint8_t restartable;
    uint8_t reserved[7];
} pf_queue_options;
/** \since 0.1 */
#define PF_QUEUE_OPTIONS_SIZE_V1 48
/** \since 0.1 */
#define PF_QUEUE_OPTIONS_INIT {sizeof(pf_queue_options), 0, NULL, 0, 0, {PF_CPU, 0}, 0, {0, 0, 0, 0, 0, 0, 0}}

/** Makes the queue of a variable: `var` is empty, or contains a PyArrayFeedQueueHolder without a queue. The options are
 * copied. PF_STATE if the variable has a queue already or contains something else. The variable keeps the queue open.
 * \since 0.1 */
PF_API pf_status pf_queue_init_once(pf_handle var, const pf_queue_options *options, pf_handle *queue,
                                    pf_error *err);

/** Makes a producer's handle of a queue. It works wherever a queue's handle does, except in pf_queue_pop (PF_STATE). It
 * does not keep the queue open: once no other handle of the queue, no reader and no variable is left through which a
 * tuple could be popped, the queue is shut down as by pf_queue_shutdown. Pushes then return PF_CLOSED, blocked ones
 * too. Give one handle to each thread that pushes. `queue` may itself be a producer's handle. \since 0.1 */
PF_API pf_status pf_producer_create(pf_handle queue, pf_handle *producer, pf_error *err);

/* In the next three functions `pass` is the number of the pass that the tuple belongs to (from pf_queue_stats or
 * pf_queue_wait_pass), or PF_PASS_CURRENT. They return PF_CLOSED once that pass is over. They refuse the whole tuple if
 * one of its tensors does not fit its slot: PF_SLOTS, PF_DTYPE, PF_SHAPE or PF_TOO_LARGE. */

/** Pushes a copy of `num_tensors` tensors, strided or not, as one tuple. The caller keeps its memory. Blocks while the
 * queue is full. \since 0.1 */
PF_API pf_status pf_queue_push(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                               const pf_wait *wait, pf_error *err);
/** Pushes a tuple without copying it. The tensors MUST be contiguous. Their data and LoD offsets MUST stay unchanged
 * until the library calls `release(context)`. It does so exactly once, on any thread, and only if this function
 * returns PF_OK. `release` MUST NOT block or call pyfeed. Blocks while the queue is full. \since 0.1 */
PF_API pf_status pf_queue_push_lent(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors,
                                    uint64_t pass, void (*release)(void *context), void *context,
                                    const pf_wait *wait, pf_error *err);
/** Reserves room for a tuple in memory of the queue, for the caller to write in place. Only dtype, rank, dims and lod
 * of each tensor are read. Blocks while the queue is full. The caller then calls pf_queue_commit to queue the tuple,
 * or pf_tuple_release to drop it. \since 0.1 */
PF_API pf_status pf_queue_reserve(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors,
                                  uint64_t pass, const pf_wait *wait, pf_tuple *out, pf_error *err);
/** Queues a reservation and zeroes the struct, except its size. PF_CLOSED if the pass of the reservation is over: the
 * tuple is dropped and the struct zeroed too. After any other error the struct is unchanged and the caller releases
 * it: PF_STATE if it is no reservation, PF_CORRUPT if a mapped file lost bytes while the tuple was written. Never
 * blocks. \since 0.1 */
PF_API pf_status pf_queue_commit(pf_tuple *reservation, pf_error *err);

/** Takes the oldest tuple. Blocks while the queue is empty and its pass is open. Once the queue is empty and its pass
 * is over: PF_END if the pass was closed, PF_FAILED if it has failed. The first pop of a restartable queue opens a
 * pass. A tuple that `out` still holds is released first, which costs less than a separate pf_tuple_release.
 * \since 0.1 */
PF_API pf_status pf_queue_pop(pf_handle queue, const pf_wait *wait, pf_tuple *out, pf_error *err);

/** Ends a pass: pushes return PF_CLOSED from now on. Tuples that are queued are still delivered, then pops return
 * PF_END. `pass` is as for pushes. Closing a pass that is over, or closing twice, does nothing and returns PF_OK.
 * \since 0.1 */
PF_API pf_status pf_queue_close(pf_handle queue, uint64_t pass, pf_error *err);

/** The error of a producer, a map function or a kernel, for the consumer or for the caller of pf_executor_run. It is
 * copied. \since 0.1 */
typedef struct pf_failure {
    uint32_t size;
    uint32_t reserved;
    const char *type; /* may be NULL; so may message and traceback */
    const char *message;
    const char *traceback;
    uint64_t token; /* any number; the consumer finds it in err->cause_token */
} pf_failure;
/** \since 0.1 */
#define PF_FAILURE_SIZE_V1 40
/** \since 0.1 */
#define PF_FAILURE_INIT {sizeof(pf_failure), 0, NULL, NULL, NULL, 0}

/** Ends a pass with an error: like pf_queue_close, but every pop after the last tuple returns PF_FAILED. The first
 * failure of a pass counts. PF_CLOSED if the pass was closed or has failed before. \since 0.1 */
PF_API pf_status pf_queue_fail(pf_handle queue, uint64_t pass, const pf_failure *failure, pf_error *err);

/** Begins the next pass: closes the current one, drops the tuples that are still queued, and opens the next. `pass`
 * gets the number of the new pass, or PF_PASS_NONE after an error; `dropped` gets the number of dropped tuples. Both
 * may be NULL. A push that began before returns PF_CLOSED and a pop that began before returns PF_END; neither sees the
 * new pass. PF_CLOSED once the queue is shut down. \since 0.1 */
PF_API pf_status pf_queue_reopen(pf_handle queue, uint64_t *pass, uint64_t *dropped, pf_error *err);

/** For the producer of a restartable queue: waits until a pass with a number above `after` (PF_PASS_NONE: any pass) is
 * open. `pass` gets its number, or PF_PASS_NONE after an error. PF_CLOSED once the queue is shut down. \since 0.1 */
PF_API pf_status pf_queue_wait_pass(pf_handle queue, uint64_t after, const pf_wait *wait, uint64_t *pass,
                                    pf_error *err);

/** The number of tuples at the beginning of a pass that the consumer had before the interruption, if
 * pf_reader_set_state continues in the middle of the pass; else 0. The reader drops them when they are pushed again. A
 * producer that can begin behind them calls pf_queue_set_start. PF_CLOSED if the pass is over. \since 0.1 */
PF_API pf_status pf_queue_get_start(pf_handle queue, uint64_t pass, uint64_t *start, pf_error *err);
/** For a producer, before its first push of a pass: the first `start` tuples of the pass will not be pushed. `start` is
 * at most the number that pf_queue_get_start gives; else PF_INVALID. \since 0.1 */
PF_API pf_status pf_queue_set_start(pf_handle queue, uint64_t pass, uint64_t start, pf_error *err);

/** Closes the queue for good and drops the tuples that are queued. Every blocked call wakes. From then on pops return
 * PF_END, pushes and pf_queue_reopen PF_CLOSED. \since 0.1 */
PF_API pf_status pf_queue_shutdown(pf_handle queue, pf_error *err);

/** The state of a queue at one moment. \since 0.1 */
typedef struct pf_queue_info {
    uint32_t size;
    uint32_t num_slots;
    uint64_t num_tuples; /* queued tuples */
    uint64_t capacity;
    uint64_t reserved_tuples; /* tuples that are being written */
    uint64_t bytes;           /* of queued and reserved tuples */
    uint64_t bytes_limit;
    uint64_t pass;  /* the current pass, or PF_PASS_NONE */
    uint8_t closed; /* the pass takes no more pushes */
    uint8_t failed;
    uint8_t shut_down;
    uint8_t restartable;
    uint32_t waiting_producers;
    uint32_t waiting_consumers;
    uint32_t reserved;
    uint64_t pushed; /* tuples since the queue was made; so are popped and dropped */
    uint64_t popped;
    uint64_t dropped;
    uint64_t pushed_bytes;
    uint64_t producers_waited_ns; /* summed over all threads, waits in progress included */
    uint64_t consumers_waited_ns;
} pf_queue_info;
/** \since 0.1 */
#define PF_QUEUE_INFO_SIZE_V1 120
/** \since 0.1 */
#define PF_QUEUE_INFO_INIT \
    {sizeof(pf_queue_info), 0, 0, 0, 0, 0, 0, PF_PASS_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** The number of tuples and bytes in the queue, and how many went through it. Never blocks. \since 0.1 */
PF_API pf_status pf_queue_stats(pf_handle queue, pf_queue_info *out, pf_error *err);

/** What slot number `slot` must look like. The dtype is the one that the first tuple has decided. The call writes the
 * dimensions to `dims`, an array of PF_MAX_RANK numbers of the caller, and points out->dims to it. out->name stays
 * valid until the process ends. \since 0.1 */
PF_API pf_status pf_queue_slot(pf_handle queue, uint32_t slot, pf_slot_spec *out, int64_t *dims,
                               pf_error *err);

/* ---- Tuples from other processes --------------------------------------------------------------- */

/** The options of a queue that worker processes fill, through a ring of cells in shared memory. Nothing is copied
 * between the processes. Workers need neither this library nor Go: see pyfeed_worker.h and the Python package
 * pyfeed_worker. \since 0.1 */
typedef struct pf_shared_queue_options {
    uint32_t size;
    uint32_t num_slots; /* slots of a tuple */
    const pf_slot_spec *slots;
    uint64_t ring_cells; /* the most tuples at one time: being written, queued, or lent to the consumer */
    uint64_t cell_bytes; /* the largest size of a tuple, with its LoD offsets and alignment */
    pf_place place;
    uint32_t num_tasks;  /* for pf_map_processes_create: tuples that the workers get; 0: none */
    uint32_t task_slots; /* slots of such a tuple */
    uint64_t task_bytes; /* its largest size, with its LoD offsets and alignment */
} pf_shared_queue_options;
/** \since 0.1 */
#define PF_SHARED_QUEUE_OPTIONS_SIZE_V1 40
/** \since 0.1 */
#define PF_SHARED_QUEUE_OPTIONS_INIT {sizeof(pf_shared_queue_options), 0, NULL, 0, 0, {PF_CPU, 0}, 0, 0, 0}

/** Makes the queue of a variable, like pf_queue_init_once, with a ring that fills it. `fd` gets the file descriptor of
 * the ring (-1 after an error). The library keeps owning it. Workers map the ring: they inherit the descriptor,
 * receive it over a socket, or open /proc/PID/fd/N. Pushes from this process are PF_STATE. If a worker process dies
 * before it has ended its part, the queue fails within 50 ms of its exit status being known (err->worker,
 * exit_status). The library waits up to 250 ms for the exit status of a worker that is not a child of this process.
 * \since 0.1 */
PF_API pf_status pf_shared_queue_init_once(pf_handle var, const pf_shared_queue_options *options, int *fd,
                                           pf_handle *queue, pf_error *err);
/** Makes the current pass end, as by pf_queue_close, when `num_workers` workers have ended their part of it. The number
 * holds for the current pass only; 0: no number is expected. \since 0.1 */
PF_API pf_status pf_shared_queue_expect(pf_handle queue, uint32_t num_workers, pf_error *err);
/** Reports the exit status of a worker that is not a child of this process: the status, the negated number of the
 * signal that killed the worker, or INT32_MIN if the status is unknown. The error of a dead worker then contains it. A
 * worker that has not attached in this pass fails the pass, unless its status is 0 and no number of workers is
 * expected. \since 0.1 */
PF_API pf_status pf_shared_queue_report_exit(pf_handle queue, int64_t pid, int32_t exit_status,
                                             pf_error *err);
/** Sets `out` to 1 if a worker process may still put a tuple into the queue without a pop, else to 0. A program that is
 * about to end calls this before it gives up a wait for the queue. A worker may if the ring has room, and the worker is
 * attached, or its process id is in `coming` and it has not attached in this pass. `coming` has the ids of num_coming
 * live processes. For a queue of pf_map_processes_create, `out` is 1 if a result is still to come. Never blocks.
 * \since 0.1 */
PF_API pf_status pf_shared_queue_at_work(pf_handle queue, const int64_t *coming, uint32_t num_coming,
                                         uint8_t *out, pf_error *err);

/* ---- Readers ----------------------------------------------------------------------------- */

/** Runs the operator `op`: makes a reader from the readers in the variables `ins` (num_ins of them), and puts a
 * ReaderHolder into the variable `out`, which is made if it does not exist. The new reader keeps its input readers
 * alive. `attributes` is a JSON object, or NULL for none. An attribute that the operator does not have is PF_INVALID;
 * the message lists the attributes of the operator.
 *
 * Read only the topmost reader of a chain: a tuple that is taken from a reader below is missing above. No data is read
 * yet, with one exception: open_files and create_file_reader without "slots" read the beginning of the first file.
 *
 * Blocks where the operator has to wait: for the writer of a FIFO, if "slots" is not given, or for a search through
 * directories (a name with **).
 *
 * op                           attributes (and what they are if left out)
 * create_py_array_reader       feeder_name: the variable of the queue; no_order (""): why the tuples cannot be
 *                              pushed in the same order again: states are refused with this reason. The tuples
 *                              that are pushed into a queue
 * open_files                   filenames: paths, globs or directories; a format's tag and a colon come before a
 *                              name whose suffix does not tell the format; format (""): a tag for all; slots
 *                              (what the files say): see below; num_threads (2); ordered (true): one order
 *                              whatever num_threads; interleave (8): files read in turn when ordered;
 *                              shuffle_files (as they are listed): a seed, by which the files come in another
 *                              order in each pass; shuffle_records (records are not permuted): a seed, by which
 *                              all records of all files come in another order in each pass; it implies index;
 *                              index (false): each file gets an index, so that its records can be read by their
 *                              numbers; index_dir (beside the files): where the indexes are; it implies index;
 *                              virtual_shards (records are not divided): how many equal parts the records of
 *                              all files are divided into, the same for all processes of a job; it implies
 *                              index; rank (0): the process among world, with virtual_shards: it reads the
 *                              parts rank, rank+world, …, one record of each in turn; world (1): the number
 *                              of processes, which divides virtual_shards; even ("drop"): drop, repeat or pad:
 *                              how all parts get the same number of tuples if virtual_shards does not divide
 *                              the number of records; on_corrupt ("raise"): or "skip"; verify_first (false):
 *                              each file is read twice, the first time to verify all of it; storage
 *                              ({"compression": "auto", "io": "auto"}); options (none): the format's, see
 *                              docs/formats.md. Reads many files at a time, by threads of its own
 * create_file_reader           as open_files. Reads one file, in the calling thread. num_threads, ordered,
 *                              interleave and shuffle_files have no effect here; index, index_dir,
 *                              shuffle_records and virtual_shards are refused
 * create_batch_reader          batch_size; drop_last (false); ragged (false). Joins that many tuples to one:
 *                              slots whose first dimension is -1 are concatenated along it and their LoD
 *                              merged; others are stacked under a new first dimension. The last batch of a pass
 *                              may be smaller, unless drop_last. A tuple whose slots add different numbers of
 *                              rows to the batch is PF_SHAPE, unless ragged. A slot with LoD adds as many rows
 *                              as it has outermost sequences; a stacked slot adds one
 * create_shuffle_reader        buffer_size: tuples of a block; seed (0). Shuffles block by block; the next
 *                              block is read while the current one is served. The seed determines the order,
 *                              which differs from pass to pass
 * create_multi_pass_reader     pass_num (0): 0 goes on for ever. Resets the reader below at the end of each
 *                              pass
 * create_double_buffer_reader  place ({"kind": 0, "device": 0}): where tuples are made ready; or a list of
 *                              places, which get them in turn; depth (2): tuples made ready ahead at each.
 *                              Reads ahead, in a thread of its own
 * create_map_reader            slots (those of the reader below); capacity (16): tuples taken and not yet
 *                              delivered; ordered (true); seed (none): the seed of the random numbers in the
 *                              workers' functions; pf_reader_set_state compares it. What workers make of the
 *                              tuples: see pf_map_workers_next
 * create_zip_reader            strict (false): readers that do not end together are an error. Joins the slots
 *                              of its readers. Takes 2 inputs or more
 * create_shard_reader          rank (0); world; even (""): drop, repeat or pad: all parts get the same number
 *                              of tuples; empty: they may differ by one. Every world-th tuple, from the rank-th
 *                              on
 * create_split_batches_reader  rank (0); world; even ("drop"): drop, repeat or pad: what happens to a batch of
 *                              a size that world does not divide. The rank-th of world equal parts of each
 *                              batch. The input is a batch reader whose batch_size is divisible by world. The
 *                              state of any rank can be loaded by all ranks, with any world
 * create_random_data_generator slots; low (0); high (1); seed (0); count (-1): instances a pass; -1: without
 *                              end. Random numbers from low to below high; of integers, high is included
 * create_range_reader          count; shuffle (the numbers are in order): a seed, by which they come in another
 *                              order in each pass; virtual_shards (world): how many equal parts the numbers are
 *                              divided into, the same for all processes of a job; rank (0): the process among
 *                              world: it reads the parts rank, rank+world, …, one number of each in turn;
 *                              world (the numbers are not divided): the number of processes, which divides
 *                              virtual_shards; even ("drop"): drop, repeat or pad: how all parts get the same
 *                              number of tuples if virtual_shards does not divide count; pad adds the number
 *                              -1. The numbers from 0 to below count, as int64 without dimensions
 *
 * slots is a list of {"name": "", "dtype": "float32", "dims": [-1, 3], "lod_levels": 0}. \since 0.1 */
PF_API pf_status pf_reader_create(pf_handle scope, const char *op, const char *out, const char *const *ins,
                                  uint32_t num_ins, const char *attributes, const pf_wait *wait,
                                  pf_error *err);

/** The next tuple; PF_END at the end of the pass, until the reader is reset. Any number of threads may read: each tuple
 * goes to one of them. Blocks. A tuple that `out` still holds is released first, as by pf_queue_pop. \since 0.1 */
PF_API pf_status pf_reader_next(pf_handle reader, const pf_wait *wait, pf_tuple *out, pf_error *err);
/** Whether there is a next tuple in this pass. Reads one tuple ahead, so it may block. If `out` is 1, the next read
 * gets this tuple, whichever thread reads. \since 0.1 */
PF_API pf_status pf_reader_has_next(pf_handle reader, const pf_wait *wait, uint8_t *out, pf_error *err);
/** Starts over with the next pass, at any time. A call of another thread that is blocked in this reader returns
 * PF_CANCELLED. PF_STATE if the data cannot start over, such as that of a queue that is not restartable. The message
 * then says what to do instead. \since 0.1 */
PF_API pf_status pf_reader_reset(pf_handle reader, pf_error *err);
/** Begins a loop over the reader, like `for` in Python. The first loop after the reader was made or reset goes on where
 * the reader is; so does one after an error of the reader. Any other loop first resets the reader, and does not begin
 * if the reset fails. If `current` is not 0, the loop never resets: it goes through the rest of the current pass.
 * A loop over a reader below counts as a loop over this reader. `loop` is the argument for pf_reader_next_in_loop; 0
 * after an error.
 * \since 0.1 */
PF_API pf_status pf_reader_begin_loop(pf_handle reader, uint8_t current, uint64_t *loop, pf_error *err);
/** Like pf_reader_next, for a loop: it never takes a tuple of another pass. PF_CANCELLED if the reader was reset since
 * the loop began, also if the reset came during the call. \since 0.1 */
PF_API pf_status pf_reader_next_in_loop(pf_handle reader, uint64_t loop, const pf_wait *wait, pf_tuple *out,
                                        pf_error *err);
/** The position of the reader: behind the last tuple that pf_reader_next has delivered, whatever has_next, prefetchers
 * and shuffles have read ahead. *state is a JSON object of some hundred bytes, to be released by pf_string_release.
 * pf_reader_set_state goes on there in another process. PF_STATE if the position cannot be known exactly: an
 * unordered reader or a FIFO is in the chain, another thread waits in a read of this reader, or tuples were also read
 * from a reader below. docs/resume.md says what each reader promises. Does not wait for data. \since 0.1 */
PF_API pf_status pf_reader_get_state(pf_handle reader, char **state, pf_error *err);
/** Goes to a position that pf_reader_get_state has returned, in a chain made by the same operators with the same
 * attributes: the next tuple is the one that was next then. Like a reset, it can be called at any time, and calls that
 * are blocked in the reader return PF_CANCELLED. The number of threads, depths and capacities may differ. PF_STATE,
 * with a message that names the difference, if the chain, its seeds or sizes, the files or their order, or a file that
 * was open are not what they were; PF_INVALID if `state` is no state, is damaged, or is from a later release. `strict`
 * 0 accepts differences with which the reader can go on at the same number of tuples: another seed, other files.
 * \since 0.1 */
PF_API pf_status pf_reader_set_state(pf_handle reader, const char *state, uint8_t strict, pf_error *err);
/** The record of that number, from 0, of an open_files reader with an index. Records are numbered through all files, in
 * the order of the list; shuffle_files and shuffle_records do not change the numbers. What pf_reader_next returns next
 * does not change. PF_INVALID if there are not so many records; PF_UNSUPPORTED for a reader without an index. Any thread
 * may call it. It reads from the disk, but waits for nothing else. A tuple that `out` still holds is released first, as
 * by pf_queue_pop. \since 0.1 */
PF_API pf_status pf_reader_at(pf_handle reader, int64_t index, pf_tuple *out, pf_error *err);
/** Statistics of the reader and those below it since they were made, as a JSON object: reader (its kind), tuples,
 * bytes, passes, length (tuples of a pass; absent if not known, -1 if a pass has no end), waited_seconds, slots,
 * details, and below, a list of the same objects. May wait for another thread that is reading from the reader, but not
 * for data. \since 0.1 */
PF_API pf_status pf_reader_stats(pf_handle reader, char **json, pf_error *err);

/* ---- Workers of a map reader ------------------------------------------------------------- */

/** Makes a handle through which threads compute the results of a map reader. It does not keep the reader alive: workers
 * end when no other handle, reader or variable holds the reader. PF_STATE if the reader is no map reader.
 * \since 0.1 */
PF_API pf_status pf_map_workers_create(pf_handle reader, pf_handle *workers, pf_error *err);
/** Takes the next tuple to compute a result for. `ticket` names that result. Any number of threads may call this: each
 * takes a tuple, completes its ticket, and repeats. Blocks until a consumer reads from the reader, there is a tuple,
 * and fewer than `capacity` tuples are taken and not delivered. PF_CLOSED once the reader is gone. The end of the data
 * and errors of readers below go to the consumer; workers wait for the next pass meanwhile. A tuple that `out` still
 * holds is released first. \since 0.1 */
PF_API pf_status pf_map_workers_next(pf_handle workers, const pf_wait *wait, pf_tuple *out, uint64_t *ticket,
                                     pf_error *err);
/** Gives the result for a ticket, as a copy of tensors that may be strided. If the result does not fit the slots of the
 * reader, it is refused and the ticket stays open. A ticket from before a reset is ignored: PF_OK. Never blocks.
 * \since 0.1 */
PF_API pf_status pf_map_workers_complete(pf_handle workers, uint64_t ticket, const pf_tensor *tensors,
                                         uint32_t num_tensors, pf_error *err);
/** Makes room for a result in memory of the library, for the caller to write in place. Only dtype, rank, dims and lod of
 * each tensor are read. If they do not fit the slots of the reader, they are refused. The caller then calls
 * pf_map_workers_commit, or pf_tuple_release to drop the tuple. Never blocks. \since 0.1 */
PF_API pf_status pf_map_workers_reserve(pf_handle workers, const pf_tensor *tensors, uint32_t num_tensors,
                                        pf_tuple *out, pf_error *err);
/** Gives a tuple of pf_map_workers_reserve as the result for a ticket, and zeroes the struct, except its size. A ticket
 * from before a reset is ignored: PF_OK. After an error the struct is unchanged, the ticket is open, and the caller
 * releases the tuple: PF_STATE if it is no reservation for a result, PF_CORRUPT if a mapped file lost bytes while the
 * tuple was written. Never blocks. \since 0.1 */
PF_API pf_status pf_map_workers_commit(pf_handle workers, uint64_t ticket, pf_tuple *reservation,
                                       pf_error *err);
/** Reports that a ticket has no result: the consumer gets PF_FAILED in place of it. The message begins with the number
 * of the tuple in the pass. It also names the file and the record that the tuple comes from, or the first record of a
 * batch; err->file and record have them too. Never blocks. \since 0.1 */
PF_API pf_status pf_map_workers_fail(pf_handle workers, uint64_t ticket, const pf_failure *failure,
                                     pf_error *err);
/** Leaves out the tuple of a ticket because of a failure: the consumer gets the next result instead. Member details of
 * pf_reader_stats has the number of tuples that were left out, `skipped`, and the first 1000 of them, `skips`. Never
 * blocks. \since 0.1 */
PF_API pf_status pf_map_workers_skip(pf_handle workers, uint64_t ticket, const pf_failure *failure,
                                     pf_error *err);
/** Gives the position of the tuple of an open ticket: `index` is the number of the tuple in its pass, and `pass` is the
 * number of the pass, both from 0. If there is a multi_pass reader below, `pass` counts the passes of the reader that
 * it resets. pf_reader_set_state restores both numbers, so a value that is derived from them, such as the seed of an
 * augmentation, is the same as without the interruption. PF_STATE if the ticket has its result, or is from before a
 * reset. Never blocks. \since 0.1 */
PF_API pf_status pf_map_workers_position(pf_handle workers, uint64_t ticket, uint64_t *pass, uint64_t *index,
                                         pf_error *err);

/** Computes the result of one tuple and gives it by pf_map_workers_complete. `in` is borrowed for the call. A result
 * other than 0, or no completion of the ticket, is PF_FAILED for the consumer. Threads of the library call it, many at
 * the same time. \since 0.1 */
typedef int (*pf_map_function)(void *context, pf_handle workers, uint64_t ticket, const pf_tuple *in);
/** Starts `num_threads` threads of the library, 1 to 1024, which call `function` for one tuple after the other until
 * the reader is gone. When the last of these threads has ended, `finished(context)` is called once, from any thread.
 * `function` and `context` MUST stay valid until then. `finished` may be NULL: they MUST then stay valid for ever.
 * \since 0.1 */
PF_API pf_status pf_map_workers_start(pf_handle workers, pf_map_function function, void *context,
                                      uint32_t num_threads, void (*finished)(void *context), pf_error *err);

/** Lets worker processes compute the results. `queue` is a queue of pf_shared_queue_init_once with num_tasks: its slots
 * are those of the results, and behind them a slot of int64 without dimensions, in which a worker returns the ticket of
 * its task. Threads of the library post the tuples of the reader as tasks, and give it the results that the workers
 * push. They end with the reader, and then shut the queue down. The caller starts the worker processes. \since 0.1 */
PF_API pf_status pf_map_processes_create(pf_handle workers, pf_handle queue, pf_handle *processes,
                                         pf_error *err);

/** The values of pf_map_event.kind. PF_MAP_WORKERS_NEEDED: the pass of the queue has ended, for example because a worker
 * died, and the tuple of the ticket waits for workers: replace those that have ended, and reopen the queue. The next call
 * of pf_map_processes_next says that this is done. PF_MAP_TASK_FAILED: a worker has no result for a ticket: fail it by
 * pf_map_workers_fail, or skip it. \since 0.1 */
enum { PF_MAP_WORKERS_NEEDED = 1, PF_MAP_TASK_FAILED = 2 };
/** What pf_map_processes_next returns. The texts and `detail` belong to the caller until pf_map_event_release. NULL: there
 * is none. \since 0.1 */
typedef struct pf_map_event {
    uint32_t size;
    uint32_t kind;
    uint64_t ticket;
    char *type, *message, *traceback; /* PF_MAP_TASK_FAILED, and so is `detail` */
    void *detail;                     /* bytes of the worker, such as a pickled exception */
    uint64_t detail_bytes;
} pf_map_event;
/** \since 0.1 */
#define PF_MAP_EVENT_SIZE_V1 56
/** \since 0.1 */
#define PF_MAP_EVENT_INIT {sizeof(pf_map_event), 0, 0, NULL, NULL, NULL, NULL, 0}
/** Waits for the next event. One thread at a time. PF_CLOSED when the reader is gone. \since 0.1 */
PF_API pf_status pf_map_processes_next(pf_handle processes, const pf_wait *wait, pf_map_event *out,
                                       pf_error *err);
/** Frees the texts and the bytes of an event. \since 0.1 */
PF_API void pf_map_event_release(pf_map_event *event);

/* ---- Formats and writers ----------------------------------------------------------------- */

/** All formats of files, as a JSON list of {"tag", "suffixes", "writes"}. \since 0.1 */
PF_API pf_status pf_format_list(char **json, pf_error *err);

/** Resolves names of files as open_files does: paths, globs or directories, with the tag `format` for all of them, or
 * NULL. The result is a JSON list of paths, each with the tag of its format and a colon before it. Blocks while it
 * searches directories, for a name with ** or with a pattern in a directory's name.
 *
 * A path that is a parameter of this header, or a member of pf_error, is a string of bytes, as the operating system
 * has it. In JSON, a byte that is not part of UTF-8 is written as \u0000 and two hexadecimal digits: "a\u0000ff.npy"
 * is the file a\xff.npy. This holds for the result of this function, the attribute filenames, saved programs and
 * pf_reader_stats. No file name contains a NUL. \since 0.1 */
PF_API pf_status pf_file_list(const char *const *names, uint32_t num_names, const char *format,
                              const pf_wait *wait, char **json, pf_error *err);

/** Adds a format whose files are read by threads of the caller: see pf_format_wait. `suffixes` are the `num_suffixes`
 * suffixes of its files, each with its dot. `slots` is a JSON list, as open_files takes it: the slots of an instance,
 * for calls of open_files without slots. It may be NULL. PF_STATE if the tag or a suffix is taken. A format stays
 * registered for good. Once its handle is released, its files fail to open. \since 0.1 */
PF_API pf_status pf_format_register(const char *tag, const char *const *suffixes, uint32_t num_suffixes,
                                    const char *slots, pf_handle *format, pf_error *err);
/** Waits until a reader opens a file of the format, and gives its path and its options, a JSON object. The reader then
 * reads `queue`: push the instances of the file into it, in order, then call pf_queue_close, or pf_queue_fail. A push
 * that returns PF_CLOSED means that the reader is gone. Release `queue`, `path` and `options`. Each open file MUST
 * have a thread of its own, and one more thread MUST wait here. Otherwise files would wait for each other, because
 * readers such as open_files read several files in turn. PF_CLOSED once the handle of the format is released.
 * \since 0.1 */
PF_API pf_status pf_format_wait(pf_handle format, const pf_wait *wait, pf_handle *queue, char **path,
                                char **options, pf_error *err);

/** Begins to write a file. The format is `format`, or, if that is NULL, the one that the name stands for. `attributes`
 * is a JSON object or NULL. Its member slots is as for pf_reader_create; without it, the first tuple decides. Its
 * slots may have names. Its member options has the options of the format. Until pf_writer_close, no file of that name
 * appears, and an old one stays as it is. A writer that is released without pf_writer_close leaves no file.
 * \since 0.1 */
PF_API pf_status pf_writer_create(const char *filename, const char *format, const char *attributes,
                                  pf_handle *writer, pf_error *err);
/** Gives the slots names, before the first tuple. A format that stores no names ignores them. PF_STATE after a tuple was
 * written, and if the attributes of the writer have slots or names. \since 0.1 */
PF_API pf_status pf_writer_set_names(pf_handle writer, const char *const *names, uint32_t num_names,
                                     pf_error *err);
/** Adds a tuple. After an error nothing more can be written. Waits for the disk, and for other threads that use the
 * writer. \since 0.1 */
PF_API pf_status pf_writer_write(pf_handle writer, const pf_tensor *tensors, uint32_t num_tensors,
                                 pf_error *err);
/** Completes the file and syncs it to the disk, for which it waits. After that only pf_release is allowed.
 * \since 0.1 */
PF_API pf_status pf_writer_close(pf_handle writer, pf_error *err);

/* ---- Staging ------------------------------------------------------------------------------ */

/** The staging buffer of a place: a queue of tuples at that place, of which the process has one for each place. The
 * first call makes it, for good. `capacity` is in tuples and at least 1; `bytes_limit` is in bytes, 0: no limit. Later
 * calls with the same limits return the same buffer; with other limits they return PF_STATE. \since 0.1 */
PF_API pf_status pf_staging_create(pf_place place, uint64_t capacity, uint64_t bytes_limit, pf_handle *buffer,
                                   pf_error *err);
/** Copies a tuple to the place of the buffer, as its newest tuple. Tuples may have different slots. Blocks while the
 * buffer is full. PF_TOO_LARGE if the tuple alone is larger than bytes_limit. At a device the copy may still be in
 * progress afterwards. \since 0.1 */
PF_API pf_status pf_staging_put(pf_handle buffer, const pf_tensor *tensors, uint32_t num_tensors,
                                const pf_wait *wait, pf_error *err);
/** Takes the oldest tuple out. Blocks while there is none. PF_CLOSED after pf_staging_shutdown. A tuple that `out`
 * still holds is released first. \since 0.1 */
PF_API pf_status pf_staging_get(pf_handle buffer, const pf_wait *wait, pf_tuple *out, pf_error *err);
/** Drops all tuples in the buffer and returns their memory to the system. The buffer stays in use, and blocked puts get
 * the room. `dropped` gets the number of tuples, and may be NULL. \since 0.1 */
PF_API pf_status pf_staging_clear(pf_handle buffer, uint64_t *dropped, pf_error *err);

/** The state of a staging buffer at one moment. \since 0.1 */
typedef struct pf_staging_info {
    uint32_t size;
    pf_place place;
    uint32_t reserved;
    uint64_t num_tuples; /* tuples that can be taken out */
    uint64_t capacity;
    uint64_t reserved_tuples; /* tuples that are being written */
    uint64_t bytes;           /* of all of these tuples */
    uint64_t bytes_limit;
    uint32_t waiting_producers, waiting_consumers; /* threads */
    uint64_t put, got, dropped, put_bytes;         /* since the buffer was made */
    uint64_t producers_waited_ns, consumers_waited_ns;
} pf_staging_info;
/** \since 0.1 */
#define PF_STAGING_INFO_SIZE_V1 112
/** \since 0.1 */
#define PF_STAGING_INFO_INIT {sizeof(pf_staging_info), {PF_CPU, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** The number of tuples and bytes in the buffer, and how many went through it. Never blocks. \since 0.1 */
PF_API pf_status pf_staging_stats(pf_handle buffer, pf_staging_info *out, pf_error *err);
/** Shuts all staging buffers down for good and drops their tuples. Every wait in them, now and later, ends with
 * PF_CLOSED. It is for the end of a process whose threads would otherwise wait for each other for ever. \since 0.1 */
PF_API pf_status pf_staging_shutdown(pf_error *err);

/* ---- Programs ------------------------------------------------------------------------------ */

/** Makes an empty program: blocks of operators over variables, for an executor to run. A run executes the first block;
 * each other block is the body of one operator of its parent. docs/program.md describes the operators and attributes.
 * Several threads may build and run one program. A run uses the program as it was when the run began. \since 0.1 */
PF_API pf_status pf_program_create(pf_handle *program, pf_error *err);
/** Makes a copy of a program. Later changes to one do not affect the other. \since 0.1 */
PF_API pf_status pf_program_clone(pf_handle program, pf_handle *clone, pf_error *err);

/** Adds a block inside block `parent`, to be the body of an operator that is later added to `parent`. `block` gets its
 * number. \since 0.1 */
PF_API pf_status pf_program_add_block(pf_handle program, uint32_t parent, uint32_t *block, pf_error *err);
/** Adds a variable to a block. `variable` is a JSON object with the members name; kind: "tensor" (the default),
 * "reader" or "stage"; persistable (false): the variable is in the scope and outlives the run. A tensor may have
 * dtype, dims (-1: any size) and lod_levels (0); a reader or stage may have slots, as in pf_reader_create. Absent
 * members are unknown. PF_STATE if the block has a variable of that name. \since 0.1 */
PF_API pf_status pf_program_add_variable(pf_handle program, uint32_t block, const char *variable,
                                         pf_error *err);
/** Adds an operator at the end of a block. `op` is a JSON object with the members type; inputs and outputs (lists of
 * names of variables in this block or those around it); attributes (an object); and where (the source line that built
 * it, for messages). The operator is checked as far as its variables are known, and the program notes what the
 * operator determines about its outputs. If the operator is refused, the program is unchanged. \since 0.1 */
PF_API pf_status pf_program_add_op(pf_handle program, uint32_t block, const char *op, pf_error *err);
/** What is known about the variable of that name, in the block or those around it, as JSON. PF_NOT_FOUND if there is
 * none. \since 0.1 */
PF_API pf_status pf_program_get_variable(pf_handle program, uint32_t block, const char *name, char **variable,
                                         pf_error *err);

/** Returns the program as text or bytes. `form` is "protobuf", the saved form (docs/program.md); "json", for people to
 * read and edit; "mermaid" or "graphviz", a drawing as text. `data` gets `size` bytes followed by a zero; free it with
 * pf_string_release. \since 0.1 */
PF_API pf_status pf_program_serialize(pf_handle program, const char *form, char **data, uint64_t *size,
                                      pf_error *err);
/** Makes a program from the "protobuf" or "json" of pf_program_serialize. PF_CORRUPT, with the offset of the byte, if
 * it is damaged; PF_UNSUPPORTED if it has another version; PF_TOO_LARGE above 256 MiB; PF_INVALID and others if it is
 * not a program that could run. \since 0.1 */
PF_API pf_status pf_program_parse(const char *data, uint64_t size, pf_handle *program, pf_error *err);
/** Writes the program to a file: as "json" if the name ends with .json, else as "protobuf". A further .gz or .zst
 * compresses it. The file appears whole or not at all and replaces an old one. Waits for the disk. \since 0.1 */
PF_API pf_status pf_program_save(pf_handle program, const char *path, pf_error *err);
/** Reads a program that pf_program_save wrote. The errors are those of pf_program_parse, and PF_IO. Waits for the disk.
 * \since 0.1 */
PF_API pf_status pf_program_load(const char *path, pf_handle *program, pf_error *err);

/* ---- Kernels ------------------------------------------------------------------------------- */

/** The arguments of a kernel. The thread that runs the program calls the kernel, with no lock held. Everything is
 * borrowed for the call. Only one thread at a time may give it to the functions below, and only until the kernel
 * returns. \since 0.1 */
typedef struct pf_kernel_call {
    uint32_t size;
    uint32_t num_ins;
    uint32_t num_outs;
    uint32_t reserved;
    const pf_tensor *ins; /* inputs; MUST NOT be written */
    /* Outputs. An output that is also an input has the tensor of that input here, to be written in place; nothing else
     * refers to that memory. Any other output has the dtype PF_DTYPE_ANY and no data, until pf_kernel_output or
     * pf_kernel_set. */
    const pf_tensor *outs;
    pf_place place;         /* the place of the executor */
    uint64_t stream;        /* the CUDA stream to compute on; 0 on the host */
    const char *kernel;     /* the name that the kernel is registered under */
    const char *attributes; /* attributes of the operator, a JSON object */
    uint64_t run;           /* for use by the functions below */
} pf_kernel_call;
/** \since 0.1 */
#define PF_KERNEL_CALL_SIZE_V1 72

/** A kernel. A result other than 0 ends the run with PF_FAILED. A kernel that returns one calls pf_kernel_fail first,
 * to give the reason. If the result is 0, every output MUST have a tensor. A kernel may call every function of this
 * header. \since 0.1 */
typedef int (*pf_kernel)(void *context, const pf_kernel_call *call);

/** Allocates memory for output `output`, for a tensor with the dtype, dims and LoD of `like` (its data is ignored), and
 * updates call->outs[output]. If the output has a tensor with that dtype and those dims, and neither has LoD, its
 * memory is kept. `data` gets the address to write to, and may be NULL. New memory is not initialised. \since 0.1 */
PF_API pf_status pf_kernel_output(const pf_kernel_call *call, uint32_t output, const pf_tensor *like,
                                  void **data, pf_error *err);
/** Copies a tensor, strided or not, to an output, in new memory. The tensor may be a view of that output. \since 0.1 */
PF_API pf_status pf_kernel_set(const pf_kernel_call *call, uint32_t output, const pf_tensor *tensor,
                               pf_error *err);
/** Lends an input as a tuple of one slot, which may outlive the call. An input that is also an output is copied.
 * \since 0.1 */
PF_API pf_status pf_kernel_share(const pf_kernel_call *call, uint32_t input, pf_tuple *out, pf_error *err);
/** Sets the error of the run, for a kernel that is about to return something other than 0. \since 0.1 */
PF_API pf_status pf_kernel_fail(const pf_kernel_call *call, const pf_failure *failure, pf_error *err);

/** Registers `kernel` under a name, for all programs of the process. PF_STATE if the name is taken. Releasing the
 * handle removes the kernel: runs that begin later do not find it. `finished(context)` is called once, on any thread,
 * when the kernel is removed and no run uses it any more; it may be NULL. It MUST NOT block, and may call only
 * functions of pyfeed that release handles and tuples. \since 0.1 */
PF_API pf_status pf_kernel_register(const char *name, pf_kernel kernel, void *context,
                                    void (*finished)(void *context), pf_handle *handle, pf_error *err);
/** Loads a shared object for good, and calls its function `int pyfeed_register_kernels(pf_error *err)`. That function
 * registers kernels and returns 0 or a pf_status; the strings that it puts into `err` come from malloc. The shared
 * object MUST be linked with this library. A `path` without a slash is a file in the current directory. Loading it
 * again does nothing and returns PF_OK. PF_IO if it cannot be loaded, PF_INVALID if it has no such function.
 * \since 0.1 */
PF_API pf_status pf_kernel_load(const char *path, pf_error *err);
/** The names of all registered kernels, as a JSON list. \since 0.1 */
PF_API pf_status pf_kernel_list(char **json, pf_error *err);

/* ---- The executor -------------------------------------------------------------------------- */

/** Makes an executor, which runs programs at a place. Any number of threads may run programs with one executor at the
 * same time. \since 0.1 */
PF_API pf_status pf_executor_create(pf_place place, pf_handle *executor, pf_error *err);

/** Runs a program once, on the calling thread.
 *
 * First the `num_feeds` tensors `feeds` are copied into the variables `feed_names`. Then the operators of the first
 * block run. Last, the tensors in the `num_fetches` variables `fetch_names` are lent as `fetched`, which may be NULL
 * if num_fetches is 0. A tuple that `fetched` still holds is released first. Persistable variables are those of
 * `scope` and its parents, and are made in `scope` where there are none. All other variables belong to the run and end
 * with it.
 *
 * Blocks where an operator blocks. `wait` is also checked between operators: its cancel token at once, its timeout and
 * its poll function every 50 ms, or every poll_interval_ms if that is less. A timeout of 0 ends only an operator that
 * would block. An error names the operator in its message and in err->op. PF_END: a read operator came to the end of
 * the data. \since 0.1 */
PF_API pf_status pf_executor_run(pf_handle executor, pf_handle program, pf_handle scope,
                                 const char *const *feed_names, const pf_tensor *feeds, uint32_t num_feeds,
                                 const char *const *fetch_names, uint32_t num_fetches, const pf_wait *wait,
                                 pf_tuple *fetched, pf_error *err);

/* ---- Tracing ------------------------------------------------------------------------------- */

/** Begins to record what the process does, until pf_trace_stop: runs of programs, threads that read, readers and
 * queues. A recorded operation is a span. `max_events` is the largest number of spans (0: a million); further spans are
 * only counted. A span takes 56 bytes and costs about 100 ns. PF_STATE if a recording is in progress. The last release
 * of the handle stops the recording. \since 0.1 */
PF_API pf_status pf_trace_start(uint64_t max_events, pf_handle *trace, pf_error *err);
/** Ends the recording. A second call does nothing and returns PF_OK. \since 0.1 */
PF_API pf_status pf_trace_stop(pf_handle trace, pf_error *err);
/** Returns a recording that has ended. `form` is "chrome", JSON for Perfetto and chrome://tracing; "summary", a JSON
 * object that says what limits the loop; or "table", the summary for people to read. Runs of programs count as loops,
 * and so do the calls of a thread to pf_reader_next, pf_scope_read or pf_queue_pop. PF_STATE before pf_trace_stop.
 * \since 0.1 */
PF_API pf_status pf_trace_export(pf_handle trace, const char *form, char **text, pf_error *err);

#ifdef __cplusplus
}
#endif

#endif /* PYFEED_H */
