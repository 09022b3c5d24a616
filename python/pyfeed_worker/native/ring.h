/* The layout of the ring in shared memory. pyfeed/shared/layout.go has the same layout for the trainer; a test compares
 * the two.
 *
 * A process that can die never holds a lock in the ring. The owner of a cell is in one word, the state of the cell,
 * which changes by a single atomic instruction:
 *
 *   FREE -> WRITING      a worker claims the cell
 *   WRITING -> COMMITTED the worker has written it
 *   WRITING -> REVOKED   the trainer takes no more tuples: the worker will notice
 *   WRITING, REVOKED -> FREE  the worker gives up, or is dead and the trainer cleans up
 *   COMMITTED -> CONSUMER -> FREE  the trainer
 *
 * So whenever a worker is killed, the word tells what to do with the cell. The order of the tuples is a second array of
 * entries. A worker writes its committed cell into the next empty entry by one atomic instruction, and then advances
 * `tail`. If it dies in between, the next worker or the trainer advances `tail`. A committed cell that is in no entry
 * is found by looking at all cells. */
#ifndef PYFEED_RING_H
#define PYFEED_RING_H

#include <stdint.h>

#define PFW_MAGIC "pyfeed\x1a\n"
enum {
    PFW_VERSION = 2,
    PFW_WORKERS = 256,   /* the most workers that are attached at one time */
    PFW_RANK = 8,        /* PF_MAX_RANK */
    PFW_LEVELS = 8,      /* PF_MAX_LOD_LEVELS */
    PFW_ALIGNMENT = 256, /* alignment of a tensor's data and of its LoD offsets in a cell, in bytes */
    PFW_FAILURE = 8192,  /* bytes for the error of a worker: */
    PFW_TYPE = 256,      /* its type, then its text, then its traceback, each zero-terminated */
    PFW_TEXT = 2048,
    PFW_TASK_FAILURE = 1
        << 16, /* bytes for the error of a task: its type, its text, its traceback, then a pickle */
    PFW_TASK_TRACEBACK = 1 << 14,
};

/* The gate is pass << 1, with PFW_OPEN while that pass takes tuples. It is PFW_OVER once no further pass will come. */
enum { PFW_OPEN = 1 };
#define PFW_OVER (UINT32_MAX - 1)

/* States of a cell, in the low byte of its word. Above it: worker (16 bits), generation (24), pass (16). */
enum { PFW_FREE = 0, PFW_WRITING = 1, PFW_COMMITTED = 2, PFW_REVOKED = 3, PFW_CONSUMER = 4 };

/* States of a task, in the low byte of its word. Above it as in the word of a cell. The trainer writes a free task and
 * posts it, and a worker takes it. The worker frees it when no array over its memory is left; if the worker is dead, the trainer does. A
 * task that is not taken yet can be revoked by the trainer. */
enum { PFW_TASK_FREE = 0, PFW_TASK_POSTED = 1, PFW_TASK_TAKEN = 2, PFW_TASK_WRITING = 3 };

/* States of a worker, in the low byte of its word. Above it: pass (24 bits), process id (32). */
enum { PFW_VACANT = 0, PFW_ATTACHING = 1, PFW_ATTACHED = 2, PFW_ENDED = 3, PFW_FAILED = 4 };

/* What a tensor of a tuple must look like. */
typedef struct pfw_spec {
    int32_t dtype; /* 0: the first tuple decides */
    int32_t rank;
    uint32_t lod_levels;
    uint32_t reserved;
    int64_t dims[PFW_RANK];
} pfw_spec;

/* The description of a tensor of a tuple. data_at and lod_at are relative to the beginning of the cell. */
typedef struct pfw_tensor {
    int32_t dtype;
    int32_t rank;
    uint32_t lod_levels;
    uint32_t reserved;
    uint64_t data_at;
    uint64_t nbytes;
    int64_t dims[PFW_RANK];
    uint64_t lod_at[PFW_LEVELS];
    uint64_t lod_count[PFW_LEVELS];
} pfw_tensor;

