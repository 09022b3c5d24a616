/* pyfeed.h compiles as the first and only header, in C11. */
#include <pyfeed.h>

/* Each struct is at least as large as in the first release. tests/lint compares the rest with the frozen headers. */
#define AT_LEAST(type, size) _Static_assert(sizeof(type) >= (size), #type " has shrunk")
AT_LEAST(pf_tensor, PF_TENSOR_SIZE_V1);
AT_LEAST(pf_tuple, PF_TUPLE_SIZE_V1);
AT_LEAST(pf_error, PF_ERROR_SIZE_V1);
AT_LEAST(pf_wait, PF_WAIT_SIZE_V1);
AT_LEAST(pf_memory_info, PF_MEMORY_INFO_SIZE_V1);
AT_LEAST(pf_cuda_device_info, PF_CUDA_DEVICE_INFO_SIZE_V1);
AT_LEAST(pf_slot_spec, PF_SLOT_SPEC_SIZE_V1);
AT_LEAST(pf_queue_options, PF_QUEUE_OPTIONS_SIZE_V1);
AT_LEAST(pf_failure, PF_FAILURE_SIZE_V1);
AT_LEAST(pf_queue_info, PF_QUEUE_INFO_SIZE_V1);
AT_LEAST(pf_shared_queue_options, PF_SHARED_QUEUE_OPTIONS_SIZE_V1);
AT_LEAST(pf_map_event, PF_MAP_EVENT_SIZE_V1);
AT_LEAST(pf_staging_info, PF_STAGING_INFO_SIZE_V1);
AT_LEAST(pf_kernel_call, PF_KERNEL_CALL_SIZE_V1);
_Static_assert(sizeof(pf_place) == PF_PLACE_SIZE_V1 && sizeof(pf_lod_level) == PF_LOD_LEVEL_SIZE_V1,
               "structs without a size never change");

/* Every initialiser must be complete: -Wextra warns of a field that is missing in one. */
pf_tensor pf_test_tensor = PF_TENSOR_INIT;
pf_tuple pf_test_tuple = PF_TUPLE_INIT;
pf_error pf_test_error = PF_ERROR_INIT;
pf_wait pf_test_wait = PF_WAIT_INIT;
pf_memory_info pf_test_memory = PF_MEMORY_INFO_INIT;
pf_slot_spec pf_test_slot = PF_SLOT_SPEC_INIT;
pf_queue_options pf_test_options = PF_QUEUE_OPTIONS_INIT;
pf_failure pf_test_failure = PF_FAILURE_INIT;
pf_map_event pf_test_map_event = PF_MAP_EVENT_INIT;
pf_queue_info pf_test_info = PF_QUEUE_INFO_INIT;
pf_staging_info pf_test_buffer = PF_STAGING_INFO_INIT;
