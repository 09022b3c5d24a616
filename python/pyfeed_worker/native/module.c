/* The module pyfeed_worker._native: a ring, for Python. It contains neither Go nor libpyfeed. It shares the code that
 * reads arrays and gathers their bytes with the extension of pyfeed (python/native/arrays.c, capi/gather.c). */
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define PYFEED_IMPORTS_NUMPY
#include "native.h"
#include "pyfeed_worker.h"
#include "signals.h"
#include "thread_linux.h"

static PyObject *errors; /* pyfeed_worker.errors.__dict__ */
static PyObject *lod_tensor_wrap;
static PyTypeObject *ring_type;

typedef struct {
    PyObject ob_base;
    pfw_producer *producer;
    pid_t awaits; /* the process id while a thread waits for a pass; else 0. Guarded by LOCK_OBJECT */
    atomic_int live_tasks; /* tasks whose memory is in use */
} ring;

/* ---- Errors ---- */

static PyObject *raise_text(const char *name, Py_ssize_t slot, PyObject *text) {
    PyObject *class = PyMapping_GetItemString(errors, name);
    PyObject *e = class && text ? PyObject_CallFunctionObjArgs(class, text, NULL) : NULL;
    Py_XDECREF(class);
    PyObject *number = e && slot >= 0 ? PyLong_FromSsize_t(slot) : NULL;
    if (number) PyObject_SetAttrString(e, "slot", number);
    Py_XDECREF(number);
    if (e) PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_XDECREF(e);
    Py_XDECREF(text);
    return NULL;
}

PyObject *raise_named(const char *name, Py_ssize_t slot, const char *format, ...) {
    va_list args;
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    return raise_text(name, slot, text);
}

/* arrays.c calls this. A worker has no arrays in device memory. */
int device_array_refuse(PyObject *Py_UNUSED(object), Py_ssize_t Py_UNUSED(slot)) { return 0; }

static const char *const names[] = {
    [PF_TIMEOUT] = "Timeout",
    [PF_CLOSED] = "QueueClosed",
    [PF_INVALID] = "InvalidArgument",
    [PF_SHAPE] = "ShapeError",
    [PF_DTYPE] = "DTypeError",
    [PF_SLOTS] = "SlotCountError",
    [PF_TOO_LARGE] = "TooLargeError",
    [PF_STATE] = "StateError",
    [PF_UNSUPPORTED] = "UnsupportedError",
    [PF_NO_MEMORY] = "OutOfMemoryError",
    [PF_CORRUPT] = "CorruptRingError",
};

static PyObject *none_or_ring_error(pf_status status, const pfw_error *err) {
    if (status == PF_OK) Py_RETURN_NONE;
    if (PyErr_Occurred()) return NULL; /* a signal handler raised */
    const char *name = status < sizeof names / sizeof *names && names[status] ? names[status] : "Error";
    if (err->trainer_gone) name = "TrainerGone";
    return raise_text(name, err->slot,
                      PyUnicode_DecodeUTF8(err->message, (Py_ssize_t)strlen(err->message), "replace"));
}

/* ---- Waiting ---- */

typedef struct waiter {
    pf_wait wait;
    PyThreadState *state;
    pfw_producer *producer;
    int listens;          /* signals_check has installed its pipe */
    struct waiter *outer; /* the waiter of the main thread whose signal handler waits here; or NULL */
} waiter;

static pthread_mutex_t main_lock = PTHREAD_MUTEX_INITIALIZER;
static waiter *main_waiter; /* the waiter of the main thread, if it listens; else NULL */

/* The thread that may have held the lock does not exist in the child, nor may the thread that waited. */
static void reset_after_fork(void) {
    main_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    main_waiter = NULL;
}

static void poll_now(void) {
    pthread_mutex_lock(&main_lock);
    if (main_waiter) pfw_poll_now(main_waiter->producer);
    pthread_mutex_unlock(&main_lock);
}

static void set_main_waiter(waiter *w) {
    pthread_mutex_lock(&main_lock);
    main_waiter = w;
    pthread_mutex_unlock(&main_lock);
}

