/* Workers of a map reader. */
#include <stdlib.h>

#include "guard.h"

pf_status pf_map_workers_create(pf_handle reader, pf_handle *workers, pf_error *err) {
    ZERO(workers);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(workers, err);
    return pfgo_map_workers_create(reader, workers, err);
}

pf_status pf_map_workers_next(pf_handle workers, const pf_wait *wait, pf_tuple *out, uint64_t *ticket,
                              pf_error *err) {
    ZERO(ticket);
    ZERO_KEEP_LOAN(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    REQUIRE_POINTER(ticket, err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_map_workers_next(workers, &call, out, ticket, err));
    return status;
}

pf_status pf_map_workers_complete(pf_handle workers, uint64_t ticket, const pf_tensor *tensors,
                                  uint32_t num_tensors, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_TENSORS(tensors, num_tensors, 1, err);
    pfi_call call = {0};
    pf_status status =
        pfgo_map_workers_allocate(workers, ticket, (pf_tensor *)tensors, num_tensors, &call, err);
    if (status != PFI_COPY) return status;
    for (uint32_t i = 0; i < num_tensors; i++) pfi_gather(call.dest[i].data, pfi_tensor_at(tensors, i));
    return pfgo_map_workers_complete(workers, ticket, call.loan, err);
}

pf_status pf_map_workers_reserve(pf_handle workers, const pf_tensor *tensors, uint32_t num_tensors,
                                 pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    REQUIRE_TENSORS(tensors, num_tensors, 0, err);
    return pfgo_map_workers_reserve(workers, (pf_tensor *)tensors, num_tensors, out, err);
}

pf_status pf_map_workers_commit(pf_handle workers, uint64_t ticket, pf_tuple *reservation, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(reservation, err);
    pf_status status = pfgo_map_workers_commit(workers, ticket, reservation->loan, err);
    if (status == PF_OK) {
        reservation->num_slots = 0;
        reservation->slots = NULL;
        reservation->loan = 0;
    }
    return status;
}

pf_status pf_map_workers_fail(pf_handle workers, uint64_t ticket, const pf_failure *failure, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(failure, err);
    pf_failure all = PF_FAILURE_INIT;
    pfi_copy_struct(&all, failure);
    return pfgo_map_workers_fail(workers, ticket, &all, err);
}

pf_status pf_map_workers_skip(pf_handle workers, uint64_t ticket, const pf_failure *failure, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(failure, err);
    pf_failure all = PF_FAILURE_INIT;
    pfi_copy_struct(&all, failure);
    return pfgo_map_workers_skip(workers, ticket, &all, err);
}

pf_status pf_map_workers_position(pf_handle workers, uint64_t ticket, uint64_t *pass, uint64_t *index,
                                  pf_error *err) {
    ZERO(pass);
    ZERO(index);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(pass, err);
    REQUIRE_POINTER(index, err);
    return pfgo_map_workers_position(workers, ticket, pass, index, err);
}

pf_status pf_map_workers_start(pf_handle workers, pf_map_function function, void *context,
                               uint32_t num_threads, void (*finished)(void *context), pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(function, err);
    return pfgo_map_workers_start(workers, (void *)function, context, num_threads, (void *)finished, err);
}

pf_status pf_map_processes_create(pf_handle workers, pf_handle queue, pf_handle *processes, pf_error *err) {
    ZERO(processes);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(processes, err);
    return pfgo_map_processes_create(workers, queue, processes, err);
}

pf_status pf_map_processes_next(pf_handle processes, const pf_wait *wait, pf_map_event *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    pf_map_event event = PF_MAP_EVENT_INIT;
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_map_processes_next(processes, &call, &event, err));
    if (!status) pfi_copy_struct(out, &event);
    return status;
}

void pf_map_event_release(pf_map_event *event) {
    if (!event || event->size < PF_MAP_EVENT_SIZE_V1) return;
    char **texts[] = {&event->type, &event->message, &event->traceback, (char **)&event->detail};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        free(*texts[i]);
        *texts[i] = NULL;
    }
    event->detail_bytes = 0;
}
