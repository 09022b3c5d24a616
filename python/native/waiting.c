/* How a Python thread waits: without the GIL, with Ctrl-C. */
#include <pthread.h>

#include "native.h"

static unsigned long main_thread; /* the only one whose signal handlers run in Python */
static waiting *all;              /* the waits of every thread; guarded by the GIL */

/* The threads that waited, and the stacks their waits lie on, are not in the child. */
static void in_child(void) { all = NULL; }

int waiting_init(void) {
    pthread_atfork(NULL, NULL, in_child);
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    if (ident) main_thread = PyLong_AsUnsignedLong(ident);
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    return PyErr_Occurred() ? -1 : 0;
}

/* The library calls this on the waiting thread, every 100 ms and after each signal. */
static int check_signals(void *context) {
    waiting *w = context;
    PyEval_RestoreThread(w->state);
    int stop = PyErr_CheckSignals();
    w->state = PyEval_SaveThread();
    return stop;
}

/* Has the end of the interpreter know of this thread: it may be found waiting then, or be waited for. */
static int note_thread(void) {
    /* In static memory, or the extension would need the dynamic loader as a library of its own. */
    static _Thread_local int noted __attribute__((tls_model("initial-exec")));
    if (noted) return 0;
    PyObject *module = PyImport_ImportModule("pyfeed._exit");
    PyObject *none = module ? PyObject_CallMethod(module, "note", NULL) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(none);
    if (!none && !PyErr_ExceptionMatches(PyExc_Exception)) /* a signal's handler raised */
        return -1;
    PyErr_Clear(); /* otherwise it is too late: the interpreter has all but ended */
    noted = 1;
    return 0;
}

int waiting_parse(waiting *w, PyObject *timeout) {
    if (note_thread() < 0) return -1;
    *w = (waiting){.wait = PF_WAIT_INIT};
    if (timeout && timeout != Py_None) {
        double seconds = PyFloat_AsDouble(timeout);
        if (seconds == -1 && PyErr_Occurred()) return -1;
        if (!(seconds >= 0)) {
            raise_named("InvalidArgument", -1, "timeout: expected None or seconds, at least 0, found %R",
                        timeout);
            return -1;
        }
        w->wait.timeout_ns = seconds < 9e9 ? (int64_t)(seconds * 1e9) : -1;
    }
    return 0;
}

void waiting_begin(waiting *w) {
    w->thread = PyThread_get_thread_ident();
    w->wait.poll = w->thread == main_thread ? check_signals : NULL;
    w->wait.poll_context = w;
    w->prev = NULL;
    w->next = all;
    if (all) all->prev = w;
    all = w;
    w->state = PyEval_SaveThread();
}

void waiting_end(waiting *w) {
    PyEval_RestoreThread(w->state);
    if (w->prev)
        w->prev->next = w->next;
    else
        all = w->next;
    if (w->next) w->next->prev = w->prev;
}

PyObject *waiting_threads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *idents = PyList_New(0);
    for (waiting *w = all; idents && w; w = w->next) {
        PyObject *ident = PyLong_FromUnsignedLong(w->thread);
        if (!ident || PyList_Append(idents, ident) < 0) Py_CLEAR(idents);
        Py_XDECREF(ident);
    }
    return idents;
}

void handle_release(pf_handle handle) {
    if (!handle) return;
    Py_BEGIN_ALLOW_THREADS pf_release(handle, NULL);
    Py_END_ALLOW_THREADS
}
