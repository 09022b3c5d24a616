/* Checks that the interpreter may use the package, for pyfeed and pyfeed_worker. */
#include "native.h"

#ifndef PYFEED_PACKAGE
#define PYFEED_PACKAGE "pyfeed"
#endif

/* The types, the errors and the hooks at exit exist once for the process. Threads of the library outlive any
 * sub-interpreter, so the end of a sub-interpreter would wait for them for ever. Python initialises the module anew in
 * each interpreter. */
int interpreter_check(void) {
    int64_t id = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (id <= 0) return (int)id; /* the main interpreter, or an error */
    PyErr_Format(PyExc_ImportError,
                 PYFEED_PACKAGE
                 ": expected the main interpreter, found sub-interpreter %lld: sub-interpreters "
                 "are not supported, use threads or processes",
                 (long long)id);
    return -1;
}
