/* _native.Queue and _native.Reservation. */
#include <string.h>

#include "docs.h"
#include "native.h"

static PyTypeObject *queue_type, *reservation_type;

/* The description of a slot. */
typedef struct {
    pf_slot_spec slot; /* its dtype may still be open */
    int64_t dims[PF_MAX_RANK];
} spec;

typedef struct {
    PyObject ob_base;
    pf_handle handle;
    uint32_t num_slots;
    spec *specs; /* of all slots; NULL before spec_of */
    kept failure;
    PyObject *structure; /* of its tuples; NULL: tuples of arrays */
    PyObject *by_name;   /* a structure by the names of the slots, once a dict was pushed */
} queue;

typedef struct {
    PyObject ob_base;
    queue *queue;
    int entered;
    pf_tuple tuple;   /* reserved, until committed */
    PyObject *arrays; /* the arrays over the tuple */
    waiting wait;
    uint64_t pass;
    /* The tensors to reserve, without data. */
    uint32_t count;
    pf_tensor *tensors;
    int64_t (*dims)[PF_MAX_RANK];
    pf_lod_level (*lod)[PF_MAX_LOD_LEVELS];
    PyObject *levels; /* owns the offsets that lod points to */
} reservation;

static const char *const timeout_only[] = {"timeout"};

static int queue_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((queue *)self)->structure);
    return kept_traverse(&((queue *)self)->failure, visit, arg);
}

static int queue_clear(PyObject *self) {
    kept_drop(&((queue *)self)->failure);
    return 0;
}

static void queue_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    kept_drop(&((queue *)self)->failure);
    PyMem_Free(((queue *)self)->specs);
    Py_XDECREF(((queue *)self)->structure);
    Py_XDECREF(((queue *)self)->by_name);
    pf_release(((queue *)self)->handle, NULL);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

PyObject *queue_wrap(PyObject *class, pf_handle handle) {
    allocfunc make = PyType_GetSlot((PyTypeObject *)class, Py_tp_alloc);
    queue *self = (queue *)make((PyTypeObject *)class, 0);
    if (!self) {
        pf_release(handle, NULL);
        return NULL;
    }
    self->handle = handle;
    pf_queue_info info = PF_QUEUE_INFO_INIT;
    if (pf_queue_stats(handle, &info, NULL) == PF_OK) self->num_slots = info.num_slots;
    return (PyObject *)self;
}

