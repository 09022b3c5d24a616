/* Signals for a main thread that waits without a time limit. */
#ifndef PYFEED_SIGNALS_H
#define PYFEED_SIGNALS_H

#include <Python.h>

/* Runs the Python handlers of signals that have arrived; returns -1 if one raised. From then on another thread calls
 * `poll_now` after each signal with a Python handler, whichever thread received it, and after _thread.interrupt_main.
 * `listens` is set to 0 if that is not possible: the program has set a wake-up descriptor itself
 * (signal.set_wakeup_fd), or the system could not start a thread. Only for the main thread, with the GIL. */
int signals_check(void (*poll_now)(void), int *listens);
/* Ends what signals_check began, if it set `listens`. Keeps an exception that is set. */
void signals_ignore(void);

#endif
