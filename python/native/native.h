/* pyfeed._native: what Python calls. One file a kind of object; this header is what they share.
 *
 * Rules that hold throughout: a thread lets go of the GIL before it waits or copies more than
 * SMALL bytes; nothing here is called by the library with the GIL held, and nothing that the
 * library calls needs it, but for the kernels of programs, which the thread that runs one calls.
 * Module state is static: there is one libpyfeed, and one Go runtime, a process, so there can be no
 * second interpreter's worth of it. */
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

#include "pyfeed.h"

/* Copies up to this are quicker done than the GIL given up and got back. */
enum { SMALL = 32 << 10 };

/* ---- errors.c ---- */

int errors_init(void);
/* Raises what err tells, releases it and answers NULL. */
PyObject *raise_error(pf_status status, pf_error *err);
/* None, or what err tells, unless something is raised already. */
PyObject *answer(pf_status status, pf_error *err);
/* Raises a class of pyfeed._errors by name, about a slot or, with -1, none; answers NULL. */
PyObject *raise_named(const char *name, Py_ssize_t slot, const char *format, ...);
/* An exception that a queue failed with, or a worker of a map reader, for the consumer that will be told its
 * token. It belongs to the queue, or to what the reader has, which the frames in its traceback often hold: the
 * collector must see all of the circle. */
typedef struct kept {
    struct kept *next;
    uint64_t token; /* 0: none */
    int homeless;   /* only until a reader raises it, which keeps it then */
    PyObject *exception, *traceback;
} kept;

/* As raise_error, for a reader, which keeps what has no other home. */
PyObject *raise_error_in(pf_status status, pf_error *err, kept *reader);
uint64_t kept_new_token(void);
void kept_set(kept *k, PyObject *exception, uint64_t token);
void kept_drop(kept *k);

/* ---- arguments.c ---- */

/* What a function takes: some arguments by position, of which the first have no names to those who call it; then others. */
typedef struct {
    const char *function; /* as users know it */
    const char *const *names;
    int count, positional, unnamed, required;
} signature;

/* Sorts what METH_FASTCALL | METH_KEYWORDS gives; NULL stands for what is not given. */
int arguments_bind(const signature *s, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                   PyObject **values);
/* Refuses any. */
int arguments_none(const char *function, Py_ssize_t count, PyObject *keywords);
/* Raises what is wrong with the value. Answers -1. */
int argument_refuse(const char *name, const char *expected, PyObject *value);
/* Whether what is raised says that a value is no number: then it is no longer. */
int argument_is_no_number(void);
/* Text, which belongs to the value. */
int argument_text(const char *name, PyObject *value, const char **text);
/* A new tuple of what is to be names, whose elements are not checked. */
PyObject *argument_names(const char *name, PyObject *value);
int argument_integer(const char *name, PyObject *value, int64_t least, int64_t *number);
/* A number from 0 on. It stays as it is where there is no value; so does a flag. */
/* The number of a pass; of None, or nothing, *pass stays as it is. */
int argument_pass(const char *name, PyObject *value, uint64_t *pass);
/* The number of a pass, or None for PF_PASS_NONE. */
PyObject *pass_object(uint64_t pass);
int argument_flag(const char *name, PyObject *value, int *flag);
int argument_seconds(const char *name, PyObject *value, double *seconds);

/* ---- waiting.c ---- */

/* A wait in which Ctrl-C works, and which the end of the interpreter knows of. */
typedef struct waiting {
    pf_wait wait;
    PyThreadState *state;
    struct waiting *prev, *next;
    unsigned long thread;
    kept *failure; /* of a program's run: where a kernel leaves the exception that ends it */
    int listens;   /* to signals: signals_check */
} waiting;

/* This process is a child of fork(), which the library says to whoever calls it. */
extern int forked;
int waiting_init(void);
/* Reads a timeout: None for ever, else seconds. */
int waiting_parse(waiting *w, PyObject *timeout);
/* Lets go of the GIL, and takes it again. */
void waiting_begin(waiting *w);
void waiting_end(waiting *w);
/* This thread, with the GIL, stops waiting for a while, to run a kernel: the wait it is in, or NULL; and goes on. */
waiting *waiting_leave(void);
void waiting_return(waiting *w);
int waiting_in_main_thread(void);
PyObject *waiting_threads(PyObject *module, PyObject *unused);
/* Gives a handle up, without the GIL: what goes with it may have threads to end, or a disk to wait for. */
void handle_release(pf_handle handle);

/* ---- arrays.c: arrays coming in ---- */

/* What keeps a slot's memory in place while it is read. */
typedef struct held {
    PyObject *array;   /* an ndarray, or NULL */
    PyObject *capsule; /* of DLPack, or NULL */
    PyObject *lod;     /* a tuple of ndarrays, or NULL */
} held;

/* A copy: while a push waits, another thread may set an array's shape. */
typedef struct layout {
    int64_t dims[PF_MAX_RANK];
    int64_t strides[PF_MAX_RANK]; /* in bytes */
} layout;

enum { FEW_SLOTS = 8 };

