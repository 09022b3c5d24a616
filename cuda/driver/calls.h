/* The CUDA driver: how it is opened, and our own calls of it. */
#include <cuda.h>
#include <stdint.h>

#if CUDA_VERSION / 1000 != 12
#error "cuda.h of CUDA 12 is needed, no other"
#endif

/* What the driver answered, and to which call, in memory that stays. */
typedef struct pfd_result {
    int32_t code; /* a CUresult */
    const char *call;
} pfd_result;

/* Why there is no driver: what the loader said, or what we miss in the library that it loaded. */
typedef struct pfd_reason {
    char text[512];
} pfd_reason;

/* Loads the library, has it initialize itself and fills in the entry points. One caller at a time. If the answer is not
 * the driver's (`call` is NULL), then `why` says what is wrong. */
pfd_result pfd_open(const char *path, pfd_reason *why);

/* Both are NULL where the driver does not know the code. */
const char *pfd_error_name(int32_t code);
const char *pfd_error_text(int32_t code);

/* Handles of the driver's are integers: Go takes 1 and 2, which are streams, for bad pointers.
 *
 * These make the context current on the calling thread, unless it is, and leave the thread as they found it. */

pfd_result pfd_memory_info(uintptr_t context, uint64_t *free_bytes, uint64_t *total_bytes);
pfd_result pfd_alloc(uintptr_t context, uint64_t bytes, uint64_t *address);
pfd_result pfd_free(uintptr_t context, uint64_t address);
pfd_result pfd_register(uintptr_t context, void *p, uint64_t bytes);
pfd_result pfd_unregister(uintptr_t context, void *p);
pfd_result pfd_host_alloc(uintptr_t context, uint64_t bytes, void **p);
pfd_result pfd_host_free(uintptr_t context, void *p);
pfd_result pfd_new_stream(uintptr_t context, int high, uintptr_t *stream);
pfd_result pfd_destroy_stream(uintptr_t context, uintptr_t stream);
pfd_result pfd_synchronize_stream(uintptr_t context, uintptr_t stream);
pfd_result pfd_new_event(uintptr_t context, int timing, uintptr_t *event);
pfd_result pfd_destroy_event(uintptr_t context, uintptr_t event);
pfd_result pfd_download(uintptr_t context, void *to, uint64_t from, uint64_t bytes);

/* Codes of ours, which are none of the driver's. */
enum { PFD_CAPTURING = -1, PFD_FOREIGN = -2 };

/* Streams of consumers. */
pfd_result pfd_use(uintptr_t context, uintptr_t stream, uintptr_t event);
pfd_result pfd_release(uintptr_t context, uintptr_t stream, uintptr_t event);

/* Of the thread. */
pfd_result pfd_relax(int *before);
pfd_result pfd_restore(int mode);
pfd_result pfd_attach(uintptr_t context);
pfd_result pfd_detach(void);

/* Of a thread that is attached. */
pfd_result pfd_copy_and_record(uint64_t to, const void *from, uint64_t bytes, uintptr_t stream,
                               uintptr_t event);
pfd_result pfd_query(uintptr_t event);
