/* Converts a pf_error to an exception of pyfeed.errors. */
#include <stdarg.h>
#include <string.h>

#include "native.h"

static PyObject *classes; /* pyfeed.errors.__dict__ */
static kept *failures; /* the exceptions of all owners; guarded by module_lock, like all fields of a kept */
static _Atomic(uint64_t) last_token;

enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */

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
    [PF_CORRUPT] = "CorruptRecordError",
    [PF_IO] = "FileError",
    [PF_CUDA_ERROR] = "CudaError",
};

int errors_init(void) {
    classes = import_attribute("pyfeed.errors", "__dict__");
    return classes ? 0 : -1;
}

static int set_attribute(PyObject *e, const char *name, PyObject *value) {
    int r = value ? PyObject_SetAttrString(e, name, value) : -1;
    Py_XDECREF(value);
    return r;
}

static PyObject *decode(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

/* Returns an exception with a slot. On a failure, returns NULL with another exception set. */
static PyObject *new_exception(const char *name, const char *message, Py_ssize_t slot) {
    PyObject *class = PyMapping_GetItemString(classes, name);
    if (!class) {
        PyErr_Format(PyExc_SystemError, "pyfeed.errors has no %s", name);
        return NULL;
    }
    PyObject *text = decode(message);
    PyObject *e = text ? PyObject_CallFunctionObjArgs(class, text, NULL) : NULL;
    Py_DECREF(class);
    Py_XDECREF(text);
    if (e && slot >= 0 && set_attribute(e, "slot", PyLong_FromSsize_t(slot)) < 0) Py_CLEAR(e);
    return e;
}

static void set_raised(PyObject *e) {
    if (!e) return;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
}

uint64_t kept_new_token(void) { return atomic_fetch_add(&last_token, 1) + 1; }

/* What a kept refers to. It is dropped outside the lock, since that may run Python code. */
typedef struct {
    PyObject *exception, *traceback;
} pair;

static void pair_drop(pair p) {
    Py_XDECREF(p.exception);
    Py_XDECREF(p.traceback);
}

/* Takes the pair over and returns the one before. Call it with module_lock. */
static pair kept_put(kept *k, pair p, uint64_t token, int reader_owned) {
    pair old = {k->exception, k->traceback};
    if (!k->token) {
        k->next = failures;
        failures = k;
    }
    k->token = token;
    k->reader_owned = reader_owned;
    k->exception = p.exception;
    k->traceback = p.traceback;
    return old;
}

/* Returns what it referred to. Call it with module_lock. */
static pair kept_take(kept *k) {
    pair old = {k->exception, k->traceback};
    if (!k->token) return (pair){NULL, NULL};
    kept **at = &failures;
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    k->token = 0;
    k->exception = k->traceback = NULL;
    return old;
}

void kept_set(kept *k, PyObject *exception, uint64_t token, int reader_owned) {
    pair p = {Py_NewRef(exception), PyException_GetTraceback(exception)};
    module_lock();
    pair old = kept_put(k, p, token, reader_owned);
    module_unlock();
    pair_drop(old);
}

void kept_move(kept *to, kept *from) {
    pair old = {NULL, NULL};
    module_lock();
    uint64_t token = from->token;
    if (token) {
        int reader_owned = from->reader_owned;
        old = kept_put(to, kept_take(from), token, reader_owned);
    }
    module_unlock();
    pair_drop(old);
}

int kept_traverse(const kept *k, visitproc visit, void *arg) {
    Py_VISIT(k->exception);
    Py_VISIT(k->traceback);
    return 0;
}

void kept_drop(kept *k) {
    module_lock();
    pair old = kept_take(k);
    module_unlock();
    pair_drop(old);
}

/* Raises the kept exception of that token, with the traceback that it had when it was kept. Returns 0 if there is none.
 * An exception that is reader_owned moves to the reader that raises it. */
static int raise_kept(uint64_t token, kept *reader) {
    pair p = {NULL, NULL}, old = {NULL, NULL};
    module_lock();
    kept *k = failures;
    while (k && k->token != token) k = k->next;
    if (k) p = (pair){Py_NewRef(k->exception), Py_XNewRef(k->traceback)};
    if (k && k->reader_owned) {
        old = kept_take(k);
        if (reader) old = kept_put(reader, old, token, 0);
    }
    module_unlock();
    pair_drop(old);
    if (!k) return 0;
    if (PyException_SetTraceback(p.exception, p.traceback ? p.traceback : Py_None) == 0)
        PyErr_SetObject((PyObject *)Py_TYPE(p.exception), p.exception);
    pair_drop(p);
    return 1;
}

/* Sets an attribute of a user's exception, unless it has one of that name. */
static void set_attribute_once(PyObject *e, const char *name, PyObject *value) {
    PyObject *own = PyObject_GetAttrString(e, name);
    PyErr_Clear();
    if (value && (!own || own == Py_None)) PyObject_SetAttrString(e, name, value);
    PyErr_Clear(); /* its class may not allow attributes */
    Py_XDECREF(own);
    Py_XDECREF(value);
}

/* Adds a note to a user's exception that says where it happened: in which operator, or at which tuple of which file. An
 * exception that is raised again gets the note once. */
static void add_location_note(const pf_error *err) {
    PyObject *type, *e, *traceback;
    PyErr_Fetch(&type, &e, &traceback);
    PyErr_NormalizeException(&type, &e, &traceback);
    PyObject *text = err->message ? PyUnicode_DecodeUTF8(err->message, (Py_ssize_t)err->context, "replace")
                                  : decode(err->op);
    PyObject *note = text ? PyUnicode_FromFormat("in %U", text) : NULL;
    PyObject *notes = e ? PyObject_GetAttrString(e, "__notes__") : NULL;
    PyErr_Clear();
    if (note && e && !(notes && PySequence_Contains(notes, note) > 0)) {
        PyObject *none = PyObject_CallMethod(e, "add_note", "O", note);
        Py_XDECREF(none);
    }
    PyErr_Clear();
    if (e && err->file) set_attribute_once(e, "file", PyUnicode_DecodeFSDefault(err->file));
    if (e && err->file && err->record >= 0) set_attribute_once(e, "record", PyLong_FromLongLong(err->record));
    Py_XDECREF(notes);
    Py_XDECREF(note);
    Py_XDECREF(text);
    PyErr_Restore(type, e, traceback);
}

/* Adds the traceback of a cause that is not an exception of this process as a note, which Python prints. */
static int add_traceback_note(PyObject *e, const char *traceback) {
    PyObject *text = decode(traceback);
    PyObject *stripped = text ? PyObject_CallMethod(text, "rstrip", NULL) : NULL;
    PyObject *none = stripped ? PyObject_CallMethod(e, "add_note", "O", stripped) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(stripped);
    Py_XDECREF(none);
    return none ? 0 : -1;
}

/* Sets the attributes of an exception from the fields of a pf_error. */
static int set_details(PyObject *e, pf_status status, const pf_error *err) {
    if (status == PF_FAILED &&
        (set_attribute(e, "cause_type", decode(err->cause_type ? err->cause_type : "")) < 0 ||
         set_attribute(e, "cause_message", decode(err->cause_message ? err->cause_message : "")) < 0 ||
         set_attribute(e, "cause_traceback", decode(err->cause_traceback ? err->cause_traceback : "")) < 0))
        return -1;
    if (status == PF_FAILED && err->cause_traceback && *err->cause_traceback &&
        add_traceback_note(e, err->cause_traceback) < 0)
        return -1;
    if (err->worker && (set_attribute(e, "pid", PyLong_FromLongLong(err->worker)) < 0 ||
                        set_attribute(e, "exit_status", PyLong_FromLong(err->exit_status)) < 0))
        return -1;
    if (status == PF_CUDA_ERROR &&
        (set_attribute(e, "code", PyLong_FromLong(err->cuda_code)) < 0 ||
         set_attribute(e, "name", decode(err->cuda_name ? err->cuda_name : "")) < 0))
        return -1;
    if (status == PF_IO && err->slot >= 0 && set_attribute(e, "slot", PyLong_FromLong(err->slot)) < 0)
        return -1;
    if (err->op && set_attribute(e, "op", decode(err->op)) < 0) return -1;
    if (err->file && set_attribute(e, "file", PyUnicode_DecodeFSDefault(err->file)) < 0) return -1;
    if (err->offset >= 0 && set_attribute(e, "offset", PyLong_FromLongLong(err->offset)) < 0) return -1;
    if (err->record >= 0 && set_attribute(e, "record", PyLong_FromLongLong(err->record)) < 0) return -1;
    if (err->approximate && set_attribute(e, "approximate", Py_NewRef(Py_True)) < 0) return -1;
    return 0;
}

/* Returns an exception for an error of the operating system, with the attributes of OSError. */
static PyObject *make_file_error(const char *message, const pf_error *err) {
    PyObject *make_one = PyMapping_GetItemString(classes, "_file_error");
    PyObject *text = decode(message);
    PyObject *file = err->file ? PyUnicode_DecodeFSDefault(err->file) : Py_NewRef(Py_None);
    PyObject *e =
        make_one && text && file ? PyObject_CallFunction(make_one, "OiO", text, err->os_errno, file) : NULL;
    Py_XDECREF(make_one);
    Py_XDECREF(text);
    Py_XDECREF(file);
    return e;
}

PyObject *raise_error_in(pf_status status, pf_error *err, kept *reader) {
    /* A signal may have caused the error, such as the end of another process by Ctrl-C. Then KeyboardInterrupt comes
     * first. */
    if (PyErr_CheckSignals() < 0) {
        pf_error_release(err);
        return NULL;
    }
    if (status == PF_FAILED && err->cause_token && raise_kept(err->cause_token, reader)) {
        if (err->op || err->context) add_location_note(err);
        pf_error_release(err);
        return NULL;
    }
    const char *name = status < sizeof names / sizeof *names && names[status] ? names[status] : "Error";
    if (status == PF_CUDA_ERROR && err->cuda_code == OUT_OF_MEMORY) name = "CudaMemoryError";
    if (status == PF_FAILED && err->worker) name = "WorkerError";
    const char *message = err->message ? err->message : pf_status_name(status);
    PyObject *e = status == PF_IO ? make_file_error(message, err) : new_exception(name, message, err->slot);
    if (e && set_details(e, status, err) < 0) Py_CLEAR(e);
    set_raised(e);
    pf_error_release(err);
    return NULL;
}

PyObject *raise_error(pf_status status, pf_error *err) { return raise_error_in(status, err, NULL); }

PyObject *none_or_error(pf_status status, pf_error *err) {
    if (status == PF_OK) Py_RETURN_NONE;
    if (PyErr_Occurred()) { /* a signal handler raised, or there was no memory */
        pf_error_release(err);
        return NULL;
    }
    return raise_error(status, err);
}

PyObject *raise_named(const char *name, Py_ssize_t slot, const char *format, ...) {
    va_list args;
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    if (text) {
        Py_ssize_t n;
        const char *s = PyUnicode_AsUTF8AndSize(text, &n);
        if (s) set_raised(new_exception(name, s, slot));
        Py_DECREF(text);
    }
    return NULL;
}
