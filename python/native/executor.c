/* _native.Executor and _native.CancelToken. */
#include "docs.h"
#include "native.h"

static PyTypeObject *executor_type, *token_type;

typedef struct {
    owner owner;
    kept failure; /* an exception of a run that no other object owns */
} executor;

/* Executor._new(kind, device) */
static PyObject *executor_new(PyObject *class, PyObject *args) {
    pf_place place;
    if (!PyArg_ParseTuple(args, "ii", &place.kind, &place.device)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_executor_create(place, &handle, &err);
    Py_END_ALLOW_THREADS return owner_or_error(class, status, handle, &err);
}

static int executor_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return kept_traverse(&((executor *)self)->failure, visit, arg);
}

static int executor_clear(PyObject *self) {
    kept_drop(&((executor *)self)->failure);
    return 0;
}

static void executor_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    kept_drop(&((executor *)self)->failure);
    owner_dealloc(self);
}

/* Adds a note to an exception about a feed that names the variable. The exception has only its index, as the slot. */
static void note_feed(PyObject *names) {
    PyObject *type, *e, *traceback;
    PyErr_Fetch(&type, &e, &traceback);
    PyErr_NormalizeException(&type, &e, &traceback);
    PyObject *slot = e ? PyObject_GetAttrString(e, "slot") : NULL;
    Py_ssize_t i = slot && PyLong_Check(slot) ? PyLong_AsSsize_t(slot) : -1;
    Py_XDECREF(slot);
    PyErr_Clear();
    if (i >= 0 && i < PyTuple_Size(names)) {
        PyObject *note = PyUnicode_FromFormat("slot %zd is what is fed to %R", i, PyTuple_GetItem(names, i));
        PyObject *none = note ? PyObject_CallMethod(e, "add_note", "O", note) : NULL;
        Py_XDECREF(none);
        Py_XDECREF(note);
        PyErr_Clear();
    }
    PyErr_Restore(type, e, traceback);
}

/* _run(program, scope, names to feed, arrays, names to fetch, timeout, cancel): program, scope and cancel are handles
 */
static PyObject *executor_run(executor *self, PyObject *args) {
    unsigned long long program, scope, cancel;
    PyObject *feed, *arrays, *fetch, *timeout;
    waiting w;
    incoming in;
    kept failure = {0};
    if (!PyArg_ParseTuple(args, "KKO!O!O!OK", &program, &scope, &PyTuple_Type, &feed, &PyTuple_Type, &arrays,
                          &PyTuple_Type, &fetch, &timeout, &cancel) ||
        waiting_parse(&w, timeout) < 0)
        return NULL;
    if (incoming_read(&in, arrays, NULL) < 0) {
        note_feed(feed);
        return NULL;
    }
    PyObject *out = NULL;
    const char **feed_names = program_names(feed), **fetch_names = feed_names ? program_names(fetch) : NULL;
    if (!fetch_names || PyTuple_Size(feed) != in.count) {
        incoming_drop(&in);
        goto done;
    }
    w.wait.cancel = cancel;
    w.failure = &failure;
    pf_error err = PF_ERROR_INIT;
    pf_tuple fetched = PF_TUPLE_INIT;
    waiting_begin(&w);
    pf_status status =
        pf_executor_run(self->owner.handle, program, scope, feed_names, in.tensors, (uint32_t)in.count,
                        fetch_names, (uint32_t)PyTuple_Size(fetch), &w.wait, &fetched, &err);
    waiting_end(&w);
    incoming_drop(&in);
    if (status == PF_OK) {
        kept_drop(&self->failure);
        out = tuple_to_python(&fetched, 0);
    } else if (PyErr_Occurred()) { /* a signal handler raised */
        pf_error_release(&err);
    } else {
        raise_error_in(status, &err, &self->failure);
    }
    PyObject *type, *value, *traceback; /* drops may run Python code */
    PyErr_Fetch(&type, &value, &traceback);
    kept_drop(&failure);
    kernels_drain();
    PyErr_Restore(type, value, traceback);
done:
    PyMem_Free(feed_names);
    PyMem_Free(fetch_names);
    return out;
}

static PyMethodDef executor_methods[] = {
    {"_new", (PyCFunction)executor_new, METH_VARARGS | METH_CLASS, NULL},
    {"_run", (PyCFunction)executor_run, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef executor_getset[] = {
    {"handle", (getter)owner_handle, NULL, "The handle of the object in the C API.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot executor_slots[] = {
    {Py_tp_dealloc, executor_dealloc},
    {Py_tp_traverse, executor_traverse},
    {Py_tp_clear, executor_clear},
    {Py_tp_methods, executor_methods},
    {Py_tp_getset, executor_getset},
    {Py_tp_doc, "The part of pyfeed.Executor that is written in C."},
    {0, NULL},
};
static PyType_Spec executor_spec = {
    "pyfeed._native.Executor", sizeof(executor), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    executor_slots};

/* ---- Cancel tokens ---- */

typedef struct {
    owner owner;
    atomic_int cancelled;
} token;

static PyObject *token_new(PyTypeObject *class, PyObject *args, PyObject *kwargs) {
    PyObject *keywords = kwargs ? PySequence_Tuple(kwargs) : NULL;
    int none = PyErr_Occurred() ? -1 : arguments_none("CancelToken", PyTuple_Size(args), keywords);
    Py_XDECREF(keywords);
    if (none < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_cancel_token_create(&handle, &err);
    return owner_or_error((PyObject *)class, status, handle, &err);
}

static PyObject *token_cancel(token *self, PyObject *const *Py_UNUSED(args), Py_ssize_t count,
                              PyObject *keywords) {
    if (arguments_none("CancelToken.cancel", count, keywords) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    atomic_store(&self->cancelled, 1);
    return none_or_error(pf_cancel_token_cancel(self->owner.handle, &err), &err);
}

static PyObject *token_cancelled(token *self, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(atomic_load(&self->cancelled));
}

static PyMethodDef token_methods[] = {
    {"cancel", (PyCFunction)(void *)token_cancel, METH_FASTCALL | METH_KEYWORDS, CANCEL_DOC},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef token_getset[] = {
    {"handle", (getter)owner_handle, NULL, "The handle of the object in the C API.", NULL},
    {"cancelled", (getter)token_cancelled, NULL, "Whether `cancel` was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot token_slots[] = {
    {Py_tp_new, token_new},       {Py_tp_dealloc, owner_dealloc}, {Py_tp_methods, token_methods},
    {Py_tp_getset, token_getset}, {Py_tp_doc, CANCEL_TOKEN_DOC},  {0, NULL},
};
static PyType_Spec token_spec = {"pyfeed.program.CancelToken", sizeof(token), 0, Py_TPFLAGS_DEFAULT,
                                 token_slots};

int executor_init(PyObject *module) {
    return add_type(module, &executor_spec, &executor_type) || add_type(module, &token_spec, &token_type) ? -1
                                                                                                          : 0;
}
