/* Memory statistics. */
#include "guard.h"

pf_status pf_memory_stats(pf_memory_info *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pf_memory_info info = PF_MEMORY_INFO_INIT;
    pf_status status = pfgo_memory_stats(&info, err);
    if (!status) pfi_copy_struct(out, &info);
    return status;
}
