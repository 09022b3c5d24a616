#ifndef PYFEED_PIPE_H
#define PYFEED_PIPE_H

#include <fcntl.h>
#include <unistd.h>

/* Makes a pipe that programs which this process executes do not inherit: no other thread can fork in between. */
static inline int private_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC); }

#endif
