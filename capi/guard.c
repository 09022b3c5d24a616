/* The errors of calls that must not enter Go: in forked children, and after a fault inside the library. */
#include "guard.h"

int pfi_disabled;

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
