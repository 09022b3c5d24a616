/* The layout of ABI 1, as it was when it was released. A struct may grow at its end: then its size here
 * grows, and a line for the new field is added. Any other change to this file is a new ABI. */
#ifndef PYFEED_TESTS_ABI_SIZES_H
#define PYFEED_TESTS_ABI_SIZES_H

#include <pyfeed.h>

#ifdef __cplusplus
#define PF_ASSERT(condition) static_assert(condition, #condition)
#else
#define PF_ASSERT(condition) _Static_assert(condition, #condition)
#endif
#define PF_SIZE(type, size) PF_ASSERT(sizeof(type) == (size))
#define PF_AT(type, field, offset) PF_ASSERT(offsetof(type, field) == (offset))

PF_ASSERT(PF_ABI_VERSION == 1u);

PF_SIZE(pf_status, 1);
PF_SIZE(pf_handle, 8);
PF_SIZE(pf_dtype, 4);

PF_SIZE(pf_place, 8);
PF_AT(pf_place, kind, 0);
PF_AT(pf_place, device, 4);

PF_SIZE(pf_lod_level, 16);
PF_AT(pf_lod_level, offsets, 0);
PF_AT(pf_lod_level, count, 8);

PF_SIZE(pf_tensor, 72);
PF_AT(pf_tensor, size, 0);
PF_AT(pf_tensor, dtype, 4);
PF_AT(pf_tensor, place, 8);
PF_AT(pf_tensor, rank, 16);
PF_AT(pf_tensor, lod_levels, 20);
PF_AT(pf_tensor, flags, 24);
PF_AT(pf_tensor, data, 32);
PF_AT(pf_tensor, nbytes, 40);
PF_AT(pf_tensor, dims, 48);
PF_AT(pf_tensor, strides, 56);
PF_AT(pf_tensor, lod, 64);

PF_SIZE(pf_tuple, 24);
PF_AT(pf_tuple, size, 0);
PF_AT(pf_tuple, num_slots, 4);
PF_AT(pf_tuple, slots, 8);
PF_AT(pf_tuple, loan, 16);

PF_SIZE(pf_error, 120);
PF_AT(pf_error, size, 0);
PF_AT(pf_error, status, 4);
PF_AT(pf_error, slot, 8);
PF_AT(pf_error, message, 16);
PF_AT(pf_error, cause_type, 24);
PF_AT(pf_error, cause_message, 32);
PF_AT(pf_error, cause_traceback, 40);
PF_AT(pf_error, cause_token, 48);
PF_AT(pf_error, file, 56);
PF_AT(pf_error, offset, 64);
PF_AT(pf_error, record, 72);
PF_AT(pf_error, os_errno, 80);
PF_AT(pf_error, op, 88);
PF_AT(pf_error, cuda_code, 96);
PF_AT(pf_error, exit_status, 100);
PF_AT(pf_error, cuda_name, 104);
PF_AT(pf_error, worker, 112);

PF_SIZE(pf_wait, 40);
PF_AT(pf_wait, size, 0);
PF_AT(pf_wait, poll_interval_ms, 4);
PF_AT(pf_wait, timeout_ns, 8);
PF_AT(pf_wait, cancel, 16);
PF_AT(pf_wait, poll, 24);
PF_AT(pf_wait, poll_context, 32);

PF_SIZE(pf_memory_info, 112);
PF_AT(pf_memory_info, handles, 8);
PF_AT(pf_memory_info, tuples_on_loan, 16);
PF_AT(pf_memory_info, live_queue_bytes, 24);
PF_AT(pf_memory_info, live_lent_bytes, 32);
PF_AT(pf_memory_info, live_batch_bytes, 40);
PF_AT(pf_memory_info, live_view_bytes, 48);
PF_AT(pf_memory_info, idle_bytes, 56);
PF_AT(pf_memory_info, live_buffers, 64);
PF_AT(pf_memory_info, live_file_bytes, 72);
PF_AT(pf_memory_info, live_mapped_bytes, 80);
PF_AT(pf_memory_info, pinned_bytes, 88);
PF_AT(pf_memory_info, device_bytes, 96);
PF_AT(pf_memory_info, shared_bytes, 104);

PF_SIZE(pf_cuda_device_info, 120);
PF_AT(pf_cuda_device_info, device, 4);
PF_AT(pf_cuda_device_info, free_bytes, 8);
PF_AT(pf_cuda_device_info, total_bytes, 16);
PF_AT(pf_cuda_device_info, name, 24);

PF_SIZE(pf_shared_queue_options, 40);
PF_AT(pf_shared_queue_options, num_slots, 4);
PF_AT(pf_shared_queue_options, slots, 8);
PF_AT(pf_shared_queue_options, ring_cells, 16);
PF_AT(pf_shared_queue_options, cell_bytes, 24);
PF_AT(pf_shared_queue_options, place, 32);

PF_SIZE(pf_slot_spec, 24);
PF_AT(pf_slot_spec, dtype, 4);
PF_AT(pf_slot_spec, rank, 8);
PF_AT(pf_slot_spec, lod_levels, 12);
PF_AT(pf_slot_spec, dims, 16);

PF_SIZE(pf_queue_options, 48);
PF_AT(pf_queue_options, num_slots, 4);
PF_AT(pf_queue_options, slots, 8);
PF_AT(pf_queue_options, capacity, 16);
PF_AT(pf_queue_options, bytes_limit, 24);
PF_AT(pf_queue_options, place, 32);
PF_AT(pf_queue_options, restartable, 40);

PF_SIZE(pf_failure, 40);
PF_AT(pf_failure, type, 8);
PF_AT(pf_failure, message, 16);
PF_AT(pf_failure, traceback, 24);
PF_AT(pf_failure, token, 32);

