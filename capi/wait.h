/* How a C thread waits where Go would block. */
#ifndef PYFEED_WAIT_H
#define PYFEED_WAIT_H

#include "internal.h"

typedef struct pfi_waiter {
    pf_wait wait;
    int64_t deadline;       /* CLOCK_MONOTONIC, in ns; 0: none */
    int64_t next_poll;      /* as deadline */
    uint32_t poll_requests; /* the number of pf_poll_now calls at the last poll */
    uint8_t signals_only;   /* the poll function has disabled periodic polling */
    uint8_t last_attempt;   /* the call was awake after its deadline, and tries once more */
} pfi_waiter;

/* Copies the caller's pf_wait, with defaults for the fields that an older header lacks. The timeout begins now. */
pfi_waiter pfi_waiter_begin(const pf_wait *wait);
/* Sleeps until call->word is 1, the deadline has passed or the poll function ends the wait, and sets call->phase. A
 * call that is woken at once again and again still polls and times out: both intervals count from the first sleep of
 * the call. */
void pfi_sleep(pfi_waiter *w, pfi_call *call);
/* Checks the poll function and the deadline without a sleep, for a call that computes. Sets call->phase if the call is
 * to end. */
void pfi_check_wait(pfi_waiter *w, pfi_call *call);

#endif
