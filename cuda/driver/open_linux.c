/* Opening of the driver at run time.
 *
 * gorgonia.org/cu and this package call the driver's functions as if they were linked. The symbols are
 * defined here: each entry point is a jump through a pointer, which leads to a function that returns an
 * error until the driver is open. So the library loads, and cu's init succeeds, on a machine without a
 * driver. The pointers are initialized statically, because Go's runtime may run before any constructor. */
#define _GNU_SOURCE
#include "calls.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))

static CUresult not_open(void) { return CUDA_ERROR_NOT_INITIALIZED; }
static CUresult not_there(void) { return CUDA_ERROR_NOT_FOUND; }

#define PFD_ENTRY(name, ours) HIDDEN void *pfd_to_##name = (void *)not_open;
#include "entries.h"
#undef PFD_ENTRY

/* A jump leaves all arguments where the caller put them. x16 is reserved for code between a call and its
 * target. endbr64 and hint #34 (bti c) allow indirect jumps to this address. */
#if defined(__x86_64__)
#define JUMP(name) "endbr64\n\tjmp *pfd_to_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) \
    "hint #34\n\tadrp x16, pfd_to_" #name "\n\tldr x16, [x16, :lo12:pfd_to_" #name "]\n\tbr x16\n"
#else
#error "there is no CUDA driver for this processor"
#endif

/* clang-format off */
#define PFD_ENTRY(name, ours)                       \
    __asm__(".text\n"                               \
            "\t.p2align 4\n"                        \
            "\t.globl " #name "\n"                  \
            "\t.hidden " #name "\n"                 \
            "\t.type " #name ", %function\n"        \
            #name ":\n"                             \
            "\t.cfi_startproc\n"                    \
            "\t" JUMP(name)                         \
            "\t.cfi_endproc\n"                      \
            "\t.size " #name ", .-" #name "\n");
#include "entries.h"
#undef PFD_ENTRY
/* clang-format on */

/* cu's init calls cuInit and ends the process if it fails. This one does nothing: pfd_open makes the real
 * call. */
HIDDEN CUresult cuInit(unsigned flags) {
    (void)flags;
    return CUDA_SUCCESS;
}

static const struct {
    const char *name;
    void **to;
    int ours;
} entries[] = {
#define PFD_ENTRY(name, ours) {#name, &pfd_to_##name, ours},
#include "entries.h"
#undef PFD_ENTRY
};
enum { ENTRIES = sizeof entries / sizeof *entries };

static void set(void **to, void *p) { __atomic_store_n(to, p, __ATOMIC_RELEASE); }

pfd_result pfd_open(const char *path, pfd_reason *why) {
    pfd_result r = {CUDA_ERROR_NOT_INITIALIZED, NULL};
    /* RTLD_NODELETE: a driver cannot be unloaded, because the threads that it starts stay. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        snprintf(why->text, sizeof why->text, "%s", dlerror());
        return r;
    }
    CUresult (*init)(unsigned) = (CUresult (*)(unsigned))dlsym(library, "cuInit");
    if (!init) {
        snprintf(why->text, sizeof why->text, "%s: not a CUDA driver, it has no cuInit", path);
        return r;
    }
    for (int i = 0; i < ENTRIES; i++) {
        if (entries[i].ours && !dlsym(library, entries[i].name)) {
            snprintf(why->text, sizeof why->text, "%s: this driver is too old, it has no %s", path,
                     entries[i].name);
            return r;
        }
    }
    r.call = "cuInit";
    r.code = init(0);
    /* Also after an error, because the error's name is asked for next. */
    for (int i = 0; i < ENTRIES; i++) {
        void *p = dlsym(library, entries[i].name);
        set(entries[i].to, p ? p : (void *)not_there);
    }
    return r;
}
