/* After fork(), every call of the library in the child is refused: see CHECK_ALIVE in guard.h. The two extensions have
 * a reset_after_fork each, in python/native and python/pyfeed_worker/native. */
#include <pthread.h>

#include "guard.h"

static void disable_after_fork(void) { __atomic_or_fetch(&pfi_disabled, PFI_IS_FORKED, __ATOMIC_RELAXED); }
__attribute__((constructor)) static void register_fork_handler(void) {
    pthread_atfork(NULL, NULL, disable_after_fork);
}
