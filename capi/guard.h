/* The checks at the beginning of every C entry point: they refuse calls that must not enter Go. Not installed.
 *
 * The macros that return take the caller's `err`. No macro uses a local variable of its caller that is not an argument.
 */
#ifndef PYFEED_GUARD_H
#define PYFEED_GUARD_H

#include <string.h>

#include "_cgo_export.h"
#include "wait.h"

/* Store a message and return the status: PF_FORKED or PF_POISONED; PF_INVALID for a null pointer. */
pf_status pfi_fail_disabled(pf_error *err);
pf_status pfi_fail_null(pf_error *err, const char *name);
/* Check tensors and slots of the caller without Go. */
pf_status pfi_check_tensors(const pf_tensor *tensors, uint32_t num_tensors, int with_data, pf_error *err);
pf_status pfi_check_slots(const pf_slot_spec *slots, uint32_t num_slots, pf_error *err);

/* Copies a tuple into a queue or a staging buffer by calling `attempt`. PFI_COPY means that the tensors were copied to
 * the tuple `loan`, which the caller then commits. */
typedef pf_status pfi_push_attempt(pf_handle to, pf_tensor *tensors, uint32_t num_tensors, pfi_call *call,
                                   pf_error *err);
pf_status pfi_push(pfi_push_attempt *attempt, pf_handle to, const pf_tensor *tensors, uint32_t num_tensors,
                   uint64_t pass, uint64_t *loan, const pf_wait *wait, pf_error *err);

/* Returns from the entry point in a child of fork(), and after a fault in the library. */
#define CHECK_ALIVE(err)                                                           \
    do {                                                                           \
        if (__builtin_expect(__atomic_load_n(&pfi_disabled, __ATOMIC_RELAXED), 0)) \
            return pfi_fail_disabled(err);                                         \
    } while (0)
#define REQUIRE_POINTER(pointer, err)                        \
    do {                                                     \
        if (!(pointer)) return pfi_fail_null(err, #pointer); \
    } while (0)
#define REQUIRE_SIZE(struct_, name, least, err)                                                         \
    do {                                                                                                \
        if ((struct_)->size < (least))                                                                  \
            return pfi_fail(err, PF_INVALID, -1, "%s: expected a size of at least %zu, found %u", name, \
                            (size_t)(least), (unsigned)(struct_)->size);                                \
    } while (0)
/* The size that a struct had in the first release. A caller that was built with that header has no more fields. */
#define SIZE_V1(struct_)                                          \
    _Generic((struct_),                                           \
        pf_tensor: PF_TENSOR_SIZE_V1,                             \
        pf_tuple: PF_TUPLE_SIZE_V1,                               \
        pf_wait: PF_WAIT_SIZE_V1,                                 \
        pf_memory_info: PF_MEMORY_INFO_SIZE_V1,                   \
        pf_cuda_device_info: PF_CUDA_DEVICE_INFO_SIZE_V1,         \
        pf_slot_spec: PF_SLOT_SPEC_SIZE_V1,                       \
        pf_queue_options: PF_QUEUE_OPTIONS_SIZE_V1,               \
        pf_failure: PF_FAILURE_SIZE_V1,                           \
        pf_queue_info: PF_QUEUE_INFO_SIZE_V1,                     \
        pf_shared_queue_options: PF_SHARED_QUEUE_OPTIONS_SIZE_V1, \
        pf_map_event: PF_MAP_EVENT_SIZE_V1,                       \
        pf_staging_info: PF_STAGING_INFO_SIZE_V1,                 \
        pf_kernel_call: PF_KERNEL_CALL_SIZE_V1)
#define REQUIRE_STRUCT(struct_, err)                                       \
    do {                                                                   \
        REQUIRE_POINTER(struct_, err);                                     \
        REQUIRE_SIZE(struct_, #struct_, (size_t)SIZE_V1(*(struct_)), err); \
    } while (0)

/* Copies a struct of the caller to one of the library, or back. Either may be the shorter one. The target keeps its
 * size, and fields that the source lacks keep their values. */
static inline void pfi_copy_struct(void *to, const void *from) {
    uint32_t to_size, from_size;
    memcpy(&to_size, to, sizeof to_size);
    memcpy(&from_size, from, sizeof from_size);
    const uint32_t size = to_size < from_size ? to_size : from_size;
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size, size - sizeof size);
}
#define REQUIRE_TENSORS(tensors, count, with_data, err)                                        \
    do {                                                                                       \
        const pf_status pfi_refused = pfi_check_tensors((tensors), (count), (with_data), err); \
        if (pfi_refused) return pfi_refused;                                                   \
    } while (0)

/* Zeroes an out-parameter. This comes before all checks, so that it has a defined value after every failure. */
#define ZERO(value)              \
    do {                         \
        if (value) *(value) = 0; \
    } while (0)
/* Zeroes a struct that the caller initialised, except its size. */
#define ZERO_STRUCT(struct_)                                                                     \
    do {                                                                                         \
        if ((struct_) && (struct_)->size > sizeof(uint32_t))                                     \
            memset((char *)(struct_) + sizeof(uint32_t), 0, (struct_)->size - sizeof(uint32_t)); \
    } while (0)
/* Zeroes a tuple except its size and its loan, which the call releases first. If the call must not enter Go, the loan
 * is zeroed too. */
#define ZERO_KEEP_LOAN(tuple)                               \
    do {                                                    \
        if ((tuple) && (tuple)->size >= PF_TUPLE_SIZE_V1) { \
            const uint64_t pfi_loan = (tuple)->loan;        \
            ZERO_STRUCT(tuple);                             \
            (tuple)->loan = pfi_disabled ? 0 : pfi_loan;    \
        }                                                   \
    } while (0)

/* Evaluates `attempt`, a call of Go. As long as that would block, sleeps and evaluates it again. */
#define RUN_BLOCKING(status, call, wait, err, attempt)                  \
    do {                                                                \
        if (wait) {                                                     \
            REQUIRE_STRUCT(wait, err);                                  \
            (call).cancel = (wait)->cancel;                             \
        }                                                               \
        (call).may_wait = !(wait) || (wait)->timeout_ns != 0;           \
        if (((status) = (attempt)) == PFI_WOULD_BLOCK) {                \
            pfi_waiter pfi_sleeper = pfi_waiter_begin(wait);            \
            do pfi_sleep(&pfi_sleeper, &(call));                        \
            while (((status) = (attempt)) == PFI_WOULD_BLOCK);          \
            if ((call).waiter && !pfi_disabled) pfgo_call_end(&(call)); \
        }                                                               \
    } while (0)

#endif
