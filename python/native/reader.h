/* Declarations that reader.c and loop.c share. LOCK_OBJECT guards what changes in a reader, except `closed`. */
#ifndef PYFEED_READER_H
#define PYFEED_READER_H

#include "native.h"

typedef struct {
    PyObject ob_base;
    pf_handle handle; /* 0: released after close */
    kept failure;
    int direct;        /* reads are cheap: try first without a wait and with the GIL */
    atomic_int closed; /* calls that wait read it without the GIL */
    int calls; /* calls in progress without the GIL; the last one releases the handle of a closed reader */
    atomic_int resets;   /* resets in progress */
    int loops;           /* loops in progress, of the current generation */
    PyObject *structure; /* of the tuples that Python gets; NULL: tuples of arrays */
    uint64_t generation; /* incremented when a pass begins: loops of an older one are over */
} reader;

/* Around a call that releases the GIL. reader_enter returns -1 with a StateError set if the reader is closed. */
int reader_enter(reader *self);
void reader_leave(reader *self);
/* Returns the next tuple. Returns NULL and sets *end at the end of the pass; returns NULL with an exception set after
 * an error. `loop` comes from pf_reader_begin_loop; 0: the call belongs to no loop. */
PyObject *reader_next(reader *self, uint64_t loop, PyObject *timeout, int *end);
/* Raises the exception for a status of a call in the reader, unless an exception is set already. Returns NULL. */
PyObject *reader_raise(reader *self, pf_status status, pf_error *err);

/* Waits while another thread resets the reader: only the result of the reset tells whether loops continue. Returns -1
 * if a signal handler raised. */
int reader_await_resets(reader *self);

/* ---- loop.c ---- */

int loop_init(PyObject *module);
/* loop_begin is iter(reader). loop_join is Reader.current_pass(): a loop over the rest of the current pass. */
PyObject *loop_begin(PyObject *self);
PyObject *loop_join(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);

#endif
