/* Device memory has two mappings. The program gets the address of one that cannot be accessed; the driver works on the
 * other. Pinned memory has a mapping of its own, with a page behind it that cannot be accessed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

enum { UNTOUCHED = 0xA5, PAGE = 4096 };

static size_t pages(size_t n) { return (n + PAGE - 1) & ~(size_t)(PAGE - 1); }

static void count_memory(const Memory *m, int sign) {
    static const int things[] = {N_device, N_pinned, N_registered};
    static const int bytes[] = {N_device_bytes, N_pinned_bytes, N_registered_bytes};
    count(things[m->kind], sign);
    count(bytes[m->kind], sign * (int64_t)m->size);
}

static Memory *remember(Context *c, int kind, char *base, char *shadow, size_t size) {
    Memory *m = calloc(1, sizeof *m);
    if (!m) abort();
    *m = (Memory){
        .next = state.memories, .kind = kind, .context = c, .base = base, .shadow = shadow, .size = size};
    state.memories = m;
    count_memory(m, 1);
    return m;
}

/* Returns the memory in which all n bytes lie, or NULL; n of 0 counts as 1. */
Memory *memory_find(uint64_t address, uint64_t n, int from_kind, int to_kind) {
    if (!n) n = 1;
    for (Memory *m = state.memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->base;
        if (m->freed || m->kind < from_kind || m->kind > to_kind) continue;
        if (address >= base && address - base < m->size && n <= m->size - (address - base)) return m;
    }
    return NULL;
}

