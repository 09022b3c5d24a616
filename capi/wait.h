/* How a C thread waits for what Go would block on. */
#ifndef PYFEED_WAIT_H
#define PYFEED_WAIT_H

#include "internal.h"

typedef struct pfi_waiter {
    pf_wait wait;
    int64_t deadline;  /* CLOCK_MONOTONIC, in ns; 0: none */
    int64_t next_poll; /* the same */
    uint32_t asked;    /* how often pfi_poll_sleepers had been called at the last poll */
    uint8_t quiet;     /* the thread does not wake up to poll */
    uint8_t late;      /* it was awake after the deadline, and has tried once more */
} pfi_waiter;

/* Reads the caller's wish, with what its older header lacks filled in. The time begins to run. */
pfi_waiter pfi_waiter_begin(const pf_wait *wait);
/* Sleeps until call->word is 1, the time is up or poll says stop; sets call->phase. A call that is awake at once, again and
 * again, is polled and ends with its time too: what is due is counted from the first sleep of the call on. */
void pfi_sleep(pfi_waiter *w, pfi_call *call);
/* Has all that are in waits that poll do so now, or as soon as they get there. */
void pfi_poll_sleepers(void);
/* The same without a sleep, for a call that works: sets call->phase if it is to end. */
void pfi_look(pfi_waiter *w, pfi_call *call);

#endif
