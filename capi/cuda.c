/* GPUs, and tuples that are there. */
#include "entry.h"

pf_status pf_cuda_available(uint8_t *available, char **reason, pf_error *err) {
    ZERO(available);
    ZERO(reason);
    ENTER(err);
    NOT_NULL(available);
    return pfgo_cuda_available(available, reason, err);
}

pf_status pf_cuda_device_count(uint32_t *count, pf_error *err) {
    ZERO(count);
    ENTER(err);
    NOT_NULL(count);
    return pfgo_cuda_device_count(count, err);
}

pf_status pf_cuda_device(uint32_t device, pf_cuda_device_info *out, pf_error *err) {
    ZERO_STRUCT(out);
    ENTER(err);
    WHOLE(out);
    return pfgo_cuda_device(device, out, err);
}

pf_status pf_tuple_use(const pf_tuple *tuple, uint64_t stream, pf_error *err) {
    ENTER(err);
    WHOLE(tuple);
    return pfgo_tuple_use(tuple->loan, stream, err);
}

pf_status pf_tuple_release_on(pf_tuple *tuple, uint64_t stream, pf_error *err) {
    ENTER(err);
    WHOLE(tuple);
    pf_status status = tuple->loan ? pfgo_tuple_release_on(tuple->loan, stream, err) : PF_OK;
    if (!status) *tuple = (pf_tuple){tuple->size, 0, NULL, 0};
    return status;
}

pf_status pf_tuple_synchronize(const pf_tuple *tuple, const pf_wait *wait, pf_error *err) {
    ENTER(err);
    WHOLE(tuple);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_tuple_synchronize(tuple->loan, &call, err));
    return status;
}

pf_status pf_tuple_download(const pf_tuple *tuple, uint32_t slot, void *to, uint64_t nbytes, pf_error *err) {
    ENTER(err);
    WHOLE(tuple);
    if (nbytes > 0) NOT_NULL(to);
    pfi_call call = {0};
    pf_status status = pfgo_tuple_download(tuple->loan, slot, to, nbytes, &call, err);
    if (status != PFI_COPY) return status;
    if (nbytes > 0)
        memcpy(to, call.room->data, nbytes); /* the host's: here, where Go's scheduler does not wait */
    return PF_OK;
}
