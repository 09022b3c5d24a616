/* How a Python thread waits: without the GIL, with Ctrl-C. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "native.h"
#include "signals.h"
#include "spin.h"

static unsigned long main_thread; /* the only one whose signal handlers run in Python */
static waiting *all;              /* the waits of every thread; guarded by the GIL */

/* Producers and consumers take turns with the GIL: one wakes the other, which then sleeps again until the GIL
 * is let go of, a moment later: when the queue is full, or empty. That second sleep costs more than the moment. So
 * one thread at a time looks out for it, for as long as the sleep would cost, unless that was in vain lately. */
enum { GLANCE_NS = 10000, MOST_PASSED = 63 };
/* The thread whose wait ended last, while it has the GIL, as far as is known; else 0. */
static atomic_ulong holder;
static atomic_int looking; /* some thread looks out; for good if there is a single processor */
/* Waits since one was in vain, and how many there are to be. Their looker's. */
static unsigned passed, to_pass;

int forked;

/* The threads that waited, and the stacks their waits lie on, are not in the child. */
static void in_child(void) {
    forked = 1;
    all = NULL;
    atomic_store(&holder, 0);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Before the GIL is taken again. */
static void look_out(void) {
    if (!atomic_load(&holder) || atomic_exchange(&looking, 1)) return;
    if (passed < to_pass) {
        passed++;
    } else {
        int64_t until = now() + GLANCE_NS;
        int there = 0;
        do {
            for (int i = 0; i < 16 && !there; i++) {
                spin_pause();
                there = !atomic_load_explicit(&holder, memory_order_relaxed);
            }
        } while (!there && now() < until);
        passed = 0;
        to_pass = there ? 0 : to_pass < MOST_PASSED ? 2 * to_pass + 1 : MOST_PASSED;
    }
    atomic_store(&looking, 0);
}

int waiting_init(void) {
    pthread_atfork(NULL, NULL, in_child);
    cpu_set_t processors;
    if (sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) == 1) looking = 1;
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    if (ident) main_thread = PyLong_AsUnsignedLong(ident);
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    return PyErr_Occurred() ? -1 : 0;
}

static void tell(void) { pf_poll_now(NULL); }

/* The library calls this on the waiting thread, after each signal and, where those cannot be heard of, every 100 ms. */
static int check_signals(void *context) {
    waiting *w = context;
    PyEval_RestoreThread(w->state);
    int listens, stop = signals_check(tell, &listens);
    w->listens |= listens;
    w->state = PyEval_SaveThread();
    return stop ? stop : listens ? PF_POLL_SIGNALS_ONLY : 0;
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
        double seconds;
        if (argument_seconds("timeout", timeout, &seconds) < 0) return -1;
        w->wait.timeout_ns = seconds < 9e9 ? (int64_t)(seconds * 1e9 + (seconds > 0)) : -1;
    }
    return 0;
}

static void enter(waiting *w) {
    w->prev = NULL;
    w->next = all;
    if (all) all->prev = w;
    all = w;
}

static void leave(waiting *w) {
    if (w->prev)
        w->prev->next = w->next;
    else
        all = w->next;
    if (w->next) w->next->prev = w->prev;
}

void waiting_begin(waiting *w) {
    w->thread = PyThread_get_thread_ident();
    w->wait.poll = w->thread == main_thread ? check_signals : NULL;
    w->wait.poll_context = w;
    w->listens = 0;
    enter(w);
    w->state = PyEval_SaveThread();
    unsigned long mine = w->thread;
    atomic_compare_exchange_strong(&holder, &mine, 0);
}

void waiting_end(waiting *w) {
    look_out();
    PyEval_RestoreThread(w->state);
    atomic_store(&holder, w->thread);
    if (w->listens) signals_ignore();
    leave(w);
}

waiting *waiting_leave(void) {
    unsigned long thread = PyThread_get_thread_ident();
    waiting *w = all; /* a thread's latest wait comes first */
    while (w && w->thread != thread) w = w->next;
    if (w) leave(w);
    return w;
}

void waiting_return(waiting *w) {
    if (w) enter(w);
}

int waiting_in_main_thread(void) { return PyThread_get_thread_ident() == main_thread; }

/* The CPU time of a thread that waits, and so cannot end, in nanoseconds. */
static long long cpu_time(unsigned long thread) {
    clockid_t clock;
    struct timespec t = {0, 0};
    if (pthread_getcpuclockid((pthread_t)thread, &clock) == 0) clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* _waiting_threads(): by their numbers, the CPU time of those that run a program, and may be at work; else 0 */
PyObject *waiting_threads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *times = PyDict_New();
    for (waiting *w = all; times && w; w = w->next) {
        PyObject *ident = PyLong_FromUnsignedLong(w->thread);
        PyObject *time = PyLong_FromLongLong(w->failure ? cpu_time(w->thread) : 0);
        if (!ident || !time || PyDict_SetItem(times, ident, time) < 0) Py_CLEAR(times);
        Py_XDECREF(ident);
        Py_XDECREF(time);
    }
    return times;
}

void handle_release(pf_handle handle) {
    if (!handle) return;
    Py_BEGIN_ALLOW_THREADS pf_release(handle, NULL);
    Py_END_ALLOW_THREADS
}
