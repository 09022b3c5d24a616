/* Queues that other processes fill. */
#include "entry.h"

pf_status pf_shared_queue_init_once(pf_handle var, const pf_shared_queue_options *options, int *fd,
                                    pf_handle *queue, pf_error *err) {
    ZERO(queue);
    if (fd) *fd = -1;
    ENTER(err);
    NOT_NULL(queue);
    NOT_NULL(fd);
    NOT_NULL(options);
    SIZED(options, "options", sizeof *options);
    pf_status status = pfi_check_slots(options->slots, options->num_slots, err);
    return status ? status
                  : pfgo_shared_queue_init_once(var, (pf_shared_queue_options *)options, fd, queue, err);
}

pf_status pf_shared_queue_expect(pf_handle queue, uint32_t num_workers, pf_error *err) {
    ENTER(err);
    return pfgo_shared_queue_expect(queue, num_workers, err);
}

pf_status pf_shared_queue_exited(pf_handle queue, int64_t pid, int32_t exit_status, pf_error *err) {
    ENTER(err);
    return pfgo_shared_queue_exited(queue, pid, exit_status, err);
}
