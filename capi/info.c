/* Versions, names and errors. This file does not use Go, so its functions work in a forked child too. The extension of
 * pyfeed_worker compiles it as well. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

uint32_t pf_abi_version(void) { return PF_ABI_VERSION; }
const char *pf_version(void) { return PF_VERSION; }

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {{NULL, 0},      {"bool", 1},    {"int8", 1},      {"int16", 2},
              {"int32", 4},   {"int64", 8},   {"uint8", 1},     {"uint16", 2},
              {"uint32", 4},  {"uint64", 8},  {"float16", 2},   {"bfloat16", 2},
              {"float32", 4}, {"float64", 8}, {"complex64", 8}, {"complex128", 16}};

static int is_dtype(pf_dtype d) { return d > 0 && d < (pf_dtype)(sizeof dtypes / sizeof *dtypes); }
const char *pf_dtype_name(pf_dtype dtype) { return is_dtype(dtype) ? dtypes[dtype].name : NULL; }
size_t pf_dtype_size(pf_dtype dtype) { return is_dtype(dtype) ? dtypes[dtype].size : 0; }

const char *pf_status_name(pf_status status) {
    static const char *const names[] = {
        "PF_OK",      "PF_END",       "PF_TIMEOUT",     "PF_CANCELLED", "PF_CLOSED",    "PF_FAILED",
        "PF_INVALID", "PF_SHAPE",     "PF_DTYPE",       "PF_SLOTS",     "PF_TOO_LARGE", "PF_STALE_HANDLE",
        "PF_STATE",   "PF_NOT_FOUND", "PF_UNSUPPORTED", "PF_NO_MEMORY", "PF_FORKED",    "PF_POISONED",
        "PF_CORRUPT", "PF_IO",        "PF_CUDA_ERROR"};
    return status < sizeof names / sizeof *names ? names[status] : "PF_UNKNOWN";
}

void pf_string_release(char *string) { free(string); }

/* ---- Errors ---- */

static int is_fillable(const pf_error *err) { return err && err->size >= PF_ERROR_SIZE_V1; }

void pf_error_release(pf_error *err) {
    if (!is_fillable(err)) return;
    free(err->message);
    free(err->cause_type);
    free(err->cause_message);
    free(err->cause_traceback);
    free(err->file);
    free(err->op);
    free(err->cuda_name);
    const pf_error none = PF_ERROR_INIT;
    uint32_t size = err->size;
    memcpy(err, &none, size < sizeof none ? size : sizeof none);
    err->size = size;
}

pf_status pfi_fail(pf_error *err, pf_status status, int32_t slot, const char *format, ...) {
    if (!is_fillable(err)) return status;
    pf_error_release(err);
    err->status = status;
    err->slot = slot;
    va_list args;
    va_start(args, format);
    if (vasprintf(&err->message, format, args) < 0) err->message = NULL;
    va_end(args);
    return status;
}
