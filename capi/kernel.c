/* Kernels, libraries of kernels, and the functions that a kernel calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "guard.h"

pf_status pf_kernel_register(const char *name, pf_kernel kernel, void *context,
                             void (*finished)(void *context), pf_handle *handle, pf_error *err) {
    ZERO(handle);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(name, err);
    REQUIRE_POINTER(kernel, err);
    REQUIRE_POINTER(handle, err);
    return pfgo_kernel_register((char *)name, (void *)kernel, context, (void *)finished, handle, err);
}

pf_status pf_kernel_list(char **json, pf_error *err) {
    ZERO(json);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(json, err);
    return pfgo_kernel_list(json, err);
}

/* The shared objects that were loaded. The lock is recursive because one that registers its kernels may load another.
 */
static struct loaded {
    void *library;
    struct loaded *next;
} *loaded;
static pthread_mutex_t loading;
static pthread_once_t loading_made = PTHREAD_ONCE_INIT;

static void make_loading(void) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&loading, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

static pf_status load(const char *path, pf_error *err) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        pf_status status =
            pfi_fail(err, PF_IO, -1, "%s: expected a shared object with kernels: %s", path, why ? why : "");
        if (err && err->size >= PF_ERROR_SIZE_V1) err->file = strdup(path);
        return status;
    }
    for (struct loaded *l = loaded; l; l = l->next) {
        if (l->library == library) {
            dlclose(library); /* undoes the dlopen above; the object stays loaded */
            return PF_OK;
        }
    }
    int (*register_kernels)(pf_error *) = (int (*)(pf_error *))dlsym(library, "pyfeed_register_kernels");
    struct loaded *one = register_kernels ? malloc(sizeof *one) : NULL;
    if (!one) {
        dlclose(library);
        if (register_kernels) return pfi_fail(err, PF_NO_MEMORY, -1, "%s: out of memory", path);
        return pfi_fail(err, PF_INVALID, -1,
                        "%s: expected a function pyfeed_register_kernels in it, found none", path);
    }
    *one = (struct loaded){library, loaded}; /* before the call, which may load this object */
    loaded = one;
    int result = register_kernels(err);
    if (result) { /* not unloaded: kernels that it registered may still exist */
        struct loaded **at = &loaded;
        while (*at != one) at = &(*at)->next;
        *at = one->next;
        free(one);
        if (err && err->status == PF_OK)
            pfi_fail(err, PF_FAILED, -1, "%s: pyfeed_register_kernels returned %d", path, result);
        return result > 0 && result <= PF_CUDA_ERROR ? (pf_status)result : PF_FAILED;
    }
    return PF_OK;
}

pf_status pf_kernel_load(const char *path, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(path, err);
    char *here = NULL; /* a name without a slash is a file here; dlopen would search the system's libraries */
    if (!strchr(path, '/') && asprintf(&here, "./%s", path) < 0) here = NULL;
    pthread_once(&loading_made, make_loading);
    pthread_mutex_lock(&loading);
    pf_status status = load(here ? here : path, err);
    pthread_mutex_unlock(&loading);
    free(here);
    return status;
}

pf_status pf_kernel_output(const pf_kernel_call *call, uint32_t output, const pf_tensor *like, void **data,
                           pf_error *err) {
    ZERO(data);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(call, err);
    REQUIRE_POINTER(like, err);
    REQUIRE_TENSORS(like, 1, 0, err);
    void *ignored;
    return pfgo_kernel_output(call->run, output, (pf_tensor *)like, 0, data ? data : &ignored, err);
}

pf_status pf_kernel_set(const pf_kernel_call *call, uint32_t output, const pf_tensor *tensor, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(call, err);
    REQUIRE_POINTER(tensor, err);
    REQUIRE_TENSORS(tensor, 1, 1, err);
    /* A copy of the description: `tensor` may be the struct of the output itself, which the call below overwrites with
     * its dims. */
    pf_tensor from = PF_TENSOR_INIT;
    pfi_copy_struct(&from, tensor);
    int64_t dims[PF_MAX_RANK];
    if (from.rank > 0) memcpy(dims, from.dims, (size_t)from.rank * sizeof *dims);
    from.dims = dims;
    void *to = NULL; /* new memory: `tensor` may be a view of the output's old memory */
    pf_status status = pfgo_kernel_output(call->run, output, (pf_tensor *)tensor, 1, &to, err);
    if (!status) pfi_gather(to, &from);
    return status;
}

pf_status pf_kernel_share(const pf_kernel_call *call, uint32_t input, pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(call, err);
    REQUIRE_STRUCT(out, err);
    return pfgo_kernel_share(call->run, input, out, err);
}

pf_status pf_kernel_fail(const pf_kernel_call *call, const pf_failure *failure, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(call, err);
    REQUIRE_STRUCT(failure, err);
    pf_failure all = PF_FAILURE_INIT;
    pfi_copy_struct(&all, failure);
    return pfgo_kernel_fail(call->run, &all, err);
}
