/* pyfeed.h, first and alone, in C11. */
#include <pyfeed.h>

#include "abi_sizes.h"

/* Every initialiser must be complete: -Wextra warns of a field that has none. */
pf_tensor pf_test_tensor = PF_TENSOR_INIT;
pf_tuple pf_test_tuple = PF_TUPLE_INIT;
pf_error pf_test_error = PF_ERROR_INIT;
pf_wait pf_test_wait = PF_WAIT_INIT;
pf_memory_info pf_test_memory = PF_MEMORY_INFO_INIT;
pf_slot_spec pf_test_slot = PF_SLOT_SPEC_INIT;
pf_queue_options pf_test_options = PF_QUEUE_OPTIONS_INIT;
pf_failure pf_test_failure = PF_FAILURE_INIT;
pf_queue_info pf_test_info = PF_QUEUE_INFO_INIT;
pf_staging_info pf_test_buffer = PF_STAGING_INFO_INIT;
