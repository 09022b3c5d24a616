/* _native.Scope: variables by name, and the operators. */
#include "docs.h"
#include "native.h"

static PyTypeObject *scope_type;

typedef owner scope;

/* Scope._new(parent's handle or 0), Scope._global() */
static PyObject *scope_new(PyObject *class, PyObject *args) {
    unsigned long long parent;
    if (!PyArg_ParseTuple(args, "K", &parent)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_scope_new(parent, &handle, &err);
    return owner_made(class, status, handle, &err);
}

static PyObject *scope_global(PyObject *class, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_scope_global(&handle, &err);
    return owner_made(class, status, handle, &err);
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
    pf_status status; /* a reader that goes may have threads to end */
    Py_BEGIN_ALLOW_THREADS status = pf_scope_erase(self->handle, name, &err);
    Py_END_ALLOW_THREADS return answer(status, &err);
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

enum { MOST_NAMES = 1024 };

/* The names in a sequence, which they are borrowed from. Their number, or -1. */
static Py_ssize_t names_of(const char *what, PyObject *sequence, PyObject **all, const char **names) {
    *all = PySequence_Tuple(sequence);
    if (!*all) return -1;
    Py_ssize_t n = PyTuple_Size(*all);
    if (n > MOST_NAMES) raise_named("SlotCountError", -1, "%s, found %zd", what, n);
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++)
        names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(*all, i), NULL);
    if (!PyErr_Occurred()) return n;
    Py_CLEAR(*all);
    return -1;
}

/* _create_reader(op, out, ins, attributes): attributes are JSON. May look into a file, and wait for it. */
static PyObject *scope_create_reader(scope *self, PyObject *args) {
    const char *op, *out, *ins[MOST_NAMES], *attributes;
    PyObject *list, *all;
    waiting w;
    if (!PyArg_ParseTuple(args, "ssOs", &op, &out, &list, &attributes) || waiting_parse(&w, NULL) < 0)
        return NULL;
    Py_ssize_t n = names_of("inputs: expected at most 1024", list, &all, ins);
    if (n < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    waiting_begin(&w);
    pf_status status =
        pf_create_reader_waiting(self->handle, op, out, ins, (uint32_t)n, attributes, &w.wait, &err);
    waiting_end(&w);
    Py_DECREF(all);
    return answer(status, &err);
}

static PyObject *scope_read(scope *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"reader", "outs", "timeout", NULL};
    const char *in, *outs[MOST_NAMES];
    PyObject *list, *all, *timeout = NULL;
    waiting w;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sO|O:read", names, &in, &list, &timeout) ||
        waiting_parse(&w, timeout) < 0)
        return NULL;
    Py_ssize_t n = names_of("read: expected at most 1024 outputs", list, &all, outs);
    if (n < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    waiting_begin(&w);
    pf_status status = pf_read(self->handle, in, outs, (uint32_t)n, &w.wait, &err);
    waiting_end(&w);
    Py_DECREF(all);
    return answer(status, &err);
}

static PyMethodDef methods[] = {
    {"_new", (PyCFunction)scope_new, METH_VARARGS | METH_CLASS, NULL},
    {"_global", (PyCFunction)scope_global, METH_NOARGS | METH_CLASS, NULL},
    {"_with_var", (PyCFunction)scope_with_var, METH_VARARGS, NULL},
    {"erase", (PyCFunction)scope_erase, METH_VARARGS, ERASE_DOC},
    {"kind", (PyCFunction)scope_kind, METH_VARARGS, KIND_DOC},
    {"get_tensor", (PyCFunction)scope_get_tensor, METH_VARARGS, GET_TENSOR_DOC},
    {"set_tensor", (PyCFunction)scope_set_tensor, METH_VARARGS, SET_TENSOR_DOC},
    {"_create_reader", (PyCFunction)scope_create_reader, METH_VARARGS, NULL},
    {"read", (PyCFunction)(void *)scope_read, METH_VARARGS | METH_KEYWORDS, SCOPE_READ_DOC},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"handle", (getter)owner_handle, NULL, "The number by which the C API knows it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, owner_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "The part of pyfeed.Scope that is written in C."},
    {0, NULL},
};
static PyType_Spec spec = {"pyfeed._native.Scope", sizeof(scope), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

int scope_init(PyObject *module) { return add_type(module, &spec, &scope_type); }
