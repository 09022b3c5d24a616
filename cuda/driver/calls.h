/* Opening of the CUDA driver, and our own calls of it. */
#include <cuda.h>
#include <stdint.h>

#if CUDA_VERSION / 1000 != 12
#error "cuda.h of CUDA 12 is needed, no other"
#endif

/* The driver's result, and the name of the call in static memory. */
typedef struct pfd_result {
    int32_t code; /* a CUresult */
    const char *call;
} pfd_result;

/* Why there is no driver: the loader's error, or what is missing in the library. */
typedef struct pfd_reason {
    char text[512];
} pfd_reason;

/* Loads the library, initializes it and fills in the entry points. Only one thread may call it at a time.
 * If `call` is NULL in the result, no call of the driver failed, and `why` has the reason. */
pfd_result pfd_open(const char *path, pfd_reason *why);

/* Both return NULL if the driver does not know the code. */
const char *pfd_error_name(int32_t code);
const char *pfd_error_text(int32_t code);

/* Handles of the driver are passed as integers, because Go takes 1 and 2, which are valid streams, for bad
 * pointers.
 *
 * The following calls make the context current on the calling thread if needed, and restore the thread's
 * state afterwards. */

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

/* Codes that the driver does not use. */
enum { PFD_CAPTURING = -1, PFD_FOREIGN = -2 };

/* Calls with streams of consumers. */
pfd_result pfd_use(uintptr_t context, uintptr_t stream, uintptr_t event);
pfd_result pfd_release(uintptr_t context, uintptr_t stream, uintptr_t event);

/* Calls that change the state of the thread. */
pfd_result pfd_relax(int *before);
pfd_result pfd_restore(int mode);
pfd_result pfd_attach(uintptr_t context);
pfd_result pfd_detach(void);

/* Calls for a thread that is attached to a context. */
pfd_result pfd_copy_and_record(uint64_t to, const void *from, uint64_t bytes, uintptr_t stream,
                               uintptr_t event);
pfd_result pfd_query(uintptr_t event);
