/* The executor: runs programs on the calling thread. */
#include "guard.h"

enum { YIELD_MS = 50 }; /* between two checks of the deadline and the poll function while a run computes */

pf_status pf_executor_create(pf_place place, pf_handle *executor, pf_error *err) {
    ZERO(executor);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(executor, err);
    return pfgo_executor_create(place, executor, err);
}

static pf_status check_names(const char *const *names, uint32_t count, const char *what, pf_error *err) {
    if (count > 0 && !names) return pfi_fail_null(err, what);
    for (uint32_t i = 0; i < count; i++)
        if (!names[i]) return pfi_fail_null(err, what);
    return PF_OK;
}

pf_status pf_executor_run(pf_handle executor, pf_handle program, pf_handle scope,
                          const char *const *feed_names, const pf_tensor *feeds, uint32_t num_feeds,
                          const char *const *fetch_names, uint32_t num_fetches, const pf_wait *wait,
                          pf_tuple *fetched, pf_error *err) {
    ZERO_KEEP_LOAN(fetched);
    CHECK_ALIVE(err);
    if (num_fetches > 0) REQUIRE_STRUCT(fetched, err);
    pf_status status = check_names(feed_names, num_feeds, "feed_names", err);
    if (!status) status = check_names(fetch_names, num_fetches, "fetch_names", err);
    if (status) return status;
    REQUIRE_TENSORS(feeds, num_feeds, 1, err);
    if (wait) REQUIRE_STRUCT(wait, err);

    pfi_waiter waiter = pfi_waiter_begin(wait);
    pfi_call call = {0};
    call.cancel = waiter.wait.cancel;
    call.may_wait = waiter.wait.timeout_ns != 0;
    pfi_run run = {0};
    if (waiter.wait.poll || waiter.deadline) {
        uint32_t interval = waiter.wait.poll_interval_ms;
        run.yield_ms = interval && interval < YIELD_MS ? interval : YIELD_MS;
    }
    status = pfgo_run_begin(executor, program, scope, (char **)feed_names, (pf_tensor *)feeds, num_feeds,
                            (char **)fetch_names, num_fetches, &call, &run, fetched, err);
    if (status == PFI_COPY) {
        for (uint32_t i = 0; i < num_feeds; i++)
            pfi_gather(pfi_tensor_at(call.dest, i)->data, pfi_tensor_at(feeds, i));
        status = pfgo_run_feed(&run, call.loan, err);
    }
    if (status) return status;
    for (;;) {
        status = pfgo_run_step(&run, &call, num_fetches > 0 ? fetched : NULL, err);
        if (status == PFI_KERNEL) {
            run.kernel_result = run.kernel(run.context, run.kernel_call);
            if (__builtin_expect(__atomic_load_n(&pfi_disabled, __ATOMIC_RELAXED), 0))
                return pfi_fail_disabled(err);
        } else if (status == PFI_WOULD_BLOCK) {
            pfi_sleep(&waiter, &call);
        } else if (status == PFI_YIELD) {
            pfi_check_wait(&waiter, &call);
        } else {
            break;
        }
    }
    if (call.waiter && !pfi_disabled) pfgo_call_end(&call);
    return status;
}
