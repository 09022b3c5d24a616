/* The order of work: clocks, and the search for work that is not ordered. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static Clock *clock_with(unsigned room) {
    Clock *c = malloc(sizeof *c + room * sizeof *c->at);
    if (!c) abort();
    c->n = 0;
    return c;
}

Clock *clock_new(void) { return clock_with(MAX_SLOTS); }

Clock *clock_copy(const Clock *c) {
    Clock *copy = clock_with(c->n);
    copy->n = c->n;
    memcpy(copy->at, c->at, c->n * sizeof *c->at);
    return copy;
}

void clock_set(Clock *c, unsigned slot, uint64_t seq) {
    while (c->n <= slot) c->at[c->n++] = 0;
    if (c->at[slot] < seq) c->at[slot] = seq;
}

void clock_join(Clock *c, const Clock *other) {
    for (unsigned i = 0; i < other->n; i++)
        if (other->at[i]) clock_set(c, i, other->at[i]);
}

bool clock_holds(const Clock *c, unsigned slot, uint64_t seq) { return slot < c->n && c->at[slot] >= seq; }

bool clock_done(const Clock *c, unsigned but) {
    for (unsigned i = 0; i < c->n; i++)
        if (i != but && state.slots[i].done < c->at[i]) return false;
    return true;
}

void wait_for(Clock *c) {
    count(N_waits, 1);
    while (!clock_done(c, NO_SLOT)) pthread_cond_wait(&state.done, &state.lock);
    count(N_waits, -1);
    clock_join(state.host, c);
    free(c);
}

Clock *work_of_stream(Stream *s) {
    Clock *c = clock_new();
    clock_join(c, s->before);
    if (s == s->context->legacy)
        for (Stream *t = s->context->streams; t; t = t->next)
            if (!(t->flags & CU_STREAM_NON_BLOCKING)) clock_join(c, t->before);
    return c;
}

Clock *work_of(Context *c) {
    Clock *all = clock_new();
    for (Stream *s = c->streams; s; s = s->next) clock_join(all, s->before);
    return all;
}

/* ---- Hazards ---------------------------------------------------------------------------------------------------- */

const char *work_name(int kind) {
    static const char *const names[] = {
        [TO_DEVICE] = "a copy to the device",
        [FROM_DEVICE] = "a copy from the device",
        [ON_DEVICE] = "a copy on the device",
        [FILL] = "a fill",
        [KERNEL] = "a kernel",
        [SUM] = "a sum",
        [ALLOCATE] = "an allocation",
        [FREE] = "a freeing",
    };
    return names[kind];
}

/* Records that work touches a range, and reports the first earlier access that conflicts with it and is not ordered
 * before it. Earlier accesses that are ordered before this one and covered by it are dropped: work that conflicts with
 * them conflicts with this one too. */
void order_check(Stream *s, const Work *w, const Range *r) {
    Memory *m = r->memory;
    uint64_t from = r->from, to = r->from + r->size;
    unsigned kept = 0;
    bool told = false;
    for (unsigned i = 0; i < m->n; i++) {
        const Access a = m->accesses[i];
        bool ordered = clock_holds(w->clock, a.slot, a.seq);
        bool apart = a.to <= from || to <= a.from || (!a.writes && !r->writes);
        if (!ordered && !apart && !told && a.slot != s->slot) {
            told = true;
            complain(N_hazards,
                     "%s in stream 0x%llx, which %s %llu bytes at 0x%llx, is not ordered after %s in stream "
                     "0x%llx, which %s them",
                     work_name(w->kind), (unsigned long long)s->handle, r->writes ? "writes" : "reads",
                     (unsigned long long)r->size, (unsigned long long)from, work_name(a.kind),
                     (unsigned long long)a.stream, a.writes ? "writes" : "reads");
        }
        bool covered = ordered && from <= a.from && a.to <= to && (r->writes || !a.writes);
        if (!covered && !clock_holds(state.host, a.slot, a.seq)) m->accesses[kept++] = a;
    }
    m->n = kept;
    if (m->n == m->room) {
        m->room = m->room ? 2 * m->room : 4;
        m->accesses = realloc(m->accesses, m->room * sizeof *m->accesses);
        if (!m->accesses) abort();
    }
    m->accesses[m->n++] = (Access){from, to, s->handle, s->slot, w->seq, w->kind, r->writes};
}

/* Returns whether work for which the host has not waited writes to the range. */
bool being_written(const Memory *m, uint64_t from, uint64_t n) {
    for (unsigned i = 0; i < m->n; i++) {
        const Access *a = &m->accesses[i];
        if (a->writes && a->from < from + n && from < a->to && !clock_holds(state.host, a->slot, a->seq))
            return true;
    }
    return false;
}

/* Reports memory that is unregistered while work uses it: unlike freeing, unregistering is not documented to wait. */
void release_check(const Memory *m) {
    if (m->context->broken) return;
    for (unsigned i = 0; i < m->n; i++) {
        const Access *a = &m->accesses[i];
        if (clock_holds(state.host, a->slot, a->seq)) continue;
        complain(N_hazards,
                 "memory at %p is unregistered before the host waited for %s in stream 0x%llx, which %s it",
                 (void *)m->base, work_name(a->kind), (unsigned long long)a->stream,
                 a->writes ? "writes" : "reads");
        return;
    }
}
