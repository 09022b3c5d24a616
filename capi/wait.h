/* How a C thread waits for what Go would block on. */
#ifndef PYFEED_WAIT_H
#define PYFEED_WAIT_H

#include "internal.h"

typedef struct pfi_waiter {
    pf_wait wait;
    int64_t deadline; /* CLOCK_MONOTONIC, in ns; 0: none */
} pfi_waiter;

/* Reads the caller's wish, with what its older header lacks filled in. The time begins to run. */
pfi_waiter pfi_waiter_begin(const pf_wait *wait);
/* Sleeps until call->word is 1, the time is up or poll says stop; sets call->phase. */
void pfi_sleep(pfi_waiter *w, pfi_call *call);
/* Has all that sleep in waits that poll do so now. */
void pfi_poll_sleepers(void);
/* The same without a sleep, for a call that works: sets call->phase if it is to end. */
void pfi_look(pfi_waiter *w, pfi_call *call);

#endif
