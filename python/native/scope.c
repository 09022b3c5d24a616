/* _native.Scope: variables by name, and the operators. */
#include "docs.h"
#include "native.h"

static PyTypeObject *scope_type;

typedef struct {
    PyObject ob_base;
    pf_handle handle;
} scope;

static PyObject *made(PyTypeObject *class, pf_status status, pf_handle handle, pf_error *err) {
    if (status) return raise_error(status, err);
    allocfunc make = PyType_GetSlot(class, Py_tp_alloc);
    scope *self = (scope *)make(class, 0);
    if (self)
        self->handle = handle;
    else
        pf_release(handle, NULL);
    return (PyObject *)self;
}

/* Scope._new(parent's handle or 0), Scope._global() */
static PyObject *scope_new(PyObject *class, PyObject *args) {
    unsigned long long parent;
    if (!PyArg_ParseTuple(args, "K", &parent)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_scope_new(parent, &handle, &err);
    return made((PyTypeObject *)class, status, handle, &err);
}

static PyObject *scope_global(PyObject *class, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_scope_global(&handle, &err);
    return made((PyTypeObject *)class, status, handle, &err);
}

static void scope_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    pf_release(((scope *)self)->handle, NULL);
    freefunc release = PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *answer(pf_status status, pf_error *err) {
    if (status == PF_OK) Py_RETURN_NONE;
    if (PyErr_Occurred()) {
        pf_error_release(err);
        return NULL;
    }
    return raise_error(status, err);
}

/* A handle of the variable, made if `make`. The caller releases it. */
static int variable(scope *self, const char *name, int make, pf_handle *var) {
    pf_error err = PF_ERROR_INIT;
    pf_status status = (make ? pf_scope_var : pf_scope_find)(self->handle, name, var, &err);
    if (status) raise_error(status, &err);
    return status ? -1 : 0;
}

/* _with_var(name, make, function): function's answer to the variable's handle */
static PyObject *scope_with_var(scope *self, PyObject *args) {
    const char *name;
    int make;
    PyObject *function;
    pf_handle var;
    if (!PyArg_ParseTuple(args, "spO", &name, &make, &function) || variable(self, name, make, &var) < 0)
        return NULL;
    PyObject *out = PyObject_CallFunction(function, "K", var);
    pf_release(var, NULL);
    return out;
}

static PyObject *scope_erase(scope *self, PyObject *args) {
    const char *name;
    if (!PyArg_ParseTuple(args, "s:erase", &name)) return NULL;
    pf_error err = PF_ERROR_INIT;
    return answer(pf_scope_erase(self->handle, name, &err), &err);
}

static PyObject *scope_kind(scope *self, PyObject *args) {
    static const char *const kinds[] = {"empty", "tensor", "queue", "reader"};
    const char *name;
    pf_handle var;
    if (!PyArg_ParseTuple(args, "s:kind", &name) || variable(self, name, 0, &var) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    int32_t kind;
    pf_status status = pf_var_kind(var, &kind, &err);
    pf_release(var, NULL);
    return status ? raise_error(status, &err) : PyUnicode_FromString(kinds[kind]);
}

static PyObject *scope_get_tensor(scope *self, PyObject *args) {
    const char *name;
    pf_handle var;
    if (!PyArg_ParseTuple(args, "s:get_tensor", &name) || variable(self, name, 0, &var) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_tuple tuple = PF_TUPLE_INIT;
    pf_status status = pf_var_get_tensor(var, &tuple, &err);
    pf_release(var, NULL);
    if (status) return raise_error(status, &err);
    PyObject *one = tuple_give(&tuple, 0), *tensor = NULL;
    if (one) {
        tensor = PyTuple_GetItem(one, 0);
        Py_XINCREF(tensor);
        Py_DECREF(one);
    }
    return tensor;
}

static PyObject *scope_set_tensor(scope *self, PyObject *args) {
    const char *name;
    PyObject *array;
    pf_handle var;
    incoming in;
    if (!PyArg_ParseTuple(args, "sO:set_tensor", &name, &array)) return NULL;
    PyObject *one = PyTuple_Pack(1, array);
    int read = one ? incoming_read(&in, one) : -1;
    Py_XDECREF(one);
    if (read < 0) return NULL;
    if (variable(self, name, 1, &var) < 0) {
        incoming_drop(&in);
        return NULL;
    }
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_var_set_tensor(var, in.tensors, &err);
    Py_END_ALLOW_THREADS incoming_drop(&in);
    pf_release(var, NULL);
    return answer(status, &err);
}

static PyObject *scope_create_py_array_reader(scope *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"out", "feeder_name", NULL};
    const char *out, *feeder;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss:create_py_array_reader", names, &out, &feeder))
        return NULL;
    pf_error err = PF_ERROR_INIT;
    return answer(pf_create_py_array_reader(self->handle, out, feeder, &err), &err);
}

static PyObject *scope_create_batch_reader(scope *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"out", "reader", "batch_size", "drop_last", NULL};
    const char *out, *in;
    long long size;
    int drop_last = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssL|p:create_batch_reader", names, &out, &in, &size,
                                     &drop_last))
        return NULL;
    if (size < 1)
        return raise_named("InvalidArgument", -1, "batch_size: expected at least 1 tuple, found %lld", size);
    pf_error err = PF_ERROR_INIT;
    return answer(pf_create_batch_reader(self->handle, out, in, (uint64_t)size, (uint8_t)drop_last, &err),
                  &err);
}

