/* Declarations that the parts of the fake driver share. One lock guards all state; only copies, kernels and host
 * functions run without it. */
#ifndef FAKECUDA_INTERNAL_H
#define FAKECUDA_INTERNAL_H

/* All functions have hidden visibility, except those that these two headers declare. */
#pragma GCC visibility push(default)
#include <cuda.h>

#include "../fakecuda.h"
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>

enum { MAX_DEVICES = 8, MAX_SLOTS = 1024 };

/* ---- Counts ----------------------------------------------------------------------------------------------------- */

/* First the counts of existing things, which a reset keeps; from `calls` on, the counts of events. */
/* clang-format off */
#define COUNTS(C) \
    C(contexts) C(retains) C(streams) C(events) C(device) C(device_bytes) C(pinned) \
    C(pinned_bytes) C(registered) C(registered_bytes) C(pending) C(waits) C(captures) \
    C(calls) C(failures) C(hazards) C(misuses) C(leaks) C(copies) C(copy_bytes) C(copies_done) \
    C(downloads) C(download_bytes) C(downloads_done) C(pageable_copies) C(kernels) \
    C(device_bytes_peak) C(pinned_bytes_peak)
/* clang-format on */
enum {
#define C(name) N_##name,
    COUNTS(C)
#undef C
        N_COUNTS,
    N_FIRST_EVENT = N_calls,
};

enum {
#define ENTRY(name) CALL_##name,
#include "entries.h"
#undef ENTRY
    CALLS,
};

/* ---- Order ------------------------------------------------------------------------------------------------------ */

/* A clock is a set of work: of each slot, the first `at[slot]` pieces. The clock of a piece of work has all work that
 * comes before it, and the work itself. A slot is the index of a stream in clocks. When a slot is used again, the next
 * stream continues to count, so that a number never stands for two pieces of work. */
typedef struct Clock {
    unsigned n;
    uint64_t at[];
} Clock;

Clock *clock_new(void);                                /* empty, with room for all slots */
Clock *clock_copy(const Clock *c);                     /* with room for the slots of c only */
void clock_set(Clock *c, unsigned slot, uint64_t seq); /* raises a slot to seq; c must be from clock_new */
void clock_join(Clock *c, const Clock *other);         /* adds the work of other; c must be from clock_new */
bool clock_holds(const Clock *c, unsigned slot, uint64_t seq);
bool clock_done(const Clock *c, unsigned but); /* whether all of it has run, except the slot `but` */
enum { NO_SLOT = MAX_SLOTS };

typedef struct Slot {
    uint64_t submitted, done;
    bool taken;
} Slot;

/* ---- Objects ---------------------------------------------------------------------------------------------------- */

typedef struct Stream Stream;
typedef struct Capture Capture;
typedef struct Memory Memory;
typedef struct Work Work;

typedef struct Context {
    int device;
    int retains;
    int broken; /* 0, or the code that every call returns */
    int64_t copies_allowed;
    int copying;
    size_t used;
    pthread_mutex_t engine[2]; /* one copy at a time to the device, and one from the device */
    Stream *streams;
    Stream *legacy;
} Context;

struct Stream {
    Stream *next;
    uint64_t handle;
    Context *context;
    unsigned slot, flags;
    int priority;
    bool made;    /* created by a call, not by the driver itself */
    bool closing; /* destroyed, but its work continues */
    bool running;
    int64_t allowed;
    Clock *before; /* the work that comes before the next work of the stream */
    Work *head, **tail;
    pthread_cond_t work;
    pthread_t thread;
    Capture *capture;
    Clock *captured; /* as `before`, within the capture */
};

/* The snapshot that cuEventRecord takes. */
typedef struct Recording {
    int refs;
    unsigned slot;
    uint64_t seq;
    Clock *clock;
    double at;
    Capture *capture;
} Recording;

typedef struct Event {
    Context *context;
    unsigned flags;
    Recording *last;
} Event;

struct Capture {
    Capture *next;
    int refs;
    CUstreamCaptureMode mode;
    pthread_t thread;
    Stream *origin;
    bool invalid, ended;
};

typedef struct Access {
    uint64_t from, to, stream;
    unsigned slot;
    uint64_t seq;
    int kind;
    bool writes;
} Access;

enum { DEVICE, PINNED, REGISTERED };

struct Memory {
    Memory *next;
    int kind;
    Context *context;
    char *base, *shadow; /* the program's address, and the driver's */
    size_t size;
    int users;  /* pieces of work that touch it and are not done */
    bool freed; /* by the program; it is unmapped after its last user */
    Access *accesses;
    unsigned n, room;
};

typedef struct Range {
    Memory *memory;
    uint64_t from, size;
    bool writes;
} Range;

enum { TO_DEVICE, FROM_DEVICE, ON_DEVICE, FILL, KERNEL, SUM, FUNCTION, RECORD, WAIT, ALLOCATE, FREE };

struct Work {
    Work *next;
    int kind;
    int code; /* 0, or the code with which it fails */
    uint64_t seq;
    Clock *clock;
    char *to;
    const char *from;
    size_t n;
    int value;
    char *staged; /* the fake's copy of pageable memory */
    bool checked; /* `hash` is the hash of the source at the call */
    uint64_t hash;
    double us;
    uint64_t *out;
    CUhostFn function;
    void *argument;
    Recording *recording;
    Memory *uses[3];
};