/* Queue._of(variable's handle): a new object for the queue of the variable */
static PyObject *queue_of(PyObject *class, PyObject *args) {
    unsigned long long var;
    if (!PyArg_ParseTuple(args, "K", &var)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_var_get_queue(var, &handle, &err);
    return status ? raise_error(status, &err) : queue_wrap(class, handle);
}

/* _producer(): a new object for the queue, which only pushes and does not keep the queue open */
static PyObject *queue_producer(queue *self, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_producer_create(self->handle, &handle, &err);
    if (status) return raise_error(status, &err);
    queue *producer = (queue *)queue_wrap((PyObject *)Py_TYPE((PyObject *)self), handle);
    if (producer) producer->structure = field_get((PyObject *)self, &self->structure);
    return (PyObject *)producer;
}

/* _set_structure(structure): the structure of the tuples that are pushed and popped */
static PyObject *queue_set_structure(queue *self, PyObject *structure) {
    field_set((PyObject *)self, &self->structure, structure == Py_None ? NULL : structure);
    Py_RETURN_NONE;
}

static PyObject *queue_structure(queue *self, void *Py_UNUSED(unused)) {
    PyObject *structure = field_get((PyObject *)self, &self->structure);
    return structure ? structure : Py_NewRef(Py_None);
}

void slot_specs_drop(slot_specs *s) {
    PyMem_Free(s->slots);
    PyMem_Free(s->dims);
}

int slot_specs_read(slot_specs *s, PyObject *slots) {
    size_t n = (size_t)PyTuple_Size(slots);
    *s = (slot_specs){(uint32_t)n, PyMem_Calloc(n + 1, sizeof *s->slots),
                      PyMem_Calloc(n + 1, sizeof *s->dims)};
    if (!s->slots || !s->dims) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        pf_slot_spec *spec = &s->slots[i];
        PyObject *dtype, *shape;
        int levels;
        const char *name;
        if (!PyArg_ParseTuple(PyTuple_GetItem(slots, (Py_ssize_t)i), "OO!is", &dtype, &PyTuple_Type, &shape,
                              &levels, &name))
            return -1;
        *spec = (pf_slot_spec)PF_SLOT_SPEC_INIT;
        spec->name = *name ? name : NULL; /* borrowed from the tuple */
        if ((spec->dtype = dtype_parse(dtype)) < 0) return -1;
        spec->rank = (int32_t)PyTuple_Size(shape);
        spec->lod_levels = (uint32_t)levels;
        spec->dims = s->dims[i];
        for (int32_t j = 0; j < spec->rank && j < PF_MAX_RANK; j++)
            s->dims[i][j] = PyLong_AsLongLong(PyTuple_GetItem(shape, j));
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* init_once(cls, handle, capacity, slots, bytes_limit, restartable, place): slots are tuples of (dtype, dims,
 * lod_levels, name) */
static PyObject *queue_init_once(PyObject *class, PyObject *args) {
    unsigned long long var;
    long long capacity, bytes_limit;
    PyObject *slots;
    int restartable, place, device;
    if (!PyArg_ParseTuple(args, "KLO!Lp(ii)", &var, &capacity, &PyTuple_Type, &slots, &bytes_limit,
                          &restartable, &place, &device))
        return NULL;
    if (capacity < 0 || bytes_limit < 0)
        return raise_named("InvalidArgument", -1, "%s: expected at least %d, found %lld",
                           capacity < 0 ? "capacity" : "bytes_limit", capacity < 0,
                           capacity < 0 ? capacity : bytes_limit);
    slot_specs specs;
    PyObject *self = NULL;
    if (slot_specs_read(&specs, slots) < 0) goto done;
    pf_queue_options options = PF_QUEUE_OPTIONS_INIT;
    options.num_slots = specs.count;
    options.slots = specs.slots;
    options.capacity = (uint64_t)capacity;
    options.bytes_limit = (uint64_t)bytes_limit;
    options.place = (pf_place){place, device};
    options.restartable = (uint8_t)restartable;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_queue_init_once(var, &options, &handle, &err);
    if (status) {
        raise_error(status, &err);
        goto done;
    }
    self = queue_wrap(class, handle);
done:
    slot_specs_drop(&specs);
    return self;
}

/* The arguments of push, except the first. */
typedef struct {
    int copy;
    PyObject *timeout;
    uint64_t pass;
} push_options;

static int push_parse(push_options *o, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"arrays", "copy", "timeout", "pass_id"};
    static const signature push = {"PyArrayFeedQueue.push", names, 4, 1, 1, 1};
    PyObject *values[4];
    *o = (push_options){1, NULL, PF_PASS_CURRENT};
    if (arguments_bind(&push, args, count, keywords, values) < 0) return -1;
    o->timeout = values[2];
    return argument_flag("copy", values[1], &o->copy) < 0 || argument_pass("pass_id", values[3], &o->pass) < 0
               ? -1
               : 0;
}

/* Larger tuples are handed over without the GIL. The push wakes a blocked consumer, which needs the GIL. If the GIL is
 * free by then, the consumer need not block a second time. This pays for tuples that take longer to make, mostly
 * without the GIL, than to switch threads. Of smaller tuples, the consumer gets several after one wait. */
enum { GIL_RELEASE_BYTES = 256 << 10 };

/* Tries first without a wait and with the GIL, because taking the GIL again is slow. */
static pf_status push_copied(queue *self, incoming *in, const push_options *o, waiting *w, pf_error *err) {
    uint32_t n = (uint32_t)in->count;
    if (in->bytes <= SMALL_COPY_BYTES &&
        pf_queue_push(self->handle, in->tensors, n, o->pass, &no_wait, NULL) == PF_OK)
        return PF_OK;
    w->kind = WAITS_FOR_ROOM;
    waiting_begin(w);
    pf_status status = pf_queue_push(self->handle, in->tensors, n, o->pass, &w->wait, err);
    waiting_end(w);
    return status;
}

static pf_status push_lent(queue *self, incoming *in, const push_options *o, waiting *w, pf_error *err) {
    uint32_t n = (uint32_t)in->count;
    lent *l = lent_take(in);
    if (!l) return PF_NO_MEMORY;
    if (in->bytes <= GIL_RELEASE_BYTES &&
        pf_queue_push_lent(self->handle, in->tensors, n, o->pass, lent_return, l, &no_wait, NULL) == PF_OK)
        return PF_OK;
    w->kind = WAITS_FOR_ROOM;
    waiting_begin(w);
    pf_status status =
        pf_queue_push_lent(self->handle, in->tensors, n, o->pass, lent_return, l, &w->wait, err);
    waiting_end(w);
    if (status) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        lent_cancel(l);
        PyErr_Restore(type, value, traceback);
    }
    return status;
}

