/* From pf_error to the exception classes of pyfeed._errors. */
#include <stdarg.h>
#include <string.h>

#include "native.h"

static PyObject *classes; /* pyfeed._errors.__dict__ */
static kept *failures;    /* of all queues; guarded by the GIL, as the next */
static uint64_t last_token;

static const char *const names[] = {
    [PF_END] = "EndOfData",
    [PF_TIMEOUT] = "Timeout",
    [PF_CANCELLED] = "Cancelled",
    [PF_CLOSED] = "QueueClosed",
    [PF_FAILED] = "ProducerError",
    [PF_INVALID] = "InvalidArgument",
    [PF_SHAPE] = "ShapeError",
    [PF_DTYPE] = "DTypeError",
    [PF_SLOTS] = "SlotCountError",
    [PF_TOO_LARGE] = "TooLargeError",
    [PF_STALE_HANDLE] = "StaleHandleError",
    [PF_STATE] = "StateError",
    [PF_NOT_FOUND] = "NotFoundError",
    [PF_UNSUPPORTED] = "UnsupportedError",
    [PF_NO_MEMORY] = "OutOfMemoryError",
    [PF_FORKED] = "ForkError",
    [PF_POISONED] = "PoisonedError",
};

int errors_init(void) {
    PyObject *module = PyImport_ImportModule("pyfeed._errors");
    if (!module) return -1;
    classes = PyObject_GetAttrString(module, "__dict__");
    Py_DECREF(module);
    return classes ? 0 : -1;
}

/* Makes an exception with a slot, or raises whatever went wrong instead. */
static PyObject *make(const char *name, const char *message, Py_ssize_t slot) {
    PyObject *class = PyDict_GetItemString(classes, name);
    if (!class) {
        PyErr_Format(PyExc_SystemError, "pyfeed._errors has no %s", name);
        return NULL;
    }
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    PyObject *e = text ? PyObject_CallFunctionObjArgs(class, text, NULL) : NULL;
    Py_XDECREF(text);
    if (e && slot >= 0) {
        PyObject *number = PyLong_FromSsize_t(slot);
        if (!number || PyObject_SetAttrString(e, "slot", number) < 0) Py_CLEAR(e);
        Py_XDECREF(number);
    }
    return e;
}

static void set_raised(PyObject *e) {
    if (!e) return;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
}

/* The producer's own exception, with the traceback it had when it was kept. */
static int raise_kept(uint64_t token) {
    kept *k = failures;
    while (k && k->token != token) k = k->next;
    if (!k) return 0;
    PyObject *e = Py_NewRef(k->exception);
    if (PyException_SetTraceback(e, k->traceback ? k->traceback : Py_None) == 0)
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return 1;
}

static int set_text(PyObject *e, const char *name, const char *text) {
    PyObject *s = PyUnicode_DecodeUTF8(text ? text : "", text ? (Py_ssize_t)strlen(text) : 0, "replace");
    int r = s ? PyObject_SetAttrString(e, name, s) : -1;
    Py_XDECREF(s);
    return r;
}

PyObject *raise_error(pf_status status, pf_error *err) {
    if (status == PF_FAILED && err->cause_token && raise_kept(err->cause_token)) {
        pf_error_release(err);
        return NULL;
    }
    const char *name = status < sizeof names / sizeof *names && names[status] ? names[status] : "Error";
    PyObject *e = make(name, err->message ? err->message : pf_status_name(status), err->slot);
    if (e && status == PF_FAILED &&
        (set_text(e, "cause_type", err->cause_type) < 0 ||
         set_text(e, "cause_message", err->cause_message) < 0 ||
         set_text(e, "cause_traceback", err->cause_traceback) < 0))
        Py_CLEAR(e);
    set_raised(e);
    pf_error_release(err);
    return NULL;
}

PyObject *raise_named(const char *name, Py_ssize_t slot, const char *format, ...) {
    va_list args;
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    if (text) {
        Py_ssize_t n;
        const char *s = PyUnicode_AsUTF8AndSize(text, &n);
        if (s) set_raised(make(name, s, slot));
        Py_DECREF(text);
    }
    return NULL;
}

uint64_t kept_new_token(void) { return ++last_token; }

void kept_set(kept *k, PyObject *exception, uint64_t token) {
    PyObject *old_exception = k->exception, *old_traceback = k->traceback;
    if (!k->token) {
        k->next = failures;
        failures = k;
    }
    k->token = token;
    k->exception = Py_NewRef(exception);
    k->traceback = PyException_GetTraceback(exception);
    Py_XDECREF(old_exception);
    Py_XDECREF(old_traceback);
}

void kept_drop(kept *k) {
    if (!k->token) return;
    kept **at = &failures;
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    k->token = 0;
    Py_CLEAR(k->exception);
    Py_CLEAR(k->traceback);
}
