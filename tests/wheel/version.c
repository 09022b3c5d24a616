/* Built against the header and library inside an installed wheel: see check.sh. */
#include <pyfeed.h>
#include <stdio.h>

int main(void) {
    if (pf_abi_version() != PF_ABI_VERSION) {
        fprintf(stderr, "library has ABI %u, header %u\n", pf_abi_version(), PF_ABI_VERSION);
        return 1;
    }
    puts(pf_version());
    return 0;
}
