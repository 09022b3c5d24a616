/* How a C thread waits for what Go would block on. */
#ifndef PYFEED_BLOCKING_H
#define PYFEED_BLOCKING_H

#include "internal.h"

typedef struct pfi_waiter {
    pf_wait wait;
    int64_t deadline;       /* CLOCK_MONOTONIC, in ns; 0: none */
    int64_t next_poll;      /* the same */
    uint32_t poll_requests; /* how many pf_poll_now had counted at the last poll */
    uint8_t signals_only;   /* the thread does not wake up to poll */
    uint8_t last_attempt;   /* it was awake after the deadline, and has tried once more */
} pfi_waiter;

/* Reads the caller's pf_wait, and fills in what an older header lacks. The time begins to run. */
pfi_waiter pfi_waiter_begin(const pf_wait *wait);
/* Sleeps until call->word is 1, the time is up or poll ends the wait; sets call->phase. A call that is awake at once, again
 * and again, is polled and times out too: both times count from the first sleep of the call. */
void pfi_sleep(pfi_waiter *w, pfi_call *call);
/* The same without a sleep, for a call that computes: sets call->phase if it is to end. */
void pfi_check_wait(pfi_waiter *w, pfi_call *call);

#endif
