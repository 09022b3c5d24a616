/* _native.Reader. */
#include "docs.h"
#include "native.h"

static PyTypeObject *reader_type;

typedef struct {
    PyObject ob_base;
    pf_handle handle;
    kept failure;
    int direct; /* hands on what is there, by reference: worth a try without letting go of the GIL */
} reader;

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
    Py_VISIT(((reader *)self)->failure.exception);
    Py_VISIT(((reader *)self)->failure.traceback);
    return 0;
}

static int reader_clear(PyObject *self) {
    kept_drop(&((reader *)self)->failure);
    return 0;
}

static void reader_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    kept_drop(&((reader *)self)->failure);
    handle_release(((reader *)self)->handle);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

/* Raises what a call in the reader answered, unless something is raised already. */
static PyObject *raise(reader *self, pf_status status, pf_error *err) {
    if (!PyErr_Occurred()) return raise_error_in(status, err, &self->failure);
    pf_error_release(err);
    return NULL;
}

/* The next tuple; NULL and *end at the end of the pass, NULL and an exception otherwise. */
static PyObject *next(reader *self, PyObject *timeout, int *end) {
    waiting w;
    pf_wait no_wait = PF_WAIT_INIT;
    no_wait.timeout_ns = 0;
    *end = 0;
    if (waiting_parse(&w, timeout) < 0) return NULL;
    pf_tuple tuple = tuple_begin();
    pf_error err = PF_ERROR_INIT;
    pf_status status = PF_TIMEOUT;
    if (self->direct) status = pf_reader_next(self->handle, &no_wait, &tuple, &err);
    if (status == PF_TIMEOUT) { /* any other error may have cost a tuple, and would not come again */
        pf_error_release(&err);
        waiting_begin(&w);
        status = pf_reader_next(self->handle, &w.wait, &tuple, &err);
        waiting_end(&w);
    }
    if (status == PF_OK) return tuple_give(&tuple, 1);
    if (status != PF_END || PyErr_Occurred()) return raise(self, status, &err);
    *end = 1;
    pf_error_release(&err);
    return NULL;
}

static PyObject *reader_iternext(reader *self) {
    int end;
    return next(self, NULL, &end);
}

static const char *const timeout_only[] = {"timeout"};

static PyObject *reader_read(reader *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature read = {"Reader.read", timeout_only, 1, 1, 0, 0};
    PyObject *timeout;
    if (arguments_bind(&read, args, count, keywords, &timeout) < 0) return NULL;
    int end;
    PyObject *tuple = next(self, timeout, &end);
    if (end) return raise_named("EndOfData", -1, "the end of the data: this pass has no more tuples");
    return tuple;
}

static PyObject *reader_has_next(reader *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature has_next = {"Reader.has_next", timeout_only, 1, 1, 0, 0};
    PyObject *timeout;
    waiting w;
    if (arguments_bind(&has_next, args, count, keywords, &timeout) < 0 || waiting_parse(&w, timeout) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    uint8_t yes;
    waiting_begin(&w);
    pf_status status = pf_reader_has_next(self->handle, &w.wait, &yes, &err);
    waiting_end(&w);
    return status == PF_OK ? PyBool_FromLong(yes) : raise(self, status, &err);
}

static PyObject *reader_reset(reader *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                              PyObject *keywords) {
    if (arguments_none("Reader.reset", count, keywords) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_reader_reset(self->handle, &err);
    Py_END_ALLOW_THREADS if (status == PF_OK) kept_drop(&self->failure);
    return status == PF_OK ? Py_NewRef(Py_None) : raise(self, status, &err);
}

/* _stats(): JSON */
static PyObject *reader_stats(reader *self, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    char *json;
    Py_BEGIN_ALLOW_THREADS status = pf_reader_stats(self->handle, &json, &err);
    Py_END_ALLOW_THREADS return status ? raise_error(status, &err) : text_give(json);
}

/* _workers(): of a map reader */
static PyObject *reader_workers(reader *self, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_handle workers;
    pf_status status = pf_map_workers_create(self->handle, &workers, &err);
    return status ? raise_error(status, &err) : workers_over(workers);
}

static PyObject *reader_handle(reader *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(self->handle);
}

static PyMethodDef methods[] = {
    {"_of", (PyCFunction)reader_of, METH_VARARGS | METH_CLASS, NULL},
    {"read", (PyCFunction)(void *)reader_read, METH_FASTCALL | METH_KEYWORDS, READ_DOC},
    {"has_next", (PyCFunction)(void *)reader_has_next, METH_FASTCALL | METH_KEYWORDS, HAS_NEXT_DOC},
    {"reset", (PyCFunction)(void *)reader_reset, METH_FASTCALL | METH_KEYWORDS, RESET_DOC},
    {"_stats", (PyCFunction)reader_stats, METH_NOARGS, NULL},
    {"_workers", (PyCFunction)reader_workers, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"handle", (getter)reader_handle, NULL, "The number by which the C API knows it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_traverse, reader_traverse},
    {Py_tp_clear, reader_clear},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, reader_iternext},
    {Py_tp_doc, "The part of pyfeed.Reader that is written in C."},
    {0, NULL},
};
static PyType_Spec spec = {
    "pyfeed._native.Reader", sizeof(reader), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int reader_init(PyObject *module) { return add_type(module, &spec, &reader_type); }
