/* Shows that ThreadSanitizer does not work in qemu-user for a process that has had many mappings. ThreadSanitizer takes
 * the size of the address space from the address of the stack: 39 bits in qemu. But after about 4 GB of mappings, such
 * as the stacks of 500 threads, qemu gives addresses with 47 bits. Built with -fsanitize=thread, this program ends with
 * status 0 on a machine, and with a signal or an error of ThreadSanitizer in qemu. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>

enum { MAPPINGS = 800, BYTES = 8 << 20 };

int main(void) {
    for (int i = 0; i < MAPPINGS; i++) {
        volatile char *at =
            mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return 1;
        *at = 1;
    }
    return 0;
}