static int spec_of(queue *self, uint32_t i, spec *out);

static slot_kind kind_of_slot(void *queue_, Py_ssize_t slot) {
    queue *self = queue_;
    spec s;
    int known = slot < self->num_slots && spec_of(self, (uint32_t)slot, &s) == 0;
    PyErr_Clear();
    return known ? (slot_kind){s.slot.dtype, s.slot.lod_levels} : (slot_kind){PF_DTYPE_ANY, 0};
}

/* Returns a new reference to the structure of a dict whose keys are the names of the slots. Returns NULL, maybe with an
 * exception set, if some slots have no name, or the same. */
static PyObject *structure_by_name(queue *self) {
    PyObject *known = field_get((PyObject *)self, &self->by_name);
    if (known) return known;
    PyObject *names = PyTuple_New(self->num_slots);
    for (uint32_t i = 0; names && i < self->num_slots; i++) {
        spec s;
        PyObject *name = spec_of(self, i, &s) == 0 && s.slot.name ? PyUnicode_FromString(s.slot.name) : NULL;
        if (!name || PyTuple_SetItem(names, i, name) < 0) Py_CLEAR(names);
    }
    PyObject *structure = names ? structure_of_names(names) : NULL;
    Py_XDECREF(names);
    if (structure && PyDict_Size(structure) == self->num_slots)
        field_set((PyObject *)self, &self->by_name, structure);
    else
        Py_CLEAR(structure);
    return structure;
}

static int read_tuple(queue *self, incoming *in, PyObject *arrays) {
    PyObject *structure = field_get((PyObject *)self, &self->structure);
    if (!structure && structure_is_mapping(arrays)) structure = structure_by_name(self);
    int r = PyErr_Occurred() ? -1 : incoming_read(in, arrays, &(expected){structure, kind_of_slot, self});
    Py_XDECREF(structure);
    return r;
}

static PyObject *queue_push(queue *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    push_options o;
    waiting w;
    incoming in;
    lent_drain();
    if (push_parse(&o, args, count, keywords) < 0 || waiting_parse(&w, o.timeout) < 0 ||
        read_tuple(self, &in, args[0]) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status = (o.copy ? push_copied : push_lent)(self, &in, &o, &w, &err);
    incoming_drop(&in);
    return none_or_error(status, &err);
}

static PyObject *queue_pop(queue *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature pop = {"PyArrayFeedQueue.pop", timeout_only, 1, 1, 0, 0};
    PyObject *timeout;
    waiting w;
    if (arguments_bind(&pop, args, count, keywords, &timeout) < 0) return NULL;
    pf_tuple tuple = tuple_begin();
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_queue_pop(self->handle, &no_wait, &tuple, &err);
    if (status == PF_TIMEOUT) { /* other errors are final: a second call would not return them again */
        pf_error_release(&err);
        if (waiting_parse(&w, timeout) < 0) return NULL;
        w.kind = WAITS_FOR_CALL;
        w.reader = (PyObject *)self;
        waiting_begin(&w);
        status = pf_queue_pop(self->handle, &w.wait, &tuple, &err);
        waiting_end(&w);
    }
    return status == PF_OK
               ? structure_of_tuple(field_get((PyObject *)self, &self->structure), tuple_to_python(&tuple, 1))
               : none_or_error(status, &err);
}

static PyObject *queue_close(queue *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"pass_id"};
    static const signature close = {"PyArrayFeedQueue.close", names, 1, 1, 0, 0};
    PyObject *pass_id;
    uint64_t pass = PF_PASS_CURRENT;
    if (arguments_bind(&close, args, count, keywords, &pass_id) < 0 ||
        argument_pass("pass_id", pass_id, &pass) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_queue_close(self->handle, pass, &err), &err);
}

