/* Allocation of memory outside Go's heap. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__linux__)
#include "pages_linux.h"
#else
#error "pyfeed runs on Linux only: CONTRIBUTING.md lists what a port to another system has to write"
#endif

enum { PFM_HUGE = 2 << 20 };

/* Blocks of 2 MiB and more are mapped, aligned to huge pages and advised to use them: one page fault
 * instead of 512. Smaller blocks come from malloc. */
static inline void *pfm_alloc(size_t n) {
    void *p = NULL;
    if (n < PFM_HUGE) return posix_memalign(&p, 64, n) ? NULL : p;
    size_t whole = n + PFM_HUGE;
    char *m = (char *)mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return NULL;
    char *a = (char *)(((size_t)m + PFM_HUGE - 1) & ~((size_t)PFM_HUGE - 1));
    if (a > m) munmap(m, (size_t)(a - m));
    if (a + n < m + whole) munmap(a + n, (size_t)(m + whole - (a + n)));
    pfm_advise_huge(a, n);
    return a;
}

/* Resizes a mapped block of n bytes (2 MiB at least) to `to` bytes. It moves pages and copies nothing. It
 * returns the new address, or NULL without a change if the system refuses. */
static inline void *pfm_resize(void *p, size_t n, size_t to) {
    if (to <= n) return pfm_move_pages(p, n, to, NULL) ? p : NULL;
    size_t whole = to + PFM_HUGE;
    char *m = (char *)mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) return NULL;
    char *a = (char *)(((size_t)m + PFM_HUGE - 1) & ~((size_t)PFM_HUGE - 1));
    if (a > m) munmap(m, (size_t)(a - m));
    if (a + to < m + whole) munmap(a + to, (size_t)(m + whole - (a + to)));
    if (pfm_move_pages(p, n, to, a)) return a;
    munmap(a, to);
    return NULL;
}

static inline void pfm_free(void *p, size_t n) {
    if (n < PFM_HUGE)
        free(p);
    else
        munmap(p, n);
}
