/* Where the bytes come from. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PFM_HUGE = 2 << 20 };

/* From 2 MiB on, memory is mapped apart, aligned to and asked to be made of huge pages: one page
 * fault instead of 512. Below, malloc's. */
static inline void *pfm_alloc(size_t n) {
    void *p = NULL;
    if (n < PFM_HUGE) return posix_memalign(&p, 64, n) ? NULL : p;
    size_t whole = n + PFM_HUGE;
    char *m = (char *)mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return NULL;
    char *a = (char *)(((size_t)m + PFM_HUGE - 1) & ~((size_t)PFM_HUGE - 1));
    if (a > m) munmap(m, (size_t)(a - m));
    if (a + n < m + whole) munmap(a + n, (size_t)(m + whole - (a + n)));
    madvise(a, n, MADV_HUGEPAGE); /* advice: a kernel without it is only slower */
    return a;
}

/* Moves n bytes of pfm_alloc, 2 MiB at least, to a place for `to` bytes, or cuts them to as many: pages move, nothing is
 * copied. NULL, and nothing has changed, where the system refuses. */
static inline void *pfm_resize(void *p, size_t n, size_t to) {
    if (to <= n) return mremap(p, n, to, 0) == MAP_FAILED ? NULL : p;
    size_t whole = to + PFM_HUGE;
    char *m = (char *)mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) return NULL;
    char *a = (char *)(((size_t)m + PFM_HUGE - 1) & ~((size_t)PFM_HUGE - 1));
    if (a > m) munmap(m, (size_t)(a - m));
    if (a + to < m + whole) munmap(a + to, (size_t)(m + whole - (a + to)));
    if (mremap(p, n, to, MREMAP_MAYMOVE | MREMAP_FIXED, a) != MAP_FAILED) return a;
    munmap(a, to);
    return NULL;
}

static inline void pfm_free(void *p, size_t n) {
    if (n < PFM_HUGE)
        free(p);
    else
        munmap(p, n);
}

/* The processor this thread runs on; -1 if the system does not tell. */
static inline int pfm_processor(void) { return sched_getcpu(); }