/* _fail(exception, type, message, traceback, pass_id, reader_owned=False): with reader_owned, the reader that raises
 * the exception becomes its owner; until then the queue owns it */
static PyObject *queue_fail(queue *self, PyObject *args) {
    PyObject *exception, *pass_id;
    pf_failure failure = PF_FAILURE_INIT;
    uint64_t pass = PF_PASS_CURRENT;
    int reader_owned = 0;
    if (!PyArg_ParseTuple(args, "O!sssO|p", PyExc_BaseException, &exception, &failure.type, &failure.message,
                          &failure.traceback, &pass_id, &reader_owned) ||
        argument_pass("pass_id", pass_id, &pass) < 0)
        return NULL;
    failure.token = kept_new_token();
    pf_error err = PF_ERROR_INIT;
    kept fresh = {0}; /* a consumer may look for it before pf_queue_fail returns */
    kept_set(&fresh, exception, failure.token, reader_owned);
    pf_status status = pf_queue_fail(self->handle, pass, &failure, &err);
    if (status == PF_OK)
        kept_move(&self->failure, &fresh);
    else
        kept_drop(&fresh);
    return none_or_error(status, &err);
}

static PyObject *queue_reopen(queue *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                              PyObject *keywords) {
    if (arguments_none("PyArrayFeedQueue.reopen", count, keywords) < 0) return NULL;
    uint64_t pass, dropped;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_queue_reopen(self->handle, &pass, &dropped, &err);
    if (status) return raise_error(status, &err);
    return PyLong_FromUnsignedLongLong(dropped);
}

static PyObject *queue_wait_pass(queue *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"after", "timeout"};
    static const signature wait_pass = {"PyArrayFeedQueue.wait_pass", names, 2, 2, 0, 1};
    PyObject *values[2];
    uint64_t after = PF_PASS_NONE;
    waiting w;
    if (arguments_bind(&wait_pass, args, count, keywords, values) < 0 ||
        argument_pass("after", values[0], &after) < 0 || waiting_parse(&w, values[1]) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    uint64_t pass;
    w.kind = WAITS_FOR_CALL;
    waiting_begin(&w);
    pf_status status = pf_queue_wait_pass(self->handle, after, &w.wait, &pass, &err);
    waiting_end(&w);
    if (status) return none_or_error(status, &err);
    return PyLong_FromUnsignedLongLong(pass);
}

/* _get_start(pass_id): tuples of the pass that the consumer has had before */
static PyObject *queue_get_start(queue *self, PyObject *args) {
    unsigned long long pass;
    uint64_t start;
    if (!PyArg_ParseTuple(args, "K", &pass)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_queue_get_start(self->handle, pass, &start, &err);
    if (status) return raise_error(status, &err);
    return PyLong_FromUnsignedLongLong(start);
}

/* _set_start(pass_id, start) */
static PyObject *queue_set_start(queue *self, PyObject *args) {
    unsigned long long pass, start;
    if (!PyArg_ParseTuple(args, "KK", &pass, &start)) return NULL;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_queue_set_start(self->handle, pass, start, &err), &err);
}

