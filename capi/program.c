/* Programs, kernels and the executor. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "entry.h"

/* ---- Programs ---- */

pf_status pf_program_new(pf_handle *program, pf_error *err) {
    ZERO(program);
    ENTER(err);
    NOT_NULL(program);
    return pfgo_program_new(program, err);
}

pf_status pf_program_clone(pf_handle program, pf_handle *clone, pf_error *err) {
    ZERO(clone);
    ENTER(err);
    NOT_NULL(clone);
    return pfgo_program_clone(program, clone, err);
}

pf_status pf_program_add_block(pf_handle program, uint32_t parent, uint32_t *block, pf_error *err) {
    ZERO(block);
    ENTER(err);
    NOT_NULL(block);
    return pfgo_program_add_block(program, parent, block, err);
}

pf_status pf_program_add_variable(pf_handle program, uint32_t block, const char *variable, pf_error *err) {
    ENTER(err);
    NOT_NULL(variable);
    return pfgo_program_add_variable(program, block, (char *)variable, err);
}

pf_status pf_program_add_op(pf_handle program, uint32_t block, const char *op, pf_error *err) {
    ENTER(err);
    NOT_NULL(op);
    return pfgo_program_add_op(program, block, (char *)op, err);
}

pf_status pf_program_variable(pf_handle program, uint32_t block, const char *name, char **variable,
                              pf_error *err) {
    ZERO(variable);
    ENTER(err);
    NOT_NULL(name);
    NOT_NULL(variable);
    return pfgo_program_variable(program, block, (char *)name, variable, err);
}

pf_status pf_program_serialize(pf_handle program, const char *form, char **data, uint64_t *size,
                               pf_error *err) {
    ZERO(data);
    ZERO(size);
    ENTER(err);
    NOT_NULL(form);
    NOT_NULL(data);
    NOT_NULL(size);
    return pfgo_program_serialize(program, (char *)form, data, size, err);
}

pf_status pf_program_parse(const char *data, uint64_t size, pf_handle *program, pf_error *err) {
    ZERO(program);
    ENTER(err);
    NOT_NULL(program);
    if (size > 0) NOT_NULL(data);
    return pfgo_program_parse((char *)data, size, program, err);
}

pf_status pf_program_save(pf_handle program, const char *path, pf_error *err) {
    ENTER(err);
    NOT_NULL(path);
    return pfgo_program_save(program, (char *)path, err);
}

pf_status pf_program_load(const char *path, pf_handle *program, pf_error *err) {
    ZERO(program);
    ENTER(err);
    NOT_NULL(path);
    NOT_NULL(program);
    return pfgo_program_load((char *)path, program, err);
}

/* ---- Kernels ---- */

pf_status pf_register_kernel(const char *name, pf_kernel kernel, void *context,
                             void (*finished)(void *context), pf_handle *handle, pf_error *err) {
    ZERO(handle);
    ENTER(err);
    NOT_NULL(name);
    NOT_NULL(kernel);
    NOT_NULL(handle);
    return pfgo_register_kernel((char *)name, (void *)kernel, context, (void *)finished, handle, err);
}

pf_status pf_kernels(char **json, pf_error *err) {
    ZERO(json);
    ENTER(err);
    NOT_NULL(json);
    return pfgo_kernels(json, err);
}

/* ---- Libraries of kernels ---- */

/* Those that have registered theirs; guarded by the lock, which a library that loads another takes twice. */
static struct loaded {
    void *library;
    struct loaded *next;
} *loaded;
static pthread_mutex_t loading = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static pf_status load(const char *path, pf_error *err) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        pf_status status =
            pfi_fail(err, PF_IO, -1, "%s: expected a shared object with kernels: %s", path, why ? why : "");
        if (err && err->size >= PFI_LEAST_ERROR) err->file = strdup(path);
        return status;
    }
    for (struct loaded *l = loaded; l; l = l->next) {
        if (l->library == library) {
            dlclose(library); /* one count less; it stays */
            return PF_OK;
        }
    }
    int (*enter)(pf_error *) = (int (*)(pf_error *))dlsym(library, "pyfeed_register_kernels");
    struct loaded *one = enter ? malloc(sizeof *one) : NULL;
    if (!one) {
        dlclose(library);
        if (enter) return pfi_fail(err, PF_NO_MEMORY, -1, "%s: out of memory", path);
        return pfi_fail(err, PF_INVALID, -1,
                        "%s: expected a function pyfeed_register_kernels in it, found none", path);
    }
    *one = (struct loaded){library, loaded}; /* before: it may load others that load this one */
    loaded = one;
    int answer = enter(err);
    if (answer) { /* not unloaded: what it has registered may still be there */
        struct loaded **at = &loaded;
        while (*at != one) at = &(*at)->next;
        *at = one->next;
        free(one);
        if (err && err->status == PF_OK)
            pfi_fail(err, PF_FAILED, -1, "%s: pyfeed_register_kernels answered %d", path, answer);
        return answer > 0 && answer <= PF_IO ? (pf_status)answer : PF_FAILED;
    }
    return PF_OK;
}

pf_status pf_load_kernels(const char *path, pf_error *err) {
    ENTER(err);
    NOT_NULL(path);
    char *here = NULL; /* a bare name is a file's here, not one of the system's libraries */
    if (!strchr(path, '/') && asprintf(&here, "./%s", path) < 0) here = NULL;
    pthread_mutex_lock(&loading);
    pf_status status = load(here ? here : path, err);
    pthread_mutex_unlock(&loading);
    free(here);
    return status;
}

