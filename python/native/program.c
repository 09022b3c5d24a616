/* _native.Program: a program that is built in Python and run by an executor. */
#include <string.h>

#include "native.h"

static PyTypeObject *program_type;

const char **program_names(PyObject *tuple) {
    Py_ssize_t n = PyTuple_Size(tuple);
    const char **names = PyMem_Calloc((size_t)n + 1, sizeof *names);
    if (!names) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t size;
        names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), &size);
        if (names[i] && strlen(names[i]) != (size_t)size)
            PyErr_SetString(PyExc_ValueError, "a variable's name: expected no zero byte, found one");
        if (PyErr_Occurred()) {
            PyMem_Free(names);
            return NULL;
        }
    }
    return names;
}

static PyObject *program_new(PyObject *class, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status = pf_program_create(&handle, &err);
    return owner_or_error(class, status, handle, &err);
}

/* Program._parse(data): data is bytes */
static PyObject *program_parse(PyObject *class, PyObject *args) {
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "y*", &data)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status =
        pf_program_parse(data.len ? data.buf : "", (uint64_t)data.len, &handle, &err);
    Py_END_ALLOW_THREADS PyBuffer_Release(&data);
    return owner_or_error(class, status, handle, &err);
}

static PyObject *program_load(PyObject *class, PyObject *args) {
    const char *path;
    if (!PyArg_ParseTuple(args, "y", &path)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_program_load(path, &handle, &err);
    Py_END_ALLOW_THREADS return owner_or_error(class, status, handle, &err);
}

static PyObject *program_clone(owner *self, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_program_clone(self->handle, &handle, &err);
    Py_END_ALLOW_THREADS return owner_or_error((PyObject *)Py_TYPE((PyObject *)self), status, handle, &err);
}

/* _add_block(parent): the index of the new block */
static PyObject *program_add_block(owner *self, PyObject *args) {
    unsigned int parent;
    uint32_t block;
    if (!PyArg_ParseTuple(args, "I", &parent)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_program_add_block(self->handle, parent, &block, &err);
    return status ? raise_error(status, &err) : PyLong_FromUnsignedLong(block);
}

/* _add_variable(block, variable), _add_op(block, op): variable and op are JSON */
static PyObject *program_add_variable(owner *self, PyObject *args) {
    unsigned int block;
    const char *variable;
    if (!PyArg_ParseTuple(args, "Is", &block, &variable)) return NULL;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_program_add_variable(self->handle, block, variable, &err), &err);
}

static PyObject *program_add_op(owner *self, PyObject *args) {
    unsigned int block;
    const char *op;
    if (!PyArg_ParseTuple(args, "Is", &block, &op)) return NULL;
    pf_error err = PF_ERROR_INIT;
    return none_or_error(pf_program_add_op(self->handle, block, op, &err), &err);
}

/* _variable(block, name): what is known about the variable, as JSON */
static PyObject *program_variable(owner *self, PyObject *args) {
    unsigned int block;
    const char *name;
    char *json;
    if (!PyArg_ParseTuple(args, "Is", &block, &name)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status = pf_program_get_variable(self->handle, block, name, &json, &err);
    return status ? raise_error(status, &err) : take_text(json);
}

/* _serialize(form): bytes */
static PyObject *program_serialize(owner *self, PyObject *args) {
    const char *form;
    char *data;
    uint64_t size;
    if (!PyArg_ParseTuple(args, "s", &form)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_program_serialize(self->handle, form, &data, &size, &err);
    Py_END_ALLOW_THREADS if (status) return raise_error(status, &err);
    PyObject *bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
    pf_string_release(data);
    return bytes;
}

static PyObject *program_save(owner *self, PyObject *args) {
    const char *path;
    if (!PyArg_ParseTuple(args, "y", &path)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_program_save(self->handle, path, &err);
    Py_END_ALLOW_THREADS return none_or_error(status, &err);
}

static PyMethodDef methods[] = {
    {"_new", (PyCFunction)program_new, METH_NOARGS | METH_CLASS, NULL},
    {"_parse", (PyCFunction)program_parse, METH_VARARGS | METH_CLASS, NULL},
    {"_load", (PyCFunction)program_load, METH_VARARGS | METH_CLASS, NULL},
    {"_clone", (PyCFunction)program_clone, METH_NOARGS, NULL},
    {"_add_block", (PyCFunction)program_add_block, METH_VARARGS, NULL},
    {"_add_variable", (PyCFunction)program_add_variable, METH_VARARGS, NULL},
    {"_add_op", (PyCFunction)program_add_op, METH_VARARGS, NULL},
    {"_variable", (PyCFunction)program_variable, METH_VARARGS, NULL},
    {"_serialize", (PyCFunction)program_serialize, METH_VARARGS, NULL},
    {"_save", (PyCFunction)program_save, METH_VARARGS, NULL},
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
    {Py_tp_doc, "The part of pyfeed.Program that is written in C."},
    {0, NULL},
};
static PyType_Spec spec = {"pyfeed._native.Program", sizeof(owner), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

int program_init(PyObject *module) { return add_type(module, &spec, &program_type); }
