/* Accessing a page of a mapped file that is no longer in the file raises SIGBUS, in any thread: a reader
 * of the library, a C++ trainer, NumPy. The handler maps zeros in its place and marks the mapping as torn.
 * The reader finds the mark and returns an error. All other SIGBUS signals go to the handler installed
 * before. */
#define _GNU_SOURCE
#include "mapping.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PLACES = 4096 };
static pfm_mapping *watched[PLACES];
static struct sigaction before;
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER;
uint32_t pfm_torn, pfm_faults;

static void pass_on(int number, siginfo_t *info, void *context) {
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_DFL) {
        signal(number, SIG_DFL); /* the access is repeated and then ends the process */
        if (info->si_code <= 0) raise(number);
    } else if (before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    uint8_t *at = info->si_addr;
    for (uint32_t i = 0; info->si_code == BUS_ADRERR && i < PLACES; i++) {
        pfm_mapping *m = __atomic_load_n(&watched[i], __ATOMIC_ACQUIRE);
        if (!m || at < m->begin || at >= m->begin + m->size) continue;
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uint8_t *from = (uint8_t *)((uintptr_t)at & ~(uintptr_t)(page - 1));
        size_t rest = (size_t)(m->begin + m->size - from);
        /* Mark first, then map the zeros: a thread that reads zeros must find the mapping torn. */
        uint64_t offset = (uint64_t)(from - m->begin), least = __atomic_load_n(&m->from, __ATOMIC_RELAXED);
        while (offset < least && !__atomic_compare_exchange_n(&m->from, &least, offset, 0, __ATOMIC_RELAXED,
                                                              __ATOMIC_RELAXED)) {
        }
        /* Count first, then mark: a thread that finds the mark set must not find the count zero. */
        __atomic_fetch_add(&pfm_torn, 1, __ATOMIC_RELEASE);
        if (__atomic_exchange_n(&m->torn, 1, __ATOMIC_ACQ_REL))
            __atomic_fetch_sub(&pfm_torn, 1, __ATOMIC_RELEASE);
        __atomic_fetch_add(&pfm_faults, 1, __ATOMIC_RELEASE);
        if (mmap(from, rest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) !=
            MAP_FAILED)
            return;
    }
    pass_on(number, info, context);
}

void pfm_guard(void) {
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error)
        return;
    pthread_mutex_lock(&installing);
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &now) == 0 &&
        !((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error)) {
        before = now;
        sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&installing);
}

int pfm_watch(pfm_mapping *m) {
    static uint32_t next; /* start of the search: the entry after the last one taken */
    uint32_t first = __atomic_load_n(&next, __ATOMIC_RELAXED);
    for (uint32_t tried = 0; tried < PLACES; tried++) {
        uint32_t i = (first + tried) % PLACES;
        pfm_mapping *none = NULL;
        m->place = i;
        if (!__atomic_compare_exchange_n(&watched[i], &none, m, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        __atomic_store_n(&next, i + 1, __ATOMIC_RELAXED);
        return 1;
    }
    return 0;
}

void pfm_rearm(pfm_mapping *m) {
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
    static int empty = -1; /* an empty file: an access to any mapped page of it raises SIGBUS */
    pthread_mutex_lock(&opening);
    if (empty < 0) empty = (int)syscall(SYS_memfd_create, "pyfeed", MFD_CLOEXEC);
    pthread_mutex_unlock(&opening);
    uint64_t from = __atomic_load_n(&m->from, __ATOMIC_RELAXED);
    if (empty >= 0 && from < m->size)
        mmap(m->begin + from, m->size - from, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, empty, 0);
}

void pfm_forget(pfm_mapping *m) { __atomic_store_n(&watched[m->place], NULL, __ATOMIC_RELEASE); }
