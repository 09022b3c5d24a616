/* A moment's rest for a thread that looks out for another. */
#ifndef PYFEED_PAUSE_H
#define PYFEED_PAUSE_H

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