/* A tuple for the workers. Its memory begins with PFW_TASK_FAILURE bytes for an error; its arrays follow. */
typedef struct pfw_task {
    uint64_t state;
    uint64_t raised;       /* 1: the error of the task is written. Back to 0: the trainer has read it */
    uint64_t owner;        /* the process id of the worker that took it */
    uint64_t ticket;       /* comes back with the result, in the last slot */
    uint64_t pass, index;  /* the position of the tuple */
    uint64_t pickle_bytes; /* of the error */
    uint64_t reserved;
} pfw_task;

typedef struct pfw_worker {
    uint64_t state;
    uint64_t started; /* start time of the process, as in /proc/PID/stat; 0: not known */
    uint64_t pushed;
    uint64_t number; /* 1 + the number that the worker has given itself, for messages; 0: none */
    uint64_t reserved[4];
} pfw_worker;

typedef struct pfw_header {
    /* These fields are written before any worker sees the ring, and never again. */
    uint8_t magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint8_t identity[16];
    uint64_t total_bytes;
    uint32_t ring_cells;
    uint32_t num_slots; /* tensors of a tuple */
    uint32_t order;     /* entries of the order: a power of two, at least twice ring_cells */
    uint32_t workers;
    uint64_t cell_bytes;
    uint64_t stride; /* bytes from one cell to the next */
    uint64_t specs_at, workers_at, failures_at, order_at, states_at, tensors_at, data_at;
    int64_t trainer; /* process id of the trainer */
    uint64_t trainer_started;
    uint64_t pid_namespace; /* the inode of the PID namespace; 0: not known */
    uint32_t tasks;         /* the number of tasks; 0: the workers get none */
    uint32_t task_slots;    /* tensors of a task */
    uint64_t task_bytes;    /* the largest size of its tensors */
    uint64_t task_stride;
    uint64_t tasks_at, task_tensors_at, task_data_at;
    uint8_t reserved[56];

    /* The trainer and the workers write the following fields. Each group has a cache line of its own. */
    uint32_t gate; /* see PFW_OPEN */
    uint8_t pad0[60];
    uint64_t tail; /* number of the next entry of the order */
    uint8_t pad1[56];
    uint32_t trainer_events;   /* futex: incremented by every event for the trainer */
    uint32_t trainer_sleeping; /* 1 while the trainer sleeps on trainer_events */
    uint32_t worker_events;    /* incremented when the state of a worker changes */
    uint8_t pad2[52];
    uint32_t cell_events;     /* futex: incremented by every event for workers that wait for a cell */
    uint32_t waiting_workers; /* the number of workers that sleep on cell_events */
    uint32_t pass_events;     /* futex: incremented when the gate changes */
    uint32_t task_events;     /* futex: incremented by every event for workers that wait for a task */
    uint32_t waiting_takers;  /* the number of workers that sleep on task_events */
    uint32_t tasks_wanted;    /* 1 while the trainer waits for a free task */
    uint8_t pad3[40];
} pfw_header;

/* An entry of the order: cell + 1 (16 bits; 0: empty), generation (24), lap (24). */
static inline uint64_t pfw_order_entry(uint64_t lap, uint64_t generation, uint64_t cell_and_1) {
    return (lap & 0xffffff) << 40 | (generation & 0xffffff) << 16 | cell_and_1;
}

static inline uint32_t pfw_gate_pass(uint32_t gate) { return gate >> 1; }

static inline uint64_t pfw_state(uint64_t state, uint64_t worker, uint64_t generation, uint64_t pass) {
    return state | (worker & 0xffff) << 8 | (generation & 0xffffff) << 24 | (pass & 0xffff) << 48;
}

static inline uint64_t pfw_generation(uint64_t state) { return state >> 24 & 0xffffff; }

static inline uint64_t pfw_worker_state(uint64_t state, uint64_t pass, uint64_t pid) {
    return state | (pass & 0xffffff) << 8 | pid << 32;
}

#endif
