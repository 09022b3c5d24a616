/* The interface between the C entry points and the Go code. Not installed. */
#ifndef PYFEED_INTERNAL_H
#define PYFEED_INTERNAL_H

#include "pyfeed.h"

/* Statuses that Go returns to C. No function of pyfeed.h returns them. */
enum {
    PFI_WOULD_BLOCK = 254, /* sleep on call->word, then call again */
    PFI_COPY = 253,        /* gather the tensors into call->dest, then commit call->loan */
    PFI_KERNEL = 252,      /* of a run: call the kernel, then call again */
    PFI_YIELD = 251,       /* of a run: check the deadline and the poll function, then call again */
};

/* Why C calls Go: for the first time, again after a wake-up, or because the wait has ended. */
enum { PFI_FIRST = 0, PFI_AGAIN = 1, PFI_TIMED_OUT = 2, PFI_CANCELLED = 3 };

/* A blocking call. It lives on the stack of its thread. */
typedef struct pfi_call {
    uint32_t word; /* a futex: 0 waiting, 1 woken, 2 asleep in the kernel, 3 woken to poll */
    uint8_t phase;
    uint8_t may_wait; /* 0: the timeout is 0 */
    uint8_t strided;  /* of a push: some tensor is not contiguous */
    uint64_t waiter;  /* the id of the Parker in Go; 0: none yet */
    uint64_t pass;    /* of a push; the first attempt resolves PF_PASS_CURRENT */
    pf_handle cancel;
    uint64_t loan;
    uint64_t loop;         /* of a read in a loop: the loop; else 0 */
    uint64_t opening;      /* the id of an opening or a listing that runs in the background */
    int64_t trace_begin;   /* of a read: when it began, on the clock of the trace; 0: no recording was on */
    int64_t sleep_begin;   /* the same for its sleep */
    const pf_tensor *dest; /* PFI_COPY: the tensors to copy to */
} pfi_call;

/* A run of a program. It lives on the stack of its thread. */
typedef struct pfi_run {
    uint64_t id;                 /* the id of the run in Go; 0 once it has ended */
    pf_kernel kernel;            /* PFI_KERNEL: the function to call */
    void *context;               /* its first argument */
    pf_kernel_call *kernel_call; /* its second argument, which Go owns */
    int32_t kernel_result;
    uint32_t yield_ms; /* how often the run returns PFI_YIELD; 0: never */
} pfi_run;

/* Set in a child of fork() and by a fault in the library. No call enters Go from then on. */
enum { PFI_IS_FORKED = 1, PFI_IS_POISONED = 2 };
extern int pfi_disabled;

void pfi_poison(void);
void pfi_release_tables(void);
pf_status pfi_fail(pf_error *err, pf_status status, int32_t slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void pfi_gather(void *to, const pf_tensor *from);
int pfi_contiguous(const pf_tensor *t);

/* Element i of an array. Its elements may be larger than the struct of this library. */
static inline const pf_tensor *pfi_tensor_at(const pf_tensor *first, uint32_t i) {
    return (const pf_tensor *)((const char *)first + (size_t)i * first->size);
}
static inline const pf_slot_spec *pfi_slot_at(const pf_slot_spec *first, uint32_t i) {
    return (const pf_slot_spec *)((const char *)first + (size_t)i * first->size);
}

/* Go cannot call a C function pointer: it calls these functions instead. */
static inline void pfi_call_release(void (*release)(void *), void *context) { release(context); }
static inline int pfi_call_map(void *function, void *context, pf_handle workers, uint64_t ticket,
                               const pf_tuple *in) {
    return ((pf_map_function)function)(context, workers, ticket, in);
}

#endif