/* ---- In a kernel ---- */

#define CALL(call)                                                             \
    do {                                                                       \
        NOT_NULL(call);                                                        \
        SIZED(call, "call", offsetof(pf_kernel_call, run) + sizeof(uint64_t)); \
    } while (0)

pf_status pf_kernel_output(const pf_kernel_call *call, uint32_t output, const pf_tensor *like, void **data,
                           pf_error *err) {
    ZERO(data);
    ENTER(err);
    CALL(call);
    NOT_NULL(like);
    TENSORS(like, 1, 0);
    void *room;
    return pfgo_kernel_output(call->run, output, (pf_tensor *)like, 0, data ? data : &room, err);
}

pf_status pf_kernel_set(const pf_kernel_call *call, uint32_t output, const pf_tensor *tensor, pf_error *err) {
    ENTER(err);
    CALL(call);
    NOT_NULL(tensor);
    TENSORS(tensor, 1, 1);
    const pf_tensor from = *tensor; /* which may be the very struct of the output, */
    int64_t dims[PF_MAX_RANK];      /* with the dims there */
    if (from.rank > 0) memcpy(dims, from.dims, (size_t)from.rank * sizeof *dims);
    void *room = NULL; /* apart from what the output has: the tensor may look at that too */
    pf_status status = pfgo_kernel_output(call->run, output, (pf_tensor *)tensor, 1, &room, err);
    if (!status) {
        pf_tensor copied = from;
        copied.dims = dims;
        pfi_gather(room, &copied);
    }
    return status;
}

pf_status pf_kernel_share(const pf_kernel_call *call, uint32_t input, pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    ENTER(err);
    CALL(call);
    WHOLE(out);
    return pfgo_kernel_share(call->run, input, out, err);
}

pf_status pf_kernel_fail(const pf_kernel_call *call, const pf_failure *failure, pf_error *err) {
    ENTER(err);
    CALL(call);
    NOT_NULL(failure);
    SIZED(failure, "failure", sizeof *failure);
    return pfgo_kernel_fail(call->run, (pf_failure *)failure, err);
}

/* ---- The executor ---- */

enum { LOOK_MS = 50 }; /* between looks at the time and the poll function, while a run works */

pf_status pf_executor_new(pf_place place, pf_handle *executor, pf_error *err) {
    ZERO(executor);
    ENTER(err);
    NOT_NULL(executor);
    return pfgo_executor_new(place, executor, err);
}

static pf_status check_names(const char *const *names, uint32_t count, const char *what, pf_error *err) {
    if (count > 0 && !names) return pfi_null(err, what);
    for (uint32_t i = 0; i < count; i++)
        if (!names[i]) return pfi_null(err, what);
    return PF_OK;
}

pf_status pf_executor_run(pf_handle executor, pf_handle program, pf_handle scope,
                          const char *const *feed_names, const pf_tensor *feeds, uint32_t num_feeds,
                          const char *const *fetch_names, uint32_t num_fetches, const pf_wait *wait,
                          pf_tuple *fetched, pf_error *err) {
    ZERO_BUT_LOAN(fetched);
    ENTER(err);
    if (num_fetches > 0) WHOLE(fetched);
    pf_status status = check_names(feed_names, num_feeds, "feed_names", err);
    if (!status) status = check_names(fetch_names, num_fetches, "fetch_names", err);
    if (status) return status;
    TENSORS(feeds, num_feeds, 1);
    if (wait) SIZED(wait, "wait", offsetof(pf_wait, cancel));

    pfi_waiter waiter = pfi_waiter_begin(wait);
    pfi_call call = {0};
    call.cancel = waiter.wait.cancel;
    call.waits = waiter.wait.timeout_ns != 0;
    pfi_run run = {0};
    if (waiter.wait.poll || waiter.deadline) {
        uint32_t wished = waiter.wait.poll_interval_ms;
        run.look_ms = wished && wished < LOOK_MS ? wished : LOOK_MS;
    }
    status = pfgo_run_begin(executor, program, scope, (char **)feed_names, (pf_tensor *)feeds, num_feeds,
                            (char **)fetch_names, num_fetches, &call, &run, fetched, err);
    if (status == PFI_COPY) {
        for (uint32_t i = 0; i < num_feeds; i++)
            pfi_gather(pfi_tensor_at(call.room, i)->data, pfi_tensor_at(feeds, i));
        status = pfgo_run_feed(&run, call.loan, err);
    }
    if (status) return status;
    for (;;) {
        status = pfgo_run_step(&run, &call, num_fetches > 0 ? fetched : NULL, err);
        if (status == PFI_KERNEL) {
            run.answer = run.kernel(run.context, run.of);
            if (__builtin_expect(__atomic_load_n(&pfi_shut, __ATOMIC_RELAXED), 0)) return pfi_refuse(err);
        } else if (status == PFI_WOULD_BLOCK) {
            pfi_sleep(&waiter, &call);
        } else if (status == PFI_YIELD) {
            pfi_look(&waiter, &call);
        } else {
            break;
        }
    }
    if (call.waiter && !pfi_shut) pfgo_call_end(&call);
    return status;
}
