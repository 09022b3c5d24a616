/* What Linux has for large blocks of pages. */
#ifndef PFM_PAGES_H
#define PFM_PAGES_H

#include <stddef.h>
#include <sys/mman.h>

/* Advises the system to use huge pages. Without them it is only slower, so an error is ignored. */
static inline void pfm_advise_huge(void *p, size_t n) { madvise(p, n, MADV_HUGEPAGE); }

/* Moves the pages of a block of n bytes to the address `at`, which is mapped, or to where they are (NULL), and changes
 * its size to `to` bytes. It copies nothing. It returns 0 without a change if the system refuses. */
static inline int pfm_move_pages(void *p, size_t n, size_t to, void *at) {
    void *moved = at ? mremap(p, n, to, MREMAP_MAYMOVE | MREMAP_FIXED, at) : mremap(p, n, to, 0);
    return moved != MAP_FAILED;
}

#endif
