/* What memory is alive. */
#include "guard.h"

pf_status pf_memory_stats(pf_memory_info *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(out, err);
    REQUIRE_SIZE(out, "out", offsetof(pf_memory_info, pinned_bytes), err);
    pf_memory_info all = PF_MEMORY_INFO_INIT;
    pf_status status = pfgo_memory_stats(&all, err);
    if (status) return status;
    all.size = out->size; /* an older header's is smaller */
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
    return PF_OK;
}
