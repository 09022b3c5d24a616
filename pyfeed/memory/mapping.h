/* Handling of faults in files that are mapped for reading. */
#include <stdint.h>

/* The signal handler's data about a mapping. It is in C memory, because the handler reads it. */
typedef struct pfm_mapping {
    uint8_t *begin;
    uint64_t size;
    uint32_t place; /* index in the handler's table */
    uint32_t torn;  /* set by the handler: the file has no data at `from`, and zeros are mapped there */
    uint64_t from;  /* offset of the first zeros if torn, otherwise size */
} pfm_mapping;

/* The number of torn mappings in the table, and the number of faults handled. */
extern uint32_t pfm_torn, pfm_faults;

/* Makes the zeros of a torn mapping raise SIGBUS again. The caller keeps the mapping mapped. */
void pfm_rearm(pfm_mapping *m);

/* Enters a mapping in the handler's table. Returns 0 if the table is full. */
int pfm_watch(pfm_mapping *m);
/* Removes a mapping from the handler's table. Must be called before munmap. */
void pfm_forget(pfm_mapping *m);
/* Makes sure that our handler for SIGBUS is the installed one. */
void pfm_guard(void);
