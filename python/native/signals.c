/* How signals reach the main thread while it sleeps without a time limit.
 *
 * Python's C handler of a signal notes the signal and writes a byte to a file descriptor (signal.set_wakeup_fd). The
 * handler in Python runs when the main thread next checks for signals. A signal interrupts a sleep of the main thread,
 * but that is not enough: the signal may come just before the sleep, or to another thread. So a thread of this file
 * reads the descriptor, and then makes the main thread poll. */
#define _GNU_SOURCE
#include "signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "pipe_linux.h"

static int ends[2] = {-1, -1}; /* the ends of a pipe; -1 in a forked child */
static void (*poll_now)(void);
/* The wake-up descriptor of the program itself, if it has set one; else -1. Bytes that came to the pipe before this was
 * known are forwarded to it. */
static int theirs = -1;
static pthread_mutex_t theirs_lock = PTHREAD_MUTEX_INITIALIZER;

/* The thread does not exist in the child. The pipe stays open, because Python may still write to it in the child. */
static void reset_after_fork(void) {
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
        } /* the descriptor is full, so its reader wakes anyway */
        pthread_mutex_unlock(&theirs_lock);
        poll_now();
    }
    return NULL;
}

static int begin(void) {
    static int forks_watched;
    if (ends[0] >= 0) return 0;
    if (!forks_watched && pthread_atfork(NULL, NULL, reset_after_fork) != 0) return -1;
    forks_watched = 1;
    if (private_pipe(ends) < 0) {
        ends[0] = ends[1] = -1;
        return -1;
    }
    /* Signal handlers write to the pipe and must not block. */
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

/* signal.set_wakeup_fd(fd): returns the descriptor that was set before, or -2 after a failure */
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
    PyErr_Restore(type, value, traceback); /* drops an exception of the call itself */
    return old;
}

enum { DOES_NOT = 0, ANEW = 1, AS_BEFORE = 2 };

/* The lock is only held for short calls: two that set a variable here, and a non-blocking write in the thread. */
static int listen_with(void (*whom)(void)) {
    poll_now = whom;
    if (begin() < 0) return DOES_NOT;
    pthread_mutex_lock(&theirs_lock);
    long old = wake_up(ends[1], 0);
    theirs = old >= 0 && old != ends[1] ? (int)old : -1;
    if (theirs >= 0) wake_up(theirs, 1);
    pthread_mutex_unlock(&theirs_lock);
    return old == ends[1] ? AS_BEFORE : old == -1 ? ANEW : DOES_NOT;
}

/* A signal handler may replace the descriptor. After the listening began again, checks for signals that came in
 * between. */
int signals_check(void (*whom)(void), int *listens) {
    *listens = listen_with(whom);
    for (;;) {
        if (PyErr_CheckSignals() < 0) return -1;
        if (*listens == DOES_NOT || (*listens = listen_with(whom)) != ANEW) return 0;
    }
}

void signals_ignore(void) {
    long old = wake_up(-1, 1);
    if (old >= 0 && old != ends[1]) wake_up((int)old, 1); /* a handler has set another descriptor */
}
