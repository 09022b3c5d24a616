/* pyfeed._native: the extension module. Each kind of object has a file; this header has what they share.
 *
 * Rules for all files:
 *
 * - A thread releases the GIL before it waits or copies more than SMALL_COPY_BYTES bytes.
 * - Python may have no GIL. So the locks of lock.h guard what changes in an object and in static state, and references
 *   to what another thread may replace are owned, not borrowed.
 * - The library calls nothing here with the GIL held. Nothing that the library calls needs the GIL, except kernels of
 *   programs, which the thread that runs the program calls.
 * - Module state is static: a process has one libpyfeed and one Go runtime, so a second interpreter cannot use the
 *   module. */
#ifndef PYFEED_NATIVE_H
#define PYFEED_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>

#define PY_ARRAY_UNIQUE_SYMBOL pyfeed_array_api
#ifndef PYFEED_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "lock.h"
#include "pyfeed.h"

/* Copies of up to this size take less time than releasing and reacquiring the GIL. */
enum { SMALL_COPY_BYTES = 32 << 10 };

/* ---- errors.c ---- */

int errors_init(void);
/* Raises the exception for err and releases err. Returns NULL. */
PyObject *raise_error(pf_status status, pf_error *err);
/* Returns None for PF_OK; else raises the exception for err, unless an exception is set already, and returns NULL. */
PyObject *none_or_error(pf_status status, pf_error *err);
/* Raises a class of pyfeed.errors by name. slot is the slot that it is about, or -1. Returns NULL. */
PyObject *raise_named(const char *name, Py_ssize_t slot, const char *format, ...);
/* An exception that a queue, a worker of a map reader or a kernel failed with. The consumer finds it by its token. A
 * queue, a reader, an executor or a Failure owns it. The frames of its traceback often refer to that owner, so the
 * owner must show it to the garbage collector. */
typedef struct kept {
    struct kept *next;
    uint64_t token;   /* 0: none */
    int reader_owned; /* the reader that raises it becomes its owner */
    PyObject *exception, *traceback;
} kept;

/* Like raise_error, for a reader or an executor, which becomes the owner of a reader_owned exception. reader may be
 * NULL. */
PyObject *raise_error_in(pf_status status, pf_error *err, kept *reader);
uint64_t kept_new_token(void);
void kept_set(kept *k, PyObject *exception, uint64_t token, int reader_owned);
/* Moves an exception, unless a reader has become its owner meanwhile. */
void kept_move(kept *to, kept *from);
int kept_traverse(const kept *k, visitproc visit, void *arg);
void kept_drop(kept *k);

/* ---- arguments.c ---- */

/* The arguments of a function. The first `positional` may be given by position. The first `unnamed` may not be given by
 * name. The first `required` must be given. */
typedef struct {
    const char *function; /* the public name */
    const char *const *names;
    int count, positional, unnamed, required;
} signature;

/* Sorts the arguments of METH_FASTCALL | METH_KEYWORDS into `values`; NULL: not given. Returns -1 with an exception
 * set. */
int arguments_bind(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                   PyObject **values);
/* Refuses all arguments. */
int arguments_none(const char *function, Py_ssize_t count, PyObject *keywords);
/* Raises the error for a value that is not what was expected. Returns -1. */
int argument_refuse(const char *name, const char *expected, PyObject *value);
/* Whether the exception that is set means that a value is no number. If so, clears the exception. */
int argument_is_no_number(void);
/* Parses text without a NUL. The text is borrowed from the value. */
int argument_text(const char *name, PyObject *value, const char **text);
/* Returns a new tuple of a sequence of names, whose elements are not checked. */
PyObject *argument_names(const char *name, PyObject *value);
int argument_integer(const char *name, PyObject *value, int64_t least, int64_t *number);
/* Parses the number of a pass. If the value is NULL or None, *pass stays as it is. */
int argument_pass(const char *name, PyObject *value, uint64_t *pass);
/* Returns the number of a pass, or None for PF_PASS_NONE. */
PyObject *pass_object(uint64_t pass);
int argument_flag(const char *name, PyObject *value, int *flag);
int argument_seconds(const char *name, PyObject *value, double *seconds);

