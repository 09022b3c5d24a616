/* What Linux has for memory that processes share. */
#ifndef PFW_MEMORY_H
#define PFW_MEMORY_H

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of linux/fcntl.h and linux/mman.h, which an older system lacks. */
#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Whether the file is sealed against shrinking. A mapped page that is cut off would raise SIGBUS. */
static inline int is_sealed(int fd) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK);
}

static inline size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Advises the system to use huge pages. A failure does no harm. */
static inline void advise_huge(void *p, size_t n) { madvise(p, n, MADV_HUGEPAGE); }

/* Maps pages for writing, in one call. If this fails, the first access to each maps it. */
static inline void map_pages(void *p, size_t n) { madvise(p, n, MADV_POPULATE_WRITE); }

#endif
