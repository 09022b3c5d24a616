/* The driver, its devices and their primary contexts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

static const struct {
    CUresult code;
    const char *name, *text;
} results[] = {
#define RESULT(name, text) {CUDA_##name, "CUDA_" #name, text},
#include "results.h"
#undef RESULT
};

static CUresult result_find(CUresult code, const char **name, const char **text) {
    if (!name || !text) return CUDA_ERROR_INVALID_VALUE;
    *name = *text = NULL;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        if (results[i].code != code) continue;
        *name = results[i].name, *text = results[i].text;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    ENTER(cuGetErrorName, ALWAYS);
    const char *text;
    LEAVE(result_find(code, name, &text));
}

CUresult cuGetErrorString(CUresult code, const char **text) {
    ENTER(cuGetErrorString, ALWAYS);
    const char *name;
    LEAVE(result_find(code, &name, text));
}

/* ---- The driver and its devices --------------------------------------------------------------------------------- */

CUresult cuInit(unsigned flags) {
    ENTER(cuInit, ALWAYS);
    LEAVE(flags ? CUDA_ERROR_INVALID_VALUE : initialize());
}

CUresult cuDriverGetVersion(int *version) {
    ENTER(cuDriverGetVersion, ALWAYS);
    if (!version) LEAVE(CUDA_ERROR_INVALID_VALUE);
    const char *given = getenv("FAKECUDA_DRIVER_VERSION");
    *version = given && *given ? atoi(given) : 13000;
    LEAVE(CUDA_SUCCESS);
}

static bool is_device(int device) { return device >= 0 && device < state.devices; }

#define CHECK_DEVICE(pointer, device)                             \
    do {                                                          \
        if (!(pointer)) LEAVE(CUDA_ERROR_INVALID_VALUE);          \
        if (!is_device(device)) LEAVE(CUDA_ERROR_INVALID_DEVICE); \
    } while (0)

CUresult cuDeviceGetCount(int *n) {
    ENTER(cuDeviceGetCount, 0);
    if (!n) LEAVE(CUDA_ERROR_INVALID_VALUE);
    *n = state.devices;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(cuDeviceGet, 0);
    CHECK_DEVICE(device, ordinal);
    *device = ordinal;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int n, CUdevice device) {
    ENTER(cuDeviceGetName, 0);
    CHECK_DEVICE(name, device);
    snprintf(name, n > 0 ? (size_t)n : 0, "Fake GPU %d", device);
    LEAVE(CUDA_SUCCESS);
}

static void uuid_of(CUuuid *uuid, CUdevice device) {
    memset(uuid, 0xFA, sizeof *uuid);
    uuid->bytes[sizeof uuid->bytes - 1] = (char)device;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    ENTER(cuDeviceGetUuid, 0);
    CHECK_DEVICE(uuid, device);
    uuid_of(uuid, device);
    LEAVE(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER(cuDeviceGetUuid_v2, 0);
    CHECK_DEVICE(uuid, device);
    uuid_of(uuid, device);
    LEAVE(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem_v2, 0);
    CHECK_DEVICE(bytes, device);
    *bytes = state.memory;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER(cuDeviceGetAttribute, 0);
    CHECK_DEVICE(value, device);
    if ((int)attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) LEAVE(CUDA_ERROR_INVALID_VALUE);
    switch ((int)attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            *value = 9;
            break;
        case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
            *value = 3;
            break;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
            *value = device + 1;
            break;
        case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
            *value = 1;
            break;
        default:
            *value = 0;
    }
    LEAVE(CUDA_SUCCESS);
}

/* ---- Contexts --------------------------------------------------------------------------------------------------- */

void break_context(Context *c, int code) {
    c->broken = code;
    pthread_cond_broadcast(&state.done);
}

int fakecuda_break(int device, int code) {
    Call call;
    enter_control(&call);
    if (!is_device(device) || !state.contexts[device].retains) LEAVE(CUDA_ERROR_INVALID_DEVICE);
    break_context(&state.contexts[device], code);
    LEAVE(CUDA_SUCCESS);
}

CUresult context_retain(int device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!state.contexts[device].retains++) count(N_contexts, 1);
    count(N_retains, 1);
    return CUDA_SUCCESS;
}

static void destroy_event(uint64_t handle, void *thing, void *data) {
    if (((Event *)thing)->context == data) event_destroy(handle, thing);
}

/* Destroys a context after its work is done. Streams, events and memory that still exist in it are destroyed too, and
 * count as leaks. */
static void context_destroy(Context *c) {
    c->copies_allowed = -1;
    for (Stream *s = c->streams; s; s = s->next) s->allowed = -1;
    pthread_cond_broadcast(&state.done);
    wait_for(work_of(c));
    if (c->retains) return; /* another thread has retained it meanwhile */

    int64_t things = 0, events = state.counts[N_events];
    for (Stream *s = c->streams; s; s = s->next) {
        if (s->closing) continue;
        things += s->made;
        stream_close(s);
    }
    c->legacy = NULL;
    handles_of(AN_EVENT, destroy_event, c);
    things += events - state.counts[N_events];
    for (Memory *m = state.memories, *next; m; m = next) {
        next = m->next;
        if (m->context != c || m->freed) continue;
        things++;
        memory_free(m);
    }
    count(N_contexts, -1);
    if (things && !c->broken) {
        complain(N_leaks,
                 "%lld streams, events and allocations of device %d existed when its context was destroyed",
                 (long long)things, c->device);
        count(N_leaks, things - 1);
    }
    c->broken = 0;
}

void context_release(Context *c) {
    count(N_retains, -1);
    if (!--c->retains) context_destroy(c);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain, 0);
    CHECK_DEVICE(context, device);
    CUresult r = context_retain(device);
    *context = (CUcontext)&state.contexts[device];
    LEAVE(r);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease_v2, RELEASES);
    if (!is_device(device)) LEAVE(CUDA_ERROR_INVALID_DEVICE);
    if (!state.contexts[device].retains) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    context_release(&state.contexts[device]);
    LEAVE(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER(cuDevicePrimaryCtxGetState, 0);
    CHECK_DEVICE(flags && active, device);
    *flags = 0;
    *active = state.contexts[device].retains > 0;
    LEAVE(CUDA_SUCCESS);
}

/* Each thread has a stack of contexts. */
enum { STACK = 64 };
static __thread Context *stack[STACK];
static __thread int depth;

Context *current_context(void) { return depth ? stack[depth - 1] : NULL; }

static bool is_context(CUcontext context) {
    Context *c = (Context *)context;
    return c >= state.contexts && c < state.contexts + MAX_DEVICES && c->retains;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER(cuCtxSetCurrent, 0);
    if (context && !is_context(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    if (depth) depth--;
    if (context) stack[depth++] = (Context *)context;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER(cuCtxGetCurrent, 0);
    if (!context) LEAVE(CUDA_ERROR_INVALID_VALUE);
    *context = (CUcontext)call.context;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER(cuCtxPushCurrent_v2, 0);
    if (!is_context(context)) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    if (depth == STACK) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
    stack[depth++] = (Context *)context;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER(cuCtxPopCurrent_v2, RELEASES);
    if (!depth) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    if (context) *context = (CUcontext)call.context;
    depth--;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER(cuCtxGetDevice, 0);
    if (!device) LEAVE(CUDA_ERROR_INVALID_VALUE);
    if (!call.context) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
    *device = call.context->device;
    LEAVE(CUDA_SUCCESS);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(cuCtxGetStreamPriorityRange, CURRENT);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    LEAVE(CUDA_SUCCESS);
}
