/* Staging buffers. */
#include "guard.h"

pf_status pf_staging_create(pf_place place, uint64_t capacity, uint64_t bytes_limit, pf_handle *buffer,
                            pf_error *err) {
    ZERO(buffer);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(buffer, err);
    return pfgo_staging_create(place, capacity, bytes_limit, buffer, err);
}

pf_status pf_staging_put(pf_handle buffer, const pf_tensor *tensors, uint32_t num_tensors,
                         const pf_wait *wait, pf_error *err) {
    CHECK_ALIVE(err);
    uint64_t loan;
    pf_status status =
        pfi_push(pfgo_staging_put, buffer, tensors, num_tensors, PF_PASS_CURRENT, &loan, wait, err);
    return status == PFI_COPY ? pfgo_staging_commit(buffer, loan, err) : status;
}

pf_status pf_staging_get(pf_handle buffer, const pf_wait *wait, pf_tuple *out, pf_error *err) {
    ZERO_KEEP_LOAN(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_staging_get(buffer, &call, out, err));
    return status;
}

pf_status pf_staging_clear(pf_handle buffer, uint64_t *dropped, pf_error *err) {
    ZERO(dropped);
    CHECK_ALIVE(err);
    uint64_t ignored;
    return pfgo_staging_clear(buffer, dropped ? dropped : &ignored, err);
}

pf_status pf_staging_stats(pf_handle buffer, pf_staging_info *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pf_staging_info info = PF_STAGING_INFO_INIT;
    pf_status status = pfgo_staging_stats(buffer, &info, err);
    if (!status) pfi_copy_struct(out, &info);
    return status;
}

pf_status pf_staging_shutdown(pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_staging_shutdown(err);
}