/* The poll function of the main thread: called after each signal; every 100 ms too if signals_check cannot listen. */
static int check_signals(void *w_) {
    waiter *w = w_;
    PyEval_RestoreThread(w->state);
    set_main_waiter(w);
    int listens, stop = signals_check(poll_now, &listens);
    w->listens |= listens;
    w->state = PyEval_SaveThread();
    return stop ? stop : listens ? PF_POLL_SIGNALS_ONLY : 0;
}

static int waiter_parse(waiter *w, PyObject *timeout) {
    *w = (waiter){.wait = PF_WAIT_INIT};
    if (timeout && timeout != Py_None) {
        double seconds = PyFloat_AsDouble(timeout);
        if (seconds == -1 && PyErr_Occurred()) return -1;
        if (!(seconds >= 0)) {
            raise_named("InvalidArgument", -1, "timeout: expected None or seconds, at least 0, found %R",
                        timeout);
            return -1;
        }
        w->wait.timeout_ns = seconds < 9e9 ? (int64_t)(seconds * 1e9 + (seconds > 0)) : -1;
    }
    return 0;
}

/* Python runs signal handlers in the main thread only, which is the first thread of its process. */
static void waiter_begin(waiter *w, pfw_producer *producer) {
    if (is_first_thread()) {
        w->wait.poll = check_signals;
        w->wait.poll_context = w;
        w->producer = producer;
        w->outer = main_waiter; /* written by this thread only */
    }
    w->state = PyEval_SaveThread();
}

static void waiter_end(waiter *w) {
    PyEval_RestoreThread(w->state);
    if (main_waiter == w) set_main_waiter(w->outer);
    if (w->listens) signals_ignore();
}

/* ---- The ring ---- */

const pf_wait no_wait = {sizeof(pf_wait), 0, 0, 0, NULL, NULL};

/* open(fd): maps the ring */
static PyObject *ring_open(PyObject *Py_UNUSED(module), PyObject *fd) {
    long number = PyLong_AsLong(fd);
    if (number == -1 && PyErr_Occurred()) return NULL;
    pfw_error err;
    pfw_producer *producer;
    pf_status status = pfw_open((int)number, &producer, &err);
    if (status) return none_or_ring_error(status, &err);
    ring *self = PyObject_New(ring, ring_type);
    if (self) {
        self->producer = producer;
        self->awaits = 0;
        atomic_init(&self->live_tasks, 0);
    } else {
        pfw_free(producer);
    }
    return (PyObject *)self;
}

static void ring_dealloc(ring *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_BEGIN_ALLOW_THREADS;
    pfw_free(self->producer);
    Py_END_ALLOW_THREADS;
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *raise_awaited(void) {
    return raise_text("StateError", -1,
                      PyUnicode_FromString("another thread waits for the next pass: attach_next"));
}

/* attach(pass): None for the current pass */
static PyObject *ring_attach(ring *self, PyObject *pass) {
    uint64_t number = PF_PASS_CURRENT;
    if (pass != Py_None) {
        number = PyLong_AsUnsignedLongLong(pass);
        if (PyErr_Occurred()) return NULL;
    }
    pfw_error err;
    pf_status status = PF_OK;
    int awaited;
    LOCK_OBJECT((PyObject *)self); /* one thread at a time may attach or end */
    awaited = self->awaits == getpid();
    if (!awaited) status = pfw_attach(self->producer, number, &err);
    UNLOCK_OBJECT();
    return awaited ? raise_awaited() : none_or_ring_error(status, &err);
}

/* set_number(number): for the trainer's errors */
static PyObject *ring_set_number(ring *self, PyObject *number) {
    unsigned long n = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred()) return NULL;
    pfw_set_number(self->producer, (uint32_t)n);
    Py_RETURN_NONE;
}

