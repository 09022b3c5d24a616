/* How a Python thread waits: without the GIL, and so that Ctrl-C ends the wait. */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "native.h"
#include "processors_linux.h"
#include "signals.h"
#include "spin.h"
#include "thread_linux.h"

static unsigned long main_thread; /* the only thread that runs signal handlers of Python */
static waiting *all;              /* the waits of every thread; guarded by module_lock */

#ifndef Py_GIL_DISABLED
/* A woken thread usually finds the GIL held: the thread that woke it releases the GIL a moment later, when the queue is
 * full or empty. Blocking on the GIL costs more than that moment. So one thread at a time spins for up to 10 us before
 * it blocks. After a failed spin it skips spins: 1, 3, 7, ... up to MAX_SKIPPED. */
enum { SPIN_NS = 10000, MAX_SKIPPED = 63 };
/* The thread whose wait ended last, while it is believed to hold the GIL; else 0. */
static atomic_ulong holder;
static atomic_int spinning; /* a thread spins; always set if there is only one processor */
/* The spins that were skipped and that are to be skipped since a spin failed; guarded by `spinning`. */
static unsigned skipped, to_skip;
#endif

int forked;

const pf_wait no_wait = {sizeof(pf_wait), 0, 0, 0, NULL, NULL};

/* The threads that waited, and the stacks that their waits lie on, do not exist in the child. */
static void reset_after_fork(void) {
    forked = 1;
    all = NULL;
#ifndef Py_GIL_DISABLED
    atomic_store(&holder, 0);
#endif
}

#ifdef Py_GIL_DISABLED
static void gil_released(const waiting *Py_UNUSED(w)) {}
static void gil_taken(const waiting *Py_UNUSED(w)) {}
static void spin_for_gil(void) {}
static void spin_init(void) {}
#else
static void gil_released(const waiting *w) {
    unsigned long mine = w->thread;
    atomic_compare_exchange_strong(&holder, &mine, 0);
}

static void gil_taken(const waiting *w) { atomic_store(&holder, w->thread); }

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Spins until the holder releases the GIL, for at most SPIN_NS. Call it before the GIL is taken again. */
static void spin_for_gil(void) {
    if (!atomic_load(&holder) || atomic_exchange(&spinning, 1)) return;
    if (skipped < to_skip) {
        skipped++;
    } else {
        int64_t until = now() + SPIN_NS;
        int there = 0;
        do {
            for (int i = 0; i < 16 && !there; i++) {
                spin_pause();
                there = !atomic_load_explicit(&holder, memory_order_relaxed);
            }
        } while (!there && now() < until);
        skipped = 0;
        to_skip = there ? 0 : to_skip < MAX_SKIPPED ? 2 * to_skip + 1 : MAX_SKIPPED;
    }
    atomic_store(&spinning, 0);
}

static void spin_init(void) {
    if (has_one_processor()) spinning = 1;
}
#endif

int waiting_init(void) {
    pthread_atfork(NULL, NULL, reset_after_fork);
    spin_init();
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    if (ident) main_thread = PyLong_AsUnsignedLong(ident);
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    return PyErr_Occurred() ? -1 : 0;
}

static void poll_now(void) { pf_poll_now(NULL); }

/* Whether another thread has closed the reader that this thread waits for. That thread then calls pf_poll_now. */
static int is_closed(waiting *w) { return w->closed && atomic_load(w->closed); }

/* A poll function for threads other than the main thread, if their wait can be closed. */
static int check_closed(void *context) { return is_closed(context) ? PF_CANCELLED : PF_POLL_SIGNALS_ONLY; }

/* The poll function of the main thread. The library calls it after each signal; also every 100 ms where signals_check
 * cannot listen. */
static int check_signals(void *context) {
    waiting *w = context;
    if (is_closed(w)) return PF_CANCELLED;
    PyEval_RestoreThread(w->state);
    int listens, stop = signals_check(poll_now, &listens);
    w->listens |= listens;
    w->state = PyEval_SaveThread();
    return stop ? stop : listens ? PF_POLL_SIGNALS_ONLY : 0;
}

