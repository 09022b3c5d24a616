/* Files mapped for reading, and what happens when one of them shrinks. */
#include <stdint.h>

/* What the signal handler needs to know of a mapping. In C's memory: the handler reads it. */
typedef struct pfm_mapping {
    uint8_t *begin;
    uint64_t size;
    uint32_t place; /* in the handler's table */
    uint32_t torn;  /* set by the handler: what lies behind the end of the file reads as zeros */
    uint64_t from;  /* where the zeros begin, once it is torn; its size where there are none */
} pfm_mapping;

/* How many mappings in the table are torn, and how often a part of one was replaced by zeros. */
extern uint32_t pfm_torn, pfm_faults;

/* Has the zeros of a mapping that is torn raise SIGBUS again. The caller sees to it that it stays mapped. */
void pfm_rearm(pfm_mapping *m);

/* Enters a mapping in the handler's table; 0 if the table is full. */
int pfm_watch(pfm_mapping *m);
/* Takes it out. Before munmap. */
void pfm_forget(pfm_mapping *m);
/* Sees to it that the handler is the first to be asked. */
void pfm_guard(void);