/* attach_next(timeout): returns the number of the pass */
static PyObject *ring_attach_next(ring *self, PyObject *timeout) {
    waiter w;
    if (waiter_parse(&w, timeout) < 0) return NULL;
    int awaited;
    LOCK_OBJECT((PyObject *)self);
    awaited = self->awaits == getpid();
    self->awaits = getpid();
    UNLOCK_OBJECT();
    if (awaited) return raise_awaited();
    pfw_error err;
    waiter_begin(&w, self->producer);
    pf_status status = pfw_attach_next(self->producer, &w.wait, &err);
    waiter_end(&w);
    LOCK_OBJECT((PyObject *)self);
    self->awaits = 0;
    UNLOCK_OBJECT();
    return status ? none_or_ring_error(status, &err) : PyLong_FromUnsignedLongLong(pfw_pass(self->producer));
}

static PyObject *ring_attached(ring *self, PyObject *Py_UNUSED(unused)) {
    return PyBool_FromLong(pfw_attached(self->producer));
}

static PyObject *ring_end(ring *self, PyObject *Py_UNUSED(unused)) {
    pfw_error err;
    pf_status status;
    LOCK_OBJECT((PyObject *)self);
    status = pfw_end(self->producer, &err);
    UNLOCK_OBJECT();
    return none_or_ring_error(status, &err);
}

/* fail(type, message, traceback) */
static PyObject *ring_fail(ring *self, PyObject *args) {
    const char *type, *message, *traceback;
    if (!PyArg_ParseTuple(args, "sss", &type, &message, &traceback)) return NULL;
    pfw_error err;
    pf_status status;
    LOCK_OBJECT((PyObject *)self);
    status = pfw_fail(self->producer, type, message, traceback, &err);
    UNLOCK_OBJECT();
    return none_or_ring_error(status, &err);
}

static slot_kind kind_of_slot(void *producer, Py_ssize_t slot) {
    if (slot >= pfw_num_slots(producer)) return (slot_kind){PF_DTYPE_ANY, 0};
    pf_slot_spec spec;
    int64_t dims[PF_MAX_RANK];
    pfw_slot_spec(producer, (uint32_t)slot, &spec, dims);
    if (pf_dtype_size(spec.dtype) == 0)
        spec.dtype = PF_DTYPE_ANY; /* the push refuses a ring that was overwritten */
    return (slot_kind){spec.dtype, spec.lod_levels};
}

/* push(arrays, timeout, structure): the structure may be None */
static PyObject *ring_push(ring *self, PyObject *args) {
    PyObject *arrays, *timeout, *structure;
    waiter w;
    incoming in;
    if (!PyArg_ParseTuple(args, "OOO", &arrays, &timeout, &structure) || waiter_parse(&w, timeout) < 0 ||
        incoming_read(&in, arrays,
                      &(expected){structure == Py_None ? NULL : structure, kind_of_slot, self->producer}) < 0)
        return NULL;
    pfw_error err;
    pf_status status = PF_TIMEOUT;
    uint32_t n = (uint32_t)in.count;
    /* Tries first without a wait and with the GIL, because taking the GIL again is slow. */
    if (in.bytes <= SMALL_COPY_BYTES) status = pfw_push(self->producer, in.tensors, n, &no_wait, &err);
    if (status == PF_TIMEOUT) {
        waiter_begin(&w, self->producer);
        status = pfw_push(self->producer, in.tensors, n, &w.wait, &err);
        waiter_end(&w);
    }
    incoming_drop(&in);
    return none_or_ring_error(status, &err);
}

/* ---- Tasks ---- */

/* The memory of a task: the base object of its arrays. The task goes back to the trainer with it. */
typedef struct {
    PyObject ob_base;
    ring *of;
    pfw_taken taken;
} task;

static PyTypeObject *task_type;

