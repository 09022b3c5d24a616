/* A pause of the processor, for one step of a spin loop. */
#ifndef PYFEED_SPIN_H
#define PYFEED_SPIN_H

static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
