/* Checks of the self tests. The first check that fails ends the process. */
#ifndef FAKECUDA_CHECK_H
#define FAKECUDA_CHECK_H

#include <stdio.h>
#include <stdlib.h>

static inline void check(const char *file, int line, const char *what, long long expected, long long found) {
    if (expected == found) return;
    fprintf(stderr, "%s:%d: %s: expected %lld, found %lld\n", file, line, what, expected, found);
    _Exit(1);
}

/* Compares numbers or result codes. */
#define EXPECT(expected, found) check(__FILE__, __LINE__, #found, (long long)(expected), (long long)(found))
#define OK(call) EXPECT(0, call)

#endif
