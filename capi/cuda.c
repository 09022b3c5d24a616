/* CUDA devices, and the operations on tuples in device memory. */
#include "guard.h"

pf_status pf_cuda_available(uint8_t *available, char **reason, pf_error *err) {
    ZERO(available);
    ZERO(reason);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(available, err);
    return pfgo_cuda_available(available, reason, err);
}

pf_status pf_cuda_device_count(uint32_t *count, pf_error *err) {
    ZERO(count);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(count, err);
    return pfgo_cuda_device_count(count, err);
}

pf_status pf_cuda_device_stats(uint32_t device, pf_cuda_device_info *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pf_cuda_device_info info = PF_CUDA_DEVICE_INFO_INIT;
    pf_status status = pfgo_cuda_device_stats(device, &info, err);
    if (!status) pfi_copy_struct(out, &info);
    return status;
}

pf_status pf_tuple_use(const pf_tuple *tuple, uint64_t stream, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(tuple, err);
    return pfgo_tuple_use(tuple->loan, stream, err);
}

pf_status pf_tuple_release_on(pf_tuple *tuple, uint64_t stream, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(tuple, err);
    pf_status status = tuple->loan ? pfgo_tuple_release_on(tuple->loan, stream, err) : PF_OK;
    if (!status) {
        tuple->num_slots = 0;
        tuple->slots = NULL;
        tuple->loan = 0;
    }
    return status;
}

pf_status pf_tuple_synchronize(const pf_tuple *tuple, const pf_wait *wait, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(tuple, err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_tuple_synchronize(tuple->loan, &call, err));
    return status;
}

pf_status pf_tuple_download(const pf_tuple *tuple, uint32_t slot, void *to, uint64_t nbytes, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(tuple, err);
    if (nbytes > 0) REQUIRE_POINTER(to, err);
    pfi_call call = {0};
    pf_status status = pfgo_tuple_download(tuple->loan, slot, to, nbytes, &call, err);
    if (status != PFI_COPY) return status;
    if (nbytes > 0) memcpy(to, call.dest->data, nbytes); /* in C, so that Go's scheduler need not wait */
    return PF_OK;
}
