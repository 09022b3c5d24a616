/* What every C entry point begins with: it answers for what must not reach Go. Not installed. */
#ifndef PYFEED_ENTRY_H
#define PYFEED_ENTRY_H

#include <string.h>

#include "_cgo_export.h"
#include "wait.h"

/* PF_FORKED or PF_POISONED, and PF_INVALID for a null pointer, with a sentence. */
pf_status pfi_refuse(pf_error *err);
pf_status pfi_null(pf_error *err, const char *name);
/* What can be said of tensors that come in without Go. */
pf_status pfi_check_tensors(const pf_tensor *tensors, uint32_t num_tensors, int with_data, pf_error *err);

pf_status pfi_check_slots(const pf_slot_spec *slots, uint32_t num_slots, pf_error *err);

/* Copies a tuple in, by what tries to. PFI_COPY: it was copied to a tuple on loan, which the caller commits. */
typedef pf_status pfi_push_try(pf_handle to, pf_tensor *tensors, uint32_t num_tensors, pfi_call *call,
                               pf_error *err);
pf_status pfi_push(pfi_push_try *try_, pf_handle to, const pf_tensor *tensors, uint32_t num_tensors,
                   uint64_t pass, uint64_t *loan, const pf_wait *wait, pf_error *err);

#define ENTER(err)                                                                                     \
    do {                                                                                               \
        if (__builtin_expect(__atomic_load_n(&pfi_shut, __ATOMIC_RELAXED), 0)) return pfi_refuse(err); \
    } while (0)
#define NOT_NULL(pointer)                               \
    do {                                                \
        if (!(pointer)) return pfi_null(err, #pointer); \
    } while (0)
/* What the caller gets is zeroed before anything else, so that no failure leaves it as it was. */
#define ZERO(value)              \
    do {                         \
        if (value) *(value) = 0; \
    } while (0)
/* Of a struct the caller initialised, everything after its size. */
#define ZERO_STRUCT(struct_)                                                                     \
    do {                                                                                         \
        if ((struct_) && (struct_)->size > sizeof(uint32_t))                                     \
            memset((char *)(struct_) + sizeof(uint32_t), 0, (struct_)->size - sizeof(uint32_t)); \
    } while (0)
/* Of a tuple that is to be taken back: its loan goes to Go, or nowhere if nobody gets there any more. */
#define ZERO_BUT_LOAN(tuple)                               \
    do {                                                   \
        if ((tuple) && (tuple)->size >= sizeof *(tuple)) { \
            uint64_t loan = (tuple)->loan;                 \
            ZERO_STRUCT(tuple);                            \
            (tuple)->loan = pfi_shut ? 0 : loan;           \
        }                                                  \
    } while (0)
#define WHOLE(struct_)                               \
    do {                                             \
        NOT_NULL(struct_);                           \
        SIZED(struct_, #struct_, sizeof *(struct_)); \
    } while (0)
#define SIZED(struct_, name, least)                                                                     \
    do {                                                                                                \
        if ((struct_)->size < (least))                                                                  \
            return pfi_fail(err, PF_INVALID, -1, "%s: expected a size of at least %zu, found %u", name, \
                            (size_t)(least), (unsigned)(struct_)->size);                                \
    } while (0)
/* Tries, sleeps and tries again. */
#define BLOCKING(try_)                                                             \
    do {                                                                           \
        if (wait) {                                                                \
            SIZED(wait, "wait", offsetof(pf_wait, cancel));                        \
            if (wait->size >= offsetof(pf_wait, poll)) call.cancel = wait->cancel; \
        }                                                                          \
        call.waits = !wait || wait->timeout_ns != 0;                               \
        if ((status = (try_)) == PFI_WOULD_BLOCK) {                                \
            pfi_waiter waiter = pfi_waiter_begin(wait);                            \
            do pfi_sleep(&waiter, &call);                                          \
            while ((status = (try_)) == PFI_WOULD_BLOCK);                          \
            if (call.waiter && !pfi_shut) pfgo_call_end(&call);                    \
        }                                                                          \
    } while (0)
#define TENSORS(tensors, count, with_data)                                       \
    do {                                                                         \
        pf_status bad = pfi_check_tensors((tensors), (count), (with_data), err); \
        if (bad) return bad;                                                     \
    } while (0)

#endif
