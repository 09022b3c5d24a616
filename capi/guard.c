/* What keeps forked children and callers of a poisoned library out of Go. */
#include "guard.h"

#include <pthread.h>

int pfi_disabled;

static void disable_in_child(void) { __atomic_or_fetch(&pfi_disabled, PFI_IS_FORKED, __ATOMIC_RELAXED); }
__attribute__((constructor)) static void register_fork_handler(void) {
    pthread_atfork(NULL, NULL, disable_in_child);
}
void pfi_poison(void) { __atomic_or_fetch(&pfi_disabled, PFI_IS_POISONED, __ATOMIC_RELAXED); }

pf_status pfi_fail_disabled(pf_error *err) {
    if (pfi_disabled & PFI_IS_FORKED)
        return pfi_fail(err, PF_FORKED, -1,
                        "pyfeed was loaded before this process was forked and does not work in the child: "
                        "start processes with spawn or forkserver");
    return pfi_fail(err, PF_POISONED, -1,
                    "pyfeed stopped after a fault inside it; the first one was printed to standard error");
}

pf_status pfi_fail_null(pf_error *err, const char *name) {
    return pfi_fail(err, PF_INVALID, -1, "%s: expected a pointer, found NULL", name);
}
