#ifndef PYFEED_PROCESSORS_H
#define PYFEED_PROCESSORS_H

#include <sched.h>

/* Whether the process may use one processor only. */
static inline int has_one_processor(void) {
    cpu_set_t processors;
    return sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) == 1;
}

#endif
