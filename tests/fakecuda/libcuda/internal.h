/* What the parts of the fake driver share. One lock guards all of it; only copies, kernels and functions of the host
 * run outside. */
#ifndef FAKECUDA_INTERNAL_H
#define FAKECUDA_INTERNAL_H

/* Everything is built with hidden visibility but what these two declare. */
#pragma GCC visibility push(default)
#include <cuda.h>

#include "../fakecuda.h"
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>

enum { MAX_DEVICES = 8, MAX_SLOTS = 1024 };

/* ---- Counts ----------------------------------------------------------------------------------------------------- */

/* Alive ones first: they outlive a reset. */
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

/* What comes before something: of each slot, how many pieces of work. A slot is a stream's place in clocks; the next
 * stream to have it counts on, so that no number means two things. */
typedef struct Clock {
    unsigned n;
    uint64_t at[];
} Clock;

Clock *clock_new(void);                                /* with room for every slot there can be, all 0 */
Clock *clock_copy(const Clock *c);                     /* as large as need be */
void clock_set(Clock *c, unsigned slot, uint64_t seq); /* at least; c is of clock_new */
void clock_join(Clock *c, const Clock *other);         /* the same */
bool clock_holds(const Clock *c, unsigned slot, uint64_t seq);
bool clock_done(const Clock *c, unsigned but); /* all of it has run; the slot "but" is not asked */
enum { NO_SLOT = MAX_SLOTS };

typedef struct Slot {
    uint64_t submitted, done;
    bool taken;
} Slot;

/* ---- Things ----------------------------------------------------------------------------------------------------- */

typedef struct Stream Stream;
typedef struct Capture Capture;
typedef struct Memory Memory;
typedef struct Work Work;

typedef struct Context {
    int device;
    int retains;
    int broken; /* 0, or what every call answers */
    int64_t copies_allowed;
    int copying;
    size_t used;
    pthread_mutex_t engine[2]; /* one copy at a time to the device, and one from it */
    Stream *streams;
    Stream *legacy;
} Context;

struct Stream {
    Stream *next;
    uint64_t handle;
    Context *context;
    unsigned slot, flags;
    int priority;
    bool made;    /* by a call, not the driver's own */
    bool closing; /* destroyed, but its work goes on */
    bool running;
    int64_t allowed;
    Clock *before; /* comes before what will be submitted next */
    Work *head, **tail;
    pthread_cond_t work;
    pthread_t thread;
    Capture *capture;
    Clock *captured; /* the same as before, in the capture */
};

/* What cuEventRecord notes. */
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
    char *base, *shadow; /* as the program knows it, as the driver reaches it */
    size_t size;
    int users;  /* work that touches it and is not done */
    bool freed; /* by the program; it goes with its last user */
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
    int code; /* what it fails with */
    uint64_t seq;
    Clock *clock;
    char *to;
    const char *from;
    size_t n;
    int value;
    char *staged; /* a copy of pageable memory, ours */
    bool checked; /* hash is the source's at the call */
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
    pthread_cond_t done;    /* some work, or something else that work waits for */
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
    Clock *host; /* what the host knows is done */
    Memory *memories;
    Capture *captures;
} state;

void lock(void);
void unlock(void);
void count(int what, int64_t by);
void complain(int what, const char *format, ...) __attribute__((format(printf, 2, 3)));
double now_us(void);

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* The rules that calls are under. */
enum {
    ALWAYS = 1,   /* also before cuInit */
    CURRENT = 2,  /* needs a current context, which is not broken */
    UNSAFE = 4,   /* captures forbid it */
    WORKS = 8,    /* submits work, so that a failure can strike later */
    RELEASES = 16 /* does so even when it fails */
};

typedef struct Call {
    unsigned rules;
    Context *context; /* the current one, or NULL */
    int later;        /* what its work fails with */
    int answer;       /* of a call that does its work even so */
} Call;

/* Takes the lock if it answers success. leave lets go of it. */
CUresult enter(Call *call, int id, unsigned rules);
CUresult leave(Call *call, CUresult answer);
/* For functions of fakecuda.h: nothing is counted, nothing fails. */
void enter_control(Call *call);

#define ENTER(name, rules)                                   \
    Call call;                                               \
    do {                                                     \
        CUresult refused = enter(&call, CALL_##name, rules); \
        if (refused) return refused;                         \
    } while (0)
#define LEAVE(answer) return leave(&call, answer)

/* A context that is broken answers so, but for calls that release. */
CUresult check_broken(Call *call, Context *c);

extern __thread bool in_host_function;
extern __thread CUstreamCaptureMode capture_mode;
Context *current_context(void);
void break_context(Context *c, int code);
CUresult context_retain(int device);
void context_release(Context *c);
CUresult initialize(void);

/* ---- Handles: addresses that nobody can touch, each given once --------------------------------------------------- */

enum { NOTHING, A_STREAM, AN_EVENT };
uint64_t handle_new(int kind, void *thing);
void *handle_find(int kind, uint64_t handle); /* NULL, if there is none (any more) */
void handle_drop(uint64_t handle);
void handles_of(int kind, void (*f)(uint64_t handle, void *thing, void *data), void *data);

/* ---- Streams ---------------------------------------------------------------------------------------------------- */

/* The stream of a handle, or why not. A use of the legacy stream that a capture forbids is refused if uses. */
CUresult stream_find(Call *call, uint64_t handle, bool uses, Stream **s);
Stream *stream_new(Context *c, unsigned flags, int priority, bool made);
void stream_close(Stream *s);
Work *work_new(Call *call, int kind);
void work_drop(Work *w);
/* Takes the work. The ranges are what it touches of device memory. */
CUresult submit(Stream *s, Work *w, const Range *ranges, int n);
/* The work of all streams, or of one. It is the caller's. */
Clock *work_of(Context *c);
Clock *work_of_stream(Stream *s);
/* Waits, with the lock let go; the host knows afterwards. Takes the clock. */
void wait_for(Clock *c);
void event_destroy(uint64_t handle, Event *e);
void recording_drop(Recording *r);

/* ---- Captures --------------------------------------------------------------------------------------------------- */

CUresult unsafe_call(void);
void capture_invalidate(Capture *c);
void capture_drop(Capture *c);
bool captures_in(Context *c, bool blocking_only, bool invalidate);
CUresult capture_add(Stream *s); /* a node */
CUresult capture_wait(Stream *s, Event *e,
                      bool external); /* of a capturing stream, or for a captured event */
CUresult capture_end(Stream *s, bool any_thread);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

Memory *memory_find(uint64_t address, uint64_t n, int from_kind, int to_kind);
void memory_put(Memory *m); /* one user less */
void memory_free(Memory *m);
CUresult range_of(Stream *s, uint64_t address, uint64_t n, bool writes, Range *r);
char *shadow_of(const Range *r);
void order_check(Stream *s, const Work *w, const Range *r);
bool being_written(const Memory *m, uint64_t from, uint64_t n);
void release_check(const Memory *m);
const char *work_name(int kind);

#endif
