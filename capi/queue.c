/* Queues. */
#include "guard.h"

pf_status pf_queue_init_once(pf_handle var, const pf_queue_options *options, pf_handle *queue,
                             pf_error *err) {
    ZERO(queue);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(queue, err);
    REQUIRE_STRUCT(options, err);
    pf_queue_options all = PF_QUEUE_OPTIONS_INIT;
    pfi_copy_struct(&all, options);
    pf_status status = pfi_check_slots(all.slots, all.num_slots, err);
    return status ? status : pfgo_queue_init_once(var, &all, queue, err);
}

pf_status pf_producer_create(pf_handle queue, pf_handle *producer, pf_error *err) {
    ZERO(producer);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(producer, err);
    return pfgo_producer_create(queue, producer, err);
}

pf_status pfi_push(pfi_push_attempt *attempt, pf_handle to, const pf_tensor *tensors, uint32_t num_tensors,
                   uint64_t pass, uint64_t *loan, const pf_wait *wait, pf_error *err) {
    REQUIRE_TENSORS(tensors, num_tensors, 1, err);
    pfi_call call = {.pass = pass};
    for (uint32_t i = 0; i < num_tensors; i++) call.strided |= !pfi_contiguous(pfi_tensor_at(tensors, i));
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, attempt(to, (pf_tensor *)tensors, num_tensors, &call, err));
    if (status != PFI_COPY) return status;
    /* Large or strided tensors are copied in C, because Go's scheduler would have to wait for a copy in Go. */
    for (uint32_t i = 0; i < num_tensors; i++) pfi_gather(call.dest[i].data, pfi_tensor_at(tensors, i));
    *loan = call.loan;
    return PFI_COPY;
}

pf_status pf_queue_push(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                        const pf_wait *wait, pf_error *err) {
    CHECK_ALIVE(err);
    uint64_t loan;
    pf_status status = pfi_push(pfgo_queue_push, queue, tensors, num_tensors, pass, &loan, wait, err);
    return status == PFI_COPY ? pfgo_queue_commit(loan, err) : status;
}

pf_status pf_queue_push_lent(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                             void (*release)(void *context), void *context, const pf_wait *wait,
                             pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_TENSORS(tensors, num_tensors, 1, err);
    REQUIRE_POINTER(release, err);
    for (uint32_t i = 0; i < num_tensors; i++)
        if (!pfi_contiguous(pfi_tensor_at(tensors, i)))
            return pfi_fail(err, PF_INVALID, (int32_t)i,
                            "slot %u: expected contiguous memory to be lent, found strides: copy it in, or "
                            "make it contiguous",
                            i);
    pfi_call call = {.pass = pass};
    pf_status status;
    RUN_BLOCKING(
        status, call, wait, err,
        pfgo_queue_push_lent(queue, (pf_tensor *)tensors, num_tensors, (void *)release, context, &call, err));
    return status;
}

pf_status pf_queue_reserve(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                           const pf_wait *wait, pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    REQUIRE_TENSORS(tensors, num_tensors, 0, err);
    pfi_call call = {.pass = pass};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err,
                 pfgo_queue_reserve(queue, (pf_tensor *)tensors, num_tensors, &call, out, err));
    return status;
}

pf_status pf_queue_commit(pf_tuple *reservation, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(reservation, err);
    pf_status status = pfgo_queue_commit(reservation->loan, err);
    if (status == PF_OK || status == PF_CLOSED) { /* after other errors the caller still has to release it */
        reservation->num_slots = 0;
        reservation->slots = NULL;
        reservation->loan = 0;
    }
    return status;
}

pf_status pf_queue_pop(pf_handle queue, const pf_wait *wait, pf_tuple *out, pf_error *err) {
    ZERO_KEEP_LOAN(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_queue_pop(queue, &call, out, err));
    return status;
}

pf_status pf_queue_close(pf_handle queue, uint64_t pass, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_queue_close(queue, pass, err);
}

pf_status pf_queue_fail(pf_handle queue, uint64_t pass, const pf_failure *failure, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(failure, err);
    pf_failure all = PF_FAILURE_INIT;
    pfi_copy_struct(&all, failure);
    return pfgo_queue_fail(queue, pass, &all, err);
}

pf_status pf_queue_reopen(pf_handle queue, uint64_t *pass, uint64_t *dropped, pf_error *err) {
    if (pass) *pass = PF_PASS_NONE;
    ZERO(dropped);
    CHECK_ALIVE(err);
    uint64_t ignored[2];
    pass = pass ? pass : &ignored[0];
    dropped = dropped ? dropped : &ignored[1];
    return pfgo_queue_reopen(queue, pass, dropped, err);
}

pf_status pf_queue_wait_pass(pf_handle queue, uint64_t after, const pf_wait *wait, uint64_t *pass,
                             pf_error *err) {
    if (pass) *pass = PF_PASS_NONE;
    CHECK_ALIVE(err);
    REQUIRE_POINTER(pass, err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_queue_wait_pass(queue, after, &call, pass, err));
    return status;
}

pf_status pf_queue_get_start(pf_handle queue, uint64_t pass, uint64_t *start, pf_error *err) {
    ZERO(start);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(start, err);
    return pfgo_queue_get_start(queue, pass, start, err);
}

pf_status pf_queue_set_start(pf_handle queue, uint64_t pass, uint64_t start, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_queue_set_start(queue, pass, start, err);
}

pf_status pf_queue_shutdown(pf_handle queue, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_queue_shutdown(queue, err);
}

pf_status pf_queue_stats(pf_handle queue, pf_queue_info *out, pf_error *err) {
    ZERO_STRUCT(out);
    if (out && out->size >= PF_QUEUE_INFO_SIZE_V1) out->pass = PF_PASS_NONE;
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pf_queue_info info = PF_QUEUE_INFO_INIT;
    pf_status status = pfgo_queue_stats(queue, &info, err);
    if (!status) pfi_copy_struct(out, &info);
    return status;
}

pf_status pf_queue_slot(pf_handle queue, uint32_t slot, pf_slot_spec *out, int64_t *dims, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    REQUIRE_POINTER(dims, err);
    pf_slot_spec spec = PF_SLOT_SPEC_INIT;
    pf_status status = pfgo_queue_slot(queue, slot, &spec, dims, err);
    if (!status) pfi_copy_struct(out, &spec);
    return status;
}
