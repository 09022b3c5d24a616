/* pyfeed_worker: pushes tuples into a SharedFeedQueue of a trainer, from a worker process.
 *
 * A worker has the file descriptor of the ring (pf_shared_queue_init_once): it inherits it, receives it over a socket,
 * or opens /proc/PID/fd/N. It needs nothing else of the trainer: no libpyfeed and no Go. Only the types of pyfeed.h are
 * used. Compile ring.c with the folder capi in the include path, together with capi/gather.c and capi/info.c, which copy tensors and have
 * the names of dtypes.
 *
 * Threads: pfw_attach, pfw_attach_next, pfw_end and pfw_free are for one thread at a time. All other functions may be
 * called from any thread, at the same time as any other. A child of fork() is a worker of its own: it has to attach. */
#ifndef PYFEED_WORKER_H
#define PYFEED_WORKER_H

#include "pyfeed.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pfw_producer pfw_producer;

/* What went wrong. Every `err` may be NULL. A status other than PF_OK fills it in; it owns no memory. */
typedef struct pfw_error {
    pf_status status;
    int32_t slot;         /* the slot that the error is about, or -1 */
    int32_t os_errno;     /* PF_IO, PF_NO_MEMORY: the errno of the operating system, or 0 */
    int32_t trainer_gone; /* PF_CLOSED: 1 if the trainer process has ended; else 0 */
    char message[480];
} pfw_error;

/* A cell of the ring that this worker is writing. */
typedef struct pfw_reservation {
    uint64_t state; /* 0: none */
    uint32_t cell;
} pfw_reservation;

/* Maps the ring. The caller keeps the descriptor and may close it. PF_CORRUPT if it is no ring. The caller releases
 * `*out` with pfw_free.
 *
 * A worker checks what it reads from the ring. If another process has overwritten the ring, calls still work or return
 * an error: PF_CORRUPT if no other status fits. */
pf_status pfw_open(int fd, pfw_producer **out, pfw_error *err);
/* Unmaps the ring. If the worker is attached and has not ended its part, the trainer still counts it as working. NULL
 * does nothing. */
void pfw_free(pfw_producer *p);

/* Gives this worker a number, from 0, which the trainer's errors then name beside the process id. Takes effect when the
 * worker attaches. */
void pfw_set_number(pfw_producer *p, uint32_t number);
/* Makes this process a worker of the current pass of the queue, which must have the number `pass`, or PF_PASS_CURRENT
 * for any. A second call does nothing. PF_CLOSED if the queue takes no more tuples or is at another pass, or if the
 * trainer has ended. PF_STATE in the trainer's own process, or if PFW_WORKERS (256) workers are attached. */
pf_status pfw_attach(pfw_producer *p, uint64_t pass, pfw_error *err);
/* Waits, as `wait` says, for a pass after the last one that this was a worker of, and attaches to it. PF_CLOSED if the
 * queue is shut down or the trainer has ended. PF_STATE if the worker has not ended its part of a pass. */
pf_status pfw_attach_next(pfw_producer *p, const pf_wait *wait, pfw_error *err);
/* The last pass that this is or was a worker of; PF_PASS_NONE if there was none. */
uint64_t pfw_pass(const pfw_producer *p);
/* Whether this process is attached as a worker. */
int pfw_attached(const pfw_producer *p);
/* Ends this worker's part of the pass successfully. PF_STATE while a tuple is being written. */
pf_status pfw_end(pfw_producer *p, pfw_error *err);
/* Fails the pass and ends this worker's part. The consumer gets the three texts, after the tuples that were pushed.
 * Each may be NULL. */
pf_status pfw_fail(pfw_producer *p, const char *type, const char *message, const char *traceback,
                   pfw_error *err);

/* Pushes a copy of a tuple. Waits for a free cell, as `wait` says; NULL waits for ever. The cancel token of `wait` is
 * ignored. */
pf_status pfw_push(pfw_producer *p, const pf_tensor *tensors, uint32_t num_tensors, const pf_wait *wait,
                   pfw_error *err);
/* The same in two steps, without a copy. pfw_reserve claims a cell for a tuple with the dtypes, dims and LoD of
 * `tensors`, whose data is ignored. data[i] gets the address to write tensor i to. Then call pfw_commit to queue the
 * tuple, or pfw_abandon to drop it. pfw_commit ends the reservation after an error too. */
pf_status pfw_reserve(pfw_producer *p, const pf_tensor *tensors, uint32_t num_tensors, const pf_wait *wait,
                      pfw_reservation *reservation, void **data, pfw_error *err);
pf_status pfw_commit(pfw_producer *p, pfw_reservation *reservation, pfw_error *err);
void pfw_abandon(pfw_producer *p, pfw_reservation *reservation);
/* Makes a thread that waits in this producer, for a cell or for a pass, call its poll function now. If several threads
 * wait, one of them does. */
void pfw_poll_now(pfw_producer *p);

/* A task: a tuple that the trainer has posted for one of the workers. */
typedef struct pfw_taken {
    uint64_t state;
    uint32_t task;
    uint64_t ticket;      /* is pushed with the result, as an int64 in the last slot */
    uint64_t pass, index; /* the position of the tuple */
} pfw_taken;

/* Takes the next task, and waits for one as `wait` says. Fills in pfw_task_slots tensors, with room for dims and LoD for
 * each: views of memory that belongs to this worker until pfw_release_task. PF_CLOSED as for pfw_push. */
pf_status pfw_take(pfw_producer *p, const pf_wait *wait, pfw_taken *out, pf_tensor *tensors,
                   int64_t (*dims)[PF_MAX_RANK], pf_lod_level (*lod)[PF_MAX_LOD_LEVELS], pfw_error *err);
/* Gives the memory of a task back. Any thread. In a child of fork() it does nothing. */
void pfw_release_task(pfw_producer *p, const pfw_taken *taken);
/* Reports that a task has no result. Call it before pfw_release_task. Each text may be NULL; a pickle that is too large
 * for the ring is left out. */
pf_status pfw_fail_task(pfw_producer *p, const pfw_taken *taken, const char *type, const char *message,
                        const char *traceback, const void *pickle, size_t pickle_bytes, pfw_error *err);
/* The number of tensors of a task; 0: the ring has no tasks. */
uint32_t pfw_task_slots(const pfw_producer *p);

/* The slots of a tuple. pfw_slot_spec stores PF_MAX_RANK numbers in `dims` and points out->dims to them. */
uint32_t pfw_num_slots(const pfw_producer *p);
void pfw_slot_spec(const pfw_producer *p, uint32_t i, pf_slot_spec *out, int64_t *dims);
/* The unique id of the ring: 16 bytes, valid until pfw_free. */
const uint8_t *pfw_identity(const pfw_producer *p);
uint64_t pfw_cell_bytes(const pfw_producer *p);
uint32_t pfw_ring_cells(const pfw_producer *p);

#ifdef __cplusplus
}
#endif

#endif