/* ---- waiting.c ---- */

/* What can end a wait. pyfeed._exit uses it at the end of the interpreter. */
typedef enum wait_kind {
    WAITS_FOR_ANY,  /* not known */
    WAITS_FOR_CALL, /* a call of another thread or process: a pop waits for a push */
    WAITS_FOR_ROOM, /* a pop of another thread or a reader: a push waits for it */
    WAITS_FOR_READ, /* the source of a reader */
} wait_kind;

/* A wait that Ctrl-C can end, and that the end of the interpreter can find. */
typedef struct waiting {
    pf_wait wait;
    PyThreadState *state;
    struct waiting *prev, *next;
    unsigned long thread;
    kept *failure; /* in a run of a program: for the exception of a kernel; else NULL */
    int listens;   /* signals_check has installed its pipe */
    wait_kind kind;
    PyObject *reader; /* the reader, or the queue, that the thread gets a tuple from; borrowed, or NULL */
    const atomic_int *closed; /* the wait ends when this is not 0; may be NULL */
} waiting;

/* Not 0 in a child of fork(). The library then returns PF_FORKED. */
extern int forked;
/* A pf_wait for a call that must not block. */
extern const pf_wait no_wait;
int waiting_init(void);
/* Initialises a wait with a timeout in seconds; NULL or None: for ever. Returns -1 with an exception set. */
int waiting_parse(waiting *w, PyObject *timeout);
/* Initialises a wait for ever, for a thread that works for a reader. pyfeed._exit does not register such a thread. */
void waiting_of_worker(waiting *w);
/* waiting_begin releases the GIL, waiting_end takes it again. */
void waiting_begin(waiting *w);
void waiting_end(waiting *w);
/* Around a kernel that runs with the GIL in the middle of a wait: waiting_suspend returns the wait that this thread is
 * in, or NULL. */
waiting *waiting_suspend(void);
void waiting_resume(waiting *w);
int waiting_in_main_thread(void);
PyObject *waiting_threads(PyObject *module, PyObject *unused);
/* Releases a handle without the GIL: the object may have threads to join or data to write. */
void handle_release(pf_handle handle);

/* ---- arrays.c: arrays that are arguments ---- */

/* The objects that keep the memory of a slot while it is read. */
typedef struct held {
    PyObject *array;   /* an ndarray, or NULL */
    PyObject *capsule; /* of DLPack, or NULL */
    PyObject *lod;     /* a tuple of ndarrays, or NULL */
} held;

/* A copy of dims and strides: while a push waits, another thread may change the shape of an array. */
typedef struct layout {
    int64_t dims[PF_MAX_RANK];
    int64_t strides[PF_MAX_RANK]; /* in bytes */
} layout;

enum { FEW_SLOTS = 8 };

/* A Python tuple of arrays, as tensors. */
typedef struct incoming {
    Py_ssize_t count;
    size_t bytes;
    pf_tensor *tensors;
    held *held;
    layout *layouts;
    pf_tensor few_tensors[FEW_SLOTS];
    held few_held[FEW_SLOTS];
    layout few_layouts[FEW_SLOTS];
    pf_lod_level (*lod)[PF_MAX_LOD_LEVELS];
} incoming;

int arrays_init(void);
/* What is known of a slot. A number of Python takes this dtype, and text and bytes get so many levels of offsets. */
typedef struct slot_kind {
    pf_dtype dtype; /* PF_DTYPE_ANY: not known */
    uint32_t lod_levels;
} slot_kind;
/* What is known of the slots of a tuple. */
typedef struct expected {
    PyObject *structure;                          /* NULL: a tuple or list of arrays; borrowed */
    slot_kind (*kind)(void *of, Py_ssize_t slot); /* NULL: nothing is known. The slot may not exist */
    void *of;
} expected;
/* Reads the arrays of a tuple, which lie in a structure if `e` has one. e may be NULL. Returns -1 with an exception set;
 * then nothing is held. */
