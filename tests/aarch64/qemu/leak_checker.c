/* Shows that the leak checker of AddressSanitizer does not work in qemu-user. Built with -fsanitize=address, this program
 * ends with status 0 on a machine, and with another status and a message of LeakSanitizer in qemu, which has no ptrace. */
int main(void) { return 0; }
