/* Code that runs when the library is loaded, before Go starts. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Gives the pages of the relocations back to the system. They are a tenth of the library, and the dynamic loader no
 * longer needs them. A page that is read again is loaded from the file again. */
__attribute__((constructor)) static void drop_relocations(void) {
    const char *base = (const char *)&__ehdr_start;
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(base + __ehdr_start.e_phoff);
    for (int i = 0; i < __ehdr_start.e_phnum; i++) {
        const ElfW(Phdr) *s = &segments[i];
        if (s->p_type != PT_LOAD || s->p_flags != PF_R || s->p_offset != 0) continue;
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        madvise((void *)((uintptr_t)base & -page), s->p_filesz & -page, MADV_DONTNEED); /* advice */
    }
}
