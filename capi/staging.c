/* The staging buffers. */
#include "entry.h"

pf_status pf_get_buffer(pf_place place, uint64_t capacity, uint64_t bytes_limit, pf_handle *buffer,
                        pf_error *err) {
    ZERO(buffer);
    ENTER(err);
    NOT_NULL(buffer);
    return pfgo_get_buffer(place, capacity, bytes_limit, buffer, err);
}

pf_status pf_buffer_put(pf_handle buffer, const pf_tensor *tensors, uint32_t num_tensors, const pf_wait *wait,
                        pf_error *err) {
    ENTER(err);
    uint64_t loan;
    pf_status status =
        pfi_push(pfgo_buffer_put, buffer, tensors, num_tensors, PF_PASS_CURRENT, &loan, wait, err);
    return status == PFI_COPY ? pfgo_buffer_commit(buffer, loan, err) : status;
}

pf_status pf_buffer_get(pf_handle buffer, const pf_wait *wait, pf_tuple *out, pf_error *err) {
    ZERO_BUT_LOAN(out);
    ENTER(err);
    WHOLE(out);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_buffer_get(buffer, &call, out, err));
    return status;
}

pf_status pf_buffer_clear(pf_handle buffer, uint64_t *dropped, pf_error *err) {
    ZERO(dropped);
    ENTER(err);
    uint64_t unwanted;
    return pfgo_buffer_clear(buffer, dropped ? dropped : &unwanted, err);
}

pf_status pf_buffer_stats(pf_handle buffer, pf_buffer_info *out, pf_error *err) {
    ZERO_STRUCT(out);
    ENTER(err);
    WHOLE(out);
    return pfgo_buffer_stats(buffer, out, err);
}

pf_status pf_buffers_shutdown(pf_error *err) {
    ENTER(err);
    return pfgo_buffers_shutdown(err);
}