static PyObject *queue_shutdown(queue *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                                PyObject *keywords) {
    if (arguments_none("PyArrayFeedQueue.shutdown", count, keywords) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_queue_shutdown(self->handle, &err), &err);
}

static PyObject *queue_stats(queue *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                             PyObject *keywords) {
    if (arguments_none("PyArrayFeedQueue.stats", count, keywords) < 0) return NULL;
    pf_queue_info i = PF_QUEUE_INFO_INIT;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_queue_stats(self->handle, &i, &err);
    if (status) return raise_error(status, &err);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:N,s:N,s:N,s:N,s:N,s:I,s:I,s:K,s:K,s:K,s:K,s:d,s:d}", "size",
                         i.num_tuples, "capacity", i.capacity, "reserved", i.reserved_tuples, "bytes",
                         i.bytes, "bytes_limit", i.bytes_limit, "pass_id", pass_object(i.pass), "closed",
                         PyBool_FromLong(i.closed), "failed", PyBool_FromLong(i.failed), "shut_down",
                         PyBool_FromLong(i.shut_down), "restartable", PyBool_FromLong(i.restartable),
                         "waiting_producers", i.waiting_producers, "waiting_consumers", i.waiting_consumers,
                         "pushed", i.pushed, "popped", i.popped, "dropped", i.dropped, "pushed_bytes",
                         i.pushed_bytes, "producers_waited", (double)i.producers_waited_ns / 1e9,
                         "consumers_waited", (double)i.consumers_waited_ns / 1e9);
}

/* Gets the description of slot i. It does not change once its dtype is decided. Returns -1 with an exception set. */
static int spec_of(queue *self, uint32_t i, spec *out) {
    pf_error err = PF_ERROR_INIT;
    pf_status status = PF_NO_MEMORY;
    LOCK_OBJECT((PyObject *)self);
    if (!self->specs) self->specs = PyMem_Calloc(self->num_slots, sizeof *self->specs);
    spec *s = self->specs ? &self->specs[i] : NULL;
    if (s && s->slot.dtype != PF_DTYPE_ANY && !forked) {
        status = PF_OK;
    } else if (s) {
        s->slot = (pf_slot_spec)PF_SLOT_SPEC_INIT;
        status = pf_queue_slot(self->handle, i, &s->slot, s->dims, &err);
    }
    if (status == PF_OK) {
        *out = *s;
        out->slot.dims = out->dims;
    }
    UNLOCK_OBJECT();
    if (status) raise_error(status, &err);
    return status ? -1 : 0;
}

static PyObject *queue_slots(queue *self, PyObject *Py_UNUSED(unused)) {
    PyObject *all = PyTuple_New(self->num_slots);
    for (uint32_t i = 0; all && i < self->num_slots; i++) {
        spec s;
        PyObject *shape = spec_of(self, i, &s) == 0 ? PyTuple_New(s.slot.rank) : NULL;
        for (int32_t j = 0; shape && j < s.slot.rank; j++)
            PyTuple_SetItem(shape, j, PyLong_FromLongLong(s.dims[j]));
        PyObject *one =
            shape ? Py_BuildValue("(zNI)", pf_dtype_name(s.slot.dtype), shape, s.slot.lod_levels) : NULL;
        if (!one || PyTuple_SetItem(all, i, one) < 0) Py_CLEAR(all);
    }
    return all;
}

static PyObject *queue_handle(queue *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(self->handle);
}

/* ---- Reservations: tuples written in place ---- */

static int dtype_unknown(uint32_t i) {
    raise_named(
        "InvalidArgument", (Py_ssize_t)i,
        "slot %u: its dtype is not known before the first push: give the queue's dtypes when it is made", i);
    return -1;
}