enum { MOST_OUTS = 1024 };

static PyObject *scope_read(scope *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"reader", "outs", "timeout", NULL};
    const char *in, *outs[MOST_OUTS];
    PyObject *list, *timeout = NULL;
    waiting w;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO|O:read", names, &in, &list, &timeout) ||
        waiting_parse(&w, timeout) < 0)
        return NULL;
    PyObject *all = PySequence_Tuple(list);
    if (!all) return NULL;
    Py_ssize_t n = PyTuple_Size(all);
    if (n > MOST_OUTS)
        raise_named("SlotCountError", -1, "read: expected at most %d outputs, found %zd", MOST_OUTS, n);
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++)
        outs[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(all, i), NULL);
    if (PyErr_Occurred()) {
        Py_DECREF(all);
        return NULL;
    }
    pf_error err = PF_ERROR_INIT;
    waiting_begin(&w);
    pf_status status = pf_read(self->handle, in, outs, (uint32_t)n, &w.wait, &err);
    waiting_end(&w);
    Py_DECREF(all);
    return answer(status, &err);
}

static PyObject *scope_handle(scope *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(self->handle);
}

static PyMethodDef methods[] = {
    {"_new", (PyCFunction)scope_new, METH_VARARGS | METH_CLASS, NULL},
    {"_global", (PyCFunction)scope_global, METH_NOARGS | METH_CLASS, NULL},
    {"_with_var", (PyCFunction)scope_with_var, METH_VARARGS, NULL},
    {"erase", (PyCFunction)scope_erase, METH_VARARGS, ERASE_DOC},
    {"kind", (PyCFunction)scope_kind, METH_VARARGS, KIND_DOC},
    {"get_tensor", (PyCFunction)scope_get_tensor, METH_VARARGS, GET_TENSOR_DOC},
    {"set_tensor", (PyCFunction)scope_set_tensor, METH_VARARGS, SET_TENSOR_DOC},
    {"create_py_array_reader", (PyCFunction)(void *)scope_create_py_array_reader,
     METH_VARARGS | METH_KEYWORDS, CREATE_PY_ARRAY_READER_DOC},
    {"create_batch_reader", (PyCFunction)(void *)scope_create_batch_reader, METH_VARARGS | METH_KEYWORDS,
     CREATE_BATCH_READER_DOC},
    {"read", (PyCFunction)(void *)scope_read, METH_VARARGS | METH_KEYWORDS, SCOPE_READ_DOC},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"handle", (getter)scope_handle, NULL, "The number by which the C API knows it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, scope_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "The part of pyfeed.Scope that is written in C."},
    {0, NULL},
};
static PyType_Spec spec = {"pyfeed._native.Scope", sizeof(scope), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

int scope_init(PyObject *module) { return add_type(module, &spec, &scope_type); }