static void task_dealloc(task *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    pfw_release_task(self->of->producer, &self->taken);
    atomic_fetch_sub(&self->of->live_tasks, 1);
    Py_DECREF((PyObject *)self->of);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *view_of(task *base, PyArray_Descr *descr, int rank, const int64_t *dims, void *data,
                         int flags) {
    if (!descr) return NULL;
    PyObject *array =
        PyArray_NewFromDescr(&PyArray_Type, descr, rank, (const npy_intp *)dims, NULL, data, flags, NULL);
    if (!array) return NULL;
    Py_INCREF((PyObject *)base);
    if (PyArray_SetBaseObject((PyArrayObject *)array, (PyObject *)base) < 0) Py_CLEAR(array);
    return array;
}

/* Replaces an array by a copy. */
static PyObject *copied(PyObject *array) {
    PyObject *copy = array ? PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER) : NULL;
    Py_XDECREF(array);
    return copy;
}

static PyObject *array_of_task(task *base, const pf_tensor *t, int copy) {
    PyObject *data = view_of(base, dtype_descr(t->dtype), t->rank, t->dims, t->data, NPY_ARRAY_CARRAY);
    if (copy) data = copied(data);
    if (!data || t->lod_levels == 0) return data;
    PyObject *levels = PyTuple_New((Py_ssize_t)t->lod_levels);
    for (uint32_t j = 0; levels && j < t->lod_levels; j++) {
        int64_t n = (int64_t)t->lod[j].count;
        PyObject *level = view_of(base, PyArray_DescrFromType(NPY_INT64), 1, &n, (void *)t->lod[j].offsets,
                                  NPY_ARRAY_CARRAY_RO);
        if (copy) level = copied(level);
        if (!level || PyTuple_SetItem(levels, (Py_ssize_t)j, level) < 0) Py_CLEAR(levels);
    }
    PyObject *tensor = levels ? PyObject_CallFunctionObjArgs(lod_tensor_wrap, data, levels, NULL) : NULL;
    Py_XDECREF(levels);
    Py_DECREF(data);
    return tensor;
}

/* The tensors of a task, with room for few of them on the stack. */
typedef struct {
    pf_tensor *tensors;
    int64_t (*dims)[PF_MAX_RANK];
    pf_lod_level (*lod)[PF_MAX_LOD_LEVELS];
    pf_tensor few_tensors[FEW_SLOTS];
    int64_t few_dims[FEW_SLOTS][PF_MAX_RANK];
    pf_lod_level few_lod[FEW_SLOTS][PF_MAX_LOD_LEVELS];
} task_room;

static int task_room_begin(task_room *r, uint32_t n) {
    r->tensors = r->few_tensors;
    r->dims = r->few_dims;
    r->lod = r->few_lod;
    if (n <= FEW_SLOTS) return 0;
    r->tensors = PyMem_Calloc(n, sizeof *r->tensors);
    r->dims = PyMem_Calloc(n, sizeof *r->dims);
    r->lod = PyMem_Calloc(n, sizeof *r->lod);
    if (r->tensors && r->dims && r->lod) return 0;
    PyErr_NoMemory();
    return -1;
}

static void task_room_end(task_room *r) {
    if (r->tensors != r->few_tensors) PyMem_Free(r->tensors);
    if (r->dims != r->few_dims) PyMem_Free(r->dims);
    if (r->lod != r->few_lod) PyMem_Free(r->lod);
}