/* Describes every slot as the queue has it, with `rows` for a first dimension of -1. */
static int describe_rows(reservation *s, PyObject *rows) {
    int64_t n = -1;
    if (rows != Py_None && argument_integer("rows", rows, 0, &n) < 0) return -1;
    for (; s->count < s->queue->num_slots; s->count++) {
        uint32_t i = s->count;
        spec of;
        if (spec_of(s->queue, i, &of) < 0) return -1;
        if (of.slot.dtype == PF_DTYPE_ANY) return dtype_unknown(i);
        memcpy(s->dims[i], of.dims, sizeof s->dims[i]);
        s->tensors[i] = (pf_tensor)PF_TENSOR_INIT;
        s->tensors[i].dtype = of.slot.dtype;
        s->tensors[i].rank = of.slot.rank;
        s->tensors[i].dims = s->dims[i];
        if (of.slot.rank > 0 && s->dims[i][0] == -1 && rows == Py_None) {
            raise_named("InvalidArgument", (Py_ssize_t)i,
                        "slot %u: rows: expected a number for its first dimension of -1, found None", i);
            return -1;
        }
        if (of.slot.rank > 0 && s->dims[i][0] == -1) s->dims[i][0] = n;
    }
    return 0;
}

/* Describes every slot as _reserved_slots returned it: (dtype, shape, LoD). */
static int describe(reservation *s) {
    for (; s->count < s->queue->num_slots; s->count++) {
        uint32_t i = s->count;
        PyObject *dtype, *shape, *levels;
        if (!PyArg_ParseTuple(PyTuple_GetItem(s->levels, i), "OO!O!", &dtype, &PyTuple_Type, &shape,
                              &PyTuple_Type, &levels))
            return -1;
        if (dtype == Py_None) return dtype_unknown(i);
        pf_tensor *t = &s->tensors[i];
        *t = (pf_tensor)PF_TENSOR_INIT;
        if ((t->dtype = dtype_parse(dtype)) < 0) return -1;
        t->rank = (int32_t)PyTuple_Size(shape);
        t->dims = s->dims[i];
        for (int32_t j = 0; j < t->rank && j < PF_MAX_RANK; j++)
            s->dims[i][j] = PyLong_AsLongLong(PyTuple_GetItem(shape, j));
        if (PyErr_Occurred()) return -1;
        t->lod_levels = (uint32_t)PyTuple_Size(levels);
        for (uint32_t j = 0; j < t->lod_levels && j < PF_MAX_LOD_LEVELS; j++) {
            PyArrayObject *level = (PyArrayObject *)PyTuple_GetItem(levels, j); /* checked by offsets_of */
            s->lod[i][j] = (pf_lod_level){PyArray_DATA(level), (uint64_t)PyArray_DIM(level, 0)};
        }
        if (s->lod) t->lod = s->lod[i];
    }
    return 0;
}

/* reserve(rows=None, *, shapes=None, lod=None, timeout=None, pass_id=None) */
static PyObject *queue_reserve(queue *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"rows", "shapes", "lod", "timeout", "pass_id"};
    static const signature signature_of_reserve = {"PyArrayFeedQueue.reserve", names, 5, 1, 0, 0};
    PyObject *values[5];
    uint64_t pass = PF_PASS_CURRENT;
    waiting w;
    if (arguments_bind(&signature_of_reserve, args, count, keywords, values) < 0 ||
        argument_pass("pass_id", values[4], &pass) < 0 || waiting_parse(&w, values[3]) < 0)
        return NULL;
    PyObject *rows = values[0] ? values[0] : Py_None, *shapes = values[1] ? values[1] : Py_None;
    PyObject *lod = values[2] ? values[2] : Py_None;
    reservation *s = PyObject_New(reservation, reservation_type);
    if (!s) return NULL;
    Py_INCREF((PyObject *)self);
    s->queue = self;
    s->entered = 0;
    s->tuple = (pf_tuple)PF_TUPLE_INIT;
    s->arrays = NULL;
    s->wait = w;
    s->pass = pass;
    s->count = 0;
    s->levels = NULL;
    s->tensors = PyMem_Calloc(self->num_slots, sizeof *s->tensors);
    s->dims = PyMem_Calloc(self->num_slots, sizeof *s->dims);
    s->lod = lod == Py_None ? NULL : PyMem_Calloc(self->num_slots, sizeof *s->lod);
    int failed = 0;
    if (!s->tensors || !s->dims || (lod != Py_None && !s->lod)) {
        PyErr_NoMemory();
        failed = 1;
    } else if (shapes == Py_None && lod == Py_None) {
        failed = describe_rows(s, rows) < 0;
    } else {
        /* The other cases are rare and simpler in Python. */
        s->levels = PyObject_CallMethod((PyObject *)self, "_reserved_slots", "OOO", rows, shapes, lod);
        failed = !s->levels || describe(s) < 0;
    }
    if (failed) Py_CLEAR(s);
    return (PyObject *)s;
}