int incoming_read(incoming *in, PyObject *arrays, const expected *e);
void incoming_drop(incoming *in);
/* Moves the objects that `in` holds to a new `lent`, for lent memory. Returns NULL without memory. */
typedef struct lent lent;
lent *lent_take(incoming *in);
/* The release function of lent memory. The library calls it from any thread, without the GIL. */
void lent_return(void *lent_);
/* Drops the objects of lent memory that consumers have released. */
void lent_drain(void);
/* Around a call with the GIL that may return lent memory: lent_resume_drain drops that memory itself, so that no
 * pending call of Python is scheduled for it. */
int lent_suspend_drain(void);
void lent_resume_drain(int before);
/* Drops a lend that the library has not accepted. */
void lent_cancel(lent *l);
void lent_stop(void);
/* Parses a dtype as NumPy does; None: PF_DTYPE_ANY. Returns -1 with an exception set. */
pf_dtype dtype_parse(PyObject *dtype);
PyArray_Descr *dtype_descr(pf_dtype dtype);
/* Kinds of slots that Python gave. */
typedef struct slot_kinds {
    Py_ssize_t count;
    slot_kind *kinds;
} slot_kinds;
/* Parses a tuple of (dtype, lod_levels). Returns -1 with an exception set. The caller frees k->kinds with PyMem_Free. */
int slot_kinds_read(slot_kinds *k, PyObject *tuple);
/* For `expected`: the kind of a slot of slot_kinds. */
slot_kind slot_kinds_get(void *slot_kinds, Py_ssize_t slot);

/* ---- structure.c ---- */

/* Returns the arrays of a tuple in the places that a structure has for them. */
PyObject *structure_assemble(PyObject *structure, PyObject *arrays);
/* The same for the result of a call. Takes over both. If the structure is NULL, returns the arrays, which may be NULL. */
PyObject *structure_of_tuple(PyObject *structure, PyObject *arrays);
/* The reverse: returns a list or tuple of the arrays. Where the structure is a dict, the value may also be a list or
 * tuple of all arrays. */
PyObject *structure_flatten(PyObject *structure, PyObject *value);
/* Whether a value is a dict or another mapping. */
int structure_is_mapping(PyObject *value);
/* Returns the structure of a dict with the names, a tuple of str, as its keys. */
PyObject *structure_of_names(PyObject *names);

/* ---- types.c ---- */

/* Returns an attribute of a module. */
PyObject *import_attribute(const char *module, const char *name);
int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);

/* An object that owns a handle and releases it when it is deallocated. */
typedef struct {
    PyObject ob_base;
    pf_handle handle;
} owner;

/* Returns an object of a subclass of owner, which takes the handle over. */
PyObject *owner_new(PyObject *class, pf_handle handle);
/* The same for PF_OK; else raises the exception for err and returns NULL. */
PyObject *owner_or_error(PyObject *class, pf_status status, pf_handle handle, pf_error *err);
void owner_dealloc(PyObject *self);
/* For objects that can be closed while other threads use them: owner_take leaves 0. */
pf_handle owner_load(PyObject *self);
pf_handle owner_take(PyObject *self);
PyObject *owner_handle(PyObject *self, void *unused);

/* ---- tuples.c: tuples that are results ---- */

int tuples_init(PyObject *module);
/* Returns the pf_tuple to pop into: empty, or a tuple that is no longer used, which the pop releases. */
pf_tuple tuple_begin(void);
/* Releases the tuple that waits for the next pop. */
void tuple_flush(void);
/* Returns a Python tuple of arrays over the memory of a pf_tuple: ndarrays for host memory. Takes the tuple over and
 * zeroes it. */