/* take(structure): the arguments for the next task, its position and its memory. The structure may be None. */
static PyObject *ring_take(ring *self, PyObject *structure) {
    waiter w;
    task_room r;
    uint32_t n = pfw_task_slots(self->producer);
    if (waiter_parse(&w, NULL) < 0) return NULL;
    PyObject *arrays = NULL, *out = NULL;
    task *base = NULL;
    if (task_room_begin(&r, n) < 0) goto done;
    pfw_error err;
    pfw_taken taken;
    pf_status status = pfw_take(self->producer, &no_wait, &taken, r.tensors, r.dims, r.lod, &err);
    if (status == PF_TIMEOUT) {
        waiter_begin(&w, self->producer);
        status = pfw_take(self->producer, &w.wait, &taken, r.tensors, r.dims, r.lod, &err);
        waiter_end(&w);
    }
    if (status || PyErr_Occurred()) {
        if (status == PF_OK) pfw_release_task(self->producer, &taken);
        none_or_ring_error(status, &err);
        goto done;
    }
    base = PyObject_New(task, task_type);
    if (!base) {
        pfw_release_task(self->producer, &taken);
        goto done;
    }
    Py_INCREF((PyObject *)self);
    base->of = self;
    base->taken = taken;
    /* A function that keeps its arguments would take one task after the other from the trainer: it gets copies. */
    int copy = atomic_fetch_add(&self->live_tasks, 1) > 0;
    arrays = PyTuple_New((Py_ssize_t)n);
    for (uint32_t i = 0; arrays && i < n; i++) {
        PyObject *array = array_of_task(base, &r.tensors[i], copy);
        if (!array || PyTuple_SetItem(arrays, (Py_ssize_t)i, array) < 0) Py_CLEAR(arrays);
    }
    arrays = structure_of_tuple(structure == Py_None ? NULL : Py_NewRef(structure), arrays);
    if (arrays)
        out = Py_BuildValue("(O(KK)O)", arrays, (unsigned long long)taken.pass,
                            (unsigned long long)taken.index, base);
done:
    task_room_end(&r);
    Py_XDECREF(arrays);
    Py_XDECREF((PyObject *)base);
    return out;
}

/* complete(task, result, structure): pushes the result, and the ticket of the task behind it */
static PyObject *ring_complete(ring *self, PyObject *args) {
    PyObject *of, *result, *structure;
    waiter w;
    incoming in;
    if (!PyArg_ParseTuple(args, "O!OO", task_type, &of, &result, &structure) || waiter_parse(&w, NULL) < 0 ||
        incoming_read(&in, result,
                      &(expected){structure == Py_None ? NULL : structure, kind_of_slot, self->producer}) < 0)
        return NULL;
    uint32_t n = pfw_num_slots(self->producer);
    if (in.count != (Py_ssize_t)n - 1) {
        raise_named("SlotCountError", -1, "slots: expected %u, found %zd", n - 1, in.count);
        incoming_drop(&in);
        return NULL;
    }
    pf_tensor few[FEW_SLOTS + 1], *tensors = n <= FEW_SLOTS + 1 ? few : PyMem_Malloc(n * sizeof *tensors);
    if (!tensors) {
        incoming_drop(&in);
        return PyErr_NoMemory();
    }
    memcpy(tensors, in.tensors, (n - 1) * sizeof *tensors);
    int64_t ticket = (int64_t)((task *)of)->taken.ticket;
    tensors[n - 1] = (pf_tensor)PF_TENSOR_INIT;
    tensors[n - 1].dtype = PF_INT64;
    tensors[n - 1].data = &ticket;
    pfw_error err;
    pf_status status = PF_TIMEOUT;
    /* Tries first without a wait and with the GIL, because taking the GIL again is slow. */
    if (in.bytes <= SMALL_COPY_BYTES) status = pfw_push(self->producer, tensors, n, &no_wait, &err);
    if (status == PF_TIMEOUT) {
        waiter_begin(&w, self->producer);
        status = pfw_push(self->producer, tensors, n, &w.wait, &err);
        waiter_end(&w);
    }
    if (tensors != few) PyMem_Free(tensors);
    incoming_drop(&in);
    return none_or_ring_error(status, &err);
}

/* fail_task(task, type, message, traceback, pickle) */
static PyObject *ring_fail_task(ring *self, PyObject *args) {
    PyObject *of;
    const char *type, *message, *traceback, *pickle;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "O!sssy#", task_type, &of, &type, &message, &traceback, &pickle, &size))
        return NULL;
    pfw_error err;
    return none_or_ring_error(pfw_fail_task(self->producer, &((task *)of)->taken, type, message, traceback,
                                            pickle, (size_t)size, &err),
                              &err);
}

static PyObject *task_ticket(task *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(self->taken.ticket);
}