static void reservation_dealloc(PyObject *self) {
    reservation *s = (reservation *)self;
    PyTypeObject *type = Py_TYPE(self);
    pf_tuple_release(&s->tuple);
    Py_XDECREF(s->arrays);
    Py_XDECREF(s->levels);
    PyMem_Free(s->tensors);
    PyMem_Free(s->dims);
    PyMem_Free(s->lod);
    Py_DECREF((PyObject *)s->queue);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *reservation_enter(reservation *s, PyObject *Py_UNUSED(unused)) {
    int entered;
    LOCK_OBJECT((PyObject *)s);
    entered = s->entered;
    s->entered = 1;
    UNLOCK_OBJECT();
    if (entered)
        return raise_named("StateError", -1,
                           "reservation: it was entered already: make a new one with queue.reserve()");
    pf_error err = PF_ERROR_INIT;
    pf_tuple tuple = PF_TUPLE_INIT, shared = PF_TUPLE_INIT;
    pf_status status =
        pf_queue_reserve(s->queue->handle, s->tensors, s->count, s->pass, &no_wait, &tuple, NULL);
    if (status) {
        s->wait.kind = WAITS_FOR_ROOM;
        waiting_begin(&s->wait);
        status =
            pf_queue_reserve(s->queue->handle, s->tensors, s->count, s->pass, &s->wait.wait, &tuple, &err);
        waiting_end(&s->wait);
    }
    /* The arrays may outlive the commit, so they own a loan of their own. */
    if (status == PF_OK) status = pf_tuple_share(&tuple, &shared, &err);
    if (status) {
        pf_tuple_release(&tuple);
        LOCK_OBJECT((PyObject *)s);
        s->entered = 0; /* after a timeout it may be entered again */
        UNLOCK_OBJECT();
        return none_or_error(status, &err);
    }
    PyObject *arrays = tuple_to_python(&shared, 1);
    LOCK_OBJECT((PyObject *)s);
    s->tuple = tuple;
    s->arrays = Py_XNewRef(arrays);
    UNLOCK_OBJECT();
    return arrays;
}

/* Makes the arrays read-only: from the commit on the consumer owns the memory. */
static void seal(PyObject *arrays) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(arrays); i++) {
        PyObject *a = PyTuple_GetItem(arrays, i);
        PyObject *data = PyArray_Check(a) ? Py_NewRef(a) : PyObject_GetAttrString(a, "data");
        if (data && PyArray_Check(data)) PyArray_CLEARFLAGS((PyArrayObject *)data, NPY_ARRAY_WRITEABLE);
        Py_XDECREF(data);
    }
    PyErr_Clear();
}

static pf_status commit(pf_tuple *tuple, pf_error *err) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tuple->num_slots; i++) bytes += tuple->slots[i].nbytes;
    if (bytes <= GIL_RELEASE_BYTES) return pf_queue_commit(tuple, err);
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_queue_commit(tuple, err);
    Py_END_ALLOW_THREADS return status;
}

