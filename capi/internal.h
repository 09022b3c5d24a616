/* Between the C entry points and the Go behind them. Not installed. */
#ifndef PYFEED_INTERNAL_H
#define PYFEED_INTERNAL_H

#include "pyfeed.h"

/* Statuses between Go and its C caller, which never returns them. */
enum {
    PFI_WOULD_BLOCK = 254, /* sleep on call->word, then call again */
    PFI_COPY = 253,        /* gather the tensors into call->dest, then commit call->loan */
    PFI_KERNEL = 252,      /* of a run: call the kernel, then go on */
    PFI_YIELD = 251,       /* of a run: check the deadline and the poll function, then go on */
};

/* Why Go is called: for the first time, again after a wake-up, or because the wait has ended. */
enum { PFI_FIRST = 0, PFI_AGAIN = 1, PFI_TIMED_OUT = 2, PFI_CANCELLED = 3 };

/* One blocking call, on the stack of its thread. */
typedef struct pfi_call {
    uint32_t word; /* a futex: 0 waiting, 1 awake, 2 asleep in the kernel, 3 about to poll */
    uint8_t phase;
    uint8_t may_wait; /* 0: the timeout is 0 */
    uint8_t strided;  /* of a push: some tensor is not contiguous */
    uint64_t waiter;  /* the id of its Parker in Go */
    uint64_t pass;    /* of a push; resolved by the first attempt */
    pf_handle cancel;
    uint64_t loan;
    uint64_t opening;      /* the id of an opening or listing in the background */
    int64_t trace_begin;   /* of a read: when it began, on the clock of the recording; 0: there was none */
    int64_t sleep_begin;   /* the same, of its sleep */
    const pf_tensor *dest; /* PFI_COPY: where to */
} pfi_call;

/* One run of a program, on the stack of its thread. */
typedef struct pfi_run {
    uint64_t id;                 /* in Go; 0 once it is over */
    pf_kernel kernel;            /* PFI_KERNEL: what to call, */
    void *context;               /* with this */
    pf_kernel_call *kernel_call; /* and this, which is Go's */
    int32_t kernel_result;
    uint32_t yield_ms; /* how often PFI_YIELD is wanted; 0: never */
} pfi_run;

/* Set in a child of fork(), and by a fault: no call enters Go any more. */
enum { PFI_IS_FORKED = 1, PFI_IS_POISONED = 2 };
extern int pfi_disabled;

void pfi_poison(void);
pf_status pfi_fail(pf_error *err, pf_status status, int32_t slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void pfi_gather(void *to, const pf_tensor *from);
int pfi_contiguous(const pf_tensor *t);

/* The i-th of an array whose elements may be larger than this library knows. */
static inline const pf_tensor *pfi_tensor_at(const pf_tensor *first, uint32_t i) {
    return (const pf_tensor *)((const char *)first + (size_t)i * first->size);
}
static inline const pf_slot_spec *pfi_slot_at(const pf_slot_spec *first, uint32_t i) {
    return (const pf_slot_spec *)((const char *)first + (size_t)i * first->size);
}

/* Go cannot call a C function pointer itself. */
static inline void pfi_call_release(void (*release)(void *), void *context) { release(context); }
static inline int pfi_call_map(void *function, void *context, pf_handle workers, uint64_t ticket,
                               const pf_tuple *in) {
    return ((pf_map_function)function)(context, workers, ticket, in);
}

#endif
