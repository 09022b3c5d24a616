/* Code that runs when the library has been loaded and Go has started. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Gives the pages of the library's read-only tables back to the system: the relocations, which only the dynamic loader
 * reads, and Go's tables of functions, of which the start reads more than the rest of the program. A page that is read
 * again is mapped again. The pages of code are kept: a debugger may have written a breakpoint into them. */
void pfi_release_tables(void) {
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)((const char *)&__ehdr_start + __ehdr_start.e_phoff);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t moved = 0; /* by how much the library lies above the addresses in the file */
    for (int i = 0; i < __ehdr_start.e_phnum; i++) {
        const ElfW(Phdr) *s = &segments[i];
        if (s->p_type != PT_LOAD) continue;
        if (s->p_offset == 0) moved = (uintptr_t)&__ehdr_start - s->p_vaddr; /* it comes first */
        if (s->p_flags != PF_R) continue;
        uintptr_t first = (moved + s->p_vaddr) & -page, end = moved + s->p_vaddr + s->p_filesz;
        madvise((void *)first, end - first, MADV_DONTNEED); /* advice */
    }
}