static PyGetSetDef task_getset[] = {
    {"ticket", (getter)task_ticket, NULL, "The ticket, which comes back with the result.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot task_slots[] = {
    {Py_tp_dealloc, task_dealloc},
    {Py_tp_getset, task_getset},
    {Py_tp_doc, "The memory of a task."},
    {0, NULL},
};
static PyType_Spec task_spec = {"pyfeed_worker._native.Task", sizeof(task), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, task_slots};

/* The tensors to reserve, parsed from tuples of (dtype, shape, LoD). */
typedef struct {
    uint32_t count;
    pf_tensor *tensors;
    int64_t (*dims)[PF_MAX_RANK];
    pf_lod_level (*lod)[PF_MAX_LOD_LEVELS];
    void **data;
} plan;

static void plan_drop(plan *p) {
    PyMem_Free(p->tensors);
    PyMem_Free(p->dims);
    PyMem_Free(p->lod);
    PyMem_Free(p->data);
}

static int plan_read(plan *p, PyObject *slots) {
    size_t n = (size_t)PyTuple_Size(slots);
    *p = (plan){(uint32_t)n, PyMem_Calloc(n + 1, sizeof *p->tensors), PyMem_Calloc(n + 1, sizeof *p->dims),
                PyMem_Calloc(n + 1, sizeof *p->lod), PyMem_Calloc(n + 1, sizeof *p->data)};
    if (!p->tensors || !p->dims || !p->lod || !p->data) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        PyObject *dtype, *shape, *levels;
        if (!PyArg_ParseTuple(PyTuple_GetItem(slots, (Py_ssize_t)i), "OO!O!", &dtype, &PyTuple_Type, &shape,
                              &PyTuple_Type, &levels))
            return -1;
        pf_tensor *t = &p->tensors[i];
        *t = (pf_tensor)PF_TENSOR_INIT;
        if (dtype == Py_None) {
            raise_named("InvalidArgument", (Py_ssize_t)i,
                        "slot %zu: its dtype is not known before the first push: give the queue's dtypes "
                        "when it is made",
                        i);
            return -1;
        }
        if ((t->dtype = dtype_parse(dtype)) < 0) return -1;
        t->rank = (int32_t)PyTuple_Size(shape);
        t->dims = p->dims[i];
        for (int32_t j = 0; j < t->rank && j < PF_MAX_RANK; j++)
            p->dims[i][j] = PyLong_AsLongLong(PyTuple_GetItem(shape, j));
        if (PyErr_Occurred()) return -1;
        t->lod_levels = (uint32_t)PyTuple_Size(levels);
        t->lod = p->lod[i];
        for (uint32_t j = 0; j < t->lod_levels && j < PF_MAX_LOD_LEVELS; j++) {
            PyArrayObject *level =
                (PyArrayObject *)PyTuple_GetItem(levels, j); /* reserved_slots has checked its type */
            p->lod[i][j] = (pf_lod_level){PyArray_DATA(level), (uint64_t)PyArray_DIM(level, 0)};
        }
    }
    return 0;
}

/* Returns arrays over a reservation. They keep the ring mapped. */
static PyObject *arrays_over(ring *self, const plan *p, PyObject *slots) {
    PyObject *all = PyTuple_New((Py_ssize_t)p->count);
    for (uint32_t i = 0; all && i < p->count; i++) {
        const pf_tensor *t = &p->tensors[i];
        PyArray_Descr *descr = dtype_descr(t->dtype);
        npy_intp dims[PF_MAX_RANK];
        for (int32_t j = 0; j < t->rank; j++) dims[j] = (npy_intp)t->dims[j];
        PyObject *array = descr ? PyArray_NewFromDescr(&PyArray_Type, descr, t->rank, dims, NULL, p->data[i],
                                                       NPY_ARRAY_WRITEABLE, NULL)
                                : NULL;
        if (array) {
            Py_INCREF((PyObject *)self);
            PyArray_SetBaseObject((PyArrayObject *)array, (PyObject *)self);
        }
        if (array && t->lod_levels) {
            PyObject *levels = PyTuple_GetItem(PyTuple_GetItem(slots, (Py_ssize_t)i), 2);
            PyObject *whole = PyObject_CallFunctionObjArgs(lod_tensor_wrap, array, levels, NULL);
            Py_DECREF(array);
            array = whole;
        }
        if (!array || PyTuple_SetItem(all, (Py_ssize_t)i, array) < 0) Py_CLEAR(all);
    }
    return all;
}