/* Registers this thread with pyfeed._exit: at the end of the interpreter it may have to be woken or waited for. */
static int register_thread(void) {
    /* initial-exec: otherwise the extension would have to link the dynamic loader as a library. */
    static _Thread_local int registered __attribute__((tls_model("initial-exec")));
    if (registered) return 0;
    PyObject *module = PyImport_ImportModule("pyfeed._exit");
    PyObject *none = module ? PyObject_CallMethod(module, "register_thread", NULL) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(none);
    if (!none && !PyErr_ExceptionMatches(PyExc_Exception)) /* a signal handler raised */
        return -1;
    PyErr_Clear(); /* other errors: too late, the interpreter has almost ended */
    registered = 1;
    return 0;
}

int waiting_parse(waiting *w, PyObject *timeout) {
    if (register_thread() < 0) return -1;
    *w = (waiting){.wait = PF_WAIT_INIT};
    if (timeout && timeout != Py_None) {
        double seconds;
        if (argument_seconds("timeout", timeout, &seconds) < 0) return -1;
        w->wait.timeout_ns = seconds < 9e9 ? (int64_t)(seconds * 1e9 + (seconds > 0)) : -1;
    }
    return 0;
}

void waiting_of_worker(waiting *w) { *w = (waiting){.wait = PF_WAIT_INIT}; }

static void enter(waiting *w) {
    module_lock();
    w->prev = NULL;
    w->next = all;
    if (all) all->prev = w;
    all = w;
    module_unlock();
}

/* Call it with module_lock. */
static void leave(waiting *w) {
    if (w->prev)
        w->prev->next = w->next;
    else
        all = w->next;
    if (w->next) w->next->prev = w->prev;
}

void waiting_begin(waiting *w) {
    w->thread = PyThread_get_thread_ident();
    w->wait.poll = w->thread == main_thread ? check_signals : w->closed ? check_closed : NULL;
    if (w->wait.poll == check_closed)
        w->wait.poll_interval_ms = UINT32_MAX; /* polls before the first sleep and after pf_poll_now */
    w->wait.poll_context = w;
    w->listens = 0;
    enter(w);
    w->state = PyEval_SaveThread();
    gil_released(w);
}

void waiting_end(waiting *w) {
    spin_for_gil();
    PyEval_RestoreThread(w->state);
    gil_taken(w);
    if (w->listens) signals_ignore();
    module_lock();
    leave(w);
    module_unlock();
}

waiting *waiting_suspend(void) {
    unsigned long thread = PyThread_get_thread_ident();
    module_lock();
    waiting *w = all; /* the latest wait of a thread comes first */
    while (w && w->thread != thread) w = w->next;
    if (w) leave(w);
    module_unlock();
    return w;
}

void waiting_resume(waiting *w) {
    if (w) enter(w);
}

int waiting_in_main_thread(void) { return PyThread_get_thread_ident() == main_thread; }

/* _waiting_threads(): {thread: (CPU time if the thread runs a program, which may be computing, else 0; kind of the
 * wait; reader or queue, or None)} */
PyObject *waiting_threads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    static const char *const kinds[] = {"any", "call", "room", "read"};
    struct seen {
        unsigned long thread;
        long long time;
        wait_kind kind;
        PyObject *reader;
    } *seen;
    size_t n = 0, room = 0;
    module_lock();
    for (waiting *w = all; w; w = w->next) room++;
    seen = PyMem_Calloc(room + 1, sizeof *seen);
    for (waiting *w = all; seen && w; w = w->next) /* their calls keep the readers and the threads alive */
        seen[n++] =
            (struct seen){w->thread, w->failure ? cpu_time(w->thread) : 0, w->kind, Py_XNewRef(w->reader)};
    module_unlock();
    PyObject *threads = seen ? PyDict_New() : PyErr_NoMemory();
    for (size_t i = 0; i < n; i++) {
        PyObject *ident = threads ? PyLong_FromUnsignedLong(seen[i].thread) : NULL;
        PyObject *wait = ident ? Py_BuildValue("(LsO)", seen[i].time, kinds[seen[i].kind],
                                               seen[i].reader ? seen[i].reader : Py_None)
                               : NULL;
        if (!wait || PyDict_SetItem(threads, ident, wait) < 0) Py_CLEAR(threads);
        Py_XDECREF(ident);
        Py_XDECREF(wait);
        Py_XDECREF(seen[i].reader);
    }
    PyMem_Free(seen);
    return threads;
}

void handle_release(pf_handle handle) {
    if (!handle) return;
    Py_BEGIN_ALLOW_THREADS pf_release(handle, NULL);
    Py_END_ALLOW_THREADS
}