static void forget(Memory *m) {
    for (Memory **at = &state.memories; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    count_memory(m, -1);
    if (m->kind == DEVICE) {
        m->context->used -= m->size;
        munmap(m->shadow, pages(m->size));
        munmap(m->base, pages(m->size));
    }
    if (m->kind == PINNED) munmap(m->base, pages(m->size) + PAGE);
    free(m->accesses);
    free(m);
}

void memory_put(Memory *m) {
    if (--m->users == 0 && m->freed) forget(m);
}

void memory_free(Memory *m) {
    m->freed = true;
    if (!m->users) forget(m);
}

/* Frees memory after all work of its context. The memory is looked up again after the wait, since another thread may
 * have freed it meanwhile. */
static CUresult free_synchronously(uint64_t address, int kind, CUresult none) {
    Memory *m = memory_find(address, 1, kind, kind);
    if (!m || (uint64_t)(uintptr_t)m->base != address) return none;
    if (kind == REGISTERED) release_check(m);
    wait_for(work_of(m->context));
    while ((m = memory_find(address, 1, kind, kind)) && m->users) pthread_cond_wait(&state.done, &state.lock);
    if (!m || (uint64_t)(uintptr_t)m->base != address) return none;
    memory_free(m);
    return CUDA_SUCCESS;
}

CUresult range_of(Stream *s, uint64_t address, uint64_t n, bool writes, Range *r) {
    Memory *m = memory_find(address, n, DEVICE, DEVICE);
    if (!m || m->context != s->context) return CUDA_ERROR_INVALID_VALUE;
    *r = (Range){m, address, n, writes};
    return CUDA_SUCCESS;
}

char *shadow_of(const Range *r) {
    return r->memory->shadow + (r->from - (uint64_t)(uintptr_t)r->memory->base);
}

/* ---- Allocating ------------------------------------------------------------------------------------------------- */

static CUresult allocate(Context *c, size_t n, Memory **m) {
    if (!n) return CUDA_ERROR_INVALID_VALUE;
    if (n > state.memory || c->used > state.memory - n) return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = memfd_create("fakecuda", MFD_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    char *base = MAP_FAILED, *shadow = MAP_FAILED;
    if (!ftruncate(fd, (off_t)pages(n))) {
        base = mmap(NULL, pages(n), PROT_NONE, MAP_SHARED, fd, 0);
        shadow = mmap(NULL, pages(n), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (base == MAP_FAILED || shadow == MAP_FAILED) {
        if (base != MAP_FAILED) munmap(base, pages(n));
        if (shadow != MAP_FAILED) munmap(shadow, pages(n));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(base, pages(n), MADV_DONTFORK);
    madvise(shadow, pages(n), MADV_DONTFORK);
    memset(shadow, UNTOUCHED, n);
    c->used += n;
    *m = remember(c, DEVICE, base, shadow, n);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    ENTER(cuMemAlloc_v2, CURRENT | UNSAFE);
    if (!p) LEAVE(CUDA_ERROR_INVALID_VALUE);
    Memory *m;
    CUresult r = allocate(call.context, n, &m);
    if (!r) *p = (CUdeviceptr)(uintptr_t)m->base;
    LEAVE(r);
}

CUresult cuMemFree_v2(CUdeviceptr p) {
    ENTER(cuMemFree_v2, CURRENT | UNSAFE | RELEASES);
    LEAVE(p ? free_synchronously(p, DEVICE, CUDA_ERROR_INVALID_VALUE) : CUDA_SUCCESS);
}

/* Memory that is allocated and freed in the order of a stream. Both count as writes of the memory. */
CUresult cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream stream) {
    ENTER(cuMemAllocAsync, CURRENT | WORKS);
    Stream *s;
    CUresult r = stream_find(&call, (uint64_t)(uintptr_t)stream, true, &s);
    if (!r && !p) r = CUDA_ERROR_INVALID_VALUE;
    if (!r && s->capture) r = CUDA_ERROR_NOT_SUPPORTED; /* a real driver adds a node to the graph */
    Memory *m;
    if (!r) r = allocate(s->context, n, &m);
    if (r) LEAVE(r);
    *p = (CUdeviceptr)(uintptr_t)m->base;
    Range range = {m, *p, n, true};
    LEAVE(submit(s, work_new(&call, ALLOCATE), &range, 1));
}

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream stream) {
    ENTER(cuMemFreeAsync, CURRENT | WORKS | RELEASES);
    Stream *s;
    CUresult r = stream_find(&call, (uint64_t)(uintptr_t)stream, true, &s);
    if (!r && s->capture) r = CUDA_ERROR_NOT_SUPPORTED;
    Range range;
    if (!r) r = range_of(s, p, 1, true, &range);
    if (!r && (uint64_t)(uintptr_t)range.memory->base != p) r = CUDA_ERROR_INVALID_VALUE;
    if (r) LEAVE(r);
    range.size = range.memory->size;
    r = submit(s, work_new(&call, FREE), &range, 1);
    memory_free(range.memory); /* unmaps the memory when its work is done */
    LEAVE(r);
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    ENTER(cuMemGetInfo_v2, CURRENT);
    if (!left || !total) LEAVE(CUDA_ERROR_INVALID_VALUE);
    *total = state.memory;
    *left = call.context->used < state.memory ? state.memory - call.context->used : 0;
    LEAVE(CUDA_SUCCESS);
}

/* ---- Host memory ------------------------------------------------------------------------------------------------ */

static bool room_to_pin(size_t n) {
    uint64_t used = (uint64_t)(state.counts[N_pinned_bytes] + state.counts[N_registered_bytes]);
    return n <= state.pinned && used <= state.pinned - n;
}

CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) {
    ENTER(cuMemHostAlloc, CURRENT | UNSAFE);
    if (!p || !n || flags > 7) LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!room_to_pin(n)) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    char *base = mmap(NULL, pages(n) + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    mprotect(base + pages(n), PAGE, PROT_NONE);
    remember(call.context, PINNED, base, base, n);
    *p = base;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuMemFreeHost(void *p) {
    ENTER(cuMemFreeHost, CURRENT | UNSAFE | RELEASES);
    LEAVE(p ? free_synchronously((uint64_t)(uintptr_t)p, PINNED, CUDA_ERROR_INVALID_VALUE) : CUDA_SUCCESS);
}

static bool is_mapped(void *p, size_t n) {
    unsigned char in_memory[PAGE];
    uintptr_t from = (uintptr_t)p & ~(uintptr_t)(PAGE - 1),
              to = ((uintptr_t)p + n + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    for (; from < to; from += sizeof in_memory * PAGE) {
        size_t some = to - from < sizeof in_memory * PAGE ? to - from : sizeof in_memory * PAGE;
        if (mincore((void *)from, some, in_memory) && errno == ENOMEM) return false;
    }
    return true;
}

CUresult cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
    ENTER(cuMemHostRegister_v2, CURRENT | UNSAFE);
    if (!p || !n || flags > 15 || (uintptr_t)p + n < (uintptr_t)p) LEAVE(CUDA_ERROR_INVALID_VALUE);
    for (Memory *m = state.memories; m; m = m->next)
        if (m->kind != DEVICE && m->base < (char *)p + n && (char *)p < m->base + m->size)
            LEAVE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    if (!is_mapped(p, n)) LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!room_to_pin(n)) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    remember(call.context, REGISTERED, p, p, n);
    LEAVE(CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *p) {
    ENTER(cuMemHostUnregister, CURRENT | UNSAFE | RELEASES);
    LEAVE(free_synchronously((uint64_t)(uintptr_t)p, REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr p) {
    ENTER(cuPointerGetAttribute, 0);
    Memory *m = memory_find(p, 1, DEVICE, REGISTERED);
    if (!value || !m) LEAVE(CUDA_ERROR_INVALID_VALUE);
    switch ((int)attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            *(CUcontext *)value = (CUcontext)m->context;
            break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)value = m->kind == DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            *(CUdeviceptr *)value = p;
            break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (m->kind == DEVICE) LEAVE(CUDA_ERROR_INVALID_VALUE);
            *(void **)value = (void *)(uintptr_t)p;
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            *(unsigned *)value = 0;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)value = m->context->device;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(CUdeviceptr *)value = (CUdeviceptr)(uintptr_t)m->base;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *(size_t *)value = m->size;
            break;
        default:
            LEAVE(CUDA_ERROR_INVALID_VALUE);
    }
    LEAVE(CUDA_SUCCESS);
}

/* ---- Copying ---------------------------------------------------------------------------------------------------- */

/* A hash like FNV-1a, in four lanes of eight bytes. */
uint64_t fakecuda_hash(const void *p, uint64_t n) {
    enum { LANES = 4 };
    const uint64_t prime = 0x9E3779B97F4A7C15u;
    uint64_t lane[LANES] = {n, n + prime, n ^ prime, ~n}, word[LANES];
    const char *at = p;
    for (; n >= sizeof word; n -= sizeof word, at += sizeof word) {
        memcpy(word, at, sizeof word);
        for (int i = 0; i < LANES; i++) {
            lane[i] = (lane[i] ^ word[i]) * prime;
            lane[i] ^= lane[i] >> 32;
        }
    }
    memset(word, 0, sizeof word);
    if (n) memcpy(word, at, n);
    uint64_t hash = 0;
    for (int i = 0; i < LANES; i++) {
        hash = (hash ^ lane[i] ^ word[i]) * prime;
        hash ^= hash >> 29;
    }
    return hash;
}

/* Submits a copy to the device. The source is hashed or staged without the lock, since it may be large. */
static CUresult to_device(Call *call, CUdeviceptr to, const void *from, size_t n, CUstream stream) {
    Memory *source = memory_find((uint64_t)(uintptr_t)from, n, PINNED, REGISTERED);
    Work *w = work_new(call, TO_DEVICE);
    w->n = n;
    w->from = from;
    w->checked = source && !being_written(source, (uint64_t)(uintptr_t)from, n);
    unlock();
    if (!source && n) {
        w->from = w->staged = malloc(n);
        if (!w->staged) abort();
        memcpy(w->staged, from, n);
    } else if (w->checked) {
        w->hash = fakecuda_hash(from, n);
    }
    lock();
    source = memory_find((uint64_t)(uintptr_t)from, n, PINNED, REGISTERED);
    Stream *s;
    Range ranges[2] = {0};
    CUresult r = stream_find(call, (uint64_t)(uintptr_t)stream, true, &s);
    if (!r) r = range_of(s, to, n, true, &ranges[0]);
    if (r || !n) {
        work_drop(w);
        return r;
    }
    if (source && !w->staged) ranges[1] = (Range){source, (uint64_t)(uintptr_t)from, n, false};
    w->to = shadow_of(&ranges[0]);
    if (!s->capture) {
        count(N_copies, 1);
        count(N_copy_bytes, (int64_t)n);
        if (w->staged) count(N_pageable_copies, 1);
    }
    return submit(s, w, ranges, 2);
}

/* Submits a copy from the device. Sets *pageable if the call must wait for the copy. */
static CUresult from_device(Call *call, void *to, CUdeviceptr from, size_t n, CUstream stream,
                            bool *pageable) {
    Stream *s;
    Range ranges[2] = {0};
    CUresult r = stream_find(call, (uint64_t)(uintptr_t)stream, true, &s);
    if (!r) r = range_of(s, from, n, false, &ranges[0]);
    if (r || !n) return r;
    ranges[1] = (Range){memory_find((uint64_t)(uintptr_t)to, n, PINNED, REGISTERED), (uint64_t)(uintptr_t)to,
                        n, true};
    *pageable = !ranges[1].memory && !s->capture;
    Work *w = work_new(call, FROM_DEVICE);
    w->to = to;
    w->from = shadow_of(&ranges[0]);
    w->n = n;
    if (!s->capture) {
        count(N_downloads, 1);
        count(N_download_bytes, (int64_t)n);
        if (*pageable) count(N_pageable_copies, 1);
    }
    return submit(s, w, ranges, 2);
}

/* Waits for all work that is in the stream now. */
static CUresult finish(Call *call, CUstream stream) {
    Stream *s;
    CUresult r = stream_find(call, (uint64_t)(uintptr_t)stream, true, &s);
    if (r) return r;
    Context *c = s->context;
    wait_for(work_of_stream(s));
    return (CUresult)c->broken;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync_v2, CURRENT | WORKS);
    LEAVE(to_device(&call, to, from, n, stream));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) {
    ENTER(cuMemcpyHtoD_v2, CURRENT | UNSAFE | WORKS);
    CUresult r = to_device(&call, to, from, n, NULL);
    LEAVE(r ? r : finish(&call, NULL));
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync_v2, CURRENT | WORKS);
    bool pageable = false;
    CUresult r = from_device(&call, to, from, n, stream, &pageable);
    LEAVE(r || !pageable ? r : finish(&call, stream));
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) {
    ENTER(cuMemcpyDtoH_v2, CURRENT | UNSAFE | WORKS);
    bool pageable = false;
    CUresult r = from_device(&call, to, from, n, NULL, &pageable);
    LEAVE(r ? r : finish(&call, NULL));
}

/* Copies within a device or between two; the stream must belong to one of them. */
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync_v2, CURRENT | WORKS);
    Stream *s;
    CUresult r = stream_find(&call, (uint64_t)(uintptr_t)stream, true, &s);
    if (r) LEAVE(r);
    Range ranges[2] = {{memory_find(to, n, DEVICE, DEVICE), to, n, true},
                       {memory_find(from, n, DEVICE, DEVICE), from, n, false}};
    const Memory *a = ranges[0].memory, *b = ranges[1].memory;
    if (!a || !b || (a->context != s->context && b->context != s->context)) LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!n) LEAVE(CUDA_SUCCESS);
    Work *w = work_new(&call, ON_DEVICE);
    w->to = shadow_of(&ranges[0]);
    w->from = shadow_of(&ranges[1]);
    w->n = n;
    LEAVE(submit(s, w, ranges, 2));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
    ENTER(cuMemsetD8Async, CURRENT | WORKS);
    Stream *s;
    Range range;
    CUresult r = stream_find(&call, (uint64_t)(uintptr_t)stream, true, &s);
    if (!r) r = range_of(s, to, n, true, &range);
    if (r || !n) LEAVE(r);
    Work *w = work_new(&call, FILL);
    w->to = shadow_of(&range);
    w->n = n;
    w->value = value;
    LEAVE(submit(s, w, &range, 1));
}

int fakecuda_peek(uint64_t address, void *to, uint64_t n) {
    Call call;
    enter_control(&call);
    Range range = {memory_find(address, n, DEVICE, DEVICE), address, n, false};
    if (range.memory) memcpy(to, shadow_of(&range), n);
    LEAVE(range.memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
