/* Copies a strided tensor into contiguous memory, in one pass. */
#include <string.h>

#include "internal.h"

int pfi_contiguous(const pf_tensor *t) {
    if (!t->strides) return 1;
    int64_t step = (int64_t)pf_dtype_size(t->dtype);
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        if (t->dims[i] == 0) return 1;
        if (t->dims[i] != 1 && t->strides[i] != step) return 0;
        step *= t->dims[i];
    }
    return 1;
}

/* Copies a run of n elements that lie `stride` bytes apart, and returns the end of the copy. `from` may be unaligned.
 */
static char *run(char *to, const char *from, int64_t n, int64_t stride, size_t size) {
    if (stride == (int64_t)size) {
        memcpy(to, from, (size_t)n * size);
        return to + (size_t)n * size;
    }
#define ELEMENTS(bytes)                                                                       \
    case bytes:                                                                               \
        for (int64_t i = 0; i < n; i++, from += stride, to += bytes) memcpy(to, from, bytes); \
        return to;
    switch (size) {
        ELEMENTS(1)
        ELEMENTS(2)
        ELEMENTS(4)
        ELEMENTS(8)
        ELEMENTS(16)
    }
#undef ELEMENTS
    return to;
}

void pfi_gather(void *to_, const pf_tensor *t) {
    char *to = to_;
    const char *from = t->data;
    size_t size = pf_dtype_size(t->dtype);
    int64_t dims[PF_MAX_RANK], strides[PF_MAX_RANK], at[PF_MAX_RANK] = {0};
    int rank = 0;
    int64_t all = 1;
    for (int32_t i = 0; i < t->rank; i++) all *= t->dims[i];
    if (all == 0) return;
    if (pfi_contiguous(t)) {
        memcpy(to, from, (size_t)all * size);
        return;
    }
    /* Merges dimensions so that runs are long: drops those of size 1, and joins neighbours that follow each other in
     * memory. */
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dims[i] == 1) continue;
        if (rank > 0 && strides[rank - 1] == t->strides[i] * t->dims[i]) {
            dims[rank - 1] *= t->dims[i];
            strides[rank - 1] = t->strides[i];
            continue;
        }
        dims[rank] = t->dims[i];
        strides[rank++] = t->strides[i];
    }
    int last = rank - 1;
    for (;;) {
        to = run(to, from, dims[last], strides[last], size);
        int i = last - 1;
        for (; i >= 0; i--) {
            from += strides[i];
            if (++at[i] < dims[i]) break;
            from -= strides[i] * dims[i];
            at[i] = 0;
        }
        if (i < 0) return;
    }
}
