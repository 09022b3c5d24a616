/* pyfeed_worker: pushes tuples into a trainer's SharedFeedQueue from another process.
 *
 * A worker has the ring's file descriptor (pf_shared_queue_init_once), inherited, sent or opened as /proc/PID/fd/N, and
 * needs nothing else of the trainer's: no libpyfeed and no Go. Only types of pyfeed.h are used. For the copying and the
 * words, capi/gather.c and capi/info.c are compiled along with ring.c.
 *
 * Every function but pfw_attach, pfw_attach_next, pfw_end and pfw_free may be called from any thread at the same time as any other. A
 * child of fork() is a worker of its own: it has to attach. */
#ifndef PYFEED_WORKER_H
#define PYFEED_WORKER_H

#include "pyfeed.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pfw_producer pfw_producer;

/* What went wrong. `err` may be NULL everywhere. */
typedef struct pfw_error {
    pf_status status;
    int32_t slot;         /* the slot of the tuple that it is about, or -1 */
    int32_t os_errno;     /* PF_IO, PF_NO_MEMORY: the system's number, or 0 */
    int32_t trainer_gone; /* PF_CLOSED: because there is no trainer any more */
    char message[480];
} pfw_error;

/* A cell of the ring that is being written. */
typedef struct pfw_reservation {
    uint64_t state; /* 0: none */
    uint32_t cell;
} pfw_reservation;

/* Maps the ring. The descriptor stays the caller's, and may be closed. PF_CORRUPT if it is none.
 *
 * A worker checks what it reads: where another process has overwritten the ring, calls go on or answer an
 * error, PF_CORRUPT if nothing else fits. */
pf_status pfw_open(int fd, pfw_producer **out, pfw_error *err);
/* Unmaps it. A worker that is attached and has not ended its part is, for the trainer, still at work. NULL is fine. */
void pfw_free(pfw_producer *p);

/* Makes this process a worker of the queue's current pass, which has to be number `pass`, or PF_PASS_CURRENT. Twice is
 * fine. PF_CLOSED if the queue takes no more, or is at another pass, or the trainer is gone; PF_STATE in the trainer's
 * own process. */
pf_status pfw_attach(pfw_producer *p, uint64_t pass, pfw_error *err);
/* Waits, as `wait` says, for a pass after the last that it was a worker of, and makes it one of that pass. PF_CLOSED if the
 * queue or the trainer is gone; PF_STATE if it has not ended its part of a pass. */
pf_status pfw_attach_next(pfw_producer *p, const pf_wait *wait, pfw_error *err);
/* The last pass that it was a worker of; PF_PASS_NONE: of none. */
uint64_t pfw_pass(const pfw_producer *p);
/* Whether this process is one. */
int pfw_attached(const pfw_producer *p);
/* Ends this worker's part well. PF_STATE while a tuple is being written. */
pf_status pfw_end(pfw_producer *p, pfw_error *err);
/* Fails the pass, and ends this worker's part: the consumer gets the three texts after what was pushed. */
pf_status pfw_fail(pfw_producer *p, const char *type, const char *message, const char *traceback,
                   pfw_error *err);

/* Copies a tuple in. Waits for a cell, as `wait` says (its cancel token is ignored). */
pf_status pfw_push(pfw_producer *p, const pf_tensor *tensors, uint32_t num_tensors, const pf_wait *wait,
                   pfw_error *err);
/* The same in two steps: what `tensors` describe (but for their data) gets a cell, and data[i] says where tensor i is to
 * be written. Then pfw_commit, or pfw_abandon. */
pf_status pfw_reserve(pfw_producer *p, const pf_tensor *tensors, uint32_t num_tensors, const pf_wait *wait,
                      pfw_reservation *reservation, void **data, pfw_error *err);
pf_status pfw_commit(pfw_producer *p, pfw_reservation *reservation, pfw_error *err);
void pfw_abandon(pfw_producer *p, pfw_reservation *reservation);
/* Has a thread that waits for a cell, or a pass, call its poll function now; one of this producer's, if several wait. */
void pfw_poll_now(pfw_producer *p);

/* What tuples look like. pf_slot_spec.dims get PF_MAX_RANK numbers in `dims`. */
uint32_t pfw_num_slots(const pfw_producer *p);
void pfw_slot_spec(const pfw_producer *p, uint32_t i, pf_slot_spec *out, int64_t *dims);
/* The ring's own number, which no other ring has: 16 bytes. */
const uint8_t *pfw_identity(const pfw_producer *p);
uint64_t pfw_cell_bytes(const pfw_producer *p);
uint32_t pfw_ring_cells(const pfw_producer *p);

#ifdef __cplusplus
}
#endif

#endif