/* A Python tuple of arrays as C sees it. */
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
/* Reads a tuple or list of arrays. On failure nothing is held. */
int incoming_read(incoming *in, PyObject *arrays);
void incoming_drop(incoming *in);
/* Takes what `in` holds, for lent memory; `in` is empty afterwards. NULL without memory. */
typedef struct lent lent;
lent *lent_take(incoming *in);
/* The release function: from any thread, without the GIL. */
void lent_return(void *lent_);
/* Drops what consumers have given back. */
void lent_drain(void);
/* Around a call, with the GIL, that may give something back: Python is not asked to drop it, since the second does. */
int lent_expect(void);
void lent_expected(int before);
/* Drops a lend that never was. */
void lent_cancel(lent *l);
void lent_stop(void);
/* The number of a dtype given as NumPy takes it, or None for any; -1 on failure. */
pf_dtype dtype_parse(PyObject *dtype);
PyArray_Descr *dtype_descr(pf_dtype dtype);

/* ---- types.c ---- */

int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);

/* An object that has a handle, and gives it up when it goes. */
typedef struct {
    PyObject ob_base;
    pf_handle handle;
} owner;

/* An object of a subclass, which takes the handle over. */
PyObject *owner_new(PyObject *class, pf_handle handle);
/* The same, or what err tells. */
PyObject *owner_made(PyObject *class, pf_status status, pf_handle handle, pf_error *err);
void owner_dealloc(PyObject *self);
PyObject *owner_handle(PyObject *self, void *unused);

/* ---- tuples.c: tuples going out ---- */

int tuples_init(PyObject *module);
/* What to pop into: empty, or a tuple that nobody has any more, which the pop gives back. */
pf_tuple tuple_begin(void);
/* Gives back what waits for the next pop. */
void tuple_flush(void);
/* A Python tuple of arrays over the memory of a pf_tuple, which is taken over, and zeroed: the host's are ndarrays. */
PyObject *tuple_give(pf_tuple *tuple, int writable);

/* ---- device_array.c: tuples that are at a device; the driver ---- */

/* What arrays, and what was exported of them, have a part in: those may outlive the arrays, and be dropped by any thread
 * without the GIL, when there is no interpreter any more. */
typedef struct device_tuple {
    atomic_uint owners;
    pf_tuple tuple;
} device_tuple;
int device_array_init(PyObject *module);
/* The first part is the caller's. Takes the tuple over, and zeroes it. */
device_tuple *device_tuple_new(pf_tuple *tuple);
/* One part less; NULL is fine. Any thread, with or without the GIL. */
void device_tuple_drop(device_tuple *d);
PyObject *device_array_new(device_tuple *d, uint32_t slot, int writable);
/* Whether the object is a DeviceArray: then it is refused, as a slot. */
int device_array_refuse(PyObject *object, Py_ssize_t slot);
PyObject *cuda_reason(PyObject *module, PyObject *unused);
PyObject *cuda_device_count(PyObject *module, PyObject *unused);
PyObject *cuda_device(PyObject *module, PyObject *args);

/* ---- queue.c, reader.c, scope.c ---- */

int queue_init(PyObject *module);
/* The slots of a queue's tuples, from a tuple of (dtype, dims, lod_levels). To be dropped after a failure too. */
typedef struct {
    uint32_t count;
    pf_slot_spec *slots;
    int64_t (*dims)[PF_MAX_RANK];
} slot_specs;
int slot_specs_read(slot_specs *s, PyObject *slots);
void slot_specs_drop(slot_specs *s);
/* An object of a subclass of Queue, which takes the handle over. */
PyObject *queue_over(PyObject *class, pf_handle handle);
int reader_init(PyObject *module);
int scope_init(PyObject *module);

/* ---- files.c: workers of a map reader, formats, writers ---- */

int files_init(PyObject *module);
PyObject *formats(PyObject *module, PyObject *unused);
PyObject *list_files(PyObject *module, PyObject *args);
/* An object for the workers of a map reader, which takes the handle over. */
PyObject *workers_over(pf_handle handle);
/* A str of a string of the library's, which is freed. */
PyObject *text_give(char *text);

/* ---- program.c, executor.c, kernels.c, tracing.c ---- */

int program_init(PyObject *module);
/* The strings in a tuple, which they are borrowed from; PyMem_Free the array. */
const char **program_names(PyObject *tuple);
int executor_init(PyObject *module);
int kernels_init(PyObject *module);
PyObject *load_kernels(PyObject *module, PyObject *args);
PyObject *kernels(PyObject *module, PyObject *unused);
/* Drops the functions of kernels that no run has any more. */
void kernels_drain(void);
void kernels_stop(void);
int tracing_init(PyObject *module);

/* ---- shared.c: queues that other processes fill ---- */

PyObject *shared_init(PyObject *module, PyObject *args);
PyObject *shared_expect(PyObject *module, PyObject *args);
PyObject *shared_exited(PyObject *module, PyObject *args);

/* ---- interpreter.c, which the workers' extension has too ---- */

/* 0 in the main interpreter; else -1, with an ImportError. Before anything else of the module. */
int interpreter_check(void);
PyObject *check_interpreter(PyObject *module, PyObject *unused);

/* ---- staging.c ---- */

int staging_init(PyObject *module);
PyObject *shutdown_buffers(PyObject *module, PyObject *unused);

#endif