PF_SIZE(pf_queue_info, 120);
PF_AT(pf_queue_info, num_slots, 4);
PF_AT(pf_queue_info, num_tuples, 8);
PF_AT(pf_queue_info, capacity, 16);
PF_AT(pf_queue_info, reserved_tuples, 24);
PF_AT(pf_queue_info, bytes, 32);
PF_AT(pf_queue_info, bytes_limit, 40);
PF_AT(pf_queue_info, pass, 48);
PF_AT(pf_queue_info, closed, 56);
PF_AT(pf_queue_info, failed, 57);
PF_AT(pf_queue_info, shut_down, 58);
PF_AT(pf_queue_info, restartable, 59);
PF_AT(pf_queue_info, waiting_producers, 60);
PF_AT(pf_queue_info, waiting_consumers, 64);
PF_AT(pf_queue_info, pushed, 72);
PF_AT(pf_queue_info, popped, 80);
PF_AT(pf_queue_info, dropped, 88);
PF_AT(pf_queue_info, pushed_bytes, 96);
PF_AT(pf_queue_info, producers_waited_ns, 104);
PF_AT(pf_queue_info, consumers_waited_ns, 112);

PF_SIZE(pf_staging_info, 112);
PF_AT(pf_staging_info, place, 4);
PF_AT(pf_staging_info, num_tuples, 16);
PF_AT(pf_staging_info, capacity, 24);
PF_AT(pf_staging_info, reserved_tuples, 32);
PF_AT(pf_staging_info, bytes, 40);
PF_AT(pf_staging_info, bytes_limit, 48);
PF_AT(pf_staging_info, waiting_producers, 56);
PF_AT(pf_staging_info, waiting_consumers, 60);
PF_AT(pf_staging_info, put, 64);
PF_AT(pf_staging_info, got, 72);
PF_AT(pf_staging_info, dropped, 80);
PF_AT(pf_staging_info, put_bytes, 88);
PF_AT(pf_staging_info, producers_waited_ns, 96);
PF_AT(pf_staging_info, consumers_waited_ns, 104);

PF_SIZE(pf_staging_info, 112);
PF_AT(pf_staging_info, place, 4);
PF_AT(pf_staging_info, num_tuples, 16);
PF_AT(pf_staging_info, capacity, 24);
PF_AT(pf_staging_info, reserved_tuples, 32);
PF_AT(pf_staging_info, bytes, 40);
PF_AT(pf_staging_info, bytes_limit, 48);
PF_AT(pf_staging_info, waiting_producers, 56);
PF_AT(pf_staging_info, waiting_consumers, 60);
PF_AT(pf_staging_info, put, 64);
PF_AT(pf_staging_info, got, 72);
PF_AT(pf_staging_info, dropped, 80);
PF_AT(pf_staging_info, put_bytes, 88);
PF_AT(pf_staging_info, producers_waited_ns, 96);
PF_AT(pf_staging_info, consumers_waited_ns, 104);

PF_SIZE(pf_kernel_call, 72);
PF_AT(pf_kernel_call, size, 0);
PF_AT(pf_kernel_call, num_ins, 4);
PF_AT(pf_kernel_call, num_outs, 8);
PF_AT(pf_kernel_call, ins, 16);
PF_AT(pf_kernel_call, outs, 24);
PF_AT(pf_kernel_call, place, 32);
PF_AT(pf_kernel_call, stream, 40);
PF_AT(pf_kernel_call, kernel, 48);
PF_AT(pf_kernel_call, attributes, 56);
PF_AT(pf_kernel_call, run, 64);

/* Numbers that programs have compiled in. */
PF_ASSERT(PF_OK == 0 && PF_END == 1 && PF_TIMEOUT == 2 && PF_CANCELLED == 3 && PF_CLOSED == 4);
PF_ASSERT(PF_FAILED == 5 && PF_INVALID == 6 && PF_SHAPE == 7 && PF_DTYPE == 8 && PF_SLOTS == 9);
PF_ASSERT(PF_TOO_LARGE == 10 && PF_STALE_HANDLE == 11 && PF_STATE == 12 && PF_NOT_FOUND == 13);
PF_ASSERT(PF_UNSUPPORTED == 14 && PF_NO_MEMORY == 15 && PF_FORKED == 16 && PF_POISONED == 17);
PF_ASSERT(PF_CORRUPT == 18 && PF_IO == 19 && PF_CUDA_ERROR == 20);
PF_ASSERT(PF_DTYPE_ANY == 0 && PF_BOOL == 1 && PF_INT8 == 2 && PF_INT16 == 3 && PF_INT32 == 4);
PF_ASSERT(PF_INT64 == 5 && PF_UINT8 == 6 && PF_UINT16 == 7 && PF_UINT32 == 8 && PF_UINT64 == 9);
PF_ASSERT(PF_FLOAT16 == 10 && PF_BFLOAT16 == 11 && PF_FLOAT32 == 12 && PF_FLOAT64 == 13);
PF_ASSERT(PF_COMPLEX64 == 14 && PF_COMPLEX128 == 15);
PF_ASSERT(PF_CPU == 0 && PF_CUDA == 1 && PF_CUDA_PINNED == 2);
PF_ASSERT(PF_MAX_RANK == 8 && PF_MAX_LOD_LEVELS == 8 && PF_READ_ONLY == 1 && PF_HOST_EMULATED == 2);
PF_ASSERT(PF_VAR_EMPTY == 0 && PF_VAR_TENSOR == 1 && PF_VAR_QUEUE == 2 && PF_VAR_READER == 3);

#endif /* PYFEED_TESTS_ABI_SIZES_H */
