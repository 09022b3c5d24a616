/* Queues that worker processes fill. */
#include "guard.h"

pf_status pf_shared_queue_init_once(pf_handle var, const pf_shared_queue_options *options, int *fd,
                                    pf_handle *queue, pf_error *err) {
    ZERO(queue);
    if (fd) *fd = -1;
    CHECK_ALIVE(err);
    REQUIRE_POINTER(queue, err);
    REQUIRE_POINTER(fd, err);
    REQUIRE_STRUCT(options, err);
    pf_shared_queue_options all = PF_SHARED_QUEUE_OPTIONS_INIT;
    pfi_copy_struct(&all, options);
    pf_status status = pfi_check_slots(all.slots, all.num_slots, err);
    return status ? status : pfgo_shared_queue_init_once(var, &all, fd, queue, err);
}

pf_status pf_shared_queue_expect(pf_handle queue, uint32_t num_workers, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_shared_queue_expect(queue, num_workers, err);
}

pf_status pf_shared_queue_report_exit(pf_handle queue, int64_t pid, int32_t exit_status, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_shared_queue_report_exit(queue, pid, exit_status, err);
}

pf_status pf_shared_queue_at_work(pf_handle queue, const int64_t *coming, uint32_t num_coming, uint8_t *out,
                                  pf_error *err) {
    ZERO(out);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(out, err);
    if (num_coming) REQUIRE_POINTER(coming, err);
    return pfgo_shared_queue_at_work(queue, (int64_t *)coming, num_coming, out, err);
}
