/* _native.Trace. */
#include "native.h"

static PyTypeObject *trace_type;

/* Trace._start(max_events) */
static PyObject *trace_start(PyObject *class, PyObject *args) {
    unsigned long long max_events;
    if (!PyArg_ParseTuple(args, "K", &max_events)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_handle handle;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_trace_start(max_events, &handle, &err);
    Py_END_ALLOW_THREADS return owner_or_error(class, status, handle, &err);
}

static PyObject *trace_stop(owner *self, PyObject *Py_UNUSED(unused)) {
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_trace_stop(self->handle, &err);
    Py_END_ALLOW_THREADS return none_or_error(status, &err);
}

/* _text(form) */
static PyObject *trace_text(owner *self, PyObject *args) {
    const char *form;
    char *text;
    if (!PyArg_ParseTuple(args, "s", &form)) return NULL;
    pf_error err = PF_ERROR_INIT;
    pf_status status;
    Py_BEGIN_ALLOW_THREADS status = pf_trace_export(self->handle, form, &text, &err);
    Py_END_ALLOW_THREADS return status ? raise_error(status, &err) : take_text(text);
}

static PyMethodDef methods[] = {
    {"_start", (PyCFunction)trace_start, METH_VARARGS | METH_CLASS, NULL},
    {"_stop", (PyCFunction)trace_stop, METH_NOARGS, NULL},
    {"_text", (PyCFunction)trace_text, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, owner_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "The part of pyfeed.diagnostics.Trace that is written in C."},
    {0, NULL},
};
static PyType_Spec spec = {"pyfeed._native.Trace", sizeof(owner), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           slots};

int tracing_init(PyObject *module) { return add_type(module, &spec, &trace_type); }