struct Failure {
    int call; /* -1: any */
    int64_t nth;
    int code;
    bool later, from_then_on;
};

/* ---- State ------------------------------------------------------------------------------------------------------ */

extern struct State {
    pthread_mutex_t lock;
    pthread_cond_t done;    /* signalled when work is done, or when held work may begin */
    pthread_cond_t counted; /* for fakecuda_await */
    int awaiting;
    int64_t counts[N_COUNTS];
    int64_t calls[CALLS];
    bool initialized, forked, ended;
    int devices;
    uint64_t memory, pinned;
    double gbps, latency_us;
    struct Failure *failures;
    int nfailures;
    Context contexts[MAX_DEVICES];
    Slot slots[MAX_SLOTS];
    Clock *host; /* the work for which the host has waited */
    Memory *memories;
    Capture *captures;
} state;

void lock(void);
void unlock(void);
void count(int what, int64_t by);
void complain(int what, const char *format, ...) __attribute__((format(printf, 2, 3)));
double now_us(void);

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* The rules of a call. */
enum {
    ALWAYS = 1,   /* allowed before cuInit too */
    CURRENT = 2,  /* needs a current context that is not broken */
    UNSAFE = 4,   /* forbidden by captures */
    WORKS = 8,    /* submits work, which may fail instead of the call */
    RELEASES = 16 /* releases something even if it fails */
};

typedef struct Call {
    unsigned rules;
    Context *context; /* the current one, or NULL */
    int later;        /* 0, or the code with which its work fails */
    int answer;       /* 0, or the code that a call returns although it does its work */
} Call;

/* enter locks if it returns success; leave unlocks. */
CUresult enter(Call *call, int id, unsigned rules);
CUresult leave(Call *call, CUresult answer);
/* enter for the functions of fakecuda.h, which are not counted and do not fail. */
void enter_control(Call *call);

#define ENTER(name, rules)                                   \
    Call call;                                               \
    do {                                                     \
        CUresult refused = enter(&call, CALL_##name, rules); \
        if (refused) return refused;                         \
    } while (0)
#define LEAVE(answer) return leave(&call, answer)

/* Returns the code of a broken context. For a call that releases, the code is only noted as its result. */
CUresult check_broken(Call *call, Context *c);

extern __thread bool in_host_function;
extern __thread CUstreamCaptureMode capture_mode;
Context *current_context(void);
void break_context(Context *c, int code);
CUresult context_retain(int device);
void context_release(Context *c);
CUresult initialize(void);

/* ---- Handles: addresses that cannot be accessed and are never used twice ----------------------------------------- */

enum { NOTHING, A_STREAM, AN_EVENT };
uint64_t handle_new(int kind, void *thing);
void *handle_find(int kind, uint64_t handle); /* NULL if there is no such object */
void handle_drop(uint64_t handle);
void handles_of(int kind, void (*f)(uint64_t handle, void *thing, void *data), void *data);

/* ---- Streams ---------------------------------------------------------------------------------------------------- */

/* Finds the stream of a handle, or returns an error. If `uses`, a use of the legacy stream that a capture forbids is
 * refused. */
CUresult stream_find(Call *call, uint64_t handle, bool uses, Stream **s);
Stream *stream_new(Context *c, unsigned flags, int priority, bool made);
void stream_close(Stream *s);
Work *work_new(Call *call, int kind);
void work_drop(Work *w);
/* Queues the work and takes ownership of it. `ranges` are the device and pinned memory that the work touches. */
CUresult submit(Stream *s, Work *w, const Range *ranges, int n);
/* Return the work of all streams of a context, or of one stream. The caller owns the clock. */
Clock *work_of(Context *c);
Clock *work_of_stream(Stream *s);
/* Waits for the work of a clock, without the lock, and adds it to the host's clock. Takes ownership of c. */
void wait_for(Clock *c);
void event_destroy(uint64_t handle, Event *e);
void recording_drop(Recording *r);

/* ---- Captures --------------------------------------------------------------------------------------------------- */

CUresult unsafe_call(void);
void capture_invalidate(Capture *c);
void capture_drop(Capture *c);
bool captures_in(Context *c, bool blocking_only, bool invalidate);
CUresult capture_add(Stream *s); /* adds a node */
/* A wait of a stream for an event, of which at least one is captured. */
CUresult capture_wait(Stream *s, Event *e, bool external);
CUresult capture_end(Stream *s, bool any_thread);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

Memory *memory_find(uint64_t address, uint64_t n, int from_kind, int to_kind);
void memory_put(Memory *m); /* removes one user */
void memory_free(Memory *m);
CUresult range_of(Stream *s, uint64_t address, uint64_t n, bool writes, Range *r);
char *shadow_of(const Range *r);
void order_check(Stream *s, const Work *w, const Range *r);
bool being_written(const Memory *m, uint64_t from, uint64_t n);
void release_check(const Memory *m);
const char *work_name(int kind);

#endif
