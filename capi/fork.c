/* After fork(), every call of the library in the child is refused: see CHECK_ALIVE in guard.h. The exceptions only free
 * memory that is not Go's: pf_error_release, pf_string_release, and pf_tuple_release, which clears the tuple. A child may
 * push through pyfeed_worker, which has no Go. The extensions reset themselves in reset_after_fork: waiting.c and
 * signals.c in python/native, ring.c in python/pyfeed_worker/native. */
#include <pthread.h>

#include "guard.h"

static void disable_after_fork(void) { __atomic_or_fetch(&pfi_disabled, PFI_IS_FORKED, __ATOMIC_RELAXED); }
__attribute__((constructor)) static void register_fork_handler(void) {
    pthread_atfork(NULL, NULL, disable_after_fork);
}