/* reserve(slots, timeout): returns the arguments of commit and abandon, and the arrays */
static PyObject *ring_reserve(ring *self, PyObject *args) {
    PyObject *slots, *timeout, *arrays = NULL;
    waiter w;
    plan p;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &slots, &timeout) || waiter_parse(&w, timeout) < 0)
        return NULL;
    if (plan_read(&p, slots) < 0) {
        plan_drop(&p);
        return NULL;
    }
    pfw_error err;
    pfw_reservation reservation = {0, 0};
    pf_status status = pfw_reserve(self->producer, p.tensors, p.count, &no_wait, &reservation, p.data, &err);
    if (status == PF_TIMEOUT) {
        waiter_begin(&w, self->producer);
        status = pfw_reserve(self->producer, p.tensors, p.count, &w.wait, &reservation, p.data, &err);
        waiter_end(&w);
    }
    if (status)
        none_or_ring_error(status, &err);
    else if (!(arrays = arrays_over(self, &p, slots)))
        pfw_abandon(self->producer, &reservation);
    plan_drop(&p);
    return arrays ? Py_BuildValue("(KI)N", (unsigned long long)reservation.state, reservation.cell, arrays)
                  : NULL;
}

static int reservation_parse(pfw_reservation *reservation, PyObject *args) {
    unsigned long long state;
    unsigned int index;
    if (!PyArg_ParseTuple(args, "KI", &state, &index)) return -1;
    *reservation = (pfw_reservation){state, index};
    return 0;
}

/* commit(state, index) and abandon(state, index) */
static PyObject *ring_commit(ring *self, PyObject *args) {
    pfw_reservation reservation;
    pfw_error err;
    return reservation_parse(&reservation, args) < 0
               ? NULL
               : none_or_ring_error(pfw_commit(self->producer, &reservation, &err), &err);
}

static PyObject *ring_abandon(ring *self, PyObject *args) {
    pfw_reservation reservation;
    if (reservation_parse(&reservation, args) < 0) return NULL;
    pfw_abandon(self->producer, &reservation);
    Py_RETURN_NONE;
}

/* _seal(array): makes the array read-only */
static PyObject *seal(PyObject *Py_UNUSED(module), PyObject *array) {
    if (PyArray_Check(array)) PyArray_CLEARFLAGS((PyArrayObject *)array, NPY_ARRAY_WRITEABLE);
    Py_RETURN_NONE;
}

/* slots(): (dtype or None, shape, LoD levels) of each slot */
static PyObject *ring_slots(ring *self, PyObject *Py_UNUSED(unused)) {
    uint32_t n = pfw_num_slots(self->producer);
    PyObject *all = PyTuple_New((Py_ssize_t)n);
    for (uint32_t i = 0; all && i < n; i++) {
        pf_slot_spec spec;
        int64_t dims[PF_MAX_RANK];
        pfw_slot_spec(self->producer, i, &spec, dims);
        if (spec.dtype && pf_dtype_size(spec.dtype) == 0) {
            raise_named("CorruptRingError", (Py_ssize_t)i, "slot %u: the ring was overwritten: its dtype", i);
            Py_CLEAR(all);
            break;
        }
        PyObject *shape = PyTuple_New(spec.rank);
        for (int32_t j = 0; shape && j < spec.rank; j++)
            PyTuple_SetItem(shape, j, PyLong_FromLongLong(dims[j]));
        PyObject *one =
            shape ? Py_BuildValue("(zNI)", pf_dtype_name(spec.dtype), shape, spec.lod_levels) : NULL;
        if (!one || PyTuple_SetItem(all, (Py_ssize_t)i, one) < 0) Py_CLEAR(all);
    }
    return all;
}

