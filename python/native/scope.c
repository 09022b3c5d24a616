/* _native.Scope: variables by name, and operators on them. */
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
    pf_status status = pf_scope_create(parent, &handle, &err);
    return owner_or_error(class, status, handle, &err);
}

static PyObject *scope_global(PyObject *class, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_scope_global(&handle, &err);
    return owner_or_error(class, status, handle, &err);
}

/* Gets a handle of a variable, which is made if `make` is set. The caller releases the handle. */
static int variable(scope *self, const char *name, int make, pf_handle *var) {
    pf_error err = PF_ERROR_INIT;
    pf_status status = (make ? pf_scope_var : pf_scope_find)(self->handle, name, var, &err);
    if (status) raise_error(status, &err);
    return status ? -1 : 0;
}

/* Parses `name`, the only argument of several methods. */
static int variable_name(const char *function, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                         const char **name) {
    static const char *const names[] = {"name"};
    PyObject *value;
    if (arguments_bind(&(signature){function, names, 1, 1, 1, 1}, args, count, keywords, &value) < 0)
        return -1;
    return argument_text("name", value, name);
}

/* _with_var(name, make, function): the result of the function, called with the handle of the variable */
static PyObject *scope_with_var(scope *self, PyObject *args) {
    const char *name;
    int make;
    PyObject *text, *function;
    pf_handle var;
    if (!PyArg_ParseTuple(args, "OpO", &text, &make, &function) || argument_text("name", text, &name) < 0 ||
        variable(self, name, make, &var) < 0)
        return NULL;
    PyObject *out = PyObject_CallFunction(function, "K", var);
    pf_release(var, NULL);
    return out;
}

static PyObject *scope_erase(scope *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    const char *name;
    if (variable_name("Scope.erase", args, count, keywords, &name) < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status; /* dropping a reader may join threads */
    Py_BEGIN_ALLOW_THREADS status = pf_scope_erase(self->handle, name, &err);
    Py_END_ALLOW_THREADS return none_or_error(status, &err);
}

static PyObject *scope_kind(scope *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const kinds[] = {"empty", "tensor", "queue", "reader"};
    const char *name;
    pf_handle var;
    if (variable_name("Scope.kind", args, count, keywords, &name) < 0 || variable(self, name, 0, &var) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    int32_t kind;
    pf_status status = pf_var_kind(var, &kind, &err);
    pf_release(var, NULL);
    return status ? raise_error(status, &err) : PyUnicode_FromString(kinds[kind]);
}

static PyObject *scope_get_tensor(scope *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    const char *name;
    pf_handle var;
    if (variable_name("Scope.get_tensor", args, count, keywords, &name) < 0 ||
        variable(self, name, 0, &var) < 0)
        return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_tuple tuple = PF_TUPLE_INIT;
    pf_status status = pf_var_get_tensor(var, &tuple, &err);
    pf_release(var, NULL);
    if (status) return raise_error(status, &err);
    PyObject *one = tuple_to_python(&tuple, 0), *tensor = NULL;
    if (one) {
        tensor = PyTuple_GetItem(one, 0);
        Py_XINCREF(tensor);
        Py_DECREF(one);
    }
    return tensor;
}

static PyObject *scope_set_tensor(scope *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"name", "array"};
    static const signature set_tensor = {"Scope.set_tensor", names, 2, 2, 2, 2};
    PyObject *values[2];
    const char *name;
    pf_handle var;
    incoming in;
    if (arguments_bind(&set_tensor, args, count, keywords, values) < 0 ||
        argument_text("name", values[0], &name) < 0)
        return NULL;
    PyObject *one = PyTuple_Pack(1, values[1]);
    int read = one ? incoming_read(&in, one, NULL) : -1;
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
    return none_or_error(status, &err);
}

enum { MOST_NAMES = 1024 };

/* Stores the names in a sequence, borrowed from it, and returns their number, or -1 with an exception set. */
static Py_ssize_t names_of(const char *argument, const char *what, PyObject *sequence, PyObject **all,
                           const char **names) {
    *all = argument_names(argument, sequence);
    if (!*all) return -1;
    Py_ssize_t n = PyTuple_Size(*all);
    if (n > MOST_NAMES) raise_named("SlotCountError", -1, "%s, found %zd", what, n);
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++)
        argument_text(argument, PyTuple_GetItem(*all, i), &names[i]);
    if (!PyErr_Occurred()) return n;
    Py_CLEAR(*all);
    return -1;
}

/* _create_reader(op, out, ins, attributes): attributes are JSON. May read a file, and wait for it. */
static PyObject *scope_create_reader(scope *self, PyObject *args) {
    const char *op, *out, *ins[MOST_NAMES], *attributes;
    PyObject *name, *list, *all;
    waiting w;
    if (!PyArg_ParseTuple(args, "sOOs", &op, &name, &list, &attributes) ||
        argument_text("name", name, &out) < 0 || waiting_parse(&w, NULL) < 0)
        return NULL;
    Py_ssize_t n = names_of("inputs", "inputs: expected at most 1024", list, &all, ins);
    if (n < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    waiting_begin(&w);
    pf_status status = pf_reader_create(self->handle, op, out, ins, (uint32_t)n, attributes, &w.wait, &err);
    waiting_end(&w);
    Py_DECREF(all);
    return none_or_error(status, &err);
}

static PyObject *scope_read(scope *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"reader", "outs", "timeout"};
    static const signature read = {"Scope.read", names, 3, 3, 0, 2};
    const char *in, *outs[MOST_NAMES];
    PyObject *values[3], *all;
    waiting w;
    if (arguments_bind(&read, args, count, keywords, values) < 0 ||
        argument_text("reader", values[0], &in) < 0 || waiting_parse(&w, values[2]) < 0)
        return NULL;
    Py_ssize_t n = names_of("outs", "read: expected at most 1024 outputs", values[1], &all, outs);
    if (n < 0) return NULL;
    pf_error err = PF_ERROR_INIT;
    waiting_begin(&w);
    pf_status status = pf_scope_read(self->handle, in, outs, (uint32_t)n, &w.wait, &err);
    waiting_end(&w);
    Py_DECREF(all);
    return none_or_error(status, &err);
}

static PyMethodDef methods[] = {
    {"_new", (PyCFunction)scope_new, METH_VARARGS | METH_CLASS, NULL},
    {"_global", (PyCFunction)scope_global, METH_NOARGS | METH_CLASS, NULL},
    {"_with_var", (PyCFunction)scope_with_var, METH_VARARGS, NULL},
    {"erase", (PyCFunction)(void *)scope_erase, METH_FASTCALL | METH_KEYWORDS, ERASE_DOC},
    {"kind", (PyCFunction)(void *)scope_kind, METH_FASTCALL | METH_KEYWORDS, KIND_DOC},
    {"get_tensor", (PyCFunction)(void *)scope_get_tensor, METH_FASTCALL | METH_KEYWORDS, GET_TENSOR_DOC},
    {"set_tensor", (PyCFunction)(void *)scope_set_tensor, METH_FASTCALL | METH_KEYWORDS, SET_TENSOR_DOC},
    {"_create_reader", (PyCFunction)scope_create_reader, METH_VARARGS, NULL},
    {"read", (PyCFunction)(void *)scope_read, METH_FASTCALL | METH_KEYWORDS, SCOPE_READ_DOC},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef getset[] = {
    {"handle", (getter)owner_handle, NULL, "The handle of the object in the C API.", NULL},
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