PyObject *tuple_to_python(pf_tuple *tuple, int writable);

/* ---- device_array.c: tuples in the memory of a device; the driver ---- */

/* A tuple with an atomic reference count. Arrays and tensors exported from them own it together. Exported tensors may
 * outlive the arrays, and any thread may drop them without the GIL, also when there is no interpreter any more. */
typedef struct device_tuple {
    atomic_uint owners;
    pf_tuple tuple;
} device_tuple;
int device_array_init(PyObject *module);
/* Takes the tuple over and zeroes it. The caller owns the first reference. */
device_tuple *device_tuple_new(pf_tuple *tuple);
/* Drops a reference. NULL does nothing. Any thread, with or without the GIL. */
void device_tuple_drop(device_tuple *d);
PyObject *device_array_new(device_tuple *d, uint32_t slot, int writable);
/* Whether the object is a DeviceArray. If so, raises the error that it cannot be a slot. */
int device_array_refuse(PyObject *object, Py_ssize_t slot);
PyObject *cuda_reason(PyObject *module, PyObject *unused);
PyObject *cuda_device_count(PyObject *module, PyObject *unused);
PyObject *cuda_device(PyObject *module, PyObject *args);

/* ---- queue.c, reader.c, scope.c ---- */

int queue_init(PyObject *module);
/* The slots of the tuples of a queue, parsed from a tuple of (dtype, dims, lod_levels). Call slot_specs_drop after a
 * failure too. */
typedef struct {
    uint32_t count;
    pf_slot_spec *slots;
    int64_t (*dims)[PF_MAX_RANK];
} slot_specs;
int slot_specs_read(slot_specs *s, PyObject *slots);
void slot_specs_drop(slot_specs *s);
/* Returns an object of a subclass of Queue, which takes the handle over. */
PyObject *queue_wrap(PyObject *class, pf_handle handle);
int reader_init(PyObject *module);
int scope_init(PyObject *module);

/* ---- callbacks.c: workers of a map reader, formats, writers ---- */

int files_init(PyObject *module);
PyObject *formats(PyObject *module, PyObject *unused);
PyObject *list_files(PyObject *module, PyObject *args);
/* Returns an object for the workers of a map reader, which takes the handle over. `kinds` has a tuple (dtype, lod_levels)
 * for each slot of the results. `arguments` is the structure of the arguments of the function, a tuple, and `results`
 * that of its results; both may be None. */
PyObject *workers_wrap(pf_handle handle, PyObject *kinds, PyObject *arguments, PyObject *results);
/* Returns a str of a string of the library, which it frees. */
PyObject *take_text(char *text);

/* ---- program.c, executor.c, kernels.c, tracing.c ---- */

int program_init(PyObject *module);
/* Returns an array of the strings in a tuple. The strings are borrowed from the tuple; free the array with PyMem_Free.
 */
const char **program_names(PyObject *tuple);
int executor_init(PyObject *module);
int kernels_init(PyObject *module);
PyObject *load_kernels(PyObject *module, PyObject *args);
PyObject *kernels(PyObject *module, PyObject *unused);
/* Drops the functions of kernels that no run uses any more. */
void kernels_drain(void);
void kernels_stop(void);
int tracing_init(PyObject *module);

/* ---- shared.c: queues that worker processes fill ---- */

PyObject *shared_init(PyObject *module, PyObject *args);
PyObject *shared_expect(PyObject *module, PyObject *args);
PyObject *shared_exited(PyObject *module, PyObject *args);
PyObject *shared_at_work(PyObject *module, PyObject *args);

/* ---- interpreter.c, which the extension of pyfeed_worker compiles too ---- */

/* Returns 0 in the main interpreter; else -1 with an ImportError set. Call it before anything else in the module. */
int interpreter_check(void);

/* ---- staging.c ---- */

int staging_init(PyObject *module);
PyObject *shutdown_buffers(PyObject *module, PyObject *unused);

#endif
