/* Prints the version of the library. check.sh builds this against the header and the library in an installed wheel. */
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
