/* The lock of static state: see lock.h. pyfeed_worker compiles this file too. */
#include "native.h"

#ifdef Py_GIL_DISABLED
#include <pthread.h>
#include <stdatomic.h>

static PyMutex mutex;

void module_lock(void) { PyMutex_Lock(&mutex); }
void module_unlock(void) { PyMutex_Unlock(&mutex); }

/* Threads that waited for the lock do not exist in the child. */
static void unlock_in_child(void) { mutex = (PyMutex){0}; }

/* The thread that forks holds the lock, so that no other thread is in the middle of a change. */
int lock_init(void) {
    static atomic_int begun;
    return atomic_exchange(&begun, 1) ? 0 : pthread_atfork(module_lock, module_unlock, unlock_in_child);
}
#else
int lock_init(void) { return 0; }
#endif
