/* _native.Reader. */
#include "reader.h"

#include <time.h>

#include "docs.h"

static PyTypeObject *reader_type;

/* Reader._of(variable's handle, direct=False) */
static PyObject *reader_of(PyObject *class, PyObject *args) {
    unsigned long long var;
    int direct = 0;
    if (!PyArg_ParseTuple(args, "K|p", &var, &direct)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_var_get_reader(var, &handle, &err);
    if (status) return raise_error(status, &err);
    allocfunc make = PyType_GetSlot((PyTypeObject *)class, Py_tp_alloc);
    reader *self = (reader *)make((PyTypeObject *)class, 0);
    if (self) {
        self->handle = handle;
        self->direct = direct;
    } else {
        pf_release(handle, NULL);
    }
    return (PyObject *)self;
}

static int reader_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((reader *)self)->structure);
    return kept_traverse(&((reader *)self)->failure, visit, arg);
}

static int reader_clear(PyObject *self) {
    kept_drop(&((reader *)self)->failure);
    return 0;
}

static void reader_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    kept_drop(&((reader *)self)->failure);
    Py_XDECREF(((reader *)self)->structure);
    handle_release(((reader *)self)->handle);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *raise_closed(void) { return raise_named("StateError", -1, "the reader is closed"); }

int reader_enter(reader *self) {
    int closed;
    LOCK_OBJECT((PyObject *)self);
    closed = atomic_load(&self->closed);
    if (!closed) self->calls++;
    UNLOCK_OBJECT();
    if (closed) raise_closed();
    return closed ? -1 : 0;
}

void reader_leave(reader *self) {
    pf_handle handle = 0;
    LOCK_OBJECT((PyObject *)self);
    if (--self->calls == 0 && atomic_load(&self->closed)) {
        handle = self->handle;
        self->handle = 0;
    }
    UNLOCK_OBJECT();
    handle_release(handle);
}

PyObject *reader_raise(reader *self, pf_status status, pf_error *err) {
    if (!PyErr_Occurred()) {
        if (!atomic_load(&self->closed)) return raise_error_in(status, err, &self->failure);
        raise_closed();
    }
    pf_error_release(err);
    return NULL;
}

int reader_await_resets(reader *self) {
    const struct timespec moment = {0, 50000};
    while (atomic_load(&self->resets) > 0 && !forked) {
        Py_BEGIN_ALLOW_THREADS nanosleep(&moment, NULL);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return -1;
    }
    return 0;
}

/* Takes the arrays over. */
static PyObject *with_structure(reader *self, PyObject *arrays) {
    return structure_of_tuple(field_get((PyObject *)self, &self->structure), arrays);
}

PyObject *reader_next(reader *self, uint64_t loop, PyObject *timeout, int *end) {
    waiting w;
    *end = 0;
    if (waiting_parse(&w, timeout) < 0 || reader_enter(self) < 0) return NULL;
    pf_tuple tuple = tuple_begin();
    pf_error err = PF_ERROR_INIT;
    pf_status status = PF_TIMEOUT;
    if (self->direct) status = pf_reader_next_in_loop(self->handle, loop, &no_wait, &tuple, &err);
    if (status == PF_TIMEOUT) { /* other errors are final: a second call would not return them again */
        pf_error_release(&err);
        w.kind = WAITS_FOR_READ;
        w.reader = (PyObject *)self;
        w.closed = &self->closed;
        waiting_begin(&w);
        status = pf_reader_next_in_loop(self->handle, loop, &w.wait, &tuple, &err);
        waiting_end(&w);
    }
    reader_leave(self);
    if (status == PF_OK) return with_structure(self, tuple_to_python(&tuple, 1));
    if (status != PF_END || PyErr_Occurred()) return reader_raise(self, status, &err);
    *end = 1;
    pf_error_release(&err);
    return NULL;
}

static PyObject *reader_iternext(reader *self) {
    int end;
    return reader_next(self, 0, NULL, &end);
}

static const char *const timeout_only[] = {"timeout"};