static PyObject *ring_pass_id(ring *self, void *Py_UNUSED(unused)) {
    uint64_t pass = pfw_pass(self->producer);
    if (pass == PF_PASS_NONE) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(pass);
}
static PyObject *ring_identity(ring *self, void *Py_UNUSED(unused)) {
    return PyBytes_FromStringAndSize((const char *)pfw_identity(self->producer), 16);
}
static PyObject *ring_cell_bytes(ring *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(pfw_cell_bytes(self->producer));
}
static PyObject *ring_ring_cells(ring *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLong(pfw_ring_cells(self->producer));
}

static PyMethodDef ring_methods[] = {
    {"attach", (PyCFunction)ring_attach, METH_O, NULL},
    {"attach_next", (PyCFunction)ring_attach_next, METH_O, NULL},
    {"attached", (PyCFunction)ring_attached, METH_NOARGS, NULL},
    {"set_number", (PyCFunction)ring_set_number, METH_O, NULL},
    {"end", (PyCFunction)ring_end, METH_NOARGS, NULL},
    {"fail", (PyCFunction)ring_fail, METH_VARARGS, NULL},
    {"push", (PyCFunction)ring_push, METH_VARARGS, NULL},
    {"take", (PyCFunction)ring_take, METH_O, NULL},
    {"complete", (PyCFunction)ring_complete, METH_VARARGS, NULL},
    {"fail_task", (PyCFunction)ring_fail_task, METH_VARARGS, NULL},
    {"reserve", (PyCFunction)ring_reserve, METH_VARARGS, NULL},
    {"commit", (PyCFunction)ring_commit, METH_VARARGS, NULL},
    {"abandon", (PyCFunction)ring_abandon, METH_VARARGS, NULL},
    {"slots", (PyCFunction)ring_slots, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef ring_getset[] = {
    {"pass_id", (getter)ring_pass_id, NULL, NULL, NULL},
    {"identity", (getter)ring_identity, NULL, NULL, NULL},
    {"cell_bytes", (getter)ring_cell_bytes, NULL, NULL, NULL},
    {"ring_cells", (getter)ring_ring_cells, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot ring_type_slots[] = {
    {Py_tp_dealloc, ring_dealloc},
    {Py_tp_methods, ring_methods},
    {Py_tp_getset, ring_getset},
    {Py_tp_doc, "The ring of a SharedFeedQueue, mapped into memory."},
    {0, NULL},
};
static PyType_Spec ring_spec = {"pyfeed_worker._native.Ring", sizeof(ring), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, ring_type_slots};

static PyMethodDef methods[] = {
    {"open", ring_open, METH_O, NULL},
    {"_seal", seal, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *attribute_of(const char *module, const char *name) {
    PyObject *m = PyImport_ImportModule(module);
    PyObject *value = m ? PyObject_GetAttrString(m, name) : NULL;
    Py_XDECREF(m);
    return value;
}

/* As in python/native/module.c. */
static int initialise(PyObject *module) {
    static PyObject *first;
    if (interpreter_check() < 0) return -1;
    if (first) return PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(first));
    if (PyArray_ImportNumPyAPI() < 0 || lock_init() != 0) return -1;
    pthread_atfork(NULL, NULL, reset_after_fork);
    errors = attribute_of("pyfeed_worker.errors", "__dict__");
    PyObject *tensor = attribute_of("pyfeed_worker._lod", "LoDTensor");
    lod_tensor_wrap = tensor ? PyObject_GetAttrString(tensor, "_wrap") : NULL;
    Py_XDECREF(tensor);
    ring_type = (PyTypeObject *)PyType_FromSpec(&ring_spec);
    task_type = (PyTypeObject *)PyType_FromSpec(&task_spec);
    if (!errors || !lod_tensor_wrap || !ring_type || !task_type || PyModule_AddType(module, ring_type) < 0 ||
        PyModule_AddType(module, task_type) < 0 || arrays_init() < 0 ||
        PyModule_AddStringConstant(module, "__version__", pf_version()) < 0)
        return -1;
    first = Py_NewRef(module);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, initialise},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "pyfeed_worker._native",
    "The workers' side of the ring of a SharedFeedQueue.",
    0,
    methods,
    slots,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
