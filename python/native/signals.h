/* Signals, for a main thread that waits long. */
#ifndef PYFEED_SIGNALS_H
#define PYFEED_SIGNALS_H

#include <Python.h>

/* Runs the handlers of the signals that there were; -1 if one raised. From here on `tell` is called, on a thread of ours, after
 * each signal that has a handler in Python, whichever thread it came to, and after _thread.interrupt_main; `listens` is set to
 * 0 if not: the program listens itself (signal.set_wakeup_fd), or the system gives no thread. Only in the main thread, with the
 * GIL. */
int signals_check(void (*tell)(void), int *listens);
/* No longer, if some signals_check said it does. An exception stays as it is. */
void signals_ignore(void);

#endif