static PyObject *reservation_exit(reservation *s, PyObject *const *args, Py_ssize_t count) {
    if (count != 3) {
        PyErr_Format(PyExc_TypeError, "__exit__() takes 3 arguments, but %zd were given", count);
        return NULL;
    }
    pf_tuple tuple; /* taken, in case another thread leaves the same reservation */
    PyObject *arrays;
    LOCK_OBJECT((PyObject *)s);
    tuple = s->tuple;
    arrays = s->arrays;
    s->tuple = (pf_tuple)PF_TUPLE_INIT;
    s->arrays = NULL;
    UNLOCK_OBJECT();
    if (arrays) seal(arrays);
    Py_XDECREF(arrays);
    if (!tuple.loan) Py_RETURN_FALSE;
    pf_error err = PF_ERROR_INIT;
    pf_status status = args[0] == Py_None ? commit(&tuple, &err) : PF_OK;
    pf_tuple_release(&tuple); /* does nothing if the queue has taken the tuple */
    if (status) return raise_error(status, &err);
    Py_RETURN_FALSE;
}

static PyMethodDef reservation_methods[] = {
    {"__enter__", (PyCFunction)reservation_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void *)reservation_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot reservation_slots[] = {
    {Py_tp_dealloc, reservation_dealloc},
    {Py_tp_methods, reservation_methods},
    {Py_tp_doc, "A tuple of a queue that is written in place: a context manager, used once."},
    {0, NULL},
};
static PyType_Spec reservation_spec = {"pyfeed._native.Reservation", sizeof(reservation), 0,
                                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                       reservation_slots};

static PyMethodDef queue_methods[] = {
    {"_init_once", (PyCFunction)queue_init_once, METH_VARARGS | METH_CLASS, NULL},
    {"_of", (PyCFunction)queue_of, METH_VARARGS | METH_CLASS, NULL},
    {"_producer", (PyCFunction)queue_producer, METH_NOARGS, NULL},
    {"_set_structure", (PyCFunction)queue_set_structure, METH_O, NULL},
    {"push", (PyCFunction)(void *)queue_push, METH_FASTCALL | METH_KEYWORDS, PUSH_DOC},
    {"pop", (PyCFunction)(void *)queue_pop, METH_FASTCALL | METH_KEYWORDS, POP_DOC},
    {"reserve", (PyCFunction)(void *)queue_reserve, METH_FASTCALL | METH_KEYWORDS, RESERVE_DOC},
    {"close", (PyCFunction)(void *)queue_close, METH_FASTCALL | METH_KEYWORDS, CLOSE_DOC},
    {"_fail", (PyCFunction)queue_fail, METH_VARARGS, NULL},
    {"reopen", (PyCFunction)(void *)queue_reopen, METH_FASTCALL | METH_KEYWORDS, REOPEN_DOC},
    {"_get_start", (PyCFunction)queue_get_start, METH_VARARGS, NULL},
    {"_set_start", (PyCFunction)queue_set_start, METH_VARARGS, NULL},
    {"wait_pass", (PyCFunction)(void *)queue_wait_pass, METH_FASTCALL | METH_KEYWORDS, WAIT_PASS_DOC},
    {"shutdown", (PyCFunction)(void *)queue_shutdown, METH_FASTCALL | METH_KEYWORDS, SHUTDOWN_DOC},
    {"stats", (PyCFunction)(void *)queue_stats, METH_FASTCALL | METH_KEYWORDS, STATS_DOC},
    {"_slots", (PyCFunction)queue_slots, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef queue_getset[] = {
    {"_structure", (getter)queue_structure, NULL, NULL, NULL},
    {"handle", (getter)queue_handle, NULL, "The handle of the object in the C API.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot queue_type_slots[] = {
    {Py_tp_dealloc, queue_dealloc},
    {Py_tp_traverse, queue_traverse},
    {Py_tp_clear, queue_clear},
    {Py_tp_methods, queue_methods},
    {Py_tp_getset, queue_getset},
    {Py_tp_doc, "The part of pyfeed.PyArrayFeedQueue that is written in C."},
    {0, NULL},
};
static PyType_Spec queue_spec = {
    "pyfeed._native.Queue", sizeof(queue), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    queue_type_slots};

int queue_init(PyObject *module) {
    return add_type(module, &queue_spec, &queue_type) ||
                   add_type(module, &reservation_spec, &reservation_type)
               ? -1
               : 0;
}
