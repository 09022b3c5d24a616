/* How the main thread hears of signals while it sleeps without a time limit.
 *
 * Python's own handler of a signal, in C, notes it and writes a byte to a descriptor (signal.set_wakeup_fd); the handler in
 * Python runs when the main thread looks next. That the system interrupts the main thread's sleep is not enough: it may be
 * about to sleep only, or the signal may have come to another thread. So a thread of ours reads the descriptor. */
#define _GNU_SOURCE
#include "signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static int ends[2] = {-1, -1}; /* of a pipe; not there in a forked child */
static void (*tell)(void);
/* The descriptor of the program's own, where it listens itself: what came to ours before that was found out is its. */
static int theirs = -1;
static pthread_mutex_t theirs_lock = PTHREAD_MUTEX_INITIALIZER;

/* The thread is not in the child. The pipe stays open: Python may still write to it there, as the parent does. */
static void in_child(void) {
    ends[0] = ends[1] = theirs = -1;
    theirs_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void *listen_to(void *end) {
    char bytes[64];
    ssize_t n;
    while ((n = read((int)(intptr_t)end, bytes, sizeof bytes)) != 0) {
        if (n < 0) continue;
        pthread_mutex_lock(&theirs_lock);
        if (theirs >= 0 && write(theirs, bytes, (size_t)n) < 0) {
        } /* it is full, and heard of */
        pthread_mutex_unlock(&theirs_lock);
        tell();
    }
    return NULL;
}

static int begin(void) {
    static int forks_watched;
    if (ends[0] >= 0) return 0;
    if (!forks_watched && pthread_atfork(NULL, NULL, in_child) != 0) return -1;
    forks_watched = 1;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        ends[0] = ends[1] = -1;
        return -1;
    }
    /* Handlers of signals write, and must not wait. */
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    sigset_t all, old;
    sigfillset(&all);
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&thread, NULL, listen_to, (void *)(intptr_t)ends[0]);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        close(ends[0]);
        close(ends[1]);
        ends[0] = ends[1] = -1;
        return -1;
    }
    pthread_detach(thread);
    return 0;
}

/* signal.set_wakeup_fd(fd): the one before, or -2 */
static long wake_up(int fd, int warn) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *module = PyImport_ImportModule("_signal");
    PyObject *set = module ? PyObject_GetAttrString(module, "set_wakeup_fd") : NULL;
    PyObject *args = set ? Py_BuildValue("(i)", fd) : NULL;
    PyObject *options = args ? Py_BuildValue("{si}", "warn_on_full_buffer", warn) : NULL;
    PyObject *was = options ? PyObject_Call(set, args, options) : NULL;
    long old = was ? PyLong_AsLong(was) : -2;
    Py_XDECREF(was);
    Py_XDECREF(options);
    Py_XDECREF(args);
    Py_XDECREF(set);
    Py_XDECREF(module);
    PyErr_Restore(type, value, traceback); /* and no other */
    return old;
}

enum { DOES_NOT = 0, ANEW = 1, AS_BEFORE = 2 };

/* The lock is held for two calls that set a variable, and by the thread for one that does not block for long. */
static int listen_with(void (*whom)(void)) {
    tell = whom;
    if (begin() < 0) return DOES_NOT;
    pthread_mutex_lock(&theirs_lock);
    long old = wake_up(ends[1], 0);
    theirs = old >= 0 && old != ends[1] ? (int)old : -1;
    if (theirs >= 0) wake_up(theirs, 1);
    pthread_mutex_unlock(&theirs_lock);
    return old == ends[1] ? AS_BEFORE : old == -1 ? ANEW : DOES_NOT;
}

/* What handlers call may put an end to the listening. Whatever came in between is looked at once it has begun anew. */
int signals_check(void (*whom)(void), int *listens) {
    *listens = listen_with(whom);
    for (;;) {
        if (PyErr_CheckSignals() < 0) return -1;
        if (*listens == DOES_NOT || (*listens = listen_with(whom)) != ANEW) return 0;
    }
}

void signals_ignore(void) {
    long old = wake_up(-1, 1);
    if (old >= 0 && old != ends[1]) wake_up((int)old, 1); /* a handler has set another */
}