static PyObject *reader_read(reader *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature read = {"Reader.read", timeout_only, 1, 1, 0, 0};
    PyObject *timeout;
    if (arguments_bind(&read, args, count, keywords, &timeout) < 0) return NULL;
    int end;
    PyObject *tuple = reader_next(self, 0, timeout, &end);
    if (end) return raise_named("EndOfData", -1, "the end of the data: this pass has no more tuples");
    return tuple;
}

static PyObject *reader_has_next(reader *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature has_next = {"Reader.has_next", timeout_only, 1, 1, 0, 0};
    PyObject *timeout;
    waiting w;
    if (arguments_bind(&has_next, args, count, keywords, &timeout) < 0 || waiting_parse(&w, timeout) < 0 ||
        reader_enter(self) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    uint8_t yes;
    w.kind = WAITS_FOR_READ;
    w.reader = (PyObject *)self;
    w.closed = &self->closed;
    waiting_begin(&w);
    pf_status status = pf_reader_has_next(self->handle, &w.wait, &yes, &err);
    waiting_end(&w);
    reader_leave(self);
    return status == PF_OK ? PyBool_FromLong(yes) : reader_raise(self, status, &err);
}

/* The loops over the pass before are over. */
static void new_generation(reader *self) {
    LOCK_OBJECT((PyObject *)self);
    self->generation++;
    self->loops = 0;
    UNLOCK_OBJECT();
}

static PyObject *reader_reset(reader *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                              PyObject *keywords) {
    if (arguments_none("Reader.reset", count, keywords) < 0 || reader_enter(self) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    atomic_fetch_add(&self->resets, 1); /* loops in other threads wait until the reset has ended */
    Py_BEGIN_ALLOW_THREADS status = pf_reader_reset(self->handle, &err);
    Py_END_ALLOW_THREADS if (status == PF_OK) new_generation(self);
    atomic_fetch_sub(&self->resets, 1);
    reader_leave(self);
    if (status != PF_OK) return reader_raise(self, status, &err); /* loops continue */
    kept_drop(&self->failure);
    Py_RETURN_NONE;
}

/* _close(): calls that wait in other threads end with an error */
static PyObject *reader_close(reader *self, PyObject *Py_UNUSED(unused)) {
    int closed;
    LOCK_OBJECT((PyObject *)self);
    closed = atomic_exchange(&self->closed, 1);
    if (!closed) self->calls++;
    UNLOCK_OBJECT();
    if (closed) Py_RETURN_NONE;
    new_generation(self);
    pf_poll_now(NULL);
    tuple_flush(); /* it may be of this reader */
    kept_drop(&self->failure);
    reader_leave(self);
    Py_RETURN_NONE;
}

/* _at(index): the record of that number */
static PyObject *reader_at(reader *self, PyObject *index) {
    long long number = PyLong_AsLongLong(index);
    if (number == -1 && PyErr_Occurred()) return NULL;
    if (reader_enter(self) < 0) return NULL;
    pf_tuple tuple = tuple_begin();
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_reader_at(self->handle, number, &tuple, &err);
    Py_END_ALLOW_THREADS reader_leave(self);
    return status == PF_OK ? with_structure(self, tuple_to_python(&tuple, 1))
                           : reader_raise(self, status, &err);
}

/* _stats(): a JSON object */
static PyObject *reader_stats(reader *self, PyObject *Py_UNUSED(unused)) {
    if (reader_enter(self) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    char *json;
    Py_BEGIN_ALLOW_THREADS status = pf_reader_stats(self->handle, &json, &err);
    Py_END_ALLOW_THREADS reader_leave(self);
    return status ? raise_error(status, &err) : take_text(json);
}

/* _get_state(): a JSON object */
static PyObject *reader_get_state(reader *self, PyObject *Py_UNUSED(unused)) {
    if (reader_enter(self) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    char *json;
    Py_BEGIN_ALLOW_THREADS status = pf_reader_get_state(self->handle, &json, &err);
    Py_END_ALLOW_THREADS reader_leave(self);
    return status ? raise_error(status, &err) : take_text(json);
}

/* _set_state(state, strict) */
static PyObject *reader_set_state(reader *self, PyObject *args) {
    const char *state;
    int strict;
    if (!PyArg_ParseTuple(args, "sp", &state, &strict) || reader_enter(self) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_reader_set_state(self->handle, state, (uint8_t)strict, &err);
    Py_END_ALLOW_THREADS reader_leave(self);
    return none_or_error(status, &err);
}

/* _workers(kinds, arguments, results): the workers of a map reader; for the rest see workers_wrap */
static PyObject *reader_workers(reader *self, PyObject *args) {
    PyObject *kinds, *arguments, *results;
    if (!PyArg_ParseTuple(args, "O!OO", &PyTuple_Type, &kinds, &arguments, &results)) return NULL;
    if (reader_enter(self) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle workers;
    pf_status status = pf_map_workers_create(self->handle, &workers, &err);
    reader_leave(self);
    return status ? raise_error(status, &err) : workers_wrap(workers, kinds, arguments, results);
}

static PyObject *reader_handle(reader *self, void *Py_UNUSED(unused)) {
    pf_handle handle;
    LOCK_OBJECT((PyObject *)self);
    handle = self->handle;
    UNLOCK_OBJECT();
    return PyLong_FromUnsignedLongLong(handle);
}

/* _set_structure(structure): the structure of all tuples, or None. To be called before the first read. */
static PyObject *reader_set_structure(reader *self, PyObject *structure) {
    field_set((PyObject *)self, &self->structure, structure == Py_None ? NULL : structure);
    Py_RETURN_NONE;
}

static PyObject *reader_structure(reader *self, void *Py_UNUSED(unused)) {
    PyObject *structure = field_get((PyObject *)self, &self->structure);
    return structure ? structure : Py_NewRef(Py_None);
}

static PyObject *reader_is_closed(reader *self, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(atomic_load(&self->closed));
}

static PyMethodDef methods[] = {
    {"_of", (PyCFunction)reader_of, METH_VARARGS | METH_CLASS, NULL},
    {"read", (PyCFunction)(void *)reader_read, METH_FASTCALL | METH_KEYWORDS, READ_DOC},
    {"has_next", (PyCFunction)(void *)reader_has_next, METH_FASTCALL | METH_KEYWORDS, HAS_NEXT_DOC},
    {"reset", (PyCFunction)(void *)reader_reset, METH_FASTCALL | METH_KEYWORDS, RESET_DOC},
    {"current_pass", (PyCFunction)(void *)loop_join, METH_FASTCALL | METH_KEYWORDS, CURRENT_PASS_DOC},
    {"_close", (PyCFunction)reader_close, METH_NOARGS, NULL},
    {"_at", (PyCFunction)reader_at, METH_O, NULL},
    {"_stats", (PyCFunction)reader_stats, METH_NOARGS, NULL},
    {"_get_state", (PyCFunction)reader_get_state, METH_NOARGS, NULL},
    {"_set_state", (PyCFunction)reader_set_state, METH_VARARGS, NULL},
    {"_set_structure", (PyCFunction)reader_set_structure, METH_O, NULL},
    {"_workers", (PyCFunction)reader_workers, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"handle", (getter)reader_handle, NULL, "The handle of the object in the C API.", NULL},
    {"_structure", (getter)reader_structure, NULL, NULL, NULL},
    {"closed", (getter)reader_is_closed, NULL, "Whether `close` was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_traverse, reader_traverse},
    {Py_tp_clear, reader_clear},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_iter, loop_begin},
    {Py_tp_iternext, reader_iternext},
    {Py_tp_doc, "The part of pyfeed.Reader that is written in C."},
    {0, NULL},
};
static PyType_Spec spec = {
    "pyfeed._native.Reader", sizeof(reader), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int reader_init(PyObject *module) {
    return add_type(module, &spec, &reader_type) < 0 ? -1 : loop_init(module);
}
