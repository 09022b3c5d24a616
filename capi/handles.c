/* Reference counts of handles. */
#include "guard.h"

pf_status pf_retain(pf_handle handle, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_retain(handle, err);
}

pf_status pf_release(pf_handle handle, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_release(handle, err);
}
